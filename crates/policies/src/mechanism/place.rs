// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simplest placer, and where buffers place.

use terrace_core::{Placed, Placement, Placer, TierIndex, View};

use super::pace::Levels;

/// Places every new segment on one tier.
#[derive(Debug)]
pub(crate) struct On(pub(crate) TierIndex);

impl Placer for On {
    fn place(&self, _: &Placement<'_>) -> Placed {
        Placed::on(self.0)
    }
}

/// The buffer, or the tier below it while the buffer is above high.
pub(crate) fn buffer_or_below(view: &View, buffer: TierIndex, levels: &Levels) -> TierIndex {
    let tier = &view.tiers[buffer.index()];
    let is_full = tier.used_bytes + tier.reserved_bytes > levels.high_bytes(tier);
    let has_below = buffer.index() + 1 < view.tiers.len();
    if is_full && has_below { buffer.below() } else { buffer }
}
