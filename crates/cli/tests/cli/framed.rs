// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers whose objects are compressed and encrypted, through the command.

use std::os::unix::fs::PermissionsExt;

use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};

use crate::scene::{Scene, one_error};

/// Bytes of which compression makes a third or less.
fn text() -> Vec<u8> {
    (0..60_000).flat_map(|number| format!("line {number}\n").into_bytes()).collect()
}

/// A store whose second tier is a directory with encrypted objects.
fn made() -> Scene {
    let scene = Scene::empty();
    let said = scene.ok(["key", "new", "cold.key"]);
    assert!(said.contains("cold.key") && !said.contains(&key_text(&scene)), "{said}");
    scene.ok([
        "init",
        "store",
        "--policy",
        "none",
        "--tier",
        "fast=fast,capacity=100MB",
        "--tier",
        "cold=cold,capacity=100MB,compress=zstd:3,encrypt=cold.key",
    ]);
    scene
}

fn key_text(scene: &Scene) -> String {
    String::from_utf8(scene.read("cold.key")).expect("text").trim().to_string()
}

/// All bytes below a directory.
fn bytes_below(directory: &std::path::Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(directory).expect("listed") {
        let path = entry.expect("listed").path();
        match path.is_dir() {
            true => bytes.extend(bytes_below(&path)),
            false => bytes.extend(std::fs::read(path).expect("read")),
        }
    }
    bytes
}

#[test]
fn objects_are_packed_accounted_and_recalled() {
    let scene = made();
    let data = text();
    scene.ok_with(&data, ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    let explained = scene.json(["explain", "object"]);
    let segment = &explained[0]["segments"][0];
    let packed = segment["allocated_bytes"].as_u64().expect("a number");
    assert!(packed < data.len() as u64 / 2, "{segment}");
    assert_eq!((&segment["tier"], &segment["packed"]), (&"cold".into(), &true.into()));
    let cold = scene.json(["tiers"])[0]["tiers"][1].clone();
    assert_eq!((&cold["used_bytes"], &cold["packed"]), (&packed.into(), &true.into()));
    assert_eq!(cold["writes"], "whole");
    assert!(scene.ok(["explain", "object"]).contains("packed into"));
    assert!(scene.ok(["tiers", "--long"]).contains("what objects take is accounted"));
    let stored = bytes_below(&scene.path("cold"));
    assert!(!stored.windows(8).any(|window| window == b"line 123"), "it is encrypted");
    scene.ok(["get", "object", "copy"]);
    assert_eq!(scene.read("copy"), data);
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
    scene.ok(["migrate", "object", "--to", "fast"]);
    assert_eq!(scene.json(["tiers"])[0]["tiers"][1]["used_bytes"], 0);
    scene.ok(["fsck", "--verify"]);
}

#[test]
fn the_catalog_comes_back_from_packed_objects() {
    let scene = made();
    let data = text();
    scene.ok_with(&data, ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    let used = scene.json(["tiers"])[0]["tiers"][1]["used_bytes"].clone();
    std::fs::remove_dir_all(scene.path("store/catalog")).expect("lost");
    scene.ok(["fsck", "--rebuild"]);
    assert_eq!(scene.json(["tiers"])[0]["tiers"][1]["used_bytes"], used);
    scene.ok(["get", "object", "copy"]);
    assert_eq!(scene.read("copy"), data);
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
}

#[test]
fn a_wrong_key_is_named_and_never_shown() {
    let scene = made();
    let right = key_text(&scene);
    let refused = |words: &[&str]| {
        let error = one_error(&scene.run(["put", "more"]));
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(!error.contains(&right), "{error}");
    };
    let path = scene.path("cold.key");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("set");
    refused(&["cold.key", "chmod 600", "tier=cold"]);
    std::fs::remove_file(&path).expect("removed");
    refused(&["cold.key", "tier=cold"]);
    scene.ok(["key", "new", "cold.key"]);
    assert_ne!(key_text(&scene), right);
    refused(&["another key than the one in `encrypt`", "tier=cold"]);
    std::fs::write(&path, "too short").expect("written");
    refused(&["64 hexadecimal digits", "cold.key"]);
    std::fs::write(&path, &right).expect("written");
    scene.ok(["tiers"]);
    assert!(one_error(&scene.run(["key", "new", "cold.key"])).contains("there already"));
    for args in [["tiers", "--json"], ["tiers", "--long"]] {
        assert!(!scene.ok(args).contains(&right));
    }
    let settings = scene.path("store/terrace.toml");
    let text = std::fs::read_to_string(&settings).expect("read");
    let without: String = text
        .lines()
        .filter(|line| !line.starts_with("encrypt"))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&settings, without.replace("compress = \"zstd:3\"\n", "")).expect("written");
    refused(&["framed", "`compress` or `encrypt`", "tier=cold"]);
    std::fs::write(&settings, without).expect("written");
    refused(&["set `encrypt`", "tier=cold"]);
}

#[test]
fn a_packed_bucket_is_added_drained_and_removed() {
    let server = S3Server::start();
    let scene = Scene::empty();
    let keys = format!("[default]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n");
    scene.file("keys", keys);
    scene.ok(["key", "new", "cold.key"]);
    scene.ok(["init", "store", "--policy", "none", "--tier", "fast=fast,capacity=100MB"]);
    let endpoint = server.endpoint();
    let tier = format!(
        "cold=s3://{BUCKET}/one,endpoint={endpoint},region={REGION},credentials=keys,compress=zstd:1,encrypt=cold.key"
    );
    scene.ok(["tiers", "add", &tier]);
    let data = text();
    scene.ok_with(&data, ["put", "object"]);
    scene.ok(["migrate", "object", "--to", "cold"]);
    let used = scene.json(["tiers"])[0]["tiers"][1]["used_bytes"].as_u64().expect("a number");
    assert!(used < data.len() as u64 / 2, "{used}");
    scene.ok(["get", "object", "copy"]);
    assert_eq!(scene.read("copy"), data);
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
    scene.ok(["tiers", "drain", "cold", "--wait"]);
    scene.ok(["tiers", "remove", "cold"]);
    scene.ok(["get", "object", "again"]);
    assert_eq!(scene.read("again"), data);
}
