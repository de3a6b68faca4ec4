// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server that ends, or does not answer, at each request of a client.

use std::collections::HashSet;
use std::sync::Arc;

use super::*;
use terrace_fs::{
    Changes, Delegated, Kind, Left, LockKind, LockRange, Made, Node, Place, ROOT, SetHow,
};

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
    /// What opens or closes a file, or is told again, does not get there.
    Lost,
    /// What opens or closes a file, or is told again, is carried out, and its answer does not get here.
    Unheard,
    /// To what opens a file, or is told again, the server says that it is busy.
    Busy,
    /// To what opens a file, or is told again, the server lets nobody in.
    Denied,
    /// For what opens a file, or is told again, the server has no room.
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
    /// The requests to close that were carried out, by their ids.
    closes: HashSet<u64>,
    open: HashMap<u64, [u64; 2]>,
    /// The locks that were asked for, one after the other.
    locks: Vec<LockRange>,
    numbers: u64,
    /// How often anything else was changed, in all lives.
    changes: u64,
    /// Whether another client removes what was made here while the server is away.
    removes_made: bool,
    gone: HashSet<u64>,
    /// Files whose bytes are with the metadata, as the server knows it.
    small: HashSet<u64>,
    /// Whether it never has room where it is told of a certain file.
    refuses: bool,
    /// The first life of which nothing is lost.
    whole_since: u64,
    /// Whether another client has locked everything.
    has_locked_all: bool,
    /// Whether it does not know that files can be left untouched.
    is_of_before: bool,
    /// What others do behind the next answer.
    then: Option<Box<dyn FnOnce() + Send>>,
}

impl State {
    fn node(&self, number: u64) -> Node {
        let place = if self.small.contains(&number) { Place::Inline } else { Place::Object };
        Node { number, place, ..Node::default() }
    }

    fn end(&mut self) {
        self.current += 1;
        self.open.clear();
        self.carried_out.clear();
        self.closes.clear();
        if self.removes_made {
            self.gone.extend((1..=self.numbers).map(|number| ROOT + number));
        }
        self.locks.clear();
    }

