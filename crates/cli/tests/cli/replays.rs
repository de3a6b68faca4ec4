// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `replay`: what caches, and tiers in virtual time, would have made of a trace.

use serde_json::Value;

use crate::pictures::{DOWN, READ, UP, numbers, of_mark, pictures};
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

/// Whatever follows `first` is refused with its status, and what is said has the words.
fn assert_refused(scene: &Scene, first: &str, refused: &[(i32, &str, &str)]) {
    for (status, more, why) in refused {
        let words = format!("{first} {more}");
        let said = scene.fails(*status, words.split_whitespace());
        assert!(said.contains(why), "{words}: {said}");
    }
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
    let refused = [
        (2, "trace.csv --policy lru --capacity 1000", "1000obj"),
        (2, "trace.csv --policy lru --capacity 1kB --ignore-size", "leave out --ignore-size"),
        (2, "trace.csv --policy lru --capacity 1obj --columns id=nothing", "no column nothing"),
        (2, "trace.csv --policy wrong --capacity 1obj", "s3-fifo"),
        (2, "odd --policy lru --capacity 1obj", "not recognised"),
        (3, "nothing --policy lru --capacity 1obj", "file=nothing"),
        (8, "cut.csv --policy lru --capacity 1obj", "file=cut.csv line=3"),
        (8, "trace.csv --policy lru --capacity 1obj --format lcs", "file=trace.csv"),
    ];
    assert_refused(&scene, "replay --model cache", &refused);
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

/// A fast tier of 4 MB and a slow one: a block of 1 MB takes 10 ms and 100 ms.
const TIERS: &str = "
[[tier]]
name = \"fast\"
path = \"fast\"
capacity = \"4MB\"
bandwidth = \"100MB/s\"
idle_power = \"1W\"
active_power = \"3W\"

[[tier]]
name = \"slow\"
path = \"slow\"
bandwidth = \"10MB/s\"
idle_power = \"2W\"
active_power = \"7W\"

[policy]
name = \"lru\"
every = \"100ms\"
";

/// One object that is read every second, and others that come once.
fn with_load() -> Scene {
    let scene = Scene::empty();
    scene.file("store.toml", TIERS);
    let lines: String = (0..60)
        .flat_map(|at| [(at, 1), (at, 100 + at)])
        .map(|(at, id)| format!("{at},{id},1000000,read\n"))
        .collect();
    scene.file("load.csv", format!("time,id,size,op\n{lines}"));
    scene
}

#[test]
fn policies_are_compared_between_their_bounds() {
    let scene = with_load();
    let words = "replay load.csv --store store.toml --policy pinned,lru,lru:idle=1h";
    let found = scene.json(words.split_whitespace()).remove(0);
    assert_eq!((&found["requests"], &found["objects"]), (&120.into(), &61.into()));
    let replays = found["replays"].as_array().expect("a list");
    let names: Vec<_> = replays.iter().filter_map(|one| one["policy"].as_str()).collect();
    assert_eq!(names, ["fast-only", "pinned", "lru", "lru:idle=1h", "slow-only"]);
    let makespans: Vec<_> = replays.iter().filter_map(|one| one["makespan_s"].as_f64()).collect();
    let [fast, pinned, lru, _, slow] = makespans[..] else { panic!("{makespans:?}") };
    assert!(fast < lru && lru < pinned, "{makespans:?}");
    assert!((pinned - slow).abs() < 1e-9, "nothing is on the fast tier: {makespans:?}");
    // 60 seconds less one, and 12 s of reading 120 MB at 10 MB/s, of which the last two count
    // behind the last second.
    assert!((slow - (59.0 + 12.0)).abs() < 0.2, "{makespans:?}");
    let lru = &replays[2];
    assert!(lru["tiers"][0]["read_bytes"].as_u64() > Some(50_000_000), "{lru}");
    assert_eq!(lru["requests"], 120);
    // 2 W for as long as it takes, and 5 W more for the 12 s for which it worked.
    let joules = replays[4]["joules"].as_f64().expect("a number");
    assert!((joules - (2.0 * slow + 5.0 * 12.0)).abs() < 1e-6, "{joules}");
    let again = scene.json(words.split_whitespace()).remove(0);
    assert_eq!(found, again, "the same comes to the same");
}

#[test]
fn prices_of_tiers_add_up_to_a_cost() {
    let scene = with_load();
    let words = "replay load.csv --store store.toml --policy pinned,lru";
    assert!(!scene.ok(words.split_whitespace()).contains("cost"), "no tier has a price");
    let prices = "name = \"slow\"\nprice_per_1000_read_requests = 400\nprice_per_gb_read = 9";
    scene.file("store.toml", TIERS.replace("name = \"slow\"", prices));
    let table = scene.ok(words.split_whitespace());
    assert!(table.lines().any(|line| line.ends_with("  cost")), "{table}");
    let found = scene.json(format!("{words} --html cost.html").split_whitespace()).remove(0);
    let costs: Vec<_> = found["replays"].as_array().expect("a list").iter().collect();
    let cost = |index: usize| costs[index]["cost"].as_f64().expect("a number");
    // 120 requests of 1 MB, all of the slow tier; none; some.
    assert!((cost(1) - (120.0 * 0.4 + 0.12 * 9.0)).abs() < 1e-9, "{}", cost(1));
    assert!(cost(0) == 0.0 && cost(2) > 0.0 && cost(2) < cost(1), "{} {}", cost(0), cost(2));
    let slow = &costs[1]["tiers"][1];
    let counted = ["read_requests", "write_requests", "out_bytes"].map(|name| slow[name].as_u64());
    assert_eq!(counted, [Some(120), Some(0), Some(120_000_000)]);
    assert_eq!(slow["cost"], costs[1]["cost"]);
    let page = String::from_utf8(scene.read("cost.html")).expect("text");
    assert!(page.contains("<figcaption>Cost</figcaption>") && page.contains("GB months"));
    // Nothing is written, which alone has a price here.
    let prices = "name = \"slow\"\nprice_per_1000_write_requests = 5";
    scene.file("store.toml", TIERS.replace("name = \"slow\"", prices));
    let table = scene.ok("replay load.csv --store store.toml --policy pinned".split_whitespace());
    assert!(table.lines().any(|line| line.ends_with("  cost")), "{table}");
}

#[test]
fn a_device_has_what_the_configuration_says_of_it() {
    let scene = Scene::empty();
    let device = "bandwidth = \"100MB/s\"\nwrite_latency = \"1s\"";
    scene.file("store.toml", TIERS.replace("bandwidth = \"100MB/s\"", device));
    scene.file("write.csv", "time,id,size,op\n0,1,1000000,write\n");
    let found = scene.json("replay write.csv --store store.toml".split_whitespace()).remove(0);
    let makespan_s = found["replays"][0]["makespan_s"].as_f64().expect("a number");
    assert!((makespan_s - 1.01).abs() < 1e-6, "{found}");
}

#[test]
fn without_a_policy_it_is_that_of_the_store() {
    let scene = with_load();
    let text = scene.ok("replay load.csv --store store.toml".split_whitespace());
    assert!(text.starts_with("load.csv (csv): 120 requests for 61 objects\n\npolicy"), "{text}");
    let rows: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(rows[2..], ["fast-only", "lru", "slow-only"], "{text}");
}

#[test]
fn a_page_has_every_policy_and_every_plot_and_fetches_nothing() {
    let scene = with_load();
    let words = ["replay", "load.csv", "--store", "store.toml", "--explain", "1"];
    let policies = ["pinned", "lru", "lru:idle=1h"];
    let list = policies.join(",");
    let more = ["--policy", &list, "--html", "page.html"];
    let text = scene.ok(words.into_iter().chain(more));
    assert!(text.contains("\nslow-only"), "the table comes all the same: {text}");
    let page = String::from_utf8(scene.read("page.html")).expect("it is text");
    for policy in policies {
        assert!(page.contains(&format!("<h3>{policy}</h3>")), "{policy}");
        assert!(page.contains(&format!("<p><b>{policy}</b>: on slow from")), "{policy}");
    }
    for (title, count) in [
        ("Time", 1),
        ("Energy", 1),
        ("Moved bytes", 1),
        ("Time against energy", 1),
        ("Fill over time", 3),
        ("Accesses over time", 3),
    ] {
        assert_eq!(page.matches(&format!("aria-label=\"{title}\"")).count(), count, "{title}");
    }
    let hash = &scene.json(words.into_iter().chain(["--policy", "lru"]))[0]["replays"][1];
    let hash = hash["action_hash"].as_str().expect("a text");
    for said in ["leaves out", "load.csv", "--html page.html", "bandwidth = &#34;10MB/s&#34;", hash]
    {
        assert!(page.contains(said), "{said}");
    }
    for word in ["http:", "https:", "src=", "@import", "url(", "fetch(", "import(", "<link"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn a_page_has_the_timeline_of_every_policy() {
    let scene = with_load();
    let more = ["--policy", "pinned,lru:gate=off", "--html", "page.html"];
    let found = scene.json(["replay", "load.csv", "--store", "store.toml"].into_iter().chain(more));
    let pictures = pictures(&scene, "page.html");
    let replays = &found[0]["replays"];
    let [pinned, lru] = &pictures[..] else { panic!("one for each policy, and none for bounds") };
    for (picture, replay) in [(pinned, &replays[1]), (lru, &replays[2])] {
        assert_eq!(picture["objects"], 61);
        // What came behind the last round is there, too.
        assert_eq!(of_mark(picture, READ), 120);
        assert_eq!(numbers(&picture["waits"][0], "count").iter().sum::<u64>(), 120);
        assert_eq!(picture["moves"]["n"], replay["migrations"]);
        assert_eq!(
            of_mark(picture, UP) + of_mark(picture, DOWN),
            numbers(&picture["moves"], "time").len()
        );
        assert_eq!(
            (&picture["fill_is_counted"], &picture["tiers"][0]["capacity_bytes"]),
            (&true.into(), &4_000_000.into())
        );
    }
    assert_eq!(pinned["moves"]["n"], 0);
    assert!(of_mark(lru, UP) > 0, "objects that are read again are promoted");
    assert!(!lru["moves"]["reasons"].as_array().expect("reasons").is_empty());
}

#[test]
fn a_page_escapes_names() {
    let scene = with_load();
    let (hostile, escaped) = ("<script>&\".csv", "&#60;script&#62;&#38;&#34;.csv");
    scene.file(hostile, scene.read("load.csv"));
    scene.file("<b>.toml", TIERS.replace("[policy]", "# <i>\n[policy]"));
    scene.ok(["replay", hostile, "--store", "<b>.toml", "--html", "page.html"]);
    let page = String::from_utf8(scene.read("page.html")).expect("it is text");
    assert!(page.contains(escaped), "{page}");
    for word in ["<script>&", "<b>", "<i>"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn an_object_is_explained_with_what_was_expected_and_measured() {
    let scene = with_load();
    let words = "replay load.csv --store store.toml --policy lru --explain 1 --explain 101";
    let found = scene.json(words.split_whitespace()).remove(0);
    let [one, once] = &found["replays"][1]["explained"].as_array().expect("a list")[..] else {
        panic!("{found}")
    };
    assert_eq!(
        (&one["name"], &one["placed_on"], &one["reads"]),
        (&"1".into(), &"slow".into(), &60.into())
    );
    let moved = &one["moves"][0];
    assert_eq!((&moved["from"], &moved["to"]), (&"slow".into(), &"fast".into()));
    assert_eq!(moved["outcome"], "done");
    // Each takes 10 ms instead of 100 ms, or more where others are asked for.
    let accesses = moved["accesses"].as_f64().expect("a number");
    assert!(moved["saved_s"].as_f64() >= Some(0.0899 * accesses) && accesses > 50.0, "{moved}");
    assert!(moved["expected_s"].as_f64() > Some(0.0), "{moved}");
    assert_eq!((&once["reads"], &once["moves"]), (&1.into(), &Value::Array(Vec::new())));
    let text = scene.ok(words.split_whitespace());
    assert!(text.contains("\n\n1\n  fast-only: on fast from 0.000 s; 60 reads"), "{text}");
    assert!(
        text.contains(" slow -> fast, done at ") && text.contains("\n      expected "),
        "{text}"
    );
    // Over time the same comes out as in sum.
    let lru = &found["replays"][1];
    let traffic = &lru["traffic"]["tiers"];
    for (index, tier) in lru["tiers"].as_array().expect("a list").iter().enumerate() {
        let intervals = traffic[index]["read_bytes"].as_array().expect("a list");
        let sum: u64 = intervals.iter().filter_map(Value::as_u64).sum();
        assert_eq!(Some(sum), tier["read_bytes"].as_u64());
    }
}

#[test]
fn every_policy_can_be_replayed() {
    let scene = with_load();
    let names: Vec<_> = terrace_policies::POLICIES.iter().map(|entry| entry.name).collect();
    let words = format!("replay load.csv --store store.toml --policy {}", names.join(","));
    let found = scene.json(words.split_whitespace()).remove(0);
    let replays = found["replays"].as_array().expect("a list");
    let seen: Vec<_> =
        replays.iter().map(|replay| replay["policy"].as_str().expect("text")).collect();
    assert_eq!(seen[1..seen.len() - 1], names);
    assert!(replays.iter().all(|replay| replay["requests"] == 120), "{found}");
}

#[test]
fn the_rules_of_a_store_are_replayed_from_their_file() {
    let scene = with_load();
    let policy = "name = \"rules\"\nfiles.rules = \"site.toml\"";
    scene.file("store.toml", TIERS.replace("name = \"lru\"", policy));
    scene.file("site.toml", "[[rule]]\naction = \"place\"\nto = \"nothing\"\n");
    let said = scene.fails(2, "replay load.csv --store store.toml".split_whitespace());
    assert!(said.contains("field=to") && said.contains("fast, slow"), "{said}");
    scene.file("site.toml", "[[rule]]\naction = \"place\"\nto = \"slow\"\n");
    let found = scene.json("replay load.csv --store store.toml".split_whitespace()).remove(0);
    assert_eq!(found["replays"][1]["policy"], "rules");
}

#[test]
fn what_cannot_be_timed_says_why() {
    let scene = with_load();
    let refused = [
        (2, "--store store.toml --capacity 1MB", "--model cache"),
        (2, "--model cache --policy lru --capacity 1MB --open-loop", "--model time"),
        (2, "--model cache --policy lru", "--capacity 128MiB"),
        (2, "--model cache --capacity 1MB", "--policy lru"),
        (3, "", "/store"),
        (3, "--store nothing.toml", "nothing.toml"),
        (3, "--store store.toml --policy mru", "pinned, lru"),
        (3, "--store store.toml --policy lfu", "--model cache has it policy=lfu"),
        (3, "--store store.toml --policy belady", "--model cache has it policy=belady"),
        (2, "--store store.toml --policy lru:idle", "lru:idle=5s"),
        (2, "--store store.toml --policy lru:idle=soon", "idle"),
        (2, "--store store.toml --present-on medium", "fast, slow"),
        (2, "--store store.toml --page-cache much", "--page-cache"),
        (2, "--store store.toml --page-cache 1GiB", "`terrace calibrate` measures them"),
        (3, "--store store.toml --explain 7", "no request for it"),
        (2, "--model cache --policy lru --capacity 1MB --explain 1", "--model time"),
        (2, "--model cache --policy lru --capacity 1MB --html page.html", "--model time"),
        (10, "--store terrace://127.0.0.1:9/", "terrace.toml"),
    ];
    assert_refused(&scene, "replay load.csv", &refused);
}

#[test]
fn a_recorded_store_is_replayed_on_its_own_tiers() {
    let scene = Scene::new();
    let held = scene.hold();
    scene.ok(["trace", "record"]);
    for name in ["a", "b", "a"] {
        scene.ok_with(b"hello", ["put", name]);
        scene.ok(["get", name]);
    }
    scene.ok(["rm", "b"]);
    scene.ok(["trace", "stop"]);
    held.stop();
    let found = scene.json("replay store/trace".split_whitespace()).remove(0);
    assert_eq!(found["format"], "terrace");
    let replays = found["replays"].as_array().expect("a list");
    assert_eq!(replays.len(), 3);
    assert!(replays.iter().all(|one| one["requests"] == found["requests"]), "{found}");
    let text = scene.ok("replay store/trace --explain a".split_whitespace());
    // The second put of a name makes another object.
    for object in ["a, segment 0", "a, segment 1"] {
        let explained = format!("\n\n{object}\n  fast-only: on fast from ");
        assert!(text.contains(&explained), "{text}");
    }
    assert_eq!(text.matches(" 1 read, 1 write; not moved").count(), 6, "{text}");
}

#[test]
fn a_page_does_not_take_the_place_of_its_trace() {
    let scene = Scene::with_policy();
    scene.file("load.csv", "id,size\n1,10\n2,10\n");
    let error = scene.fails(2, ["replay", "load.csv", "--policy", "lru", "--html", "./load.csv"]);
    assert!(error.contains("take the place of the trace"), "{error}");
    assert_eq!(scene.read("load.csv"), b"id,size\n1,10\n2,10\n");
}
