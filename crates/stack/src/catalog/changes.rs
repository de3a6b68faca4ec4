// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the catalog in the order of their commits, for the log behind a checkpoint.
//!
//! A commit leaves a copy of what it wrote here, in memory; the thread that writes the log
//! takes it every few milliseconds. Engines number their commits one by one, so that copies which
//! come in another order are put right, and one that is missing ends the log instead of being
//! passed over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{Error, ErrorKind, KvRange, Pair, Result, Txn};

use crate::catalog::format::{APPLICATION, DOUBTFUL, GARBAGE};
use crate::catalog::log::{LogPoint, RECORD_BYTES_MAX};
use crate::catalog::pair_block::push_pair;

/// Most that waits to be taken; more means that the log is too slow, or gone.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// What is to be written to a log, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPiece {
    /// A new file, behind this point.
    Begin(LogPoint),
    /// The changes of one commit.
    Commit(Vec<u8>),
}

/// What came since the last time.
#[derive(Debug, Default)]
pub struct LogPieces {
    /// In order.
    pub pieces: Vec<LogPiece>,
    /// The ticket of the last commit that is in them, or was in those before.
    pub last: u64,
    /// Why nothing comes behind them; returned once.
    pub ended: Option<&'static str>,
}

/// Signals that there is something to be taken. It is no part of the stack: a waiting thread keeps none.
#[derive(Debug, Default)]
pub struct LogSignal {
    is_set: AtomicBool,
    waiting: (Mutex<()>, Condvar),
}

impl LogSignal {
    /// Ends a wait, or the next one.
    pub fn set(&self) {
        // While no log takes anything every commit comes here.
        if self.is_set.load(Ordering::Relaxed) || self.is_set.swap(true, Ordering::AcqRel) {
            return;
        }
        drop(crate::lock(&self.waiting.0));
        self.waiting.1.notify_all();
    }

    /// Waits until there is something to be taken, and for `longest` at most.
    pub fn wait(&self, longest: Duration) {
        let waiting = crate::lock(&self.waiting.0);
        let not_set = |(): &mut ()| !self.is_set.load(Ordering::Acquire);
        let waited = self.waiting.1.wait_timeout_while(waiting, longest, not_set);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        // What comes from here on is taken behind this, or sets it again.
        self.is_set.swap(false, Ordering::AcqRel);
    }
}

/// Collects them.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Changes only while no commit is in flight, or from true to false.
    is_on: AtomicBool,
    /// Whether pairs can no longer be changed.
    is_finished: AtomicBool,
    /// Whether a thread has waited for a commit since the last question.
    is_awaited: AtomicBool,
    signal: Arc<LogSignal>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The log and its last record so far.
    point: LogPoint,
    /// Commits as they came, with their tickets.
    waiting: Vec<(u64, Vec<u8>)>,
    /// The ticket of the last commit that was put in order.
    last: u64,
    /// In order, to be taken.
    pieces: Vec<LogPiece>,
    /// What waits and is to be taken.
    bytes: usize,
    ended: Option<&'static str>,
}

impl Changes {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Whether the log that is kept is this one.
    pub(crate) fn is_of(&self, log: u64) -> bool {
        self.is_on() && crate::lock(&self.state).point.log == log
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
    }

    /// Lets the log go on in a new file from now on, or begins that of this number. No commit is in
    /// flight, and `last` is the ticket of the last one. Returns the point that a checkpoint of
    /// this moment has, and whether the log is another one than before.
    pub(crate) fn cut(&self, log: u64, last: u64) -> (LogPoint, bool) {
        let mut state = crate::lock(&self.state);
        if self.is_on() {
            state.order();
            // With nothing in flight, what waits waits for a commit that will not come.
            if !state.waiting.is_empty() || state.last != last {
                self.end(&mut state, "a commit is missing");
            }
        }
        let is_new = !self.is_on();
        if is_new {
            *state = State { point: LogPoint { log, sequence: 0 }, last, ..State::default() };
            self.is_on.store(true, Ordering::Release);
        }
        let point = state.point;
        state.pieces.push(LogPiece::Begin(point));
        self.signal.set();
        (point, is_new)
    }

    /// Goes on in the file of a log that says all that is in the catalog. No commit is in flight.
    pub(crate) fn go_on(&self, point: LogPoint, last: u64) {
        let mut state = crate::lock(&self.state);
        *state = State { point, last, ..State::default() };
        self.is_on.store(true, Ordering::Release);
    }

