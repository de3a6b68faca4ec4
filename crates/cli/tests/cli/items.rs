// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `collection` and `item`.

use serde_json::json;
use terrace_core::{Backend, Key, Open};
use terrace_items::Items;

use crate::scene::{Scene, values};

#[test]
fn what_was_put_into_an_item_is_got() {
    let scene = Scene::new();
    let content: Vec<u8> = (0..3_000_001u32).map(|i| i.wrapping_mul(i) as u8).collect();
    scene.file("in", &content);
    scene.ok(["collection", "create", "run"]);
    scene.ok(["item", "put", "run/a", "in"]);
    scene.ok(["item", "get", "run/a", "out"]);
    assert_eq!(scene.read("out"), content);
    scene.ok_with(&content, ["item", "put", "run/b/c"]);
    let got = scene.command(["item", "get", "run/b/c"]).output().expect("runs");
    assert_eq!(got.stdout, content);
    // The bytes are those of the object.
    let stat = scene.json(["item", "stat", "run/b/c"]).remove(0);
    assert_eq!(stat["size_bytes"], 3_000_001);
    let object = stat["object"].as_str().expect("text");
    assert_eq!(scene.json(["stat", object])[0]["size_bytes"], 3_000_001);
}

#[test]
fn an_item_is_replaced_longer_and_shorter() {
    let scene = Scene::new();
    scene.ok(["collection", "create", "c"]);
    for content in ["first, long", "second", "the third is the longest", ""] {
        scene.ok_with(content.as_bytes(), ["item", "put", "c/note"]);
        assert_eq!(scene.ok(["item", "get", "c/note"]), content);
    }
    scene.fails(6, ["item", "put", "--new", "c/note"]);
    scene.ok(["item", "put", "--new", "c/another"]);
}

#[test]
fn collections_are_made_listed_and_removed() {
    let scene = Scene::new();
    scene.ok(["collection", "create", "b", "a", "a b", "--persistency", "storage"]);
    scene.fails(6, ["collection", "create", "a", "c"]);
    assert_eq!(scene.ok(["collection", "ls"]), "a\na b\nb\nc\n");
    assert_eq!(scene.ok(["collection", "ls", "a"]), "a\na b\n");
    scene.ok(["item", "put", "a/x"]);
    let refused = scene.fails(2, ["collection", "rm", "a", "b"]);
    assert!(refused.contains("it has items") && refused.contains("collection=a"), "{refused}");
    assert_eq!(scene.ok(["collection", "ls"]), "a\na b\nc\n");
    scene.fails(3, ["collection", "rm", "b"]);
    scene.ok(["collection", "rm", "-f", "b"]);
    let removed = scene.json(["collection", "rm", "-r", "a", "c"]);
    assert_eq!(removed, [json!({ "collection": "a" }), json!({ "collection": "c" })]);
    assert_eq!(scene.ok(["collection", "ls"]), "a b\n");
    assert_eq!(scene.ok(["ls"]), "", "their objects are gone");
}

#[test]
fn items_are_listed_by_prefix_and_removed() {
    let scene = Scene::new();
    scene.ok(["collection", "create", "run", "other"]);
    for item in ["run/4/x", "run/41", "run/4/y", "run/new\nline", "other/4"] {
        scene.ok_with(b"12345", ["item", "put", item]);
    }
    assert_eq!(scene.ok(["item", "ls", "run"]), "run/4/x\nrun/4/y\nrun/41\nrun/new\\nline\n");
    assert_eq!(scene.ok(["item", "ls", "run/4/"]), "run/4/x\nrun/4/y\n");
    assert_eq!(scene.ok(["item", "ls", "run/none"]), "");
    let listed = scene.json(["item", "ls", "-l", "run/41"]).remove(0);
    assert_eq!((&listed["item"], &listed["size_bytes"]), (&json!("run/41"), &json!(5)));
    assert!(listed["modified_ns"].as_u64().is_some_and(|ns| ns > 0));
    let printed = scene.ok(["item", "ls", "-l", "run/41"]);
    assert!(printed.starts_with("5 B  20") && printed.ends_with("Z  run/41\n"), "{printed}");
    scene.fails(3, ["item", "rm", "run/4/x", "run/none", "run/4/y"]);
    scene.ok(["item", "rm", "-f", "run/4/x"]);
    assert_eq!(scene.json(["item", "rm", "run/41"]), [json!({ "item": "run/41" })]);
    assert_eq!(scene.ok(["item", "ls", "run"]), "run/new\\nline\n");
    assert_eq!(scene.ok(["item", "ls", "other"]), "other/4\n");
}

