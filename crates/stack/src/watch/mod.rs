// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a running stack is observed by: notices for watchers, events for the policy, and counters.
//!
//! Owns the queues of watchers, the rings from threads that do I/O to the policy (`ring`) with what is posted
//! to them (`posting`), the numbers of
//! segments that policies use (`slots`), counters of time and failures (`ledger`) and of ended migrations
//! (`endings`). Locks: each is taken last, and no other lock is taken while one is held.
//!
//! Every watcher has a queue of bounded length. A notice never waits for a
//! watcher: where a queue is full, its oldest notices make room and are counted. Where there is
//! no watcher, a notice costs one relaxed load.

pub(crate) mod endings;
pub(crate) mod ledger;
mod notice;
pub(crate) mod posting;
pub(crate) mod ring;
pub(crate) mod slots;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{Applied, Clock, Error, ErrorKind, Key, Result};

pub use notice::{
    EventNotice, EventsNotice, Happening, MigrationNotice, Notice, NoticeKind, PolicyNotice,
    ScrubNotice, TierNotice, WatchFilter,
};

/// Watchers at a time.
const WATCHERS_MAX: usize = 16;

/// Memory for what waits for one watcher, about.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// The watchers.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// What any watcher wants, a bit for each kind.
    wanted: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queues: Vec<Arc<Queue>>,
    is_closed: bool,
}

/// Notices that wait for one watcher.
#[derive(Debug)]
struct Queue {
    filter: WatchFilter,
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    notices: VecDeque<(u64, Arc<Told>)>,
    bytes: usize,
    /// Number of the last one that came.
    last_number: u64,
    /// How many were thrown away since the watcher last got that number, …
    lost: u64,
    /// … and the number and time of the last of them.
    last_lost: (u64, u64),
    is_closed: bool,
}

/// What happened, for all watchers that get it.
#[derive(Debug)]
struct Told {
    wall_ns: u64,
    what: Happening,
}

impl Watches {
    /// Whether any watcher wants this.
    #[inline]
    pub(crate) fn wants(&self, kind: NoticeKind) -> bool {
        self.wanted.load(Ordering::Relaxed) & kind.bit() != 0
    }

    /// Sends what is about one object, or about all. `what` is only made where
    /// a watcher wants it.
    pub(crate) fn tell(
        &self,
        kind: NoticeKind,
        about: Option<&Key>,
        clock: &dyn Clock,
        what: impl FnOnce() -> Happening,
    ) {
        if !self.wants(kind) {
            return;
        }
        let state = crate::lock(&self.state);
        let mut wanting = state.queues.iter().filter(|queue| queue.filter.takes(kind, about));
        let Some(first) = wanting.next() else { return };
        let told = Arc::new(Told { wall_ns: clock.wall_ns(), what: what() });
        first.push(&told);
        wanting.for_each(|queue| queue.push(&told));
    }

    pub(crate) fn watch(self: &Arc<Self>, filter: &WatchFilter) -> Result<Watcher> {
        let mut state = crate::lock(&self.state);
        if state.is_closed {
            return Err(closed());
        }
        if state.queues.len() >= WATCHERS_MAX {
            return Err(Error::new(ErrorKind::Busy, "watch the store")
                .because("too many watch it")
                .with("watchers_max", WATCHERS_MAX));
        }
        let filter = filter.clone();
        let queue = Queue { filter, waiting: Mutex::default(), came: Condvar::new() };
        let queue = Arc::new(queue);
        state.queues.push(Arc::clone(&queue));
        self.count(&state);
        Ok(Watcher { watches: Arc::clone(self), queue })
    }

    fn leave(&self, queue: &Arc<Queue>) {
        let mut state = crate::lock(&self.state);
        state.queues.retain(|other| !Arc::ptr_eq(other, queue));
        self.count(&state);
    }

    fn count(&self, state: &State) {
        let wanted = state.queues.iter().fold(0, |bits, queue| bits | queue.filter.bits());
        self.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Nothing more will happen: watchers get what waits for them, and then an error.
    pub(crate) fn close(&self) {
        let mut state = crate::lock(&self.state);
        state.is_closed = true;
        for queue in &state.queues {
            crate::lock(&queue.waiting).is_closed = true;
            queue.came.notify_all();
        }
    }

    /// Tells of events: each watcher of those that pass its filter.
    pub(crate) fn tell_events(&self, wall_ns: u64, gathered: &[(Key, EventNotice)]) {
        let state = crate::lock(&self.state);
        for queue in &state.queues {
            if !queue.filter.takes(NoticeKind::Events, None) {
                continue;
            }
            let mine = gathered.iter().filter(|(key, _)| queue.filter.takes_key(key));
            let events: Vec<_> = mine.map(|(_, event)| event.clone()).collect();
            if !events.is_empty() {
                let what = Happening::Events(EventsNotice { events });
                queue.push(&Arc::new(Told { wall_ns, what }));
            }
        }
    }
}

impl Queue {
    fn push(&self, told: &Arc<Told>) {
        let mut waiting = crate::lock(&self.waiting);
        waiting.last_number += 1;
        let number = waiting.last_number;
        waiting.bytes += told.what.bytes();
        waiting.notices.push_back((number, Arc::clone(told)));
        while waiting.bytes > QUEUE_BYTES_MAX {
            let Some((number, oldest)) = waiting.notices.pop_front() else { break };
            waiting.bytes -= oldest.what.bytes();
            waiting.lost += 1;
            waiting.last_lost = (number, oldest.wall_ns);
        }
        drop(waiting);
        self.came.notify_one();
    }
}

/// Gets what happens, from the moment it is made until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    watches: Arc<Watches>,
    queue: Arc<Queue>,
}

