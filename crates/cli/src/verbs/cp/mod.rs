// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace cp`.

mod names;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use terrace_core::{Error, Key};
use terrace_store::Store;
use terrace_transfer::streams::{
    LocalSource, LocalTarget, NewContent, Source, Stdout, StoredSource, Transfer,
};

use super::put::Keeping;
use super::{Group, Verb};
use crate::address::{self, Place};
use crate::context::Context;
use crate::failure::{Failures, Result};
use crate::interrupt::Interrupt;
use crate::mounted;
use crate::output::Output;

/// Copy between files and objects, or between objects
///
/// A leading colon means the store: `:climate/t2m` is an object, everything else is a local path
/// (`./:x` for a file whose name begins with a colon), and `-` is standard input or output. At
/// least one side must be in the store.
///
/// Where the target is a local directory, or `:NAMESPACE/` or a prefix that ends with a slash, the
/// copy gets the last part of the source's name there.
///
/// With -r a source in the store is `:NAMESPACE` or `:NAMESPACE/PREFIX` as `terrace ls` takes it.
/// Names keep what follows the last slash of PREFIX: `cp -r :runs/41/ out` makes out/a of
/// runs/41/a, and `cp -r :runs/41 out` makes out/41/a. A local directory is copied with the paths
/// of the files inside it: `cp -r results :runs/42` makes runs/42/a of results/a. Symbolic links
/// and special files are left out with a note. Objects whose names cannot be a path inside the
/// target directory (an empty part, `.` or `..`) are refused, and the others are copied.
///
/// Targets that exist are replaced. Files in the directory of a store, of its catalog and of a tier are
/// refused. Each copy fails or is interrupted as `terrace put` and
/// `terrace get` say: nothing half is left. Of several, those that can be copied are; the first
/// failure decides the exit status.
#[derive(Args, Debug)]
pub(crate) struct Copy {
    /// What to copy: a path, `-`, or `:KEY`
    source: String,

    /// Where to: a path, `-`, or `:KEY`
    target: String,

    /// Copy everything in a directory, or under a prefix
    #[arg(short, long)]
    recursive: bool,

    #[command(flatten)]
    keeping: Keeping,
}

impl Verb for Copy {
    const NAME: &'static str = "cp";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace cp t2m.nc :climate/           file to object climate/t2m.nc
  terrace cp :climate/t2m.nc /tmp       object to file /tmp/t2m.nc
  terrace cp :runs/42.tar :keep/best    object to object
  terrace cp -r results :runs/42        directory to objects runs/42/...
  terrace cp -r :runs/42/ ./results     and back";

    fn run(self, context: &Context) -> Result<()> {
        let interrupt = Interrupt::watch()?;
        let (source, target) = (address::place(&self.source), address::place(&self.target));
        if !matches!((&source, &target), (Place::Stored(_), _) | (_, Place::Stored(_))) {
            for place in [&source, &target] {
                if let Place::Local(path) = place {
                    mounted::refuse(context, path, "cp(1) copies it")?;
                }
            }
            let reason = "one side must be in the store: write :KEY for an object";
            return Err(Error::invalid("copy", reason).into());
        }
        let into_store = matches!(target, Place::Stored(_));
        let content = self.keeping.content(false)?;
        let failures = Failures::new(context.is_json);
        let failures = context.with_store(|store| {
            let mut copying = Copying {
                context,
                store,
                interrupt: &interrupt,
                transfer: Transfer::new(&interrupt, Self::NAME, None),
                content,
                failures,
                output: Output::new(),
            };
            if self.recursive {
                copying.copy_tree(&source, &target)?;
            } else {
                copying.copy_single(source, target)?;
            }
            let Copying { mut output, failures, transfer, .. } = copying;
            // The bar goes before anything else is printed.
            drop(transfer);
            output.flush()?;
            if into_store {
                context.note_unheld(store)?;
            }
            Ok(failures)
        })?;
        failures.finish()
    }
}

/// One run of `terrace cp`.
struct Copying<'a> {
    context: &'a Context,
    store: &'a Store,
    interrupt: &'a Interrupt,
    transfer: Transfer<'a>,
    content: NewContent,
    failures: Failures,
    output: Output,
}

/// One end of a single copy, with its final name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Stored(Key),
    Local(PathBuf),
    Stream,
}

impl End {
    /// As a user would write it.
    fn show(&self) -> String {
        match self {
            End::Stored(key) => format!(":{key}"),
            End::Local(path) => path.display().to_string(),
            End::Stream => "-".into(),
        }
    }
}

impl Copying<'_> {
    fn copy_single(&mut self, source: Place, target: Place) -> Result<()> {
        let source = match source {
            Place::Stored(text) => End::Stored(address::key(&text)?),
            Place::Local(path) => End::Local(path),
            Place::Stream => End::Stream,
        };
        let target = match target {
            Place::Stored(text) if text.is_empty() || text.ends_with('/') => {
                End::Stored(address::key(&format!("{text}{}", names::last_part(&source)?))?)
            }
            Place::Stored(text) => End::Stored(address::key(&text)?),
            Place::Local(path) if fs::metadata(&path).is_ok_and(|found| found.is_dir()) => {
                End::Local(path.join(names::relative_path(&names::last_part(&source)?)?))
            }
            Place::Local(path) => End::Local(path),
            Place::Stream => End::Stream,
        };
        self.copy(&source, &target)
    }

    /// Copies one thing to its final name.
    fn copy(&mut self, source: &End, target: &End) -> Result<()> {
        if source == target {
            let error = Error::invalid("copy", "source and target are the same object");
            return Err(error.with("key", source.show()).into());
        }
        self.transfer.say(&source.show());
        let bytes = match source {
            End::Stored(key) => self.copy_from(&mut StoredSource::open(self.store, key)?, target),
            End::Local(path) => self.copy_from(&mut self.local_source(path)?, target),
            End::Stream => self.copy_from(&mut LocalSource::stdin(self.interrupt)?, target),
        }?;
        if self.context.is_json && *target != End::Stream {
            let (source, target) = (source.show(), target.show());
            let report = json!({ "source": source, "target": target, "size_bytes": bytes });
            self.output.json(&report)?;
        }
        Ok(())
    }

    /// Reports the failure of one copy among several.
    fn note<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        self.transfer.aside(|| self.failures.note(result))
    }

    fn local_source(&self, path: &Path) -> Result<LocalSource> {
        LocalSource::open(path, self.interrupt)
    }

    fn copy_from(&mut self, source: &mut dyn Source, target: &End) -> Result<u64> {
        let size_bytes = source.size_bytes();
        match target {
            End::Stored(key) => {
                let (content, store) = (&self.content, self.store);
                self.transfer.copy(source, || content.open(store, key, size_bytes))
            }
            End::Local(path) => {
                self.context.check_output(path)?;
                self.transfer.copy(source, || LocalTarget::create(path))
            }
            End::Stream => self.transfer.copy(source, || Ok(Stdout)),
        }
    }
}
