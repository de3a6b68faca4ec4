// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many replays at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use terrace_core::Result;

/// The results of the work for each number up to `count`, in their order, on so many threads.
/// `progress` is called on this thread with whatever the work reports.
pub(super) fn each<T: Send>(
    count: usize,
    threads: usize,
    progress: &mut dyn FnMut(u64),
    work: impl Fn(usize, &mut dyn FnMut(u64)) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let found: Vec<_> = (0..count).map(|_| Mutex::new(None)).collect();
    let (sender, replayed) = channel();
    let run = |sender: Sender<u64>| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = found.get(index) else { return };
            // The receiver is gone where sending fails.
            let one = work(index, &mut |requests| _ = sender.send(requests));
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(one);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            let (sender, run) = (sender.clone(), &run);
            scope.spawn(move || run(sender));
        }
        drop(sender);
        // It ends with the last sender.
        replayed.iter().for_each(progress);
    });
    let one = |place: Mutex<Option<T>>| {
        let one = place.into_inner().unwrap_or_else(PoisonError::into_inner);
        one.expect("all of them were worked on")
    };
    found.into_iter().map(one).collect()
}

/// The same where each may fail: then the failure of the lowest number is what comes of all, and what
/// has not begun behind a failure is left out.
pub(super) fn each_unless_failed<T: Send>(
    count: usize,
    threads: usize,
    progress: &mut dyn FnMut(u64),
    work: impl Fn(usize, &mut dyn FnMut(u64)) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let failure = FirstFailure::default();
    let try_one = |index: usize, progress: &mut dyn FnMut(u64)| {
        if failure.is_before(index) {
            return None;
        }
        let one = work(index, progress);
        if one.is_err() {
            failure.note(index);
        }
        Some(one)
    };
    // One that was left out is behind the one that failed.
    each(count, threads, progress, try_one).into_iter().flatten().collect()
}

/// The lowest number that failed so far.
struct FirstFailure(AtomicUsize);

impl Default for FirstFailure {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl FirstFailure {
    /// Whether this one need not be tried any more. One before it must: numbers are taken in order,
    /// but the thread that took a lower one may begin later, and fail as well.
    fn is_before(&self, index: usize) -> bool {
        self.0.load(Ordering::Relaxed) < index
    }

    fn note(&self, index: usize) {
        self.0.fetch_min(index, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Barrier;

    use terrace_core::Error;

    use super::*;

    fn failure(index: usize) -> Error {
        Error::invalid("work", "it is one of those that fail").with("number", index)
    }

    /// The thread that was first once decided the outcome of the search, which changed from run to
    /// run.
    #[test]
    fn one_that_was_taken_before_the_one_that_failed_is_tried_all_the_same() {
        let failure = FirstFailure::default();
        assert!(!failure.is_before(usize::MAX));
        failure.note(5);
        assert!(failure.is_before(6) && !failure.is_before(4));
        failure.note(4);
        failure.note(7);
        assert!(failure.is_before(5) && !failure.is_before(3), "the lowest counts");
    }

    #[test]
    fn the_lowest_that_fails_is_what_is_told() {
        thread_local! {
            /// Is dropped when the thread ends.
            static HELD: Cell<Option<Sender<()>>> = const { Cell::new(None) };
        }
        let begun = Barrier::new(2);
        let (held, ended) = channel();
        let (held, ended) = (Mutex::new(Some(held)), Mutex::new(ended));
        let worked: Result<Vec<usize>> = each_unless_failed(2, 2, &mut |_| {}, |index, _| {
            begun.wait();
            if index == 1 {
                HELD.set(held.lock().expect("nobody panicked").take());
            } else {
                // The higher one has failed, and its thread has found nothing else to do.
                ended.lock().expect("nobody panicked").recv().expect_err("nothing is sent");
            }
            Err(failure(index))
        });
        let text = worked.expect_err("both fail").to_string();
        assert!(text.ends_with("number=0"), "{text}");
    }

    #[test]
    fn what_is_behind_a_failure_is_left_out() {
        let begun = AtomicUsize::new(0);
        let worked = each_unless_failed(1000, 1, &mut |_| {}, |index, _| {
            begun.fetch_add(1, Ordering::Relaxed);
            if index == 3 { Err(failure(index)) } else { Ok(index) }
        });
        worked.expect_err("one of them fails");
        assert_eq!(begun.into_inner(), 4);
    }

    #[test]
    fn where_none_fails_all_are_there_in_their_order() {
        let worked = each_unless_failed(100, 4, &mut |_| {}, |index, _| Ok(index));
        assert_eq!(worked.expect("none fails"), (0..100).collect::<Vec<_>>());
    }
}
