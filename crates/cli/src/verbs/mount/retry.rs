// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mount whose server is not up yet, as at boot: the options `bg`, `fg` and `retry=` as of mount.nfs.

use std::cell::Cell;
use std::fs::File;
use std::time::Duration;

use serde_json::json;
use terrace_core::units::parse_duration;
use terrace_core::{Clock, Error, ErrorKind, SystemClock};

use super::background::WAITING;
use super::{Plan, background};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;

/// How long a mount in the background is tried unless `retry=` says otherwise: a week, as with mount.nfs.
const BACKGROUND_TIME_DEFAULT: Duration = Duration::from_secs(10_000 * 60);

/// Pause behind the first attempt; each later one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Between two looks for a signal.
const STEP: Duration = Duration::from_millis(100);

/// What is done where no server answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Retry {
    /// Whether to return after the first attempt and go on in the background.
    pub(super) is_background: bool,
    /// How long to try, where that is given.
    pub(super) longest: Option<Duration>,
}

/// The value of `retry=`: a duration, or a number of minutes.
pub(super) fn time(text: &str) -> Result<Duration> {
    match text.parse::<u32>() {
        Ok(minutes) => Ok(Duration::from_secs(60 * u64::from(minutes))),
        Err(_) => Ok(parse_duration(text).map_err(|error| {
            let reason = "retry is a time such as 90s, or a number of minutes";
            Error::invalid("mount", reason).with("retry", text).caused_by(error)
        })?),
    }
}

impl Retry {
    /// How long to try.
    pub(super) fn longest(&self) -> Duration {
        let default = if self.is_background { BACKGROUND_TIME_DEFAULT } else { Duration::ZERO };
        self.longest.unwrap_or(default)
    }

    /// Makes attempts until one has served, or fails for good. An attempt notes when programs can use the
    /// mount: it is the last one then.
    pub(super) fn until_served(
        &self,
        plan: &Plan,
        context: &Context,
        interrupt: &Interrupt,
        output: Option<&File>,
        attempt: &dyn Fn(&Cell<bool>) -> Result<()>,
    ) -> Result<()> {
        let clock = SystemClock::default();
        let begun_ns = clock.now_ns();
        let mut pause = PAUSE_MIN;
        let mut is_first = true;
        loop {
            let is_ready = Cell::new(false);
            let failure = match attempt(&is_ready) {
                Err(Failure::Failed(error)) if !is_ready.get() && is_unreachable(&error) => error,
                ended => return ended,
            };
            let waited = Duration::from_nanos(clock.now_ns() - begun_ns);
            let Some(left) = self.longest().checked_sub(waited).filter(|left| !left.is_zero())
            else {
                return Err(failure.into());
            };
            if std::mem::take(&mut is_first) {
                if let Some(output) = output.filter(|_| self.is_background) {
                    print_waiting(plan, context)?;
                    background::leave_terminal(output)?;
                }
                let (store, directory) = (&plan.store, plan.directory.display());
                tracing::warn!(
                    error = failure.chain(), %store, %directory, seconds_left = left.as_secs(),
                    "no server answers yet; the mount is tried again"
                );
            }
            pass(pause.min(left), interrupt, &clock)?;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }
}

fn is_unreachable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable { .. })
}

/// Waits, unless a signal asks to stop.
fn pass(pause: Duration, interrupt: &Interrupt, clock: &SystemClock) -> Result<()> {
    let begun_ns = clock.now_ns();
    while Duration::from_nanos(clock.now_ns() - begun_ns) < pause {
        interrupt.check("no server answered, and nothing is mounted")?;
        clock.sleep(STEP);
    }
    Ok(())
}

fn print_waiting(plan: &Plan, context: &Context) -> Result<()> {
    let mut output = Output::new();
    let (store, directory) = (&plan.store, &plan.directory);
    if context.is_json {
        output.json(&json!({
            "ready": false,
            "store": store,
            "directory": directory,
            "process": std::process::id(),
        }))?;
    } else {
        let directory = directory.display();
        output.line(format!("{WAITING}{store}: it is mounted at {directory} once it answers"))?;
    }
    output.flush()
}
