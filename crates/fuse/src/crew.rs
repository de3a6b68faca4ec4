// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of a session: as many as there usually are, and more while all that serve a queue are
//! held up.
//!
//! A handler may wait long, for a server that is gone or a tier that is slow. Without more threads
//! a few of these would hold up every other request, also those that have nothing to do with it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// All threads are held up where none of them has begun anything for so long.
pub(crate) const HELD_UP: Duration = Duration::from_millis(50);

/// A crew gets no more than these because it is held up.
const THREADS_MAX: usize = 256;

/// What the threads that serve one queue of the kernel know of each other.
pub(crate) struct Crew<'a> {
    watch: &'a Watch,
    usual: usize,
    threads: AtomicUsize,
    /// Threads that handle a request.
    busy: AtomicUsize,
    /// Requests so far.
    begun: AtomicU64,
    places: Places,
}

/// The places that the threads of a crew lend to the kernel, which keeps a request waiting where all
/// that it has are taken, and gives it to none that comes later (Linux 6.18, docs/adr/0026).
#[derive(Default)]
pub(crate) struct Places {
    /// Held while one is lent, so that the first is the kernel's first, too.
    usual: Mutex<Usual>,
    /// The first one was taken, which the kernel takes last: others may have been short since.
    were_taken: AtomicBool,
}

/// How many of the places of usual threads have come how far.
#[derive(Default)]
struct Usual {
    lent: usize,
    used: usize,
}

impl Places {
    /// Lends one of a usual thread with `lend`. Returns whether it is the first.
    pub(crate) fn lend<E>(&self, lend: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let mut usual = self.usual();
        lend()?;
        usual.lent += 1;
        Ok(usual.lent == 1)
    }

    /// The first one is taken.
    pub(crate) fn note_taken(&self) {
        self.were_taken.store(true, Ordering::SeqCst);
    }

    /// One of the `all` of usual threads has its first request. None is new where all have had one.
    pub(crate) fn note_used(&self, all: usize) {
        let mut usual = self.usual();
        usual.used += 1;
        if usual.used >= all {
            self.were_taken.store(false, Ordering::SeqCst);
        }
    }

    /// One that was taken before was free again: nothing waited then. So it stays where `all` of usual
    /// threads are lent.
    pub(crate) fn note_free(&self, all: usize) {
        if self.usual().lent >= all {
            self.were_taken.store(false, Ordering::SeqCst);
        }
    }

    /// Whether requests may be waiting although a place is free.
    pub(crate) fn were_taken(&self) -> bool {
        self.were_taken.load(Ordering::SeqCst)
    }

    fn usual(&self) -> MutexGuard<'_, Usual> {
        // Counts are changed at once.
        self.usual.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Crew<'a> {
    /// At least one thread.
    pub(crate) fn new(usual: usize, watch: &'a Watch) -> Self {
        let usual = usual.max(1);
        Self {
            watch,
            usual,
            threads: AtomicUsize::new(usual),
            busy: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            places: Places::default(),
        }
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// How many threads there are without being asked for.
    pub(crate) fn usual(&self) -> usize {
        self.usual
    }

    /// Requests so far, and those that are being handled.
    pub(crate) fn begun_and_busy(&self) -> (u64, usize) {
        (self.begun.load(Ordering::SeqCst), self.busy.load(Ordering::SeqCst))
    }

    /// A thread has a request.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::SeqCst);
        self.wake_if_all_busy();
    }

    /// It is done with it.
    pub(crate) fn end(&self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a thread that is more than usual is of no more use; then it is counted no more.
    pub(crate) fn may_leave(&self) -> bool {
        let may = self.busy.load(Ordering::SeqCst) < self.usual;
        if may {
            self.threads.fetch_sub(1, Ordering::SeqCst);
            // The last of the others may have become busy in between.
            self.wake_if_all_busy();
        }
        may
    }

    /// A thread has failed and serves no more. Another one is started when it is missed.
    pub(crate) fn lose(&self) {
        self.threads.fetch_sub(1, Ordering::SeqCst);
        self.wake_if_all_busy();
    }

    /// Adds a thread at once where all are busy, for one that waits for as long as it takes.
    pub(crate) fn add_if_all_busy(&self, add: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.are_all_busy() {
            true => self.add(add),
            false => Ok(()),
        }
    }

    fn add(&self, add: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.threads.fetch_add(1, Ordering::SeqCst);
        add().inspect_err(|_| {
            self.threads.fetch_sub(1, Ordering::SeqCst);
        })
    }

    fn are_all_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) >= self.threads.load(Ordering::SeqCst)
    }

    fn wake_if_all_busy(&self) {
        if self.are_all_busy() && self.watch.is_asleep.load(Ordering::SeqCst) {
            self.watch.wake();
        }
    }
}

/// Sees to it that crews get more threads. It sleeps while none of them is all busy.
#[derive(Default)]
pub(crate) struct Watch {
    thread: Mutex<Option<Thread>>,
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

impl Watch {
    /// Calls `add` with the number of a crew for each thread more that it needs, until the watch is
    /// over. Where that fails it is tried again.
    pub(crate) fn over(&self, crews: &[Crew<'_>], add: impl Fn(usize) -> io::Result<()>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        let mut before = vec![None; crews.len()];
        while !self.is_over.load(Ordering::SeqCst) {
            self.is_asleep.store(true, Ordering::SeqCst);
            // Looked at behind it, so that the thread that becomes the last of all sees it, or is
            // seen.
            if !crews.iter().any(Crew::are_all_busy) {
                before.fill(None);
                thread::park();
                continue;
            }
            self.is_asleep.store(false, Ordering::SeqCst);
            for (number, (crew, before)) in crews.iter().zip(&mut before).enumerate() {
                let begun = crew.are_all_busy().then(|| crew.begun.load(Ordering::Relaxed));
                let threads = crew.threads.load(Ordering::SeqCst);
                if begun.is_some() && *before == begun && threads < THREADS_MAX {
                    let _ = crew.add(|| add(number));
                }
                *before = begun;
            }
            thread::park_timeout(HELD_UP);
        }
    }

    /// Ends the watch.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.iter().for_each(Thread::unpark);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_crew_that_loses_its_last_thread_gets_another_one() {
        let watch = Watch::default();
        let crews = [Crew::new(2, &watch)];
        crews[0].lose();
        let (add, added) = channel();
        thread::scope(|scope| {
            let add = move |crew| {
                add.send(crew).expect("the test listens");
                Ok(())
            };
            let (watch, crews) = (&watch, &crews);
            scope.spawn(move || watch.over(crews, add));
            assert!(added.recv_timeout(HELD_UP * 4).is_err(), "one of two is left");
            crews[0].lose();
            assert_eq!(added.recv_timeout(HELD_UP * 200), Ok(0));
            // It is there, and idle.
            assert!(added.recv_timeout(HELD_UP * 4).is_err());
            watch.end();
        });
    }

    #[test]
    fn places_were_taken_until_all_are_lent_and_one_was_free_again() {
        let places = Places::default();
        assert_eq!(places.lend(|| Err("refused")), Err("refused"));
        assert_eq!(places.lend(|| Ok::<_, ()>(())), Ok(true));
        assert!(!places.were_taken());
        places.note_taken();
        places.note_free(2);
        assert!(places.were_taken(), "the other one is not there yet");
        assert_eq!(places.lend(|| Ok::<_, ()>(())), Ok(false));
        places.note_free(2);
        assert!(!places.were_taken());
        places.note_taken();
        places.note_used(2);
        assert!(places.were_taken(), "the other one is new");
        places.note_used(2);
        assert!(!places.were_taken());
    }
}
