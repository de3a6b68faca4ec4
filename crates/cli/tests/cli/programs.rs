// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies in Python: `policy run FILE`, `policy use`, and `replay`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use terrace_core::{Backend, Key, ObjectExt, Open};
use terrace_store::Store;

use crate::scene::{Held, Scene, signal};
use crate::serving;

/// New objects go to the last tier; what is read moves to the first.
const EAGER: &str = r#"
import time
from terrace.policy import READ, Parameter, Placement, Policy

class Eager(Policy):
    placement = Placement(tier=1)
    fails = Parameter("", "how it fails at the first read")
    state_version = 1

    def __init__(self, view):
        self.wanted, self.seen = set(), 0

    def observe(self, view, events):
        read = events["slot"][events["kind"] == READ]
        self.wanted.update(read.tolist())
        self.seen += len(read)

    def plan(self, view, actions):
        if self.wanted and self.fails == "raises":
            raise RuntimeError("had enough")
        if self.wanted and self.fails == "hangs":
            time.sleep(1000)
        for slot in sorted(self.wanted):
            actions.promote(slot, to=0, reason="it was read", benefit_s=0.5)
        self.wanted.clear()

    def message(self, view, kind, body):
        return f"{self.seen} reads".encode()

    def save(self, view):
        return str(self.seen).encode()

    def restore(self, view, version, state):
        self.seen = int(state)
"#;

fn eager(scene: &Scene) -> PathBuf {
    scene.file("eager.py", EAGER)
}

/// A running `policy run`.
struct Guest {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Guest {
    /// Returns once its policy decides.
    fn start(scene: &Scene, more: &[&str]) -> Self {
        let arguments = ["policy", "run", "eager.py"].iter().chain(more);
        let mut command = scene.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("it prints");
        if !line.contains("eager.py, called after 1000 events") {
            child.stderr.take().expect("a pipe").read_to_string(&mut line).expect("text");
            panic!("{line}");
        }
        Self { child, stdout }
    }

    /// Its status, and what else it printed.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut errors) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).expect("text");
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut errors).expect("text");
        (self.child.wait().expect("it ends").code(), out, errors)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // A test that failed must not leave it behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn policy(scene: &Scene) -> Value {
    scene.json(["policy", "show"])[0].clone()
}

/// Asks again until it is so; the commands that ask take their time.
#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    assert!((0..1000).any(|_| is_so()), "it never is");
}

fn tier(scene: &Scene, key: &str) -> String {
    scene.json(["stat", key])[0]["tiers"][0].as_str().expect("a tier").to_string()
}

#[test]
fn a_python_policy_decides_for_as_long_as_its_command_runs() {
    for is_held in [true, false] {
        let scene = Scene::with_policy();
        let held = is_held.then(|| scene.hold());
        eager(&scene);
        let before = scene.read("store/terrace.toml");
        let guest = Guest::start(&scene, &[]);
        scene.ok_with(&[1; 1000], ["put", "a/x"]);
        assert_eq!(tier(&scene, "a/x"), "slow", "creates are answered as it published");
        scene.ok(["get", "a/x", "got"]);
        wait_until(|| scene.ok(["explain", "a/x"]).contains("eager.py: it was read"));
        assert_eq!(tier(&scene, "a/x"), "fast");
        let seen = scene.ok(["policy", "message", "what"]);
        assert_ne!(seen, "0 reads");
        let told = scene.ok(["policy", "set", "fails=never"]);
        assert!(told.contains("never"), "{told}");
        wait_until(|| policy(&scene)["outcomes"][0][1] == 1);
        scene.ok(["policy", "set", "--dry-run", "on"]);
        signal(&guest.child, Signal::INT);
        let (status, out, errors) = guest.end();
        assert_eq!((status, errors.as_str()), (Some(0), ""), "{out}");
        assert_eq!(policy(&scene)["is_dry_run"], false, "what was said to it ended with it");
        assert!(out.contains("a/x  promote to fast: it was read"), "{out}");
        assert!(out.contains("1 action\nactions ended: 1 done\n"), "{out}");
        assert_eq!(policy(&scene)["name"], "lru", "the configured one decides again");
        assert_eq!(scene.read("store/terrace.toml"), before, "nothing was written");
        // What it knew is kept under its name.
        let guest = Guest::start(&scene, &[]);
        assert_eq!(scene.ok(["policy", "message", "what"]), seen);
        drop(guest);
        if let Some(held) = held {
            held.stop();
        }
    }
}

