// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creating, deleting, and what handles see of it.

use std::io::{Read, Seek, SeekFrom, Write};

use terrace_core::{
    Access, Backend, Create, ErrorKind, FileLease, ObjectExt, Persistency, ReadSummary, Semantics,
};

use super::*;

/// Goal: what was never created is not found, and asking does not create it.
pub fn missing_objects_are_not_found(backend: &dyn Backend) {
    for access in [Access::Read, Access::Write] {
        let asked = how(backend, Create::Never, access);
        assert_fails(backend.open(&key("missing"), &asked), ErrorKind::NotFound);
    }
    assert_fails(backend.stat(&key("missing")), ErrorKind::NotFound);
    assert_fails(backend.delete(&key("missing")), ErrorKind::NotFound);
    assert_eq!(backend.namespaces().expect("namespaces"), Vec::<String>::new());
}

/// Goal: `Create::New` refuses an object that is there and leaves it as it was.
pub fn create_new_refuses_what_exists(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    assert_fails(open_key(backend, &key("a"), Create::New), ErrorKind::Exists);
    assert_reads(backend, &*object, 0, b"abc");
    assert_eq!(size_bytes(&*object), 3);
}

/// Goal: `Create::IfMissing` opens an object that is there, with its bytes.
pub fn create_if_missing_opens_what_exists(backend: &dyn Backend) {
    let first = open_key(backend, &key("a"), Create::IfMissing).expect("made");
    first.write(0, b"abc").expect("write");
    let second = open_key(backend, &key("a"), Create::IfMissing).expect("opened");
    assert_eq!(size_bytes(&*second), 3);
    assert_reads(backend, &*second, 0, b"abc");
}

/// Goal: a level up to the capability's is taken for writing, a stronger one is refused and
/// creates nothing.
pub fn weaker_semantics_are_taken_stronger_refused(backend: &dyn Backend) {
    let strongest = backend.capability().persistency;
    for persistency in [Persistency::None, Persistency::Process, Persistency::Storage] {
        let key = key(persistency.word());
        let how = Open::create().with_semantics(Semantics::at_level(persistency));
        let opened = backend.open(&key, &how);
        if persistency > strongest {
            assert_fails(opened, ErrorKind::Unsupported);
            assert_fails(backend.stat(&key), ErrorKind::NotFound);
            continue;
        }
        let object = opened.expect("within the capability");
        object.write(0, b"abc").expect("write");
        assert_eq!(object.append(&slices(&[b"d"])).expect("append"), 3);
        object.set_len(3).expect("cut");
        object.punch(0..1).expect("punch");
        object.set_modified(1_600_000_000_000_000_000).expect("set the time");
        assert_reads(backend, &*object, 0, b"\0bc");
        // Opening what exists keeps the promise for it too.
        assert_reads(backend, &*backend.open(&key, &how).expect("there"), 0, b"\0bc");
    }
}

/// Goal: a name is free as soon as its object was deleted.
pub fn deleting_frees_the_name(backend: &dyn Backend) {
    drop(filled(backend, "a", b"abc"));
    drop(filled(backend, "b", b"abc"));
    backend.delete(&key("a")).expect("delete");
    assert_fails(backend.stat(&key("a")), ErrorKind::NotFound);
    assert_fails(open_key(backend, &key("a"), Create::Never), ErrorKind::NotFound);
    assert_eq!(size_bytes(&*created(backend, "a")), 0);
    assert_eq!(backend.stat(&key("b")).expect("the other stays").size_bytes, 3);
}

/// Goal: what is gone cannot be deleted again.
pub fn delete_twice(backend: &dyn Backend) {
    drop(filled(backend, "a", b"abc"));
    backend.delete(&key("a")).expect("first");
    assert_fails(backend.delete(&key("a")), ErrorKind::NotFound);
}

