// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace explain`.

use clap::Args;
use terrace_core::units::{show_bytes, show_ns};
use terrace_core::{Error, ErrorKind};
use terrace_store::{Explanation, HistoryReport, LedgerReport, MoveReport, SegmentReport};

use super::{Group, Verb};
use crate::address;
use crate::context::Context;
use crate::failure::Result;
use crate::mounted;
use crate::output::{Output, count, show_name};
use crate::time::{show_ago, show_wall};

/// Show where an object is, and why
///
/// Prints the segments of an object with their tiers and clean copies, every decision that was
/// made about it – who made it, when, for what reason, and what it cost – and where the time of
/// its reads and writes went since the store was opened. Most objects have one segment.
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The object: NAMESPACE/NAME, or NAME in the namespace `default`; or a file of a mounted
    /// store: /PATH, ./PATH
    key: String,
}

impl Verb for Explain {
    const NAME: &'static str = "explain";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace explain climate/t2m
  terrace explain /mnt/files/results.h5        a file of a mounted store
  terrace explain --json climate/t2m | jq '.segments[].tier'";

    fn run(self, context: &Context) -> Result<()> {
        let named = mounted::file(&self.key)?;
        let selected = mounted::select(context, std::slice::from_ref(&named), false)?;
        let Some(key) = selected.keys.first() else {
            return Err(Error::new(ErrorKind::NotFound, "explain a file")
                .because("it is on no tier: its bytes are kept with the metadata")
                .with("path", &self.key)
                .into());
        };
        let context = &selected.context;
        let key = address::key(key)?;
        let found = context.with_store_for_reading(|store| Ok(store.explain(&key)?));
        let explanation = found.map_err(|failure| failure.about(&key))?;
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
    output.line(format!("{which}on {}{copies}", segment.tier))?;
    output.line(format!("  stored as {}", show_name(&segment.stored_as)))?;
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
        "left" => "somebody can still write to its file past the store",
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
    ))
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
