// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `elevator`.

use terrace_core::TierIndex;

use crate::mechanism::pace::Levels;
use crate::mechanism::parameters::{Declaration, Settings, Value};

const SECOND_NS: u64 = 1_000_000_000;

/// Most copies under way at once: more than a disk or a network gains from.
const STREAMS_MAX: u32 = 64;

#[derive(Clone, Debug)]
pub(super) struct ElevatorSettings {
    pub(super) streams: u32,
    pub(super) share: f64,
    pub(super) idle_ns: u64,
    pub(super) busy: f64,
    pub(super) levels: Levels,
    pub(super) buffer: TierIndex,
    pub(super) max_bytes: u64,
}

impl Default for ElevatorSettings {
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

impl Settings for ElevatorSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "streams",
            value: |s| Value::Count(&mut s.streams, 1..=STREAMS_MAX),
            description: "Segments that are copied down at the same time, 1 to 64.",
        },
        Declaration {
            name: "share",
            value: |s| Value::Fraction(&mut s.share),
            description: "Share of the bandwidth that applications leave, 0 to 1, that copying down \
                          takes on average; 0 copies nothing.",
        },
        Declaration {
            name: "idle",
            value: |s| Value::Duration(&mut s.idle_ns),
            description: "Time since the last write before a segment is copied down.",
        },
        Declaration {
            name: "busy",
            value: |s| Value::Fraction(&mut s.busy),
            description: "Utilisation of either tier, 0 to 1, above which no copying begins.",
        },
        Declaration {
            name: "high",
            value: |s| Value::Watermark(&mut s.levels.high),
            description: "Share of the buffer, 0 to 1, above which segments leave it and new ones are \
                          written through; `tier` takes the tier's own watermark.",
        },
        Declaration {
            name: "low",
            value: |s| Value::Watermark(&mut s.levels.low),
            description: "Share of the buffer, 0 to 1, at which leaving ends; \
                          `tier` takes the tier's own watermark.",
        },
        Declaration {
            name: "buffer",
            value: |s| Value::Tier(&mut s.buffer),
            description: "Tier that buffers; segments are copied to the next one with room.",
        },
        Declaration {
            name: "max_bytes",
            value: |s| Value::Bytes(&mut s.max_bytes),
            description: "Most bytes under way at once; a larger segment moves alone.",
        },
    ];

    fn check(&self) -> Result<(), &'static str> {
        self.levels.check()
    }
}
