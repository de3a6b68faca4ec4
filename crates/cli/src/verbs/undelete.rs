// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace undelete`.

use clap::Args;
use serde_json::json;
use terrace_core::ErrorKind;
use terrace_core::units::show_bytes;

use super::{Group, Verb};
use crate::address;
use crate::context::Context;
use crate::failure::Result;
use crate::mounted;
use crate::output::{Output, show_name};
use crate::progress::Progress;

/// Bring a deleted or an earlier value of an object back
///
/// Makes an object of a version that `terrace versions` lists: of the latest, or of --version. It is written as any
/// new object is, so that the policy chooses its tier, and it needs room there; the version stays as long as it
/// would have. Bytes are compared with the checksums that were known. The label of then comes back; pins, hints,
/// levels and times do not.
///
/// The object is KEY, or --to. One that exists is an error (status 6) unless --force is given; then it is
/// replaced as a whole, as by `terrace put`: its pin and its level stay, and its present value may become a version.
/// A version is brought back only if all of its bytes are there; the error says which are not, and names the latest
/// version from before that is whole.
#[derive(Args, Debug)]
pub(crate) struct Undelete {
    /// The object that there was: NAMESPACE/NAME, or NAME in the namespace `default`
    key: String,

    /// Which version, as `terrace versions` names it; default: the latest
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    /// The object to make; default: KEY
    #[arg(long, value_name = "NEWKEY")]
    to: Option<String>,

    /// Replace an object that exists
    #[arg(short, long)]
    force: bool,
}

impl Verb for Undelete {
    const NAME: &'static str = "undelete";
    const GROUP: Group = Group::Data;
    const EXAMPLES: &'static str = "
  terrace undelete runs/42.tar                          it was removed: the value that it had
  terrace undelete runs/42.tar --to runs/42-old.tar     beside the present one
  terrace undelete runs/42.tar --version 1a3 --force    go back to an earlier value";

    fn run(self, context: &Context) -> Result<()> {
        mounted::refuse(context, &self.key, "the names of files have no versions")?;
        let key = address::key(&self.key)?;
        let to = match &self.to {
            Some(to) => {
                mounted::refuse(context, to, "cp(1) writes it")?;
                address::key(to)?
            }
            None => key.clone(),
        };
        let version = context.with_store(|store| {
            let mut bar = Progress::bytes(Self::NAME, None);
            let mut progress = |done, total| {
                bar.set(done, total);
                true
            };
            let version = self.version.as_deref();
            let made = store.admin().undelete(&key, version, &to, self.force, &mut progress);
            let made = made.map_err(|error| match error.kind() {
                ErrorKind::Exists => error.because(
                    "there is an object of this name: --to names another one, --force replaces it",
                ),
                _ => error,
            })?;
            drop(bar);
            context.note_unheld(store)?;
            Ok(made)
        })?;
        let mut output = Output::new();
        if context.is_json {
            output.json(&json!({ "key": to.as_str(), "version": version }))?;
        } else {
            output.line(format!(
                "{} is version {} of {}, {}",
                show_name(to.as_str()),
                version.version,
                show_name(key.as_str()),
                show_bytes(version.size_bytes)
            ))?;
        }
        output.flush()
    }
}
