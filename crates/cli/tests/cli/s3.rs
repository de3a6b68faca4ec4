// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store with a bucket below a directory, through the command.

use serde_json::Value;
use terrace_core::{Backend, Clock, Create, Key, ObjectExt, Open, SystemClock};
use terrace_store::{Recording, Store};
use terrace_testkit::pattern_bytes;
use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Fault, S3FaultPoint, S3Server, SECRET};

use crate::cut_off::eventually;
use crate::scene::{Scene, finish, one_error, piped};

/// A directory with a file of credentials, and the description of a tier on a server.
pub(crate) fn prepared(server: &S3Server) -> (Scene, String) {
    let scene = Scene::empty();
    let text = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    scene.file("keys", text);
    let endpoint = server.endpoint();
    let tier = format!(
        "cold=s3://{BUCKET}/stores/one,endpoint={endpoint},region={REGION},credentials=keys,deadline=5s"
    );
    (scene, tier)
}

fn made(server: &S3Server) -> Scene {
    let (scene, tier) = prepared(server);
    scene.ok([
        "init",
        "store",
        "--policy",
        "none",
        "--tier",
        "fast=fast,capacity=100MB",
        "--tier",
        &tier,
    ]);
    scene
}

fn tier_of(scene: &Scene, key: &str) -> Value {
    scene.json(["explain", key])[0]["segments"][0]["tier"].clone()
}

fn objects(server: &S3Server) -> usize {
    server.names().iter().filter(|name| name.contains("/o/seg/")).count()
}

