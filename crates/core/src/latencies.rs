// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Histograms of latencies that threads add to without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bits of the number that [`LatencyReport::BOUND_NS_MIN`] fills.
const BOUND_BITS_MIN: u32 = LatencyReport::BOUND_NS_MIN.trailing_zeros();

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Latencies {
    sum_ns: AtomicU64,
    counts: [AtomicU64; LatencyReport::BUCKETS],
}

/// How often something took how long, at one moment. The bounds double from one to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyReport {
    /// Time that all of them took.
    pub sum_ns: u64,
    /// How many took at most as long as each bound and longer than the one before; last those
    /// that took longer than all bounds.
    pub counts: [u64; LatencyReport::BUCKETS],
}

impl LatencyReport {
    /// Intervals of time: up to 17 s, and above.
    pub const BUCKETS: usize = 27;

    /// The first bound: what main memory takes.
    pub const BOUND_NS_MIN: u64 = 512;

    /// The bounds; the last interval has none.
    pub fn bounds_ns() -> impl Iterator<Item = u64> {
        (0..Self::BUCKETS - 1).map(|index| Self::BOUND_NS_MIN << index)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The index of the first bound that is not below `took_ns`.
#[inline]
fn bucket(took_ns: u64) -> usize {
    let bits = u64::BITS - took_ns.saturating_sub(1).leading_zeros();
    (bits.saturating_sub(BOUND_BITS_MIN) as usize).min(LatencyReport::BUCKETS - 1)
}

impl Latencies {
    /// Adds one.
    #[inline]
    pub fn add(&self, took_ns: u64) {
        self.counts[bucket(took_ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    /// Adds several of which only the sum is known: each with the mean.
    pub fn add_sum(&self, count: u64, took_ns: u64) {
        let Some(mean_ns) = took_ns.checked_div(count) else { return };
        self.counts[bucket(mean_ns)].fetch_add(count, Ordering::Relaxed);
        self.sum_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    /// Time that all of them took.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.load(Ordering::Relaxed)
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Adds these to a report.
    pub fn add_to(&self, report: &mut LatencyReport) {
        report.sum_ns = report.sum_ns.wrapping_add(self.sum_ns());
        for (sum, count) in report.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// As they are now.
    pub fn report(&self) -> LatencyReport {
        let mut report = LatencyReport::default();
        self.add_to(&mut report);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_counts_below_the_first_bound_that_holds_it() {
        let bounds: Vec<_> = LatencyReport::bounds_ns().collect();
        assert_eq!(bounds.len(), LatencyReport::BUCKETS - 1, "the last interval has no bound");
        for (index, bound_ns) in bounds.iter().enumerate() {
            assert_eq!((bucket(*bound_ns), bucket(bound_ns + 1)), (index, index + 1));
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, LatencyReport::BUCKETS - 1));
    }

    #[test]
    fn a_sum_counts_with_its_mean() {
        let latencies = Latencies::default();
        latencies.add_sum(3, 3 * 1024);
        latencies.add_sum(0, 7);
        latencies.add(1025);
        let report = latencies.report();
        assert_eq!((report.counts[1], report.counts[2], report.count()), (3, 1, 4));
        assert_eq!(report.sum_ns, 3 * 1024 + 1025);
    }
}
