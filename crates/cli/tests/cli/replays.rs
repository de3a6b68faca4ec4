// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `replay`: what caches would have made of a trace.

use serde_json::Value;

use crate::scene::Scene;

/// Five requests: with room for two objects, LRU misses 1, 2, 3, and 2 again.
const TRACE: &str = "id,size\n1,10\n2,20\n1,10\n3,30\n2,20\n";

fn with_trace() -> Scene {
    let scene = Scene::empty();
    scene.file("trace.csv", TRACE);
    scene
}

fn replay(scene: &Scene, more: &[&str]) -> Value {
    let first = ["replay", "trace.csv", "--model", "cache"];
    scene.json(first.into_iter().chain(more.iter().copied())).remove(0)
}

#[test]
fn one_cache_is_one_object() {
    let scene = with_trace();
    let found = replay(&scene, &["--policy", "lru", "--capacity", "2obj", "--ignore-size"]);
    assert_eq!((&found["requests"], &found["objects"]), (&5.into(), &3.into()));
    assert_eq!((&found["misses"], &found["bytes_missed"]), (&4.into(), &80.into()));
    assert_eq!((&found["policy"], &found["capacity_objects"]), (&"lru".into(), &2.into()));
    let sized = replay(&scene, &["--policy", "lru", "--capacity", "60B"]);
    assert_eq!((&sized["misses"], &sized["bytes_missed"]), (&3.into(), &60.into()));
}

#[test]
fn several_caches_are_a_list() {
    let scene = with_trace();
    let found = replay(&scene, &["--policy", "fifo,belady", "--capacity", "1obj,2obj,1kB"]);
    let replays = found["replays"].as_array().expect("a list");
    let misses: Vec<_> = replays.iter().filter_map(|one| one["misses"].as_u64()).collect();
    assert_eq!(misses, [5, 5, 3, 3, 3, 3]);
    assert_eq!(found["format"], "csv");
}

#[test]
fn people_get_a_table() {
    let scene = with_trace();
    let text = scene
        .ok("replay trace.csv --model cache --policy lru,sieve --capacity 2obj".split_whitespace());
    assert!(text.starts_with("trace.csv (csv): 5 requests for 3 objects, 90 B\n\n"), "{text}");
    assert!(text.contains("\nlru         2obj       4      80.00 %"), "{text}");
}

#[test]
fn what_cannot_be_replayed_says_why() {
    let scene = with_trace();
    scene.file("cut.csv", "id,size\n1,10\n2\n");
    scene.file("odd", [0, 1, 2]);
    for (status, trace, more, why) in [
        (2, "trace.csv", "--policy lru --capacity 1000", "1000obj"),
        (2, "trace.csv", "--policy lru --capacity 1kB --ignore-size", "leave out --ignore-size"),
        (2, "trace.csv", "--policy lru --capacity 1obj --columns id=nothing", "no column nothing"),
        (2, "trace.csv", "--policy wrong --capacity 1obj", "s3-fifo"),
        (2, "odd", "--policy lru --capacity 1obj", "not recognised"),
        (3, "nothing", "--policy lru --capacity 1obj", "file=nothing"),
        (8, "cut.csv", "--policy lru --capacity 1obj", "file=cut.csv line=3"),
        (8, "trace.csv", "--policy lru --capacity 1obj --format lcs", "file=trace.csv"),
    ] {
        let words = format!("replay {trace} --model cache {more}");
        let said = scene.fails(status, words.split_whitespace());
        assert!(said.contains(why), "{words}: {said}");
    }
}

#[test]
fn a_recorded_store_is_replayed() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["trace", "record"]);
    for name in ["a", "b", "a"] {
        scene.ok_with(b"hello", ["put", name]);
        scene.ok(["get", name]);
    }
    scene.ok(["trace", "stop"]);
    held.stop();
    let words = "replay store/trace --model cache --policy lru --capacity 1kB";
    let found = scene.json(words.split_whitespace()).remove(0);
    assert_eq!((&found["format"], &found["misses"]), (&"terrace".into(), &found["objects"]));
    assert!(found["requests"].as_u64() > found["objects"].as_u64(), "{found}");
}
