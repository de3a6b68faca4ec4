// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Superseded files: deleted once their end is durable in the catalog and their readers are gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::catalog::map::GarbageRow;
use crate::memory::site::Site;

/// A file that is to be deleted, accounted as garbage.
#[derive(Clone, Debug)]
pub(crate) struct Drop {
    pub(crate) site: Arc<Site>,
    pub(crate) row: GarbageRow,
}

/// The files that wait to be deleted.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    pub(crate) waiting: Mutex<Vec<Drop>>,
    pub(crate) added: Condvar,
    /// Nothing waits any more.
    is_over: AtomicBool,
    /// One at a time deletes, so that `run` returns only when what it saw was tried.
    pub(crate) running: Mutex<()>,
    pub(crate) has_failed: AtomicBool,
    /// When it is looked again for kept files whose time is over, by the clock.
    pub(crate) next_expiry_ns: AtomicU64,
}

/// Pause after something could not be deleted.
const RETRY: Duration = Duration::from_millis(50);

impl Drops {
    /// Takes files to delete. Every possible reader has a reference to its site.
    pub(crate) fn add(&self, drops: Vec<Drop>) {
        if !drops.is_empty() {
            crate::lock(&self.waiting).extend(drops);
            self.added.notify_all();
        }
    }

    /// Waits for something to do, until [`Drops::end`].
    pub(crate) fn wait(&self) {
        let waiting = crate::lock(&self.waiting);
        let is_over = || self.is_over.load(Ordering::Acquire);
        let nothing = |waiting: &mut Vec<Drop>| waiting.is_empty() && !is_over();
        let waiting =
            self.added.wait_while(waiting, nothing).unwrap_or_else(PoisonError::into_inner);
        // What failed or is still read is tried again after a while, not at once.
        if self.has_failed.load(Ordering::Relaxed) && !is_over() {
            drop(self.added.wait_timeout(waiting, RETRY).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Ends the waiting, now and for later threads.
    pub(crate) fn end(&self) {
        let waiting = crate::lock(&self.waiting);
        self.is_over.store(true, Ordering::Release);
        drop(waiting);
        self.added.notify_all();
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        crate::lock(&self.waiting).len()
    }
}
