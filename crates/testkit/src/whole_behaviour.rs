// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a backend must do whose objects are written once, as a whole ([`Writes::Whole`]), as runnable
//! cases. [`whole_suite!`](crate::whole_suite) makes a test of each, on an empty backend.

use std::io::IoSlice;
use std::sync::Arc;

use terrace_core::{
    Backend, BackendExt, Create, Cursor, End, ErrorKind, Hint, Identity, Key, Object, ObjectExt,
    Op, Open, Persistency, Reply, Request, Role, Semantics, Superblock, Writes,
};

use crate::pattern_bytes;

const NAMESPACE: &str = "seg";

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name).expect("legal")
}

fn how(create: Create) -> Open {
    Open { create, ..Open::default() }.with_semantics(Semantics::at_level(Persistency::None))
}

fn identity(name: &str, generation: u64, role: Role) -> Identity {
    Identity {
        store_id: 7,
        object_id: 42,
        segment: 1,
        start_bytes: 4096,
        generation,
        epoch: 3,
        role,
        key: key(name),
        label: None,
    }
}

fn begun(backend: &dyn Backend, name: &str, size_hint_bytes: Option<u64>) -> Box<dyn Object> {
    let identity = Some(Arc::new(identity(name, 5, Role::Primary)));
    let how = Open { size_hint_bytes, identity, ..how(Create::New) };
    backend.open(&key(name), &how).expect("begun")
}

fn made(backend: &dyn Backend, name: &str, data: &[u8]) -> Box<dyn Object> {
    let object = begun(backend, name, Some(data.len() as u64));
    object.write(0, data).expect("written");
    object.sync().expect("made");
    object
}

fn is_there(backend: &dyn Backend, name: &str) -> bool {
    match backend.stat(&key(name)) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
            false
        }
    }
}

#[track_caller]
fn assert_refused(result: terrace_core::Result<()>) {
    let error = result.expect_err("whole objects do not change");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain());
}

/// It says what it is.
pub fn the_capability_is_told(backend: &dyn Backend) {
    let capability = backend.capability();
    assert_eq!(capability.writes, Writes::Whole);
    assert!(!capability.sparse && !capability.leases && capability.identity);
    // The longest object here is shorter.
    assert!(capability.object_bytes_max > 40 << 20);
}

/// An object appears with its sync, whole.
pub fn nothing_is_seen_before_the_sync(backend: &dyn Backend) {
    for bytes in [10, 20 << 20] {
        let name = format!("late{bytes}");
        let data = pattern_bytes(1, 0, 0, bytes);
        let object = begun(backend, &name, None);
        object.write(0, &data).expect("written");
        assert!(!is_there(backend, &name));
        assert!(backend.list_all(NAMESPACE, "late").expect("listed").is_empty());
        assert_refused(object.read(0, &mut [0; 4]).map(drop));
        object.sync().expect("made");
        assert_eq!(backend.stat(&key(&name)).expect("there").size_bytes, bytes as u64);
        assert!(backend.read_all(&key(&name)).expect("read") == data);
        object.sync().expect("once more");
        backend.delete(&key(&name)).expect("deleted");
    }
}

/// Objects of all sizes come back, from any offset, in pieces of any size.
pub fn bytes_come_back_from_anywhere(backend: &dyn Backend) {
    for (index, bytes) in [0, 1, 4096, 300_001, (33 << 20) + 5].into_iter().enumerate() {
        let name = format!("object{index}");
        let data = pattern_bytes(index as u64, 0, 0, bytes);
        let object = begun(backend, &name, Some(bytes as u64));
        for (piece, part) in data.chunks(1 << 18).enumerate() {
            let at = (piece << 18) as u64;
            let middle = part.len() / 3;
            let parts = [IoSlice::new(&part[..middle]), IoSlice::new(&part[middle..])];
            object.write_at(at, &parts).expect("written");
        }
        object.sync().expect("made");
        for object in [object, backend.open(&key(&name), &how(Create::Never)).expect("there")] {
            assert_eq!(object.stat().expect("there").size_bytes, bytes as u64);
            for (offset, count) in
                [(0, bytes), (bytes / 2, 100), (bytes / 3, bytes / 2), (bytes, 10), (bytes + 9, 1)]
            {
                let mut buffer = vec![0xee; count];
                let read = object.read(offset as u64, &mut buffer).expect("read");
                let end = (offset + count).min(bytes);
                assert_eq!(read, end.saturating_sub(offset));
                assert!(buffer[..read] == data[offset.min(end)..end], "{bytes} at {offset}");
            }
            let mut back = Vec::new();
            let mut piece = vec![0; 50_000];
            loop {
                let read = object.read(back.len() as u64, &mut piece).expect("read");
                back.extend_from_slice(&piece[..read]);
                if read < piece.len() {
                    break;
                }
            }
            assert!(back == data, "from front to back");
        }
    }
}

