// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures beside a yardstick, and what they have to reach.

use serde::Serialize;

use crate::blocks::GROUPS_MIN;
use crate::{Bound, Verdict, median};

/// What a row has to reach.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// At least so many times the yardstick.
    Ratio(f64),
    /// At most so many times the yardstick.
    RatioAtMost(f64),
    /// At least so much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
}

impl Bar {
    /// For people.
    fn text(self, unit: &str) -> String {
        match self {
            Bar::Ratio(times) => format!("at least {times} times"),
            Bar::RatioAtMost(times) => format!("at most {times} times"),
            Bar::AtLeast(limit) => format!("at least {limit} {unit}"),
            Bar::AtMost(limit) => format!("at most {limit} {unit}"),
        }
    }
}

/// What a row compares.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The row's name.
    pub row: &'static str,
    /// That of value and yardstick.
    pub unit: &'static str,
    /// What the yardstick is.
    pub yardstick_is: &'static str,
    /// What has to be reached.
    pub bar: Bar,
}

/// What the blocks or groups of a row gave.
#[derive(Default)]
pub struct Samples {
    /// One of each.
    pub values: Vec<f64>,
    /// As many, or none where there is no yardstick.
    pub yardsticks: Vec<f64>,
    /// Whether the row takes as many, however many groups are asked for: they are enough for a verdict.
    pub is_all: bool,
}

impl Samples {
    /// None yet, of a row that takes as many, however many groups are asked for.
    pub fn fixed() -> Self {
        Self { is_all: true, ..Self::default() }
    }
}

/// The part of a row that all have which are compared with a yardstick.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The row's name.
    pub row: &'static str,
    /// That of value and yardstick.
    pub unit: &'static str,
    /// Median of the blocks; none where nothing was run.
    pub value: Option<f64>,
    /// Median of the yardstick's blocks, in the same unit.
    pub yardstick: Option<f64>,
    /// What the yardstick is.
    pub yardstick_is: &'static str,
    /// What the bound is of: `ratio` of value and yardstick, or `value`.
    pub bound_of: &'static str,
    /// The lower end of the bound.
    pub low95: Option<f64>,
    /// The upper end of the bound.
    pub high95: Option<f64>,
    /// How many blocks or groups there were.
    pub groups: usize,
    /// What has to be reached, in words.
    pub bar: String,
    /// Whether it was.
    pub verdict: Verdict,
}

impl Samples {
    /// The figures and the verdict; there must be a value.
    pub fn compared(&self, comparison: &Comparison) -> Compared {
        let &Comparison { row, unit, yardstick_is, bar } = comparison;
        let has_yardstick = !self.yardsticks.is_empty();
        let ratios: Vec<f64> =
            self.values.iter().zip(&self.yardsticks).map(|(ours, theirs)| ours / theirs).collect();
        let (bound_of, bound) = match bar {
            Bar::Ratio(_) | Bar::RatioAtMost(_) if has_yardstick => ("ratio", Bound::of(&ratios)),
            _ => ("value", Bound::of(&self.values)),
        };
        let verdict = match bar {
            _ if !self.is_all && self.values.len() < GROUPS_MIN => Verdict::NotResolved,
            // There is no verdict without the yardstick.
            Bar::Ratio(_) | Bar::RatioAtMost(_) if !has_yardstick => Verdict::NotResolved,
            Bar::Ratio(limit) | Bar::AtLeast(limit) => Verdict::at_least(&bound, limit),
            Bar::RatioAtMost(limit) | Bar::AtMost(limit) => Verdict::at_most(&bound, limit),
        };
        Compared {
            row,
            unit,
            value: Some(median(&mut self.values.clone())),
            yardstick: has_yardstick.then(|| median(&mut self.yardsticks.clone())),
            yardstick_is,
            bound_of,
            low95: Some(bound.low95),
            high95: Some(bound.high95),
            groups: self.values.len(),
            bar: bar.text(unit),
            verdict,
        }
    }
}

