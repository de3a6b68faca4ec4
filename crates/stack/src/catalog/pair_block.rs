// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairs of a catalog one after the other, as blocks of a backup and records of a log hold them; the
//! format is in `docs/formats/backup.md`.

use terrace_core::{Error, ErrorKind, KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, Result};

/// Length of the key and of the value.
pub(crate) const PAIR_HEAD_BYTES: usize = 2 + 4;

/// In the place of a value's length: the pair is gone.
const GONE: u32 = u32::MAX;

/// A key, and its value; `None` for a pair that is gone.
pub(crate) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Adds a pair to a block; `None` for one that is gone.
pub(crate) fn push_pair(block: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    block.extend((key.len() as u16).to_le_bytes());
    block.extend(value.map_or(GONE, |value| value.len() as u32).to_le_bytes());
    block.extend(key);
    block.extend(value.unwrap_or_default());
}

/// The pairs of a block.
///
/// # Errors
///
/// `Corrupt`.
pub(crate) fn split_pairs(mut block: &[u8]) -> Result<Vec<Change<'_>>> {
    let mut pairs = Vec::new();
    while let Some((head, rest)) = block.split_first_chunk::<PAIR_HEAD_BYTES>() {
        let [a, b, c, d, e, f] = *head;
        let key_bytes = usize::from(u16::from_le_bytes([a, b]));
        let value_bytes = u32::from_le_bytes([c, d, e, f]);
        let cut = || corrupt("a pair is longer than its block");
        let is_long = value_bytes != GONE && value_bytes as usize > KV_VALUE_BYTES_MAX;
        if key_bytes == 0 || key_bytes > KV_KEY_BYTES_MAX || is_long {
            return Err(corrupt("the length of a key or a value is out of bounds"));
        }
        let (key, rest) = rest.split_at_checked(key_bytes).ok_or_else(cut)?;
        let (value, rest) = match value_bytes {
            GONE => (None, rest),
            bytes => {
                let (value, rest) = rest.split_at_checked(bytes as usize).ok_or_else(cut)?;
                (Some(value), rest)
            }
        };
        pairs.push((key, value));
        block = rest;
    }
    if block.is_empty() { Ok(pairs) } else { Err(corrupt("a block ends in the middle of a pair")) }
}

fn corrupt(reason: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, "read pairs of a catalog").because(reason)
}
