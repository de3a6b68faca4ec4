// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A checkpoint: a header of 64 bytes and the points behind it, row by row, little endian.
//!
//! ```text
//! 0 magic "PARTDIF2" | 8 dimension u64 | 16 iteration u64 | 24 residuum f64 | 32 checksum u64 | zeros
//! ```
//!
//! The checksum goes over the fields and then over the checksums of the rows, so that whoever holds
//! some of the rows can do their part.

use std::ops::RangeInclusive;

use terrace_store::{Error, ErrorKind, Result};

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 64;

const MAGIC: &[u8; 8] = b"PARTDIF2";

/// Points along one edge that a checkpoint may have; the largest has 8 GiB of them.
pub(crate) const DIMENSIONS: RangeInclusive<u64> = 3..=1 << 15;

/// What a checkpoint says about itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// Points along one edge.
    pub dimension: u64,
    /// Iterations done.
    pub iteration: u64,
    /// The largest change in the last iteration.
    pub residuum: f64,
    /// Over the fields above and the points.
    pub checksum: u64,
}

impl Header {
    /// Describes `points`, as bytes.
    pub(crate) fn new(dimension: usize, iteration: u64, residuum: f64, points: &[u8]) -> Self {
        let mut header = Self { dimension: dimension as u64, iteration, residuum, checksum: 0 };
        header.checksum = header.checksum_with(points);
        header
    }

    /// Length of the points in bytes.
    pub(crate) fn points_bytes(&self) -> u64 {
        self.dimension * self.dimension * size_of::<f64>() as u64
    }

    /// Length of the whole object in bytes.
    pub fn object_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.points_bytes()
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..32].copy_from_slice(&self.fields());
        bytes[32..40].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(name: &str, bytes: &[u8]) -> Result<Self> {
        let word = |at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word has eight bytes"))
        };
        if bytes.len() != HEADER_BYTES || &bytes[..8] != MAGIC || !DIMENSIONS.contains(&word(8)) {
            return Err(damaged(name, "it does not begin like a checkpoint"));
        }
        Ok(Self {
            dimension: word(8),
            iteration: word(16),
            residuum: f64::from_bits(word(24)),
            checksum: word(32),
        })
    }

    /// Compares header and points with the checksum.
    pub(crate) fn verify(&self, name: &str, points: &[u8]) -> Result<()> {
        if self.checksum_with(points) == self.checksum {
            Ok(())
        } else {
            Err(damaged(name, "its checksum is wrong"))
        }
    }

    fn checksum_with(&self, points: &[u8]) -> u64 {
        let row_bytes = self.dimension as usize * size_of::<f64>();
        points.chunks_exact(row_bytes).fold(checksum(0, &self.fields()), |sum, row| {
            checksum(sum, &checksum(0, row).to_le_bytes())
        })
    }

    fn fields(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.dimension.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.iteration.to_le_bytes());
        bytes[16..].copy_from_slice(&self.residuum.to_bits().to_le_bytes());
        bytes
    }
}

/// Turns points into the bytes of a checkpoint.
pub(crate) fn encode_points(points: &[f64], bytes: &mut [u8]) {
    for (place, point) in bytes.chunks_exact_mut(size_of::<f64>()).zip(points) {
        place.copy_from_slice(&point.to_le_bytes());
    }
}

/// Sums the points with the same row and column.
pub(crate) fn main_diagonal(dimension: u64, points: &[u8]) -> f64 {
    points
        .chunks_exact(size_of::<f64>())
        .step_by(dimension as usize + 1)
        .map(|bytes| f64::from_le_bytes(bytes.try_into().expect("a point has eight bytes")))
        .sum()
}

/// Fowler–Noll–Vo over words of 64 bits, going on from `start`; lengths are multiples of eight.
pub(crate) fn checksum(start: u64, bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.chunks_exact(8).fold(start ^ BASIS, |hash, word| {
        let word = u64::from_le_bytes(word.try_into().expect("a word has eight bytes"));
        // The rotation lets the high bits of a word, a point's exponent, reach the low ones.
        (hash ^ word).wrapping_mul(PRIME).rotate_left(29)
    })
}

fn damaged(name: &str, reason: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read a checkpoint").because(reason).with("name", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back() {
        let header = Header::new(3, 7, 0.5, &[1; 72]);
        let again = Header::decode("it", &header.encode()).expect("own form");
        assert_eq!(again, header);
        assert_eq!(again.object_bytes(), 64 + 72);
        again.verify("it", &[1; 72]).expect("unchanged");
    }

    #[test]
    fn damage_is_noticed() {
        let header = Header::new(3, 7, 0.5, &[1; 72]);
        for byte in [0, 8, 16, 24, 32] {
            let mut bytes = header.encode();
            bytes[byte] ^= 1;
            let found = Header::decode("it", &bytes).and_then(|it| it.verify("it", &[1; 72]));
            assert_eq!(found.expect_err("damaged").kind(), ErrorKind::Corrupt, "byte {byte}");
        }
        let mut points = [1; 72];
        points[71] = 0x80;
        assert!(header.verify("it", &points).is_err());
    }

    #[test]
    fn the_main_diagonal_is_summed() {
        let mut bytes = [0; 72];
        encode_points(&[1.0, 9.0, 9.0, 9.0, 20.0, 9.0, 9.0, 9.0, 300.0], &mut bytes);
        assert_eq!(main_diagonal(3, &bytes), 321.0);
    }
}
