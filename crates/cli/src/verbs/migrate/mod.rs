// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace migrate`.

mod moving;
mod plan;

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use terrace_core::{Error, ErrorKind};
use terrace_store::{MoveKind, MoveTicket, Store};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Failure, Failures, Result};
use crate::interrupt::Interrupt;
use crate::mounted;
use crate::output::{Output, count, show_name};
use crate::selection::for_each_key;
use moving::Moving;

/// The reason that `terrace explain` shows.
const REASON: &str = "terrace migrate";

/// Move objects to another tier
///
/// Moves the objects KEY to TIER while they can be read and written, waits until they are there,
/// and prints what was moved. An object that is there already is left as it is. Times of objects
/// do not change. The policy may move them again; `terrace pin` forbids that. An object that moves
/// already is moved afterwards.
///
/// Of several objects, those that can be moved are; the first failure decides the exit status.
/// Ctrl-C cancels the migrations that have not ended.
///
/// With -r the arguments are what `terrace ls` takes: NAMESPACE or NAMESPACE/PREFIX; or directories of a
/// mounted store. What others remove meanwhile is passed over.
#[derive(Args, Debug)]
pub(crate) struct Migrate {
    /// The objects, or files of a mounted store: /PATH, ./PATH
    #[arg(value_name = "KEY", required_unless_present_any = ["list", "cancel"])]
    named: Vec<OsString>,

    /// The keys of these.
    #[arg(skip)]
    keys: Vec<String>,

    /// The tier to move them to, by name
    #[arg(long, value_name = "TIER")]
    #[arg(required_unless_present_any = ["list", "cancel", "drop_copy"])]
    to: Option<String>,

    /// Keep the old location as a clean copy, so that moving back costs nothing
    #[arg(long, requires = "to")]
    promote: bool,

    /// Leave the object where it is and make a clean copy on TIER
    #[arg(long, requires = "to", conflicts_with = "promote")]
    copy: bool,

    /// Drop the clean copies on this tier instead of moving anything
    #[arg(long, value_name = "TIER", conflicts_with = "to")]
    drop_copy: Option<String>,

    /// Move everything in a namespace, under a prefix of it, or in a directory
    #[arg(short, long)]
    recursive: bool,

    /// Whether the keys were found by walking.
    #[arg(skip)]
    was_walked: bool,

    /// Print what would be moved, and move nothing
    #[arg(long, requires = "to")]
    dry_run: bool,

    /// Queue the migrations and return; needs a store that is held
    #[arg(long, requires = "to", conflicts_with = "dry_run")]
    no_wait: bool,

    /// Before migrations with a lower number, also those of the policy
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,

    /// List the migrations that wait, run, or have ended lately
    #[arg(long, conflicts_with_all = ["named", "to", "cancel", "drop_copy"])]
    list: bool,

    /// Cancel a migration by its number in --list, or `all`
    #[arg(long, value_name = "ID", conflicts_with_all = ["named", "to", "drop_copy"])]
    cancel: Option<String>,
}

impl Verb for Migrate {
    const NAME: &'static str = "migrate";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace migrate climate/t2m --to slow            move an object and wait
  terrace migrate -r runs/41/ --to slow --dry-run  what would be moved
  terrace migrate -r /mnt/files/old --to slow      files of a mounted store
  terrace migrate index/main --to fast --promote   keep the slow location as a copy
  terrace migrate -r runs --to slow --no-wait      while `terrace hold` runs
  terrace migrate --list                           what waits and runs
  terrace migrate --cancel all";

    fn run(mut self, context: &Context) -> Result<()> {
        if self.list {
            return list(context);
        }
        let meant = mounted::meant(context, &self.named);
        let selected = mounted::select(context, &meant, self.recursive)?;
        let context = &selected.context;
        self.keys = selected.keys;
        self.was_walked = self.recursive;
        self.recursive = selected.is_recursive;
        if let (Some(tier), false) = (&self.to, self.dry_run) {
            for path in &selected.small {
                // With that it gets an object, which is then waited for as all others are.
                let steered = mounted::steer(path, "tier", tier).and_then(|()| mounted::key(path));
                self.keys.extend(mounted::unless_gone(steered, self.was_walked)?.flatten());
            }
        }
        match (&self.cancel, &self.drop_copy, &self.to) {
            (Some(which), ..) => cancel(context, which),
            (_, Some(tier), _) => self.drop_copies(context, tier),
            (_, _, Some(tier)) if self.dry_run => {
                plan::print(context, &self.keys, self.recursive, tier)
            }
            (_, _, Some(tier)) => self.migrate(context, tier),
            _ => unreachable!("clap requires one of --to, --drop-copy, --list and --cancel"),
        }
    }
}

impl Migrate {
    fn kind(&self) -> MoveKind {
        match (self.promote, self.copy) {
            (true, _) => MoveKind::Promote,
            (_, true) => MoveKind::Copy,
            _ => MoveKind::Move,
        }
    }

