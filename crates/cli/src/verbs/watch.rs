// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace watch`.

use clap::Args;
use terrace_core::units::{show_bytes, show_ns};
use terrace_core::{Access, Applied, Error, ErrorKind};
use terrace_store::{
    EventNotice, Happening, MigrationNotice, Notice, NoticeKind, Seen, WatchFilter,
};

use super::{Group, Verb};
use crate::address;
use crate::context::{Context, alone};
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::mounted;
use crate::output::{Output, count, show_name};
use crate::time::show_wall;

/// Show what happens in a store, as it happens
///
/// Prints migrations (queued, started, how far they are, how they ended and what that cost), changes of
/// tiers and of the policy, and what scrubs find, until SIGINT (Ctrl-C) or --count notices. The store
/// must be held: by `terrace hold`, `terrace serve` or an application, on this machine or behind a
/// server.
///
/// Notices have numbers. Where this command is read too slowly, the oldest that wait are thrown away, and
/// it says how many; the store never waits for it.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Only what is about objects of this namespace, and names that begin so
    ///
    /// What is about no object, as tiers and the policy, is shown in any case.
    #[arg(value_name = "NAMESPACE[/PREFIX]")]
    range: Option<String>,

    /// Only these kinds: `migration`, `tier`, `policy`, `scrub`, `events`; several with commas
    ///
    /// `events` are what applications do, in batches as the policy sees them; they are many, and
    /// only shown where they are asked for.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,

    /// End after so many notices
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Verb for Watch {
    const NAME: &'static str = "watch";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace watch                          everything but what applications do
  terrace watch run --kind migration     what moves in the namespace run
  terrace watch --kind events,policy     what the policy sees, and what becomes of it
  terrace watch --json --count 10        ten notices for a program";

    fn run(self, context: &Context) -> Result<()> {
        if let Some(range) = &self.range {
            mounted::refuse_namespace(context, range)?;
        }
        let filter = self.filter()?;
        let interrupt = Interrupt::watch()?;
        context.with_options(alone(Access::Read), |store| {
            if !store.is_attached() {
                return Err(Error::new(
                    ErrorKind::Unreachable { applied: Applied::No },
                    "watch the store",
                )
                .because("no process holds it, so that nothing happens in it; `terrace hold` does")
                .into());
            }
            let mut output = Output::new();
            let mut left = self.count.unwrap_or(u64::MAX);
            let mut shown = Ok(());
            store.admin().watch(&filter, &mut |seen| {
                if let Seen::Notice(notice) = seen {
                    shown = show(&notice, context.is_json, &mut output);
                    left -= 1;
                }
                shown.is_ok() && left > 0 && !interrupt.is_set()
            })?;
            shown
        })
    }
}

impl Watch {
    fn filter(&self) -> Result<WatchFilter> {
        let mut filter = WatchFilter::default();
        if !self.kind.is_empty() {
            let kinds = self.kind.iter().map(|kind| kind.parse::<NoticeKind>());
            filter.kinds = kinds.collect::<std::result::Result<_, _>>()?;
        }
        if let Some(range) = &self.range {
            let range = address::range(range)?;
            (filter.namespace, filter.prefix) = (Some(range.namespace), range.prefix);
        }
        Ok(filter)
    }
}

fn show(notice: &Notice, is_json: bool, output: &mut Output) -> Result<()> {
    if is_json {
        output.json(notice)?;
    } else {
        let time = show_wall(notice.wall_ns);
        match &notice.what {
            Happening::Events(events) => {
                for event in &events.events {
                    output.line(format!("{}  {}", show_wall(event.wall_ns), event_line(event)))?;
                }
            }
            what => output.line(format!("{time}  {}", line(what)))?,
        }
    }
    // The reader is to see it now.
    output.flush()
}

fn line(what: &Happening) -> String {
    match what {
        Happening::Migration(migration) => migration_line(migration),
        Happening::Tier(tier) => format!("tier {} {}", show_name(&tier.tier), tier.state),
        Happening::Policy(policy) => {
            let detail = show_name(&policy.detail);
            format!("policy {}: {} {detail}", show_name(&policy.name), policy.change)
        }
        Happening::Scrub(scrub) => {
            let word = if scrub.is_mended { "mended" } else { "problem" };
            let found = &scrub.finding;
            let (place, detail) = (show_name(&found.place), show_name(&found.detail));
            format!("scrub {word}: {} {place}: {detail}", found.kind)
        }
        Happening::Events(events) => count(events.events.len() as u64, "event"),
        Happening::Lost { count } => {
            format!("lost: {} came faster than they were read", self::count(*count, "notice"))
        }
    }
}

fn migration_line(one: &MigrationNotice) -> String {
    let (key, size) = (show_name(&one.key), show_bytes(one.size_bytes));
    let mut text = format!(
        "migration {} {}: {key} segment {}, {} {} -> {}",
        one.id, one.state, one.segment, one.action, one.from, one.to
    );
    match (&one.outcome, one.duration_ns, one.modelled_energy_j) {
        (Some(outcome), Some(took_ns), Some(energy_j)) => {
            let (bytes, took) = (show_bytes(one.copied_bytes), show_ns(took_ns));
            text += &format!(", {outcome}, {bytes} in {took}, modelled {energy_j:.3} J");
            if !one.detail.is_empty() {
                text += &format!(": {}", show_name(&one.detail));
            }
        }
        _ if one.state == "queued" => {
            text += &format!(", {size}, by {}", show_name(&one.by));
            if !one.reason.is_empty() {
                text += &format!(": {}", show_name(&one.reason));
            }
        }
        _ => text += &format!(", {} of {size}", show_bytes(one.copied_bytes)),
    }
    text
}

fn event_line(event: &EventNotice) -> String {
    format!(
        "event {} {} segment {} on {}, {} times, {} from {}, {}, {}",
        event.event,
        show_name(&event.key),
        event.segment,
        event.tier,
        event.count,
        show_bytes(event.length_bytes),
        show_bytes(event.offset_bytes),
        show_ns(event.latency_ns),
        event.outcome,
    )
}
