// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a client has open and locked with a server that may forget it.
//!
//! A server forgets it with the life of the session, and each later life is told of all of it, each
//! open once:
//!
//! - Nothing else is asked in a life before it has been told of everything.
//! - What is to be told is put down when the telling of a life begins. What is opened and answered in
//!   that life meanwhile is not told of, and nothing is closed meanwhile.
//! - Where a telling gets no answer and the life goes on, who wanted to ask something fails as it would
//!   with his own question. Who asks next goes on with that telling, by the number that it had: the
//!   server carries it out once. Not so once 2048 other changes of this client came after it, or so many
//!   that their answers have 2 MiB: it gets
//!   another number then, and what it opens may be open twice until the life ends.
//! - What cannot be open or locked any more is lost, and said in the log. Who goes on to use the file
//!   fails: where it is gone, until it is closed, and where another client has got a lock of it, until
//!   who had that gives it back, gets it anew, or closes the file. Any other failure of the
//!   server stops the telling like no answer; after 16 of them the next one is told.
//! - Where the life ends meanwhile, the next one is told of all.
//!
//! A change that gets no answer because the life ends, and that comes to the same however often it is
//! made, is asked of the next life, once that was told. Any other one fails, and may have been made.
//!
//! An open that gets no answer fails, and may have been carried out. With the next close in that life it
//! is asked for once more, by the number that it had, and closed with that. Not so once 2048 other
//! changes of this client came after it, or where its answer is too long to be kept: it may stay open
//! then until the life ends.
//!
//! What was changed and not synced in a life may be lost with the server that it was. A sync in a later
//! life finds that, and whoever asks hears once of which node.

mod locks;
mod lost;
#[cfg(test)]
mod tests;
mod unheard;
mod unsynced;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use rustix::io::Errno;
use terrace_core::{Applied, Error, ErrorKind};
use terrace_fs::{Closed, Effect, Failure, Left, Locked, Place, Reply, Request, Result};

use self::locks::Locks;
use self::lost::{Lost, given_back};
use self::unheard::{Unheard, UnheardOpens};
use self::unsynced::{Answered, Unsynced};

/// Who keeps the metadata of a file system.
pub(crate) trait Server {
    /// What a change is known by that got no answer.
    type Unanswered;

    /// Asks; in a given life of the session alone, or in whichever it is. With the answer comes the
    /// life that it was given in.
    ///
    /// # Errors
    ///
    /// What the server says; a failure that may pass where it does not answer, or the life is over.
    fn ask(&self, request: &Request<'_>, life: Option<u64>) -> Result<(Reply, u64)>;

    /// Asks for a change in a given life of the session. Where nobody answers, `unanswered` is set: who
    /// asks for the same with it again has it carried out once.
    ///
    /// # Errors
    ///
    /// As [`Server::ask`].
    fn ask_once(
        &self,
        request: &Request<'_>,
        life: u64,
        unanswered: &mut Option<Self::Unanswered>,
    ) -> Result<Reply>;

    /// Which life of the session it is, as far as is known here.
    fn life(&self) -> u64;

    /// The first life of which nothing is lost, as far as is known here: what was changed and not
    /// synced in an earlier one may be.
    fn whole_since(&self) -> u64;
}

/// What became of what a request opened or locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noted {
    /// The server knows of it as of everything else.
    Told,
    /// The life in which it was answered has ended, and the next one was told of all else already.
    Forgotten,
}

/// How often a server fails with one thing that it is told until that is given up.
const REFUSALS_MAX: u32 = 16;

/// What a life of the session is still to be told.
struct Telling<U> {
    life: u64,
    left: VecDeque<Request<'static>>,
    /// What is known of the first of these, where it got no answer so far.
    unanswered: Option<U>,
    /// How often the server failed with the first of these.
    refusals: u32,
    /// Why it did not come to its end, the last time.
    failure: Option<Failure>,
}

/// Which life of the session knows what is open.
struct Told<U> {
    /// The last one that was told of all.
    life: u64,
    /// A later one, where the telling has begun.
    telling: Option<Telling<U>>,
}

impl<U> Told<U> {
    /// The last life whose telling has begun.
    fn begun(&self) -> u64 {
        self.telling.as_ref().map_or(self.life, |telling| telling.life)
    }
}

/// How a file is open here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Uses {
    /// How often for reading, and for writing.
    counts: [u64; 2],
    /// Whether its bytes are in an object, and are read and written there.
    has_object: bool,
}

