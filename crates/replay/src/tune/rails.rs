// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a store that runs may be changed: guard rails between what a model says and what is done.
//!
//! One window after the other comes in, with what was measured and what the model makes of it; out
//! comes what to do. Nothing here knows a store, a clock or a model.

use std::time::Duration;

use terrace_policies::tunable::tunable;

/// Another value of one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The parameter.
    pub name: String,
    /// What it has, as the policy says it: a number, or a word that stands for one.
    pub from: String,
    /// The same as a number, where `from` is a word.
    pub worth: String,
    /// What it would get.
    pub to: String,
}

/// What was tried beside what runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The same policy with one other value.
    Step(Step),
    /// The policy that moves nothing.
    Pinned,
}

/// What a window came to. Values are of what is to be small, for each access.
#[derive(Clone, Debug)]
pub struct Window {
    /// When it began and ended, since any beginning.
    pub began: Duration,
    /// See [`Window::began`].
    pub ended: Duration,
    /// Reads and writes in it.
    pub accesses: u64,
    /// The value as it was measured.
    pub measured: f64,
    /// The value that the model has for what runs.
    pub predicted: f64,
    /// The values that it has for what could run.
    pub trials: Vec<(Trial, f64)>,
}

/// How careful the rails are.
#[derive(Clone, Copy, Debug)]
pub struct Caution {
    /// The least gain, as a share.
    pub gain_min: f64,
    /// And how many times the error of the model it must be.
    pub error_factor: f64,
    /// Nothing changes for so long after a change.
    pub dwell: Duration,
    /// By which share it may become worse before a change is taken back.
    pub worse_max: f64,
    /// For how long a parameter that was taken back is left alone.
    pub avoid: Duration,
    /// Accesses below which a window says nothing.
    pub accesses_min: u64,
}

/// What to do after a window.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing.
    Keep(Why),
    /// Take this step.
    Change(Step),
    /// Tell a person that the policy that moves nothing would be better: to exchange the policy is
    /// more than one step.
    RecommendPinned,
    /// Take the last step back.
    RollBack(Step),
}

/// Why nothing is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// There were too few accesses.
    Few,
    /// The model is so far off that no gain could be large enough.
    Useless,
    /// The last change is too recent; so long is left.
    Dwelling(Duration),
    /// Nothing gains enough.
    NoGain,
    /// The best gains enough, but not yet in two windows.
    Once,
}

/// What the rails make of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruling {
    /// By which share the model is off, for what runs.
    pub error: f64,
    /// The share that has to be gained.
    pub needed: f64,
    /// What gains most of what is allowed, and its share.
    pub best: Option<(Trial, f64)>,
    /// How the last step was judged in this window: measured now, as a share of before.
    pub judged: Option<f64>,
    /// What to do.
    pub decision: Decision,
}

/// The guard rails.
#[derive(Clone, Debug)]
pub struct Rails {
    caution: Caution,
    /// What gained enough in the window before, and what was measured there.
    before: Option<(Vec<(Trial, f64)>, f64)>,
    /// The end of the window after which something changed last.
    changed: Option<Duration>,
    /// The step that is still to be judged, with what was measured before it.
    unjudged: Option<(Step, f64)>,
    /// Parameters that are left alone, until when.
    avoided: Vec<(String, Duration)>,
}

impl Default for Caution {
    /// As the project holds it right; see `docs/how-to/tune.md`.
    fn default() -> Self {
        let dwell = Duration::from_secs(600);
        Self {
            gain_min: 0.05,
            error_factor: 2.0,
            dwell,
            worse_max: 0.10,
            avoid: 6 * dwell,
            // With fewer chance would decide: the windows of a search have as many at least.
            accesses_min: 20,
        }
    }
}

impl Step {
    /// The way back.
    pub fn back(&self) -> Self {
        let (from, to) = (self.to.clone(), self.from.clone());
        Self { name: self.name.clone(), worth: from.clone(), from, to }
    }

    /// Whether it is one that may be taken at all: of a parameter that may be searched, which is
    /// none that says what survives, and not further than one step.
    fn is_allowed(&self) -> bool {
        tunable(&self.name).is_some_and(|tunable| tunable.is_near(&self.worth, &self.to))
    }
}

impl Rails {
    /// Rails for a store of which nothing is known yet.
    pub fn new(caution: Caution) -> Self {
        Self { caution, before: None, changed: None, unjudged: None, avoided: Vec::new() }
    }

    /// The step that was taken and not judged yet.
    pub fn unjudged(&self) -> Option<&Step> {
        self.unjudged.as_ref().map(|(step, _)| step)
    }

