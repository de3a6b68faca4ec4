// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters that all policies with watermarks and promotions share.

use terrace_core::TierIndex;

use crate::mechanism::gate::Terms;
use crate::mechanism::pace::Levels;
use crate::mechanism::parameters::{Declaration, Settings, Value};

const SECOND_NS: u64 = 1_000_000_000;

/// What a person may change about any of them.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    pub(crate) levels: Levels,
    pub(crate) idle_ns: u64,
    pub(crate) place: TierIndex,
    pub(crate) max_bytes: u64,
    pub(crate) is_gated: bool,
    pub(crate) terms: Terms,
    pub(crate) busy: f64,
    pub(crate) min_residency_ns: u64,
}

impl Common {
    /// The least time between two moves of a segment.
    pub(crate) fn rest_ns(&self) -> u64 {
        if self.is_gated { self.min_residency_ns } else { 0 }
    }
}

impl Default for Common {
    fn default() -> Self {
        Self {
            levels: Levels::default(),
            idle_ns: SECOND_NS,
            place: TierIndex(0),
            max_bytes: 256 << 20,
            is_gated: true,
            terms: Terms { factor: 1.5, horizon_ns: 600 * SECOND_NS, price_weight: 0.0 },
            busy: 0.7,
            min_residency_ns: 10 * SECOND_NS,
        }
    }
}

/// Settings that contain the common ones.
pub(crate) trait Tiered: Settings {
    fn common(&self) -> &Common;

    fn common_mut(&mut self) -> &mut Common;
}

pub(crate) const fn high<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "high",
        value: |s| Value::Watermark(&mut s.common_mut().levels.high),
        description: "Share of capacity above which a tier is drained, 0 to 1; \
                      `tier` takes each tier's own watermark.",
    }
}

pub(crate) const fn low<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "low",
        value: |s| Value::Watermark(&mut s.common_mut().levels.low),
        description: "Share of capacity at which draining ends, 0 to 1; \
                      `tier` takes each tier's own watermark.",
    }
}

pub(crate) const fn idle<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "idle",
        value: |s| Value::Duration(&mut s.common_mut().idle_ns),
        description: "Time since the last use before a closed segment may be demoted.",
    }
}

/// What the horizon means beside the time over which savings count differs.
pub(crate) const fn horizon<S: Tiered>(description: &'static str) -> Declaration<S> {
    Declaration {
        name: "horizon",
        value: |s| Value::Duration(&mut s.common_mut().terms.horizon_ns),
        description,
    }
}

/// What promotes with the gate off differs.
pub(crate) const fn gate<S: Tiered>(description: &'static str) -> Declaration<S> {
    Declaration {
        name: "gate",
        value: |s| Value::Switch(&mut s.common_mut().is_gated),
        description,
    }
}

pub(crate) const fn factor<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "factor",
        value: |s| Value::Number(&mut s.common_mut().terms.factor, 0.0..=100.0),
        description: "How many times its cost a promotion must save, 0 to 100.",
    }
}

pub(crate) const fn price_weight<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "price_weight",
        value: |s| Value::Number(&mut s.common_mut().terms.price_weight, 0.0..=1e9),
        description: "Seconds that a price of 1 weighs in the gate, 0 to 1000000000; 0 leaves \
                      prices out.",
    }
}

pub(crate) const fn min_residency<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "min_residency",
        value: |s| Value::Duration(&mut s.common_mut().min_residency_ns),
        description: "Least time between two moves of a segment; none with the gate off.",
    }
}

pub(crate) const fn busy<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "busy",
        value: |s| Value::Fraction(&mut s.common_mut().busy),
        description: "Utilisation of a tier, 0 to 1, above which it is drained to high only; \
                      without effect with the gate off.",
    }
}

pub(crate) const fn max_bytes<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "max_bytes",
        value: |s| Value::Bytes(&mut s.common_mut().max_bytes),
        description: "Most bytes under way at once; a larger segment moves alone.",
    }
}

pub(crate) const fn place<S: Tiered>() -> Declaration<S> {
    Declaration {
        name: "place",
        value: |s| Value::Tier(&mut s.common_mut().place),
        description: "Tier for new objects; the next with room if it is full.",
    }
}
