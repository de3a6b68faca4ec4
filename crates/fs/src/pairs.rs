// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keys of the pairs that make up a file system. Specified in `docs/formats/fs.md`.

use terrace_core::KvRange;

/// The pair that says that there is a file system, and which.
pub(crate) const SUPERBLOCK: &[u8] = b"s";

/// The pair that says that the bytes of files may be on several servers: none of them knows by
/// itself which objects there are.
pub(crate) const DISTRIBUTED: &[u8] = b"m";

/// The pair that says over which stores the file system lies, where these are several.
pub(crate) const STORES: &[u8] = b"v";

/// The pair of a store that holds parts of a file system whose names are with another one: which.
pub(crate) const BELONGS: &[u8] = b"b";

/// The pair that says that the others were saved at an earlier time than the objects are of, and were
/// not compared with these since.
pub(crate) const RESTORED: &[u8] = b"r";

pub(crate) const NODE: u8 = b'i';
pub(crate) const ENTRY: u8 = b'd';
pub(crate) const XATTR: u8 = b'x';
pub(crate) const CONTENT: u8 = b'c';
pub(crate) const NAMELESS: u8 = b'o';
pub(crate) const GARBAGE: u8 = b'g';

fn numbered(letter: u8, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(letter);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The record of a node.
pub(crate) fn node(number: u64) -> Vec<u8> {
    numbered(NODE, number)
}

/// The bytes of a small file, or the target of a symbolic link.
pub(crate) fn content(number: u64) -> Vec<u8> {
    numbered(CONTENT, number)
}

/// A node without a name that is open, or was when its user died.
pub(crate) fn nameless(number: u64) -> Vec<u8> {
    numbered(NAMELESS, number)
}

/// A node that is gone but for its object.
pub(crate) fn garbage(number: u64) -> Vec<u8> {
    numbered(GARBAGE, number)
}

/// Entries of a directory whose names have this hash.
pub(crate) fn entry(directory: u64, hash: u64) -> Vec<u8> {
    let mut key = numbered(ENTRY, directory);
    key.extend_from_slice(&hash.to_be_bytes());
    key
}

/// An extended attribute of a node.
pub(crate) fn xattr(number: u64, name: &[u8]) -> Vec<u8> {
    let mut key = numbered(XATTR, number);
    key.extend_from_slice(name);
    key
}

/// All entries of a directory.
pub(crate) fn entries(directory: u64) -> KvRange {
    KvRange::prefix(&numbered(ENTRY, directory))
}

/// All extended attributes of a node.
pub(crate) fn xattrs(number: u64) -> KvRange {
    KvRange::prefix(&numbered(XATTR, number))
}

/// All nodes without a name.
pub(crate) fn all_nameless() -> KvRange {
    KvRange::prefix(&[NAMELESS])
}

/// All objects that are to be deleted.
pub(crate) fn all_garbage() -> KvRange {
    KvRange::prefix(&[GARBAGE])
}

/// The number in a key of one of the numbered pairs.
pub(crate) fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?))
}

/// The hash in the key of entries.
pub(crate) fn hash_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(9..17)?.try_into().ok()?))
}

/// The name in the key of an extended attribute.
pub(crate) fn xattr_name(key: &[u8]) -> &[u8] {
    key.get(9..).unwrap_or_default()
}
