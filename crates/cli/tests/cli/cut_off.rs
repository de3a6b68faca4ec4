// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real server in a network of its own, whose cable is cut under load and mended.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use terrace_client::{Address, Options, Remote};
use terrace_core::{
    Atomicity, Backend, Clock, ErrorKind, Key, ObjectExt, Open, Random, Result, Semantics,
    SystemClock,
};
use terrace_testkit::history::{Action, Answer, is_linearizable};
use terrace_testkit::namespace::{Cable, FAR, far, has_own_network};
use terrace_testkit::once::{Counter, Log};
use terrace_testkit::registers::{Histories, Objects, Pairs, Registers};
use terrace_testkit::seeds;

use crate::scene::{Scene, signal};

const NAMES: u64 = 2;

/// Clients that give up.
const HASTY: u64 = 3;

/// What those allow, and the longest that a loaded machine may take on top.
const DEADLINE: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(20);

/// What is waited for comes earlier on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Events between two changes of the network.
const EVENTS: usize = 60;

/// Whole values are asked for.
const WHOLE: Semantics = Semantics { atomicity: Atomicity::Operation, ..Semantics::DEFAULT };

/// A server that is reached by a cable.
struct Server {
    child: Child,
    cable: Cable,
}

impl Server {
    fn start(scene: &Scene) -> Self {
        let store = scene.path("store").display().to_string();
        let mut command = far(env!("CARGO_BIN_EXE_terrace"));
        command.args(["--json", "--store", &store, "serve", "--no-secret", "--log-level", "off"]);
        command.args(["--listen", "0.0.0.0:7420"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        assert!(line.contains("\"ready\":true"), "{line:?}");
        let cable = Cable::to(child.id());
        Self { child, cable }
    }

    /// Asks it to stop; it must succeed.
    fn stop(mut self) {
        signal(&self.child, Signal::TERM);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed; otherwise it has ended. Its network goes with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(deadline: Duration) -> Remote {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let endpoint = format!("{FAR}:7420").parse().expect("an address");
    let options = Options { deadline, connect_timeout: deadline, ..Options::default() };
    let address = Address { endpoint, clock: Arc::clone(&clock) };
    Remote::connect(Box::new(address), options, clock).expect("it serves")
}

/// Sessions and open objects that the server knows of.
fn known(client: &Remote) -> (u64, u64) {
    let answer = client.call(b"{\"verb\":\"server-status\"}", &[], &mut |_, _| {});
    let answer = answer.unwrap_or_else(|error| panic!("{}", error.chain()));
    let status: serde_json::Value = serde_json::from_slice(&answer.json).expect("JSON");
    let number = |name: &str| status[name].as_u64().expect("a number");
    (number("sessions"), number("handles"))
}

pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let clock = SystemClock::default();
    while !is_so() {
        assert!(clock.now_ns() < PATIENCE.as_nanos() as u64, "in vain: {what}");
        std::thread::yield_now();
    }
}

/// How a client fared.
#[derive(Default)]
struct Fared {
    done: AtomicUsize,
    failed: AtomicUsize,
}

impl Fared {
    fn ended(&self) -> usize {
        self.done.load(Ordering::SeqCst) + self.failed.load(Ordering::SeqCst)
    }
}

/// Looks at how each operation ends, and when.
struct Watched<'a> {
    inner: &'a dyn Registers,
    fared: &'a Fared,
}

impl Registers for Watched<'_> {
    fn act(&self, name: u64, action: Action) -> Result<Answer> {
        let clock = SystemClock::default();
        let answered = self.inner.act(name, action);
        let took = Duration::from_nanos(clock.now_ns());
        match &answered {
            Ok(_) => _ = self.fared.done.fetch_add(1, Ordering::SeqCst),
            Err(error) => {
                assert!(took < DEADLINE + SLACK, "{took:?}: {}", error.chain());
                // Others may have been faster just before the end of its time.
                let is_late = error.kind() == ErrorKind::Busy && took >= DEADLINE;
                let is_right = matches!(error.kind(), ErrorKind::Unreachable { .. }) || is_late;
                assert!(is_right, "{}", error.chain());
                self.fared.failed.fetch_add(1, Ordering::SeqCst);
            }
        }
        answered
    }
}

/// What the threads of a run share.
#[derive(Default)]
struct Shared {
    objects: Histories,
    pairs: Histories,
    log: Log,
    counter: Counter,
    fared: [Fared; HASTY as usize],
    /// How many operations each of the hasty ones may have made by now: histories stay short.
    allowed: AtomicUsize,
    /// Changes of the patient one that were made.
    made: AtomicUsize,
    is_over: AtomicBool,
}

impl Shared {
    /// Allows each of the hasty ones some more operations.
    fn allow_more(&self) {
        let most = self.fared.iter().map(Fared::ended).max().expect("there are some");
        self.allowed.store(most + EVENTS / HASTY as usize, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Works as fast as it may, and fails where the server does not answer in time.
    fn hasty(&self, index: usize, mut random: Random) {
        let client = client(DEADLINE);
        let fared = &self.fared[index];
        let pairs = client.kv("pairs");
        let (objects, pairs) = (Objects(&client, WHOLE), Pairs(&pairs));
        let (objects, pairs) =
            (Watched { inner: &objects, fared }, Watched { inner: &pairs, fared });
        while !self.is_over() {
            if fared.ended() >= self.allowed.load(Ordering::SeqCst) {
                std::thread::yield_now();
            } else if random.chance(0.5) {
                self.objects.step(&objects, NAMES, &mut random);
            } else {
                self.pairs.step(&pairs, NAMES, &mut random);
            }
        }
    }

    /// Asks for one change after the other, and waits for each as long as it takes.
    fn patient(&self, client: &Remote, key: &Key) {
        let object = client.open(key, &Open::write().with_semantics(WHOLE)).expect("it is there");
        for number in 0_u64.. {
            assert!(self.log.append(&*object, number), "it waits for the answer");
            assert!(self.counter.increment(&client.kv("counter")), "it waits for the answer");
            self.made.fetch_add(1, Ordering::SeqCst);
            if self.is_over() {
                break;
            }
        }
    }
}

/// Lets the threads end also where the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_server_that_was_cut_off_loses_nothing_and_does_nothing_twice() {
    if !has_own_network("cut_off::a_server_that_was_cut_off_loses_nothing_and_does_nothing_twice") {
        return;
    }
    for seed in seeds(1) {
        let scene = Scene::new();
        let server = Server::start(&scene);
        let last = client(PATIENCE);
        let (log, kept) = (Key::new("cut", "log"), Key::new("cut", "kept"));
        let (log, kept) = (log.expect("legal"), kept.expect("legal"));
        drop(last.open(&log, &Open::create_new().with_semantics(WHOLE)).expect("room"));
        let held = last.open(&kept, &Open::create_new()).expect("room");
        held.write(0, b"before").expect("room");
        let shared = Shared::default();
        shared.allow_more();
        std::thread::scope(|scope| {
            let patient = client(PATIENCE);
            for index in 0..HASTY as usize {
                let (shared, random) = (&shared, Random::new(seed * HASTY + index as u64));
                scope.spawn(move || shared.hasty(index, random));
            }
            let (shared, log) = (&shared, &log);
            let _ending = Ending(&shared.is_over);
            scope.spawn(move || shared.patient(&patient, log));
            let failed = |index: usize| shared.fared[index].failed.load(Ordering::SeqCst);
            let done = |index: usize| shared.fared[index].done.load(Ordering::SeqCst);
            let all = || 0..HASTY as usize;
            let allowed = || shared.allowed.load(Ordering::SeqCst);
            eventually("they work", || all().all(|one| done(one) >= allowed()));
            let before = known(&last);
            assert_eq!(all().map(failed).sum::<usize>(), 0, "on a good network");

            server.cable.cut();
            shared.allow_more();
            // Longer than the deadline of each of them, more than once.
            eventually("they give up", || all().all(|one| failed(one) >= 1));
            let made = || shared.made.load(Ordering::SeqCst);
            let made_before = made();
            eventually("they give up again", || all().all(|one| failed(one) >= 2));
            assert_eq!(made(), made_before, "the cable is cut");

            server.cable.mend();
            shared.allow_more();
            eventually("what waited meanwhile is made", || made() > made_before);
            let were_done: Vec<_> = all().map(done).collect();
            shared.allow_more();
            // By themselves: the same clients, over a new connection or the old one.
            eventually("they work again", || all().all(|one| done(one) > were_done[one]));
            assert_eq!(known(&last), before, "sessions and open objects are kept");
            let kept = held.read_to_end().expect("the handle is good");
            assert_eq!(kept, b"before");
        });
        for name in 0..NAMES {
            for (what, histories, registers) in [
                ("object", &shared.objects, &Objects(&last, WHOLE) as &dyn Registers),
                ("pair", &shared.pairs, &Pairs(&last.kv("pairs")) as &dyn Registers),
            ] {
                histories.act(registers, name, Action::Read);
                let events = histories.of(name);
                let is_right = is_linearizable(&events);
                assert!(is_right, "TERRACE_SEED={seed}: {what} {name}: {events:#?}");
            }
        }
        let object = last.open(&log, &Open::read().with_semantics(WHOLE)).expect("it is there");
        let compared = shared.log.compare(&object.read_to_end().expect("reads"));
        let compared = compared.and_then(|()| shared.counter.compare(&last.kv("counter")));
        compared.unwrap_or_else(|wrong| panic!("TERRACE_SEED={seed}: {wrong}"));
        held.write(6, b" and after").expect("the handle is good");
        drop((object, held));
        eventually("nothing is left open", || known(&last).1 == 0);
        drop(last);
        server.stop();
        scene.ok(["fsck", "--verify"]);
        assert_eq!(scene.ok(["get", "cut/kept"]), "before and after");
    }
}
