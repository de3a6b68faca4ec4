// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace tiers`.

mod change;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;

/// Show the tiers, and add, drain, remove or replace them
///
/// Without a subcommand prints the tiers in their order of preference. `used` are objects, `copies`
/// clean copies (they make room by themselves), `reserved` is promised to growing objects and
/// running migrations, `garbage` waits to be deleted, `kept` are superseded and deleted objects that the tier
/// keeps for a time (`keep_deleted`). `fill` is the share of the capacity that all
/// of them take.
///
/// --long adds the figures from the configuration, what was done since the store was opened, and
/// what a drain cannot move. Energy is modelled from the configured watts, not measured.
///
/// The subcommands change the tiers of a store while it is in use, and terrace.toml with them.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Tiers {
    /// Also print figures, work done, modelled energy, and what a drain cannot move
    #[arg(short, long)]
    long: bool,

    /// Write the figures into a file for node_exporter instead, replaced as a whole
    #[arg(long, value_name = "FILE", conflicts_with = "long")]
    textfile: Option<PathBuf>,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add an empty tier
    ///
    /// The directory is made if it is missing; one in which something is already is refused, but
    /// for that of a tier that was removed. The tier is used at once, as the least preferred one;
    /// its place among the others (--before, or the last) holds from the next opening on. The
    /// policy takes over what it knew.
    ///
    /// A store with one tier and no policy uses the new tier from its next opening on.
    #[command(after_long_help = "Examples:
  terrace tiers add nvme2=/nvme2/t,capacity=200GB,latency=80us --before slow     as in `init --tier`
  terrace tiers add nvme2 --path /nvme2/t --capacity 200GB --latency 80us --before slow
  terrace tiers add ram --backend memory --capacity 4GB
  terrace tiers add sim --path ./sim --setting throttle.latency=50ms")]
    Add(change::Add),
    /// Empty a tier: nothing new is put there, and what it holds moves to the others
    ///
    /// Clean copies are dropped; objects move to the next less preferred tier with room that keeps
    /// what they were promised, else to a more preferred one. Pinned objects move, too, and stay
    /// pinned where they are then. The store stays in use meanwhile.
    ///
    /// A drain goes on whenever the store is open, over restarts, until it is cancelled or the tier
    /// is removed. `terrace tiers --long` lists what cannot move and why; it is tried again now and
    /// then.
    #[command(after_long_help = "Examples:
  terrace tiers drain old --wait        until it is empty, with progress
  terrace tiers drain old               in the background of `terrace hold`
  terrace tiers drain old --cancel      what has moved stays where it is now")]
    Drain(change::Drain),
    /// Remove a tier that holds nothing
    ///
    /// Drain it first. Versions that it keeps of superseded and deleted objects are deleted with it.
    /// Its directory stays, marked as free; what holds the store keeps it open
    /// until it ends, so that a file system can be unmounted only then.
    #[command(after_long_help = "Examples:
  terrace tiers remove old")]
    Remove {
        /// The tier
        name: String,
    },
    /// Replace a tier by another: add the new one, drain the old one, remove it
    ///
    /// The new tier takes the place of the old one from the next opening on. A replacement that is
    /// interrupted goes on when the same command is given again.
    #[command(after_long_help = "Examples:
  terrace tiers replace old new --path /new/t --capacity 8TB --bandwidth 200MB/s")]
    Replace(change::Replace),
}

impl Verb for Tiers {
    const NAME: &'static str = "tiers";
    const GROUP: Group = Group::Placement;
    const EXAMPLES: &'static str = "
  terrace tiers
  terrace tiers --long
  terrace tiers --json | jq '.tiers[] | {name, used_bytes}'
  terrace tiers --textfile /var/lib/prometheus/node-exporter/terrace.prom
  terrace tiers add nvme2 --path /nvme2/t --capacity 200GB
  terrace tiers drain old --wait && terrace tiers remove old";

    fn run(self, context: &Context) -> Result<()> {
        match self.action {
            None => match self.textfile {
                Some(file) => show::write_textfile(context, &file),
                None => show::list(context, self.long),
            },
            Some(Action::Add(add)) => add.run(context),
            Some(Action::Drain(drain)) => drain.run(context),
            Some(Action::Remove { name }) => change::remove(context, &name),
            Some(Action::Replace(replace)) => replace.run(context),
        }
    }
}
