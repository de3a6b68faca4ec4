// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A row of the table: what was measured of one case over servers.

use hdrhistogram::Histogram;
use serde::Serialize;
use terrace_measure::sides::{ServerUse, Side};
use terrace_measure::{Bound, median};

use crate::micro::{Keys, Kind, Planned};

/// How many processes and clients measured it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crew {
    pub(super) processes: usize,
    /// Of each process.
    pub(super) clients: usize,
}

/// What was measured of one case. Rates and CPU times are medians of the repetitions, percentiles
/// are of all calls of all processes.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub(crate) case: &'static str,
    pub(crate) kind: Kind,
    /// The address without its settings.
    pub(crate) store: String,
    pub(crate) servers: usize,
    pub(crate) processes: usize,
    /// Of each process.
    pub(crate) clients: usize,
    /// Of each client.
    pub(crate) threads: usize,
    pub(crate) level: &'static str,
    pub(crate) semantics: String,
    pub(crate) size_bytes: usize,
    /// Operations of one call.
    pub(crate) batch: usize,
    pub(crate) keys: Keys,
    pub(crate) ops_per_s: f64,
    /// 95 % bound of the median.
    pub(crate) ops_per_s_low95: f64,
    pub(crate) ops_per_s_high95: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) client_cpu_us_per_op: f64,
    pub(crate) server_cpu_us_per_op: f64,
    /// In all repetitions.
    pub(crate) operations: u64,
    pub(crate) repetitions: usize,
    pub(crate) ended_early: usize,
    /// Operations of the server that had the fewest, divided by those of the one that had the most.
    pub(crate) balance: Option<f64>,
    pub(crate) by_server: Vec<OfServer>,
    /// The rate divided by that of one server, block by block.
    pub(crate) times_one_server: Option<Bound>,
}

/// What one server did of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OfServer {
    pub(crate) server: String,
    /// That it carried out; pieces of a distributed object are counted where they are.
    pub(crate) operations: u64,
    /// Of those of all servers.
    pub(crate) share: f64,
    /// CPU time divided by its own operations.
    pub(crate) cpu_us_per_op: Option<f64>,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
}

/// The row of what was measured over a store.
pub(super) fn row((kind, case, shape): &Planned, crew: Crew, address: &str, side: &Side) -> Row {
    let rate = Bound::of(&side.ops_per_s);
    let moves_bytes = !matches!(*case, "delete" | "status");
    let us = |share| {
        let latencies: &Histogram<u64> = &side.latencies_ns;
        latencies.value_at_quantile(share) as f64 / 1e3
    };
    Row {
        case,
        kind: *kind,
        store: address.split('?').next().unwrap_or(address).into(),
        servers: side.servers.len(),
        processes: crew.processes,
        clients: crew.clients,
        threads: shape.threads,
        level: shape.semantics.persistency.word(),
        semantics: shape.semantics.to_string(),
        size_bytes: shape.size_bytes,
        batch: shape.batch,
        keys: shape.keys,
        ops_per_s: rate.median,
        ops_per_s_low95: rate.low95,
        ops_per_s_high95: rate.high95,
        mb_per_s: if moves_bytes { rate.median * shape.size_bytes as f64 / 1e6 } else { 0.0 },
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        client_cpu_us_per_op: median(&mut side.cpu_us_per_op.clone()),
        server_cpu_us_per_op: median(&mut side.server_cpu_us_per_op.clone()),
        operations: side.operations,
        repetitions: side.ops_per_s.len(),
        ended_early: side.ended_early,
        balance: balance(&side.servers),
        by_server: by_server(&side.servers),
        times_one_server: None,
    }
}

/// How many times the rate of one server all of them reach.
pub(super) fn times(all: &Side, one: &Side) -> Bound {
    let ratios = all.ops_per_s.iter().zip(&one.ops_per_s).map(|(all, one)| all / one);
    Bound::of(&ratios.collect::<Vec<_>>())
}

fn balance(servers: &[ServerUse]) -> Option<f64> {
    if servers.len() < 2 {
        return None;
    }
    let operations = || servers.iter().map(|server| server.operations);
    let (fewest, most) = (operations().min()?, operations().max()?);
    (most > 0).then(|| fewest as f64 / most as f64)
}

fn by_server(servers: &[ServerUse]) -> Vec<OfServer> {
    let all: u64 = servers.iter().map(|server| server.operations).sum();
    let of = |server: &ServerUse| {
        let own = server.operations as f64;
        OfServer {
            server: server.name.clone(),
            operations: server.operations,
            share: own / all.max(1) as f64,
            cpu_us_per_op: (own > 0.0).then(|| server.cpu_ns as f64 / 1e3 / own),
            received_bytes: server.received_bytes,
            sent_bytes: server.sent_bytes,
        }
    };
    servers.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(operations: u64) -> ServerUse {
        ServerUse { operations, cpu_ns: 8_000, ..ServerUse::default() }
    }

    #[test]
    fn balance_is_between_the_least_and_the_most_busy() {
        assert_eq!(balance(&[]), None);
        assert_eq!(balance(&[server(5)]), None);
        assert_eq!(balance(&[server(0), server(0)]), None);
        assert_eq!(balance(&[server(6), server(2), server(8)]), Some(0.25));
        assert_eq!(balance(&[server(6), server(0)]), Some(0.0));
    }

    #[test]
    fn each_server_has_its_share_and_the_cost_of_its_own_operations() {
        let of = by_server(&[server(6), server(2), server(0)]);
        assert_eq!(of.iter().map(|one| one.share).collect::<Vec<_>>(), [0.75, 0.25, 0.0]);
        let costs: Vec<_> = of.iter().map(|one| one.cpu_us_per_op).collect();
        assert_eq!(costs, [Some(8.0 / 6.0), Some(4.0), None]);
    }
}
