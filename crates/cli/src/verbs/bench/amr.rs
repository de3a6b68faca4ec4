// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of the workload with an adaptive mesh.

use std::path::PathBuf;

use clap::Args;
use terrace_bench::amr::Settings;
use terrace_bench::fast_place;
use terrace_bench::micro::Place;
use terrace_core::Persistency;
use terrace_core::units::parse_duration;

use super::micro::{LEVELS, backend_names};
use crate::failure::Result;

/// How much is written, and how.
#[derive(Args, Debug)]
pub(crate) struct Amr {
    /// Time steps of a repetition
    #[arg(long, value_name = "COUNT", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: u64,

    /// Blocks that each step hands over
    #[arg(long, value_name = "COUNT", default_value_t = 200,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    blocks: u64,

    /// Computing before each burst
    #[arg(long, value_name = "DURATION", default_value = "10ms")]
    computing: String,

    /// Threads that write, and read in the end
    #[arg(long, value_name = "COUNT", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=256))]
    writers: u64,

    /// Blocks that may wait for a writer
    #[arg(long, value_name = "COUNT", default_value_t = 128,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    queue: u64,

    /// What a written block survives
    #[arg(long, value_name = "LEVEL", default_value = "process", value_parser = LEVELS)]
    level: String,

    /// Repetitions of each side
    #[arg(long, value_name = "COUNT", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    repetitions: u64,

    /// Where the files go; they are removed afterwards [default: /dev/shm where there is one]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// What the tiers are; the raw side is the same one without a stack
    #[arg(long, value_name = "NAME", default_value = "file", value_parser = backend_names())]
    backend: String,
}

impl Amr {
    /// The settings. Errors: `Invalid` for a duration that is none.
    pub(super) fn settings(self) -> Result<Settings> {
        Ok(Settings {
            steps: self.steps as usize,
            blocks: self.blocks as usize,
            computing_s: parse_duration(&self.computing)?.as_secs_f64(),
            writers: self.writers as usize,
            queue: self.queue as usize,
            level: self.level.parse::<Persistency>()?,
            repetitions: self.repetitions as usize,
            place: Place {
                directory: self.directory.unwrap_or_else(fast_place),
                backend: self.backend,
                engine: "fjall".into(),
            },
        })
    }
}
