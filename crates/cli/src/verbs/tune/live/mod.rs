// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace tune --live`: one window after the other of a store that runs.

mod report;

use std::time::Duration;

use clap::Args;
use terrace_core::Error;
use terrace_core::units::parse_duration;
use terrace_replay::Objective;
use terrace_settings::Directory;
use terrace_store::OpenOptions;
use terrace_tuning::live::{OPERATION, Wanted, tune};

use self::report::Report;
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::modelled::Manner;

/// The least that a window may last.
const WINDOW_MIN: Duration = Duration::from_secs(1);

/// The most that anything may last.
const DURATION_MAX: Duration = Duration::from_secs(365 * 86_400);

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
        let home = Directory::at(context.store()?)?;
        // Others can use the store meanwhile, also where this process is the one that owns it.
        context.with_options(OpenOptions::default(), |store| {
            let wanted = Wanted {
                objective,
                manner: manner.model()?,
                is_dry_run: self.dry_run,
                window,
                dwell,
                time,
            };
            let mut report = Report::new(context, objective);
            tune(store, home.path(), &wanted, interrupt, &mut report)
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
