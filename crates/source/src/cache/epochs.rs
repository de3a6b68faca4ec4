// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which copies are whole after a loss of power, without a sync for each.
//!
//! Copies are made in epochs. From time to time an epoch ends: all that was written in it is synced at once,
//! and its number recorded. What a process has written the kernel keeps when that process is killed; when the
//! machine has been started again, copies of epochs that were not synced are void.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use terrace_core::{Error, ErrorKind, Result};

use crate::lock;

const FORMAT: u32 = 1;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const NAME: &str = "cache.json";

/// The file that says what a cache is of, and which of its copies are durable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    format: u32,
    /// [`crate::Source::identity`] of what it is of.
    pub(super) source: String,
    boot: String,
    /// Copies of this epoch and of those before are durable.
    synced: u64,
    /// Epochs, from and to, whose copies are void.
    void: Vec<(u64, u64)>,
}

pub(super) struct Epochs {
    path: PathBuf,
    state: Mutex<State>,
    /// The epoch of what is written now. Held for reading while a copy is written and published.
    current: RwLock<u64>,
    /// The last epoch in which something was published.
    used: Mutex<u64>,
    /// Held while an epoch is ended.
    ending: Mutex<()>,
}

impl Epochs {
    /// The state of a cache; `None` where the directory is none yet.
    pub(super) fn state_of(directory: &Path) -> Result<Option<State>> {
        let path = directory.join(NAME);
        let failed = |error| Error::from_io("open the cache", error).with("file", path.display());
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let state = serde_json::from_str(&text).ok().filter(|state: &State| state.format == FORMAT);
        state.map(Some).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "open the cache")
                .because("its file is not as this version writes it; remove the directory, which holds copies only")
                .with("file", path.display())
        })
    }

    /// Begins to use a cache. Its state is written by [`Epochs::save`], before anything else is.
    pub(super) fn begin(directory: &Path, source: &str, state: Option<State>) -> Result<Self> {
        let path = directory.join(NAME);
        let failed = |error| Error::from_io("open the cache", error).with("file", BOOT_ID);
        let boot = std::fs::read_to_string(BOOT_ID).map_err(failed)?.trim().to_string();
        let is_new = state.is_none();
        let mut state = state.unwrap_or_else(|| State {
            format: FORMAT,
            source: source.into(),
            boot: boot.clone(),
            synced: 0,
            void: Vec::new(),
        });
        // What an earlier process of this boot has published is synced with the first epoch.
        let is_left = !is_new && state.boot == boot;
        if state.boot != boot {
            // While an epoch is synced, copies of the next one are made.
            state.set_void(state.synced + 1, state.synced + 2);
            state.synced += 2;
            state.boot = boot;
        }
        let epoch = state.synced + 1;
        Ok(Self {
            path,
            state: Mutex::new(state),
            current: RwLock::new(epoch),
            used: Mutex::new(if is_left { epoch } else { 0 }),
            ending: Mutex::default(),
        })
    }

    /// Writes the state that the cache has begun with, durably.
    pub(super) fn save(&self) -> Result<()> {
        let state = lock(&self.state).clone();
        write(&self.path, &state).map_err(|error| {
            Error::from_io("open the cache", error).with("file", self.path.display())
        })
    }

    /// What the cache is of.
    pub(super) fn source(&self) -> String {
        lock(&self.state).source.clone()
    }

    /// Whether copies of an epoch are whole.
    pub(super) fn is_trusted(&self, epoch: u64) -> bool {
        !lock(&self.state).void.iter().any(|(from, to)| (*from..=*to).contains(&epoch))
    }

    /// The epoch of a copy; it lasts until what is returned is dropped, after the copy was published.
    ///
    /// # Errors
    ///
    /// `EIO` where the epoch is void, as the state of the cache could not be written: no copies are made until it is.
    pub(super) fn enter(&self) -> std::result::Result<RwLockReadGuard<'_, u64>, Errno> {
        let epoch = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if !self.is_trusted(*epoch) {
            return Err(Errno::IO);
        }
        *lock(&self.used) = *epoch;
        Ok(epoch)
    }

    /// Ends the epoch where something was published in it; `sync` makes durable what was written.
    ///
    /// Where that fails, the copies of this epoch and of those made meanwhile are void at once: the kernel reports
    /// a page that it cannot write once, and may drop it from memory then. The next sync succeeds without it.
    pub(super) fn end(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // One end at a time: no more than two epochs are not synced.
        let _ending = lock(&self.ending);
        let current = *self.current.read().unwrap_or_else(PoisonError::into_inner);
        if !self.is_trusted(current) {
            self.leave_void()?;
        }
        let state = lock(&self.state).clone();
        let ended = state.synced + 1;
        {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            if *lock(&self.used) <= state.synced {
                return Ok(());
            }
            *current = ended + 1;
        }
        let Err(failure) = sync() else {
            let synced = State { synced: ended, ..state };
            write(&self.path, &synced)?;
            *lock(&self.state) = synced;
            return Ok(());
        };
        lock(&self.state).set_void(ended, ended + 1);
        // Where the file cannot be written either, no copies are made until it can.
        if let Err(error) = self.leave_void() {
            tracing::debug!(%error, "the state of the cache cannot be written");
        }
        Err(failure)
    }

    /// Writes which epochs are void, up to the current one, and begins the next one.
    fn leave_void(&self) -> io::Result<()> {
        // No copy is published meanwhile: it would be of an epoch that the file does not void.
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let state = State { synced: *current, ..lock(&self.state).clone() };
        write(&self.path, &state)?;
        *lock(&self.state) = state;
        *current += 1;
        Ok(())
    }
}

