// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each tier read and wrote over time.

use terrace_core::TierIndex;

use super::SECOND_NS;
use super::device::Work;

/// Intervals at most: when there would be more, each two become one.
const INTERVALS_MAX: usize = 512;

/// The first length of an interval.
const EVERY_NS: u64 = 1_000_000;

/// What each tier read and wrote in intervals of equal length, at most 512 of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// How long an interval is.
    pub every_s: f64,
    /// The intervals from the beginning on, and in each the tiers, in order of preference.
    pub intervals: Vec<Vec<Served>>,
}

/// What one tier was asked for in one interval: what began in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests of applications.
    pub requests: u64,
    /// Bytes that applications read.
    pub read_bytes: u64,
    /// Bytes that applications wrote.
    pub written_bytes: u64,
    /// Bytes that migrations read or wrote, what they looked at again included.
    pub moved_bytes: u64,
}

/// Collects it.
#[derive(Debug)]
pub(super) struct Collector {
    tiers: usize,
    every_ns: u64,
    intervals: Vec<Vec<Served>>,
}

impl Served {
    fn add(&mut self, other: Served) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.moved_bytes += other.moved_bytes;
    }
}

impl Collector {
    pub(super) fn new(tiers: usize) -> Self {
        Self { tiers, every_ns: EVERY_NS, intervals: Vec::new() }
    }

    /// A tier is asked for something.
    pub(super) fn note(&mut self, now_ns: u64, tier: TierIndex, work: Work) {
        while now_ns / self.every_ns >= INTERVALS_MAX as u64 {
            self.halve();
        }
        let index = (now_ns / self.every_ns) as usize;
        if index >= self.intervals.len() {
            self.intervals.resize_with(index + 1, || vec![Served::default(); self.tiers]);
        }
        let served = &mut self.intervals[index][tier.index()];
        let bytes = match (work.is_foreground, work.is_write) {
            (false, _) => &mut served.moved_bytes,
            (true, true) => &mut served.written_bytes,
            (true, false) => &mut served.read_bytes,
        };
        *bytes += work.bytes;
        served.requests += u64::from(work.is_foreground);
    }

    pub(super) fn into_traffic(self) -> Traffic {
        Traffic { every_s: self.every_ns as f64 / SECOND_NS, intervals: self.intervals }
    }

    /// Makes each two intervals one.
    fn halve(&mut self) {
        self.every_ns *= 2;
        let pairs = self.intervals.chunks(2).map(|pair| {
            let mut both = pair[0].clone();
            for other in &pair[1..] {
                both.iter_mut().zip(other).for_each(|(one, other)| one.add(*other));
            }
            both
        });
        self.intervals = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work {
        is_write: false,
        requests: 1,
        bytes: 10,
        at: (0, 0),
        is_foreground: true,
        is_first: false,
        is_synced: false,
        is_switch: false,
        user: 0,
        share: 1.0,
    };

    #[test]
    fn intervals_stay_few_and_lose_nothing() {
        let mut collector = Collector::new(2);
        for at in 0..10_000 {
            collector.note(at * 700_000, TierIndex((at % 2) as u8), WORK);
            assert!(collector.intervals.len() <= INTERVALS_MAX);
        }
        collector.note(0, TierIndex(1), Work { is_foreground: false, ..WORK });
        collector.note(0, TierIndex(1), Work { is_write: true, ..WORK });
        let traffic = collector.into_traffic();
        // 7 s in at most 512 intervals that are a power of two of milliseconds.
        assert_eq!((traffic.every_s, traffic.intervals.len()), (0.016, 438));
        let sum = |of: fn(&Served) -> u64| {
            traffic.intervals.iter().map(|tiers| tiers.iter().map(of).sum::<u64>()).sum::<u64>()
        };
        assert_eq!(sum(|served| served.read_bytes), 100_000);
        assert_eq!(sum(|served| served.requests), 10_001);
        assert_eq!(
            (sum(|served| served.written_bytes), sum(|served| served.moved_bytes)),
            (10, 10)
        );
    }
}
