// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The search: points that cover the space evenly, of which the worse half leaves at each step, then
//! steps around the best.

use terrace_core::{Error, ErrorKind, Random, Result};
use terrace_policies::tunable::{Tunable, tunables as tunables_of};

use super::ground::{Ground, STRIDES, accept};
use super::{MakePolicy, Score, TuneOptions};
use crate::timed::TimedOptions;

/// The part of the budget for covering the space; the rest is for steps around the best.
const COVER_SHARE: f64 = 0.6;

/// Steps around the best that are tried at once: so many on any number of processors.
const STEPS: usize = 4;

/// How far steps go at first, of the whole range, and how far they are halved.
const STEP_FIRST: f64 = 0.2;
const STEP_LEAST: f64 = 0.01;

/// Points that contradict themselves, as one with `low` above `high`, before it is given up: each
/// may start a process.
const REFUSED_MAX: u32 = 1000;

/// The same where none was taken yet: most likely none will be.
const REFUSED_FIRST_MAX: u32 = 32;

/// A point: for each parameter a place from 0 to 1.
type Place = Vec<f64>;

pub(super) struct Search<'a> {
    ground: &'a Ground<'a>,
    options: &'a TuneOptions,
    tunables: &'a [Tunable],
    /// Requests that may be replayed, and that were.
    budget_requests: u64,
    spent_requests: u64,
    tried: Vec<(Vec<(String, String)>, Score)>,
}

/// The parameters of a policy that are searched.
pub(super) fn tunables(
    options: &TuneOptions,
    make: MakePolicy<'_>,
    timed: &TimedOptions,
) -> Result<Vec<Tunable>> {
    const OPERATION: &str = "tune a policy";
    let given: Vec<_> = options.fixed.iter().chain(&options.own).cloned().collect();
    let parameters = make(&timed.view(), &given)?.parameters();
    let is_fixed = |name: &str| options.fixed.iter().any(|(fixed, _)| fixed == name);
    let mut known = tunables_of(&parameters);
    known.retain(|tunable| !is_fixed(&tunable.name));
    let wrong = |kind, name: &str, reason: String| {
        let error = Error::new(kind, OPERATION).because(reason);
        Err(error.with("policy", &options.policy).with("parameter", name))
    };
    let mut tunables: Vec<Tunable> = Vec::new();
    for (name, values) in &options.searched {
        let Some(parameter) = parameters.iter().find(|one| one.name == *name) else {
            let names: Vec<_> = parameters.iter().map(|one| one.name.as_str()).collect();
            let reason = match names.is_empty() {
                true => "it has no parameters".into(),
                false => format!("there is no such parameter, only {}", names.join(", ")),
            };
            return wrong(ErrorKind::NotFound, name, reason);
        };
        if is_fixed(name) || tunables.iter().any(|other| other.name == *name) {
            let reason = "it is given twice".into();
            return wrong(ErrorKind::Invalid, name, reason);
        }
        let tunable = match values {
            Some(values) => Tunable::between(parameter, values)?,
            None => match known.iter().find(|tunable| tunable.name == *name) {
                Some(tunable) => tunable.clone(),
                None => {
                    let reason = format!("its values are not known: give {name}=LEAST..MOST");
                    return wrong(ErrorKind::Invalid, name, reason);
                }
            },
        };
        tunables.push(tunable);
    }
    if options.searched.is_empty() {
        tunables = known;
    }
    if tunables.is_empty() {
        return Err(Error::invalid(OPERATION, "it has no parameters that can be searched")
            .with("policy", &options.policy));
    }
    let bounds = Bounds { options, make, timed, tunables: &tunables };
    for (index, (_, values)) in options.searched.iter().enumerate() {
        if values.is_some() {
            bounds.check(index)?;
        }
    }
    Ok(tunables)
}

/// What is asked of the policy before anything is replayed.
struct Bounds<'a> {
    options: &'a TuneOptions,
    make: MakePolicy<'a>,
    timed: &'a TimedOptions,
    tunables: &'a [Tunable],
}

