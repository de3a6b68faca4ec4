// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a program has opened before their server has made them: whatever is done next, by whom, they
//! are there, here and elsewhere.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{FlockOperation, XattrFlags, flock, fsetxattr, fstat, getxattr};
use rustix::io::Errno;

use crate::clients::Pair;
use crate::scene::wait_until;

/// A group that nobody here is in.
const GROUP: u32 = 4321;

/// What is done with a file that was just opened, which is empty; then it is looked at elsewhere.
type Step = (&'static str, fn(&File, &Path, &Path));

const STEPS: [Step; 13] = [
    ("written", |mut file, _, there| {
        file.write_all(b"bytes").expect("there is room");
        assert_eq!(fs::read(there).expect("it is there"), b"bytes");
        file.set_len(0).expect("it can be cut");
    }),
    ("written behind its beginning", |file, _, there| {
        file.write_all_at(b"bytes", 2).expect("there is room");
        assert_eq!(fs::read(there).expect("it is there"), b"\0\0bytes");
        file.set_len(0).expect("it can be cut");
    }),
    ("written by another program", |file, here, _| {
        let other = File::options().read(true).write(true).open(here).expect("it is there");
        other.write_all_at(b"bytes", 0).expect("there is room");
        assert_eq!(fs::read(here).expect("it is there"), b"bytes");
        file.set_len(0).expect("it can be cut");
    }),
    ("given its length", |file, _, there| {
        file.set_len(7).expect("there is room");
        assert_eq!(fs::metadata(there).expect("it is there").len(), 7);
        file.set_len(0).expect("it can be cut");
    }),
    ("synced", |file, _, _| file.sync_all().expect("it can be synced")),
    ("locked", |file, _, there| {
        flock(file, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
        let other = File::open(there).expect("it is there");
        let taken = flock(other.as_fd(), FlockOperation::NonBlockingLockShared);
        assert_eq!(taken, Err(Errno::WOULDBLOCK));
    }),
    ("marked", |file, _, there| {
        fsetxattr(file, "user.name", b"value", XattrFlags::CREATE).expect("it has none");
        let mut value = [0; 9];
        assert_eq!(getxattr(there, "user.name", &mut value), Ok(5));
    }),
    ("linked", |_, here, there| {
        fs::hard_link(here, here.with_extension("link")).expect("it is there");
        assert!(there.with_extension("link").exists());
        fs::remove_file(here.with_extension("link")).expect("it is there");
    }),
    ("renamed", |_, here, there| {
        fs::rename(here, here.with_extension("new")).expect("it is there");
        assert!(there.with_extension("new").exists() && !there.exists());
        fs::rename(there.with_extension("new"), there).expect("it is there");
    }),
    ("listed", |_, here, _| {
        let name = here.file_name();
        let listed = fs::read_dir(here.parent().expect("a directory")).expect("it is there");
        assert!(listed.flatten().any(|entry| Some(&*entry.file_name()) == name));
    }),
    ("given other permissions", |file, _, there| {
        file.set_permissions(Permissions::from_mode(0o600)).expect("it can be changed");
        assert_eq!(fs::metadata(there).expect("it is there").mode() & 0o7777, 0o600);
    }),
    ("beside another one that is made", |_, here, _| {
        drop(File::create(here.with_extension("other")).expect("it is new"));
    }),
    ("left as it is", |_, _, there| {
        wait_until("it is made", || there.exists());
    }),
];

#[test]
fn a_file_that_was_just_opened_is_there_for_whatever_is_done_next() {
    let Some(pair) = Pair::new(&[]) else { return };
    for (what, step) in STEPS {
        println!("{what}");
        let (one, other) = (pair.one.path().join(what), pair.other.path().join(what));
        fs::create_dir(&one).expect("it is new");
        // What is made passes on this group, as the kernel is told at once.
        fchown(File::open(&one).expect("it is there"), None, Some(GROUP)).expect("as root");
        fs::set_permissions(&one, Permissions::from_mode(0o2775)).expect("it can be changed");
        fs::write(one.join("first"), "first").expect("there is room");
        let (here, there) = (one.join("file"), other.join("file"));
        let file = File::create(&here).expect("it is new");
        // What the kernel was told, which it need not ask for.
        let told = fstat(&file).expect("it is open");
        step(&file, &here, &there);
        let found = fs::metadata(&there).expect("it is there");
        // Whatever else the other one has seen of it may be a second old.
        assert_eq!((told.st_ino, told.st_uid, told.st_gid), (found.ino(), found.uid(), GROUP));
        assert_eq!(found.gid(), GROUP, "{what}");
        let told_of = (told.st_mode & 0o7777, told.st_nlink, told.st_size);
        assert_eq!(told_of, (0o644, 1, 0), "{what}");
        let told_at = (told.st_mtime, told.st_mtime_nsec as i64);
        assert!(told_at <= (found.mtime(), found.mtime_nsec()), "{what}: it was never newer");
        assert!(found.mtime() - told.st_mtime <= 60, "{what}: nor was it old");
        // It is open, and stays when it loses its name.
        fs::remove_file(&there).expect("it is there");
        file.write_all_at(b"bytes", 0).expect("it is open");
        assert_eq!(file.metadata().expect("it is open").len(), 5);
    }
}

#[test]
fn what_was_closed_is_there_elsewhere_and_what_is_made_exclusively_is_at_once() {
    let Some(pair) = Pair::new(&[]) else { return };
    let (one, other) = (pair.one.path().join("here"), pair.other.path().join("here"));
    fs::create_dir(&one).expect("it is new");
    for round in 0..200 {
        let name = format!("closed{round}");
        drop(File::create(one.join(&name)).expect("it is new"));
        assert!(other.join(&name).exists(), "{name}");
        let name = format!("written{round}");
        fs::write(one.join(&name), &name).expect("there is room");
        assert_eq!(fs::read_to_string(other.join(&name)).expect("it is there"), name);
        let name = format!("exclusive{round}");
        let made = File::create_new(one.join(&name)).expect("it is new");
        let again = File::create_new(other.join(&name));
        again.expect_err("another client was the first");
        drop(made);
    }
}
