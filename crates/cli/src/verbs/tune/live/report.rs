// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `terrace tune --live` prints: a line for each window.

use std::time::Duration;

use serde_json::{Value as Json, json};
use terrace_core::units::{format_duration, show_ns};
use terrace_replay::rails::{Caution, Decision, Ruling, Step, Trial, Why};
use terrace_replay::{Objective, Value};
use terrace_store::Store;
use terrace_tuning::live::{self, Done, Recorded, Running};

use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, count};
use crate::time::show_wall;

pub(super) struct Report {
    output: Output,
    is_json: bool,
    objective: Objective,
}

impl Report {
    pub(super) fn new(context: &Context, objective: Objective) -> Self {
        Self { output: Output::new(), is_json: context.is_json, objective }
    }
}

impl live::Report for Report {
    fn begins(
        &mut self,
        store: &Store,
        running: &Running,
        window: Duration,
        caution: &Caution,
        is_dry_run: bool,
    ) -> Result<()> {
        let word = self.objective.word();
        let (window, dwell) = (format_duration(window), format_duration(caution.dwell));
        if self.is_json {
            return self.json(&json!({ "begun": {
                "policy": running.policy,
                "parameters": parameters(running),
                "objective": word,
                "window": window,
                "dwell": dwell,
                "is_dry_run": is_dry_run,
            }}));
        }
        let held = if store.is_attached() { "" } else { "holding the store; " };
        let dry = if is_dry_run { ", dry run: nothing is changed" } else { "" };
        self.line(format!(
            "{held}tuning {} for little {word}: windows of {window}, {dwell} after a change{dry}; \
             Ctrl-C ends it and leaves what runs",
            running.policy,
        ))
    }

    fn begins_anew(&mut self, running: &Running) -> Result<()> {
        if self.is_json {
            return self.json(&json!({ "begun_anew": {
                "policy": running.policy,
                "parameters": parameters(running),
            }}));
        }
        self.line("the policy or its parameters were changed by another command: beginning anew")
    }

    fn window(&mut self, recorded: &Recorded, done: &Done) -> Result<()> {
        if self.is_json {
            return self.json(&window(recorded, done));
        }
        let line = self.window_line(recorded, done);
        self.line(line)
    }

    fn ends(&mut self, first: &Running, last: &Running, unjudged: Option<&Step>) -> Result<()> {
        if self.is_json {
            return self.json(&json!({ "ended": {
                "policy": last.policy,
                "parameters": parameters(last),
                "unjudged": unjudged.map(step),
            }}));
        }
        let new: Vec<_> =
            last.differences(first).map(|(name, value)| format!("{name}={value}")).collect();
        let changed = match new.is_empty() {
            true => "its parameters are as they were".into(),
            false => format!("{} stays", new.join(" ")),
        };
        let unjudged = match unjudged {
            Some(step) => format!("; {} was not judged yet, it was {}", step.name, step.from),
            None => String::new(),
        };
        self.line(format!("{}: {changed}{unjudged}", last.policy))
    }
}

impl Report {
    fn window_line(&self, recorded: &Recorded, done: &Done) -> String {
        let Ruling { error, best, .. } = &done.ruling;
        let mut line = show_wall(recorded.began_wall_ns);
        line += match recorded.lived.accesses {
            1 => "  1 access".into(),
            many => format!("  {many} accesses"),
        }
        .as_str();
        if recorded.lived.accesses > 0 {
            line += &format!(", {}", self.value(&done.measured));
        }
        if let Some(foreseen) = &done.foreseen {
            line += &format!("; foreseen {} ({} off)", self.value(foreseen), percent(*error));
        }
        match best {
            Some((trial, gain)) if *gain > 0.0 => {
                let word = self.objective.word();
                line += &format!("; best {}: {} less {word}", name(trial), percent(*gain));
            }
            Some(_) => line += "; nothing would be better",
            None => {}
        }
        if let Some(judged) = done.ruling.judged {
            line += &format!("; since the last change {} of before", percent(judged));
        }
        format!("{line}; {}", self.decision(recorded, done))
    }