/// A request to close.
#[derive(Clone)]
struct Closing {
    /// Of the session, in which it closes.
    life: u64,
    /// What it closes beside what it was made for: opens that nobody heard of.
    unheard: Vec<Closed>,
}

/// What a client has open and locked.
///
/// The server forgets it when it is started anew, or does not hear of this client for too long. It is
/// told again then, before anything else is asked.
pub(crate) struct Held<S: Server> {
    server: S,
    /// Locked by who tells it again.
    told: RwLock<Told<S::Unanswered>>,
    /// So often a telling got no answer.
    misses: AtomicU64,
    open: Mutex<HashMap<u64, Uses>>,
    /// Requests to close that got no answer.
    closing: Mutex<HashMap<u64, Closing>>,
    /// Opens that got no answer.
    unheard: Mutex<UnheardOpens<S::Unanswered>>,
    locks: Mutex<Locks>,
    /// What a later life of the session could not be told of.
    lost: Lost,
    /// What was changed and not synced since.
    unsynced: Unsynced,
}

impl<S: Server> Held<S> {
    pub(crate) fn new(server: S) -> Self {
        let told = RwLock::new(Told { life: server.life(), telling: None });
        let misses = AtomicU64::default();
        let (open, closing, locks) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (unheard, lost, unsynced) = (Mutex::default(), Lost::default(), Unsynced::default());
        Self { server, told, misses, open, closing, unheard, locks, lost, unsynced }
    }

    /// Carries a request out, and takes note of what is open and locked after it.
    pub(crate) fn carry_out(&self, request: &Request<'_>) -> Result<Reply> {
        if let Request::Close { closed, id, .. } = request {
            return self.close(*id, closed, request);
        }
        if request.effect() == Effect::Hold {
            return self.hold(request);
        }
        if request.effect() == Effect::Change && self.unsynced.is_full() {
            // What is durable need not be remembered.
            self.carry_out(&Request::Sync)?;
        }
        // Each turn but the last is a life of the session that ended.
        loop {
            self.keep_told()?;
            let before = self.server.life();
            let changes = self.unsynced.changes();
            let asked = self.server.ask(request, self.life_for(request)?);
            let is_over = |failure: &Failure| failure.may_pass() && self.server.life() != before;
            // The next server hears first what is open, and whose locks there are.
            if request.is_repeatable() && asked.as_ref().is_err_and(is_over) {
                continue;
            }
            let (reply, life) = asked?;
            let answered = Answered { life, whole_since: self.server.whole_since() };
            match request {
                Request::Sync => self.unsynced.note_sync(changes, answered),
                _ => self.unsynced.note_change(request, &reply, answered),
            }
            self.note_object(request, &reply);
            if self.note(request, &reply, life)? == Noted::Told {
                return Ok(reply);
            }
            match self.open_made(&reply) {
                // Another client removed it before it was open: it is made as if that had been asked
                // for only now, or something else has the name.
                Err(failure) if failure.errno() == Errno::STALE => {}
                opened => return opened.map(|()| reply),
            }
        }
    }

    /// In which life of the session alone something may be done: bytes of a file that is locked here are
    /// not changed in one that was not told of the lock.
    fn life_for(&self, request: &Request<'_>) -> Result<Option<u64>> {
        let Some(number) = written(request) else { return Ok(None) };
        // Before it is looked which locks there are.
        let life = self.told().life;
        self.lost.check(number)?;
        Ok(self.is_locked(number).then_some(life))
    }

    /// Which life of the session it is, as far as is known here.
    pub(crate) fn life(&self) -> u64 {
        self.server.life()
    }

    /// The first life of which nothing is lost, as far as is known here.
    pub(crate) fn whole_since(&self) -> u64 {
        self.server.whole_since()
    }

    /// Whether the last sync that ended, or one before, found that a change of a node, or of any, may be
    /// lost, and nobody was told so far: true once for each node, and once for all of them.
    pub(crate) fn take_loss(&self, of: Option<u64>) -> bool {
        self.unsynced.take_loss(of)
    }

