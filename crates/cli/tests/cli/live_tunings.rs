// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tune --live`: parameters of a store while it is used.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use terrace_core::{BackendExt, Key};
use terrace_store::Store;

use crate::scene::{Held, Scene, piped, signal};

/// Devices that take as long as the model says, within what a loaded machine makes of a pause.
const TIERS: &str = "
[[tier]]
name = \"fast\"
path = \"fast\"
capacity = \"10MB\"
throttle = { latency = \"2ms\", bandwidth = \"100MB/s\", parallelism = 8 }

[[tier]]
name = \"slow\"
path = \"slow\"
capacity = \"100MB\"
throttle = { latency = \"40ms\", bandwidth = \"100MB/s\", parallelism = 8 }
";

/// What is read again and again stays on the slow tier, since a promotion must save a hundred times its
/// cost within a second.
const CAREFUL: &str = "
[policy]
name = \"lru\"
every = \"50ms\"
[policy.parameters]
place = \"slow\"
gate = \"on\"
factor = 100
horizon = \"1s\"
";

/// As many readers at once, each of two objects of its own.
const READERS: u32 = 4;

const WORDS: &str = "tune --live --objective time --window 2s --dwell 1h --json";

fn key(number: u32) -> Key {
    Key::new("live", &number.to_string()).expect("digits are a legal name")
}

/// A store of two simulated tiers with all that is read on the slow one.
fn with_store(policy: &str) -> Scene {
    let scene = Scene::empty();
    scene.file("store.toml", format!("{TIERS}{policy}"));
    scene.ok(["init", "store", "--settings", "store.toml"]);
    let store = Store::open(&scene.path("store").display().to_string()).expect("it opens");
    for number in 0..2 * READERS {
        store.write_all(&key(number), &[7; 4096]).expect("there is room");
    }
    store.close().expect("it closes");
    scene
}

/// Runs `body` while readers read from a store that is held.
fn while_it_is_read<T>(scene: &Scene, body: impl FnOnce(&Held) -> T) -> T {
    let held = scene.hold();
    let address = scene.path("store").display().to_string();
    let is_over = AtomicBool::new(false);
    let value = thread::scope(|scope| {
        for reader in 0..READERS {
            let (address, is_over) = (&address, &is_over);
            scope.spawn(move || {
                let store = Store::open(address).expect("it is held");
                while !is_over.load(Ordering::Relaxed) {
                    for number in [2 * reader, 2 * reader + 1] {
                        assert_eq!(store.read_all(&key(number)).expect("it is there").len(), 4096);
                    }
                }
            });
        }
        // Readers must not go on for ever after a test that failed.
        let _end = End(&is_over);
        body(&held)
    });
    held.stop();
    value
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A running `tune --live --json`.
struct Tuning {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Tuning {
    fn start(scene: &Scene, words: &str) -> Self {
        let mut child = piped(&mut scene.command(words.split_whitespace()));
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut tuning = Self { child, stdout };
        assert!(tuning.next()["begun"].is_object(), "it says what it begins with");
        tuning
    }

    /// What it says next.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it can be read");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// The next window that ends with this decision; all before it.
    fn until(&mut self, decision: &str) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        for _ in 0..20 {
            let window = self.next()["window"].take();
            if window["decision"] == decision {
                return (window, before);
            }
            before.push(window);
        }
        panic!("{before:#?}");
    }

    /// Ends it as Ctrl-C does; its last word.
    fn end(mut self) -> Value {
        signal(&self.child, Signal::INT);
        let last = std::iter::repeat_with(|| self.next()).find(|said| said["ended"].is_object());
        assert!(self.child.wait().expect("it ends").success());
        last.expect("it says how it ends")["ended"].take()
    }
}

fn parameter(scene: &Scene, name: &str) -> String {
    let shown = scene.json(["policy", "show"]).remove(0);
    let all = shown["parameters"].as_array().expect("a list");
    let one = all.iter().find(|one| one["name"] == name).expect("it has one");
    one["value"].as_str().expect("a text").into()
}

fn settings(scene: &Scene) -> String {
    String::from_utf8(scene.read("store/terrace.toml")).expect("it is text")
}

#[test]
fn a_store_gets_a_value_that_is_plainly_better_after_two_windows() {
    let scene = with_store(CAREFUL);
    let ended = while_it_is_read(&scene, |_| {
        let mut tuning = Tuning::start(&scene, WORDS);
        let (change, before) = tuning.until("change");
        let step = &change["step"];
        assert_eq!((&step["parameter"], &step["from"]), (&"gate".into(), &"on".into()));
        assert_eq!(step["to"], "off", "{change:#}");
        let last = before.last().expect("one window is not enough");
        assert_eq!((&last["decision"], &last["why"]), (&"keep".into(), &"once".into()), "{last:#}");
        assert_eq!(last["best"]["trial"], "gate=off");
        assert_eq!(parameter(&scene, "gate"), "off");
        // What the store then measures is better, too, and nothing changes for an hour.
        let next = tuning.next()["window"].take();
        assert_eq!(next["why"], "dwelling", "{next:#}");
        let measured = |window: &Value| window["measured"]["access_s"].as_f64().expect("a number");
        assert!(measured(&next) < measured(&change), "{next:#}");
        tuning.end()
    });
    assert_eq!(ended["parameters"]["gate"], "off");
    assert_eq!(ended["unjudged"]["from"], "on");
    assert!(settings(&scene).contains("gate = \"off\""), "{}", settings(&scene));
    assert_eq!(scene.files("store").iter().filter(|file| file.contains("tune/")).count(), 0);
}

#[test]
fn a_store_that_could_not_do_better_stays_as_it_is() {
    // All of it is on the fast tier, and has room there.
    let scene = with_store(&CAREFUL.replace("place = \"slow\"", "place = \"fast\""));
    let before = settings(&scene);
    let ended = while_it_is_read(&scene, |_| {
        let mut tuning = Tuning::start(&scene, WORDS);
        for _ in 0..3 {
            let window = tuning.next()["window"].take();
            assert_eq!((&window["decision"], &window["step"]), (&"keep".into(), &Value::Null));
        }
        tuning.end()
    });
    assert_eq!(ended["unjudged"], Value::Null);
    assert_eq!(settings(&scene), before);
}

#[test]
fn a_dry_run_changes_nothing_and_reads_the_trace_that_is_recorded_anyway() {
    let scene = with_store(CAREFUL);
    let before = settings(&scene);
    while_it_is_read(&scene, |_| {
        scene.ok(["trace", "record", "--to", "mine"]);
        let mut tuning = Tuning::start(&scene, &format!("{WORDS} --dry-run"));
        let (would, _) = tuning.until("would-change");
        assert_eq!(would["step"]["to"], "off");
        let busy = scene.run(["tune", "--live", "--objective", "time"]);
        assert_eq!(busy.status, Some(5), "{busy:?}");
        assert!(busy.stderr.contains("another command tunes it"), "{busy:?}");
        assert_eq!(tuning.end()["parameters"]["gate"], "on");
        assert!(scene.ok(["trace", "status"]).contains("/mine: recording\n"));
    });
    assert_eq!(settings(&scene), before);
}

#[test]
fn who_changes_something_meanwhile_is_noticed() {
    let scene = with_store(CAREFUL);
    let held = scene.hold();
    let mut tuning = Tuning::start(&scene, WORDS);
    let idle = tuning.next()["window"].take();
    assert_eq!((&idle["why"], &idle["foreseen"]), (&"few".into(), &Value::Null), "{idle:#}");
    scene.ok(["policy", "set", "factor=90"]);
    let anew = std::iter::repeat_with(|| tuning.next()).find(|said| said["window"].is_null());
    assert_eq!(anew.expect("it says so")["begun_anew"]["parameters"]["factor"], "90");
    tuning.end();
    held.stop();
}

/// The limit itself is tested where recordings are.
#[test]
fn a_tuning_that_is_killed_leaves_a_recording_that_ends_by_itself() {
    let scene = with_store(CAREFUL);
    let held = scene.hold();
    let mut tuning = Tuning::start(&scene, "tune --live --objective time --window 1s --json");
    let recording = recorded(&scene);
    signal(&tuning.child, Signal::KILL);
    tuning.child.wait().expect("it ends");
    let wall_ns = |key: &str| recording[key].as_u64().expect("a time");
    let longest_ns = wall_ns("ends_wall_ns") - wall_ns("started_wall_ns");
    assert!((30_000_000_000..=31_500_000_000).contains(&longest_ns), "{recording}");
    assert_eq!(recorded(&scene)["ends_wall_ns"], recording["ends_wall_ns"], "nobody has ended it");
    held.stop();
}

/// Waits until a window is recorded; what the store says of it.
#[track_caller]
fn recorded(scene: &Scene) -> Value {
    let status = || scene.json(["trace", "status"])[0]["recording"].clone();
    let recording = (0..1000).map(|_| status()).find(|now| now["is_running"] == true);
    recording.expect("a window is recorded")
}

#[test]
fn the_next_tuning_clears_what_one_that_was_killed_left() {
    let scene = with_store(CAREFUL);
    std::os::unix::fs::symlink("store", scene.path("link")).expect("it can be made");
    let trace = scene.path("store/.tune-live");
    let kill = |mut tuning: Tuning| {
        signal(&tuning.child, Signal::KILL);
        tuning.child.wait().expect("it ends");
        assert!(trace.is_dir(), "its trace is left");
    };
    let long = "tune --live --objective time --window 1h --json";
    let short = "tune --live --objective time --window 1s --for 1500ms --json";
    let held = scene.hold();
    let ends = |words: &str| {
        scene.ok(words.split_whitespace());
        assert!(!trace.exists(), "nothing is left");
        let status = scene.json(["trace", "status"])[0]["recording"].clone();
        assert_ne!(status["is_running"], true, "{status}");
    };
    // It is the same store under another name.
    for named in ["", "--store link "] {
        let tuning = Tuning::start(&scene, &format!("{named}{long}"));
        recorded(&scene);
        kill(tuning);
        ends(short);
    }
    held.stop();

    // One that held the store itself; what is there is not in the window of another.
    let tuning = Tuning::start(&scene, long);
    recorded(&scene);
    kill(tuning);
    scene.file("store/.tune-live/0000.trace", "not of this window");
    ends(short);
}

#[test]
fn a_store_that_nobody_holds_is_held_for_a_time() {
    let scene = with_store(CAREFUL);
    scene.file("store/tune/notes.txt", "not of a window");
    let words = "tune --live --objective time --window 1s --for 1500ms";
    let said = scene.ok(words.split_whitespace());
    assert!(said.starts_with("holding the store; tuning lru for little time: "), "{said}");
    assert!(said.contains("0 accesses; kept: too few to say anything"), "{said}");
    assert!(said.ends_with("lru: its parameters are as they were\n"), "{said}");
    assert_eq!(scene.read("store/tune/notes.txt"), b"not of a window");
}

#[test]
fn what_cannot_be_tuned_while_it_runs_says_why() {
    let scene = with_store(CAREFUL);
    for (status, words, why) in [
        (2, "load.csv --objective time", "--live"),
        (2, "--policy heat", "--policy"),
        (2, "--window 10ms --objective time", "1s at least"),
        (2, "--window soon --objective time", "duration"),
        (2, "--window 18446744073709551615s --objective time", "365d"),
        (2, "--dwell 18446744073709551615s --objective time", "365d"),
        (2, "--for 18446744073709551615s --objective time", "365d"),
        (2, "", "--objective time"),
        (3, "--objective time --store nothing", "nothing"),
    ] {
        let words = format!("tune --live {words}");
        let said = scene.fails(status, words.split_whitespace());
        assert!(said.contains(why), "{words}: {said}");
    }
    scene.fails(2, ["tune", "load.csv", "--dwell", "1s"]);
    let ahead = CAREFUL.replace("every =", "post_events = \"before\"\nevery =");
    let words = ["tune", "--live", "--objective", "time", "--for", "1500ms"];
    assert!(with_store(&ahead).fails(10, words).contains("post_events"));
    let live = ["tune", "--live", "--objective", "time"];
    scene.ok(["policy", "set", "--dry-run", "on"]);
    assert!(scene.fails(10, live).contains("dry run"));
    scene.ok(["policy", "use", "pinned"]);
    scene.ok(["policy", "set", "--dry-run", "off"]);
    assert!(scene.fails(2, live).contains("no parameters"));
}
