// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tiers add`, `drain`, `remove` and `replace`.

use serde_json::Value;

use crate::scene::Scene;

const ADD: [&str; 9] =
    ["tiers", "add", "new", "--path", "new", "--capacity", "50MB", "--before", "slow"];

fn settings(scene: &Scene) -> String {
    String::from_utf8(scene.read("store/terrace.toml")).expect("text")
}

fn names(scene: &Scene) -> Vec<String> {
    let listed = scene.json(["tiers"]);
    let tiers = listed[0]["tiers"].as_array().expect("a list").clone();
    tiers.iter().map(|tier| tier["name"].as_str().expect("a name").to_string()).collect()
}

fn tier_of(scene: &Scene, key: &str) -> Value {
    scene.json(["explain", key])[0]["segments"][0]["tier"].clone()
}

#[test]
fn a_tier_is_added_to_a_held_store_and_kept() {
    let scene = Scene::with_policy();
    let before = settings(&scene);
    let held = scene.hold();
    assert_eq!(scene.ok(ADD), "added the tier new\n");
    // It is the last until the store is opened again.
    assert_eq!(names(&scene), ["fast", "slow", "new"]);
    scene.ok_with(b"hello", ["put", "greeting"]);
    scene.ok(["migrate", "greeting", "--to", "new"]);
    held.stop();
    assert_eq!(names(&scene), ["fast", "new", "slow"]);
    assert_eq!(tier_of(&scene, "greeting"), "new");
    let after = settings(&scene);
    let added = after.find("name = \"new\"").expect("it is there");
    assert!(added < after.find("name = \"slow\"").expect("it is there"), "{after}");
    assert!(before.lines().all(|line| after.contains(line)), "everything else stays: {after}");
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
}

#[test]
fn what_cannot_be_added_leaves_everything_as_it_was() {
    let scene = Scene::new();
    let before = settings(&scene);
    scene.file("full/data", b"somebody's");
    scene.fails(7, ["tiers", "add", "new", "--path", "full"]);
    scene.fails(2, ["tiers", "add", "fast", "--path", "new"]);
    scene.fails(2, ["tiers", "add", "new", "--path", "new", "--capacity", "much"]);
    scene.fails(3, ["tiers", "add", "new", "--path", "new", "--before", "nobody"]);
    assert_eq!(settings(&scene), before);
    assert!(!scene.path("new").exists());
    assert_eq!(names(&scene), ["fast", "slow"]);
}

#[test]
fn a_tier_is_drained_and_removed() {
    let scene = Scene::new();
    scene.ok_with(&[7; 100_000], ["put", "a"]);
    scene.ok_with(b"b", ["put", "b"]);
    scene.ok(["pin", "b"]);
    let line = scene.fails(2, ["tiers", "remove", "fast"]);
    assert!(line.contains("used_bytes=100001"), "{line}");
    let drained = scene.json(["tiers", "drain", "fast", "--wait"]);
    assert_eq!(drained[0]["drain"]["is_done"], true, "{drained:?}");
    assert!(scene.ok(["tiers"]).contains("drain"), "the listing shows it");
    assert_eq!(scene.ok(["tiers", "remove", "fast"]), "removed the tier fast\n");
    assert_eq!(names(&scene), ["slow"]);
    assert!(!settings(&scene).contains("name = \"fast\""));
    assert_eq!(scene.ok(["get", "a"]).len(), 100_000);
    assert_eq!(scene.ok(["get", "b"]), "b");
    // The directory is nobody's now.
    scene.ok(["tiers", "add", "again", "--path", "fast"]);
    assert_eq!(names(&scene), ["slow", "again"]);
}

#[test]
fn a_drain_can_be_cancelled_and_survives_a_restart() {
    let scene = Scene::new();
    scene.ok(["tiers", "drain", "slow", "--wait"]);
    let refused = scene.run_with(&[7; 2_000_000], ["put", "a"]);
    assert_eq!(refused.status, Some(4), "{refused:?}");
    scene.fails(2, ["tiers", "drain", "fast"]);
    let ended = scene.ok(["tiers", "drain", "slow", "--cancel"]);
    assert_eq!(ended, "slow is no longer drained\n");
    scene.ok_with(&[7; 2_000_000], ["put", "a"]);
}

#[test]
fn a_drain_says_what_cannot_move() {
    let scene = Scene::new();
    scene.ok_with(&[7; 2_000_000], ["put", "large"]);
    let held = scene.hold();
    scene.ok(["tiers", "drain", "slow"]);
    let ran = loop {
        let ran = scene.ok(["tiers", "--long"]);
        if ran.contains("cannot move") {
            break ran;
        }
    };
    assert!(ran.contains("default/large segment 0: no-space"), "{ran}");
    held.stop();
}

