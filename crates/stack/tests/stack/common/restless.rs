// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy that moves anything anywhere at any time, within the rules.

use std::sync::Arc;
use std::time::Duration;

use terrace_core::{
    Action, ActionKind, Actions, Error, ErrorKind, Event, Layout, Parameter, Placed, Placement,
    Placer, Policy, Random, Result, TierIndex, View,
};
use terrace_stack::Tactics;

/// The policy with its calls, for stacks of three tiers.
pub(crate) fn restless(seed: u64) -> Tactics {
    let random = Random::new(seed);
    let mut tactics = Tactics::new("restless", Box::new(Restless { random }));
    tactics.after_events = 20;
    tactics.every = Duration::from_millis(5);
    tactics
}

struct Restless {
    random: Random,
}

impl Policy for Restless {
    fn placer(&self) -> Arc<dyn Placer> {
        Arc::new(Anywhere { seed: self.random.clone().next_u64() })
    }

    fn observe(&mut self, _view: &View, _events: &[Event]) {}

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        let random = &mut self.random;
        for (slot, segment) in view.live() {
            let tier = TierIndex(random.below(view.tiers.len() as u64) as u8);
            let kind = match random.below(12) {
                0 => ActionKind::Move { to: tier },
                1 => ActionKind::Promote { to: tier },
                2 => ActionKind::Copy { to: tier },
                3 if segment.copies.contains(tier) => ActionKind::DropCopy { tier },
                4 if segment.is_moving => ActionKind::Cancel,
                _ => continue,
            };
            let action = Action {
                slot,
                incarnation: segment.incarnation,
                kind,
                priority: random.below(3) as i32,
                reason: "restless".into(),
                benefit_s: 0.0,
            };
            if !actions.push(action, segment.size_bytes) {
                return;
            }
        }
    }

    fn message(&mut self, _view: &View, kind: &str, _body: &[u8]) -> Result<Vec<u8>> {
        Err(Error::new(ErrorKind::Unsupported, "answer a message").with("kind", kind))
    }

    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    fn set_parameter(&mut self, name: &str, _value: &str) -> Result<()> {
        Err(Error::new(ErrorKind::NotFound, "set a parameter").with("name", name))
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, _view: &View, _out: &mut Vec<u8>) {}

    fn restore(&mut self, _view: &View, _version: u32, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// Chooses tier and layout by name and chance.
#[derive(Debug)]
struct Anywhere {
    seed: u64,
}

impl Placer for Anywhere {
    fn place(&self, new: &Placement<'_>) -> Placed {
        let name = new.key.name();
        let by_name =
            name.bytes().fold(self.seed, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte));
        let mut random = Random::new(by_name ^ new.start_bytes);
        let tier = TierIndex(random.below(3) as u8);
        let layout = if name.starts_with("cut") {
            Layout::Fixed { segment_bytes: 1000 + random.below(16_384) }
        } else if name.starts_with("steps") {
            Layout::Steps { starts_bytes: vec![64, 8000].into() }
        } else {
            Layout::One
        };
        Placed { tier, layout }
    }
}
