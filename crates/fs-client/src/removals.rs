// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names that programs were told are gone before the server has taken them away.
//!
//! Who removes many files of a directory waits for the server with each. Where the directory is
//! delegated to this client, and the server has others who look there wait, it is enough that they are
//! gone soon: one request takes away what was removed meanwhile. Whatever else is asked goes behind it.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;
use terrace_fs::{Failure, NamedFile, REMOVED_MAX, Request, Result, Time};

/// So many names are put off at a time, and in so many directories: one request goes after the other.
const NAMES_MAX: usize = 4 * REMOVED_MAX;
const AT_A_TIME_MAX: usize = 4;

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 1 << 10;

/// So many files of a directory are removed one after the other, each waited for, before more are said to be
/// gone: of few it does not matter.
const WAITED_FOR: u32 = 4;

/// They are removed one after the other where no more time is between two.
const BETWEEN: Duration = Duration::from_millis(20);

/// After a name was not taken away, all are waited for so long.
const FAILED: Duration = Duration::from_secs(10);

/// Such names.
pub(crate) struct Removals {
    state: Mutex<State>,
    /// How many there are, those counted that are on their way.
    count: AtomicUsize,
    /// Locked by who has them taken away.
    sending: Mutex<()>,
    /// So often nobody answered.
    misses: AtomicU64,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    /// By directory.
    waiting: HashMap<u64, Waiting>,
    /// Directories in which more may be said to be gone.
    allowed: HashMap<u64, Allowed>,
    /// Why nobody answered, the last time.
    missed: Option<Failure>,
    /// In which life of the session the server did not know what it was asked.
    refused_in: Option<u64>,
    /// Nothing is said before.
    not_before_ns: u64,
    /// Directories with names that stay after all, of which nobody was told.
    kept: BTreeSet<u64>,
    is_any_kept: bool,
}

/// What may be said of a directory.
#[derive(Default)]
struct Allowed {
    /// Until when.
    until_ns: u64,
    /// How many files were removed there one after the other, and when the last one.
    removed: u32,
    last_ns: u64,
}

/// The names of a directory, at least one.
struct Waiting {
    names: Vec<Gone>,
    /// Since when the first of them waits.
    since_ns: u64,
}

/// A name that was said to be gone.
struct Gone {
    name: Box<[u8]>,
    number: u64,
    /// When the file had changed last, as far as is known.
    changed: Time,
    /// When programs were told that the directory changed by it.
    told: Time,
}

impl Allowed {
    fn is_busy(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_ns) < BETWEEN.as_nanos() as u64
    }
}

impl Waiting {
    /// How many go with the next request.
    fn next(&self) -> usize {
        self.names.len().min(REMOVED_MAX)
    }

    fn request(&self, directory: u64) -> Request<'_> {
        let names = &self.names[..self.next()];
        let removed = names.iter().map(|gone| NamedFile {
            name: &gone.name,
            number: gone.number,
            changed: gone.changed,
        });
        let changed = names.last().map(|last| last.told);
        Request::RemoveNumbered { directory, removed: removed.collect(), changed }
    }
}

impl Removals {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            state: Mutex::default(),
            count: AtomicUsize::new(0),
            sending: Mutex::default(),
            misses: AtomicU64::new(0),
            clock,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The first `max` names whose removal was put off and may not have reached the server, with their directories.
    pub(crate) fn names(&self, max: usize) -> Vec<(u64, Box<[u8]>)> {
        let state = self.state();
        let names = state.waiting.iter().flat_map(|(directory, waiting)| {
            waiting.names.iter().map(|gone| (*directory, gone.name.clone()))
        });
        names.take(max).collect()
    }

