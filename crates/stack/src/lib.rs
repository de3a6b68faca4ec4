// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers, catalog, policy and migrator as one backend.
//!
//! [`Stack`] is the way in. Folders import only those to their left: `watch`, `catalog`, `memory`, `tiers`,
//! `shadow`, `shared`, `room`, `migrate`, `runner`, `recover`, `io`, `front`. The `mod.rs` of each says what it
//! owns and in which order its locks are taken.

mod catalog;
mod failpoints;
mod front;
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod io;
mod memory;
mod migrate;
mod pairs;
mod recover;
pub mod report;
mod room;
mod runner;
mod shadow;
mod shared;
mod tiers;
mod watch;

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use terrace_core::{Error, ErrorKind, Result};

pub use catalog::changes::{LogPiece, LogPieces, LogSignal};
pub use catalog::far_log::FarLog;
pub use catalog::log::{
    LOG_END_BYTES, LOG_HEAD_BYTES, LogPoint, LogReport, Opening, apply_log, log_head,
    push_log_commit, push_log_end, read_log_end, read_log_head,
};
pub use catalog::map::PairChange;
pub use failpoints::FAILPOINTS;
pub use front::backup::{BackupMoment, read_backup, read_backup_moment};
pub use front::scrub::ScrubOptions;
pub use front::stack::{MoveKind, MoveTicket, Stack};
pub use memory::usage::{Quota, QuotaExceeded};
pub use recover::rebuild::{RebuildOptions, Saved};
pub use recover::takeover::{TakeoverReport, renew_empty, take_over};
pub use tiers::offline::Offline;
pub use tiers::parts::{Parts, PathOf, SCRUB_BYTES_PER_S, Settings, Tactics, Tier};
pub use watch::{
    EventNotice, EventsNotice, Happening, MigrationNotice, Notice, NoticeKind, PolicyNotice,
    ScrubNotice, TierNotice, WatchFilter, Watcher,
};

/// Locks; a thread that panicked left nothing half changed behind the locks of this crate, or
/// what it left is found by the next opening.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks, unless another thread has the lock.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(locked) => Some(locked),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Whether a row of the catalog is what cannot be read, and not the catalog.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}

/// What a deletion comes to that may be done twice.
fn missing_is_gone(deleted: Result<()>) -> Result<()> {
    match deleted {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
