// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories whose names one user alone changes, and therefore knows.
//!
//! Who makes a directory gets it *delegated*: until some time after the last request there, nobody
//! else changes its names. So a user who has changed them alone since the beginning knows which
//! there are, without asking. The first other one who comes waits for that time once, and ends it
//! for good.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::clock::FileClock;
use crate::lock;
use crate::request::DELEGATED_FOR;

/// Directories that are delegated at most; of others their makers have to ask.
const DIRECTORIES_MAX: usize = 1 << 14;

/// Delegated directories.
pub(super) struct Delegations {
    directories: Mutex<HashMap<u64, Delegation>>,
    /// Until then who served before may have delegated anything.
    quiet_until_ns: u64,
}

struct Delegation {
    /// Whose it is.
    session: u64,
    until_ns: u64,
    /// Whether somebody else waits for the end of it.
    is_ending: bool,
}

impl Delegations {
    pub(super) fn new(clock: &FileClock) -> Self {
        Self { directories: Mutex::default(), quiet_until_ns: end_ns(clock) }
    }

    /// Gives a directory that is about to be made to who makes it. False where there are too many.
    pub(super) fn give(&self, clock: &FileClock, session: u64, directory: u64) -> bool {
        let mut directories = lock(&self.directories);
        if directories.len() >= DIRECTORIES_MAX {
            let now_ns = clock.passed_ns();
            directories.retain(|_, delegation| now_ns < delegation.until_ns);
        }
        let has_room = directories.len() < DIRECTORIES_MAX;
        if has_room {
            let until_ns = end_ns(clock);
            directories.insert(directory, Delegation { session, until_ns, is_ending: false });
        }
        has_room
    }

    /// Forgets a directory that is gone, or was not made.
    pub(super) fn forget(&self, directory: u64) {
        lock(&self.directories).remove(&directory);
    }

    /// Prolongs it; whether the directory is delegated to this user.
    pub(super) fn renew(&self, clock: &FileClock, session: u64, directory: u64) -> bool {
        let mut directories = lock(&self.directories);
        match directories.get_mut(&directory) {
            Some(delegation) if delegation.session == session && !delegation.is_ending => {
                delegation.until_ns = end_ns(clock);
                true
            }
            _ => false,
        }
    }

    /// Whether nothing is delegated, as far as is known.
    pub(super) fn is_unused(&self, clock: &FileClock) -> bool {
        lock(&self.directories).is_empty() && clock.passed_ns() >= self.quiet_until_ns
    }

    /// Waits until this user may change the names in a directory.
    pub(super) fn wait(&self, clock: &FileClock, session: u64, directory: u64) {
        while let Some(left) = self.begin_to_end(clock, session, directory) {
            clock.sleep(left);
        }
    }

    /// Ends the delegation to another user; for how long that one may still rely on it.
    fn begin_to_end(&self, clock: &FileClock, session: u64, directory: u64) -> Option<Duration> {
        let mut directories = lock(&self.directories);
        let now_ns = clock.passed_ns();
        let until_ns = match directories.get_mut(&directory) {
            Some(delegation) if delegation.session != session => {
                delegation.is_ending = true;
                delegation.until_ns
            }
            // It was given since this one serves, so nobody else has it from before.
            Some(_) => return None,
            None => self.quiet_until_ns,
        };
        if now_ns < until_ns {
            return Some(Duration::from_nanos(until_ns - now_ns));
        }
        directories.remove(&directory);
        None
    }
}

/// When ends what is delegated now.
pub(super) fn end_ns(clock: &FileClock) -> u64 {
    clock.passed_ns().saturating_add(DELEGATED_FOR.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terrace_testkit::ManualClock;

    use super::*;

    const MINE: u64 = 1;
    const OTHERS: u64 = 2;
    const DIRECTORY: u64 = 70;

    fn scene() -> (Arc<ManualClock>, FileClock, Delegations) {
        let manual = Arc::new(ManualClock::new());
        let clock = FileClock::following(Arc::<ManualClock>::clone(&manual));
        let delegations = Delegations::new(&clock);
        manual.advance(DELEGATED_FOR);
        (manual, clock, delegations)
    }

    #[test]
    fn another_one_waits_until_nobody_relies_on_it() {
        let (manual, clock, delegations) = scene();
        assert!(delegations.give(&clock, MINE, DIRECTORY));
        manual.advance(DELEGATED_FOR / 2);
        assert!(delegations.renew(&clock, MINE, DIRECTORY), "it goes on");
        assert!(!delegations.renew(&clock, OTHERS, DIRECTORY), "it is another's");
        let renewed_ns = clock.passed_ns();
        delegations.wait(&clock, MINE, DIRECTORY);
        assert_eq!(clock.passed_ns(), renewed_ns, "whose it is does not wait");
        delegations.wait(&clock, OTHERS, DIRECTORY);
        assert_eq!(clock.passed_ns() - renewed_ns, DELEGATED_FOR.as_nanos() as u64);
        assert!(!delegations.renew(&clock, MINE, DIRECTORY), "it has ended for good");
    }

    #[test]
    fn who_waits_is_not_kept_waiting() {
        let (manual, clock, delegations) = scene();
        delegations.give(&clock, MINE, DIRECTORY);
        manual.advance(DELEGATED_FOR / 4);
        let left = delegations.begin_to_end(&clock, OTHERS, DIRECTORY);
        assert_eq!(left, Some(DELEGATED_FOR - DELEGATED_FOR / 4));
        assert!(!delegations.renew(&clock, MINE, DIRECTORY), "somebody waits for its end");
        assert_eq!(delegations.begin_to_end(&clock, OTHERS, DIRECTORY), left);
    }

    #[test]
    fn what_a_server_before_delegated_is_waited_for() {
        let manual = Arc::new(ManualClock::new());
        let clock = FileClock::following(Arc::<ManualClock>::clone(&manual));
        let delegations = Delegations::new(&clock);
        let begun_ns = clock.passed_ns();
        delegations.wait(&clock, MINE, DIRECTORY);
        assert_eq!(clock.passed_ns() - begun_ns, DELEGATED_FOR.as_nanos() as u64);
        delegations.wait(&clock, MINE, DIRECTORY + 1);
        assert_eq!(clock.passed_ns() - begun_ns, DELEGATED_FOR.as_nanos() as u64, "once");
    }

    #[test]
    fn they_are_bounded_and_none_is_taken_back() {
        let (manual, clock, delegations) = scene();
        for directory in 0..DIRECTORIES_MAX as u64 {
            assert!(delegations.give(&clock, MINE, directory));
        }
        assert!(!delegations.give(&clock, MINE, u64::MAX), "somebody relies on all of them");
        assert!(delegations.renew(&clock, MINE, 0));
        manual.advance(DELEGATED_FOR / 2);
        assert!(delegations.renew(&clock, MINE, 7));
        manual.advance(DELEGATED_FOR / 2);
        assert!(delegations.give(&clock, MINE, u64::MAX));
        assert!(delegations.renew(&clock, MINE, 7), "it was in use");
        assert!(!delegations.renew(&clock, MINE, 8), "it was not");
    }
}
