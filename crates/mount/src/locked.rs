// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories in which programs lock files, where others change them, too.
//!
//! Whoever works under locks relies on names as well: a database finds by the name of its journal
//! whether somebody who had the lock before it died. So the names beside a file that is locked are not
//! believed for a while, but asked for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::Clock;

/// So long after a lock names are asked for; after half of it a file is noted anew.
const ASKED_FOR: Duration = Duration::from_secs(60);

/// Files and directories that are remembered; where there are more, no name is believed.
const FILES_MAX: usize = 4096;

/// Such directories.
pub(crate) struct LockedDirectories {
    state: Mutex<State>,
    /// Until then there may be some.
    any_until_ns: AtomicU64,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    /// Until when locked files have been noted.
    files: HashMap<u64, u64>,
    /// Until when the names in each are asked for.
    directories: HashMap<u64, u64>,
    /// Until when those in all directories are.
    all_until_ns: u64,
}

impl LockedDirectories {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), any_until_ns: AtomicU64::default(), clock }
    }

    /// Notes that a file is locked, before it is said so; `find` its directory, where that was not done
    /// lately.
    pub(crate) fn note(&self, number: u64, find: impl FnOnce() -> Option<u64>) {
        let now_ns = self.clock.now_ns();
        let until_ns = now_ns.saturating_add(ASKED_FOR.as_nanos() as u64);
        let known = self.with(|state| state.files.get(&number).copied());
        if known.is_some_and(|known| until_ns - known < ASKED_FOR.as_nanos() as u64 / 2) {
            return;
        }
        // It may have been moved since.
        let directory = find();
        self.with(|state| {
            if state.files.len().max(state.directories.len()) >= FILES_MAX {
                state.files.retain(|_, until_ns| *until_ns > now_ns);
                state.directories.retain(|_, until_ns| *until_ns > now_ns);
            }
            match directory {
                Some(directory) if state.files.len().max(state.directories.len()) < FILES_MAX => {
                    state.files.insert(number, until_ns);
                    state.directories.insert(directory, until_ns);
                }
                _ => state.all_until_ns = until_ns,
            }
        });
        self.any_until_ns.fetch_max(until_ns, Ordering::AcqRel);
    }

    /// Whether the names in a directory are to be asked for.
    pub(crate) fn are_asked_for(&self, directory: u64) -> bool {
        let any_until_ns = self.any_until_ns.load(Ordering::Acquire);
        if any_until_ns == 0 {
            return false;
        }
        let now_ns = self.clock.now_ns();
        let is_asked_for = |state: &mut State| {
            let until_ns = state.directories.get(&directory).copied().unwrap_or_default();
            now_ns < until_ns.max(state.all_until_ns)
        };
        now_ns < any_until_ns && self.with(is_asked_for)
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        // Each change of a map is one step.
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use terrace_testkit::ManualClock;

    use super::*;

    fn scene() -> (Arc<ManualClock>, LockedDirectories) {
        let clock = Arc::new(ManualClock::new());
        (Arc::clone(&clock), LockedDirectories::new(clock))
    }

    #[test]
    fn names_beside_a_locked_file_are_asked_for_until_a_while_after_the_last_lock() {
        let (clock, locked) = scene();
        assert!(!locked.are_asked_for(1));
        locked.note(10, || Some(1));
        assert!(locked.are_asked_for(1));
        assert!(!locked.are_asked_for(2));
        locked.note(10, || panic!("it is known"));
        clock.advance(ASKED_FOR / 2);
        locked.note(10, || Some(2));
        clock.advance(ASKED_FOR / 2);
        assert!(!locked.are_asked_for(1), "it was moved");
        assert!(locked.are_asked_for(2));
        clock.advance(ASKED_FOR / 2);
        assert!(!locked.are_asked_for(2));
    }

    #[test]
    fn where_it_is_not_known_which_they_are_all_names_are_asked_for() {
        let (clock, locked) = scene();
        locked.note(10, || None);
        assert!(locked.are_asked_for(1));
        clock.advance(ASKED_FOR);
        assert!(!locked.are_asked_for(1));
        for number in 0..FILES_MAX as u64 {
            locked.note(number, || Some(number));
        }
        assert!(!locked.are_asked_for(u64::MAX));
        locked.note(u64::MAX, || Some(u64::MAX));
        assert!(locked.are_asked_for(FILES_MAX as u64 + 7));
        clock.advance(ASKED_FOR);
        locked.note(1, || Some(1));
        assert!(locked.are_asked_for(1));
        assert!(!locked.are_asked_for(2), "they were forgotten");
    }
}
