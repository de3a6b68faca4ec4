// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `export` into a tree that others may write to.

use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;
use terrace_fs::{Files, ROOT, RenameHow};

use super::*;
use crate::trees::scene::{LONG, SECONDS, Scene};

fn top(export: &Export<'_, '_>, files: &Files) -> Level {
    export.top(files.node(ROOT).expect("is there")).expect("opens")
}

fn step(export: &mut Export<'_, '_>, level: &Level, entry: &Listed) -> Option<Level> {
    export.one(level, entry).expect("copied")
}

fn leave(export: &mut Export<'_, '_>, level: &Level) {
    export.leave(level).expect("set");
}

fn only(export: &Export<'_, '_>, level: &mut Level) -> Listed {
    let entry = export.next(level).expect("listed").expect("there is one");
    assert!(export.next(level).expect("listed").is_none());
    entry
}

#[test]
fn a_directory_that_becomes_a_link_is_not_followed() {
    let scene = Scene::new();
    scene.write("below/file", &[7; LONG], SECONDS);
    let files = scene.files();
    scene.import(&files);
    let [target, outside] = [(); 2].map(|()| TempDir::new().expect("a temporary directory"));
    let path = |name: &str| target.path().join(name);
    let own = outside.path().join("file");
    fs::write(&own, b"outside").expect("written");
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(outside.path(), closed).expect("set");
    let before = fs::metadata(&own).expect("is there");
    let mut work = scene.work(&files);
    let mut export = Export::new(&mut work, target.path()).expect("opens");
    let mut root = top(&export, &files);
    let entry = only(&export, &mut root);
    let mut below = step(&mut export, &root, &entry).expect("it is a directory");
    fs::rename(path("below"), path("moved")).expect("renamed");
    symlink(outside.path(), path("below")).expect("linked");
    let entry = only(&export, &mut below);
    assert!(step(&mut export, &below, &entry).is_none());
    leave(&mut export, &below);
    export.settle().expect("it goes on past failures");
    assert_eq!(work.summary.failed, 1, "it is not where it was made");
    assert_eq!(fs::read(&own).expect("is there"), b"outside");
    let after = fs::metadata(&own).expect("is there");
    let seen = |metadata: &Metadata| (metadata.mode(), metadata.mtime(), metadata.ino());
    assert_eq!(seen(&after), seen(&before));
    let mode = fs::metadata(outside.path()).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(fs::read(path("moved/file")).expect("is there") == [7; LONG]);
}

#[test]
fn what_was_replaced_since_it_was_listed_is_copied_as_it_is() {
    let scene = Scene::new();
    scene.write("file", &[7; LONG], SECONDS);
    let files = scene.files();
    scene.import(&files);
    let target = TempDir::new().expect("a temporary directory");
    let mut work = scene.work(&files);
    let mut export = Export::new(&mut work, target.path()).expect("opens");
    let mut root = top(&export, &files);
    // As where its server does not answer.
    let entry = Listed { node: None, ..only(&export, &mut root) };
    scene.write("new", &[8; LONG], SECONDS);
    scene.import(&files);
    files
        .rename((ROOT, b"new"), (ROOT, b"file"), RenameHow::default(), (0, 0))
        .expect("both are there");
    assert!(step(&mut export, &root, &entry).is_none());
    assert!(fs::read(target.path().join("file")).expect("is there") == [8; LONG]);
    fs::remove_file(target.path().join("file")).expect("is there");
    files.remove(ROOT, b"file", false).expect("is there");
    assert!(step(&mut export, &root, &entry).is_none());
    assert!(!target.path().join("file").exists(), "its name is gone");
}
