// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace comes to.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use terrace_core::units::{show_bytes, show_ns};
use terrace_trace::{Access, Record};

use super::choice::{Came, Found};
use crate::output::count;
use crate::table::Table;
use crate::time::show_wall_exactly;

/// Latencies in buckets of a 16th of their power of two: a quantile is right within 6 %.
#[derive(Default)]
struct Latencies {
    buckets: BTreeMap<u64, u64>,
    count: u64,
}

impl Latencies {
    fn add(&mut self, ns: u64) {
        // The five highest bits stay.
        let shift = (64 - ns.leading_zeros()).saturating_sub(5);
        *self.buckets.entry(ns >> shift << shift).or_default() += 1;
        self.count += 1;
    }

    fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut passed = 0;
        for (ns, count) in &self.buckets {
            passed += count;
            if passed >= wanted {
                return *ns;
            }
        }
        0
    }
}

/// Events of one kind on one tier.
#[derive(Default)]
struct Row {
    events: u64,
    bytes: u64,
    latencies: Latencies,
    guard_ns: u64,
    stack_ns: u64,
}

/// The sums of what was chosen.
#[derive(Default)]
pub(super) struct Summary {
    first_wall_ns: Option<u64>,
    last_wall_ns: u64,
    records: u64,
    rounds: u64,
    decisions: u64,
    summed_up_events: u64,
    rows: BTreeMap<(&'static str, String), Row>,
}

impl Summary {
    pub(super) fn add(&mut self, found: &Found<'_>) {
        self.records += 1;
        let first = self.first_wall_ns.unwrap_or(found.wall_ns);
        self.first_wall_ns = Some(first.min(found.wall_ns));
        self.last_wall_ns = self.last_wall_ns.max(found.wall_ns);
        match found.record {
            Record::Access(access) => self.add_access(found, access),
            Record::Round(_) => self.rounds += 1,
            Record::Decision(_) => self.decisions += 1,
            Record::Policy(_) | Record::Snapshot(_) | Record::State(_) => {}
        }
    }

    fn add_access(&mut self, found: &Found<'_>, Access { event, waits }: &Access) {
        let tier = found.tier(event.tier.index()).to_string();
        let row = self.rows.entry((found.kind, tier)).or_default();
        row.events += u64::from(event.count);
        if moves_bytes(found.kind) {
            row.bytes = row.bytes.saturating_add(event.length_bytes);
            row.guard_ns = row.guard_ns.saturating_add(waits.guard_ns);
            row.stack_ns = row.stack_ns.saturating_add(waits.stack_ns);
        }
        if event.count == 1 {
            row.latencies.add(event.latency_ns);
        } else {
            self.summed_up_events += u64::from(event.count);
        }
    }

    fn span_ns(&self) -> (u64, u64) {
        (self.first_wall_ns.unwrap_or(0), self.last_wall_ns)
    }

    pub(super) fn value(&self, came: &Came) -> Value {
        let (from_ns, until_ns) = self.span_ns();
        let rows = self.rows.iter().map(|((kind, tier), row)| {
            json!({
                "kind": kind,
                "tier": tier,
                "events": row.events,
                "bytes": row.bytes,
                "p50_ns": row.latencies.quantile(0.5),
                "p99_ns": row.latencies.quantile(0.99),
                "guard_ns": row.guard_ns,
                "stack_ns": row.stack_ns,
            })
        });
        let last = came.last.as_ref();
        json!({
            "files": came.files,
            "from_ns": from_ns,
            "until_ns": until_ns,
            "records": self.records,
            "events": rows.collect::<Vec<_>>(),
            "rounds": self.rounds,
            "decisions": self.decisions,
            "summed_up_events": self.summed_up_events,
            "lost_records": last.map_or(0, |head| head.lost_records),
            "deleted_files": last.map_or(0, |head| head.deleted_files),
            "deleted_records": last.map_or(0, |head| head.deleted_records),
            "has_hashed_names": last.is_some_and(|head| head.has_hashed_names),
            "problems": came.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    pub(super) fn lines(&self, came: &Came) -> Vec<String> {
        let files = count(came.files, "file");
        let mut lines = vec![format!("{files}, {}", count(self.records, "record"))];
        if self.records > 0 {
            let (from, until) = self.span_ns();
            let (from, until) = (show_wall_exactly(from), show_wall_exactly(until));
            lines.push(format!("from   {from}\nuntil  {until}\n"));
        }
        let mut table = Table::new(&[2, 3, 4, 5, 6]);
        table.heading(["kind", "tier", "events", "bytes", "p50", "p99", "guard"]);
        for ((kind, tier), row) in &self.rows {
            let is_timed = moves_bytes(kind);
            let timed = |text: String| if is_timed { text } else { "-".into() };
            table.row([
                (*kind).into(),
                tier.clone(),
                row.events.to_string(),
                timed(show_bytes(row.bytes)),
                timed(show_ns(row.latencies.quantile(0.5))),
                timed(show_ns(row.latencies.quantile(0.99))),
                timed(show_ns(row.guard_ns)),
            ]);
        }
        lines.extend(table.lines());
        if self.rounds > 0 {
            let (rounds, decisions) =
                (count(self.rounds, "round"), count(self.decisions, "decision"));
            lines.push(format!("\n{rounds} of the policy, {decisions}"));
        }
        if self.summed_up_events > 0 {
            let events = count(self.summed_up_events, "event");
            lines.push(format!(
                "{events} summed up, by the policy's rings or by readers with leases"
            ));
        }
        if let Some(head) = &came.last {
            if head.lost_records > 0 {
                let records = count(head.lost_records, "record");
                lines.push(format!("{records} lost: the disk of the trace did not keep up"));
            }
            if head.deleted_files > 0 {
                let files = count(head.deleted_files, "file");
                let records = count(head.deleted_records, "record");
                lines.push(format!("{files} with {records} deleted to keep the bound"));
            }
        }
        lines
    }
}

/// Whether a length is an amount of bytes that were transferred in the latency.
fn moves_bytes(kind: &str) -> bool {
    matches!(kind, "read" | "write")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearly_right() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), 0);
        (1..=10_000).for_each(|ns| latencies.add(ns));
        for (share, right) in [(0.5, 5000.0), (0.99, 9900.0), (0.0001, 1.0)] {
            let found = latencies.quantile(share) as f64;
            assert!((found / right - 1.0).abs() < 0.0625, "{share}: {found}");
        }
    }
}
