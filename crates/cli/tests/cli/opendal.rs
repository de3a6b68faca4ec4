// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store with a directory of a service below one of this machine, through the command.

use serde_json::Value;
use terrace_core::{Backend, Key, ObjectExt, Open};
use terrace_store::Store;
use terrace_testkit::dav::{DavFault, DavServer, PASSWORD, PATH, USER};
use terrace_testkit::pattern_bytes;

use crate::scene::{Scene, one_error};

/// A directory with a file of credentials, and the description of a tier on a server.
fn prepared(server: &DavServer) -> (Scene, String) {
    let scene = Scene::empty();
    scene.file("keys", format!("user = {USER}\npassword = {PASSWORD}\n"));
    let address = server.endpoint().replace("http://", "webdav+http://");
    (scene, format!("cold={address}/stores,credentials=keys,deadline=5s"))
}

fn init(scene: &Scene, tier: &str) {
    let tiers = ["--tier", "fast=fast,capacity=100MB", "--tier", tier];
    scene.ok(["init", "store", "--policy", "none"].into_iter().chain(tiers));
}

fn tier_of(scene: &Scene, key: &str) -> Value {
    scene.json(["explain", key])[0]["segments"][0]["tier"].clone()
}

fn objects(server: &DavServer) -> usize {
    server.files().iter().filter(|name| name.contains("/o/seg/")).count()
}

/// The key of the object, as the command makes it.
fn key_of(scene: &Scene) -> Key {
    let explained = scene.json(["explain", "object"]);
    Key::parse(explained[0]["key"].as_str().expect("a key")).expect("legal")
}

