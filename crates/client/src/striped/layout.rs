// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where each byte of an object is: one formula for every distribution, stored with the object.
//!
//! Specified, with test vectors, in `docs/formats/layout.md`.

use terrace_core::{Error, ErrorKind, LABEL_BYTES_MAX, Result};

/// Most pieces of an object, so that its layout fits a label: 16 servers, and a head of its own.
pub(crate) const PIECES_MAX: usize = 17;

/// Longest pattern.
pub(crate) const PATTERN_MAX: usize = 128;

/// Longest head and longest stripe, 1 TiB: far beyond use, and no sum overflows.
pub(crate) const STRIPE_BYTES_MAX: u64 = 1 << 40;

/// First bytes of an encoded layout: what it is, and its version.
const TAG: [u8; 2] = [b'L', 1];

/// How an object is cut into pieces.
///
/// The head is at the beginning of piece 0, which is the object itself on its home. Behind it,
/// stripe after stripe, `pattern` says over and over which piece the next one belongs to; the
/// stripes of a piece follow each other without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    object_id: u128,
    head_bytes: u64,
    stripe_bytes: u64,
    /// The server of each piece.
    servers: Vec<u128>,
    pattern: Vec<u8>,
    /// For each piece the places in the pattern that are its own.
    places: Vec<Vec<u8>>,
}

/// A part of an object that lies in one piece without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) piece: usize,
    pub(crate) length_bytes: u64,
}

impl Layout {
    /// # Errors
    ///
    /// `Invalid` where a number is out of bounds, a place of the pattern names no piece, or a piece
    /// could never hold a byte.
    pub(crate) fn new(
        object_id: u128,
        head_bytes: u64,
        stripe_bytes: u64,
        servers: Vec<u128>,
        pattern: Vec<u8>,
    ) -> Result<Self> {
        let wrong = |reason| Err(Error::invalid("lay an object out", reason));
        if head_bytes > STRIPE_BYTES_MAX || !(1..=STRIPE_BYTES_MAX).contains(&stripe_bytes) {
            return wrong("the head or the stripe has a wrong length");
        }
        if servers.is_empty() || servers.len() > PIECES_MAX {
            return wrong("it has no piece or too many");
        }
        if pattern.is_empty() || pattern.len() > PATTERN_MAX {
            return wrong("its pattern is empty or too long");
        }
        let mut places = vec![Vec::new(); servers.len()];
        for (place, piece) in pattern.iter().enumerate() {
            let Some(own) = places.get_mut(usize::from(*piece)) else {
                return wrong("its pattern names a piece that it does not have");
            };
            own.push(place as u8);
        }
        let is_used = |piece: usize| !places[piece].is_empty() || piece == 0 && head_bytes > 0;
        if !(0..servers.len()).all(is_used) {
            return wrong("one of its pieces would hold nothing");
        }
        Ok(Self { object_id, head_bytes, stripe_bytes, servers, pattern, places })
    }

    /// A random number of the object, of which its pieces have their names.
    pub(crate) fn object_id(&self) -> u128 {
        self.object_id
    }

    /// The server of each piece; the first is the object's home.
    pub(crate) fn servers(&self) -> &[u128] {
        &self.servers
    }

    /// The part without gaps that begins at an offset of the object, however far it goes.
    pub(crate) fn run_at(&self, offset_bytes: u64) -> Run {
        let Some(behind) = offset_bytes.checked_sub(self.head_bytes) else {
            return Run { piece: 0, length_bytes: self.head_bytes - offset_bytes };
        };
        let stripe = behind / self.stripe_bytes;
        let place = (stripe % self.pattern.len() as u64) as usize;
        let length_bytes = self.stripe_bytes - behind % self.stripe_bytes;
        Run { piece: usize::from(self.pattern[place]), length_bytes }
    }

    /// Bytes of a piece that belong in front of an offset of the object: where that offset, or what
    /// follows it, is in the piece.
    pub(crate) fn below(&self, piece: usize, offset_bytes: u64) -> u64 {
        let head = if piece == 0 { self.head_bytes.min(offset_bytes) } else { 0 };
        let behind = offset_bytes.saturating_sub(self.head_bytes);
        let stripe = behind / self.stripe_bytes;
        let length = self.pattern.len() as u64;
        let (rounds, place) = (stripe / length, (stripe % length) as usize);
        let own = &self.places[piece];
        let before = own.partition_point(|own| usize::from(*own) < place) as u64;
        let is_inside = usize::from(self.pattern[place]) == piece;
        let inside = if is_inside { behind % self.stripe_bytes } else { 0 };
        head + (rounds * own.len() as u64 + before) * self.stripe_bytes + inside
    }

