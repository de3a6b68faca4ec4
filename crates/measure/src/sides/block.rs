// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads did together in a while.

use hdrhistogram::Histogram;

/// What one block took.
pub struct Block {
    /// Of each thread.
    pub calls: Vec<u64>,
    /// When the first thread began, on the clock that all processes of a machine share.
    pub started_ns: u64,
    /// From then until the last thread ended.
    pub passed_ns: u64,
    /// Of the processes whose threads they are.
    pub cpu_ns: u64,
    /// Of every call.
    pub latencies_ns: Histogram<u64>,
    /// What servers did meanwhile, where there are any; always in the same order.
    pub servers: Vec<ServerUse>,
}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}

impl Block {
    /// Nothing happened yet.
    pub fn new() -> Self {
        Self {
            calls: Vec::new(),
            started_ns: 0,
            passed_ns: 1,
            cpu_ns: 0,
            latencies_ns: latencies(),
            servers: Vec::new(),
        }
    }

    /// Takes in what others did at the same time: their rates are those of the time that all of
    /// them took together, and their percentiles those of all calls.
    pub fn join(&mut self, other: &Self) {
        if self.calls.is_empty() {
            (self.started_ns, self.passed_ns) = (other.started_ns, other.passed_ns);
        }
        let ended_ns = |block: &Self| block.started_ns + block.passed_ns;
        let last_ns = ended_ns(self).max(ended_ns(other));
        self.started_ns = self.started_ns.min(other.started_ns);
        self.passed_ns = last_ns - self.started_ns;
        self.calls.extend(&other.calls);
        self.cpu_ns += other.cpu_ns;
        self.latencies_ns.add(&other.latencies_ns).expect("all histograms have the same range");
    }
}

/// What a server did in a while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerUse {
    /// As the servers name it.
    pub name: String,
    /// CPU time, user and system.
    pub cpu_ns: u64,
    /// Operations that it carried out.
    pub operations: u64,
    /// Bytes of payloads that it received.
    pub received_bytes: u64,
    /// The same that it sent.
    pub sent_bytes: u64,
}

/// An empty histogram of nanoseconds with three digits.
pub fn latencies() -> Histogram<u64> {
    const LONGEST_NS: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are legal")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(calls: u64, started_ns: u64, passed_ns: u64, latency_ns: u64) -> Block {
        let mut latencies_ns = latencies();
        latencies_ns.record_n(latency_ns, calls).expect("in bounds");
        let cpu_ns = calls;
        Block { calls: vec![calls], started_ns, passed_ns, cpu_ns, latencies_ns, ..Block::new() }
    }

    #[test]
    fn blocks_of_several_processes_count_over_their_common_time() {
        let mut all = Block::new();
        // One is fast, the other begins later and is slow; means of percentiles would say 505 us.
        all.join(&block(98, 1_000, 500, 10_000));
        all.join(&block(2, 1_200, 800, 1_000_000));
        assert_eq!((all.calls.as_slice(), all.cpu_ns), (&[98, 2][..], 100));
        assert_eq!((all.started_ns, all.passed_ns), (1_000, 1_000));
        let at = |share| all.latencies_ns.value_at_quantile(share) / 1_000;
        assert_eq!((at(0.5), at(0.98), at(0.99)), (10, 10, 1_000));
        // In another order it is the same.
        let mut other = Block::new();
        other.join(&block(2, 1_200, 800, 1_000_000));
        other.join(&block(98, 1_000, 500, 10_000));
        assert_eq!((other.started_ns, other.passed_ns), (all.started_ns, all.passed_ns));
        assert_eq!(other.latencies_ns, all.latencies_ns);
    }
}
