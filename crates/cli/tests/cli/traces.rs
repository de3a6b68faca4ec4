// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `trace`: recording, looking at it, and passing it on.

use serde_json::Value;

use crate::scene::{Scene, piped, signal, values};

/// The records of a trace that satisfy a filter.
fn shown<'a>(scene: &Scene, filter: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
    scene.json(["trace", "show"].into_iter().chain(filter))
}

fn of_kind<'v>(records: &'v [Value], kind: &str) -> Vec<&'v Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

#[test]
fn a_held_store_is_recorded_until_it_is_stopped() {
    let scene = Scene::new();
    scene.ok_with(b"before", ["put", "run/before"]);
    let held = scene.hold();
    let begun = &scene.json(["trace", "record"])[0]["recording"];
    assert_eq!(begun["is_running"], true);
    assert!(begun["directory"].as_str().expect("a path").ends_with("/store/trace"));
    let refused = scene.fails(5, ["trace", "record"]);
    assert!(refused.contains("one is recorded already"), "{refused}");
    scene.ok_with(b"hello", ["put", "run/a"]);
    scene.ok(["get", "run/before"]);
    scene.ok(["migrate", "run/a", "--to", "slow"]);
    scene.ok(["rm", "run/a"]);
    assert!(scene.ok(["trace", "status"]).contains(": recording\n"));
    let ended = &scene.json(["trace", "stop"])[0]["recording"];
    assert_eq!((&ended["is_running"], &ended["failure"]), (&false.into(), &Value::Null));
    assert!(scene.fails(3, ["trace", "stop"]).contains("none is recorded"));
    assert!(scene.ok(["trace", "status"]).contains("not recording; the last one ended"));

    let records = shown(&scene, []);
    assert_eq!(records.len() as u64, ended["records"].as_u64().expect("a number"));
    let writes = of_kind(&records, "write");
    assert_eq!(writes.len(), 1, "{records:?}");
    assert_eq!((&writes[0]["key"], &writes[0]["tier"]), (&"run/a".into(), &"fast".into()));
    assert_eq!((&writes[0]["length_bytes"], &writes[0]["count"]), (&5.into(), &1.into()));
    let moved = of_kind(&records, "moved");
    assert_eq!((moved.len(), &moved[0]["tier"]), (1, &"slow".into()));
    assert_eq!(of_kind(&records, "delete").len(), 1);
    let reads = shown(&scene, ["--object", "run/before", "--kind", "read"]);
    assert!(!reads.is_empty() && reads.iter().all(|read| read["key"] == "run/before"));
    assert_eq!(shown(&scene, ["--limit", "2"]), records[..2]);
    held.stop();
    assert_eq!(shown(&scene, []), records, "it is there when nobody holds the store");
}

#[test]
fn a_span_of_time_is_as_it_is_shown() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["trace", "record"]);
    for name in ["a", "b", "c", "d"] {
        scene.ok_with(b"x", ["put", name]);
    }
    scene.ok(["trace", "stop"]);
    held.stop();
    let text = scene.ok(["trace", "show", "--kind", "create"]);
    let times: Vec<_> =
        text.lines().map(|line| line.split("Z  ").next().expect("a time")).collect();
    assert_eq!(times.len(), 4, "{text}");
    let keys = |filter: &[&str]| -> Vec<String> {
        let found = shown(&scene, ["--kind", "create"].into_iter().chain(filter.iter().copied()));
        found.iter().map(|record| record["key"].as_str().expect("a text").into()).collect()
    };
    assert_eq!(keys(&["--from", times[1], "--until", times[2]]), ["default/b", "default/c"]);
    assert_eq!(keys(&["--from", "1h"]).len(), 4);
    assert_eq!(keys(&["--until", "1h"]), [] as [&str; 0]);
    assert!(scene.fails(2, ["trace", "show", "--from", "soon"]).contains("a time such as"));
    scene.fails(2, ["trace", "show", "--kind", "nothing"]);
}

#[test]
fn a_store_that_nobody_holds_is_held_and_recorded_for_a_time() {
    let scene = Scene::with_policy();
    let ran = scene.ok(["trace", "record", "--for", "10ms", "--to", "elsewhere", "--decisions"]);
    assert!(ran.contains("holding the store and recording"), "{ran}");
    assert!(ran.contains("with the policy's inputs and decisions"), "{ran}");
    let records = shown(&scene, ["elsewhere"]);
    let start = of_kind(&records, "policy")[0];
    assert_eq!((&start["name"], &start["cause"]), (&"lru".into(), &"start".into()));
    assert_eq!(start["parameters"]["max_bytes"], "256MiB");
    assert!(!of_kind(&records, "round").is_empty(), "each is asked for a plan");
    assert!(scene.fails(3, ["trace", "show"]).contains("there is none"));
}

