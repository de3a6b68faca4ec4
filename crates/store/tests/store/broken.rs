// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directories that are not as they were: said clearly, before anything is changed, and the rest
//! stays readable.

use std::fs;
use std::path::PathBuf;

use terrace_store::{Backend, BackendExt, Error, ErrorKind, MoveKind, Store};

use crate::scene::{Scene, TIERS, files, key};

/// A closed store with `a/fast` on the first tier and `a/slow` on the second.
fn stored() -> Scene {
    let scene = Scene::new();
    let store = scene.open();
    for name in ["a/fast", "a/slow"] {
        store.write_all(&key(name), name.as_bytes()).expect("room");
    }
    for ticket in
        store.admin().migrate(&key("a/slow"), "slow", MoveKind::Move, 0, "").expect("it can")
    {
        store
            .admin()
            .wait(ticket, std::time::Duration::from_secs(30))
            .expect("known")
            .expect("it ends");
    }
    store.close().expect("it closes");
    scene
}

fn tier(scene: &Scene, name: &str) -> PathBuf {
    scene.store_directory().join(name)
}

/// Everything but the lock, which says who opened the store last, and the journal of the catalog.
fn objects_and_settings(scene: &Scene) -> Vec<(PathBuf, u64)> {
    let mut found = files(&scene.store_directory());
    found.retain(|(path, _)| !path.starts_with("lock") && !path.starts_with("catalog"));
    found
}

/// Opening is refused with these words, changes nothing, and the tier `fast` is offline for who
/// reads; the other is not.
#[track_caller]
fn assert_broken(scene: &Scene, kind: ErrorKind, words: &[&str]) {
    let before = objects_and_settings(scene);
    let error = scene.refusal();
    assert_eq!(error.kind(), kind, "{}", error.chain());
    for word in words.iter().chain(&["tier=fast"]) {
        assert!(error.chain().contains(word), "{word}: {}", error.chain());
    }
    assert_eq!(objects_and_settings(scene), before);

    let store = scene.open_for_reading().unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(store.read_all(&key("a/slow")).expect("on the other tier"), b"a/slow");
    let error = store.read_all(&key("a/fast")).expect_err("offline");
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    assert!(error.chain().contains("offline"), "{}", error.chain());
    let tiers = store.admin().tiers().expect("the catalog is healthy");
    assert!(tiers[0].offline.is_some() && tiers[1].offline.is_none(), "{tiers:?}");
    assert!(!tiers[0].is_writable);
    assert_eq!(store.list_all("a", "").expect("the catalog is healthy").len(), 2);
    store.admin().explain(&key("a/fast")).expect("the catalog is healthy");
    drop(store);
    assert_eq!(objects_and_settings(scene), before);
}

/// The store is as it was before.
#[track_caller]
fn assert_whole(scene: &Scene) {
    let store = scene.open();
    for name in ["a/fast", "a/slow"] {
        assert_eq!(store.read_all(&key(name)).expect("kept"), name.as_bytes());
    }
    let report = store.admin().check(true, &mut |_, _| true).expect("healthy");
    assert_eq!(report.problems, []);
}

#[test]
fn a_tier_whose_directory_is_missing() {
    let scene = stored();
    fs::rename(tier(&scene, "fast"), scene.path("elsewhere")).expect("writable");
    assert_broken(&scene, ErrorKind::NotFound, &["missing", "/store/fast"]);
    assert!(!tier(&scene, "fast").exists(), "it is not made anew");
    fs::rename(scene.path("elsewhere"), tier(&scene, "fast")).expect("writable");
    assert_whole(&scene);
}

#[test]
fn a_tier_whose_disk_is_not_mounted() {
    let scene = stored();
    fs::rename(tier(&scene, "fast"), scene.path("elsewhere")).expect("writable");
    fs::create_dir(tier(&scene, "fast")).expect("writable");
    assert_broken(&scene, ErrorKind::Stale, &["empty", "/store/fast"]);
    fs::remove_dir(tier(&scene, "fast")).expect("still empty");
    fs::rename(scene.path("elsewhere"), tier(&scene, "fast")).expect("writable");
    assert_whole(&scene);
}

