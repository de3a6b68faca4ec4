// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `init`, `fsck`, and stores that cannot be opened.

use crate::scene::{Scene, finish, one_error, piped, values};

#[test]
fn init_without_tiers_makes_a_store_that_works() {
    let scene = Scene::empty();
    let printed = scene.ok(["init"]);
    for expected in ["made the store store", "fast", "slow", "policy lru", "TERRACE_STORE=store"] {
        assert!(printed.contains(expected), "{printed}");
    }
    scene.ok_with(b"hello", ["put", "greeting"]);
    assert_eq!(scene.ok(["get", "greeting"]), "hello");
    assert!(scene.path("store/terrace.toml").is_file());
}

#[test]
fn init_reports_as_json() {
    let scene = Scene::empty();
    let printed = scene.json(["init", "other", "--policy", "none", "--tier", "one=one"]);
    assert_eq!(printed.len(), 1);
    assert_eq!(printed[0]["store"], "other");
    assert_eq!(printed[0]["settings"], "other/terrace.toml");
    assert_eq!(printed[0]["tiers"], serde_json::json!(["one"]));
    assert!(printed[0]["policy"].is_null());
}

#[test]
fn init_takes_a_configuration() {
    let scene = Scene::new();
    let settings = std::fs::read_to_string(scene.path("store/terrace.toml")).expect("readable");
    let settings = settings.replace("/fast\"", "/fast-2\"").replace("/slow\"", "/slow-2\"");
    scene.file("mine.toml", settings);
    scene.ok(["init", "second", "--settings", "mine.toml"]);
    let tiers = scene.json(["tiers", "--store", "second"]);
    assert_eq!(tiers[0]["tiers"][1]["name"], "slow");
    assert!(scene.fails(3, ["init", "third", "--settings", "missing.toml"]).contains("missing"));
}

#[test]
fn init_does_not_touch_a_store_that_exists() {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "greeting"]);
    scene.fails(6, ["init"]);
    assert_eq!(scene.ok(["get", "greeting"]), "hello");
}

#[test]
fn init_refuses_wrong_settings_and_leaves_nothing() {
    let scene = Scene::empty();
    for tier in ["fast", "fast=f,capacity=1", "fast=f,capcity=1GB", "fast=f,latency=fast"] {
        scene.fails(2, ["init", "--tier", tier]);
        assert!(!scene.path("store").exists(), "{tier}");
    }
    scene.fails(2, ["init", "--tier", "a=same", "--tier", "b=same"]);
    assert!(!scene.path("store").exists());
}

#[test]
fn a_store_that_is_missing_is_not_found() {
    let scene = Scene::empty();
    assert!(scene.fails(3, ["ls"]).contains("store"));
    let mut command = scene.command(["ls"]);
    let ran = finish(piped(command.env_remove("TERRACE_STORE")));
    assert_eq!(ran.status, Some(2));
    assert!(one_error(&ran).contains("--store DIR"));
}

#[test]
fn the_option_goes_before_the_environment() {
    let scene = Scene::new();
    scene.ok(["init", "other", "--tier", "one=one", "--policy", "none"]);
    scene.ok_with(b"", ["put", "here"]);
    assert_eq!(scene.ok(["ls"]), "default/here\n");
    assert_eq!(scene.ok(["ls", "--store", "other"]), "");
    assert_eq!(scene.ok(["--store", "other", "ls"]), "");
}

#[test]
fn fsck_finds_nothing_in_a_good_store() {
    let scene = Scene::new();
    scene.ok_with(&[7; 5000], ["put", "run/a"]);
    for arguments in [&["fsck"][..], &["fsck", "--verify"]] {
        let printed = scene.ok(arguments);
        assert!(printed.contains("1 object, 1 segment"), "{printed}");
        assert!(printed.ends_with("no problems\n"), "{printed}");
    }
    let report = &scene.json(["fsck", "--verify"])[0];
    assert_eq!(report["objects"], 1);
    assert_eq!(report["verified_bytes"], 5000);
    assert_eq!(report["problems"], serde_json::json!([]));
}

#[test]
fn fsck_finds_a_file_that_is_missing() {
    let scene = Scene::new();
    scene.ok_with(&[7; 5000], ["put", "run/a"]);
    let stored: Vec<_> = scene.files("fast").into_iter().filter(|f| !f.contains("super")).collect();
    let lost = stored
        .iter()
        .map(|name| scene.path("fast").join(name))
        .find(|path| std::fs::metadata(path).is_ok_and(|found| found.len() == 5000));
    std::fs::remove_file(lost.expect("the object's file")).expect("removed");
    let ran = scene.run(["fsck"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("problem: "), "{ran:?}");
    let ran = scene.run(["fsck", "--json"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let problem = &values(&ran.stdout)[0]["problems"][0];
    assert!(problem["kind"].is_string() && problem["place"].is_string(), "{problem}");
}
