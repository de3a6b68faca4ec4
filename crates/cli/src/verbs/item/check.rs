// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace item check`.

use serde_json::json;
use terrace_core::units::parse_duration;
use terrace_core::{Clock, SystemClock};
use terrace_items::{Finding, Items, Summary};

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Output, count, show_name};

/// The status where something is left: as of `fsck`.
const STATUS_PROBLEMS: u8 = 1;

/// Findings that are kept to be printed at a time.
const FINDINGS_MAX: usize = 1000;

/// Prints what does not fit, and removes what is to be removed.
pub(crate) fn run(context: &Context, is_repair: bool, older: &str) -> Result<()> {
    let older_ns = u64::try_from(parse_duration(older)?.as_nanos()).unwrap_or(u64::MAX);
    let before_ns = SystemClock::default().wall_ns().saturating_sub(older_ns);
    let mut findings: Vec<Finding> = Vec::new();
    let mut note = |finding: &Finding| {
        if findings.len() < FINDINGS_MAX {
            findings.push(finding.clone());
        }
        Ok(())
    };
    let check = |store: &terrace_store::Store| {
        Ok(Items::new(store).check(before_ns, is_repair, &mut note)?)
    };
    let summary = match is_repair {
        true => context.with_store(check)?,
        false => context.with_store_for_reading(check)?,
    };
    let mut output = Output::new();
    match context.is_json {
        true => output.json(&json!({
            "collections": summary.collections,
            "items": summary.items,
            "young": summary.young,
            "problem_count": summary.problems,
            "removed": summary.removed,
            "findings": findings.iter().map(finding_json).collect::<Vec<_>>(),
        }))?,
        false => print(&findings, &summary, &mut output)?,
    }
    output.flush()?;
    if summary.problems == 0 { Ok(()) } else { Err(Failure::Reported(STATUS_PROBLEMS)) }
}

fn finding_json(finding: &Finding) -> serde_json::Value {
    json!({
        "kind": finding.kind.word(),
        "place": finding.place,
        "detail": finding.kind.meaning(),
        "is_removed": finding.is_removed,
    })
}

fn print(findings: &[Finding], summary: &Summary, output: &mut Output) -> Result<()> {
    for finding in findings {
        let word = if finding.is_removed { "removed" } else { "problem" };
        let (kind, meaning) = (finding.kind.word(), finding.kind.meaning());
        output.line(format!("{word}: {kind} {}: {meaning}", show_name(&finding.place)))?;
    }
    let unshown = summary.problems + summary.removed - findings.len() as u64;
    if unshown > 0 {
        output.line(format!("... and {unshown} more"))?;
    }
    let problems = match summary.problems {
        0 => "no problems".into(),
        some => count(some, "problem"),
    };
    let removed = match summary.removed {
        0 => String::new(),
        some => format!(", {some} removed"),
    };
    let young = match summary.young {
        0 => String::new(),
        some => format!(", {some} too young to tell"),
    };
    let (collections, items) =
        (count(summary.collections, "collection"), count(summary.items, "item"));
    output.line(format!("{collections}, {items}: {problems}{removed}{young}"))
}
