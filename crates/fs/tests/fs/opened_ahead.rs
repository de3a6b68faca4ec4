// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small files that are opened before anybody wants to read them.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::object::Memory;
use terrace_core::{Access, Backend, Clock, SystemClock};
use terrace_fs::{
    Changes, Files, Kind, Made, Metadata, Node, ROOT, RenameHow, Reply, Request, Session,
};
use terrace_testkit::ManualClock;

use crate::common::{files, files_with};

/// More than are opened ahead with one request.
const FILES: usize = 300;

/// Nothing that is waited for takes nearly as long.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// Longer than anything is kept that nobody wants, and than nothing is opened ahead after a change.
const LONG: Duration = Duration::from_secs(3);

/// The clock of who opens ahead; it stands still while they sleep: how fast they are makes no difference.
#[derive(Debug)]
struct ReaderClock(Arc<ManualClock>);

impl Clock for ReaderClock {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn wall_ns(&self) -> u64 {
        self.0.wall_ns()
    }

    fn sleep(&self, _: Duration) {
        SystemClock::default().sleep(Duration::from_millis(1));
    }
}

/// Metadata of one user, which remembers what it was told of nodes, and counts.
struct Client {
    session: Session,
    state: Mutex<State>,
    changed: Condvar,
    clock: Arc<ManualClock>,
    /// Whether the server knows of files that are opened ahead.
    is_known: bool,
}

#[derive(Default)]
struct State {
    nodes: HashMap<u64, Node>,
    /// Files that were listed together.
    neighbours: Vec<u64>,
    /// What each of them takes of a request.
    bytes_each: u64,
    /// How often each is open at the server.
    open: HashMap<u64, i64>,
    asked: Asked,
    /// How long an answer takes of those to open ahead, and to prolong that.
    way: Duration,
    /// Carried out once after the next answer to a request to open ahead.
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
}

/// How many requests of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    opens: usize,
    ahead: usize,
    content: usize,
}

impl Client {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }

    fn asked(&self) -> Asked {
        self.state().asked
    }

    fn count(&self, request: &Request<'_>, reply: &Reply) {
        let mut state = self.state();
        match (request, reply) {
            (Request::Open { number, .. }, _) => {
                state.asked.opens += 1;
                *state.open.entry(*number).or_default() += 1;
            }
            (Request::OpenAhead { .. }, Reply::OpenedAhead(opened)) => {
                state.asked.ahead += 1;
                for one in opened {
                    *state.open.entry(one.node.number).or_default() += 1;
                }
            }
            (Request::Content { .. }, _) => state.asked.content += 1,
            (Request::Close { closed, .. }, _) => {
                for one in closed {
                    *state.open.entry(one.number).or_default() -= 1;
                }
            }
            (_, Reply::Made { node, .. }) => _ = state.open.insert(node.number, 1),
            _ => {}
        }
        state.open.retain(|_, count| *count != 0);
        self.changed.notify_all();
    }

    /// Waits until as often as that each file is open at the server.
    fn wait_until_open(&self, is_so: impl Fn(&HashMap<u64, i64>) -> bool) {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.state(), WAIT_TIME_MAX, |state| !is_so(&state.open))
            .expect("nobody panicked");
        assert!(is_so(&state.open), "{:?}", state.open);
    }

    /// Takes note of what a request may change, and of what was told of nodes.
    fn note(&self, request: &Request<'_>, reply: Option<&Reply>) {
        let mut state = self.state();
        match request {
            Request::Change { number, .. } | Request::Write { number, .. } => {
                state.nodes.remove(number);
            }
            _ => {}
        }
        match reply {
            Some(Reply::Node(node) | Reply::Opened { node, .. } | Reply::Made { node, .. }) => {
                state.nodes.insert(node.number, node.clone());
            }
            Some(Reply::OpenedAhead(opened)) => {
                state.nodes.extend(opened.iter().map(|it| (it.node.number, it.node.clone())));
            }
            _ => {}
        }
    }
}

impl Metadata for Client {
    fn call(&self, request: &Request<'_>) -> terrace_fs::Result<Reply> {
        if matches!(request, Request::OpenAhead { .. }) && !self.is_known {
            self.state().asked.ahead += 1;
            return Err(Errno::INVAL.into());
        }
        self.note(request, None);
        let reply = self.session.call(request)?;
        if matches!(request, Request::OpenAhead { .. } | Request::RenewAhead { .. }) {
            self.clock.advance(self.state().way);
        }
        self.note(request, Some(&reply));
        self.count(request, &reply);
        if let Reply::OpenedAhead(_) = &reply
            && let Some(meanwhile) = { self.state().meanwhile.take() }
        {
            meanwhile();
        }
        Ok(reply)
    }

