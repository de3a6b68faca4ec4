// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages between the command and the processes that use one file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a process is to do next.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    /// Open the file, and be ready to begin.
    Open(Part),
    /// Begin.
    Go,
}

/// What a process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It waits for the word.
    Ready,
    /// When it began and when it was done, on the clock of the machine.
    Done { started_ns: u64, ended_ns: u64 },
}

/// A part of the pieces of a file: every so many, so that all parts together are all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) pieces: Pieces,
    /// Number of the first piece.
    pub(super) first: u64,
    /// From one piece to the next: the number of processes.
    pub(super) step: u64,
    /// How many.
    pub(super) count: u64,
}

/// How a file is used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Pieces {
    pub(super) bytes: usize,
    /// Of the file.
    pub(super) size_bytes: u64,
    pub(super) is_random: bool,
    pub(super) is_write: bool,
}

impl Pieces {
    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.size_bytes / self.bytes as u64
    }

    /// Where the piece with this number is. As many pieces in a row as the file has never meet.
    pub(super) fn place(&self, number: u64) -> u64 {
        // A prime: it shares no factor with the number of pieces of any file below its square.
        const STRIDE: u64 = 2_654_435_761;
        let number = number % self.count();
        let piece = if self.is_random { number * STRIDE % self.count() } else { number };
        piece * self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pieces_of_all_parts_never_meet() {
        for is_random in [false, true] {
            let pieces = Pieces { bytes: 4096, size_bytes: 3 << 20, is_random, is_write: false };
            let places: BTreeSet<u64> = (0..768).map(|number| pieces.place(number)).collect();
            assert_eq!(places.len(), 768);
            assert_eq!(places.last(), Some(&((3 << 20) - 4096)));
            let in_order = pieces.place(1) == 4096;
            assert_eq!(in_order, !is_random);
        }
    }
}