    /// Notes what a commit has written; empty for one of which the log says nothing.
    pub(crate) fn note(&self, ticket: u64, record: Vec<u8>) {
        let mut state = crate::lock(&self.state);
        // Ended since: what is in it now is of the next one.
        if !self.is_on() {
            return;
        }
        state.bytes += size(&record);
        if state.bytes > WAITING_BYTES_MAX || record.len() > RECORD_BYTES_MAX {
            return self.end(&mut state, "changes come faster than they can be written");
        }
        state.waiting.push((ticket, record));
        drop(state);
        self.signal.set();
    }

    /// Ends the log: what follows would not be whole.
    pub(crate) fn stop(&self, reason: &'static str) {
        let mut state = crate::lock(&self.state);
        if self.is_on() {
            self.end(&mut state, reason);
        }
    }

    fn end(&self, state: &mut State, reason: &'static str) {
        self.is_on.store(false, Ordering::Release);
        state.order();
        state.waiting = Vec::new();
        state.ended = Some(reason);
        self.signal.set();
    }

    /// Set when something comes.
    pub(crate) fn signal(&self) -> &Arc<LogSignal> {
        &self.signal
    }

    /// What has come.
    pub(crate) fn take(&self) -> LogPieces {
        let mut state = crate::lock(&self.state);
        state.order();
        state.bytes = state.waiting.iter().map(|(_, record)| size(record)).sum();
        LogPieces {
            pieces: std::mem::take(&mut state.pieces),
            last: state.last,
            ended: state.ended.take(),
        }
    }

    /// Ends the log where it says everything. No commit is in flight, and none changes a pair any
    /// more. Returns what is left, and whether the log was on.
    pub(crate) fn finish(&self) -> (LogPieces, bool) {
        self.is_finished.store(true, Ordering::Release);
        let was_on = self.is_on();
        let taken = self.take();
        let is_whole = was_on && crate::lock(&self.state).waiting.is_empty();
        self.is_on.store(false, Ordering::Release);
        (taken, is_whole)
    }

    /// Notes that a thread waits until commits are durable.
    pub(crate) fn note_wait(&self) {
        // Most of the time it is so already, and a cache line that is not written is cheap to read.
        if self.is_on() && !self.is_awaited.load(Ordering::Relaxed) {
            self.is_awaited.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a thread has waited for a commit since the last call.
    pub(crate) fn was_awaited(&self) -> bool {
        self.is_awaited.swap(false, Ordering::Relaxed)
    }
}

/// What a record takes in memory.
fn size(record: &Vec<u8>) -> usize {
    record.capacity() + size_of::<LogPiece>()
}

impl State {
    /// Puts what waits in order, as far as nothing is missing.
    fn order(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.sort_unstable_by_key(|(ticket, _)| *ticket);
        let is_next = |(index, (ticket, _)): &(usize, &(u64, Vec<u8>))| {
            *ticket == self.last + 1 + *index as u64
        };
        let count = self.waiting.iter().enumerate().take_while(is_next).count();
        self.last += count as u64;
        for (_, record) in self.waiting.drain(..count).filter(|(_, record)| !record.is_empty()) {
            self.point.sequence += 1;
            self.pieces.push(LogPiece::Commit(record));
        }
    }
}

/// What is noted of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// The keys it writes, where they are asked for.
    pub(crate) keys: Option<Vec<Vec<u8>>>,
    /// What it writes, as a record of a log, where that is asked for.
    pub(crate) record: Option<Vec<u8>>,
    /// Whether it writes anything.
    pub(crate) has_written: bool,
    /// Whether it may change pairs.
    pub(crate) is_finished: bool,
}

impl Noted {
    /// Forgets everything: the transaction begins once more.
    pub(crate) fn clear(&mut self) {
        self.has_written = false;
        self.keys.iter_mut().for_each(Vec::clear);
        self.record.iter_mut().for_each(Vec::clear);
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.has_written = true;
        if let Some(keys) = &mut self.keys {
            keys.push(key.into());
        }
        // What waits to be deleted is found again on the tiers.
        if let Some(record) = &mut self.record
            && !matches!(key.first(), Some(&(GARBAGE | DOUBTFUL)))
        {
            push_pair(record, key, value);
        }
    }

