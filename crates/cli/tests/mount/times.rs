// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times of files: in the order of changes, and right where a program asks for one field alone.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, StatxFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags,
};
use serde_json::json;
use terrace_core::{Clock, SystemClock};

use crate::holder::Holder;
use crate::scene::{Mounted, Scene, Served, wait_until};
use crate::suites::{How, Place};

const ALL: [How; 4] = [How::Served, How::Passed, How::Network, How::Strict];

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 20_000];

/// Before anything here was read, in seconds since 1970.
const LONG_AGO: i64 = 1_000_000_000;

/// The given fields of a path, and no others.
fn looked_at(path: &Path, what: StatxFlags) -> rustix::fs::Statx {
    rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, what).expect("it is there")
}

/// Seconds and nanoseconds.
type Moment = (i64, u32);

fn modified(path: &Path) -> Moment {
    let time = looked_at(path, StatxFlags::MTIME).stx_mtime;
    (time.tv_sec, time.tv_nsec)
}

fn changed(path: &Path) -> Moment {
    let time = looked_at(path, StatxFlags::CTIME).stx_ctime;
    (time.tv_sec, time.tv_nsec)
}

fn accessed(path: &Path) -> i64 {
    looked_at(path, StatxFlags::ATIME).stx_atime.tv_sec
}

fn set_times(path: &Path, times: &Timestamps) {
    rustix::fs::utimensat(CWD, path, times, AtFlags::empty()).expect("it is ours");
}

/// Waits until no program has a file open.
fn await_close(path: &Path) {
    let is_closed = || {
        let mut value = [0; 64];
        let state = rustix::fs::getxattr(path, "user.terrace.state", &mut value);
        value[..state.expect("it is a mounted file")].starts_with(b"closed")
    };
    wait_until("no program has it open", is_closed);
}

/// Changes something at a path; where the time of that is to be seen.
type Change = fn(&Path) -> (PathBuf, fn(&Path) -> Moment);

/// All of them, each with whether its time is not changed by others.
const CHANGES: [(&str, bool, Change); 15] = [
    ("create", true, |path| {
        File::create_new(path).expect("it is new");
        (path.into(), modified)
    }),
    ("mkdir", true, |path| {
        fs::create_dir(path).expect("it is new");
        (path.into(), modified)
    }),
    ("mkdir, above", false, |path| {
        fs::create_dir(path).expect("it is new");
        (path.parent().expect("it has one").into(), modified)
    }),
    ("symlink", true, |path| {
        symlink("nowhere", path).expect("it is new");
        (path.into(), modified)
    }),
    ("mkfifo", true, |path| {
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).expect("it is new");
        (path.into(), modified)
    }),
    ("write a little", true, |path| {
        fs::write(path, [7; LENGTHS[0]]).expect("there is room");
        (path.into(), modified)
    }),
    ("write much", true, |path| {
        fs::write(path, [7; LENGTHS[1]]).expect("there is room");
        (path.into(), modified)
    }),
    ("write much in pieces", true, |path| {
        let file = File::create_new(path).expect("it is new");
        for at in 0..20 {
            file.write_all_at(&[7; 1024], at * 1024).expect("there is room");
        }
        (path.into(), modified)
    }),
    ("write over", false, |path| {
        let old = path.with_file_name("old");
        OpenOptions::new()
            .write(true)
            .open(&old)
            .expect("there")
            .write_all_at(b"x", 9)
            .expect("room");
        (old, modified)
    }),
    ("link", false, |path| {
        let old = path.with_file_name("old");
        fs::hard_link(&old, path).expect("it is new");
        (old, changed)
    }),
    ("rename", true, |path| {
        let other = path.with_extension("from");
        fs::write(&other, b"x").expect("there is room");
        fs::rename(&other, path).expect("it is there");
        (path.into(), changed)
    }),
    ("remove, above", false, |path| {
        fs::write(path, b"x").expect("there is room");
        fs::remove_file(path).expect("it is there");
        (path.parent().expect("it has one").into(), modified)
    }),
    ("chmod", true, |path| {
        fs::write(path, b"x").expect("there is room");
        fs::set_permissions(path, Permissions::from_mode(0o600)).expect("it is ours");
        (path.into(), changed)
    }),
    ("setxattr", true, |path| {
        fs::write(path, b"x").expect("there is room");
        rustix::fs::setxattr(path, "user.a", b"1", XattrFlags::empty()).expect("there is room");
        (path.into(), changed)
    }),
    ("truncate, touch", true, |path| {
        fs::write(path, [7; LENGTHS[1]]).expect("there is room");
        OpenOptions::new().write(true).open(path).expect("there").set_len(9000).expect("ours");
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        set_times(path, &Timestamps { last_access: now, last_modification: now });
        (path.into(), modified)
    }),
];

