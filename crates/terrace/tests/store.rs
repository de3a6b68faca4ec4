// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The public crate over a store in a directory.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use terrace::{
    Error, ErrorKind, Hint, Object, Options, Outcome, Persistency, Semantics, Store, Temperature,
};
use terrace_server::{Limits, Server};
use terrace_store::SystemClock;

fn store() -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store").to_str().expect("text").to_owned();
    Store::create(&path).expect("makes a store");
    let store = Store::open(&path).expect("opens");
    (directory, store)
}

fn names(store: &Store, prefix: &str) -> Vec<String> {
    store.list(prefix).map(|entry| entry.expect("lists").name).collect()
}

#[test]
fn types_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<Store>();
    crosses::<Object>();
    crosses::<terrace::Batch>();
    crosses::<terrace::List>();
    crosses::<terrace::Kv>();
    crosses::<terrace::Collection>();
    crosses::<terrace::Admin>();
    crosses::<Error>();
}

#[test]
fn whole_objects_are_put_replaced_and_deleted() {
    let (_directory, store) = store();
    for length in [0, 5, 64 << 10, (64 << 10) + 1, 3 << 20] {
        let data: Vec<u8> = (0..length).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        store.put("run/42", &data).expect("puts");
        assert!(store.get("run/42").expect("gets") == data, "{length} bytes");
        assert_eq!(store.stat("run/42").expect("there").size_bytes, length);
    }
    store.put("plain", b"x").expect("puts");
    assert_eq!(names(&store, ""), ["default/plain", "run/42"]);
    assert_eq!(names(&store, "run/4"), ["run/42"]);
    assert_eq!(names(&store, "ru"), ["run/42"]);
    assert_eq!(names(&store, "run/5"), [""; 0]);
    store.delete("run/42").expect("deletes");
    assert_eq!(store.get("run/42").expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!(store.get("").expect_err("no name").kind(), ErrorKind::Invalid);
    store.close().expect("closes");
}

/// A store of another process, over TCP.
fn served() -> (TempDir, terrace_store::Store, Server, Store) {
    let (directory, store) = store();
    drop(store);
    let path = directory.path().join("store");
    let owner = terrace_store::Store::open(path.to_str().expect("text")).expect("opens");
    let clock = Arc::new(SystemClock::default());
    let server = Server::new(owner.service().expect("it is owned"), None, Limits::default(), clock);
    let address = server.listen(&"127.0.0.1:0".parse().expect("legal")).expect("listens");
    let remote = Store::open(&format!("terrace://{address}?secret=none")).expect("reaches it");
    (directory, owner, server, remote)
}

#[test]
fn whole_objects_are_put_over_a_socket_and_got_without_asking_for_their_size() {
    let (_directory, _owner, server, store) = served();
    // An open, so many reads, and a close, which has no answer.
    for (length, reads) in [(0, 1), (5, 1), ((64 << 10) - 1, 1), (64 << 10, 2), (400_000, 3)] {
        let data: Vec<u8> = (0..length).map(|at: u32| (at >> 7) as u8).collect();
        for _ in 0..2 {
            store.put("run/42", &data).expect("puts");
        }
        let wait_until_closed = || {
            while server.status().handles > 0 {
                std::thread::yield_now();
            }
            server.status().operations
        };
        let before = wait_until_closed();
        assert!(store.get("run/42").expect("gets") == data, "{length} bytes");
        assert_eq!(wait_until_closed() - before, 2 + reads, "{length} bytes");
    }
}

#[test]
fn a_value_written_in_pieces_replaces_the_old_one_when_published() {
    let (_directory, store) = store();
    store.put("run/42", b"old").expect("puts");
    let builder = store.object("run/42").expect("a name");
    let draft = builder.replace().expect("begins");
    draft.object().write_at(0, b"new").expect("writes");
    assert_eq!(draft.object().append(b" value").expect("appends"), 3);
    assert_eq!(store.get("run/42").expect("gets"), b"old");
    draft.publish().expect("publishes");
    assert_eq!(store.get("run/42").expect("gets"), b"new value");
    let dropped = builder.replace().expect("begins");
    dropped.object().write_at(0, b"lost").expect("writes");
    drop(dropped);
    assert_eq!(store.get("run/42").expect("gets"), b"new value");
    assert!(!store.is_attached());
}

#[test]
fn objects_are_read_and_written_anywhere() {
    let (_directory, store) = store();
    let options = Options {
        semantics: Semantics::at_level(Persistency::Storage),
        hint: Hint { temperature: Temperature::Hot },
        label: Some(b"mark".to_vec()),
        ..Options::default()
    };
    let builder = store.object("run/43").expect("a name").options(options);
    assert_eq!(builder.open().err().expect("missing").kind(), ErrorKind::NotFound);
    let object = builder.create_new().expect("creates");
    object.write_at(4, b"abcd").expect("writes");
    assert_eq!(object.append(b"ef").expect("appends"), 8);
    object.sync().expect("syncs");
    let mut buffer = [1; 16];
    assert_eq!(object.read_at(2, &mut buffer).expect("reads"), 8);
    assert_eq!(&buffer[..8], b"\0\0abcdef");
    object.set_len(6).expect("cuts");
    assert_eq!((object.len().expect("known"), object.is_empty().expect("known")), (6, false));
    assert_eq!(object.label().expect("labelled"), b"mark");
    let reader = builder.read().expect("opens");
    assert_eq!(reader.write_at(0, b"x").expect_err("for reading").kind(), ErrorKind::Denied);
    assert_eq!(builder.create_new().err().expect("there").kind(), ErrorKind::Exists);
}

#[test]
fn a_batch_returns_each_outcome() {
    let (_directory, store) = store();
    let outcomes = store
        .batch()
        .create("run/a", b"abc")
        .write("run/a", 1, b"XY")
        .read("run/a", 0, 10)
        .stat("run/missing")
        .delete("")
        .run();
    assert_eq!(outcomes.len(), 5);
    assert_eq!(outcomes[0].as_ref().expect("created"), &Outcome::Done);
    assert_eq!(outcomes[2].as_ref().expect("read"), &Outcome::Bytes(b"aXY".to_vec()));
    let kind = |index: usize| outcomes[index].as_ref().expect_err("fails").kind();
    assert_eq!((kind(3), kind(4)), (ErrorKind::NotFound, ErrorKind::Invalid));
}

#[test]
fn a_read_of_more_than_the_memory_fails_alone() {
    let (_directory, store) = store();
    let outcomes = store
        .batch()
        .create("a/1", b"abc")
        .read("a/1", 0, usize::MAX)
        .read("a/1", 0, 1 << 60)
        .read("a/1", 1, 10)
        .run();
    assert_eq!(outcomes[0].as_ref().expect("created"), &Outcome::Done);
    for outcome in &outcomes[1..3] {
        assert_eq!(outcome.as_ref().expect_err("too long").kind(), ErrorKind::Invalid);
    }
    assert_eq!(outcomes[3].as_ref().expect("read"), &Outcome::Bytes(b"bc".to_vec()));
    store.close().expect("closes");
}

#[test]
fn pairs_change_together() {
    let (_directory, store) = store();
    let kv = store.kv("pairs").persistency(Persistency::Storage);
    kv.put(b"a", b"1").expect("puts");
    kv.apply(&[(b"a", None), (b"b", Some(b"2")), (b"c", Some(b"3"))]).expect("applies");
    assert_eq!(kv.get(b"a").expect("reads"), None);
    let scanned = kv.scan(b"", Some(b"b"), 10).expect("scans");
    assert_eq!(scanned, [(b"c".to_vec(), b"3".to_vec())]);
    assert!(kv.remove(b"c").expect("removes"));
}

#[test]
fn objects_move_and_the_mover_is_seen() {
    let (_directory, store) = store();
    store.put("run/1", &[7; 10_000]).expect("puts");
    let admin = store.admin();
    let slow = admin.tiers().expect("known").last().expect("a tier").name.clone();
    let (watched, asked) = (store.clone(), slow.clone());
    let mut has_begun = false;
    let mut seen = 0;
    watched
        .watch(&mut |notice| {
            if !std::mem::replace(&mut has_begun, true) {
                store.admin().migrate("run/1", &asked).expect("queues");
            }
            seen += usize::from(notice.is_some());
            seen == 0
        })
        .expect("watches");
    assert!(admin.wait_idle(Duration::from_secs(20)).expect("waits"));
    assert_eq!(admin.explain("run/1").expect("known").segments[0].tier, slow);
    assert_eq!(store.get("run/1").expect("gets"), [7; 10_000]);
}

#[test]
fn the_public_names_are_at_most_25() {
    let text = include_str!("../src/lib.rs");
    let exported = text.split("pub use ").skip(1).map(|one| one.split(';').next().expect("ends"));
    let names: Vec<&str> = exported
        .flat_map(|one| one.rsplit("::").next().expect("a path").split(','))
        .map(|name| name.trim_matches(['{', '}', ' ', '\n']))
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.contains(&"Store") && names.contains(&"TierReport"), "{names:?}");
    assert!(names.len() <= 25, "{} names: {names:?}", names.len());
}

