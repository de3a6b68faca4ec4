// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a framed object: frames, their index, and a trailer. Specified in
//! `docs/formats/frames.md`.

use terrace_core::{Error, ErrorKind, Key, Result};

use super::seal::{FrameKey, Part, Seal, seal_bytes};
use super::shape::{ENCRYPTED, FRAME_BITS, FRAME_BYTES, Shape};

/// Frames of 4 KiB to 128 KiB are read: a bucket may claim any length, and each reader keeps one frame.
const FRAME_BITS_READ: std::ops::RangeInclusive<u8> = 12..=FRAME_BITS;

const MAGIC: &[u8; 8] = b"TERRFRM1";

pub(super) const TRAILER_BYTES: usize = 48;

/// Of an entry of the index: the frame is compressed.
const COMPRESSED: u32 = 1 << 31;

/// Bytes of an entry of the index.
const INDEX_ENTRY_BYTES: usize = 4;

/// Largest object: its index stays below 2 GiB.
pub(super) const OBJECT_BYTES_MAX: u64 = 1 << 45;

/// The longest object that is stored in at most `stored_bytes_max`, however little compression shortens it. It is
/// made of whole frames where one fits, so that cuts at this length are aligned.
pub(super) fn plain_bytes_max(stored_bytes_max: u64, is_encrypted: bool) -> u64 {
    let seal_bytes = seal_bytes(is_encrypted) as u64;
    let end_bytes = seal_bytes + TRAILER_BYTES as u64;
    let around_frame_bytes = seal_bytes + INDEX_ENTRY_BYTES as u64;
    let left_bytes = stored_bytes_max.saturating_sub(end_bytes);
    let plain_bytes = match left_bytes / (FRAME_BYTES as u64 + around_frame_bytes) {
        0 => left_bytes.saturating_sub(around_frame_bytes),
        frames => frames * FRAME_BYTES as u64,
    };
    plain_bytes.min(OBJECT_BYTES_MAX)
}

/// Where a frame is in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset_bytes: u64,
    /// With its seal.
    pub(super) stored_bytes: usize,
    pub(super) plain_bytes: usize,
    pub(super) is_compressed: bool,
}

/// Lengths of the frames while an object is written.
#[derive(Debug, Default)]
pub(super) struct Lengths(Vec<u32>);

impl Lengths {
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Notes a frame, without its seal.
    pub(super) fn push(&mut self, stored_bytes: usize, is_compressed: bool) {
        let length = u32::try_from(stored_bytes).expect("a frame is short");
        self.0.push(if is_compressed { length | COMPRESSED } else { length });
    }

    /// Index and trailer of an object whose frames are written.
    pub(super) fn finish(&self, size_bytes: u64, shape: &Shape, seal: &Seal) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.iter().flat_map(|length| length.to_le_bytes()).collect();
        seal.close(Part::Index(size_bytes), &mut bytes, 0);
        bytes.extend_from_slice(&trailer(size_bytes, shape));
        bytes
    }
}

fn trailer(size_bytes: u64, shape: &Shape) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[..8].copy_from_slice(&size_bytes.to_le_bytes());
    bytes[8..26].copy_from_slice(&shape.encode());
    let crc = crc32c::crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    bytes[40..].copy_from_slice(MAGIC);
    bytes
}

/// The contents of the trailer of an object. Its frames and its length are believed only once the index, which
/// is sealed with them, has been opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) size_bytes: u64,
    pub(super) shape: Shape,
}

impl Trailer {
    /// `None` where the bytes are no trailer that is read here.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; TRAILER_BYTES] = bytes.try_into().ok()?;
        let crc = u32::from_le_bytes(bytes[36..40].try_into().ok()?);
        let is_right = &bytes[40..] == MAGIC && crc32c::crc32c(&bytes[..36]) == crc;
        let (flags, frame_bits) = (bytes[24], bytes[25]);
        let is_known = flags & !ENCRYPTED == 0 && FRAME_BITS_READ.contains(&frame_bits);
        let size_bytes = u64::from_le_bytes(bytes[..8].try_into().ok()?);
        // A bucket may claim any length: what an index takes in memory stays bounded.
        let frames = size_bytes >> frame_bits.min(63);
        let is_possible = size_bytes <= OBJECT_BYTES_MAX
            && frames <= OBJECT_BYTES_MAX / FRAME_BYTES as u64
            && bytes[26..36] == [0; 10];
        (is_right && is_known && is_possible).then(|| {
            let salt = bytes[8..24].try_into().expect("it has 16 bytes");
            let shape = Shape { salt, is_encrypted: flags & ENCRYPTED != 0, frame_bits };
            Self { size_bytes, shape }
        })
    }

    fn frames(&self) -> u64 {
        self.size_bytes.div_ceil(self.shape.frame_bytes())
    }

    /// Bytes of the index, with its seal.
    pub(super) fn index_bytes(&self) -> u64 {
        self.frames() * INDEX_ENTRY_BYTES as u64 + seal_bytes(self.shape.is_encrypted) as u64
    }
}

