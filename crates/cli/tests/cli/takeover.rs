// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace takeover`, what it prints and what can be done afterwards; `crates/store/tests/takeover.rs` has
//! what is lost and what is not.

use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};

use crate::scene::{Scene, one_error};

/// A store with a bucket, and what to give to `takeover`.
fn made(server: &S3Server) -> (Scene, String) {
    let scene = Scene::empty();
    scene.file(
        "keys",
        format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n"),
    );
    let bucket = format!(
        "s3://{BUCKET}/one,endpoint={},region={REGION},credentials=keys,deadline=20s",
        server.endpoint()
    );
    let cold = format!("cold={bucket}");
    let tiers = ["--tier", "fast=fast,capacity=100MB", "--tier", &cold];
    scene.ok(["init", "store", "--policy", "lru"].into_iter().chain(tiers));
    (scene, bucket)
}

#[test]
fn a_takeover_tells_what_is_unreachable() {
    let server = S3Server::start();
    let (scene, bucket) = made(&server);
    scene.ok_with(b"shared", ["put", "--persistency", "shared", "one"]);
    scene.ok_with(b"local", ["put", "two"]);
    std::fs::rename(scene.path("store"), scene.path("lost")).expect("renamed");
    let told = scene.ok(["takeover", &bucket, "next", "--tier", "nvme=nvme"]);
    assert!(told.contains("term 2") && told.contains("1 objects are unreachable"), "{told}");
    assert!(told.contains("default/two"), "{told}");
    let run = |arguments: &[&str]| scene.run([&["--store", "next"], arguments].concat());
    assert_eq!(run(&["get", "one"]).stdout, "shared");
    assert_eq!(run(&["get", "two"]).status, Some(1), "{:?}", run(&["get", "two"]));
    // The directory of the tier comes back.
    std::fs::create_dir_all(scene.path("next/unreachable")).expect("made");
    std::fs::rename(scene.path("fast"), scene.path("next/unreachable/fast")).expect("moved");
    assert_eq!(run(&["get", "two"]).stdout, "local");
    // Nothing there.
    let ran = scene.run(["takeover", &bucket.replace("/one", "/none"), "other"]);
    assert!(one_error(&ran).contains("no tier of a store is there"), "{ran:?}");
    assert!(!scene.path("other").exists());
}
