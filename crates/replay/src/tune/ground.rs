// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace in windows, of which every second one is for the search and the others for judging it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use terrace_core::{Error, ErrorKind, Result, panic_text};

use super::{Candidate, MakePolicy, Objective, OpenTrace, PINNED, Score, TuneOptions, parallel};
use crate::timed::{Population, TimedOptions, TimedReplay};

/// Windows of a trace, as many for each half. Halves so have the same hours and phases; a beginning
/// alone would not.
const WINDOWS: u64 = 16;

/// The least of a window: with fewer requests chance would decide.
const WINDOW_REQUESTS_MIN: u64 = 20;

/// Steps of the search by how many of the windows for it they see, evenly spread: every fourth,
/// every second, all.
pub(super) const STRIDES: [usize; 3] = [4, 2, 1];

/// What is tried: the policy with all its parameters, or [`PINNED`].
pub(super) type Tried = Option<Vec<(String, String)>>;

/// What policies are tried on.
pub(super) struct Ground<'a> {
    timed: &'a TimedOptions,
    objective: Objective,
    policy: String,
    make: MakePolicy<'a>,
    open: OpenTrace<'a>,
    /// For each of [`STRIDES`].
    trained: Vec<Part>,
    tested: Part,
}

/// Some windows of the trace, and what is there before them.
pub(super) struct Part {
    ranges: Vec<Range<u64>>,
    population: Arc<Population>,
}

impl Part {
    pub(super) fn requests(&self) -> u64 {
        self.population.requests()
    }
}

impl<'a> Ground<'a> {
    pub(super) fn new(
        timed: &'a TimedOptions,
        options: &TuneOptions,
        make: MakePolicy<'a>,
        open: OpenTrace<'a>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let (mut count, mut batch, mut trace) = (0, Vec::new(), open()?);
        loop {
            trace.read(&mut batch)?;
            if batch.is_empty() {
                break;
            }
            count += batch.len() as u64;
            progress(batch.len() as u64);
        }
        if count < WINDOWS * WINDOW_REQUESTS_MIN {
            let least = WINDOWS * WINDOW_REQUESTS_MIN;
            let reason = format!("it is cut into {WINDOWS} windows, and needs {least} requests");
            return Err(Error::invalid("tune a policy", reason).with("requests", count));
        }
        let window = |number: u64| count * number / WINDOWS..count * (number + 1) / WINDOWS;
        let every = |start: u64, stride: usize| (start..WINDOWS).step_by(stride).map(window);
        let mut part = |ranges: Vec<Range<u64>>| -> Result<Part> {
            let mut trace = open()?.windows(ranges.clone());
            let population = Arc::new(Population::read(&mut trace, progress)?);
            Ok(Part { ranges, population })
        };
        // The first of a stride lies in the middle of what it stands for.
        let first = |stride: usize| 2 * (stride as u64 / 2);
        let trained = STRIDES
            .iter()
            .map(|stride| part(every(first(*stride), 2 * stride).collect()))
            .collect::<Result<_>>()?;
        let tested = part(every(1, 2).collect())?;
        let (policy, objective) = (options.policy.clone(), options.objective);
        Ok(Self { timed, objective, policy, make, open, trained, tested })
    }

    /// Whether the policy takes these parameters.
    pub(super) fn accept(&self, parameters: &[(String, String)]) -> Result<()> {
        accept(&self.policy, self.make, self.timed, parameters)
    }

    /// The windows of a step of the search.
    pub(super) fn part(&self, step: usize) -> &Part {
        &self.trained[step]
    }

    pub(super) fn trained_requests(&self) -> u64 {
        self.trained[STRIDES.len() - 1].requests()
    }

    pub(super) fn tested_requests(&self) -> u64 {
        self.tested.requests()
    }

    /// Replays both halves with each.
    pub(super) fn candidates(
        &self,
        asked: &[(&'static str, Tried)],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Candidate>> {
        let tried: Vec<_> = asked.iter().map(|(_, tried)| tried.clone()).collect();
        let trained = self.scores(&tried, self.part(STRIDES.len() - 1), progress)?;
        let tested = self.scores(&tried, &self.tested, progress)?;
        let mut candidates = Vec::with_capacity(asked.len());
        for (index, (name, parameters)) in asked.iter().enumerate() {
            let policy = if parameters.is_some() { &self.policy } else { PINNED };
            candidates.push(Candidate {
                name,
                policy: policy.into(),
                parameters: parameters.clone().unwrap_or_default(),
                trained: trained[index],
                tested: tested[index],
            });
        }
        Ok(candidates)
    }

    /// What comes of each of these, in their order, on as many processors as there are.
    pub(super) fn scores(
        &self,
        tried: &[Tried],
        part: &Part,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Score>> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        // Behind one that fails most likely each would, and one that hangs takes its time for it.
        parallel::each_unless_failed(tried.len(), threads, progress, |index, progress| {
            self.score(&tried[index], part, progress)
        })
    }

    fn score(&self, tried: &Tried, part: &Part, progress: &mut dyn FnMut(u64)) -> Result<Score> {
        let view = self.timed.view();
        let parameters = tried.as_deref().unwrap_or_default();
        let timed = guard(&self.policy, parameters, || {
            let policy = match tried {
                Some(parameters) => (self.make)(&view, parameters)?,
                None => terrace_policies::create(PINNED, &view, &[])?,
            };
            let trace = (self.open)()?.windows(part.ranges.clone());
            let replay = TimedReplay::new(self.timed.clone());
            replay
                .run(Arc::clone(&part.population), trace, policy, progress)
                .map_err(|error| with_policy(error, &self.policy, parameters))
        })?;
        Ok(self.objective.score(&timed))
    }
}

/// Whether a policy takes these parameters.
pub(super) fn accept(
    policy: &str,
    make: MakePolicy<'_>,
    timed: &TimedOptions,
    parameters: &[(String, String)],
) -> Result<()> {
    guard(policy, parameters, || make(&timed.view(), parameters).map(drop))
}

/// Turns a panic of the policy into an error that says with which parameters.
fn guard<T>(
    policy: &str,
    parameters: &[(String, String)],
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let reason = format!("it failed with this policy: {}", panic_text(&*panic));
        let error = Error::new(ErrorKind::Io, "replay the trace").because(reason);
        Err(with_policy(error, policy, parameters))
    })
}

fn with_policy(error: Error, policy: &str, parameters: &[(String, String)]) -> Error {
    let given: Vec<_> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    error.with("policy", policy).with("parameters", given.join(":"))
}
