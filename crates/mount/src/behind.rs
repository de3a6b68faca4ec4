// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes that programs were told are done before the server has done them.
//!
//! Whoever asks for anything that may depend on such a write waits for it first: for the file that it went
//! to, whoever wrote it. Two that overlap come one after the other. It is done where it pays: one program that
//! writes to a near server goes on sooner with the answer (docs/adr/0040-small-writes-behind.md).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;

/// After one could not be done programs wait for all for so long, and hear of it from `write`.
const FAILED: Duration = Duration::from_secs(10);

/// A thread that was the only one to write for so long is alone.
const ALONE: Duration = Duration::from_millis(1);

/// Where a write takes longer than this it pays to go on before it is done, also for one that is alone.
const LONG: Duration = Duration::from_micros(100);

/// How long one takes is the mean of about so many of those that were waited for.
const MEAN_OF: u64 = 4;

/// Of those of one that is alone each so many are waited for, to know how long that takes.
const WAITED_EACH: u64 = 64;

/// Such writes.
#[derive(Clone)]
pub(crate) struct Behind(Arc<Shared>);

struct Shared {
    /// How many there are.
    count: AtomicUsize,
    writers: Writers,
    state: Mutex<State>,
    ended: Condvar,
    /// None is begun before.
    not_before_ns: AtomicU64,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    /// The number of the next one.
    next: u64,
    /// By node.
    begun: HashMap<u64, Vec<Begun>>,
    /// How many threads wait for the end of any.
    waiters: usize,
}

/// One that is not done.
struct Begun {
    number: u64,
    range: Range<u64>,
    /// The process that writes, as the kernel names it (`lock_owner`), where it does.
    owner: Option<u64>,
}

/// Who writes, and how long that takes. What several change at the same time may be lost.
#[derive(Default)]
struct Writers {
    /// The last one, and when another one came.
    last: AtomicU32,
    changed_ns: AtomicU64,
    /// How often one that is alone wrote.
    alone: AtomicU64,
    /// How long that took, in the mean.
    took_ns: AtomicU64,
}

/// A write that others wait for until this is dropped.
pub(crate) struct Pending {
    behind: Behind,
    node: u64,
    number: u64,
}

