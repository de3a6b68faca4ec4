// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `lru`.

use crate::mechanism::parameters::{Declaration, Settings};
use crate::mechanism::tiering::settings::{self, Common, Tiered};

#[derive(Clone, Debug, Default)]
pub(super) struct LruSettings {
    common: Common,
}

impl Tiered for LruSettings {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Settings for LruSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        settings::high(),
        settings::low(),
        settings::idle(),
        settings::horizon(
            "Time within which a second access makes a segment a candidate, \
             and over which savings count.",
        ),
        settings::gate(
            "Whether promotions must pay and moves yield to applications; \
             `off` promotes on every second access.",
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
