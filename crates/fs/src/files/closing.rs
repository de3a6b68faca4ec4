// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells the metadata what was closed and what was read: what can wait a little much of it at
//! once, and again what got no answer. Gives back claims that could not be given back at once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::Clock;

use super::background::Background;
use super::claim;
use super::opened_ahead::AllAhead;
use super::sweep::Sweeper;
use super::unexpected;
use super::unlinked::{self, Hold, Unlinked};
use crate::failure::{Failure, Result};
use crate::lock;
use crate::metadata::Metadata;
use crate::request::{Closed, LockKind, Reply, Request, WasRead};

/// What happens within this time is sent together.
const DELAY: Duration = Duration::from_millis(20);

/// Pause after something got no answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Sent with one request at most; 13 bytes each or a few more.
const TOLD_MAX: usize = 4096;

/// What was read is forgotten where the metadata are so far behind: it is only a time of access.
const READ_MAX: usize = 4096;

/// The sender of closes, and the thread that sends what can wait.
pub(super) struct Closing {
    state: Arc<State>,
    thread: Background,
}

struct State {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// A claim was given back, or that was tried.
    given_back: Condvar,
    /// A flush of reads has ended.
    reads_flushed: Condvar,
    /// Reads that the metadata do not know yet, so that most callers need not take the lock.
    reads: AtomicUsize,
    metadata: Arc<dyn Metadata>,
    sweeper: Arc<Sweeper>,
    ahead: Arc<AllAhead>,
    unlinked: Arc<Unlinked>,
    clock: Arc<dyn Clock>,
}

/// What was closed is bounded by what is open: it was opened by metadata that answered.
#[derive(Default)]
struct Queue {
    queued: Queued,
    /// What is closed later, each with the moment.
    later: VecDeque<(u64, Closed)>,
    /// What got no answer.
    unanswered: VecDeque<Telling>,
    /// Claims that are to be given back: files, each with the life of the metadata that it is had in. No
    /// more than there are files that grow while no server answers.
    claims: BTreeMap<u64, u64>,
    /// The one that is given back just now.
    claim: Option<u64>,
    /// The last request's.
    id: u64,
    /// The requests that may still be made.
    open: BTreeSet<u64>,
    /// Nodes whose reads are being flushed, each with the number of requests.
    flushing_reads: HashMap<u64, usize>,
    is_stopped: bool,
}

/// What is to be sent.
#[derive(Default)]
pub(super) struct Queued {
    pub(super) closed: Vec<Closed>,
    pub(super) read: Vec<WasRead>,
}

/// What is to be done.
enum Next {
    Tell(Telling),
    GiveBack {
        number: u64,
        /// Of the metadata, in which the claim is had.
        life: u64,
    },
    /// Opens an inode without a name that the kernel did not forget in time.
    Hold(u64),
}

/// A request that tells.
struct Telling {
    id: u64,
    request: Request<'static>,
}

impl Telling {
    /// Of how many closes.
    fn closed(&self) -> usize {
        match &self.request {
            Request::Close { closed, .. } => closed.len(),
            _ => 0,
        }
    }
}

impl Closing {
    pub(super) fn start(
        metadata: &Arc<dyn Metadata>,
        sweeper: &Arc<Sweeper>,
        ahead: &Arc<AllAhead>,
        unlinked: &Arc<Unlinked>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let state = Arc::new(State {
            queue: Mutex::default(),
            changed: Condvar::new(),
            given_back: Condvar::new(),
            reads_flushed: Condvar::new(),
            reads: AtomicUsize::new(0),
            metadata: Arc::clone(metadata),
            sweeper: Arc::clone(sweeper),
            ahead: Arc::clone(ahead),
            unlinked: Arc::clone(unlinked),
            clock: Arc::clone(clock),
        });
        let theirs = Arc::clone(&state);
        let thread = Background::start("fs-closing", move || theirs.run())?;
        Ok(Self { state, thread })
    }

