// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files whose programs go on before the server has made them.
//!
//! To make a small file and to write it are two questions, one behind the other. In a directory that is
//! delegated to this client nobody else makes the name meanwhile, so that the first is put off until the
//! second: one request does both. Whatever else is asked in between, whoever asks, goes behind it, and
//! what nobody asks for is made soon.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;
use terrace_fs::{Closed, DELEGATED_FOR, Failure, INLINE_BYTES_LIMIT, Made, Request, Result};

/// So many files are put off at a time.
const FILES_MAX: usize = 64;

/// After a server gave no numbers it is not asked for so long.
const REFUSED: Duration = Duration::from_secs(1);

/// Directories that are remembered.
const DIRECTORIES_MAX: usize = 1 << 10;

/// After there was no room nothing is put off for so long: programs are told when they make a file.
const FULL: Duration = Duration::from_secs(10);

/// Files that are still to be made, each with what is to be noted then.
pub(crate) struct Later<N> {
    files: Mutex<HashMap<u64, Arc<Due<N>>>>,
    /// How many there are.
    count: AtomicUsize,
    /// What it failed for to make a file that somebody has open.
    failed: Mutex<HashMap<u64, Failure>>,
    failures: AtomicUsize,
    numbers: Mutex<Numbers>,
    /// When names in a directory were last changed here.
    changed: Mutex<HashMap<u64, u64>>,
    /// Longest content that may be kept with the metadata, as far as is known.
    content_bytes_max: AtomicU64,
    clock: Arc<dyn Clock>,
}

/// Numbers that the server gave for files.
#[derive(Default)]
struct Numbers {
    left: Vec<u64>,
    /// In which life of the server's session they were given: a later one may be of an earlier time.
    life: u64,
    /// The server is one of before, and gives none.
    are_refused: bool,
    /// None is taken before.
    not_before_ns: u64,
}

/// A file that is to be made.
pub(crate) struct Due<N> {
    pub(crate) number: u64,
    pub(crate) directory: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) made: Made<'static>,
    since_ns: u64,
    /// So often nobody answered who was asked to make it.
    misses: AtomicU64,
    /// Whoever makes it locks this meanwhile.
    state: Mutex<State<N>>,
}

/// How far it is with a file that is to be made.
pub(crate) struct State<N> {
    /// What is to be noted with it; nothing where it is made.
    pub(crate) noting: Option<N>,
    /// Why it is not, where nobody answered: it may be made all the same.
    pub(crate) missed: Option<Failure>,
}

impl<N> State<N> {
    /// What may go with the request of what it is to begin with: nothing where it may be made already. Its
    /// length would not tell then which bytes it has.
    pub(crate) fn sendable<'a>(&self, content: &'a [u8]) -> &'a [u8] {
        if self.missed.is_none() { content } else { b"" }
    }
}

impl<N> Due<N> {
    /// Waits until nobody else makes it. Fails for what others failed for meanwhile, because nobody answered:
    /// who waited for them does not wait as long again.
    ///
    /// # Errors
    ///
    /// A failure that may pass.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State<N>>> {
        let misses = self.misses.load(Ordering::Acquire);
        let state = lock(&self.state);
        match &state.missed {
            Some(failure)
                if state.noting.is_some() && self.misses.load(Ordering::Acquire) != misses =>
            {
                Err(failure.clone())
            }
            _ => Ok(state),
        }
    }

    /// Nobody answered. Whoever asks next tries again: it is made once.
    pub(crate) fn miss(&self, state: &mut State<N>, noting: N, failure: &Failure) {
        self.misses.fetch_add(1, Ordering::AcqRel);
        *state = State { noting: Some(noting), missed: Some(failure.clone()) };
    }

    /// The request that would make it now, without its number.
    pub(crate) fn request(&self) -> Request<'_> {
        let Self { directory, name, made, .. } = self;
        Request::Make { directory: *directory, name, made: made.clone() }
    }

    /// The one that makes it, with what it begins with.
    pub(crate) fn numbered<'a>(&'a self, content: &'a [u8]) -> Request<'a> {
        let Self { number, directory, name, made, .. } = self;
        let (number, directory, made) = (*number, *directory, made.clone());
        Request::MakeNumbered { directory, name, made, number, content }
    }
}

