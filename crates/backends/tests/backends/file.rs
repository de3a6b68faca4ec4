// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What objects in a directory promise beyond the suite: where they are, what is left alone, and
//! what is said when the directory is not as it should be.

use std::fs;
use std::io::IoSlice;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::TempDir;
use terrace_backends::object::{File, FileSettings};
use terrace_core::{
    Access, Backend, BackendExt, Create, End, ErrorKind, Hint, Key, ObjectExt, Op, Open,
    Persistency, Request, Semantics, Superblock, TierBackend,
};

fn key(text: &str) -> Key {
    Key::parse(text).expect("legal")
}

fn open(directory: &Path) -> File {
    File::open(directory, FileSettings { capacity_bytes: u64::MAX, read_only: false })
        .expect("a directory")
}

fn fresh() -> (File, TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    (open(directory.path()), directory)
}

/// Every file and directory below a directory, by its path.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.symlink_metadata().expect("there").is_dir() {
            found.extend(tree(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn a_missing_directory_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = directory.path().join("unmounted");
    let settings = FileSettings { capacity_bytes: 1, read_only: false };
    let error = File::open(&missing, settings).expect_err("missing");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.contains("mount its disk") && text.contains("unmounted"), "{text}");
    assert!(!missing.exists(), "opening must not make it");

    fs::write(&missing, "a file").expect("room");
    assert_eq!(File::open(&missing, settings).expect_err("a file").kind(), ErrorKind::Invalid);
}

#[test]
fn a_directory_that_vanished_is_not_taken_for_missing_objects() {
    let (backend, directory) = fresh();
    backend.write_all(&key("app/a"), b"abc").expect("room");
    fs::remove_dir_all(directory.path()).expect("removed");
    let errors = [
        backend.open(&key("app/a"), &Open::read()).err(),
        backend.open(&key("app/a"), &Open::create()).err(),
        backend.open(&key("app/a"), &Open::create_new()).err(),
        backend.stat(&key("app/a")).err(),
        backend.delete(&key("app/a")).err(),
        backend.list_all("app", "").err(),
        backend.namespaces().err(),
        backend.identity(&key("app/a")).err(),
        backend.superblock().err(),
        backend.sync().err(),
    ];
    for (index, error) in errors.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("number {index} worked"));
        assert_eq!(error.kind(), ErrorKind::Io, "number {index}: {error}");
        let text = error.to_string();
        assert!(text.contains("removed") && text.contains("target=file:"), "{text}");
    }
}

#[test]
fn a_directory_that_was_renamed_stays_the_tier() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let (old, new) = (parent.path().join("old"), parent.path().join("new"));
    fs::create_dir(&old).expect("room");
    let backend = open(&old);
    backend.write_all(&key("app/a"), b"abc").expect("room");
    fs::rename(&old, &new).expect("renamed");
    fs::create_dir(&old).expect("an impostor");
    assert_eq!(backend.read_all(&key("app/a")).expect("still there"), b"abc");
    backend.write_all(&key("app/b"), b"").expect("room");
    assert_eq!(tree(&old), Vec::<PathBuf>::new());
    assert_eq!(open(&new).list_all("app", "").expect("list").len(), 2);
}

#[test]
fn objects_outlive_their_opening() {
    let (backend, directory) = fresh();
    let long = Key::new("app", &"é/".repeat(133)).expect("legal");
    backend.write_all(&key("app/a"), b"abc").expect("room");
    backend.write_all(&long, b"long").expect("room");
    let superblock = Superblock {
        store_id: 5,
        tier: "fast".into(),
        format_version: 1,
        feature_bits: 0,
        epoch: 1,
        frames: None,
    };
    if backend.capability().identity {
        backend.set_superblock(&superblock).expect("room");
    }
    drop(backend);
    let backend = open(directory.path());
    assert_eq!(backend.read_all(&key("app/a")).expect("kept"), b"abc");
    assert_eq!(backend.read_all(&long).expect("kept"), b"long");
    assert_eq!(backend.list_all("app", "").expect("list").len(), 2);
    if backend.capability().identity {
        assert_eq!(backend.superblock().expect("kept"), Some(superblock));
    }
}