    /// Says that a name of a file is gone, which had last changed then, where that may be said: not where
    /// `tell` does not find when its directory changes by that, and has everybody here know it.
    pub(crate) fn say(
        &self,
        (directory, name): (u64, &[u8]),
        (number, changed): (u64, Time),
        tell: impl FnOnce() -> Option<Time>,
    ) -> bool {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        let may_be_said = now_ns >= state.not_before_ns
            && state.missed.is_none()
            && state.allowed.get(&directory).is_some_and(|allowed| {
                let is_enough = allowed.removed >= WAITED_FOR && allowed.is_busy(now_ns);
                now_ns < allowed.until_ns && is_enough
            });
        let has_room = match state.waiting.get(&directory) {
            Some(waiting) => waiting.names.len() < REMOVED_MAX,
            None => state.waiting.len() < AT_A_TIME_MAX,
        };
        if !may_be_said || !has_room || self.count.load(Ordering::Acquire) >= NAMES_MAX {
            return false;
        }
        // Whoever sees it waits for the lock: before anybody is told that the name is gone.
        self.count.fetch_add(1, Ordering::AcqRel);
        let Some(told) = tell() else {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return false;
        };
        if let Some(allowed) = state.allowed.get_mut(&directory) {
            allowed.last_ns = now_ns;
        }
        let new = || Waiting { names: Vec::new(), since_ns: now_ns };
        let waiting = state.waiting.entry(directory).or_insert_with(new);
        waiting.names.push(Gone { name: name.into(), number, changed, told });
        true
    }

    /// Has `ask` take away what was said to be gone for so long; it returns how many names stay. Behind it
    /// nothing is left that was said before.
    ///
    /// # Errors
    ///
    /// Where nobody answers; what else it fails for is told as a [loss](Removals::take_kept).
    pub(crate) fn send(
        &self,
        age_min: Duration,
        ask: impl Fn(&Request<'_>) -> Result<u32>,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.send_knowing(self.misses(), age_min, ask)
    }

    /// The same for who knows of so many misses.
    fn send_knowing(
        &self,
        misses: u64,
        age_min: Duration,
        ask: impl Fn(&Request<'_>) -> Result<u32>,
    ) -> Result<()> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        if self.misses() != misses
            && let Some(failure) = &self.state().missed
        {
            // Who waited until another one got no answer does not wait as long again.
            return Err(failure.clone());
        }
        let mut due = self.take_due(age_min).into_iter();
        while let Some((directory, mut waiting)) = due.next() {
            while !waiting.names.is_empty() {
                let asked = ask(&waiting.request(directory));
                if let Err(failure) = &asked
                    && failure.may_pass()
                {
                    self.put_back(std::iter::once((directory, waiting)).chain(due), failure);
                    return Err(failure.clone());
                }
                let count = waiting.names.drain(..waiting.next()).count();
                self.note_sent(directory, count, &asked);
            }
        }
        Ok(())
    }

    /// So many names were asked for, of which some may stay.
    fn note_sent(&self, directory: u64, count: usize, asked: &Result<u32>) {
        let mut state = self.state();
        state.missed = None;
        if *asked != Ok(0) {
            match asked {
                Ok(kept) => tracing::warn!(
                    directory,
                    kept,
                    "files that are said to be gone stay: others may have changed them since"
                ),
                Err(failure) => {
                    tracing::warn!(directory, %failure, "cannot remove files that are said to be gone");
                }
            }
            if state.kept.len() >= DIRECTORIES_MAX {
                state.kept.pop_first();
            }
            state.kept.insert(directory);
            state.is_any_kept = true;
            state.not_before_ns = self.after(FAILED);
        }
        self.count.fetch_sub(count, Ordering::AcqRel);
    }

    fn misses(&self) -> u64 {
        self.misses.load(Ordering::Acquire)
    }

    fn take_due(&self, age_min: Duration) -> Vec<(u64, Waiting)> {
        let age_min_ns = age_min.as_nanos() as u64;
        let until_ns = self.clock.now_ns().saturating_sub(age_min_ns);
        let mut state = self.state();
        state.waiting.extract_if(|_, waiting| waiting.since_ns <= until_ns).collect()
    }

    fn put_back(&self, left: impl Iterator<Item = (u64, Waiting)>, failure: &Failure) {
        let mut state = self.state();
        for (directory, mut waiting) in left {
            if let Some(later) = state.waiting.remove(&directory) {
                waiting.names.extend(later.names);
            }
            state.waiting.insert(directory, waiting);
        }
        state.missed = Some(failure.clone());
        self.misses.fetch_add(1, Ordering::AcqRel);
    }

    /// A name was taken away that somebody waited for.
    pub(crate) fn note_removed(&self, directory: u64) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        if state.allowed.len() >= DIRECTORIES_MAX && !state.allowed.contains_key(&directory) {
            state.allowed.clear();
        }
        let allowed = state.allowed.entry(directory).or_default();
        allowed.removed =
            if allowed.is_busy(now_ns) { allowed.removed.saturating_add(1) } else { 1 };
        allowed.last_ns = now_ns;
    }

