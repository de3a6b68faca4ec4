// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `kv`.

use terrace_core::Persistency;

use crate::scene::Scene;

#[test]
fn pairs_are_written_read_listed_and_removed() {
    let scene = Scene::new();
    scene.ok(["kv", "put", "jobs/7", "running"]);
    scene.ok(["kv", "put", "jobs/8", "-5"]);
    scene.ok_with(b"from a pipe", ["kv", "put", "jobs/9", "-"]);
    scene.ok(["kv", "put", "plain", "x"]);
    assert_eq!(scene.ok(["kv", "get", "jobs/7"]), "running");
    assert_eq!(scene.ok(["kv", "get", "jobs/9"]), "from a pipe");
    assert_eq!(
        scene.ok(["kv", "scan", "jobs"]),
        "jobs/7\trunning\njobs/8\t-5\njobs/9\tfrom a pipe\n"
    );
    assert_eq!(scene.ok(["kv", "scan", "jobs/8"]), "jobs/8\t-5\n");
    assert_eq!(scene.ok(["kv", "scan"]), "default/plain\tx\n");
    scene.fails(3, ["kv", "rm", "jobs/7", "nope", "jobs/8"]);
    scene.ok(["kv", "rm", "-f", "jobs/7"]);
    assert_eq!(scene.ok(["kv", "scan", "jobs"]), "jobs/9\tfrom a pipe\n");
    assert!(scene.fails(3, ["kv", "get", "jobs/7"]).contains("jobs/7"));
}

#[test]
fn pairs_are_apart_from_objects() {
    let scene = Scene::new();
    scene.ok_with(b"object", ["put", "a/x"]);
    scene.ok(["kv", "put", "a/x", "pair"]);
    assert_eq!(scene.ok(["get", "a/x"]), "object");
    scene.ok(["rm", "a/x"]);
    assert_eq!(scene.ok(["kv", "get", "a/x"]), "pair");
    assert_eq!(scene.ok(["ls"]), "");
}

#[test]
fn pairs_are_printed_as_json() {
    let scene = Scene::new();
    let put = scene.json(["kv", "put", "a/x", "v\n"]);
    assert_eq!(put, [serde_json::json!({ "key": "a/x", "size_bytes": 2 })]);
    scene.ok_with(&[0xff, 0x00], ["kv", "put", "a/y", "-"]);
    let text = serde_json::json!({ "namespace": "a", "key": "a/x", "value": "v\n" });
    let bytes = serde_json::json!({ "namespace": "a", "key": "a/y", "value_hex": "ff00" });
    assert_eq!(scene.json(["kv", "scan", "a"]), [text.clone(), bytes]);
    assert_eq!(scene.json(["kv", "get", "a/x"]), [text]);
    assert_eq!(scene.json(["kv", "rm", "a/x"]), [serde_json::json!({ "key": "a/x" })]);
}

#[test]
fn pairs_are_listed_over_page_borders() {
    let scene = Scene::new();
    let keys = scene.fill(|store, number| {
        let name = format!("{number:05}");
        store.kv_put("n", name.as_bytes(), b"", Persistency::None)
    });
    let printed = scene.ok(["kv", "scan", "n"]);
    let expected: String = keys.map(|number| format!("n/{number:05}\t\n")).collect();
    assert_eq!(printed, expected);
}

#[test]
fn a_value_that_is_too_long_is_refused() {
    let scene = Scene::new();
    let ran = scene.run_with(&vec![0; (16 << 20) + 1], ["kv", "put", "a/x", "-"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    scene.fails(3, ["kv", "get", "a/x"]);
    scene.fails(2, ["kv", "put", &"x".repeat(10_000), "v"]);
}
