// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts, bounds and ends the recording of a trace.

use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Result};
use terrace_trace::{Origin, Settings, Tier, Writer};

use crate::Tactics;
use crate::report::RecordingReport;
use crate::shared::Shared;
use crate::shared::recording::Running;

/// Makes a writer for a stack. It waits for the trace's disk; nothing else does.
pub(crate) fn begin(shared: &Shared, settings: Settings) -> Result<Writer> {
    let tiers = super::tier_views(shared);
    let origin = Origin {
        store_id: shared.store_id,
        wall_ns: shared.clock.wall_ns(),
        monotonic_ns: shared.clock.now_ns(),
        tiers: tiers.iter().map(Tier::of).collect(),
    };
    Writer::begin(settings, origin)
}

/// Records from now on.
///
/// # Errors
///
/// `Busy` where something else records.
pub(crate) fn install(shared: &Shared, writer: Writer) -> Result<()> {
    let mut recording = crate::lock(&shared.recording);
    if recording.running.is_some() {
        return Err(running_already());
    }
    let started_wall_ns = shared.clock.wall_ns();
    recording.running = Some(Running { writer, started_wall_ns, ends: None });
    shared.mailbox.enlarge(true);
    Ok(())
}

/// Passes on what was recorded long ago, and ends a recording whose disk failed or whose time is over.
/// Called by the policy's thread.
pub(crate) fn tick(shared: &Shared, now_ns: u64) {
    let mut recording = crate::lock(&shared.recording);
    let Some(running) = &mut recording.running else { return };
    if running.ends.is_some_and(|(ends_ns, _)| now_ns >= ends_ns) {
        drop(recording);
        end(shared);
        return;
    }
    running.writer.tick(now_ns);
    let report = running.report();
    if !report.is_running {
        recording.last = Some(report);
        recording.running = None;
        shared.mailbox.enlarge(false);
    }
}

/// Ends the recording; `None` where there was none.
pub(crate) fn end(shared: &Shared) -> Option<RecordingReport> {
    let running = crate::lock(&shared.recording).running.take()?;
    shared.mailbox.enlarge(false);
    let mut report = running.report();
    // The disk is waited for without the lock.
    let last = running.writer.end();
    report.is_running = false;
    (report.files, report.bytes, report.records) = (last.files, last.bytes, last.records);
    (report.lost_records, report.failure) = (last.lost_records, last.failure);
    crate::lock(&shared.recording).last = Some(report.clone());
    Some(report)
}

fn running_already() -> Error {
    Error::new(ErrorKind::Busy, "record a trace").because("one is recorded already; stop it first")
}

/// Records a trace from now on; with decisions, `tactics` takes over from the running policy.
pub(crate) fn start(
    shared: &Arc<Shared>,
    settings: Settings,
    tactics: Option<Tactics>,
) -> Result<()> {
    shared.check_writable("record a trace")?;
    if shared.is_bare {
        return Err(Error::new(ErrorKind::Unsupported, "record a trace").because(
            "the store has one tier and no policy, and was opened without a trace: its I/O \
             passes the stack by; give it a [trace] section and open it again",
        ));
    }
    if crate::lock(&shared.recording).running.is_some() {
        return Err(running_already());
    }
    super::record(shared, begin(shared, settings)?, tactics)
}

/// Ends the recording after this time.
pub(crate) fn end_after(shared: &Shared, longest: Duration) -> Result<()> {
    let longest_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    match &mut crate::lock(&shared.recording).running {
        Some(running) => {
            let clocks = (shared.clock.now_ns(), shared.clock.wall_ns());
            let after = |now_ns: u64| now_ns.saturating_add(longest_ns);
            running.ends = Some((after(clocks.0), after(clocks.1)));
            Ok(())
        }
        None => Err(Error::new(ErrorKind::NotFound, "bound the trace").because("none is recorded")),
    }
}

/// Ends the recording once everything that happened so far is in it.
pub(crate) fn stop(shared: &Arc<Shared>) -> Result<RecordingReport> {
    if crate::lock(&shared.recording).running.is_some() {
        // Where the policy does not answer, what it has not seen is not in the trace either.
        let _ = super::run_now(shared);
    }
    end(shared).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "stop the trace").because("none is recorded")
    })
}