    /// More may be said to be gone in a directory until then, or not any more.
    pub(crate) fn note_may_say(&self, directory: u64, until_ns: Option<u64>) {
        // Else nothing was removed there for long.
        if let Some(allowed) = self.state().allowed.get_mut(&directory) {
            allowed.until_ns = until_ns.map_or(0, |until_ns| until_ns.max(allowed.until_ns));
        }
    }

    /// Whether a server knows how to take away names of numbers, as far as is known.
    pub(crate) fn are_known_to(&self, life: u64) -> bool {
        let state = self.state();
        state.refused_in != Some(life) && self.clock.now_ns() >= state.not_before_ns
    }

    /// A server did not.
    pub(crate) fn note_refused(&self, life: u64) {
        self.state().refused_in = Some(life);
    }

    /// Whether names of a directory, or of any, stay that were said to be gone: told once.
    pub(crate) fn take_kept(&self, of: Option<u64>) -> bool {
        let mut state = self.state();
        match of {
            Some(directory) => state.kept.remove(&directory),
            None => std::mem::take(&mut state.is_any_kept),
        }
    }

    fn after(&self, time: Duration) -> u64 {
        self.clock.now_ns().saturating_add(time.as_nanos() as u64)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A name that is counted and does not wait is taken for one that does.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rustix::io::Errno;
    use terrace_core::{Applied, Error, ErrorKind};
    use terrace_testkit::ManualClock;

    use super::*;

    const DIRECTORY: u64 = 7;
    const LONG: Duration = Duration::from_secs(1);

    fn removals() -> (Arc<ManualClock>, Removals) {
        let clock = Arc::new(ManualClock::new());
        let removals = Removals::new(Arc::<ManualClock>::clone(&clock));
        allow(&clock, &removals, DIRECTORY, LONG);
        (clock, removals)
    }

    fn allow(clock: &ManualClock, removals: &Removals, directory: u64, time: Duration) {
        (0..WAITED_FOR).for_each(|_| removals.note_removed(directory));
        removals.note_may_say(directory, Some(clock.now_ns() + time.as_nanos() as u64));
    }

    fn time(nanos: u32) -> Time {
        Time { seconds: 5, nanos }
    }

    fn say(removals: &Removals, directory: u64, number: u64) -> bool {
        let name = number.to_string();
        let told = || Some(time(number as u32));
        removals.say((directory, name.as_bytes()), (number, time(1)), told)
    }

    /// What is asked, by directory: the numbers, and the time.
    type Asked = Vec<(u64, Vec<u64>, Option<Time>)>;

    fn sent(removals: &Removals, age_min: Duration, ended: Result<u32>) -> (Asked, Result<()>) {
        let asked = RefCell::new(Vec::new());
        let outcome = removals.send(age_min, |request| {
            let Request::RemoveNumbered { directory, removed, changed } = request else {
                panic!("{request:?}")
            };
            assert!(!removals.is_empty(), "they are on their way");
            let named = |named: &NamedFile<'_>| named.name == named.number.to_string().as_bytes();
            assert!(removed.iter().all(named));
            let numbers = removed.iter().map(|named| named.number).collect();
            asked.borrow_mut().push((*directory, numbers, *changed));
            ended.clone()
        });
        let mut asked = asked.into_inner();
        asked.sort();
        (asked, outcome)
    }

    fn away() -> Failure {
        Error::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "ask").into()
    }

