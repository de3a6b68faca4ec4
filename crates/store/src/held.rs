// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a client has open and locked with a server that may forget it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use terrace_fs::{Closed, Effect, LockKind, Locked, Reply, Request, Result};

/// Who keeps the metadata of a file system.
pub(crate) trait Server {
    /// Asks; in a given life of the session alone, or in whichever it is. With the answer comes the
    /// life that it was given in.
    ///
    /// # Errors
    ///
    /// What the server says; a failure that may pass where it does not answer, or the life is over.
    fn ask(&self, request: &Request<'_>, life: Option<u64>) -> Result<(Reply, u64)>;

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
        let (reply, life) = self.server.ask(request, None)?;
        if self.note(request, &reply, life)? == Noted::Forgotten {
            self.open_made(&reply)?;
        }
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
        loop {
            // The life is only known to have changed once something was asked.
            let life = self.server.life();
            if *told == life {
                return Ok(());
            }
            // In one life all of it: what a server was told of that ended meanwhile, the next one has
            // not heard of, and what that one was told before would count twice.
            if self.tell_in(life) {
                *told = life;
            }
        }
    }

    /// Tells what is open and locked in a life of the session; false where that ended meanwhile.
    fn tell_in(&self, life: u64) -> bool {
        // What is gone for good fails with whatever is done with it next.
        let tell = |request: &Request<'_>, what: &str| match self.server.ask(request, Some(life)) {
            Err(failure) if failure.may_pass() && self.server.life() != life => false,
            Err(failure) => {
                tracing::warn!(%failure, "{what}");
                true
            }
            Ok(_) => true,
        };
        let open: Vec<_> = self.open().iter().map(|(number, counts)| (*number, *counts)).collect();
        for (number, counts) in open {
            for (is_for_writing, count) in [(false, counts[0]), (true, counts[1])] {
                for _ in 0..count {
                    let open = Request::Open { number, is_for_writing };
                    if !tell(&open, &format!("an open file is lost file={number}")) {
                        return false;
                    }
                }
            }
        }
        let locks: Vec<_> =
            self.locks().iter().map(|(whose, locks)| (*whose, locks.clone())).collect();
        for ((number, owner, is_flock), locks) in locks {
            for locked in locks {
                let lock = Request::Lock { number, owner, is_flock, locked };
                if !tell(&lock, &format!("a lock is lost to another client file={number}")) {
                    return false;
                }
            }
        }
        true
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

    /// Takes note of what is open and locked after a request that was answered in a life of the
    /// session: in that which knows what else is, so that it is told of each once.
    fn note(&self, request: &Request<'_>, reply: &Reply, life: u64) -> Result<Noted> {
        let is_held = match (request, reply) {
            (Request::Lock { .. } | Request::Open { .. }, _) => true,
            (Request::Make { made, .. }, Reply::Made { .. }) => made.is_opened,
            _ => false,
        };
        if !is_held {
            return Ok(Noted::Told);
        }
        loop {
            // Nobody is told meanwhile what is open: with this, or without.
            let told = self.told.read().unwrap_or_else(PoisonError::into_inner);
            if *told == life {
                self.note_held(request, reply);
                return Ok(Noted::Told);
            }
            if *told > life {
                return Ok(Noted::Forgotten);
            }
            // It was asked in whichever life there was, and that has not heard of anything else.
            drop(told);
            self.keep_told()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use terrace_fs::{Delegated, Failure, Kind, Made, Node, ROOT};

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

    const ENDS: [End; 4] = [End::Before, End::After, End::Unnoticed, End::Noticed];

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
        fates: Vec<(u64, End)>,
        open: HashMap<u64, [u64; 2]>,
        locks: u64,
        numbers: u64,
    }

    impl State {
        fn end(&mut self) {
            self.current += 1;
            self.open.clear();
            self.locks = 0;
        }

        fn carry_out(&mut self, request: &Request<'_>) -> Reply {
            match request {
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
            }
        }
    }

    impl Fated {
        fn state(&self) -> MutexGuard<'_, State> {
            self.0.lock().expect("nobody panicked")
        }
    }

    impl Server for Fated {
        fn ask(&self, request: &Request<'_>, life: Option<u64>) -> Result<(Reply, u64)> {
            let mut state = self.state();
            let at = state.requests;
            state.requests += 1;
            let fate = state.fates.iter().find(|(when, _)| *when == at).map(|(_, end)| *end);
            let gone = Failure::of(Errno::HOSTUNREACH);
            if fate == Some(End::Before) {
                state.end();
            }
            state.life = state.current;
            if life.is_some_and(|life| life != state.current) {
                return Err(gone);
            }
            let answered = (state.carry_out(request), state.current);
            match fate {
                None | Some(End::Before) => return Ok(answered),
                Some(_) => state.end(),
            }
            if fate != Some(End::Unnoticed) {
                state.life = state.current;
            }
            if fate == Some(End::After) { Err(gone) } else { Ok(answered) }
        }

        fn life(&self) -> u64 {
            self.state().life
        }
    }

    /// A client that opens, closes and asks, and what it has open then, as it was told.
    struct Client {
        held: Held<Fated>,
        open: HashMap<u64, [u64; 2]>,
        closes: u64,
    }

    impl Client {
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
            counts[usize::from(is_for_writing)] -= 1;
            self.closes += 1;
            let closed = vec![Closed { number, is_for_writing, settled: None }];
            let (id, acknowledged) = (self.closes, self.closes);
            let close = Request::Close { closed, read: Vec::new(), id, acknowledged };
            while self.held.carry_out(&close).is_err() {}
        }

        fn look(&self) {
            // Some get no answer.
            let _ = self.held.carry_out(&Request::Node { number: ROOT });
        }
    }

    fn check(fates: &[(u64, End)]) {
        let server = Fated::default();
        server.state().fates = fates.to_vec();
        let mut client = Client { held: Held::new(server), open: HashMap::new(), closes: 0 };
        for number in [50, 60] {
            client.open(number, false);
            client.open(number, true);
        }
        client.make();
        client.open(50, false);
        client.close(50, false);
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
        assert_eq!(state.open, client.open, "{fates:?}");
    }

    #[test]
    fn a_server_that_ends_is_told_of_each_open_file_once() {
        const REQUESTS: u64 = 24;
        check(&[]);
        for at in 0..REQUESTS {
            for end in ENDS {
                check(&[(at, end)]);
                for later in at + 1..REQUESTS {
                    ENDS.iter().for_each(|then| check(&[(at, end), (later, *then)]));
                }
            }
        }
    }
}
