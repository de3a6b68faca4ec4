// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace get`.

use std::path::Path;

use clap::Args;
use serde_json::json;
use terrace_transfer::streams::{LocalTarget, Source, Stdout, StoredSource, Transfer};

use super::{Group, Verb};
use crate::address;
use crate::context::Context;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::mounted;
use crate::output::Output;

/// Write an object to a file or standard output
///
/// Writes the bytes of the object KEY to FILE, or to standard output. The object stays where it
/// is; a policy may take the read as a reason to move it.
///
/// FILE appears, or is replaced, when it is complete: a get that fails or is interrupted (Ctrl-C)
/// leaves it as it was. FILE is refused in the directory of a store, of its catalog and of a tier.
#[derive(Args, Debug)]
pub(crate) struct Get {
    /// The object: NAMESPACE/NAME, or NAME in the namespace `default`
    key: String,

    /// The file to write; `-` is standard output
    #[arg(default_value = "-")]
    file: String,
}

impl Verb for Get {
    const NAME: &'static str = "get";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace get climate/t2m t2m.nc        into a file
  terrace get runs/42.tar | tar t       into a pipe";

    fn run(self, context: &Context) -> Result<()> {
        mounted::refuse(context, &self.key, "cat(1) and cp(1) read it")?;
        let key = address::key(&self.key)?;
        if self.file != "-" {
            context.check_output(Path::new(&self.file))?;
        }
        let interrupt = Interrupt::watch()?;
        let bytes = context.with_store(|store| {
            let mut source = StoredSource::open(store, &key)?;
            let mut transfer = Transfer::new(&interrupt, Self::NAME, source.size_bytes());
            match self.file.as_str() {
                "-" => transfer.copy(&mut source, || Ok(Stdout)),
                file => transfer.copy(&mut source, || LocalTarget::create(Path::new(file))),
            }
        })?;
        if context.is_json && self.file != "-" {
            let mut output = Output::new();
            let report = json!({ "key": key.as_str(), "size_bytes": bytes, "file": self.file });
            output.json(&report)?;
            output.flush()?;
        }
        Ok(())
    }
}
