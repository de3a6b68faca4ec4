// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounted stores beside the directories of their tiers, and beside a daemon that does nothing.

mod daemon;
mod foreign;
mod ground;
mod million;
mod moving;
mod receipts;
mod rows;
pub(super) mod steps;
mod suites;

use std::path::PathBuf;

use serde::Serialize;
use terrace_measure::Verdict;
use terrace_measure::compared::{Compared, Comparison, Samples};

/// What can be measured, in the order of the table.
pub const ROWS: [&str; 28] = [
    "seq-read-1m",
    "seq-write-1m",
    "rand-read-4k",
    "rand-write-4k",
    "create",
    "lookup-missing",
    "read-1k",
    "unlink",
    "served-seq-read-1m",
    "served-seq-write-1m",
    "served-rand-read-4k",
    "served-rand-write-4k",
    "net-create-1k",
    "net-stat",
    "net-read-1k",
    "net-remove",
    "net-ls-lr",
    "migrating-read-p99",
    "pjdfstest-passthrough",
    "pjdfstest-served",
    "pjdfstest-network",
    "pjdfstest-strict",
    "fsx-served",
    "fsx-network",
    "million-mount",
    "million-ls-first",
    "million-ls-memory",
    "million-tree",
];

pub use daemon::mirror;
pub use rows::run;
pub use suites::FSX_OPERATIONS;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Groups of four blocks for each row.
    pub groups: usize,
    /// How long a block lasts where it leaves nothing behind.
    pub block_ms: u64,
    /// Some of [`ROWS`]; all where there is none.
    pub rows: Vec<String>,
    /// Files of the row that has many.
    pub files: u64,
    /// Where the programs of test suites are; `None` searches `PATH`.
    pub suites: Option<PathBuf>,
    /// Operations of fsx.
    pub fsx_operations: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub(crate) compared: Compared,
    /// What reads and writes: `passthrough`, `served`, `network`.
    pub(crate) mode: &'static str,
    /// CPU time of all daemons of the mount for each operation.
    pub(crate) daemon_cpu_us_per_op: f64,
    /// The same of the yardstick's.
    pub(crate) yardstick_cpu_us_per_op: f64,
    /// A remark: how much was done, or what went wrong.
    pub(crate) note: Option<String>,
}

impl Row {
    /// One of which nothing was run, and why.
    fn not_run(about: &About, why: String) -> Self {
        Self {
            compared: Compared::not_run(&about.comparison),
            mode: about.mode,
            daemon_cpu_us_per_op: 0.0,
            yardstick_cpu_us_per_op: 0.0,
            note: Some(why),
        }
    }

    /// The same with a remark.
    fn with_note(self, note: String) -> Self {
        Self { note: Some(note), ..self }
    }

    /// It in a line, printed while the others run.
    fn line(&self) -> String {
        let line = self.compared.line();
        match &self.note {
            Some(note) => format!("{line}; {note}"),
            None => line,
        }
    }
}

/// What all rows come to: met only where each is.
pub fn verdict(rows: &[Row]) -> Verdict {
    let verdicts: Vec<_> = rows.iter().map(|row| row.compared.verdict).collect();
    Verdict::of_all(&verdicts)
}

/// What a row is, beside its groups.
#[derive(Clone, Copy)]
struct About {
    comparison: Comparison,
    mode: &'static str,
}

/// What the groups of a row gave, and what they cost.
#[derive(Default)]
struct Groups {
    samples: Samples,
    cpu_us: f64,
    yardstick_cpu_us: f64,
}

impl Groups {
    fn row(&self, about: &About) -> Row {
        Row {
            compared: self.samples.compared(&about.comparison),
            mode: about.mode,
            daemon_cpu_us_per_op: self.cpu_us,
            yardstick_cpu_us_per_op: self.yardstick_cpu_us,
            note: None,
        }
    }
}