    #[test]
    fn names_of_a_directory_go_together_and_not_before_their_time() {
        let (clock, removals) = removals();
        allow(&clock, &removals, 8, LONG);
        assert!(say(&removals, DIRECTORY, 30) && say(&removals, DIRECTORY, 20));
        clock.advance(BETWEEN / 2);
        assert!(say(&removals, 8, 40) && say(&removals, DIRECTORY, 10));
        let of_one = (DIRECTORY, vec![30, 20, 10], Some(time(10)));
        assert_eq!(sent(&removals, BETWEEN / 2, Ok(0)), (vec![of_one], Ok(())));
        assert!(!removals.is_empty());
        let of_other = (8, vec![40], Some(time(40)));
        assert_eq!(sent(&removals, Duration::ZERO, Ok(0)), (vec![of_other], Ok(())));
        assert!(removals.is_empty());
        assert_eq!(sent(&removals, Duration::ZERO, Ok(0)), (Vec::new(), Ok(())));
    }

    #[test]
    fn nothing_is_said_where_or_when_it_may_not_be() {
        let (clock, removals) = removals();
        assert!(!say(&removals, 8, 10), "nobody allowed it");
        assert!(
            !removals.say((DIRECTORY, b"x"), (10, time(1)), || None),
            "the directory is not known"
        );
        assert!(removals.is_empty());
        assert!((0..REMOVED_MAX as u64).all(|number| say(&removals, DIRECTORY, number)));
        assert!(!say(&removals, DIRECTORY, 1000), "there is no room for more");
        sent(&removals, Duration::ZERO, Ok(0)).1.expect("it is answered");
        removals.note_may_say(DIRECTORY, None);
        assert!(!say(&removals, DIRECTORY, 1000), "it has ended");
        allow(&clock, &removals, DIRECTORY, BETWEEN);
        allow(&clock, &removals, DIRECTORY, BETWEEN / 2);
        clock.advance(BETWEEN / 2);
        assert!(say(&removals, DIRECTORY, 1000));
        clock.advance(BETWEEN / 2);
        assert!(!say(&removals, DIRECTORY, 1001), "the time is over");
    }

    #[test]
    fn the_first_ones_are_waited_for() {
        let (clock, removals) = removals();
        clock.advance(BETWEEN);
        let allow_one = || {
            removals.note_removed(DIRECTORY);
            removals.note_may_say(DIRECTORY, Some(clock.now_ns() + LONG.as_nanos() as u64));
        };
        for _ in 1..WAITED_FOR {
            allow_one();
            assert!(!say(&removals, DIRECTORY, 10));
            clock.advance(BETWEEN / 2);
        }
        allow_one();
        for number in 0..5 {
            assert!(say(&removals, DIRECTORY, number), "it goes on");
            clock.advance(BETWEEN / 2);
        }
        clock.advance(BETWEEN / 2);
        assert!(!say(&removals, DIRECTORY, 10), "that was a while ago");
    }

    #[test]
    fn what_nobody_answers_is_sent_again_in_its_order() {
        let (_, removals) = removals();
        assert!(say(&removals, DIRECTORY, 10) && say(&removals, DIRECTORY, 20));
        let one = || vec![(DIRECTORY, vec![10, 20], Some(time(20)))];
        assert_eq!(sent(&removals, Duration::ZERO, Err(away())), (one(), Err(away())));
        assert!(!removals.is_empty());
        assert!(!say(&removals, DIRECTORY, 30), "nobody answers");
        assert_eq!(sent(&removals, Duration::ZERO, Ok(0)), (one(), Ok(())));
        assert!(removals.is_empty() && say(&removals, DIRECTORY, 30));
        assert!(!removals.take_kept(None), "nothing is lost");
    }

