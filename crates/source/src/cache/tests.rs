// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies on disks that are small, full, or used again.

use std::io::Write;
use std::process::Command;

use terrace_core::ErrorKind;

use super::*;

impl Cache {
    /// Fails to sync the cache, and overwrites the first bytes of its copies: the kernel may have dropped the pages.
    pub(crate) fn fail_sync(&self, length: usize) {
        self.shared.end_epoch(|| Err(io::ErrorKind::StorageFull.into()));
        each_file(&self.shared.copies, &|| false, &mut |key, bytes, _| {
            if bytes.is_some() {
                let mut copy = File::options();
                let copy = copy.write(true).open(self.shared.copies.join(key.place()));
                copy.expect("it is ours").write_all(&vec![0xff; length]).expect("room");
            }
        })
        .expect("readable");
    }
}

/// A small file system, unmounted when this is dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(size: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounts are tested as root");
            return None;
        }
        let disk = Self(tempfile::tempdir().expect("a directory"));
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(disk.0.path());
        assert!(mount.status().expect("there is a mount command").success());
        Some(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn meta(size_bytes: u64) -> Meta {
    let stat = rustix::fs::stat("/").expect("root");
    Meta { size_bytes, mode: 0o100_644, ..Meta::of(&stat) }
}

const PIECE_BYTES: u64 = 1 << 20;

fn copy(cache: &Cache, name: &str, pieces: u64) -> std::result::Result<Copy, Errno> {
    let draft = cache.draft(pieces * PIECE_BYTES)?;
    for piece in 0..pieces {
        draft.write_at(piece * PIECE_BYTES, &vec![1; PIECE_BYTES as usize])?;
    }
    draft.publish(Path::new(name), &meta(pieces * PIECE_BYTES))
}

#[test]
fn copies_go_for_others_where_the_disk_is_full() {
    let Some(disk) = Disk::mount("8m") else { return };
    let settings = CacheSettings {
        directory: disk.0.path().join("cache"),
        bytes_max: Some(1 << 30),
        purpose: "a test".into(),
    };
    let cache = match Cache::open(&settings, "a source") {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("skipped: this tmpfs has no extended attributes");
            return;
        }
        other => other.expect("a cache"),
    };
    drop(copy(&cache, "a", 3).expect("room"));
    let b = copy(&cache, "b", 3).expect("room");
    let c = copy(&cache, "c", 3).expect("that of a");
    let is_there = |name: &str| cache.find(Path::new(name), &meta(3 * PIECE_BYTES)).is_some();
    assert!(!is_there("a") && is_there("b") && is_there("c"));
    assert_eq!(copy(&cache, "d", 3).err(), Some(Errno::NOSPC), "both are open");
    // A large file.
    let blocks = cache.blocks(Path::new("e"), &meta(9 * BLOCK_BYTES)).expect("sparse");
    let mut stored = 0;
    let bytes = vec![1; BLOCK_BYTES as usize];
    while let Ok(Claim::Fetch(claimed)) = blocks.claim(stored, Duration::from_secs(60)) {
        claimed.store(&bytes);
        stored += 1;
    }
    assert!((2..=3).contains(&stored), "{stored}: the last one is fetched and not kept");
    assert!(is_there("b") && is_there("c"));
    let report = cache.report();
    let used_bytes = report.used_bytes;
    assert_eq!(report.evicted, 1);
    drop((b, blocks));
    // What was not kept was given back: six pieces of copies, and one block less than was tried.
    let kept_bytes = (6 + stored as u64 - 1) * PIECE_BYTES + 3 * 4096;
    assert_eq!(used_bytes, kept_bytes);
    let blocks = cache.blocks(Path::new("e"), &meta(9 * BLOCK_BYTES)).expect("it is there");
    match blocks.claim(8, Duration::from_secs(60)) {
        Ok(Claim::Fetch(claimed)) => claimed.store(&bytes),
        _ => panic!("there is room in the place of b"),
    }
    assert!(!is_there("b") && is_there("c"));
    drop(c);
}