#[test]
fn what_is_missing_or_wrong_has_its_status() {
    let scene = Scene::new();
    for verb in ["put", "get", "stat", "rm"] {
        assert!(scene.fails(3, ["item", verb, "none/x"]).contains("collection=none"));
        assert!(scene.fails(2, ["item", verb, "x"]).contains("COLLECTION/ITEM"));
    }
    scene.fails(3, ["item", "ls", "none"]);
    scene.ok(["collection", "create", "c"]);
    for verb in ["get", "stat", "rm"] {
        assert!(scene.fails(3, ["item", verb, "c/x"]).contains("item=c/x"));
    }
    let long = format!("c/{}", "x".repeat(256));
    for (item, reason) in [("c/", "empty"), (long.as_str(), "256 bytes")] {
        for verb in ["put", "get", "stat", "rm"] {
            assert!(scene.fails(2, ["item", verb, item]).contains(reason));
        }
    }
    assert!(scene.fails(2, ["collection", "create", "a/b"]).contains("no '/'"));
    assert_eq!(scene.ok(["collection", "ls"]), "c\n");
}

#[test]
fn a_put_without_room_leaves_no_item() {
    let scene = Scene::empty();
    scene.ok(["init", "store", "--policy", "none", "--tier", "only=only,capacity=3MB"]);
    scene.ok(["collection", "create", "c"]);
    scene.ok_with(b"old", ["item", "put", "c/note"]);
    scene.file("large", vec![1; 8_000_000]);
    scene.fails(4, ["item", "put", "c/new", "large"]);
    scene.fails(4, ["item", "put", "c/note", "large"]);
    assert_eq!(scene.ok(["item", "ls", "c"]), "c/note\n");
    assert_eq!(scene.ok(["item", "get", "c/note"]), "old");
    let checked = scene.ok(["item", "check", "--older", "0s"]);
    assert_eq!(checked, "1 collection, 1 item: no problems\n");
}

#[test]
fn items_work_through_a_holder() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["collection", "create", "c"]);
    scene.ok_with(b"bytes", ["item", "put", "c/x"]);
    assert_eq!(scene.ok(["item", "get", "c/x"]), "bytes");
    scene.ok(["collection", "rm", "-r", "c"]);
    held.stop();
    assert_eq!(scene.ok(["collection", "ls"]), "");
}

#[test]
fn more_items_than_a_page_are_listed_and_removed() {
    let scene = Scene::new();
    scene.ok(["collection", "create", "c"]);
    let numbers = scene.fill(|store, number| {
        let collection = Items::new(store).open("c")?;
        collection.open(&format!("{number:05}"), &Open::create_new()).map(drop)
    });
    let expected: String = numbers.map(|number| format!("c/{number:05}\n")).collect();
    assert_eq!(scene.ok(["item", "ls", "c"]), expected);
    scene.ok(["collection", "rm", "-r", "c"]);
    assert_eq!(scene.ok(["ls"]), "");
}

#[test]
fn what_an_interruption_left_is_shown_and_removed() {
    let scene = Scene::new();
    scene.ok(["collection", "create", "c"]);
    scene.ok_with(b"bytes", ["item", "put", "c/x"]);
    let address = scene.path("store").display().to_string();
    let store = terrace_store::Store::open(&address).expect("opens");
    // As if whoever made them had died between two steps.
    let key = |name: &str| Key::new("terrace.items", name).expect("legal");
    let collection = Items::new(&store).open("c").expect("there");
    let object = collection.status("x").expect("there").object;
    let (head, _) = object.name().rsplit_once('/').expect("it ends in the name");
    let twin = format!("{}{}/lost", &head[..head.len() - 32], "0".repeat(32));
    for name in ["claim/collection/c", &twin] {
        store.open(&key(name), &Open::create_new()).expect("room");
    }

    drop(collection);
    store.close().expect("closes");
    drop(store);

    let busy = scene.fails(5, ["item", "put", "c/y"]);
    assert!(busy.contains("terrace item check"), "{busy}");
    let young = "1 collection, 1 item: no problems, 2 too young to tell\n";
    assert_eq!(scene.ok(["item", "check", "--repair"]), young);
    let ran = scene.run(["item", "check", "--older", "0s", "--json"]);
    assert_eq!(ran.status, Some(1));
    let report = values(&ran.stdout).remove(0);
    assert_eq!(report["problem_count"], 2);
    let kinds: Vec<_> = report["findings"].as_array().expect("a list").iter().collect();
    assert_eq!((&kinds[0]["kind"], &kinds[1]["kind"]), (&json!("object"), &json!("claim")));
    let repaired = scene.ok(["item", "check", "--older", "0s", "--repair"]);
    assert!(repaired.contains("removed: claim terrace.items/claim/collection/c: "), "{repaired}");
    assert!(repaired.ends_with("1 collection, 1 item: no problems, 2 removed\n"), "{repaired}");
    scene.ok(["item", "put", "c/y"]);
    assert_eq!(scene.ok(["item", "get", "c/x"]), "bytes");
}
