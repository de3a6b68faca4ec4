// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace tune --live`: one window after the other of a store that runs.

mod record;
mod report;
mod running;

use std::time::{Duration, Instant};

use clap::Args;
use terrace_core::Error;
use terrace_core::units::parse_duration;
use terrace_replay::rails::{Caution, Decision, Rails, Window};
use terrace_replay::{Objective, Shadows};
use terrace_store::{OpenOptions, Store};

use self::record::{Recorded, Recorder};
use self::report::{Done, Report};
use self::running::Running;
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::modelled::{Manner, Modelled};

const OPERATION: &str = "tune the store";

/// The least that a window may last.
const WINDOW_MIN: Duration = Duration::from_secs(1);

/// The most that anything may last.
const DURATION_MAX: Duration = Duration::from_secs(365 * 86_400);

/// For how many times the dwelling a parameter is left alone that was taken back.
const AVOID_DWELLS: u32 = 6;

/// How a store that runs is tuned.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options with --live")]
pub(super) struct Live {
    /// Tune the store while it runs, step by step
    #[arg(long, conflicts_with_all = ["trace", "policy", "search", "budget", "seconds", "seed", "html",
          "present_on", "format", "columns"])]
    live: bool,
    /// How long a window is, at least 1s
    #[arg(long, value_name = "DURATION", requires = "live", default_value = "5min")]
    window: String,
    /// Nothing changes for so long after a change, which is then judged
    #[arg(long, value_name = "DURATION", requires = "live", default_value = "10min")]
    dwell: String,
    /// Stop after this time, for example 1h [default: when a signal comes]
    #[arg(long = "for", value_name = "DURATION", requires = "live")]
    time: Option<String>,
    /// Say what would be changed, and change nothing
    #[arg(long, requires = "live")]
    dry_run: bool,
}

impl Live {
    pub(super) fn run(
        &self,
        context: &Context,
        objective: Objective,
        manner: &Manner,
    ) -> Result<()> {
        let window = duration(&self.window)?;
        if window < WINDOW_MIN {
            let reason = "a window is to last 1s at least";
            return Err(Error::invalid(OPERATION, reason).with("window", &self.window).into());
        }
        let dwell = duration(&self.dwell)?;
        let time = self.time.as_deref().map(duration).transpose()?;
        let interrupt = Interrupt::watch()?;
        // Others can use the store meanwhile, also where this process is the one that owns it.
        context.with_options(OpenOptions::default(), |store| {
            let caution = Caution { dwell, avoid: AVOID_DWELLS * dwell, ..Caution::default() };
            let tuning = Tuning {
                context,
                store,
                objective,
                manner,
                is_dry_run: self.dry_run,
                recorder: Recorder::new(context, store, interrupt, time)?,
                rails: Rails::new(caution),
                began: Instant::now(),
                caution,
                window,
            };
            tuning.run()
        })
    }
}

fn duration(text: &str) -> Result<Duration> {
    let duration = parse_duration(text)?;
    match duration <= DURATION_MAX {
        true => Ok(duration),
        false => Err(Error::invalid(OPERATION, "nothing may last longer than 365d")
            .with("duration", text)
            .into()),
    }
}

/// A store while it is tuned.
struct Tuning<'a> {
    context: &'a Context,
    store: &'a Store,
    objective: Objective,
    manner: &'a Manner,
    is_dry_run: bool,
    recorder: Recorder<'a>,
    rails: Rails,
    caution: Caution,
    /// Where the time of the rails begins.
    began: Instant,
    window: Duration,
}

impl Tuning<'_> {
    fn run(mut self) -> Result<()> {
        let first = Running::look(self.store)?;
        if self.shadows(&first)?.tunable_count()? == 0 {
            let reason = "its policy has no parameters that could get another value";
            return Err(Error::invalid(OPERATION, reason).with("policy", &first.policy).into());
        }
        let mut report = Report::new(self.context, self.objective);
        report.begins(self.store, &first, self.window, &self.caution, self.is_dry_run)?;
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
            let recorded = self.recorder.window(self.window, &tiers.collect::<Vec<_>>())?;
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
        let measured = recorded.value(self.objective);
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
        Ok(Some(Done { measured, foreseen, ruling, is_dry_run: self.is_dry_run, refused }))
    }

    /// Does what was decided; why the store refused a change.
    fn carry_out(&mut self, decision: &Decision) -> Result<Option<String>> {
        match decision {
            Decision::Keep(_) | Decision::RecommendPinned => Ok(None),
            Decision::Change(_) if self.is_dry_run => {
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
        let modelled = Modelled::read(self.context)?;
        let mut timed = modelled.options(self.manner)?;
        (timed.after_events, timed.every) = (running.after_events, running.every);
        Ok(Shadows {
            timed,
            objective: self.objective,
            policy: running.policy.clone(),
            parameters: running.parameters.clone(),
        })
    }
}
