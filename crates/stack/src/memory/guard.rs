// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What writers pass and a migration closes: one atomic word per segment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Writers that entered before tracking began: bits 0 to 23.
const PLAIN_ONE: u64 = 1;
const PLAIN_MASK: u64 = (1 << 24) - 1;
/// Writers that entered since, and mark what they write: bits 24 to 47.
const TRACKED_ONE: u64 = 1 << 24;
const TRACKED_MASK: u64 = PLAIN_MASK << 24;
/// Writers mark what they write.
const TRACK: u64 = 1 << 62;
/// No writer may enter.
const GATE: u64 = 1 << 63;

/// How long one look at a closed gate lasts; callers that must have it closed look again.
const GATE_LOOK: Duration = Duration::from_millis(20);

/// How often a waiter looks again by itself. A wake-up is sent at every change, so this
/// only bounds what a bug could cost.
const RECHECK: Duration = Duration::from_millis(20);

/// Counts the writers in a segment and keeps them out while its location switches.
///
/// Readers never touch it.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    word: AtomicU64,
}

/// Where threads wait for guards; shared by many segments to keep the segments small.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    lots: [(Mutex<()>, Condvar); 16],
}

impl Parking {
    fn lot(&self, guard: &Guard) -> &(Mutex<()>, Condvar) {
        // The address spreads the guards over the lots; its low bits are alignment.
        let address = std::ptr::from_ref(guard).addr();
        &self.lots[(address >> 6) % self.lots.len()]
    }

    fn wait(&self, guard: &Guard, longest: Duration, go_on: impl Fn() -> bool) {
        let (mutex, changed) = self.lot(guard);
        let held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        if go_on() {
            return;
        }
        drop(changed.wait_timeout(held, longest.min(RECHECK)));
    }

    fn wake(&self, guard: &Guard) {
        let (mutex, changed) = self.lot(guard);
        // Taking the lock orders this after a waiter's last look, so that no wake-up is lost.
        drop(mutex.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }
}

/// A writer's stay in a segment.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    guard: &'a Guard,
    parking: &'a Parking,
    /// Whether what is written must be marked before leaving.
    pub(crate) is_tracked: bool,
}

/// A gate that is closed, with no writer inside; it opens when this goes.
#[derive(Debug)]
pub(crate) struct Closed<'a> {
    guard: &'a Guard,
    parking: &'a Parking,
    _owned: MutexGuard<'a, ()>,
}

impl Guard {
    /// Lets a writer in, unless the gate is closed.
    #[inline]
    pub(crate) fn try_enter<'a>(&'a self, parking: &'a Parking) -> Option<Entered<'a>> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & GATE != 0 {
                return None;
            }
            let is_tracked = word & TRACK != 0;
            let one = if is_tracked { TRACKED_ONE } else { PLAIN_ONE };
            match self.word.compare_exchange_weak(
                word,
                word + one,
                // Acquire: what the gate's holder changed is seen by those it lets in.
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Entered { guard: self, parking, is_tracked }),
                Err(now) => word = now,
            }
        }
    }

    /// Lets a writer in, waiting while the gate is closed. True in the second place if it waited.
    #[inline]
    pub(crate) fn enter<'a>(&'a self, parking: &'a Parking) -> (Entered<'a>, bool) {
        let mut waited = false;
        loop {
            if let Some(entered) = self.try_enter(parking) {
                return (entered, waited);
            }
            waited = true;
            parking.wait(self, RECHECK, || self.word.load(Ordering::Relaxed) & GATE == 0);
        }
    }

    /// Makes writers that enter from now on mark what they write.
    pub(crate) fn track(&self) {
        self.word.fetch_or(TRACK, Ordering::AcqRel);
    }

    /// Ends [`Guard::track`].
    pub(crate) fn untrack(&self) {
        self.word.fetch_and(!TRACK, Ordering::AcqRel);
    }

    /// Waits once, up to `longest`, for the writers that entered before tracking began; true when
    /// none is left.
    pub(crate) fn wait_untracked(&self, parking: &Parking, longest: Duration) -> bool {
        self.wait_empty(parking, PLAIN_MASK, longest)
    }

    /// Keeps new writers out and waits once, up to `longest`, for those inside. When it returns
    /// false, writers are still inside and the gate is still closed.
    ///
    /// Only the owner of the gate may close it.
    pub(crate) fn close(&self, parking: &Parking, longest: Duration) -> bool {
        self.word.fetch_or(GATE, Ordering::AcqRel);
        self.wait_empty(parking, PLAIN_MASK | TRACKED_MASK, longest)
    }

    /// Becomes the owner of the gate, keeps new writers out, and waits for those inside, however
    /// long they take.
    pub(crate) fn close_all<'a>(
        &'a self,
        owner: &'a Mutex<()>,
        parking: &'a Parking,
    ) -> Closed<'a> {
        let owned = owner.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.close(parking, GATE_LOOK) {}
        Closed { guard: self, parking, _owned: owned }
    }

    /// Lets writers in again.
    pub(crate) fn open(&self, parking: &Parking) {
        // Release: those let in see what was changed behind the gate.
        self.word.fetch_and(!GATE, Ordering::AcqRel);
        parking.wake(self);
    }

    fn wait_empty(&self, parking: &Parking, mask: u64, longest: Duration) -> bool {
        let is_empty = || self.word.load(Ordering::Acquire) & mask == 0;
        if !is_empty() {
            parking.wait(self, longest, is_empty);
        }
        is_empty()
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        let one = if self.is_tracked { TRACKED_ONE } else { PLAIN_ONE };
        // Release: a thread that sees the count fall sees what was written.
        let before = self.guard.word.fetch_sub(one, Ordering::AcqRel);
        let somebody_waits = before & (GATE | TRACK) != 0;
        if somebody_waits {
            self.parking.wake(self.guard);
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.guard.open(self.parking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_closed_gate_keeps_writers_out_and_an_open_one_lets_them_in() {
        let (guard, parking) = (Guard::default(), Parking::default());
        let inside = guard.try_enter(&parking).expect("open");
        assert!(!guard.close(&parking, NOW), "a writer is inside");
        assert!(guard.try_enter(&parking).is_none());
        drop(inside);
        assert!(guard.close(&parking, NOW));
        guard.open(&parking);
        assert!(guard.try_enter(&parking).is_some());
    }

    #[test]
    fn tracking_waits_only_for_writers_of_before() {
        let (guard, parking) = (Guard::default(), Parking::default());
        let before = guard.try_enter(&parking).expect("open");
        guard.track();
        let since = guard.try_enter(&parking).expect("open");
        assert!(!before.is_tracked && since.is_tracked);
        assert!(!guard.wait_untracked(&parking, NOW));
        drop(before);
        assert!(guard.wait_untracked(&parking, NOW));
        drop(since);
    }

    #[test]
    fn a_waiting_writer_is_let_in_when_the_gate_opens() {
        let (guard, parking) = (Guard::default(), Parking::default());
        assert!(guard.close(&parking, NOW));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| guard.enter(&parking).1);
            guard.open(&parking);
            writer.join().expect("writer ends");
        });
    }
}
