// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks of programs, where other clients lock the same files: asked of the metadata, and waited for
//! here.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use terrace_fs::{
    Failure, Files, LockKind as Kind, LockOwner, LockRange, LockTable, Locked, Metadata, OwnLocks,
    Reply as Told, Request,
};
use terrace_fuse::{Lock, LockKind, LockRequest, Reply};

use crate::locked::LockedDirectories;
use crate::refresher::Refresher;

/// Pauses between two tries of a waiter.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Pause after something could not be given back.
const LEFT_PAUSE: Duration = Duration::from_millis(500);

/// Most that wait at a time: later ones are refused as if waiting were impossible.
const WAITING_MAX: usize = 4096;

/// Locks that programs here hold and wait for.
pub(crate) struct Locks {
    giver: Arc<Giver>,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What grants locks to waiting programs.
struct Giver {
    files: Arc<Files>,
    /// Where the kernel caches what others change.
    caches: Option<Caches>,
}

/// What the kernel has cached, where others change it.
#[derive(Clone)]
pub(crate) struct Caches {
    pub(crate) refresher: Arc<Refresher>,
    pub(crate) directories: Arc<LockedDirectories>,
}

impl Giver {
    fn metadata(&self) -> &dyn Metadata {
        self.files.metadata()
    }

    /// Answers a waiter that has got its lock. The holder of a lock sees what others have done under
    /// their locks before.
    fn answer(&self, number: u64, request: &LockRequest, reply: Reply) {
        match &self.caches {
            Some(Caches { refresher, directories }) if request.lock.kind != LockKind::Unlock => {
                self.files.doubt(number);
                directories.note(number, || self.files.parent(number).ok());
                refresher.answer_lock(number, reply);
            }
            _ => reply.empty(),
        }
    }
}

#[derive(Default)]
struct State {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Some turn is over.
    turned: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// The owners that may hold locks, so that closing a file without locks sends no request: by node, and whether of
    /// `flock`.
    held: HashMap<(u64, bool), Holders>,
    /// What they certainly hold by `fcntl`: noted after it was taken, and forgotten before it is given
    /// back.
    ranges: LockTable,
    /// Whose turn it is, by node and owner.
    turns: HashSet<(u64, u64)>,
    /// Those that are gone, and of which the metadata do not know it: by node, and whether of `flock`.
    left: HashSet<(u64, u64, bool)>,
    is_stopped: bool,
}

/// Owners of locks of one node, each with the open file through which it last took one.
type Holders = HashMap<u64, u64>;

impl Queue {
    fn note(&mut self, number: u64, request: &LockRequest) {
        let holders = self.held.entry((number, request.is_flock)).or_default();
        holders.insert(request.owner, request.handle);
        self.note_range(number, request);
    }

    /// Notes what an owner has taken, or gives back.
    fn note_range(&self, number: u64, request: &LockRequest) {
        let LockRequest { owner, lock, is_flock, .. } = *request;
        if is_flock {
            return;
        }
        let locked = Locked { range: range(&lock), process: lock.pid };
        // A lock that the server has granted to another client since is in the way: then a deadlock may not
        // be found.
        let _ = self.ranges.set(number, is_flock, here(owner), &locked);
    }

    /// Whether a waiter would wait for itself: as far as programs on this mount are in
    /// each other's way.
    fn is_deadlock(&self, number: u64, request: &LockRequest) -> bool {
        let waiting = || self.waiting.iter().map(|waiting| (waiting.number, &waiting.request));
        would_wait_for_itself(&self.ranges, number, request, waiting)
    }

    fn forget(&mut self, number: u64, owner: u64, is_flock: bool) {
        let Some(holders) = self.held.get_mut(&(number, is_flock)) else { return };
        holders.remove(&owner);
        if holders.is_empty() {
            self.held.remove(&(number, is_flock));
        }
    }

