// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simplest placer.

use terrace_core::{Placed, Placement, Placer, TierIndex};

/// Places every new segment on one tier.
#[derive(Debug)]
pub(crate) struct On(pub(crate) TierIndex);

impl Placer for On {
    fn place(&self, _: &Placement<'_>) -> Placed {
        Placed::on(self.0)
    }
}
