// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a client has open and locked with a server that may forget it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use terrace_fs::{Closed, Effect, LockKind, Locked, Reply, Request, Result};

/// Who keeps the metadata of a file system.
pub(crate) trait Server {
    /// Asks; in a given life of the session alone, or in whichever it is.
    ///
    /// # Errors
    ///
    /// What the server says; a failure that may pass where it does not answer, or the life is over.
    fn ask(&self, request: &Request<'_>, life: Option<u64>) -> Result<Reply>;

    /// Which life of the session it is, as far as is known here.
    fn life(&self) -> u64;
}

/// What a client has open and locked.
///
/// The server forgets it when it is started anew, or does not hear of this client for too long. It is
/// told again then, before anything else is asked.
pub(crate) struct Held<S> {
    server: S,
    /// Which life of the session knows what is open: locked by who tells it again.
    told: RwLock<u64>,
    /// How often each file is open for reading, and for writing.
    open: Mutex<HashMap<u64, [u64; 2]>>,
    /// Requests to close that got no answer, each with the life of the session that they close in.
    closing: Mutex<HashMap<u64, u64>>,
    /// Locks by node, owner and kind, as they were asked for one after the other.
    locks: Mutex<HashMap<(u64, u64, bool), Vec<Locked>>>,
}

impl<S: Server> Held<S> {
    pub(crate) fn new(server: S) -> Self {
        let told = RwLock::new(server.life());
        let (open, closing, locks) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { server, told, open, closing, locks }
    }

    /// Carries a request out, and takes note of what is open and locked after it.
    pub(crate) fn carry_out(&self, request: &Request<'_>) -> Result<Reply> {
        if let Request::Close { closed, id, .. } = request {
            return self.close(*id, closed, request);
        }
        if request.effect() == Effect::Hold {
            return self.hold(request);
        }
        self.keep_told()?;
        let reply = self.server.ask(request, None)?;
        self.note(request, &reply);
        Ok(reply)
    }

    /// Has a server that has forgotten it told what is open here.
    fn keep_told(&self) -> Result<()> {
        match self.told() == self.server.life() {
            true => Ok(()),
            false => self.tell_again(),
        }
    }

    /// Which life of the session knows what is open.
    fn told(&self) -> u64 {
        *self.told.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a server that has forgotten it what is open here.
    fn tell_again(&self) -> Result<()> {
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        // The life is only known to have changed once something was asked.
        let life = self.server.life();
        if *told == life {
            return Ok(());
        }
        let open: Vec<_> = self.open().iter().map(|(number, counts)| (*number, *counts)).collect();
        for (number, counts) in open {
            for (is_for_writing, count) in [(false, counts[0]), (true, counts[1])] {
                for _ in 0..count {
                    // One that is gone for good fails with whatever is done with it next.
                    let opened = self.server.ask(&Request::Open { number, is_for_writing }, None);
                    if let Err(failure) = opened {
                        tracing::warn!(file = number, %failure, "an open file is lost");
                    }
                }
            }
        }
        let locks: Vec<_> =
            self.locks().iter().map(|(whose, locks)| (*whose, locks.clone())).collect();
        for ((number, owner, is_flock), locks) in locks {
            for locked in locks {
                let taken =
                    self.server.ask(&Request::Lock { number, owner, is_flock, locked }, None);
                if let Err(failure) = taken {
                    tracing::warn!(file = number, %failure, "a lock is lost to another client");
                }
            }
        }
        *told = life;
        Ok(())
    }

    /// Opens or locks, in a life of the session that knows what else is: one that is told of it
    /// later would have it twice.
    fn hold(&self, request: &Request<'_>) -> Result<Reply> {
        loop {
            self.keep_told()?;
            let life = self.told();
            match self.server.ask(request, Some(life)) {
                // Whatever was done, the server has forgotten it.
                Err(failure) if failure.may_pass() && self.server.life() != life => {}
                asked => {
                    let reply = asked?;
                    self.note(request, &reply);
                    return Ok(reply);
                }
            }
        }
    }

    /// Asks to close. What was opened in a life of the session is closed in that life, however often
    /// it is asked for: in a later one the server was told what is open without it.
    fn close(&self, id: u64, closed: &[Closed], request: &Request<'_>) -> Result<Reply> {
        let known = self.closing().get(&id).copied();
        let life = match known {
            Some(life) => life,
            None => self.begin_to_close(id, closed)?,
        };
        let asked = self.server.ask(request, Some(life));
        if asked.as_ref().is_err_and(|failure| failure.may_pass() && self.server.life() == life) {
            return asked;
        }
        self.closing().remove(&id);
        match self.server.life() == life {
            true => asked,
            // The server closed them when it forgot this client.
            false => asked.or(Ok(Reply::Numbers(Vec::new()))),
        }
    }

    fn begin_to_close(&self, id: u64, closed: &[Closed]) -> Result<u64> {
        self.keep_told()?;
        // Nobody is told meanwhile what is open: with these, or without.
        let told = self.told.read().unwrap_or_else(PoisonError::into_inner);
        self.closing().insert(id, *told);
        closed.iter().for_each(|one| self.note_closed(one));
        Ok(*told)
    }

    fn closing(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        // Pairs come and go one by one.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, [u64; 2]>> {
        // Counts are changed one by one.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<(u64, u64, bool), Vec<Locked>>> {
        // Lists are changed by one element at a time.
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a lock: what was asked for before on the same bytes counts no more.
    fn note_lock(&self, whose: (u64, u64, bool), locked: &Locked) {
        let (start, end) = (locked.range.start, locked.range.end);
        let mut all = self.locks();
        let locks = all.entry(whose).or_default();
        locks.retain(|one| one.range.start < start || one.range.end > end);
        if locked.range.kind != LockKind::Unlock || !locks.is_empty() {
            locks.push(*locked);
        }
        if locks.is_empty() {
            all.remove(&whose);
        }
    }

    /// Takes note of what is open and locked after a request.
    fn note(&self, request: &Request<'_>, reply: &Reply) {
        match (request, reply) {
            (Request::Lock { number, owner, is_flock, locked }, _) => {
                self.note_lock((*number, *owner, *is_flock), locked);
            }
            (Request::Open { number, is_for_writing }, _) => {
                self.note_open(*number, *is_for_writing);
            }
            (Request::Make { made, .. }, Reply::Made { node, .. }) if made.is_opened => {
                self.note_open(node.number, true);
            }
            _ => {}
        }
    }

    /// Whether a file is open here for writing.
    pub(crate) fn is_written(&self, number: u64) -> bool {
        self.open().get(&number).is_some_and(|counts| counts[1] > 0)
    }

    fn note_open(&self, number: u64, is_for_writing: bool) {
        let mut open = self.open();
        open.entry(number).or_default()[usize::from(is_for_writing)] += 1;
    }

    fn note_closed(&self, closed: &Closed) {
        let mut open = self.open();
        let Some(counts) = open.get_mut(&closed.number) else { return };
        let count = &mut counts[usize::from(closed.is_for_writing)];
        *count = count.saturating_sub(1);
        if *counts == [0, 0] {
            open.remove(&closed.number);
        }
    }
}
