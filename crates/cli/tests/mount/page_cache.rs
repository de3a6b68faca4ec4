// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs read through the kernel's cache after each way in which the bytes of a file change.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::clients::Pair;
use crate::scene::finish;
use crate::suites::{How, Place, uring_is_offered};

/// Each change is made again and again for so long.
const SECONDS: f64 = 0.25;

/// Of `page_cache.py`, as the following.
const CHANGES: [&str; 17] = [
    "write",
    "direct write",
    "io_submit",
    "io_submit in pieces",
    "io_submit of many",
    "io_uring",
    "io_submit with F_SETFL",
    "io_submit behind the end",
    "io_submit while it moves",
    "store",
    "store and msync",
    "copy_file_range",
    "copy_file_range of a part",
    "punch",
    "zero",
    "truncate",
    "O_TRUNC",
];

/// Ways to read that ask the process of the mount when it does not cache the file.
const READS: [&str; 3] = ["pread", "open and pread", "direct pread"];

/// Those that open the file again.
const OPENING: [&str; 3] = ["open and pread", "direct pread", "new mapping"];

/// Those that the kernel always answers from its cache, unless it passes the file through.
const CACHED: [&str; 4] = ["mapping", "new mapping", "sendfile", "splice"];

/// Reading through a descriptor that is no longer for direct I/O.
const AS_WRITER: [&str; 1] = ["pread of the writer"];

#[test]
fn no_change_leaves_old_pages_in_a_served_file() {
    check(How::Served, &[], &[&READS[..], &CACHED, &AS_WRITER].concat());
}

#[test]
fn no_change_leaves_old_pages_where_the_kernel_asks_over_io_uring() {
    if uring_is_offered() {
        check(How::Served, &["--uring", "on"], &[&READS[..], &CACHED, &AS_WRITER].concat());
    }
}

#[test]
fn no_change_leaves_old_pages_in_a_file_that_is_passed_through() {
    // What was opened for direct I/O stays so (docs/reference/mount.md).
    check(How::Passed, &[], &[&READS[..], &CACHED].concat());
}

#[test]
fn no_change_leaves_old_pages_behind_a_server() {
    check(How::Network, &[], &[&READS[..], &CACHED, &AS_WRITER].concat());
}

#[test]
fn no_change_leaves_old_pages_behind_a_server_where_nothing_is_cached() {
    // Mappings, `sendfile` and `splice` may show what was there when the file was opened
    // (docs/explanation/mount.md).
    check(How::Strict, &[], &[&READS[..], &AS_WRITER].concat());
}

#[test]
fn who_opens_a_file_sees_each_change_that_another_client_closed() {
    if let Some(pair) = Pair::new(&[]) {
        check_paths(pair.one.path(), pair.other.path(), true, &CHANGES, &OPENING);
    }
}

#[test]
fn every_read_sees_each_change_of_another_client_where_nothing_is_cached() {
    if let Some(pair) = Pair::new(&["--strict"]) {
        // What is stored to a mapping reaches the server with msync(2), or when the file is closed.
        let changes: Vec<_> = CHANGES.into_iter().filter(|change| *change != "store").collect();
        check_paths(pair.one.path(), pair.other.path(), false, &changes, &READS);
    }
}

fn check(how: How, more: &[&str], reads: &[&str]) {
    if let Some(place) = Place::new(how, more) {
        check_paths(place.mounted.path(), place.mounted.path(), false, &CHANGES, reads);
    }
}

/// Changes a file below `writer`, which is closed then where that is asked for, and reads it below `reader`.
#[track_caller]
fn check_paths(reader: &Path, writer: &Path, closes: bool, changes: &[&str], reads: &[&str]) {
    let task = json!({
        "read": reader.join("file"),
        "write": writer.join("file"),
        "closes": closes,
        "changes": changes,
        "reads": reads,
        "seconds": SECONDS,
    });
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mount/page_cache.py"));
    command.arg(task.to_string());
    let (is_right, output) = finish(command);
    assert!(is_right, "old bytes were read:\n{output}");
}
