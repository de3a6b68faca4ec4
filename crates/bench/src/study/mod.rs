// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every built-in policy over pairs of tiers, single and in batches: what the study of hierarchical
//! storage that `docs/explanation/origins.md` names asked, on this machine.

mod pair;
pub mod picture;
mod workload;

pub(super) use self::workload::parameters;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use hdrhistogram::Histogram;
use serde::Serialize;
use terrace_console::progress::Progress;
use terrace_core::Result;
use terrace_measure::sides::latencies;
use terrace_measure::{Bound, check_stop};
use terrace_policies::POLICIES;

use self::pair::{PAIRS, Pair};

/// Bytes of an object.
pub(crate) const OBJECT_BYTES: usize = 256 << 10;

/// Objects of one call where they go in batches.
pub(crate) const BATCH: usize = 8;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Objects of a run over a simulated device; eight times as many over others. The fast tier has
    /// room for a quarter of them.
    pub objects: usize,
    /// Runs of each policy over each pair.
    pub repetitions: usize,
    /// Names of pairs; all where there are none.
    pub pairs: Vec<String>,
    /// Where tiers in main memory are.
    pub fast: PathBuf,
    /// Where tiers on a disk are.
    pub disk: PathBuf,
}

/// A policy over a pair of tiers.
#[derive(Clone, Debug, Serialize)]
pub struct StudyRow {
    /// Names of the tiers, the fast one first.
    pub(crate) pair: &'static str,
    /// What the tiers are, in words.
    pub(crate) tiers: &'static str,
    /// The policy and the parameters that differ from its defaults.
    pub(crate) policy: String,
    pub(crate) batch: usize,
    pub(crate) level: &'static str,
    pub(crate) size_bytes: usize,
    pub(crate) objects: usize,
    pub(crate) write_mb_per_s: Bound,
    pub(crate) write_p99_us: f64,
    /// Twice as many reads as there are objects, the popular ones more often.
    pub(crate) read_mb_per_s: Bound,
    pub(crate) read_p99_us: f64,
    /// Part of the reads that the fast tier served.
    pub(crate) fast_reads: f64,
    /// Bytes that migrations wrote, as a multiple of those that the application wrote.
    pub(crate) moved: f64,
    pub(crate) repetitions: usize,
}

/// What one run gave.
struct Run {
    write_s: f64,
    read_s: f64,
    writes_ns: Histogram<u64>,
    reads_ns: Histogram<u64>,
    reads: u64,
    fast_reads: f64,
    moved: f64,
}

/// What is run: as many rows.
struct Plan {
    pair: &'static Pair,
    policy: &'static str,
    batch: usize,
}

/// Runs everything `repetitions` times, one repetition after the other, so that what changes on the
/// machine meets all alike.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Vec<StudyRow>> {
    let plans = plans(&settings.pairs);
    let mut progress =
        Progress::items("bench hsm-study", Some((plans.len() * settings.repetitions) as u64));
    let mut runs: Vec<Vec<Run>> = plans.iter().map(|_| Vec::new()).collect();
    for repetition in 0..settings.repetitions {
        for turn in 0..plans.len() {
            // The order changes from one repetition to the next.
            let index = (turn + repetition) % plans.len();
            let plan = &plans[index];
            progress.say(format!("bench hsm-study {} {}", plan.pair.name, plan.policy));
            runs[index].push(workload::run(settings, plan, repetition as u64)?);
            check_stop(stop)?;
            progress.advance(1);
        }
    }
    Ok(plans.iter().zip(runs).map(|(plan, runs)| row(settings, plan, &runs)).collect())
}

/// The names of all pairs of tiers.
pub fn pair_names() -> Vec<&'static str> {
    PAIRS.iter().map(|pair| pair.name).collect()
}

fn plans(chosen: &[String]) -> Vec<Plan> {
    let is_chosen = |pair: &&Pair| chosen.is_empty() || chosen.iter().any(|name| name == pair.name);
    let mut plans = Vec::new();
    for pair in PAIRS.iter().filter(is_chosen) {
        for batch in [1, BATCH] {
            plans.extend(POLICIES.iter().map(|policy| Plan { pair, policy: policy.name, batch }));
        }
    }
    plans
}

fn row(settings: &Settings, plan: &Plan, runs: &[Run]) -> StudyRow {
    let mb = OBJECT_BYTES as f64 / 1e6;
    let objects = plan.pair.objects(settings.objects);
    let bound = |of: &dyn Fn(&Run) -> f64| Bound::of(&runs.iter().map(of).collect::<Vec<_>>());
    let p99_us = |of: &dyn Fn(&Run) -> &Histogram<u64>| {
        let mut all = latencies();
        for run in runs {
            all.add(of(run)).expect("all histograms have the same range");
        }
        all.value_at_quantile(0.99) as f64 / 1e3
    };
    StudyRow {
        pair: plan.pair.name,
        tiers: plan.pair.words,
        policy: workload::words(plan.policy),
        batch: plan.batch,
        level: plan.pair.level().word(),
        size_bytes: OBJECT_BYTES,
        objects,
        write_mb_per_s: bound(&|run| objects as f64 * mb / run.write_s),
        write_p99_us: p99_us(&|run| &run.writes_ns),
        read_mb_per_s: bound(&|run| run.reads as f64 * mb / run.read_s),
        read_p99_us: p99_us(&|run| &run.reads_ns),
        fast_reads: bound(&|run| run.fast_reads).median,
        moved: bound(&|run| run.moved).median,
        repetitions: runs.len(),
    }
}
