// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The further pieces of an object: objects under unique names, which name their object.

use terrace_core::{Error, Key, Result};

use super::layout::{Layout, check_tag, damaged};

/// What names of pieces begin with: behind every other name, so that a listing ends there. U+10FFFF
/// is no character, and never will be.
pub(super) const RESERVED: &str = "\u{10ffff}\u{10ffff}";

/// First bytes of a piece's label: what it is, and its version.
const TAG: [u8; 2] = [b'P', 2];

/// Of one that does not say which server is the home.
const TAG_WITHOUT_HOME: [u8; 2] = [b'P', 1];

/// Whether a name can only be that of a piece.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}

/// Refuses names that are kept for pieces. Errors: `Invalid`.
pub(super) fn check_name(operation: &'static str, key: &Key) -> Result<()> {
    if is_reserved(key.name()) {
        return Err(Error::invalid(operation, "names like this are kept for parts of objects")
            .with("key", key));
    }
    Ok(())
}

/// Which piece of which object something is; its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(super) object_id: u128,
    /// At least 1: piece 0 is the object itself.
    pub(super) index: u8,
    /// The store id of the server that has the object itself; `None` in labels of version 1.
    pub(super) home: Option<u128>,
    /// The name of the object, in the same namespace.
    pub(super) owner: Key,
}

impl Piece {
    /// The piece of this number of an object that is laid out so.
    pub(super) fn of(layout: &Layout, index: usize, owner: &Key) -> Self {
        let (object_id, home) = (layout.object_id(), Some(layout.servers()[0]));
        Self { object_id, index: index as u8, home, owner: owner.clone() }
    }

    /// Where the piece is kept.
    pub(super) fn key(&self) -> Key {
        let name = format!("{RESERVED}{:032x}.{}", self.object_id, self.index);
        Key::new(self.owner.namespace(), &name).expect("it is short")
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut label = self.home.map_or(TAG_WITHOUT_HOME, |_| TAG).to_vec();
        label.extend(self.object_id.to_le_bytes());
        label.push(self.index);
        label.extend(self.home.iter().flat_map(|home| home.to_le_bytes()));
        label.extend(self.owner.name().as_bytes());
        label
    }

    /// # Errors
    ///
    /// `Corrupt` for anything that `encode` does not write, `Unsupported` for another version.
    pub(crate) fn decode(namespace: &str, label: &[u8]) -> Result<Self> {
        let has_home = !label.starts_with(&TAG_WITHOUT_HOME);
        let rest = check_tag(label, if has_home { TAG } else { TAG_WITHOUT_HOME })?;
        let wrong = || damaged("it is cut");
        let (object_id, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (index, rest) = rest.split_first().ok_or_else(wrong)?;
        let (home, name) = match has_home {
            true => rest.split_first_chunk().map(|(home, name)| (Some(*home), name)),
            false => Some((None, rest)),
        }
        .ok_or_else(wrong)?;
        let name = std::str::from_utf8(name).map_err(|_| damaged("its name is not UTF-8"))?;
        let owner = Key::new(namespace, name)
            .map_err(|error| damaged("its name is none").caused_by(error))?;
        if *index == 0 || is_reserved(owner.name()) {
            return Err(damaged("it is no piece"));
        }
        let (object_id, home) = (u128::from_le_bytes(*object_id), home.map(u128::from_le_bytes));
        Ok(Self { object_id, index: *index, home, owner })
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::{LABEL_BYTES_MAX, NAME_BYTES_MAX};

    use super::*;

    fn piece(name: &str) -> Piece {
        let owner = Key::new("test", name).expect("legal");
        Piece { object_id: 0xab, index: 2, home: Some(1), owner }
    }

    #[test]
    fn a_piece_says_whose_it_is() {
        for name in ["a", &"x".repeat(NAME_BYTES_MAX)] {
            for home in [Some(u128::MAX), None] {
                let piece = Piece { home, ..piece(name) };
                let label = piece.encode();
                assert!(label.len() <= LABEL_BYTES_MAX);
                assert_eq!(Piece::decode("test", &label).expect("own bytes"), piece);
            }
        }
        let expected = format!("{RESERVED}{:0>32}.2", "ab");
        assert_eq!(piece("a").key().name(), expected);
        check_name("test", &piece("a").key()).expect_err("nobody else may use it");
    }

    #[test]
    fn the_names_of_pieces_are_behind_all_others() {
        let last = "\u{10ffff}\u{10fffe}\u{10ffff}";
        assert!(piece("a").key().name() > last && !is_reserved(last));
    }

    #[test]
    fn the_documented_vectors_are_made_and_read_back() {
        let document = include_str!("../../../../docs/formats/layout.md");
        let mut blocks = document.split("```vector\n").skip(3);
        let object_id = 0xfedc_ba98_7654_3210_0123_4567_89ab_cdef;
        let home = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
        for home in [Some(home), None] {
            let block = blocks.next().expect("the document has two vectors of pieces");
            let vector: String =
                block.split("```").next().expect("it ends").split_whitespace().collect();
            let label = Piece { object_id, home, ..piece("t2m") }.encode();
            let hex: String = label.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, vector);
        }
    }

    #[test]
    fn what_is_no_piece_is_refused() {
        for (home, name_at) in [(Some(1), 35), (None, 19)] {
            let label = Piece { home, ..piece("a") }.encode();
            for length in 0..label.len() {
                Piece::decode("test", &label[..length]).expect_err("cut");
            }
            let changed = |at: usize, value: u8| {
                let mut label = label.clone();
                label[at] = value;
                Piece::decode("test", &label).expect_err("wrong")
            };
            changed(0, b'L');
            changed(1, 3);
            changed(18, 0);
            changed(name_at, 0xff);
            changed(name_at, 0);
        }
    }
}
