// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room behind the ends of files (`FALLOC_FL_KEEP_SIZE`), compared with a native file system.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate};
use rustix::io::Errno;

use crate::scene::Scene;
use crate::suites::{How, Place};

const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;

const ALL: [How; 4] = [How::Served, How::Passed, How::Network, How::Strict];

/// Room that is asked for, and is more than any file takes without it.
const ROOM: u64 = 8 << 20;

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 3] = [0, 100, 10_000];

fn create(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).expect("there is room")
}

/// What there is to see of a file: its length, and whether it has the room.
fn seen(file: &File) -> (u64, bool) {
    let found = file.metadata().expect("it is there");
    (found.len(), found.blocks() * 512 >= ROOM)
}

/// Everything that a program sees of room behind the end of a file that had so many bytes.
fn behaviour(path: &Path, length: usize) -> Vec<(&'static str, u64, bool)> {
    let file = create(path);
    let mut all = Vec::new();
    let mut note = |what, file: &File| {
        let (length, has_room) = seen(file);
        all.push((what, length, has_room));
    };
    let data = vec![7; length];
    file.write_all_at(&data, 0).expect("there is room");
    note("written", &file);
    fallocate(&file, KEEP, 0, ROOM).expect("there is room");
    note("promised", &file);
    assert_eq!(fs::read(path).expect("reads"), data);
    let end = length as u64;
    let sought = rustix::fs::seek(&file, SeekFrom::Data(end));
    assert_eq!(sought, Err(Errno::NXIO), "there is nothing behind the end");
    file.write_all_at(&[8; 1000], 50_000).expect("the room was promised");
    note("written behind a hole", &file);
    let mut data = [data, vec![0; 50_000 - length], vec![8; 1000]].concat();
    assert_eq!(fs::read(path).expect("reads"), data);
    file.set_len(100_000).expect("grows");
    data.resize(100_000, 0);
    note("grown", &file);
    assert_eq!(fs::read(path).expect("reads"), data);
    drop(file);
    let file = File::options().append(true).read(true).open(path).expect("it is there");
    note("opened again", &file);
    (&file).write_all(&[9; 50]).expect("the room was promised");
    data.extend([9; 50]);
    note("appended", &file);
    drop(file);
    let file = File::options().read(true).write(true).open(path).expect("it is there");
    file.set_len(data.len() as u64).expect("cuts to the length that it has");
    note("cut to the length that it has", &file);
    fallocate(&file, KEEP | FallocateFlags::ZERO_RANGE, 100_000, ROOM).expect("there is room");
    data[100_000..].fill(0);
    note("zeroed", &file);
    assert_eq!(fs::read(path).expect("reads"), data);
    file.set_len(60).expect("cuts");
    data.truncate(60);
    note("cut", &file);
    fallocate(&file, KEEP, 1 << 30, ROOM).expect("there is room");
    note("promised behind a hole", &file);
    File::options().write(true).truncate(true).open(path).expect("it is there");
    note("emptied by who opened it", &file);
    fallocate(&file, KEEP, 0, ROOM).expect("there is room");
    fallocate(&file, FallocateFlags::empty(), 0, ROOM / 2).expect("there is room");
    note("grown into it", &file);
    all
}

#[test]
fn room_behind_the_end_is_as_on_the_native_file_system() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        let native = place.scene.directory("native");
        for length in LENGTHS {
            let name = format!("file{length}");
            let expected = behaviour(&native.join(&name), length);
            let found = behaviour(&place.mounted.path().join(&name), length);
            assert_eq!(found, expected, "{how:?} {length}");
        }
    }
}

#[test]
fn punching_behind_the_end_takes_nothing_away() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        let file = create(&place.mounted.path().join("file"));
        file.write_all_at(&[7; 10_000], 0).expect("there is room");
        fallocate(&file, KEEP, 0, ROOM).expect("there is room");
        fallocate(&file, KEEP | FallocateFlags::PUNCH_HOLE, 16_384, ROOM)
            .expect("nothing is there");
        assert_eq!(seen(&file), (10_000, true), "{how:?}");
    }
}

#[test]
fn promised_room_is_given_to_nobody_else() {
    const CAPACITY: u64 = 16 << 20;
    for how in [How::Served, How::Network] {
        let Some(scene) = Scene::with_capacity("16MiB") else { return };
        let place = Place::with_scene(scene, how, &[]);
        let path = place.mounted.path().join("promised");
        let file = create(&path);
        file.write_all_at(&[7; 10_000], 0).expect("there is room");
        for (offset, length) in [(0, 3 * CAPACITY), (1 << 40, 1)] {
            let refused = fallocate(&file, KEEP, offset, length);
            assert_eq!(refused, Err(Errno::NOSPC), "{how:?}");
            assert_eq!(seen(&file), (10_000, false), "{how:?}");
        }
        // More than a tier has.
        fallocate(&file, KEEP, 0, CAPACITY + ROOM).expect("there is room");
        let mut filler = create(&place.mounted.path().join("filler"));
        let refused = loop {
            if let Err(error) = filler.write_all(&[8; 64 << 10]) {
                break error;
            }
        };
        assert_eq!(refused.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        assert!(filler.metadata().expect("it is there").len() <= CAPACITY - ROOM);
        // Also from somebody else, and later.
        drop(file);
        let file = File::options().write(true).open(&path).expect("it is there");
        for part in (0..(CAPACITY + ROOM) >> 20).rev() {
            file.write_all_at(&[9; 1 << 20], part << 20).expect("the room was promised");
        }
        let found = fs::read(&path).expect("reads");
        assert!(found.len() as u64 == CAPACITY + ROOM && found.iter().all(|byte| *byte == 9));
        drop((file, filler));
        fs::remove_file(&path).expect("it is there");
    }
}

#[test]
fn promised_room_moves_with_its_file_and_outlives_the_mount() {
    let Some(mut place) = Place::new(How::Served, &[]) else { return };
    let path = place.mounted.path().join("file");
    let file = create(&path);
    file.write_all_at(&[7; 10_000], 0).expect("there is room");
    fallocate(&file, KEEP, 0, ROOM).expect("there is room");
    let reserved = |scene: &Scene, tier: &str| -> u64 {
        let tiers = scene.ok(["tiers", "--json"]);
        let tiers: serde_json::Value = serde_json::from_str(&tiers).expect("JSON");
        let mut tiers = tiers["tiers"].as_array().expect("a list").iter();
        let found = tiers.find(|found| found["name"] == tier).expect("it is there");
        found["reserved_bytes"].as_u64().expect("a number")
    };
    let both = |scene: &Scene| (reserved(scene, "fast"), reserved(scene, "slow"));
    let (fast, slow) = both(&place.scene);
    // What was reserved ahead while it grew goes with the move.
    assert!(fast >= ROOM - 10_000 && slow == 0, "{fast} {slow}");
    place.scene.ok(["migrate", path.to_str().expect("UTF-8"), "--to", "slow"]);
    assert_eq!(both(&place.scene), (0, ROOM - 10_000));
    assert_eq!(seen(&file), (10_000, true));
    drop(file);
    place.mounted.kill();
    place.mounted.mount(&place.scene);
    assert_eq!(both(&place.scene), (0, ROOM - 10_000));
    let file = File::options().write(true).open(&path).expect("it is there");
    assert_eq!(seen(&file), (10_000, true));
    file.set_len(10_000).expect("gives it back");
    assert_eq!(seen(&file), (10_000, false));
}
