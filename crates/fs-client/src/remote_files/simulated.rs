// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three clients of one file system over a simulated network that delays, loses and repeats messages,
//! breaks connections and restarts the server, by seeds: `TERRACE_SEED` and `TERRACE_SEEDS` choose them.
//!
//! The clients, their caches and the server are those of a mount, up to the kernel. What each client sees of
//! the names of one directory must be linearizable. The faults follow from the seed. Their interleaving does
//! not, because clients and server are threads and leases pass in real time: a seed that failed may pass again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use terrace_backends::object::Memory;
use terrace_client::{Options, Remote};
use terrace_core::{Backend, Error, ErrorKind, Kv, Random, SystemClock};
use terrace_fs::{
    Closed, FileClock, Kind, Left, Made, Metadata, ROOT, Reply, Request, Session, Tree, TreeOptions,
};
use terrace_server::{Call, Called, Caller, Kept, Limits, Openings, Server, Service};
use terrace_testkit::history::{Action, Answer, Event, is_linearizable};
use terrace_testkit::{SimKv, SimWorld, seeds};
use terrace_wire::Secret;

use super::RemoteFiles;
use crate::in_use::InUse;

#[path = "../../../server/tests/simulated/net.rs"]
mod net;
#[path = "../../../server/tests/simulated/pipe.rs"]
mod pipe;

use net::{Faults, Net, Wire};

const CLIENTS: u64 = 3;
const STEPS: u64 = 24;
const NAMES: usize = 8;
const FILES: &str = "files";

const FAULTS: Faults =
    Faults { delay: 0.05, drop: 0.004, cut: 0.02, duplicate: 0.04, refuse: 0.02, renumber: false };

/// One process that serves the file system.
struct Serving {
    backend: Memory,
    kv: Arc<dyn Kv>,
    tree: Arc<Tree>,
    openings: Openings,
    is_ending: Arc<AtomicBool>,
}

/// What a client has open stays open when the server ends, as that of a store has it.
struct Client {
    session: Session,
    is_ending: Arc<AtomicBool>,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.is_ending.load(Ordering::Acquire) {
            self.session.leave_open();
        }
    }
}

impl Service for Serving {
    fn store_id(&self) -> u128 {
        7
    }

    fn openings(&self) -> Openings {
        self.openings
    }

    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn kv(&self, _: &str) -> terrace_core::Result<Arc<dyn Kv>> {
        Ok(Arc::clone(&self.kv))
    }

    fn files(&self, name: &str, kept: &Kept, request: &[u8]) -> terrace_core::Result<Vec<u8>> {
        let client = kept.get_or_make(name, || {
            Ok(Client { session: Session::new(&self.tree), is_ending: Arc::clone(&self.is_ending) })
        })?;
        terrace_fs::answer(&client.session, request)
    }

    fn ends(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    fn call(&self, _: &Call<'_>, _: &mut dyn Caller) -> terrace_core::Result<Called> {
        Err(Error::new(ErrorKind::Unsupported, "call").because("there is no such call"))
    }
}

fn secret() -> Secret {
    Secret::new(b"a secret of the tests").expect("long enough")
}

/// The server's process number `opening` over pairs that outlive it.
fn server(pairs: &SimKv, opening: u128) -> Server {
    let clock = Arc::new(SystemClock::default());
    let tree = Tree::open(pairs.open(), FileClock::new(clock.clone())).expect("it is there");
    tree.await_claims(Duration::from_secs(90));
    tree.hand_on_garbage().expect("there is none");
    let serving = Serving {
        backend: Memory::new(1 << 20),
        kv: pairs.open(),
        tree,
        openings: Openings { this: opening, before: 0 },
        is_ending: Arc::default(),
    };
    Server::new(Arc::new(serving), Some(secret()), Limits::default(), clock)
}

/// A client that tries until the server accepts it.
fn client(net: &Arc<Net>) -> Arc<RemoteFiles> {
    let deadline = Duration::from_secs(4);
    let connect_timeout = deadline / 2;
    let options =
        Options { secret: Some(secret()), deadline, connect_timeout, ..Options::default() };
    loop {
        let wire = Box::new(Wire(Arc::clone(net)));
        if let Ok(remote) = Remote::connect(wire, options.clone(), net.clock.clone()) {
            return RemoteFiles::new(remote, FILES, InUse::default().begin(FILES).expect("alone"));
        }
    }
}

/// What all clients did to the names of a directory, and what they were answered.
#[derive(Default)]
struct History {
    moment: AtomicU64,
    tag: AtomicU32,
    closes: AtomicU64,
    events: Mutex<Vec<(usize, Event)>>,
    /// A failure that no fault of the network explains.
    wrong: Mutex<Option<String>>,
    /// Whether the server was killed.
    is_killed: AtomicBool,
    /// Clients that have finished.
    finished: AtomicU64,
}

type Asked<T> = Result<T, Errno>;

impl History {
    fn now(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst)
    }

