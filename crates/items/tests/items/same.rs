// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds however the store is reached.

use terrace_core::{
    BackendExt, Cursor, ErrorKind, Object, ObjectExt, Open, Persistency, Semantics,
};
use terrace_items::{Contents, ITEM_NAME_BYTES_MAX, NAMESPACE};

use crate::scene::{Scene, assert_fails, names};

macro_rules! for_each_way {
    ($($case:ident),+ $(,)?) => {
        mod embedded { $(#[test] fn $case() { super::$case(&crate::scene::Scene::embedded()); })+ }
        mod attached { $(#[test] fn $case() { super::$case(&crate::scene::Scene::attached()); })+ }
        mod served { $(#[test] fn $case() { super::$case(&crate::scene::Scene::served()); })+ }
        mod clustered {
            $(#[test] fn $case() { super::$case(&crate::scene::Scene::clustered()); })+
        }
    };
}

for_each_way!(
    an_item_has_the_bytes_that_were_written,
    names_are_opaque_and_stay_in_their_collection,
    a_wrong_name_is_refused_with_its_reason,
    what_is_missing_or_there_has_its_kind,
    items_are_listed_in_order_over_page_borders,
    a_cursor_of_another_listing_is_refused,
    a_collection_with_items_is_kept,
    what_is_made_again_has_nothing_of_what_was,
    a_handle_never_sees_what_is_made_under_its_name,
    a_deleted_collection_takes_nothing_more,
    an_item_is_deleted_by_its_object_and_no_other,
    levels_are_met,
);

fn an_item_has_the_bytes_that_were_written(scene: &Scene) {
    let climate = scene.collection("climate");
    let item = climate.open("t2m", &Open::create_new()).expect("made");
    item.write(0, b"bytes").expect("room");
    let mut data = [0; 9];
    assert_eq!(item.read(1, &mut data).expect("reads"), 4);
    assert_eq!(&data[..4], b"ytes");
    // The object alone is written, and the status follows.
    let object = scene.store.open_object(item.key());
    object.write(5, b"more").expect("room");
    let status = climate.status("t2m").expect("there");
    assert_eq!(status.stat.size_bytes, 9);
    assert_eq!(&status.object, item.key());
    assert!(status.stat.created_ns > 0 && status.stat.modified_ns > 0);
    assert_eq!(item.status().expect("open"), status);
    let again = scene.items.open("climate").expect("there").open("t2m", &Open::read());
    assert_eq!(again.expect("there").object().read_to_end().expect("reads"), b"bytesmore");
    scene.assert_sound();
}

fn names_are_opaque_and_stay_in_their_collection(scene: &Scene) {
    let long = "ü".repeat(127) + "x";
    assert_eq!(long.len(), ITEM_NAME_BYTES_MAX);
    let odd =
        ["..", "/", "../b/x", "a/b", "a\nb", "%00", "claim/x", "\u{10ffff}", &long, "b/x", " "];
    let collections = ["a", "a b", "..", "c", "item", &"n".repeat(64)];
    for collection in collections {
        let collection = scene.collection(collection);
        for name in odd {
            let item = collection.open(name, &Open::create_new()).expect(name);
            item.write(0, format!("{}|{name}", collection.name()).as_bytes()).expect("room");
        }
    }
    let mut sorted = odd.to_vec();
    sorted.sort_unstable();
    for collection in collections {
        let opened = scene.items.open(collection).expect("there");
        assert_eq!(names(&opened, ""), sorted);
        for name in odd {
            let item = opened.open(name, &Open::read()).expect(name);
            let data = item.object().read_to_end().expect("reads");
            assert_eq!(data, format!("{collection}|{name}").as_bytes());
            assert_eq!(item.key().namespace(), NAMESPACE);
        }
    }
    scene.items.delete("a", Contents::Delete).expect("deletes");
    for collection in &collections[1..] {
        assert_eq!(names(&scene.collection(collection), "").len(), odd.len());
    }
    scene.assert_sound();
}

fn a_wrong_name_is_refused_with_its_reason(scene: &Scene) {
    let collection = scene.collection("c");
    let long = "x".repeat(ITEM_NAME_BYTES_MAX + 1);
    for (name, reason) in [("", "empty"), ("a\0b", "NUL"), (&long, "256 bytes")] {
        for message in [
            assert_fails(collection.open(name, &Open::create()), ErrorKind::Invalid),
            assert_fails(collection.status(name), ErrorKind::Invalid),
            assert_fails(collection.delete(name), ErrorKind::Invalid),
        ] {
            assert!(message.contains(reason), "{message}");
        }
    }
    let long = "x".repeat(65);
    for (name, reason) in [("", "empty"), ("a\0b", "NUL"), (&long, "65 bytes"), ("a/b", "no '/'")] {
        for message in [
            assert_fails(scene.items.create(name, Persistency::Process), ErrorKind::Invalid),
            assert_fails(scene.items.open(name), ErrorKind::Invalid),
            assert_fails(scene.items.delete(name, Contents::Delete), ErrorKind::Invalid),
        ] {
            assert!(message.contains(reason), "{message}");
        }
    }
    // A prefix that reached behind the name would tell ids apart.
    assert_fails(collection.list("a\0", &Cursor::start(), 10), ErrorKind::Invalid);
}

fn what_is_missing_or_there_has_its_kind(scene: &Scene) {
    assert_fails(scene.items.open("c"), ErrorKind::NotFound);
    assert_fails(scene.items.delete("c", Contents::Delete), ErrorKind::NotFound);
    let collection = scene.collection("c");
    assert_fails(scene.items.create("c", Persistency::Process), ErrorKind::Exists);
    for message in [
        assert_fails(collection.open("x", &Open::write()), ErrorKind::NotFound),
        assert_fails(collection.status("x"), ErrorKind::NotFound),
        assert_fails(collection.delete("x"), ErrorKind::NotFound),
    ] {
        assert!(message.contains("item=c/x"), "{message}");
    }
    let made = collection.open("x", &Open::create()).expect("made");
    made.write(0, b"kept").expect("room");
    assert_fails(collection.open("x", &Open::create_new()), ErrorKind::Exists);
    let opened = collection.open("x", &Open::create()).expect("there");
    assert_eq!(opened.object().read_to_end().expect("reads"), b"kept");
    let reader = collection.open("x", &Open::read()).expect("there");
    assert_fails(reader.write(0, b"no"), ErrorKind::Denied);
    // The start of a name, and what it is the start of, are other names.
    assert_fails(collection.status("xy"), ErrorKind::NotFound);
    collection.open("xyz", &Open::create()).expect("made");
    assert_fails(collection.status("xy"), ErrorKind::NotFound);
}

fn items_are_listed_in_order_over_page_borders(scene: &Scene) {
    let collection = scene.collection("c");
    let other = scene.collection("cc");
    for name in ["b/2", "a", "b/1", "b", "c", "b!", "ba"] {
        collection.open(name, &Open::create_new()).expect("made");
    }
    other.open("b/0", &Open::create_new()).expect("made");
    assert_eq!(names(&collection, ""), ["a", "b", "b!", "b/1", "b/2", "ba", "c"]);
    assert_eq!(names(&collection, "b"), ["b", "b!", "b/1", "b/2", "ba"]);
    assert_eq!(names(&collection, "b/"), ["b/1", "b/2"]);
    assert_eq!(names(&collection, "nothing"), [""; 0]);
    let page = scene.items.list("", &Cursor::start(), 1).expect("lists");
    assert_eq!(page.names, ["c"]);
    let next = page.next.expect("there is another");
    assert_eq!(scene.items.list("", &next, 10).expect("lists").names, ["cc"]);
    assert_eq!(scene.items.list("cc", &Cursor::start(), 10).expect("lists").names, ["cc"]);
}

fn a_cursor_of_another_listing_is_refused(scene: &Scene) {
    let (one, other) = (scene.collection("one"), scene.collection("other"));
    for collection in [&one, &other] {
        for name in ["a", "b"] {
            collection.open(name, &Open::create_new()).expect("made");
        }
    }
    let cursor = one.list("", &Cursor::start(), 1).expect("lists").next.expect("more");
    assert_fails(other.list("", &cursor, 1), ErrorKind::Invalid);
    assert_fails(one.list("b", &cursor, 1), ErrorKind::Invalid);
    assert_eq!(one.list("", &cursor, 1).expect("lists").names, ["b"]);
}

fn a_collection_with_items_is_kept(scene: &Scene) {
    let collection = scene.collection("c");
    for number in 0..5 {
        collection.open(&format!("{number}"), &Open::create_new()).expect("made");
    }
    let message = assert_fails(scene.items.delete("c", Contents::Keep), ErrorKind::Invalid);
    assert!(message.contains("it has items"), "{message}");
    collection.open("5", &Open::create_new()).expect("nothing is claimed any more");
    assert_eq!(names(&collection, "").len(), 6);
    scene.items.delete("c", Contents::Delete).expect("deletes");
    assert_fails(scene.items.open("c"), ErrorKind::NotFound);
    assert_eq!(scene.store.list_all(NAMESPACE, "").expect("lists"), [], "all of it is gone");
    assert!(scene.store.kv_scan(NAMESPACE, b"", None, 1).expect("scans").is_empty());
    scene.collection("c");
    scene.items.delete("c", Contents::Keep).expect("it is empty");
}

fn what_is_made_again_has_nothing_of_what_was(scene: &Scene) {
    let collection = scene.collection("c");
    let mut keys = Vec::new();
    for round in 0..3 {
        let item = collection.open("x", &Open::create_new()).expect("made");
        assert_eq!(item.object().read_to_end().expect("reads"), b"", "round {round}");
        item.write(0, b"old bytes").expect("room");
        assert!(!keys.contains(item.key()), "a key was used again");
        keys.push(item.key().clone());
        collection.delete("x").expect("deletes");
    }
    let item = collection.open("x", &Open::create_new()).expect("made");
    item.write(0, b"old bytes").expect("room");
    scene.items.delete("c", Contents::Delete).expect("deletes");
    let collection = scene.collection("c");
    assert_eq!(names(&collection, ""), [""; 0]);
    let item = collection.open("x", &Open::create()).expect("made");
    assert_eq!(item.status().expect("open").stat.size_bytes, 0);
    scene.assert_sound();
}

fn a_handle_never_sees_what_is_made_under_its_name(scene: &Scene) {
    let collection = scene.collection("c");
    let old = collection.open("x", &Open::create_new()).expect("made");
    old.write(0, b"old").expect("room");
    collection.delete("x").expect("deletes");
    let new = collection.open("x", &Open::create_new()).expect("made");
    new.write(0, b"new").expect("room");
    match old.object().read_to_end() {
        Ok(data) => assert_eq!(data, b"old"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
}

fn a_deleted_collection_takes_nothing_more(scene: &Scene) {
    let old = scene.collection("c");
    old.open("x", &Open::create_new()).expect("made");
    scene.items.delete("c", Contents::Delete).expect("deletes");
    let message = assert_fails(old.open("y", &Open::create()), ErrorKind::NotFound);
    assert!(message.contains("was deleted"), "{message}");
    let new = scene.collection("c");
    assert_fails(old.open("y", &Open::create_new()), ErrorKind::NotFound);
    new.open("y", &Open::create_new()).expect("made");
    assert_fails(old.status("y"), ErrorKind::NotFound);
    assert_fails(old.delete("y"), ErrorKind::NotFound);
    assert_eq!(names(&new, ""), ["y"]);
    scene.assert_sound();
}

fn an_item_is_deleted_by_its_object_and_no_other(scene: &Scene) {
    let (collection, other) = (scene.collection("c"), scene.collection("other"));
    let old = collection.open("x", &Open::create_new()).expect("made").key().clone();
    assert_fails(other.delete_object(&old), ErrorKind::NotFound);
    collection.delete("x").expect("deletes");
    let new = collection.open("x", &Open::create_new()).expect("made").key().clone();
    assert_fails(collection.delete_object(&old), ErrorKind::NotFound);
    collection.status("x").expect("it is another");
    collection.delete_object(&new).expect("deletes");
    assert_fails(collection.status("x"), ErrorKind::NotFound);
    scene.assert_sound();
}

fn levels_are_met(scene: &Scene) {
    let collection = scene.items.create("c", Persistency::Storage).expect("made");
    for level in [Persistency::None, Persistency::Process, Persistency::Storage] {
        let how = Open::create_new().with_semantics(Semantics::at_level(level));
        let item = collection.open(&level.to_string(), &how).expect("made");
        let kept = scene.store.admin().explain(item.key()).expect("there").persistency;
        // The store's own level is the least.
        assert_eq!(kept, level.max(Persistency::Process).to_string());
    }
}

/// An object by itself, as a program that knows nothing of items opens it.
trait OpenObject {
    fn open_object(&self, key: &terrace_core::Key) -> Box<dyn Object>;
}

impl OpenObject for terrace_store::Store {
    fn open_object(&self, key: &terrace_core::Key) -> Box<dyn Object> {
        terrace_core::Backend::open(self, key, &Open::write()).expect("it is there")
    }
}
