// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the demo found: runs, verdicts, and the machine they were measured on.

use serde::Serialize;
use terrace_measure::{Machine, Ratio};

use super::blocks::Series;
use super::recording::Recording;

/// Everything that the demo found.
#[derive(Debug, Serialize)]
pub struct DemoReport {
    /// Version of Terrace.
    pub(crate) version: String,
    /// How it was called.
    pub(crate) command: String,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// What was simulated, in words.
    pub(crate) simulated: String,
    /// What the application did, in words.
    pub(crate) workload: String,
    /// Runs in the order of the table.
    pub(crate) runs: Vec<RunReport>,
    /// Interleaved blocks of writing under several policies.
    pub(crate) blocks: Vec<Series>,
    /// The bars, with what was measured.
    pub(crate) verdicts: Vec<Verdict>,
    /// How long the demo took.
    pub(crate) elapsed_s: f64,
}

/// One row of the table.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RunReport {
    /// The row's name for programs.
    pub(crate) id: String,
    /// The row's name.
    pub(crate) name: String,
    /// Runs of one scenario do the same work.
    pub(crate) scenario: String,
    /// The policy with its parameters, as configured.
    pub(crate) policy: String,
    /// What the policy did, in words.
    pub(crate) story: String,
    /// Why there was no run.
    pub(crate) skipped: Option<String>,
    /// Seconds of writing.
    pub(crate) write_s: f64,
    /// Seconds of reading.
    pub(crate) read_s: f64,
    /// Seconds until the last migration had ended.
    pub(crate) settle_s: f64,
    /// Migrations that were carried out.
    pub(crate) moves: u64,
    /// Their bytes.
    pub(crate) migrated_bytes: u64,
    /// The most that the fast tier held, sampled.
    pub(crate) fast_bytes_max: u64,
    /// What the fast tier held on average while the application wrote.
    pub(crate) fast_bytes_mean: u64,
    /// Over all that was read.
    pub(crate) checksum: String,
    /// Modelled energy of both tiers, from the configured watts.
    pub(crate) modelled_energy_j: f64,
    /// Seconds of writing each checkpoint, computing included.
    #[serde(skip)]
    pub(crate) write_each_s: Vec<f64>,
    /// Seconds of reading each checkpoint: its share of its batch, over all rounds.
    #[serde(skip)]
    pub(crate) read_each_s: Vec<f64>,
    /// Everything that was seen.
    #[serde(skip)]
    pub(crate) recording: Recording,
}

impl RunReport {
    /// Seconds that the application took.
    pub(crate) fn application_s(&self) -> f64 {
        self.write_s + self.read_s
    }

    /// Seconds until everything was at rest.
    pub(crate) fn total_s(&self) -> f64 {
        self.application_s() + self.settle_s
    }
}

/// Whether a bar is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Finding {
    /// It is.
    Met,
    /// It is not.
    Missed,
    /// The spread is too large to say.
    Unresolved,
}

/// A bar and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// What is asked for.
    pub(crate) bar: String,
    /// Whether it is met.
    pub(crate) finding: Finding,
    /// The ratio or share that decides.
    pub(crate) ratio: f64,
    /// Its bounds, where blocks were compared.
    pub(crate) bounds: Option<Ratio>,
    /// What was measured, in words.
    pub(crate) words: String,
}
