// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trace convert`, `trace cut`, and `trace show` of what other programs wrote.

use std::io::Write;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Scene, finish, piped, signal};

/// Ten seconds of two objects, of which the second is written.
fn with_trace() -> Scene {
    let scene = Scene::empty();
    let rows = (0..10).map(|second| {
        let (object, word) = [(7, "read"), (8, "write")][second % 2];
        format!("{second},{object},100,{word}\n")
    });
    let rows: String = rows.collect();
    scene.file("trace.csv", format!("time,id,size,op\n{rows}"));
    scene
}

fn json(scene: &Scene, words: &str) -> Value {
    scene.json(words.split_whitespace()).remove(0)
}

#[test]
fn a_trace_goes_through_every_format() {
    let scene = with_trace();
    let replay = |trace: &str| {
        let words = format!("replay {trace} --model cache --policy lru,fifo --capacity 1obj,150B");
        json(&scene, &words)["replays"].clone()
    };
    let mut from = "trace.csv";
    for (to, path) in [("terrace", "own"), ("oracleGeneral", "oracle.bin"), ("csv", "again.csv")] {
        let found = json(&scene, &format!("trace convert {from} --to {to} --output {path}"));
        assert_eq!((&found["read"], &found["written"]), (&10.into(), &10.into()));
        assert_eq!((&found["format"], &found["file"]), (&to.into(), &path.into()));
        assert_eq!(replay(path), replay("trace.csv"), "{to}");
        from = path;
    }
    let again = scene.fails(6, "trace convert own --to csv --output again.csv".split(' '));
    assert!(again.contains("file=again.csv"), "{again}");
}

#[test]
fn a_trace_may_come_from_standard_input() {
    let scene = with_trace();
    let (text, scene_ref) = (scene.read("trace.csv"), &scene);
    let from = |input: &[u8], words: &str| {
        let mut words: Vec<_> = words.split(' ').collect();
        words.insert(0, "--json");
        let ran = scene_ref.run_with(input, words);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        serde_json::from_str::<Value>(&ran.stdout).expect("JSON")
    };
    let cache = |trace: &str| format!("replay {trace} --model cache --policy lru --capacity 1obj");
    let replays = json(&scene, &cache("trace.csv"))["replays"].clone();
    assert_eq!(from(&text, &cache("-"))["replays"], replays);
    let found = from(&text, "trace convert - --to oracleGeneral --output o.oracleGeneral");
    assert_eq!(found["written"], 10);
    // What is in it is recognised, and it is read as often as need be.
    let packed = scene.read("o.oracleGeneral");
    assert_eq!(from(&packed, &cache("-"))["replays"], replays);
    assert_eq!(from(&text, "trace show -"), json(&scene, "trace show trace.csv"));
    let cut = from(&text, "trace cut - --from 2s --until 5s --output window.csv");
    assert_eq!((&cut["read"], &cut["written"]), (&10.into(), &3.into()));
    scene.ok(["init", "store", "--tier", "fast=fast,capacity=1MB"]);
    let timed = "replay - --policy pinned";
    assert_eq!(from(&text, timed)["trace"], "standard input");
    let nothing = scene.run_with(b"", cache("-").split(' '));
    assert_eq!(nothing.status, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("it is empty file=standard input"), "{nothing:?}");
}

#[test]
fn parts_are_cut_out() {
    let scene = with_trace();
    let window = "trace cut trace.csv --from 2s --until 5s --output window.csv";
    assert_eq!(scene.ok(window.split(' ')), "3 requests of 10 in window.csv (csv)\n");
    let sample = json(&scene, "trace cut trace.csv --sample 0.5 --seed 3 --output sample.csv");
    assert!([0, 5, 10].contains(&sample["written"].as_u64().expect("a number")), "{sample}");
    let nothing = scene.fails(2, "trace cut trace.csv --output all.csv".split(' '));
    assert!(nothing.contains("--from, --until or --sample"), "{nothing}");
    scene.fails(2, "trace cut trace.csv --sample 2 --output all.csv".split(' '));
    let backwards = "trace cut trace.csv --from 5s --until 2s --output all.csv";
    let backwards = scene.fails(2, backwards.split(' '));
    assert!(backwards.contains("later than --from from=5s until=2s"), "{backwards}");
    assert!(!scene.path("all.csv").exists());
}