#[test]
fn a_second_guest_is_refused_and_the_first_goes_on() {
    let scene = Scene::with_policy();
    let held = scene.hold();
    eager(&scene);
    let guest = Guest::start(&scene, &[]);
    let error = scene.fails(5, ["policy", "run", "eager.py"]);
    assert!(error.contains("that of another command decides"), "{error}");
    let before = scene.read("store/terrace.toml");
    scene.ok(["policy", "set", "--every", "2s", "--dry-run", "on"]);
    assert_eq!(scene.read("store/terrace.toml"), before, "what is said to a guest ends with it");
    let error = scene.fails(10, ["trace", "record", "--for", "1s", "--decisions"]);
    assert!(error.contains("belongs to another command"), "{error}");
    assert!(policy(&scene)["name"].as_str().expect("text").ends_with("eager.py"));
    scene.ok(["policy", "use", "heat"]);
    let (status, _, errors) = guest.end();
    assert_eq!(status, Some(9), "{errors}");
    assert!(errors.contains("heat took its place"), "{errors}");
    assert_eq!(policy(&scene)["name"], "heat", "what somebody chose stays");
    held.stop();
}

#[test]
fn a_guest_ends_with_its_command() {
    let scene = Scene::with_policy();
    let held = scene.hold();
    let file = eager(&scene).canonicalize().expect("it exists");
    let guest = Guest::start(&scene, &[]);
    signal(&guest.child, Signal::KILL);
    drop(guest);
    let find = || std::process::Command::new("pgrep").arg("-f").arg(&file).output();
    wait_until(|| find().expect("it runs").stdout.is_empty());
    wait_until(|| policy(&scene)["name"] == "lru");
    assert!(policy(&scene)["replaced"].is_null(), "nobody was there to take it back");
    // Another one may come.
    let guest = Guest::start(&scene, &[]);
    signal(&guest.child, Signal::INT);
    assert_eq!(guest.end().0, Some(0));
    assert_eq!(policy(&scene)["name"], "lru");
    held.stop();
}

#[test]
fn a_guest_whose_predecessor_cannot_come_back_ends_all_the_same() {
    let scene = Scene::with_policy();
    let held = scene.hold();
    eager(&scene);
    let guest = Guest::start(&scene, &[]);
    let settings = scene.read("store/terrace.toml");
    scene.file("store/terrace.toml", b"nonsense");
    signal(&guest.child, Signal::INT);
    let (status, _, errors) = guest.end();
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains("policy_now=none"), "{errors}");
    scene.file("store/terrace.toml", settings);
    scene.fails(2, ["policy", "show"]);
    scene.ok(["policy", "use", "lru"]);
    held.stop();
}

#[test]
fn a_store_without_a_policy_goes_back_to_none() {
    let scene = Scene::new();
    let held = scene.hold();
    eager(&scene);
    let guest = Guest::start(&scene, &[]);
    assert!(policy(&scene)["name"].as_str().expect("text").ends_with("eager.py"));
    signal(&guest.child, Signal::TERM);
    assert_eq!(guest.end().0, Some(0));
    scene.fails(2, ["policy", "show"]);
    held.stop();
}

#[test]
fn a_python_policy_that_fails_ends_its_command_and_not_the_store() {
    let scene = Scene::with_policy();
    let held = scene.hold();
    eager(&scene);
    scene.ok_with(&[1; 1000], ["put", "a/x"]);
    for (fails, expected) in [
        ("raises", "failed in plan: RuntimeError: had enough ("),
        ("is killed", "its process ended"),
    ] {
        let guest = Guest::start(&scene, &[&format!("fails={fails}")]);
        if fails == "is killed" {
            let name = scene.path("eager.py").canonicalize().expect("it exists");
            let python = format!("{}$", name.display());
            let killed = std::process::Command::new("pkill").args(["-9", "-f", &python]).status();
            assert!(killed.expect("it runs").success(), "there was one");
        }
        scene.ok(["get", "a/x", "got"]);
        let (status, _, errors) = guest.end();
        assert_eq!(status, Some(1), "{errors}");
        assert!(errors.contains(expected), "{errors}");
        assert_eq!(policy(&scene)["name"], "lru", "the configured one decides again");
        scene.ok(["get", "a/x", "got"]);
    }
    held.stop();
}

