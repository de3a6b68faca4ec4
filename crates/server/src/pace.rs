// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long small reads of a connection take: where they wait for a device, they wait together.

use std::sync::atomic::{AtomicU64, Ordering};

/// With this mean, a thread for each read costs less than what others would wait for it.
const SLOW_NS: u64 = 200_000;

/// How many reads the mean is about.
const READS: u64 = 8;

/// One that took longer says no more than this: mostly something else had the processor.
const TOOK_NS_MAX: u64 = 16 * SLOW_NS;

/// How long the last reads of a connection took.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    mean_ns: AtomicU64,
}

impl Pace {
    /// Takes note of a read. Of two at a time one may be lost.
    pub(crate) fn note(&self, took_ns: u64) {
        let mean_ns = self.mean_ns.load(Ordering::Relaxed);
        let mean_ns = mean_ns - mean_ns / READS + took_ns.min(TOOK_NS_MAX) / READS;
        self.mean_ns.store(mean_ns, Ordering::Relaxed);
    }

    /// Whether a read is likely to wait for a device.
    pub(crate) fn is_slow(&self) -> bool {
        self.mean_ns.load(Ordering::Relaxed) > SLOW_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_slow_reads_are_noticed_and_forgotten() {
        let pace = Pace::default();
        pace.note(5_000);
        assert!(!pace.is_slow());
        (0..READS).for_each(|_| pace.note(1_000_000));
        assert!(pace.is_slow());
        (0..4 * READS).for_each(|_| pace.note(5_000));
        assert!(!pace.is_slow());
    }
}
