// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `put`, `get`, `ls`, `stat` and `rm`.

use terrace_core::{Backend, Key, Open};

use crate::scene::{Scene, values};

#[test]
fn what_was_put_is_got() {
    let scene = Scene::new();
    let content: Vec<u8> = (0..3_000_001u32).map(|i| i.wrapping_mul(i) as u8).collect();
    scene.file("in", &content);
    scene.ok(["put", "run/a", "in"]);
    scene.ok(["get", "run/a", "out"]);
    assert_eq!(scene.read("out"), content);
    scene.ok_with(&content, ["put", "run/b"]);
    scene.ok_with(&content, ["put", "run/c", "-"]);
    assert_eq!(scene.command(["get", "run/b"]).output().expect("runs").stdout, content);
    assert_eq!(scene.json(["stat", "run/c"])[0]["size_bytes"], 3_000_001);
}

#[test]
fn a_put_replaces_longer_and_shorter_content() {
    let scene = Scene::new();
    for content in ["first, long", "second", "the third is the longest", ""] {
        scene.ok_with(content.as_bytes(), ["put", "note"]);
        assert_eq!(scene.ok(["get", "note"]), content);
    }
    scene.fails(6, ["put", "--new", "note"]);
    scene.ok(["put", "--new", "another"]);
}

#[test]
fn put_and_get_report_as_json() {
    let scene = Scene::new();
    scene.file("in", "hello");
    let put = scene.json(["put", "run/a", "in"]);
    assert_eq!(put, [serde_json::json!({ "key": "run/a", "size_bytes": 5 })]);
    let got = scene.json(["get", "run/a", "out"]);
    assert_eq!(got, [serde_json::json!({ "key": "run/a", "size_bytes": 5, "file": "out" })]);
    assert_eq!(scene.ok(["get", "--json", "run/a"]), "hello");
}

#[test]
fn a_full_local_disk_is_not_taken_for_a_full_tier() {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "run/a"]);
    let said = scene.fails(4, ["get", "run/a", "/dev/full"]);
    let expected = "terrace: cannot write the file: no space left on the local disk file=/dev/full: \
                    No space left on device (os error 28)";
    assert_eq!(said, expected);
}

#[test]
fn any_legal_name_is_stored_and_listed_as_it_is() {
    let scene = Scene::new();
    let long = format!("run/{}", "ü".repeat(200));
    let names = [
        "run/../../etc/passwd",
        "run//a",
        "run/.",
        "run/..",
        "run/a\nb\u{1b}[31m",
        "run/日本 語",
        &long,
    ];
    for name in names {
        scene.ok_with(name.as_bytes(), ["put", name]);
    }
    for name in names {
        assert_eq!(scene.ok(["get", name]), name);
    }
    let mut expected = names.to_vec();
    expected.sort_unstable();
    let listed = scene.json(["ls", "run"]);
    let listed: Vec<_> = listed.iter().map(|value| value["key"].as_str().expect("text")).collect();
    assert_eq!(listed, expected);
    // For people, a name stays on its line and cannot steer the terminal.
    let printed = scene.ok(["ls", "run"]);
    assert_eq!(printed.lines().count(), names.len());
    assert!(printed.contains("run/a\\nb\\u{1b}[31m"), "{printed}");
    assert!(!scene.path("etc").exists());
}

#[test]
fn an_illegal_name_is_refused_with_the_reason() {
    let scene = Scene::new();
    let long = "x".repeat(10_000);
    for (name, reason) in [(long.as_str(), "10000 bytes"), ("", "empty"), ("run/", "empty")] {
        for verb in ["put", "get", "stat", "rm", "explain"] {
            let error = scene.fails(2, [verb, name]);
            assert!(error.contains(reason) && error.len() < 400, "{error}");
        }
    }
    assert!(scene.fails(2, ["put", "/name"]).contains("empty"));
    assert_eq!(scene.ok(["ls"]), "");
}

