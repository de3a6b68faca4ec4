// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What no operation here leaves, and a check finds all the same.

use terrace_core::{Backend, BackendExt, ErrorKind, Key, Open, Persistency};
use terrace_items::{FindingKind, NAMESPACE};

use crate::scene::{Scene, assert_fails, names};

#[test]
fn an_item_whose_object_was_removed_is_damaged_until_it_is_repaired() {
    let scene = Scene::embedded();
    let collection = scene.collection("c");
    let key = collection.open("x", &Open::create_new()).expect("made").key().clone();
    scene.store.delete(&key).expect("deletes");
    for message in [
        assert_fails(collection.open("x", &Open::read()), ErrorKind::Corrupt),
        assert_fails(collection.status("x"), ErrorKind::Corrupt),
        assert_fails(collection.open("x", &Open::create()), ErrorKind::Corrupt),
    ] {
        assert!(message.contains("its object is missing"), "{message}");
    }
    let (kinds, summary) = scene.check(false);
    assert_eq!((kinds, summary.problems), (vec![FindingKind::Record], 1));
    let (_, summary) = scene.check(true);
    assert_eq!((summary.problems, summary.removed), (0, 1));
    assert_fails(collection.status("x"), ErrorKind::NotFound);
    scene.assert_sound();
}

#[test]
fn an_item_of_a_collection_that_is_gone_is_removed_with_its_object() {
    let scene = Scene::embedded();
    scene.collection("c").open("x", &Open::create_new()).expect("made");
    let pairs = scene.store.kv_scan(NAMESPACE, b"c", None, 10).expect("scans");
    scene.store.kv_remove(NAMESPACE, &pairs[0].0, Persistency::Process).expect("removes");
    assert_eq!(scene.check(false).0, [FindingKind::Lost]);
    scene.check(true);
    scene.assert_sound();
    assert_eq!(scene.store.list_all(NAMESPACE, "").expect("lists"), []);
}

#[test]
fn bytes_whose_collection_was_lost_are_never_removed() {
    let scene = Scene::embedded();
    let item = scene.collection("c").open("x", &Open::create_new()).expect("made");
    item.write(0, b"precious").expect("room");
    let remove = |prefix: &[u8]| {
        let (key, _) = scene.store.kv_scan(NAMESPACE, prefix, None, 1).expect("scans").remove(0);
        scene.store.kv_remove(NAMESPACE, &key, Persistency::Process).expect("removes")
    };
    remove(b"c");
    assert_eq!(scene.check(true).0, [FindingKind::Lost]);
    // As after a rebuild of the catalog without its pairs.
    remove(b"i");
    scene.collection("c");
    assert_eq!(scene.check(true).0, [FindingKind::Stranded]);
    assert_eq!(scene.store.read_all(item.key()).expect("reads"), b"precious");
}

#[test]
fn a_damaged_record_is_shown_and_can_be_removed_by_hand() {
    let scene = Scene::embedded();
    let collection = scene.collection("c");
    collection.open("x", &Open::create_new()).expect("made");
    let pairs = scene.store.kv_scan(NAMESPACE, b"i", None, 10).expect("scans");
    scene.store.kv_put(NAMESPACE, &pairs[0].0, b"?", Persistency::Process).expect("puts");
    assert_fails(collection.status("x"), ErrorKind::Corrupt);
    assert_eq!(scene.check(true).0, [FindingKind::Damaged]);
    collection.delete("x").expect("deletes");
    scene.assert_sound();
}

#[test]
fn what_is_hidden_comes_forth_when_the_other_is_deleted() {
    let scene = Scene::embedded();
    let collection = scene.collection("c");
    let item = collection.open("x", &Open::create_new()).expect("made");
    let (key, value) = scene.store.kv_scan(NAMESPACE, b"i", None, 10).expect("scans").remove(0);
    let id_bytes = 32;
    let twin = [&key[..key.len() - id_bytes], [b'f'; 32].as_slice()].concat();
    scene.store.kv_put(NAMESPACE, &twin, &value, Persistency::Process).expect("puts");
    let (head, _) = item.key().as_str().rsplit_once('/').expect("it ends in the name");
    let object = format!("{}/{}/x", &head[..head.len() - id_bytes - 1], "f".repeat(id_bytes));
    scene.store.write_all(&Key::parse(&object).expect("legal"), b"twin").expect("room");
    assert_eq!(names(&collection, ""), ["x"]);
    assert_eq!(scene.check(true).0, [FindingKind::Hidden]);
    collection.delete("x").expect("deletes");
    assert_eq!(collection.status("x").expect("the twin").stat.size_bytes, 4);
    scene.assert_sound();
}

#[test]
fn what_others_wrote_is_shown_and_left_alone() {
    let scene = Scene::embedded();
    let collection = scene.collection("c");
    collection.open("x", &Open::create_new()).expect("made");
    let key = |name: &str| Key::new(NAMESPACE, name).expect("legal");
    for name in ["item/x", "claim/x"] {
        scene.store.write_all(&key(name), b"").expect("room");
    }
    scene.store.kv_put(NAMESPACE, b"c?", b"", Persistency::Process).expect("puts");
    scene.store.kv_put(NAMESPACE, b"i?", b"", Persistency::Process).expect("puts");
    assert_eq!(scene.check(true).0, [FindingKind::Foreign; 4]);
    assert_eq!(scene.check(true).0, [FindingKind::Foreign; 4]);
    assert_eq!(names(&collection, ""), ["x"]);
    scene.items.open("c").expect("there");
}

#[test]
fn items_are_counted() {
    let scene = Scene::embedded();
    for (collection, items) in [("a", 2), ("b", 0), ("c", 3)] {
        let collection = scene.collection(collection);
        for number in 0..items {
            collection.open(&format!("{number}"), &Open::create_new()).expect("made");
        }
    }
    let (_, summary) = scene.check(false);
    assert_eq!((summary.collections, summary.items), (3, 5));
    assert_eq!((summary.problems, summary.removed, summary.young), (0, 0, 0));
}
