// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of a session: as many as there usually are, and more while all that serve a queue are
//! held up.
//!
//! A handler may wait long, for a server that is gone or a tier that is slow. Without more threads
//! a few of these would hold up every other request, also those that have nothing to do with it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// All threads are held up where none of them has begun anything for so long.
const HELD_UP: Duration = Duration::from_millis(50);

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
        }
    }

    /// How many threads there are without being asked for.
    pub(crate) fn usual(&self) -> usize {
        self.usual
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
            // Looked at behind it, so that whoever becomes the last of all sees it, or is seen.
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
