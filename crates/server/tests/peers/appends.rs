// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects over several servers that are slow: all that is asked for one operation, one after the
//! other, takes one deadline.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use terrace_backends::kv;
use terrace_backends::object::{Effect, FaultPoint, Faults, Faulty, Memory, When};
use terrace_client::striped::{Distribution, Map, Member, Striped};
use terrace_client::{Address, Options, Remote};
use terrace_core::{
    Applied, Backend, Clock, ErrorKind, Key, Kv, Object, ObjectExt, Open, Persistency, Result,
    Semantics, Ticket,
};
use terrace_server::{Limits, Server};
use terrace_testkit::{Body, KvLayer, Layered};

use crate::common::{Plain, eventually, options, serve};

/// Of each server; an eighth is kept for giving a place back.
const DEADLINE: Duration = Duration::from_secs(80);

/// It stands still, but while somebody waits in vain: then each look takes some seconds.
#[derive(Debug, Default)]
struct Standing {
    now_ns: AtomicU64,
    is_running: AtomicBool,
}

const LOOK: Duration = Duration::from_secs(4);

/// One thread is in the middle of a look, and others wait for the answer.
const SLACK: Duration = Duration::from_secs(4 * LOOK.as_secs());

impl Standing {
    fn advance(&self, duration: Duration) {
        self.now_ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }

    fn run(&self, is_running: bool) {
        self.is_running.store(is_running, Ordering::SeqCst);
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::SeqCst))
    }
}

impl Clock for Standing {
    fn now_ns(&self) -> u64 {
        if self.is_running.load(Ordering::SeqCst) {
            self.advance(LOOK);
        }
        self.now_ns.load(Ordering::SeqCst)
    }

    fn wall_ns(&self) -> u64 {
        self.now_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        std::thread::yield_now();
    }
}

/// Pairs whose transactions take their time.
struct Slow {
    inner: kv::Memory,
    clock: Arc<Standing>,
    /// What the next transactions take, in seconds; `None` does not end until it is let.
    takes_s: Mutex<VecDeque<Option<u64>>>,
    is_held: Mutex<bool>,
    let_go: Condvar,
}

impl Slow {
    fn take(&self, seconds: &[Option<u64>]) {
        *self.takes_s.lock().expect("no panic") = seconds.iter().copied().collect();
        *self.is_held.lock().expect("no panic") = true;
    }

    fn release(&self) {
        *self.is_held.lock().expect("no panic") = false;
        self.let_go.notify_all();
    }
}

impl KvLayer for Slow {
    fn inner(&self) -> &dyn Kv {
        &self.inner
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        let takes_s = self.takes_s.lock().expect("no panic").pop_front();
        match takes_s {
            Some(Some(seconds)) => self.clock.advance(Duration::from_secs(seconds)),
            Some(None) => {
                self.clock.run(true);
                let is_held = self.is_held.lock().expect("no panic");
                drop(self.let_go.wait_while(is_held, |is_held| *is_held).expect("no panic"));
            }
            None => {}
        }
        self.inner.transact(body)
    }
}

/// An object of 30 bytes over two servers.
struct Cluster {
    clock: Arc<Standing>,
    pairs: Arc<Layered<Slow>>,
    faults: Arc<Faults>,
    object: Box<dyn Object>,
    _servers: Vec<Server>,
}

const LENGTH: u64 = 30;

impl Cluster {
    fn new() -> Self {
        let clock = Arc::new(Standing::default());
        let pairs = Arc::new(Layered(Slow {
            inner: kv::Memory::default(),
            clock: Arc::clone(&clock),
            takes_s: Mutex::default(),
            is_held: Mutex::default(),
            let_go: Condvar::new(),
        }));
        let faults = Faults::new(1);
        let mut servers = Vec::new();
        let members = [1, 2].map(|id| {
            let memory = Arc::new(Memory::new(1 << 20));
            let backend = Arc::new(Faulty::new(memory, Arc::clone(&faults)));
            let kv = Arc::clone(&pairs) as Arc<dyn Kv>;
            let (server, endpoint) = serve(Arc::new(Plain { backend, kv }), Limits::default());
            servers.push(server);
            let options = Options { deadline: DEADLINE, ..options() };
            let clock = Arc::clone(&clock) as Arc<dyn Clock>;
            let address = Address { endpoint, clock: Arc::clone(&clock) };
            let remote = Remote::connect(Box::new(address), options, clock).expect("connect");
            let kv = Some(Arc::new(remote.kv("appends")) as Arc<dyn Kv>);
            let (backend, name) = (Arc::new(remote), format!("server-{id}"));
            Member { id, name, backend, kv, weight: 1, since: 0 }
        });
        let map = Map::new(0, members.to_vec()).expect("legal");
        let even = Distribution::RoundRobin { stripe_bytes: 4096 };
        let store = Striped::new(map, even, 1).expect("legal");
        let semantics = Semantics::at_level(Persistency::None);
        let key = Key::new("appends", "object").expect("legal");
        let object = store.open(&key, &Open::create_new().with_semantics(semantics));
        let object = object.expect("open");
        object.write(0, &[1; LENGTH as usize]).expect("write");
        Self { clock, pairs, faults, object, _servers: servers }
    }

