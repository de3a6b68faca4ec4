// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories whose names one user alone changes, and therefore knows.
//!
//! Who makes a directory gets it *delegated*: until some time after the last request there, nobody
//! else changes its names. So a user who has changed them alone since the beginning knows which
//! there are, without asking. The first other one who comes waits for that time once, and ends it
//! for good.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::FileClock;
use crate::lock;
use crate::request::{DELEGATED_FOR, MAY_SAY_GONE_FOR, SAID_GONE_FOR};

/// Directories that are delegated at most; of others their makers have to ask.
const DIRECTORIES_MAX: usize = 1 << 14;

/// After somebody else looked into a directory, nothing is said to be gone there before it is, for so long.
const LOOKED_AT_FOR: Duration = Duration::from_secs(1);

/// No user has this number.
const SEVERAL: u64 = u64::MAX;

/// Delegated directories.
pub(super) struct Delegations {
    directories: Mutex<HashMap<u64, Delegation>>,
    /// Until when anything may be said to be gone that is not, and by whom: by several where that is no user.
    /// Changed with the lock of the others.
    said_until_ns: AtomicU64,
    said_by: AtomicU64,
    /// Until then who served before may have delegated anything.
    quiet_until_ns: u64,
}

struct Delegation {
    /// Whose it is.
    session: u64,
    until_ns: u64,
    /// Whether somebody else waits for the end of it.
    is_ending: bool,
    /// Until when its user may have said that names are gone that are not.
    said_until_ns: u64,
    /// Until when he is not to begin that, because somebody else looks.
    looked_at_until_ns: u64,
}

impl Delegation {
    /// Until when its user may rely on it, or has others wait.
    fn end_ns(&self) -> u64 {
        self.until_ns.max(self.said_until_ns)
    }
}

impl Delegations {
    pub(super) fn new(clock: &FileClock) -> Self {
        let (said_until_ns, said_by) = (AtomicU64::new(0), AtomicU64::new(SEVERAL));
        let directories = Mutex::default();
        Self { directories, said_until_ns, said_by, quiet_until_ns: end_ns(clock) }
    }

