// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of the catalog, what the files of a tier say of themselves, and labels.
//!
//! Records and files end with a checksum, which hides what is behind it from chance: inputs come
//! without, and it is put on here.

use terrace_backends::framed_fuzzing::read_frames;
use terrace_backends::fuzzing::{reencode_identity, reencode_superblock};
use terrace_client::striped::fuzzing::{reencode_layout, reencode_piece};
use terrace_core::{ErrorKind, Result};
use terrace_stack::fuzzing::RECORDS;

use crate::input::Input;

/// A record of the catalog is refused, or is written again as the same bytes: there are no two ways
/// to write one. The first byte chooses the kind.
pub(crate) fn catalog(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let (kind, reencode) = RECORDS[input.choice(RECORDS.len())];
    let bytes = with_checksum(input.rest());
    same_or_refused(kind, &bytes, reencode(&bytes))
}

/// The same for the identity of a file.
pub(crate) fn identity(input: &[u8]) -> bool {
    let bytes = with_checksum(input);
    same_or_refused("identity", &bytes, reencode_identity(&bytes))
}

/// The same for the superblock of a tier, which is a text.
pub(crate) fn superblock(input: &[u8]) -> bool {
    let line = format!("crc32c={:08x}\n", crc32c::crc32c(input));
    let text = [input, line.as_bytes()].concat();
    let again = reencode_superblock(&text);
    assert!(again.as_deref().is_none_or(|again| again.as_bytes() == text), "{again:?}");
    again.is_some()
}

/// Frames of a packed object, sealed as they are, are refused or have the length that their object says.
pub(crate) fn frames(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let frame_bits = 11 + input.choice(4) as u8;
    let size_bytes = input.take(3).iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let count = input.choice(5);
    let frames: Vec<_> = (0..count)
        .map(|_| {
            let is_compressed = input.choice(2) == 1;
            let length = input.choice(256) * if is_compressed { 1 } else { 16 };
            (is_compressed, input.take(length))
        })
        .collect();
    match read_frames(frame_bits, size_bytes, &frames) {
        Ok(data) => {
            assert_eq!(data.len() as u64, size_bytes, "an object has its length");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            false
        }
    }
}

/// What a label says of an object over several servers: the layout, or whose piece it is.
pub(crate) fn layout(input: &[u8]) -> bool {
    let is_layout = same_or_refused("layout", input, reencode_layout(input));
    let is_piece = same_or_refused("piece", input, reencode_piece(input));
    assert!(!(is_layout && is_piece), "one label with two meanings");
    is_layout || is_piece
}

/// The bytes with their CRC-32C behind.
pub(crate) fn with_checksum(body: &[u8]) -> Vec<u8> {
    let checksum = crc32c::crc32c(body);
    [body, &checksum.to_le_bytes()].concat()
}

/// Whether they were written again as the same, and not refused.
pub(crate) fn same_or_refused(kind: &str, bytes: &[u8], again: Result<Vec<u8>>) -> bool {
    match again {
        Ok(again) => {
            assert_eq!(again, bytes, "two ways to write one {kind}");
            true
        }
        Err(error) => {
            // Unsupported: of another version.
            let kinds = [ErrorKind::Corrupt, ErrorKind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{error}");
            assert!(error.to_string().contains(": "), "no reason: {error}");
            false
        }
    }
}
