// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers, catalog, policy and migrator as one backend.
//!
//! [`Stack`] is the way in. Inside, `object` is the hot path, `transfer` one migration, `recover`
//! what happens after a crash, and `runner` the policy's thread.

mod account;
mod add;
mod administration;
mod allocated;
mod backup;
mod batch;
mod catalog;
mod certain;
mod changes;
mod check;
mod codec;
mod copy;
mod create;
mod dirty;
mod doubt;
mod draft;
mod drain;
mod endings;
mod entries;
mod entry;
mod execute;
mod face;
mod failpoints;
mod files;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod garbage;
mod guard;
mod hash;
mod header;
mod history;
mod hold;
mod holds;
mod keeper;
mod leases;
mod ledger;
mod lend;
mod located;
mod log;
mod marks;
mod mover;
mod object;
mod offline;
mod open;
mod pair_block;
mod pairs;
mod parts;
mod quota;
mod rebuild;
mod recall;
mod record;
mod recover;
mod remove;
pub mod report;
mod reserve;
mod ring;
mod runner;
mod scrub;
mod shadow;
mod shape;
mod shared;
mod site;
mod slots;
mod space;
mod sparse;
mod stack;
mod stat;
mod superblock;
mod survivors;
mod swap;
mod tail;
mod tell;
mod thrift;
mod tiers;
mod touched;
mod transfer;
mod turns;
mod usage;
mod verify;
mod watch;
mod whole;
mod writers;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use backup::{BackupMoment, read_backup, read_backup_moment};
pub use catalog::PairChange;
pub use changes::{LogPiece, LogPieces, LogSignal};
pub use failpoints::FAILPOINTS;
pub use log::{
    LOG_END_BYTES, LOG_HEAD_BYTES, LogPoint, LogReport, Opening, apply_log, log_head,
    push_log_commit, push_log_end, read_log_end, read_log_head,
};
pub use offline::Offline;
pub use parts::{Parts, PathOf, SCRUB_BYTES_PER_S, Settings, Tactics, Tier};
pub use rebuild::{RebuildOptions, Saved};
pub use scrub::ScrubOptions;
pub use stack::{MoveKind, MoveTicket, Stack};
pub use usage::{Quota, QuotaExceeded};
pub use watch::{
    EventNotice, EventsNotice, Happening, MigrationNotice, Notice, NoticeKind, PolicyNotice,
    ScrubNotice, TierNotice, WatchFilter, Watcher,
};

/// Locks; a thread that panicked left nothing half changed behind the locks of this crate, or
/// what it left is found by the next opening.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
