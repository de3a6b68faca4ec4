// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `energy`.

use super::devices::Standby;
use crate::elevator::settings::{self, Lift, Lifted};
use crate::mechanism::parameters::{Declaration, Settings, Value};

const SECOND_NS: u64 = 1_000_000_000;

/// Most watts and joules that are taken as meant.
const WATTS_MAX: f64 = 1e6;
const JOULES_MAX: f64 = 1e9;

#[derive(Clone, Debug)]
pub(super) struct EnergySettings {
    pub(super) batch: f64,
    pub(super) horizon_ns: u64,
    pub(super) factor: f64,
    standby_w: f64,
    down_j: f64,
    up_j: f64,
    transition_ns: u64,
    idle_w: f64,
    lift: Lift,
}

impl EnergySettings {
    pub(super) fn standby(&self) -> Standby {
        Standby {
            standby_w: self.standby_w,
            down_j: self.down_j,
            up_j: self.up_j,
            transition_s: self.transition_ns as f64 * 1e-9,
            idle_w: self.idle_w,
        }
    }
}

impl Default for EnergySettings {
    fn default() -> Self {
        Self {
            batch: 0.25,
            horizon_ns: 600 * SECOND_NS,
            factor: 1.5,
            // An IBM Ultrastar 36Z15 (Carrera, Pinheiro and Bianchini, ICS 2003).
            standby_w: 2.5,
            down_j: 13.0,
            up_j: 135.0,
            transition_ns: 12_400_000_000,
            idle_w: 10.2,
            // What is awake is to rest again soon.
            lift: Lift { share: 1.0, ..Lift::default() },
        }
    }
}

impl Lifted for EnergySettings {
    const NAME: &'static str = "energy";

    fn lift(&self) -> &Lift {
        &self.lift
    }

    fn lift_mut(&mut self) -> &mut Lift {
        &mut self.lift
    }
}

impl Settings for EnergySettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "batch",
            value: |s| Value::Fraction(&mut s.batch),
            description: "Share of the buffer, 0 to 1, that has to wait to be copied before a tier that \
                          stands by is woken for it.",
        },
        Declaration {
            name: "standby_watts",
            value: |s| Value::Number(&mut s.standby_w, 0.0..=WATTS_MAX),
            description: "Power of a lower tier that stands by, in watts.",
        },
        Declaration {
            name: "down_joules",
            value: |s| Value::Number(&mut s.down_j, 0.0..=JOULES_MAX),
            description: "Energy of going to standby, in joules.",
        },
        Declaration {
            name: "up_joules",
            value: |s| Value::Number(&mut s.up_j, 0.0..=JOULES_MAX),
            description: "Energy of waking up, in joules.",
        },
        Declaration {
            name: "transition",
            value: |s| Value::Duration(&mut s.transition_ns),
            description: "Time of going to standby and waking up together.",
        },
        Declaration {
            name: "idle_watts",
            value: |s| Value::Number(&mut s.idle_w, 0.0..=WATTS_MAX),
            description: "Power of a lower tier that is idle, in watts, where its `idle_power` is not \
                          configured.",
        },
        Declaration {
            name: "horizon",
            value: |s| Value::Duration(&mut s.horizon_ns),
            description: "Time within which a second read from a lower tier makes a segment a candidate, \
                          and over which savings count.",
        },
        Declaration {
            name: "factor",
            value: |s| Value::Number(&mut s.factor, 0.0..=100.0),
            description: "How many times its energy a promotion must save, 0 to 100.",
        },
        settings::streams(),
        settings::share(),
        settings::idle(),
        settings::busy(),
        settings::high(),
        settings::low(),
        settings::buffer(),
        settings::max_bytes(),
    ];

    fn check(&self) -> Result<(), &'static str> {
        self.lift.levels.check()
    }
}
