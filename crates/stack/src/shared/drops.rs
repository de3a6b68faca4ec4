// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Superseded files: deleted once their end is durable in the catalog and their readers are gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::TierIndex;

use crate::catalog::map::GarbageRow;
use crate::memory::site::Site;
use crate::tiers::retry::Retry;

/// A file that is to be deleted, accounted as garbage.
#[derive(Clone, Debug)]
pub(crate) struct Drop {
    pub(crate) site: Arc<Site>,
    pub(crate) row: GarbageRow,
}

/// A file that waits to be deleted.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) drop: Drop,
    pub(crate) retry: Retry,
}

/// Which files a run tries to delete.
#[derive(Clone, Copy)]
pub(crate) enum Which<'a> {
    /// All of them.
    All,
    /// Those whose pause is over; on services only until the function returns true.
    Due(&'a dyn Fn() -> bool),
}

/// The files that wait to be deleted.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    waiting: Mutex<BTreeMap<TierIndex, Vec<Waiting>>>,
    added: Condvar,
    /// Nothing waits any more.
    is_over: AtomicBool,
    /// How long the dropper pauses before it tries again what is left; 0 where nothing is.
    pause_ns: AtomicU64,
    /// When it is looked again for kept files whose time is over, by the clock.
    pub(crate) next_expiry_ns: AtomicU64,
}

/// Pause after a file could not be deleted, or is still read.
pub(crate) const RETRY: Duration = Duration::from_millis(50);

/// Pause after a service did not answer.
pub(crate) const RETRY_SERVICE: Duration = Duration::from_secs(1);

/// Longest sleep of the dropper while something waits: pauses are by the clock of the store.
const LOOK_MAX: Duration = Duration::from_secs(1);

impl Drops {
    /// Takes files to delete. Every possible reader has a reference to its site.
    pub(crate) fn add(&self, drops: Vec<Drop>) {
        if drops.is_empty() {
            return;
        }
        let mut waiting = crate::lock(&self.waiting);
        for drop in drops {
            let tier = drop.site.place.tier;
            waiting.entry(tier).or_default().push(Waiting { drop, retry: Retry::default() });
        }
        // They wait for no pause of others.
        self.pause_ns.store(0, Ordering::Relaxed);
        drop(waiting);
        self.added.notify_all();
    }

    /// Takes files back that could not be deleted.
    pub(crate) fn put(&self, files: Vec<Waiting>) {
        if files.is_empty() {
            return;
        }
        let mut waiting = crate::lock(&self.waiting);
        for file in files {
            waiting.entry(file.drop.site.place.tier).or_default().push(file);
        }
        drop(waiting);
        self.added.notify_all();
    }

    /// Takes the files out that wait on a tier; where a time is given, those whose pause is over then.
    pub(crate) fn take(&self, tier: TierIndex, due_ns: Option<u64>) -> Vec<Waiting> {
        let mut waiting = crate::lock(&self.waiting);
        let all = waiting.remove(&tier).unwrap_or_default();
        let is_due = |one: &Waiting| due_ns.is_none_or(|now_ns| one.retry.left_ns(now_ns) == 0);
        let (due, paused): (Vec<_>, Vec<_>) = all.into_iter().partition(is_due);
        if !paused.is_empty() {
            waiting.insert(tier, paused);
        }
        due
    }

    /// Waits for something to do, until [`Drops::end`].
    pub(crate) fn wait(&self) {
        let waiting = crate::lock(&self.waiting);
        let nothing = |waiting: &mut BTreeMap<_, _>| waiting.is_empty() && !self.is_over();
        let waiting =
            self.added.wait_while(waiting, nothing).unwrap_or_else(PoisonError::into_inner);
        // What failed or is still read is tried again after a while, not at once.
        let pause = Duration::from_nanos(self.pause_ns.load(Ordering::Relaxed));
        if !pause.is_zero() && !self.is_over() {
            let pause = pause.clamp(RETRY, LOOK_MAX);
            drop(self.added.wait_timeout(waiting, pause).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Ends the waiting, now and for later threads.
    pub(crate) fn end(&self) {
        let waiting = crate::lock(&self.waiting);
        self.is_over.store(true, Ordering::Release);
        drop(waiting);
        self.added.notify_all();
    }

    /// Whether the waiting has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        crate::lock(&self.waiting).values().map(Vec::len).sum()
    }

    /// Notes how long the dropper pauses, with the pauses of the tiers by their index.
    pub(crate) fn note_pause(&self, now_ns: u64, tiers_ns: &[u64]) {
        let waiting = crate::lock(&self.waiting);
        let left_ns = waiting.iter().flat_map(|(tier, files)| {
            let tier_ns = tiers_ns.get(tier.index()).copied().unwrap_or_default();
            files.iter().map(move |file| file.retry.left_ns(now_ns).max(tier_ns))
        });
        let pause_ns = left_ns.min().map_or(0, |left_ns| left_ns.max(1));
        self.pause_ns.store(pause_ns, Ordering::Relaxed);
    }
}
