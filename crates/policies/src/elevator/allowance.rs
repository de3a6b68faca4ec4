// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much may be copied now, so that on average it is a share of what applications leave.

use serde::{Deserialize, Serialize};
use terrace_core::TierView;

/// Bytes that time has earned, less those that were spent. One that is not in debt may begin
/// another copy of any size, so that large segments are copied, too.
#[derive(Debug)]
pub(super) struct Allowance {
    bytes: f64,
    since_ns: u64,
}

/// An allowance as it is saved: with the time that has passed, because clocks start anew.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedAllowance {
    /// The bits of the number, which JSON would round.
    bytes_bits: u64,
    passed_ns: u64,
}

impl Allowance {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { bytes: 0.0, since_ns: now_ns }
    }

    /// Earns a `share` of what the slower side of a copy could have carried since the last time. A
    /// long rest earns no more than `most_bytes`.
    pub(super) fn earn(
        &mut self,
        now_ns: u64,
        source: &TierView,
        target: &TierView,
        share: f64,
        most_bytes: u64,
    ) {
        let passed_s = now_ns.saturating_sub(self.since_ns) as f64 * 1e-9;
        let left = |bytes_per_s: f64, tier: &TierView| {
            // Finite, so that nothing of it is nothing.
            bytes_per_s.min(f64::MAX) * (1.0 - tier.utilisation).clamp(0.0, 1.0)
        };
        let bytes_per_s = left(source.figures.read_bytes_per_s, source)
            .min(left(target.figures.write_bytes_per_s, target));
        let earned = share * passed_s * bytes_per_s;
        self.bytes = (self.bytes + earned).min(most_bytes as f64);
        self.since_ns = now_ns;
    }

    /// Whether another copy may begin.
    pub(super) fn is_open(&self) -> bool {
        self.bytes >= 0.0
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.bytes -= bytes as f64;
    }

    pub(super) fn save(&self, now_ns: u64) -> SavedAllowance {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        SavedAllowance { bytes_bits: self.bytes.to_bits(), passed_ns }
    }

    pub(super) fn restore(&mut self, now_ns: u64, saved: &SavedAllowance) {
        let since_ns = now_ns.saturating_sub(saved.passed_ns);
        *self = Self { bytes: f64::from_bits(saved.bytes_bits), since_ns };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{SECOND_NS, tiers};

    #[test]
    fn it_earns_a_share_of_what_the_slower_side_has_left() {
        let mut tiers = tiers(&[1000, 1000]);
        let mut allowance = Allowance::new(0);
        allowance.spend(100_000_000);
        // 100 MB/s below, of which applications use 0.6.
        tiers[1].utilisation = 0.6;
        for second in 1..=5 {
            assert!(!allowance.is_open(), "after {} seconds", second - 1);
            allowance.earn(second * SECOND_NS, &tiers[0], &tiers[1], 0.5, 1 << 30);
        }
        assert!(allowance.is_open());
    }

    #[test]
    fn a_long_rest_earns_no_burst() {
        let tiers = tiers(&[1000, 1000]);
        let mut allowance = Allowance::new(0);
        allowance.earn(1_000_000 * SECOND_NS, &tiers[0], &tiers[1], 1.0, 50);
        allowance.spend(51);
        assert!(!allowance.is_open());
    }

    #[test]
    fn tiers_of_unknown_speed_that_are_busy_earn_nothing() {
        let mut tiers = tiers(&[1000, 1000]);
        for tier in &mut tiers {
            tier.figures.read_bytes_per_s = f64::INFINITY;
            tier.figures.write_bytes_per_s = f64::INFINITY;
            tier.utilisation = 1.0;
        }
        let mut allowance = Allowance::new(0);
        allowance.spend(1);
        allowance.earn(SECOND_NS, &tiers[0], &tiers[1], 1.0, 50);
        assert!(!allowance.is_open());
        tiers.iter_mut().for_each(|tier| tier.utilisation = 0.0);
        allowance.earn(2 * SECOND_NS, &tiers[0], &tiers[1], 1.0, 50);
        assert!(allowance.is_open());
    }
}