    /// Says what to do after a window. A change is taken to be made, unless [`Rails::was_not_done`]
    /// says otherwise.
    pub fn rule(&mut self, window: &Window) -> Ruling {
        self.avoided.retain(|(_, until)| *until > window.ended);
        let error = (window.predicted / window.measured - 1.0).abs();
        let needed = self.caution.gain_min.max(self.caution.error_factor * error);
        let has_enough = window.accesses >= self.caution.accesses_min && window.measured > 0.0;
        let is_useless = !(window.predicted > 0.0 && needed < 1.0);
        let mut gains = if has_enough { self.gains(window) } else { Vec::new() };
        let best = gains.first().cloned();
        gains.retain(|(_, gain)| *gain > needed);
        let before = self.before.take();
        let mut judged = None;
        let decision = if !has_enough {
            Decision::Keep(Why::Few)
        } else if let Some(left) = self.dwelling(window) {
            self.before = Some((gains, window.measured));
            Decision::Keep(Why::Dwelling(left))
        } else if let Some(worse) = self.judge(window, &mut judged) {
            self.changed = Some(window.ended);
            self.avoided.push((worse.name.clone(), window.ended + self.caution.avoid));
            Decision::RollBack(worse.back())
        } else if is_useless {
            Decision::Keep(Why::Useless)
        } else {
            self.choose(window, gains, before)
        };
        Ruling { error, needed, best, judged, decision }
    }

    /// The change that was asked for last was not made: there is nothing to wait for or to judge.
    pub fn was_not_done(&mut self) {
        (self.changed, self.unjudged) = (None, None);
    }

    /// The store refused a change: its parameter is left alone for a while.
    pub fn was_refused(&mut self, step: &Step, now: Duration) {
        self.was_not_done();
        self.avoided.push((step.name.clone(), now + self.caution.avoid));
    }

    /// The configuration changed from outside: what was seen before is about another store, and
    /// nothing is left to be judged.
    pub fn begin_anew(&mut self) {
        (self.before, self.unjudged) = (None, None);
    }

    /// What is allowed, and what it gains: the most first.
    fn gains(&self, window: &Window) -> Vec<(Trial, f64)> {
        let is_allowed = |trial: &Trial| match trial {
            Trial::Pinned => true,
            Trial::Step(step) => {
                step.is_allowed() && !self.avoided.iter().any(|(name, _)| *name == step.name)
            }
        };
        let gain = |(trial, value): &(Trial, f64)| (trial.clone(), 1.0 - value / window.predicted);
        let allowed = window.trials.iter().filter(|(trial, _)| is_allowed(trial));
        let mut gains: Vec<_> = allowed.map(gain).filter(|(_, gain)| gain.is_finite()).collect();
        gains.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        gains
    }

    /// How long nothing may change yet; a window that began before the change says nothing of it.
    fn dwelling(&self, window: &Window) -> Option<Duration> {
        let changed = self.changed?;
        let until = changed + self.caution.dwell;
        let left = until.saturating_sub(window.ended);
        (!left.is_zero() || window.began < changed).then_some(left)
    }

    /// The last step, if it made things worse; `judged` gets the result.
    fn judge(&mut self, window: &Window, judged: &mut Option<f64>) -> Option<Step> {
        let (step, before) = self.unjudged.take()?;
        let share = window.measured / before;
        *judged = Some(share);
        (share > 1.0 + self.caution.worse_max).then_some(step)
    }

    /// The best of what gained enough in this window and in the one before.
    fn choose(
        &mut self,
        window: &Window,
        gains: Vec<(Trial, f64)>,
        before: Option<(Vec<(Trial, f64)>, f64)>,
    ) -> Decision {
        let why = if gains.is_empty() { Why::NoGain } else { Why::Once };
        let (gained, measured) = before.unwrap_or_default();
        let twice = gains.iter().filter_map(|(trial, gain)| {
            let (_, first) = gained.iter().find(|(other, _)| other == trial)?;
            Some((trial, gain.min(*first)))
        });
        let best = twice.max_by(|(_, one), (_, other)| one.total_cmp(other));
        let decision = match best {
            None => Decision::Keep(why),
            Some((Trial::Pinned, _)) => Decision::RecommendPinned,
            Some((Trial::Step(step), _)) => {
                self.changed = Some(window.ended);
                self.unjudged = Some((step.clone(), (measured + window.measured) / 2.0));
                return Decision::Change(step.clone());
            }
        };
        self.before = Some((gains, window.measured));
        decision
    }
}

#[cfg(test)]
mod tests;
