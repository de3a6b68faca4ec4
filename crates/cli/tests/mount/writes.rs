// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a write is and does beside its bytes, on each kind of mount as on native file systems.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::fs::{fallocate, fcntl_setfl, getxattr, setxattr, statvfs};
use rustix::io::Errno;
use terrace_core::{Clock, SystemClock};

use crate::clients::Pair;
use crate::natives::as_nobody;
use crate::scene::Scene;
use crate::suites::{How, Place};

const ALL: [How; 4] = [How::Served, How::Passed, How::Network, How::Strict];

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 10_000];

/// Before anything here was read, in seconds since 1970.
const LONG_AGO: i64 = 1_000_000_000;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it is there")
}

#[test]
fn whether_a_write_appends_may_change_while_a_file_is_open() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        for length in LENGTHS {
            let path = place.mounted.path().join(format!("file{length}"));
            let mut expected = vec![7; length];
            fs::write(&path, &expected).expect("there is room");
            let append = OpenOptions::new().read(true).append(true).open(&path);
            let file = append.expect("it is there");
            (&file).write_all(b"end").expect("there is room");
            fcntl_setfl(&file, OFlags::empty()).expect("it may be taken back");
            file.write_all_at(b"HEAD", 2).expect("there is room");
            fcntl_setfl(&file, OFlags::APPEND).expect("and given again");
            file.write_all_at(b"tail", 0).expect("there is room");
            expected[2..6].copy_from_slice(b"HEAD");
            expected.extend(b"endtail");
            let mut found = vec![0; expected.len()];
            file.read_exact_at(&mut found, 0).expect("readable");
            assert!(found == expected, "{how:?} {length}");
            assert!(fs::read(&path).expect("readable") == expected, "{how:?} {length}");
        }
    }
}

#[test]
fn a_punch_behind_the_end_changes_the_times() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        for length in [0, LENGTHS[0], LENGTHS[1]] {
            let path = place.mounted.path().join(format!("file{length}"));
            fs::write(&path, vec![7; length]).expect("there is room");
            let file = open(&path);
            let time = Timespec { tv_sec: LONG_AGO, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::futimens(&file, &times).expect("it is one's own");
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, punch, 100_000, 5_000).expect("it can be punched");
            let is_new = |metadata: fs::Metadata| metadata.mtime() > LONG_AGO;
            assert!(is_new(file.metadata().expect("it is open")), "{how:?} {length}");
            drop(file);
            assert!(is_new(fs::metadata(&path).expect("it is there")), "{how:?} {length}");
        }
    }
}

#[test]
fn clients_that_begin_to_append_do_not_overwrite_each_other() {
    const RECORDS: usize = 200;
    for how in [&[][..], &["--strict"]] {
        let Some(pair) = Pair::new(how) else { return };
        let paths = [&pair.one, &pair.other].map(|mounted| mounted.path().join("file"));
        fs::write(&paths[0], b"").expect("there is room");
        thread::scope(|scope| {
            for (number, path) in paths.iter().enumerate() {
                scope.spawn(move || {
                    let mut file = open(path);
                    fcntl_setfl(&file, OFlags::APPEND).expect("it may be given");
                    for _ in 0..RECORDS {
                        file.write_all(&[number as u8; 10]).expect("there is room");
                    }
                });
            }
        });
        for path in &paths {
            let found = fs::read(path).expect("readable");
            assert_eq!(found.len(), 2 * 10 * RECORDS);
            let ones = found.iter().filter(|byte| **byte == 1).count();
            assert_eq!(ones, 10 * RECORDS);
        }
    }
}

/// A capability in the form that the kernel keeps: revision 2, effective, CAP_CHOWN.
fn capability() -> [u8; 20] {
    let mut value = [0; 20];
    value[..5].copy_from_slice(&[1, 0, 0, 2, 1]);
    value
}

#[test]
fn capabilities_go_when_anybody_writes() {
    const NAME: &str = "security.capability";
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        place.scene.let_everybody_in();
        for length in LENGTHS {
            let path = place.mounted.path().join(format!("file{length}"));
            fs::write(&path, vec![7; length]).expect("there is room");
            fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("it is ours");
            let set = || setxattr(&path, NAME, &capability(), XattrFlags::empty()).expect("may");
            let is_kept = || getxattr(&path, NAME, &mut [0; 20][..]).is_ok();
            let write = || {
                let file = OpenOptions::new().write(true).open(&path).expect("it may");
                file.write_all_at(b"x", 5).expect("there is room");
            };
            set();
            assert!(is_kept(), "{how:?} {length}");
            as_nobody(write);
            assert!(!is_kept(), "{how:?} {length}: written by nobody");
            set();
            write();
            assert!(!is_kept(), "{how:?} {length}: written by root");
            let file = OpenOptions::new().write(true).open(&path).expect("it is ours");
            set();
            file.write_all_at(b"x", 5).expect("there is room");
            assert!(!is_kept(), "{how:?} {length}: set while it was open");
        }
    }
}

