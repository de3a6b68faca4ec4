// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace scrub`.

use clap::Args;
use terrace_core::units::{format_duration, parse_rate, show_bytes, show_rate};
use terrace_store::{ScrubOptions, ScrubReport, ScrubStatus, ScrubSummary};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::mounted;
use crate::output::{Output, count, show_name};
use crate::progress::Progress;
use crate::time::show_wall;

/// The status when problems were found.
const STATUS_PROBLEMS: u8 = 1;

/// Read everything and mend what rots
///
/// Reads every object and every copy at a bounded rate and compares them with their checksums.
/// Where there is no checksum and no writer meanwhile, it is recorded, so that the next scrub
/// can tell. A damaged copy is dropped where another file is right, a damaged primary is written
/// anew from a copy that is right. Without any it is reported, and nothing is deleted. The store
/// may be in use meanwhile, and comes first.
///
/// Problems that are left are printed one a line as `problem: KIND KEY: DETAIL`, what was mended
/// begins with `mended:`. The status is 0 when no problem is left, 1 when there is one, and
/// another one when the scrub could not be done. `[scrub]` in the configuration does the same in
/// the background.
#[derive(Args, Debug)]
pub(crate) struct Scrub {
    /// Most that is read in a second
    #[arg(long, value_name = "RATE", default_value = "50MB/s")]
    bandwidth: String,
    /// Only the objects of this namespace
    #[arg(long)]
    namespace: Option<String>,
    /// Print when the store was last scrubbed and how far it is, and scrub nothing
    #[arg(long, conflicts_with_all = ["namespace"])]
    status: bool,
}

impl Verb for Scrub {
    const NAME: &'static str = "scrub";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace scrub                         everything, at 50 MB/s
  terrace scrub --namespace run --bandwidth 1GB/s
  terrace scrub --status                how far is the one in the background?";

    fn run(self, context: &Context) -> Result<()> {
        if self.status {
            return status(context);
        }
        if let Some(namespace) = &self.namespace {
            mounted::refuse_namespace(context, namespace)?;
        }
        let bytes_per_s = parse_rate(&self.bandwidth)?;
        let options = ScrubOptions { bytes_per_s, namespace: self.namespace };
        let (report, interrupt) = context.with_store(|store| {
            // The owner of a store that is held notices by itself that this process has ended.
            let interrupt = if store.is_attached() { None } else { Some(Interrupt::watch()?) };
            let mut progress = Progress::bytes("scrub", Some(0));
            let report = store.admin().scrub(&options, &mut |done, total| {
                progress.set(done, total);
                !interrupt.as_ref().is_some_and(Interrupt::is_set)
            })?;
            Ok((report, interrupt))
        })?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&report)?;
        } else {
            print(&report, &mut output)?;
        }
        output.flush()?;
        if let Some(interrupt) = interrupt {
            interrupt.check("the scrub was ended; what it did stays")?;
        }
        if report.problem_count == 0 { Ok(()) } else { Err(Failure::Reported(STATUS_PROBLEMS)) }
    }
}

fn print(report: &ScrubReport, output: &mut Output) -> Result<()> {
    for (word, findings) in [("problem", &report.problems), ("mended", &report.repairs)] {
        for found in findings {
            let place = show_name(&found.place);
            output.line(format!("{word}: {} {place}: {}", found.kind, show_name(&found.detail)))?;
        }
    }
    let origin = match report.medium_bytes {
        0 => "perhaps from a cache".to_string(),
        all if all == report.read_bytes => "from the medium".into(),
        some => format!("{} of it from the medium", show_bytes(some)),
    };
    output.line(format!(
        "{}, {} read ({origin}), {} recorded, {} skipped{}: {}",
        count(report.objects, "object"),
        show_bytes(report.read_bytes),
        count(report.recorded, "checksum"),
        report.skipped,
        if report.is_complete { "" } else { ", ended early" },
        match report.problem_count {
            0 => "no problems".into(),
            some => count(some, "problem"),
        },
    ))
}

fn status(context: &Context) -> Result<()> {
    let status = context.with_store_for_reading(|store| Ok(store.admin().scrub_status()?))?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&status)?;
    } else {
        print_status(&status, &mut output)?;
    }
    output.flush()
}

fn print_status(status: &ScrubStatus, output: &mut Output) -> Result<()> {
    for found in &status.findings {
        let place = show_name(&found.place);
        output.line(format!("problem: {} {place}: {}", found.kind, show_name(&found.detail)))?;
    }
    output.line(match status.every_ns {
        None => "only when asked: there is no `every` in [scrub]".into(),
        Some(every_ns) => format!(
            "every {} at {}",
            format_duration(std::time::Duration::from_nanos(every_ns)),
            show_rate(status.bytes_per_s)
        ),
    })?;
    if status.is_asked {
        output.line("one that was asked for is running")?;
    }
    if let Some(begun) = &status.begun {
        let state = if status.is_running { "running" } else { "interrupted" };
        let position = status.position.as_deref().unwrap_or("the beginning");
        let position = show_name(position);
        output.line(format!("{state} since {}, at {position}", summary(begun)))?;
    }
    match &status.ended {
        Some(ended) => output.line(format!("last ended {}", summary(ended))),
        None => output.line("never ended"),
    }
}

fn summary(sum: &ScrubSummary) -> String {
    format!(
        "{}: {}, {}, {}",
        show_wall(sum.wall_ns),
        count(sum.objects, "object"),
        show_bytes(sum.read_bytes),
        count(sum.problems, "problem")
    )
}
