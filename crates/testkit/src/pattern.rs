// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes that say which object, version and offset they belong to.

use terrace_core::Random;

/// The byte at `offset_bytes` of a version of an object.
///
/// Versions and objects differ in nearly every byte, so bytes of another object, of an older
/// write or of another offset are recognised.
pub fn pattern(object: u64, version: u64, offset_bytes: u64) -> u8 {
    word(object, version, offset_bytes / 8)[(offset_bytes % 8) as usize]
}

/// `length_bytes` of the pattern from `offset_bytes` on.
pub fn pattern_bytes(object: u64, version: u64, offset_bytes: u64, length_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length_bytes + 16);
    let skipped = (offset_bytes % 8) as usize;
    let mut index = offset_bytes / 8;
    while bytes.len() < skipped + length_bytes {
        bytes.extend_from_slice(&word(object, version, index));
        index += 1;
    }
    bytes.drain(..skipped);
    bytes.truncate(length_bytes);
    bytes
}

/// Compares bytes that were read at `offset_bytes` with the pattern.
///
/// # Panics
///
/// At the first difference, naming its offset.
#[track_caller]
pub fn assert_pattern(object: u64, version: u64, offset_bytes: u64, bytes: &[u8]) {
    let expected = pattern_bytes(object, version, offset_bytes, bytes.len());
    if let Some(at) = bytes.iter().zip(&expected).position(|(have, want)| have != want) {
        panic!(
            "object {object} version {version} differs at offset {}: {:#04x} instead of {:#04x}",
            offset_bytes + at as u64,
            bytes[at],
            expected[at],
        );
    }
}

fn word(object: u64, version: u64, index: u64) -> [u8; 8] {
    let mut by_object = Random::new(object);
    let mut by_version = Random::new(by_object.next_u64() ^ version);
    Random::new(by_version.next_u64() ^ index).next_u64().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_part_of_the_whole() {
        let whole = pattern_bytes(1, 2, 0, 100);
        for start in 0..20 {
            assert_eq!(pattern_bytes(1, 2, start as u64, 30), whole[start..start + 30]);
            assert_eq!(pattern(1, 2, start as u64), whole[start]);
        }
    }

    #[test]
    fn versions_and_objects_differ() {
        let bytes = pattern_bytes(1, 2, 0, 64);
        assert_ne!(bytes, pattern_bytes(1, 3, 0, 64));
        assert_ne!(bytes, pattern_bytes(2, 2, 0, 64));
        assert_ne!(bytes, pattern_bytes(2, 1, 0, 64));
    }

    #[test]
    #[should_panic(expected = "offset 13")]
    fn a_difference_names_its_offset() {
        let mut bytes = pattern_bytes(1, 2, 10, 8);
        bytes[3] ^= 1;
        assert_pattern(1, 2, 10, &bytes);
    }
}