    fn check(&self, key: &[u8]) -> Result<()> {
        if self.is_finished && key.first() == Some(&APPLICATION) {
            return Err(
                Error::new(ErrorKind::Busy, "change a pair").because("the store is closing")
            );
        }
        Ok(())
    }
}

/// A transaction of which is noted what it writes.
pub(crate) struct Noting<'a> {
    pub(crate) txn: &'a mut dyn Txn,
    pub(crate) noted: &'a mut Noted,
}

impl Txn for Noting<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.txn.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.noted.check(key)?;
        self.txn.put(key, value)?;
        self.noted.add(key, Some(value));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.noted.check(key)?;
        self.txn.delete(key)?;
        self.noted.add(key, None);
        Ok(())
    }

    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.txn.scan(range, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any test waits that is not to hang.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn whoever_waits_hears_of_what_came_before_and_meanwhile() {
        let changes = on();
        let signal = changes.signal();
        // The beginning of the log.
        signal.wait(LONG);
        changes.note(11, vec![1]);
        changes.note(12, vec![2]);
        signal.wait(LONG);
        assert_eq!(changes.take().pieces, [begin(0), commit(1), commit(2)]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| signal.wait(LONG));
            changes.stop("why");
            waiting.join().expect("no panic");
        });
        assert_eq!(changes.take().ended, Some("why"));
        assert!(!signal.is_set.load(Ordering::Acquire), "each is told once");
    }

    fn on() -> Changes {
        let changes = Changes::default();
        changes.cut(7, 10);
        changes
    }

    fn begin(sequence: u64) -> LogPiece {
        LogPiece::Begin(LogPoint { log: 7, sequence })
    }

    fn commit(byte: u8) -> LogPiece {
        LogPiece::Commit(vec![byte])
    }

    #[test]
    fn commits_are_given_in_their_order_and_none_before_an_earlier_one() {
        let changes = on();
        changes.note(12, vec![2]);
        changes.note(14, vec![4]);
        assert_eq!(changes.take().pieces, [begin(0)]);
        changes.note(11, vec![1]);
        assert_eq!(changes.take().pieces, [commit(1), commit(2)]);
        // One of which the log says nothing counts all the same.
        changes.note(13, Vec::new());
        assert_eq!(changes.take().pieces, [commit(4)]);
        assert_eq!(changes.cut(8, 14), (LogPoint { log: 7, sequence: 3 }, false));
        assert_eq!(changes.take().pieces, [begin(3)]);
    }

    #[test]
    fn a_commit_that_is_missing_ends_the_log_and_the_next_one_is_another() {
        let changes = on();
        changes.note(11, vec![1]);
        changes.note(13, vec![3]);
        assert_eq!(changes.cut(8, 13), (LogPoint { log: 8, sequence: 0 }, true));
        changes.note(14, vec![4]);
        let new = LogPiece::Begin(LogPoint { log: 8, sequence: 0 });
        assert_eq!(changes.take().pieces, [new, commit(4)]);
    }

    #[test]
    fn what_nobody_takes_ends_the_log_and_frees_its_memory() {
        let changes = on();
        for ticket in 11..=15 {
            changes.note(ticket, vec![0; WAITING_BYTES_MAX / 4]);
        }
        assert!(!changes.is_on());
        let taken = changes.take();
        assert_eq!(taken.ended, Some("changes come faster than they can be written"));
        assert_eq!(changes.take().ended, None);
        changes.note(16, vec![1]);
        assert_eq!(changes.take().pieces, []);
    }

    #[test]
    fn what_is_taken_makes_room() {
        let changes = on();
        for ticket in 11..=30 {
            changes.note(ticket, vec![0; WAITING_BYTES_MAX / 4]);
            changes.take();
        }
        assert!(changes.is_on());
    }

    #[test]
    fn a_log_that_is_finished_is_whole_unless_a_commit_is_missing() {
        let changes = on();
        changes.note(11, vec![1]);
        let (taken, is_whole) = changes.finish();
        assert_eq!((taken.pieces, is_whole), (vec![begin(0), commit(1)], true));
        let changes = on();
        changes.note(12, vec![1]);
        assert!(!changes.finish().1);
        let changes = on();
        changes.stop("why");
        let (taken, is_whole) = changes.finish();
        assert_eq!((taken.ended, is_whole), (Some("why"), false));
    }
}
