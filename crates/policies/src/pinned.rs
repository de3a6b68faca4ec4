// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything to one tier, or where the first matching rule says; nothing ever moves.

use std::sync::Arc;

use serde_json::json;
use terrace_core::{
    Actions, Event, Interest, Parameter, Placed, Placement, Placer, Policy, Result, TierIndex, View,
};

use crate::mechanism::glob::Glob;
use crate::mechanism::parameters::{Chosen, Declaration, Settings, Value};
use crate::mechanism::saved;

/// Makes the policy; `docs/policies/pinned.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let defaults = PinnedSettings { tier: TierIndex(0), rules: Vec::new(), all_events: false };
    Ok(Box::new(Pinned { settings: Chosen::new(defaults, view, parameters)? }))
}

#[derive(Clone, Debug)]
struct PinnedSettings {
    tier: TierIndex,
    rules: Vec<(Glob, TierIndex)>,
    all_events: bool,
}

impl Settings for PinnedSettings {
    const TABLE: &'static [Declaration<Self>] = &[
        Declaration {
            name: "tier",
            value: |s| Value::Tier(&mut s.tier),
            description: "Tier for new objects that no rule matches; the next with room if it is full.",
        },
        Declaration {
            name: "rules",
            value: |s| Value::Rules(&mut s.rules),
            description: "Ordered rules pattern=tier over namespace/name, separated by commas; \
                          the first match counts.",
        },
        Declaration {
            name: "all_events",
            value: |s| Value::Switch(&mut s.all_events),
            description: "Whether `stat` and `sync` are events, too, which it does not use: for \
                          traces, and to measure what they cost.",
        },
    ];
}

struct Pinned {
    settings: Chosen<PinnedSettings>,
}

impl Policy for Pinned {
    fn placer(&self) -> Arc<dyn Placer> {
        Arc::new(ByRule((*self.settings).clone()))
    }

    fn interest(&self) -> Interest {
        let is_all = self.settings.all_events;
        Interest { stat: is_all, sync: is_all }
    }

    fn observe(&mut self, _: &View, _: &[Event]) {}

    fn plan(&mut self, _: &View, _: &mut Actions) {}

    fn message(&mut self, _: &View, kind: &str, _: &[u8]) -> Result<Vec<u8>> {
        match kind {
            "status" => Ok(saved::reply(&json!({ "policy": "pinned" }))),
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
struct ByRule(PinnedSettings);

impl Placer for ByRule {
    fn place(&self, new: &Placement<'_>) -> Placed {
        let key = new.key.as_str();
        let rule = self.0.rules.iter().find(|(glob, _)| glob.is_match(key));
        Placed::on(rule.map_or(self.0.tier, |(_, tier)| *tier))
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, tiers};
    use terrace_core::{Interest, TierIndex};

    #[test]
    fn the_first_matching_rule_places() {
        let rules = [("rules", "n/ckpt/*=t1, n/*.log=t2"), ("tier", "t0")];
        let mut harness = Harness::new("pinned", &rules, tiers(&[1000, 1000, 1000]));
        let mut tier_of = |key| {
            let slot = harness.write(key, 10);
            harness.view.segments[slot as usize].tier
        };
        assert_eq!(tier_of("n/ckpt/a.log"), TierIndex(1));
        assert_eq!(tier_of("n/b.log"), TierIndex(2));
        assert_eq!(tier_of("n/c"), TierIndex(0));
    }

    #[test]
    fn it_asks_for_all_events_as_it_is_told() {
        let mut harness = Harness::new("pinned", &[], tiers(&[100]));
        assert_eq!(harness.policy.interest(), Interest::NONE);
        harness.policy.set_parameter("all_events", "on").expect("a switch");
        assert_eq!(harness.policy.interest(), Interest { stat: true, sync: true });
    }

    #[test]
    fn nothing_moves_even_from_a_full_tier() {
        let mut harness = Harness::new("pinned", &[], tiers(&[100, 1000]));
        let slot = harness.write("n/a", 99);
        for _ in 0..10 {
            harness.read(slot, 0, 99);
            assert!(harness.round().is_empty());
        }
        assert!(harness.policy.message(&harness.view, "stage", b"{}").is_err());
    }
}