impl Compared {
    /// A row of which nothing was run.
    pub fn not_run(comparison: &Comparison) -> Self {
        let &Comparison { row, unit, yardstick_is, bar } = comparison;
        Self {
            row,
            unit,
            value: None,
            yardstick: None,
            yardstick_is,
            bound_of: "value",
            low95: None,
            high95: None,
            groups: 0,
            bar: bar.text(unit),
            verdict: Verdict::NotRun,
        }
    }

    /// It in a line, printed while the others run.
    pub fn line(&self) -> String {
        let Self { row, bound_of, bar, verdict, .. } = self;
        let verdict = verdict.word();
        match (self.low95, self.high95) {
            (Some(low95), Some(high95)) => {
                format!("{row}: {bound_of} {low95:.3} to {high95:.3}, bar {bar}: {verdict}")
            }
            _ => format!("{row}: bar {bar}: {verdict}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(bar: Bar, values: &[f64], yardsticks: &[f64]) -> Compared {
        let samples =
            Samples { values: values.into(), yardsticks: yardsticks.into(), is_all: true };
        samples.compared(&Comparison { row: "row", unit: "s", yardstick_is: "another", bar })
    }

    #[test]
    fn a_ratio_is_of_the_blocks_beside_each_other() {
        let row = compared(Bar::Ratio(0.5), &[6.0, 60.0, 600.0], &[10.0, 100.0, 1000.0]);
        assert_eq!((row.bound_of, row.verdict), ("ratio", Verdict::Met));
        assert_eq!((row.low95, row.high95), (Some(0.6), Some(0.6)));
        assert_eq!((row.value, row.yardstick, row.groups), (Some(60.0), Some(100.0), 3));
        assert_eq!(row.line(), "row: ratio 0.600 to 0.600, bar at least 0.5 times: met");
        let row = compared(Bar::RatioAtMost(0.5), &[6.0], &[10.0]);
        assert_eq!((row.bar.as_str(), row.verdict), ("at most 0.5 times", Verdict::Missed));
    }

    #[test]
    fn a_ratio_without_its_yardstick_says_nothing() {
        let row = compared(Bar::Ratio(0.5), &[6.0], &[]);
        assert_eq!((row.bound_of, row.verdict), ("value", Verdict::NotResolved));
        assert_eq!(row.yardstick, None);
    }

    #[test]
    fn a_value_is_held_against_its_limit() {
        let row = compared(Bar::AtLeast(5.0), &[6.0], &[10.0]);
        assert_eq!((row.bound_of, row.bar.as_str()), ("value", "at least 5 s"));
        assert_eq!(row.verdict, Verdict::Met);
        assert_eq!(compared(Bar::AtMost(5.0), &[6.0], &[]).verdict, Verdict::Missed);
    }

    #[test]
    fn few_groups_say_nothing_unless_they_are_all() {
        for bar in [Bar::Ratio(0.5), Bar::RatioAtMost(0.7), Bar::AtLeast(5.0), Bar::AtMost(7.0)] {
            let comparison = Comparison { row: "row", unit: "s", yardstick_is: "another", bar };
            let verdict = |groups, is_all| {
                let (values, yardsticks) = (vec![6.0; groups], vec![10.0; groups]);
                Samples { values, yardsticks, is_all }.compared(&comparison).verdict
            };
            assert_eq!(verdict(GROUPS_MIN - 1, false), Verdict::NotResolved, "{bar:?}");
            assert_eq!(verdict(GROUPS_MIN, false), Verdict::Met, "{bar:?}");
            assert_eq!(verdict(1, true), Verdict::Met, "{bar:?}");
        }
    }

    #[test]
    fn what_was_not_run_has_no_figure() {
        let bar = Bar::AtMost(0.0);
        let row = Compared::not_run(&Comparison { row: "row", unit: "s", yardstick_is: "-", bar });
        assert_eq!((row.value, row.low95, row.verdict), (None, None, Verdict::NotRun));
        assert_eq!(row.line(), "row: bar at most 0 s: not run");
    }
}
