// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores that earlier versions wrote; `tests/stores/README.md` says how they were made.

use std::path::Path;
use std::process::Command;

use crate::scene::Scene;

/// A directory with the stores of an archive.
fn unpacked(archive: &str) -> Scene {
    let scene = Scene::empty();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores").join(archive);
    let status = Command::new("tar")
        .args(["--xattrs", "--xattrs-include=user.*", "-xzf"])
        .arg(archive)
        .current_dir(scene.path("."))
        .status();
    assert!(status.expect("tar is there").success());
    scene
}

fn lines(first: u32, last: u32) -> String {
    (first..=last).map(|number| format!("{number}\n")).collect()
}

#[track_caller]
fn assert_holds(scene: &Scene, store: &str, objects: &[(&str, String)], pairs: &[(&str, &str)]) {
    for (name, content) in objects {
        assert_eq!(&scene.ok(["--store", store, "get", name]), content, "{name}");
    }
    for (key, value) in pairs {
        assert_eq!(scene.ok(["--store", store, "kv", "get", key]), *value, "{key}");
    }
    let report = scene.ok(["--store", store, "fsck", "--verify"]);
    assert!(report.contains("no problems"), "{report}");
}

#[test]
fn a_store_of_format_1_has_everything_and_is_upgraded() {
    let scene = unpacked("format-1.tar.gz");
    let objects = [
        ("copied", lines(5, 700)),
        ("pinned", lines(9, 900)),
        ("empty", String::new()),
        ("one", lines(1, 2000)),
        ("runs/several", lines(1, 4000)),
    ];
    let pairs = [("jobs/7", "running"), ("jobs/8", "two words")];
    let superblock = || {
        let bytes = scene.read("closed/slow/.terrace-superblock");
        String::from_utf8(bytes).expect("text")
    };
    let shown = scene.ok(["--store", "closed", "tiers"]);
    assert!(shown.contains("fast") && shown.contains("slow"), "{shown}");
    assert!(superblock().contains("format_version=1\n"), "looking changes nothing");
    let ran = scene.run_with(b"new", ["--store", "closed", "put", "new"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("upgraded from format 1 to 2"), "{ran:?}");
    assert!(superblock().contains("format_version=2\n"));
    assert_holds(&scene, "closed", &objects, &pairs);
    let explained = |key| scene.json(["--store", "closed", "explain", key]).remove(0);
    assert_eq!(explained("copied")["segments"][0]["copies"], serde_json::json!(["slow"]));
    assert_eq!(explained("pinned")["is_pinned"], true);
    assert_eq!(explained("runs/several")["segments"][1]["segment"], 1);
}

#[test]
fn a_store_of_format_1_that_was_killed_is_recovered() {
    let scene = unpacked("format-1.tar.gz");
    let ran = scene.run_with(b"new", ["--store", "killed", "put", "new"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("it was recovered"), "{ran:?}");
    let objects = [
        ("copied", lines(5, 700)),
        ("pinned", lines(9, 900)),
        ("one", lines(1, 2000)),
        ("runs/several", lines(1, 4000)),
        ("late", lines(3, 3000)),
        ("new", "new".into()),
    ];
    let pairs = [("jobs/7", "running"), ("jobs/8", "two words"), ("jobs/9", "late")];
    assert_holds(&scene, "killed", &objects, &pairs);
}
