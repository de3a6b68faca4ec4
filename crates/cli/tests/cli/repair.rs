// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fsck --repair`, `fsck --rebuild`, `backup` and `restore`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::scene::Scene;

/// Objects in both tiers, a pin and a pair.
fn filled() -> Scene {
    let scene = Scene::new();
    for index in 0..20 {
        scene.ok_with(&[index; 3000], ["put", &format!("data/o{index}")]);
    }
    scene.ok(["migrate", "data/o3", "--to", "slow"]);
    scene.ok(["migrate", "data/o4", "--to", "slow", "--copy"]);
    scene.ok(["pin", "data/o5"]);
    scene.ok(["kv", "put", "settings/colour", "blue"]);
    scene
}

fn assert_holds(scene: &Scene, names: impl IntoIterator<Item = u8>) {
    for index in names {
        let name = format!("data/o{index}");
        scene.ok(["get", &name, "out"]);
        assert_eq!(scene.read("out"), [index; 3000], "{name}");
    }
}

/// The files of a tier's objects, largest path first.
fn stored(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("readable") {
        let entry = entry.expect("readable");
        if entry.file_type().expect("known").is_dir() {
            files.extend(stored(&entry.path()));
        } else if !entry.file_name().to_string_lossy().starts_with('.') {
            files.push(entry.path());
        }
    }
    files
}

/// The file that holds an object.
fn file_of(scene: &Scene, name: &str, tier: &str) -> PathBuf {
    let explained = scene.json(["explain", name]);
    let stored_as = explained[0]["segments"][0]["stored_as"].as_str().expect("a key").to_owned();
    let ending = stored_as.split('/').next_back().expect("a name").to_owned();
    let files = stored(&scene.path(tier));
    files.into_iter().find(|path| path.ends_with(&ending)).expect("is there")
}

#[test]
fn a_lost_catalog_is_made_anew_from_the_tiers() {
    let scene = filled();
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    assert!(scene.fails(3, ["ls"]).contains("catalog"));
    let printed = scene.ok(["fsck", "--rebuild"]);
    assert!(printed.contains("made a catalog of 20 objects, 20 segments, 60.0 kB"), "{printed}");
    assert!(printed.ends_with("20 objects, 20 segments: no problems\n"), "{printed}");
    assert!(!printed.contains("old catalog"), "{printed}");
    assert_holds(&scene, 0..20);
    assert_eq!(scene.json(["explain", "data/o3"])[0]["segments"][0]["tier"], "slow");
    scene.ok_with(b"new", ["put", "data/new"]);
    assert_eq!(scene.ok(["fsck", "--verify"]).lines().count(), 1);
}

#[test]
fn a_rebuild_keeps_the_old_catalog_and_says_so_as_json() {
    let scene = filled();
    for round in 1..3 {
        let printed = scene.json(["fsck", "--rebuild"]);
        assert_eq!(printed[0]["rebuilt"]["objects"], 20);
        assert_eq!(printed[0]["check"]["problems"], serde_json::json!([]));
        let old = printed[0]["old_catalog"].as_str().expect("a path");
        assert!(old.ends_with(&format!("catalog.old-{round}")), "{old}");
        assert!(Path::new(old).is_dir());
    }
    assert_holds(&scene, 0..20);
    assert!(!scene.path("store/catalog.new").exists());
}

#[test]
fn a_new_catalog_that_was_not_put_in_its_place_any_more_is_put_there() {
    let scene = filled();
    scene.ok(["fsck", "--rebuild"]);
    // Where a process ends between the two steps of a file system that cannot exchange names.
    fs::rename(scene.path("store/catalog"), scene.path("store/catalog.new")).expect("renamed");
    assert_holds(&scene, 0..20);
    assert!(!scene.path("store/catalog.new").exists());
    assert!(scene.path("store/catalog.old-1").is_dir());
    assert_eq!(scene.ok(["fsck"]), "20 objects, 20 segments: no problems\n");
}

#[test]
fn a_new_catalog_that_is_not_whole_is_not_used() {
    let scene = filled();
    fs::rename(scene.path("store/catalog"), scene.path("store/away")).expect("renamed");
    fs::create_dir(scene.path("store/catalog.new")).expect("made");
    assert!(scene.fails(3, ["ls"]).contains("catalog"));
    assert!(!scene.path("store/catalog").exists());
    scene.ok(["fsck", "--rebuild"]);
    assert_holds(&scene, 0..20);
}

#[test]
fn a_new_catalog_that_was_not_put_in_its_place_any_more_is_not_deleted_by_the_next_try() {
    let scene = filled();
    fs::rename(scene.path("store/catalog"), scene.path("store/catalog.new")).expect("renamed");
    let printed = scene.json(["fsck", "--rebuild"]);
    let old = printed[0]["old_catalog"].as_str().expect("it is put aside");
    assert!(old.ends_with("catalog.old-1") && Path::new(old).is_dir(), "{old}");
    assert_holds(&scene, 0..20);
}

#[test]
fn repair_changes_nothing_where_nothing_is_wrong() {
    let scene = filled();
    let printed = scene.ok(["fsck", "--repair"]);
    assert_eq!(printed, "20 objects, 20 segments: no problems\n");
    assert!(!scene.path("store/catalog.old-1").exists());
}

