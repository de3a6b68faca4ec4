// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Searches parameters of a policy: for a trace on one half of its windows, judged on the other; for a
//! store that runs around those that it has.

mod ground;
mod live;
mod parallel;
pub mod rails;
mod search;
#[cfg(test)]
mod tests;

use terrace_core::{Policy, Result, View};
use terrace_policies::tunable::Tunable;

use self::ground::Ground;
pub use self::live::{Foreseen, Shadows, TierFill, Value};
use self::search::Search;
use crate::read::Trace;
use crate::timed::{Timed, TimedOptions};

/// Where nothing moves: what every policy has to beat.
const PINNED: &str = "pinned";

/// Where the defaults are among the candidates.
const DEFAULTS: usize = 2;

/// What a change has to gain to be recommended, where it is judged: in logarithms, about 1 %.
const GAIN_MIN: f64 = 0.01;

/// What is to be small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Energy times time.
    Edp,
    /// Energy.
    Energy,
    /// Energy times time squared.
    Ed2p,
    /// Time.
    Time,
    /// What the providers of the tiers charge.
    Cost,
}

/// What is searched.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// What the policy is called.
    pub policy: String,
    /// Parameters that it has in all replays.
    pub fixed: Vec<(String, String)>,
    /// Parameters that it has where it runs, in all replays unless they are searched.
    pub own: Vec<(String, String)>,
    /// Which parameters are searched, each with its values or those that are known; all that can be
    /// where there are none.
    pub searched: Vec<(String, Option<String>)>,
    /// What is to be small.
    pub objective: Objective,
    /// Of everything that is left to chance.
    pub seed: u64,
}

/// What came of some parameters on one half of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The logarithm of what is to be small.
    pub objective: f64,
    /// From the first request to the last answer.
    pub makespan_s: f64,
    /// Energy of all tiers.
    pub joules: f64,
    /// What the providers of all tiers charge.
    pub cost: f64,
    /// Bytes that migrations copied.
    pub migrated_bytes: u64,
}

/// One that is reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// `tuned`, `random`, `defaults` or `pinned`.
    pub name: &'static str,
    /// The policy.
    pub policy: String,
    /// The parameters that are not its defaults.
    pub parameters: Vec<(String, String)>,
    /// On the half on which was searched.
    pub trained: Score,
    /// On the other.
    pub tested: Score,
}

/// What came of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// The one that was found, the best of as many tries by chance, the defaults, and `pinned`.
    pub candidates: Vec<Candidate>,
    /// Which of the candidates but the random one is the best on the half on which was searched.
    pub best: usize,
    /// The same, or the defaults where it is worse than those on the other half.
    pub recommended: usize,
    /// All that was tried on the whole half, with what came of it, in order.
    pub tried: Vec<(Vec<(String, String)>, Score)>,
    /// Parameters that were searched.
    pub tunables: Vec<Tunable>,
    /// Requests of each half.
    pub trained_requests: u64,
    /// See [`Tuned::trained_requests`].
    pub tested_requests: u64,
    /// How often the whole half might be replayed for the search, and as often by chance.
    pub budget: u32,
    /// Requests that were replayed for the search, and by chance.
    pub searched_requests: u64,
    /// See [`Tuned::searched_requests`].
    pub random_requests: u64,
}

/// Makes the policy with these parameters for the tiers of a view.
pub type MakePolicy<'a> =
    &'a (dyn Fn(&View, &[(String, String)]) -> Result<Box<dyn Policy>> + Sync);

/// A trace that is cut into halves, and the tiers on which it is replayed.
pub struct Tuner<'a> {
    ground: Ground<'a>,
    options: TuneOptions,
    tunables: Vec<Tunable>,
    defaults: Candidate,
    pinned: Candidate,
}

/// Opens the trace, as often as it is asked.
pub type OpenTrace<'a> = &'a (dyn Fn() -> Result<Trace> + Sync);