/// What was not written is zeros, also at the end.
pub fn gaps_read_as_zeros(backend: &dyn Backend) {
    let object = begun(backend, "gaps", None);
    object.write(3, b"a").expect("written");
    object.write(100_000, b"b").expect("written");
    assert_eq!(object.append(&[IoSlice::new(b"c")]).expect("written"), 100_001);
    object.set_len(200_000).expect("grown");
    object.sync().expect("made");
    let mut expected = vec![0; 200_000];
    (expected[3], expected[100_000], expected[100_001]) = (b'a', b'b', b'c');
    assert!(backend.read_all(&key("gaps")).expect("read") == expected);
}

/// Bytes go from front to back, once.
pub fn nothing_is_changed(backend: &dyn Backend) {
    let object = begun(backend, "fixed", None);
    object.write(0, b"abcdef").expect("written");
    assert_refused(object.write(3, b"x"));
    assert_refused(object.set_len(2));
    object.sync().expect("made");
    let other = backend.open(&key("fixed"), &how(Create::Never)).expect("there");
    for object in [object, other] {
        assert_refused(object.write(0, b"x"));
        assert_refused(object.write(6, b"x"));
        assert_refused(object.append(&[IoSlice::new(b"x")]).map(drop));
        assert_refused(object.set_len(2));
        assert_refused(object.set_len(20));
        assert_refused(object.punch(0..2));
        assert_refused(object.allocate(0..20, End::Stays));
        object.set_len(6).expect("it is that long");
        assert!(object.lease_file().expect("asked").is_none());
    }
    assert_eq!(backend.read_all(&key("fixed")).expect("read"), b"abcdef");
}

/// A handle that is dropped leaves nothing.
pub fn what_is_given_up_leaves_nothing(backend: &dyn Backend) {
    for bytes in [10, 20 << 20] {
        let object = begun(backend, "given up", None);
        object.write(0, &vec![1; bytes]).expect("written");
        drop(object);
        assert!(!is_there(backend, "given up"));
    }
    assert!(backend.list_all(NAMESPACE, "").expect("listed").is_empty());
}

/// Identity and time are kept with an object, can be replaced, and go with it.
pub fn identity_and_time_are_kept_and_replaced(backend: &dyn Backend) {
    let object = begun(backend, "one", None);
    object.write(0, b"x").expect("written");
    object.set_modified(1_000_000_001).expect("set");
    object.sync().expect("made");
    let stat = || backend.stat(&key("one")).expect("there");
    assert_eq!(stat().modified_ns, 1_000_000_001);
    assert!(stat().created_ns > 0);
    let found = || backend.identity(&key("one")).expect("there").expect("it has one");
    assert_eq!(found(), identity("one", 5, Role::Primary));
    let created_ns = stat().created_ns;
    backend.set_identity(&key("one"), &identity("one", 9, Role::Copy)).expect("set");
    assert_eq!(found(), identity("one", 9, Role::Copy));
    object.set_modified(2_000_000_002).expect("set");
    let other = backend.open(&key("one"), &how(Create::Never)).expect("there");
    assert_eq!(other.stat().expect("there").modified_ns, 2_000_000_002);
    assert_eq!((stat().modified_ns, stat().created_ns), (2_000_000_002, created_ns));
    assert_eq!(found(), identity("one", 9, Role::Copy), "it stays");
    backend.delete(&key("one")).expect("deleted");
    let missing = backend.identity(&key("one")).expect_err("gone");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let missing = backend.set_identity(&key("one"), &identity("one", 9, Role::Copy));
    assert_eq!(missing.expect_err("gone").kind(), ErrorKind::NotFound);
}

