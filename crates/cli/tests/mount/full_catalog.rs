// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk with a catalog on it, alone or beside the tiers, which gets full.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::FallocateFlags;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::scene::{Scene, Served, wait_until};

/// Left free for the catalog, which is less than what it has to have to grow.
const LEFT_BYTES: u64 = 200_000;

const FILES: u32 = 10_000;

/// Made while there is room.
const KEPT: u32 = 300;

/// A small file system in memory.
pub(crate) struct Small(pub(crate) PathBuf);

impl Small {
    pub(crate) fn mount(path: PathBuf) -> Self {
        Self::with_size(path, c"size=24m")
    }

    pub(crate) fn with_size(path: PathBuf, size: &CStr) -> Self {
        rustix::mount::mount("none", &path, "tmpfs", MountFlags::empty(), size)
            .expect("root may mount");
        Self(path)
    }

    pub(crate) fn fill(&self) {
        self.fill_to(LEFT_BYTES);
    }

    /// Leaves so much, where there is more.
    fn fill_to(&self, left_bytes: u64) {
        let room = rustix::fs::statvfs(&self.0).expect("it is mounted");
        let bytes = (room.f_bavail * room.f_frsize).saturating_sub(left_bytes);
        if bytes == 0 {
            return;
        }
        let file = File::options().append(true).create(true).open(self.0.join("fill"));
        let file = file.expect("it can be opened");
        let end_bytes = file.metadata().expect("it is open").len();
        rustix::fs::fallocate(&file, FallocateFlags::empty(), end_bytes, bytes)
            .expect("there is room");
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
    // It is made anew, as is right for the disk.
    fs::remove_file(catalog.join("spare")).expect("it is there");
    let moved = Command::new("mv").arg(&catalog).arg(&small.0).status().expect("it runs");
    assert!(moved.success());
    symlink(small.0.join("catalog"), &catalog).expect("the name is free");
    let mut served = Served::start(&scene);
    let mut mounted = scene.mount_served(&served, "one", &[]);
    let write = |number| fs::write(mounted.path().join(format!("file{number}")), [7; 3000]);
    fs::write(mounted.path().join("kept"), [7; 3000]).expect("there is room");
    (0..KEPT).for_each(|number| write(number).expect("there is room"));
    small.fill();
    let full = (KEPT..FILES).find_map(|number| write(number).err()).expect("the disk is full");
    assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    // What is kept for removing goes, too, where others take it.
    let mut removals = (0..KEPT).map(|number| {
        small.fill_to(0);
        fs::remove_file(mounted.path().join(format!("file{number}")))
    });
    assert!(removals.any(|removed| removed.is_err()), "nothing is left");
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
    assert_eq!(fs::read(mounted.path().join("kept")).expect("it is there"), [7; 3000]);
    fs::write(mounted.path().join("after"), b"again").expect("there is room");
}

/// The exit status of what finds no room.
const NO_SPACE: i32 = 4;

/// Longer than the disk is.
const TOO_LONG: usize = 200 << 20;

#[test]
fn what_fills_the_disk_of_a_store_can_be_removed() {
    for engine in ["fjall", "lmdb"] {
        for io in ["served", "auto"] {
            let Some(scene) = Scene::new() else { return };
            let small = Small::with_size(scene.directory("small"), c"size=96m");
            scene.ok(["init", "small/store", "--catalog", engine, "--policy", "none"]);
            let mut mounted = scene.mount_store("small/store", "one", &["--io", io]);
            let path = |name: &str| mounted.path().join(name);
            let refused = |what: &str, done: std::io::Result<()>| {
                let error = done.expect_err(what);
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{engine} {io} {what}: {error}");
            };
            for number in 0..KEPT {
                fs::write(path(&format!("kept{number}")), [8; 3000]).expect("there is room");
            }
            refused("a long file", fs::write(path("long"), vec![7; TOO_LONG]));
            // As long as there is any room, some may be made.
            let full = (0..FILES)
                .find_map(|number| fs::write(path(&format!("more{number}")), [7; 3000]).err());
            refused("small files", full.map_or(Ok(()), Err));
            for number in 0..KEPT {
                refused("another long file", fs::write(path("longer"), vec![7; 1 << 20]));
                refused("a directory", fs::create_dir(path(&format!("directory{number}"))));
            }
            fs::rename(path("kept0"), path("renamed")).expect("that takes no room");
            fs::remove_file(path("kept1")).expect("that takes no room");
            assert_eq!(fs::read(path("kept2")).expect("it is there"), [8; 3000]);
            for _ in 0..5 {
                let moved = scene.command(["migrate", "./one/long", "--to", "slow"]).output();
                let moved = moved.expect("the binary runs");
                assert_eq!(moved.status.code(), Some(NO_SPACE), "{engine} {io}: {moved:?}");
            }
            mounted.unmount();
            mounted.mount(&scene);
            let path = |name: &str| mounted.path().join(name);
            assert_eq!(fs::read(path("renamed")).expect("it is there"), [8; 3000]);
            fs::remove_file(path("long")).expect("that takes no room");
            wait_until("there is room again", || {
                fs::write(path("again"), vec![9; 1 << 20]).is_ok()
            });
            fs::create_dir(path("directory")).expect("there is room");
            assert_eq!(fs::read(path("again")).expect("it is there"), vec![9; 1 << 20]);
            mounted.unmount();
            scene.ok(["--store", "small/store", "fsck"]);
            drop(small);
        }
    }
}

/// Blocks that are left while a store is made: with the first ones it is cut off at each of its steps.
const BLOCKS_EACH: u64 = 96;
const BLOCKS_MORE: [u64; 3] = [256, 1024, 4096];

#[test]
fn a_store_that_was_begun_on_a_full_disk_is_made_once_there_is_room() {
    for engine in ["fjall", "lmdb"] {
        let Some(scene) = Scene::new() else { return };
        let small = Small::mount(scene.directory("small"));
        let init = || {
            let mut init = scene.command(["init", "small/store", "--catalog", engine]);
            init.output().expect("it runs")
        };
        let (mut made, mut refused) = (0, 0);
        for blocks in (0..BLOCKS_EACH).chain(BLOCKS_MORE) {
            let what = format!("{engine}, {blocks} blocks");
            small.fill_to(blocks * 4096);
            let on_full = init();
            if on_full.status.success() {
                made += 1;
            } else {
                refused += 1;
                let text = String::from_utf8_lossy(&on_full.stderr);
                assert_eq!(on_full.status.code(), Some(NO_SPACE), "{what}: {text}");
                fs::remove_file(small.0.join("fill")).expect("it is there");
                let again = init();
                let text = String::from_utf8_lossy(&again.stderr);
                assert!(again.status.success(), "{what}, with room: {text}");
            }
            scene.ok(["--store", "small/store", "ls"]);
            fs::remove_dir_all(small.0.join("store")).expect("it was made");
        }
        assert!(made > 0 && refused > 0, "{engine}: {made} made, {refused} refused");
    }
}
