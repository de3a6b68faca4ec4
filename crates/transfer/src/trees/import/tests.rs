// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `import` where the disks fail, power is lost, and the source changes meanwhile.

use std::os::fd::AsFd;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use terrace_console::failure::Failure;
use terrace_core::Random;
use terrace_fs::ROOT;
use terrace_testkit::Operation;

use super::*;
use crate::trees::scene::{LONG, SECONDS, Scene, content};

#[test]
fn what_could_not_be_synced_is_copied_again() {
    let scene = Scene::new();
    scene.write("long", &[7; LONG], SECONDS);
    scene.write("small", b"small", SECONDS);
    let files = scene.files();
    scene.tier.fail_always(Operation::Sync, ErrorKind::Io);
    scene.import(&files);
    scene.tier.heal();
    let summary = scene.import(&files);
    assert_eq!((summary.files, summary.unchanged, summary.failed), (2, 0, 0), "{summary:?}");
    let summary = scene.import(&files);
    assert_eq!((summary.files, summary.unchanged), (0, 2), "{summary:?}");
}

#[test]
fn what_a_loss_of_power_took_is_copied_again() {
    for seed in 0..20 {
        let scene = Scene::new();
        for name in 0..8 {
            scene.write(&name.to_string(), &[name + 1; LONG], SECONDS);
        }
        let files = scene.files();
        scene.tier.fail_always(Operation::Sync, ErrorKind::Io);
        scene.import(&files);
        drop(files);
        scene.world.lose_power(&mut Random::new(seed));
        let files = scene.files();
        scene.import(&files);
        for name in 0..8 {
            let is_whole = content(&files, &name.to_string()) == [name + 1; LONG];
            assert!(is_whole, "{name} of seed {seed}");
        }
    }
}

/// Copies a file that changes between the first look at it and the end of its bytes.
fn copy_changing(change: impl Fn(&Scene)) {
    let scene = Scene::new();
    let path = scene.write("file", &[7; LONG], SECONDS);
    let directory = fs::File::open(scene.source.path()).expect("opens");
    let pinned = Pinned::open(directory.as_fd(), "file".as_ref()).expect("is there");
    change(&scene);
    let files = scene.files();
    let mut work = scene.work(&files);
    let mut import = Import::new(&mut work);
    let spot = Spot { directory: ROOT, name: b"file", there: None };
    let source = Source {
        directory: directory.as_fd(),
        name: "file".as_ref(),
        path: &path,
        pinned: &pinned,
    };
    let failure = import.file(&source, spot).expect_err("it has changed");
    let Failure::Failed(error) = failure else { panic!("{failure:?}") };
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.to_string().contains("changed while it was copied"), "{error}");
    import.settle().expect("there is nothing to settle");
    let (_, modified) = local::times(&fs::symlink_metadata(&path).expect("is there"));
    let node = files.lookup(ROOT, b"file").expect("is there");
    assert_ne!(node.modified, modified);
    // Users that may read it may do so meanwhile.
    assert_eq!(node.permissions, 0o644);
    let summary = scene.import(&files);
    assert_eq!((summary.files, summary.failed), (1, 0), "{summary:?}");
    assert!(content(&files, "file") == fs::read(&path).expect("is there"));
    assert_eq!(files.lookup(ROOT, b"file").expect("is there").modified, modified);
}

#[test]
fn a_file_that_shrinks_while_it_is_copied_is_said_and_copied_again() {
    copy_changing(|scene| drop(scene.write("file", &[7; LONG / 2], SECONDS)));
}

#[test]
fn a_file_that_grows_while_it_is_copied_is_said_and_copied_again() {
    copy_changing(|scene| drop(scene.write("file", &[7; LONG * 2], SECONDS)));
}

#[test]
fn a_file_that_is_written_while_it_is_copied_is_said_and_copied_again() {
    copy_changing(|scene| drop(scene.write("file", &[8; LONG], SECONDS + 1)));
}

#[test]
fn a_file_that_is_replaced_while_it_is_copied_is_said_and_copied_again() {
    copy_changing(|scene| {
        let other = scene.write("other", &[8; LONG], SECONDS);
        fs::rename(other, scene.path("file")).expect("renamed");
    });
}

fn top(import: &mut Import<'_, '_>, path: &Path) -> Level {
    import.top(path, ROOT).expect("opens")
}

fn step(import: &mut Import<'_, '_>, level: &Level, name: &str) -> Option<Level> {
    import.one(level, name.as_ref()).expect("copied")
}

#[test]
fn a_directory_that_becomes_a_link_is_not_followed() {
    let scene = Scene::new();
    scene.write("below/file", b"inside", SECONDS);
    let outside = TempDir::new().expect("a temporary directory");
    fs::write(outside.path().join("file"), b"outside").expect("written");
    let files = scene.files();
    let mut work = scene.work(&files);
    let mut import = Import::new(&mut work);
    let root = top(&mut import, scene.source.path());
    let below = step(&mut import, &root, "below").expect("it is a directory");
    fs::rename(scene.path("below"), scene.path("moved")).expect("renamed");
    symlink(outside.path(), scene.path("below")).expect("linked");
    assert!(step(&mut import, &below, "file").is_none());
    let number = files.lookup(ROOT, b"below").expect("is there").number;
    let node = files.lookup(number, b"file").expect("is there");
    let (_, file) = files.open(node.number, Access::Read).expect("opens");
    let mut bytes = [0; 10];
    let count = file.read(0, &mut bytes).expect("is read");
    assert_eq!(&bytes[..count], b"inside");
}
