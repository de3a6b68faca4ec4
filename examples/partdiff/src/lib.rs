// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The heat equation on a square grid, with checkpoints in a Terrace store or in files.
//!
//! [`run`] solves it and writes a checkpoint every few iterations; [`read`] goes through the
//! checkpoints in batches. Both take any [`Place`]: one is [`InStore`], over any
//! [`terrace_store::Backend`], of which a `Store` is one; another is [`InFiles`].

pub mod arguments;
mod checkpoint;
mod grid;
mod place;
mod reader;
mod solver;

pub use checkpoint::{HEADER_BYTES, Header};
pub use grid::{Grid, Method};
pub use place::{InFiles, InStore, Place, Timed};
pub use reader::{Reading, read};
pub use solver::{Settings, run};

/// What a whole run wrote, or a whole reading found: equal where nothing was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Checkpoints.
    pub checkpoints: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Over the checksums of all checkpoints in order.
    pub checksum: u64,
}

impl Summary {
    fn add(&mut self, header: &Header) {
        self.checkpoints += 1;
        self.bytes += header.object_bytes();
        self.checksum = checkpoint::checksum(self.checksum, &header.checksum.to_le_bytes());
    }
}
