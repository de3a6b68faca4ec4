// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the threads that do I/O to the policy: one ring per thread, so that none waits.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use terrace_core::{Event, EventKind, SegmentView, Slot};

/// Events that a thread can be ahead of the policy; 64 bytes each.
const RING_EVENTS: usize = 4096;

/// The same while a trace is recorded, which wants every event by itself: 2 MiB for each thread,
/// 20 ms of the fastest.
const RING_EVENTS_RECORDING: usize = 32 << 10;

/// A thread's end of its ring.
#[derive(Debug)]
struct ThreadRing {
    /// The mailbox it leads to …
    mailbox: u64,
    /// … and which of the rings to it: another one when their size changes.
    generation: u64,
    producer: Producer<Posted>,
}

thread_local! {
    static RINGS: RefCell<Vec<ThreadRing>> = const { RefCell::new(Vec::new()) };
}

static NEXT_MAILBOX: AtomicU64 = AtomicU64::new(1);

/// How long something took, and how much of that was not spent in the tier's backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Took {
    pub(crate) latency_ns: u64,
    /// At the guard, at most 4.2 s.
    pub(crate) guard_ns: u32,
    /// In the stack: to find room and the like; at most 4.2 s.
    pub(crate) stack_ns: u32,
}

impl Took {
    /// All of it in the backend, or in an unknown place.
    pub(crate) fn of(latency_ns: u64) -> Self {
        Self { latency_ns, ..Self::default() }
    }

    /// With these times outside the backend.
    #[inline]
    pub(crate) fn split(latency_ns: u64, guard_ns: u64, stack_ns: u64) -> Self {
        let cut = |ns: u64| ns.min(u64::from(u32::MAX)) as u32;
        Self { latency_ns, guard_ns: cut(guard_ns), stack_ns: cut(stack_ns) }
    }
}

/// An event in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) event: Event,
    pub(crate) guard_ns: u32,
    pub(crate) stack_ns: u32,
}

// One cache line: to post an event touches no more.
const _: () = assert!(size_of::<Posted>() == 64);

impl From<Event> for Posted {
    fn from(event: Event) -> Self {
        Self { event, guard_ns: 0, stack_ns: 0 }
    }
}

/// Something for the policy, in the order in which it happened.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) posted: Posted,
    /// What a `Create` brings.
    pub(crate) created: Option<Box<Created>>,
}

/// A segment that was created.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) object_id: u64,
    pub(crate) view: SegmentView,
    /// The size that the application announced.
    pub(crate) size_hint_bytes: Option<u64>,
}

impl Change {
    /// An event that creates nothing.
    pub(crate) fn of(event: Event) -> Self {
        Self { posted: event.into(), created: None }
    }
}

/// Everything that waits for the policy.
#[derive(Debug)]
pub(crate) struct Mailbox {
    number: u64,
    /// Rings of an earlier one are no longer posted to.
    generation: AtomicU64,
    ring_events: AtomicUsize,
    rings: Mutex<Vec<Consumer<Posted>>>,
    changes: Mutex<Vec<Change>>,
    /// Accesses that are younger than what was taken last, or came before a call.
    held_back: Mutex<Vec<Change>>,
    /// What full rings summed up, by segment and kind.
    overflow: Mutex<HashMap<(Slot, u32, u32), Posted>>,
    /// Segments whose ends were to move by writes that were posted before their I/O, and that is over.
    settled: Mutex<BTreeSet<(Slot, u32)>>,
    coalesced: AtomicU64,
    /// Wake the policy after this many events of one thread.
    pub(crate) after_events: AtomicU64,
    is_called: AtomicBool,
    call: (Mutex<()>, Condvar),
}

