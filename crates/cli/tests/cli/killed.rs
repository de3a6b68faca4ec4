// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kill -9` for every process that works on a store, at any moment, again and again.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use terrace_core::{Backend, BackendExt, Clock, ErrorKind, Key, Random, Result, SystemClock};
use terrace_store::{MoveKind, Store};
use terrace_testkit::seeds;

use crate::scene::{Scene, signal};

const WORKERS: usize = 3;
const KEYS: u64 = 4;
const LENGTH_MAX: u64 = 200_000;

/// What decides from some moment on; each with words for `terrace policy use`.
const POLICIES: [&[&str]; 4] =
    [&["write-buffer", "timeout=20ms"], &["lru", "idle=10ms", "gate=off"], &["size"], &["pinned"]];

/// Longest time that one command may take, on a loaded machine too.
const COMMAND_MAX: Duration = Duration::from_secs(30);

/// What may be found under a name after the kill.
#[derive(Clone, Debug)]
enum Expected {
    /// The last change was acknowledged.
    Known(Option<Vec<u8>>),
    /// A change was under way.
    Either { old: Option<Vec<u8>>, new: Option<Vec<u8>> },
}

impl Expected {
    fn allows(&self, found: Option<&[u8]>) -> bool {
        match self {
            Expected::Known(value) => found == value.as_deref(),
            Expected::Either { old, new } => found == old.as_deref() || found == new.as_deref(),
        }
    }
}

impl Expected {
    /// In words, for a failure.
    fn compare(&self, found: Option<&[u8]>) -> String {
        let found = found.unwrap_or_default();
        let one = |what: &str, value: &Option<Vec<u8>>| match value {
            None => format!("{what} nothing"),
            Some(value) => {
                let same = value.iter().zip(found).take_while(|(one, other)| one == other).count();
                format!("{what} {} bytes, the same up to {same}", value.len())
            }
        };
        let expected = match self {
            Expected::Known(value) => one("expected", value),
            Expected::Either { old, new } => format!("{}, {}", one("old", old), one("new", new)),
        };
        format!("found {} bytes, {expected}", found.len())
    }
}

/// Objects by name, and pairs of the same names.
#[derive(Clone, Debug, Default)]
struct Model {
    objects: BTreeMap<String, Expected>,
    pairs: BTreeMap<String, Expected>,
}

/// One worker's command that runs now.
#[derive(Default)]
struct Running(Mutex<Option<Child>>);

impl Running {
    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        if let Some(child) = self.child().as_ref() {
            signal(child, Signal::KILL);
        }
    }

    /// Runs a command; whether it succeeded, or what it said. `None` where nothing more is to be
    /// started.
    fn run(
        &self,
        scene: &Scene,
        arguments: &[&str],
        is_over: &AtomicBool,
    ) -> Option<std::result::Result<(), String>> {
        {
            let mut child = self.child();
            // Looked at under the lock, so that the killer kills whatever was started.
            if is_over.load(Ordering::SeqCst) {
                return None;
            }
            let mut command = scene.command(arguments);
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            *child = Some(command.spawn().expect("the binary runs"));
        }
        let clock = SystemClock::default();
        loop {
            let mut child = self.child();
            let one = child.as_mut().expect("it was started");
            if let Some(status) = one.try_wait().expect("a child can be waited for") {
                let mut words = String::new();
                let stderr = one.stderr.as_mut().expect("it is a pipe");
                stderr.read_to_string(&mut words).expect("UTF-8");
                *child = None;
                return Some(if status.success() { Ok(()) } else { Err(words) });
            }
            assert!(clock.now_ns() < COMMAND_MAX.as_nanos() as u64, "{arguments:?} does not end");
            drop(child);
            clock.sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Worker<'a> {
    scene: &'a Scene,
    number: usize,
    random: Random,
    running: &'a Running,
    is_over: &'a AtomicBool,
    model: Model,
}

impl Worker<'_> {
    /// Works until nothing more is to be started; returns what may be found.
    fn work(mut self) -> Model {
        while self.step() {}
        self.model
    }

    fn step(&mut self) -> bool {
        let name = format!("worker-{}/{}", self.number, self.random.below(KEYS));
        let target = if self.random.chance(0.5) { "fast" } else { "slow" };
        match self.random.below(11) {
            0..5 => {
                let mut data = vec![0; self.random.below(LENGTH_MAX) as usize];
                self.random.fill(&mut data);
                let file = format!("input-{}", self.number);
                self.scene.file(&file, &data);
                self.change(&["put", &name, &file], false, &name, Some(data))
            }
            5 => self.change(&["rm", "-f", &name], false, &name, None),
            6 => {
                let value = self.random.next_u64().to_string();
                let data = Some(value.clone().into_bytes());
                self.change(&["kv", "put", &name, &value], true, &name, data)
            }
            7 => self.change(&["kv", "rm", "-f", &name], true, &name, None),
            8 => {
                let policy = POLICIES[self.random.below(POLICIES.len() as u64) as usize];
                self.run(&[&["policy", "use"], policy].concat()).is_some()
            }
            // It may not be there, have no room, or be busy: moving is not what is promised.
            _ => self.run(&["migrate", &name, "--to", target]).is_some(),
        }
    }

    fn run(&self, arguments: &[&str]) -> Option<std::result::Result<(), String>> {
        self.running.run(self.scene, arguments, self.is_over)
    }

    fn change(
        &mut self,
        arguments: &[&str],
        is_pair: bool,
        name: &str,
        new: Option<Vec<u8>>,
    ) -> bool {
        let Some(ran) = self.run(arguments) else { return false };
        let part = if is_pair { &mut self.model.pairs } else { &mut self.model.objects };
        let before = part.remove(name).unwrap_or(Expected::Known(None));
        let Expected::Known(old) = before else { panic!("{name} was not looked at") };
        let next = match ran {
            Ok(()) => Expected::Known(new),
            Err(_) if self.is_over.load(Ordering::SeqCst) => Expected::Either { old, new },
            Err(words) => panic!("{arguments:?} failed before anything was killed: {words}"),
        };
        part.insert(name.into(), next);
        true
    }
}

