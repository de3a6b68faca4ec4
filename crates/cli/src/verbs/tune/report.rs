// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a search came to: a table and a section for people, JSON for programs.

use serde_json::{Map, Value, json};
use terrace_core::units::show_bytes;
use terrace_replay::{Candidate, Format, Score, TuneOptions, Tuned};
use terrace_settings::policy_section;
use terrace_store::PolicySource;

use crate::output::{show_name, show_price};
use crate::table::Table;

/// In place of a share of nothing.
const NO_SHARE: &str = "–";

/// What there is to tell.
pub(super) struct Report {
    /// The trace, as it was named.
    pub(super) trace: String,
    pub(super) format: Format,
    pub(super) source: PolicySource,
    pub(super) options: TuneOptions,
    pub(super) tuned: Tuned,
}

impl Report {
    /// What was searched.
    pub(super) fn title(&self) -> String {
        let Tuned { trained_requests, tested_requests, budget, .. } = &self.tuned;
        format!(
            "{} ({}): {} for little {}, {trained_requests} requests to search on, \
             {tested_requests} to judge by; budget {budget}, seed {}",
            show_name(&self.trace),
            self.format,
            self.options.policy,
            self.options.objective.word(),
            self.options.seed,
        )
    }

    /// What came of it, in a sentence.
    pub(super) fn verdict(&self) -> String {
        let Tuned { candidates, best, recommended, .. } = &self.tuned;
        let found = &candidates[*best];
        let gain = self.change(found, |one| &one.tested);
        let word = self.options.objective.word();
        match (best == recommended, found.name) {
            (true, "defaults") => "recommended: the defaults; nothing better was found".into(),
            (true, name) => format!(
                "recommended: {name}; its {word} is {gain} of that of the defaults where it was judged"
            ),
            (false, name) if gain == NO_SHARE => format!(
                "recommended: the defaults; {name} was best where it was searched, but they had no \
                 {word} where it was judged"
            ),
            (false, name) => format!(
                "recommended: the defaults; {name} was best where it was searched, but its {word} is \
                 {gain} of theirs where it was judged"
            ),
        }
    }

    /// The section of a configuration with what is recommended.
    pub(super) fn section(&self) -> String {
        let one = &self.tuned.candidates[self.tuned.recommended];
        let source = match one.name {
            "pinned" => &PolicySource::Name(one.policy.clone()),
            _ => &self.source,
        };
        policy_section(source, &one.parameters)
    }

    /// What is to be small, as a share of what the defaults come to; no number where that is nothing.
    pub(super) fn change(&self, one: &Candidate, half: fn(&Candidate) -> &Score) -> String {
        let defaults = self.tuned.candidates.iter().find(|other| other.name == "defaults");
        let defaults = half(defaults.expect("the defaults are always there")).objective;
        share(half(one).objective, defaults)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}\n", self.title())];
        let mut table = Table::new(&[1, 2, 3, 4, 5, 6]);
        let has_cost = self.tuned.candidates.iter().any(|one| one.tested.cost > 0.0);
        let heading = ["", "searched", "judged", "makespan", "energy", "moved"];
        table.heading(heading.into_iter().chain(has_cost.then_some("cost")));
        for one in &self.tuned.candidates {
            let cells = [
                one.name.into(),
                self.change(one, |one| &one.trained),
                self.change(one, |one| &one.tested),
                format!("{:.3} s", one.tested.makespan_s),
                format!("{:.1} J", one.tested.joules),
                show_bytes(one.tested.migrated_bytes),
            ];
            table.row(cells.into_iter().chain(has_cost.then(|| show_price(one.tested.cost))));
        }
        lines.extend(table.lines());
        let word = self.options.objective.word();
        lines.push(format!(
            "\n{word} of the defaults is 100 %; all but `searched` is where it was judged"
        ));
        lines.push(format!("{}\n", self.verdict()));
        lines.push(self.section().trim_end().into());
        lines
    }

    pub(super) fn value(&self) -> Value {
        let Tuned { candidates, recommended, .. } = &self.tuned;
        let tried: Vec<_> = self
            .tuned
            .tried
            .iter()
            .map(|(parameters, score)| {
                json!({ "parameters": object(parameters), "searched": of_score(score) })
            })
            .collect();
        json!({
            "trace": self.trace,
            "format": self.format.word(),
            "policy": self.options.policy,
            "objective": self.options.objective.word(),
            "seed": self.options.seed,
            "budget": self.tuned.budget,
            "searched_requests": self.tuned.searched_requests,
            "random_requests": self.tuned.random_requests,
            "half_requests": [self.tuned.trained_requests, self.tuned.tested_requests],
            "tunables": self.tuned.tunables.iter().map(|one| &one.name).collect::<Vec<_>>(),
            "candidates": candidates.iter().map(candidate).collect::<Vec<_>>(),
            "best": candidates[self.tuned.best].name,
            "recommended": candidates[*recommended].name,
            "section": self.section(),
            "tried": tried,
        })
    }
}

fn candidate(one: &Candidate) -> Value {
    json!({
        "name": one.name,
        "policy": one.policy,
        "parameters": object(&one.parameters),
        "searched": of_score(&one.trained),
        "judged": of_score(&one.tested),
    })
}

fn object(parameters: &[(String, String)]) -> Map<String, Value> {
    parameters.iter().map(|(name, text)| (name.clone(), text.clone().into())).collect()
}

fn of_score(score: &Score) -> Value {
    json!({
        "objective": score.objective,
        "makespan_s": score.makespan_s,
        "joules": score.joules,
        "cost": score.cost,
        "migrated_bytes": score.migrated_bytes,
    })
}

/// A part of a whole, both as the logarithms of scores.
fn share(part: f64, whole: f64) -> String {
    // What a score has in place of the logarithm of nothing.
    match whole <= f64::MIN_POSITIVE.ln() {
        true => NO_SHARE.into(),
        false => format!("{:.2} %", 100.0 * (part - whole).exp()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_shares() {
        let score = |cost: f64| cost.max(f64::MIN_POSITIVE).ln();
        let shown = |part, whole| share(score(part), score(whole));
        assert_eq!([shown(1.0, 4.0), shown(0.0, 4.0)], ["25.00 %", "0.00 %"]);
        assert_eq!([shown(4.0, 0.0), shown(0.0, 0.0)], ["–", "–"]);
    }
}
