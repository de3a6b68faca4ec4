// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an administrator asks a stack for: quotas, traces, scrubs and notices.

use std::time::Duration;

use terrace_core::Result;
use terrace_trace::Settings;

use crate::front::scrub::{self, ScrubOptions};
use crate::front::stack::Stack;
use crate::report::{QuotaReport, RecordingReport, ScrubReport, ScrubStatus};
use crate::room::quota;
use crate::runner::recording;
use crate::tiers::parts::Tactics;
use crate::watch::{WatchFilter, Watcher};

impl Stack {
    /// Limits what a namespace may hold; `None` leaves a limit as it is. Less than it holds
    /// already is allowed, and forbids it to grow.
    ///
    /// Bytes are those of objects, each counted once, at its length or, while it is open and
    /// grows, with the room that its tier has promised it. Key-value pairs do not count.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace that cannot be, or without any limit; `Denied`, `Io`.
    pub fn set_quota(
        &self,
        namespace: &str,
        bytes_max: Option<u64>,
        objects_max: Option<u64>,
    ) -> Result<QuotaReport> {
        quota::set(&self.inner.shared, namespace, bytes_max, objects_max)
    }

    /// Lifts the limits of a namespace. Errors: `NotFound` where it has none, `Denied`, `Io`.
    pub fn clear_quota(&self, namespace: &str) -> Result<QuotaReport> {
        quota::clear(&self.inner.shared, namespace)
    }

    /// What namespaces hold and may hold: those with objects or a limit, by name.
    pub fn quotas(&self) -> Vec<QuotaReport> {
        quota::all(&self.inner.shared)
    }

    /// Records a trace from now on, until [`Stack::stop_recording`] or the end of the stack.
    ///
    /// With decisions, `tactics` is another instance of the running policy: it takes over with
    /// what the policy saves, so that a replay can begin at the same point. Without it the trace
    /// has everything but what the policy knew at its beginning.
    ///
    /// A disk that fails ends the recording and nothing else; [`Stack::recording`] says so.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a store of one tier that was opened without policy and trace: its I/O
    /// passes the stack by. `Busy` where one is recorded already or the directory is in use,
    /// `Exists` where it holds the trace of another store, `Invalid`, `Denied`, `NoSpace`, `Io`.
    pub fn record(&self, settings: Settings, tactics: Option<Tactics>) -> Result<()> {
        recording::start(&self.inner.shared, settings, tactics)
    }

    /// Ends the recording that runs after this time, unless it is called again or the recording was
    /// ended before: for a caller that may be gone by then.
    ///
    /// # Errors
    ///
    /// `NotFound` where nothing is recorded.
    pub fn end_recording_after(&self, longest: Duration) -> Result<()> {
        recording::end_after(&self.inner.shared, longest)
    }

    /// Ends the recording once everything that happened so far is in it, and reports it.
    ///
    /// # Errors
    ///
    /// `NotFound` where nothing is recorded.
    pub fn stop_recording(&self) -> Result<RecordingReport> {
        recording::stop(&self.inner.shared)
    }

    /// The recording that runs, or how the last one ended; `None` where there was none since the
    /// stack was opened.
    pub fn recording(&self) -> Option<RecordingReport> {
        crate::lock(&self.inner.shared.recording).report()
    }

    /// Watches what happens from now on.
    ///
    /// # Errors
    ///
    /// `Busy` where too many watch, `Unreachable` for a store that was closed.
    pub fn watch(&self, filter: &WatchFilter) -> Result<Watcher> {
        self.inner.shared.watches.watch(filter)
    }

    /// Reads every file and compares it with its checksum; where there is none and no writer is at work
    /// meanwhile, the checksum is recorded. A damaged copy is dropped where another file is right,
    /// a damaged primary is written anew from a copy that is right; without any it is reported,
    /// and nothing is deleted. A scrub that runs in the background lets this one go first.
    ///
    /// `progress` gets the bytes done and their total now and then; false ends the scrub.
    ///
    /// # Errors
    ///
    /// `Busy` where another one was asked for, `Invalid` for a rate of zero; what the catalog says.
    pub fn scrub(
        &self,
        options: &ScrubOptions,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<ScrubReport> {
        scrub::run(&self.inner.shared, options, progress)
    }

    /// When the store was last scrubbed, and how far it is now. Errors: what the catalog says.
    pub fn scrub_status(&self) -> Result<ScrubStatus> {
        scrub::status(&self.inner.shared)
    }
}
