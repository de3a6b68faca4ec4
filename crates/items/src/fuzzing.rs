// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decoders, for fuzzing. Not part of the interface.

use terrace_core::Result;

use crate::place::{ItemObject, Shelf, collection_of};
use crate::record::Record;

/// Reads a record and writes it again.
pub fn reencode_record(bytes: &[u8]) -> Result<Vec<u8>> {
    Record::decode(bytes).map(Record::encode)
}

/// Reads the key of a pair and writes it again; `None` where it is that of nothing here.
pub fn reencode_pair_key(bytes: &[u8]) -> Option<Vec<u8>> {
    let shelf = match bytes.first()? {
        b'c' => Shelf::collections(),
        _ => Shelf::items(collection_of(bytes)?),
    };
    let (name, id) = shelf.parse(bytes)?;
    Some(shelf.key(name, id))
}

/// Reads the name of an item's object and writes it again.
pub fn reencode_object_name(text: &str) -> Option<String> {
    ItemObject::parse(text).map(|item| item.key().name().to_string())
}
