// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace explain`.

use std::ffi::OsString;

use clap::Args;
use terrace_core::units::{show_bytes, show_ns};
use terrace_store::{Explanation, HistoryReport, LedgerReport, MoveReport, SegmentReport};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::mounted;
use crate::output::{Output, count, show_name};
use crate::time::{show_ago, show_wall};

/// Show where an object is, and why
///
/// Prints the segments of an object with their tiers and clean copies, every decision that was
/// made about it – its origin, when, for what reason, and what it cost – and where the time of
/// its reads and writes went since the store was opened. Most objects have one segment.
///
/// Of a move it tells what the policy expected it to save, and what it saved so far: an estimate
/// at the figures of the tier before. What the new tier served since would have taken there by
/// its latency and bandwidth as configured, times how much more or less than these that tier has
/// taken since the store was opened, once it had 100 accesses; less what it did take in the
/// device. It is counted until the next move or until the store is closed, as of the policy's
/// last round.
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The object: NAMESPACE/NAME, or NAME in the namespace `default`; or a file of a mounted
    /// store: /PATH, ./PATH, and PATH where no store is named
    key: OsString,
}

impl Verb for Explain {
    const NAME: &'static str = "explain";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace explain climate/t2m
  terrace explain /mnt/files/results.h5        a file of a mounted store
  terrace explain --json climate/t2m | jq '.segments[].tier'";

    fn run(self, context: &Context) -> Result<()> {
        let (context, key) = &mounted::object(context, &self.key)?;
        let found = context.with_store_for_reading(|store| Ok(store.admin().explain(key)?));
        let explanation = found.map_err(|failure| {
            mounted::note_mounted(context, &self.key, &failure);
            failure.about(key)
        })?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&explanation)?;
        } else {
            print(&explanation, &mut output)?;
        }
        output.flush()
    }
}

fn print(explanation: &Explanation, output: &mut Output) -> Result<()> {
    let pinned = if explanation.is_pinned { ", pinned" } else { "" };
    output.line(format!(
        "{}: {}, {}, persistency {}{pinned}, open {}",
        show_name(&explanation.key),
        show_bytes(explanation.size_bytes),
        count(explanation.segments.len() as u64, "segment"),
        explanation.persistency,
        count(u64::from(explanation.opens), "time"),
    ))?;
    output.line(format!(
        "created {}, modified {}",
        show_wall(explanation.created_ns),
        show_wall(explanation.modified_ns)
    ))?;
    for segment in &explanation.segments {
        print_segment(segment, explanation.segments.len(), output)?;
    }
    print_ledger(&explanation.ledger, output)
}

fn print_segment(segment: &SegmentReport, of: usize, output: &mut Output) -> Result<()> {
    output.line("")?;
    let which = if of == 1 {
        String::new()
    } else {
        let start = show_bytes(segment.start_bytes);
        format!("segment {} ({} from {start}) ", segment.segment, show_bytes(segment.size_bytes))
    };
    let copies = match segment.copies.as_slice() {
        [] => String::new(),
        copies => format!(", clean copies on {}", copies.join(", ")),
    };
    let taken = show_bytes(segment.allocated_bytes);
    let takes = match segment.allocated_bytes < segment.size_bytes {
        true if segment.packed => format!(", packed into {taken}"),
        true => format!(", takes {taken}: the rest are holes"),
        false => String::new(),
    };
    output.line(format!("{which}on {}{takes}{copies}", segment.tier))?;
    // Below the directory of the tier, where that is one.
    let stored_as = segment.path.as_ref().unwrap_or(&segment.stored_as);
    output.line(format!("  stored as {}", show_name(stored_as)))?;
    if let Some(moving) = &segment.moving {
        output.line(format!("  now: {}", show_move(moving)))?;
    }
    if let Some(held) = &segment.held {
        output.line(format!("  stays here: {}", show_held(held)))?;
    }
    for event in &segment.history {
        print_event(event, output)?;
    }
    Ok(())
}

fn show_held(held: &str) -> &str {
    match held {
        "reading" => "its file is open for reading past the store",
        "writing" => "its file is open for writing past the store",
        "left" => "a program can still write to its file past the store",
        other => other,
    }
}

fn print_event(event: &HistoryReport, output: &mut Output) -> Result<()> {
    let (what, tier) = (event.what.as_str(), &event.tier);
    let change = match (what, what.strip_prefix("refused: ")) {
        (_, Some(outcome)) => format!("not moved to {tier} ({outcome})"),
        ("placed" | "dropped copy", _) => format!("{what} on {tier}"),
        _ => format!("{what} to {tier}"),
    };
    output.line(format!(
        "  {}  {change} by {}{}{}",
        show_wall(event.wall_ns),
        event.by,
        if event.reason.is_empty() { String::new() } else { format!(": {}", event.reason) },
        show_cost(event),
    ))?;
    match show_benefit(event) {
        Some(benefit) => output.line(format!("    {benefit}")),
        None => Ok(()),
    }
}

