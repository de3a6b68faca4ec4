// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are delegated to who reads one after the other, and directories to who lists one after the
//! other: what is said here of files goes for them as well, each kind for itself.
//!
//! Who opens files ahead is told at once what is in them, and need not ask when a program opens one:
//! until some time after they asked last, nobody else changes one of them, or is told that he has. The first
//! change by another user ends it for all that this one was given, and for a while they get no more.
//!
//! Who changes a file waits before that and behind it: for those who looked in between.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::delegations::end_ns;
use crate::clock::FileClock;
use crate::lock;

/// Files that are delegated at most, in all.
const FILES_MAX: usize = 1 << 16;

/// After a change by another user nothing is delegated to who had that file for so long: where many
/// files change one after the other, their users are not held up by each.
const REST: Duration = Duration::from_secs(2);

/// Such files.
pub(super) struct ReadDelegations {
    given: Mutex<AllGiven>,
    /// Whether nothing was ever given since this one serves.
    is_unused: AtomicBool,
    /// Until then who served before may have delegated anything.
    quiet_until_ns: u64,
    is_quiet_over: AtomicBool,
}

#[derive(Default)]
struct AllGiven {
    sessions: HashMap<u64, Given>,
    /// To which sessions each file is delegated.
    files: HashMap<u64, HashSet<u64>>,
}

/// What is delegated to one user.
struct Given {
    /// The last grant that they asked for: of an earlier one nothing is delegated any more, also where
    /// the request for it comes late.
    grant: u64,
    files: HashSet<u64>,
    until_ns: u64,
    /// Whether somebody else has changed one of them: it ends then.
    is_ending: bool,
    /// Whether they are gone.
    has_left: bool,
}

impl ReadDelegations {
    pub(super) fn new(clock: &FileClock) -> Self {
        Self {
            given: Mutex::default(),
            is_unused: AtomicBool::new(true),
            quiet_until_ns: end_ns(clock),
            is_quiet_over: AtomicBool::new(false),
        }
    }

    /// Delegates files to a user, before it is looked what is in them: with what they have of a grant, or
    /// as the first of it. False where that has ended, or there are too many.
    pub(super) fn give(
        &self,
        clock: &FileClock,
        session: u64,
        numbers: &[u64],
        (grant, is_first): (u64, bool),
    ) -> bool {
        self.is_unused.store(false, Ordering::SeqCst);
        let now_ns = clock.passed_ns();
        let mut given = self.lock();
        // Once for all that comes with one request.
        if is_first {
            given.clear_up(now_ns);
        }
        let may_have = match given.sessions.get(&session) {
            None => is_first,
            Some(theirs) if is_first => theirs.grant < grant && !theirs.is_resting(now_ns),
            Some(theirs) => theirs.grant == grant && !theirs.is_ending,
        };
        if !may_have {
            return false;
        }
        let until_ns = end_ns(clock);
        if is_first {
            given.take_back(session);
            let files = HashSet::new();
            let theirs = Given { grant, files, until_ns, is_ending: false, has_left: false };
            given.sessions.insert(session, theirs);
        }
        let AllGiven { sessions, files } = &mut *given;
        let Some(theirs) = sessions.get_mut(&session) else { return false };
        if files.len() + numbers.len() > FILES_MAX {
            return false;
        }
        for number in numbers {
            files.entry(*number).or_default().insert(session);
        }
        theirs.files.extend(numbers);
        theirs.until_ns = until_ns;
        true
    }

    /// Prolongs what is delegated to a user with a grant; whether it still is. Where nobody relied on it
    /// lately, not while others may have said that files are gone, as `is_said` tells.
    pub(super) fn renew(
        &self,
        clock: &FileClock,
        session: u64,
        grant: u64,
        is_said: impl Fn() -> bool,
    ) -> bool {
        match self.lock().sessions.get_mut(&session) {
            Some(theirs) if !theirs.is_ending && theirs.grant == grant => {
                let is_over = clock.passed_ns() >= theirs.until_ns;
                // With the lock: others look for who relies on something behind what they say.
                if is_over && is_said() {
                    return false;
                }
                theirs.until_ns = end_ns(clock);
                true
            }
            _ => false,
        }
    }

