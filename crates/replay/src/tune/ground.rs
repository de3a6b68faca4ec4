// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace in windows, of which every second one is for the search and the others for judging it.

use std::ops::Range;
use std::thread;

use terrace_core::{Error, Result};

use super::{Candidate, Objective, OpenTrace, Score, parallel};
use crate::timed::{Population, TimedOptions, TimedReplay};

/// Windows of a trace, as many for each half. Halves so have the same hours and phases; a beginning
/// alone would not.
const WINDOWS: u64 = 16;

/// The least of a window: with fewer requests chance would decide.
const WINDOW_REQUESTS_MIN: u64 = 20;

/// Steps of the search by how many of the windows for it they see, evenly spread: every fourth,
/// every second, all.
pub(super) const STRIDES: [usize; 3] = [4, 2, 1];

/// What a policy is made from: its name and its parameters.
pub(super) type Made<'m> = (&'m str, Vec<(String, String)>);

/// What policies are tried on.
pub(super) struct Ground<'a> {
    timed: &'a TimedOptions,
    objective: Objective,
    open: OpenTrace<'a>,
    /// For each of [`STRIDES`].
    trained: Vec<Part>,
    tested: Part,
}

/// Some windows of the trace, and what is there before them.
pub(super) struct Part {
    ranges: Vec<Range<u64>>,
    population: Population,
}

impl Part {
    pub(super) fn requests(&self) -> u64 {
        self.population.requests()
    }
}

impl<'a> Ground<'a> {
    pub(super) fn new(
        timed: &'a TimedOptions,
        objective: Objective,
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
            let population = Population::read(&mut trace, progress)?;
            Ok(Part { ranges, population })
        };
        // The first of a stride lies in the middle of what it stands for.
        let first = |stride: usize| 2 * (stride as u64 / 2);
        let trained = STRIDES
            .iter()
            .map(|stride| part(every(first(*stride), 2 * stride).collect()))
            .collect::<Result<_>>()?;
        let tested = part(every(1, 2).collect())?;
        Ok(Self { timed, objective, open, trained, tested })
    }

    pub(super) fn timed(&self) -> &TimedOptions {
        self.timed
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
        asked: &[(&'static str, Made<'_>)],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Candidate>> {
        let made: Vec<_> = asked.iter().map(|(_, made)| made.clone()).collect();
        let trained = self.scores(&made, self.part(STRIDES.len() - 1), progress)?;
        let tested = self.scores(&made, &self.tested, progress)?;
        let mut candidates = Vec::with_capacity(asked.len());
        for (index, (name, (policy, parameters))) in asked.iter().enumerate() {
            candidates.push(Candidate {
                name,
                policy: (*policy).into(),
                parameters: parameters.clone(),
                trained: trained[index],
                tested: tested[index],
            });
        }
        Ok(candidates)
    }

    /// What comes of each of these policies, in their order, on as many processors as there are.
    pub(super) fn scores(
        &self,
        made: &[Made<'_>],
        part: &Part,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Score>> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let score =
            |index: usize, progress: &mut dyn FnMut(u64)| self.score(&made[index], part, progress);
        parallel::each(made.len(), threads, progress, score).into_iter().collect()
    }

    fn score(
        &self,
        (policy, parameters): &Made<'_>,
        part: &Part,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Score> {
        let policy = terrace_policies::create(policy, &self.timed.view(), parameters)?;
        let mut trace = (self.open)()?.windows(part.ranges.clone());
        let replay = TimedReplay::new(self.timed.clone());
        let timed = replay.run(&part.population, &mut trace, policy, progress)?;
        Ok(self.objective.score(&timed))
    }
}