#[test]
fn only_the_owner_may_look() {
    let (backend, directory) = fresh();
    backend.write_all(&key("app/a"), b"abc").expect("room");
    for path in tree(directory.path()) {
        let metadata = path.metadata().expect("there");
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, expected, "{}", path.display());
    }
}

#[test]
fn no_name_leaves_the_directory() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let root = parent.path().join("tier");
    fs::create_dir(&root).expect("room");
    let backend = open(&root);
    let names = ["..", "../../out", "../".repeat(133).as_str(), "/etc/out", ".", "a/../../../out"]
        .map(String::from);
    for namespace in ["..", ".", "app"] {
        for name in &names {
            let key = Key::new(namespace, name).expect("legal");
            backend.write_all(&key, b"x").expect("room");
        }
    }
    let outside: Vec<PathBuf> =
        tree(parent.path()).into_iter().filter(|path| !path.starts_with(&root)).collect();
    assert_eq!(outside, Vec::<PathBuf>::new());
    let files = tree(&root).into_iter().filter(|path| path.is_file()).count();
    assert_eq!(files, 3 * names.len());
}

#[test]
fn foreign_files_are_left_alone_and_not_listed() {
    let (backend, directory) = fresh();
    backend.write_all(&key("climate/t2m"), b"abc").expect("room");
    let root = directory.path();
    let bucket = root.join("climate/fb");
    assert!(bucket.join("t2m").is_file(), "the documented path");
    fs::create_dir_all(root.join("photos/2024")).expect("room");
    fs::create_dir_all(root.join("lost+found")).expect("room");
    fs::create_dir_all(bucket.join("deep+/+deeper+")).expect("room");
    let foreign = [
        "photos/2024/a.jpg",
        "notes.txt",
        "climate/readme",
        "climate/00/t2m",
        "climate/fb/.swp",
        "climate/fb/%742m",
        "climate/fb/other",
        "climate/fb/deep+/+deeper+/+x",
    ];
    fs::create_dir_all(root.join("climate/00")).expect("room");
    for path in foreign {
        fs::write(root.join(path), "foreign").expect("room");
    }
    assert_eq!(backend.list_all("climate", "").expect("list"), [key("climate/t2m")]);
    assert_eq!(backend.namespaces().expect("namespaces"), ["climate"]);
    backend.delete(&key("climate/t2m")).expect("delete");
    assert_eq!(backend.namespaces().expect("namespaces"), Vec::<String>::new());
    for path in foreign {
        assert_eq!(fs::read(root.join(path)).expect("left alone"), b"foreign", "{path}");
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    let (backend, directory) = fresh();
    backend.write_all(&key("climate/t2m"), b"abc").expect("room");
    let secret = directory.path().join("secret");
    fs::write(&secret, "secret").expect("room");
    let path = directory.path().join("climate/fb/t2m");
    fs::remove_file(&path).expect("there");
    symlink(&secret, &path).expect("room");
    for how in [Open::read(), Open::write(), Open::create()] {
        let error = backend.open(&key("climate/t2m"), &how).err().expect("a link");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    assert_eq!(backend.stat(&key("climate/t2m")).expect_err("a link").kind(), ErrorKind::Io);
    assert_eq!(backend.list_all("climate", "").expect("list"), []);
    assert_eq!(fs::read(&secret).expect("there"), b"secret");
}

#[test]
fn long_names_leave_no_directories_behind() {
    let (backend, directory) = fresh();
    let keys = ["x", "y"]
        .map(|last| Key::new("app", &format!("{}{last}", "/".repeat(399))).expect("legal"));
    for key in &keys {
        backend.write_all(key, b"abc").expect("room");
    }
    let continued = || {
        let is_continued = |path: &&PathBuf| path.to_string_lossy().ends_with('+');
        tree(directory.path()).iter().filter(is_continued).count()
    };
    // Buckets differ, so each has directories of its own.
    assert_eq!(continued(), 8);
    backend.delete(&keys[0]).expect("delete");
    assert_eq!(continued(), 4);
    assert_eq!(backend.read_all(&keys[1]).expect("the other stays"), b"abc");
    backend.delete(&keys[1]).expect("delete");
    assert_eq!(continued(), 0);
    backend.sync().expect("what was removed needs no sync");
}

#[test]
fn what_is_read_only_is_not_changed() {
    let (backend, directory) = fresh();
    backend.write_all(&key("app/a"), b"abc").expect("room");
    let before = tree(directory.path());
    let settings = FileSettings { capacity_bytes: u64::MAX, read_only: true };
    let backend = File::open(directory.path(), settings).expect("a directory");
    let readers = Open { create: Create::IfMissing, ..Open::read() };
    let denied = [
        backend.open(&key("app/a"), &Open::write()).err(),
        backend.open(&key("app/b"), &Open::create()).err(),
        backend.open(&key("app/b"), &Open::create_new()).err(),
        backend.open(&key("app/b"), &readers).err(),
        backend.delete(&key("app/a")).err(),
    ];
    for error in denied {
        assert_eq!(error.expect("denied").kind(), ErrorKind::Denied);
    }
    backend.open(&key("app/a"), &readers).expect("it need not be made");
    assert_eq!(backend.read_all(&key("app/a")).expect("reading is allowed"), b"abc");
    assert_eq!(tree(directory.path()), before);
}

#[test]
fn a_damaged_superblock_or_identity_is_corrupt() {
    let (backend, directory) = fresh();
    if !backend.capability().identity {
        return;
    }
    fs::write(directory.path().join(".terrace-superblock"), "damaged").expect("room");
    assert_eq!(backend.superblock().expect_err("damaged").kind(), ErrorKind::Corrupt);
    backend.write_all(&key("climate/t2m"), b"abc").expect("room");
    let path = directory.path().join("climate/fb/t2m");
    let flags = rustix::fs::XattrFlags::empty();
    for wrong in [&b"damaged"[..], &[1; 2000]] {
        rustix::fs::setxattr(&path, "user.terrace", wrong, flags).expect("room");
        let error = backend.identity(&key("climate/t2m")).expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("key=climate/t2m"), "{error}");
    }
}

#[test]
fn many_names_are_synced_at_once() {
    // More directories than are remembered one by one.
    let (backend, _directory) = fresh();
    for index in 0..2200 {
        let key = Key::new(&format!("n{index}"), "a").expect("legal");
        drop(backend.open(&key, &Open::create_new()).expect("room"));
    }
    backend.sync().expect("everything");
    drop(backend.open(&key("app/a"), &Open::create_new()).expect("room"));
    backend.sync().expect("the rest");
}

#[test]
fn a_durable_batch_is_carried_out() {
    let (backend, _directory) = fresh();
    let (new, old, doomed) = (key("app/new"), key("app/old"), key("app/doomed"));
    backend.write_all(&old, b"old").expect("room");
    backend.write_all(&doomed, b"").expect("room");
    let mut operations = [
        Request::Create { key: &new, data: b"abc", hint: Hint::default() },
        Request::Create { key: &old, data: b"abc", hint: Hint::default() },
        Request::Write { key: &old, offset_bytes: 3, data: b"er" },
        Request::Delete { key: &doomed },
        Request::Delete { key: &doomed },
    ]
    .map(Op::new);
    backend.execute(&mut operations, &Semantics::at_level(Persistency::Storage));
    let kinds = operations
        .map(|operation| operation.outcome.expect("executed").err().map(|error| error.kind()));
    let expected = [None, Some(ErrorKind::Exists), None, None, Some(ErrorKind::NotFound)];
    assert_eq!(kinds, expected);
    assert_eq!(backend.read_all(&new).expect("made"), b"abc");
    assert_eq!(backend.read_all(&old).expect("written"), b"older");
}

#[test]
fn two_tiers_of_one_kind_do_not_meet() {
    let ((one, _one), (two, _two)) = (fresh(), fresh());
    one.write_all(&key("app/a"), b"one").expect("room");
    two.write_all(&key("app/a"), b"two").expect("room");
    assert_eq!(one.read_all(&key("app/a")).expect("kept"), b"one");
    assert_eq!(two.read_all(&key("app/a")).expect("kept"), b"two");
}

#[test]
fn space_is_bounded_by_the_settings_and_the_disk() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let space = |capacity_bytes| {
        let settings = FileSettings { capacity_bytes, read_only: false };
        File::open(directory.path(), settings).expect("a directory").space().expect("space")
    };
    assert_eq!(space(4096).capacity_bytes, 4096);
    let whole = space(u64::MAX);
    assert!(whole.capacity_bytes < u64::MAX, "no disk is that large");
    assert!((1..=whole.capacity_bytes).contains(&whole.used_bytes), "{whole:?}");
}

