// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The room that a mount tells.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::full_catalog::Small;
use crate::scene::{Mounted, Scene, Served, together, wait_until};

/// Much longer than anybody waits for a server that does not answer.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// Size of a file system, and what is available on it.
fn room(path: &Path) -> (u64, u64) {
    let told = statvfs(path).expect("it is there");
    (told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)
}

#[test]
fn tiers_without_capacity_have_the_room_of_their_file_system() {
    let Some(scene) = Scene::without_capacity() else { return };
    let served = Served::start(&scene);
    for mounted in [scene.mount("mnt", &[]), scene.mount_served(&served, "network", &[])] {
        fs::write(mounted.path().join("file"), vec![7; 100_000]).expect("there is room");
        let (size, available) = room(mounted.path());
        let (below_size, below_available) = room(&scene.path("slow"));
        assert!(size <= below_size, "{size} of {below_size}");
        // Others write to it and delete there at the same time.
        let expected = below_available / 2..below_available / 2 * 3;
        assert!(expected.contains(&available), "{available} of {below_available}");
    }
}

#[test]
fn no_more_room_is_told_than_the_file_systems_of_tiers_have() {
    let Some(scene) = Scene::new() else { return };
    let disk = Small::with_size(scene.directory("disk"), c"size=16m");
    for (store, tiers) in [
        // As `terrace init` makes them.
        ("one", ["fast=disk/a,capacity=10GB", "slow=disk/b"]),
        // Each could be filled up, and not both.
        ("two", ["fast=disk/c,capacity=10MB", "slow=disk/d,capacity=10MB"]),
    ] {
        let tiers = tiers.iter().flat_map(|tier| ["--tier", tier]);
        scene.ok(["init", store, "--policy", "none"].into_iter().chain(tiers));
        let check = |mounted: &Mounted| {
            fs::write(mounted.path().join("file"), vec![7; 100_000]).expect("there is room");
            let (size, available) = room(mounted.path());
            let (below_size, below_available) = room(&disk.0);
            assert!(size <= below_size, "{store}: {size} of {below_size}");
            // Nobody else writes to it.
            assert!(available <= below_available, "{store}: {available} of {below_available}");
            assert!(available > below_available / 10 * 9, "{store}: {available}");
        };
        let mut mounted = scene.mount_store(store, "mnt", &[]);
        check(&mounted);
        mounted.unmount();
        let served = Served::start_store(&scene, store);
        check(&scene.mount_served(&served, "network", &[]));
    }
}

/// The same within a bounded time.
fn room_in_time(mounted: &Mounted) -> (u64, u64) {
    let (sender, receiver) = mpsc::channel();
    let path = mounted.path().to_owned();
    thread::spawn(move || sender.send(room(&path)));
    receiver.recv_timeout(WAIT_TIME_MAX).expect("no server is waited for for long")
}

/// Bytes used, as `df` shows them.
fn used(path: &Path) -> u64 {
    let told = statvfs(path).expect("it is there");
    (told.f_blocks - told.f_bfree) * told.f_frsize
}