    /// Whether nothing was ever delegated since this one serves.
    pub(super) fn is_unused(&self) -> bool {
        self.is_unused.load(Ordering::SeqCst)
    }

    /// Whether other users may rely on anything that is delegated to them.
    pub(super) fn has_others(&self, clock: &FileClock, session: u64) -> bool {
        let relies =
            |theirs: &Given| clock.passed_ns() < theirs.until_ns && !theirs.files.is_empty();
        let others = |(other, theirs): (&u64, &Given)| *other != session && relies(theirs);
        !self.is_unused() && self.lock().sessions.iter().any(others)
    }

    /// Whether other users may rely on what one of these is, or has in it.
    pub(super) fn has_others_of(&self, clock: &FileClock, session: u64, number: u64) -> bool {
        if self.is_unused() {
            return false;
        }
        let given = self.lock();
        let relies = |other: &u64| {
            let theirs = given.sessions.get(other);
            theirs.is_some_and(|theirs| clock.passed_ns() < theirs.until_ns)
        };
        let sessions = given.files.get(&number).into_iter().flatten();
        sessions.filter(|other| **other != session).any(relies)
    }

    /// A user has closed a file, and does not rely on it any more.
    pub(super) fn give_back(&self, session: u64, number: u64) {
        if self.is_unused() {
            return;
        }
        let mut given = self.lock();
        let given = &mut *given;
        if let Some(theirs) = given.sessions.get_mut(&session)
            && !theirs.is_ending
            && theirs.files.remove(&number)
        {
            forget(&mut given.files, session, number);
        }
    }

    /// A user is gone, who may not know that yet.
    pub(super) fn leave(&self, session: u64) {
        if let Some(theirs) = self.lock().sessions.get_mut(&session) {
            (theirs.is_ending, theirs.has_left) = (true, true);
        }
    }

    /// Waits until no other user relies on what is in a file, or was before it was changed.
    pub(super) fn wait(&self, clock: &FileClock, session: u64, number: u64) {
        if !self.is_quiet_over.load(Ordering::Relaxed) {
            while let Some(left) = left(clock, self.quiet_until_ns) {
                clock.sleep(left);
            }
            self.is_quiet_over.store(true, Ordering::Relaxed);
        }
        if self.is_unused() {
            return;
        }
        let Some(until_ns) = self.begin_to_end(session, number) else { return };
        while let Some(left) = left(clock, until_ns) {
            clock.sleep(left);
        }
    }

    /// Ends what is delegated to other users with a file; until when one of them may rely on that.
    fn begin_to_end(&self, session: u64, number: u64) -> Option<u64> {
        let mut given = self.lock();
        let AllGiven { sessions, files } = &mut *given;
        let others = files.get(&number)?.iter().filter(|other| **other != session);
        let mut until_ns = None;
        for theirs in others {
            if let Some(theirs) = sessions.get_mut(theirs) {
                theirs.is_ending = true;
                until_ns = until_ns.max(Some(theirs.until_ns));
            }
        }
        until_ns
    }

    fn lock(&self) -> MutexGuard<'_, AllGiven> {
        lock(&self.given)
    }
}

impl Given {
    /// Whether it ended too short a while ago to give them anything.
    fn is_resting(&self, now_ns: u64) -> bool {
        self.is_ending && now_ns < self.until_ns.saturating_add(REST.as_nanos() as u64)
    }
}

impl AllGiven {
    /// Forgets files that have ended to be delegated, and users who are gone, where nobody relies on it.
    fn clear_up(&mut self, now_ns: u64) {
        let Self { sessions, files } = self;
        sessions.retain(|session, theirs| {
            let is_over = theirs.is_ending && theirs.until_ns <= now_ns;
            if is_over {
                theirs.files.drain().for_each(|number| forget(files, *session, number));
            }
            !(is_over && theirs.has_left)
        });
    }

    /// Forgets all that is delegated to a user, who does not rely on it any more.
    fn take_back(&mut self, session: u64) {
        let Some(theirs) = self.sessions.remove(&session) else { return };
        theirs.files.into_iter().for_each(|number| forget(&mut self.files, session, number));
    }
}