#[test]
fn an_object_goes_to_a_server_and_is_recalled_by_a_write() {
    let server = DavServer::start("stores");
    let (scene, tier) = prepared(&server);
    init(&scene, &tier);
    let data = pattern_bytes(1, 0, 0, 300_000);
    scene.ok_with(&data, ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    assert_eq!(tier_of(&scene, "object"), "cold");
    assert_eq!(objects(&server), 1);
    scene.ok(["get", "object", "copy"]);
    assert_eq!(scene.read("copy"), data);
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
    let key = key_of(&scene);
    let store = Store::open(&scene.path("store").display().to_string()).expect("it opens");
    let object = store.open(&key, &Open::write()).expect("it opens");
    // A part of it is a ranged request.
    server.sent_bytes();
    let mut part = [0; 10];
    object.read(100_000, &mut part).expect("reads");
    assert_eq!(part, data[100_000..100_010]);
    assert!(server.sent_bytes() < 1000, "only what is asked for is fetched");
    object.write(10, b"changed").expect("recalled and written");
    drop(object);
    store.close().expect("it closes");
    drop(store);
    assert_eq!(tier_of(&scene, "object"), "fast");
    assert_eq!(objects(&server), 0);
    let mut changed = data;
    changed[10..17].copy_from_slice(b"changed");
    scene.ok(["get", "object", "again"]);
    assert_eq!(scene.read("again"), changed);
    scene.ok(["migrate", "object", "--to", "cold"]);
    scene.ok(["rm", "object"]);
    scene.ok(["fsck"]);
    assert_eq!(objects(&server), 0);
    let tiers = scene.json(["tiers"]);
    let cold = &tiers[0]["tiers"][1];
    assert_eq!((&cold["writes"], &cold["persistency"]), (&"whole".into(), &"storage".into()));
    let target = cold["target"].as_str().expect("a text");
    assert!(
        target.starts_with("webdav://127.0.0.1:") && target.ends_with("/dav/me/stores"),
        "{target}"
    );
}

#[test]
fn a_store_is_rebuilt_from_a_server() {
    let server = DavServer::start("stores");
    let (scene, tier) = prepared(&server);
    init(&scene, &format!("{tier},compress=zstd:3"));
    let data = pattern_bytes(1, 0, 0, 300_000);
    scene.ok_with(&data, ["put", "object"]);
    scene.ok_with(b"small", ["put", "other"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    std::fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    for entry in std::fs::read_dir(scene.path("fast")).expect("listed") {
        let path = entry.expect("listed").path();
        if path.file_name().is_some_and(|name| name == ".terrace-catalog") {
            std::fs::remove_dir_all(path).expect("removed");
        }
    }
    scene.ok(["fsck", "--rebuild"]);
    scene.ok(["get", "object", "copy"]);
    assert_eq!(scene.read("copy"), data);
    assert_eq!(scene.ok(["get", "other"]), "small");
    assert_eq!(tier_of(&scene, "object"), "cold");
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
}

#[test]
fn a_directory_of_a_server_is_added_drained_and_removed() {
    let server = DavServer::start("stores");
    let (scene, tier) = prepared(&server);
    scene.ok(["init", "store", "--policy", "lru", "--tier", "fast=fast,capacity=100MB"]);
    assert_eq!(scene.ok(["tiers", "add", &tier]), "added the tier cold\n");
    scene.ok_with(b"bytes", ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    assert_eq!(objects(&server), 1);
    scene.ok(["tiers", "drain", "cold", "--wait"]);
    assert_eq!(tier_of(&scene, "object"), "fast");
    scene.ok(["tiers", "remove", "cold"]);
    assert_eq!(objects(&server), 0);
    assert_eq!(scene.ok(["get", "object"]), "bytes");
}

#[test]
fn a_torn_first_superblock_does_not_lock_a_directory() {
    let server = DavServer::start("stores");
    let (scene, tier) = prepared(&server);
    // As a server that crashes while it writes in place leaves it.
    server.plant("stores/superblock", b"\x01\0\0\0\0\0\0\0terrace tier superblock 1\nsto");
    init(&scene, &tier);
    scene.ok_with(b"bytes", ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    assert_eq!(scene.ok(["get", "object"]), "bytes");
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
}

#[test]
fn what_is_wrong_with_a_server_is_in_the_error_and_leaves_nothing() {
    let server = DavServer::start("stores");
    let (scene, tier) = prepared(&server);
    let init = |tier: &str| {
        let ran = scene.run(["init", "store", "--tier", "fast=fast", "--tier", tier]);
        assert!(!scene.path("store/terrace.toml").exists());
        assert_ne!(ran.status, Some(0), "{ran:?}");
        let error = one_error(&ran);
        assert!(!error.contains(PASSWORD) && !error.contains("mistaken"), "{error}");
        error
    };
    let missing = init(&tier.replace("/stores", "/other"));
    assert!(missing.contains("has no directory `root`"), "{missing}");
    let elsewhere = init(&tier.replace(PATH, "/elsewhere"));
    assert!(elsewhere.contains("`endpoint` and `root`"), "{elsewhere}");
    scene.file("wrong", format!("user = {USER}\npassword = mistaken\n"));
    let denied = init(&tier.replace("=keys", "=wrong"));
    assert!(denied.contains("the user and the password"), "{denied}");
    let none = init(&tier.replace(",credentials=keys", ""));
    assert!(none.contains("`credentials`"), "{none}");
    server.inject("", "", 1, DavFault::Refuse(403));
    let denied = init(&tier);
    assert!(denied.contains("permissions"), "{denied}");
    // One that fails after it has begun clears what it made.
    server.inject("PUT", "superblock", 1000, DavFault::Refuse(403));
    init(&tier);
    server.heal();
    let alone = scene.run(["init", "store", "--tier", &tier]);
    assert!(one_error(&alone).contains("whole objects only"), "{alone:?}");
    assert_eq!(server.files(), Vec::<String>::new());
    assert_eq!(server.collections(), ["stores"]);
    server.plant("stores/mine", b"another's");
    let taken = init(&tier);
    assert!(taken.contains("another `root`"), "{taken}");
    assert_eq!(server.files(), ["stores/mine"]);
}

#[test]
fn no_output_has_the_credentials() {
    let server = DavServer::start("stores");
    let (scene, tier) = prepared(&server);
    init(&scene, &tier);
    scene.ok_with(b"bytes", ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let mut printed = vec![settings];
    for arguments in [
        vec!["tiers", "--json"],
        vec!["tiers", "--long"],
        vec!["explain", "object", "--json"],
        vec!["fsck", "--json"],
        vec!["tiers", "add", "cold=webdav+http://127.0.0.1:1/x,credentials=keys"],
    ] {
        let ran = scene.run(arguments);
        printed.push(ran.stdout + &ran.stderr);
    }
    for text in printed {
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

#[test]
fn the_level_shared_and_a_takeover_are_refused() {
    let server = DavServer::start("stores");
    let (scene, tier) = prepared(&server);
    init(&scene, &tier);
    let ran = scene.run(["put", "object", "/dev/null", "--persistency", "shared"]);
    assert_ne!(ran.status, Some(0), "{ran:?}");
    let error = one_error(&ran);
    assert!(error.contains("conditional write"), "{error}");
    let (_, address) = tier.split_once('=').expect("a name");
    let ran = scene.run(["takeover", address, "taken"]);
    let error = one_error(&ran);
    assert!(error.contains("conditional write"), "{error}");
}

#[test]
fn a_directory_of_a_server_is_calibrated() {
    let server = DavServer::start("stores");
    let (scene, tier) = prepared(&server);
    init(&scene, &tier);
    let stall = DavFault::Stall(std::time::Duration::from_millis(5));
    server.inject("GET", "/o/calibrate/", u64::MAX, stall);
    let words = "calibrate store --tier cold --seconds 4 --write";
    let found = scene.json(words.split_whitespace()).remove(0);
    let latency_ns = found["tiers"][0]["latency_ns"].as_u64().expect("a number");
    assert!((4_000_000..20_000_000).contains(&latency_ns), "{found}");
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let cold = settings.split("name = \"cold\"").nth(1).expect("its section");
    assert!(cold.contains("latency = ") && cold.contains("service = \"webdav\""), "{settings}");
    let is_of_store = |name: &String| name.starts_with("stores/superblock");
    assert!(server.files().iter().all(is_of_store), "{:?}", server.files());
}
