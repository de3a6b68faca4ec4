// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace key`: the files with which tiers are encrypted.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use terrace_core::{Error, ErrorKind};
use terrace_transport::make_secret_file;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::output::Output;

/// Make a key for the setting `encrypt` of a tier
///
/// What is on an encrypted tier cannot be read without its key: keep a copy of the file elsewhere, on no tier of
/// the store.
#[derive(Args, Debug)]
pub(crate) struct EncryptionKey {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a file with a new key, which only its owner can read
    #[command(after_long_help = "Examples:
  terrace key new /etc/terrace/cold.key")]
    New {
        /// The file; one that is there is refused
        file: PathBuf,
    },
}

impl Verb for EncryptionKey {
    const NAME: &'static str = "key";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace key new /etc/terrace/cold.key
  terrace tiers add cold=s3://my-bucket/t,compress=zstd:3,encrypt=/etc/terrace/cold.key";

    fn run(self, context: &Context) -> Result<()> {
        let Action::New { file } = &self.action;
        make(file)?;
        let mut output = Output::new();
        match context.is_json {
            true => output.json(&json!({ "file": file.display().to_string() }))?,
            false => output.line(format!(
                "made {}; without it nothing on its tiers can be read: keep a copy elsewhere",
                file.display()
            ))?,
        }
        output.flush()
    }
}

fn make(file: &Path) -> Result<()> {
    if file.symlink_metadata().is_ok() {
        return Err(Error::new(ErrorKind::Exists, "make a key")
            .because("the file is there already")
            .with("file", file.display())
            .into());
    }
    Ok(make_secret_file(file)?)
}