/// Goal: a handle of a deleted object goes on or fails with `NotFound`.
pub fn a_handle_outlives_its_object(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    backend.delete(&key("a")).expect("delete");
    let mut buffer = [0; 3];
    match object.read(0, &mut buffer) {
        Ok(count) => assert_eq!(count, 3),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    for changed in [object.write(0, b"xyz"), object.set_len(9), object.sync()] {
        assert!(changed.is_ok_or_not_found());
    }
    assert_fails(backend.stat(&key("a")), ErrorKind::NotFound);
    drop(object);
    assert_fails(backend.stat(&key("a")), ErrorKind::NotFound);
}

/// Goal: a handle of a deleted object never meets the one that took its name.
pub fn a_new_object_is_not_the_old_one(backend: &dyn Backend) {
    let old = filled(backend, "a", b"old old");
    backend.delete(&key("a")).expect("delete");
    let new = filled(backend, "a", b"new");
    let mut buffer = [0; 7];
    match old.read(0, &mut buffer) {
        Ok(count) if backend.capability().keeps_data => assert_eq!(&buffer[..count], b"old old"),
        Ok(count) => assert_eq!(count, 7),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    match old.stat() {
        Ok(stat) => assert_eq!(stat.size_bytes, 7, "it sees the new object's size"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    let appended = old.append(&slices(&[b"OLD"])).map(|start_bytes| assert_eq!(start_bytes, 7));
    let changes = [
        appended,
        old.write(0, b"OLD OLD"),
        old.set_len(1),
        old.punch(0..2),
        old.set_modified(1),
        old.sync(),
    ];
    for changed in changes {
        assert!(changed.is_ok_or_not_found());
    }
    assert_eq!(size_bytes(&*new), 3);
    assert_reads(backend, &*new, 0, b"new");
    assert_reads(backend, &*opened(backend, "a"), 0, b"new");
}

trait OkOrNotFound {
    fn is_ok_or_not_found(&self) -> bool;
}

impl OkOrNotFound for Result<()> {
    fn is_ok_or_not_found(&self) -> bool {
        self.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::NotFound)
    }
}

/// Goal: objects and names can be synced, as often as one likes.
pub fn sync_succeeds(backend: &dyn Backend) {
    backend.sync().expect("nothing to do");
    let object = filled(backend, "a", b"abc");
    drop(filled(backend, "b", b"abc"));
    for _ in 0..2 {
        object.sync().expect("sync the object");
        backend.sync().expect("sync the names");
    }
    backend.delete(&key("b")).expect("delete");
    backend.sync().expect("sync the deletion");
    backend.sync_all().expect("nothing to do");
    assert_reads(backend, &*object, 0, b"abc");
}

/// Goal: a descriptor that is lent or held holds the object's bytes and allows what was asked for;
/// without the capability there is none.
pub fn leases_are_the_object(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    let lease = object.lease_file().expect("ask");
    let held = [Access::Read, Access::Write].map(|access| object.hold_file(access).expect("ask"));
    if !backend.capability().leases {
        assert!(lease.is_none() && held.iter().all(Option::is_none));
        return;
    }
    let [reading, writing] = held;
    if let Some(mut lease) = lease {
        let mut text = String::new();
        lease.file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "abc");
        assert!(lease.file.write_all(b"x").is_err(), "it was lent for reading");
        let mut part = [0; 5];
        // `None` where the file has stopped being the object.
        if let Some(count) = lease.read(1, &mut part).expect("read") {
            assert_eq!(part[..count], *b"bc", "its end is the object's");
        }
        object.note_reads(&ReadSummary { count: 2, bytes: 5, ..ReadSummary::default() });
    }
    if let Some(mut file) = reading {
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "abc");
        assert!(file.write_all(b"x").is_err(), "it is held for reading");
    }
    if let Some(mut file) = writing {
        file.seek(SeekFrom::Start(1)).expect("seek");
        file.write_all(b"BCD").expect("write");
        assert_reads(backend, &*object, 0, b"aBCD");
        assert_eq!(object.stat().expect("stat").size_bytes, 4, "its end is the object's");
        object.write(0, b"A").expect("the handle writes, too");
        object.set_len(2).expect("and cuts");
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).expect("seek");
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "AB");
    }
    let reader = opened_for_reading(backend, "a");
    assert_fails(reader.hold_file(Access::Write), ErrorKind::Denied);
    let last = reader.lease_file().expect("ask");
    backend.delete(&key("a")).expect("delete");
    let is_over = |lease: &FileLease| lease.word.is_none() || !lease.is_good().expect("look");
    assert!(last.is_none_or(|lease| is_over(&lease)), "a word tells of the deletion");
}
