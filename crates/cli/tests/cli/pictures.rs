// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timelines in pages: what their data has, and that it stays small.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::scene::Scene;

/// The data of each timeline of a page.
pub(crate) fn pictures(scene: &Scene, page: &str) -> Vec<Value> {
    let page = String::from_utf8(scene.read(page)).expect("it is text");
    let data = page.split("<script type=\"application/json\">").skip(1);
    let data = data.map(|rest| rest.split_once("</script>").expect("it ends").0);
    data.map(|data| serde_json::from_str(data).expect("it is JSON")).collect()
}

/// The numbers of a column: groups of seven bits in base64; all 0 where there is no text.
pub(crate) fn numbers(head: &Value, column: &str) -> Vec<u64> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let count = head["n"].as_u64().expect("a count") as usize;
    let text = head[column].as_str().expect("a column");
    if text.is_empty() {
        return vec![0; count];
    }
    let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::new());
    for sextet in text.trim_end_matches('=').chars() {
        bits = bits << 6 | ALPHABET.find(sextet).expect("base64") as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    let (mut found, mut number, mut shift) = (Vec::new(), 0, 0);
    for byte in bytes {
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            found.push(number);
            (number, shift) = (0, 0);
        }
    }
    assert_eq!(found.len(), count, "{column}");
    found
}

/// A column of differences.
fn ascending(head: &Value, column: &str) -> Vec<u64> {
    let mut sum = 0;
    let add = |difference| {
        sum += difference;
        sum
    };
    numbers(head, column).into_iter().map(add).collect()
}

/// Marks of one kind, by its number, at the finest level.
pub(crate) fn of_mark(picture: &Value, mark: u64) -> usize {
    let what = numbers(&picture["accesses"][0], "what");
    what.iter().filter(|what| **what % 16 == mark).count()
}

pub(crate) const READ: u64 = 0;
const WRITE: u64 = 1;
const DELETE: u64 = 4;
pub(crate) const DOWN: u64 = 5;
pub(crate) const UP: u64 = 6;