    fn add(&self, name: usize, start: u64, action: Action, asked: Asked<Answer>) {
        let answer = match asked {
            Ok(answer) => Some(answer),
            Err(Errno::HOSTUNREACH | Errno::BUSY) => None,
            // A server that is killed here still answers, that its device is gone.
            Err(Errno::IO) if self.is_killed.load(Ordering::SeqCst) => None,
            Err(other) => {
                let wrong = format!("{action:?} of {name} failed: {other}");
                self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
                None
            }
        };
        let event = Event { start, end: self.now(), action, answer };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push((name, event));
    }
}

/// Counts a client that has finished, also by a panic.
struct Finished<'a>(&'a AtomicU64);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The name with this number.
fn named(name: usize) -> [u8; 1] {
    [b'a' + name as u8]
}

/// One client, and how it uses the directory.
struct User<'a> {
    files: &'a RemoteFiles,
    directory: u64,
    history: &'a History,
}

impl User<'_> {
    fn call(&self, request: &Request<'_>) -> Asked<Reply> {
        self.files.call(request).map_err(|failure| failure.errno())
    }

    fn look_up(&self, name: usize) {
        let start = self.history.now();
        let bytes = named(name);
        let found = match self.call(&Request::Lookup { directory: self.directory, name: &bytes }) {
            Ok(Reply::Node(node)) => Ok(Answer::Found(node.user.into())),
            Ok(Reply::Nowhere) | Err(Errno::NOENT) => Ok(Answer::Missing),
            Err(errno) => Err(errno),
            other => panic!("{other:?}"),
        };
        self.history.add(name, start, Action::Read, found);
    }

    fn list(&self) {
        let start = self.history.now();
        let list =
            Request::List { directory: self.directory, after: 0, max: 100, with_nodes: true };
        let entries = match self.call(&list) {
            Ok(Reply::Listing(entries)) => Ok(entries),
            Err(errno) => Err(errno),
            other => panic!("{other:?}"),
        };
        for name in 0..NAMES {
            let found = entries.as_ref().map_err(|errno| *errno).map(|entries| {
                let entry = entries.iter().find(|entry| entry.name == named(name));
                entry.map_or(Answer::Missing, |entry| {
                    let node = entry.node.as_ref().expect("asked for");
                    Answer::Found(node.user.into())
                })
            });
            self.history.add(name, start, Action::Read, found);
        }
    }

    /// Creates a file and closes it, perhaps deferred: from then on all clients must see it.
    fn create(&self, name: usize, is_deferred: bool) {
        let tag = self.history.tag.fetch_add(1, Ordering::SeqCst) + 1;
        let start = self.history.now();
        let (bytes, is_opened) = (named(name), is_deferred);
        let made =
            Made { kind: Kind::File, permissions: 0o644, user: tag, is_opened, ..Made::default() };
        let request = Request::Make { directory: self.directory, name: &bytes, made };
        let deferred = if is_deferred { self.files.make_later(&request) } else { None };
        let made = match deferred.map_or_else(|| self.call(&request), Ok) {
            Ok(Reply::Made { node, .. }) if is_opened => self.close(node.number),
            Ok(Reply::Made { .. }) => Ok(()),
            Err(errno) => Err(errno),
            other => panic!("{other:?}"),
        };
        let answer = match made {
            Ok(()) => Ok(Answer::Done),
            Err(Errno::EXIST) => Ok(Answer::Exists),
            Err(errno) => Err(errno),
        };
        self.history.add(name, start, Action::Create(tag.into()), answer);
    }

    /// Closes a file. Errors: why it was not created.
    fn close(&self, number: u64) -> Asked<()> {
        let created = self.files.check_to_close(number).map_err(|failure| failure.errno());
        let closed = Closed { number, is_for_writing: true, left: Left::Untouched };
        let id = self.history.closes.fetch_add(1, Ordering::SeqCst) + 1;
        // The mount repeats it; here the file stays open until the session ends.
        let request =
            Request::Close { closed: vec![closed], read: Vec::new(), id, acknowledged: 0 };
        let _ = self.call(&request);
        match created {
            // It was there, and another client removed it while it was open.
            Err(Errno::STALE) => Ok(()),
            created => created,
        }
    }

    /// Removes names one after the other, perhaps deferred. They must be gone for all clients when the
    /// next request has returned.
    fn remove(&self, names: impl Iterator<Item = usize>, is_deferred: bool) {
        let mut removed = Vec::new();
        for name in names {
            let start = self.history.now();
            let (directory, bytes) = (self.directory, named(name));
            let remove = Request::Remove { directory, name: &bytes, is_directory: false };
            let deferred = match is_deferred {
                true => self.files.remove_later(directory, &bytes).map_err(|failed| failed.errno()),
                false => Ok(None),
            };
            let answer = match deferred.and_then(|gone| gone.map_or_else(|| self.call(&remove), Ok))
            {
                Ok(Reply::Gone { .. }) => Ok(Answer::Done),
                Err(Errno::NOENT) => Ok(Answer::Missing),
                Err(errno) => Err(errno),
                other => panic!("{other:?}"),
            };
            removed.push((name, start, answer));
        }
        let behind = self.call(&Request::Node { number: self.directory });
        let is_lost = self.files.take_loss(Some(self.directory));
        for (name, start, answer) in removed {
            let answer = match (&behind, answer) {
                (Err(errno), Ok(Answer::Done)) => Err(*errno),
                // The client reported that some of the names are still there.
                (Ok(_), Ok(Answer::Done)) if is_lost => Err(Errno::BUSY),
                (_, answer) => answer,
            };
            self.history.add(name, start, Action::Delete, answer);
        }
    }

    fn run(&self, mut random: Random) {
        let _finished = Finished(&self.history.finished);
        for _ in 0..STEPS {
            let name = random.below(NAMES as u64) as usize;
            let is_deferred = random.chance(0.7);
            match random.below(10) {
                0..=1 => self.create(name, is_deferred),
                2 => (0..NAMES).for_each(|name| self.create(name, is_deferred)),
                3 => self.remove(0..NAMES, is_deferred),
                4 => self.remove(std::iter::once(name), is_deferred),
                5 => self.list(),
                _ => self.look_up(name),
            }
        }
    }
}