    /// Where a byte of a piece is in the object; the last offset that there can be where no object
    /// is as long.
    pub(crate) fn offset_of(&self, piece: usize, piece_bytes: u64) -> u64 {
        let head = if piece == 0 { self.head_bytes } else { 0 };
        let own = &self.places[piece];
        let Some(behind) = piece_bytes.checked_sub(head) else { return piece_bytes };
        if own.is_empty() {
            return OFFSET_MAX;
        }
        let (stripe, inside) = (behind / self.stripe_bytes, behind % self.stripe_bytes);
        let (rounds, nth) = (stripe / own.len() as u64, (stripe % own.len() as u64) as usize);
        let round_bytes = self.pattern.len() as u128 * u128::from(self.stripe_bytes);
        let place_bytes = u64::from(own[nth]) * self.stripe_bytes;
        let offset = u128::from(rounds) * round_bytes
            + u128::from(self.head_bytes)
            + u128::from(place_bytes)
            + u128::from(inside);
        u64::try_from(offset).map_or(OFFSET_MAX, |offset| offset.min(OFFSET_MAX))
    }

    /// How long the object is at least where a piece has this length.
    pub(crate) fn end_of(&self, piece: usize, length_bytes: u64) -> u64 {
        match length_bytes.checked_sub(1) {
            Some(last) => self.offset_of(piece, last) + 1,
            None => 0,
        }
    }

    /// The layout as a label.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut label = TAG.to_vec();
        label.extend(self.object_id.to_le_bytes());
        label.extend(self.head_bytes.to_le_bytes());
        label.extend(self.stripe_bytes.to_le_bytes());
        label.push(self.servers.len() as u8);
        label.extend(self.servers.iter().flat_map(|server| server.to_le_bytes()));
        label.push(self.pattern.len() as u8);
        label.extend(&self.pattern);
        debug_assert!(label.len() <= LABEL_BYTES_MAX);
        label
    }

    /// # Errors
    ///
    /// `Corrupt` for anything that `encode` does not write, `Unsupported` for another version.
    pub(crate) fn decode(label: &[u8]) -> Result<Self> {
        let rest = check_tag(label, TAG)?;
        let fields = || -> Option<_> {
            let (object_id, rest) = rest.split_first_chunk()?;
            let (head_bytes, rest) = rest.split_first_chunk()?;
            let (stripe_bytes, rest) = rest.split_first_chunk()?;
            let (count, rest) = rest.split_first()?;
            let (servers, rest) = rest.split_at_checked(16 * usize::from(*count))?;
            let (length, pattern) = rest.split_first()?;
            if pattern.len() != usize::from(*length) {
                return None;
            }
            let servers = servers.as_chunks::<16>().0.iter().map(|id| u128::from_le_bytes(*id));
            Some(Self::new(
                u128::from_le_bytes(*object_id),
                u64::from_le_bytes(*head_bytes),
                u64::from_le_bytes(*stripe_bytes),
                servers.collect(),
                pattern.to_vec(),
            ))
        };
        match fields() {
            None => Err(damaged("it has a wrong length")),
            Some(Err(error)) => Err(damaged("a number is wrong").caused_by(error)),
            Some(Ok(layout)) => Ok(layout),
        }
    }
}

/// No byte of an object is further.
const OFFSET_MAX: u64 = i64::MAX as u64 - 1;

/// What follows the first two bytes of a label.
///
/// # Errors
///
/// `Corrupt`; `Unsupported` where only the version is another.
pub(crate) fn check_tag(label: &[u8], tag: [u8; 2]) -> Result<&[u8]> {
    let (found, rest) =
        label.split_first_chunk::<2>().ok_or_else(|| damaged("it has a wrong length"))?;
    if found[0] != tag[0] {
        return Err(damaged("it says something else"));
    }
    if found[1] != tag[1] {
        return Err(Error::new(ErrorKind::Unsupported, "read a layout")
            .because("it was written by another version of terrace")
            .with("found", found[1])
            .with("expected", tag[1]));
    }
    Ok(rest)
}

