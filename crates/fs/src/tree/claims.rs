// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What users of an earlier life may still have open and have not reclaimed so far.
//!
//! A server that has restarted knows nothing of what was open before. Until the clients that have it open
//! had the time to reclaim it, every file of an earlier life counts as open: one that loses its last name,
//! or is closed without one, is kept as one that is open. What is not open then goes at the end of
//! that time, with what had no name from the beginning.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use terrace_core::KvRange;

use super::{Tree, find_node};
use crate::failure::Result;
use crate::{lock, pairs};

/// How long what could not be discarded is left alone.
const PAUSE: Duration = Duration::from_secs(10);

/// For so long after the beginning of a life a client that began in an earlier one to make the object of a small
/// file may still write there: longer than such a claim is certain, see `files::claim`.
const MADE_FOR: Duration = Duration::from_secs(40);

/// So many objects of what was discarded are remembered for users to delete; others wait for the
/// next request for all.
const DISCARDED_MAX: usize = 1 << 16;

/// So many of them one user gets at once.
const TOLD_MAX: usize = 256;

/// What may be claimed, see [`Tree::await_claims`].
pub(super) struct Claims {
    /// Nodes with this number and later ones were made in this life.
    first_number: u64,
    /// Whether all others count as open.
    are_awaited: AtomicBool,
    /// When that began.
    since_ns: AtomicU64,
    /// When there is something to discard; 0 where there is nothing.
    discard_at_ns: AtomicU64,
    /// What is still to be looked at. Locked before anything of [`super::Holds`].
    left: Mutex<KvRange>,
    /// Orphaned objects that were not assigned to a client for deletion yet.
    discarded: Mutex<Vec<u64>>,
}

impl Claims {
    /// Awaits none so far. `first_number` is the first that was not given in an earlier life.
    pub(super) fn new(first_number: u64) -> Self {
        Self {
            first_number,
            are_awaited: AtomicBool::new(false),
            since_ns: AtomicU64::new(0),
            discard_at_ns: AtomicU64::new(0),
            left: Mutex::new(pairs::all_nameless()),
            discarded: Mutex::default(),
        }
    }

    /// Whether a node may be open that was not reclaimed so far. To be asked, and acted on, with the
    /// lock of its hold.
    pub(super) fn may_come_for(&self, number: u64) -> bool {
        number < self.first_number && self.are_awaited.load(Ordering::Acquire)
    }

    /// Ends the grace period: a process with exclusive use discards by itself.
    pub(super) fn end(&self) {
        self.are_awaited.store(false, Ordering::Release);
        self.discard_at_ns.store(0, Ordering::Release);
    }

    /// Some of the objects that were discarded, for one user to delete.
    pub(super) fn take_discarded(&self) -> Vec<u64> {
        let mut discarded = lock(&self.discarded);
        let kept = discarded.len().saturating_sub(TOLD_MAX);
        discarded.split_off(kept)
    }

    /// Has objects deleted by a user that may.
    pub(super) fn note_discarded(&self, numbers: &[u64]) {
        let mut discarded = lock(&self.discarded);
        let room = DISCARDED_MAX - discarded.len();
        discarded.extend(numbers.iter().take(room));
    }
}

impl Tree {
    /// Keeps what users of an earlier life may have open, for so long: they open it again meanwhile.
    /// What is without a name then, and not open, goes with the requests that come later.
    pub fn await_claims(&self, time: Duration) {
        let now_ns = self.clock.passed_ns();
        let at_ns = now_ns.saturating_add(time.as_nanos() as u64);
        self.claims.since_ns.store(now_ns, Ordering::Release);
        self.claims.are_awaited.store(true, Ordering::Release);
        self.claims.discard_at_ns.store(at_ns.max(1), Ordering::Release);
    }

    /// Whether a write to the object of a small file may be under way that began in an earlier life.
    /// He does not know that his claim is forgotten.
    pub(super) fn may_be_moving(&self, number: u64) -> Result<bool> {
        let age_ns =
            self.clock.passed_ns().saturating_sub(self.claims.since_ns.load(Ordering::Acquire));
        if !self.claims.may_come_for(number) || Duration::from_nanos(age_ns) >= MADE_FOR {
            return Ok(false);
        }
        Ok(find_node(self, number)?.is_some_and(|node| node.may_have_object))
    }

    /// Has users delete what was left to be deleted in an earlier life; before anybody uses this one.
    ///
    /// # Errors
    ///
    /// Those of the metadata.
    pub fn hand_on_garbage(&self) -> Result<()> {
        let left = self.garbage(DISCARDED_MAX as u32)?;
        self.claims.note_discarded(&left);
        Ok(())
    }

    /// Discards some of what was not reclaimed in time.
    pub(super) fn discard_unclaimed(&self) {
        let claims = &self.claims;
        let is_due = || {
            let at_ns = claims.discard_at_ns.load(Ordering::Acquire);
            at_ns != 0 && self.clock.passed_ns() >= at_ns
        };
        if !is_due() {
            return;
        }
        let mut left = match claims.left.try_lock() {
            Ok(left) => left,
            Err(TryLockError::Poisoned(left)) => left.into_inner(),
            // Another thread does it.
            Err(TryLockError::WouldBlock) => return,
        };
        if !is_due() {
            return;
        }
        if claims.are_awaited.swap(false, Ordering::AcqRel) {
            // A thread that still saw that they are has noted by then what it leaves without a name.
            self.holds.wait();
        }
        match self.discard_page(&left) {
            Ok((page, next)) => {
                claims.note_discarded(&page.objects);
                match next {
                    Some(next) => *left = next,
                    None => claims.discard_at_ns.store(0, Ordering::Release),
                }
            }
            Err(failure) => {
                tracing::warn!(%failure, "cannot discard what has no name any more");
                let at_ns = self.clock.passed_ns().saturating_add(PAUSE.as_nanos() as u64);
                claims.discard_at_ns.store(at_ns, Ordering::Release);
            }
        }
    }
}
