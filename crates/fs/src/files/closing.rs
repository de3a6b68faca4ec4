// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells the metadata what was closed and what was read: what can wait a little much of it at
//! once, and again what got no answer. Gives back claims that could not be given back at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::Clock;

use super::background::Background;
use super::claim;
use super::opened_ahead::AllAhead;
use super::sweep::Sweeper;
use super::unexpected;
use crate::failure::{Failure, Result};
use crate::lock;
use crate::metadata::Metadata;
use crate::request::{Closed, LockKind, Reply, Request, WasRead};

/// What happens within this time is told together.
const DELAY: Duration = Duration::from_millis(20);

/// Pause after something got no answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Told with one request at most; 13 bytes each or a few more.
const TOLD_MAX: usize = 4096;

/// What was read is forgotten where the metadata are so far behind: it is only a time of access.
const READ_MAX: usize = 4096;

/// Who tells, and the thread that tells what can wait.
pub(super) struct Closing {
    state: Arc<State>,
    thread: Background,
}

struct State {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// A claim was given back, or that was tried.
    given_back: Condvar,
    metadata: Arc<dyn Metadata>,
    sweeper: Arc<Sweeper>,
    ahead: Arc<AllAhead>,
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
    /// more than there are files that grow while nobody answers.
    claims: BTreeMap<u64, u64>,
    /// The one that is given back just now.
    claim: Option<u64>,
    /// The last request's.
    id: u64,
    /// The requests that may still be made.
    open: BTreeSet<u64>,
    is_stopped: bool,
}

/// What is to be told.
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
}

/// A request that tells.
struct Telling {
    id: u64,
    request: Request<'static>,
}

impl Closing {
    pub(super) fn start(
        metadata: &Arc<dyn Metadata>,
        sweeper: &Arc<Sweeper>,
        ahead: &Arc<AllAhead>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let state = Arc::new(State {
            queue: Mutex::default(),
            changed: Condvar::new(),
            given_back: Condvar::new(),
            metadata: Arc::clone(metadata),
            sweeper: Arc::clone(sweeper),
            ahead: Arc::clone(ahead),
            clock: Arc::clone(clock),
        });
        let theirs = Arc::clone(&state);
        let thread = Background::start("fs-closing", move || theirs.run())?;
        Ok(Self { state, thread })
    }

    /// Has the metadata told what is added.
    pub(super) fn push(&self, add: impl FnOnce(&mut Queued)) {
        let mut queue = lock(&self.state.queue);
        let is_first = queue.queued.is_empty();
        add(&mut queue.queued);
        // Else it is awake.
        if is_first {
            self.state.changed.notify_one();
        }
    }

    /// Has the metadata told of a close at a moment, or a little later; the moments come in order.
    pub(super) fn push_later(&self, at_ns: u64, closed: Closed) {
        lock(&self.state.queue).later.push_back((at_ns, closed));
        self.state.changed.notify_one();
    }

    /// Has a claim given back that somebody had in a life of the metadata, or may have had.
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

    /// Has it looked for files that were opened ahead, and are not wanted any more.
    pub(super) fn wake(&self) {
        // Who looked before and found nothing sleeps by the time that this has the queue.
        drop(lock(&self.state.queue));
        self.state.changed.notify_one();
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
            };
            let was_unheard = is_unheard;
            let Err(failure) = self.tell(telling) else {
                is_unheard = false;
                continue;
            };
            is_unheard = failure.may_pass();
            match is_unheard {
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
            let is_idle =
                |queue: &mut Queue| queue.is_empty() && self.ahead.is_empty() && !queue.is_stopped;
            let queue = lock(&self.queue);
            let queue =
                self.changed.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
            let is_stopped = queue.is_stopped;
            let is_new = queue.unanswered.is_empty();
            drop(queue);
            match (is_stopped, is_unheard) {
                // The end does not wait for who does not answer.
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
        }
    }

    /// Gives a claim back; where no answer comes it is kept, to be given back later. Whether one came.
    fn give_back(&self, number: u64, life: u64) -> bool {
        let given_back = match self.metadata.life() == life {
            true => claim::ask(&*self.metadata, number, LockKind::Unlock),
            // Who serves a later life has forgotten it.
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

    /// Tells it; where no answer comes it is kept, to be told again.
    fn tell(&self, telling: Telling) -> Result<()> {
        let life = self.metadata.life();
        let told = match self.metadata.call(&telling.request) {
            Ok(Reply::Numbers(garbage)) => {
                garbage.into_iter().for_each(|number| self.sweeper.push(number, life));
                Ok(())
            }
            Ok(other) => Err(unexpected(&other)),
            Err(failure) => Err(failure),
        };
        let mut queue = lock(&self.queue);
        if told.as_ref().is_err_and(Failure::may_pass) {
            queue.unanswered.push_back(telling);
            self.changed.notify_one();
        } else {
            queue.open.remove(&telling.id);
        }
        drop(queue);
        told
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.queued.is_empty()
            && self.unanswered.is_empty()
            && self.later.is_empty()
            && self.claims.is_empty()
    }

    /// Has told what is due; at the end all.
    fn take_due(&mut self, now_ns: u64) {
        while let Some((at_ns, closed)) = self.later.front()
            && (self.is_stopped || *at_ns <= now_ns)
        {
            self.queued.closed.push(*closed);
            self.later.pop_front();
        }
    }

    /// The request that tells it.
    fn telling(&mut self, queued: Queued) -> Telling {
        self.id += 1;
        self.open.insert(self.id);
        let acknowledged = *self.open.first().expect("it was just put there");
        let Queued { closed, read } = queued;
        let request = Request::Close { closed, read, id: self.id, acknowledged };
        Telling { id: self.id, request }
    }
}

impl Queued {
    fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.read.is_empty()
    }

    /// Has it told that something was read.
    pub(super) fn push_read(&mut self, read: WasRead) {
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
