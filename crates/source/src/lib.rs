// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A directory or a prefix of a bucket as it is, mounted read-only, with copies of what is read on a local disk.
//!
//! A [`Source`] is asked for names, attributes and bytes, each within a deadline: a [`Directory`] or a [`Bucket`].
//! A [`Cache`] keeps copies below a directory of its own. [`SourceMount`] is the file system before both
//! (`docs/adr/0056-source-mounts.md`, `0065-bucket-sources.md`).

mod bucket;
mod cache;
mod calls;
mod directory;
mod fetching;
mod file_systems;
mod front;
mod handle;
mod meta;
mod mount;
mod mount_table;
mod nodes;
mod options;
mod source;
mod table;

pub use bucket::{Bucket, BucketOwner};
pub use cache::{Cache, CacheReport, CacheSettings, CacheStatus, evict};
pub use directory::Directory;
pub use meta::{Meta, Time};
pub use mount::SourceMount;
pub use options::SourceOptions;
pub use source::{Listing, MountedBelow, Name, Source, SourceFile};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is locked in this crate is whole between two statements, also after a panic elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