    /// Has what is added sent to the metadata.
    pub(super) fn push(&self, add: impl FnOnce(&mut Queued)) {
        let mut queue = lock(&self.state.queue);
        let is_first = queue.queued.is_empty();
        add(&mut queue.queued);
        // Else it is awake.
        if is_first {
            self.state.changed.notify_one();
        }
    }

    /// Has a close at a moment sent to the metadata, or a little later; the moments come in order.
    pub(super) fn push_later(&self, at_ns: u64, closed: Closed) {
        lock(&self.state.queue).later.push_back((at_ns, closed));
        self.state.changed.notify_one();
    }

    /// Has a claim given back that was granted in a life of the metadata, or may have been.
    pub(super) fn give_back_claim(&self, number: u64, life: u64) {
        lock(&self.state.queue).claims.insert(number, life);
        self.state.changed.notify_one();
    }

    /// A file is about to be claimed again: what is left of a claim of before is not given back any more.
    /// Waits for one that is given back just now.
    pub(super) fn keep_claim(&self, number: u64) {
        let queue = lock(&self.state.queue);
        let is_given_back = |queue: &mut Queue| queue.claim == Some(number);
        let queue = self.state.given_back.wait_while(queue, is_given_back);
        queue.unwrap_or_else(PoisonError::into_inner).claims.remove(&number);
    }

    /// Queues that a node was read.
    pub(super) fn push_read(&self, read: WasRead) {
        let mut queue = lock(&self.state.queue);
        let is_first = queue.queued.is_empty();
        queue.queued.push_read(read);
        self.state.count_reads(&queue);
        // Else it is awake.
        if is_first {
            self.state.changed.notify_one();
        }
    }

    /// Whether the metadata do not know yet that a node was read.
    pub(super) fn is_read_pending(&self, number: u64) -> bool {
        if self.state.reads.load(Ordering::Acquire) == 0 {
            return false;
        }
        let queue = lock(&self.state.queue);
        let is_queued = queue.queued.read.iter().any(|read| read.number == number);
        is_queued || queue.flushing_reads.contains_key(&number)
    }

    /// Flushes a read of a node, or blocks until a flush that is under way has ended.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub(super) fn flush_read(&self, number: u64) -> Result<()> {
        let mut queue = lock(&self.state.queue);
        let is_meant = |read: &mut WasRead| read.number == number;
        let read: Vec<_> = queue.queued.read.extract_if(.., is_meant).collect();
        if read.is_empty() {
            let is_flushing = |queue: &mut Queue| queue.flushing_reads.contains_key(&number);
            drop(self.state.reads_flushed.wait_while(queue, is_flushing));
            return Ok(());
        }
        let telling = queue.telling(Queued { read, ..Queued::default() });
        drop(queue);
        self.state.tell(telling)
    }

    /// Has it looked for files that were opened ahead, and are not wanted any more, and for unlinked inodes.
    pub(super) fn wake(&self) {
        // A thread that looked before and found nothing sleeps by the time that this has the queue.
        drop(lock(&self.state.queue));
        self.state.changed.notify_one();
    }

    /// Opens an unlinked inode that the kernel has not forgotten; false where it cannot be kept.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub(super) fn hold_unlinked(&self, number: u64) -> Result<bool> {
        self.state.hold_unlinked(number)
    }

    /// Tells it now, and has the objects deleted that went with the last close; again later where
    /// no answer comes.
    ///
    /// # Errors
    ///
    /// What the metadata says.
    pub(super) fn tell(&self, queued: Queued) -> Result<()> {
        let telling = lock(&self.state.queue).telling(queued);
        self.state.tell(telling)
    }

    /// Tells of what is left, once, and ends.
    pub(super) fn stop(&self) {
        self.thread.stop(|| {
            lock(&self.state.queue).is_stopped = true;
            self.state.changed.notify_one();
        });
    }
}