    fn decision(&self, recorded: &Recorded, done: &Done) -> String {
        if let Some(why) = &done.refused {
            return format!("not changed: {why}");
        }
        let would = if done.is_dry_run { "would change" } else { "changed" };
        let Ruling { needed, .. } = &done.ruling;
        match &done.ruling.decision {
            Decision::Change(Step { name, from, to, .. }) => {
                format!("{would} {name} from {from} to {to}")
            }
            Decision::RollBack(Step { name, from, to, .. }) => {
                format!("changed {name} back from {from} to {to}")
            }
            Decision::RecommendPinned => {
                "recommended: pinned, by `terrace policy use pinned`; nothing changed".into()
            }
            Decision::Keep(Why::Few) if !recorded.is_whole() => {
                let missing = count(recorded.lived.summed_up + recorded.lost_records, "record");
                format!("kept: {missing} of the trace are summed up or lost")
            }
            Decision::Keep(Why::Few) => "kept: too few to say anything".into(),
            Decision::Keep(Why::Useless) => {
                "kept: the model is too far off for any gain to be believed; `terrace calibrate` \
                 measures what it is told of the tiers, --page-cache tells it of memory"
                    .into()
            }
            Decision::Keep(Why::Dwelling(left)) => {
                let left = Duration::from_secs(left.as_secs_f64().ceil() as u64);
                format!("kept: the last change dwells for another {}", format_duration(left))
            }
            Decision::Keep(Why::NoGain) => format!("kept: {} are needed", percent(*needed)),
            Decision::Keep(Why::Once) => "kept: it has to be so in two windows".into(),
        }
    }

    /// What a window came to, in what is to be small.
    fn value(&self, value: &Value) -> String {
        let time = show_ns((value.access_s * 1e9) as u64);
        match self.objective.needs_watts() {
            true => format!("{time} and {:.3} J each", value.joules),
            false => format!("{time} each"),
        }
    }

    fn line(&mut self, text: impl std::fmt::Display) -> Result<()> {
        self.output.line(text)?;
        self.output.flush()
    }

    fn json(&mut self, value: &Json) -> Result<()> {
        self.output.json(value)?;
        self.output.flush()
    }
}

/// A window for programs.
fn window(recorded: &Recorded, done: &Done) -> Json {
    let Ruling { error, needed, best, judged, decision } = &done.ruling;
    let lived = &recorded.lived;
    let (word, why) = match decision {
        _ if done.refused.is_some() => ("refused", done.refused.clone()),
        Decision::Change(_) if done.is_dry_run => ("would-change", None),
        Decision::Change(_) => ("change", None),
        Decision::RollBack(_) => ("roll-back", None),
        Decision::RecommendPinned => ("recommend-pinned", None),
        Decision::Keep(why) => ("keep", Some(why_word(*why).to_string())),
    };
    let taken = match decision {
        Decision::Change(taken) | Decision::RollBack(taken) => Some(step(taken)),
        Decision::Keep(_) | Decision::RecommendPinned => None,
    };
    let tier = |(name, tier): (&String, &terrace_replay::LivedTier)| json!({ "name": name, "accesses": tier.accesses, "device_s": tier.device_s });
    let best = best.as_ref().map(|(trial, gain)| json!({ "trial": name(trial), "gain": gain }));
    json!({ "window": {
        "began_wall_ns": recorded.began_wall_ns,
        "accesses": lived.accesses,
        "left_out": lived.left_out,
        "summed_up": lived.summed_up,
        "lost_records": recorded.lost_records,
        "tiers": recorded.tiers.iter().zip(&lived.tiers).map(tier).collect::<Vec<_>>(),
        "measured": value(&done.measured),
        "foreseen": done.foreseen.as_ref().map(value),
        "error": error,
        "needed": needed,
        "best": best,
        "judged": judged,
        "decision": word,
        "why": why,
        "step": taken,
    }})
}

fn why_word(why: Why) -> &'static str {
    match why {
        Why::Few => "few",
        Why::Useless => "useless",
        Why::Dwelling(_) => "dwelling",
        Why::NoGain => "no-gain",
        Why::Once => "once",
    }
}

fn value(value: &Value) -> Json {
    let Value { objective, access_s, joules } = value;
    json!({ "objective": objective, "access_s": access_s, "joules": joules })
}

fn step(step: &Step) -> Json {
    json!({ "parameter": step.name, "from": step.from, "to": step.to })
}

fn parameters(running: &Running) -> serde_json::Map<String, Json> {
    let pairs = running.parameters.iter();
    pairs.map(|(name, value)| (name.clone(), value.clone().into())).collect()
}

fn name(trial: &Trial) -> String {
    match trial {
        Trial::Step(step) => format!("{}={}", step.name, step.to),
        Trial::Pinned => "pinned".into(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