/// What a move was expected to save, and did; `None` where both are unknown.
fn show_benefit(event: &HistoryReport) -> Option<String> {
    let expected = event.expected_benefit_s.map(|saves| format!("expected to save {saves:.3} s"));
    let from = event.from.as_deref().unwrap_or("the tier before");
    let accesses = match event.accesses {
        0 => None,
        1 => Some("1 access".to_owned()),
        many => Some(format!("{many} accesses")),
    };
    let saved = match (accesses, event.measured_benefit_s) {
        (Some(accesses), Some(saved)) => {
            Some(format!("saved {saved:.3} s in {accesses}, at the figures of {from}"))
        }
        (Some(accesses), None) => Some(format!("{accesses} since; {from} has no figures")),
        (None, Some(_)) => expected.is_some().then(|| "not used since".to_owned()),
        (None, None) => None,
    };
    match (expected, saved) {
        (Some(expected), Some(saved)) => Some(format!("{expected}; {saved}")),
        (expected, saved) => expected.or(saved),
    }
}

fn show_cost(event: &HistoryReport) -> String {
    let ago = show_ago(event.wall_ns);
    if event.bytes == 0 && event.duration_ns == 0 {
        return format!(" ({ago})");
    }
    format!(
        " ({ago}; {} in {}, modelled {:.3} J)",
        show_bytes(event.bytes),
        show_ns(event.duration_ns),
        event.modelled_energy_j
    )
}

/// A migration in words: `move fast -> slow, copy, 1.00 MB of 4.00 MB: reason`.
pub(crate) fn show_move(moving: &MoveReport) -> String {
    let state = moving.outcome.as_deref().unwrap_or(&moving.state);
    let mut text = format!("{} {} -> {}, {state}", moving.kind, moving.from, moving.to);
    if moving.outcome.is_none() {
        let (copied, size) = (show_bytes(moving.copied_bytes), show_bytes(moving.size_bytes));
        text.push_str(&format!(", {copied} of {size}"));
    }
    for more in [&moving.detail, &moving.reason] {
        if !more.is_empty() {
            text.push_str(&format!(": {more}"));
        }
    }
    text
}

fn print_ledger(ledger: &LedgerReport, output: &mut Output) -> Result<()> {
    output.line("")?;
    if ledger.reads + ledger.writes == 0 {
        return output.line("since the store was opened: not read or written");
    }
    output.line(format!(
        "since the store was opened: {} ({}), {} ({})",
        count(ledger.reads, "read"),
        show_bytes(ledger.read_bytes),
        count(ledger.writes, "write"),
        show_bytes(ledger.written_bytes),
    ))?;
    output.line(format!(
        "  time in the device {}, waited for migrations {}, for locks and room {}, for durability {}",
        show_ns(ledger.device_ns),
        show_ns(ledger.migration_wait_ns),
        show_ns(ledger.guard_wait_ns),
        show_ns(ledger.sync_ns),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_and_measured_benefit_stand_side_by_side() {
        let shown = |expected_benefit_s, measured_benefit_s, accesses| {
            show_benefit(&HistoryReport {
                wall_ns: 0,
                by: "policy lru".into(),
                what: "promoted".into(),
                tier: "fast".into(),
                reason: String::new(),
                bytes: 0,
                duration_ns: 0,
                modelled_energy_j: 0.0,
                from: Some("slow".into()),
                expected_benefit_s,
                measured_benefit_s,
                accesses,
            })
        };
        for (given, expected) in [
            ((None, None, 0), None),
            ((None, Some(0.0), 0), None),
            ((Some(1.5), None, 0), Some("expected to save 1.500 s")),
            ((Some(1.5), Some(0.0), 0), Some("expected to save 1.500 s; not used since")),
            ((None, Some(-0.25), 1), Some("saved -0.250 s in 1 access, at the figures of slow")),
            (
                (Some(1.5), Some(2.0), 7),
                Some(
                    "expected to save 1.500 s; saved 2.000 s in 7 accesses, at the figures of slow",
                ),
            ),
            ((None, None, 7), Some("7 accesses since; slow has no figures")),
        ] {
            assert_eq!(shown(given.0, given.1, given.2).as_deref(), expected);
        }
    }
}