    /// Whether a file can be used as it was opened and locked here, as far as is known: asks nobody
    /// whom nothing is to be told.
    ///
    /// # Errors
    ///
    /// `STALE` where it was removed, and is gone, or where the server lost that its bytes are in an
    /// object; `IO` where another client has got a lock that somebody here had of it; where that
    /// cannot be told at the moment, a failure that may pass.
    pub(crate) fn check(&self, number: u64) -> Result<()> {
        match self.keep_told() {
            // Only who has locked it depends on what the server says.
            Err(failure) if self.is_locked(number) => Err(failure),
            _ => self.lost.check(number),
        }
    }

    /// The same for who closes a file: of one that nobody here has locked it tells what is known, and does
    /// not wait for a server that is still to be told what is open. A program that starts another one
    /// closes its files for that, and may be about to start the server.
    ///
    /// # Errors
    ///
    /// As [`Held::check`].
    pub(crate) fn check_to_close(&self, number: u64) -> Result<()> {
        match self.is_locked(number) {
            true => self.check(number),
            false => self.lost.check(number),
        }
    }

    /// The same, where the server may have forgotten this client and nobody here knows of it yet.
    ///
    /// # Errors
    ///
    /// As [`Held::check`].
    pub(crate) fn check_there(&self, number: u64) -> Result<()> {
        if self.is_locked(number) {
            match self.carry_out(&Request::Node { number }) {
                Err(failure) if failure.may_pass() => return Err(failure),
                _ => {}
            }
        }
        self.check(number)
    }

    /// Whether anybody here has locked any of a file.
    fn is_locked(&self, number: u64) -> bool {
        self.locks().is_locked(number)
    }

    /// Has a server that has forgotten it told what is open here.
    fn keep_told(&self) -> Result<()> {
        let misses = self.misses.load(Ordering::Acquire);
        let is_told = self.told().life == self.server.life();
        match is_told {
            true => Ok(()),
            false => self.tell_again(misses),
        }
    }

    fn told(&self) -> RwLockReadGuard<'_, Told<S::Unanswered>> {
        // It is replaced as a whole, and of what is left to be told one goes after the other.
        self.told.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a server that has forgotten it what is open here, for who knew of so many misses.
    fn tell_again(&self, misses: u64) -> Result<()> {
        let mut told = self.told.write().unwrap_or_else(PoisonError::into_inner);
        loop {
            // The life is only known to have changed once something was asked.
            let life = self.server.life();
            if told.life == life {
                return Ok(());
            }
            let known = told.telling.take().filter(|telling| telling.life == life);
            let telling = told.telling.insert(known.unwrap_or_else(|| self.telling(life)));
            // Who waited until another one got no answer does not wait as long again.
            if self.misses.load(Ordering::Acquire) != misses
                && let Some(failure) = &telling.failure
            {
                return Err(failure.clone());
            }
            match self.tell(telling) {
                Ok(()) => *told = Told { life, telling: None },
                Err(failure) if self.server.life() == life => {
                    self.misses.fetch_add(1, Ordering::AcqRel);
                    telling.failure = Some(failure.clone());
                    return Err(failure);
                }
                // The next life has not heard of what this one was told.
                Err(_) => {}
            }
        }
    }

    /// All that is open and locked, to be told to a life of the session.
    fn telling(&self, life: u64) -> Telling<S::Unanswered> {
        let mut left = VecDeque::new();
        for (number, uses) in self.open().iter() {
            for (is_for_writing, count) in [(false, uses.counts[0]), (true, uses.counts[1])] {
                let open = || Request::Open { number: *number, is_for_writing };
                left.extend((0..count).map(|_| open()));
            }
        }
        let locks = self.locks();
        let again = locks.iter().map(|((number, owner, is_flock), locked)| Request::Lock {
            number,
            owner,
            is_flock,
            locked,
        });
        // A claim ends with the life that it was had in, and its holder knows for how long it is certain.
        left.extend(again.filter(|lock| !lock.is_claim()));
        drop(locks);
        Telling { life, left, unanswered: None, refusals: 0, failure: None }
    }

