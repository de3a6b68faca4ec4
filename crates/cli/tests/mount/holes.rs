// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sparse files take what is allocated of them, on each kind of mount.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, ftruncate, seek, statvfs};
use rustix::io::Errno;

use crate::scene::{Scene, Served, wait_until};
use crate::suites::{How, Place};

const ALL: [How; 4] = [How::Served, How::Passed, How::Network, How::Strict];

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn create(path: &Path) -> File {
    let how = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
    how.expect("it may be made")
}

/// Bytes used, as `df` shows them.
fn used(path: &Path) -> u64 {
    let told = statvfs(path).expect("it is there");
    (told.f_blocks - told.f_bfree) * told.f_frsize
}

/// Uses sparse files in a directory of a store with room for 100 MiB.
fn use_sparse_files(directory: &Path, how: &str) {
    let before = used(directory);
    let image = create(&directory.join("vm.img"));
    ftruncate(&image, TIB).expect("a hole takes no room");
    let other = create(&directory.join("other"));
    let data = vec![8; MIB as usize];
    other.write_all_at(&data, 200 * GIB).expect("there is room for what is written");
    image.write_all_at(&[7; 5000], 900 * GIB).expect("there is room");
    // Room is taken ahead for files that are open.
    wait_until("df shows what is allocated", || used(directory) - before <= 16 * MIB);
    assert_eq!(image.metadata().expect("it is open").len(), TIB, "{how}");
    assert_eq!(seek(&image, SeekFrom::Data(0)), Ok(900 * GIB), "{how}");
    assert_eq!(seek(&other, SeekFrom::Hole(200 * GIB)), Ok(200 * GIB + MIB), "{how}");
    let (mut from, mut to) = (200 * GIB, 500 * GIB);
    while from < 200 * GIB + MIB {
        let left = (200 * GIB + MIB - from) as usize;
        let count = copy_file_range(&other, Some(&mut from), &image, Some(&mut to), left);
        assert!(count.expect("there is room") > 0, "{how}");
    }
    let mut found = vec![0; data.len()];
    image.read_exact_at(&mut found, 500 * GIB).expect("it was copied");
    assert!(found == data, "{how}");
    // Reserving room is what takes it.
    fallocate(&image, FallocateFlags::empty(), 600 * GIB, 2 * MIB).expect("there is room");
    let refused = fallocate(&image, FallocateFlags::empty(), 700 * GIB, GIB);
    assert_eq!(refused, Err(Errno::NOSPC), "{how}");
    drop((image, other));
    wait_until("df shows what is allocated", || used(directory) - before <= 5 * MIB);
    let blocks = fs::metadata(directory.join("vm.img")).expect("it is there").blocks();
    assert!((3 * MIB..=4 * MIB).contains(&(blocks * 512)), "{how}: {blocks}");
    for name in ["vm.img", "other"] {
        fs::remove_file(directory.join(name)).expect("it is there");
    }
    wait_until("what was removed takes no room", || used(directory) <= before);
}

#[test]
fn sparse_files_take_what_is_allocated() {
    for how in ALL {
        let Some(scene) = Scene::with_capacity("50MiB") else { return };
        let place = Place::with_scene(scene, how, &[]);
        use_sparse_files(place.mounted.path(), &format!("{how:?}"));
        let check = place.scene.ok(["fsck"]);
        assert!(check.contains("no problems"), "{how:?}: {check}");
    }
}

#[test]
fn sparse_files_over_several_servers_take_what_is_allocated() {
    let scenes = [(); 2].map(|()| Scene::with_capacity("50MiB"));
    let [Some(first), Some(second)] = scenes else { return };
    let served = [&first, &second].map(Served::start);
    let mounted = first.mount_all(&served.each_ref(), "mnt", &[]);
    use_sparse_files(mounted.path(), "servers");
}

#[test]
fn offsets_up_to_the_largest_work_or_are_too_large() {
    for how in ALL {
        let Some(scene) = Scene::with_capacity("50MiB") else { return };
        let place = Place::with_scene(scene, how, &[]);
        let source = create(&place.mounted.path().join("source"));
        source.write_all_at(&[5; 8192], 0).expect("there is room");
        for at in [TIB, 15 * TIB, 1 << 50, 1 << 62, i64::MAX as u64 - 8192] {
            let path = place.mounted.path().join(format!("{at}"));
            let file = create(&path);
            let (mut from, mut to) = (0, at);
            let (mut is_too_large, mut written) = (false, 0);
            while written < 4096 {
                let left = 4096 - written;
                match copy_file_range(&source, Some(&mut from), &file, Some(&mut to), left) {
                    Ok(count) => written += count,
                    Err(errno) => {
                        assert_eq!(errno, Errno::FBIG, "{how:?} copy to {at}");
                        is_too_large = true;
                        break;
                    }
                }
            }
            let grown = ftruncate(&file, at + 8192);
            let allocated = fallocate(&file, FallocateFlags::KEEP_SIZE, at, 4096);
            if is_too_large {
                assert_eq!(grown, Err(Errno::FBIG), "{how:?} {at}");
                // Room up to there is more than the tiers have, whatever a file may be long.
                let is_refused = matches!(allocated, Err(Errno::FBIG | Errno::NOSPC));
                assert!(is_refused, "{how:?} {at}: {allocated:?}");
                assert_eq!(seek(&file, SeekFrom::Data(at)), Err(Errno::NXIO), "{how:?} {at}");
                continue;
            }
            assert_eq!((grown, allocated), (Ok(()), Ok(())), "{how:?} {at}");
            assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(at), "{how:?}");
            assert_eq!(seek(&file, SeekFrom::Hole(at)), Ok(at + 4096), "{how:?}");
            let mut found = [0; 4096];
            file.read_exact_at(&mut found, at).expect("it was copied");
            assert!(found == [5; 4096], "{how:?} {at}");
        }
    }
}

/// Also where no capacity bounds the tiers, and the file is that of many segments.
#[test]
fn lengths_that_no_tier_takes_are_refused() {
    for how in ALL {
        let Some(scene) = Scene::without_capacity() else { return };
        let native = create(&scene.path("native"));
        if ftruncate(&native, 7 << 60).is_ok() {
            println!("skipped: the file system of the tiers takes files of any length");
            return;
        }
        let mut place = Place::with_scene(scene, how, &[]);
        for (name, length) in [("empty", 0), ("small", 100), ("large", 300_000)] {
            let path = place.mounted.path().join(name);
            fs::write(&path, vec![7; length]).expect("there is room");
            let file = OpenOptions::new().read(true).write(true).open(&path).expect("it is there");
            for end in [7 << 60, i64::MAX as u64] {
                assert_eq!(ftruncate(&file, end), Err(Errno::FBIG), "{how:?} {name}");
                // Small writes may be deferred.
                let put = file.write_all_at(b"x", end - 1).and_then(|()| file.sync_all());
                let put = put.map_err(|error| error.raw_os_error());
                assert_eq!(put, Err(Some(Errno::FBIG.raw_os_error())), "{how:?} {name}");
                let allocated = fallocate(&file, FallocateFlags::empty(), end - 4096, 4096);
                let is_refused = matches!(allocated, Err(Errno::FBIG | Errno::NOSPC));
                assert!(is_refused, "{how:?} {name}: {allocated:?}");
                assert_eq!(file.metadata().expect("it is open").len(), length as u64, "{how:?}");
            }
            drop(file);
            assert_eq!(fs::read(&path).expect("it is there"), vec![7; length], "{how:?}");
        }
        place.mounted.unmount();
        drop(place.served);
        place.scene.ok(["fsck"]);
    }
}