#[test]
fn a_tier_that_is_a_file() {
    let scene = stored();
    fs::rename(tier(&scene, "fast"), scene.path("elsewhere")).expect("writable");
    fs::write(tier(&scene, "fast"), b"").expect("writable");
    assert_broken(&scene, ErrorKind::Invalid, &["not a directory", "/store/fast"]);
}

#[test]
fn a_tier_of_another_store() {
    let (scene, other) = (stored(), stored());
    fs::rename(tier(&scene, "fast"), scene.path("elsewhere")).expect("writable");
    fs::rename(tier(&other, "fast"), tier(&scene, "fast")).expect("one file system");
    assert_broken(&scene, ErrorKind::Denied, &["another store", "/store/fast"]);
}

#[test]
fn a_directory_of_somebody_else() {
    let scene = stored();
    fs::rename(tier(&scene, "fast"), scene.path("elsewhere")).expect("writable");
    fs::create_dir(tier(&scene, "fast")).expect("writable");
    fs::write(tier(&scene, "fast").join("mine"), b"precious").expect("writable");
    let error = scene.refusal();
    assert!(error.chain().contains("/store/fast"), "{}", error.chain());
    assert_eq!(fs::read(tier(&scene, "fast").join("mine")).expect("left alone"), b"precious");
    assert_eq!(tier(&scene, "fast").read_dir().expect("readable").count(), 1);
}

#[test]
fn tiers_that_were_swapped() {
    let scene = stored();
    let before = objects_and_settings(&scene);
    let settings = scene.settings();
    let swapped = settings.replace("path = \"fast\"", "path = \"x\"");
    let swapped = swapped.replace("path = \"slow\"", "path = \"fast\"");
    scene.set_settings(&swapped.replace("path = \"x\"", "path = \"slow\""));
    let error = scene.refusal();
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
    assert!(error.chain().contains("swapped"), "{}", error.chain());
    scene.set_settings(&settings);
    assert_eq!(objects_and_settings(&scene), before);
    assert_whole(&scene);
}

#[test]
fn an_old_copy_of_a_tier() {
    let scene = stored();
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([tier(&scene, "fast"), scene.path("copy")])
        .status();
    assert!(copied.expect("cp runs").success());
    for _ in 0..3 {
        drop(scene.open());
    }
    fs::rename(tier(&scene, "fast"), scene.path("elsewhere")).expect("writable");
    fs::rename(scene.path("copy"), tier(&scene, "fast")).expect("writable");
    assert_broken(&scene, ErrorKind::Stale, &["old copy", "/store/fast"]);
    fs::rename(tier(&scene, "fast"), scene.path("copy")).expect("writable");
    fs::rename(scene.path("elsewhere"), tier(&scene, "fast")).expect("writable");
    assert_whole(&scene);
}

#[test]
fn a_configuration_that_drops_a_tier_with_objects() {
    let scene = stored();
    let before = objects_and_settings(&scene);
    let settings = scene.settings();
    let end = settings.find("[[tier]]\nname = \"slow\"").expect("it has two tiers");
    scene.set_settings(&settings[..end]);
    let error = scene.refusal();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    assert!(error.chain().contains("tier=slow"), "{}", error.chain());
    scene.set_settings(&settings);
    assert_eq!(objects_and_settings(&scene), before);
    assert_whole(&scene);
}

#[test]
fn a_catalog_that_is_missing_is_not_made_anew() {
    let scene = stored();
    let catalog = scene.store_directory().join("catalog");
    fs::rename(&catalog, scene.path("elsewhere")).expect("writable");
    let refused = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
        assert!(error.chain().contains("catalog"), "{}", error.chain());
        assert!(!catalog.join("keyspaces").exists());
    };
    refused(scene.refusal());
    refused(scene.open_for_reading().err().expect("refused"));
    if catalog.exists() {
        fs::remove_dir(&catalog).expect("empty");
    }
    fs::rename(scene.path("elsewhere"), &catalog).expect("writable");
    assert_whole(&scene);
}

#[test]
fn settings_that_are_wrong_are_told_with_their_line() {
    let scene = stored();
    let settings = scene.settings();
    scene.set_settings(&settings.replace("capacity", "capcity"));
    let error = scene.refusal();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.chain());
    assert!(error.chain().contains("terrace.toml:5:"), "{}", error.chain());
    scene.set_settings(&settings);
    assert_whole(&scene);
}