impl State {
    fn run(&self) {
        let mut is_unheard = false;
        while let Some(next) = self.next(is_unheard) {
            let telling = match next {
                Next::Tell(telling) => telling,
                Next::GiveBack { number, life } => {
                    is_unheard = !self.give_back(number, life);
                    continue;
                }
                Next::Hold(number) => {
                    is_unheard = self.look_at_unlinked(number).is_err();
                    continue;
                }
            };
            let was_unheard = is_unheard;
            let closed = telling.closed();
            let Err(failure) = self.tell(telling) else {
                is_unheard = false;
                continue;
            };
            is_unheard = failure.may_pass();
            match is_unheard {
                true if lock(&self.queue).is_stopped => tracing::warn!(
                    files = closed, %failure,
                    "the server was not told that files were closed: it takes them for open, and their locks for held, until it \
                     misses this client (60 s after its last connection)"
                ),
                true if was_unheard => {}
                true => tracing::warn!(%failure, "cannot tell yet that files were closed"),
                // They are closed when the server misses this client.
                false => tracing::warn!(%failure, "cannot tell that files were closed"),
            }
        }
    }

    /// What is to be done; `None` at the end.
    fn next(&self, is_unheard: bool) -> Option<Next> {
        loop {
            let is_idle = |queue: &mut Queue| {
                let is_empty = queue.is_empty() && self.ahead.is_empty() && self.unlinked.is_idle();
                is_empty && !queue.is_stopped
            };
            let queue = lock(&self.queue);
            let queue =
                self.changed.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
            let is_stopped = queue.is_stopped;
            let is_new = queue.unanswered.is_empty();
            drop(queue);
            match (is_stopped, is_unheard) {
                // The end does not wait for a server that does not answer.
                (true, true) => return None,
                (true, false) => {}
                (false, true) => self.clock.sleep(PAUSE),
                (false, false) if is_new => self.clock.sleep(DELAY),
                (false, false) => {}
            }
            let unwanted = self.ahead.let_go_unwanted(self.clock.now_ns());
            let mut queue = lock(&self.queue);
            queue.queued.closed.extend(unwanted);
            // First: others wait for it.
            if let Some((number, life)) = queue.claims.pop_first() {
                queue.claim = Some(number);
                return Some(Next::GiveBack { number, life });
            }
            if let Some(telling) = queue.unanswered.pop_front() {
                queue.begin_reads(&telling.request);
                return Some(Next::Tell(telling));
            }
            queue.take_due(self.clock.now_ns());
            let queued = queue.queued.take(TOLD_MAX);
            if !queued.is_empty() {
                return Some(Next::Tell(queue.telling(queued)));
            }
            if queue.is_stopped {
                return None;
            }
            if let Some(number) = self.unlinked.take_due(self.clock.now_ns()) {
                return Some(Next::Hold(number));
            }
        }
    }

    /// Opens an inode that the kernel did not forget in time, unless it has another name; where no answer
    /// comes, it is tried again.
    fn look_at_unlinked(&self, number: u64) -> Result<()> {
        let looked = match self.metadata.call(&Request::Node { number }) {
            Ok(Reply::Node(node)) if node.links > 0 => {
                self.unlinked.forget(number);
                Ok(true)
            }
            Err(failure) if failure.may_pass() => Err(failure),
            _ => self.hold_unlinked(number),
        };
        if looked.is_err() {
            self.unlinked.look_later(number, self.clock.now_ns());
        }
        looked.map(drop)
    }

    fn hold_unlinked(&self, number: u64) -> Result<bool> {
        match self.unlinked.hold(&*self.metadata, number)? {
            Hold::Held => return Ok(true),
            Hold::Gone { garbage_life } => {
                garbage_life.into_iter().for_each(|life| self.sweeper.push(number, life));
            }
            Hold::Forgotten => {
                lock(&self.queue).queued.closed.push(unlinked::closed(number));
                self.changed.notify_one();
            }
        }
        Ok(false)
    }

