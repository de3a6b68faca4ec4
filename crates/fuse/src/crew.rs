// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of a session: as many as there usually are, and more while all of them are held up.
//!
//! A handler may wait long, for a server that is gone or a tier that is slow. Without more threads
//! a few of these would hold up every other request, also those that have nothing to do with it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// All threads are held up where none of them has begun anything for so long.
const HELD_UP: Duration = Duration::from_millis(50);

/// There are never more.
const THREADS_MAX: usize = 256;

/// What the threads of a session know of each other.
pub(crate) struct Crew {
    usual: usize,
    threads: AtomicUsize,
    /// Threads that handle a request.
    busy: AtomicUsize,
    /// Requests so far.
    begun: AtomicU64,
    /// Who gets more threads, while it sleeps because not all are busy.
    watcher: Mutex<Option<Thread>>,
    is_watcher_asleep: AtomicBool,
    is_over: AtomicBool,
}

impl Crew {
    /// At least one thread.
    pub(crate) fn new(usual: usize) -> Self {
        let usual = usual.max(1);
        Self {
            usual,
            threads: AtomicUsize::new(usual),
            busy: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            watcher: Mutex::default(),
            is_watcher_asleep: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
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

    /// Calls `add` for each thread more that is needed, until the session is over. Where that fails
    /// it is tried again.
    pub(crate) fn watch(&self, mut add: impl FnMut() -> std::io::Result<()>) {
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        let mut before = None;
        while !self.is_over.load(Ordering::SeqCst) {
            self.is_watcher_asleep.store(true, Ordering::SeqCst);
            // Looked at behind it, so that whoever becomes the last of all sees it, or is seen.
            if !self.are_all_busy() {
                before = None;
                thread::park();
                continue;
            }
            self.is_watcher_asleep.store(false, Ordering::SeqCst);
            let begun = self.begun.load(Ordering::Relaxed);
            let threads = self.threads.load(Ordering::SeqCst);
            if before == Some(begun) && threads < THREADS_MAX {
                self.threads.fetch_add(1, Ordering::SeqCst);
                if add().is_err() {
                    self.threads.fetch_sub(1, Ordering::SeqCst);
                }
            }
            before = Some(begun);
            thread::park_timeout(HELD_UP);
        }
    }

    /// Ends the watch.
    pub(crate) fn end_watch(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn are_all_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) >= self.threads.load(Ordering::SeqCst)
    }

    fn wake_if_all_busy(&self) {
        if self.are_all_busy() && self.is_watcher_asleep.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        self.is_watcher_asleep.store(false, Ordering::SeqCst);
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        watcher.iter().for_each(Thread::unpark);
    }
}