/// Makes each change of one mount and behind it each of another, or of the same.
fn check_order(first: &Mounted, second: &Mounted, what: &str) {
    let directories = [first, second].map(|mounted| mounted.path().join("d"));
    fs::create_dir(&directories[0]).expect("it is new");
    fs::write(directories[0].join("old"), [7; LENGTHS[1]]).expect("there is room");
    let pairs = CHANGES.iter().flat_map(|one| CHANGES.iter().map(move |other| (one, other)));
    for (number, (one, other)) in pairs.enumerate() {
        for is_seen in [true, false] {
            let (name, is_own, change) = one;
            if !is_own && !is_seen {
                continue;
            }
            let path = |directory: &Path, side| directory.join(format!("{number}{is_seen}{side}"));
            let (earlier, time) = change(&path(&directories[0], "a"));
            let seen = is_seen.then(|| time(&earlier));
            let (later, time_of_later) = other.2(&path(&directories[1], "b"));
            let after = time_of_later(&later);
            let before = seen.unwrap_or_else(|| time(&earlier));
            assert!(before <= after, "{what}: {name}, {}: {before:?} {after:?} {is_seen}", other.0);
        }
    }
}

#[test]
fn later_changes_have_later_times() {
    for how in ALL {
        let Some(place) = Place::new(how, &[]) else { return };
        check_order(&place.mounted, &place.mounted, &format!("{how:?}"));
    }
}

#[test]
fn later_changes_have_later_times_over_several_servers_and_clients() {
    let (Some(first), Some(second)) = (Scene::new(), Scene::new()) else { return };
    let (names, data) = (Served::start(&first), Served::start(&second));
    let servers = [&names, &data];
    let one = first.mount_all(&servers, "one", &["--strict"]);
    let other = second.mount_all(&servers, "other", &["--strict"]);
    check_order(&one, &other, "two clients");
    drop((one, other));
    let one = first.mount_all(&servers, "once", &[]);
    fs::rename(one.path().join("d"), one.path().join("before")).expect("it is there");
    check_order(&one, &one, "two servers");
}

#[test]
fn deferred_changes_have_no_earlier_times() {
    let Some(place) = Place::new(How::Network, &[]) else { return };
    let directory = place.mounted.path().join("d");
    fs::create_dir(&directory).expect("it is new");
    for round in 0..10 {
        let path = |number| directory.join(format!("{round} {number}"));
        let elsewhere = place.mounted.path().join("elsewhere");
        let is_seen = round % 2 == 0;
        let write_elsewhere = || {
            fs::write(&elsewhere, [7; LENGTHS[1]]).expect("there is room");
            is_seen.then(|| modified(&elsewhere))
        };
        let check = |before: Option<Moment>, after: Moment, what: &str| {
            let before = before.unwrap_or_else(|| modified(&elsewhere));
            assert!(before <= after, "{round}, {what}: {before:?} {after:?}");
        };
        // One after the other, so that others are put off.
        (0..12).for_each(|number| drop(File::create(path(number)).expect("there is room")));
        let before = write_elsewhere();
        let made = File::create(path(12)).expect("there is room");
        check(before, modified(&path(12)), "made");
        drop(made);
        check(before, modified(&path(12)), "made and closed");
        (0..8).for_each(|number| fs::remove_file(path(number)).expect("it is there"));
        let before = write_elsewhere();
        fs::remove_file(path(8)).expect("it is there");
        check(before, modified(&directory), "removed");
    }
}