    /// The owners for which a condition on owner and open file holds.
    fn owners(
        &self,
        number: u64,
        is_flock: bool,
        mut holds: impl FnMut(u64, u64) -> bool,
    ) -> Vec<u64> {
        let holders = self.held.get(&(number, is_flock)).into_iter().flatten();
        holders
            .filter(|(owner, handle)| holds(**owner, **handle))
            .map(|(owner, _)| *owner)
            .collect()
    }
}

/// An owner of locks of programs on this mount.
fn here(number: u64) -> LockOwner {
    LockOwner { session: 0, number }
}

/// Whether the owner of a request is among the owners for which it waits, directly or indirectly.
fn would_wait_for_itself<'a, W: Iterator<Item = (u64, &'a LockRequest)>>(
    held: &LockTable,
    number: u64,
    request: &'a LockRequest,
    waiting: impl Fn() -> W,
) -> bool {
    // As everywhere, only locks of `fcntl` are looked at.
    if request.is_flock {
        return false;
    }
    let mut seen = HashSet::new();
    let mut left = vec![(number, request)];
    while let Some((number, wanted)) = left.pop() {
        let range = range(&wanted.lock);
        for owner in held.owners_in_the_way(number, false, here(wanted.owner), &range) {
            if owner.number == request.owner {
                return true;
            }
            if seen.insert(owner.number) {
                let waits = |wait: &(u64, &LockRequest)| wait.1.owner == owner.number;
                left.extend(waiting().filter(|wait| !wait.1.is_flock && waits(wait)));
            }
        }
    }
    false
}

/// What an owner asks about a node, from the question until the answer is noted: one at a time, so
/// that what is noted comes in the order in which it was granted. A thread that has one has no queue.
struct Turn<'a> {
    state: &'a State,
    whose: (u64, u64),
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.state.queue().turns.remove(&self.whose);
        self.state.turned.notify_all();
    }
}

/// A program that waits for a lock.
struct Waiting {
    number: u64,
    request: LockRequest,
    reply: Reply,
}

impl Locks {
    pub(crate) fn new(files: &Arc<Files>, caches: Option<Caches>) -> Self {
        let giver = Giver { files: Arc::clone(files), caches };
        Self { giver: Arc::new(giver), state: Arc::default(), thread: Mutex::default() }
    }

    /// What is in the way of a lock.
    pub(crate) fn find(&self, number: u64, request: &LockRequest) -> Result<Lock, Failure> {
        let LockRequest { owner, lock, is_flock, .. } = *request;
        let range = range(&lock);
        match self.giver.metadata().call(&Request::FindLock { number, owner, is_flock, range })? {
            Told::InTheWay(None) => Ok(Lock { kind: LockKind::Unlock, ..lock }),
            Told::InTheWay(Some(found)) => Ok(Lock {
                start: found.range.start,
                end: found.range.end.min(i64::MAX as u64),
                kind: match found.range.kind {
                    Kind::Read => LockKind::Read,
                    Kind::Write => LockKind::Write,
                    Kind::Unlock => LockKind::Unlock,
                },
                pid: found.process,
            }),
            _ => Err(Errno::IO.into()),
        }
    }

