// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in memory: where their bytes are, which room they have, and which threads use their files.
//!
//! Owns the map of entries, the entries with their segments, and the words of leases.
//!
//! Locks of an object, in the order in which they are taken: `raising`, `settle` of a segment, `changes`,
//! `gate` of a segment, `dirty`, `accounted`. A shard of the map of entries is taken last: `changes` is never
//! taken while one is held. Readers take none of these; writers pass the guard, one atomic word.

pub(crate) mod dirty;
pub(crate) mod entries;
pub(crate) mod entry;
pub(crate) mod guard;
pub(crate) mod holds;
pub(crate) mod leases;
pub(crate) mod located;
pub(crate) mod marks;
pub(crate) mod site;
pub(crate) mod sparse;
mod swap;
pub(crate) mod usage;
