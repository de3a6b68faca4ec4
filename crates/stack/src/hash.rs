// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hashing where the standard library's way would be paid twice, or for nothing.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds a [`NumberHasher`].
pub(crate) type Numbers = BuildHasherDefault<NumberHasher>;

/// For keys that are numbers of our own, or hashes already. They are not chosen from outside, so they
/// need no secret.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

/// 2^64 divided by the golden ratio: its multiples are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        /// The part that a map compares before it looks at a key.
        const TAG: u64 = 0x7f << 57;
        // The low bits choose the place: numbers given out one after the other lie side by side,
        // in memory that is in the cache. The tag is what multiplying by the golden ratio makes of
        // all bits.
        (self.0 & !TAG) | (self.0.wrapping_mul(GOLDEN) & TAG)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, number: u32) {
        // Far from the neighbours of what came before; 0, the usual, stays where that is.
        self.0 ^= u64::from(number).wrapping_mul(GOLDEN);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(32) ^ number;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn neighbours_lie_side_by_side_and_differ_in_their_tags() {
        let hash = |id: u64, segment: u32| Numbers::default().hash_one((id, segment));
        let first: Vec<_> = (0..1000).map(|id| hash(id, 0)).collect();
        let places: HashSet<_> = first.iter().map(|hash| hash % 1024).collect();
        let tags: HashSet<_> = first.iter().map(|hash| hash >> 57).collect();
        assert_eq!((places.len(), tags.len()), (1000, 128));
        let all: HashSet<_> =
            (0..1000).flat_map(|id| (0..9).map(move |segment| hash(id, segment))).collect();
        assert_eq!(all.len(), 9000);
    }
}
