// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files and directories in trees, by real processes.

use std::fs;

use super::program::{names, run, total};
use tempfile::tempdir;

#[test]
fn items_are_created_found_read_and_removed_by_others() {
    for form in ["", "-u", "-z 2 -b 2", "-z 2 -b 3 -L -u"] {
        let directory = tempdir().unwrap();
        let path = directory.path().display();
        let common = format!("-d {path} -n 25 --processes 3 --threads 2 {form}");
        let created = run(&format!("create {common} -w 1000 -y")).report();
        assert_eq!((total(&created, "files"), total(&created, "directories")), (75, 75), "{form}");
        assert_eq!(total(&created, "bytes"), 75_000);
        let found = run(&format!("stat {common} -N 1")).report();
        assert_eq!(total(&found, "operations"), 150);
        let read = run(&format!("read-files {common} -N 2 -e 1000 -R")).report();
        assert_eq!((total(&read, "operations"), total(&read, "bytes")), (75, 75_000));
        run(&format!("remove {common} -D")).report();
        let removed = run(&format!("remove {common} -F")).report();
        assert_eq!((total(&removed, "files"), total(&removed, "directories")), (75, 0));
        assert_eq!(names(directory.path()), [""; 0], "{form}");
    }
}

#[test]
fn what_is_there_cannot_be_created() {
    let directory = tempdir().unwrap();
    let common = format!("create -d {} -n 3 -F", directory.path().display());
    run(&common).report();
    let failure = run(&common).failure();
    assert!(failure.contains("cannot create: File exists"), "{failure}");
}

#[test]
fn one_that_is_missing_is_an_error_of_every_phase() {
    let directory = tempdir().unwrap();
    let path = directory.path().display();
    run(&format!("create -d {path} -n 3 -F -w 10")).report();
    fs::remove_file(directory.path().join("tree/file.0.1")).unwrap();
    for phase in ["stat", "read-files", "remove"] {
        let kind = if phase == "read-files" { "" } else { "-F" };
        let failure = run(&format!("{phase} -d {path} -n 3 {kind}")).failure();
        assert!(failure.contains("tree/file.0.1"), "{failure}");
    }
}

#[test]
fn a_file_with_other_bytes_is_found() {
    let directory = tempdir().unwrap();
    let path = directory.path().display();
    run(&format!("create -d {path} -n 3 -F -w 10")).report();
    let file = directory.path().join("tree/file.0.2");
    fs::copy(directory.path().join("tree/file.0.1"), file).unwrap();
    let failure = run(&format!("read-files -d {path} -n 3 -e 10 -R")).failure();
    assert!(failure.contains("not those that were written path="), "{failure}");
}

#[test]
fn files_that_are_too_short_are_not_read() {
    let directory = tempdir().unwrap();
    let path = directory.path().display();
    run(&format!("create -d {path} -n 3 -F -w 10")).report();
    assert!(!run(&format!("read-files -d {path} -n 3 -e 11")).is_success);
}