impl Objective {
    /// All of them, the default first.
    pub const ALL: [Objective; 5] =
        [Objective::Edp, Objective::Energy, Objective::Ed2p, Objective::Time, Objective::Cost];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Objective::Edp => "edp",
            Objective::Energy => "energy",
            Objective::Ed2p => "ed2p",
            Objective::Time => "time",
            Objective::Cost => "cost",
        }
    }

    /// Whether it is of no use where tiers draw nothing.
    pub fn needs_watts(self) -> bool {
        !matches!(self, Objective::Time | Objective::Cost)
    }

    /// Whether it is of no use where tiers have no prices. No store measures it while it runs.
    pub fn needs_prices(self) -> bool {
        self == Objective::Cost
    }

    fn score(self, timed: &Timed) -> Score {
        let (joules, makespan_s) = (timed.joules, timed.makespan_s);
        let objective = match self {
            Objective::Edp => joules.ln() + makespan_s.ln(),
            Objective::Energy => joules.ln(),
            Objective::Ed2p => joules.ln() + 2.0 * makespan_s.ln(),
            Objective::Time => makespan_s.ln(),
            // The logarithm of nothing would be no number to compare by.
            Objective::Cost => timed.cost.max(f64::MIN_POSITIVE).ln(),
        };
        let (cost, migrated_bytes) = (timed.cost, timed.migrated_bytes);
        Score { objective, makespan_s, joules, cost, migrated_bytes }
    }
}

impl<'a> Tuner<'a> {
    /// Cuts the trace, and replays it with what every search has to beat. `progress` is called with
    /// the number of requests read or replayed since the call before.
    ///
    /// # Errors
    ///
    /// `NotFound` for a parameter that there is not, `Invalid` where there is nothing to search, or
    /// the trace is too short to cut; those of `make` and of [`Trace::read`].
    pub fn new(
        timed: &'a TimedOptions,
        mut options: TuneOptions,
        make: MakePolicy<'a>,
        open: OpenTrace<'a>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let tunables = search::tunables(&options, make, timed)?;
        let mut own = std::mem::take(&mut options.own);
        own.retain(|(name, _)| tunables.iter().all(|tunable| tunable.name != *name));
        options.fixed.extend(own);
        let ground = Ground::new(timed, &options, make, open, progress)?;
        let asked = [("defaults", Some(options.fixed.clone())), (PINNED, None)];
        let mut candidates = ground.candidates(&asked, progress)?.into_iter();
        let mut next = || candidates.next().expect("there are as many as were asked for");
        let (defaults, pinned) = (next(), next());
        Ok(Self { ground, options, tunables, defaults, pinned })
    }

    /// Replays that were carried out by now, in requests: to learn how long they take.
    pub fn prepared_requests(&self) -> u64 {
        2 * (self.ground.trained_requests() + self.ground.tested_requests())
    }

    /// Requests of the half on which is searched.
    pub fn trained_requests(&self) -> u64 {
        self.ground.trained_requests()
    }

    /// Searches with as many requests as so many replays of one half have, and tries as much by
    /// chance. The same options, trace and budget come to the same on any number of processors.
    ///
    /// # Errors
    ///
    /// Those of [`Trace::read`].
    pub fn search(self, budget: u32, progress: &mut dyn FnMut(u64)) -> Result<Tuned> {
        let Self { ground, options, tunables, defaults, pinned } = self;
        let mut search = Search::new(&ground, &options, &tunables, budget);
        let found = search.run(progress)?;
        let (by_chance, random_requests) = search.by_chance(progress)?;
        let searched_requests = search.searched_requests();
        let tried = search.into_tried();
        let asked = [("tuned", Some(found)), ("random", Some(by_chance))];
        let mut candidates = ground.candidates(&asked, progress)?;
        candidates.extend([defaults, pinned]);
        let able = [0, DEFAULTS, 3];
        let least = |of: fn(&Candidate) -> f64, able: &[usize]| {
            let order =
                |a: &&usize, b: &&usize| of(&candidates[**a]).total_cmp(&of(&candidates[**b]));
            *able.iter().min_by(order).expect("there are some")
        };
        let best = least(|one| one.trained.objective, &able);
        let gain = candidates[DEFAULTS].tested.objective - candidates[best].tested.objective;
        let is_better = gain > GAIN_MIN;
        let recommended = if is_better { best } else { DEFAULTS };
        Ok(Tuned {
            best,
            recommended,
            tried,
            tunables,
            trained_requests: ground.trained_requests(),
            tested_requests: ground.tested_requests(),
            budget,
            searched_requests,
            random_requests,
            candidates,
        })
    }
}
