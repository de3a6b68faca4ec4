// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a worker does in a phase, whatever its pattern is.

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;
use crate::error::Result;
use crate::latency::Counts;

/// The part of one process in a phase. The steps are called in the order in which they stand here,
/// each once all processes are through the one before.
pub(crate) trait Phase {
    /// Makes what the phase needs and is not measured.
    fn prepare(&mut self) -> Result<()>;

    /// Does the work. Everything is in memory and all threads are there before `begin` is called,
    /// which returns when every process is as far.
    fn measure(&mut self, begin: &mut dyn FnMut() -> Result<()>) -> Result<Outcome>;

    /// Reads back what was written, where that was asked for.
    fn check(&mut self) -> Result<()>;

    /// Removes what is not to be kept.
    fn clean(&mut self) -> Result<()>;
}

/// What one process has done.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Outcome {
    pub(crate) begin: Stamp,
    pub(crate) end: Stamp,
    /// Of operations that were done whole.
    pub(crate) bytes: u64,
    pub(crate) operations: u64,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// Time before the first transfer.
    pub(crate) open_ns: u64,
    /// Time in the fsync at the end.
    pub(crate) sync_ns: u64,
    pub(crate) close_ns: u64,
    /// The time was over before the work was.
    pub(crate) is_stonewalled: bool,
    pub(crate) latency: Counts,
}
