// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a store that runs would have made of its last window with other parameters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use terrace_core::{Random, Result, TierIndex, View};
use terrace_policies::tunable::tunables;

use super::rails::{Step, Trial};
use super::{Objective, PINNED, parallel};
use crate::read::{Lived, Trace};
use crate::timed::{Population, Timed, TimedOptions, TimedReplay};

/// Objects at most that stand for what a tier holds and no request asked for.
const IDLE_MAX: u64 = 1024;

/// Of the numbers of these: any two in 64 bits are different, as good as surely.
const IDLE_SEED: u64 = 0x6964_6c65;

/// The value with which a policy takes the watermark of each tier.
const OF_TIER: &str = "tier";

/// A policy that runs, and what it runs on.
#[derive(Clone, Debug)]
pub struct Shadows {
    /// The tiers, and how the policy is called.
    pub timed: TimedOptions,
    /// What is to be small.
    pub objective: Objective,
    /// A built-in policy.
    pub policy: String,
    /// All its parameters.
    pub parameters: Vec<(String, String)>,
}

/// What a tier holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierFill {
    /// In bytes.
    pub used_bytes: u64,
    /// In segments.
    pub segments: u64,
}

/// Time and energy of a window, and what they come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Value {
    /// What is to be small, for each access.
    pub objective: f64,
    /// What an access took, in the mean.
    pub access_s: f64,
    /// Energy of all tiers, for each access.
    pub joules: f64,
}

/// What is foreseen, with what runs and otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreseen {
    /// With what runs.
    pub running: Value,
    /// With one thing otherwise.
    pub trials: Vec<(Trial, Value)>,
}

/// A policy with its parameters, and what it is tried as.
type Tried = (Option<Trial>, String, Vec<(String, String)>);

impl Objective {
    /// What a window came to: `access_s` is what its accesses took in all, `joules` what all tiers
    /// drew meanwhile.
    pub fn value(self, accesses: u64, access_s: f64, joules: f64) -> Value {
        let (access_s, joules) = (access_s / accesses as f64, joules / accesses as f64);
        let objective = match self {
            Objective::Edp => joules * access_s,
            Objective::Energy => joules,
            Objective::Ed2p => joules * access_s * access_s,
            // Nothing is charged for by the access: no store is tuned for cost while it runs.
            Objective::Time | Objective::Cost => access_s,
        };
        Value { objective, access_s, joules }
    }

    fn of(self, timed: &Timed) -> Value {
        let (reads, writes) = (timed.reads, timed.writes);
        let access_s = reads.mean_s * reads.count as f64 + writes.mean_s * writes.count as f64;
        self.value(reads.count + writes.count, access_s, timed.joules)
    }
}

impl Shadows {
    /// What the store would have made of this, with what it has and with one thing otherwise: each
    /// number up to a factor of two away, each choice beside one, and [`Trial::Pinned`]. `fill` is
    /// what its tiers held before. `None` once `stop` is set.
    ///
    /// # Errors
    ///
    /// `Unsupported` for more objects than 32 bits count; `NotFound` and `Invalid` where there is no
    /// such policy or it does not take its parameters.
    pub fn foresee(
        &self,
        lived: &Lived,
        fill: &[TierFill],
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Foreseen>> {
        let trace = || Trace::of_requests(Arc::clone(&lived.requests), Arc::clone(stop));
        let population = Arc::new(population(lived, fill, &mut trace())?);
        let tried = self.tried()?;
        // The store has the other half of the processors.
        let threads = thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        let replay = |index: usize, progress: &mut dyn FnMut(u64)| {
            let (_, policy, parameters) = &tried[index];
            let policy = terrace_policies::create(policy, &self.timed.view(), parameters)?;
            let replay = TimedReplay::new(self.timed.clone());
            replay.run(Arc::clone(&population), trace(), policy, progress)
        };
        let timed = parallel::each(tried.len(), threads, &mut |_| {}, replay);
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let values = timed.into_iter().map(|timed| Ok(self.objective.of(&timed?)));
        let values = values.collect::<Result<Vec<_>>>()?;
        let trials = tried.into_iter().map(|(trial, ..)| trial).zip(&values);
        let trials = trials.filter_map(|(trial, value)| Some((trial?, *value)));
        Ok(Some(Foreseen { trials: trials.collect(), running: values[0] }))
    }

    /// What is replayed: what runs first.
    fn tried(&self) -> Result<Vec<Tried>> {
        let view = self.timed.view();
        let running = terrace_policies::create(&self.policy, &view, &self.parameters)?.parameters();
        let mut tried = vec![(None, self.policy.clone(), self.parameters.clone())];
        for tunable in tunables(&running) {
            let Some(at) = self.parameters.iter().position(|(name, _)| *name == tunable.name)
            else {
                continue;
            };
            let from = &self.parameters[at].1;
            let worth = of_tiers(&tunable.name, from, &view).unwrap_or_else(|| from.clone());
            for to in tunable.around(&worth) {
                let mut parameters = self.parameters.clone();
                parameters[at].1.clone_from(&to);
                // Some contradict the others, as a `low` above `high`.
                if terrace_policies::create(&self.policy, &view, &parameters).is_ok() {
                    let (from, worth) = (from.clone(), worth.clone());
                    let step = Step { name: tunable.name.to_string(), from, worth, to };
                    tried.push((Some(Trial::Step(step)), self.policy.clone(), parameters));
                }
            }
        }
        tried.push((Some(Trial::Pinned), PINNED.into(), Vec::new()));
        Ok(tried)
    }

    /// How many of its parameters could get another value.
    ///
    /// # Errors
    ///
    /// As [`Shadows::foresee`].
    pub fn tunable_count(&self) -> Result<usize> {
        let name = |(trial, ..): &Tried| match trial {
            Some(Trial::Step(step)) => Some(step.name.clone()),
            _ => None,
        };
        let mut names: Vec<_> = self.tried()?.iter().filter_map(name).collect();
        names.dedup();
        Ok(names.len())
    }
}

/// The watermark that a parameter stands for which takes that of each tier, where all have the same.
fn of_tiers(name: &str, value: &str, view: &View) -> Option<String> {
    let mut marks = view.tiers.iter().map(|tier| match name {
        "high" => Some(tier.watermarks.high),
        "low" => Some(tier.watermarks.low),
        _ => None,
    });
    let first = marks.next().flatten().filter(|_| value == OF_TIER)?;
    marks.all(|mark| mark == Some(first)).then(|| first.to_string())
}

/// Everything that is there before: what was asked for where it lay, and what stands for the rest.
fn population(lived: &Lived, fill: &[TierFill], trace: &mut Trace) -> Result<Population> {
    let mut population = Population::default();
    let mut random = Random::new(IDLE_SEED);
    for (index, held) in fill.iter().enumerate() {
        let tier = TierIndex(index as u8);
        let known = lived.present.iter().filter(|one| one.tier == tier);
        let (count, bytes) =
            known.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.bytes));
        let idle_bytes = held.used_bytes.saturating_sub(bytes);
        if idle_bytes == 0 {
            continue;
        }
        let pieces = held.segments.saturating_sub(count).clamp(1, IDLE_MAX);
        for _ in 0..pieces {
            // First, so that policies take it for what was not used for longest.
            population.put(random.next_u64(), tier, idle_bytes / pieces)?;
        }
    }
    population.add(trace, &mut |_| {})?;
    population.name(&lived.names);
    for one in &lived.present {
        population.put(one.id, one.tier, one.bytes)?;
    }
    Ok(population)
}

#[cfg(test)]
mod tests;