    /// Takes or gives back a lock and answers, at once or when it can be had.
    pub(crate) fn set(&self, number: u64, request: LockRequest, is_waiting: bool, reply: Reply) {
        match self.state.set(self.giver.metadata(), number, &request) {
            Ok(()) => self.giver.answer(number, &request, reply),
            Err(failure) if failure.errno() == Errno::AGAIN && is_waiting => {
                self.wait(Waiting { number, request, reply });
            }
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Gives back what an owner holds of a node by `fcntl`: a process closes a file.
    pub(crate) fn flush(&self, number: u64, owner: u64) -> Result<(), Failure> {
        self.give_back(number, false, |own, _| own == owner)
    }

    /// Gives back what was locked through an open file that has been closed, and what its owner
    /// by `flock` holds.
    ///
    /// Processes have given back their own before, but locks of an open file (`F_OFD_SETLK`) end with
    /// it, and the kernel tells of that in no other way.
    pub(crate) fn release(
        &self,
        number: u64,
        handle: u64,
        flock_owner: Option<u64>,
    ) -> Result<(), Failure> {
        let flocks = self.give_back(number, true, |own, _| Some(own) == flock_owner);
        self.give_back(number, false, |_, through| through == handle).and(flocks)
    }

    fn give_back(
        &self,
        number: u64,
        is_flock: bool,
        holds: impl FnMut(u64, u64) -> bool,
    ) -> Result<(), Failure> {
        let owners = self.state.queue().owners(number, is_flock, holds);
        let mut given = Ok(());
        for owner in owners {
            let own = self.state.give_back(self.giver.metadata(), number, owner, is_flock);
            if own.is_err() {
                self.start();
            }
            given = given.and(own);
        }
        given
    }

    /// A program does not wait any longer.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut queue = self.state.queue();
        let found = queue.waiting.iter().position(|waiting| waiting.reply.unique() == unique);
        let gone = found.map(|index| queue.waiting.swap_remove(index));
        drop(queue);
        if let Some(waiting) = gone {
            waiting.reply.error(Errno::INTR);
        }
    }

    fn wait(&self, waiting: Waiting) {
        let mut queue = self.state.queue();
        if waiting.reply.is_interrupted() {
            drop(queue);
            return waiting.reply.error(Errno::INTR);
        }
        if queue.is_deadlock(waiting.number, &waiting.request) {
            drop(queue);
            return waiting.reply.error(Errno::DEADLK);
        }
        if queue.waiting.len() >= WAITING_MAX {
            drop(queue);
            return waiting.reply.error(Errno::NOLCK);
        }
        queue.waiting.push(waiting);
        drop(queue);
        self.state.changed.notify_all();
        self.start();
    }

    /// Starts the thread that retries for waiters, unless it runs.
    fn start(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (giver, state) = (Arc::clone(&self.giver), Arc::clone(&self.state));
            let builder = std::thread::Builder::new().name("locks".into());
            // Without it they wait until they are interrupted.
            let run = move || {
                terrace_affinity::roam();
                state.run(&giver);
            };
            *thread = builder.spawn(run).ok();
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.state.queue().is_stopped = true;
        self.state.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread is in the log.
            let _ = thread.join();
        }
    }
}