#[test]
fn df_shows_the_quota_of_the_namespace() {
    const LIMIT: u64 = 8 << 20;
    let check = |mounted: &Mounted, limit: u64| {
        let (size, available) = room(mounted.path());
        assert_eq!((size, available), (limit, limit - used(mounted.path())));
        let before = used(mounted.path());
        let path = mounted.path().join("file");
        fs::write(&path, vec![7; 1_000_000]).expect("there is room");
        wait_until("it counts", || {
            let used = used(mounted.path()) - before;
            (1_000_000 - 4096..=1_000_000 + 4096).contains(&used)
        });
        assert_eq!(room(mounted.path()), (limit, limit - used(mounted.path())));
        fs::remove_file(path).expect("it is there");
        wait_until("it does not count", || used(mounted.path()) == before);
    };
    let Some(scene) = Scene::with_capacity("1GB") else { return };
    let other = Scene::with_capacity("1GB").expect("there is one");
    let limit = ["quota", "set", "files", "--bytes", "8MiB"];
    scene.ok(limit);
    for one in [&scene, &other] {
        one.ok(["quota", "set", "many", "--bytes", "8MiB"]);
    }
    let mut mounted = scene.mount("mnt", &[]);
    check(&mounted, LIMIT);
    // A limit that is larger than the tiers shows what these have.
    scene.ok(["quota", "set", "files", "--bytes", "1PB"]);
    let (size, _) = room(mounted.path());
    assert!(size <= 2_000_000_000, "{size}");
    scene.ok(limit);
    mounted.unmount();
    let served = Served::start(&scene);
    let mut mounted = scene.mount_served(&served, "network", &[]);
    check(&mounted, LIMIT);
    mounted.unmount();
    let second = Served::start(&other);
    check(&scene.mount_all(&[&served, &second], "many", &["--name", "many"]), 2 * LIMIT);
}

#[test]
fn a_data_server_that_is_silent_has_the_room_that_it_told_last() {
    let Some(scene) = Scene::with_capacity("1GB") else { return };
    let scenes = ["1GB"; 2].map(|size| Scene::with_capacity(size).expect("there is one"));
    let served = [&scene, &scenes[0], &scenes[1]].map(Served::start);
    let patient = scene.mount_all_patient(&served.each_ref(), "patient", &[]);
    let impatient = together(&served.each_ref()) + "&deadline=1s";
    let impatient = scene.mount_address(&impatient, "impatient", &[]);
    fs::write(patient.path().join("file"), vec![7; 100_000]).expect("there is room");
    let before = room_in_time(&patient);
    served[1].set_silent(true);
    assert_eq!(room_in_time(&patient), before);
    assert_eq!(room_in_time(&patient), before);
    // This one has never heard of its room.
    let (size, _) = room_in_time(&impatient);
    assert_eq!(size, before.0 / 3 * 2);
    served[1].set_silent(false);
    wait_until("it counts again", || room_in_time(&impatient) == before);
}

#[test]
fn full_file_systems_of_tiers_are_full_and_not_busy() {
    let Some(scene) = Scene::new() else { return };
    let disks = ["a", "b"].map(|name| Small::with_size(scene.directory(name), c"size=16m"));
    let tiers = ["--tier", "fast=a/tier", "--tier", "slow=b/tier"];
    scene.ok(["init", "two", "--policy", "none"].into_iter().chain(tiers));
    let mut mounted = scene.mount_store("two", "mnt", &["--io", "served"]);
    let path = mounted.path().join("file");
    for piece_bytes in [4096, 300_000, 1 << 20] {
        let mut file = File::create(&path).expect("there is room");
        let mut written = 0;
        let error = loop {
            match file.write(&vec![7; piece_bytes]) {
                Ok(bytes) => written += bytes as u64,
                Err(error) => break error,
            }
            assert!(written < 32 << 20, "more was taken than there is");
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{piece_bytes}: {error}");
        assert_eq!(file.metadata().expect("it is open").len(), written, "{piece_bytes}");
        assert!(written > 28 << 20, "{piece_bytes}: both are used, and not {written} alone");
        drop(file);
        fs::remove_file(&path).expect("it is there");
        wait_until("there is room again", || room(mounted.path()).1 > 30 << 20);
    }
    let file = File::create(&path).expect("there is room");
    let allocate = |bytes| fallocate(&file, FallocateFlags::empty(), 0, bytes);
    assert_eq!(allocate(100 << 20), Err(Errno::NOSPC));
    wait_until("all of it is given back", || room(mounted.path()).1 > 30 << 20);
    allocate(24 << 20).expect("both have room for a part");
    drop(file);
    mounted.unmount();
    scene.ok(["--store", "two", "fsck"]);
    drop(disks);
}