#[test]
fn a_missing_object_has_its_own_status() {
    let scene = Scene::new();
    for arguments in
        [&["get", "nope"][..], &["stat", "nope"], &["explain", "nope"], &["rm", "nope"]]
    {
        assert!(scene.fails(3, arguments).contains("default/nope"), "{arguments:?}");
    }
    let ran = scene.run(["get", "nope", "--json"]);
    assert_eq!(ran.status, Some(3));
    let error = &values(&ran.stderr)[0]["error"];
    assert_eq!(error["kind"], "not-found");
    assert!(error["message"].as_str().expect("text").starts_with("cannot "));
}

#[test]
fn a_failed_get_leaves_the_file_as_it_was() {
    let scene = Scene::new();
    scene.file("out", "precious");
    scene.fails(3, ["get", "nope", "out"]);
    assert_eq!(scene.read("out"), b"precious");
    assert_eq!(scene.files(".").iter().filter(|name| name.contains("partial")).count(), 0);
}

#[test]
fn a_put_that_cannot_read_changes_nothing() {
    let scene = Scene::new();
    scene.ok_with(b"old", ["put", "note"]);
    scene.fails(3, ["put", "note", "missing"]);
    scene.fails(2, ["put", "note", "."]);
    assert_eq!(scene.ok(["get", "note"]), "old");
}

#[test]
fn a_put_without_room_leaves_no_new_object_and_keeps_an_old_one() {
    let scene = Scene::empty();
    scene.ok(["init", "store", "--policy", "none", "--tier", "only=only,capacity=3MB"]);
    scene.ok_with(b"old", ["put", "note"]);
    scene.file("large", vec![1; 8_000_000]);
    scene.fails(4, ["put", "new", "large"]);
    scene.fails(4, ["put", "note", "large"]);
    // Nothing says beforehand how long this is.
    let streamed = scene.run_with(&vec![1; 8_000_000], ["put", "note"]);
    assert_eq!(streamed.status, Some(4), "{streamed:?}");
    assert_eq!(scene.ok(["ls"]), "default/note\n");
    assert_eq!(scene.ok(["get", "note"]), "old");
    // The room that the failed puts took is free again.
    scene.ok_with(&[2; 2_000_000], ["put", "fits"]);
}

#[test]
fn a_full_tier_spills_to_the_next() {
    let scene = Scene::new();
    scene.ok_with(&[1; 900_000], ["put", "run/a"]);
    scene.ok_with(&[2; 900_000], ["put", "run/b"]);
    let tier = |key| scene.json(["stat", key])[0]["tiers"].clone();
    assert_eq!(tier("run/a"), serde_json::json!(["fast"]));
    assert!(tier("run/b").as_array().expect("a list").contains(&"slow".into()));
}

#[test]
fn ls_lists_namespaces_and_prefixes() {
    let scene = Scene::new();
    for key in ["b/x", "a/41", "a/4/z", "a/5", "plain"] {
        scene.ok(["put", key]);
    }
    assert_eq!(scene.ok(["ls"]), "a/4/z\na/41\na/5\nb/x\ndefault/plain\n");
    assert_eq!(scene.ok(["ls", "a"]), "a/4/z\na/41\na/5\n");
    assert_eq!(scene.ok(["ls", "a/4"]), "a/4/z\na/41\n");
    assert_eq!(scene.ok(["ls", "a/4/"]), "a/4/z\n");
    assert_eq!(scene.ok(["ls", "nothing"]), "");
    scene.fails(2, ["ls", "/a"]);
}

#[test]
fn objects_are_listed_over_page_borders() {
    let scene = Scene::new();
    let keys = scene.fill(|store, number| {
        let key = Key::new("n", &format!("{number:05}"))?;
        store.open(&key, &Open::create_new()).map(drop)
    });
    let expected: String = keys.map(|number| format!("n/{number:05}\n")).collect();
    assert_eq!(scene.ok(["ls"]), expected);
    let removed = scene.json(["rm", "-r", "n"]);
    assert_eq!(removed.len(), expected.lines().count());
    assert_eq!(scene.ok(["ls"]), "");
}

