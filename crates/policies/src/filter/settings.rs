// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of the policies that filter promotions by an order of replacement.

use crate::mechanism::parameters::{Declaration, Settings, Value};
use crate::mechanism::tiering::settings::{self, Common, Tiered};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct FilterSettings {
    /// Accesses that follow a touch within this time belong to it.
    pub(super) together_ns: u64,
    common: Common,
}

impl Default for FilterSettings {
    fn default() -> Self {
        // The correlated reference period of LRU-K (O'Neil, O'Neil and Weikum, SIGMOD 1993), for
        // objects that are read in many requests.
        Self { together_ns: SECOND_NS, common: Common::default() }
    }
}

impl Tiered for FilterSettings {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Settings for FilterSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "together",
            value: |s| Value::Duration(&mut s.together_ns),
            description: "Time after a touch in which further accesses of the segment are no new touch.",
        },
        settings::high(),
        settings::low(),
        settings::idle(),
        settings::horizon("Time over which savings count."),
        settings::gate(
            "Whether promotions must pay and moves yield to applications; \
             `off` promotes on every touch that comes back.",
        ),
        settings::factor(),
        settings::price_weight(),
        settings::min_residency(),
        settings::busy(),
        settings::max_bytes(),
        settings::place(),
    ];

    fn check(&self) -> Result<(), &'static str> {
        self.common.levels.check()
    }
}