impl State {
    /// Notes that the copies of some epochs are void.
    fn set_void(&mut self, from: u64, to: u64) {
        match self.void.last_mut() {
            // A disk that fails again and again makes one entry.
            Some(last) if last.1 + 1 >= from => last.1 = last.1.max(to),
            _ => self.void.push((from, to)),
        }
    }
}

/// Replaces the file, durably.
fn write(path: &Path, state: &State) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut file = File::create(&next)?;
    file.write_all(&serde_json::to_vec(state).expect("it has only text keys"))?;
    file.sync_all()?;
    std::fs::rename(&next, path)?;
    File::open(path.parent().expect("it is in a directory"))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(directory: &Path) -> Epochs {
        let state = Epochs::state_of(directory).expect("readable");
        let epochs = Epochs::begin(directory, "here", state).expect("readable");
        epochs.save().expect("writable");
        epochs
    }

    /// The machine is started again.
    fn start_again(directory: &Path) {
        let mut state = Epochs::state_of(directory).expect("readable").expect("there is one");
        state.boot = "another".into();
        write(&directory.join(NAME), &state).expect("writable");
    }

    #[test]
    fn copies_that_were_not_synced_are_void_after_another_boot_only() {
        let directory = tempfile::tempdir().expect("directory");
        let epochs = begin(directory.path());
        let first = *epochs.enter().expect("not void");
        epochs.end(|| Ok(())).expect("synced");
        let second = *epochs.enter().expect("not void");
        assert_ne!(first, second);
        let again = begin(directory.path());
        assert!(again.is_trusted(first) && again.is_trusted(second), "the kernel has the pages");
        start_again(directory.path());
        let again = begin(directory.path());
        assert!(again.is_trusted(first) && !again.is_trusted(second));
        assert!(again.is_trusted(*again.enter().expect("not void")));
        again.end(|| Ok(())).expect("synced");
        let third = *again.enter().expect("not void");
        again.end(|| Ok(())).expect("synced");
        start_again(directory.path());
        assert!(begin(directory.path()).is_trusted(third));
    }

    #[test]
    fn copies_made_during_a_sync_belong_to_the_next_epoch() {
        let directory = tempfile::tempdir().expect("directory");
        let epochs = begin(directory.path());
        drop(epochs.enter().expect("not void"));
        let mut during = 0;
        epochs
            .end(|| {
                during = *epochs.enter().expect("not void");
                Ok(())
            })
            .expect("synced");
        start_again(directory.path());
        assert!(!begin(directory.path()).is_trusted(during));
    }

    #[test]
    fn a_sync_that_fails_leaves_copies_void() {
        let directory = tempfile::tempdir().expect("directory");
        let epochs = begin(directory.path());
        let epoch = *epochs.enter().expect("not void");
        epochs.end(|| Err(io::ErrorKind::StorageFull.into())).expect_err("planned");
        start_again(directory.path());
        assert!(!begin(directory.path()).is_trusted(epoch));
    }

    #[test]
    fn what_a_failed_sync_covered_stays_void() {
        let directory = tempfile::tempdir().expect("directory");
        let epochs = begin(directory.path());
        let before = *epochs.enter().expect("not void");
        let mut during = 0;
        let failed = epochs.end(|| {
            during = *epochs.enter().expect("not void");
            Err(io::ErrorKind::StorageFull.into())
        });
        failed.expect_err("planned");
        assert!(!epochs.is_trusted(before) && !epochs.is_trusted(during));
        // The kernel reports a failed write once.
        epochs.end(|| Ok(())).expect("synced");
        let after = *epochs.enter().expect("not void");
        epochs.end(|| Ok(())).expect("synced");
        start_again(directory.path());
        let again = begin(directory.path());
        assert!(!again.is_trusted(before) && !again.is_trusted(during));
        assert!(again.is_trusted(after), "a sync covered it");
    }

    #[test]
    fn copies_are_made_again_once_the_state_is_written() {
        let directory = tempfile::tempdir().expect("directory");
        let epochs = begin(directory.path());
        let before = *epochs.enter().expect("not void");
        // The file cannot be replaced while this is there.
        let next = directory.path().join(NAME).with_extension("next");
        std::fs::create_dir(&next).expect("room");
        epochs.end(|| Err(io::ErrorKind::StorageFull.into())).expect_err("planned");
        assert!(!epochs.is_trusted(before));
        assert_eq!(epochs.enter().err(), Some(Errno::IO), "a copy would be void");
        std::fs::remove_dir(&next).expect("it is empty");
        epochs.end(|| Ok(())).expect("synced");
        let after = *epochs.enter().expect("not void");
        assert!(epochs.is_trusted(after));
        epochs.end(|| Ok(())).expect("synced");
        start_again(directory.path());
        let again = begin(directory.path());
        assert!(again.is_trusted(after) && !again.is_trusted(before));
    }
}
