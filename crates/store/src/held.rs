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
//!   server carries it out once. Not so once 2048 other changes of this client came after it: it gets
//!   another number then, and what it opens may be open twice until the life ends.
//! - What cannot be open or locked any more is lost, and said in the log. Any other failure of the
//!   server stops the telling like no answer; after 16 of them the next one is told.
//! - Where the life ends meanwhile, the next one is told of all.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use rustix::io::Errno;
use terrace_core::{Applied, Error, ErrorKind};
use terrace_fs::{Closed, Effect, Failure, LockKind, Locked, Reply, Request, Result};

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
    /// How often each file is open for reading, and for writing.
    open: Mutex<HashMap<u64, [u64; 2]>>,
    /// Requests to close that got no answer, each with the life of the session that they close in.
    closing: Mutex<HashMap<u64, u64>>,
    /// Locks by node, owner and kind, as they were asked for one after the other.
    locks: Mutex<HashMap<(u64, u64, bool), Vec<Locked>>>,
}

impl<S: Server> Held<S> {
    pub(crate) fn new(server: S) -> Self {
        let told = RwLock::new(Told { life: server.life(), telling: None });
        let misses = AtomicU64::default();
        let (open, closing, locks) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { server, told, misses, open, closing, locks }
    }

    /// Carries a request out, and takes note of what is open and locked after it.
    pub(crate) fn carry_out(&self, request: &Request<'_>) -> Result<Reply> {
        if let Request::Close { closed, id, .. } = request {
            return self.close(*id, closed, request);
        }
        if request.effect() == Effect::Hold {
            return self.hold(request);
        }
        // Each turn but the last is a life of the session that ended.
        loop {
            self.keep_told()?;
            let (reply, life) = self.server.ask(request, None)?;
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
        for (number, counts) in self.open().iter() {
            for (is_for_writing, count) in [(false, counts[0]), (true, counts[1])] {
                let open = || Request::Open { number: *number, is_for_writing };
                left.extend((0..count).map(|_| open()));
            }
        }
        for ((number, owner, is_flock), locks) in self.locks().iter() {
            let (number, owner, is_flock) = (*number, *owner, *is_flock);
            let lock = |locked: &Locked| Request::Lock { number, owner, is_flock, locked: *locked };
            left.extend(locks.iter().map(lock));
        }
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
                }
            }
            telling.left.pop_front();
            (telling.unanswered, telling.refusals) = (None, 0);
        }
        Ok(())
    }

    /// Opens or locks, in a life of the session that knows what else is: one that is told of it
    /// later would have it twice.
    fn hold(&self, request: &Request<'_>) -> Result<Reply> {
        loop {
            self.keep_told()?;
            let life = self.told().life;
            match self.server.ask(request, Some(life)) {
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

    /// Opens a file once more that was made and opened in a life of the session that ended.
    fn open_made(&self, reply: &Reply) -> Result<()> {
        let Reply::Made { node, .. } = reply else { return Ok(()) };
        self.hold(&Request::Open { number: node.number, is_for_writing: true }).map(drop)
    }

    /// Asks to close. What was opened in a life of the session is closed in that life, however often
    /// it is asked for: in a later one the server was told what is open without it.
    fn close(&self, id: u64, closed: &[Closed], request: &Request<'_>) -> Result<Reply> {
        let known = self.closing().get(&id).copied();
        let life = match known {
            Some(life) => life,
            None => self.begin_to_close(id, closed)?,
        };
        let asked = self.server.ask(request, Some(life)).map(|(reply, _)| reply);
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
        loop {
            self.keep_told()?;
            // Nobody is told meanwhile what is open: with these, or without.
            let told = self.told();
            // A later life may have heard of these by now.
            if told.telling.is_some() {
                continue;
            }
            self.closing().insert(id, told.life);
            closed.iter().for_each(|one| self.note_closed(one));
            return Ok(told.life);
        }
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

    /// Takes note of what is open and locked after a request that was answered in a life of the
    /// session: in that which knows what else is, or is being told, so that it is told of each once.
    fn note(&self, request: &Request<'_>, reply: &Reply, life: u64) -> Result<Noted> {
        let is_held = match (request, reply) {
            (Request::Lock { .. } | Request::Open { .. }, _) => true,
            (Request::Make { made, .. }, Reply::Made { .. }) => made.is_opened,
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
                self.note_lock((*number, *owner, *is_flock), locked);
            }
            (Request::Open { number, is_for_writing }, _) => {
                self.note_open(*number, *is_for_writing);
            }
            (_, Reply::Made { node, .. }) => self.note_open(node.number, true),
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;
    use terrace_fs::{Delegated, Kind, LockRange, Made, Node, ROOT};

    /// Where a server ends, and another one begins.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum End {
        /// Before a request comes to it.
        Before,
        /// Before it answers one that it carried out.
        After,
        /// Behind its answer, which nobody here has noticed yet.
        Unnoticed,
        /// Behind its answer, and others here know already.
        Noticed,
    }

    /// What becomes of a request at some point.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fate {
        Ends(End),
        /// Where the server is told again, it does not get there.
        Lost,
        /// Where the server is told again, it is carried out, and its answer does not get here.
        Unheard,
        /// Where the server is told again, it says that it is busy.
        Busy,
        /// Where the server is told again, it lets nobody in.
        Denied,
        /// Where the server is told again, it has no room.
        Full,
    }

    const FATES: [Fate; 9] = [
        Fate::Ends(End::Before),
        Fate::Ends(End::After),
        Fate::Ends(End::Unnoticed),
        Fate::Ends(End::Noticed),
        Fate::Lost,
        Fate::Unheard,
        Fate::Busy,
        Fate::Denied,
        Fate::Full,
    ];

    /// A file of which some servers cannot be told.
    const REFUSED: u64 = 50;

    /// A server that ends at some requests.
    #[derive(Default)]
    struct Fated(Mutex<State>);

    #[derive(Default)]
    struct State {
        /// The life that it is.
        current: u64,
        /// The one that the client knows of.
        life: u64,
        requests: u64,
        fates: Vec<(u64, Fate)>,
        /// Changes that were carried out, by the numbers that they were asked for with.
        carried_out: HashSet<u64>,
        open: HashMap<u64, [u64; 2]>,
        locks: u64,
        numbers: u64,
        /// Whether another client removes what was made here while the server is away.
        removes_made: bool,
        gone: HashSet<u64>,
        /// Whether it never has room where it is told of a certain file.
        refuses: bool,
        /// What others do behind the next answer.
        then: Option<Box<dyn FnOnce() + Send>>,
    }

    impl State {
        fn end(&mut self) {
            self.current += 1;
            self.open.clear();
            self.carried_out.clear();
            if self.removes_made {
                self.gone.extend((1..=self.numbers).map(|number| ROOT + number));
            }
            self.locks = 0;
        }

        fn carry_out(&mut self, request: &Request<'_>) -> Result<Reply> {
            Ok(match request {
                Request::Open { number, .. } if self.gone.contains(number) => {
                    return Err(Failure::of(Errno::STALE));
                }
                Request::Open { number, is_for_writing } => {
                    self.open.entry(*number).or_default()[usize::from(*is_for_writing)] += 1;
                    Reply::Done
                }
                Request::Make { made, .. } => {
                    self.numbers += 1;
                    let number = ROOT + self.numbers;
                    if made.is_opened {
                        self.open.entry(number).or_default()[1] += 1;
                    }
                    let node = Node { number, ..Node::default() };
                    let directory = Node::default();
                    Reply::Made { node, directory, delegated: Delegated::default() }
                }
                Request::Close { closed, .. } => {
                    for Closed { number, is_for_writing, .. } in closed {
                        let counts = self.open.get_mut(number).expect("it is open");
                        counts[usize::from(*is_for_writing)] -= 1;
                    }
                    Reply::Numbers(Vec::new())
                }
                Request::Lock { .. } => {
                    self.locks += 1;
                    Reply::Done
                }
                _ => Reply::Done,
            })
        }
    }

    impl Fated {
        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().expect("nobody panicked")
        }
    }

    impl Fated {
        /// Asks; with a number what is carried out once, and the number is left where no answer came.
        fn ask_as(
            &self,
            request: &Request<'_>,
            life: Option<u64>,
            mut unanswered: Option<&mut Option<u64>>,
        ) -> Result<(Reply, u64)> {
            let mut state = self.state();
            let at = state.requests;
            state.requests += 1;
            let fate = state.fates.iter().find(|(when, _)| *when == at).map(|(_, fate)| *fate);
            let gone = Failure::of(Errno::HOSTUNREACH);
            if fate == Some(Fate::Ends(End::Before)) {
                state.end();
            }
            state.life = state.current;
            if life.is_some_and(|life| life != state.current) {
                return Err(gone);
            }
            let is_telling = unanswered.is_some();
            let number = unanswered.as_deref_mut().map(|known| *known.get_or_insert(at));
            match fate {
                Some(Fate::Lost) if is_telling => return Err(gone),
                Some(Fate::Busy) if is_telling => return Err(Failure::of(Errno::BUSY)),
                Some(Fate::Denied) if is_telling => return Err(Failure::of(Errno::ROFS)),
                _ => {}
            }
            let refused = Request::Open { number: REFUSED, is_for_writing: false };
            let is_full = fate == Some(Fate::Full) || state.refuses && *request == refused;
            let is_known = number.is_some_and(|number| state.carried_out.contains(&number));
            if let Some(known) = unanswered.as_deref_mut().filter(|_| is_full && !is_known) {
                *known = None;
                return Err(Failure::of(Errno::NOSPC));
            }
            let is_first = number.is_none_or(|number| state.carried_out.insert(number));
            let reply = if is_first { state.carry_out(request) } else { Ok(Reply::Done) };
            if fate == Some(Fate::Unheard) && is_telling {
                return Err(gone);
            }
            let answered = (reply, state.current);
            if let Some(Fate::Ends(end @ (End::After | End::Unnoticed | End::Noticed))) = fate {
                state.end();
                if end != End::Unnoticed {
                    state.life = state.current;
                }
                if end == End::After {
                    return Err(gone);
                }
            }
            if let Some(known) = unanswered {
                *known = None;
            }
            Ok((answered.0?, answered.1))
        }
    }

    impl Server for Fated {
        type Unanswered = u64;

        fn ask(&self, request: &Request<'_>, life: Option<u64>) -> Result<(Reply, u64)> {
            let asked = self.ask_as(request, life, None);
            let then = self.state().then.take();
            if let Some(then) = then {
                then();
            }
            asked
        }

        fn ask_once(
            &self,
            request: &Request<'_>,
            life: u64,
            unanswered: &mut Option<u64>,
        ) -> Result<Reply> {
            self.ask_as(request, Some(life), Some(unanswered)).map(|(reply, _)| reply)
        }

        fn life(&self) -> u64 {
            self.state().life
        }
    }

    /// A client that opens, closes and asks, and what it has open then, as it was told.
    struct Client {
        held: Arc<Held<Fated>>,
        open: HashMap<u64, [u64; 2]>,
        locks: u64,
        closes: u64,
    }

    impl Client {
        fn new(server: Fated) -> Self {
            Self { held: Arc::new(Held::new(server)), open: HashMap::new(), locks: 0, closes: 0 }
        }

        fn open(&mut self, number: u64, is_for_writing: bool) {
            if self.held.carry_out(&Request::Open { number, is_for_writing }).is_ok() {
                self.open.entry(number).or_default()[usize::from(is_for_writing)] += 1;
            }
        }

        fn make(&mut self) {
            let made = Made { kind: Kind::File, is_opened: true, ..Made::default() };
            let make = Request::Make { directory: ROOT, name: b"new", made };
            if let Ok(Reply::Made { node, .. }) = self.held.carry_out(&make) {
                self.open.entry(node.number).or_default()[1] += 1;
            }
        }

        fn close(&mut self, number: u64, is_for_writing: bool) {
            let Some(counts) = self.open.get_mut(&number) else { return };
            let count = &mut counts[usize::from(is_for_writing)];
            // It may not have come to open it.
            if *count == 0 {
                return;
            }
            *count -= 1;
            self.closes += 1;
            let closed = vec![Closed { number, is_for_writing, settled: None }];
            let (id, acknowledged) = (self.closes, self.closes);
            let close = Request::Close { closed, read: Vec::new(), id, acknowledged };
            while self.held.carry_out(&close).is_err() {}
        }

        fn lock(&mut self, number: u64) {
            let range = LockRange { start: 0, end: 10, kind: LockKind::Read };
            let locked = Locked { range, process: 7 };
            let lock = Request::Lock { number, owner: 1, is_flock: false, locked };
            self.locks += u64::from(self.held.carry_out(&lock).is_ok());
        }

        fn look(&self) {
            // Some get no answer.
            let _ = self.held.carry_out(&Request::Node { number: ROOT });
        }
    }

    fn check(fates: &[(u64, Fate)]) {
        let server = Fated::default();
        server.state().fates = fates.to_vec();
        let mut client = Client::new(server);
        for number in [50, 60] {
            client.open(number, false);
            client.open(number, true);
        }
        client.make();
        client.open(50, false);
        client.close(50, false);
        client.lock(50);
        client.look();
        client.close(60, true);
        client.make();
        client.held.server.state().fates.clear();
        // With the first it may notice that the server is another one, and with the next tell it.
        client.look();
        client.look();
        client.open.retain(|_, counts| *counts != [0, 0]);
        let mut state = client.held.server.state();
        state.open.retain(|_, counts| *counts != [0, 0]);
        assert_eq!((&state.open, state.locks), (&client.open, client.locks), "{fates:?}");
    }

    const REQUESTS: u64 = 28;

    #[test]
    fn a_server_that_ends_is_told_of_each_open_file_once() {
        check(&[]);
        for at in 0..REQUESTS {
            for fate in FATES {
                check(&[(at, fate)]);
                for later in at + 1..REQUESTS {
                    FATES.iter().for_each(|then| check(&[(at, fate), (later, *then)]));
                }
            }
        }
    }

    #[test]
    fn what_gets_no_answer_while_it_is_told_is_told_once_however_often_that_happens() {
        for (at, next) in (0..REQUESTS).flat_map(|at| (at + 1..REQUESTS).map(move |it| (at, it))) {
            for end in FATES.into_iter().filter(|fate| matches!(fate, Fate::Ends(_))) {
                for fates in FATES.iter().flat_map(|one| FATES.map(|other| [*one, other])) {
                    check(&[(at, end), (next, fates[0]), (next + 1, fates[1])]);
                }
            }
        }
    }

    #[test]
    fn a_file_that_another_client_removes_while_it_is_opened_again_is_made_anew() {
        let server = Fated::default();
        server.state().fates = vec![(0, Fate::Ends(End::Noticed))];
        server.state().removes_made = true;
        let mut client = Client::new(server);
        let held = Arc::clone(&client.held);
        // It tells the next life before who made the file has taken note of it.
        let look = move || drop(held.carry_out(&Request::Node { number: ROOT }));
        client.held.server.state().then = Some(Box::new(look));
        client.make();
        let made_anew = HashMap::from([(ROOT + 2, [0, 1])]);
        assert_eq!(client.open, made_anew);
        assert_eq!(client.held.server.state().open, made_anew);
    }

    /// A client that has two files open with a server that has ended, where others know.
    fn forgotten() -> Client {
        let mut client = Client::new(Fated::default());
        [REFUSED, 60].iter().for_each(|number| client.open(*number, false));
        let mut state = client.held.server.state();
        state.end();
        state.life = state.current;
        drop(state);
        client
    }

    #[test]
    fn what_is_told_while_nobody_is_let_in_is_told_later_however_long_that_takes() {
        let client = forgotten();
        let tries = 3 * u64::from(REFUSALS_MAX);
        client.held.server.state().fates = (2..2 + tries).map(|at| (at, Fate::Denied)).collect();
        for _ in 0..tries {
            let failure = client.held.carry_out(&Request::Node { number: ROOT });
            assert!(failure.is_err_and(|failure| failure.may_pass()), "it is tried again");
        }
        client.held.carry_out(&Request::Node { number: ROOT }).expect("all are let in");
        assert_eq!(client.held.server.state().open, client.open);
    }

    #[test]
    fn what_a_server_refuses_to_be_told_holds_nobody_up_for_good() {
        let mut client = forgotten();
        client.held.server.state().refuses = true;
        for _ in 1..REFUSALS_MAX {
            let failure = client.held.carry_out(&Request::Node { number: ROOT });
            assert!(failure.is_err_and(|failure| failure.may_pass()), "it is tried again");
        }
        client.held.carry_out(&Request::Node { number: ROOT }).expect("it is given up");
        client.open.remove(&REFUSED);
        assert_eq!(client.held.server.state().open, client.open);
    }
}