#[test]
fn an_object_goes_to_a_bucket_and_is_recalled_by_a_write() {
    let server = S3Server::start();
    let scene = made(&server);
    let data = pattern_bytes(1, 0, 0, 300_000);
    scene.ok_with(&data, ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    assert_eq!(tier_of(&scene, "object"), "cold");
    assert_eq!(objects(&server), 1);
    scene.ok(["get", "object", "copy"]);
    assert_eq!(scene.read("copy"), data);
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
    let key = key_of(&scene);
    server.counts();
    let store = Store::open(&scene.path("store").display().to_string()).expect("it opens");
    let counts: Vec<_> = server.counts().into_iter().collect();
    assert_eq!(counts, [("GET", 5), ("LIST", 1), ("PUT", 2)], "an opening");
    let object = store.open(&key, &Open::write()).expect("it opens");
    // A part of it is a ranged request.
    server.bytes();
    let mut part = [0; 10];
    object.read(100_000, &mut part).expect("reads");
    assert_eq!(part, data[100_000..100_010]);
    assert!(server.bytes().1 < 1000, "only what is asked for is fetched");
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
    let explained = scene.ok(["explain", "object"]);
    assert!(explained.contains("takes whole objects only"), "{explained}");
    scene.ok(["migrate", "object", "--to", "cold"]);
    scene.ok(["rm", "object"]);
    scene.ok(["fsck"]);
    assert_eq!(objects(&server), 0);
    let tiers = scene.json(["tiers"]);
    let cold = &tiers[0]["tiers"][1];
    assert_eq!((&cold["writes"], &cold["persistency"]), (&"whole".into(), &"shared".into()));
    assert_eq!(cold["target"], "s3://bucket/stores/one");
}

/// The key of the object, as the command makes it.
fn key_of(scene: &Scene) -> Key {
    let explained = scene.json(["explain", "object"]);
    Key::parse(explained[0]["key"].as_str().expect("a key")).expect("legal")
}

#[test]
fn a_bucket_is_added_drained_and_removed() {
    let server = S3Server::start();
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
fn what_is_wrong_with_a_bucket_is_told_and_leaves_nothing() {
    let server = S3Server::start();
    let (scene, tier) = prepared(&server);
    let init = |tier: &str| {
        let ran = scene.run(["init", "store", "--tier", "fast=fast", "--tier", tier]);
        assert!(!scene.path("store/terrace.toml").exists());
        assert_ne!(ran.status, Some(0), "{ran:?}");
        let error = one_error(&ran);
        assert!(!error.contains(SECRET) && !error.contains(KEY_ID), "{error}");
        error
    };
    let missing = init(&tier.replace("s3://bucket", "s3://other"));
    assert!(missing.contains("no such bucket"), "{missing}");
    server.inject(S3FaultPoint {
        kind: "",
        name: String::new(),
        times: 1,
        fault: S3Fault::Refuse(403, "AccessDenied"),
    });
    let denied = init(&tier);
    assert!(denied.contains("permissions"), "{denied}");
    // Without any credentials.
    let mut command = scene.command(["init", "store", "--tier", "fast=fast", "--tier"]);
    command.arg(tier.replace(",credentials=keys", "")).env_clear();
    command.env("HOME", scene.path("")).env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1");
    let ran = finish(piped(&mut command));
    assert!(one_error(&ran).contains("no credentials were found"), "{ran:?}");
    server.plant("stores/one/mine", b"somebody's");
    let taken = init(&tier);
    assert!(taken.contains("another `prefix`"), "{taken}");
    assert_eq!(server.names(), ["stores/one/mine"]);
    // Of buckets alone no store can be made, and what was begun is cleared.
    let alone = tier.replace("stores/one", "stores/two");
    let ran = scene.run(["init", "store", "--tier", &alone]);
    assert!(one_error(&ran).contains("whole objects only"), "{ran:?}");
    assert_eq!(server.names(), ["stores/one/mine"]);
}

#[test]
fn no_output_has_the_credentials() {
    let server = S3Server::start();
    let scene = made(&server);
    scene.ok_with(b"bytes", ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let mut said = vec![settings];
    for arguments in [
        vec!["tiers", "--json"],
        vec!["tiers", "--long"],
        vec!["explain", "object", "--json"],
        vec!["fsck", "--json"],
        vec!["tiers", "add", "cold=s3://bucket/x,endpoint=http://127.0.0.1:1"],
    ] {
        let ran = scene.run(arguments);
        said.push(ran.stdout + &ran.stderr);
    }
    for text in said {
        assert!(!text.contains(SECRET) && !text.contains(KEY_ID), "{text}");
    }
}

#[test]
fn a_bucket_is_calibrated() {
    let server = S3Server::start();
    let scene = made(&server);
    server.inject(S3FaultPoint {
        kind: "GET",
        name: "/o/calibrate/".into(),
        times: u64::MAX,
        fault: S3Fault::Stall(std::time::Duration::from_millis(5)),
    });
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let price = "name = \"cold\"\nprice_per_gb_month = 0.02 # from a list\n";
    scene.file("store/terrace.toml", settings.replace("name = \"cold\"\n", price));
    let words = "calibrate store --tier cold --seconds 4 --write";
    let found = scene.json(words.split_whitespace()).remove(0);
    let latency_ns = found["tiers"][0]["latency_ns"].as_u64().expect("a number");
    assert!((4_000_000..20_000_000).contains(&latency_ns), "{found}");
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let cold = settings.split("name = \"cold\"").nth(1).expect("its section");
    assert!(cold.contains("latency = ") && cold.contains("bucket = \"bucket\""), "{settings}");
    // It measures no prices, and leaves them.
    assert!(cold.contains("price_per_gb_month = 0.02 # from a list"), "{settings}");
    assert_eq!(found["tiers"][0]["prices"]["price_per_gb_month"], 0.02, "{found}");
    let tiers = scene.json(["tiers"]).remove(0);
    assert_eq!(tiers["tiers"][1]["price_per_gb_month"], 0.02, "{tiers}");
    assert_eq!(tiers["tiers"][0]["price_per_gb_month"], 0.0, "{tiers}");
    let is_of_store =
        |name: &String| name == "stores/one/superblock" || name.starts_with("stores/one/c/");
    assert!(server.names().iter().all(is_of_store), "{:?}", server.names());
}

/// What a replay counts for a bucket is what its service was asked.
#[test]
fn a_replay_counts_the_requests_that_were_made() {
    let server = S3Server::start();
    let (scene, tier) = prepared(&server);
    let words = ["init", "store", "--policy", "write-buffer", "--tier", "fast=fast", "--tier"];
    scene.ok(words.into_iter().chain([tier.as_str()]));
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    // The log of the catalog would be in the bucket, too.
    let settings = settings.replace("[catalog]\n", "[catalog]\ncheckpoint = false\n")
        + "\n[policy.parameters]\ntimeout = \"200ms\"\n";
    scene.file("store/terrace.toml", settings);
    let store = Store::open(&scene.path("store").display().to_string()).expect("it opens");
    let recording = Recording { has_decisions: false, ..Recording::default() };
    store.admin().record(&recording).expect("it begins");
    server.counts();
    let put = |name: &str, bytes: usize| {
        let key = Key::new("run", name).expect("legal");
        let object = store.open(&key, &Open { create: Create::New, ..Open::write() });
        let object = object.expect("it is made");
        object.write(0, &pattern_bytes(1, 0, 0, bytes)).expect("written");
        key
    };
    let is_below = |segments: u64| {
        let tiers = store.admin().tiers().expect("asked");
        tiers[1].segments == segments && tiers[0].garbage_bytes == 0
    };
    // Rounds of the policy come at other moments in virtual time, a tenth of a second apart.
    let later = || {
        let clock = SystemClock::default();
        let end_ns = clock.now_ns() + 1_000_000_000;
        eventually("time passes", || clock.now_ns() >= end_ns);
    };
    let keys = [("small", 100_000), ("large", 20 << 20), ("read", 9 << 20), ("gone", 50_000)];
    let [small, large, read, gone] = keys.map(|(name, bytes)| put(name, bytes));
    eventually("they are in the bucket", || is_below(4));
    later();
    // Anywhere, from front to back, all at once, and what is not read at all.
    let mut part = vec![0; 128 << 10];
    let object = store.open(&large, &Open::read()).expect("opens");
    for offset_bytes in [5 << 20, 1 << 20, 7 << 20] {
        object.read(offset_bytes, &mut part[..4096]).expect("read");
    }
    object.read(0, &mut vec![0; 9 << 20]).expect("read");
    drop(object);
    let object = store.open(&read, &Open::read()).expect("opens");
    for piece in 0..72 {
        object.read(piece * (128 << 10), &mut part).expect("read");
    }
    // A write recalls it, and the policy moves it to the bucket again.
    store.open(&small, &Open::write()).expect("opens").write(10, b"new").expect("recalled");
    store.delete(&gone).expect("deleted");
    eventually("it is there again", || is_below(3));
    later();
    // A replay ends with its last request.
    object.read(0, &mut part[..4096]).expect("read");
    drop(object);
    store.admin().stop_recording().expect("it ends");
    let made = server.counts();
    let sum = |kinds: &[&str]| kinds.iter().filter_map(|kind| made.get(kind)).sum::<u64>();
    store.close().expect("it closes");
    let replay = scene.json("replay store/trace --store store".split_whitespace()).remove(0);
    let replay = replay["replays"].as_array().expect("a list");
    let own = replay.iter().find(|one| one["policy"] == "write-buffer").expect("the store's own");
    let cold = &own["tiers"][1];
    let counted = ["write", "read", "delete"].map(|kind| cold[format!("{kind}_requests")].as_u64());
    let expected = [
        sum(&["PUT", "BEGIN", "PART", "COMPLETE"]),
        sum(&["GET", "HEAD"]),
        sum(&["DELETE", "ABORT"]),
    ];
    assert_eq!(counted, expected.map(Some), "{made:?} {own}");
}
