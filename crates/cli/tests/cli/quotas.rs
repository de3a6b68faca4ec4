// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `quota`.

use serde_json::json;

use crate::scene::Scene;

#[test]
fn a_quota_is_set_shown_kept_and_cleared() {
    let scene = Scene::new();
    scene.ok_with(&[7; 3000], ["put", "run/1"]);
    let set = scene.json(["quota", "set", "run", "--bytes", "5kB", "--objects", "2"]);
    let limited = json!({
        "namespace": "run", "bytes": 3000, "bytes_max": 5000, "objects": 1, "objects_max": 2
    });
    assert_eq!(set[0]["quotas"], json!([limited]));
    scene.ok_with(b"other", ["put", "other/1"]);
    let shown = scene.json(["quota", "show"]);
    assert_eq!(shown[0]["quotas"][0]["namespace"], "other");
    assert_eq!(shown[0]["quotas"][0]["bytes_max"], json!(null));
    assert_eq!(shown[0]["quotas"][1], limited);
    assert_eq!(scene.json(["quota", "show", "run"])[0]["quotas"], json!([limited]));
    scene.ok(["quota", "set", "run", "--bytes", "4kB"]);
    let table = scene.ok(["quota", "show", "run"]);
    assert!(
        table.contains("3.00 kB") && table.contains("4.00 kB") && table.contains(" 2 "),
        "{table}"
    );
    scene.ok(["quota", "clear", "run"]);
    scene.fails(3, ["quota", "clear", "run"]);
    scene.fails(3, ["quota", "show", "nobody"]);
    scene.fails(2, ["quota", "set", "run"]);
    scene.fails(2, ["quota", "set", "run", "--bytes", "many"]);
}

#[test]
fn what_a_quota_refuses_says_so_also_through_the_holder() {
    let scene = Scene::new();
    scene.file("large", [7; 3000]);
    scene.ok(["quota", "set", "run", "--bytes", "5kB", "--objects", "2"]);
    for is_held in [false, true] {
        let held = is_held.then(|| scene.hold());
        scene.ok(["put", "run/1", "large"]);
        let error = scene.fails(4, ["put", "run/2", "large"]);
        assert!(error.contains("quota of bytes") && error.contains("limit=5000"), "{error}");
        scene.ok_with(b"small", ["put", "run/2"]);
        let error = scene.fails(4, ["put", "run/3", "large"]);
        assert!(error.contains("quota of objects") && error.contains("limit=2"), "{error}");
        scene.ok(["rm", "-r", "run"]);
        scene.ok(["fsck"]);
        if let Some(held) = held {
            held.stop();
        }
    }
}
