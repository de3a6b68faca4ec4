// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting and ending a recording.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use terrace_core::units::{parse_bytes, parse_duration, show_bytes};
use terrace_core::{Error, ErrorKind};
use terrace_store::{OpenOptions, Recording, RecordingReport, Store};

use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::{Output, count};
use crate::time::show_wall;

/// Between two looks for Ctrl-C, or for another process that ended it.
const LOOK: Duration = Duration::from_millis(100);

/// How much longer than `--for` a recording may go on, should this process be killed before it ends it.
const OVERTIME: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub(super) struct Record {
    /// The directory of the trace [default: the configured one, or `trace` in the store's]
    #[arg(long, value_name = "DIR")]
    to: Option<String>,
    /// Record the policy's inputs and decisions, too, enough to decide everything again: the policy
    /// hands over to a new instance of itself
    #[arg(long, conflicts_with = "hash_names")]
    decisions: bool,
    /// Record a keyed hash instead of each name; the key is kept nowhere
    #[arg(long)]
    hash_names: bool,
    /// Most that all its files may have, at least 4MiB; the oldest goes first [default: the
    /// configured bound, or 1GB]
    #[arg(long, value_name = "SIZE")]
    max_size: Option<String>,
    /// Stop after this time, for example 60s or 10min
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<String>,
}

impl Record {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let time = self.time.as_deref().map(parse_duration).transpose()?;
        let recording = Recording {
            directory: self.to,
            has_decisions: self.decisions,
            has_hashed_names: self.hash_names,
            max_bytes: self.max_size.as_deref().map(parse_bytes).transpose()?,
            // Should this command be gone by then.
            longest_ns: time.map(|time| {
                u64::try_from((time.saturating_add(OVERTIME)).as_nanos()).unwrap_or(u64::MAX)
            }),
        };
        let interrupt = Interrupt::watch()?;
        // A command that opens the store itself serves others, as `hold` does.
        context.with_options(OpenOptions::default(), |store| {
            store.admin().record(&recording)?;
            let begun = store.admin().recording()?.ok_or_else(not_recorded)?;
            if store.is_attached() && time.is_none() {
                return print(context, &begun, "recording; `terrace trace stop` ends it");
            }
            let how = match (store.is_attached(), time) {
                (true, _) => "recording; Ctrl-C ends it early",
                (false, Some(_)) => "holding the store and recording; Ctrl-C ends it early",
                (false, None) => "holding the store and recording; Ctrl-C ends it",
            };
            if !context.is_json {
                print(context, &begun, how)?;
            }
            wait(store, &interrupt, time)?;
            let ended = match store.admin().stop_recording() {
                // Another process was first, or its disk failed.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    store.admin().recording()?.ok_or_else(not_recorded)?
                }
                ended => ended?,
            };
            print(context, &ended, "recorded")?;
            failure(&ended)
        })
    }
}

/// Waits for the end of the time, a signal, or the end of the recording.
fn wait(store: &Store, interrupt: &Interrupt, time: Option<Duration>) -> Result<()> {
    let begun = Instant::now();
    while !interrupt.is_set() {
        let left = time.map_or(LOOK, |time| time.saturating_sub(begun.elapsed()));
        if left.is_zero() || !store.admin().recording()?.is_some_and(|report| report.is_running) {
            break;
        }
        thread::sleep(left.min(LOOK));
    }
    Ok(())
}

fn not_recorded() -> Error {
    Error::new(ErrorKind::Io, "record a trace").because("it ended as soon as it had begun")
}

/// The failure of a recording that did not reach its end.
fn failure(report: &RecordingReport) -> Result<()> {
    match &report.failure {
        Some(why) => Err(Error::new(ErrorKind::Io, "record the trace to its end")
            .because(why.clone())
            .into()),
        None => Ok(()),
    }
}

pub(super) fn stop(context: &Context) -> Result<()> {
    let report = context.with_store(|store| {
        if !store.is_attached() {
            let reason = "nothing holds the store, so nothing is recorded";
            return Err(Error::new(ErrorKind::NotFound, "stop the trace").because(reason).into());
        }
        Ok(store.admin().stop_recording()?)
    })?;
    print(context, &report, "recorded")?;
    failure(&report)
}

pub(super) fn status(context: &Context) -> Result<()> {
    let report = context.with_store_for_reading(|store| Ok(store.admin().recording()?))?;
    match &report {
        Some(report) if report.is_running => print(context, report, "recording"),
        Some(report) => print(context, report, "not recording; the last one ended"),
        None => {
            let mut output = Output::new();
            if context.is_json {
                output.json(&json!({ "recording": null }))?;
            } else {
                output.line("not recording")?;
            }
            output.flush()
        }
    }
}

fn print(context: &Context, report: &RecordingReport, what: &str) -> Result<()> {
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "recording": report }))?;
        return output.flush();
    }
    output.line(format_args!("{}: {what}", report.directory))?;
    let files = count(report.files, "file");
    let (bytes, most) = (show_bytes(report.bytes), show_bytes(report.max_bytes));
    output.line(format_args!("  {files}, {bytes} of at most {most}"))?;
    let since = show_wall(report.started_wall_ns);
    output.line(format_args!("  {} since {since}", count(report.records, "record")))?;
    if let Some(ends_ns) = report.ends_wall_ns.filter(|_| report.is_running) {
        output.line(format_args!("  ends by itself at {}", show_wall(ends_ns)))?;
    }
    if report.has_decisions {
        output.line("  with the policy's inputs and decisions")?;
    }
    if report.has_hashed_names {
        output.line("  with hashed names")?;
    }
    if report.deleted_files > 0 {
        let files = count(report.deleted_files, "old file");
        output.line(format_args!("  {files} deleted to keep the bound"))?;
    }
    if report.summed_up_events > 0 {
        let events = count(report.summed_up_events, "event");
        output.line(format_args!(
            "  {events} summed up, by the policy's rings or by readers with leases"
        ))?;
    }
    if report.lost_records > 0 {
        let records = count(report.lost_records, "record");
        output.line(format_args!("  {records} lost: the disk of the trace did not keep up"))?;
    }
    if let Some(why) = &report.failure {
        output.line(format_args!("  ended because it failed: {why}"))?;
    }
    output.flush()
}