    fn carry_out(&mut self, request: &Request<'_>) -> Result<Reply> {
        Ok(match request {
            Request::Open { number, .. } if self.gone.contains(number) => {
                return Err(Failure::of(Errno::STALE));
            }
            Request::Open { number, is_for_writing } => {
                self.open.entry(*number).or_default()[usize::from(*is_for_writing)] += 1;
                Reply::Opened { node: self.node(*number), content: Vec::new() }
            }
            Request::MoveOut { number, .. } => {
                self.small.remove(number);
                Reply::Node(self.node(*number))
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
            Request::Close { closed, .. }
                if self.is_of_before && closed.iter().any(|one| one.left == Left::Untouched) =>
            {
                return Err(Failure::of(Errno::INVAL));
            }
            // Asked again, it closes nothing twice.
            Request::Close { id, .. } if !self.closes.insert(*id) => Reply::Numbers(Vec::new()),
            Request::Close { closed, .. } => {
                for Closed { number, is_for_writing, .. } in closed {
                    let counts = self.open.get_mut(number).expect("it is open");
                    counts[usize::from(*is_for_writing)] -= 1;
                }
                Reply::Numbers(Vec::new())
            }
            Request::Lock { locked, .. }
                if self.has_locked_all && locked.range.kind != LockKind::Unlock =>
            {
                return Err(Failure::of(Errno::AGAIN));
            }
            Request::Lock { locked, .. } => {
                self.locks.push(locked.range);
                Reply::Done
            }
            other => {
                let is_change = other.effect() == Effect::Change;
                assert!(!is_change || !self.open.is_empty(), "it was not told before");
                self.changes += u64::from(is_change);
                Reply::Done
            }
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
        let may_fail = unanswered.is_some() || matches!(request, Request::Open { .. });
        let may_miss = may_fail || matches!(request, Request::Close { .. });
        let number = unanswered.as_deref_mut().map(|known| *known.get_or_insert(at));
        match fate {
            Some(Fate::Lost) if may_miss => return Err(gone),
            Some(Fate::Busy) if may_fail => return Err(Failure::of(Errno::BUSY)),
            Some(Fate::Denied) if may_fail => return Err(Failure::of(Errno::ROFS)),
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
        if fate == Some(Fate::Unheard) && may_miss {
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

    fn whole_since(&self) -> u64 {
        self.state().whole_since
    }
}

/// A client that opens, closes and asks, and what it has open then, as it was told.
struct Client {
    held: Arc<Held<Fated>>,
    open: HashMap<u64, [u64; 2]>,
    locks: usize,
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
        let closed = vec![Closed { number, is_for_writing, left: Left::Unknown }];
        let (id, acknowledged) = (self.closes, self.closes);
        let close = Request::Close { closed, read: Vec::new(), id, acknowledged };
        while self.held.carry_out(&close).is_err() {}
    }

    fn lock(&mut self, number: u64, range: LockRange) {
        let locked = Locked { range, process: 7 };
        let lock = Request::Lock { number, owner: 1, is_flock: false, locked };
        self.locks += usize::from(self.held.carry_out(&lock).is_ok());
    }

    fn look(&self) {
        // Some get no answer.
        let _ = self.held.carry_out(&Request::Node { number: ROOT });
    }
}

#[test]
fn a_server_of_before_closes_what_is_left_untouched() {
    let server = Fated::default();
    server.state().is_of_before = true;
    let mut client = Client::new(server);
    for is_for_writing in [false, true] {
        client.open(50, is_for_writing);
    }
    let closed = vec![Closed { number: 50, is_for_writing: true, left: Left::Untouched }];
    let close = Request::Close { closed, read: Vec::new(), id: 1, acknowledged: 1 };
    client.held.carry_out(&close).expect("it is open");
    let is_read = HashMap::from([(50, [1, 0])]);
    assert_eq!(client.held.server.state().open, is_read);
    // Nor is it opened again.
    client.held.server.state().end();
    client.look();
    client.look();
    assert_eq!(client.held.server.state().open, is_read);
}

/// How many requests there were while something could happen to them.
fn check(fates: &[(u64, Fate)]) -> u64 {
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
    client.lock(50, LockRange { start: 0, end: 10, kind: LockKind::Read });
    client.look();
    client.close(60, true);
    client.make();
    client.held.server.state().fates.clear();
    let requests = client.held.server.state().requests;
    // With the first it may notice that the server is another one, and with the next tell it.
    client.look();
    client.look();
    // Whoever closes hears what became of what got no answer.
    client.open(70, true);
    client.close(70, true);
    client.open.retain(|_, counts| *counts != [0, 0]);
    let mut state = client.held.server.state();
    state.open.retain(|_, counts| *counts != [0, 0]);
    let open = (&client.open, client.locks);
    assert_eq!((&state.open, state.locks.len()), open, "{fates:?}");
    requests
}

/// Most requests of a client to whom one thing happens: another may happen to each of them.
const REQUESTS: u64 = 17;

#[test]
fn a_server_that_ends_is_told_of_each_open_file_once() {
    let mut most = check(&[]);
    for at in 0..REQUESTS {
        for fate in FATES {
            most = most.max(check(&[(at, fate)]));
            for later in at + 1..REQUESTS {
                for then in FATES {
                    check(&[(at, fate), (later, then)]);
                }
            }
        }
    }
    assert_eq!(most, REQUESTS);
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
fn a_server_is_told_of_what_is_locked_and_not_of_what_was() {
    let mut client = forgotten();
    let range = |start, end, kind| LockRange { start, end, kind };
    client.lock(60, range(0, 99, LockKind::Write));
    client.lock(60, range(40, 59, LockKind::Unlock));
    client.lock(60, range(90, 99, LockKind::Read));
    // A claim to an object ends with the life that it was had in.
    client.lock(60 | 1 << 63, range(0, u64::MAX, LockKind::Write));
    let mut state = client.held.server.state();
    state.end();
    state.life = state.current;
    drop(state);
    client.look();
    let held = [(0, 39, LockKind::Write), (60, 89, LockKind::Write), (90, 99, LockKind::Read)];
    let held = held.map(|(start, end, kind)| range(start, end, kind));
    assert_eq!(client.held.server.state().locks, held);
    // And of nothing, where all was given back.
    client.lock(60, range(0, u64::MAX, LockKind::Unlock));
    let mut state = client.held.server.state();
    state.end();
    state.life = state.current;
    drop(state);
    client.look();
    assert_eq!(client.held.server.state().locks, []);
}

#[test]
fn what_comes_to_the_same_is_asked_of_the_next_server_as_well_and_nothing_else() {
    let write =
        |at_end| Request::Write { number: 60, offset: 3, data: b"x", at_end, clears_set_id: false };
    let set = |how| {
        let (name, value) = (b"user.name", b"x");
        Request::SetXattr { number: 60, name, value, how, clears_set_group: false }
    };
    for (request, is_repeated) in [
        (Request::Change { number: 60, changes: Changes::default() }, true),
        (Request::NoteObject { number: 60 }, true),
        (write(false), true),
        (write(true), false),
        (set(SetHow::Any), true),
        (set(SetHow::Create), false),
        (Request::Remove { directory: ROOT, name: b"name", is_directory: false }, false),
        (Request::Link { number: 60, directory: ROOT, name: b"name" }, false),
    ] {
        let mut client = Client::new(Fated::default());
        client.open(60, true);
        client.held.server.state().fates = vec![(1, Fate::Ends(End::After))];
        assert_eq!(client.held.carry_out(&request).is_ok(), is_repeated, "{request:?}");
        client.look();
        let state = client.held.server.state();
        assert_eq!((&state.open, state.changes), (&client.open, 1 + u64::from(is_repeated)));
    }
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

#[test]
fn a_sync_after_a_server_that_ended_finds_what_that_may_have_lost() {
    for (loses, is_lost) in [(true, true), (false, false)] {
        let mut client = Client::new(Fated::default());
        client.open(60, true);
        let change = Request::Change { number: 60, changes: Changes::default() };
        client.held.carry_out(&change).expect("carried out");
        let mut state = client.held.server.state();
        state.end();
        state.life = state.current;
        state.whole_since = if loses { state.life } else { 0 };
        drop(state);
        let take_loss = || client.held.take_loss(Some(60));
        assert!(!take_loss(), "nobody has looked");
        client.held.carry_out(&Request::Sync).expect("synced");
        assert_eq!((take_loss(), take_loss()), (is_lost, false));
        assert_eq!(client.held.take_loss(None), is_lost);
        client.held.carry_out(&change).expect("carried out");
        client.held.carry_out(&Request::Sync).expect("synced");
        assert!(!take_loss(), "nothing of that is lost");
    }
}

/// A client with a lock of the file that it has open, which another one has got since; whether the client
/// knows that it was forgotten.
fn without_its_lock(knows: bool) -> Client {
    let mut client = Client::new(Fated::default());
    client.open(60, true);
    client.lock(60, LockRange { start: 0, end: 99, kind: LockKind::Write });
    client.held.check(60).expect("it has its lock");
    let mut state = client.held.server.state();
    state.end();
    state.has_locked_all = true;
    if knows {
        state.life = state.current;
    }
    drop(state);
    client
}

fn errno(checked: Result<()>) -> Option<Errno> {
    checked.err().map(|failure| failure.errno())
}

#[test]
fn a_file_whose_lock_another_client_has_cannot_be_used() {
    let client = without_its_lock(true);
    assert_eq!(errno(client.held.check(60)), Some(Errno::IO));
    client.held.check(61).expect("that is another one");
    // What another life of the session would give back is as lost: others had it meanwhile.
    let mut state = client.held.server.state();
    state.end();
    state.life = state.current;
    state.has_locked_all = false;
    drop(state);
    assert_eq!(errno(client.held.check(60)), Some(Errno::IO));
    assert_eq!(client.held.server.state().locks, []);
}

#[test]
fn a_lost_lock_is_found_before_anything_is_done_under_it() {
    let client = without_its_lock(false);
    client.held.check(60).expect("nobody has heard of anything");
    assert_eq!(errno(client.held.check_there(60)), Some(Errno::IO));
    for at_end in [false, true] {
        let client = without_its_lock(false);
        let write =
            Request::Write { number: 60, offset: 3, data: b"x", at_end, clears_set_id: false };
        client.held.carry_out(&write).expect_err("another one has the lock");
        assert_eq!(client.held.server.state().changes, 0);
        assert_eq!(errno(client.held.check(60)), Some(Errno::IO));
    }
}

#[test]
fn a_lost_lock_counts_until_its_owner_gives_it_up() {
    let range = |start, end, kind| LockRange { start, end, kind };
    let mut client = without_its_lock(true);
    client.look();
    client.lock(60, range(0, 49, LockKind::Unlock));
    assert_eq!(errno(client.held.check(60)), Some(Errno::IO), "a part of it is left");
    client.lock(60, range(50, u64::MAX, LockKind::Unlock));
    client.held.check(60).expect("it has given up");

    let mut client = without_its_lock(true);
    client.look();
    client.lock(60, range(0, 99, LockKind::Write));
    assert_eq!(errno(client.held.check(60)), Some(Errno::IO), "the other one has it still");
    client.held.server.state().has_locked_all = false;
    client.lock(60, range(0, 99, LockKind::Write));
    client.held.check(60).expect("it has its lock");

    let mut client = without_its_lock(true);
    client.look();
    client.close(60, true);
    client.held.check(60).expect("it was closed");
}

#[test]
fn who_closes_what_is_not_locked_waits_for_no_server() {
    let client = without_its_lock(true);
    let requests = || client.held.server.state().requests;
    let before = requests();
    client.held.check_to_close(61).expect("nobody has heard of anything");
    assert_eq!(requests(), before);
    assert_eq!(errno(client.held.check_to_close(60)), Some(Errno::IO), "it was locked");
    assert_ne!(requests(), before);
    let client = forgotten();
    client.held.server.state().gone.insert(60);
    client.look();
    assert_eq!(errno(client.held.check_to_close(60)), Some(Errno::STALE), "that is known");
}

#[test]
fn a_file_whose_bytes_the_server_takes_to_be_elsewhere_cannot_be_used() {
    for (moves, opens_again) in [(true, false), (false, false), (true, true)] {
        let mut client = Client::new(Fated::default());
        let small = |client: &Client| client.held.server.state().small.insert(60);
        if moves {
            small(&client);
        }
        client.open(60, true);
        if moves {
            let (size, content, object_modified_ns) = (3, &b"abc"[..], 1);
            let move_out = Request::MoveOut { number: 60, size, content, object_modified_ns };
            client.held.carry_out(&move_out).expect("it answers");
        }
        // It loses that with the power, and all who have the file open.
        small(&client);
        client.held.server.state().end();
        client.look();
        assert_eq!(errno(client.held.check(60)), Some(Errno::STALE), "{moves}");
        if opens_again {
            client.close(60, true);
            client.open(60, true);
            client.held.check(60).expect("it was closed");
            client.held.server.state().end();
            client.look();
            client.held.check(60).expect("it is as it was when it was opened");
        }
    }
}

#[test]
fn a_file_that_is_gone_when_it_is_told_cannot_be_used() {
    let mut client = forgotten();
    client.held.server.state().gone.insert(60);
    assert_eq!(errno(client.held.check(60)), Some(Errno::STALE));
    client.held.check(REFUSED).expect("it is there");
    client.look();
    assert_eq!(errno(client.held.check(60)), Some(Errno::STALE));
    client.held.server.state().gone.clear();
    client.open.insert(60, [1, 0]);
    let mut state = client.held.server.state();
    state.open.entry(60).or_default()[0] += 1;
    drop(state);
    client.close(60, false);
    client.held.check(60).expect("it was closed");
}
