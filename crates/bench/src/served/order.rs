// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between the command and the processes with its clients.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use terrace_core::Result;
use terrace_measure::sides::{Block, latencies};
use terrace_measure::team::odd;

use crate::micro::{Bounds, Keys, Kind};

/// What a process is to do next.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Make what a row needs.
    Make(Task),
    /// Make what so many calls of each thread need, and be ready to begin.
    Prepare { calls: u64, block_ns: u64 },
    /// Begin.
    Go,
    /// Check what was made, and take it away.
    Clean,
    /// Close what the row had open.
    Forget,
}

/// A row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) kind: Kind,
    pub(super) case: String,
    pub(super) size_bytes: usize,
    pub(super) batch: usize,
    /// Of each client.
    pub(super) threads: usize,
    pub(super) semantics: String,
    pub(super) keys: Keys,
    /// Of each client.
    pub(super) bounds: Bounds,
    /// Clients of each process.
    pub(super) clients: usize,
    /// Clients of all processes.
    pub(super) parts: usize,
    /// Which of the processes it is.
    pub(super) process: usize,
    /// What the namespaces of all clients begin with.
    pub(super) prefix: String,
}

impl Task {
    /// The number of a client of this process among all.
    pub(super) fn part(&self, client: usize) -> usize {
        self.process * self.clients + client
    }
}

/// The namespace of a client's objects and pairs.
pub(super) fn namespace(prefix: &str, part: usize) -> String {
    format!("{prefix}-{part}")
}

/// What a process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// Made; each thread may make so many calls in a block.
    Made { calls_max: u64 },
    /// All threads wait for the word.
    Ready,
    /// What they did.
    Done(Counted),
    /// It is clean, or forgotten.
    Over,
}

/// A [`Block`] without what the servers did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Counted {
    calls: Vec<u64>,
    started_ns: u64,
    passed_ns: u64,
    cpu_ns: u64,
    /// Nanoseconds, and how many calls took about as long.
    latencies_ns: Vec<(u64, u64)>,
}

impl Counted {
    pub(super) fn of(block: &Block) -> Self {
        let recorded = block.latencies_ns.iter_recorded();
        Self {
            calls: block.calls.clone(),
            started_ns: block.started_ns,
            passed_ns: block.passed_ns,
            cpu_ns: block.cpu_ns,
            latencies_ns: recorded
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        }
    }

    pub(super) fn into_block(self) -> Result<Block> {
        let mut all: Histogram<u64> = latencies();
        for (value, count) in self.latencies_ns {
            all.record_n(value, count).map_err(|error| odd("a latency").caused_by(error))?;
        }
        Ok(Block {
            calls: self.calls,
            started_ns: self.started_ns,
            passed_ns: self.passed_ns,
            cpu_ns: self.cpu_ns,
            latencies_ns: all,
            servers: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_arrives_as_it_was() {
        let mut block = Block { calls: vec![3, 4], ..Block::new() };
        for (latency_ns, count) in [(0, 1), (850, 2), (123_456_789, 3), (3_600_000_000_000, 1)] {
            block.latencies_ns.saturating_record_n(latency_ns, count);
        }
        (block.started_ns, block.passed_ns, block.cpu_ns) = (5, 6, 7);
        let text = serde_json::to_string(&Counted::of(&block)).expect("JSON");
        let heard: Counted = serde_json::from_str(&text).expect("JSON");
        let heard = heard.into_block().expect("in bounds");
        assert_eq!(heard.latencies_ns, block.latencies_ns);
        assert_eq!((heard.calls, heard.started_ns), (block.calls, block.started_ns));
        assert_eq!((heard.passed_ns, heard.cpu_ns), (block.passed_ns, block.cpu_ns));
    }
}
