// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs know from native file systems.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, StatxFlags, XattrFlags, fallocate, getxattr, listxattr,
    removexattr, setxattr,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::receipts::ask;
use crate::suites::{How, Place};

/// Kept with the metadata, and kept as an object.
const LENGTHS: [usize; 2] = [100, 10_000];

pub(crate) const NOBODY: u32 = 65_534;

/// Runs `act` in a thread that has the rights of nobody, but for what it opened before.
pub(crate) fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        rustix::thread::set_thread_uid(Uid::from_raw(NOBODY)).expect("root may");
        act()
    };
    thread::scope(|scope| scope.spawn(act).join().expect("no panic"))
}

/// The names of attributes that there are.
fn names(path: &Path) -> Vec<String> {
    let mut names = vec![0; 1000];
    let length = listxattr(path, &mut names[..]).expect("it has some");
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
fn attributes_of_root_are_listed_for_root_alone() {
    for how in [How::Served, How::Network] {
        let Some(place) = Place::new(how, &[]) else { return };
        place.scene.let_everybody_in();
        let path = place.mounted.path().join("file");
        fs::write(&path, b"x").expect("there is room");
        for name in ["trusted.a", "user.a"] {
            setxattr(&path, name, b"1", XattrFlags::empty()).expect("root may");
        }
        assert_eq!(names(&path), ["trusted.a", "user.a"]);
        assert_eq!(as_nobody(|| names(&path)), ["user.a"]);
        for name in ["user.", "trusted.", "security."] {
            let set = setxattr(&path, name, b"1", XattrFlags::empty());
            assert_eq!(set, Err(Errno::INVAL), "{name}");
        }
    }
}

/// Programs take it from one file that there are no labels, and ask for no other one.
#[test]
fn labels_are_kept_and_not_known_where_nobody_heeds_them() {
    const LABEL: &str = "security.selinux";
    let systems = fs::read_to_string("/proc/filesystems").expect("it is Linux");
    if systems.contains("selinuxfs") {
        // There the kernel answers by itself.
        return;
    }
    for how in [How::Served, How::Network, How::Strict] {
        let Some(place) = Place::new(how, &[]) else { return };
        let [labelled, other] = ["a", "b"].map(|name| place.mounted.path().join(name));
        for path in [&labelled, &other] {
            fs::write(path, b"x").expect("there is room");
        }
        let label = |path: &Path| {
            let mut value = vec![0; 100];
            let length = getxattr(path, LABEL, &mut value[..])?;
            value.truncate(length);
            Ok(value)
        };
        setxattr(&labelled, LABEL, b"u:r:t:s0", XattrFlags::empty()).expect("root may");
        assert_eq!(label(&labelled), Ok(b"u:r:t:s0".to_vec()), "{how:?}");
        assert_eq!(names(&labelled), [LABEL]);
        assert_eq!(label(&other), Err(Errno::OPNOTSUPP), "{how:?}");
        removexattr(&labelled, LABEL).expect("root may");
        assert_eq!(label(&labelled), Err(Errno::OPNOTSUPP), "{how:?}");
        let mut value = [0; 100];
        let list = getxattr(&other, "system.posix_acl_access", &mut value[..]);
        let attribute = getxattr(&other, "security.other", &mut value[..]);
        assert_eq!([list, attribute], [Err(Errno::NODATA); 2], "{how:?}");
    }
}

/// What may be done with a file, for who asks for nothing else, as the kernel does where it runs one.
fn known_mode(path: &Path) -> u32 {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MODE);
    u32::from(found.expect("it is there").stx_mode) & 0o7777
}

/// What is written past the kernel's cache: it takes set-ID bits away by itself for nothing else.
#[test]
fn the_kernel_hears_that_set_id_bits_are_gone() {
    for how in [How::Served, How::Passed, How::Network, How::Strict] {
        let Some(place) = Place::new(how, &[]) else { return };
        let path = place.mounted.path().join("file");
        for length in [100, 10_000] {
            fs::write(&path, vec![7; length]).expect("there is room");
            for mode in [0o4777, 0o6777, 0o2777] {
                fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
                assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o7777, mode);
                // Beside who has it passed through an append goes past all caches.
                let beside = File::options().read(true).write(true).open(&path).expect("ours");
                let appending = OpenOptions::new().append(true).open(&path).expect("ours");
                as_nobody(|| (&appending).write_all(b"x").expect("there is room"));
                let known = known_mode(&path);
                assert_eq!(known, mode & 0o777, "{how:?}, {length}: {mode:o}");
                drop((beside, appending));
            }
        }
    }
}

