// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace rm`.

use clap::Args;
use serde_json::json;
use terrace_core::{Backend, ErrorKind, Key, Open};
use terrace_store::Store;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::interrupt::Interrupt;
use crate::mounted;
use crate::output::{Output, show_name};
use crate::progress::Progress;
use crate::selection::for_each_key;

/// Remove objects
///
/// Removes objects on whatever tiers they are, pinned ones included. There is no undo, but for objects on a
/// tier with `keep_deleted`, which `terrace undelete` brings back for a time. Of several
/// objects, those that can be removed are; the first failure decides the exit status.
///
/// With -r the arguments are what `terrace ls` takes: NAMESPACE or NAMESPACE/PREFIX, where PREFIX
/// is plain text (`run/4` covers `run/41` too; end it with a slash to mean a directory).
#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// The objects
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,

    /// Remove everything in a namespace, or under a prefix of it
    #[arg(short, long)]
    recursive: bool,

    /// An object that does not exist is no failure
    #[arg(short, long)]
    force: bool,

    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

impl Verb for Remove {
    const NAME: &'static str = "rm";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace rm climate/t2m climate/pr     two objects
  terrace rm -r --dry-run runs/41/      what is under runs/41/
  terrace rm -r runs/41/                remove it
  terrace rm -f locks/job-7             no failure if it is gone already";

    fn run(self, context: &Context) -> Result<()> {
        let interrupt = Interrupt::watch()?;
        for key in &self.keys {
            mounted::refuse(context, key, "rm(1) removes it")?;
        }
        let mut failures = Failures::new(context.is_json);
        let mut output = Output::new();
        let mut removed: u64 = 0;
        let mut progress = Progress::items("rm", None);
        let recursive = self.recursive;
        let walk = |store: &Store| {
            for_each_key(store, &self.keys, recursive, &mut failures, &mut |_, key| {
                interrupt.check(&format!("{removed} objects were removed"))?;
                if self.dry_run {
                    store.stat(&key)?;
                    check_whole(store, &key)?;
                } else {
                    match check_whole(store, &key).and_then(|()| store.delete(&key)) {
                        Err(error) if error.kind() == ErrorKind::NotFound && self.force => {
                            return Ok(());
                        }
                        other => other?,
                    }
                    removed += 1;
                    progress.advance(1);
                }
                match (context.is_json, self.dry_run) {
                    (true, _) => output.json(&json!({ "key": key.as_str() })),
                    (false, true) => output.line(show_name(key.as_str())),
                    (false, false) => Ok(()),
                }
            })
        };
        if self.dry_run {
            context.with_store_for_reading(walk)?;
        } else {
            context.with_store(walk)?;
        }
        output.flush()?;
        failures.finish()
    }
}

/// Refuses what is a part of an object over several servers: the rest of it would be left behind.
fn check_whole(store: &Store, key: &Key) -> terrace_core::Result<()> {
    // What is damaged, or on a tier that is missing, can be removed all the same.
    if store.stat(key).is_ok_and(|stat| stat.is_labelled)
        && let Err(error) = store.open(key, &Open::read())
        && error.kind() == ErrorKind::Unsupported
    {
        return Err(error);
    }
    Ok(())
}