#[test]
fn items_of_a_collection_are_put_read_and_deleted() {
    let (_directory, store) = store();
    let climate = store.create_collection("climate").expect("makes it");
    let exists = store.create_collection("climate").err().expect("it is there");
    assert_eq!(exists.kind(), ErrorKind::Exists);
    let large = vec![7; 3 << 20];
    climate.put("t2m", b"first", &Options::default()).expect("puts");
    climate.put("t2m", &large, &Options::default()).expect("replaces");
    climate
        .create("a/../b", &Options::default())
        .expect("makes")
        .write_at(2, b"x")
        .expect("writes");
    assert_eq!(climate.get("t2m").expect("gets"), large);
    assert_eq!(climate.stat("a/../b").expect("stats").size_bytes, 3);
    climate.open("t2m").expect("opens").write_at(0, b"new").expect("writes");
    let object = climate.object_name("t2m").expect("has one");
    assert_eq!(&store.get(&object).expect("reads it")[..4], b"new\x07");
    let names = |prefix: &str| -> Vec<String> {
        climate.list(prefix).map(|name| name.expect("lists")).collect()
    };
    assert_eq!(names(""), ["a/../b", "t2m"]);
    assert_eq!(names("t"), ["t2m"]);
    let kept = store.delete_collection("climate", false).expect_err("it has items");
    assert_eq!(kept.kind(), ErrorKind::Invalid);
    climate.delete("a/../b").expect("deletes");
    for missing in [climate.get("a/../b").err(), climate.delete("a/../b").err()] {
        assert_eq!(missing.expect("it is gone").kind(), ErrorKind::NotFound);
    }
    // More than one page.
    for number in 0..1200 {
        climate.create(&format!("n{number:04}"), &Options::default()).expect("makes");
    }
    assert_eq!(names("n").len(), 1200);
    let collections: Vec<_> = store.collections("").map(|name| name.expect("lists")).collect();
    assert_eq!(collections, ["climate"]);
    store.delete_collection("climate", true).expect("deletes all");
    assert_eq!(store.collection("climate").err().expect("it is gone").kind(), ErrorKind::NotFound);
    assert_eq!(climate.get("t2m").expect_err("it is gone").kind(), ErrorKind::NotFound);
}