#[test]
fn a_python_policy_that_hangs_is_replaced_and_nobody_waits_for_it() {
    let scene = Scene::with_policy();
    eager(&scene);
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let settings = settings.replace("name = \"lru\"", "name = \"lru\"\ncall_time_max = \"300ms\"");
    scene.file("store/terrace.toml", settings);
    let mut command = scene.command(["hold"]);
    command.stderr(File::create(scene.path("log")).expect("there is room"));
    let held = Held::start(command);
    scene.ok(["policy", "use", "./eager.py", "fails=hangs"]);
    scene.ok_with(&[1; 1000], ["put", "a/x"]);
    scene.ok(["get", "a/x", "got"]);
    wait_until(|| {
        scene.ok_with(&[1; 1000], ["put", "a/y"]);
        scene.ok(["rm", "a/y"]);
        policy(&scene)["name"] == "pinned"
    });
    let why = policy(&scene)["replaced"].to_string();
    assert!(why.contains("eager.py: plan took longer than 300ms"), "{why}");
    // Its process ends although the policy sleeps, long before the store does.
    let name = scene.path("eager.py").canonicalize().expect("it exists");
    let find = || std::process::Command::new("pgrep").arg("-f").arg(&name).output();
    wait_until(|| find().expect("it runs").stdout.is_empty());
    scene.ok(["policy", "use", "./eager.py", "fails=raises"]);
    scene.ok(["get", "a/x", "got"]);
    wait_until(|| policy(&scene)["replaced"].to_string().contains("had enough"));
    held.stop();
    let log = String::from_utf8(scene.read("log")).expect("text");
    assert_eq!(log.matches("the policy was replaced by pinned").count(), 2, "{log}");
    assert!(log.contains("plan took longer") && log.contains("had enough"), "{log}");
    assert!(!log.contains("panicked at"), "{log}");
}

/// Copies what was read, up to so many a round.
const COUNTED: &str = r#"
from terrace.policy import READ, Parameter, Policy

class Counted(Policy):
    most = Parameter(0, "moves in a round", 0, 8)
    share = Parameter(0.5, "of them that are made", 0, 1)
    eager = Parameter(False, "also what was read once")
    label = Parameter("x", "nothing")
    window = Parameter(100, "reads that are looked at", 1)

    def __init__(self, view):
        self.seen = {}

    def observe(self, view, events):
        for slot in events["slot"][events["kind"] == READ].tolist():
            self.seen[slot] = self.seen.get(slot, 0) + 1

    def plan(self, view, actions):
        wanted = [slot for slot, count in self.seen.items() if self.eager or count > 1]
        for slot in sorted(wanted)[: int(self.most * self.share + 0.5)]:
            actions.promote(slot, to=0, reason="it was read")
            del self.seen[slot]
"#;

