// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the threads that do I/O to the policy: one ring per thread, so that nobody waits.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use terrace_core::{Event, EventKind, SegmentView, Slot};

/// Events that a thread can be ahead of the policy; 64 bytes each.
const RING_EVENTS: usize = 4096;

/// A stack's number, and this thread's end of its ring.
type ThreadRing = (u64, Producer<Event>);

thread_local! {
    static RINGS: RefCell<Vec<ThreadRing>> = const { RefCell::new(Vec::new()) };
}

static NEXT_STACK: AtomicU64 = AtomicU64::new(1);

/// An event that changes which segments there are, in the order in which it happened.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) event: Event,
    /// The segment that a `Create` brings.
    pub(crate) created: Option<SegmentView>,
}

/// Everything that waits for the policy.
#[derive(Debug)]
pub(crate) struct Mailbox {
    stack: u64,
    rings: Mutex<Vec<Consumer<Event>>>,
    changes: Mutex<Vec<Change>>,
    /// What full rings summed up, by segment and kind.
    overflow: Mutex<HashMap<(Slot, u32, u32), Event>>,
    coalesced: AtomicU64,
    /// Wake the policy after this many events of one thread.
    pub(crate) after_events: AtomicU64,
    is_called: AtomicBool,
    call: (Mutex<()>, Condvar),
}

impl Default for Mailbox {
    fn default() -> Self {
        Self {
            stack: NEXT_STACK.fetch_add(1, Ordering::Relaxed),
            rings: Mutex::default(),
            changes: Mutex::default(),
            overflow: Mutex::default(),
            coalesced: AtomicU64::new(0),
            after_events: AtomicU64::new(1000),
            is_called: AtomicBool::new(false),
            call: (Mutex::default(), Condvar::new()),
        }
    }
}

impl Mailbox {
    /// Posts what happened to a segment's bytes or handles.
    #[inline]
    pub(crate) fn post(&self, event: Event) {
        RINGS.with_borrow_mut(|rings| {
            let index = match rings.iter().position(|(stack, _)| *stack == self.stack) {
                Some(index) => index,
                None => self.register(rings),
            };
            let producer = &mut rings[index].1;
            if let Err(rtrb::PushError::Full(event)) = producer.push(event) {
                self.coalesce(event);
            }
            let waiting = (RING_EVENTS - producer.slots()) as u64;
            if waiting >= self.enough() && !self.is_called.load(Ordering::Relaxed) {
                self.call();
            }
        });
    }

