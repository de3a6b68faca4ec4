// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which byte of which file each process transfers, and in what order.
//!
//! A file has segments, a segment has a block of each process that shares the file, and a block is
//! transferred in pieces of one size; as in IOR.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::mix::mix;
use crate::permutation::Permutation;

/// The bytes of a data phase, over all processes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Layout {
    pub(crate) is_file_per_process: bool,
    pub(crate) transfer_bytes: u64,
    pub(crate) block_bytes: u64,
    pub(crate) segments: u64,
    pub(crate) is_random: bool,
    pub(crate) seed: u64,
}

/// Where one transfer begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// Number of the file: that of the process that it belongs to, or 0 where all share one.
    pub(crate) file: u64,
    pub(crate) offset_bytes: u64,
}

impl Layout {
    /// Refuses sizes that do not divide each other, or that no file can have.
    pub(crate) fn check(&self, processes: u64) -> Result<()> {
        let refused = |reason| {
            Err(Error::new("lay out the files", reason)
                .with("transfer_bytes", self.transfer_bytes)
                .with("block_bytes", self.block_bytes)
                .with("segments", self.segments))
        };
        if self.transfer_bytes == 0 || self.block_bytes == 0 || self.segments == 0 {
            return refused("each of transfer, block and segments is at least 1");
        }
        if !self.block_bytes.is_multiple_of(self.transfer_bytes) {
            return refused("a block must be a multiple of a transfer");
        }
        let total =
            self.block_bytes.checked_mul(self.segments).and_then(|b| b.checked_mul(processes));
        if total.is_none_or(|bytes| bytes > i64::MAX as u64) {
            return refused("there are more bytes than a file can have");
        }
        Ok(())
    }

    /// Transfers of one process.
    pub(crate) fn transfers(&self) -> u64 {
        self.block_bytes / self.transfer_bytes * self.segments
    }

    /// Bytes of one file.
    pub(crate) fn file_bytes(&self, processes: u64) -> u64 {
        let sharing = if self.is_file_per_process { 1 } else { processes };
        self.block_bytes * self.segments * sharing
    }

    /// The transfers that fall to `rank` of `processes`.
    pub(crate) fn sequence(&self, rank: u64, processes: u64) -> Sequence {
        let order = self.is_random.then(|| {
            // Of a shared file every process takes a part of one order, so that nothing is done twice.
            let (count, seed) = match self.is_file_per_process {
                true => (self.transfers(), mix(self.seed ^ mix(rank))),
                false => (self.transfers() * processes, self.seed),
            };
            Permutation::new(count, seed)
        });
        Sequence { layout: self.clone(), rank, processes, order }
    }
}

/// The transfers of one process in the order in which it does them.
#[derive(Debug)]
pub(crate) struct Sequence {
    layout: Layout,
    rank: u64,
    processes: u64,
    order: Option<Permutation>,
}

impl Sequence {
    /// The transfer number `index`, which must be below [`Layout::transfers`].
    #[inline]
    pub(crate) fn place(&self, index: u64) -> Place {
        let layout = &self.layout;
        let transfer = layout.transfer_bytes;
        match (&self.order, layout.is_file_per_process) {
            (None, true) => Place { file: self.rank, offset_bytes: index * transfer },
            (None, false) => {
                let in_block = layout.block_bytes / transfer;
                let (segment, piece) = (index / in_block, index % in_block);
                let block = segment * self.processes + self.rank;
                Place { file: 0, offset_bytes: block * layout.block_bytes + piece * transfer }
            }
            (Some(order), true) => {
                Place { file: self.rank, offset_bytes: order.apply(index) * transfer }
            }
            (Some(order), false) => {
                let global = self.rank * layout.transfers() + index;
                Place { file: 0, offset_bytes: order.apply(global) * transfer }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::Layout;

    fn layout(is_file_per_process: bool, is_random: bool) -> Layout {
        Layout {
            is_file_per_process,
            transfer_bytes: 3,
            block_bytes: 12,
            segments: 5,
            is_random,
            seed: 7,
        }
    }

    #[test]
    fn every_byte_once_for_every_reordering() {
        for (per_process, random) in [(true, false), (true, true), (false, false), (false, true)] {
            let layout = layout(per_process, random);
            for processes in [1, 2, 5] {
                for shift in 0..processes {
                    let mut times: HashMap<(u64, u64), u32> = HashMap::new();
                    for rank in 0..processes {
                        let sequence = layout.sequence((rank + shift) % processes, processes);
                        for index in 0..layout.transfers() {
                            let place = sequence.place(index);
                            for byte in 0..layout.transfer_bytes {
                                *times
                                    .entry((place.file, place.offset_bytes + byte))
                                    .or_default() += 1;
                            }
                        }
                    }
                    let files = if per_process { processes } else { 1 };
                    let bytes = layout.file_bytes(processes);
                    assert_eq!(times.len() as u64, files * bytes, "{layout:?} {processes} {shift}");
                    assert!(times.values().all(|count| *count == 1));
                    assert!(times.keys().all(|(file, offset)| *file < files && *offset < bytes));
                }
            }
        }
    }

    #[test]
    fn segments_hold_a_block_of_each_process() {
        let sequence = layout(false, false).sequence(1, 2);
        let offsets: Vec<u64> = (0..8).map(|index| sequence.place(index).offset_bytes).collect();
        assert_eq!(offsets, [12, 15, 18, 21, 36, 39, 42, 45]);
    }

    #[test]
    fn refuses_blocks_that_are_no_multiple_and_files_that_are_too_long() {
        let odd = Layout { block_bytes: 13, ..layout(true, false) };
        assert!(odd.check(1).is_err());
        let huge = Layout { block_bytes: 3 << 60, ..layout(true, false) };
        assert!(huge.check(1).is_err());
        assert!(Layout { segments: 0, ..layout(true, false) }.check(1).is_err());
        layout(true, false).check(1).unwrap();
    }
}