    fn recent(&self, number: u64, _: Duration) -> Option<(Node, Duration)> {
        self.state().nodes.get(&number).map(|node| (node.clone(), Duration::ZERO))
    }

    fn neighbours(&self, number: u64, max: usize, bytes_max: u64) -> Vec<u64> {
        let mut state = self.state();
        let max =
            bytes_max.checked_div(state.bytes_each).map_or(max, |count| max.min(count as usize));
        let neighbours = &mut state.neighbours;
        let others = neighbours.drain(..(max - 1).min(neighbours.len()));
        let mut taken: Vec<_> = others.filter(|other| *other != number).collect();
        if !taken.is_empty() {
            taken.push(number);
        }
        taken
    }
}

/// Two users of one file system; small files with their numbers in them.
struct Scene {
    clock: Arc<ManualClock>,
    client: Arc<Client>,
    one: Arc<Files>,
    other: Arc<Files>,
    numbers: Vec<u64>,
}

impl Scene {
    fn new(is_known: bool) -> Self {
        Self::of(FILES, is_known)
    }

    fn of(count: usize, is_known: bool) -> Self {
        let clock = Arc::new(ManualClock::new());
        let tree = crate::common::tree(Arc::<ManualClock>::clone(&clock));
        let readers = Arc::new(ReaderClock(Arc::clone(&clock)));
        let data: Arc<dyn Backend> = Arc::new(Memory::new(1 << 20));
        let session = Session::new(&tree);
        let client = Arc::new(Client {
            session,
            state: Mutex::default(),
            changed: Condvar::new(),
            clock: Arc::clone(&clock),
            is_known,
        });
        let one = files_with(Arc::<Client>::clone(&client), &data, false, readers);
        let [maker, other] = [(); 2].map(|()| files(Arc::new(Session::new(&tree)), &data, false));
        let numbers = (0..count).map(|number| make(&maker, number)).collect();
        // By then the server knows that they are closed.
        maker.close().expect("everything can be told");
        Self { clock, client, one, other, numbers }
    }

    /// Reads all files until all are open ahead.
    fn read_all(&self) {
        self.list();
        for (number, file) in self.numbers.iter().enumerate() {
            assert_eq!(read(&self.one, *file), number.to_string().as_bytes());
        }
    }

    /// Waits until nothing is open at the server.
    fn wait_until_closed(&self) {
        self.clock.advance(LONG);
        self.client.wait_until_open(HashMap::is_empty);
    }

    fn list(&self) {
        self.client.state().neighbours.clone_from(&self.numbers);
    }
}

fn make(files: &Arc<Files>, number: usize) -> u64 {
    let name = number.to_string();
    let made = Made { kind: Kind::File, permissions: 0o644, ..Made::default() };
    let made = files.create(ROOT, name.as_bytes(), made, false);
    let (node, file) = made.expect("it is new");
    file.write(0, name.as_bytes(), false).expect("there is room");
    file.close().expect("it is open");
    node.number
}

fn read(files: &Arc<Files>, number: u64) -> Vec<u8> {
    let (_, file) = files.open(number, Access::Read).expect("it is there");
    // Longer than any, also than one that grows meanwhile.
    let mut bytes = vec![0; 20_000];
    let length = file.read(0, &mut bytes).expect("readable");
    bytes.truncate(length);
    file.close().expect("it is open");
    bytes
}

fn write(files: &Arc<Files>, number: u64, bytes: &[u8]) {
    let (_, file) = files.open(number, Access::Write).expect("it is there");
    file.write(0, bytes, false).expect("there is room");
    file.close().expect("it is open");
}

#[test]
fn what_is_opened_ahead_is_not_asked_for() {
    let scene = Scene::new(true);
    scene.read_all();
    let Asked { opens, ahead, content } = scene.client.asked();
    assert!(opens < 20 && ahead < 5 && content == 0, "{:?}", scene.client.asked());
}

#[test]
fn who_reads_in_another_order_has_as_many_opened_ahead_as_there_is_room_for() {
    let scene = Scene::of(2000, true);
    scene.client.state().bytes_each = 1 << 10;
    scene.list();
    // All over the listing, each once.
    for number in (0..2000).map(|step| step * 707 % 2000) {
        let found = read(&scene.one, scene.numbers[number]);
        assert_eq!(found, number.to_string().as_bytes());
    }
    let Asked { opens, content, .. } = scene.client.asked();
    assert!(opens < 20 && content == 0, "{:?}", scene.client.asked());
    scene.wait_until_closed();
}