impl Watcher {
    /// The next notice; waits for it up to `longest`, and returns `None` where none came.
    ///
    /// # Errors
    ///
    /// `Unreachable` once the store is closed and everything that happened before was returned.
    pub fn next(&self, longest: Duration) -> Result<Option<Notice>> {
        let waiting = crate::lock(&self.queue.waiting);
        let is_quiet = |waiting: &mut Waiting| {
            waiting.lost == 0 && waiting.notices.is_empty() && !waiting.is_closed
        };
        let (mut waiting, _) = self
            .queue
            .came
            .wait_timeout_while(waiting, longest, is_quiet)
            .unwrap_or_else(PoisonError::into_inner);
        if waiting.lost > 0 {
            let what = Happening::Lost { count: std::mem::take(&mut waiting.lost) };
            let (number, wall_ns) = waiting.last_lost;
            return Ok(Some(Notice { number, wall_ns, what }));
        }
        let Some((number, told)) = waiting.notices.pop_front() else {
            return if waiting.is_closed { Err(closed()) } else { Ok(None) };
        };
        waiting.bytes -= told.what.bytes();
        drop(waiting);
        let (wall_ns, what) = match Arc::try_unwrap(told) {
            Ok(mine) => (mine.wall_ns, mine.what),
            Err(shared) => (shared.wall_ns, shared.what.clone()),
        };
        Ok(Some(Notice { number, wall_ns, what }))
    }
}

/// Which tiers are above their critical watermark, a bit each.
#[derive(Debug, Default)]
pub(crate) struct Fill {
    pub(crate) full: Mutex<u32>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watches.leave(&self.queue);
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unreachable { applied: Applied::No }, "watch the store")
        .because("it was closed")
}

#[cfg(test)]
mod tests {
    use terrace_core::SystemClock;

    use super::*;

    fn full(watches: &Watches, tier: &str) {
        let what = || Happening::Tier(TierNotice { tier: tier.into(), state: "full".into() });
        watches.tell(NoticeKind::Tier, None, &SystemClock::default(), what);
    }

    fn next(watcher: &Watcher) -> Option<Notice> {
        watcher.next(Duration::ZERO).expect("open")
    }

    #[test]
    fn nobody_is_told_what_he_does_not_watch() {
        let watches = Arc::new(Watches::default());
        assert!(!watches.wants(NoticeKind::Tier));
        let clock = SystemClock::default();
        watches.tell(NoticeKind::Tier, None, &clock, || unreachable!("nobody wants it"));
        let kinds = vec![NoticeKind::Policy];
        let other = watches.watch(&WatchFilter { kinds, ..WatchFilter::default() });
        let other = other.expect("room");
        watches.tell(NoticeKind::Tier, None, &clock, || unreachable!("nobody wants it"));
        assert!(watches.wants(NoticeKind::Policy) && next(&other).is_none());
        drop(other);
        assert!(!watches.wants(NoticeKind::Policy), "who left wants nothing");
    }

    #[test]
    fn several_watchers_are_told_in_order_and_apart_from_each_other() {
        let watches = Arc::new(Watches::default());
        let first = watches.watch(&WatchFilter::default()).expect("room");
        full(&watches, "a");
        let second = watches.watch(&WatchFilter::default()).expect("room");
        full(&watches, "b");
        let names = |watcher: &Watcher| -> Vec<(u64, String)> {
            std::iter::from_fn(|| next(watcher))
                .map(|notice| match notice.what {
                    Happening::Tier(tier) => (notice.number, tier.tier),
                    other => panic!("{other:?}"),
                })
                .collect()
        };
        assert_eq!(names(&first), [(1, "a".to_owned()), (2, "b".to_owned())]);
        assert_eq!(names(&second), [(1, "b".to_owned())]);
    }

    #[test]
    fn a_slow_watcher_loses_the_oldest_and_is_told_how_many() {
        let watches = Arc::new(Watches::default());
        let watcher = watches.watch(&WatchFilter::default()).expect("room");
        let one_bytes = Happening::Lost { count: 0 }.bytes();
        let fit = (QUEUE_BYTES_MAX / one_bytes) as u64;
        for _ in 0..fit + 10 {
            full(&watches, "a");
        }
        let lost = next(&watcher).expect("it is told");
        assert_eq!((lost.number, lost.what), (10, Happening::Lost { count: 10 }));
        let numbers: Vec<u64> =
            std::iter::from_fn(|| next(&watcher)).map(|notice| notice.number).collect();
        assert!(numbers.iter().copied().eq(11..=fit + 10), "everything else, in order");
        full(&watches, "a");
        assert_eq!(next(&watcher).expect("it goes on").number, fit + 11);
    }

    #[test]
    fn watchers_are_bounded_and_end_with_the_store() {
        let watches = Arc::new(Watches::default());
        let watch = || watches.watch(&WatchFilter::default());
        let watchers: Vec<_> = (0..WATCHERS_MAX).map(|_| watch().expect("room")).collect();
        assert_eq!(watch().expect_err("too many").kind(), ErrorKind::Busy);
        full(&watches, "a");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                watchers[0].next(Duration::from_secs(60)).expect("told").expect("something");
                watchers[0].next(Duration::from_secs(60))
            });
            watches.close();
            let ended = waits.join().expect("no panic").expect_err("closed");
            assert!(matches!(ended.kind(), ErrorKind::Unreachable { .. }));
        });
        assert!(next(&watchers[1]).is_some(), "what happened before is told");
        watchers[1].next(Duration::ZERO).expect_err("closed");
        drop(watchers);
        assert!(matches!(watch().expect_err("closed").kind(), ErrorKind::Unreachable { .. }));
    }
}