    fn migrate(&self, context: &Context, tier: &str) -> Result<()> {
        let interrupt = Interrupt::watch()?;
        let mut failures = Failures::walking(context.is_json, self.was_walked);
        let kind = self.kind();
        context.with_store(|store| {
            if self.no_wait && !store.is_attached() {
                let reason = "nothing holds the store, so nobody would carry them out: \
                              start `terrace hold`, or leave --no-wait out";
                return Err(Error::invalid("queue migrations", reason).into());
            }
            let mut moving = Moving::new(context, store, &interrupt);
            let walked = for_each_key(
                store,
                &self.keys,
                self.recursive,
                &mut failures,
                &mut |failures, key| {
                    interrupt.check("")?;
                    let mut is_again = false;
                    let tickets = loop {
                        match store.admin().migrate(&key, tier, kind, self.priority, REASON) {
                            Err(error) if error.kind() == ErrorKind::Busy && !self.no_wait => {
                                // The policy, or another command, moves it just now.
                                if !moving.wait_for_others(&key)? && is_again {
                                    return Err(error.into());
                                }
                                is_again = true;
                            }
                            other => break other?,
                        }
                    };
                    if tickets.is_empty() {
                        moving.print_already(&key, tier)
                    } else if self.no_wait {
                        moving.print_queued(&key, &tickets)
                    } else {
                        moving.add(failures, tickets)
                    }
                },
            );
            let ended = match walked {
                Ok(()) => moving.wait_for_all(&mut failures),
                Err(end) => Err(end),
            };
            match ended {
                Err(Failure::Interrupted { signal, .. }) => {
                    let what = moving.cancel();
                    Err(Failure::Interrupted { signal, what })
                }
                other => other.and_then(|()| moving.finish()),
            }
        })?;
        failures.finish()
    }

    fn drop_copies(&self, context: &Context, tier: &str) -> Result<()> {
        let mut failures = Failures::walking(context.is_json, self.was_walked);
        let mut output = Output::new();
        context.with_store(|store| {
            for_each_key(store, &self.keys, self.recursive, &mut failures, &mut |_, key| {
                store.admin().drop_copy(&key, tier)?;
                if context.is_json {
                    output.json(&json!({ "key": key.as_str(), "dropped_copy_on": tier }))?;
                }
                Ok(())
            })
        })?;
        output.flush()?;
        failures.finish()
    }
}

fn list(context: &Context) -> Result<()> {
    let moves = context.with_store_for_reading(|store| Ok(store.admin().moves()?))?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "moves": moves }))?;
        return output.flush();
    }
    for report in &moves {
        let key = show_name(&report.key);
        let moving = super::explain::show_move(report);
        output.line(format!("{:>6}  {key} segment {}: {moving}", report.id, report.segment))?;
    }
    if moves.is_empty() {
        output.line("no migrations")?;
    }
    output.flush()
}

fn cancel(context: &Context, which: &str) -> Result<()> {
    let cancelled = context.with_store(|store| cancel_in(store, which))?;
    let mut output = Output::new();
    if context.is_json {
        output.json(&json!({ "cancelled": cancelled }))?;
    } else {
        output.line(format!("cancelled {}", count(cancelled, "migration")))?;
    }
    output.flush()
}

fn cancel_in(store: &Store, which: &str) -> Result<u64> {
    if which == "all" {
        return Ok(store.admin().cancel_all()? as u64);
    }
    let id: u64 = which.parse().map_err(|_| {
        Error::invalid("cancel a migration", "a number from --list, or `all`, is expected")
            .with("id", format!("{which:?}"))
    })?;
    store.admin().cancel(MoveTicket(id))?;
    Ok(1)
}

/// The error that stands for the outcome of a migration; `None` where the object is there.
fn error_of(report: &terrace_store::MoveReport) -> Option<Error> {
    let outcome = report.outcome.as_deref().unwrap_or("unknown");
    let (kind, reason) = match outcome {
        "done" | "already" | "dry-run" => return None,
        "stale" => (ErrorKind::NotFound, "the object is gone"),
        "pinned" => (ErrorKind::Denied, "the object is pinned"),
        "too-weak" => (ErrorKind::Unsupported, "the tier cannot keep what the object was promised"),
        "invalid" => (ErrorKind::Invalid, "there is nothing to do"),
        "busy" => (ErrorKind::Busy, "another migration of it waits or runs"),
        "hot-write" => (ErrorKind::Busy, "it was written without a pause"),
        "no-space" => (ErrorKind::NoSpace, "the tier is full"),
        "cancelled" => (ErrorKind::Stale, "the migration was cancelled"),
        _ => (ErrorKind::Io, "a tier failed"),
    };
    let error = Error::new(kind, "migrate").because(reason);
    let error = error.with("key", &report.key).with("segment", report.segment);
    let error = error.with("from", &report.from).with("to", &report.to);
    Some(if report.detail.is_empty() { error } else { error.with("detail", &report.detail) })
}