#[test]
fn records_of_directories_are_bounded_also_after_a_restart() {
    let ground = tempfile::tempdir().expect("a directory");
    let open = || {
        let settings = CacheSettings {
            directory: ground.path().join("cache"),
            bytes_max: Some(1 << 20),
            purpose: "a test".into(),
        };
        Cache::open(&settings, "a source").expect("a cache")
    };
    let directory = Meta { mode: 0o040_755, ..meta(0) };
    let count_max = Remembered::count_max(1 << 20);
    let count_kept = || {
        let (mut records, mut copies) = (0, 0);
        let copies_path = ground.path().join("cache").join(COPIES);
        each_file(&copies_path, &|| false, &mut |_, bytes, _| match bytes {
            Some(_) => copies += 1,
            None => records += 1,
        })
        .expect("readable");
        (records, copies)
    };
    for start in [0, count_max] {
        let cache = open();
        while !cache.report().is_counted {
            thread::yield_now();
        }
        drop(cache.draft(0).expect("room").publish(Path::new("file"), &meta(0)).expect("room"));
        for number in start..start + count_max {
            cache.remember(Path::new("kept"), &directory, None);
            cache.remember(Path::new(&number.to_string()), &directory, None);
            // What others forgot is made again.
            assert!(cache.recall(Path::new("kept")).is_some());
        }
        let (records, copies) = count_kept();
        assert!(records <= count_max && records > count_max / 2, "{records}");
        assert_eq!((copies, cache.report().copies), (1, 1));
    }
    // A file has come in the place of a directory, and a directory in that of a file.
    let cache = open();
    let (before, _) = count_kept();
    drop(cache.draft(0).expect("room").publish(Path::new("kept"), &meta(0)).expect("room"));
    cache.remember(Path::new("file"), &directory, None);
    assert_eq!(count_kept(), (before, 1));
    assert!(cache.recall(Path::new("file")).is_some_and(|(meta, _)| !meta.is_file()));
}

#[test]
fn drafts_that_are_under_way_take_room() {
    let ground = tempfile::tempdir().expect("a directory");
    let settings = CacheSettings {
        directory: ground.path().join("cache"),
        bytes_max: Some(10 * PIECE_BYTES),
        purpose: "a test".into(),
    };
    let cache = Cache::open(&settings, "a source").expect("a cache");
    drop(copy(&cache, "idle", 3).expect("room"));
    let first = cache.draft(6 * PIECE_BYTES).expect("room");
    assert_eq!(cache.report().copies, 1);
    assert_eq!(cache.draft(6 * PIECE_BYTES).err(), Some(Errno::NOSPC), "both do not fit");
    let second = cache.draft(3 * PIECE_BYTES).expect("that of the idle copy");
    assert_eq!(cache.report().copies, 0);
    assert!(cache.report().used_bytes >= 9 * PIECE_BYTES);
    drop((first, second));
    assert_eq!(cache.report().used_bytes, 0);
    drop(copy(&cache, "file", 9).expect("room"));
    assert_eq!(cache.report().used_bytes, 9 * PIECE_BYTES + 4096);
}

#[test]
fn a_cache_is_opened_on_a_full_disk() {
    for copies in [0, 3_usize] {
        let Some(disk) = Disk::mount("8m") else { return };
        let open = || {
            let settings = CacheSettings {
                directory: disk.0.path().join("cache"),
                bytes_max: Some(1 << 30),
                purpose: "a test".into(),
            };
            Cache::open(&settings, "a source")
        };
        if copies > 0 {
            let cache = open().expect("a cache");
            for number in 0..copies {
                drop(copy(&cache, &number.to_string(), 2).expect("room"));
            }
        }
        let filler = disk.0.path().join("filler");
        let mut file = File::create(&filler).expect("room");
        while file.write_all(&[1; 4096]).is_ok() {}
        let cache = open().expect("it serves what it can");
        let found = |name: &str| cache.find(Path::new(name), &meta(2 * PIECE_BYTES)).is_some();
        let kept = (0..copies).filter(|number| found(&number.to_string())).count();
        assert_eq!(kept, copies.saturating_sub(1), "one goes for the files of the cache itself");
        let made = copy(&cache, "new", 2);
        if copies == 0 {
            assert_eq!(made.err(), Some(Errno::NOSPC), "the disk is full");
            drop(file);
            fs::remove_file(&filler).expect("it is ours");
            cache.shared.prepare_again().expect("there is room");
            drop(copy(&cache, "new", 2).expect("there is room again"));
        } else {
            drop(made.expect("another one goes for it"));
        }
        assert!(found("new"));
    }
}