#[test]
fn set_id_bits_go_where_the_kernel_hardly_says_so() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        let path = place.mounted.path().join("file");
        fs::write(&path, [7; LENGTHS[1]]).expect("there is room");
        let set = || {
            fs::set_permissions(&path, Permissions::from_mode(0o6777)).expect("it is ours");
        };
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
        set();
        std::os::unix::fs::chown(&path, None, None).expect("it is ours");
        assert_eq!(mode(&path), 0o777, "{how:?}: an owner that stays");
        // Set while it is open.
        let file = open(&path);
        set();
        (&file).write_all(b"x").expect("there is room");
        assert_eq!(mode(&path), 0o6777, "{how:?}: root may leave them");
        as_nobody(|| (&file).write_all(b"x")).expect("there is room");
        assert_eq!(mode(&path), 0o777, "{how:?}: written by nobody");
        let directory = place.mounted.path().join("directory");
        fs::create_dir(&directory).expect("there is room");
        fs::set_permissions(&directory, Permissions::from_mode(0o2777)).expect("it is ours");
        std::os::unix::fs::chown(&directory, None, None).expect("it is ours");
        assert_eq!(mode(&directory), 0o2777, "{how:?}");
    }
}

#[test]
fn an_attribute_is_not_made_and_replaced_at_once() {
    for how in [How::Served, How::Network] {
        let Some(place) = Place::new(how, &[]) else { return };
        let path = place.mounted.path().join("file");
        fs::write(&path, b"x").expect("there is room");
        let both = XattrFlags::CREATE | XattrFlags::REPLACE;
        assert_eq!(setxattr(&path, "user.a", b"1", both), Err(Errno::NODATA));
        setxattr(&path, "user.a", b"1", XattrFlags::CREATE).expect("there is room");
        assert_eq!(setxattr(&path, "user.a", b"1", both), Err(Errno::EXIST));
    }
}

#[test]
fn only_reading_changes_when_a_file_was_read() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        let path = place.mounted.path().join("file");
        fs::write(&path, [7; LENGTHS[1]]).expect("there is room");
        // What the kernel has cached it reads without telling.
        drop(place.mounted);
        let mut mounted = match &place.served {
            Some(served) => place.scene.mount_served(served, "again", how.arguments()),
            None => place.scene.mount("again", how.arguments()),
        };
        let path = mounted.path().join("file");
        let was_read = |what: &dyn Fn(&File)| {
            let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 0 };
            let (last_access, last_modification) = (time(LONG_AGO), time(LONG_AGO + 1));
            let times = Timestamps { last_access, last_modification };
            let file = open(&path);
            rustix::fs::futimens(&file, &times).expect("it is ours");
            drop(file);
            let file = open(&path);
            what(&file);
            drop(file);
            // Over the network it is told a little later.
            let is_over = || fs::metadata(&path).expect("it is there").atime() != LONG_AGO;
            is_over() || {
                SystemClock::default().sleep(Duration::from_millis(1200));
                is_over()
            }
        };
        assert!(!was_read(&|_| {}), "{how:?}: opened");
        assert!(!was_read(&|file| file.write_all_at(b"x", 3).expect("room")), "{how:?}: written");
        assert!(!was_read(&|file| file.set_len(9000).expect("it is ours")), "{how:?}: cut");
        if how != How::Passed {
            let read = |file: &File| file.read_exact_at(&mut [0; 5000], 0).expect("readable");
            assert!(was_read(&read), "{how:?}: read");
        }
        mounted.unmount();
    }
}

/// Bytes that programs are told are free.
fn free(path: &Path) -> u64 {
    let told = statvfs(path).expect("it is there");
    told.f_bavail * told.f_frsize
}

