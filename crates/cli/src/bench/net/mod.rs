// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store over the network beside what the network itself can do.

mod load;
mod rows;
pub(super) mod server;
mod silent;
mod yardstick;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use terrace_core::Result;

use super::Verdict;
use super::statistics::{Bound, median};

pub(crate) use rows::{ROWS, run};

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Pairs of blocks for each row.
    pub(crate) groups: usize,
    /// How long a block lasts.
    pub(crate) block_ms: u64,
    /// Some of [`ROWS`]; all where there is none.
    pub(crate) rows: Vec<String>,
    /// Where the store on a disk is.
    pub(crate) disk: PathBuf,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) row: &'static str,
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
    /// CPU time of client and server together for each operation.
    pub(crate) cpu_us_per_op: f64,
    pub(crate) client_cpu_us_per_op: f64,
    pub(crate) server_cpu_us_per_op: f64,
    /// How it is reached.
    pub(crate) transport: &'static str,
    /// What acknowledged operations survive.
    pub(crate) level: &'static str,
    pub(crate) groups: usize,
    pub(crate) bar: String,
    pub(crate) verdict: Verdict,
}

/// What a row has to reach.
#[derive(Clone, Copy, Debug)]
enum Bar {
    /// So many times the yardstick.
    Ratio(f64),
    /// So much.
    AtLeast(f64),
    /// At most so much.
    AtMost(f64),
}

/// What the blocks of a row gave.
#[derive(Default)]
struct Samples {
    values: Vec<f64>,
    yardsticks: Vec<f64>,
    operations: u64,
    client_cpu_ns: u64,
    server_cpu_ns: u64,
}

/// What a row is, beside its samples.
struct About {
    row: &'static str,
    unit: &'static str,
    transport: &'static str,
    level: &'static str,
    yardstick_is: &'static str,
    bar: Bar,
}

impl Samples {
    fn row(&self, about: &About) -> Row {
        let has_yardstick = !self.yardsticks.is_empty();
        let ratios: Vec<f64> =
            self.values.iter().zip(&self.yardsticks).map(|(ours, theirs)| ours / theirs).collect();
        let (bound_of, bound) = match about.bar {
            Bar::Ratio(_) if has_yardstick => ("ratio", Bound::of(&ratios)),
            _ => ("value", Bound::of(&self.values)),
        };
        let (bar, verdict) = match about.bar {
            Bar::Ratio(times) if has_yardstick => {
                (format!("at least {times} times"), Verdict::at_least(&bound, times))
            }
            // Without the yardstick nothing can be said.
            Bar::Ratio(times) => (format!("at least {times} times"), Verdict::NotResolved),
            Bar::AtLeast(limit) => {
                (format!("at least {limit} {}", about.unit), Verdict::at_least(&bound, limit))
            }
            Bar::AtMost(limit) => {
                (format!("at most {limit} {}", about.unit), Verdict::at_most(&bound, limit))
            }
        };
        let per_op = |cpu_ns: u64| cpu_ns as f64 / 1e3 / (self.operations as f64).max(1.0);
        Row {
            row: about.row,
            unit: about.unit,
            value: median(&mut self.values.clone()),
            yardstick: has_yardstick.then(|| median(&mut self.yardsticks.clone())),
            yardstick_is: about.yardstick_is,
            bound_of,
            low95: bound.low95,
            high95: bound.high95,
            cpu_us_per_op: per_op(self.client_cpu_ns + self.server_cpu_ns),
            client_cpu_us_per_op: per_op(self.client_cpu_ns),
            server_cpu_us_per_op: per_op(self.server_cpu_ns),
            transport: about.transport,
            level: about.level,
            groups: self.values.len(),
            bar,
            verdict,
        }
    }
}

/// Fails once somebody wants it to end.
fn check_stop(stop: &AtomicBool) -> Result<()> {
    super::micro::threads::check_stop(stop)
}