fn cache_in(ground: &tempfile::TempDir, bytes_max: u64) -> Cache {
    let settings = CacheSettings {
        directory: ground.path().join("cache"),
        bytes_max: Some(bytes_max),
        purpose: "a test".into(),
    };
    Cache::open(&settings, "a source").expect("a cache")
}

#[test]
fn a_record_of_a_void_epoch_is_written_again() {
    let ground = tempfile::tempdir().expect("a directory");
    let cache = cache_in(&ground, 1 << 20);
    let (path, directory) = (Path::new("in"), Meta { mode: 0o040_755, ..meta(0) });
    cache.remember(Path::new("before"), &directory, None);
    let failed = cache.shared.epochs.end(|| {
        cache.remember(path, &directory, None);
        Err(io::ErrorKind::StorageFull.into())
    });
    failed.expect_err("planned");
    for path in [Path::new("before"), path] {
        assert!(cache.recall(path).is_none(), "void");
        cache.remember(path, &directory, None);
        assert!(cache.recall(path).is_some());
    }
}

#[test]
fn a_sync_that_cannot_begin_voids_no_copy() {
    let ground = tempfile::tempdir().expect("a directory");
    let cache = cache_in(&ground, 1 << 30);
    drop(copy(&cache, "file", 1).expect("room"));
    let (copies, aside) = (&cache.shared.copies, ground.path().join("aside"));
    fs::rename(copies, &aside).expect("one file system");
    cache.shared.sync();
    fs::rename(&aside, copies).expect("one file system");
    assert!(cache.find(Path::new("file"), &meta(PIECE_BYTES)).is_some());
}

#[test]
fn a_draft_that_cannot_begin_removes_no_copy() {
    let ground = tempfile::tempdir().expect("a directory");
    let cache = cache_in(&ground, 4 * PIECE_BYTES);
    drop(copy(&cache, "idle", 3).expect("room"));
    let is_ready = &cache.shared.is_ready;
    is_ready.store(false, Ordering::Release);
    assert_eq!(cache.draft(3 * PIECE_BYTES).err(), Some(Errno::NOSPC));
    is_ready.store(true, Ordering::Release);
    fs::remove_dir(&cache.shared.drafts).expect("it is empty");
    assert_eq!(cache.draft(3 * PIECE_BYTES).err(), Some(Errno::NOENT));
    assert!(cache.find(Path::new("idle"), &meta(3 * PIECE_BYTES)).is_some());
    assert_eq!(cache.report().evicted, 0);
}

#[test]
fn a_disk_that_fails_is_not_taken_for_a_full_one() {
    // The bound is that of inodes.
    let Some(disk) = Disk::mount("8m,nr_inodes=64") else { return };
    let open = || {
        let settings = CacheSettings {
            directory: disk.0.path().join("cache"),
            bytes_max: Some(1 << 30),
            purpose: "a test".into(),
        };
        Cache::open(&settings, "a source")
    };
    let cache = match open() {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("skipped: this tmpfs has no extended attributes");
            return;
        }
        other => other.expect("a cache"),
    };
    for name in ["a", "b", "c"] {
        drop(copy(&cache, name, 1).expect("room"));
    }
    drop(cache);
    // The state cannot be replaced while this is there.
    fs::create_dir(disk.0.path().join("cache/cache.next")).expect("room");
    let fill = |number: u32| File::create(disk.0.path().join(number.to_string()));
    assert!((0..64).any(|number| fill(number).is_err()), "no inode is free");
    let failure = open().err().expect("its state cannot be written");
    assert_eq!(failure.os_error(), Some(Errno::ISDIR.raw_os_error()), "{}", failure.chain());
}