impl State {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Elements come and go as wholes.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing else is asked about a node for an owner.
    fn turn(&self, number: u64, owner: u64) -> Turn<'_> {
        let whose = (number, owner);
        let mut queue = self
            .turned
            .wait_while(self.queue(), |queue| queue.turns.contains(&whose))
            .unwrap_or_else(PoisonError::into_inner);
        queue.turns.insert(whose);
        Turn { state: self, whose }
    }

    /// Takes or gives back a lock, if that can be done at once, and notes it.
    fn set(
        &self,
        metadata: &dyn Metadata,
        number: u64,
        request: &LockRequest,
    ) -> Result<(), Failure> {
        let is_unlock = request.lock.kind == LockKind::Unlock;
        let _turn = self.turn(number, request.owner);
        if is_unlock {
            self.queue().note_range(number, request);
        }
        self.try_once(metadata, number, request)?;
        if !is_unlock {
            self.queue().note(number, request);
        }
        Ok(())
    }

    /// Takes or gives back a lock, if that can be done at once. The owner whose turn it is loses the lock of
    /// `flock` that it wanted to change, where it cannot: a waiter holds none, or two
    /// of them would wait for each other.
    fn try_once(
        &self,
        metadata: &dyn Metadata,
        number: u64,
        request: &LockRequest,
    ) -> Result<(), Failure> {
        let asked = try_set(metadata, number, request);
        let is_taken = asked.as_ref().is_err_and(|failure| failure.errno() == Errno::AGAIN);
        let holds = || !self.queue().owners(number, true, |own, _| own == request.owner).is_empty();
        if !request.is_flock || !is_taken || !holds() {
            return asked;
        }
        let lock = Lock { kind: LockKind::Unlock, ..request.lock };
        try_set(metadata, number, &LockRequest { lock, ..*request })?;
        self.queue().forget(number, request.owner, true);
        asked
    }

    /// Gives back all that a dead owner holds of a node: later, where the server does not answer now.
    fn give_back(
        &self,
        metadata: &dyn Metadata,
        number: u64,
        owner: u64,
        is_flock: bool,
    ) -> Result<(), Failure> {
        let request = everything(owner, is_flock);
        let _turn = self.turn(number, owner);
        self.give_back_in_turn(metadata, number, &request)
    }

    fn give_back_in_turn(
        &self,
        metadata: &dyn Metadata,
        number: u64,
        request: &LockRequest,
    ) -> Result<(), Failure> {
        let LockRequest { owner, is_flock, .. } = *request;
        self.queue().note_range(number, request);
        let given = try_set(metadata, number, request);
        let is_left = given.as_ref().is_err_and(Failure::may_pass);
        let mut queue = self.queue();
        if given.is_ok() || is_left {
            queue.forget(number, owner, is_flock);
        }
        if is_left {
            queue.left.insert((number, owner, is_flock));
            self.changed.notify_all();
        }
        given
    }

    /// Gives back once more what could not be given back.
    fn give_back_left(&self, metadata: &dyn Metadata) {
        let left = std::mem::take(&mut self.queue().left);
        for (number, owner, is_flock) in left {
            let _turn = self.turn(number, owner);
            let queue = self.queue();
            if queue.is_stopped {
                // With the end of the session all of it is given back.
                return;
            }
            // Another owner has that number by now, and gives back all of it at its end.
            let is_new = !queue.owners(number, is_flock, |own, _| own == owner).is_empty();
            drop(queue);
            let request = everything(owner, is_flock);
            if !is_new && let Err(failure) = self.give_back_in_turn(metadata, number, &request) {
                tracing::debug!(file = number, %failure, "cannot give a lock back");
            }
        }
    }

    /// Gives back what an owner was granted that does not wait any longer, but for what it held before.
    fn take_back(
        &self,
        metadata: &dyn Metadata,
        number: u64,
        request: &LockRequest,
    ) -> Result<(), Failure> {
        let LockRequest { owner, lock, is_flock, .. } = *request;
        let granted = Locked { range: range(&lock), process: lock.pid };
        let before = self.queue().ranges.held_by(number, is_flock, here(owner), &granted.range);
        let mut more = OwnLocks::default();
        more.set(&granted);
        before.iter().for_each(|held| more.set(&unlocked(held)));
        // Going back to a read lock cannot be refused, and releases nothing meanwhile.
        let as_before = before.into_iter().filter(|held| held.range.kind != granted.range.kind);
        let mut taken = Ok(());
        for locked in as_before.chain(more.iter().map(|held| unlocked(&held))) {
            let asked = metadata.call(&Request::Lock { number, owner, is_flock, locked });
            taken = taken.and(asked.map(drop));
        }
        if taken.is_err() {
            // What is left of it goes with the end of its owner.
            let holders = &mut self.queue().held;
            holders.entry((number, is_flock)).or_default().insert(owner, request.handle);
        }
        taken
    }

    /// Tries for all that wait, again and again.
    fn run(&self, giver: &Giver) {
        let mut pause = PAUSE_MIN;
        loop {
            let queue = self.queue();
            let queue = self
                .changed
                .wait_while(queue, |queue| {
                    queue.waiting.is_empty() && queue.left.is_empty() && !queue.is_stopped
                })
                .unwrap_or_else(PoisonError::into_inner);
            if queue.is_stopped {
                return;
            }
            let tries: Vec<_> = queue
                .waiting
                .iter()
                .map(|waiting| (waiting.reply.unique(), waiting.number, waiting.request))
                .collect();
            drop(queue);
            let mut has_changed = false;
            for (unique, number, request) in tries {
                has_changed |= self.try_for(giver, unique, number, &request);
            }
            self.give_back_left(giver.metadata());
            let queue = self.queue();
            pause = match has_changed {
                true => PAUSE_MIN,
                false if queue.waiting.is_empty() && !queue.left.is_empty() => LEFT_PAUSE,
                false => (pause * 2).min(PAUSE_MAX),
            };
            let was_waited = !queue.waiting.is_empty();
            let goes_on =
                |queue: &mut Queue| !queue.is_stopped && (was_waited || queue.waiting.is_empty());
            drop(self.changed.wait_timeout_while(queue, pause, goes_on));
        }
    }

    /// One try for the waiter with request `unique`; whether it waits no longer.
    fn try_for(&self, giver: &Giver, unique: u64, number: u64, request: &LockRequest) -> bool {
        let _turn = self.turn(number, request.owner);
        let ended = match self.try_once(giver.metadata(), number, request) {
            Err(failure) if failure.errno() == Errno::AGAIN => return false,
            ended => ended,
        };
        let mut queue = self.queue();
        let found = queue.waiting.iter().position(|waiting| waiting.reply.unique() == unique);
        let found = found.map(|index| queue.waiting.swap_remove(index));
        // In one step, so that nothing is noted behind the release of an interrupted waiter.
        if found.is_some() && ended.is_ok() {
            queue.note(number, request);
        }
        drop(queue);
        match (found, ended) {
            (Some(waiting), Ok(())) => giver.answer(number, request, waiting.reply),
            (Some(waiting), Err(failure)) => waiting.reply.error(failure.errno()),
            // Interrupted since: the program does not know that it has it.
            (None, Ok(())) => {
                if let Err(failure) = self.take_back(giver.metadata(), number, request) {
                    tracing::warn!(file = number, %failure, "cannot give a lock back");
                }
            }
            (None, Err(_)) => {}
        }
        true
    }
}

