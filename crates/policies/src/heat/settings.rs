// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `heat`.

use crate::mechanism::parameters::{Declaration, Settings, Value};
use crate::mechanism::tiering::settings::{self, Common, Tiered};

const SECOND_NS: u64 = 1_000_000_000;

/// What a person may change about any policy that goes by heat.
#[derive(Clone, Debug)]
pub(crate) struct Warming {
    pub(super) half_life_ns: u64,
    pub(super) weights: Weights,
    pub(super) min_heat: f64,
}

/// Settings of a policy that goes by heat.
pub(crate) trait Heated: Tiered {
    /// The policy's name.
    const NAME: &'static str;

    /// Whether what is not warm enough to come up still counts where its room is wanted.
    const COUNTS_FAINT: bool;

    fn warming(&self) -> &Warming;

    fn warming_mut(&mut self) -> &mut Warming;
}

/// How much heat it is to read, or to write, a whole segment once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub(super) read: f64,
    pub(super) write: f64,
}

impl Default for Warming {
    fn default() -> Self {
        Self {
            half_life_ns: 300 * SECOND_NS,
            // What is written once and read once reaches no more than 1.5, however it is cut into
            // requests; a second read within a half-life goes beyond.
            weights: Weights { read: 1.0, write: 0.5 },
            min_heat: 1.5,
        }
    }
}

impl Warming {
    /// What stands in the way of parameters like these.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.half_life_ns == 0 { Err("half_life must be above zero") } else { Ok(()) }
    }
}

pub(crate) const fn half_life<S: Heated>() -> Declaration<S> {
    Declaration {
        name: "half_life",
        value: |s| Value::Duration(&mut s.warming_mut().half_life_ns),
        description: "Time in which heat halves, above zero.",
    }
}

pub(crate) const fn read_weight<S: Heated>() -> Declaration<S> {
    Declaration {
        name: "read_weight",
        value: |s| Value::Number(&mut s.warming_mut().weights.read, 0.0..=100.0),
        description: "Heat of reading a whole segment once, 0 to 100.",
    }
}

pub(crate) const fn write_weight<S: Heated>() -> Declaration<S> {
    Declaration {
        name: "write_weight",
        value: |s| Value::Number(&mut s.warming_mut().weights.write, 0.0..=100.0),
        description: "Heat of writing a whole segment once, 0 to 100.",
    }
}

pub(crate) const fn min_heat<S: Heated>() -> Declaration<S> {
    Declaration {
        name: "min_heat",
        value: |s| Value::Number(&mut s.warming_mut().min_heat, 0.0..=1e6),
        description: "Heat that a segment must exceed to become a candidate for promotion, \
                      0 to 1000000.",
    }
}

pub(crate) const fn gate<S: Heated>() -> Declaration<S> {
    settings::gate(
        "Whether promotions must pay and moves yield to applications; \
         `off` promotes whatever exceeds `min_heat`.",
    )
}

#[derive(Clone, Debug, Default)]
pub(super) struct HeatSettings {
    warming: Warming,
    common: Common,
}

impl Heated for HeatSettings {
    const NAME: &'static str = "heat";
    const COUNTS_FAINT: bool = true;

    fn warming(&self) -> &Warming {
        &self.warming
    }

    fn warming_mut(&mut self) -> &mut Warming {
        &mut self.warming
    }
}

impl Tiered for HeatSettings {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Settings for HeatSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        half_life(),
        read_weight(),
        write_weight(),
        min_heat(),
        settings::high(),
        settings::low(),
        settings::idle(),
        gate(),
        settings::factor(),
        settings::price_weight(),
        settings::min_residency(),
        settings::busy(),
        settings::max_bytes(),
        settings::place(),
    ];

    fn check(&self) -> Result<(), &'static str> {
        self.warming.check()?;
        self.common.levels.check()
    }
}