#[test]
fn a_replacement_goes_on_where_it_was_interrupted() {
    let scene = Scene::with_policy();
    scene.ok_with(b"hello", ["put", "greeting"]);
    let replace =
        ["tiers", "replace", "fast", "new", "--path", "new", "--setting", "watermarks.high=0.8"];
    // As if the command had been killed after its first step.
    scene.ok(["tiers", "add", "new", "--path", "new", "--before", "fast"]);
    assert_eq!(scene.ok(replace), "replaced the tier fast by new\n");
    assert_eq!(names(&scene), ["new", "slow"]);
    assert_eq!(scene.ok(["get", "greeting"]), "hello");
    assert_eq!(scene.ok(replace), "replaced the tier fast by new\n", "again changes nothing");
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
}

#[test]
fn a_store_of_one_tier_gets_a_second() {
    let scene = Scene::empty();
    scene.ok(["init", "store", "--policy", "none", "--tier", "one=one"]);
    scene.ok_with(b"hello", ["put", "greeting"]);
    let added = scene.ok(["tiers", "add", "two", "--path", "two"]);
    assert_eq!(added, "added the tier two; it is used from the next opening on\n");
    assert_eq!(names(&scene), ["one", "two"]);
    scene.ok(["migrate", "greeting", "--to", "two"]);
    scene.ok(["tiers", "drain", "one", "--wait"]);
    scene.ok(["tiers", "remove", "one"]);
    assert_eq!(scene.ok(["get", "greeting"]), "hello");
}

#[test]
fn a_tier_is_described_as_in_init() {
    let scene = Scene::new();
    let added = scene.ok(["tiers", "add", "new=new,capacity=50MB,watermarks.high=0.8"]);
    assert_eq!(added, "added the tier new\n");
    assert_eq!(names(&scene), ["fast", "slow", "new"]);
    assert_eq!(scene.json(["tiers"])[0]["tiers"][2]["capacity_bytes"], 50_000_000);
    let replaced = scene.ok(["tiers", "replace", "new", "ram=memory:", "--capacity", "5MB"]);
    assert_eq!(replaced, "replaced the tier new by ram\n");
    assert_eq!(names(&scene), ["fast", "slow", "ram"]);
    // A path has commas where nothing is behind it.
    scene.ok(["tiers", "add", "comma", "--path", "a,b/f"]);
    assert!(scene.path("a,b/f").is_dir());
}

#[test]
fn a_tier_that_is_not_there_is_answered_with_those_that_are() {
    let scene = Scene::new();
    for arguments in [
        &["add", "new=new", "--before", "medium"][..],
        &["drain", "medium"],
        &["remove", "medium"],
        &["replace", "medium", "new=new"],
    ] {
        let line = scene.fails(3, ["tiers"].iter().chain(arguments));
        assert!(line.contains("\"medium\"") && line.contains("fast, slow"), "{line}");
    }
    assert!(!scene.path("new").exists());
}

#[test]
fn what_is_wrong_with_a_tier_is_said_without_a_file() {
    let scene = Scene::new();
    for (arguments, expected) in [
        (&["new"][..], "--path DIR"),
        (&["new=a,b/f"], "--path DIR"),
        (&["new=a,b=c,d/f"], "--path DIR"),
        (&["new=a", "--path", "b"], "--path"),
        (&["new=a", "--backend", "memory"], "--backend"),
        (&["new=a,capcity=1MB"], "did you mean `capacity`? known are name, backend"),
        (&["new=a,throttle.speed=1"], "known are latency, bandwidth"),
        (&["new=a,capacity=much"], "200GB"),
        (&["new/1=a"], "letters from a to z"),
        (&["new", "--path", "a", "--backend", "fiel"], "did you mean \"file\"?"),
    ] {
        let line = scene.fails(2, ["tiers", "add"].iter().chain(arguments));
        assert!(line.contains(expected) && !line.contains("terrace.toml"), "{line}");
        let line = scene.fails(2, ["tiers", "replace", "slow"].iter().chain(arguments));
        assert!(line.contains(expected) && !line.contains("terrace.toml"), "{line}");
    }
    for (tier, expected) in [
        ("fast=/a,b/f", "--settings"),
        ("fast=f,capacity", "--settings"),
        ("fast=f,b/c=d", "--settings"),
        ("fast=f,capcity=1MB", "did you mean `capacity`? known are name, backend"),
    ] {
        let line = scene.fails(2, ["init", "other", "--tier", tier]);
        assert!(line.contains(expected) && !line.contains("terrace.toml"), "{line}");
    }
    let line = scene.fails(2, ["init", "other", "--policy", "lur"]);
    assert!(line.contains("did you mean \"lru\"?") && !line.contains("terrace.toml"), "{line}");
}
