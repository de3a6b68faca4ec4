// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounted stores beside the directories of their tiers, and beside a daemon that does nothing.

mod daemon;
mod ground;
mod million;
mod moving;
mod rows;
mod steps;

use serde::Serialize;

use super::Verdict;
use super::statistics::{Bound, median};

pub(crate) use daemon::mirror;
pub(crate) use rows::{ROWS, run};

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Groups of four blocks for each row.
    pub(crate) groups: usize,
    /// How long a block lasts where it leaves nothing behind.
    pub(crate) block_ms: u64,
    /// Some of [`ROWS`]; all where there is none.
    pub(crate) rows: Vec<String>,
    /// Files of the row that has many.
    pub(crate) files: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) row: &'static str,
    /// Who reads and writes: `passthrough`, `served`, `network`.
    pub(crate) mode: &'static str,
    pub(crate) unit: &'static str,
    /// Median of the blocks.
    pub(crate) value: f64,
    /// Median of the yardstick's blocks, in the same unit.
    pub(crate) yardstick: Option<f64>,
    pub(crate) yardstick_is: &'static str,
    /// What the bound is of: `ratio` of value and yardstick, or `value`.
    pub(crate) bound_of: &'static str,
    pub(crate) low95: f64,
    pub(crate) high95: f64,
    /// CPU time of all daemons of the mount for each operation.
    pub(crate) daemon_cpu_us_per_op: f64,
    /// The same of the yardstick's.
    pub(crate) yardstick_cpu_us_per_op: f64,
    pub(crate) groups: usize,
    pub(crate) bar: String,
    pub(crate) verdict: Verdict,
}

/// What a row is, beside its samples.
#[derive(Clone, Copy)]
struct About {
    row: &'static str,
    mode: &'static str,
    unit: &'static str,
    yardstick_is: &'static str,
    bar: Bar,
}

/// What a row has to reach.
#[derive(Clone, Copy, Debug)]
enum Bar {
    /// At least so many times the yardstick.
    Ratio(f64),
    /// At most so many times the yardstick.
    RatioAtMost(f64),
    /// At most so much.
    AtMost(f64),
}

/// What the groups of a row gave.
#[derive(Default)]
struct Samples {
    values: Vec<f64>,
    yardsticks: Vec<f64>,
    cpu_us: f64,
    yardstick_cpu_us: f64,
}

impl Samples {
    fn row(&self, about: &About) -> Row {
        let ratios: Vec<f64> =
            self.values.iter().zip(&self.yardsticks).map(|(ours, theirs)| ours / theirs).collect();
        let (bound_of, bound) = match about.bar {
            Bar::AtMost(_) => ("value", Bound::of(&self.values)),
            _ => ("ratio", Bound::of(&ratios)),
        };
        let (bar, verdict) = match about.bar {
            Bar::Ratio(times) => {
                (format!("at least {times} times"), Verdict::at_least(&bound, times))
            }
            Bar::RatioAtMost(times) => {
                (format!("at most {times} times"), Verdict::at_most(&bound, times))
            }
            Bar::AtMost(limit) => {
                (format!("at most {limit} {}", about.unit), Verdict::at_most(&bound, limit))
            }
        };
        let has_yardstick = !self.yardsticks.is_empty();
        Row {
            row: about.row,
            mode: about.mode,
            unit: about.unit,
            value: median(&mut self.values.clone()),
            yardstick: has_yardstick.then(|| median(&mut self.yardsticks.clone())),
            yardstick_is: about.yardstick_is,
            bound_of,
            low95: bound.low95,
            high95: bound.high95,
            daemon_cpu_us_per_op: self.cpu_us,
            yardstick_cpu_us_per_op: self.yardstick_cpu_us,
            groups: self.values.len(),
            bar,
            verdict,
        }
    }
}