/// What is deleted is gone, for handles too.
pub fn a_deleted_object_is_gone(backend: &dyn Backend) {
    let object = made(backend, "gone", b"bytes");
    backend.delete(&key("gone")).expect("deleted");
    assert!(!is_there(backend, "gone"));
    match backend.delete(&key("gone")) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    match object.read(0, &mut [0; 5]) {
        Ok(count) => assert_eq!(count, 5),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    let missing = backend.open(&key("gone"), &how(Create::Never)).err().expect("gone");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

/// A listing in pages meets every object once, and no other namespace.
pub fn listings_meet_every_object_once(backend: &dyn Backend) {
    let mut names: Vec<_> = (0..23).map(|number| format!("{:x}.{number}", number * 7)).collect();
    names.extend(["a b", "..", "ü/=%2F", "q?*"].map(String::from));
    for name in &names {
        made(backend, name, b"x");
    }
    let elsewhere = Key::new("other", "a").expect("legal");
    let object = backend.open(&elsewhere, &how(Create::New)).expect("begun");
    object.sync().expect("made");
    names.sort();
    for max in [1, 5, 27, 100] {
        let (mut found, mut cursor) = (Vec::new(), Cursor::start());
        loop {
            let page = backend.list(NAMESPACE, "", &cursor, max).expect("listed");
            assert!(page.keys.len() <= max);
            found.extend(page.keys.iter().map(|key| key.name().to_string()));
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        found.sort();
        assert_eq!(found, names, "in pages of {max}");
    }
    let of_prefix = backend.list_all(NAMESPACE, "ü/=").expect("listed");
    assert_eq!(of_prefix, [key("ü/=%2F")]);
    assert_eq!(backend.namespaces().expect("listed"), ["other", NAMESPACE]);
    assert!(backend.list(NAMESPACE, "", &Cursor(b"?".to_vec()), 1).is_err());
}

/// The superblock is kept.
pub fn the_superblock_is_kept(backend: &dyn Backend) {
    assert_eq!(backend.superblock().expect("asked"), None);
    for epoch in [1, 2] {
        let superblock = Superblock {
            store_id: 77,
            tier: "cold tier".into(),
            format_version: 1,
            feature_bits: 0,
            epoch,
            frames: None,
        };
        backend.set_superblock(&superblock).expect("set");
        assert_eq!(backend.superblock().expect("asked"), Some(superblock));
    }
    assert!(backend.list_all(NAMESPACE, "").expect("listed").is_empty());
}

/// A batch makes whole objects.
pub fn a_batch_makes_whole_objects(backend: &dyn Backend) {
    let (one, two) = (key("one"), key("two"));
    let mut buffer = [0; 3];
    let mut operations = [
        Op::new(Request::Create { key: &one, data: b"abc", hint: Hint::default() }),
        Op::new(Request::Read { key: &one, offset_bytes: 0, buffer: &mut buffer }),
        Op::new(Request::Write { key: &one, offset_bytes: 0, data: b"x" }),
        Op::new(Request::Create { key: &two, data: b"", hint: Hint::default() }),
        Op::new(Request::Delete { key: &one }),
    ];
    backend.execute(&mut operations, &Semantics::at_level(Persistency::None));
    let outcomes = operations.map(|operation| operation.outcome.expect("it ran"));
    assert_eq!(outcomes[0].as_ref().expect("made"), &Reply::Done);
    assert_eq!(outcomes[1].as_ref().expect("read"), &Reply::Count(3));
    assert_eq!(outcomes[2].as_ref().expect_err("whole").kind(), ErrorKind::Unsupported);
    assert!(outcomes[3].is_ok() && outcomes[4].is_ok());
    assert_eq!(&buffer, b"abc");
    assert_eq!(backend.list_all(NAMESPACE, "").expect("listed"), [two]);
}

/// Many threads write and read at once.
pub fn objects_do_not_disturb_each_other(backend: &dyn Backend) {
    std::thread::scope(|scope| {
        for seed in 0..6 {
            scope.spawn(move || {
                for round in 0..4 {
                    let name = format!("{seed}.{round}");
                    let data = pattern_bytes(seed, 0, 0, 100_000 + (seed as usize) * 777 + round);
                    made(backend, &name, &data);
                    assert!(backend.read_all(&key(&name)).expect("read") == data);
                    if round % 2 == 0 {
                        backend.delete(&key(&name)).expect("deleted");
                    }
                }
            });
        }
    });
    assert_eq!(backend.list_all(NAMESPACE, "").expect("listed").len(), 12);
}

/// Makes a test of every case in [`whole_behaviour`](crate::whole_behaviour), each on a new backend.
/// `$make` gives the backend, as something that dereferences to it, and whatever must live as long.
#[macro_export]
macro_rules! whole_suite {
    ($name:ident, $make:expr) => {
        $crate::whole_suite!(@cases $name, $make,
            the_capability_is_told, nothing_is_seen_before_the_sync, bytes_come_back_from_anywhere,
            gaps_read_as_zeros, nothing_is_changed, what_is_given_up_leaves_nothing,
            identity_and_time_are_kept_and_replaced, a_deleted_object_is_gone,
            listings_meet_every_object_once, the_superblock_is_kept, a_batch_makes_whole_objects,
            objects_do_not_disturb_each_other);
    };
    (@cases $name:ident, $make:expr, $($case:ident),+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[test] fn $case() {
                let (backend, _kept) = $make;
                $crate::whole_behaviour::$case(&*backend);
            })+
        }
    };
}

#[cfg(test)]
mod tests {
    /// A case that is not in the list of the macro would never run.
    #[test]
    fn every_case_is_in_the_suite() {
        let source = include_str!("whole_behaviour.rs");
        let list = source.split("macro_rules!").nth(1).expect("the macro");
        for item in source.split("\npub fn ").skip(1) {
            let name = item.split('(').next().expect("a name");
            let is_listed =
                list.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
            assert!(is_listed, "{name} is not in whole_suite!");
        }
    }
}