#[test]
fn repair_takes_a_copy_for_a_primary_and_keeps_the_rest() {
    let scene = filled();
    fs::remove_file(file_of(&scene, "data/o4", "fast")).expect("removed");
    let found = scene.run(["fsck"]);
    assert_eq!(found.status, Some(1));
    assert!(found.stdout.contains("problem: missing-file data/o4"), "{found:?}");
    let printed = scene.ok(["fsck", "--repair"]);
    assert!(printed.contains("note: copy-made-primary data/o4"), "{printed}");
    assert!(printed.contains("the old catalog is in"), "{printed}");
    assert_holds(&scene, 0..20);
    assert_eq!(scene.json(["stat", "data/o5"])[0]["is_pinned"], true);
    assert_eq!(scene.ok(["kv", "get", "settings/colour"]), "blue");
}

#[test]
fn repair_reports_what_cannot_be_brought_back() {
    let scene = filled();
    fs::remove_file(file_of(&scene, "data/o7", "fast")).expect("removed");
    let ran = scene.run(["fsck", "--repair"]);
    assert_eq!(ran.status, Some(1));
    assert!(ran.stdout.ends_with("20 objects, 20 segments: 1 problem\n"), "{ran:?}");
    assert_holds(&scene, (0..20).filter(|index| *index != 7));
    scene.ok(["rm", "data/o7"]);
    assert_eq!(scene.ok(["fsck"]), "19 objects, 19 segments: no problems\n");
}

#[test]
fn a_backup_brings_back_what_the_tiers_do_not_tell() {
    let scene = filled();
    let held = scene.hold();
    let printed = scene.ok(["backup", "saved"]);
    assert!(printed.starts_with("saved ") && printed.ends_with("in saved\n"), "{printed}");
    assert!(scene.fails(6, ["backup", "saved"]).contains("there already"));
    let again = scene.json(["backup", "saved", "--force"]);
    assert_eq!(again[0]["file"], "saved");
    assert_eq!(again[0]["size_bytes"], scene.read("saved").len());
    held.stop();
    scene.ok(["rm", "data/o0"]);
    scene.ok_with(&[20; 3000], ["put", "data/o20"]);
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    let printed = scene.ok(["restore", "saved"]);
    assert!(printed.contains("note: not-there data/o0"), "{printed}");
    assert!(printed.contains("made a catalog of 20 objects"), "{printed}");
    assert!(printed.contains("1 key-value pair"), "{printed}");
    assert_holds(&scene, 1..21);
    assert_eq!(scene.json(["stat", "data/o5"])[0]["is_pinned"], true);
    assert_eq!(scene.ok(["kv", "get", "settings/colour"]), "blue");
    assert!(!scene.path("store/catalog.saved").exists());
}

#[test]
fn a_damaged_backup_and_one_of_another_store_leave_the_catalog_as_it_is() {
    let scene = filled();
    scene.ok(["backup", "saved"]);
    let mut bytes = scene.read("saved");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    scene.file("damaged", &bytes);
    assert!(scene.fails(8, ["restore", "damaged"]).contains("checksum"));
    scene.file("short", &bytes[..middle]);
    assert!(scene.fails(8, ["restore", "short"]).contains("cut off"));
    scene.file("none", "no backup, but long enough to be one");
    assert!(scene.fails(8, ["restore", "none"]).contains("not a backup"));
    assert!(scene.fails(3, ["restore", "missing"]).contains("missing"));
    let other = Scene::new();
    other.file("saved", scene.read("saved"));
    assert!(other.fails(7, ["restore", "saved"]).contains("another store"));
    for scene in [&scene, &other] {
        for left in ["catalog.new", "catalog.saved", "catalog.old-1"] {
            assert!(!scene.path("store").join(left).exists(), "{left}");
        }
    }
    assert_holds(&scene, 0..20);
}

#[test]
fn a_missing_tier_is_named_and_the_catalog_stays() {
    let scene = filled();
    scene.ok(["backup", "saved"]);
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let settings = settings.replacen("[store]\n", "[store]\ndegraded = true\n", 1);
    fs::write(scene.path("store/terrace.toml"), settings).expect("written");
    fs::rename(scene.path("slow"), scene.path("away")).expect("renamed");
    for arguments in [&["fsck", "--repair"][..], &["fsck", "--rebuild"], &["restore", "saved"]] {
        let error = scene.fails(3, arguments);
        assert!(error.contains("tier=slow"), "{error}");
    }
    fs::create_dir(scene.path("slow")).expect("made");
    let error = scene.fails(9, ["fsck", "--rebuild"]);
    assert!(error.contains("tier=slow"), "{error}");
    fs::remove_dir(scene.path("slow")).expect("removed");
    fs::rename(scene.path("away"), scene.path("slow")).expect("renamed");
    for left in ["catalog.new", "catalog.saved", "catalog.old-1"] {
        assert!(!scene.path("store").join(left).exists(), "{left}");
    }
    // The check of --repair has opened the store without it.
    let ran = scene.run(["get", "data/o0", "out"]);
    assert!(ran.status == Some(0) && ran.stderr.contains("the tier slow was missing"), "{ran:?}");
    assert_holds(&scene, 0..20);
    scene.ok(["fsck", "--verify"]);
}

#[test]
fn nobody_may_have_the_store_open() {
    let scene = filled();
    scene.ok(["backup", "saved"]);
    let held = scene.hold();
    for arguments in [&["fsck", "--repair"][..], &["fsck", "--rebuild"], &["restore", "saved"]] {
        assert!(scene.fails(5, arguments).contains("process"), "{arguments:?}");
    }
    held.stop();
    scene.fails(2, ["fsck", "--repair", "--rebuild"]);
    scene.fails(2, ["fsck", "--accept-old-tiers"]);
}