    /// Gives a claim back; where no answer comes it is kept, to be given back later. Whether one came.
    fn give_back(&self, number: u64, life: u64) -> bool {
        let given_back = match self.metadata.life() == life {
            true => claim::ask(&*self.metadata, number, LockKind::Unlock),
            // The server of a later life has forgotten it.
            false => Ok(()),
        };
        let mut queue = lock(&self.queue);
        queue.claim = None;
        let is_unheard = given_back.as_ref().is_err_and(Failure::may_pass);
        if is_unheard {
            queue.claims.insert(number, life);
        }
        drop(queue);
        self.given_back.notify_all();
        if let (Err(failure), false) = (given_back, is_unheard) {
            tracing::warn!(file = number, %failure, "cannot give back the claim to an object");
        }
        !is_unheard
    }

    /// Sends it; where no answer comes it is kept, to be sent again.
    fn tell(&self, telling: Telling) -> Result<()> {
        let life = self.metadata.life();
        let told = match self.metadata.call(&telling.request) {
            Ok(Reply::Numbers(garbage)) => {
                for number in garbage {
                    if !self.unlinked.keeps_object(number, life) {
                        self.sweeper.push(number, life);
                    }
                }
                Ok(())
            }
            Ok(other) => Err(unexpected(&other)),
            Err(failure) => Err(failure),
        };
        let mut queue = lock(&self.queue);
        queue.end_reads(&telling);
        self.count_reads(&queue);
        if told.as_ref().is_err_and(Failure::may_pass) {
            queue.unanswered.push_back(telling);
            self.changed.notify_one();
        } else {
            queue.open.remove(&telling.id);
        }
        drop(queue);
        self.reads_flushed.notify_all();
        told
    }

    fn count_reads(&self, queue: &Queue) {
        let count = queue.queued.read.len() + queue.flushing_reads.len();
        self.reads.store(count, Ordering::Release);
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.queued.is_empty()
            && self.unanswered.is_empty()
            && self.later.is_empty()
            && self.claims.is_empty()
    }

    /// Sends what is due; at the end all.
    fn take_due(&mut self, now_ns: u64) {
        while let Some((at_ns, closed)) = self.later.front()
            && (self.is_stopped || *at_ns <= now_ns)
        {
            self.queued.closed.push(*closed);
            self.later.pop_front();
        }
    }

    /// Notes that a request flushes reads.
    fn begin_reads(&mut self, request: &Request<'_>) {
        let Request::Close { read, .. } = request else { return };
        for one in read {
            *self.flushing_reads.entry(one.number).or_default() += 1;
        }
    }

    /// Notes that a request that flushes reads has ended; a caller that waits does not wait for the next attempt.
    fn end_reads(&mut self, telling: &Telling) {
        let Request::Close { read, .. } = &telling.request else { return };
        for one in read {
            if let Entry::Occupied(mut flushing) = self.flushing_reads.entry(one.number) {
                *flushing.get_mut() -= 1;
                if *flushing.get() == 0 {
                    flushing.remove();
                }
            }
        }
    }

    /// The request that tells it.
    fn telling(&mut self, queued: Queued) -> Telling {
        self.id += 1;
        self.open.insert(self.id);
        let acknowledged = *self.open.first().expect("it was just put there");
        let Queued { closed, read } = queued;
        let request = Request::Close { closed, read, id: self.id, acknowledged };
        self.begin_reads(&request);
        Telling { id: self.id, request }
    }
}

impl Queued {
    fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.read.is_empty()
    }

    /// Queues that a node was read.
    fn push_read(&mut self, read: WasRead) {
        if self.read.len() < READ_MAX {
            self.read.push(read);
        }
    }

    /// Takes the first of it.
    fn take(&mut self, max: usize) -> Self {
        let closed = self.closed.drain(..max.min(self.closed.len())).collect();
        let read = self.read.drain(..max.min(self.read.len())).collect();
        Self { closed, read }
    }
}
