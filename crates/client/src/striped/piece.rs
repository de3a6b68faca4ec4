// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The further pieces of an object: objects under names that nobody else uses, which say whose
//! they are.

use terrace_core::{Error, Key, Result};

use super::layout::{check_tag, damaged};

/// What names of pieces begin with: behind every other name, so that a listing ends there. U+10FFFF
/// is no character, and never will be.
pub(super) const RESERVED: &str = "\u{10ffff}\u{10ffff}";

/// First bytes of a piece's label: what it is, and its version.
const TAG: [u8; 2] = [b'P', 1];

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
    /// The name of the object, in the same namespace.
    pub(super) owner: Key,
}

impl Piece {
    /// Where the piece is kept.
    pub(super) fn key(&self) -> Key {
        let name = format!("{RESERVED}{:032x}.{}", self.object_id, self.index);
        Key::new(self.owner.namespace(), &name).expect("it is short")
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut label = TAG.to_vec();
        label.extend(self.object_id.to_le_bytes());
        label.push(self.index);
        label.extend(self.owner.name().as_bytes());
        label
    }

    /// # Errors
    ///
    /// `Corrupt` for anything that `encode` does not write, `Unsupported` for another version.
    pub(crate) fn decode(namespace: &str, label: &[u8]) -> Result<Self> {
        let rest = check_tag(label, TAG)?;
        let wrong = || damaged("it is cut");
        let (object_id, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (index, name) = rest.split_first().ok_or_else(wrong)?;
        let name = std::str::from_utf8(name).map_err(|_| damaged("its name is not UTF-8"))?;
        let owner = Key::new(namespace, name)
            .map_err(|error| damaged("its name is none").caused_by(error))?;
        if *index == 0 || is_reserved(owner.name()) {
            return Err(damaged("it is no piece"));
        }
        Ok(Self { object_id: u128::from_le_bytes(*object_id), index: *index, owner })
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::{LABEL_BYTES_MAX, NAME_BYTES_MAX};

    use super::*;

    fn piece(name: &str) -> Piece {
        let owner = Key::new("test", name).expect("legal");
        Piece { object_id: 0xab, index: 2, owner }
    }

    #[test]
    fn a_piece_says_whose_it_is() {
        for name in ["a", &"x".repeat(NAME_BYTES_MAX)] {
            let label = piece(name).encode();
            assert!(label.len() <= LABEL_BYTES_MAX);
            assert_eq!(Piece::decode("test", &label).expect("own bytes"), piece(name));
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
    fn the_documented_vector_is_made_and_read_back() {
        let document = include_str!("../../../../docs/formats/layout.md");
        let block = document.split("```vector\n").nth(3).expect("the document has three vectors");
        let vector: String =
            block.split("```").next().expect("it ends").split_whitespace().collect();
        let object_id = 0xfedc_ba98_7654_3210_0123_4567_89ab_cdef;
        let label = Piece { object_id, ..piece("t2m") }.encode();
        let hex: String = label.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, vector);
    }

    #[test]
    fn what_is_no_piece_is_refused() {
        let label = piece("a").encode();
        for length in 0..label.len() {
            Piece::decode("test", &label[..length]).expect_err("cut");
        }
        let changed = |at: usize, value: u8| {
            let mut label = label.clone();
            label[at] = value;
            Piece::decode("test", &label).expect_err("wrong")
        };
        changed(0, b'L');
        changed(1, 2);
        changed(18, 0);
        changed(19, 0xff);
        changed(19, 0);
    }
}