impl<N> Later<N> {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            files: Mutex::default(),
            count: AtomicUsize::new(0),
            failed: Mutex::default(),
            failures: AtomicUsize::new(0),
            numbers: Mutex::default(),
            changed: Mutex::default(),
            content_bytes_max: AtomicU64::new(INLINE_BYTES_LIMIT.into()),
            clock,
        }
    }

    /// Whether a file like this may be made later: what is told of it does not depend on anything else.
    pub(crate) fn may_take(&self, made: &Made<'_>) -> bool {
        const LENDS_RIGHTS: u32 = 0o6000;
        let is_plain = made.is_opened && made.object.is_none();
        let has_room = self.count.load(Ordering::Acquire) < FILES_MAX;
        is_plain && has_room && made.permissions & LENDS_RIGHTS == 0
    }

    /// A number for a file, which `ask` gets where none is left of this life.
    pub(crate) fn number(&self, life: u64, ask: impl FnOnce() -> Result<Vec<u64>>) -> Option<u64> {
        // Nobody waits for somebody else who asks.
        let mut numbers = self.numbers.try_lock().ok()?;
        if numbers.are_refused || self.clock.now_ns() < numbers.not_before_ns {
            return None;
        }
        if numbers.life != life {
            numbers.left.clear();
            numbers.life = life;
        }
        if numbers.left.is_empty() {
            match ask() {
                Ok(given) => numbers.left = given.into_iter().rev().collect(),
                Err(failure) => {
                    numbers.are_refused = failure.errno() == Errno::INVAL;
                    numbers.not_before_ns = self.after(REFUSED);
                }
            }
        }
        numbers.left.pop()
    }

    /// What may go with a request to make a file.
    pub(crate) fn fitting<'a>(&self, content: &'a [u8]) -> &'a [u8] {
        let is_short = content.len() as u64 <= self.content_bytes_max.load(Ordering::Relaxed);
        if is_short { content } else { b"" }
    }

    /// Takes note that something did not fit.
    pub(crate) fn note_too_long(&self, content: &[u8]) {
        let bytes_max = (content.len() as u64).saturating_sub(1);
        self.content_bytes_max.fetch_min(bytes_max, Ordering::Relaxed);
    }

    /// Has a file made later.
    pub(crate) fn add(
        &self,
        number: u64,
        (directory, name): (u64, &[u8]),
        made: &Made<'_>,
        noting: N,
    ) {
        let made = Made {
            kind: made.kind,
            permissions: made.permissions,
            umask: made.umask,
            user: made.user,
            group: made.group,
            is_opened: true,
            ..Made::default()
        };
        let (name, since_ns) = (name.to_vec(), self.clock.now_ns());
        let state = Mutex::new(State { noting: Some(noting), missed: None });
        let misses = AtomicU64::new(0);
        let due = Arc::new(Due { number, directory, name, made, since_ns, misses, state });
        let mut files = lock(&self.files);
        files.insert(number, due);
        self.count.store(files.len(), Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// A file that is still to be made, or is made just now.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Due<N>>> {
        if self.is_empty() { None } else { lock(&self.files).get(&number).cloned() }
    }

    /// All of them that were put off for so long, in the order in which they were.
    pub(crate) fn all(&self, age_min: Duration) -> Vec<Arc<Due<N>>> {
        let age_min_ns = age_min.as_nanos() as u64;
        let until_ns = self.clock.now_ns().saturating_sub(age_min_ns);
        let files = lock(&self.files);
        let mut all: Vec<_> =
            files.values().filter(|due| due.since_ns <= until_ns).map(Arc::clone).collect();
        drop(files);
        all.sort_by_key(|due| (due.since_ns, due.number));
        all
    }

    /// Takes note that it was tried to make one; of what that failed for.
    pub(crate) fn note(&self, number: u64, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            let mut failed = lock(&self.failed);
            failed.insert(number, failure.clone());
            self.failures.store(failed.len(), Ordering::Release);
            drop(failed);
            match failure.errno() {
                Errno::NOSPC => lock(&self.numbers).not_before_ns = self.after(FULL),
                // They are not, or no longer, numbers that the server gave.
                Errno::INVAL => lock(&self.numbers).left.clear(),
                _ => {}
            }
        }
        // Behind it: who does not find it there looks for what it failed for.
        let mut files = lock(&self.files);
        files.remove(&number);
        self.count.store(files.len(), Ordering::Release);
    }

    /// What it failed for to make a file that is open here.
    ///
    /// # Errors
    ///
    /// That.
    pub(crate) fn check(&self, number: u64) -> Result<()> {
        if self.failures.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        lock(&self.failed).get(&number).cloned().map_or(Ok(()), Err)
    }

    /// What is closed and was made; `None` where that is all of it.
    pub(crate) fn without_failed(&self, closed: &[Closed]) -> Option<Vec<Closed>> {
        if self.failures.load(Ordering::Acquire) == 0 {
            return None;
        }
        let failed = lock(&self.failed);
        // It was only opened for writing by who was to make it.
        let is_open = |one: &&Closed| !(one.is_for_writing && failed.contains_key(&one.number));
        let open: Vec<_> = closed.iter().filter(is_open).copied().collect();
        (open.len() < closed.len()).then_some(open)
    }

    /// Forgets what could not be made of what was closed.
    pub(crate) fn forget_failed(&self, closed: &[Closed]) {
        let mut failed = lock(&self.failed);
        for one in closed.iter().filter(|one| one.is_for_writing) {
            failed.remove(&one.number);
        }
        self.failures.store(failed.len(), Ordering::Release);
    }

    /// Takes note that names in a directory were changed here just now.
    pub(crate) fn note_change(&self, directory: u64) {
        let now_ns = self.clock.now_ns();
        let mut changed = lock(&self.changed);
        if changed.len() >= DIRECTORIES_MAX && !changed.contains_key(&directory) {
            changed.clear();
        }
        changed.insert(directory, now_ns);
    }

    /// Whether names in a directory were changed here a moment ago.
    pub(crate) fn is_busy(&self, directory: u64) -> bool {
        let changed_ns = lock(&self.changed).get(&directory).copied();
        let busy_ns = DELEGATED_FOR.as_nanos() as u64;
        changed_ns.is_some_and(|at_ns| self.clock.now_ns().saturating_sub(at_ns) < busy_ns)
    }

    fn after(&self, time: Duration) -> u64 {
        self.clock.now_ns().saturating_add(time.as_nanos() as u64)
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is changed in single steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use terrace_core::{Applied, Error, ErrorKind};
    use terrace_fs::{Kind, Left};
    use terrace_testkit::ManualClock;

    use super::*;
    use crate::soon::LATER_MAX;

    const DIRECTORY: u64 = 7;

    fn later() -> (Arc<ManualClock>, Later<u64>) {
        let clock = Arc::new(ManualClock::new());
        let later = Later::new(Arc::<ManualClock>::clone(&clock));
        (clock, later)
    }

    fn add(later: &Later<u64>, number: u64) -> Arc<Due<u64>> {
        let made = Made { kind: Kind::File, is_opened: true, ..Made::default() };
        later.add(number, (DIRECTORY, b"name"), &made, 1);
        later.find(number).expect("it was just added")
    }

    fn numbers(all: &[Arc<Due<u64>>]) -> Vec<u64> {
        all.iter().map(|due| due.number).collect()
    }

    #[test]
    fn they_are_made_in_their_order_and_not_before_their_time() {
        let (clock, later) = later();
        for number in [30, 20, 10] {
            add(&later, number);
            clock.advance(LATER_MAX / 2);
        }
        assert_eq!(numbers(&later.all(Duration::ZERO)), [30, 20, 10]);
        assert_eq!(numbers(&later.all(LATER_MAX)), [30, 20]);
        later.note(20, None);
        assert_eq!(numbers(&later.all(Duration::ZERO)), [30, 10]);
        assert!(later.find(20).is_none() && later.check(20).is_ok());
        [10, 30].iter().for_each(|number| later.note(*number, None));
        assert!(later.is_empty());
    }

    #[test]
    fn what_may_be_made_already_gets_no_bytes_on_the_way() {
        let (_, later) = later();
        let due = add(&later, 30);
        let unanswered = Error::new(ErrorKind::Unreachable { applied: Applied::Unknown }, "ask");
        let mut state = due.lock().expect("nobody has tried");
        assert_eq!(state.sendable(b"bytes"), b"bytes");
        let noting = state.noting.take().expect("it is not made");
        due.miss(&mut state, noting, &unanswered.into());
        drop(state);
        let state = due.lock().expect("who comes later tries again");
        assert_eq!((state.noting, state.sendable(b"bytes")), (Some(1), &b""[..]));
    }

    #[test]
    fn what_failed_is_told_until_who_was_to_make_it_closes_it() {
        let (_, later) = later();
        add(&later, 30);
        later.note(30, Some(&Errno::EXIST.into()));
        let close = |number, is_for_writing| Closed { number, is_for_writing, left: Left::Unknown };
        assert!(later.without_failed(&[close(30, false), close(31, true)]).is_none());
        let closed = [close(30, true), close(30, false), close(31, true)];
        assert_eq!(later.without_failed(&closed), Some(closed[1..].to_vec()));
        assert!(later.check(30).is_err() && later.check(31).is_ok());
        later.forget_failed(&closed[1..]);
        assert!(later.check(30).is_err(), "it is open still");
        later.forget_failed(&closed);
        assert!(later.check(30).is_ok() && later.without_failed(&closed).is_none());
    }

    #[test]
    fn numbers_are_asked_for_where_none_is_left_of_this_life() {
        let (clock, later) = later();
        let give = |numbers: &'static [u64]| || Ok(numbers.to_vec());
        let none = || -> Result<Vec<u64>> { panic!("there is one left") };
        assert_eq!(later.number(1, give(&[5, 6])), Some(5));
        assert_eq!(later.number(1, none), Some(6));
        assert_eq!(later.number(1, give(&[7, 8])), Some(7));
        assert_eq!(later.number(2, give(&[9, 10])), Some(9), "those are of another life");
        // They are not good any more.
        later.note(9, Some(&Errno::INVAL.into()));
        assert_eq!(later.number(2, give(&[11, 12])), Some(11));
        later.note(11, Some(&Errno::NOSPC.into()));
        assert_eq!(later.number(2, none), None, "programs are told when they make a file");
        clock.advance(FULL);
        assert_eq!(later.number(2, none), Some(12));
        assert_eq!(later.number(2, || Err(Errno::ROFS.into())), None);
        assert_eq!(later.number(2, none), None, "not at once");
        clock.advance(REFUSED);
        assert_eq!(later.number(2, || Err(Errno::INVAL.into())), None);
        clock.advance(FULL);
        assert_eq!(later.number(2, none), None, "a server of before");
    }

    #[test]
    fn a_directory_is_busy_for_a_moment() {
        let (clock, later) = later();
        assert!(!later.is_busy(DIRECTORY));
        later.note_change(DIRECTORY);
        clock.advance(DELEGATED_FOR / 2);
        assert!(later.is_busy(DIRECTORY) && !later.is_busy(DIRECTORY + 1));
        clock.advance(DELEGATED_FOR / 2);
        assert!(!later.is_busy(DIRECTORY));
    }

    #[test]
    fn what_does_not_fit_is_not_sent_again() {
        let (_, later) = later();
        assert_eq!(later.fitting(&[1; 5000]).len(), 5000);
        later.note_too_long(&[1; 5000]);
        assert!(later.fitting(&[1; 5000]).is_empty());
        assert_eq!(later.fitting(&[1; 4096]).len(), 4096);
    }
}
