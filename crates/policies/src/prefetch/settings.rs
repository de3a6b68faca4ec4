// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `prefetch`.

use crate::heat::settings::{self as heat, Heated, Warming};
use crate::mechanism::parameters::{Declaration, Settings, Value};
use crate::mechanism::tiering::settings::{self, Common, Tiered};

use super::ahead::Window;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct PrefetchSettings {
    ahead_count: u32,
    ahead_bytes: u64,
    pub(super) deadline_ns: u64,
    pub(super) min_hit_rate: f64,
    /// Accesses that follow a read within this time belong to it.
    pub(super) together_ns: u64,
    warming: Warming,
    common: Common,
}

impl PrefetchSettings {
    pub(super) fn window(&self) -> Window {
        Window { count: self.ahead_count as usize, bytes: self.ahead_bytes }
    }
}

impl Default for PrefetchSettings {
    fn default() -> Self {
        let mut common = Common::default();
        // What has come true again and again is less of a bet than a habit.
        common.terms.factor = 1.0;
        Self {
            ahead_count: 32,
            ahead_bytes: 1 << 30,
            deadline_ns: 30 * SECOND_NS,
            min_hit_rate: 0.5,
            together_ns: SECOND_NS,
            warming: Warming::default(),
            common,
        }
    }
}

impl Tiered for PrefetchSettings {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Heated for PrefetchSettings {
    const NAME: &'static str = "prefetch";
    const COUNTS_FAINT: bool = false;

    fn warming(&self) -> &Warming {
        &self.warming
    }

    fn warming_mut(&mut self) -> &mut Warming {
        &mut self.warming
    }
}

impl Settings for PrefetchSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "ahead_count",
            value: |s| Value::Count(&mut s.ahead_count, 1..=1024),
            description: "Most segments that are expected at a time, 1 to 1024.",
        },
        Declaration {
            name: "ahead_bytes",
            value: |s| Value::Bytes(&mut s.ahead_bytes),
            description: "Most bytes that are expected at a time; a larger segment is expected alone.",
        },
        Declaration {
            name: "deadline",
            value: |s| Value::Duration(&mut s.deadline_ns),
            description: "Time after which what was expected and not read is a miss, above zero.",
        },
        Declaration {
            name: "min_hit_rate",
            value: |s| Value::Fraction(&mut s.min_hit_rate),
            description: "Share of expectations, 0 to 1, that have to come true; with less nothing is \
                          brought up ahead.",
        },
        Declaration {
            name: "together",
            value: |s| Value::Duration(&mut s.together_ns),
            description: "Longest pause between two accesses of a segment that are one.",
        },
        heat::half_life(),
        heat::read_weight(),
        heat::write_weight(),
        heat::min_heat(),
        settings::high(),
        settings::low(),
        settings::idle(),
        heat::gate(),
        settings::factor(),
        settings::price_weight(),
        settings::min_residency(),
        settings::busy(),
        settings::max_bytes(),
        settings::place(),
    ];

    fn check(&self) -> Result<(), &'static str> {
        if self.deadline_ns == 0 {
            return Err("deadline must be above zero");
        }
        self.warming.check()?;
        self.common.levels.check()
    }
}