    /// Tells what is left to be told.
    ///
    /// # Errors
    ///
    /// Where it may be told later: a failure that may pass.
    fn tell(&self, telling: &mut Telling<S::Unanswered>) -> Result<()> {
        while let Some(request) = telling.left.front() {
            match self.server.ask_once(request, telling.life, &mut telling.unanswered) {
                Ok(reply) if self.is_elsewhere(&reply) => {
                    let failure = Errno::STALE.into();
                    warn_of_loss(request, &failure);
                    self.note_loss(request, &failure);
                }
                Ok(_) => {}
                Err(failure) if failure.may_pass() => return Err(failure),
                // It was not let in, say: nobody has said anything of this.
                Err(failure) if telling.unanswered.is_some() => return Err(untold(&failure)),
                Err(failure) => {
                    telling.refusals += 1;
                    if !is_lost(request, &failure) && telling.refusals < REFUSALS_MAX {
                        return Err(untold(&failure));
                    }
                    // It fails with whatever is done with it next.
                    warn_of_loss(request, &failure);
                    self.note_loss(request, &failure);
                }
            }
            telling.left.pop_front();
            (telling.unanswered, telling.refusals) = (None, 0);
        }
        Ok(())
    }

    /// Whether a server takes the bytes of a file that was opened again to be with the metadata that are
    /// in an object here: it lost the power, and with that that they moved. What is written to the
    /// object nobody else would find.
    fn is_elsewhere(&self, reply: &Reply) -> bool {
        let Reply::Opened { node, .. } = reply else { return false };
        let has_object = self.open().get(&node.number).is_some_and(|uses| uses.has_object);
        has_object && node.place == Place::Inline
    }

    /// Notes what no server will know any more. A file that could not be opened for another reason is
    /// still there; a lock that could not be had may be another's by now.
    fn note_loss(&self, request: &Request<'_>, failure: &Failure) {
        match request {
            Request::Open { .. } if failure.errno() != Errno::STALE => {}
            Request::Lock { number, owner, is_flock, locked } => {
                self.lost.note(request);
                // Nor is a later one to give it back unseen.
                self.note_lock((*number, *owner, *is_flock), &given_back(locked));
            }
            _ => self.lost.note(request),
        }
    }

    /// Opens or locks, in a life of the session that knows what else is: one that is told of it
    /// later would have it twice.
    fn hold(&self, request: &Request<'_>) -> Result<Reply> {
        loop {
            self.keep_told()?;
            let life = self.told().life;
            match self.ask_to_hold(request, life) {
                // Whatever was done, the server has forgotten it.
                Err(failure) if failure.may_pass() && self.server.life() != life => {}
                asked => {
                    let (reply, life) = asked?;
                    if self.note(request, &reply, life)? == Noted::Told {
                        return Ok(reply);
                    }
                }
            }
        }
    }

