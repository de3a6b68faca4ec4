// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store over the network beside what the network itself can do.

mod load;
mod rows;
pub(super) mod server;
mod silent;
mod yardstick;

use std::path::PathBuf;

use serde::Serialize;
use terrace_measure::compared::{Compared, Comparison, Samples};

pub use rows::{ROWS, run};

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Pairs of blocks for each row.
    pub groups: usize,
    /// How long a block lasts.
    pub block_ms: u64,
    /// Some of [`ROWS`]; all where there is none.
    pub rows: Vec<String>,
    /// Where the store on a disk is.
    pub disk: PathBuf,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub(crate) compared: Compared,
    /// CPU time of client and server together for each operation.
    pub(crate) cpu_us_per_op: f64,
    pub(crate) client_cpu_us_per_op: f64,
    pub(crate) server_cpu_us_per_op: f64,
    /// How it is reached.
    pub(crate) transport: &'static str,
    /// What acknowledged operations survive.
    pub(crate) level: &'static str,
}

/// What the blocks of a row gave, and what they cost.
#[derive(Default)]
struct Blocks {
    samples: Samples,
    operations: u64,
    client_cpu_ns: u64,
    server_cpu_ns: u64,
}

/// What a row is, beside its blocks.
struct About {
    comparison: Comparison,
    transport: &'static str,
    level: &'static str,
}

impl Blocks {
    fn row(&self, about: &About) -> Row {
        let per_op = |cpu_ns: u64| cpu_ns as f64 / 1e3 / (self.operations as f64).max(1.0);
        Row {
            compared: self.samples.compared(&about.comparison),
            cpu_us_per_op: per_op(self.client_cpu_ns + self.server_cpu_ns),
            client_cpu_us_per_op: per_op(self.client_cpu_ns),
            server_cpu_us_per_op: per_op(self.server_cpu_ns),
            transport: about.transport,
            level: about.level,
        }
    }
}
