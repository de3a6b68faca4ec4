// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata of a file system that a server keeps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use terrace_client::Remote;
use terrace_core::{Clock, SystemClock};
use terrace_fs::{
    Closed, Effect, LockKind, Locked, Metadata, Node, Reply, Request, Result, read_answer,
};

use crate::ahead::NamesAhead;
use crate::attributes::AbsentAttributes;
use crate::delegated::DelegatedNames;
use crate::in_use::Using;
use crate::recent::RecentNodes;

/// The metadata of a file system that a server keeps: a round trip for each request.
///
/// What this client has open the server forgets when it is started anew, or does not hear of this
/// client for too long. It is told again then, before anything else is asked.
pub(crate) struct RemoteFiles {
    remote: Remote,
    name: String,
    /// Which life of the session knows what is open: locked by who tells it again.
    told: RwLock<u64>,
    /// How often each file is open for reading, and for writing.
    open: Mutex<HashMap<u64, [u64; 2]>>,
    /// Requests to close that got no answer, each with the life of the session that they close in.
    closing: Mutex<HashMap<u64, u64>>,
    recent: RecentNodes,
    ahead: NamesAhead,
    absent: AbsentAttributes,
    delegated: DelegatedNames,
    /// Locks by node, owner and kind, as they were asked for one after the other.
    locks: Mutex<HashMap<(u64, u64, bool), Vec<Locked>>>,
    _using: Using,
}

impl RemoteFiles {
    pub(crate) fn new(remote: Remote, name: &str, using: Using) -> Self {
        let told = RwLock::new(remote.life());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        Self {
            remote,
            name: name.into(),
            told,
            open: Mutex::default(),
            closing: Mutex::default(),
            recent: RecentNodes::new(Arc::clone(&clock)),
            ahead: NamesAhead::new(Arc::clone(&clock)),
            absent: AbsentAttributes::new(Arc::clone(&clock)),
            delegated: DelegatedNames::new(clock),
            locks: Mutex::default(),
            _using: using,
        }
    }

    fn carry_out(&self, request: &Request<'_>) -> Result<Reply> {
        if let Request::Close { closed, id, .. } = request {
            return self.close(*id, closed, request);
        }
        if request.effect() == Effect::Hold {
            return self.hold(request);
        }
        self.keep_told()?;
        let reply = self.ask(request, None)?;
        self.note(request, &reply);
        Ok(reply)
    }

    /// Asks; in a given life of the session alone, or in whichever it is.
    fn ask(&self, request: &Request<'_>, life: Option<u64>) -> Result<Reply> {
        let effect = match request.effect() {
            Effect::Look => terrace_client::Effect::Look,
            Effect::Hold => terrace_client::Effect::Hold,
            Effect::Change => terrace_client::Effect::Change,
            Effect::Sync => terrace_client::Effect::Sync,
        };
        read_answer(&self.remote.files(&self.name, effect, life, &request.encode())?)
    }

    /// Has a server that has forgotten it told what is open here.
    fn keep_told(&self) -> Result<()> {
        match self.told() == self.remote.life() {
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
        let life = self.remote.life();
        if *told == life {
            return Ok(());
        }
        let open: Vec<_> = self.open().iter().map(|(number, counts)| (*number, *counts)).collect();
        for (number, counts) in open {
            for (is_for_writing, count) in [(false, counts[0]), (true, counts[1])] {
                for _ in 0..count {
                    // One that is gone for good fails with whatever is done with it next.
                    let opened = self.ask(&Request::Open { number, is_for_writing }, None);
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
                let taken = self.ask(&Request::Lock { number, owner, is_flock, locked }, None);
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
            match self.ask(request, Some(life)) {
                // Whatever was done, the server has forgotten it.
                Err(failure) if failure.may_pass() && self.remote.life() != life => {}
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
        let asked = self.ask(request, Some(life));
        if asked.as_ref().is_err_and(|failure| failure.may_pass() && self.remote.life() == life) {
            return asked;
        }
        self.closing().remove(&id);
        match self.remote.life() == life {
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
    fn is_written(&self, number: u64) -> bool {
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

/// What was answered, also that something is not there; fails where nobody answers, who would be asked
/// again.
fn unless_away(asked: Result<Reply>) -> Result<Result<Reply>> {
    match asked {
        Err(failure) if failure.may_pass() => Err(failure),
        answered => Ok(answered),
    }
}

impl Metadata for RemoteFiles {
    fn call(&self, request: &Request<'_>) -> Result<Reply> {
        if let Request::Lookup { directory, name } = request
            && self.delegated.is_nowhere(*directory, name)
        {
            return Ok(Reply::Nowhere);
        }
        let recent = self.recent.begin(request);
        let ahead = self.ahead.begin(request);
        let absent = self.absent.begin(request);
        let delegated = self.delegated.begin(request);
        let asked = self.carry_out(request);
        let reply = asked.as_ref().ok();
        self.recent.end(recent, reply);
        self.ahead.end(&ahead, request, &asked);
        self.absent.end(&absent, request, &asked);
        self.delegated.end(&delegated, request, reply);
        asked
    }

    fn recent(&self, number: u64, age_max: Duration) -> Option<(Node, Duration)> {
        if self.is_written(number) { None } else { self.recent.find(number, age_max) }
    }

    fn ahead(
        &self,
        directory: u64,
        name: &[u8],
        age_max: Duration,
    ) -> Result<Option<(Node, Duration)>> {
        let take = || {
            let found = self.ahead.take(directory, name, age_max);
            found.filter(|(node, _)| !self.is_written(node.number))
        };
        if let found @ Some(_) = take() {
            return Ok(found);
        }
        let size = || match self.recent(directory, age_max) {
            Some((node, _)) => Ok(Some(node.size)),
            None => match unless_away(self.call(&Request::Node { number: directory }))? {
                Ok(Reply::Node(node)) => Ok(Some(node.size)),
                _ => Ok(None),
            },
        };
        let Some(fetch) = self.ahead.wanted(directory, age_max, size)? else { return Ok(None) };
        let asked = self.call(&fetch.request());
        self.ahead.fetched(&fetch, &asked);
        let _ = unless_away(asked)?;
        Ok(take())
    }

    fn lacks_xattr(&self, number: u64, name: Option<&[u8]>, age_max: Duration) -> bool {
        self.absent.is_absent(number, name, age_max)
    }
}