#[test]
fn what_was_not_used_for_long_makes_room_for_others() {
    let scene = Scene::of(2400, true);
    scene.list();
    // From the other end than they are opened ahead, until there is room for no more.
    let (unused, mut read_next) = (&scene.numbers[..2000], scene.numbers[2000..].iter().rev());
    let mut read_some =
        || read_next.by_ref().take(150).for_each(|file| drop(read(&scene.one, *file)));
    read_some();
    let full = scene.client.asked();
    read_some();
    assert_eq!(scene.client.asked().ahead, full.ahead, "there is no room");
    // One at a time is wanted, so that none is closed for that.
    for file in &unused[..4] {
        scene.clock.advance(LONG / 6);
        read(&scene.one, *file);
    }
    scene.list();
    read_some();
    assert!(scene.client.asked().ahead > full.ahead, "{full:?}, {:?}", scene.client.asked());
    scene.wait_until_closed();
}

#[test]
fn all_that_was_opened_ahead_is_closed_when_nobody_wants_it() {
    let scene = Scene::new(true);
    scene.list();
    // Few of them are wanted at all.
    for file in &scene.numbers[..10] {
        read(&scene.one, *file);
    }
    assert!(scene.client.asked().ahead > 0);
    assert!(scene.client.state().open.len() > 10);
    scene.wait_until_closed();
    // What was closed is opened as ever, and all of it once more at the end.
    scene.read_all();
    scene.one.close().expect("everything can be told");
    scene.wait_until_closed();
}

#[test]
fn what_others_did_is_seen_once_they_were_told_that_it_is_done() {
    let scene = Scene::new(true);
    scene.read_all();
    write(&scene.other, scene.numbers[100], b"written");
    assert_eq!(read(&scene.one, scene.numbers[100]), b"written");
    scene.other.remove(ROOT, b"101", false).expect("it is there");
    let (from, to) = ((ROOT, &b"110"[..]), (ROOT, &b"111"[..]));
    scene.other.rename(from, to, RenameHow::default(), (0, 0)).expect("both are there");
    let gone = scene.one.open(scene.numbers[111], Access::Read).err().expect("it was replaced");
    assert_eq!(gone.errno(), Errno::STALE);
    let gone = scene.one.open(scene.numbers[101], Access::Read).err().expect("it is gone");
    assert_eq!(gone.errno(), Errno::STALE);
    let cut = Changes { size: Some(1), ..Changes::default() };
    scene.other.change(scene.numbers[102], cut).expect("it is there");
    assert_eq!(read(&scene.one, scene.numbers[102]), b"1");
    // Those that nobody changed are as they were.
    assert_eq!(read(&scene.one, scene.numbers[103]), b"103");
}

#[test]
fn what_is_open_stays_when_it_is_removed() {
    let scene = Scene::new(true);
    scene.read_all();
    let asked = scene.client.asked();
    let (_, file) = scene.one.open(scene.numbers[200], Access::Read).expect("it is there");
    assert_eq!(scene.client.asked(), asked, "it was opened ahead");
    scene.other.remove(ROOT, b"200", false).expect("it is there");
    let mut bytes = [0; 9];
    assert_eq!(file.read(0, &mut bytes).expect("it is open"), 3);
    assert_eq!(scene.one.node(scene.numbers[200]).expect("it is open").links, 0);
    file.close().expect("it is open");
    scene.wait_until_closed();
    let gone = scene.one.node(scene.numbers[200]).expect_err("it went with the last close");
    assert_eq!(gone.errno(), Errno::STALE);
}

#[test]
fn what_is_changed_here_is_as_it_was_changed() {
    let scene = Scene::new(true);
    scene.read_all();
    let [written, cut, removed, changed] = [100, 101, 102, 103].map(|at: usize| scene.numbers[at]);
    write(&scene.one, written, b"written");
    assert_eq!(read(&scene.one, written), b"written");
    let how = Changes { size: Some(2), ..Changes::default() };
    scene.one.change(cut, how).expect("it is there");
    assert_eq!(read(&scene.one, cut), b"10");
    scene.one.remove(ROOT, b"102", false).expect("it is there");
    // Until the server is told that it is closed it may be there; who looks does not keep it.
    scene.wait_until_closed();
    let gone = scene.one.open(removed, Access::Read).err().expect("it is gone");
    assert_eq!(gone.errno(), Errno::STALE);
    let how = Changes { permissions: Some(0o600), ..Changes::default() };
    scene.one.change(changed, how).expect("it is there");
    let (node, _) = scene.one.open(changed, Access::Read).expect("it is there");
    assert_eq!(node.permissions, 0o600);
}

#[test]
fn what_is_opened_for_writing_is_open_ahead_no_more() {
    let scene = Scene::new(true);
    scene.read_all();
    let number = scene.numbers[200];
    scene.client.wait_until_open(|open| open.get(&number) == Some(&1));
    let (_, file) = scene.one.open(number, Access::Write).expect("it is there");
    scene.client.wait_until_open(|open| open.get(&number) == Some(&1));
    assert!(scene.client.asked().ahead > 0 && scene.client.state().open.len() > 100);
    file.close().expect("it is open");
    scene.wait_until_closed();
}

