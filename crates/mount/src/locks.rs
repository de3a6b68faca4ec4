// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks of programs, where other clients lock the same files: asked of the metadata, and waited for
//! here.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use terrace_fs::{Failure, Files, LockKind as Kind, LockRange, Locked, Reply as Told, Request};
use terrace_fuse::{Lock, LockKind, LockRequest, Reply};

/// Pauses between two tries of who waits.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Most that wait at a time: whoever comes then is refused as if nobody could wait.
const WAITING_MAX: usize = 4096;

/// Locks that programs here hold and wait for.
pub(crate) struct Locks {
    files: Arc<Files>,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Who holds what, so that closing a file without locks asks nobody: node, owner, whether of
    /// `flock`.
    held: HashSet<(u64, u64, bool)>,
    is_stopped: bool,
}

/// A program that waits for a lock.
struct Waiting {
    number: u64,
    request: LockRequest,
    reply: Reply,
}

impl Locks {
    pub(crate) fn new(files: &Arc<Files>) -> Self {
        Self { files: Arc::clone(files), state: Arc::default(), thread: Mutex::default() }
    }

    /// What is in the way of a lock.
    pub(crate) fn find(&self, number: u64, request: &LockRequest) -> Result<Lock, Failure> {
        let LockRequest { owner, lock, is_flock, .. } = *request;
        let range = range(&lock);
        match self.files.metadata().call(&Request::FindLock { number, owner, is_flock, range })? {
            Told::InTheWay(None) => Ok(Lock { kind: LockKind::Unlock, ..lock }),
            Told::InTheWay(Some(found)) => Ok(Lock {
                start: found.range.start,
                end: found.range.end.min(i64::MAX as u64),
                kind: match found.range.kind {
                    Kind::Read => LockKind::Read,
                    Kind::Write => LockKind::Write,
                    Kind::Unlock => LockKind::Unlock,
                },
                pid: found.process,
            }),
            _ => Err(Errno::IO.into()),
        }
    }

    /// Takes or gives back a lock and answers, at once or when it can be had.
    pub(crate) fn set(&self, number: u64, request: LockRequest, is_waiting: bool, reply: Reply) {
        match self.state.try_set(&self.files, number, &request) {
            Ok(()) => reply.empty(),
            Err(failure) if failure.errno() == Errno::AGAIN && is_waiting => {
                self.wait(Waiting { number, request, reply });
            }
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Gives back everything that an owner holds of a node.
    pub(crate) fn release(&self, number: u64, owner: u64, is_flock: bool) -> Result<(), Failure> {
        if !self.state.queue().held.contains(&(number, owner, is_flock)) {
            return Ok(());
        }
        let lock = Lock { start: 0, end: u64::MAX, kind: LockKind::Unlock, pid: 0 };
        let request = LockRequest { handle: 0, owner, lock, is_flock };
        self.state.try_set(&self.files, number, &request)?;
        self.state.queue().held.remove(&(number, owner, is_flock));
        Ok(())
    }

    /// A program does not wait any longer.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut queue = self.state.queue();
        let found = queue.waiting.iter().position(|waiting| waiting.reply.unique() == unique);
        let gone = found.map(|index| queue.waiting.swap_remove(index));
        drop(queue);
        if let Some(waiting) = gone {
            waiting.reply.error(Errno::INTR);
        }
    }

    fn wait(&self, waiting: Waiting) {
        let mut queue = self.state.queue();
        if waiting.reply.is_interrupted() {
            drop(queue);
            return waiting.reply.error(Errno::INTR);
        }
        if queue.waiting.len() >= WAITING_MAX {
            drop(queue);
            return waiting.reply.error(Errno::NOLCK);
        }
        queue.waiting.push(waiting);
        drop(queue);
        self.state.changed.notify_all();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (files, state) = (Arc::clone(&self.files), Arc::clone(&self.state));
            let builder = std::thread::Builder::new().name("locks".into());
            // Without it they wait until they are interrupted.
            *thread = builder.spawn(move || state.run(&files)).ok();
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.state.queue().is_stopped = true;
        self.state.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl State {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Elements come and go as wholes.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_set(&self, files: &Files, number: u64, request: &LockRequest) -> Result<(), Failure> {
        let LockRequest { owner, lock, is_flock, .. } = *request;
        let locked = Locked { range: range(&lock), process: lock.pid };
        files.metadata().call(&Request::Lock { number, owner, is_flock, locked })?;
        if lock.kind != LockKind::Unlock {
            self.queue().held.insert((number, owner, is_flock));
        }
        Ok(())
    }

    /// Tries for all that wait, again and again.
    fn run(&self, files: &Files) {
        let mut pause = PAUSE_MIN;
        loop {
            let queue = self.queue();
            let queue = self
                .changed
                .wait_while(queue, |queue| queue.waiting.is_empty() && !queue.is_stopped)
                .unwrap_or_else(PoisonError::into_inner);
            if queue.is_stopped {
                return;
            }
            let tries: Vec<_> = queue
                .waiting
                .iter()
                .map(|waiting| (waiting.reply.unique(), waiting.number, waiting.request))
                .collect();
            drop(queue);
            let mut has_changed = false;
            for (unique, number, request) in tries {
                has_changed |= self.try_for(files, unique, number, &request);
            }
            pause = if has_changed { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            let queue = self.queue();
            let stopped = self.changed.wait_timeout_while(queue, pause, |queue| !queue.is_stopped);
            drop(stopped);
        }
    }

    /// One try for who waits with request `unique`; whether it waits no longer.
    fn try_for(&self, files: &Files, unique: u64, number: u64, request: &LockRequest) -> bool {
        let ended = match self.try_set(files, number, request) {
            Err(failure) if failure.errno() == Errno::AGAIN => return false,
            ended => ended,
        };
        let mut queue = self.queue();
        let found = queue.waiting.iter().position(|waiting| waiting.reply.unique() == unique);
        let found = found.map(|index| queue.waiting.swap_remove(index));
        drop(queue);
        match (found, ended) {
            (Some(waiting), Ok(())) => waiting.reply.empty(),
            (Some(waiting), Err(failure)) => waiting.reply.error(failure.errno()),
            // Interrupted since: nobody knows that it has it.
            (None, Ok(())) => {
                let lock = Lock { kind: LockKind::Unlock, ..request.lock };
                let request = LockRequest { lock, ..*request };
                if let Err(failure) = self.try_set(files, number, &request) {
                    tracing::warn!(file = number, %failure, "cannot give a lock back");
                }
            }
            (None, Err(_)) => {}
        }
        true
    }
}

/// The range of a lock: the kernel's end of all files is everybody's.
fn range(lock: &Lock) -> LockRange {
    let kind = match lock.kind {
        LockKind::Read => Kind::Read,
        LockKind::Write => Kind::Write,
        LockKind::Unlock => Kind::Unlock,
    };
    let end = if lock.end >= i64::MAX as u64 { u64::MAX } else { lock.end };
    LockRange { start: lock.start, end, kind }
}
