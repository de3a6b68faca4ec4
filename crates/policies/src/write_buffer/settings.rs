// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `write-buffer`.

use terrace_core::TierIndex;

use crate::mechanism::glob::Glob;
use crate::mechanism::pace::Levels;
use crate::mechanism::parameters::{Declaration, Settings, Value};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct WriteBufferSettings {
    /// `None` to deduce it from each class.
    pub(super) timeout_ns: Option<u64>,
    pub(super) default_timeout_ns: u64,
    pub(super) classes: Vec<Glob>,
    pub(super) levels: Levels,
    pub(super) buffer: TierIndex,
    pub(super) max_bytes: u64,
}

impl Default for WriteBufferSettings {
    fn default() -> Self {
        Self {
            timeout_ns: None,
            default_timeout_ns: 10 * SECOND_NS,
            classes: Vec::new(),
            levels: Levels::default(),
            buffer: TierIndex(0),
            max_bytes: 256 << 20,
        }
    }
}

impl Settings for WriteBufferSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "timeout",
            value: |s| Value::Timeout(&mut s.timeout_ns),
            description: "Time from the last write to the demotion, or `deduced` for 1.2 times what \
                          95 % of a class's segments took from create to last write.",
        },
        Declaration {
            name: "default_timeout",
            value: |s| Value::Duration(&mut s.default_timeout_ns),
            description: "Timeout of a class until 20 of its segments were closed; \
                          only where it is deduced.",
        },
        Declaration {
            name: "classes",
            value: |s| Value::Globs(&mut s.classes),
            description: "Patterns over namespace/name, separated by commas, that each make a class \
                          of new segments; what none matches is classed by directory.",
        },
        Declaration {
            name: "high",
            value: |s| Value::Watermark(&mut s.levels.high),
            description: "Share of the buffer, 0 to 1, above which the oldest closed segments leave \
                          early and new ones are written through; `tier` takes the tier's own watermark.",
        },
        Declaration {
            name: "low",
            value: |s| Value::Watermark(&mut s.levels.low),
            description: "Share of the buffer, 0 to 1, at which leaving early ends; \
                          `tier` takes the tier's own watermark.",
        },
        Declaration {
            name: "buffer",
            value: |s| Value::Tier(&mut s.buffer),
            description: "Tier that buffers; segments leave it for the next one with room.",
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
