// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `elevator`.

use terrace_core::TierIndex;

use crate::mechanism::pace::Levels;
use crate::mechanism::parameters::{Declaration, Settings, Value};

const SECOND_NS: u64 = 1_000_000_000;

/// Most copies under way at once: more than a disk or a network gains from.
const STREAMS_MAX: u32 = 64;

/// What a person may change about any policy that gathers writes and copies them down.
#[derive(Clone, Debug)]
pub(crate) struct Lift {
    pub(crate) streams: u32,
    pub(crate) share: f64,
    pub(crate) idle_ns: u64,
    pub(crate) busy: f64,
    pub(crate) levels: Levels,
    pub(crate) buffer: TierIndex,
    pub(crate) max_bytes: u64,
}

/// Settings of such a policy.
pub(crate) trait Lifted: Settings {
    /// The policy's name.
    const NAME: &'static str;

    fn lift(&self) -> &Lift;

    fn lift_mut(&mut self) -> &mut Lift;
}

impl Default for Lift {
    fn default() -> Self {
        Self {
            streams: 2,
            share: 0.5,
            idle_ns: 5 * SECOND_NS,
            busy: 0.7,
            levels: Levels::default(),
            buffer: TierIndex(0),
            max_bytes: 256 << 20,
        }
    }
}

pub(crate) const fn streams<S: Lifted>() -> Declaration<S> {
    Declaration {
        name: "streams",
        value: |s| Value::Count(&mut s.lift_mut().streams, 1..=STREAMS_MAX),
        description: "Segments that are copied down at the same time, 1 to 64.",
    }
}

pub(crate) const fn share<S: Lifted>() -> Declaration<S> {
    Declaration {
        name: "share",
        value: |s| Value::Fraction(&mut s.lift_mut().share),
        description: "Share of the bandwidth that applications leave, 0 to 1, that copying down \
                          takes on average; 0 copies nothing.",
    }
}

pub(crate) const fn idle<S: Lifted>() -> Declaration<S> {
    Declaration {
        name: "idle",
        value: |s| Value::Duration(&mut s.lift_mut().idle_ns),
        description: "Time since the last write before a segment is copied down.",
    }
}

pub(crate) const fn busy<S: Lifted>() -> Declaration<S> {
    Declaration {
        name: "busy",
        value: |s| Value::Fraction(&mut s.lift_mut().busy),
        description: "Utilisation of either tier, 0 to 1, above which no copying begins.",
    }
}

pub(crate) const fn high<S: Lifted>() -> Declaration<S> {
    Declaration {
        name: "high",
        value: |s| Value::Watermark(&mut s.lift_mut().levels.high),
        description: "Share of the buffer, 0 to 1, above which segments leave it and new ones are \
                          written through; `tier` takes the tier's own watermark.",
    }
}

pub(crate) const fn low<S: Lifted>() -> Declaration<S> {
    Declaration {
        name: "low",
        value: |s| Value::Watermark(&mut s.lift_mut().levels.low),
        description: "Share of the buffer, 0 to 1, at which leaving ends; \
                          `tier` takes the tier's own watermark.",
    }
}

pub(crate) const fn buffer<S: Lifted>() -> Declaration<S> {
    Declaration {
        name: "buffer",
        value: |s| Value::Tier(&mut s.lift_mut().buffer),
        description: "Tier that buffers; segments are copied to the next one with room.",
    }
}

pub(crate) const fn max_bytes<S: Lifted>() -> Declaration<S> {
    Declaration {
        name: "max_bytes",
        value: |s| Value::Bytes(&mut s.lift_mut().max_bytes),
        description: "Most bytes under way at once; a larger segment moves alone.",
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ElevatorSettings {
    lift: Lift,
}

impl Lifted for ElevatorSettings {
    const NAME: &'static str = "elevator";

    fn lift(&self) -> &Lift {
        &self.lift
    }

    fn lift_mut(&mut self) -> &mut Lift {
        &mut self.lift
    }
}

impl Settings for ElevatorSettings {
    const TABLE: &'static [Declaration<Self>] =
        &[streams(), share(), idle(), busy(), high(), low(), buffer(), max_bytes()];

    fn check(&self) -> Result<(), &'static str> {
        self.lift.levels.check()
    }
}
