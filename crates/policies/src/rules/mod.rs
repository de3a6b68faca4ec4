// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does what rules in a text say: the first that matches places, moves or keeps.

mod book;
mod ruled;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::json;
use terrace_core::{
    Actions, Event, EventKind, Parameter, Placed, Placement, Placer, Policy, Result, TierIndex,
    View,
};

use crate::mechanism::parameters::Chosen;
use crate::mechanism::saved;
use crate::mechanism::tiering::Tiering;
use crate::mechanism::tiering::settings::Tiered;
use book::Book;
use ruled::Ruled;
use settings::RulesSettings;

/// Makes the policy; `docs/policies/rules.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(RulesSettings::default(), view, parameters)?;
    let ruled = Ruled::new(&settings);
    Ok(Box::new(Rules { tiering: Tiering::new(settings, ruled, view) }))
}

struct Rules {
    tiering: Tiering<Ruled>,
}

/// Places by the rules for new objects.
#[derive(Debug)]
struct ByRule {
    book: Arc<Book>,
    otherwise: TierIndex,
}

impl Placer for ByRule {
    fn place(&self, new: &Placement<'_>) -> Placed {
        Placed::on(self.book.place(new.key, new.size_hint_bytes).unwrap_or(self.otherwise))
    }
}

impl Policy for Rules {
    fn placer(&self) -> Arc<dyn Placer> {
        let settings = self.tiering.settings();
        let (book, otherwise) = (Arc::clone(&settings.book), settings.common().place);
        Arc::new(ByRule { book, otherwise })
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        self.tiering.observe(view, events);
        for event in events {
            let is_copy = matches!(event.kind, EventKind::Copied | EventKind::Uncopied);
            if is_copy && view.segment(event.slot, event.incarnation).is_some() {
                self.tiering.choice_mut().refresh(view, event.slot);
            }
        }
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        let (ruled, settings) = self.tiering.parts_mut();
        ruled.advance(view);
        let orders = ruled.orders(view, settings);
        self.tiering.order(orders);
        self.tiering.plan(view, actions);
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        if kind != "status" {
            return self.tiering.message(view, kind, body);
        }
        let mut status = self.tiering.status(view);
        let ruled = self.tiering.choice_mut();
        let rules =
            ruled.counts().map(|(rule, segments)| json!({ "rule": rule, "segments": segments }));
        status["rules"] = rules.collect();
        status["to_move"] = ruled.mover_count().into();
        Ok(saved::reply(&status))
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.tiering.parameters()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.tiering.set_parameter(name, value)
    }

    fn state_version(&self) -> u32 {
        self.tiering.state_version()
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        self.tiering.save(view, out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        self.tiering.restore(view, version, state)
    }
}
