// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small objects and the heads of large ones on the fast tiers, the rest below; nothing moves.

use std::sync::Arc;

use serde_json::json;
use terrace_core::{
    Actions, Event, Layout, Parameter, Placed, Placement, Placer, Policy, Result, TierIndex, View,
};

use crate::mechanism::parameters::{Chosen, Declaration, Settings, Value};
use crate::mechanism::saved;

/// Makes the policy; `docs/policies/size.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let defaults = SizeSettings { steps_bytes: vec![64 << 10, 16 << 20] };
    let settings = Chosen::new(defaults, view, parameters)?;
    Ok(Box::new(Size { settings, tier_count: view.tiers.len() }))
}

#[derive(Clone, Debug)]
struct SizeSettings {
    steps_bytes: Vec<u64>,
}

impl Settings for SizeSettings {
    const TABLE: &'static [Declaration<Self>] = &[Declaration {
        name: "steps",
        value: |s| Value::Sizes(&mut s.steps_bytes),
        description: "Ascending sizes at which the next tier begins; \
                      those beyond the last tier have no effect.",
    }];
}

struct Size {
    settings: Chosen<SizeSettings>,
    tier_count: usize,
}

impl Policy for Size {
    fn placer(&self) -> Arc<dyn Placer> {
        let useful = self.settings.steps_bytes.iter().take(self.tier_count - 1);
        Arc::new(BySize { starts_bytes: useful.copied().collect() })
    }

    fn observe(&mut self, _: &View, _: &[Event]) {}

    fn plan(&mut self, _: &View, _: &mut Actions) {}

    fn message(&mut self, _: &View, kind: &str, _: &[u8]) -> Result<Vec<u8>> {
        match kind {
            "status" => Ok(saved::reply(&json!({ "policy": "size" }))),
            _ => Err(saved::unknown_message(kind, "status (it never moves anything)")),
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.settings.list()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.settings.set(name, value)
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, _: &View, out: &mut Vec<u8>) {
        saved::write(&json!({}), out);
    }

    fn restore(&mut self, _: &View, version: u32, state: &[u8]) -> Result<()> {
        saved::read(self.state_version(), version, state).map(|_: serde_json::Value| ())
    }
}

#[derive(Debug)]
struct BySize {
    /// Where the second, third, … tier begins.
    starts_bytes: Arc<[u64]>,
}

impl Placer for BySize {
    fn place(&self, new: &Placement<'_>) -> Placed {
        let tier = |is_beyond: &dyn Fn(u64) -> bool| {
            TierIndex(self.starts_bytes.iter().filter(|start| is_beyond(**start)).count() as u8)
        };
        match (new.segment, new.size_hint_bytes) {
            // A whole object of exactly 64 KiB is still a small one.
            (0, Some(size_bytes)) => Placed::on(tier(&|start| size_bytes > start)),
            (0, None) if self.starts_bytes.is_empty() => Placed::on(TierIndex(0)),
            (0, None) => Placed {
                tier: TierIndex(0),
                layout: Layout::Steps { starts_bytes: self.starts_bytes.clone() },
            },
            _ => Placed::on(tier(&|start| new.start_bytes >= start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::tiers;
    use terrace_core::{Hint, Key};

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn place(tier_count: usize, hint: Option<u64>, segment: u32, start_bytes: u64) -> Placed {
        let view = View::new(tiers(&vec![1000; tier_count]), 0);
        let key = Key::parse("n/a").expect("legal");
        create(&view, &[]).expect("no parameters").placer().place(&Placement {
            key: &key,
            hint: Hint::default(),
            size_hint_bytes: hint,
            segment,
            start_bytes,
        })
    }

    #[test]
    fn an_object_of_known_size_goes_whole_to_its_tier() {
        for (size_bytes, tier) in
            [(0, 0), (64 * KIB, 0), (64 * KIB + 1, 1), (16 * MIB, 1), (16 * MIB + 1, 2)]
        {
            assert_eq!(place(3, Some(size_bytes), 0, 0), Placed::on(TierIndex(tier)));
        }
    }

    #[test]
    fn an_object_of_unknown_size_steps_down_as_it_grows() {
        let first = place(3, None, 0, 0);
        let starts_bytes = vec![64 * KIB, 16 * MIB].into();
        assert_eq!(first.layout, Layout::Steps { starts_bytes });
        assert_eq!(first.tier, TierIndex(0));
        assert_eq!(place(3, None, 1, 64 * KIB).tier, TierIndex(1));
        assert_eq!(place(3, None, 2, 16 * MIB).tier, TierIndex(2));
    }

    #[test]
    fn steps_beyond_the_last_tier_have_no_effect() {
        assert_eq!(place(2, Some(MIB << 20), 0, 0), Placed::on(TierIndex(1)));
        assert_eq!(place(2, None, 1, 20 * MIB).tier, TierIndex(1));
        assert_eq!(place(1, None, 0, 0), Placed::on(TierIndex(0)));
    }
}
