// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interleaved blocks: the same short piece of work under each policy in turn, many times, so that
//! whatever else the machine does meanwhile befalls all of them alike.

use std::path::Path;

use indicatif::ProgressBar;
use serde::Serialize;
use terrace_core::{Clock, Result, SystemClock};
use terrace_store::Store;

use super::plan::Plan;

/// Blocks of every plan; fewer say little about the spread.
pub(crate) const BLOCKS: usize = 30;

/// Checkpoints in a block.
const CHECKPOINTS: u64 = 5;

/// Checkpoints that `partdiff-read` reads at once.
pub(crate) const BATCH: usize = 10;

/// The blocks of one plan.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    /// The plan's id.
    pub(crate) id: String,
    /// Seconds of every block.
    pub(crate) block_s: Vec<f64>,
}

/// Writes all blocks, one after the other, in stores below `dir`.
pub(crate) fn run(dir: &Path, plans: &[&Plan], bar: &ProgressBar) -> Result<Vec<Series>> {
    let clock = SystemClock::default();
    let mut stores = Vec::new();
    let mut series = Vec::new();
    for plan in plans {
        let name = format!("blocks-{}", plan.id);
        let dir = dir.join(&name);
        Store::init(&dir, &plan.settings_text(&name)?)?;
        stores.push(Store::open(&dir.to_string_lossy())?);
        series.push(Series { id: plan.id.clone(), block_s: Vec::new() });
    }
    for block in 0..BLOCKS {
        let namespace = format!("block-{block}");
        for turn in 0..plans.len() {
            // Another one begins every time, so that none is always the first after a pause.
            let index = (block + turn) % plans.len();
            let settings =
                partdiff::Settings { checkpoints: CHECKPOINTS, ..plans[index].partdiff.clone() };
            let start_ns = clock.now_ns();
            let place = partdiff::InStore::new(&stores[index], &namespace);
            partdiff::run(&place, &settings, &mut |_| {})?;
            series[index].block_s.push((clock.now_ns() - start_ns) as f64 * 1e-9);
            bar.inc(1);
        }
    }
    for store in stores {
        store.close()?;
    }
    Ok(series)
}
