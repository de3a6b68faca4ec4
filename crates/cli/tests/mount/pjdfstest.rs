// SPDX-License-Identifier: Apache-2.0 OR MIT
//! pjdfstest, a suite for what POSIX says of files: what passes on a directory of the file system that
//! the tiers are on passes on mounts.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::foreign::{PJDFSTEST, Verdicts};
use crate::scene::{Scene, finish};
use crate::suites::{How, Place, program, uring_is_offered};

/// Another file system, for what cannot go from one to the other.
const ELSEWHERE: &str = "/dev/shm";

#[test]
fn passes_where_the_process_serves() {
    passes(How::Served);
}

#[test]
fn passes_where_the_kernel_passes_through() {
    passes(How::Passed);
}

#[test]
fn passes_over_the_network() {
    passes(How::Network);
}

#[test]
fn passes_strictly_over_the_network() {
    passes(How::Strict);
}

#[test]
fn passes_where_the_kernel_asks_over_io_uring() {
    if uring_is_offered() {
        passes_with(How::Served, &["--uring", "on"]);
    }
}

#[test]
fn passes_over_the_network_where_the_kernel_asks_over_io_uring() {
    if uring_is_offered() {
        passes_with(How::Network, &["--uring", "on"]);
    }
}

fn passes(how: How) {
    passes_with(how, &[]);
}

fn passes_with(how: How, more: &[&str]) {
    let Some(mut place) = Place::new(how, &[&["-o", "suid,dev"], more].concat()) else { return };
    let native = native();
    let mounted = verdicts(&place.scene, place.mounted.path());
    println!("pjdfstest, native: {}", native.summary());
    println!("pjdfstest, {how:?}: {}", mounted.summary());
    let failed = mounted.failed_beside(native);
    assert!(failed.is_empty(), "these pass natively, and do not on the mount: {failed:#?}");
    place.mounted.unmount();
}

/// What passes on a directory, and does so twice: some tests depend on time.
fn native() -> &'static Verdicts {
    static VERDICTS: OnceLock<Verdicts> = OnceLock::new();
    VERDICTS.get_or_init(|| {
        let scene = Scene::new().expect("it is root");
        let directory = scene.directory("native");
        verdicts(&scene, &directory).and(verdicts(&scene, &directory))
    })
}

fn verdicts(scene: &Scene, directory: &Path) -> Verdicts {
    let configuration = scene.path("pjdfstest.toml");
    std::fs::write(&configuration, PJDFSTEST).expect("there is room");
    let mut command = Command::new(program("pjdfstest"));
    command.env("NO_COLOR", "1").arg("-c").arg(&configuration).arg("-p").arg(directory);
    if Path::new(ELSEWHERE).is_dir() {
        command.args(["-s", ELSEWHERE]);
    }
    let (_, text) = finish(command);
    Verdicts::read(&text).unwrap_or_else(|| panic!("these are not its tests: {text}"))
}
