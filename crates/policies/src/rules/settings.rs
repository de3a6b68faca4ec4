// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `rules`.

use std::sync::Arc;

use super::book::Book;
use crate::mechanism::parameters::{Declaration, Settings, Value};
use crate::mechanism::tiering::settings::{self, Common, Tiered};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct RulesSettings {
    pub(super) book: Arc<Book>,
    pub(super) terms: Terms,
    pub(super) premigrate: f64,
    common: Common,
}

/// What orders and judges segments beside the rules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Terms {
    pub(super) half_life_ns: u64,
    pub(super) idle_weight: f64,
    pub(super) size_weight: f64,
}

impl Default for RulesSettings {
    fn default() -> Self {
        let half_life_ns = 86_400 * SECOND_NS;
        Self {
            book: Arc::default(),
            terms: Terms { half_life_ns, idle_weight: 1.0, size_weight: 0.0 },
            premigrate: 1.0,
            common: Common::default(),
        }
    }
}

impl Tiered for RulesSettings {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Settings for RulesSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "rules",
            value: |s| Value::Own(&mut s.book),
            description: "The rules, as TOML; at most 64.",
        },
        Declaration {
            name: "premigrate",
            value: |s| Value::Fraction(&mut s.premigrate),
            description: "Share of a tier's capacity, 0 to 1, that may lack a copy below; what is above it \
                          is copied down before room is wanted.",
        },
        Declaration {
            name: "idle_weight",
            value: |s| Value::Number(&mut s.terms.idle_weight, 0.0..=1e6),
            description: "Weight of each hour without use, 0 to 1000000; the greatest weight leaves first.",
        },
        Declaration {
            name: "size_weight",
            value: |s| Value::Number(&mut s.terms.size_weight, -1e6..=1e6),
            description: "Weight of log2(1 + size in MiB), -1000000 to 1000000.",
        },
        Declaration {
            name: "half_life",
            value: |s| Value::Duration(&mut s.terms.half_life_ns),
            description: "Time in which heat halves, above zero.",
        },
        settings::high(),
        settings::low(),
        settings::idle(),
        settings::min_residency(),
        settings::busy(),
        settings::max_bytes(),
        settings::place(),
    ];

    fn check(&self) -> Result<(), &'static str> {
        if self.terms.half_life_ns == 0 {
            return Err("half_life must be above zero");
        }
        self.common.levels.check()
    }
}
