// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `heat`.

use crate::mechanism::parameters::{Declaration, Settings, Value};
use crate::mechanism::tiering::settings::{self, Common, Tiered};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct HeatSettings {
    pub(super) half_life_ns: u64,
    pub(super) weights: Weights,
    pub(super) min_heat: f64,
    common: Common,
}

/// How much heat it is to read, or to write, a whole segment once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub(super) read: f64,
    pub(super) write: f64,
}

impl Default for HeatSettings {
    fn default() -> Self {
        Self {
            half_life_ns: 300 * SECOND_NS,
            // What is written once and read once reaches no more than 1.5, however it is cut into
            // requests; a second read within a half-life goes beyond.
            weights: Weights { read: 1.0, write: 0.5 },
            min_heat: 1.5,
            common: Common::default(),
        }
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
        Declaration {
            name: "half_life",
            value: |s| Value::Duration(&mut s.half_life_ns),
            description: "Time in which heat halves, above zero.",
        },
        Declaration {
            name: "read_weight",
            value: |s| Value::Number(&mut s.weights.read, 0.0..=100.0),
            description: "Heat of reading a whole segment once, 0 to 100.",
        },
        Declaration {
            name: "write_weight",
            value: |s| Value::Number(&mut s.weights.write, 0.0..=100.0),
            description: "Heat of writing a whole segment once, 0 to 100.",
        },
        Declaration {
            name: "min_heat",
            value: |s| Value::Number(&mut s.min_heat, 0.0..=1e6),
            description: "Heat that a segment must exceed to become a candidate for promotion, \
                          0 to 1000000.",
        },
        settings::high(),
        settings::low(),
        settings::idle(),
        settings::gate(
            "Whether promotions must pay and moves yield to applications; \
             `off` promotes whatever exceeds `min_heat`.",
        ),
        settings::factor(),
        settings::min_residency(),
        settings::busy(),
        settings::max_bytes(),
        settings::place(),
    ];

    fn check(&self) -> Result<(), &'static str> {
        match self.half_life_ns {
            0 => Err("half_life must be above zero"),
            _ => self.common.levels.check(),
        }
    }
}