#[test]
fn parameters_of_a_python_policy_are_searched_by_its_bounds_or_as_asked() {
    let scene = Scene::with_policy();
    scene.file("counted.py", COUNTED);
    load(&scene);
    let names = |found: &Value| {
        let list = found["tunables"].as_array().expect("a list").iter();
        list.map(|name| name.as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let words = "tune load.csv --objective time --budget 4 --policy counted.py";
    let found = scene.json(words.split_whitespace()).remove(0);
    assert_eq!(names(&found), ["most", "share", "eager"]);
    let section = found["section"].as_str().expect("text");
    let path = scene.path("counted.py");
    let is_used = section.contains("name = \"pinned\"")
        || section.contains(&format!("program = {:?}", path.to_str().expect("text")));
    assert!(is_used, "{section}");
    let words = "tune load.csv --objective time --budget 4 --policy counted.py:most=3:label=y \
                 --search window=10..1000 --search share=0.25..0.75";
    let found = scene.json(words.split_whitespace()).remove(0);
    assert_eq!(names(&found), ["window", "share"]);
    for tried in found["tried"].as_array().expect("a list") {
        let of = |name: &str| tried["parameters"][name].as_str().expect("text").to_owned();
        assert_eq!((of("most"), of("label")), ("3".into(), "y".into()));
        let (window, share) = (of("window").parse::<u32>(), of("share").parse::<f64>());
        assert!((10..=1000).contains(&window.expect("whole")), "{tried}");
        assert!((0.25..=0.75).contains(&share.expect("a number")), "{tried}");
    }
    for (status, search, why) in [
        (3, "windo", "only most, share, eager, label, window"),
        (2, "window", "give window=LEAST..MOST"),
        (2, "label=a..b", "expected numbers, durations or sizes"),
        (2, "most=1..4", "given twice"),
    ] {
        let words = "tune load.csv --objective time --policy counted.py:most=3 --search";
        let error = scene.fails(status, words.split_whitespace().chain([search]));
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_python_policy_in_the_configuration_starts_with_the_store() {
    let scene = Scene::with_policy();
    eager(&scene);
    scene.ok(["policy", "use", "./eager.py", "fails=never"]);
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    assert!(settings.contains("program = \"/"), "{settings}");
    assert!(settings.contains("fails = \"never\""), "{settings}");
    scene.ok_with(&[1; 1000], ["put", "a/x"]);
    assert_eq!(tier(&scene, "a/x"), "slow");
    scene.ok(["get", "a/x", "got"]);
    let seen = scene.ok(["policy", "message", "what"]);
    assert_ne!(seen, "0 reads");
    let held = scene.hold();
    assert_eq!(scene.ok(["policy", "message", "what"]), seen, "its state is kept");
    held.stop();
    let error = scene.fails(3, ["policy", "use", "./missing.py"]);
    assert!(error.contains("missing.py"), "{error}");
    let error = scene.fails(2, ["policy", "run", "eager.py", "novalue"]);
    assert!(error.contains("novalue"), "{error}");
    assert!(policy(&scene)["name"].as_str().expect("text").ends_with("eager.py"));
}

/// Counts the optional kinds of events.
const ASKS: &str = r#"
from terrace.policy import STAT, SYNC, Policy

class Asks(Policy):
    interest = (STAT, SYNC)

    def __init__(self, view):
        self.counts = {STAT: 0, SYNC: 0}

    def observe(self, view, events):
        for kind in self.counts:
            self.counts[kind] += int(events["count"][events["kind"] == kind].sum())

    def message(self, view, kind, body):
        return f"{self.counts[STAT]} {self.counts[SYNC]}".encode()
"#;

#[test]
fn a_python_policy_that_asks_sees_stat_and_sync_also_over_tcp() {
    let scene = Scene::with_policy();
    serving::secret(&scene);
    scene.file("asks.py", ASKS);
    scene.ok(["policy", "use", "./asks.py"]);
    scene.ok_with(&[1; 1000], ["put", "a/x"]);
    let counted = |address: &str, fresh: &str| {
        let store = Store::open(address).expect("opens");
        let counts = || {
            let told = store.admin().message("counts", b"").expect("answers");
            let told = String::from_utf8(told).expect("text");
            let (stats, syncs) = told.split_once(' ').expect("two numbers");
            [stats, syncs].map(|count| count.parse::<u64>().expect("a number"))
        };
        let key = Key::parse("a/x").expect("legal");
        let before = counts();
        let object = Backend::open(&store, &key, &Open::write()).expect("opens");
        assert_eq!(counts(), before, "opening is neither");
        let draft = store.draft(&Key::parse(fresh).expect("legal"), &Open::create());
        draft.expect("begins").publish().expect("publishes");
        assert_eq!(counts(), before, "a draft of a new object is neither");
        for _ in 0..3 {
            assert_eq!(store.stat(&key).expect("there").size_bytes, 1000);
        }
        for _ in 0..2 {
            object.write(0, b"changed").expect("writes");
            object.sync().expect("syncs");
        }
        let after = counts();
        [after[0] - before[0], after[1] - before[1]]
    };
    let directory = scene.path("store");
    assert_eq!(counted(directory.to_str().expect("UTF-8"), "a/y"), [3, 2], "in the process itself");
    let served = serving::Served::start(&scene);
    assert_eq!(counted(&served.tcp, "a/z"), [3, 2], "over TCP");
    assert_eq!(served.stop().0, Some(0));
}

/// Reads of 300 objects of 4 KiB, a hundred a second.
fn load(scene: &Scene) {
    let requests: String = (0..2000u32)
        .map(|at| format!("{}.0{},{},4096,read\n", at / 100, at % 100, at * 7 % 300))
        .collect();
    scene.file("load.csv", format!("time,id,size,op\n{requests}"));
}

#[test]
fn a_python_policy_that_fails_in_a_replay_says_why() {
    let scene = Scene::with_policy();
    eager(&scene);
    load(&scene);
    let ran = scene.run(["replay", "load.csv", "--policy", "./eager.py:fails=raises"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let expected = "it failed with this policy: the policy program Eager failed in plan: \
                    RuntimeError: had enough (";
    assert!(ran.stderr.contains(expected), "{ran:?}");
    assert!(ran.stderr.contains("policy=./eager.py:fails=raises"), "{ran:?}");
}

#[test]
fn a_python_policy_that_hangs_ends_its_replay_and_no_other() {
    let scene = Scene::with_policy();
    eager(&scene);
    load(&scene);
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let hurried = settings.replace("name = \"lru\"", "name = \"lru\"\ncall_time_max = \"200ms\"");
    assert_ne!(settings, hurried);
    scene.file("store/terrace.toml", &hurried);
    let ran = scene.run(["replay", "load.csv", "--policy", "./eager.py:fails=hangs,lru"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("\nlru "), "{ran:?}");
    let expected = "the policy did not come back from `plan` within 2400ms; it was ended";
    assert!(ran.stderr.contains(expected), "{ran:?}");
    assert!(ran.stderr.contains("policy=./eager.py:fails=hangs"), "{ran:?}");
}

#[test]
fn a_python_policy_decides_in_the_shadow() {
    let scene = Scene::empty();
    scene.ok([
        "init",
        "store",
        "--policy",
        "lru",
        "--tier",
        "fast=fast,capacity=1MB",
        "--tier",
        "slow=slow,capacity=100MB,latency=5ms",
    ]);
    eager(&scene);
    let error = scene.fails(10, ["policy", "shadow", "heat"]);
    assert!(error.contains("no process holds or serves the store"), "{error}");
    let held = scene.hold();
    let error = scene.fails(2, ["policy", "shadow"]);
    assert!(error.contains("there is none"), "{error}");
    let before = scene.read("store/terrace.toml");
    let begun = scene.ok(["policy", "shadow", "./eager.py", "fails=never"]);
    assert!(begun.contains("eager.py decides in the shadow"), "{begun}");
    scene.ok_with(&[1; 1000], ["put", "a/x"]);
    scene.ok(["get", "a/x", "got"]);
    let report = || scene.json(["policy", "shadow"])[0].clone();
    wait_until(|| report()["shadow"]["moves"] == 1);
    assert_eq!(tier(&scene, "a/x"), "fast", "lru placed it, and nothing moved");
    let told = report();
    assert_eq!(told["actual"]["moves"], 0);
    assert_eq!(told["decisions"][0]["reason"], "it was read");
    assert_eq!(told["decisions"][0]["outcome"], "queued");
    let seconds = |side: &str| told[side]["foreground_s"].as_f64().expect("a number");
    assert!(seconds("actual") == 0.0 && seconds("shadow") > 0.009, "{told}");
    assert_eq!(policy(&scene)["name"], "lru");
    assert_eq!(scene.read("store/terrace.toml"), before, "nothing was written");
    let shown = scene.ok(["policy", "shadow", "--end"]);
    assert!(shown.contains("a/x  promote to fast"), "{shown}");
    scene.fails(2, ["policy", "shadow"]);
    scene.fails(3, ["policy", "shadow", "no-such-policy"]);
    held.stop();
}

#[test]
fn a_python_policy_is_replayed_as_any_other_and_always_the_same() {
    let scene = Scene::with_policy();
    eager(&scene);
    load(&scene);
    let replay = || {
        let arguments = ["replay", "load.csv", "--policy", "./eager.py:fails=never,lru"];
        scene.json(arguments)[0]["replays"].as_array().expect("a list").clone()
    };
    let (first, second) = (replay(), replay());
    assert_eq!(first[1]["policy"], "./eager.py:fails=never");
    assert!(first[1]["tiers"][0]["moved_in_bytes"].as_u64().expect("a number") > 0, "{}", first[1]);
    assert_eq!(first, second);
}