#[test]
fn a_trace_of_another_program_is_summed_up() {
    let scene = with_trace();
    let load = json(&scene, "trace show trace.csv")["load"].clone();
    for (what, count, bytes) in
        [("requests", 10, 1000), ("reads", 5, 500), ("writes", 5, 500), ("objects", 2, 200)]
    {
        assert_eq!((&load[what]["count"], &load[what]["bytes"]), (&count.into(), &bytes.into()));
    }
    assert_eq!(load["reuse_distances_objects"], serde_json::json!([[2, 8]]));
    assert_eq!(load["reuse_distances_bytes"], serde_json::json!([[256, 8]]));
    let windows = load["windows"].as_array().expect("a list");
    assert_eq!(windows.iter().filter_map(|one| one["requests"].as_u64()).sum::<u64>(), 10);
    let text = scene.ok(["trace", "show", "trace.csv", "--summary"]);
    assert!(text.starts_with("trace.csv (csv)\n10 requests over 9.00 s\n"), "{text}");
    assert!(text.contains("8 requests (80.0 %) ask again"), "{text}");
    let refused = scene.fails(2, "trace show trace.csv --kind read".split(' '));
    assert!(refused.contains("terrace trace cut"), "{refused}");
    let refused = scene.fails(2, "trace export trace.csv --format csv".split(' '));
    assert!(refused.contains("terrace trace convert"), "{refused}");
}

#[test]
fn the_summary_of_a_recorded_trace_has_its_load() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["trace", "record"]);
    scene.ok_with(b"hello", ["put", "a"]);
    scene.ok(["get", "a"]);
    scene.ok(["trace", "stop"]);
    held.stop();
    let summary = json(&scene, "trace show --summary");
    assert_eq!(summary["load"]["objects"], serde_json::json!({"count": 1, "bytes": 5}));
    assert!(scene.ok(["trace", "show", "--summary"]).contains("\nworking set\n"));
    let part = json(&scene, "trace show --summary --kind read");
    assert_eq!(part["load"], Value::Null, "it is not the whole");
}

#[test]
fn an_interrupted_conversion_leaves_nothing() {
    let scene = Scene::empty();
    let words = "trace convert /dev/stdin --format csv --to csv --output whole.csv".split(' ');
    let mut child = piped(scene.command(words).stdin(Stdio::piped()));
    let stdin = child.stdin.as_mut().expect("it is a pipe");
    stdin.write_all(b"time,id,size\n").expect("the child reads");
    // More than a pipe holds: some of it was read.
    stdin.write_all(&b"1,2,3\n".repeat(100_000)).expect("the child reads");
    signal(&child, Signal::INT);
    let ran = finish(child);
    assert_eq!(ran.signal, Some(2), "{ran:?}");
    assert_eq!(ran.stderr, "terrace: interrupted: nothing was written\n");
    assert_eq!(std::fs::read_dir(scene.path(".")).expect("it is there").count(), 0);
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let scene = Scene::new();
    scene.file("trace.csv", "id,size\n1,10\n");
    for words in [
        "trace show .",
        "trace convert . --to csv --output nothing.csv",
        "replay . --model cache --policy lru --capacity 1obj",
    ] {
        let error = scene.fails(2, words.split(' '));
        assert!(error.contains("000001.trace"), "{words}: {error}");
    }
}

#[test]
fn a_cut_of_a_recorded_trace_keeps_its_names() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["trace", "record", "--to", "recorded"]);
    scene.ok_with(b"hello", ["put", "run/a"]);
    scene.ok(["get", "run/a"]);
    scene.ok(["rm", "run/a"]);
    scene.ok(["trace", "stop"]);
    held.stop();
    let kinds = |trace: &str| {
        let lines = scene.json(["trace", "show", trace, "--object", "run/a"]);
        let kind = |line: &Value| (line["kind"].clone(), line["latency_ns"].clone());
        lines.iter().map(kind).collect::<Vec<_>>()
    };
    scene.ok("trace cut recorded --until 100s --output cut".split(' '));
    assert!(kinds("cut").len() > 3);
    assert_eq!(kinds("cut"), kinds("recorded"));
}