    #[test]
    fn what_is_said_while_nobody_answers_goes_behind_it_and_no_more_than_a_server_takes() {
        let (_, removals) = removals();
        let max = REMOVED_MAX as u64;
        assert!((0..max).all(|number| say(&removals, DIRECTORY, number)));
        let outcome = removals.send(Duration::ZERO, |_| {
            assert!((max..2 * max).all(|number| say(&removals, DIRECTORY, number)));
            Err(away())
        });
        assert_eq!(outcome, Err(away()));
        let part = |numbers: std::ops::Range<u64>| {
            let told = time(numbers.end as u32 - 1);
            (DIRECTORY, numbers.collect(), Some(told))
        };
        let both = vec![part(0..max), part(max..2 * max)];
        assert_eq!(sent(&removals, Duration::ZERO, Ok(0)), (both, Ok(())));
        assert!(removals.is_empty());
        // Where the second part is not answered, that alone is asked for again.
        assert!((0..max).all(|number| say(&removals, DIRECTORY, number)));
        let outcome = removals.send(Duration::ZERO, |_| {
            assert!((max..2 * max).all(|number| say(&removals, DIRECTORY, number)));
            Err(away())
        });
        assert_eq!(outcome, Err(away()));
        let asked = std::cell::Cell::new(0);
        let outcome = removals.send(Duration::ZERO, |_| match asked.replace(asked.get() + 1) {
            0 => Ok(0),
            _ => Err(away()),
        });
        assert_eq!(outcome, Err(away()));
        assert_eq!(sent(&removals, Duration::ZERO, Ok(0)), (vec![part(max..2 * max)], Ok(())));
        assert!(removals.is_empty());
    }

    #[test]
    fn who_waited_until_another_one_got_no_answer_does_not_wait_as_long_again() {
        let (_, removals) = removals();
        assert!(say(&removals, DIRECTORY, 10));
        let misses = removals.misses();
        assert_eq!(sent(&removals, Duration::ZERO, Err(away())).1, Err(away()));
        let again = removals.send_knowing(misses, Duration::ZERO, |_| panic!("it was asked"));
        assert_eq!(again, Err(away()));
        assert_eq!(sent(&removals, Duration::ZERO, Ok(0)).1, Ok(()), "who comes later asks");
        let ended = removals.send_knowing(misses, Duration::ZERO, |_| panic!("there is nothing"));
        assert_eq!(ended, Ok(()));
    }

    #[test]
    fn names_that_stay_are_told_of_once_and_others_waited_for() {
        let (clock, removals) = removals();
        allow(&clock, &removals, DIRECTORY, 60 * LONG);
        assert!(say(&removals, DIRECTORY, 10) && removals.are_known_to(1));
        let (_, outcome) = sent(&removals, Duration::ZERO, Err(Errno::NOSPC.into()));
        assert_eq!(outcome, Ok(()), "who asks for something else goes on");
        assert!(removals.is_empty());
        assert!(!say(&removals, DIRECTORY, 20) && !removals.are_known_to(1));
        for (of, is_told) in [(8, false), (DIRECTORY, true), (DIRECTORY, false)] {
            assert_eq!(removals.take_kept(Some(of)), is_told);
        }
        assert!(removals.take_kept(None) && !removals.take_kept(None));
        clock.advance(FAILED);
        allow(&clock, &removals, DIRECTORY, LONG);
        assert!(say(&removals, DIRECTORY, 20) && removals.are_known_to(1));
        let (_, outcome) = sent(&removals, Duration::ZERO, Ok(1));
        assert_eq!((outcome, removals.take_kept(None)), (Ok(()), true), "one of them stays");
        clock.advance(FAILED);
        removals.note_refused(1);
        assert!(!removals.are_known_to(1) && removals.are_known_to(2));
    }
}