#[test]
fn a_tier_may_be_added_and_dropped_again_while_it_is_empty() {
    let scene = stored();
    let settings = scene.settings();
    fs::create_dir(scene.store_directory().join("third")).expect("writable");
    let third = "[[tier]]\nname = \"third\"\npath = \"third\"\n";
    scene.set_settings(&settings.replace("\n[policy]", &format!("{third}\n[policy]")));
    let store = scene.open();
    assert_eq!(store.admin().tiers().expect("healthy").len(), 3);
    drop(store);
    scene.set_settings(&settings);
    assert_whole(&scene);
}

#[test]
fn a_tier_that_may_not_be_written() {
    let scene = stored();
    let fast = tier(&scene, "fast");
    // Root may write where the mode forbids it; a mount that is read-only stops everybody.
    let mount = |arguments: &[&str]| {
        let done = std::process::Command::new("mount").args(arguments).arg(&fast).output();
        done.is_ok_and(|output| output.status.success())
    };
    let path = fast.to_str().expect("UTF-8").to_owned();
    if !mount(&["--bind", &path]) {
        return;
    }
    let is_read_only = mount(&["-o", "remount,ro,bind"]);
    let refused = is_read_only.then(|| Store::open(&scene.address()).err().expect("refused"));
    let read = scene.open_for_reading().and_then(|store| store.read_all(&key("a/fast")));
    let unmounted = std::process::Command::new("umount").arg(&fast).status();
    assert!(unmounted.expect("umount runs").success());
    assert_eq!(read.expect("reading is allowed"), b"a/fast");
    if let Some(error) = refused {
        assert_eq!(error.kind(), ErrorKind::Denied, "{}", error.chain());
        assert!(error.chain().contains("/store/fast"), "{}", error.chain());
    }
    assert_whole(&scene);
}

#[test]
fn a_tier_whose_file_system_is_full() {
    let scene = Scene::empty();
    let fast = tier(&scene, "fast");
    fs::create_dir_all(&fast).expect("writable");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"])
        .arg(&fast)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return;
    }
    let answers = std::panic::catch_unwind(|| fill(&scene));
    let unmounted = std::process::Command::new("umount").arg(&fast).status();
    assert!(unmounted.expect("umount runs").success());
    answers.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// The tier claims 64 MiB and has one: what was taken is kept, and what does not fit goes on.
fn fill(scene: &Scene) {
    Store::init(&scene.store_directory(), TIERS).expect("room for a superblock");
    let store = scene.open();
    let mut kept = Vec::new();
    for number in 0..40 {
        let name = format!("a/{number}");
        match store.write_all(&key(&name), &[number; 100_000]) {
            Ok(()) => kept.push(number),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
            }
        }
    }
    let assert_kept = |store: &Store| {
        for number in &kept {
            let name = format!("a/{number}");
            assert!(store.read_all(&key(&name)).expect(&name) == [*number; 100_000]);
        }
    };
    assert!(kept.len() >= 9, "{kept:?}");
    assert_kept(&store);
    store.close().expect("it closes");
    drop(store);
    let full = fs::write(tier(scene, "fast").join("filler"), vec![0; 2 << 20]).expect_err("full");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert_kept(&scene.open_for_reading().expect("reading needs no room"));
    // Who wants to make room must be able to open it.
    let store = scene.open();
    assert_kept(&store);
    store.delete(&key("a/0")).expect("deleting needs no room");
    store.write_all(&key("a/0"), &[0; 50_000]).expect("there is room again");
    assert_eq!(store.admin().check(true, &mut |_, _| true).expect("healthy").problems, []);
}

#[test]
fn memory_tiers_come_back_empty() {
    let scene = Scene::with(&format!("[[tier]]\nname = \"ram\"\nbackend = \"memory\"\n{TIERS}"));
    let store = scene.open();
    let object = terrace_store::Open::create()
        .with_semantics(terrace_store::Semantics::at_level(terrace_store::Persistency::None));
    drop(store.open(&key("a/x"), &object).expect("room"));
    store.write_all(&key("a/y"), b"kept").expect("room");
    store.close().expect("it closes");
    drop(store);
    let store = scene.open();
    assert_eq!(store.read_all(&key("a/y")).expect("kept"), b"kept");
}
