// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files in pieces of a length that is set for their directory: segments of a store, stripes over
//! several servers.

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use rustix::fs::{OFlags, XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use serde_json::Value;
use terrace_core::Random;

use crate::scene::{Mounted, Scene, Served, wait_until};

const SEGMENT: &str = "user.terrace.segment";

/// Length of a piece, and of a file of several.
const PIECE: usize = 256 << 10;
const LONG: usize = 5 * PIECE + 1000;

/// Bytes that tell where they belong.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let word = |at: u64| (at ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = (0..length.div_ceil(8) as u64).flat_map(|at| word(at).to_le_bytes());
    words.take(length).collect()
}

/// Room that the files of a server's tiers take.
pub(crate) fn stored(scene: &Scene) -> u64 {
    fn below(path: &Path) -> u64 {
        // What is gone since it was listed takes none.
        let Ok(entries) = fs::read_dir(path) else { return 0 };
        let bytes = |entry: fs::DirEntry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => below(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        };
        entries.map(|entry| bytes(entry.expect("readable"))).sum()
    }
    ["fast", "slow"].iter().map(|tier| below(&scene.path(tier))).sum()
}

/// A directory whose files are cut.
fn make_directory(mounted: &Mounted) {
    let path = mounted.path().join("dir");
    fs::create_dir(&path).expect("made");
    setxattr(&path, SEGMENT, b"256KiB", XattrFlags::empty()).expect("a directory may have it");
}

fn fill(mounted: &Mounted, files: u64) {
    for number in 0..files {
        let length = if number == 0 { LONG } else { 10_000 };
        let path = mounted.path().join(format!("dir/f{number}"));
        fs::write(path, pattern(number, length)).expect("written");
    }
}

fn check(mounted: &Mounted, files: u64) {
    for number in 0..files {
        let length = if number == 0 { LONG } else { 10_000 };
        let path = mounted.path().join(format!("dir/f{number}"));
        let found = fs::read(path).expect("readable");
        assert!(found == pattern(number, length), "file {number} has {} bytes", found.len());
    }
}

#[test]
fn large_files_lie_over_all_servers_and_names_with_the_first() {
    const FILES: u64 = 20;
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    let (names, mut data) = (Served::start(&first), Served::start(&second));
    let servers = [&names, &data];
    let mut mounted = first.mount_all(&servers, "mnt", &[]);
    make_directory(&mounted);
    fill(&mounted, FILES);
    for scene in [&first, &second] {
        assert!(stored(scene) > LONG as u64 / 3, "{} bytes", stored(scene));
    }
    let mut other = second.mount_all(&servers, "other", &[]);
    check(&other, FILES);
    other.unmount();
    mounted.unmount();
    data.kill_and_restart(&second);
    mounted.mount(&first);
    check(&mounted, FILES);
    fs::rename(mounted.path().join("dir/f0"), mounted.path().join("dir/renamed")).expect("moved");
    fs::remove_dir_all(mounted.path().join("dir")).expect("removed");
    mounted.unmount();
    // Tiers free the room of what was deleted a little later.
    for scene in [&first, &second] {
        wait_until("what was removed takes no room", || stored(scene) < PIECE as u64);
    }
}

#[test]
fn programs_wait_for_a_data_server_that_is_killed_and_started_again() {
    const WRITERS: u64 = 12;
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    let (names, mut data) = (Served::start(&first), Served::start(&second));
    let mounted = first.mount_all_patient(&[&names, &data], "mnt", &[]);
    let has_ended = AtomicBool::new(false);
    let write = |writer: u64, written: &Sender<()>| {
        let path = mounted.path().join(format!("file{writer}"));
        let mut seed = writer;
        while !has_ended.load(Ordering::Relaxed) {
            let expected = pattern(seed, 20_000);
            fs::write(&path, &expected).expect("the server comes back");
            assert!(fs::read(&path).expect("the server comes back") == expected);
            fs::remove_file(&path).expect("it is there");
            seed += WRITERS;
            // Nobody listens any more at the end.
            let _ = written.send(());
        }
    };
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (sender, write) = (sender.clone(), &write);
            scope.spawn(move || write(writer, &sender));
        }
        drop(sender);
        for _ in 0..3 {
            // Where all writers have failed, nothing comes.
            receiver.iter().take(WRITERS as usize).for_each(drop);
            data.kill_and_restart(&second);
        }
        has_ended.store(true, Ordering::Relaxed);
    });
}

/// Reads past the cache, so many that those who wait and those who do not meet on a connection.
#[test]
fn reads_wait_for_a_data_server_that_is_killed_and_started_again() {
    const READERS: u64 = 12;
    const READ_BYTES: usize = 4096;
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    let (names, mut data) = (Served::start(&first), Served::start(&second));
    let mounted = first.mount_all_patient(&[&names, &data], "mnt", &[]);
    make_directory(&mounted);
    fill(&mounted, 1);
    let path = mounted.path().join("dir/f0");
    let expected = pattern(0, LONG);
    let has_ended = AtomicBool::new(false);
    let read = |reader: u64, done: &Sender<()>| {
        let mut options = fs::File::options();
        let flags = OFlags::DIRECT.bits().cast_signed();
        let file = options.read(true).custom_flags(flags).open(&path).expect("readable");
        let mut random = Random::new(reader);
        let mut bytes = [0; READ_BYTES];
        while !has_ended.load(Ordering::Relaxed) {
            let offset = random.below((LONG - READ_BYTES) as u64) as usize;
            file.read_exact_at(&mut bytes, offset as u64).expect("the server comes back");
            assert!(bytes == expected[offset..offset + READ_BYTES], "at {offset}");
            // Nobody listens any more at the end.
            let _ = done.send(());
        }
    };
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (sender, read) = (sender.clone(), &read);
            scope.spawn(move || read(reader, &sender));
        }
        drop(sender);
        for _ in 0..5 {
            // Where all readers have failed, nothing comes.
            receiver.iter().take(2000).for_each(drop);
            data.kill_and_restart(&second);
        }
        has_ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_store_cuts_files_into_segments_that_lie_each_for_itself() {
    for how in ["auto", "served"] {
        let Some(scene) = Scene::new() else { return };
        let mut mounted = scene.mount("mnt", &["--io", how]);
        make_directory(&mounted);
        fill(&mounted, 3);
        check(&mounted, 3);
        let path = mounted.path().join("dir");
        for length in [PIECE.to_string().as_str(), "256K", "256KiB"] {
            setxattr(&path, SEGMENT, length.as_bytes(), XattrFlags::empty()).expect(length);
        }
        let path = path.join("f0");
        let explained = scene.ok(["--json", "explain", path.to_str().expect("UTF-8")]);
        let explained: Value = serde_json::from_str(&explained).expect("JSON");
        let segments = explained["segments"].as_array().expect("it has segments").len();
        assert_eq!(segments, LONG.div_ceil(PIECE), "{how}: {explained}");
        let mut value = [0; 16];
        let length = getxattr(&path, SEGMENT, &mut value[..]).expect("it is inherited");
        assert_eq!(&value[..length], PIECE.to_string().as_bytes());
        let set = |value: &[u8]| setxattr(&path, SEGMENT, value, XattrFlags::empty());
        assert_eq!(set(b"1MiB"), Err(Errno::BUSY), "it is cut already");
        assert_eq!(set(b"1"), Err(Errno::INVAL));
        mounted.unmount();
        mounted.mount(&scene);
        check(&mounted, 3);
    }
}
