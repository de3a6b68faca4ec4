// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace put`.

use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::json;
use terrace_core::{Hint, Semantics, Temperature};
use terrace_transfer::streams::{LocalSource, NewContent, Source, Transfer};

use super::{Group, Verb};
use crate::address;
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::mounted;
use crate::output::Output;

/// Store a file or standard input as an object
///
/// Stores the bytes of FILE, or of standard input, under KEY. The policy chooses the tier; where
/// that is full, the next one with room is taken.
///
/// An object that exists is replaced as a whole: readers get the old content or the new one, and
/// those that have the old one open go on with it. Both need room until the put has ended.
///
/// A put that fails, is interrupted (Ctrl-C) or killed leaves the old content, or no object where
/// there was none. So does one that finds the store full, or whose server ends.
#[derive(Args, Debug)]
pub(crate) struct Put {
    /// The object: NAMESPACE/NAME, or NAME in the namespace `default`
    key: String,

    /// The file to store; `-` is standard input
    #[arg(default_value = "-")]
    file: String,

    /// Fail with status 6 if the object exists
    #[arg(long)]
    new: bool,

    #[command(flatten)]
    keeping: Keeping,
}

/// How new objects are kept; shared by the verbs that write.
#[derive(Args, Debug)]
pub(crate) struct Keeping {
    /// What is asked for every write: `TEMPLATE[,AXIS=VALUE]...`, or axes alone
    ///
    /// Templates: `default`, `posix` (each write is seen whole or not at all), `temporary`
    /// (nothing survives). Axes: `atomicity` (none, operation), `concurrency` (overlapping,
    /// non-overlapping, none), `consistency` (immediate, session, eventual), `ordering` (relaxed,
    /// strict), `persistency` (none, process, storage, shared). An object is written in pieces of 1 MiB;
    /// each is an operation. What the store cannot give is refused. Default: `default`.
    #[arg(long, value_name = "SEMANTICS")]
    semantics: Option<Semantics>,

    /// What every write survives: `none` nothing, `process` a crash of the process, `storage` a
    /// loss of power, `shared` the loss of the machine
    ///
    /// Writes at the level `storage` wait for the device, those at `shared` for a tier in a bucket
    /// and the log of the catalog there. A level that no tier can give is
    /// refused. Default: `process`. The least: `persistency` in the configuration of the store. The
    /// same as the axis of --semantics, and before it.
    #[arg(long, value_name = "LEVEL", value_parser = ["none", "process", "storage", "shared"])]
    persistency: Option<String>,

    /// Advice for the policy: how soon the object will be used again
    ///
    /// Default: none.
    #[arg(long, value_name = "WHEN")]
    hint: Option<Warmth>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Warmth {
    /// Soon
    Hot,
    /// Not soon
    Cold,
}

impl Keeping {
    /// The same for the code that writes.
    pub(crate) fn content(&self, must_be_new: bool) -> Result<NewContent> {
        let mut semantics = self.semantics.unwrap_or_default();
        if let Some(word) = &self.persistency {
            semantics.persistency = word.parse()?;
        }
        let temperature = match self.hint {
            Some(Warmth::Hot) => Temperature::Hot,
            Some(Warmth::Cold) => Temperature::Cold,
            None => Temperature::Unknown,
        };
        Ok(NewContent { must_be_new, semantics, hint: Hint { temperature } })
    }
}

impl Verb for Put {
    const NAME: &'static str = "put";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace put climate/t2m t2m.nc              store a file
  tar c results | terrace put runs/42.tar     store a stream
  terrace put --new locks/job-7 < /dev/null   an empty object, only if there is none yet
  terrace put --hint cold runs/41.tar old.tar advise the policy that nobody needs it soon";

    fn run(self, context: &Context) -> Result<()> {
        mounted::refuse(context, &self.key, "cp(1) writes it")?;
        let key = address::key(&self.key)?;
        let content = self.keeping.content(self.new)?;
        let interrupt = Interrupt::watch()?;
        let mut source = match self.file.as_str() {
            "-" => LocalSource::stdin(&interrupt)?,
            file => LocalSource::open(Path::new(file), &interrupt)?,
        };
        let bytes = context.with_store(|store| {
            let size_bytes = source.size_bytes();
            let bytes = Transfer::new(&interrupt, Self::NAME, size_bytes)
                .copy(&mut source, || content.open(store, &key, size_bytes))?;
            context.note_unheld(store)?;
            Ok(bytes)
        })?;
        if context.is_json {
            let mut output = Output::new();
            output.json(&json!({ "key": key.as_str(), "size_bytes": bytes }))?;
            output.flush()?;
        }
        Ok(())
    }
}