    /// Gives a directory that is about to be made to who makes it. False where there are too many.
    pub(super) fn give(&self, clock: &FileClock, session: u64, directory: u64) -> bool {
        let mut directories = lock(&self.directories);
        if directories.len() >= DIRECTORIES_MAX {
            let now_ns = clock.passed_ns();
            directories.retain(|_, delegation| now_ns < delegation.end_ns());
        }
        let has_room = directories.len() < DIRECTORIES_MAX;
        if has_room {
            let until_ns = end_ns(clock);
            let delegation = Delegation {
                session,
                until_ns,
                is_ending: false,
                said_until_ns: 0,
                looked_at_until_ns: 0,
            };
            directories.insert(directory, delegation);
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

    /// Whether this user may say of names in the directory, which is delegated to it, that they are gone
    /// before they are. Who else looks there waits for that. Whoever `has_said` so already may go on only as
    /// long as others wait: else some may have looked at what he has said since.
    pub(super) fn may_say_gone(
        &self,
        clock: &FileClock,
        session: u64,
        directory: u64,
        has_said: bool,
    ) -> bool {
        let mut directories = lock(&self.directories);
        let now_ns = clock.passed_ns();
        match directories.get_mut(&directory) {
            Some(delegation)
                if delegation.session == session
                    && !delegation.is_ending
                    && now_ns >= delegation.looked_at_until_ns
                    && !(has_said && now_ns >= delegation.said_until_ns) =>
            {
                let until_ns = after(now_ns, MAY_SAY_GONE_FOR + SAID_GONE_FOR);
                delegation.said_until_ns = until_ns;
                let is_alone = now_ns >= self.said_until_ns.load(Ordering::SeqCst)
                    || self.said_by.load(Ordering::SeqCst) == session;
                self.said_by.store(if is_alone { session } else { SEVERAL }, Ordering::SeqCst);
                self.said_until_ns.store(until_ns, Ordering::SeqCst);
                true
            }
            _ => false,
        }
    }

    /// Whether names may have been said to be gone, anywhere, by other users, that are not.
    pub(super) fn may_be_said(&self, clock: &FileClock, session: u64) -> bool {
        clock.passed_ns() < self.said_until_ns.load(Ordering::SeqCst)
            && self.said_by.load(Ordering::SeqCst) != session
    }

    /// Whether nobody else has looked into a directory since this user was allowed to say that names are
    /// gone there. To be asked, and acted on, with the locks of what is open of them: before others open it.
    pub(super) fn is_in_time(&self, clock: &FileClock, session: u64, directory: u64) -> bool {
        let directories = lock(&self.directories);
        directories.get(&directory).is_some_and(|delegation| {
            delegation.session == session && clock.passed_ns() < delegation.said_until_ns
        })
    }

    /// Whether another user may have said that names are gone in a directory that are not.
    pub(super) fn is_said_by_others(
        &self,
        clock: &FileClock,
        session: u64,
        directory: u64,
    ) -> bool {
        let directories = lock(&self.directories);
        directories.get(&directory).is_some_and(|delegation| {
            delegation.session != session && clock.passed_ns() < delegation.said_until_ns
        })
    }

    /// Whether a directory is delegated to another user, who may rely on that, or has others wait; or may have
    /// been by who served before.
    pub(super) fn is_others(&self, clock: &FileClock, session: u64, directory: u64) -> bool {
        let now_ns = clock.passed_ns();
        match lock(&self.directories).get(&directory) {
            Some(delegation) => delegation.session != session && now_ns < delegation.end_ns(),
            None => now_ns < self.quiet_until_ns,
        }
    }

    /// Waits until what another user said is gone in a directory is gone, for who looks there: once in a
    /// while, and not for each look.
    pub(super) fn wait_to_look(&self, clock: &FileClock, session: u64, directory: u64) {
        let left = {
            let mut directories = lock(&self.directories);
            let now_ns = clock.passed_ns();
            match directories.get_mut(&directory) {
                Some(delegation)
                    if delegation.session != session && now_ns < delegation.said_until_ns =>
                {
                    delegation.looked_at_until_ns = after(now_ns, LOOKED_AT_FOR);
                    Duration::from_nanos(delegation.said_until_ns - now_ns)
                }
                _ => return,
            }
        };
        clock.sleep(left);
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
                delegation.end_ns()
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
    after(clock.passed_ns(), DELEGATED_FOR)
}

fn after(at_ns: u64, time: Duration) -> u64 {
    at_ns.saturating_add(time.as_nanos() as u64)
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
    fn who_looks_waits_until_what_another_one_said_is_gone_is_gone() {
        let (manual, clock, delegations) = scene();
        let said = (MAY_SAY_GONE_FOR + SAID_GONE_FOR).as_nanos() as u64;
        let waited_ns = |session| {
            let begun_ns = clock.passed_ns();
            delegations.wait_to_look(&clock, session, DIRECTORY);
            clock.passed_ns() - begun_ns
        };
        assert!(!delegations.may_say_gone(&clock, MINE, DIRECTORY, false), "it is nobody's");
        delegations.give(&clock, MINE, DIRECTORY);
        assert_eq!(waited_ns(OTHERS), 0, "nothing was said");
        assert!(!delegations.may_say_gone(&clock, OTHERS, DIRECTORY, false));
        let goes_on = || delegations.may_say_gone(&clock, MINE, DIRECTORY, true);
        let is_said = |session| delegations.may_be_said(&clock, session);
        assert!(!is_said(OTHERS));
        assert!(delegations.may_say_gone(&clock, MINE, DIRECTORY, false));
        assert_eq!(waited_ns(MINE), 0, "who said it knows");
        let in_time = |session| delegations.is_in_time(&clock, session, DIRECTORY);
        assert!(is_said(OTHERS) && !is_said(MINE) && in_time(MINE) && !in_time(OTHERS));
        assert_eq!(waited_ns(OTHERS), said);
        assert!(!is_said(OTHERS) && !in_time(MINE));
        assert_eq!(waited_ns(OTHERS), 0, "it is over");
        assert!(delegations.renew(&clock, MINE, DIRECTORY), "it goes on");
        assert!(!delegations.may_say_gone(&clock, MINE, DIRECTORY, false), "somebody looks");
        assert_eq!(waited_ns(OTHERS), 0);
        manual.advance(LOOKED_AT_FOR);
        assert!(!goes_on(), "others may have looked");
        assert!(delegations.may_say_gone(&clock, MINE, DIRECTORY, false));
        assert!(goes_on());
        manual.advance(MAY_SAY_GONE_FOR);
        assert_eq!(waited_ns(OTHERS), SAID_GONE_FOR.as_nanos() as u64);
        manual.advance(LOOKED_AT_FOR);
        assert!(delegations.may_say_gone(&clock, MINE, DIRECTORY, false));
        delegations.give(&clock, OTHERS, DIRECTORY + 1);
        assert!(delegations.may_say_gone(&clock, OTHERS, DIRECTORY + 1, false));
        assert!(is_said(MINE) && is_said(OTHERS), "both may have said something");
        let begun_ns = clock.passed_ns();
        delegations.wait(&clock, OTHERS, DIRECTORY);
        assert_eq!(clock.passed_ns() - begun_ns, said, "who changes names waits as long");
        assert!(!delegations.may_say_gone(&clock, MINE, DIRECTORY, false), "it has ended");
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
