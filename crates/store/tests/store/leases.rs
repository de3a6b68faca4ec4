// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of real tiers, as they are lent.

use std::io::ErrorKind as IoErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use terrace_store::{
    Access, Backend, BackendExt, Clock, FileLease, MoveKind, Object, ObjectExt, Open, Store,
    SystemClock,
};

use crate::scene::{POLICY, Scene, TIERS, key};

/// Longest wait for a migration of a few bytes.
const MOVE_TIME_MAX: Duration = Duration::from_secs(30);

#[track_caller]
fn lend(object: &dyn Object) -> FileLease {
    object.lease_file().expect("no failure").expect("it can be lent")
}

#[track_caller]
fn migrate(store: &Store, name: &str, tier: &str, kind: MoveKind) {
    for ticket in store.admin().migrate(&key(name), tier, kind, 0, "test").expect("queued") {
        let ended = store.admin().wait(ticket, MOVE_TIME_MAX).expect("known").expect("ends");
        assert_eq!(ended.outcome.as_deref(), Some("done"), "{ended:?}");
    }
}

/// What whoever gets the descriptors of a lease cannot do.
#[track_caller]
fn assert_read_only(lease: &FileLease) {
    let word = lease.word.as_ref().expect("a store's");
    for file in [&lease.file, &*word.page] {
        let refused = file.write_all_at(b"x", 0).expect_err("it is for reading");
        assert_eq!(refused.raw_os_error(), Some(9), "EBADF, because of how it was opened");
        assert_eq!(file.set_len(0).expect_err("refused").kind(), IoErrorKind::InvalidInput);
        // Another user cannot open it anew for writing.
        assert_eq!(file.metadata().expect("stats").mode() & 0o777, 0o600);
        let flags = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()));
        let flags = flags.expect("it is open");
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:")).expect("a line");
        let flags = u32::from_str_radix(flags.trim(), 8).expect("octal");
        assert_eq!(flags & 3, 0, "O_RDONLY");
        assert!(flags & 0o2_000_000 != 0, "O_CLOEXEC");
    }
}

#[test]
fn a_real_file_is_lent_until_it_is_left() {
    let scene = Scene::new();
    let store = scene.open();
    assert!(store.capability().leases);
    store.write_all(&key("a/x"), b"before").expect("room");
    let object = store.open(&key("a/x"), &Open::write()).expect("opens");
    let lease = lend(&*object);
    assert_read_only(&lease);
    let mut data = [0; 100];
    assert_eq!(lease.read(0, &mut data).expect("reads"), Some(6));
    assert_eq!(data[..6], *b"before");
    migrate(&store, "a/x", "slow", MoveKind::Move);
    object.write(0, b"after!").expect("writes");
    assert_eq!(lease.read(0, &mut data).expect("still reads"), None, "it is left");
    let lease = lend(&*object);
    assert_read_only(&lease);
    assert_eq!(lease.read(2, &mut data).expect("reads"), Some(4));
    assert_eq!(data[..4], *b"ter!");
    store.delete(&key("a/x")).expect("deletes");
    assert_eq!(lease.read(0, &mut data).expect("still reads"), None, "it is deleted");
    // Room and inode go with the last descriptor, not before.
    assert_eq!(lease.file.metadata().expect("stats").size(), 6);
}

#[test]
fn a_store_that_is_open_for_reading_lends_too() {
    let scene = Scene::new();
    scene.open().write_all(&key("a/x"), b"abc").expect("room");
    let store = scene.open_for_reading().expect("opens");
    let object = store.open(&key("a/x"), &Open::read()).expect("opens");
    let lease = lend(&*object);
    assert_read_only(&lease);
    assert_eq!(lease.read(0, &mut [0; 9]).expect("reads"), Some(3));
    store.close().expect("closes");
    assert!(!lease.is_good().expect("looks"));
}

#[test]
fn nothing_is_lent_around_a_throttle_or_over_the_control_socket() {
    let throttled = TIERS.replacen("path", "throttle = { latency = \"1us\" }\npath", 1);
    let scene = Scene::with(&format!("{throttled}{POLICY}"));
    let store = scene.open();
    store.write_all(&key("a/x"), b"abc").expect("room");
    let object = store.open(&key("a/x"), &Open::read()).expect("opens");
    assert!(object.lease_file().expect("no failure").is_none());
    migrate(&store, "a/x", "slow", MoveKind::Move);
    assert_eq!(lend(&*object).read(0, &mut [0; 9]).expect("reads"), Some(3));
    drop((object, store));

    let attached = scene.attached();
    assert!(!attached.capability().leases);
    let object = attached.open(&key("a/x"), &Open::write()).expect("opens");
    assert!(object.lease_file().expect("no failure").is_none());
    for access in [Access::Read, Access::Write] {
        assert!(object.hold_file(access).expect("no failure").is_none());
    }
}

#[test]
fn a_real_file_is_held_until_nobody_can_write_to_it() {
    let scene = Scene::new();
    let store = scene.open();
    store.write_all(&key("a/x"), b"before").expect("room");
    let object = store.open(&key("a/x"), &Open::write()).expect("opens");
    let file = object.hold_file(Access::Write).expect("no failure").expect("it can be held");
    file.write_all_at(b"after all", 0).expect("writes");
    assert_eq!(store.read_all(&key("a/x")).expect("reads"), b"after all");
    store.admin().migrate(&key("a/x"), "slow", MoveKind::Move, 0, "test").expect_err("it is held");
    drop(object);
    // A descriptor is left, also for the process that comes after.
    store.close().expect("closes");
    drop(store);
    let store = scene.open();
    store.admin().migrate(&key("a/x"), "slow", MoveKind::Move, 0, "test").expect_err("it is held");
    file.write_all_at(b"!", 9).expect("writes");
    drop(file);
    let clock = SystemClock::default();
    let end_ns = clock.now_ns() + MOVE_TIME_MAX.as_nanos() as u64;
    let held = || store.admin().explain(&key("a/x")).expect("exists").segments[0].held.clone();
    while held().is_some() {
        assert!(clock.now_ns() < end_ns, "nobody can write to it any more");
        clock.sleep(Duration::from_millis(1));
    }
    migrate(&store, "a/x", "slow", MoveKind::Move);
    assert_eq!(store.read_all(&key("a/x")).expect("reads"), b"after all!");
}
