// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace policy shadow`.

use clap::Args;
use terrace_core::units::show_bytes;
use terrace_core::{Error, ErrorKind};
use terrace_store::{PolicySource, ShadowReport, ShadowSide};

use super::{assignments, show};
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, count, show_name};
use crate::table::Table;
use crate::time::show_wall;

const OPERATION: &str = "let a policy decide in the shadow";

/// Decisions that are shown; `--json` has all that are kept.
const DECISIONS_SHOWN: usize = 10;

#[derive(Args, Debug)]
pub(super) struct Shadow {
    /// The name of a built-in policy, or the path of a Python file or library with a / or . in it,
    /// then parameters NAME=VALUE; without it: show how the one in the shadow does
    #[arg(value_name = "NAME")]
    words: Vec<String>,
    /// End the policy in the shadow, after showing how it did
    #[arg(long, conflicts_with = "words")]
    end: bool,
}

impl Shadow {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Some((name, parameters)) = self.words.split_first() else {
            return self.show(context);
        };
        let parameters = assignments(parameters)?;
        let report = context.with_store(|store| {
            if !store.is_attached() {
                let reason = "no process holds or serves the store, so that it would end at once";
                return Err(Error::new(ErrorKind::Unsupported, OPERATION).because(reason).into());
            }
            store.admin().set_shadow(&PolicySource::named(name), &parameters)?;
            Ok(store.admin().shadow()?)
        })?;
        let mut output = Output::new();
        match (context.is_json, report) {
            (true, report) => output.json(&report)?,
            (false, Some(report)) => {
                output.line(format!(
                    "policy {} decides in the shadow; nothing of it is carried out",
                    show_name(&report.name)
                ))?;
                output.line(
                    "`terrace policy shadow` shows how it does, for as long as the store is held",
                )?;
            }
            (false, None) => {}
        }
        output.flush()
    }

    fn show(self, context: &Context) -> Result<()> {
        let (report, decides) = context.with_store(|store| {
            let report = store.admin().shadow()?;
            let decides = store.admin().policy()?;
            if self.end {
                store.admin().end_shadow()?;
            }
            Ok((report, decides))
        })?;
        let report = report.ok_or_else(|| {
            let reason = "there is none: begin one with `terrace policy shadow NAME`, while the \
                          store is held or served";
            Error::invalid("show the policy in the shadow", reason)
        })?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&report)?;
            return output.flush();
        }
        let decides = decides.map_or_else(|| "no policy".into(), |policy| policy.name);
        print(&report, &decides, &mut output)?;
        output.flush()
    }
}

fn print(report: &ShadowReport, decides: &str, output: &mut Output) -> Result<()> {
    output.line(format!(
        "policy {} in the shadow of {} since {}: {}, {}, {}",
        show_name(&report.name),
        show_name(decides),
        show_wall(report.since_wall_ns),
        count(report.rounds, "call"),
        count(report.events, "event"),
        count(report.actions, "action"),
    ))?;
    if let Some(why) = &report.ended {
        output.line(format!("it decides no longer: {}", show_name(why)))?;
    }
    if !report.outcomes.is_empty() {
        let words = show::words(&report.outcomes);
        output.line(format!("its actions would have ended: {words}"))?;
    }
    output.line("")?;
    let mut table = Table::new(&[1, 2, 3, 4]);
    table.heading(["", "time on tiers", "moves", "moved", "from the first tier"]);
    for (name, side) in [(decides, &report.actual), (&report.name, &report.shadow)] {
        table.row([
            show_name(name),
            format!("{:.3} s", side.foreground_s),
            side.moves.to_string(),
            show_bytes(side.moved_bytes),
            first_share(side),
        ]);
    }
    table.lines().into_iter().try_for_each(|line| output.line(line))?;
    output.line(verdict(report))?;
    let latest = report.decisions.len().saturating_sub(DECISIONS_SHOWN);
    if !report.decisions.is_empty() {
        output.line("")?;
        output.line("its latest decisions:")?;
    }
    show::print_decisions(&report.decisions[latest..], output)
}

/// How much of what was read and written the first tier served.
fn first_share(side: &ShadowSide) -> String {
    let all: u64 = side.tiers.iter().map(|tier| tier.bytes).sum();
    match (side.tiers.first(), all) {
        (Some(first), 1..) => format!("{:.1} %", first.bytes as f64 / all as f64 * 100.0),
        _ => "–".into(),
    }
}

/// What the shadow would have saved, as far as the figures of the tiers tell.
fn verdict(report: &ShadowReport) -> String {
    let (actual_s, shadow_s) = (report.actual.foreground_s, report.shadow.foreground_s);
    if actual_s == 0.0 {
        return "nothing was read or written on tiers that have figures for their speed".into();
    }
    let change = (shadow_s / actual_s - 1.0) * 100.0;
    format!("by the figures of the tiers the shadow needs {change:+.1} % of the time")
}
