// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the files hold: bytes that tell their file, their offset and the seed.
//!
//! The bytes repeat each 128 KiB, but that each 512 of them begin with a stamp of file and sector.
//! Making a transfer therefore costs one store for each sector, and no byte can be in a wrong place
//! unseen.

use crate::mix::mix;

/// A stamp for each: a device writes no less at once.
const SECTOR_BYTES: usize = 512;

/// The largest unit in which file systems compress by default: a block of ZFS, an extent of Btrfs.
const PERIOD_BYTES: usize = 128 << 10;

/// O_DIRECT needs sectors of up to 4096 bytes; and copies are fast from the begin of a cache line.
const ALIGNMENT_BYTES: usize = 4096;

/// Distance of the stamps of neighbours; odd, so that no two sectors of a file have the same.
const STEP: u64 = 0xd1b5_4a32_d192_ed03;

/// Memory whose first byte is aligned, all of it in place.
#[derive(Debug)]
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub(crate) fn new(length: usize) -> Self {
        // Not zeros: those would be pages that the first operation has to wait for.
        let memory = vec![0xa5; length + ALIGNMENT_BYTES];
        let start = memory.as_ptr().align_offset(ALIGNMENT_BYTES);
        Self { memory, start, length }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Makes the bytes that belong at a place; allocates nothing once it is there.
#[derive(Debug)]
pub(crate) struct Content {
    seed: u64,
    buffer: Aligned,
}

impl Content {
    /// For pieces of at most `length_max` bytes.
    pub(crate) fn new(seed: u64, length_max: usize) -> Self {
        let mut buffer = Aligned::new((PERIOD_BYTES + length_max).next_multiple_of(SECTOR_BYTES));
        for (index, word) in buffer.bytes_mut().chunks_exact_mut(8).enumerate() {
            let position = (index % (PERIOD_BYTES / 8)) as u64;
            word.copy_from_slice(&mix(mix(seed) ^ position).to_le_bytes());
        }
        Self { seed, buffer }
    }

    /// The bytes of `file` from `offset_bytes` on. They begin as aligned as the offset is.
    #[inline]
    pub(crate) fn piece(&mut self, file: u64, offset_bytes: u64, length: usize) -> &[u8] {
        let skew = (offset_bytes % PERIOD_BYTES as u64) as usize;
        let first = skew - skew % SECTOR_BYTES;
        let end = (skew + length).next_multiple_of(SECTOR_BYTES);
        let key = mix(self.seed ^ mix(file));
        let sector = offset_bytes / SECTOR_BYTES as u64;
        let mut stamp = key.wrapping_add(sector.wrapping_mul(STEP));
        let buffer = self.buffer.bytes_mut();
        for sector in buffer[first..end].chunks_exact_mut(SECTOR_BYTES) {
            sector[..8].copy_from_slice(&stamp.to_le_bytes());
            stamp = stamp.wrapping_add(STEP);
        }
        &self.buffer.bytes()[skew..skew + length]
    }

    /// The first byte of `found` that is not what belongs there; `None` where all are right.
    pub(crate) fn difference(&mut self, file: u64, offset_bytes: u64, found: &[u8]) -> Option<u64> {
        let expected = self.piece(file, offset_bytes, found.len());
        if expected == found {
            return None;
        }
        let position = expected.iter().zip(found).position(|(expected, found)| expected != found);
        position.map(|position| offset_bytes + position as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGNMENT_BYTES, Content, PERIOD_BYTES, SECTOR_BYTES};

    #[test]
    fn bytes_depend_on_their_place_and_not_on_the_transfers() {
        let mut whole = Content::new(3, 3 * PERIOD_BYTES);
        let expected = whole.piece(5, 0, 3 * PERIOD_BYTES).to_vec();
        for length in [1, 7, 512, 1000, 4096, PERIOD_BYTES + 1] {
            let mut pieces = Content::new(3, length);
            for offset in (0..expected.len() - length).step_by(length.max(997)) {
                let piece = pieces.piece(5, offset as u64, length);
                assert_eq!(piece, &expected[offset..offset + length], "{length} at {offset}");
            }
        }
    }

    #[test]
    fn every_sector_is_its_own() {
        let mut seen = std::collections::HashSet::new();
        for (seed, file) in [(1, 0), (1, 1), (2, 0)] {
            let mut content = Content::new(seed, 4 * PERIOD_BYTES);
            for sector in content.piece(file, 0, 4 * PERIOD_BYTES).chunks(SECTOR_BYTES) {
                assert!(seen.insert(sector.to_vec()), "seed={seed} file={file}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let mut content = Content::new(9, 4096);
        let right = content.piece(2, 8192, 4096).to_vec();
        assert_eq!(content.difference(2, 8192, &right), None);
        for position in 0..4096 {
            let mut wrong = right.clone();
            wrong[position] ^= 1 << (position % 8);
            assert_eq!(content.difference(2, 8192, &wrong), Some(8192 + position as u64));
        }
    }

    #[test]
    fn pieces_at_aligned_offsets_are_aligned() {
        let mut content = Content::new(1, 4096);
        for offset in [0, 4096, 40 * 4096, 1 << 30] {
            let piece = content.piece(0, offset, 4096);
            assert_eq!(piece.as_ptr().align_offset(ALIGNMENT_BYTES), 0);
        }
    }
}
