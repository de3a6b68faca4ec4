// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How well a replay in virtual time foresees what a store does: the same traces, tiers and policies
//! in both, with figures of the tiers from a calibration before. As a machine that is shared is faster at
//! one time than at another, there is one before each repetition.

mod live;
mod report;
mod stage;
mod workload;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use terrace_console::progress::Progress;
use terrace_core::{Error, Result};
use terrace_measure::check_stop;

pub use self::report::Report;
use self::report::Row;
use self::stage::{PAIRS, Pair, Stage, Worn};
use self::workload::WORKLOADS;

/// Policies that are compared: one that moves nothing, and the kinds that move.
pub const POLICIES: [&str; 5] = ["pinned", "lru", "heat", "write-buffer", "s3-fifo"];

/// What is compared, and how often.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names of pairs; all where there are none.
    pub pairs: Vec<String>,
    /// Names of workloads, likewise.
    pub workloads: Vec<String>,
    /// Some of [`POLICIES`], likewise.
    pub policies: Vec<String>,
    /// Live runs of each.
    pub repetitions: usize,
    /// How long the tiers of each pair are measured, a part of it before each repetition.
    pub calibration: Duration,
    /// Where tiers on a disk are.
    pub disk: PathBuf,
    /// Where tiers on another machine are, if there is one.
    pub network: Option<PathBuf>,
}

/// The names of all pairs.
pub fn pair_names() -> Vec<&'static str> {
    PAIRS.iter().map(|pair| pair.name).collect()
}

/// The names of all workloads.
pub fn workload_names() -> Vec<&'static str> {
    WORKLOADS.iter().map(|workload| workload.name).collect()
}

/// Measures the tiers of each pair, foresees every run, and does it.
pub fn run(settings: &Settings, stop: &AtomicBool) -> Result<Report> {
    let is_chosen = |names: &[String], name: &str| {
        names.is_empty() || names.iter().any(|one| one.as_str() == name)
    };
    let needs_network = |pair: &&Pair| {
        pair.needs_network() && settings.pairs.iter().any(|name| name.as_str() == pair.name)
    };
    if settings.network.is_none()
        && let Some(pair) = PAIRS.iter().find(needs_network)
    {
        let reason = "it needs a directory of a network file system, which --network names";
        return Err(Error::invalid("foresee runs", reason).with("pair", pair.name));
    }
    let pairs: Vec<&Pair> = PAIRS
        .iter()
        .filter(|pair| is_chosen(&settings.pairs, pair.name))
        .filter(|pair| settings.network.is_some() || !pair.needs_network())
        .collect();
    let workloads: Vec<_> =
        WORKLOADS.iter().filter(|workload| is_chosen(&settings.workloads, workload.name)).collect();
    let policies: Vec<_> =
        POLICIES.into_iter().filter(|policy| is_chosen(&settings.policies, policy)).collect();
    let cells = workloads.len() * policies.len();
    let total = pairs.len() * cells * settings.repetitions;
    let mut progress = Progress::items("bench prediction", Some(total as u64));
    let (mut rows, worn) = (Vec::new(), Worn::default());
    for pair in pairs {
        let mut of_pair: Vec<_> = workloads
            .iter()
            .flat_map(|workload| policies.iter().map(move |policy| (*workload, *policy)))
            .map(|(workload, policy)| {
                let about = (pair.name, pair.is_real());
                (workload, Row::new(about, workload.name, policy))
            })
            .collect();
        for repetition in 0..settings.repetitions {
            progress.say(format!("bench prediction: calibrate {}", pair.name));
            let stage = Stage::new(pair, settings, &worn, stop)?;
            for turn in 0..cells {
                check_stop(stop)?;
                // The order changes from one repetition to the next.
                let (workload, row) = &mut of_pair[(turn + repetition) % cells];
                progress.say(format!("bench prediction {} {}", pair.name, row.title()));
                let foreseen = stage.foresee(workload, row.policy)?;
                row.note(&foreseen, stage.play(workload, row.policy)?);
                progress.advance(1);
            }
        }
        rows.extend(of_pair.into_iter().map(|(_, row)| row));
    }
    Ok(Report::new(rows))
}