#[test]
fn what_changes_here_beside_the_answer_is_not_believed() {
    let scene = Scene::new(true);
    scene.list();
    let (one, written, looked_at) = (Arc::clone(&scene.one), scene.numbers[30], scene.numbers[31]);
    let meanwhile: Box<dyn FnOnce() + Send> = Box::new(move || {
        write(&one, written, b"written");
        write(&one, looked_at, b"written");
        // So what it is now is known.
        one.node(looked_at).expect("it is there");
    });
    scene.client.state().meanwhile = Some(meanwhile);
    for file in &scene.numbers[..10] {
        read(&scene.one, *file);
    }
    assert!(scene.client.state().meanwhile.is_none(), "it was opened ahead");
    assert_eq!(read(&scene.one, written), b"written");
    assert_eq!(read(&scene.one, looked_at), b"written");
    assert_eq!(scene.client.asked().content, 0, "what came before was not kept");
    scene.wait_until_closed();
}

#[test]
fn a_server_that_does_not_know_it_is_not_asked_again() {
    let scene = Scene::new(false);
    for _ in 0..2 {
        scene.read_all();
    }
    assert_eq!(scene.client.asked().ahead, 1);
    scene.wait_until_closed();
}

#[test]
fn where_answers_come_too_late_it_is_tried_less_and_less() {
    // The second is in time, but leaves none to use it.
    for way in [50, 18].map(Duration::from_millis) {
        let scene = Scene::new(true);
        let read_some_on_a_way_of = |way: Duration| {
            scene.wait_until_closed();
            scene.client.state().way = way;
            scene.list();
            scene.numbers[..10].iter().for_each(|file| drop(read(&scene.one, *file)));
            scene.client.asked().ahead
        };
        (0..40).for_each(|_| _ = read_some_on_a_way_of(way));
        let tried = scene.client.asked().ahead;
        assert!((4..16).contains(&tried), "{tried} times in 2 minutes on a way of {way:?}");
        // Where it was of use again the next one that is late counts as the first.
        scene.clock.advance(LONG * 100);
        let short = Duration::from_millis(1);
        for (more, way) in [short, way, short, way, short].into_iter().enumerate() {
            assert_eq!(read_some_on_a_way_of(way), tried + more + 1, "{way:?}");
        }
    }
}

#[test]
fn what_outgrew_the_metadata_is_asked_for() {
    let scene = Scene::new(true);
    scene.read_all();
    let number = scene.numbers[100];
    let grown = Changes { size: Some(10_000), ..Changes::default() };
    scene.one.change(number, grown).expect("there is room");
    // From now on others change its object, of which the metadata hear nothing.
    let (_, file) = scene.other.open(number, Access::Write).expect("it is there");
    file.write(0, b"written", false).expect("there is room");
    file.close().expect("it is open");
    let found = read(&scene.one, number);
    assert_eq!((found.len(), &found[..7]), (10_000, &b"written"[..]));
    let cut = Changes { size: Some(5), ..Changes::default() };
    scene.other.change(number, cut).expect("it is there");
    assert_eq!(read(&scene.one, number), b"writt");
}

#[test]
fn many_threads_open_and_change_at_the_same_time() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 20;
    let scene = Scene::new(true);
    // Each file has its number in it, again and again: as often as it was written.
    let text = |number: usize, times: usize| number.to_string().repeat(times).into_bytes();
    for round in 0..ROUNDS {
        scene.wait_until_closed();
        let asked = scene.client.asked();
        // At the first time it may be heard that all have ended that the round before opened ahead.
        for _ in 0..2 {
            if scene.client.asked().ahead == asked.ahead {
                scene.clock.advance(LONG);
                scene.list();
                scene.numbers[..10].iter().for_each(|file| drop(read(&scene.one, *file)));
            }
        }
        assert!(scene.client.asked().ahead > asked.ahead, "in round {round}");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let scene = &scene;
                scope.spawn(move || {
                    scene.list();
                    for step in 0..FILES {
                        scene.clock.advance(Duration::from_micros(100));
                        let at = (step * 7 + thread * 50) % FILES;
                        let (user, written) = match (at % 10, at % THREADS == thread) {
                            (0, true) => (&scene.one, true),
                            (1, true) => (&scene.other, true),
                            _ => (&scene.one, false),
                        };
                        if written {
                            write(user, scene.numbers[at], &text(at, round + 2));
                        }
                        let found = read(&scene.one, scene.numbers[at]);
                        let expected = [text(at, round + 1), text(at, round + 2), text(at, 1)];
                        match written {
                            true => assert_eq!(found, expected[1], "{at} in round {round}"),
                            false => assert!(expected.contains(&found), "{at}: {found:?}"),
                        }
                    }
                });
            }
        });
    }
    scene.wait_until_closed();
}
