// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real server under load: killed and started again, and with many clients that do nothing.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal};
use terrace_client::{Address, Options, Remote};
use terrace_core::{Atomicity, Backend, Clock, Error, Random, Semantics, SystemClock};
use terrace_testkit::history::{Action, is_linearizable};
use terrace_testkit::registers::{Histories, Objects, Pairs, Puts, Registers};
use terrace_testkit::seeds;

use crate::scene::{Scene, signal};

const THREADS: u64 = 3;
const NAMES: u64 = 2;
const KILLS: usize = 3;

/// Events between two kills.
const EVENTS: usize = 60;

/// Whole values are asked for.
const WHOLE: Semantics = Semantics { atomicity: Atomicity::Operation, ..Semantics::DEFAULT };

/// A running `terrace serve`.
pub(crate) struct Serving {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Serving {
    /// Starts it, and returns once it serves.
    pub(crate) fn start(scene: &Scene, address: &str) -> Self {
        let mut command = scene.command(["serve", "--no-secret", "--log-level", "off"]);
        command.args(["--listen", address, "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let stdout = child.stdout.take().expect("it is a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        let ready: serde_json::Value = serde_json::from_str(&line).expect("it is ready");
        let address = ready["listen"][0].as_str().expect("an address").into();
        Self { child, address }
    }

    /// Asks it to stop; it must succeed.
    pub(crate) fn stop(mut self) {
        signal(&self.child, Signal::TERM);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }

    /// Memory of the process that no file backs.
    fn anonymous_mib(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path).expect("the kernel says");
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.expect("a number of kB") / 1024
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(address: &str) -> Result<Remote, Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let endpoint = address.parse().expect("an address");
    let deadline = Duration::from_secs(60);
    let options = Options { deadline, connect_timeout: deadline, ..Options::default() };
    Remote::connect(Box::new(Address { endpoint, clock: Arc::clone(&clock) }), options, clock)
}

#[test]
fn histories_are_linearizable_when_the_server_is_killed() {
    for seed in seeds(2) {
        let scene = Scene::new();
        let mut server = Some(Serving::start(&scene, "127.0.0.1:0"));
        let address = server.as_ref().expect("just started").address.clone();
        let (objects, pairs, puts) =
            (Histories::default(), Histories::default(), Histories::default());
        let first = connect(&address).expect("it serves");
        for name in 0..NAMES {
            // A kill in the midst of a creation leaves an object without its bytes.
            objects.act(&Objects(&first, WHOLE), name, Action::Create(objects.new_tag()));
        }
        let events = || objects.count().0 + pairs.count().0 + puts.count().0;
        // Before the first kill: a first connection that is refused fails at once.
        let clients: Vec<_> = (0..THREADS).map(|_| connect(&address).expect("it serves")).collect();
        // Nobody runs away from the killer: histories stay short.
        let (is_over, events_max) = (AtomicBool::new(false), AtomicUsize::new(2 * EVENTS));
        std::thread::scope(|scope| {
            for (thread, client) in (0..).zip(&clients) {
                let (objects, pairs, puts) = (&objects, &pairs, &puts);
                let (is_over, events_max) = (&is_over, &events_max);
                scope.spawn(move || {
                    let mut random = Random::new(seed.wrapping_mul(THREADS) + thread);
                    while !is_over.load(Ordering::SeqCst) {
                        if events() >= events_max.load(Ordering::SeqCst) {
                            std::thread::yield_now();
                            continue;
                        }
                        let name = random.below(NAMES);
                        match random.below(6) {
                            4.. => puts.step(&Puts(client, Semantics::DEFAULT), NAMES, &mut random),
                            0 => {
                                let action = Action::Write(objects.new_tag());
                                objects.act(&Objects(client, WHOLE), name, action);
                            }
                            1 => objects.act(&Objects(client, WHOLE), name, Action::Read),
                            _ => pairs.step(&Pairs(&client.kv("pairs")), NAMES, &mut random),
                        }
                    }
                });
            }
            for kill in 1..=KILLS {
                while events() < kill * EVENTS {
                    std::thread::yield_now();
                }
                // Dropped, it is killed.
                drop(server.take());
                server = Some(Serving::start(&scene, &address));
                events_max.fetch_add(EVENTS, Ordering::SeqCst);
            }
            while events() < (KILLS + 1) * EVENTS {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let last = connect(&address).expect("it serves");
        for name in 0..NAMES {
            for (what, histories, registers) in [
                ("object", &objects, &Objects(&last, WHOLE) as &dyn Registers),
                ("pair", &pairs, &Pairs(&last.kv("pairs")) as &dyn Registers),
                ("put", &puts, &Puts(&last, Semantics::DEFAULT) as &dyn Registers),
            ] {
                histories.act(registers, name, Action::Read);
                let events = histories.of(name);
                assert!(
                    is_linearizable(&events),
                    "TERRACE_SEED={seed}: {what} {name}: {events:#?}"
                );
            }
        }
        drop(first);
        server.take().expect("it serves").stop();
        scene.ok(["fsck", "--verify"]);
    }
}

#[test]
fn a_thousand_idle_clients_take_little_memory() {
    // Each has a socket here, too.
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(Resource::Nofile, raised).expect("up to its own bound");
    let scene = Scene::new();
    let server = Serving::start(&scene, "127.0.0.1:0");
    drop(connect(&server.address).expect("it serves"));
    let before_mib = server.anonymous_mib();
    let clients: Vec<_> = (0..1000).map(|_| connect(&server.address).expect("it serves")).collect();
    let grown_mib = server.anonymous_mib() - before_mib;
    assert!(grown_mib <= 100, "{grown_mib} MiB");
    for client in &clients {
        assert_eq!(client.namespaces().expect("it is served"), Vec::<String>::new());
    }
}
