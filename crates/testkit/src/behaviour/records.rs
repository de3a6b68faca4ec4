// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes, times, identities and superblocks.

use std::sync::Arc;

use terrace_core::{
    Access, Backend, Create, ErrorKind, Identity, Key, ObjectExt, Open, Role, Superblock,
};

use super::*;

/// 2020-09-13 12:26:40.123456789 UTC: every digit must be kept.
const PAST_NS: u64 = 1_600_000_000_123_456_789;

/// Goal: sizes are exact, the same by name and by handle, and written bytes take room.
pub fn stat_counts_bytes(backend: &dyn Backend) {
    let object = created(backend, "a");
    for size in [1usize, 4096, 100_000] {
        object.write(0, &vec![7; size]).expect("write");
        let stat = object.stat().expect("stat");
        assert_eq!(stat.size_bytes, size as u64);
        assert_eq!(backend.stat(&key("a")).expect("stat").size_bytes, size as u64);
    }
    let allocated_bytes = object.stat().expect("stat").allocated_bytes;
    assert!(!backend.capability().keeps_data || allocated_bytes >= 100_000, "{allocated_bytes}");
}

/// Goal: the time of the last modification can be set, and reading, opening and syncing keep it.
pub fn times_are_set_and_kept(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abc");
    let created_ns = object.stat().expect("stat").created_ns;
    object.set_modified(PAST_NS).expect("set");
    assert_eq!(object.stat().expect("stat").modified_ns, PAST_NS);
    read(&*object, 0, 3);
    object.sync().expect("sync");
    drop(object);
    let object = opened(backend, "a");
    read(&*object, 0, 3);
    let stat = backend.stat(&key("a")).expect("stat");
    assert_eq!((stat.modified_ns, stat.created_ns), (PAST_NS, created_ns));
    assert_eq!(object.stat().expect("stat"), stat);
}

/// Goal: every change of the bytes moves the time of the last modification.
pub fn writing_moves_the_time(backend: &dyn Backend) {
    let object = filled(backend, "a", b"abcdef");
    let moved = |what: &str| {
        let now_ns = object.stat().expect("stat").modified_ns;
        assert!(now_ns > PAST_NS, "{what} left the time at {now_ns}");
        object.set_modified(PAST_NS).expect("set");
    };
    moved("creating");
    object.write(0, b"x").expect("write");
    moved("writing");
    object.append(&slices(&[b"x"])).expect("append");
    moved("appending");
    object.set_len(3).expect("cut");
    moved("cutting");
    object.set_len(30).expect("grow");
    moved("growing");
    object.punch(0..2).expect("punch");
    moved("punching");
}

fn identity(role: Role, object_id: u64, key: &Key) -> Identity {
    Identity {
        store_id: u128::MAX - 5,
        object_id,
        segment: 3,
        start_bytes: 1 << 40,
        generation: u64::MAX,
        epoch: 0,
        role,
        key: key.clone(),
        label: (object_id % 2 == 1).then(|| vec![role as u8; 512].into()),
    }
}

fn created_with(backend: &dyn Backend, name: &str, identity: Identity) -> Box<dyn Object> {
    let how =
        Open { identity: Some(Arc::new(identity)), ..how(backend, Create::New, Access::Write) };
    backend.open(&key(name), &how).expect("create")
}

/// Goal: an identity that was given at create is read back, for keys of any length.
pub fn identities_are_kept(backend: &dyn Backend) {
    if !backend.capability().identity {
        return;
    }
    let long = Key::new(&"n".repeat(64), &"🦀".repeat(100)).expect("legal");
    for (index, of) in [key("other"), long].iter().enumerate() {
        let name = format!("a{index}");
        let expected = identity(Role::Partial, 7, of);
        let object = created_with(backend, &name, expected.clone());
        object.write(0, b"abc").expect("write");
        object.sync().expect("sync");
        backend.sync().expect("sync");
        assert_eq!(backend.identity(&key(&name)).expect("read"), Some(expected));
        assert_reads(backend, &*object, 0, b"abc");
    }
}

/// Goal: an identity can be set and replaced later, and does not touch bytes or times.
pub fn identities_can_be_replaced(backend: &dyn Backend) {
    if !backend.capability().identity {
        return;
    }
    let object = filled(backend, "a", b"abc");
    object.set_modified(PAST_NS).expect("set");
    assert_eq!(backend.identity(&key("a")).expect("read"), None);
    for (role, id) in [(Role::Partial, 1), (Role::Primary, 2), (Role::Copy, 3), (Role::Dead, 4)] {
        let expected = identity(role, id, &key("a"));
        backend.set_identity(&key("a"), &expected).expect("set");
        assert_eq!(backend.identity(&key("a")).expect("read"), Some(expected));
    }
    assert_eq!(object.stat().expect("stat").modified_ns, PAST_NS);
    assert_reads(backend, &*object, 0, b"abc");
}

/// Goal: a new object does not inherit the identity of a deleted one, and one that is opened keeps
/// its own.
pub fn identities_go_with_their_objects(backend: &dyn Backend) {
    if !backend.capability().identity {
        return;
    }
    let missing = identity(Role::Dead, 9, &key("a"));
    assert_fails(backend.identity(&key("a")), ErrorKind::NotFound);
    assert_fails(backend.set_identity(&key("a"), &missing), ErrorKind::NotFound);
    let first = identity(Role::Primary, 1, &key("a"));
    drop(created_with(backend, "a", first.clone()));
    let how = Open {
        identity: Some(Arc::new(missing)),
        ..how(backend, Create::IfMissing, Access::Write)
    };
    drop(backend.open(&key("a"), &how).expect("open"));
    assert_eq!(backend.identity(&key("a")).expect("read"), Some(first));
    backend.delete(&key("a")).expect("delete");
    drop(created(backend, "a"));
    assert_eq!(backend.identity(&key("a")).expect("read"), None);
}

fn superblock(tier: &str) -> Superblock {
    Superblock {
        store_id: 1 << 100,
        tier: tier.into(),
        format_version: u32::MAX,
        feature_bits: 1 << 63,
        epoch: 12,
        frames: None,
    }
}

/// Goal: a superblock is read back, can be replaced, and is no object.
pub fn superblocks_are_kept(backend: &dyn Backend) {
    if !backend.capability().identity {
        return;
    }
    assert_eq!(backend.superblock().expect("fresh"), None);
    for tier in ["fast", "", "a name\nof=two \"lines\" é"] {
        backend.set_superblock(&superblock(tier)).expect("set");
        assert_eq!(backend.superblock().expect("read"), Some(superblock(tier)));
    }
    assert_eq!(backend.namespaces().expect("namespaces"), Vec::<String>::new());
}

/// Goal: without the capability, identities and superblocks are refused.
pub fn records_need_the_capability(backend: &dyn Backend) {
    drop(created(backend, "a"));
    let expected = identity(Role::Primary, 1, &key("a"));
    let results = [
        backend.identity(&key("a")).map(|_| ()),
        backend.set_identity(&key("a"), &expected),
        backend.superblock().map(|_| ()),
        backend.set_superblock(&superblock("fast")),
    ];
    for result in results {
        match backend.capability().identity {
            true => result.expect("it has the capability"),
            false => drop(assert_fails(result, ErrorKind::Unsupported)),
        }
    }
}
