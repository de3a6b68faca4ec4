// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace collection`.

use clap::{Args, Subcommand};
use serde_json::json;
use terrace_core::{Cursor, ErrorKind, Persistency};
use terrace_items::{Contents, Items};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::interrupt::Interrupt;
use crate::output::{Output, show_name};
use crate::selection::PAGE_KEYS;

/// Make, list and remove collections of items
///
/// A collection is a flat set of items, each with a name that is its own in it; `terrace item`
/// works on those. A collection's name has 1 to 64 bytes of UTF-8 without `/`. Collections and
/// items are made of ordinary objects and pairs in the namespace `terrace.items`.
#[derive(Args, Debug)]
pub(crate) struct Collections {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make empty collections
    ///
    /// Status 6 where one exists. Of several that make the same at the same time one succeeds.
    #[command(after_long_help = "Examples:
  terrace collection create climate
  terrace collection create runs logs --persistency storage")]
    Create {
        /// Their names
        #[arg(required = true, value_name = "COLLECTION")]
        names: Vec<String>,
        /// What they survive: `none` nothing, `process` a crash of the process, `storage` a loss
        /// of power
        #[arg(long, value_name = "LEVEL", default_value = "process")]
        #[arg(value_parser = ["none", "process", "storage", "shared"])]
        persistency: String,
    },
    /// List collections in the order of their names
    #[command(after_long_help = "Examples:
  terrace collection ls
  terrace collection ls run-            those whose names begin alike
  terrace collection ls --json | jq -r .collection")]
    Ls {
        /// What their names begin with
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
    },
    /// Remove collections
    ///
    /// Status 2 where one has items, unless -r is given. With -r the items go first, one by one;
    /// interrupted, it leaves the collection with the others.
    #[command(after_long_help = "Examples:
  terrace collection rm climate
  terrace collection rm -r runs logs    with all their items
  terrace collection rm -f gone         no failure if it is gone already")]
    Rm {
        /// Their names
        #[arg(required = true, value_name = "COLLECTION")]
        names: Vec<String>,
        /// Remove their items, too
        #[arg(short, long)]
        recursive: bool,
        /// A collection that does not exist is no failure
        #[arg(short, long)]
        force: bool,
    },
}

impl Verb for Collections {
    const NAME: &'static str = "collection";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace collection create climate
  terrace collection ls
  terrace collection rm -r climate";

    fn run(self, context: &Context) -> Result<()> {
        match self.action {
            Action::Create { names, persistency } => create(context, &names, &persistency),
            Action::Ls { prefix } => list(context, &prefix),
            Action::Rm { names, recursive, force } => remove(
                context,
                &names,
                if recursive { Contents::Delete } else { Contents::Keep },
                force,
            ),
        }
    }
}

fn create(context: &Context, names: &[String], persistency: &str) -> Result<()> {
    let persistency: Persistency = persistency.parse()?;
    let mut failures = Failures::new(context.is_json);
    let mut output = Output::new();
    context.with_store(|store| {
        let items = Items::new(store);
        for name in names {
            let made = items.create(name, persistency).map_err(Into::into);
            if failures.note(made)?.is_some() && context.is_json {
                output.json(&json!({ "collection": name }))?;
            }
        }
        Ok(())
    })?;
    output.flush()?;
    failures.finish()
}

fn list(context: &Context, prefix: &str) -> Result<()> {
    let mut output = Output::new();
    context.with_store_for_reading(|store| {
        let items = Items::new(store);
        let mut cursor = Cursor::start();
        loop {
            let page = items.list(prefix, &cursor, PAGE_KEYS)?;
            for name in &page.names {
                match context.is_json {
                    true => output.json(&json!({ "collection": name }))?,
                    false => output.line(show_name(name))?,
                }
            }
            output.flush()?;
            match page.next {
                Some(next) => cursor = next,
                None => return Ok(()),
            }
        }
    })
}

fn remove(context: &Context, names: &[String], contents: Contents, is_forced: bool) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    let mut failures = Failures::new(context.is_json);
    let mut output = Output::new();
    context.with_store(|store| {
        let items = Items::new(store);
        for name in names {
            let removed = remove_one(&items, name, contents, is_forced, &interrupt);
            if failures.note(removed)? == Some(true) && context.is_json {
                output.json(&json!({ "collection": name }))?;
            }
        }
        Ok(())
    })?;
    output.flush()?;
    failures.finish()
}

/// Removes a collection; false where there was none and that is no failure.
fn remove_one(
    items: &Items,
    name: &str,
    contents: Contents,
    is_forced: bool,
    interrupt: &Interrupt,
) -> Result<bool> {
    let removed = || -> Result<()> {
        if contents == Contents::Delete {
            empty(items, name, interrupt)?;
        }
        Ok(items.delete(name, contents)?)
    };
    match removed() {
        Err(failure) if is_forced && failure.kind() == Some(ErrorKind::NotFound) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Removes items while other callers may still make some, so that it can be interrupted; those that
/// are made meanwhile go with the collection.
fn empty(items: &Items, name: &str, interrupt: &Interrupt) -> Result<()> {
    let collection = items.open(name)?;
    let mut cursor = Cursor::start();
    let mut removed: u64 = 0;
    loop {
        let page = collection.list("", &cursor, PAGE_KEYS)?;
        for item in &page.names {
            interrupt.check(&format!("{removed} items were removed"))?;
            match collection.delete(item) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => other?,
            }
            removed += 1;
        }
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(()),
        }
    }
}