impl Default for Mailbox {
    fn default() -> Self {
        Self {
            number: NEXT_MAILBOX.fetch_add(1, Ordering::Relaxed),
            generation: AtomicU64::new(0),
            ring_events: AtomicUsize::new(RING_EVENTS),
            rings: Mutex::default(),
            changes: Mutex::default(),
            held_back: Mutex::default(),
            overflow: Mutex::default(),
            settled: Mutex::default(),
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
    pub(crate) fn post(&self, posted: Posted) {
        RINGS.with_borrow_mut(|rings| {
            let generation = self.generation.load(Ordering::Acquire);
            let is_mine =
                |ring: &ThreadRing| ring.mailbox == self.number && ring.generation == generation;
            let index = match rings.iter().position(is_mine) {
                Some(index) => index,
                None => self.register(rings, generation),
            };
            let producer = &mut rings[index].producer;
            if let Err(rtrb::PushError::Full(posted)) = producer.push(posted) {
                self.coalesce(posted);
            }
            let waiting = (producer.buffer().capacity() - producer.slots()) as u64;
            if waiting >= self.enough() && !self.is_called.load(Ordering::Relaxed) {
                self.call();
            }
        });
    }

    /// Notes that the I/O of a write that was posted before it, and that was to move the segment's end, is over.
    pub(crate) fn note_settled(&self, slot: Slot, incarnation: u32) {
        crate::lock(&self.settled).insert((slot, incarnation));
    }

    /// What was noted so. To be taken before the events, among which those of these writes are then.
    pub(crate) fn take_settled(&self) -> BTreeSet<(Slot, u32)> {
        std::mem::take(&mut *crate::lock(&self.settled))
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

    /// Waits for a call, at most this long; whether there was one.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let held = self.call.0.lock().unwrap_or_else(PoisonError::into_inner);
        let not_called = |(): &mut ()| !self.is_called.load(Ordering::Acquire);
        drop(self.call.1.wait_timeout_while(held, longest, not_called));
        // As long as a ring has as many events as called, the next one would call again, for a
        // round that finds next to nothing.
        self.drain(&mut crate::lock(&self.held_back));
        // Acquire: what was asked for before a call that this takes back is seen.
        self.is_called.swap(false, Ordering::AcqRel)
    }

    /// Takes everything that happened up to `until_ns`, which is now or earlier, oldest first;
    /// changes before accesses of the same time. What is younger is given by a later call, so that
    /// what one thread did comes in its order, also over several calls.
    pub(crate) fn take(&self, until_ns: u64) -> Vec<Change> {
        let is_due = |change: &Change| change.posted.event.time_ns <= until_ns;
        let mut accesses = std::mem::take(&mut *crate::lock(&self.held_back));
        self.drain(&mut accesses);
        let overflow = std::mem::take(&mut *crate::lock(&self.overflow));
        accesses.extend(overflow.into_values().map(|posted| Change { posted, created: None }));
        let mut changes = crate::lock(&self.changes);
        let (mut all, mut later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *changes).into_iter().partition(is_due);
        // As many are likely until the next call: a posting thread need not make room.
        later.reserve(all.len().min(RING_EVENTS / 2));
        *changes = later;
        drop(changes);
        // Once more: an access before one of these changes is there by now. The `Create` in front
        // of an access that is due was there before.
        self.drain(&mut accesses);
        let (due, later): (Vec<_>, _) = accesses.into_iter().partition(is_due);
        // In front of what a wait has put there meanwhile.
        crate::lock(&self.held_back).splice(0..0, later);
        all.extend(due);
        // Stable, so that changes stay before accesses of the same nanosecond; slot and kind make
        // the order of what a hash map held the same in every run.
        all.sort_by_key(|change| {
            let event = &change.posted.event;
            let is_access = matches!(
                event.kind,
                EventKind::Read | EventKind::Write | EventKind::Stat | EventKind::Sync
            );
            (event.time_ns, is_access, if is_access { event.slot } else { 0 })
        });
        all
    }

    /// Empties the rings.
    fn drain(&self, accesses: &mut Vec<Change>) {
        let mut rings = crate::lock(&self.rings);
        for ring in rings.iter_mut() {
            while let Ok(posted) = ring.pop() {
                accesses.push(Change { posted, created: None });
            }
        }
        rings.retain(|ring| !ring.is_abandoned() || !ring.is_empty());
    }

    /// Events that full rings summed up so far.
    pub(crate) fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// Makes the rings large, so that a trace gets every event by itself, or small again. Each
    /// thread takes another ring for its next event; what is in the old one still comes first.
    pub(crate) fn enlarge(&self, is_recording: bool) {
        let events = if is_recording { RING_EVENTS_RECORDING } else { RING_EVENTS };
        if self.ring_events.swap(events, Ordering::Relaxed) != events {
            // Release: a thread that sees the next generation makes rings of the new size.
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    #[cold]
    fn register(&self, rings: &mut Vec<ThreadRing>, generation: u64) -> usize {
        // Rings of stacks that are gone are dropped here, so that the list stays short.
        rings.retain(|ring| !ring.producer.is_abandoned() && ring.mailbox != self.number);
        let (producer, consumer) = RingBuffer::new(self.ring_events.load(Ordering::Relaxed));
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(consumer);
        rings.push(ThreadRing { mailbox: self.number, generation, producer });
        rings.len() - 1
    }

    fn coalesce(&self, posted: Posted) {
        self.coalesced.fetch_add(1, Ordering::Relaxed);
        let event = posted.event;
        let key = (event.slot, event.incarnation, event.kind as u32);
        let mut overflow = self.overflow.lock().unwrap_or_else(PoisonError::into_inner);
        match overflow.get_mut(&key) {
            None => {
                overflow.insert(key, posted);
            }
            Some(sum) => {
                sum.guard_ns = sum.guard_ns.saturating_add(posted.guard_ns);
                sum.stack_ns = sum.stack_ns.saturating_add(posted.stack_ns);
                let sum = &mut sum.event;
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
                    sum.length_bytes = sum.length_bytes.saturating_add(event.length_bytes);
                }
                sum.count = sum.count.saturating_add(event.count);
                sum.latency_ns = sum.latency_ns.saturating_add(event.latency_ns);
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

    fn read(slot: Slot, time_ns: u64) -> Posted {
        Event { length_bytes: 10, ..Event::new(EventKind::Read, slot, 0, time_ns) }.into()
    }

    #[test]
    fn a_full_ring_sums_up_and_counts() {
        let mailbox = Mailbox::default();
        let many = RING_EVENTS as u64 + 100;
        for time_ns in 0..many {
            mailbox.post(read(3, time_ns));
        }
        let taken = mailbox.take(u64::MAX);
        let events: u64 = taken.iter().map(|change| u64::from(change.posted.event.count)).sum();
        let bytes: u64 = taken.iter().map(|change| change.posted.event.length_bytes).sum();
        assert_eq!((events, bytes, mailbox.coalesced()), (many, many * 10, 100));
    }

    #[test]
    fn events_of_all_threads_come_in_order_of_time() {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.post(read(1, 5));
        let other = Arc::clone(&mailbox);
        std::thread::spawn(move || other.post(read(2, 3))).join().expect("thread ends");
        let change = Event::new(EventKind::Create, 2, 0, 3);
        mailbox.post_change(Change::of(change));
        let what = |change: &Change| (change.posted.event.time_ns, change.posted.event.kind);
        let times: Vec<_> = mailbox.take(u64::MAX).iter().map(what).collect();
        assert_eq!(times, [(3, EventKind::Create), (3, EventKind::Read), (5, EventKind::Read)]);
        assert!(mailbox.take(u64::MAX).is_empty());
    }

    #[test]
    fn what_is_younger_comes_later_and_in_its_order() {
        let mailbox = Mailbox::default();
        let delete = |time_ns| Change::of(Event::new(EventKind::Delete, 3, 0, time_ns));
        mailbox.post(read(3, 10));
        mailbox.post_change(delete(20));
        mailbox.post(read(4, 25));
        mailbox.post_change(delete(30));
        let take = |until_ns| -> Vec<u64> {
            mailbox.take(until_ns).iter().map(|change| change.posted.event.time_ns).collect()
        };
        assert!(take(5).is_empty());
        assert_eq!(take(20), [10, 20]);
        mailbox.post(read(4, 28));
        assert_eq!(take(28), [25, 28]);
        assert_eq!(take(u64::MAX), [30]);
    }

    #[test]
    fn who_posts_when_a_round_begins_does_not_call_for_another() {
        let mailbox = Mailbox::default();
        let enough = mailbox.enough();
        for time_ns in 0..enough {
            mailbox.post(read(3, time_ns));
        }
        assert!(mailbox.is_called.load(Ordering::Relaxed));
        mailbox.wait(Duration::ZERO);
        mailbox.post(read(3, enough));
        assert!(!mailbox.is_called.load(Ordering::Relaxed));
        let taken = mailbox.take(u64::MAX);
        assert!(taken.iter().map(|change| change.posted.event.time_ns).eq(0..=enough));
    }

    #[test]
    fn larger_rings_sum_up_later_and_keep_the_order() {
        let mailbox = Mailbox::default();
        for time_ns in 0..10 {
            mailbox.post(read(3, time_ns));
        }
        mailbox.enlarge(true);
        let many = RING_EVENTS_RECORDING as u64;
        for time_ns in 10..many {
            mailbox.post(read(3, time_ns));
        }
        let taken = mailbox.take(u64::MAX);
        assert!(taken.iter().map(|change| change.posted.event.time_ns).eq(0..many));
        assert_eq!(mailbox.coalesced(), 0);
        mailbox.enlarge(false);
        mailbox.post(read(3, many));
        assert_eq!(mailbox.take(u64::MAX).len(), 1);
        assert!(mailbox.rings.lock().expect("nobody panicked").len() <= 1, "old rings are gone");
    }
}
