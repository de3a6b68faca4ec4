// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A POSIX file system over key-value pairs and objects.
//!
//! [`Tree`] keeps names, nodes and small files in a `Kv`, one transaction for each change. The
//! bytes of all other files are objects of a `Backend`, named by the number of the file.

mod acl;
mod check;
mod clock;
mod entries;
mod failure;
mod files;
mod metadata;
mod node;
mod pairs;
mod record;
mod request;
mod stores;
mod superblock;
mod tree;
#[cfg(test)]
mod vectors;
mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use check::{
    Check, Damage, DamageKind, Mending, NUMBERS_MARGIN, Reached, TreeReport, check, is_recognized,
    mark_restored, number_in_place, number_of, paths,
};
pub use clock::FileClock;
pub use failure::{Failure, Result, is_exhaustion};
pub use files::{AskSpace, File, Files, FilesOptions, Heard, Written};
pub use metadata::{CacheReport, Metadata};
pub use node::{
    CAPABILITY, Kind, Marking, Marks, NAME_BYTES_MAX, Node, Place, ROOT, TARGET_BYTES_MAX, Time,
};
pub use request::{
    Changes, Closed, DELEGATED_FOR, Delegated, ENTRIES_AHEAD_MAX, LISTED_AHEAD_MAX, Left, Listed,
    ListedAhead, LockKind, LockRange, Locked, MAY_SAY_GONE_FOR, Made, NamedFile, OPENED_AHEAD_MAX,
    OpenedAhead, Order, REMOVED_MAX, ReadyObject, RenameHow, Reply, Request, SAID_GONE_FOR, SetHow,
    Settled, WasRead, When,
};
pub use stores::{
    Belonging, KnownStore, belonging, file_system_id, has_object, is_distributed, is_mark, mark,
    mark_anyway, record_further_stores, record_stores, recorded_stores, sample_of_objects, unmark,
};
pub use superblock::INLINE_BYTES_LIMIT;
pub use tree::{LockOwner, LockTable, Over, OwnLocks, Session, Tree, TreeOptions, file_in};
pub use wire::{Effect, answer, read_answer};

/// Locks; a thread that panicked left nothing half changed behind the locks of this crate.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
