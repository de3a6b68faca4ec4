// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What collections and items are made of: records, keys of pairs and names of objects.

use terrace_items::fuzzing::{reencode_object_name, reencode_pair_key, reencode_record};

use crate::records::{same_or_refused, with_checksum};

/// A record is refused, or is written again as the same bytes. Inputs come without the checksum.
pub(crate) fn record(input: &[u8]) -> bool {
    let bytes = with_checksum(input);
    same_or_refused("record of an item", &bytes, reencode_record(&bytes))
}

/// The key of a pair, or the name of an object, is that of one collection or item, or of none.
pub(crate) fn place(input: &[u8]) -> bool {
    let key = reencode_pair_key(input);
    assert!(key.as_deref().is_none_or(|again| again == input), "two keys of one pair");
    let name = std::str::from_utf8(input).ok().and_then(reencode_object_name);
    assert!(name.as_deref().is_none_or(|again| again.as_bytes() == input), "two names: {name:?}");
    key.is_some() || name.is_some()
}
