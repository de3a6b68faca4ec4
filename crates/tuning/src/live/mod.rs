// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tuning of a store that runs, one window after the other.

mod record;
mod running;

use std::path::Path;
use std::time::{Duration, Instant};

use terrace_console::failure::Result;
use terrace_console::interrupt::Interrupt;
use terrace_core::Error;
use terrace_replay::rails::{Caution, Decision, Rails, Ruling, Step, Window};
use terrace_replay::{Objective, Shadows, Value};
use terrace_store::Store;

use self::record::Recorder;
use crate::{Manner, Modelled};

pub use self::record::Recorded;
pub use self::running::Running;

/// What errors call it.
pub const OPERATION: &str = "tune the store";

/// For how many times the dwelling a parameter is left alone that was taken back.
const AVOID_DWELLS: u32 = 6;

/// How a store is tuned.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What is to be small.
    pub objective: Objective,
    /// How requests come, for the replays of each window.
    pub manner: Manner,
    /// Only says what would be changed.
    pub is_dry_run: bool,
    /// How long a window is.
    pub window: Duration,
    /// Nothing changes for so long after a change.
    pub dwell: Duration,
    /// Ends after this time; without one when a signal comes.
    pub time: Option<Duration>,
}

/// A window of which it is known what came of it.
pub struct Done {
    /// What was measured.
    pub measured: Value,
    /// What the model has for what ran; `None` where it was not asked.
    pub foreseen: Option<Value>,
    /// What was decided, and why.
    pub ruling: Ruling,
    /// Nothing is changed in this tuning.
    pub is_dry_run: bool,
    /// Why the store did not do it.
    pub refused: Option<String>,
}

/// Where the tuning is reported, as it goes. A failure ends it.
pub trait Report {
    /// It begins.
    fn begins(
        &mut self,
        store: &Store,
        running: &Running,
        window: Duration,
        caution: &Caution,
        is_dry_run: bool,
    ) -> Result<()>;

    /// The policy was changed from elsewhere.
    fn begins_anew(&mut self, running: &Running) -> Result<()>;

    /// A window is over.
    fn window(&mut self, recorded: &Recorded, done: &Done) -> Result<()>;

    /// It ends: what runs now, what ran first, and the change that was not judged.
    fn ends(&mut self, first: &Running, last: &Running, unjudged: Option<&Step>) -> Result<()>;
}

/// Tunes a store until a signal comes, or for a time. `home` is its directory.
///
/// # Errors
///
/// `Busy` where another command tunes it, `Unsupported` for a policy whose parameters are not known or cannot be
/// measured, and everything that the store and the report fail with.
pub fn tune(
    store: &Store,
    home: &Path,
    wanted: &Wanted,
    interrupt: Interrupt,
    report: &mut dyn Report,
) -> Result<()> {
    let dwell = wanted.dwell;
    let caution = Caution { dwell, avoid: AVOID_DWELLS * dwell, ..Caution::default() };
    let tuning = Tuning {
        store,
        home,
        wanted,
        recorder: Recorder::new(home, store, interrupt, wanted.time)?,
        rails: Rails::new(caution),
        began: Instant::now(),
        caution,
    };
    tuning.run(report)
}

/// A store while it is tuned.
struct Tuning<'a> {
    store: &'a Store,
    home: &'a Path,
    wanted: &'a Wanted,
    recorder: Recorder<'a>,
    rails: Rails,
    caution: Caution,
    /// Where the time of the rails begins.
    began: Instant,
}

impl Tuning<'_> {
    fn run(mut self, report: &mut dyn Report) -> Result<()> {
        let first = Running::look(self.store)?;
        if self.shadows(&first)?.tunable_count()? == 0 {
            let reason = "its policy has no parameters that could get another value";
            return Err(Error::invalid(OPERATION, reason).with("policy", &first.policy).into());
        }
        let &Wanted { window, is_dry_run, .. } = self.wanted;
        report.begins(self.store, &first, window, &self.caution, is_dry_run)?;
        let mut running = first.clone();
        loop {
            let now = Running::look(self.store)?;
            if now != running {
                self.rails.begin_anew();
                report.begins_anew(&now)?;
                running = now;
            }
            let shadows = self.shadows(&running)?;
            let tiers = shadows.timed.tiers.iter().map(|tier| tier.view.name.clone());
            let began = self.began.elapsed();
            let recorded = self.recorder.window(window, &tiers.collect::<Vec<_>>())?;
            let Some(recorded) = recorded else { break };
            let ended = self.began.elapsed();
            if Running::look(self.store)? != running {
                // A window with two policies measures neither; the change is reported above.
                continue;
            }
            let Some(done) = self.decide(&recorded, &shadows, (began, ended))? else { break };
            report.window(&recorded, &done)?;
            running = Running::look(self.store)?;
        }
        report.ends(&first, &running, self.rails.unjudged())
    }

    /// What the window came to, and what is done about it; `None` if a signal came meanwhile.
    fn decide(
        &mut self,
        recorded: &Recorded,
        shadows: &Shadows,
        (began, ended): (Duration, Duration),
    ) -> Result<Option<Done>> {
        let measured = recorded.value(self.wanted.objective);
        // A trace that does not tell all is as good as none.
        let accesses = if recorded.is_whole() { recorded.lived.accesses } else { 0 };
        let (mut foreseen, mut trials) = (None, Vec::new());
        if accesses >= self.caution.accesses_min {
            let stop = self.recorder.stop();
            let Some(found) = shadows.foresee(&recorded.lived, &recorded.fill, &stop)? else {
                return Ok(None);
            };
            foreseen = Some(found.running);
            trials = found.trials.into_iter().map(|(one, value)| (one, value.objective)).collect();
        }
        let predicted = foreseen.map_or(f64::NAN, |value| value.objective);
        let measured_now = measured.objective;
        let window = Window { began, ended, accesses, measured: measured_now, predicted, trials };
        let ruling = self.rails.rule(&window);
        let refused = self.carry_out(&ruling.decision)?;
        Ok(Some(Done { measured, foreseen, ruling, is_dry_run: self.wanted.is_dry_run, refused }))
    }

    /// Does what was decided; why the store refused a change.
    fn carry_out(&mut self, decision: &Decision) -> Result<Option<String>> {
        match decision {
            Decision::Keep(_) | Decision::RecommendPinned => Ok(None),
            Decision::Change(_) if self.wanted.is_dry_run => {
                self.rails.was_not_done();
                Ok(None)
            }
            Decision::Change(step) => {
                let refused = self.store.admin().set_parameter(&step.name, &step.to).err();
                if refused.is_some() {
                    self.rails.was_refused(step, self.began.elapsed());
                }
                Ok(refused.map(|error| error.chain()))
            }
            // What made it worse must not stay unnoticed.
            Decision::RollBack(step) => {
                let back = self.store.admin().set_parameter(&step.name, &step.to);
                Ok(back.map(|()| None).map_err(|error| error.with("back_to", &step.to))?)
            }
        }
    }

    fn shadows(&self, running: &Running) -> Result<Shadows> {
        // Tiers may come and go.
        let modelled = Modelled::read(self.home)?;
        let mut timed = modelled.options(&self.wanted.manner)?;
        (timed.after_events, timed.every) = (running.after_events, running.every);
        Ok(Shadows {
            timed,
            objective: self.wanted.objective,
            policy: running.policy.clone(),
            parameters: running.parameters.clone(),
        })
    }
}
