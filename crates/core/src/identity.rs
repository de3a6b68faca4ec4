// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stored file belongs to, and which store a tier belongs to.

use std::sync::Arc;

use crate::Key;

/// What a stored file is to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The target of a migration that has not finished: garbage after a crash.
    Partial,
    /// The location of its segment.
    Primary,
    /// A clean copy.
    Copy,
    /// Superseded, waiting to be deleted.
    Dead,
}

/// What a stored file belongs to: kept beside its bytes, so that swapped, stale and foreign files
/// are recognised and the catalog can be rebuilt from the tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The store it belongs to.
    pub store_id: u128,
    /// Never reused within a store.
    pub object_id: u64,
    /// Index of the segment in its object.
    pub segment: u32,
    /// Offset of the segment in its object.
    pub start_bytes: u64,
    /// Store-wide number of this location; the highest complete primary is the right one.
    pub generation: u64,
    /// Number of the store's opening in which the file was made.
    pub epoch: u64,
    /// What the file is to its object.
    pub role: Role,
    /// The object's key.
    pub key: Key,
    /// The object's label; 1 to [`LABEL_BYTES_MAX`](crate::LABEL_BYTES_MAX) bytes.
    pub label: Option<Arc<[u8]>>,
}

/// What a tier's root says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The store the tier belongs to.
    pub store_id: u128,
    /// The tier's name in its store.
    pub tier: String,
    /// Version of the format on the tier.
    pub format_version: u32,
    /// Features a reader must know; unknown bits are refused.
    pub feature_bits: u64,
    /// Number of the store's opening that last wrote here.
    pub epoch: u64,
    /// How a wrapper around the backend frames its objects, in the words of that wrapper; `None` without one.
    /// A stack takes no tier that has it: the wrapper takes it off.
    pub frames: Option<String>,
}
