// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deleted and earlier values of objects in a bucket: listed, brought back, and gone with the tier.

use terrace_testkit::pattern_bytes;
use terrace_testkit::s3::S3Server;

use crate::network::Serving;
use crate::s3::prepared;
use crate::scene::{Scene, one_error};

/// A store with a bucket that keeps what leaves it.
fn made(server: &S3Server) -> Scene {
    let (scene, tier) = prepared(server);
    let tier = format!("{tier},keep_deleted=7d");
    let tiers = ["--tier", "fast=fast,capacity=100MB", "--tier", &tier];
    scene.ok(["init", "store", "--policy", "none"].into_iter().chain(tiers));
    scene
}

fn count(server: &S3Server, part: &str) -> usize {
    server.names().iter().filter(|name| name.contains(part)).count()
}

#[test]
fn a_removed_object_is_listed_and_comes_back() {
    let server = S3Server::start();
    let scene = made(&server);
    let (first, second) = (pattern_bytes(1, 0, 0, 300_000), pattern_bytes(2, 0, 0, 200_000));
    for data in [&first, &second] {
        scene.ok_with(data, ["put", "runs/a"]);
        scene.ok(["migrate", "runs/a", "--to", "cold"]);
    }
    scene.ok(["rm", "runs/a"]);
    let listed = scene.json(["versions", "runs/a"]).remove(0);
    assert_eq!(listed["key"], "runs/a");
    let versions = listed["versions"].as_array().expect("a list");
    let of = |field: &str| versions.iter().map(|one| one[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("end"), ["deleted", "replaced"]);
    assert_eq!(of("size_bytes"), [200_000, 300_000]);
    assert_eq!(of("is_whole"), [true, true]);
    assert_eq!(versions[0]["tiers"], serde_json::json!(["cold"]));
    let week_ns = 7 * 86_400 * 1_000_000_000_u64;
    let (ended, until) = (&versions[0]["ended_ns"], &versions[0]["kept_until_ns"]);
    assert_eq!(until.as_u64().expect("known") - ended.as_u64().expect("known"), week_ns);
    let text = scene.ok(["versions", "runs/a"]);
    assert!(
        text.contains("deleted") && text.contains("300 kB") && text.contains("whole"),
        "{text}"
    );
    let tiers = scene.json(["tiers"]).remove(0);
    let cold = &tiers["tiers"][1];
    assert_eq!((&cold["kept_bytes"], &cold["keep_deleted_ns"]), (&500_000.into(), &week_ns.into()));
    assert!(scene.ok(["tiers"]).contains("500 kB"));
    assert!(scene.ok(["tiers", "--long"]).contains("keeps deleted          7 d\n"));
    // The latest, in its place.
    let made = scene.json(["undelete", "runs/a"]).remove(0);
    assert_eq!((&made["key"], &made["version"]), (&"runs/a".into(), &versions[0]));
    scene.ok(["get", "runs/a", "a"]);
    assert_eq!(scene.read("a"), second);
    // Not over what is there, unless that is said.
    let earlier = versions[1]["version"].as_str().expect("a name").to_owned();
    let error = scene.fails(6, ["undelete", "runs/a", "--version", &earlier]);
    assert!(error.contains("--force"), "{error}");
    scene.ok(["undelete", "runs/a", "--version", &earlier, "--to", "runs/b"]);
    scene.ok(["get", "runs/b", "b"]);
    assert_eq!(scene.read("b"), first);
    // Through the process that holds the store.
    let held = scene.hold();
    assert_eq!(scene.json(["versions", "runs/a"])[0]["versions"], listed["versions"]);
    scene.ok(["undelete", "runs/a", "--version", &earlier, "--force"]);
    held.stop();
    scene.ok(["get", "runs/a", "again"]);
    assert_eq!(scene.read("again"), first);
    // Over the network.
    let serving = Serving::start(&scene, "127.0.0.1:0");
    let address = format!("terrace://{}", serving.address);
    let far = |words: &[&str]| {
        let mut arguments = vec!["--store", address.as_str()];
        arguments.extend(words);
        scene.json(arguments).remove(0)
    };
    assert_eq!(far(&["versions", "runs/a"])["versions"], listed["versions"]);
    let made = far(&["undelete", "runs/a", "--to", "runs/far"]);
    assert_eq!(made["version"], versions[0]);
    serving.stop();
    scene.ok(["get", "runs/far", "far"]);
    assert_eq!(scene.read("far"), second);
    scene.fails(3, ["undelete", "runs/a", "--version", "77", "--to", "runs/c"]);
    scene.fails(3, ["undelete", "runs/none"]);
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
    // A catalog that is made anew has them, too.
    scene.ok(["rm", "runs/a", "runs/b"]);
    let rebuilt = scene.run(["--json", "fsck", "--rebuild"]);
    assert_eq!(rebuilt.status, Some(0), "{rebuilt:?}");
    scene.fails(3, ["get", "runs/a"]);
    assert_eq!(scene.json(["versions", "runs/a"])[0]["versions"], listed["versions"]);
    scene.ok(["undelete", "runs/a"]);
    scene.ok(["get", "runs/a", "rebuilt"]);
    assert_eq!(scene.read("rebuilt"), second);
}

#[test]
fn what_a_tier_keeps_goes_with_it() {
    let server = S3Server::start();
    let scene = made(&server);
    scene.ok_with(b"bytes", ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    scene.ok(["rm", "object"]);
    assert_eq!((count(&server, "/o/seg/"), count(&server, "/o/kept/")), (1, 1));
    let drained = scene.ok(["tiers", "drain", "cold", "--wait"]);
    assert!(drained.contains("of versions that it keeps"), "{drained}");
    let removed = scene.run(["tiers", "remove", "cold"]);
    assert_eq!(removed.status, Some(0), "{removed:?}");
    assert!(removed.stderr.contains("5 B of versions"), "{removed:?}");
    assert_eq!(count(&server, "/o/"), 0);
    assert_eq!(scene.json(["versions", "object"])[0]["versions"], serde_json::json!([]));
}

#[test]
fn without_the_setting_the_next_opening_deletes_what_is_kept() {
    let server = S3Server::start();
    let scene = made(&server);
    scene.ok_with(b"bytes", ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    scene.ok(["rm", "object"]);
    assert_eq!(count(&server, "/o/kept/"), 1);
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    assert!(settings.contains("keep_deleted = \"7d\"\n"), "{settings}");
    scene.file("store/terrace.toml", settings.replace("keep_deleted = \"7d\"\n", ""));
    scene.ok_with(b"other", ["put", "other"]);
    assert_eq!(count(&server, "/o/"), 0);
}

#[test]
fn tiers_that_are_written_in_place_refuse_the_setting() {
    let scene = Scene::empty();
    for tier in ["slow=slow,keep_deleted=7d", "ram=memory:,compress=zstd:1,keep_deleted=7d"] {
        let ran = scene.run(["init", "store", "--tier", "fast=fast", "--tier", tier]);
        assert_eq!(ran.status, Some(2), "{ran:?}");
        let error = one_error(&ran);
        assert!(error.contains("`keep_deleted`") || error.contains("keep_deleted"), "{error}");
    }
    scene.ok([
        "init",
        "store",
        "--tier",
        "fast=fast",
        "--tier",
        "cold=cold,compress=zstd:1,keep_deleted=1h",
    ]);
    scene.ok_with(b"bytes", ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    scene.ok(["rm", "object"]);
    scene.ok(["undelete", "object"]);
    assert_eq!(scene.ok(["get", "object"]), "bytes");
}