    /// What an append says, and how long it takes.
    fn append(&self) -> (Result<u64>, Duration) {
        let before = self.clock.elapsed();
        let appended = self.object.append(&[IoSlice::new(b"more")]);
        self.clock.run(false);
        (appended, self.clock.elapsed() - before)
    }

    /// What was done from the beginning on met a server that does not answer.
    #[track_caller]
    fn assert_over<T: std::fmt::Debug>(&self, done: Result<T>, applied: Applied) {
        self.clock.run(false);
        let took = self.clock.elapsed();
        self.faults.clear();
        self.faults.release();
        assert_eq!(is_unreachable(done), applied);
        assert!(took <= DEADLINE + SLACK, "{took:?}");
    }

    #[track_caller]
    fn assert_next_goes_to_the_end(&self) {
        assert_eq!(self.append().0.expect("all is well again"), LENGTH);
    }
}

fn is_unreachable<T: std::fmt::Debug>(done: Result<T>) -> Applied {
    let error = done.expect_err("it takes too long");
    match error.kind() {
        ErrorKind::Unreachable { applied } => applied,
        _ => panic!("{}", error.chain()),
    }
}

#[test]
fn a_write_has_what_finding_the_place_has_left() {
    let cluster = Cluster::new();
    cluster.pairs.take(&[Some(0), Some(40)]);
    cluster.faults.add(&[FaultPoint::Write], When::Always, Effect::Hang);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cluster.faults.wait_hanging(1);
            cluster.clock.run(true);
        });
        let (appended, took) = cluster.append();
        assert_eq!(is_unreachable(appended), Applied::Unknown);
        assert!(took <= DEADLINE * 7 / 8 + SLACK, "{took:?}");
        cluster.faults.clear();
        cluster.faults.release();
    });
}

#[test]
fn a_place_is_given_back_in_what_is_left_or_with_the_next_append() {
    let cluster = Cluster::new();
    cluster.pairs.take(&[Some(0), Some(40), Some(0), None]);
    cluster.faults.add(&[FaultPoint::Write], When::Nth(1), Effect::Fail(ErrorKind::Io));
    let (appended, took) = cluster.append();
    assert_eq!(appended.expect_err("it is not written").kind(), ErrorKind::Io);
    assert!(took <= DEADLINE + SLACK, "{took:?}");
    cluster.pairs.release();
    cluster.assert_next_goes_to_the_end();
}

#[test]
fn nothing_is_written_where_finding_the_place_took_too_long() {
    let cluster = Cluster::new();
    cluster.pairs.take(&[Some(0), Some(75)]);
    let (appended, took) = cluster.append();
    assert_eq!(is_unreachable(appended), Applied::No);
    assert!(took <= DEADLINE, "{took:?}");
    assert_eq!(cluster.object.stat().expect("stat").size_bytes, LENGTH);
    cluster.assert_next_goes_to_the_end();
}

#[test]
fn a_read_that_asks_where_the_end_is_takes_one_deadline() {
    let cluster = Cluster::new();
    let (clock, faults) = (&cluster.clock, &cluster.faults);
    faults.add(&[FaultPoint::Read], When::Nth(1), Effect::Hang);
    // Both servers are asked, and one of them does not answer.
    faults.add(&[FaultPoint::Stat], When::Nth(1), Effect::Hang);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            faults.wait_hanging(1);
            clock.advance(DEADLINE / 2);
            faults.release();
            eventually("the end is asked for", || faults.injected() == 2);
            clock.run(true);
        });
        let read = cluster.object.read_at(0, &mut [IoSliceMut::new(&mut [0; 100])]);
        cluster.assert_over(read, Applied::No);
    });
}

#[test]
fn a_cut_takes_one_deadline() {
    let cluster = Cluster::new();
    // Where the next one goes is to be forgotten.
    cluster.assert_next_goes_to_the_end();
    cluster.pairs.take(&[Some(40)]);
    cluster.faults.add(&[FaultPoint::Resize], When::Always, Effect::Hang);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cluster.faults.wait_hanging(1);
            cluster.clock.run(true);
        });
        cluster.assert_over(cluster.object.set_len(10), Applied::Unknown);
    });
}
