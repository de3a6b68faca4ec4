// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `terrace policy` prints.

use serde_json::json;
use terrace_core::PostEvents;
use terrace_core::units::show_ns;
use terrace_policies::POLICIES;
use terrace_store::{DecisionReport, PolicyReport};

use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, count, show_name};
use crate::table::Table;
use crate::time::show_wall;

/// The built-in policies.
pub(super) fn list(context: &Context) -> Result<()> {
    let mut output = Output::new();
    if context.is_json {
        let policies: Vec<_> = POLICIES
            .iter()
            .map(|policy| json!({ "name": policy.name, "description": policy.summary }))
            .collect();
        output.json(&json!({ "policies": policies }))?;
    } else {
        let mut table = Table::new(&[]);
        for policy in POLICIES {
            table.row([policy.name.into(), policy.summary.into()]);
        }
        print(&table, &mut output)?;
    }
    output.flush()
}

/// Everything about the policy.
pub(super) fn report(context: &Context, report: &PolicyReport) -> Result<()> {
    let mut output = Output::new();
    if context.is_json {
        output.json(report)?;
        return output.flush();
    }
    print_head(report, &mut output)?;
    print_counts(report, &mut output)?;
    print_parameters(report, &mut output)?;
    if !report.decisions.is_empty() {
        output.line("")?;
        output.line("latest decisions:")?;
        print_decisions(&report.decisions, &mut output)?;
    }
    output.flush()
}

/// The policy and its parameters.
pub(super) fn parameters(context: &Context, report: &PolicyReport) -> Result<()> {
    let mut output = Output::new();
    if context.is_json {
        output.json(report)?;
    } else {
        print_head(report, &mut output)?;
        print_parameters(report, &mut output)?;
    }
    output.flush()
}

/// The decisions that were made between two reports.
pub(super) fn decisions_since(
    context: &Context,
    before: &PolicyReport,
    after: &PolicyReport,
) -> Result<()> {
    let made = count_since(before, after);
    let kept = made_since(before, after);
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "actions": made, "decisions": kept }))?;
        return output.flush();
    }
    if before.name != after.name {
        print_head(after, &mut output)?;
    }
    print_decisions(kept, &mut output)?;
    output.line(match (made, kept.len()) {
        (0, _) => "the policy asks for nothing".to_string(),
        (made, kept) if kept < made => format!("{made} actions, the last {kept} are shown"),
        (made, _) => count(made as u64, "action"),
    })?;
    output.flush()
}

/// That a policy runs for as long as this command does.
pub(super) fn begins(context: &Context, report: &PolicyReport, output: &mut Output) -> Result<()> {
    if context.is_json {
        return output.json(&json!({ "policy": report.name, "parameters": report.parameters }));
    }
    print_head(report, output)?;
    output.line("Ctrl-C ends it; the configured policy then decides again")
}

/// The decisions that were made between two reports, a line each.
pub(super) fn decisions_live(
    context: &Context,
    before: &PolicyReport,
    after: &PolicyReport,
    output: &mut Output,
) -> Result<()> {
    for decision in made_since(before, after) {
        match context.is_json {
            true => output.json(decision)?,
            false => output.line(format!(
                "{}  {}  {}: {}",
                show_wall(decision.wall_ns),
                show_name(&decision.key),
                decision.what,
                decision.reason
            ))?,
        }
    }
    Ok(())
}

/// What came of a policy that ran for as long as this command.
pub(super) fn ends(context: &Context, report: &PolicyReport, output: &mut Output) -> Result<()> {
    if context.is_json {
        let outcomes: serde_json::Map<_, _> =
            report.outcomes.iter().map(|(word, number)| (word.clone(), (*number).into())).collect();
        return output.json(&json!({
            "rounds": report.rounds,
            "events": report.events,
            "actions": report.actions,
            "outcomes": outcomes,
        }));
    }
    print_counts(report, output)
}

/// The decisions between two reports, as far as the later one has them.
fn made_since<'a>(before: &PolicyReport, after: &'a PolicyReport) -> &'a [DecisionReport] {
    let made = count_since(before, after);
    &after.decisions[after.decisions.len().saturating_sub(made)..]
}

/// How many there were; those of the policy before are not counted on.
fn count_since(before: &PolicyReport, after: &PolicyReport) -> usize {
    let counted = if before.name == after.name { before.actions } else { 0 };
    after.actions.saturating_sub(counted) as usize
}

fn print_counts(report: &PolicyReport, output: &mut Output) -> Result<()> {
    output.line(format!(
        "{}, {} ({} summed up), {}",
        count(report.rounds, "call"),
        count(report.events, "event"),
        report.coalesced_events,
        count(report.actions, "action"),
    ))?;
    if report.outcomes.is_empty() {
        return Ok(());
    }
    output.line(format!("actions ended: {}", words(&report.outcomes)))
}

/// How many actions ended how.
pub(super) fn words(outcomes: &[(String, u64)]) -> String {
    let words: Vec<_> = outcomes.iter().map(|(word, number)| format!("{number} {word}")).collect();
    words.join(", ")
}

fn print_head(report: &PolicyReport, output: &mut Output) -> Result<()> {
    let dry = if report.is_dry_run { ", dry run: decisions are not carried out" } else { "" };
    let name = show_name(&report.name);
    let every = show_ns(report.every_ns);
    let after = count(report.after_events, "event");
    let ahead = match report.post_events == PostEvents::Before.word() {
        true => ", events posted before the I/O",
        false => "",
    };
    output.line(format!("policy {name}, called after {after} and every {every}{ahead}{dry}"))?;
    match &report.replaced {
        Some(replaced) => output.line(format!("took over: {}", show_name(replaced))),
        None => Ok(()),
    }
}

fn print_parameters(report: &PolicyReport, output: &mut Output) -> Result<()> {
    if report.parameters.is_empty() {
        return output.line("no parameters");
    }
    output.line("")?;
    output.line("parameters:")?;
    let mut table = Table::new(&[]);
    for parameter in &report.parameters {
        table.row([
            format!("  {}", parameter.name),
            show_value(&parameter.value),
            parameter.description.clone(),
        ]);
    }
    print(&table, output)
}

/// A value, in one line; `--json` has all of one that has more.
fn show_value(value: &str) -> String {
    match value.lines().count() {
        0 | 1 => value.into(),
        lines => format!("({lines} lines)"),
    }
}

pub(super) fn print_decisions(decisions: &[DecisionReport], output: &mut Output) -> Result<()> {
    let mut table = Table::new(&[]);
    for decision in decisions {
        table.row([
            format!("  {}", show_wall(decision.wall_ns)),
            show_name(&decision.key),
            decision.what.clone(),
            decision.outcome.clone(),
            decision.reason.clone(),
        ]);
    }
    print(&table, output)
}

fn print(table: &Table, output: &mut Output) -> Result<()> {
    table.lines().into_iter().try_for_each(|line| output.line(line))
}
