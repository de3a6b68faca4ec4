// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of `terrace bench size`.

use std::path::PathBuf;

use clap::Args;
use terrace_bench::size::Settings;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(super) struct Size {
    /// How many objects; each takes an inode, and is empty without --rebuild
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    objects: u64,
    /// Where the store is made, and removed afterwards [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The policy of the store
    #[arg(long, value_name = "NAME", default_value = "lru")]
    policy: String,
    /// The engine of its catalog
    #[arg(long, value_name = "NAME", default_value = "fjall")]
    engine: String,
    /// Instead, lose the catalog, make it anew from the tiers, and compare every object with what
    /// was written to it: some bytes each, so on tmpfs a page of main memory each
    #[arg(long)]
    rebuild: bool,
    /// Only make a store in this directory: what the command starts itself for, so that memory
    /// that creating took is not counted
    #[arg(long, value_name = "DIR", hide = true)]
    pub(super) fill: Option<PathBuf>,
}

impl Size {
    pub(super) fn settings(self) -> Settings {
        let Self { objects, directory, policy, engine, rebuild, fill: _ } = self;
        Settings { objects, directory, policy, engine, rebuild }
    }
}
