// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Migrations on their way.

use std::collections::VecDeque;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use serde_json::json;
use terrace_core::units::show_bytes;
use terrace_core::{ErrorKind, Key};
use terrace_store::{MoveReport, MoveTicket, Store};

use super::error_of;
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::interrupt::Interrupt;
use crate::output::{Output, count, show_name};
use crate::progress::Progress;

/// Migrations that are queued ahead, so that a walk over millions of objects takes bounded room
/// in the stack's queue and leaves some to the policy.
const AHEAD_MAX: usize = 1000;

/// Between two looks at a migration that runs: short enough for a bar and for Ctrl-C.
const LOOK: Duration = Duration::from_millis(200);

/// The migrations that this command asked for and that have not ended, oldest first.
pub(super) struct Moving<'a> {
    context: &'a Context,
    store: &'a Store,
    interrupt: &'a Interrupt,
    waiting: VecDeque<MoveTicket>,
    progress: Progress,
    output: Output,
    done: u64,
    done_bytes: u64,
}

impl<'a> Moving<'a> {
    pub(super) fn new(context: &'a Context, store: &'a Store, interrupt: &'a Interrupt) -> Self {
        Self {
            context,
            store,
            interrupt,
            waiting: VecDeque::new(),
            progress: Progress::bytes("migrate", Some(0)),
            output: Output::new(),
            done: 0,
            done_bytes: 0,
        }
    }

    /// Takes over migrations; waits for the oldest where there are too many.
    pub(super) fn add(&mut self, failures: &mut Failures, tickets: Vec<MoveTicket>) -> Result<()> {
        self.waiting.extend(tickets);
        self.wait_until_at_most(AHEAD_MAX, failures)
    }

    /// Waits for the migrations of an object that others asked for; whether there were any.
    pub(super) fn wait_for_others(&self, key: &Key) -> Result<bool> {
        let segments = self.store.admin().explain(key)?.segments;
        let running: Vec<_> = segments.into_iter().filter_map(|segment| segment.moving).collect();
        for report in &running {
            loop {
                self.interrupt.check("")?;
                match self.store.admin().wait(MoveTicket(report.id), LOOK) {
                    Ok(None) => {}
                    // One that is forgotten has ended.
                    Err(error) if error.kind() == ErrorKind::NotFound => break,
                    ended => break ended.map(drop)?,
                }
            }
        }
        Ok(!running.is_empty())
    }

    pub(super) fn wait_for_all(&mut self, failures: &mut Failures) -> Result<()> {
        self.wait_until_at_most(0, failures)
    }

    fn wait_until_at_most(&mut self, count: usize, failures: &mut Failures) -> Result<()> {
        while self.waiting.len() > count {
            let oldest = self.waiting[0];
            self.interrupt.check("")?;
            let Some(report) = self.store.admin().wait(oldest, LOOK)? else {
                self.show_progress()?;
                continue;
            };
            self.waiting.pop_front();
            self.note(failures, &report)?;
        }
        Ok(())
    }

    fn note(&mut self, failures: &mut Failures, report: &MoveReport) -> Result<()> {
        if self.context.is_json {
            self.output.json(report)?;
        }
        match error_of(report) {
            Some(error) => {
                self.progress.aside(|| failures.note::<()>(Err(error.into())))?;
            }
            None => {
                self.done += 1;
                self.done_bytes += report.size_bytes;
                self.print(report)?;
            }
        }
        self.progress.aside(|| self.output.flush())
    }

    fn print(&mut self, report: &MoveReport) -> Result<()> {
        if self.context.is_json {
            return Ok(());
        }
        let key = show_name(&report.key);
        let segment = match report.segment {
            0 => String::new(),
            number => format!(" segment {number}"),
        };
        let what = match (report.outcome.as_deref(), report.kind.as_str()) {
            (Some("already"), _) => format!("already on {}", report.to),
            (Some("dry-run"), _) => "not moved: the store runs dry".into(),
            (_, "copy") => format!("copied to {}", report.to),
            (_, "promote") => format!("{} -> {}, copy kept on {0}", report.from, report.to),
            _ => format!("{} -> {}", report.from, report.to),
        };
        self.output.line(format!("{key}{segment}: {what} ({})", show_bytes(report.size_bytes)))
    }

    /// Asks how far the migrations are, where progress is shown.
    fn show_progress(&mut self) -> Result<()> {
        if !stderr().is_terminal() {
            return Ok(());
        }
        let mut done_bytes = self.done_bytes;
        let mut total_bytes = self.done_bytes;
        for report in self.store.admin().moves()? {
            // Tickets ascend, and so does the queue.
            if self.waiting.binary_search(&MoveTicket(report.id)).is_ok() {
                done_bytes += report.copied_bytes;
                total_bytes += report.size_bytes;
            }
        }
        self.progress.say(format!("migrate, {} left", self.waiting.len()));
        self.progress.set(done_bytes, total_bytes.max(done_bytes));
        Ok(())
    }

    /// Says that there is nothing to do.
    pub(super) fn print_already(&mut self, key: &Key, tier: &str) -> Result<()> {
        if self.context.is_json {
            let already = json!({ "key": key.as_str(), "to": tier, "outcome": "already" });
            return self.output.json(&already);
        }
        self.output.line(format!("{}: already on {tier}", show_name(key.as_str())))
    }

    /// Prints migrations that this command does not wait for.
    pub(super) fn print_queued(&mut self, key: &Key, tickets: &[MoveTicket]) -> Result<()> {
        for ticket in tickets {
            if self.context.is_json {
                self.output.json(&json!({ "id": ticket.0, "key": key.as_str() }))?;
            } else {
                self.output.line(format!(
                    "{:>6}  {}: queued",
                    ticket.0,
                    show_name(key.as_str())
                ))?;
            }
        }
        Ok(())
    }

    /// Cancels what has not ended; says what became of everything.
    pub(super) fn cancel(&mut self) -> String {
        let mut cancelled = 0;
        for ticket in self.waiting.drain(..) {
            // One that ended meanwhile is not found.
            cancelled += u64::from(self.store.admin().cancel(ticket).is_ok());
        }
        let (done, cancelled) = (count(self.done, "migration"), count(cancelled, "migration"));
        format!("interrupted: {done} done, {cancelled} cancelled")
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        self.output.flush()
    }
}
