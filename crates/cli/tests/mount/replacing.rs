// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are replaced again and again while others open and read them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::clients::Pair;
use crate::scene::Mounted;
use crate::suites::{How, Place};

const WRITERS: usize = 2;
const READERS: usize = 2;
const ROUNDS: usize = 300;

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 20_000];

#[test]
fn who_opens_what_is_replaced_reads_one_or_the_other() {
    for how in [How::Served, How::Passed] {
        let Some(mut place) = Place::new(how, &[]) else { return };
        for length in LENGTHS {
            replace_and_read([&place.mounted; 2], length);
        }
        let names = fs::read_dir(place.mounted.path()).expect("it is mounted").count();
        assert_eq!(names, LENGTHS.len(), "{how:?}");
        place.mounted.unmount();
        place.scene.ok(["fsck", "--verify"]);
        // What was replaced is gone, with its objects.
        let objects = place.scene.ok(["ls", "files/"]);
        assert_eq!(objects.lines().count(), 1, "{how:?}: {objects}");
    }
}

/// Over the network it is another client that replaces it.
#[test]
fn who_opens_what_another_client_replaces_reads_one_or_the_other() {
    let Some(mut pair) = Pair::new(&[]) else { return };
    for length in LENGTHS {
        replace_and_read([&pair.other, &pair.one], length);
    }
    pair.other.unmount();
    pair.one.unmount();
    pair.scene.ok(["fsck", "--verify"]);
}

/// Replaces a file through one mount, and reads it through the other one.
fn replace_and_read([writing, reading]: [&Mounted; 2], length: usize) {
    let [path, read] = [writing, reading].map(|it| it.path().join(format!("file{length}")));
    fs::write(&path, vec![0; length]).expect("there is room");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (path, read, is_over) = (&path, &read, &is_over);
        for _ in 0..READERS {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let bytes = fs::read(read).unwrap_or_else(|error| {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{error}")
                    });
                    let is_whole = bytes.len() == length && bytes.iter().all(|b| *b == bytes[0]);
                    assert!(is_whole, "{} bytes", bytes.len());
                }
            });
        }
        let writers: Vec<_> = (1..=WRITERS)
            .map(|writer| scope.spawn(move || replace(path, writer as u8, length, is_over)))
            .collect();
        for writer in writers {
            writer.join().expect("it replaces");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Replaces a file until it was done often enough.
fn replace(path: &Path, writer: u8, length: usize, is_over: &AtomicBool) {
    let new = path.with_extension(writer.to_string());
    for _ in 0..ROUNDS {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        fs::write(&new, vec![writer; length]).expect("there is room");
        fs::rename(&new, path).expect("both are there");
    }
}

#[test]
fn who_opens_what_is_removed_and_made_anew_finds_it_or_nothing() {
    for how in [How::Served, How::Passed, How::Network] {
        let Some(mut place) = Place::new(how, &[]) else { return };
        for length in LENGTHS {
            remove_and_open(&place.mounted.path().join("file"), length, &how);
        }
        place.mounted.unmount();
        drop(place.served);
        place.scene.ok(["fsck", "--verify"]);
        let objects = place.scene.ok(["ls", "files/"]);
        assert_eq!(objects.lines().count(), 0, "{how:?}: {objects}");
    }
}

/// Removes a file and makes it anew again and again, while others open it, and make it, too.
fn remove_and_open(path: &Path, length: usize, how: &How) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        for _ in 0..READERS {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let opened = fs::File::open(path);
                    let made = fs::File::options().append(true).create(true).open(path);
                    for opened in [opened.map(drop), made.map(drop)].into_iter().enumerate() {
                        match opened {
                            (_, Ok(())) => {}
                            (0, Err(error)) if error.kind() == ErrorKind::NotFound => {}
                            (which, Err(error)) => {
                                is_over.store(true, Ordering::Relaxed);
                                panic!("{how:?} {length} {which}: {error}")
                            }
                        }
                    }
                }
            });
        }
        for _ in 0..5 * ROUNDS {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            fs::write(path, vec![1; length]).expect("there is room");
            fs::remove_file(path).expect("it was just made");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let _ = fs::remove_file(path);
}

#[test]
fn who_follows_a_link_that_is_replaced_finds_what_one_or_the_other_leads_to() {
    for how in [How::Served, How::Passed] {
        let Some(mut place) = Place::new(how, &[]) else { return };
        let root = place.mounted.path();
        for writer in 1..=WRITERS {
            fs::write(root.join(format!("file{writer}")), [writer as u8]).expect("there is room");
        }
        replace_and_follow(root);
        assert_eq!(fs::read_dir(root).expect("it is mounted").count(), WRITERS + 1, "{how:?}");
        place.mounted.unmount();
        place.scene.ok(["fsck", "--verify"]);
    }
}

/// Replaces a link as `ln -sfn` does.
fn replace_and_follow(root: &Path) {
    let path = root.join("link");
    symlink("file1", &path).expect("there is room");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (path, is_over) = (&path, &is_over);
        for _ in 0..READERS {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let found = fs::read_link(path).and_then(|target| {
                        let bytes = fs::read(path)?;
                        Ok((target.to_str().expect("UTF-8").to_string(), bytes.len()))
                    });
                    let found = found.unwrap_or_else(|error| {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{error}")
                    });
                    assert!(found.0.starts_with("file") && found.1 == 1, "{found:?}");
                }
            });
        }
        let replace = move |writer: usize| {
            let new = path.with_extension(writer.to_string());
            for _ in 0..5 * ROUNDS {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                symlink(format!("file{writer}"), &new).expect("there is room");
                fs::rename(&new, path).expect("both are there");
            }
        };
        let writers: Vec<_> =
            (1..=WRITERS).map(|writer| scope.spawn(move || replace(writer))).collect();
        for writer in writers {
            writer.join().expect("it replaces");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