/// What is known of an object that is there.
pub(super) struct Index {
    pub(super) size_bytes: u64,
    frame_bytes: u64,
    seal_bytes: usize,
    pub(super) seal: Seal,
    /// Where each frame begins, and whether it is compressed; then where the last one ends.
    starts: Vec<u64>,
    compressed: Vec<bool>,
}

impl Index {
    /// Opens the index of an object that has `stored_bytes` in all.
    ///
    /// # Errors
    ///
    /// `Corrupt`.
    pub(super) fn open(
        name: &Key,
        key: Option<&FrameKey>,
        trailer: &Trailer,
        sealed: &mut [u8],
        stored_bytes: u64,
    ) -> Result<Self> {
        let shape = &trailer.shape;
        let seal = Seal::new(shape, key, name);
        let opened = seal.open(Part::Index(trailer.size_bytes), sealed);
        let opened = opened.ok_or_else(|| corrupt(name, "its index fails its check"))?;
        let entry = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("it has 4 bytes"));
        let lengths = Lengths(opened.chunks_exact(INDEX_ENTRY_BYTES).map(entry).collect());
        let index = Self::of_lengths(trailer.size_bytes, shape, seal, &lengths);
        let wanted = stored_bytes.checked_sub(trailer.index_bytes() + TRAILER_BYTES as u64);
        if wanted != index.starts.last().copied() {
            return Err(corrupt(name, "it is not as long as its frames"));
        }
        let is_bounded = |number: u64| {
            let place = index.place(number);
            let data_bytes = place.stored_bytes - index.seal_bytes;
            match place.is_compressed {
                true => data_bytes < place.plain_bytes,
                false => data_bytes == place.plain_bytes,
            }
        };
        match (0..index.compressed.len() as u64).all(is_bounded) {
            true => Ok(index),
            false => Err(corrupt(name, "a frame is longer than it may be")),
        }
    }

    /// The index of an object whose frames have these lengths.
    pub(super) fn of_lengths(
        size_bytes: u64,
        shape: &Shape,
        seal: Seal,
        lengths: &Lengths,
    ) -> Self {
        let (mut starts, mut at) = (vec![0], 0);
        for length in &lengths.0 {
            at += u64::from(length & !COMPRESSED) + seal.bytes() as u64;
            starts.push(at);
        }
        let compressed = lengths.0.iter().map(|length| length & COMPRESSED != 0).collect();
        Self {
            size_bytes,
            frame_bytes: shape.frame_bytes(),
            seal_bytes: seal.bytes(),
            seal,
            starts,
            compressed,
        }
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }

    /// Where a frame is.
    pub(super) fn place(&self, number: u64) -> Place {
        let at = number as usize;
        let left = self.size_bytes - number * self.frame_bytes;
        Place {
            offset_bytes: self.starts[at],
            stored_bytes: (self.starts[at + 1] - self.starts[at]) as usize,
            plain_bytes: left.min(self.frame_bytes) as usize,
            is_compressed: self.compressed[at],
        }
    }
}

pub(super) fn corrupt(name: &Key, reason: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, "read a framed object").because(reason).with("key", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_below_leaves_room_for_what_frames_add() {
        const FRAME: u64 = FRAME_BYTES as u64;
        for is_encrypted in [false, true] {
            let seal = seal_bytes(is_encrypted) as u64;
            let stored = |plain: u64| {
                let frames = plain.div_ceil(FRAME);
                plain + frames * (seal + 4) + seal + TRAILER_BYTES as u64
            };
            for bound in [100, 5000, FRAME, stored(FRAME), 1 << 20, stored(9 * FRAME), 64 << 20] {
                let most = plain_bytes_max(bound, is_encrypted);
                assert!(stored(most) <= bound);
                let next = if most < FRAME { most + 1 } else { most + FRAME };
                assert!(stored(next) > bound, "{bound}: {most}");
            }
            assert_eq!(plain_bytes_max(64 << 20, is_encrypted), 511 * FRAME);
            assert_eq!(plain_bytes_max(u64::MAX, is_encrypted), OBJECT_BYTES_MAX);
            assert_eq!(plain_bytes_max(0, is_encrypted), 0);
        }
    }

    #[test]
    fn what_a_trailer_may_claim_is_bounded() {
        let is_read = |size_bytes, frame_bits| {
            let shape = Shape { salt: [0; 16], is_encrypted: false, frame_bits };
            Trailer::decode(&trailer(size_bytes, &shape)).is_some()
        };
        assert!(is_read(OBJECT_BYTES_MAX, FRAME_BITS) && is_read(1 << 40, 12));
        // An index of 32 GiB, and a longer object than is written.
        assert!(!is_read(OBJECT_BYTES_MAX, 12) && !is_read(OBJECT_BYTES_MAX + 1, FRAME_BITS));
        // Frames that are longer than memory is kept for, and shorter than any that is written.
        assert!(!is_read(1, FRAME_BITS + 1) && !is_read(1, 11));
    }
}
