// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server whose catalog lies on a disk of its own, which gets full.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::FallocateFlags;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::scene::{Scene, Served, wait_until};

/// Left free for the catalog, which grows by more than that with the files that are made.
const LEFT_BYTES: u64 = 200_000;

const FILES: u32 = 10_000;

/// A small file system in memory.
pub(crate) struct Small(pub(crate) PathBuf);

impl Small {
    pub(crate) fn mount(path: PathBuf) -> Self {
        rustix::mount::mount("none", &path, "tmpfs", MountFlags::empty(), c"size=24m")
            .expect("root may mount");
        Self(path)
    }

    pub(crate) fn fill(&self) {
        let room = rustix::fs::statvfs(&self.0).expect("it is mounted");
        let bytes = room.f_bavail * room.f_frsize - LEFT_BYTES;
        let file = fs::File::create(self.0.join("fill")).expect("there is room");
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).expect("there is room");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Where it fails, the test has failed before.
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_server_with_a_full_catalog_says_what_to_do_and_ends() {
    let Some(scene) = Scene::new() else { return };
    let small = Small::mount(scene.directory("small"));
    let catalog = scene.path("store/catalog");
    let moved = Command::new("mv").arg(&catalog).arg(&small.0).status().expect("it runs");
    assert!(moved.success());
    symlink(small.0.join("catalog"), &catalog).expect("the name is free");
    let mut served = Served::start(&scene);
    let mut mounted = scene.mount_served(&served, "one", &[]);
    let write = |number| fs::write(mounted.path().join(format!("file{number}")), [7; 3000]);
    write(0).expect("there is room");
    small.fill();
    let is_full = (1..FILES).any(|number| write(number).is_err());
    assert!(is_full, "the disk is full");
    let what = "the catalog takes no changes";
    wait_until("the server says so", || scene.has_logged("server", what));
    fs::remove_file(small.0.join("fill")).expect("it is there");
    write(FILES).expect_err("what the engine has of the disk is not known");
    let to_do = "start the process that has the store open again";
    wait_until("who was refused says why", || scene.has_logged("one", to_do));
    let log = fs::read_to_string(scene.path("server.log")).expect("it logs");
    assert_eq!(log.matches(what).count(), 1, "once: {log}");
    mounted.kill();
    let status = served.terminate();
    assert!(status.code().is_some_and(|code| code != 0), "it ends, and not well: {status}");
    served = Served::start(&scene);
    mounted = scene.mount_served(&served, "two", &[]);
    assert_eq!(fs::read(mounted.path().join("file0")).expect("it is there"), [7; 3000]);
    fs::write(mounted.path().join("after"), b"again").expect("there is room");
}