    /// Posts a change of which segments there are, or where.
    pub(crate) fn post_change(&self, change: Change) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.push(change);
        // Bounded by how long a policy may take before it is replaced.
        let is_enough = changes.len() as u64 >= self.enough();
        drop(changes);
        if is_enough && !self.is_called.load(Ordering::Relaxed) {
            self.call();
        }
    }

    /// How many events call the policy: half a ring does in any case, so that a large
    /// `after_events` loses nothing and lets nothing pile up.
    fn enough(&self) -> u64 {
        self.after_events.load(Ordering::Relaxed).min(RING_EVENTS as u64 / 2)
    }

    /// Wakes the policy.
    pub(crate) fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        drop(self.call.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.call.1.notify_all();
    }

    /// Waits for a call, at most this long.
    pub(crate) fn wait(&self, longest: Duration) {
        let held = self.call.0.lock().unwrap_or_else(PoisonError::into_inner);
        let not_called = |(): &mut ()| !self.is_called.load(Ordering::Acquire);
        drop(self.call.1.wait_timeout_while(held, longest, not_called));
        self.is_called.store(false, Ordering::Release);
    }

    /// Takes everything that was posted, oldest first; changes before accesses of the same time.
    pub(crate) fn take(&self) -> Vec<Change> {
        // Rings first: an access that is posted after this is younger than the changes below, and
        // one that is posted before has its segment's `Create` below.
        let mut accesses = Vec::new();
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        for ring in rings.iter_mut() {
            while let Ok(event) = ring.pop() {
                accesses.push(Change { event, created: None });
            }
        }
        rings.retain(|ring| !ring.is_abandoned() || !ring.is_empty());
        drop(rings);
        let overflow =
            std::mem::take(&mut *self.overflow.lock().unwrap_or_else(PoisonError::into_inner));
        accesses.extend(overflow.into_values().map(|event| Change { event, created: None }));
        let mut all =
            std::mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner));
        all.append(&mut accesses);
        // Stable, so that changes stay before accesses of the same nanosecond; slot and kind make
        // the order of what a hash map held the same in every run.
        all.sort_by_key(|change| {
            let is_access = matches!(change.event.kind, EventKind::Read | EventKind::Write);
            (change.event.time_ns, is_access, if is_access { change.event.slot } else { 0 })
        });
        all
    }

    /// Events that full rings summed up so far.
    pub(crate) fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    fn register(&self, rings: &mut Vec<ThreadRing>) -> usize {
        // Rings of stacks that are gone are dropped here, so that the list stays short.
        rings.retain(|(_, producer)| !producer.is_abandoned());
        let (producer, consumer) = RingBuffer::new(RING_EVENTS);
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(consumer);
        rings.push((self.stack, producer));
        rings.len() - 1
    }

    fn coalesce(&self, event: Event) {
        self.coalesced.fetch_add(1, Ordering::Relaxed);
        let key = (event.slot, event.incarnation, event.kind as u32);
        let mut overflow = self.overflow.lock().unwrap_or_else(PoisonError::into_inner);
        match overflow.get_mut(&key) {
            None => {
                overflow.insert(key, event);
            }
            Some(sum) => {
                // The extent that covers both keeps the view's size right; lengths are summed in
                // reads, where only the amount matters.
                if event.kind == EventKind::Write {
                    let end = (sum.offset_bytes + sum.length_bytes)
                        .max(event.offset_bytes + event.length_bytes);
                    sum.offset_bytes = sum.offset_bytes.min(event.offset_bytes);
                    sum.length_bytes = end - sum.offset_bytes;
                } else if event.kind == EventKind::SetLen {
                    sum.length_bytes = event.length_bytes;
                } else {
                    sum.length_bytes += event.length_bytes;
                }
                sum.count += event.count;
                sum.latency_ns += event.latency_ns;
                // Opens count from the first, closes from the last, so that a handle is never
                // closed before it was opened.
                if event.kind != EventKind::Open {
                    sum.time_ns = event.time_ns;
                }
                sum.tier = event.tier;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn read(slot: Slot, time_ns: u64) -> Event {
        Event { length_bytes: 10, ..Event::new(EventKind::Read, slot, 0, time_ns) }
    }

    #[test]
    fn a_full_ring_sums_up_and_counts() {
        let mailbox = Mailbox::default();
        let many = RING_EVENTS as u64 + 100;
        for time_ns in 0..many {
            mailbox.post(read(3, time_ns));
        }
        let taken = mailbox.take();
        let events: u64 = taken.iter().map(|change| u64::from(change.event.count)).sum();
        let bytes: u64 = taken.iter().map(|change| change.event.length_bytes).sum();
        assert_eq!((events, bytes, mailbox.coalesced()), (many, many * 10, 100));
    }

    #[test]
    fn events_of_all_threads_come_in_order_of_time() {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.post(read(1, 5));
        let other = Arc::clone(&mailbox);
        std::thread::spawn(move || other.post(read(2, 3))).join().expect("thread ends");
        let change = Event::new(EventKind::Create, 2, 0, 3);
        mailbox.post_change(Change { event: change, created: None });
        let times: Vec<_> =
            mailbox.take().iter().map(|c| (c.event.time_ns, c.event.kind)).collect();
        assert_eq!(times, [(3, EventKind::Create), (3, EventKind::Read), (5, EventKind::Read)]);
        assert!(mailbox.take().is_empty());
    }
}
