// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace backup`.

use std::path::PathBuf;

use clap::Args;
use terrace_core::units::show_bytes;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, count, show_name};
use crate::progress::Progress;

/// Save the catalog to a file
///
/// Saves what the tiers do not tell: pins, levels, key-value pairs, histories, states of policies,
/// and where every object was. The store may be in use; what is saved is the catalog as of one
/// moment. The bytes of objects are not in it: they are on the tiers.
///
/// The file is written beside its place first and put there when it is whole and durable. It is refused in the
/// directory of a store, of its catalog and of a tier. `terrace restore` brings it back.
#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// Where to write it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

impl Verb for Backup {
    const NAME: &'static str = "backup";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace backup /mnt/elsewhere/store.catalog
  terrace backup --force store.catalog          every night";

    fn run(self, context: &Context) -> Result<()> {
        context.check_output(&self.file)?;
        let report = context.with_store_for_reading(|store| {
            let mut progress = Progress::items("backup", None);
            let mut done = 0;
            Ok(store.admin().backup(&self.file, self.force, &mut |pairs, _| {
                progress.advance(pairs - done);
                done = pairs;
                true
            })?)
        })?;
        let mut output = Output::new();
        let file = self.file.display().to_string();
        if context.is_json {
            output.json(&serde_json::json!({
                "file": file, "pairs": report.pairs, "size_bytes": report.bytes,
            }))?;
        } else {
            let (pairs, bytes) = (count(report.pairs, "pair"), show_bytes(report.bytes));
            output.line(format!("saved {pairs}, {bytes}, in {}", show_name(&file)))?;
        }
        output.flush()
    }
}
