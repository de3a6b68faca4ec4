// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What applications waited for, or would have, by the figures of the tiers.

use terrace_core::{Event, EventKind, TierIndex, TierView};

use crate::report::{ShadowSide, ShadowTier};

/// One of the two that are compared.
#[derive(Debug)]
pub(super) struct Score {
    side: ShadowSide,
}

impl Score {
    pub(super) fn new(tiers: &[TierView]) -> Self {
        let tiers = tiers
            .iter()
            .map(|tier| ShadowTier { name: tier.name.clone(), ..ShadowTier::default() });
        Self { side: ShadowSide { tiers: tiers.collect(), ..ShadowSide::default() } }
    }

    /// Notes a read or write that a tier serves.
    pub(super) fn access(&mut self, tiers: &[TierView], tier: TierIndex, event: &Event) {
        let (Some(view), Some(sum)) =
            (tiers.get(tier.index()), self.side.tiers.get_mut(tier.index()))
        else {
            return;
        };
        // At the end of an object no tier is asked.
        if event.length_bytes == 0 {
            return;
        }
        let bytes_per_s = match event.kind {
            EventKind::Read => view.figures.read_bytes_per_s,
            _ => view.figures.write_bytes_per_s,
        };
        let latency_s = view.figures.latency_ns as f64 * 1e-9;
        let time_s = latency_s * f64::from(event.count) + event.length_bytes as f64 / bytes_per_s;
        self.side.foreground_s += time_s;
        sum.requests += u64::from(event.count);
        sum.bytes += event.length_bytes;
    }

    /// Notes what a migration copied.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.side.moves += 1;
        self.side.moved_bytes += bytes;
    }

    /// With what lies where now.
    pub(super) fn side(&self, used_bytes: impl Iterator<Item = u64>) -> ShadowSide {
        let mut side = self.side.clone();
        for (tier, used_bytes) in side.tiers.iter_mut().zip(used_bytes) {
            tier.used_bytes = used_bytes;
        }
        side
    }
}
