// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace fsck`.

use clap::Args;
use terrace_core::units::show_bytes;
use terrace_store::CheckReport;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Output, count, show_name};
use crate::progress::Progress;

/// The status when problems were found.
const STATUS_PROBLEMS: u8 = 1;

/// Check the store
///
/// Compares the catalog, the accounting and what is on the tiers: every object must be where the
/// catalog says, whole and with the right identity, and no tier may hold more than is accounted
/// for. Nothing is changed. The store may be in use meanwhile.
///
/// Problems are printed one a line as `problem: KIND PLACE: DETAIL`; what is unusual but harmless
/// begins with `note:`. The status is 0 when there is no problem, 1 when there is, and another one
/// when the check itself could not be done.
#[derive(Args, Debug)]
pub(crate) struct Fsck {
    /// Also read all bytes and compare them with their checksums
    #[arg(long)]
    verify: bool,
}

impl Verb for Fsck {
    const NAME: &'static str = "fsck";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace fsck                          catalog against tiers
  terrace fsck --verify                 read every byte too
  terrace fsck --json | jq .problems";

    fn run(self, context: &Context) -> Result<()> {
        let report = context.with_store_for_reading(|store| {
            let mut progress = Progress::items("fsck", Some(0));
            Ok(store.check(self.verify, &mut |done, total| progress.set(done, total))?)
        })?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&report)?;
        } else {
            print(&report, self.verify, &mut output)?;
        }
        output.flush()?;
        if report.problems.is_empty() { Ok(()) } else { Err(Failure::Reported(STATUS_PROBLEMS)) }
    }
}

fn print(report: &CheckReport, is_verified: bool, output: &mut Output) -> Result<()> {
    for (word, findings) in [("problem", &report.problems), ("note", &report.notes)] {
        for found in findings {
            let place = show_name(&found.place);
            output.line(format!("{word}: {} {place}: {}", found.kind, show_name(&found.detail)))?;
        }
    }
    let problems = match report.problems.len() {
        0 => "no problems".into(),
        some => count(some as u64, "problem"),
    };
    let verified = match is_verified {
        true => format!(", {} read", show_bytes(report.verified_bytes)),
        false => String::new(),
    };
    let (objects, segments) = (count(report.objects, "object"), count(report.segments, "segment"));
    output.line(format!("{objects}, {segments}{verified}: {problems}"))
}
