// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Migrations of all files below a directory, submitted in the background.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::{Error, ErrorKind};
use terrace_fs::{Failure, Files, Kind, Listed};
use terrace_store::{MoveTicket, Store};

use crate::tiers::migrate_file;

type Result<T, E = Failure> = std::result::Result<T, E>;

/// Directories that wait for the one before at most.
const WAITING_MAX: usize = 1024;

/// Entries that are fetched at once, for each level of directories.
const FETCHED: u32 = 512;

/// Migrations that are queued ahead, so that the store's queue has room for those of others.
const AHEAD_MAX: usize = 1000;

/// Between two looks whether the mount ends.
const LOOK: Duration = Duration::from_millis(200);

/// Asks for migrations in the background, of one directory after the other.
pub(crate) struct Below {
    state: Arc<State>,
    /// Started with the first directory.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    files: Arc<Files>,
    store: Store,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Asked>,
    is_stopped: bool,
}

struct Asked {
    directory: u64,
    tier: String,
}

impl Below {
    pub(crate) fn new(files: &Arc<Files>, store: &Store) -> Self {
        let (files, store) = (Arc::clone(files), store.clone());
        let (queue, changed) = (Mutex::default(), Condvar::new());
        Self { state: Arc::new(State { files, store, queue, changed }), thread: Mutex::default() }
    }

    /// Has all files below a directory moved to a tier that there is.
    pub(crate) fn migrate(&self, directory: u64, tier: String) -> Result<()> {
        let mut queue = self.state.queue();
        if queue.waiting.len() >= WAITING_MAX {
            return Err(Errno::BUSY.into());
        }
        queue.waiting.push_back(Asked { directory, tier });
        drop(queue);
        self.state.changed.notify_one();
        let mut thread = self.thread();
        if thread.is_none() {
            let state = Arc::clone(&self.state);
            let started = std::thread::Builder::new().name("mount-below".into());
            let started = started.spawn(move || {
                terrace_affinity::roam();
                state.run();
            });
            *thread = Some(started.map_err(|error| Error::from_io("start a thread", error))?);
        }
        Ok(())
    }

    /// Ends; what was not asked for is not.
    pub(crate) fn stop(&self) {
        self.state.queue().is_stopped = true;
        self.state.changed.notify_one();
        let thread = self.thread().take();
        // A panic of the thread is in the log.
        let _ = thread.map(JoinHandle::join);
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Each change is one step.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.queue().is_stopped
    }

    fn run(&self) {
        while let Some(asked) = self.next() {
            let mut walk = Walk::new(self, &asked.tier);
            walk.go(asked.directory);
            if let Some(failure) = walk.failure {
                let (directory, files, tier) = (asked.directory, walk.refused, &asked.tier);
                tracing::warn!(directory, files, tier, %failure, "cannot move all that is below");
            }
        }
    }

    /// The next directory; `None` at the end.
    fn next(&self) -> Option<Asked> {
        let is_idle = |queue: &mut Queue| queue.waiting.is_empty() && !queue.is_stopped;
        let waited = self.changed.wait_while(self.queue(), is_idle);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
        if queue.is_stopped {
            return None;
        }
        queue.waiting.pop_front()
    }
}

/// A way through everything below a directory.
struct Walk<'a> {
    state: &'a State,
    tier: &'a str,
    /// Migrations that have not ended, oldest first.
    moving: VecDeque<MoveTicket>,
    /// Files and directories of which nothing could be asked.
    refused: u64,
    /// Why, of the first.
    failure: Option<Failure>,
}

/// A directory on the way, and what is still to be looked at in it.
struct Level {
    directory: u64,
    position: u64,
    ahead: VecDeque<Listed>,
}

impl Level {
    fn new(directory: u64) -> Self {
        Self { directory, position: 0, ahead: VecDeque::new() }
    }

    fn next(&mut self, files: &Files) -> Result<Option<Listed>> {
        if self.ahead.is_empty() {
            self.ahead = files.list(self.directory, self.position, FETCHED, true)?.into();
        }
        let entry = self.ahead.pop_front();
        self.position = entry.as_ref().map_or(self.position, |entry| entry.position);
        Ok(entry)
    }
}

impl<'a> Walk<'a> {
    fn new(state: &'a State, tier: &'a str) -> Self {
        Self { state, tier, moving: VecDeque::new(), refused: 0, failure: None }
    }

    /// Goes through, and waits for all migrations: the next way may lead to the same files.
    fn go(&mut self, directory: u64) {
        let mut levels = vec![Level::new(directory)];
        while let Some(level) = levels.last_mut() {
            if self.state.is_stopped() {
                return;
            }
            match level.next(&self.state.files) {
                Ok(Some(entry)) if entry.kind.is_directory() => {
                    levels.push(Level::new(entry.number));
                }
                Ok(Some(entry)) => self.migrate(&entry),
                Ok(None) => drop(levels.pop()),
                Err(failure) => {
                    self.refuse(failure);
                    levels.pop();
                }
            }
        }
        self.wait_until_at_most(0);
    }

    fn migrate(&mut self, entry: &Listed) {
        if entry.kind != Kind::File {
            return;
        }
        let State { files, store, .. } = self.state;
        let node = entry.node.clone().map_or_else(|| files.node(entry.number), Ok);
        match node.and_then(|node| migrate_file(files, store, &node, self.tier)) {
            // It was removed meanwhile.
            Err(failure) if failure.errno() == Errno::STALE => {}
            Ok(tickets) => self.moving.extend(tickets),
            Err(failure) => self.refuse(failure),
        }
        self.wait_until_at_most(AHEAD_MAX);
    }

    fn wait_until_at_most(&mut self, count: usize) {
        while self.moving.len() > count && !self.state.is_stopped() {
            match self.state.store.admin().wait(self.moving[0], LOOK) {
                Ok(None) => {}
                Ok(Some(_)) => drop(self.moving.pop_front()),
                Err(error) => {
                    // One that is forgotten has ended.
                    if error.kind() != ErrorKind::NotFound {
                        self.refuse(error.into());
                    }
                    self.moving.pop_front();
                }
            }
        }
    }

    fn refuse(&mut self, failure: Failure) {
        // What is gone need not move.
        if failure.errno() != Errno::STALE {
            self.refused += 1;
            self.failure.get_or_insert(failure);
        }
    }
}