/// Runs one random history.
fn run(seed: u64, faults: Faults, restarts: bool) -> Result<(), String> {
    let world = SimWorld::new();
    let pairs = world.kv();
    let clock = SystemClock::default();
    Tree::create(&*pairs.open(), &TreeOptions::default(), &clock, &[7; 32]).expect("it is new");
    let net = Net::new(server(&pairs, 1), faults, seed);
    let history = History::default();
    let clients: Vec<_> = (0..CLIENTS).map(|_| client(&net)).collect();
    // The first client has the lease on the directory.
    let made = Made { kind: Kind::Directory, permissions: 0o755, ..Made::default() };
    let make = Request::Make { directory: ROOT, name: b"shared", made };
    let directory = loop {
        let lookup = Request::Lookup { directory: ROOT, name: b"shared" };
        let made = clients[0].call(&make).or_else(|_| clients[0].call(&lookup));
        if let Ok(Reply::Made { node, .. } | Reply::Node(node)) = made {
            break node.number;
        }
    };
    std::thread::scope(|scope| {
        for (number, files) in clients.iter().enumerate() {
            let user = User { files, directory, history: &history };
            let random = Random::new(seed.wrapping_mul(CLIENTS) + number as u64);
            scope.spawn(move || user.run(random));
        }
        if restarts {
            let mut random = Random::new(!seed);
            let turns = random.below(NAMES as u64 * STEPS * CLIENTS);
            let is_over = || history.finished.load(Ordering::SeqCst) == CLIENTS;
            while history.moment.load(Ordering::SeqCst) < turns && !is_over() {
                std::thread::yield_now();
            }
            // What the process before still does is lost, as if it had been killed.
            history.is_killed.store(true, Ordering::SeqCst);
            world.crash_process();
            net.restart(server(&pairs, 2));
        }
    });
    if let Some(wrong) = history.wrong.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(wrong);
    }
    net.heal();
    let last = client(&net);
    User { files: &last, directory, history: &history }.list();
    let events = history.events.into_inner().unwrap_or_else(PoisonError::into_inner);
    for name in 0..NAMES {
        let of: Vec<_> =
            events.iter().filter(|(of, _)| *of == name).map(|(_, event)| *event).collect();
        if !is_linearizable(&of) {
            return Err(format!("no order explains what happened to {name}: {of:#?}"));
        }
    }
    Ok(())
}

#[test]
fn names_are_linearizable_on_a_slow_network() {
    let faults = Faults { delay: 0.1, ..Faults::default() };
    for seed in seeds(6) {
        run(seed, faults, false).unwrap_or_else(|wrong| panic!("TERRACE_SEED={seed}: {wrong}"));
    }
}

#[test]
fn names_are_linearizable_whatever_the_network_does() {
    for seed in seeds(6) {
        let restarts = seed % 2 == 1;
        run(seed, FAULTS, restarts).unwrap_or_else(|wrong| panic!("TERRACE_SEED={seed}: {wrong}"));
    }
}
