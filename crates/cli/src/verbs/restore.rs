// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace restore`.

use std::path::PathBuf;

use clap::Args;
use terrace_recovery::Source;

use super::fsck::rebuild;
use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;

/// Make the catalog anew from the tiers and a backup
///
/// Where objects are and how long they are is taken from the tiers, which may have gone on since
/// the backup; pins, levels, key-value pairs, histories and states of policies come from the
/// backup. Objects made since are there with the defaults; objects deleted since stay deleted, and
/// are named. The store must not be open elsewhere. The old catalog is put aside beside the new one.
/// Where power was lost in the middle of a migration a `doubtful-file` may be left, as by
/// `terrace fsck --rebuild`.
///
/// Afterwards the store is opened and checked as by `terrace fsck`.
#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// What `terrace backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Go on although a tier was last written before the others
    #[arg(long)]
    accept_old_tiers: bool,
}

impl Verb for Restore {
    const NAME: &'static str = "restore";
    const GROUP: Group = Group::Store;
    const EXAMPLES: &'static str = "
  terrace restore /mnt/elsewhere/store.catalog";

    fn run(self, context: &Context) -> Result<()> {
        rebuild(context, Source::Backup(&self.file), self.accept_old_tiers, false)
    }
}
