// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Very many files, in one directory and in a tree: none is missing, none comes twice.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

use crate::suites::{How, Place};

/// Files that are made; `TERRACE_FILES` asks for others, for example a million.
const FILES: u64 = 4_000;

/// Programs that make them at the same time.
const MAKERS: u64 = 4;

/// Files of a directory of the tree, and directories of one above.
const TOGETHER: u64 = 100;

fn files() -> u64 {
    let asked = std::env::var("TERRACE_FILES");
    asked.map_or(FILES, |text| text.parse().expect("TERRACE_FILES is a number"))
}

/// Has every number up to `count` seen to by one of several threads.
fn share(count: u64, work: impl Fn(u64) + Sync) {
    thread::scope(|scope| {
        for first in 0..MAKERS {
            let work = &work;
            scope.spawn(move || (first..count).step_by(MAKERS as usize).for_each(work));
        }
    });
}

fn names(directory: &Path) -> impl Iterator<Item = OsString> {
    let entries = fs::read_dir(directory).expect("it is there");
    entries.map(|entry| entry.expect("it can be read").file_name())
}

/// Unmounts, and mounts again.
fn remount(place: &mut Place) {
    place.mounted.unmount();
    place.mounted.mount(&place.scene);
}

/// Whether a look at the whole tree finds so many nodes, and no problem.
fn check(place: &mut Place, directories: u64, files: u64) {
    place.mounted.unmount();
    let text = place.scene.ok(["fsck"]);
    let expected = format!(": {directories} directories, {files} files: no problems\n");
    assert!(text.ends_with(&expected), "{text}");
}

#[test]
fn a_directory_with_many_files_lists_each_once() {
    for how in [How::Served, How::Network] {
        let Some(mut place) = Place::new(how, &[]) else { return };
        let path = place.mounted.path().to_path_buf();
        let count = files();
        share(count, |number| {
            File::create_new(path.join(format!("file{number}"))).expect("there is room");
        });
        remount(&mut place);
        let mut found = HashSet::new();
        assert!(names(&path).all(|name| found.insert(name)), "one comes twice");
        assert_eq!(found.len() as u64, count);
        // Who removes while it lists meets each one all the same.
        let removed =
            names(&path).map(|name| fs::remove_file(path.join(name)).expect("it is there"));
        assert_eq!(removed.count() as u64, count);
        assert_eq!(names(&path).count(), 0);
    }
}

/// Where the file with this number is.
fn place_of(root: &Path, number: u64) -> PathBuf {
    let above = number / TOGETHER;
    root.join(format!("d{}/d{above}/file{number}", above / TOGETHER))
}

/// Everything below a directory that is no directory.
fn walk(root: &Path, found: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(root).expect("it is there") {
        let entry = entry.expect("it can be read");
        match entry.file_type().expect("it is known").is_dir() {
            true => walk(&entry.path(), found),
            false => found(&entry.path()),
        }
    }
}

#[test]
fn a_tree_of_many_files_has_each_where_it_was_made() {
    let Some(mut place) = Place::new(How::Served, &[]) else { return };
    let root = place.mounted.path().to_path_buf();
    let count = files();
    let directories = count.div_ceil(TOGETHER);
    for number in 0..directories {
        let first = place_of(&root, number * TOGETHER);
        fs::create_dir_all(first.parent().expect("it is in one")).expect("there is room");
    }
    share(count, |number| {
        fs::write(place_of(&root, number), number.to_string()).expect("there is room");
    });
    remount(&mut place);
    let (mut numbers, mut sum) = (0, 0);
    walk(&root, &mut |path| {
        let text = fs::read_to_string(path).expect("it is there");
        let number: u64 = text.parse().expect("it is a number");
        assert_eq!(path, place_of(&root, number));
        numbers += 1;
        sum += number;
    });
    assert_eq!((numbers, sum), (count, count * (count - 1) / 2));
    check(&mut place, 1 + directories + directories.div_ceil(TOGETHER), count);
}