#[test]
fn ctrl_c_ends_a_recording_as_it_should() {
    let scene = Scene::new();
    let mut child = piped(&mut scene.command(["trace", "record"]));
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("it is a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("reads");
    assert!(line.contains("Ctrl-C ends it"), "{line}");
    // Others go through it meanwhile.
    scene.ok_with(b"hello", ["put", "run/a"]);
    signal(&child, rustix::process::Signal::INT);
    assert!(child.wait().expect("it ends").success());
    assert_eq!(of_kind(&shown(&scene, []), "write").len(), 1);
}

#[test]
fn a_configured_trace_is_recorded_whenever_the_store_is_open() {
    let scene = Scene::new();
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("UTF-8");
    scene.file("store/terrace.toml", settings + "\n[trace]\npath = \"log\"\nhash_names = true\n");
    scene.ok_with(b"hello", ["put", "secret/name"]);
    scene.ok_with(b"hello", ["put", "secret/name"]);
    let records = shown(&scene, []);
    // The second put replaces the first one's object.
    assert_eq!(of_kind(&records, "create").len(), 2);
    let writes = of_kind(&records, "write");
    assert_eq!(writes.len(), 2);
    assert!(writes[0]["key"].as_str().expect("a text").starts_with("hashed/"));
    assert_ne!(writes[0]["key"], writes[1]["key"], "each opening has its own hash");
    for file in ["000001.trace", "000002.trace"] {
        let bytes = scene.read(&format!("store/log/{file}"));
        assert!(!bytes.windows(6).any(|window| window == b"secret"), "{file}");
    }
    assert_eq!(shown(&scene, ["--object", "secret/name"]), [] as [Value; 0]);
}

#[test]
fn a_trace_goes_to_a_directory_of_its_own() {
    let scene = Scene::new();
    let held = scene.hold();
    let inside = scene.fails(2, ["trace", "record", "--to", "fast/x"]);
    assert!(inside.contains("is inside that of tier \"fast\""), "{inside}");
    scene.fails(2, ["trace", "record", "--max-size", "1MB"]);
    scene.fails(2, ["trace", "record", "--hash-names", "--decisions"]);
    assert_eq!(scene.ok(["trace", "status"]), "not recording\n");
    held.stop();
}

#[test]
fn a_trace_is_passed_on_as_csv_and_json() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["trace", "record"]);
    scene.ok_with(b"hello", ["put", "run/with, comma"]);
    scene.ok(["trace", "stop"]);
    held.stop();
    let csv = scene.ok(["trace", "export", "--format", "csv"]);
    let heading = csv.lines().next().expect("a heading");
    assert!(heading.starts_with("time_ns,kind,object_id,key,segment,"), "{heading}");
    let write = csv.lines().find(|line| line.contains(",write,")).expect("it was written");
    assert!(write.contains(",\"run/with, comma\",0,0,fast,0,5,"), "{write}");
    let json = scene.ok(["trace", "export", "--format", "jsonl"]);
    assert_eq!(values(&json), shown(&scene, []));
    let said = scene.ok(["trace", "export", "--format", "csv", "--output", "out.csv"]);
    assert_eq!(said, format!("{} records in out.csv\n", csv.lines().count() - 1));
    assert_eq!(scene.read("out.csv"), csv.into_bytes());
    scene.fails(2, ["trace", "export"]);
}

#[test]
fn damage_is_told_and_the_rest_is_shown() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["trace", "record"]);
    scene.ok_with(b"hello", ["put", "run/a"]);
    scene.ok(["trace", "stop"]);
    scene.ok(["trace", "record"]);
    scene.ok_with(b"hello", ["put", "run/b"]);
    scene.ok(["trace", "stop"]);
    held.stop();
    let summary = &scene.json(["trace", "show", "--summary"])[0];
    assert_eq!((&summary["files"], &summary["problems"]), (&2.into(), &Value::Array(vec![])));
    let first = "store/trace/000001.trace";
    let whole = scene.read(first);
    // Without its index the file ends like one whose writer was killed.
    scene.file(first, &whole[..whole.len() - 20]);
    let ran = scene.run(["trace", "show", "--kind", "write"]);
    assert_eq!((ran.status, ran.stdout.lines().count()), (Some(0), 2), "{ran:?}");
    assert!(ran.stderr.contains("note: it was not ended"), "{ran:?}");
    let mut damaged = whole.clone();
    let at = whole.windows(5).position(|window| window == b"run/a").expect("the name is there");
    damaged[at] ^= 1;
    scene.file(first, &damaged);
    let ran = scene.run(["trace", "show", "--kind", "write"]);
    assert_eq!((ran.status, ran.stdout.lines().count()), (Some(8), 2), "{ran:?}");
    assert!(ran.stdout.contains("run/b") && !ran.stdout.contains("run/a"), "{ran:?}");
    assert!(ran.stderr.contains("a damaged part is left out"), "{ran:?}");
    let text = scene.run(["trace", "show", "--summary"]).stdout;
    assert!(text.contains("write") && text.contains("fast"), "{text}");
}
