// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace item`.

mod check;
mod look;
mod transfer;

use clap::{Args, Subcommand};
use serde_json::json;
use terrace_core::ErrorKind;
use terrace_items::{Collection, Items};
use terrace_store::Store;

use super::put::Keeping;
use super::{Group, Verb};
use crate::address;
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::output::Output;

/// Work on the items of collections
///
/// An item is named COLLECTION/ITEM: what is before the first slash is the collection, which
/// `terrace collection create` makes; the rest, 1 to 255 bytes of UTF-8, is the item and may hold
/// slashes. Its bytes are an object, which migrates as every other; `item stat` prints its key.
#[derive(Args, Debug)]
pub(crate) struct Item {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Store a file or standard input as an item
    ///
    /// An item that exists is replaced as a whole, as `terrace put` does with an object: a put that
    /// fails, is interrupted (Ctrl-C) or killed leaves the old content, or no item.
    #[command(after_long_help = "Examples:
  terrace item put climate/t2m t2m.nc          store a file
  tar c results | terrace item put runs/42.tar store a stream
  terrace item put --new runs/42.tar old.tar   only if there is none yet")]
    Put {
        /// COLLECTION/ITEM
        item: String,
        /// The file to store; `-` is standard input
        #[arg(default_value = "-")]
        file: String,
        /// Fail with status 6 if the item exists
        #[arg(long)]
        new: bool,
        #[command(flatten)]
        keeping: Keeping,
    },
    /// Write an item to a file or standard output
    ///
    /// FILE appears, or is replaced, when it is complete.
    #[command(after_long_help = "Examples:
  terrace item get climate/t2m t2m.nc          into a file
  terrace item get runs/42.tar | tar t         into a pipe")]
    Get {
        /// COLLECTION/ITEM
        item: String,
        /// The file to write; `-` is standard output
        #[arg(default_value = "-")]
        file: String,
    },
    /// List items in the order of their names
    #[command(after_long_help = "Examples:
  terrace item ls climate                      all items of a collection
  terrace item ls -l climate/t2m-              with size and time those that begin alike
  terrace item ls climate --json | jq -r .item")]
    Ls {
        /// What to list: a collection, or the items in it whose names begin with PREFIX
        #[arg(value_name = "COLLECTION[/PREFIX]")]
        range: String,
        /// Also print size and time of the last change (UTC)
        #[arg(short, long)]
        long: bool,
    },
    /// Show size, times and object of an item
    #[command(after_long_help = "Examples:
  terrace item stat climate/t2m
  terrace explain \"$(terrace item stat --json climate/t2m | jq -r .object)\"")]
    Stat {
        /// COLLECTION/ITEM
        item: String,
    },
    /// Remove items
    ///
    /// Status 3 where one does not exist, unless --force is given; the others are removed.
    #[command(after_long_help = "Examples:
  terrace item rm climate/t2m climate/pr
  terrace item rm -f runs/9                    no failure if it is gone already")]
    Rm {
        /// COLLECTION/ITEM
        #[arg(required = true, value_name = "ITEM")]
        items: Vec<String>,
        /// An item that does not exist is no failure
        #[arg(short, long)]
        force: bool,
    },
    /// Find, and with --repair remove, what interrupted commands left
    ///
    /// Compares records and objects of all collections. Prints what does not fit, one a line:
    /// `claim` (a name that cannot be used until the claim is removed), `object` (without an
    /// item), `record` (without an object), `lost` (of a collection that is gone); these --repair
    /// removes, `lost` only without bytes. `stranded` (an object of a collection that is gone),
    /// `damaged`, `hidden` and `foreign` it only shows. Status 1 where something is left.
    ///
    /// After `terrace restore` look first: items that are newer than the backup are shown as
    /// `object`, and --repair removes them.
    #[command(after_long_help = "Examples:
  terrace item check
  terrace item check --repair
  terrace item check --repair --older 0s       while nobody else works on items")]
    Check {
        /// Remove what is named `claim`, `object`, `record`, and `lost` without bytes
        #[arg(long)]
        repair: bool,
        /// Take only what is older than this for left; an operation may still be at work on what is younger
        #[arg(long, value_name = "DURATION", default_value = "1h")]
        older: String,
    },
}

impl Verb for Item {
    const NAME: &'static str = "item";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace item put climate/t2m t2m.nc
  terrace item get climate/t2m t2m.nc
  terrace item ls -l climate
  terrace item rm climate/t2m
  terrace item check --repair";

    fn run(self, context: &Context) -> Result<()> {
        match self.action {
            Action::Put { item, file, new, keeping } => {
                transfer::put(context, &item, &file, &keeping.content(new)?)
            }
            Action::Get { item, file } => transfer::get(context, &item, &file),
            Action::Ls { range, long } => look::list(context, &range, long),
            Action::Stat { item } => look::stat(context, &item),
            Action::Rm { items, force } => remove(context, &items, force),
            Action::Check { repair, older } => check::run(context, repair, &older),
        }
    }
}

/// The collection and the name of an item that the command line names.
fn find(store: &Store, item: &str) -> Result<(Collection, String)> {
    let (collection, name) = address::item(item)?;
    Ok((Items::new(store).open(&collection)?, name))
}

fn remove(context: &Context, items: &[String], is_forced: bool) -> Result<()> {
    let mut failures = Failures::new(context.is_json);
    let mut output = Output::new();
    context.with_store(|store| {
        for item in items {
            if failures.note(remove_one(store, item, is_forced))? == Some(true) && context.is_json {
                output.json(&json!({ "item": item }))?;
            }
        }
        Ok(())
    })?;
    output.flush()?;
    failures.finish()
}

/// Removes an item; false where there was none and that is no failure.
fn remove_one(store: &Store, item: &str, is_forced: bool) -> Result<bool> {
    let removed = find(store, item).and_then(|(collection, name)| Ok(collection.delete(&name)?));
    match removed {
        Err(failure) if is_forced && failure.kind() == Some(ErrorKind::NotFound) => Ok(false),
        other => other.map(|()| true),
    }
}
