// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The document on standard output; docs/reference/lab-gen.md says what its fields mean.

use serde::Serialize;

use crate::arguments::{Pattern, Plan};
use crate::clock::Stamp;
use crate::error::Result;
use crate::group::coordinator::Gathered;
use crate::latency::{ERROR_MAX, Latencies, Percentiles};

const SCHEMA: u32 = 1;

/// One phase of one group of processes.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    schema: u32,
    version: &'static str,
    phase: &'static str,
    pattern: &'a Pattern,
    processes: Vec<Process>,
    total: Total,
    latency: Distribution,
}

#[derive(Debug, Serialize)]
struct Process {
    rank: usize,
    host: String,
    pid: u32,
    begin: Stamp,
    end: Stamp,
    #[serde(flatten)]
    work: Work,
    open_ns: u64,
    sync_ns: u64,
    close_ns: u64,
    is_stonewalled: bool,
    latency_ns: Option<Percentiles>,
}

#[derive(Debug, Default, Serialize)]
struct Work {
    bytes: u64,
    operations: u64,
    files: u64,
    directories: u64,
}

#[derive(Debug, Serialize)]
struct Total {
    #[serde(flatten)]
    work: Work,
    /// From the first begin to the last end.
    seconds: f64,
    /// Whose clock says so.
    clock: &'static str,
    bytes_per_s: f64,
    operations_per_s: f64,
}

#[derive(Debug, Serialize)]
struct Distribution {
    percentiles_ns: Option<Percentiles>,
    error_max: f64,
    ecdf_ns: Vec<(u64, f64)>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(plan: &'a Plan, gathered: Gathered) -> Result<Self> {
        let parts = &gathered.parts;
        let is_one_clock = parts.windows(2).all(|two| two[0].identity.boot == two[1].identity.boot);
        let begin_ns = parts.iter().map(|part| part.outcome.begin.raw_ns).min().unwrap_or(0);
        let end_ns = parts.iter().map(|part| part.outcome.end.raw_ns).max().unwrap_or(0);
        let (ns, clock) = match is_one_clock {
            true => (end_ns - begin_ns, "processes"),
            false => (gathered.seen_ns, "coordinator"),
        };
        let mut work = Work::default();
        let mut all = Latencies::new();
        let mut processes = Vec::with_capacity(parts.len());
        for (rank, part) in gathered.parts.into_iter().enumerate() {
            let (identity, outcome) = (part.identity, part.outcome);
            let mut latencies = Latencies::new();
            latencies.add(&outcome.latency)?;
            all.add(&outcome.latency)?;
            work.bytes += outcome.bytes;
            work.operations += outcome.operations;
            work.files += outcome.files;
            work.directories += outcome.directories;
            processes.push(Process {
                rank,
                host: identity.host,
                pid: identity.pid,
                begin: outcome.begin,
                end: outcome.end,
                work: Work {
                    bytes: outcome.bytes,
                    operations: outcome.operations,
                    files: outcome.files,
                    directories: outcome.directories,
                },
                open_ns: outcome.open_ns,
                sync_ns: outcome.sync_ns,
                close_ns: outcome.close_ns,
                is_stonewalled: outcome.is_stonewalled,
                latency_ns: latencies.percentiles(),
            });
        }
        let seconds = ns as f64 / 1e9;
        Ok(Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            phase: plan.phase,
            pattern: &plan.pattern,
            processes,
            total: Total {
                seconds,
                clock,
                bytes_per_s: work.bytes as f64 / seconds,
                operations_per_s: work.operations as f64 / seconds,
                work,
            },
            latency: Distribution {
                percentiles_ns: all.percentiles(),
                error_max: ERROR_MAX,
                ecdf_ns: all.steps(),
            },
        })
    }
}