#[test]
fn mapped_stores_change_single_times() {
    for how in ALL {
        let Some(mut place) = Place::new(how, &[]) else { return };
        let path = place.mounted.path().join("file");
        let mut holder = Holder::start();
        for closes_first in [false, true] {
            fs::write(&path, [7; LENGTHS[1]]).expect("there is room");
            if how == How::Passed {
                await_close(&path);
            }
            // From here on the kernel has the attributes cached.
            let mut before = (modified(&path), changed(&path));
            let mut check = |what: &str| {
                let after = (modified(&path), changed(&path));
                assert!(before.0 < after.0 && before.1 < after.1, "{how:?} {closes_first}: {what}");
                before = after;
                // Longer than a step of the clock by which old kernels stamp files.
                SystemClock::default().sleep(Duration::from_millis(12));
            };
            holder.ok(json!(["open", "file", path]));
            holder.ok(json!(["map", "file"]));
            if closes_first {
                holder.ok(json!(["close", "file"]));
            }
            SystemClock::default().sleep(Duration::from_millis(12));
            for round in 0..3 {
                holder.ok(json!(["store", "file", round]));
                holder.ok(json!(["sync mapping", "file"]));
                check("stored and synced");
            }
            // The kernel notices only the first store behind a sync.
            holder.ok(json!(["store", "file", 9]));
            if how == How::Passed {
                check("stored");
            }
            holder.ok(json!(["unmap", "file"]));
            if !closes_first {
                holder.ok(json!(["close", "file"]));
            }
            if how != How::Passed && !closes_first {
                check("stored and closed");
            }
        }
        if how == How::Passed {
            await_close(&path);
            let before = (modified(&path), changed(&path));
            place.mounted.unmount();
            place.mounted.mount(&place.scene);
            assert_eq!((modified(&path), changed(&path)), before, "mounted again");
        }
    }
}

#[test]
fn mapped_stores_change_the_room_alone() {
    let Some(place) = Place::new(How::Passed, &[]) else { return };
    let path = place.mounted.path().join("file");
    File::create(&path).expect("there is room").set_len(1 << 20).expect("it is ours");
    await_close(&path);
    let blocks = || looked_at(&path, StatxFlags::BLOCKS).stx_blocks;
    let before = blocks();
    let mut holder = Holder::start();
    holder.ok(json!(["open", "file", path]));
    holder.ok(json!(["map", "file"]));
    assert_eq!(blocks(), before);
    holder.ok(json!(["store", "file", 1]));
    holder.ok(json!(["sync mapping", "file"]));
    assert!(blocks() > before, "{before} {}", blocks());
    assert_eq!(looked_at(&path, StatxFlags::SIZE).stx_size, 1 << 20);
}

/// Whether the access time is new for the program that looks after a read.
fn is_read_seen(path: &Path, read: impl Fn(&Path)) -> bool {
    let time = |seconds| Timespec { tv_sec: seconds, tv_nsec: 0 };
    let (last_access, last_modification) = (time(LONG_AGO), time(LONG_AGO + 1));
    set_times(path, &Timestamps { last_access, last_modification });
    assert_eq!(accessed(path), LONG_AGO);
    read(path);
    let is_seen = accessed(path) != LONG_AGO;
    assert_eq!(fs::metadata(path).map(|it| it.accessed().is_ok()).ok(), Some(true));
    is_seen
}

#[test]
fn access_times_follow_the_mount_option() {
    for how in ALL {
        for (option, of_files, of_directories) in
            [("relatime", true, true), ("nodiratime", true, false), ("noatime", false, false)]
        {
            let Some(place) = Place::new(how, &["-o", option]) else { return };
            for length in LENGTHS {
                let path = place.mounted.path().join(format!("{length}"));
                fs::write(&path, vec![7; length]).expect("there is room");
                // From the second round on the kernel has the bytes cached.
                for round in 0..3 {
                    let read = |path: &Path| drop(fs::read(path).expect("readable"));
                    let is_seen = is_read_seen(&path, read);
                    assert_eq!(is_seen, of_files, "{how:?} {option}: {length} {round}");
                }
                let unnoted = |path: &Path| {
                    let flags = rustix::fs::OFlags::NOATIME.bits() as i32;
                    let file = File::options().read(true).custom_flags(flags).open(path);
                    file.expect("it is ours").read_exact_at(&mut [0; 10], 0).expect("readable");
                };
                assert!(!is_read_seen(&path, unnoted), "{how:?} {option}: O_NOATIME");
            }
            let directory = place.mounted.path().join("directory");
            fs::create_dir(&directory).expect("it is new");
            let list = |path: &Path| {
                let _ = fs::read_dir(path).expect("readable").count();
                if how == How::Network && of_directories {
                    // Reads of directories are flushed a moment later.
                    wait_until("it is flushed", || accessed(path) != LONG_AGO);
                }
            };
            assert_eq!(is_read_seen(&directory, list), of_directories, "{how:?} {option}");
        }
    }
}