/// What gives back all that an owner holds of a node.
fn everything(owner: u64, is_flock: bool) -> LockRequest {
    let lock = Lock { start: 0, end: u64::MAX, kind: LockKind::Unlock, pid: 0 };
    LockRequest { handle: 0, owner, lock, is_flock }
}

/// What gives a lock back.
fn unlocked(held: &Locked) -> Locked {
    Locked { range: LockRange { kind: Kind::Unlock, ..held.range }, ..*held }
}

/// Takes or gives back a lock, if that can be done at once.
fn try_set(metadata: &dyn Metadata, number: u64, request: &LockRequest) -> Result<(), Failure> {
    let LockRequest { owner, lock, is_flock, .. } = *request;
    let locked = Locked { range: range(&lock), process: lock.pid };
    metadata.call(&Request::Lock { number, owner, is_flock, locked }).map(drop)
}

/// The range of a lock: the kernel's end of all files is everybody's.
fn range(lock: &Lock) -> LockRange {
    let kind = match lock.kind {
        LockKind::Read => Kind::Read,
        LockKind::Write => Kind::Write,
        LockKind::Unlock => Kind::Unlock,
    };
    let end = if lock.end >= i64::MAX as u64 { u64::MAX } else { lock.end };
    LockRange { start: lock.start, end, kind }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const FILE: u64 = 5;

    fn request(owner: u64, kind: LockKind, byte: u64) -> LockRequest {
        let lock = Lock { start: byte, end: byte, kind, pid: 1 };
        LockRequest { handle: owner, owner, lock, is_flock: false }
    }

    #[test]
    fn who_would_wait_for_itself_is_found() {
        const READ: LockKind = LockKind::Read;
        const WRITE: LockKind = LockKind::Write;
        let queue = Queue::default();
        for owner in [1, 2, 3] {
            queue.note_range(FILE, &request(owner, WRITE, owner));
        }
        queue.note_range(FILE, &request(1, READ, 10));
        queue.note_range(FILE, &request(2, READ, 10));
        let waits = |waiting: &[LockRequest], wanted| {
            let waiting = || waiting.iter().map(|request| (FILE, request));
            would_wait_for_itself(&queue.ranges, FILE, &wanted, waiting)
        };
        assert!(!waits(&[], request(1, WRITE, 2)), "nobody else waits");
        assert!(waits(&[request(2, READ, 1)], request(1, WRITE, 2)));
        assert!(!waits(&[request(2, READ, 1)], request(1, WRITE, 3)), "for another");
        let others = [request(2, WRITE, 3), request(3, WRITE, 1)];
        assert!(waits(&others, request(1, WRITE, 2)), "over a third");
        assert!(!waits(&others, request(4, WRITE, 2)), "who is not in the circle");
        assert!(waits(&[request(2, WRITE, 10)], request(1, WRITE, 10)), "both would upgrade");
        assert!(!waits(&[request(2, WRITE, 10)], request(1, READ, 10)), "readers share");
        let flock = LockRequest { is_flock: true, ..request(1, WRITE, 2) };
        assert!(!waits(&[request(2, READ, 1)], flock));
    }

    #[test]
    fn what_is_given_back_is_in_nobodys_way() {
        let queue = Queue::default();
        queue.note_range(FILE, &request(1, LockKind::Write, 1));
        queue.note_range(FILE, &request(2, LockKind::Write, 2));
        queue.note_range(FILE, &request(2, LockKind::Unlock, 2));
        let waiting = request(2, LockKind::Write, 1);
        let wanted = request(1, LockKind::Write, 2);
        let waiting = || std::iter::once((FILE, &waiting));
        assert!(!would_wait_for_itself(&queue.ranges, FILE, &wanted, waiting));
    }

    /// Grants every lock, the first only after a signal.
    struct Granting {
        is_asked: Sender<()>,
        may_answer: Mutex<Receiver<()>>,
    }

    impl Metadata for Granting {
        fn call(&self, asked: &Request<'_>) -> Result<Told, Failure> {
            let Request::Lock { locked, .. } = asked else { panic!("no lock: {asked:?}") };
            if locked.range.kind == Kind::Write {
                self.is_asked.send(()).unwrap();
                self.may_answer.lock().unwrap().recv().unwrap();
            }
            Ok(Told::Done)
        }
    }

    #[test]
    fn a_lock_given_back_while_it_is_taken_is_in_nobodys_way() {
        let (is_asked, asked) = channel();
        let (answer, may_answer) = channel();
        let metadata = Granting { is_asked, may_answer: Mutex::new(may_answer) };
        let state = State::default();
        std::thread::scope(|threads| {
            let (state, metadata) = (&state, &metadata);
            threads.spawn(|| state.set(metadata, FILE, &request(1, LockKind::Write, 1)).unwrap());
            asked.recv().unwrap();
            let (is_back, back) = channel();
            threads.spawn(move || {
                state.set(metadata, FILE, &request(1, LockKind::Unlock, 1)).unwrap();
                let _ = is_back.send(());
            });
            // It may overtake the first, if anything lets it.
            let _ = back.recv_timeout(Duration::from_millis(50));
            answer.send(()).unwrap();
        });
        let range = range(&request(2, LockKind::Write, 1).lock);
        let queue = state.queue();
        assert!(queue.ranges.owners_in_the_way(FILE, false, here(2), &range).is_empty());
        assert!(queue.turns.is_empty());
    }

    #[test]
    fn what_a_new_owner_takes_is_not_given_back_for_who_went_by_its_number() {
        let (is_asked, asked) = channel();
        let (answer, may_answer) = channel();
        let metadata = Granting { is_asked, may_answer: Mutex::new(may_answer) };
        let state = State::default();
        state.queue().left.insert((FILE, 1, false));
        std::thread::scope(|threads| {
            let (state, metadata) = (&state, &metadata);
            threads.spawn(|| state.set(metadata, FILE, &request(1, LockKind::Write, 1)).unwrap());
            asked.recv().unwrap();
            let (is_over, over) = channel();
            threads.spawn(move || {
                state.give_back_left(metadata);
                let _ = is_over.send(());
            });
            // It may look before the other one has it, if anything lets it.
            let _ = over.recv_timeout(Duration::from_millis(50));
            answer.send(()).unwrap();
        });
        let queue = state.queue();
        assert_eq!(queue.owners(FILE, false, |owner, _| owner == 1), [1]);
        let range = range(&request(2, LockKind::Write, 1).lock);
        assert_eq!(queue.ranges.owners_in_the_way(FILE, false, here(2), &range).len(), 1);
        assert!(queue.left.is_empty());
    }

    /// Grants everything, after as many failures as were ordered.
    #[derive(Default)]
    struct Failing {
        fails: AtomicUsize,
        asked: Mutex<Vec<(u64, Kind, u64, u64)>>,
    }

    impl Metadata for Failing {
        fn call(&self, asked: &Request<'_>) -> Result<Told, Failure> {
            let Request::Lock { owner, locked, .. } = asked else { panic!("no lock: {asked:?}") };
            let LockRange { kind, start, end } = locked.range;
            self.asked.lock().unwrap().push((*owner, kind, start, end));
            let has_failed = self
                .fails
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            match has_failed {
                Ok(_) => Err(Errno::HOSTUNREACH.into()),
                Err(_) => Ok(Told::Done),
            }
        }
    }

    impl Failing {
        fn asked(&self) -> Vec<(u64, Kind, u64, u64)> {
            std::mem::take(&mut self.asked.lock().unwrap())
        }
    }

    #[test]
    fn what_could_not_be_given_back_is_given_back_later() {
        const ALL: (Kind, u64, u64) = (Kind::Unlock, 0, u64::MAX);
        let (state, metadata) = (State::default(), Failing::default());
        for owner in [1, 2] {
            state.set(&metadata, FILE, &request(owner, LockKind::Write, owner)).unwrap();
        }
        metadata.asked();
        metadata.fails.store(3, Ordering::SeqCst);
        for owner in [1, 2] {
            let failure = state.give_back(&metadata, FILE, owner, false).unwrap_err();
            assert_eq!(failure.errno(), Errno::HOSTUNREACH);
            assert_eq!(metadata.asked(), [(owner, ALL.0, ALL.1, ALL.2)]);
        }
        assert!(state.queue().held.is_empty(), "who closes the file does not wait once more");
        // A new process that goes by the number of the second.
        metadata.fails.store(0, Ordering::SeqCst);
        state.set(&metadata, FILE, &request(2, LockKind::Write, 9)).unwrap();
        metadata.asked();
        metadata.fails.store(1, Ordering::SeqCst);
        for _ in 0..2 {
            state.give_back_left(&metadata);
            assert_eq!(metadata.asked(), [(1, ALL.0, ALL.1, ALL.2)]);
        }
        state.give_back_left(&metadata);
        assert_eq!(metadata.asked(), []);
        let range = range(&request(3, LockKind::Write, 9).lock);
        assert_eq!(state.queue().ranges.owners_in_the_way(FILE, false, here(3), &range).len(), 1);
    }

    #[test]
    fn who_does_not_wait_any_longer_keeps_what_it_had() {
        let (state, metadata) = (State::default(), Failing::default());
        let lock = |kind, start, end| {
            let lock = Lock { start, end, kind, pid: 1 };
            LockRequest { handle: 1, owner: 1, lock, is_flock: false }
        };
        for had in [lock(LockKind::Read, 0, 3), lock(LockKind::Write, 6, 20)] {
            state.set(&metadata, FILE, &had).unwrap();
        }
        metadata.asked();
        state.take_back(&metadata, FILE, &lock(LockKind::Write, 2, 9)).unwrap();
        assert_eq!(metadata.asked(), [(1, Kind::Read, 2, 3), (1, Kind::Unlock, 4, 5)]);
        state.take_back(&metadata, FILE, &lock(LockKind::Read, 30, 39)).unwrap();
        assert_eq!(metadata.asked(), [(1, Kind::Unlock, 30, 39)]);
        let flock = LockRequest { is_flock: true, ..lock(LockKind::Write, 0, 9) };
        state.take_back(&metadata, FILE, &flock).unwrap();
        assert_eq!(metadata.asked(), [(1, Kind::Unlock, 0, 9)]);
    }

    #[test]
    fn a_file_that_is_closed_gives_back_what_was_locked_through_it() {
        let lock = Lock { start: 0, end: 9, kind: LockKind::Write, pid: 1 };
        let request = |handle, owner| LockRequest { handle, owner, lock, is_flock: false };
        let mut queue = Queue::default();
        let through = |queue: &Queue, wanted| queue.owners(5, false, |_, handle| handle == wanted);
        assert!(through(&queue, 1).is_empty());
        queue.note(5, &request(1, 70));
        queue.note(5, &request(2, 80));
        assert_eq!(through(&queue, 1), [70]);
        // A process whose older use of the file another still has.
        queue.note(5, &request(3, 70));
        assert!(through(&queue, 1).is_empty());
        assert_eq!(through(&queue, 3), [70]);
        queue.forget(5, 70, false);
        queue.forget(5, 80, false);
        assert!(queue.held.is_empty());
    }
}
