// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of `workflow`.

use crate::heat::settings::{self as heat, Heated, Warming};
use crate::mechanism::parameters::{Declaration, Settings, Value};
use crate::mechanism::tiering::settings::{self, Common, Tiered};

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct WorkflowSettings {
    pub(super) lease_ns: u64,
    warming: Warming,
    common: Common,
}

impl Default for WorkflowSettings {
    fn default() -> Self {
        let (warming, common) = (Warming::default(), Common::default());
        Self { lease_ns: 3600 * SECOND_NS, warming, common }
    }
}

impl Tiered for WorkflowSettings {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Heated for WorkflowSettings {
    const NAME: &'static str = "workflow";
    const COUNTS_FAINT: bool = true;

    fn warming(&self) -> &Warming {
        &self.warming
    }

    fn warming_mut(&mut self) -> &mut Warming {
        &mut self.warming
    }
}

impl Settings for WorkflowSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "lease",
            value: |s| Value::Duration(&mut s.lease_ns),
            description: "How long a lease without an end lasts, from its deadline if it has one, \
                          above zero.",
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
        if self.lease_ns == 0 {
            return Err("lease must be above zero");
        }
        self.warming.check()?;
        self.common.levels.check()
    }
}