impl Behind {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared {
            count: AtomicUsize::new(0),
            writers: Writers::default(),
            state: Mutex::default(),
            ended: Condvar::new(),
            not_before_ns: AtomicU64::new(0),
            clock,
        }))
    }

    /// Whether a thread may go on before what it writes is done, and gains from that.
    pub(crate) fn may_begin(&self, thread: u32) -> bool {
        let (writers, now_ns) = (&self.0.writers, self.0.clock.now_ns());
        if writers.last.swap(thread, Ordering::Relaxed) != thread {
            writers.changed_ns.store(now_ns, Ordering::Relaxed);
        }
        let alone_ns = now_ns.saturating_sub(writers.changed_ns.load(Ordering::Relaxed));
        let pays = alone_ns < ALONE.as_nanos() as u64 || {
            let is_waited_for =
                writers.alone.fetch_add(1, Ordering::Relaxed).is_multiple_of(WAITED_EACH);
            writers.took_ns.load(Ordering::Relaxed) >= LONG.as_nanos() as u64 && !is_waited_for
        };
        pays && now_ns >= self.0.not_before_ns.load(Ordering::Relaxed)
    }

    /// Carries a small write out that is waited for.
    pub(crate) fn wait_for<T>(&self, write: impl FnOnce() -> T) -> T {
        let begun_ns = self.0.clock.now_ns();
        let written = write();
        let (took_ns, of) = (self.0.clock.now_ns().saturating_sub(begun_ns), MEAN_OF);
        let mean_ns = self.0.writers.took_ns.load(Ordering::Relaxed);
        self.0.writers.took_ns.store(mean_ns - mean_ns / of + took_ns / of, Ordering::Relaxed);
        written
    }

    /// Whether there is none that its program was told of before this is asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.count.load(Ordering::Acquire) == 0
    }

    /// Begins one, behind those that it overlaps.
    pub(crate) fn begin(&self, node: u64, range: Range<u64>, owner: Option<u64>) -> Pending {
        let mut state = self.wait(node, u64::MAX, |begun| overlap(&begun.range, &range));
        let number = state.next;
        state.next += 1;
        state.begun.entry(node).or_default().push(Begun { number, range, owner });
        self.0.count.fetch_add(1, Ordering::AcqRel);
        Pending { behind: self.clone(), node, number }
    }

    /// Waits for those of a node that overlap a range and were begun before this.
    pub(crate) fn settle_range(&self, node: u64, range: &Range<u64>) {
        if !self.is_empty() {
            let before = self.next();
            drop(self.wait(node, before, |begun| overlap(&begun.range, range)));
        }
    }

    /// Waits for those of a node that were begun before this.
    pub(crate) fn settle(&self, node: u64) {
        self.settle_range(node, &(0..u64::MAX));
    }

    /// Waits for those of a node that a process may have begun before this. One that others have begun does
    /// not: it may have got the file from them, and be about to start the server that these wait for.
    pub(crate) fn settle_own(&self, node: u64, owner: u64) {
        if !self.is_empty() {
            let before = self.next();
            drop(self.wait(node, before, |begun| begun.owner.is_none_or(|own| own == owner)));
        }
    }

    /// Waits for all that were begun before this.
    pub(crate) fn settle_all(&self) {
        let nodes: Vec<_> = self.state().begun.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.settle(node));
    }

    /// One could not be done as it was begun.
    pub(crate) fn note_failed(&self) {
        let until_ns = self.0.clock.now_ns().saturating_add(FAILED.as_nanos() as u64);
        self.0.not_before_ns.store(until_ns, Ordering::Relaxed);
    }

    /// The number of the next one: others may go on to write, and nobody waits for these.
    fn next(&self) -> u64 {
        self.state().next
    }

    /// Waits for those of a node with a number below `before` that `concerns` somebody.
    fn wait(
        &self,
        node: u64,
        before: u64,
        concerns: impl Fn(&Begun) -> bool,
    ) -> MutexGuard<'_, State> {
        let mut state = self.state();
        let is_in_the_way = |begun: &Begun| begun.number < before && concerns(begun);
        while state.begun.get(&node).is_some_and(|begun| begun.iter().any(is_in_the_way)) {
            state.waiters += 1;
            state = self.0.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiters -= 1;
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // They come and go one by one.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut state = self.behind.state();
        if let Some(begun) = state.begun.get_mut(&self.node) {
            begun.retain(|begun| begun.number != self.number);
            if begun.is_empty() {
                state.begun.remove(&self.node);
            }
        }
        self.behind.0.count.fetch_sub(1, Ordering::AcqRel);
        if state.waiters > 0 {
            self.behind.0.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use terrace_testkit::ManualClock;

    use super::*;

    const NODE: u64 = 7;

    fn behind() -> (Arc<ManualClock>, Behind) {
        let clock = Arc::new(ManualClock::new());
        let behind = Behind::new(Arc::<ManualClock>::clone(&clock));
        (clock, behind)
    }

    fn begin(behind: &Behind, node: u64, range: Range<u64>) -> Pending {
        behind.begin(node, range, None)
    }

    /// Has a thread do something, and waits until it waits for a write; whether it has ended then is told by
    /// what is returned.
    fn wait_in_thread(behind: &Behind, work: impl FnOnce(&Behind) + Send + 'static) -> impl Fn() {
        let (sender, receiver) = channel();
        let other = behind.clone();
        let waiters = behind.state().waiters;
        thread::spawn(move || {
            work(&other);
            sender.send(()).expect("the test waits for it");
        });
        while behind.state().waiters == waiters {
            thread::yield_now();
        }
        move || receiver.recv().expect("it goes on")
    }

    #[test]
    fn who_asks_waits_for_what_was_begun_before_and_for_nothing_else() {
        let (_, behind) = behind();
        let (first, other) = (begin(&behind, NODE, 0..10), begin(&behind, NODE + 1, 0..10));
        behind.settle(NODE + 2);
        behind.settle_range(NODE, &(10..20));
        let wait = wait_in_thread(&behind, |behind| behind.settle(NODE));
        let later = begin(&behind, NODE, 20..30);
        drop(first);
        wait();
        assert!(!behind.is_empty());
        let wait = wait_in_thread(&behind, Behind::settle_all);
        drop(other);
        drop(later);
        wait();
        assert!(behind.is_empty());
        behind.settle_all();
    }

    #[test]
    fn who_closes_waits_for_what_its_process_may_have_begun() {
        let (_, behind) = behind();
        let own = behind.begin(NODE, 0..10, Some(1));
        behind.settle_own(NODE, 2);
        behind.settle_own(NODE + 1, 1);
        let wait = wait_in_thread(&behind, |behind| behind.settle_own(NODE, 1));
        drop(own);
        wait();
        let unnamed = behind.begin(NODE, 0..10, None);
        let wait = wait_in_thread(&behind, |behind| behind.settle_own(NODE, 1));
        drop(unnamed);
        wait();
    }

    #[test]
    fn writes_that_overlap_come_one_after_the_other() {
        let (_, behind) = behind();
        let first = begin(&behind, NODE, 0..10);
        let beside = begin(&behind, NODE, 10..20);
        let wait = wait_in_thread(&behind, |behind| drop(begin(behind, NODE, 9..11)));
        drop(first);
        drop(beside);
        wait();
        assert!(behind.is_empty());
    }

    #[test]
    fn a_thread_goes_on_beside_others_and_where_writes_take_long() {
        let (clock, behind) = behind();
        assert!(behind.may_begin(1), "it is the first one");
        assert!(behind.may_begin(2) && behind.may_begin(1) && behind.may_begin(1));
        clock.advance(ALONE);
        let count =
            |behind: &Behind| (0..WAITED_EACH).filter(|_| behind.may_begin(1)).count() as u64;
        let wait = |took: Duration| {
            (0..10 * MEAN_OF).for_each(|_| behind.wait_for(|| clock.advance(took)));
        };
        assert_eq!(count(&behind), 0);
        wait(2 * LONG);
        assert_eq!(count(&behind), WAITED_EACH - 1);
        wait(LONG / 4);
        assert_eq!(count(&behind), 0);
        assert!(behind.may_begin(2));
    }

    #[test]
    fn after_a_failure_programs_wait_for_a_while() {
        let (clock, behind) = behind();
        behind.note_failed();
        clock.advance(FAILED - Duration::from_nanos(1));
        assert!(!behind.may_begin(1));
        clock.advance(Duration::from_nanos(1));
        assert!(behind.may_begin(2));
    }
}
