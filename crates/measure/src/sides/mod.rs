// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One case on several sides, in blocks that take turns: what changes on the machine meets all.

mod block;
mod threads;

use hdrhistogram::Histogram;
use terrace_console::progress::Progress;
use terrace_core::Result;

pub use self::block::{Block, ServerUse, latencies};
pub use self::threads::{Call, Subject, Threads};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Threads of a side, all together.
    pub threads: usize,
    /// Operations of one call.
    pub batch: usize,
    /// Blocks of each side.
    pub repetitions: usize,
    /// Time for all blocks of all sides together.
    pub seconds: f64,
}

/// A side that runs one block after the other: threads of this process, or other processes.
pub trait Runner {
    /// Calls that each thread may make in a block.
    fn calls_max(&self) -> u64;

    /// Lets every thread repeat its call until so much time is over or it has made `calls_max`.
    fn block(&mut self, calls_max: u64, block_ns: u64) -> Result<Block>;
}

/// What the blocks of one side gave.
pub struct Side {
    /// A value for each repetition.
    pub ops_per_s: Vec<f64>,
    /// CPU time of the whole process, threads in the background included; one for each repetition.
    pub cpu_us_per_op: Vec<f64>,
    /// The same of all servers together.
    pub server_cpu_us_per_op: Vec<f64>,
    /// What each of them did in all repetitions.
    pub servers: Vec<ServerUse>,
    /// Nanoseconds of every call.
    pub latencies_ns: Histogram<u64>,
    /// In all repetitions.
    pub operations: u64,
    /// Repetitions that a bound ended before their time was over.
    pub ended_early: usize,
    /// Calls of a thread in a second, the most seen.
    calls_per_s: f64,
}

impl Default for Side {
    fn default() -> Self {
        Self::new()
    }
}

impl Side {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            ops_per_s: Vec::new(),
            cpu_us_per_op: Vec::new(),
            server_cpu_us_per_op: Vec::new(),
            servers: Vec::new(),
            latencies_ns: latencies(),
            operations: 0,
            ended_early: 0,
            calls_per_s: 0.0,
        }
    }

    /// Counts a repetition.
    pub fn add(
        &mut self,
        operations: u64,
        passed_ns: u64,
        cpu_ns: u64,
        latencies_ns: &Histogram<u64>,
    ) {
        self.ops_per_s.push(operations as f64 / (passed_ns as f64 / 1e9));
        self.cpu_us_per_op.push(cpu_ns as f64 / 1e3 / operations as f64);
        self.latencies_ns.add(latencies_ns).expect("all histograms have the same range");
        self.operations += operations;
    }

    fn add_servers(&mut self, operations: u64, servers: &[ServerUse]) {
        let cpu_ns: u64 = servers.iter().map(|server| server.cpu_ns).sum();
        self.server_cpu_us_per_op.push(cpu_ns as f64 / 1e3 / operations as f64);
        if self.servers.is_empty() {
            self.servers = servers.to_vec();
            return;
        }
        for (total, one) in self.servers.iter_mut().zip(servers) {
            total.cpu_ns += one.cpu_ns;
            total.operations += one.operations;
            total.received_bytes += one.received_bytes;
            total.sent_bytes += one.sent_bytes;
        }
    }

    fn note_rate(&mut self, block: &Block) {
        let most = block.calls.iter().copied().max().unwrap_or(0);
        let rate = most as f64 / (block.passed_ns as f64 / 1e9);
        self.calls_per_s = self.calls_per_s.max(rate);
    }
}

/// Measures the sides, in this order; every repetition has a block of each, and which comes first
/// changes.
pub fn measure<const SIDES: usize>(
    mut runners: [&mut dyn Runner; SIDES],
    effort: &Effort,
    progress: &mut Progress,
) -> Result<[Side; SIDES]> {
    /// Operations of the blocks before the first, which tell how fast a side is.
    const WARM_UP_OPERATIONS: usize = 512;
    let block_ns = effort.seconds * 1e9 / (SIDES * effort.repetitions) as f64;
    let mut sides = std::array::from_fn(|_| Side::new());
    for (runner, side) in runners.iter_mut().zip(&mut sides) {
        let calls = (WARM_UP_OPERATIONS / effort.batch / effort.threads).max(1) as u64;
        let calls = calls.min(runner.calls_max());
        side.note_rate(&runner.block(calls, block_ns as u64)?);
    }
    for repetition in 0..effort.repetitions {
        for turn in 0..SIDES {
            let index = (repetition + turn) % SIDES;
            let (runner, side) = (&mut *runners[index], &mut sides[index]);
            // Twice what was ever seen, so that the time ends a block and not what was prepared.
            let wanted = (side.calls_per_s * block_ns / 1e9 * 2.0) as u64 + 1;
            let bound = runner.calls_max();
            let block = runner.block(wanted.min(bound), block_ns as u64)?;
            let is_early = bound <= wanted && block.calls.contains(&bound);
            let is_early = is_early && (block.passed_ns as f64) < block_ns;
            let operations = block.calls.iter().sum::<u64>() * effort.batch as u64;
            side.add(operations, block.passed_ns, block.cpu_ns, &block.latencies_ns);
            side.add_servers(operations, &block.servers);
            side.ended_early += usize::from(is_early);
            side.note_rate(&block);
        }
        progress.advance(1);
    }
    Ok(sides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_did_is_added_up_one_by_one() {
        let server = |name: &str, operations| ServerUse {
            name: name.into(),
            cpu_ns: operations * 1_000,
            operations,
            ..ServerUse::default()
        };
        let mut side = Side::new();
        side.add_servers(10, &[server("a", 6), server("b", 4)]);
        side.add_servers(10, &[server("a", 1), server("b", 9)]);
        assert_eq!(side.servers, [server("a", 7), server("b", 13)]);
        assert_eq!(side.server_cpu_us_per_op, [1.0, 1.0]);
    }
}