#[test]
fn directories_of_one_file_system_tell_that_they_share_its_room() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file_system = |name: &str| {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).expect("made");
        let settings = FileSettings { capacity_bytes: u64::MAX, read_only: false };
        let space = File::open(&path, settings).expect("a directory").space().expect("space");
        space.file_system.map(|file_system| file_system.number)
    };
    let first = file_system("one");
    assert!(first.is_some());
    assert_eq!(first, file_system("two"));
}

#[test]
fn a_lease_outlives_its_name() {
    let (backend, _directory) = fresh();
    backend.write_all(&key("app/a"), b"abc").expect("room");
    let object = backend.open(&key("app/a"), &Open::write()).expect("there");
    backend.delete(&key("app/a")).expect("delete");
    let lease = object.lease_file().expect("lent").expect("a file");
    assert_eq!(std::io::read_to_string(lease.file).expect("read"), "abc");
    object.write(0, b"A").expect("the handle goes on");
}

#[test]
fn no_lease_bypasses_a_promise_of_durability() {
    let (backend, _directory) = fresh();
    let durable = Semantics::at_level(Persistency::Storage);
    let how = Open::create().with_semantics(durable);
    let object = backend.open(&key("app/a"), &how).expect("room");
    assert!(object.hold_file(Access::Write).expect("asking is allowed").is_none());
    assert!(object.hold_file(Access::Read).expect("asking is allowed").is_some());
    assert!(object.lease_file().expect("asking is allowed").is_some());
}