#[test]
fn growth_without_room_changes_nothing() {
    for how in ALL {
        let Some(scene) = Scene::with_capacity("8MB") else { return };
        let place = Place::with_scene(scene, how, &[]);
        for bytes in LENGTHS {
            let path = place.mounted.path().join(format!("{bytes}"));
            fs::write(&path, vec![7; bytes]).expect("there is room");
            let file = open(&path);
            // What was kept with the metadata is on a tier from the first try on.
            let moved = if bytes == LENGTHS[0] { 4096 } else { 0 };
            let before = free(&path);
            for length in [1 << 30, 1 << 40, i64::MAX as u64] {
                let grow: [&dyn Fn() -> rustix::io::Result<()>; 2] =
                    [&|| fallocate(&file, FallocateFlags::empty(), 0, length), &|| {
                        fallocate(open(&path), FallocateFlags::empty(), 50, length - 50)
                    }];
                for grow in grow {
                    assert_eq!(grow(), Err(Errno::NOSPC), "{how:?} {bytes} {length}");
                    let found = file.metadata().expect("it is open").len();
                    assert_eq!(found, bytes as u64, "{how:?} {length}");
                    assert!((before - moved..=before).contains(&free(&path)), "{how:?} {bytes}");
                }
            }
            assert!(fs::read(&path).expect("readable") == vec![7; bytes], "{how:?} {bytes}");
        }
    }
}

#[test]
fn what_a_write_says_it_wrote_is_what_there_is() {
    for how in [How::Served, How::Network, How::Strict] {
        for flags in [OFlags::empty(), OFlags::APPEND] {
            let Some(scene) = Scene::with_capacity("3MB") else { return };
            let place = Place::with_scene(scene, how, &[]);
            let path = place.mounted.path().join("file");
            let mut open = OpenOptions::new();
            let open = open.read(true).write(true).create(true).custom_flags(flags.bits() as i32);
            let mut file = open.open(&path).expect("there is room");
            let mut written = 0;
            let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
            let error = loop {
                match file.write(&data) {
                    Ok(count) => written += count,
                    Err(error) => break error,
                }
                assert_eq!(file.metadata().expect("it is open").len(), written as u64, "{how:?}");
            };
            assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{how:?}");
            assert_eq!(file.metadata().expect("it is open").len(), written as u64, "{how:?}");
            assert!(written > 5 << 20, "{how:?}: {written}");
            let found = fs::read(&path).expect("readable");
            assert!(found.len() == written && found[..data.len()] == data[..], "{how:?}");
        }
    }
}

#[test]
fn who_has_read_a_file_from_the_cache_is_seen_by_who_looks_at_it() {
    let Some(scene) = Scene::new() else { return };
    let mut mounted = scene.mount("mnt", &["--io", "served"]);
    for length in LENGTHS {
        let path = mounted.path().join(format!("file{length}"));
        fs::write(&path, vec![7; length]).expect("there is room");
        for round in 0..3 {
            // From here on nobody asks for what the kernel has cached.
            fs::read(&path).expect("readable");
            let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 0 };
            let (last_access, last_modification) = (time(LONG_AGO), time(LONG_AGO + 1));
            let times = Timestamps { last_access, last_modification };
            rustix::fs::futimens(open(&path), &times).expect("it is ours");
            let accessed = || fs::metadata(&path).expect("it is there").atime();
            assert_eq!(accessed(), LONG_AGO, "{length} {round}");
            fs::read(&path).expect("readable");
            assert_ne!(accessed(), LONG_AGO, "{length} {round}: it was read");
        }
    }
    mounted.unmount();
}

/// One request that copied all of a long file could not be interrupted.
#[test]
fn who_copies_a_long_file_copies_it_in_pieces() {
    const LENGTH: usize = 40 << 20;
    for how in [How::Served, How::Network] {
        let Some(place) = Place::new(how, &[]) else { return };
        let [from, to] = ["from", "to"].map(|name| place.mounted.path().join(name));
        let mut bytes = vec![0; LENGTH];
        terrace_core::Random::new(1).fill(&mut bytes);
        fs::write(&from, &bytes).expect("there is room");
        let (source, target) = (open(&from), File::create(&to).expect("it is new"));
        let mut pieces = 0;
        loop {
            let copied = rustix::fs::copy_file_range(&source, None, &target, None, usize::MAX >> 1);
            match copied.expect("there is room") {
                0 => break,
                count => assert!(count <= LENGTH / 2, "{how:?}: {count} at once"),
            }
            pieces += 1;
        }
        drop(target);
        assert!(pieces > 1 && fs::read(&to).expect("readable") == bytes, "{how:?}");
    }
}