#[test]
fn set_id_bits_go_when_somebody_else_changes_bytes_in_whatever_way() {
    for how in [How::Served, How::Passed, How::Network] {
        let Some(place) = Place::new(how, &[]) else { return };
        let from = place.mounted.path().join("from");
        fs::write(&from, [1; 5000]).expect("there is room");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let zero = FallocateFlags::ZERO_RANGE;
        for length in LENGTHS {
            let path = place.mounted.path().join(format!("file{length}"));
            fs::write(&path, vec![7; length]).expect("there is room");
            let set = || {
                let mode = Permissions::from_mode(0o6777);
                fs::set_permissions(&path, mode).expect("it is ours");
            };
            let mode = || fs::metadata(&path).expect("it is there").mode() & 0o7777;
            let file = File::options().read(true).write(true).open(&path).expect("it is ours");
            for flags in [FallocateFlags::empty(), punch, zero] {
                set();
                fallocate(&file, flags, 0, 50).expect("there is room");
                assert_eq!(mode(), 0o6777, "{how:?} {flags:?}: root may leave them");
                as_nobody(|| fallocate(&file, flags, 0, 50)).expect("there is room");
                assert_eq!(mode(), 0o777, "{how:?} {flags:?}");
            }
            set();
            let from = File::open(&from).expect("it is there");
            let copy = || rustix::fs::copy_file_range(&from, None, &file, None, 50);
            as_nobody(copy).expect("there is room");
            assert_eq!(mode(), 0o777, "{how:?}");
        }
    }
}

#[test]
fn holes_take_no_blocks() {
    for how in [How::Served, How::Passed, How::Network] {
        let Some(place) = Place::new(how, &[]) else { return };
        for length in [0, LENGTHS[0], LENGTHS[1]] {
            let path = place.mounted.path().join(format!("file{length}"));
            fs::write(&path, vec![7; length]).expect("there is room");
            File::options().write(true).open(&path).expect("ours").set_len(1 << 30).expect("set");
            let found = fs::metadata(&path).expect("it is there");
            assert_eq!(found.len(), 1 << 30);
            // Tiers round to blocks of their own.
            let most = (length as u64).div_ceil(4096).max(1) * 2 * 8;
            assert!(found.blocks() <= most, "{how:?}: {} of {most} blocks", found.blocks());
        }
    }
}

#[test]
fn what_is_pinned_may_not_be_moved() {
    let Some(place) = Place::new(How::Served, &[]) else { return };
    let path = place.mounted.path().join("file");
    fs::write(&path, [7; LENGTHS[1]]).expect("there is room");
    setxattr(&path, "user.terrace.pin", b"1", XattrFlags::empty()).expect("it can be pinned");
    assert_eq!(ask(&path, "slow"), Err(Errno::PERM));
}

/// The group of the file, and another one.
const GROUPS: [u32; 2] = [1234, 5678];

/// Runs `act` in a thread with the rights of nobody, a group and another group.
fn as_member<T: Send>(group: u32, other: u32, act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        rustix::thread::set_thread_groups(&[Gid::from_raw(other)]).expect("root may");
        rustix::thread::set_thread_gid(Gid::from_raw(group)).expect("root may");
        rustix::thread::set_thread_uid(Uid::from_raw(NOBODY)).expect("root may");
        act()
    };
    thread::scope(|scope| scope.spawn(act).join().expect("no panic"))
}

/// Which bits a file has after somebody has changed its bytes, by who that was and how.
fn bits_left(directory: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let [group, another] = GROUPS;
    let who = [("its group", group, another), ("one of its groups", another, group)];
    let who = who.into_iter().chain([("others", another, another)]);
    for (who, first, second) in who {
        for length in LENGTHS {
            for mode in [0o2666, 0o2676, 0o6666, 0o6676, 0o6776, 0o4666] {
                let path = directory.join(format!("file{length}"));
                let set = || {
                    fs::write(&path, vec![7; length]).expect("there is room");
                    chown(&path, None, Some(group)).expect("root may");
                    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
                };
                let open = || File::options().write(true).open(&path).expect("anybody may");
                let mut note = |how: &str| {
                    let mode_left = fs::metadata(&path).expect("it is there").mode() & 0o7777;
                    left.push(format!("{how} {mode:o} of {length} by {who}: {mode_left:o}"));
                };
                set();
                as_member(first, second, || open().write_all(b"x")).expect("there is room");
                note("write");
                set();
                as_member(first, second, || open().set_len(50)).expect("there is room");
                note("ftruncate");
                set();
                let path = &path;
                let cut = || File::options().write(true).truncate(true).open(path);
                as_member(first, second, cut).expect("there is room");
                note("open to truncate");
                fs::remove_file(path).expect("it is ours");
            }
        }
    }
    left
}

#[test]
fn set_id_bits_go_as_natively_when_members_and_others_change_bytes() {
    for how in [How::Served, How::Passed, How::Network] {
        let Some(place) = Place::new(how, &[]) else { return };
        place.scene.let_everybody_in();
        let found = bits_left(place.mounted.path());
        let expected = bits_left(&place.scene.directory("native"));
        let differs = found.iter().zip(&expected).filter(|(found, expected)| found != expected);
        let differs: Vec<_> = differs.collect();
        assert!(differs.is_empty(), "{how:?}: {differs:#?}");
    }
}