#[test]
fn ls_long_shows_size_and_tier() {
    let scene = Scene::new();
    scene.ok_with(&[0; 1500], ["put", "a/x"]);
    let printed = scene.ok(["ls", "-l", "a"]);
    assert!(printed.starts_with("1.50 kB  fast  20"), "{printed}");
    assert!(printed.ends_with("Z  a/x\n"), "{printed}");
    let value = &scene.json(["ls", "-l", "a"])[0];
    assert_eq!(value["key"], "a/x");
    assert_eq!(value["size_bytes"], 1500);
    assert_eq!(value["tiers"], serde_json::json!(["fast"]));
    assert!(value["modified_ns"].as_u64().is_some_and(|ns| ns > 0));
    assert_eq!(value["is_pinned"], false);
}

#[test]
fn stat_shows_what_is_known() {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "a/x"]);
    let printed = scene.ok(["stat", "a/x"]);
    for line in ["key          a/x", "size         5 B", "tiers        fast", "pinned       no"] {
        assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
    }
    let value = &scene.json(["stat", "a/x"])[0];
    for (name, expected) in [("key", "a/x"), ("persistency", "process")] {
        assert_eq!(value[name], expected);
    }
    for number in ["size_bytes", "allocated_bytes", "created_ns", "modified_ns", "segments"] {
        assert!(value[number].is_u64(), "{number}");
    }
}

#[test]
fn rm_removes_what_it_can() {
    let scene = Scene::new();
    for key in ["a/1", "a/2", "b/1"] {
        scene.ok(["put", key]);
    }
    scene.fails(3, ["rm", "a/1", "nope", "a/2"]);
    assert_eq!(scene.ok(["ls"]), "b/1\n");
    scene.ok(["rm", "-f", "nope", "b/1"]);
    assert_eq!(scene.ok(["ls"]), "");
}

#[test]
fn rm_recursive_removes_exactly_what_ls_shows() {
    let scene = Scene::new();
    for key in ["a/4/x", "a/4/y", "a/41", "b/4"] {
        scene.ok(["put", key]);
    }
    assert_eq!(scene.ok(["rm", "-r", "--dry-run", "a/4/"]), scene.ok(["ls", "a/4/"]));
    assert_eq!(scene.ok(["ls"]).lines().count(), 4);
    let removed = scene.json(["rm", "-r", "a/4/"]);
    assert_eq!(removed, [serde_json::json!({"key": "a/4/x"}), serde_json::json!({"key": "a/4/y"})]);
    assert_eq!(scene.ok(["ls"]), "a/41\nb/4\n");
    scene.ok(["rm", "-r", "a"]);
    assert_eq!(scene.ok(["ls"]), "b/4\n");
}

#[test]
fn levels_and_hints_are_taken() {
    let scene = Scene::new();
    // The store's own level is the least.
    for (level, kept) in [("none", "process"), ("process", "process"), ("storage", "storage")] {
        scene.ok_with(b"x", ["put", "--persistency", level, "--hint", "cold", level]);
        assert_eq!(scene.json(["stat", level])[0]["persistency"], kept);
    }
    scene.fails(2, ["put", "--persistency", "disk", "x"]);
    scene.fails(2, ["put", "--hint", "tepid", "x"]);
}

#[test]
fn semantics_are_met_or_refused() {
    let scene = Scene::new();
    for semantics in ["posix", "temporary", "ordering=strict", "posix,persistency=storage"] {
        scene.ok_with(b"abc", ["put", "--semantics", semantics, semantics]);
        assert_eq!(scene.ok(["get", semantics]), "abc");
    }
    let level = |name| scene.json(["stat", name])[0]["persistency"].clone();
    assert_eq!(level("posix,persistency=storage"), "storage");
    // The store's own level is the least.
    assert_eq!(level("temporary"), "process");
    // The option of its own comes before the axis.
    scene.ok_with(b"x", ["put", "--semantics", "posix", "--persistency", "storage", "both"]);
    assert_eq!(level("both"), "storage");
    let refused = scene.fails(10, ["put", "--semantics", "atomicity=batch", "x"]);
    assert!(refused.contains("only pairs are changed together"), "{refused}");
    let unknown = scene.fails(2, ["put", "--semantics", "posix,ordering=any", "x"]);
    assert!(unknown.contains("one of relaxed, strict is expected"), "{unknown}");
    assert!(scene.ok(["ls"]).lines().all(|name| name != "x"));
}