impl Bounds<'_> {
    /// Refuses a parameter of which the policy does not take the least or the most value: neither
    /// beside the values that it has otherwise, nor beside others that are searched, as `low` that is
    /// above `high`.
    fn check(&self, index: usize) -> Result<()> {
        let tunable = &self.tunables[index];
        for end in [0.0, 1.0] {
            let value = tunable.at(end);
            let mut parameters = self.given();
            parameters.push((tunable.name.to_string(), value.clone()));
            let Err(refusal) = self.accept(&parameters) else { continue };
            let takes = |point: u32| {
                let mut place = cover(self.tunables.len(), point, 0);
                place[index] = end;
                let mut parameters = self.given();
                parameters.extend(values(self.tunables, &place));
                self.accept(&parameters).is_ok()
            };
            if self.tunables.len() == 1 || !(0..REFUSED_FIRST_MAX).any(takes) {
                return Err(Error::invalid("search a parameter", "the policy refuses this value")
                    .with("policy", &self.options.policy)
                    .with("parameter", &tunable.name)
                    .with("value", value)
                    .caused_by(refusal));
            }
        }
        Ok(())
    }

    /// What it has in all replays.
    fn given(&self) -> Vec<(String, String)> {
        let is_searched = |name: &str| self.tunables.iter().any(|tunable| tunable.name == name);
        let own = self.options.own.iter().filter(|(name, _)| !is_searched(name));
        self.options.fixed.iter().chain(own).cloned().collect()
    }

    fn accept(&self, parameters: &[(String, String)]) -> Result<()> {
        accept(&self.options.policy, self.make, self.timed, parameters)
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(
        ground: &'a Ground<'a>,
        options: &'a TuneOptions,
        tunables: &'a [Tunable],
        budget: u32,
    ) -> Self {
        let budget_requests = u64::from(budget) * ground.trained_requests();
        let (spent_requests, tried) = (0, Vec::new());
        Self { ground, options, tunables, budget_requests, spent_requests, tried }
    }

    /// The best parameters that were found.
    pub(super) fn run(&mut self, progress: &mut dyn FnMut(u64)) -> Result<Vec<(String, String)>> {
        let (place, score) = self.cover(progress)?;
        let place = self.step_around(place, score, progress)?;
        Ok(self.parameters(&place))
    }

    /// The best of as many requests' worth of points by chance, and how many requests these were.
    pub(super) fn by_chance(
        &self,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(Vec<(String, String)>, u64)> {
        let mut random = Random::new(self.options.seed ^ 0x7261_6e64);
        let whole = STRIDES.len() - 1;
        let requests = self.ground.part(whole).requests();
        let count = (self.budget_requests / requests.max(1)).max(1) as usize;
        let places = self.able(count, |_| self.tunables.iter().map(|_| random.unit()).collect())?;
        let scores = self.scores(&places, whole, progress)?;
        let best = best(&scores);
        Ok((self.parameters(&places[best]), requests * places.len() as u64))
    }

    pub(super) fn searched_requests(&self) -> u64 {
        self.spent_requests
    }

    pub(super) fn into_tried(self) -> Vec<(Vec<(String, String)>, Score)> {
        self.tried
    }

    /// Sobol points on ever more windows, of which the better half goes on each time.
    fn cover(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(Place, Score)> {
        let share = COVER_SHARE * self.budget_requests as f64;
        // What one point costs that stays for all steps, halved at each.
        let cost: f64 = (0..STRIDES.len())
            .map(|step| self.ground.part(step).requests() as f64 / (1 << step) as f64)
            .sum();
        let count = ((share / cost) as usize).max(2);
        let seed = self.options.seed as u32 ^ (self.options.seed >> 32) as u32;
        let mut places = self.able(count, |index| cover(self.tunables.len(), index, seed))?;
        for step in 0..STRIDES.len() {
            let scores = self.replay(&places, step, progress)?;
            let mut order: Vec<usize> = (0..places.len()).collect();
            order.sort_by(|a, b| scores[*a].objective.total_cmp(&scores[*b].objective));
            if step == STRIDES.len() - 1 {
                return Ok((places[order[0]].clone(), scores[order[0]]));
            }
            order.truncate(places.len().div_ceil(2));
            places = order.into_iter().map(|index| places[index].clone()).collect();
        }
        unreachable!("the last step returns")
    }

    /// Steps around a point on all windows, shorter ones where none is better.
    fn step_around(
        &mut self,
        mut best_place: Place,
        mut best_score: Score,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Place> {
        let mut random = Random::new(self.options.seed);
        let whole = STRIDES.len() - 1;
        let one = self.ground.part(whole).requests().max(1);
        let mut length = STEP_FIRST;
        while length >= STEP_LEAST {
            let left = self.budget_requests.saturating_sub(self.spent_requests) / one;
            let count = STEPS.min(left as usize);
            if count == 0 {
                break;
            }
            let places = self.able(count, |_| step(&best_place, length, &mut random))?;
            let scores = self.replay(&places, whole, progress)?;
            let index = best(&scores);
            if scores[index].objective < best_score.objective {
                (best_place, best_score) = (places[index].clone(), scores[index]);
            } else {
                length /= 2.0;
            }
        }
        Ok(best_place)
    }

    /// Replays the windows of a step with each, on the account of the search.
    fn replay(
        &mut self,
        places: &[Place],
        step: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Score>> {
        let scores = self.scores(places, step, progress)?;
        self.spent_requests += self.ground.part(step).requests() * places.len() as u64;
        if step == STRIDES.len() - 1 {
            let parameters = places.iter().map(|place| self.parameters(place));
            let tried: Vec<_> = parameters.zip(scores.iter().copied()).collect();
            self.tried.extend(tried);
        }
        Ok(scores)
    }

    fn scores(
        &self,
        places: &[Place],
        step: usize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Score>> {
        let tried: Vec<_> = places.iter().map(|place| Some(self.parameters(place))).collect();
        self.ground.scores(&tried, self.ground.part(step), progress)
    }

    /// Points that the policy takes: others contradict themselves.
    fn able(&self, count: usize, mut place: impl FnMut(u32) -> Place) -> Result<Vec<Place>> {
        let mut places = Vec::with_capacity(count);
        for index in 0..count as u32 + REFUSED_MAX {
            let place = place(index);
            match self.ground.accept(&self.parameters(&place)) {
                Ok(()) => places.push(place),
                Err(refusal) if places.is_empty() && index >= REFUSED_FIRST_MAX => {
                    let reason = "it takes none of the values that were tried";
                    return Err(Error::invalid("tune a policy", reason)
                        .with("policy", &self.options.policy)
                        .caused_by(refusal));
                }
                Err(_) => {}
            }
            if places.len() == count {
                break;
            }
        }
        Ok(places)
    }

    fn parameters(&self, place: &Place) -> Vec<(String, String)> {
        self.options.fixed.iter().cloned().chain(values(self.tunables, place)).collect()
    }
}

/// The parameters of a point.
fn values(tunables: &[Tunable], place: &Place) -> impl Iterator<Item = (String, String)> {
    let value = |(tunable, place): (&Tunable, &f64)| (tunable.name.to_string(), tunable.at(*place));
    tunables.iter().zip(place).map(value)
}

/// One of the points that cover the space evenly.
fn cover(dimensions: usize, index: u32, seed: u32) -> Place {
    let one = |dimension| f64::from(sobol_burley::sample(index, dimension, seed));
    (0..dimensions as u32).map(one).collect()
}

/// A point near another one: each place is moved by chance in about half of all cases.
fn step(from: &Place, length: f64, random: &mut Random) -> Place {
    let moved = |place: &f64| match random.chance(0.5) {
        // The sum of two even ones is more often small than large.
        true => (place + length * (random.unit() + random.unit() - 1.0) * 2.0).clamp(0.0, 1.0),
        false => *place,
    };
    from.iter().map(moved).collect()
}

/// The first of the best.
fn best(scores: &[Score]) -> usize {
    let order = |a: &usize, b: &usize| scores[*a].objective.total_cmp(&scores[*b].objective);
    (0..scores.len()).min_by(order).expect("something was replayed")
}
