// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What outlives the loss of a catalog, and how a store is had back from it.
//!
//! [`checkpoint`] writes the catalog to a tier while the store is served, and a log behind it; [`far`] does the same
//! in a bucket, for the level `shared`. [`rebuild`] makes a catalog anew from these or from a backup
//! ([`write_backup`]), and [`take_over`] makes another machine the owner of a store whose catalog is in a bucket.

mod backup;
pub mod checkpoint;
pub mod far;
mod opened;
mod rebuild;
mod takeover;
mod warning;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use backup::write_backup;
pub use opened::Opened;
pub use rebuild::{Rebuilt, Source, finish_rebuild, rebuild};
pub use takeover::{TakenOver, take_over, tier_in_bucket};

/// Locks a mutex, whose value is whole also where a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