#[test]
fn a_reservation_that_cannot_fit_takes_no_room() {
    let (backend, _directory) = fresh();
    let object = backend.open(&key("app/a"), &Open::create()).expect("room");
    let free_bytes = {
        let space = backend.space().expect("space");
        space.capacity_bytes - space.used_bytes
    };
    // Twice what is free, so that others who delete meanwhile do not matter.
    let error = object.allocate(0..free_bytes * 2, End::Grows).expect_err("more than there is");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    let stat = object.stat().expect("stat");
    assert_eq!((stat.size_bytes, stat.allocated_bytes), (0, 0));
}

#[test]
fn a_length_that_no_file_has_is_no_space() {
    let (backend, _directory) = fresh();
    let object = backend.open(&key("app/a"), &Open::create()).expect("room");
    object.write(0, b"abc").expect("room");
    match object.set_len(i64::MAX as u64) {
        // Some file systems take it.
        Ok(()) => assert_eq!(object.stat().expect("stat").size_bytes, i64::MAX as u64),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert_eq!(object.read_to_end().expect("as before"), b"abc");
        }
    }
}

#[test]
fn appends_through_two_openings_of_a_tier_do_not_overlap() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let openings = [open(directory.path()), open(directory.path())];
    openings[0].write_all(&key("app/log"), b"").expect("room");
    thread::scope(|scope| {
        for writer in 0..4u8 {
            let backend = &openings[usize::from(writer) % 2];
            scope.spawn(move || {
                let object = backend.open(&key("app/log"), &Open::write()).expect("there");
                for _ in 0..200 {
                    object.append(&[IoSlice::new(&[writer; 10])]).expect("room");
                }
            });
        }
    });
    let log = openings[0].read_all(&key("app/log")).expect("read");
    assert_eq!(log.len(), 4 * 200 * 10);
    assert!(log.chunks(10).all(|entry| entry.iter().all(|byte| *byte == entry[0])), "torn");
}

#[test]
fn a_directory_that_cannot_be_written_opens_for_reading_only() {
    let (backend, directory) = fresh();
    backend.write_all(&key("app/a"), b"abc").expect("room");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o500)).expect("own");
    let settings = |read_only| FileSettings { capacity_bytes: u64::MAX, read_only };
    let written = File::open(directory.path(), settings(false));
    let read = File::open(directory.path(), settings(true)).expect("readable");
    assert_eq!(read.read_all(&key("app/a")).expect("readable"), b"abc");
    let is_privileged = fs::write(directory.path().join("probe"), b"").is_ok();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).expect("own");
    // Permissions do not stop a privileged user.
    assert_eq!(written.is_ok(), is_privileged);
    if let Err(error) = written {
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("for reading only"), "{error}");
    }
}