    /// Asks to open or to lock, and remembers what is to be opened and gets no answer.
    fn ask_to_hold(&self, request: &Request<'_>, life: u64) -> Result<(Reply, u64)> {
        let request: Request<'static> = match request {
            Request::Open { number, is_for_writing } => {
                Request::Open { number: *number, is_for_writing: *is_for_writing }
            }
            Request::OpenAhead { numbers, grant, is_first } => {
                let numbers = numbers.clone();
                Request::OpenAhead { numbers, grant: *grant, is_first: *is_first }
            }
            _ => return self.server.ask(request, Some(life)),
        };
        let mut unanswered = None;
        let asked = self.server.ask_once(&request, life, &mut unanswered);
        if let Some(unanswered) = unanswered {
            self.unheard().add(Unheard { life, request, unanswered });
        }
        Ok((asked?, life))
    }

    /// Asks what became of opens that got no answer, as long as there are answers to that.
    fn hear_of_opens(&self) {
        let take = || self.unheard().take(self.server.life());
        while let Some(Unheard { life, request, unanswered }) = take() {
            let mut unanswered = Some(unanswered);
            let asked = self.server.ask_once(&request, life, &mut unanswered);
            match (asked, unanswered) {
                // Also where it was carried out only now.
                (Ok(reply), _) => {
                    let closed = opened(&request, &reply).map(|(number, is_for_writing)| Closed {
                        number,
                        is_for_writing,
                        left: Left::Unknown,
                    });
                    self.unheard().note_carried_out(life, closed);
                }
                (Err(_), Some(unanswered)) => {
                    return self.unheard().add(Unheard { life, request, unanswered });
                }
                // Its answer was too long to be kept: it may be open.
                (Err(failure), None) if failure.may_pass() => {
                    if let Request::Open { number, is_for_writing } = request {
                        let left = Left::Unknown;
                        let closed = Closed { number, is_for_writing, left };
                        self.unheard().note_carried_out(life, [closed]);
                    }
                }
                // It is not open.
                (Err(_), None) => {}
            }
        }
    }

    /// Opens a file once more that was made and opened in a life of the session that ended.
    fn open_made(&self, reply: &Reply) -> Result<()> {
        let Reply::Made { node, .. } = reply else { return Ok(()) };
        self.hold(&Request::Open { number: node.number, is_for_writing: true }).map(drop)
    }

    /// Asks to close. What was opened in a life of the session is closed in that life, however often
    /// it is asked for: in a later one the server was told what is open without it.
    fn close(&self, id: u64, closed: &[Closed], request: &Request<'_>) -> Result<Reply> {
        let known = self.closing().get(&id).cloned();
        let Closing { life, unheard } = match known {
            Some(closing) => closing,
            None => self.begin_to_close(id, closed)?,
        };
        let more = also_closing(request, &unheard);
        let request = more.as_ref().unwrap_or(request);
        let mut asked = self.server.ask(request, Some(life));
        if let Err(failure) = &asked
            && failure.errno() == Errno::INVAL
            && let Some(request) = closing_as_before(request)
        {
            asked = self.server.ask(&request, Some(life));
        }
        let asked = asked.map(|(reply, _)| reply);
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

    fn begin_to_close(&self, id: u64, closed: &[Closed]) -> Result<Closing> {
        self.hear_of_opens();
        loop {
            self.keep_told()?;
            // Nobody is told meanwhile what is open: with these, or without.
            let told = self.told();
            // A later life may have heard of these by now.
            if told.telling.is_some() {
                continue;
            }
            let unheard = self.unheard().take_carried_out(told.life);
            let closing = Closing { life: told.life, unheard };
            self.closing().insert(id, closing.clone());
            closed.iter().for_each(|one| self.note_closed(one));
            return Ok(closing);
        }
    }

    fn unheard(&self) -> MutexGuard<'_, UnheardOpens<S::Unanswered>> {
        // Opens come and go one by one.
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closing(&self) -> MutexGuard<'_, HashMap<u64, Closing>> {
        // Pairs come and go one by one.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Uses>> {
        // Counts are changed one by one.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        // What is held is changed by one lock at a time.
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a lock. What is told later is what is held: what was asked for one after the other
    /// would be in the way of who got what was given back of it.
    fn note_lock(&self, whose: (u64, u64, bool), locked: &Locked) {
        self.locks().set(whose, locked);
    }

    /// Takes note of what is open and locked after a request that was answered in a life of the
    /// session: in that which knows what else is, or is being told, so that it is told of each once.
    fn note(&self, request: &Request<'_>, reply: &Reply, life: u64) -> Result<Noted> {
        let is_held = match (request, reply) {
            (Request::Lock { .. } | Request::Open { .. } | Request::OpenAhead { .. }, _) => true,
            (
                Request::Make { made, .. } | Request::MakeNumbered { made, .. },
                Reply::Made { .. },
            ) => made.is_opened,
            _ => false,
        };
        if !is_held {
            return Ok(Noted::Told);
        }
        let mut kept = Ok(());
        loop {
            // Nothing more is put down meanwhile to be told: with this, or without.
            let told = self.told();
            match told.begun().cmp(&life) {
                // It knows of this, and is not told of it.
                std::cmp::Ordering::Equal => {
                    self.note_held(request, reply);
                    return Ok(Noted::Told);
                }
                std::cmp::Ordering::Greater => return Ok(Noted::Forgotten),
                // It was asked in whichever life there was, and that has not heard of anything else.
                std::cmp::Ordering::Less => drop(told),
            }
            kept?;
            kept = self.keep_told();
        }
    }

    fn note_held(&self, request: &Request<'_>, reply: &Reply) {
        match (request, reply) {
            (Request::Lock { number, owner, is_flock, locked }, _) => {
                let whose = (*number, *owner, *is_flock);
                self.lost.forget_lock(whose, locked);
                self.note_lock(whose, locked);
            }
            (_, Reply::Made { node, .. }) => {
                self.note_open(node.number, true, node.place == Place::Object);
            }
            _ => {
                let has_object = is_in_object(reply);
                opened(request, reply).for_each(|(number, is_for_writing)| {
                    self.note_open(number, is_for_writing, has_object);
                });
            }
        }
    }

    /// Takes note that the bytes of an open file are in an object from now on.
    fn note_object(&self, request: &Request<'_>, reply: &Reply) {
        let number = match request {
            Request::MoveOut { number, .. }
            | Request::NoteObject { number }
            | Request::Content { number } => *number,
            _ => return,
        };
        if is_in_object(reply)
            && let Some(uses) = self.open().get_mut(&number)
        {
            uses.has_object = true;
        }
    }

    /// Whether a file is open here.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open().contains_key(&number)
    }

    /// Whether a file is open here for writing.
    pub(crate) fn is_written(&self, number: u64) -> bool {
        self.open().get(&number).is_some_and(|uses| uses.counts[1] > 0)
    }

    fn note_open(&self, number: u64, is_for_writing: bool, has_object: bool) {
        let mut open = self.open();
        let uses = open.entry(number).or_default();
        uses.counts[usize::from(is_for_writing)] += 1;
        uses.has_object |= has_object;
    }

    fn note_closed(&self, closed: &Closed) {
        let mut open = self.open();
        let Some(uses) = open.get_mut(&closed.number) else { return };
        let count = &mut uses.counts[usize::from(closed.is_for_writing)];
        *count = count.saturating_sub(1);
        if uses.counts == [0, 0] {
            open.remove(&closed.number);
            self.lost.forget(closed.number);
        }
    }
}

