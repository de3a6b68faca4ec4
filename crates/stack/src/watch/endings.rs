// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How migrations ended since the store was opened, and what they took.

use std::collections::BTreeMap;
use std::sync::Mutex;

use terrace_core::{Latencies, Outcome, TierIndex};

use crate::report::{EndedMigrations, MigrationsReport, PairOfTiers};

type Pair = (TierIndex, TierIndex);

/// Counters of migrations. Their lock is taken when a migration ends and when they are read: no read, write or
/// deletion waits for it.
#[derive(Debug, Default)]
pub(crate) struct Endings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// As many as there are combinations, most of which never come.
    ended: BTreeMap<(Pair, &'static str, &'static str), Tally>,
    pairs: BTreeMap<Pair, Taken>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    count: u64,
    copied_bytes: u64,
}

#[derive(Debug, Default)]
struct Taken {
    durations: Latencies,
    modelled_energy_j: f64,
}

/// A migration that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) pair: Pair,
    pub(crate) action: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) copied_bytes: u64,
    /// Zero where it never began.
    pub(crate) took_ns: u64,
    pub(crate) modelled_energy_j: f64,
}

impl Endings {
    /// Counts a migration.
    pub(crate) fn note(&self, ending: &Ending) {
        let mut state = crate::lock(&self.0);
        let key = (ending.pair, ending.action, ending.outcome.word());
        let tally = state.ended.entry(key).or_default();
        tally.count += 1;
        tally.copied_bytes += ending.copied_bytes;
        if ending.took_ns > 0 {
            let taken = state.pairs.entry(ending.pair).or_default();
            taken.durations.add(ending.took_ns);
            taken.modelled_energy_j += ending.modelled_energy_j;
        }
    }

    /// All counters, with the names of tiers, where `submitted` says how many migrations were ever queued.
    pub(crate) fn report(
        &self,
        name: impl Fn(TierIndex) -> String,
        submitted: impl Fn() -> u64,
    ) -> MigrationsReport {
        let state = crate::lock(&self.0);
        let ended: Vec<_> = state
            .ended
            .iter()
            .map(|(((from, to), action, outcome), tally)| EndedMigrations {
                from: name(*from),
                to: name(*to),
                action,
                outcome,
                count: tally.count,
                copied_bytes: tally.copied_bytes,
            })
            .collect();
        let pairs = state.pairs.iter().map(|((from, to), taken)| PairOfTiers {
            from: name(*from),
            to: name(*to),
            durations: taken.durations.report(),
            modelled_energy_j: taken.modelled_energy_j,
        });
        let pairs = pairs.collect();
        let count: u64 = ended.iter().map(|one| one.count).sum();
        // Read behind what has ended: one that is queued meanwhile counts as active.
        let active = submitted().saturating_sub(count);
        MigrationsReport { active, ended, pairs }
    }
}