pub(crate) fn damaged(reason: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "read a layout").because(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/formats/layout.md");

    fn layout(head_bytes: u64, stripe_bytes: u64, pieces: usize, pattern: &[u8]) -> Layout {
        let servers = (1..=pieces as u128).collect();
        Layout::new(7, head_bytes, stripe_bytes, servers, pattern.to_vec()).expect("legal")
    }

    fn some() -> Vec<Layout> {
        vec![
            layout(0, 1, 1, &[0]),
            layout(0, 4, 3, &[0, 1, 2]),
            layout(5, 4, 3, &[2, 1, 0]),
            layout(10, 3, 3, &[1, 2]),
            layout(1, 7, 4, &[0, 1, 0, 2, 0, 1, 3, 0]),
            layout(0, STRIPE_BYTES_MAX, 17, &(0..17).collect::<Vec<_>>()),
        ]
    }

    /// Counts byte by byte what the formula computes.
    #[test]
    fn every_byte_has_one_place() {
        for layout in &some()[..5] {
            let mut next = vec![0; layout.servers.len()];
            for offset in 0..500 {
                for (piece, next) in next.iter().enumerate() {
                    assert_eq!(layout.below(piece, offset), *next, "{layout:?} {piece} {offset}");
                }
                let run = layout.run_at(offset);
                let piece_bytes = next[run.piece];
                assert_eq!(layout.offset_of(run.piece, piece_bytes), offset, "{layout:?}");
                assert_eq!(layout.end_of(run.piece, piece_bytes + 1), offset + 1);
                for step in 0..run.length_bytes {
                    assert_eq!(layout.run_at(offset + step).piece, run.piece);
                }
                next[run.piece] += 1;
            }
        }
    }

    #[test]
    fn far_offsets_do_not_overflow() {
        for layout in some() {
            let far = i64::MAX as u64;
            for piece in 0..layout.servers.len() {
                assert!(layout.below(piece, far) <= far);
                for length in [0, 1, far, u64::MAX] {
                    assert!(layout.end_of(piece, length) <= far);
                }
            }
        }
    }

    #[test]
    fn a_layout_survives_its_encoding_and_fits_a_label() {
        for layout in some() {
            assert_eq!(Layout::decode(&layout.encode()).expect("own bytes"), layout);
        }
        let pattern: Vec<u8> = (0..PATTERN_MAX).map(|place| (place % PIECES_MAX) as u8).collect();
        assert!(layout(1, 1, PIECES_MAX, &pattern).encode().len() <= LABEL_BYTES_MAX);
    }

    #[test]
    fn the_documented_vectors_are_made_and_read_back() {
        let ids = [0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, 1, u128::MAX];
        let id = 0xfedc_ba98_7654_3210_0123_4567_89ab_cdef;
        let made = [
            Layout::new(id, 0, 1 << 20, ids.to_vec(), vec![0, 1, 2]),
            Layout::new(id, 65536, 1 << 20, [&ids[..1], &ids].concat(), vec![2, 3, 1]),
        ];
        let mut blocks = DOCUMENT.split("```vector\n").skip(1);
        for layout in made {
            let layout = layout.expect("legal");
            let block = blocks.next().expect("the document has two vectors");
            let vector: String =
                block.split("```").next().expect("it ends").split_whitespace().collect();
            let hex: String = layout.encode().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, vector);
        }
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        let kind = |label: &[u8]| Layout::decode(label).expect_err("no layout").kind();
        let bytes = layout(5, 4, 3, &[0, 1, 2]).encode();
        for length in 0..bytes.len() {
            assert_eq!(kind(&bytes[..length]), ErrorKind::Corrupt, "cut at {length}");
        }
        assert_eq!(kind(&[&bytes[..], &[0]].concat()), ErrorKind::Corrupt);
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            kind(&bytes)
        };
        assert_eq!(changed(0, b'P'), ErrorKind::Corrupt);
        assert_eq!(changed(1, 2), ErrorKind::Unsupported);
        assert_eq!(changed(26, 0), ErrorKind::Corrupt, "no stripe");
        assert_eq!(changed(33, 1), ErrorKind::Corrupt, "a stripe that is too long");
        assert_eq!(changed(34, 2), ErrorKind::Corrupt, "fewer pieces");
        let last = bytes.len() - 1;
        assert_eq!(changed(last, 3), ErrorKind::Corrupt, "a piece that is none");
        assert_eq!(changed(last, 1), ErrorKind::Corrupt, "a piece that holds nothing");
    }
}