/// A request to close that closes something else as well; `None` where there is nothing else.
fn also_closing(request: &Request<'_>, more: &[Closed]) -> Option<Request<'static>> {
    let Request::Close { closed, read, id, acknowledged } = request else { return None };
    (!more.is_empty()).then(|| Request::Close {
        closed: [&closed[..], more].concat(),
        read: read.clone(),
        id: *id,
        acknowledged: *acknowledged,
    })
}

/// A request to close for a server that does not know that files can be left untouched; `None` where
/// it knows all of it.
fn closing_as_before(request: &Request<'_>) -> Option<Request<'static>> {
    let Request::Close { closed, read, id, acknowledged } = request else { return None };
    let is_untouched = |one: &Closed| one.left == Left::Untouched;
    let known = |one: &Closed| match is_untouched(one) {
        true => Closed { left: Left::Unknown, ..*one },
        false => *one,
    };
    closed.iter().any(is_untouched).then(|| Request::Close {
        closed: closed.iter().map(known).collect(),
        read: read.clone(),
        id: *id,
        acknowledged: *acknowledged,
    })
}

/// The files that a request opened, each with whether it is for writing.
fn opened<'a>(
    request: &Request<'_>,
    reply: &'a Reply,
) -> impl Iterator<Item = (u64, bool)> + use<'a> {
    let one = match request {
        Request::Open { number, is_for_writing } => Some((*number, *is_for_writing)),
        _ => None,
    };
    let many = match reply {
        Reply::OpenedAhead(opened) => &opened[..],
        _ => &[],
    };
    one.into_iter().chain(many.iter().map(|ahead| (ahead.node.number, false)))
}

/// Whether an answer says that the bytes of a file are in an object.
fn is_in_object(reply: &Reply) -> bool {
    match reply {
        Reply::Node(node) | Reply::Opened { node, .. } => node.place == Place::Object,
        _ => false,
    }
}

/// The file whose bytes a request changes.
fn written(request: &Request<'_>) -> Option<u64> {
    match request {
        Request::Write { number, .. } => Some(*number),
        Request::Change { number, changes } if changes.size.is_some() => Some(*number),
        _ => None,
    }
}

/// Whether a server will never know as open or locked what it was told of.
fn is_lost(request: &Request<'_>, failure: &Failure) -> bool {
    match failure.errno() {
        Errno::STALE | Errno::INVAL | Errno::ISDIR => true,
        // Another client has it.
        Errno::AGAIN => matches!(request, Request::Lock { .. }),
        _ => false,
    }
}

/// How who wants to ask something fails while a server cannot be told what is open: it is no answer to
/// what he asks for, and may pass.
fn untold(failure: &Failure) -> Failure {
    let kind = ErrorKind::Unreachable { applied: Applied::No };
    Error::new(kind, "tell a server what is open").because(failure.to_string()).into()
}

fn warn_of_loss(request: &Request<'_>, failure: &Failure) {
    match request {
        Request::Open { number, .. } => {
            tracing::warn!(%failure, file = number, "an open file is lost");
        }
        Request::Lock { number, .. } => {
            tracing::warn!(%failure, file = number, "a lock is lost");
        }
        _ => unreachable!("nothing else is told"),
    }
}