/// Notes that a file is not delegated to a user any more.
fn forget(files: &mut HashMap<u64, HashSet<u64>>, session: u64, number: u64) {
    if let Some(sessions) = files.get_mut(&number) {
        sessions.remove(&session);
        if sessions.is_empty() {
            files.remove(&number);
        }
    }
}

/// How long it is until then; `None` where that is over.
fn left(clock: &FileClock, until_ns: u64) -> Option<Duration> {
    let now_ns = clock.passed_ns();
    (now_ns < until_ns).then(|| Duration::from_nanos(until_ns - now_ns))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terrace_testkit::ManualClock;

    use super::*;
    use crate::request::DELEGATED_FOR;

    const READER: u64 = 1;
    const OTHER: u64 = 2;
    const FILE: u64 = 70;
    /// The first files of a grant, and more of it.
    const FIRST: (u64, bool) = (1, true);
    const MORE: (u64, bool) = (1, false);
    const SECOND: (u64, bool) = (2, true);

    fn scene() -> (Arc<ManualClock>, FileClock, ReadDelegations) {
        let manual = Arc::new(ManualClock::new());
        let clock = FileClock::following(Arc::<ManualClock>::clone(&manual));
        let delegations = ReadDelegations::new(&clock);
        manual.advance(DELEGATED_FOR);
        (manual, clock, delegations)
    }

    /// How long a user who has changed a file waits.
    fn waited(
        clock: &FileClock,
        delegations: &ReadDelegations,
        session: u64,
        number: u64,
    ) -> Duration {
        let begun_ns = clock.passed_ns();
        delegations.wait(clock, session, number);
        Duration::from_nanos(clock.passed_ns() - begun_ns)
    }

    #[test]
    fn who_changes_a_file_waits_until_no_other_one_relies_on_it() {
        let (manual, clock, delegations) = scene();
        assert!(delegations.give(&clock, READER, &[FILE, FILE + 1], FIRST));
        manual.advance(DELEGATED_FOR / 2);
        assert!(delegations.renew(&clock, READER, 1, || false), "it goes on");
        assert!(!delegations.renew(&clock, OTHER, 1, || false), "it is another's");
        assert_eq!(waited(&clock, &delegations, READER, FILE), Duration::ZERO, "whose it is");
        assert_eq!(waited(&clock, &delegations, OTHER, FILE + 2), Duration::ZERO, "not given");
        assert_eq!(waited(&clock, &delegations, OTHER, FILE), DELEGATED_FOR);
        assert!(!delegations.renew(&clock, READER, 1, || false), "it has ended");
        assert_eq!(waited(&clock, &delegations, OTHER, FILE + 1), Duration::ZERO, "all of it");
    }

    #[test]
    fn a_change_ends_it_also_where_nobody_relies_on_it_at_the_moment() {
        let (manual, clock, delegations) = scene();
        assert!(delegations.give(&clock, READER, &[FILE], FIRST));
        manual.advance(DELEGATED_FOR * 2);
        assert_eq!(waited(&clock, &delegations, OTHER, FILE), Duration::ZERO);
        assert!(!delegations.renew(&clock, READER, 1, || false));
        assert!(!delegations.give(&clock, READER, &[FILE], MORE));
        assert!(!delegations.give(&clock, READER, &[FILE], SECOND), "not so soon");
        manual.advance(REST);
        assert!(!delegations.give(&clock, READER, &[FILE], MORE), "who does not know of the end");
        assert!(delegations.give(&clock, READER, &[FILE], SECOND));
    }

    #[test]
    fn what_others_wait_for_is_waited_for_by_all() {
        let (manual, clock, delegations) = scene();
        delegations.give(&clock, READER, &[FILE, FILE + 1], FIRST);
        let until_ns = delegations.begin_to_end(OTHER, FILE);
        assert!(until_ns.is_some());
        manual.advance(DELEGATED_FOR / 4);
        assert_eq!(delegations.begin_to_end(OTHER, FILE + 1), until_ns);
        delegations.give_back(READER, FILE);
        delegations.leave(READER);
        assert_eq!(delegations.begin_to_end(OTHER, FILE), until_ns, "they may not know yet");
    }

    #[test]
    fn what_is_closed_holds_up_nobody() {
        let (_, clock, delegations) = scene();
        delegations.give(&clock, READER, &[FILE, FILE + 1], FIRST);
        delegations.give_back(READER, FILE);
        assert_eq!(waited(&clock, &delegations, OTHER, FILE), Duration::ZERO);
        assert!(delegations.renew(&clock, READER, 1, || false));
        assert!(delegations.give(&clock, READER, &[FILE], SECOND), "anew");
        assert_eq!(waited(&clock, &delegations, OTHER, FILE + 1), Duration::ZERO);
        assert!(delegations.renew(&clock, READER, 2, || false));
    }

    #[test]
    fn what_is_asked_for_late_takes_nothing_back() {
        let (manual, clock, delegations) = scene();
        assert!(delegations.give(&clock, READER, &[FILE], SECOND));
        for late in [FIRST, MORE, SECOND] {
            assert!(!delegations.give(&clock, READER, &[FILE + 1], late), "{late:?}");
        }
        assert!(
            !delegations.renew(&clock, READER, 1, || false)
                && delegations.renew(&clock, READER, 2, || false)
        );
        assert_eq!(waited(&clock, &delegations, OTHER, FILE), DELEGATED_FOR);
        // Also long after it has ended.
        manual.advance(REST);
        for late in [FIRST, MORE, SECOND] {
            assert!(!delegations.give(&clock, READER, &[FILE + 1], late), "{late:?}");
        }
        assert!(!delegations.renew(&clock, READER, 2, || false));
        assert!(delegations.give(&clock, READER, &[FILE + 1], (3, true)));
    }

    #[test]
    fn all_who_have_it_are_waited_for() {
        let (manual, clock, delegations) = scene();
        delegations.give(&clock, READER, &[FILE], FIRST);
        manual.advance(DELEGATED_FOR / 2);
        delegations.give(&clock, READER + 10, &[FILE], FIRST);
        assert_eq!(waited(&clock, &delegations, OTHER, FILE), DELEGATED_FOR);
        assert!(
            !delegations.renew(&clock, READER, 1, || false)
                && !delegations.renew(&clock, READER + 10, 1, || false)
        );
    }

    #[test]
    fn what_a_server_before_delegated_is_waited_for() {
        let manual = Arc::new(ManualClock::new());
        let clock = FileClock::following(Arc::<ManualClock>::clone(&manual));
        let delegations = ReadDelegations::new(&clock);
        assert_eq!(waited(&clock, &delegations, OTHER, FILE), DELEGATED_FOR);
        assert_eq!(waited(&clock, &delegations, OTHER, FILE), Duration::ZERO, "once");
    }

    #[test]
    fn what_has_ended_makes_room_also_where_its_user_stays() {
        let (manual, clock, delegations) = scene();
        let numbers: Vec<u64> = (0..FILES_MAX as u64).collect();
        assert!(delegations.give(&clock, READER, &numbers, SECOND));
        assert_eq!(waited(&clock, &delegations, OTHER, 5), DELEGATED_FOR);
        assert!(delegations.give(&clock, OTHER, &[u64::MAX], FIRST));
        assert_eq!(delegations.lock().files.len(), 1);
        manual.advance(REST);
        assert!(!delegations.give(&clock, READER, &[FILE], FIRST), "it is late");
        assert!(delegations.give(&clock, READER, &[FILE], (3, true)));
    }

    #[test]
    fn they_are_bounded_and_forgotten() {
        let (manual, clock, delegations) = scene();
        let numbers: Vec<u64> = (0..FILES_MAX as u64).collect();
        assert!(delegations.give(&clock, READER, &numbers, FIRST));
        assert!(!delegations.give(&clock, OTHER, &[u64::MAX], FIRST));
        delegations.leave(READER);
        manual.advance(DELEGATED_FOR);
        assert!(delegations.give(&clock, OTHER, &[u64::MAX], SECOND));
        let given = delegations.lock();
        assert_eq!((given.sessions.len(), given.files.len()), (1, 1));
    }
}
