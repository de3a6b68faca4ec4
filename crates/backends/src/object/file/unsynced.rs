// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which directories and identities a loss of power could still undo.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use terrace_core::{Error, ErrorKind, Result};

use super::path::ObjectPath;
use super::system;

/// Beyond this many, the whole file system is synced instead: one call, whatever the number.
const PATHS_MAX: usize = 4096;

/// Remembers what to sync.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    /// Held for reading while a name changes and is noted, so that a sync sees both or neither.
    changing: RwLock<()>,
    state: Mutex<State>,
    /// Held across the I/O of a sync: a caller that finds nothing left to sync must know that it is
    /// done, not that another thread is at it. Holds whether a sync failed.
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct State {
    /// Paths below the root, `.` for itself, with the number of the latest change.
    paths: HashMap<Vec<u8>, Change>,
    /// There were too many.
    is_everything: bool,
    changes: u64,
}

#[derive(Debug, Default)]
struct Turn {
    /// The kernel reports a failed write-back once; later syncs would succeed for nothing.
    has_failed: bool,
}

/// Tells a change of a path from later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change(u64);

impl Unsynced {
    /// To be held while a name changes and is noted.
    pub(super) fn changing(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a directory's entries or a file's identity changed.
    pub(super) fn note(&self, path: &[u8]) -> Change {
        let mut state = self.state();
        state.changes += 1;
        let change = Change(state.changes);
        if state.is_everything {
            return change;
        }
        if let Some(latest) = state.paths.get_mut(path) {
            *latest = change;
        } else if state.paths.len() < PATHS_MAX {
            state.paths.insert(path.to_vec(), change);
        } else {
            state.paths.clear();
            state.is_everything = true;
        }
        change
    }

    /// Takes back a note whose path was synced by other means and has not changed since.
    pub(super) fn settle(&self, path: &[u8], change: Change) {
        let mut state = self.state();
        if state.paths.get(path) == Some(&change) {
            state.paths.remove(path);
        }
    }

    /// Makes everything durable that was noted before the call.
    pub(super) fn sync(&self, root: BorrowedFd<'_>) -> Result<()> {
        let mut turn = self.turn();
        self.sync_in_turn(root, &mut turn)
    }

    /// Makes everything on the file system durable, the bytes of files included.
    pub(super) fn sync_all(&self, root: BorrowedFd<'_>) -> Result<()> {
        let mut turn = self.turn();
        {
            let _nothing_changes = self.nothing_changes();
            let mut state = self.state();
            state.paths.clear();
            state.is_everything = true;
        }
        self.sync_in_turn(root, &mut turn)
    }

    /// Makes an object's name durable, unless it is.
    pub(super) fn sync_name(&self, root: BorrowedFd<'_>, path: &ObjectPath) -> Result<()> {
        let mut turn = self.turn();
        let is_noted = {
            let _nothing_changes = self.nothing_changes();
            let state = self.state();
            let mut directories = path.directories();
            state.is_everything
                || state.paths.contains_key(path.as_bytes())
                || state.paths.contains_key(&b"."[..])
                || directories.any(|directory| state.paths.contains_key(directory))
        };
        if is_noted || turn.has_failed { self.sync_in_turn(root, &mut turn) } else { Ok(()) }
    }

    fn sync_in_turn(&self, root: BorrowedFd<'_>, turn: &mut Turn) -> Result<()> {
        if turn.has_failed {
            return Err(Error::new(ErrorKind::Io, "sync the names of a tier")
                .because("an earlier sync failed; open the store again"));
        }
        let state = {
            let _nothing_changes = self.nothing_changes();
            self.state().take()
        };
        state.sync(root).map_err(|failure| match failure {
            Failure::NotTried(error) => {
                self.state().put_back(state);
                error
            }
            Failure::Lost(error) => {
                turn.has_failed = true;
                error
            }
        })
    }

    fn nothing_changes(&self) -> RwLockWriteGuard<'_, ()> {
        self.changing.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes out what is noted. Numbers go on: a handle may hold one that was given before.
    fn take(&mut self) -> State {
        let changes = self.changes;
        std::mem::replace(self, State { changes, ..State::default() })
    }

    /// Undoes [`State::take`]; what was noted since stays.
    fn put_back(&mut self, taken: State) {
        for (path, change) in taken.paths {
            self.paths.entry(path).or_insert(change);
        }
        self.is_everything |= taken.is_everything || self.paths.len() > PATHS_MAX;
        if self.is_everything {
            self.paths.clear();
        }
    }

    fn sync(&self, root: BorrowedFd<'_>) -> Result<(), Failure> {
        if self.is_everything {
            let lost = |errno| Failure::Lost(system::error("sync a file system", errno));
            return rustix::fs::syncfs(root).map_err(lost);
        }
        self.paths.keys().try_for_each(|path| sync_path(root, path))
    }
}

/// Why not everything was synced.
enum Failure {
    /// Something was not reached, for example for want of descriptors; the next sync may.
    NotTried(Error),
    /// The kernel reported a failed write-back, and will not again.
    Lost(Error),
}

fn sync_path(root: BorrowedFd<'_>, path: &[u8]) -> Result<(), Failure> {
    let failed = |errno| {
        system::error("sync the names of a tier", errno).with("path", String::from_utf8_lossy(path))
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(root, path, flags, Mode::empty()) {
        Ok(file) => rustix::fs::fsync(&file).map_err(|errno| Failure::Lost(failed(errno))),
        // Removed since; what held it was noted for that.
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Failure::NotTried(failed(errno))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_could_not_be_reached_is_tried_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = fs::File::open(directory.path()).expect("open");
        let path = directory.path().join("a");
        // Opening a link fails, as everything does when descriptors run out.
        symlink("a", &path).expect("room");
        let unsynced = Unsynced::default();
        unsynced.note(b"a");
        for _ in 0..2 {
            let error = unsynced.sync(root.as_fd()).expect_err("not reached");
            assert!(error.to_string().contains("path=a"), "{error}");
        }
        fs::remove_file(&path).expect("there");
        fs::create_dir(&path).expect("room");
        unsynced.sync(root.as_fd()).expect("reached");
        symlink("b", directory.path().join("b")).expect("room");
        unsynced.sync(root.as_fd()).expect("nothing is left");
    }

    #[test]
    fn putting_back_keeps_the_bound() {
        let unsynced = Unsynced::default();
        let note = |start: usize| {
            (start..start + PATHS_MAX).for_each(|index| {
                unsynced.note(index.to_string().as_bytes());
            });
        };
        note(0);
        let taken = unsynced.state().take();
        note(PATHS_MAX);
        assert!(!unsynced.state().is_everything);
        unsynced.state().put_back(taken);
        let state = unsynced.state();
        assert!(state.is_everything && state.paths.is_empty());
    }
}
