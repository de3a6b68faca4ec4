// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace demo`: the same program over the same two tiers, placed by one policy after another.
//!
//! [`run`] carries out all plans, writes the page, and keeps one store; [`lines`] is what a person reads of it.

mod blocks;
mod measure;
mod page;
mod place;
mod plan;
mod recording;
mod report;
mod runner;
mod slow;
mod steps;
mod stories;
mod summary;
mod verdicts;

use std::path::PathBuf;

pub use report::DemoReport;
pub use runner::run;
pub use slow::{Device, Given, PARALLELISM, Slow};
pub use steps::Step;
pub use summary::lines;

/// How the demo is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where stores and page go.
    pub dir: PathBuf,
    /// Whether to run the long version.
    pub is_full: bool,
    /// The library of the example policy.
    pub example_policy: PathBuf,
    /// Checkpoints a run.
    pub checkpoints: u64,
    /// Points along one edge of the grid.
    pub dimension: usize,
    /// Iterations between checkpoints; `None`: as many as take 25 ms.
    pub interval: Option<u64>,
    /// The slow tier.
    pub slow: Slow,
    /// How the demo was called.
    pub command: String,
}

/// What the demo leaves behind.
pub struct Finished {
    /// What was found.
    pub report: DemoReport,
    /// Commands that work on the store that stays.
    pub steps: Vec<Step>,
    /// The page.
    pub page: PathBuf,
}
