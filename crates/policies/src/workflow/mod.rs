// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Follows a plan that messages tell: what has to be where by when, what stays, and what is done
//! with. Everything else goes by heat.

mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use terrace_core::{Actions, Error, Event, Parameter, Placer, Policy, Result, View};

use crate::heat::Heats;
use crate::mechanism::parameters::Chosen;
use crate::mechanism::saved;
use crate::mechanism::staging::{Keep, Named, Set, Stage, read_body};
use crate::mechanism::tiering::Tiering;
use settings::WorkflowSettings;

/// Makes the policy; `docs/policies/workflow.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(WorkflowSettings::default(), view, parameters)?;
    let heats = Heats::new(&*settings);
    Ok(Box::new(Workflow { tiering: Tiering::new(settings, heats, view) }))
}

struct Workflow {
    tiering: Tiering<Heats<WorkflowSettings>>,
}

/// One message, alone or in a plan.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Step {
    Stage(Stage),
    Keep(Keep),
    Done(Named),
    Release(Named),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    steps: Vec<Step>,
}

impl Step {
    fn set(&self) -> Set<'_> {
        match self {
            Step::Stage(stage) => stage.set(),
            Step::Keep(keep) => keep.set(),
            Step::Done(named) | Step::Release(named) => named.set(),
        }
    }
}

impl Policy for Workflow {
    fn placer(&self) -> Arc<dyn Placer> {
        self.tiering.placer()
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        self.tiering.observe(view, events);
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        self.tiering.plan(view, actions);
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        let reply = match kind {
            "stage" => self.one(view, Step::Stage(read_body(body)?))?,
            "keep" => self.one(view, Step::Keep(read_body(body)?))?,
            "done" => self.one(view, Step::Done(read_body(body)?))?,
            "plan" => {
                let plan = serde_json::from_slice::<Plan>(body).map_err(|error| {
                    let reason =
                        r#"steps like {"steps": [{"done": {"glob": "a/*"}}]} are expected"#;
                    Error::invalid("read a plan", reason).with("cause", &error)
                })?;
                json!({ "steps": self.carry_out(view, &plan.steps)? })
            }
            "release" | "status" => return self.tiering.message(view, kind, body),
            _ => {
                let known = "stage, keep, done, release, plan, status";
                return Err(saved::unknown_message(kind, known));
            }
        };
        Ok(saved::reply(&reply))
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

impl Workflow {
    fn one(&mut self, view: &View, step: Step) -> Result<Value> {
        Ok(self.carry_out(view, &[step])?.pop().expect("one step has one reply"))
    }

    /// Carries out all steps in order; where one is refused, none has happened.
    fn carry_out(&mut self, view: &View, steps: &[Step]) -> Result<Vec<Value>> {
        let sets: Vec<_> = steps.iter().map(Step::set).collect();
        let selected = Set::select(&sets, view)?;
        let lease_ns = self.tiering.settings().lease_ns;
        let mut staging = self.tiering.staging().clone();
        let mut replies = Vec::new();
        for (number, (step, selected)) in steps.iter().zip(&selected).enumerate() {
            let reply = match step {
                Step::Stage(stage) => staging.stage(view, stage, selected, lease_ns),
                Step::Keep(keep) => staging.keep(view, keep, selected, lease_ns),
                Step::Done(_) | Step::Release(_) => {
                    selected.slots.iter().for_each(|slot| staging.forget(*slot));
                    Ok(json!({ "segments": selected.slots.len() }))
                }
            };
            replies.push(reply.map_err(|error| error.with("step", number + 1))?);
        }
        self.tiering.set_staging(view, staging);
        for (step, selected) in steps.iter().zip(&selected) {
            if matches!(step, Step::Done(_)) {
                let choice = self.tiering.choice_mut();
                selected.slots.iter().for_each(|slot| choice.finish(view, *slot));
            }
        }
        Ok(replies)
    }
}