/// Lets workers work for a while, kills everything, and returns what may be found.
fn round(scene: &Scene, random: &mut Random, is_held: bool, models: Vec<Model>) -> Vec<Model> {
    let held = is_held.then(|| scene.hold());
    let is_over = AtomicBool::new(false);
    let running: [Running; WORKERS] = Default::default();
    let length = Duration::from_millis(50 + random.below(400));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((number, model), running) in models.into_iter().enumerate().zip(&running) {
            let random = Random::new(random.next_u64());
            let is_over = &is_over;
            let worker = Worker { scene, number, random, running, is_over, model };
            threads.push(scope.spawn(move || worker.work()));
        }
        SystemClock::default().sleep(length);
        is_over.store(true, Ordering::SeqCst);
        if let Some(held) = &held {
            held.kill();
        }
        running.iter().for_each(Running::kill);
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
    })
}

fn found<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{}", error.chain()),
    }
}

/// Compares the store with what may be found, and remembers what was. Returns how many bytes that
/// were.
fn look(scene: &Scene, models: &mut [Model]) -> u64 {
    let mut verified_bytes = 0;
    let store = Store::open(&scene.path("store").display().to_string()).expect("it opens at once");
    for model in models {
        for (name, expected) in &mut model.objects {
            let bytes = found(store.read_all(&Key::parse(name).expect("legal")));
            let is_allowed = expected.allows(bytes.as_deref());
            assert!(is_allowed, "{name}: {}", expected.compare(bytes.as_deref()));
            verified_bytes += bytes.as_ref().map_or(0, Vec::len) as u64;
            *expected = Expected::Known(bytes);
        }
        for (name, expected) in &mut model.pairs {
            let key = Key::parse(name).expect("legal");
            let value = store.kv_get(key.namespace(), key.name().as_bytes()).expect("reads");
            assert!(expected.allows(value.as_deref()), "{name} is {value:?}");
            *expected = Expected::Known(value);
        }
    }
    store.close().expect("it closes");
    verified_bytes
}

/// Nothing blocks a name, and nothing is left of what is removed.
fn use_everything(scene: &Scene) {
    let address = scene.path("store").display().to_string();
    let store = Store::open(&address).expect("it opens");
    let keys: Vec<_> = (0..WORKERS)
        .flat_map(|worker| (0..KEYS).map(move |number| (worker, number)))
        .map(|(worker, number)| Key::new(&format!("worker-{worker}"), &number.to_string()))
        .map(|key| key.expect("legal"))
        .collect();
    for key in &keys {
        let _ = found(store.delete(key));
    }
    // What is there still would be in the way of what moves below.
    wait_until_empty(&store);
    for key in &keys {
        store.write_all(key, b"new").expect("is written");
        for to in ["slow", "fast"] {
            for ticket in store.admin().migrate(key, to, MoveKind::Move, 0, "test").expect("queued")
            {
                let ended = store.admin().wait(ticket, COMMAND_MAX).expect("known").expect("ends");
                let outcome = ended.outcome.as_deref();
                assert!(matches!(outcome, Some("done" | "already")), "{ended:?}");
            }
        }
        store.delete(key).expect("is deleted");
    }
    wait_until_empty(&store);
    store.close().expect("it closes");
}

fn wait_until_empty(store: &Store) {
    let clock = SystemClock::default();
    loop {
        let tiers = store.admin().tiers().expect("reports");
        let left_bytes: u64 = tiers
            .iter()
            .map(|tier| {
                tier.used_bytes + tier.reserved_bytes + tier.copy_bytes + tier.garbage_bytes
            })
            .sum();
        if left_bytes == 0 {
            break;
        }
        assert!(clock.now_ns() < COMMAND_MAX.as_nanos() as u64, "something is left: {tiers:?}");
        clock.sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    kill_everything("fjall", 12);
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9_with_the_catalog_in_lmdb() {
    kill_everything("lmdb", 6);
}

/// Kills as often as the environment says, or `rounds` times.
fn kill_everything(engine: &str, rounds: u64) {
    let scene = Scene::empty();
    scene.ok([
        "init",
        "store",
        "--tier",
        "fast=fast,capacity=400kB",
        "--tier",
        "slow=slow,capacity=1GB",
        "--policy",
        "write-buffer",
        "--catalog",
        engine,
    ]);
    scene.ok(["policy", "set", "timeout=20ms"]);
    let mut models = vec![Model::default(); WORKERS];
    let mut verified_bytes = 0;
    for seed in seeds(rounds) {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        models = round(&scene, &mut random, seed % 3 != 0, models);
        verified_bytes += look(&scene, &mut models);
        scene.ok(["fsck", "--verify"]);
    }
    println!("verified_bytes={verified_bytes}");
    scene.ok(["policy", "use", "write-buffer", "timeout=20ms"]);
    use_everything(&scene);
    scene.ok(["fsck"]);
}
