// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What fuzzers need of the private formats of a tier in a directory. Not for anybody else: it may
//! change with every version.

use terrace_core::{Key, Result};

use super::path::{self, ObjectPath};
use super::{identity, superblock};

/// The bytes of the identity that these bytes are.
///
/// # Errors
///
/// `Corrupt` where they are none.
pub fn reencode_identity(bytes: &[u8]) -> Result<Vec<u8>> {
    identity::decode(bytes).map(|identity| identity::encode(&identity))
}

/// The text of the superblock that these bytes are; `None` where they are none.
pub fn reencode_superblock(bytes: &[u8]) -> Option<String> {
    superblock::decode(bytes).map(|superblock| superblock::encode(&superblock))
}

/// Where an object's file is, below the root of its tier.
pub fn path_of(key: &Key) -> Vec<u8> {
    ObjectPath::new(key).as_bytes().to_vec()
}

/// The key of the object whose file is there; `None` for a file that is none of ours.
pub fn key_at(path: &[u8]) -> Option<Key> {
    let mut parts = path.splitn(3, |byte| *byte == b'/');
    let namespace = path::parse_namespace(parts.next()?)?;
    let bucket = path::parse_bucket(parts.next()?)?;
    path::parse_key(&namespace, bucket, parts.next()?)
}
