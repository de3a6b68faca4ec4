// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `lru`.

use terrace_core::TierIndex;

use crate::mechanism::gate::Terms;
use crate::mechanism::pace::Levels;
use crate::mechanism::parameters::{Declaration, Settings, Value};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct LruSettings {
    pub(super) levels: Levels,
    pub(super) idle_ns: u64,
    pub(super) place: TierIndex,
    pub(super) max_bytes: u64,
    pub(super) is_gated: bool,
    pub(super) terms: Terms,
    pub(super) busy: f64,
    min_residency_ns: u64,
}

impl LruSettings {
    /// The least time between two moves of a segment.
    pub(super) fn rest_ns(&self) -> u64 {
        if self.is_gated { self.min_residency_ns } else { 0 }
    }
}

impl Default for LruSettings {
    fn default() -> Self {
        Self {
            levels: Levels::default(),
            idle_ns: SECOND_NS,
            place: TierIndex(0),
            max_bytes: 256 << 20,
            is_gated: true,
            terms: Terms { factor: 1.5, horizon_ns: 600 * SECOND_NS },
            busy: 0.7,
            min_residency_ns: 10 * SECOND_NS,
        }
    }
}

impl Settings for LruSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "high",
            value: |s| Value::Watermark(&mut s.levels.high),
            description: "Share of capacity above which a tier is drained, 0 to 1; \
                          `tier` takes each tier's own watermark.",
        },
        Declaration {
            name: "low",
            value: |s| Value::Watermark(&mut s.levels.low),
            description: "Share of capacity at which draining ends, 0 to 1; \
                          `tier` takes each tier's own watermark.",
        },
        Declaration {
            name: "idle",
            value: |s| Value::Duration(&mut s.idle_ns),
            description: "Time since the last use before a closed segment may be demoted.",
        },
        Declaration {
            name: "horizon",
            value: |s| Value::Duration(&mut s.terms.horizon_ns),
            description: "Time within which a second access makes a segment a candidate, \
                          and over which savings count.",
        },
        Declaration {
            name: "gate",
            value: |s| Value::Switch(&mut s.is_gated),
            description: "Whether promotions must pay and moves yield to applications; \
                          `off` promotes on every second access.",
        },
        Declaration {
            name: "factor",
            value: |s| Value::Number(&mut s.terms.factor, 0.0..=100.0),
            description: "How many times its cost a promotion must save, 0 to 100.",
        },
        Declaration {
            name: "min_residency",
            value: |s| Value::Duration(&mut s.min_residency_ns),
            description: "Least time between two moves of a segment; none with the gate off.",
        },
        Declaration {
            name: "busy",
            value: |s| Value::Fraction(&mut s.busy),
            description: "Utilisation of a tier, 0 to 1, above which it is drained to high only; \
                          without effect with the gate off.",
        },
        Declaration {
            name: "max_bytes",
            value: |s| Value::Bytes(&mut s.max_bytes),
            description: "Most bytes under way at once; a larger segment moves alone.",
        },
        Declaration {
            name: "place",
            value: |s| Value::Tier(&mut s.place),
            description: "Tier for new objects; the next with room if it is full.",
        },
    ];

    fn check(&self) -> Result<(), &'static str> {
        self.levels.check()
    }
}
