// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `hold`, and commands that go through the process that holds the store.

use std::time::Duration;

use terrace_core::{Clock, SystemClock};

use crate::scene::{Ran, Scene, values};

/// A thread has its name sooner on any machine.
const NAMED_MAX: Duration = Duration::from_secs(30);

#[test]
fn held_and_unheld_stores_give_the_same_output() {
    let scene = Scene::new();
    scene.ok_with(&[1; 2_500_000], ["put", "a/large"]);
    scene.ok_with(b"small", ["put", "a/small"]);
    scene.ok(["migrate", "a/small", "--to", "slow"]);
    scene.ok(["kv", "put", "a/pair", "value"]);
    let look = || -> Vec<Ran> {
        [
            &["ls"][..],
            &["ls", "-l"],
            &["ls", "--json", "-l"],
            &["stat", "a/small"],
            &["stat", "--json", "a/large"],
            &["get", "a/small"],
            &["get", "nope"],
            &["get", "--json", "nope"],
            &["kv", "scan", "a"],
            &["kv", "get", "nope"],
            &["migrate", "-r", "a", "--to", "fast", "--dry-run"],
            &["migrate", "a/small", "--to", "tape"],
            &["rm", "nope"],
            &["pin", "nope"],
            &["policy", "list"],
            &["fsck"],
        ]
        .map(|arguments| scene.run(arguments))
        .into()
    };
    let unheld = look();
    let held = scene.hold();
    assert_eq!(look(), unheld);
    held.stop();
    assert_eq!(look(), unheld);
}

#[test]
fn a_held_store_takes_every_kind_of_change() {
    let scene = Scene::new();
    let held = scene.hold();
    let content: Vec<u8> = (0..2_100_000u32).map(|i| (i / 7) as u8).collect();
    scene.file("in", &content);
    scene.ok(["put", "a/x", "in"]);
    scene.ok(["put", "a/x", "in"]);
    scene.ok(["get", "a/x", "out"]);
    assert_eq!(scene.read("out"), content);
    scene.ok(["migrate", "a/x", "--to", "slow"]);
    scene.ok(["pin", "a/x"]);
    scene.fails(7, ["migrate", "a/x", "--to", "fast"]);
    scene.ok(["kv", "put", "a/x", "pair"]);
    scene.ok(["fsck", "--verify"]);
    scene.ok(["cp", ":a/x", ":a/y"]);
    scene.ok(["rm", "a/x"]);
    held.stop();
    assert_eq!(scene.ok(["ls"]), "a/y\n");
    assert_eq!(scene.ok(["kv", "get", "a/x"]), "pair");
    scene.ok(["fsck", "--verify"]);
}

#[test]
fn migrations_are_queued_in_a_held_store() {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "a/x"]);
    let held = scene.hold();
    let queued = scene.json(["migrate", "a/x", "--to", "slow", "--no-wait"]);
    assert_eq!(queued[0]["key"], "a/x");
    let id = queued[0]["id"].as_u64().expect("a number");
    // Waits for the queue to run empty.
    scene.ok(["migrate", "a/x", "--to", "slow"]);
    let moves = scene.json(["migrate", "--list"])[0]["moves"].clone();
    let listed = moves.as_array().expect("a list").iter().find(|report| report["id"] == id);
    assert_eq!(listed.expect("it is listed")["outcome"], "done");
    assert!(scene.ok(["migrate", "--list"]).contains("a/x segment 0: move fast -> slow, done"));
    held.stop();
}

#[test]
fn only_one_process_holds_a_store() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.fails(5, ["hold"]);
    held.stop();
    scene.ok(["hold", "--for", "1ms"]);
}

#[test]
fn hold_for_a_time_ends_by_itself() {
    let scene = Scene::with_policy();
    let printed = scene.ok(["hold", "--for", "10ms", "--dry-run"]);
    assert_eq!(printed, "holding store: 2 tiers, policy lru (dry run); Ctrl-C stops\n");
    let ready = &scene.json(["hold", "--for", "10ms"])[0];
    assert_eq!(ready["ready"], true);
    assert_eq!(ready["store"], "store");
    assert_eq!(ready["policy"], "lru");
    assert_eq!(ready["is_dry_run"], false);
    assert!(ready["process"].is_u64());
    scene.fails(2, ["hold", "--for", "10"]);
}

#[test]
fn a_store_whose_holder_was_killed_opens_again() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok_with(b"hello", ["put", "a/x"]);
    // Kills it.
    drop(held);
    let ran = scene.run(["get", "a/x"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), "hello"), "{ran:?}");
}

#[test]
fn hold_says_as_json_why_it_cannot() {
    let scene = Scene::new();
    let held = scene.hold();
    let ran = scene.run(["hold", "--json"]);
    assert_eq!(ran.status, Some(5), "{ran:?}");
    assert_eq!(values(&ran.stderr)[0]["error"]["kind"], "busy");
    held.stop();
}

#[test]
fn an_idle_holder_has_one_thread_for_others() {
    let scene = Scene::new();
    let held = scene.hold();
    let threads = || -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", held.process())).expect("it runs");
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            // One that ends just now has none.
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        let names = tasks.filter_map(name).map(|name| name.trim_end().to_owned());
        let serves = ["terrace-accept", "terrace-client", "terrace-sweep", "terrace-waiting"];
        names.filter(|name| serves.contains(&name.as_str())).collect()
    };
    // It is named when it first runs.
    let clock = SystemClock::default();
    while threads().is_empty() && clock.now_ns() < NAMED_MAX.as_nanos() as u64 {
        std::thread::yield_now();
    }
    assert_eq!(threads(), ["terrace-accept"]);
    held.stop();
}
