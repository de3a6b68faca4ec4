// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What verbs have in common that replay traces in virtual time.

use clap::Args;
use terrace_core::units::parse_bytes;
use terrace_core::{Error, ErrorKind};
use terrace_settings::Directory;
use terrace_tuning::Modelled;

use crate::context::Context;
use crate::failure::Result;

/// How requests come, and what is there before them.
#[derive(Args, Debug, Default)]
pub(crate) struct Manner {
    /// Time: have requests come when they came, whatever became of those before
    #[arg(long)]
    pub(crate) open_loop: bool,
    /// Time: what the machine keeps in memory of what was read from and written to tiers with
    /// `cached_latency` and `cached_bandwidth` [default: nothing]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_cache: Option<String>,
    /// Time: processors of the machine, which requests, migrations and clients that think for no
    /// longer than 100 us share; tiers have `cpu_share` and `move_cpu` [default: as many as they like]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) processors: Option<u32>,
    /// Time: the tier with what was there before the trace begins [default: the last]
    #[arg(long, value_name = "TIER")]
    pub(crate) present_on: Option<String>,
}

impl Manner {
    /// The same for a replay.
    pub(crate) fn model(&self) -> Result<terrace_tuning::Manner> {
        let with_option = |error: Error| error.with("option", "--page-cache");
        let page_cache_bytes = self.page_cache.as_deref().map(parse_bytes).transpose();
        Ok(terrace_tuning::Manner {
            open_loop: self.open_loop,
            page_cache_bytes: page_cache_bytes.map_err(with_option)?,
            processors: self.processors,
            present_on: self.present_on.clone(),
        })
    }
}

/// Reads the configuration that `--store` names: a store's, or the file.
pub(crate) fn modelled(context: &Context) -> Result<Modelled> {
    if let Some(servers) = context.servers() {
        let reason = "the time model needs the configuration of a store: its directory, or its \
                      terrace.toml";
        return Err(Error::new(ErrorKind::Unsupported, "replay the trace")
            .because(reason)
            .with("store", servers)
            .into());
    }
    Ok(Modelled::read(Directory::at(context.store()?)?.path())?)
}