#[test]
fn each_event_of_a_small_trace_is_in_its_page() {
    let scene = Scene::empty();
    let rows = "1,7,1000,read,5\n2,7,1000,write,300\n2,12,500,read,1\n3.5,7,0,delete,0\n";
    scene.file("load.csv", format!("time,id,size,op,latency_us\n{rows}"));
    let found = &scene.json("trace show load.csv --html page.html".split_whitespace())[0];
    let expected = json!({
        "file": "page.html", "events": 4, "objects": 2, "from_ns": 1_000_000_000, "until_ns": 3_500_000_000u64,
        "mark_span_ns": 1, "mark_objects": 1, "marks": 4, "refused_actions": 0,
        "file_bytes": scene.read("page.html").len(),
    });
    assert_eq!(*found, expected);
    // From standard input it is the same.
    let ran = scene
        .run_with(&scene.read("load.csv"), "trace show - --html stdin.html".split_whitespace());
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let pictures_of = |page| pictures(&scene, page);
    assert_eq!(pictures_of("stdin.html"), pictures_of("page.html"));
    let pictures = pictures_of("page.html");
    let [picture] = &pictures[..] else { panic!("one picture") };
    assert_eq!((&picture["span_ns"], &picture["tiers"]), (&2_500_000_000u64.into(), &json!([])));
    assert_eq!(picture["names"]["rest"], json!(["object 7", "12"]));
    let levels = picture["accesses"].as_array().expect("levels");
    let [level] = &levels[..] else { panic!("one level: {levels:?}") };
    assert_eq!(
        (&level["span_ns"], &level["group"], &level["before_ns"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert_eq!(ascending(level, "time"), [0, 1_000_000_000, 1_000_000_000, 2_500_000_000]);
    assert_eq!(numbers(level, "row"), [0, 0, 1, 0]);
    assert_eq!(numbers(level, "what"), [READ, WRITE, READ, DELETE]);
    assert_eq!(numbers(level, "bytes"), [1000, 1000, 500, 0]);
    assert_eq!(numbers(level, "latency"), [5000, 300_000, 1000, 0]);
    assert_eq!(numbers(level, "more"), [0; 4]);
    let lives = &picture["lives"][0];
    assert_eq!((ascending(lives, "row"), numbers(lives, "start")), (vec![0], vec![0]));
    assert_eq!((numbers(lives, "length"), numbers(lives, "tier")), (vec![2_500_000_000], vec![63]));
    let [reads, writes] = [0, 1].map(|index| &picture["waits"][index]);
    assert_eq!(
        (numbers(reads, "most"), numbers(writes, "mean")),
        (vec![5000, 1000], vec![300_000])
    );
    let fill = &picture["fill"][0];
    assert_eq!(
        (ascending(fill, "time"), numbers(fill, "last")),
        (vec![0, 1_000_000_000, 2_500_000_000], vec![1000, 1500, 500])
    );
}

#[test]
fn a_million_events_stay_small_and_keep_counts_and_extremes() {
    const EVENTS: u64 = 1_000_000;
    const OBJECTS: u64 = 20_000;
    let scene = Scene::empty();
    let mut text = String::from("time_us,id,size,op,latency_us\n");
    let mut random = 1u64;
    for at in 0..EVENTS {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let object = (random >> 33) % OBJECTS * ((random >> 20) % OBJECTS) / OBJECTS;
        let (op, latency) =
            if random >> 62 == 0 { ("write", 90 + at % 10) } else { ("read", 10 + at % 50) };
        let latency = if at == 777_777 { 5_000_000 } else { latency };
        writeln!(text, "{},{object},4096,{op},{latency}", at * 100)
            .expect("a string takes everything");
    }
    scene.file("load.csv", text);
    let found = &scene.json("trace show load.csv --html page.html".split_whitespace())[0];
    assert_eq!(found["events"], EVENTS);
    let bytes = found["file_bytes"].as_u64().expect("a size");
    assert!(bytes < 10_000_000, "{bytes}");
    let picture = &pictures(&scene, "page.html")[0];
    let levels = picture["accesses"].as_array().expect("levels");
    assert!(levels.len() > 1);
    for level in levels {
        assert!(level["n"].as_u64() <= Some(1 << 18));
        let more = numbers(level, "more");
        assert_eq!(more.iter().sum::<u64>() + more.len() as u64, EVENTS);
        assert_eq!(numbers(level, "bytes").iter().sum::<u64>(), EVENTS * 4096);
        assert_eq!(numbers(level, "latency").into_iter().max(), Some(5_000_000_000));
    }
    let reads = &picture["waits"][0];
    let writes = &picture["waits"][1];
    assert_eq!(
        [reads, writes]
            .map(|waits| numbers(waits, "count").iter().sum::<u64>())
            .iter()
            .sum::<u64>(),
        EVENTS
    );
    let most = [reads, writes].map(|waits| numbers(waits, "most").into_iter().max());
    assert!(most.contains(&Some(5_000_000_000)), "{most:?}");
}

#[test]
fn a_recorded_store_has_tiers_names_and_migrations_in_both_directions() {
    let scene = Scene::new();
    scene.ok_with(b"before", ["put", "run/before"]);
    let held = scene.hold();
    scene.ok(["trace", "record"]);
    scene.ok_with(b"hello", ["put", "run/a</script>"]);
    scene.ok(["migrate", "run/a</script>", "--to", "slow"]);
    scene.ok(["get", "run/a</script>"]);
    scene.ok(["migrate", "run/a</script>", "--to", "fast"]);
    scene.ok(["migrate", "run/before", "--to", "slow"]);
    scene.ok(["rm", "run/a</script>"]);
    scene.ok(["trace", "stop"]);
    held.stop();
    let said = scene.ok(["trace", "show", "--html", "page.html"]);
    assert!(said.ends_with("events of 2 objects in page.html\n"), "{said}");
    let picture = &pictures(&scene, "page.html")[0];
    let tiers = picture["tiers"].as_array().expect("tiers");
    let tiers: Vec<_> = tiers.iter().map(|tier| (&tier["name"], &tier["colour"])).collect();
    assert_eq!(tiers, [(&"fast".into(), &0.into()), (&"slow".into(), &1.into())]);
    assert_eq!(picture["names"]["rest"][0], "run/a</script>");
    assert_eq!((of_mark(picture, DOWN), of_mark(picture, UP), of_mark(picture, DELETE)), (2, 1, 1));
    let moves = &picture["moves"];
    assert_eq!((numbers(moves, "from"), numbers(moves, "to")), (vec![0, 1, 0], vec![1, 0, 1]));
    assert_eq!(numbers(moves, "row"), [0, 0, 1]);
    // The life of the first is on one tier after the other, without a gap.
    let lives = &picture["lives"][0];
    let (start, length) = (numbers(lives, "start"), numbers(lives, "length"));
    assert_eq!(numbers(lives, "tier")[..3], [0, 1, 0]);
    assert_eq!((start[0] + length[0], start[1] + length[1]), (start[1], start[2]));
    let page = String::from_utf8(scene.read("page.html")).expect("it is text");
    for word in ["http:", "https:", "src=", "@import", "url(", "fetch(", "import(", "<link"] {
        assert!(!page.contains(word), "{word}");
    }
    // A part of it.
    scene.ok(["trace", "show", "--object", "run/before", "--html", "part.html"]);
    assert_eq!(pictures(&scene, "part.html")[0]["objects"], 1);
}

#[test]
fn a_recording_with_decisions_has_reasons_and_the_fill_of_the_store() {
    let scene = Scene::new();
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("UTF-8");
    let policy = "\n[policy]\nname = \"write-buffer\"\nparameters = { timeout = \"1ms\" }\n";
    scene.file("store/terrace.toml", settings + policy);
    let held = scene.hold();
    scene.ok(["trace", "record", "--decisions"]);
    scene.ok_with(&[7; 3000], ["put", "run/a"]);
    // Each try starts a process, which takes longer than the timeout.
    let is_moved = |_| scene.json(["stat", "run/a"])[0].to_string().contains("slow");
    assert!((0..1000).any(is_moved), "the policy moves it");
    scene.ok(["trace", "stop"]);
    held.stop();
    scene.ok(["trace", "show", "--html", "page.html"]);
    let picture = &pictures(&scene, "page.html")[0];
    assert_eq!(picture["fill_is_counted"], true);
    assert_eq!(
        (&picture["moves"]["n"], numbers(&picture["moves"], "reason")),
        (&1.into(), vec![1])
    );
    assert!(picture["moves"]["reasons"][0].as_str().is_some_and(|reason| !reason.is_empty()));
    assert_eq!(picture["notes"][0][1], "write-buffer: start");
    assert_eq!(picture["fill"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_damaged_trace_is_drawn_as_far_as_it_can_be_read() {
    let scene = Scene::new();
    let held = scene.hold();
    for name in ["run/a", "run/b"] {
        scene.ok(["trace", "record"]);
        scene.ok_with(b"hello", ["put", name]);
        scene.ok(["trace", "stop"]);
    }
    held.stop();
    let first = "store/trace/000001.trace";
    let mut bytes = scene.read(first);
    let at = bytes.windows(5).position(|window| window == b"run/a").expect("the name is there");
    bytes[at] ^= 1;
    scene.file(first, &bytes);
    let ran = scene.run(["trace", "show", "--html", "page.html"]);
    assert_eq!(ran.status, Some(8), "{ran:?}");
    let page = String::from_utf8(scene.read("page.html")).expect("it is text");
    assert!(page.contains("1 unreadable part left out."), "{page}");
    assert!(page.contains("run/b") && !page.contains("run/a"));
}

#[test]
fn a_page_takes_the_place_of_no_trace() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["trace", "record", "--to", "trace"]);
    scene.ok(["trace", "stop"]);
    held.stop();
    scene.file("load.csv", "id,size\n1,10\n");
    for (words, why) in [
        ("trace show load.csv --html load.csv", "take the place of the trace"),
        ("trace show trace --html trace/000001.trace", "among the files of the trace"),
        ("trace show load.csv --html page.html --from 1s", "drawn as a whole"),
        ("trace show trace --html page.html --summary", "cannot be used with"),
    ] {
        assert!(scene.fails(2, words.split_whitespace()).contains(why), "{words}");
    }
    assert_eq!(scene.read("load.csv"), b"id,size\n1,10\n");
}
