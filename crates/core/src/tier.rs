// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers as policies name them.

use std::fmt;

/// A tier by its place in the order of preference; 0 is the most preferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TierIndex(pub u8);

impl TierIndex {
    /// Most tiers in one stack: a [`TierSet`] has a bit for each.
    pub const COUNT_MAX: usize = 32;

    /// As an index into `View::tiers`.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The next less preferred tier.
    pub fn below(self) -> TierIndex {
        TierIndex(self.0 + 1)
    }
}

impl fmt::Display for TierIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSet(pub u32);

impl TierSet {
    /// Whether `tier` is in the set.
    pub fn contains(self, tier: TierIndex) -> bool {
        self.0 & (1 << tier.0) != 0
    }

    /// The set with `tier`.
    #[must_use]
    pub fn with(self, tier: TierIndex) -> Self {
        Self(self.0 | (1 << tier.0))
    }

    /// The set without `tier`.
    #[must_use]
    pub fn without(self, tier: TierIndex) -> Self {
        Self(self.0 & !(1 << tier.0))
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}
