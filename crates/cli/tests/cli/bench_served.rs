// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace bench` over servers, with several clients and processes: what it counts, how it ends,
//! and that it leaves nothing. Not how fast anything is.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bench::{KV_CASES, OBJECT_CASES, QUICK, assert_numbers, names};
use crate::scene::{Scene, finish, piped, signal};
use crate::serving::{Served, secret, with};

const TWO_BY_TWO: [&str; 4] = ["--clients", "2", "--processes", "2"];

/// A store with little room, so that little is made in it.
fn served() -> (Scene, Served) {
    let scene = Scene::empty();
    let tiers = ["--tier", "fast=fast,capacity=1MB", "--tier", "slow=slow,capacity=15MB"];
    scene.ok(["init", "store", "--policy", "none"].into_iter().chain(tiers));
    secret(&scene);
    let served = Served::start(&scene);
    (scene, served)
}

fn ran(scene: &Scene, store: &str, arguments: &[&str]) -> Value {
    let arguments = [&["--json", "bench"], arguments].concat();
    serde_json::from_str(&scene.ok(with(store, &arguments))).expect("JSON")
}

/// Nothing is stored any more.
#[track_caller]
fn assert_empty(scene: &Scene, store: &str) {
    assert_eq!(scene.ok(with(store, &["ls"])), "");
    let tiers = scene.ok(with(store, &["--json", "tiers"]));
    let tiers: Value = serde_json::from_str(&tiers).expect("JSON");
    for tier in tiers["tiers"].as_array().or(tiers.as_array()).expect("tiers") {
        assert_eq!(tier["objects"].as_u64().unwrap_or(0), 0, "{tier}");
    }
}

/// Processes of the machine whose command line has these words.
fn processes(words: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("there is one").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_words = |number: &u32| {
        // Those that have just ended have none.
        let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
    };
    numbers.filter(has_words).collect()
}

/// Starts a benchmark without end, and waits until so many of its own processes run.
fn endless(scene: &Scene, store: &str, arguments: &[&str], clients: usize) -> (Child, Vec<u32>) {
    let all = [&["bench"], arguments, &["--seconds", "3600"]].concat();
    let child = piped(&mut scene.command(with(store, &all)));
    let of = |number: &u32| parent(*number) == child.id();
    let mut found = Vec::new();
    while found.len() < clients {
        std::thread::yield_now();
        found = processes("bench --obey").into_iter().filter(of).collect();
    }
    (child, found)
}

/// The parent of a process; 0 where that has ended.
fn parent(number: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|parent| parent.trim().parse().ok()).unwrap_or(0)
}

fn operations(scene: &Scene, store: &str) -> u64 {
    let status = scene.ok(with(store, &["--json", "server", "status"]));
    let status: Value = serde_json::from_str(&status).expect("JSON");
    status["operations"].as_u64().expect("a number")
}

#[test]
fn every_case_runs_over_every_address_and_leaves_nothing() {
    let (scene, served) = served();
    for (store, batch) in [(&served.tcp, "1"), (&served.tcp, "7"), (&served.unix, "1,7")] {
        let report = ran(&scene, store, &[&QUICK[..], &TWO_BY_TWO, &["--batch", batch]].concat());
        let cases = &report["cases"];
        let mut expected = [&OBJECT_CASES[..], &KV_CASES].concat();
        if batch.contains(',') {
            expected = expected.into_iter().flat_map(|case| [case, case]).collect();
        }
        assert_eq!(names(cases), expected);
        let fields = [
            "ops_per_s_low95",
            "ops_per_s_high95",
            "mb_per_s",
            "p50_us",
            "p99_us",
            "p999_us",
            "client_cpu_us_per_op",
            "server_cpu_us_per_op",
            "ended_early",
        ];
        assert_numbers(cases, &fields);
        for case in cases.as_array().expect("rows") {
            let whom = ["servers", "processes", "clients", "threads"].map(|name| &case[name]);
            assert_eq!(whom, [1, 2, 2, 1], "{case}");
            assert!(!case["store"].as_str().expect("text").contains("secret"), "{case}");
            // Each of four threads made at least one call in both repetitions.
            let batch = case["batch"].as_u64().expect("a number");
            assert!(case["operations"].as_u64() >= Some(2 * 4 * batch), "{case}");
            assert!(case["balance"].is_null() && case["times_one_server"].is_null(), "{case}");
        }
        assert_empty(&scene, store);
    }
    assert_eq!(served.stop(), (Some(0), String::new()));
    scene.ok(["fsck", "--verify"]);
}

/// Through whoever holds it, or else through the benchmark itself.
#[test]
fn a_directory_is_measured_where_clients_are_asked_for() {
    let (scene, served) = served();
    let ask = || {
        let report = ran(&scene, "store", &[&QUICK[..], &TWO_BY_TWO].concat());
        assert_eq!(names(&report["cases"]), [&OBJECT_CASES[..], &KV_CASES].concat());
        for case in report["cases"].as_array().expect("rows") {
            let whom = ["servers", "processes", "clients"].map(|name| &case[name]);
            assert_eq!(whom, [0, 2, 2], "{case}");
            assert_eq!(case["store"], "store", "{case}");
            assert!(case["operations"].as_u64() >= Some(2 * 4), "{case}");
        }
        assert_empty(&scene, "store");
    };
    ask();
    assert_eq!(served.stop(), (Some(0), String::new()));
    ask();
    let own = ran(&scene, "store", &[&["object", "--case", "status"], &QUICK[..]].concat());
    assert!(own["cases"][0]["raw_ops_per_s"].is_number(), "its own stores: {own}");
    scene.ok(["fsck", "--verify"]);
}

#[test]
fn what_the_clients_count_is_what_the_server_carried_out() {
    let (scene, served) = served();
    for (part, case, batch) in
        [("object", "status", "1"), ("object", "create", "5"), ("kv", "put", "3")]
    {
        let only = [part, "--case", case, "--batch", batch];
        let report = ran(&scene, &served.tcp, &[&only[..], &QUICK, &TWO_BY_TWO].concat());
        let row = &report["cases"][0];
        assert_eq!(row["by_server"][0]["operations"], row["operations"], "{row}");
        assert_eq!(row["by_server"][0]["share"], 1.0, "{row}");
    }
}

#[test]
fn several_clients_make_several_rows() {
    let (scene, served) = served();
    let lists = ["object", "--case", "read", "--clients", "1..3", "--threads", "1,2"];
    let report = ran(&scene, &served.tcp, &[&lists[..], &QUICK].concat());
    let rows = report["cases"].as_array().expect("rows");
    let seen: Vec<_> = rows.iter().map(|row| (&row["threads"], &row["clients"])).collect();
    let expected = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)];
    assert_eq!(seen.len(), expected.len());
    for (seen, expected) in seen.iter().zip(expected) {
        assert_eq!((seen.0.as_i64(), seen.1.as_i64()), (Some(expected.0), Some(expected.1)));
    }
    let table = scene
        .ok(with(&served.tcp, &[&["bench", "object", "--case", "status"], &QUICK[..]].concat()));
    assert!(table.contains("server us") && table.contains("object status"), "{table}");
}

#[test]
fn a_cluster_is_started_compared_with_one_server_and_ended() {
    let scene = Scene::empty();
    let place = scene.path("place");
    std::fs::create_dir(&place).expect("a directory");
    let place = place.to_str().expect("UTF-8");
    let cases = ["--case", "create+write", "--case", "put", "--case", "read"];
    let all = ["--json", "bench", "cluster", "--servers", "3", "--directory", place];
    let text = scene.ok([&all[..], &cases, &QUICK, &TWO_BY_TWO].concat());
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let rows = report["cases"].as_array().expect("rows");
    let seen: Vec<_> =
        rows.iter().map(|row| (row["case"].as_str(), row["servers"].as_u64())).collect();
    let pair = |case| [(Some(case), Some(1)), (Some(case), Some(3))];
    assert_eq!(seen, ["create+write", "read", "put"].map(pair).concat());
    for row in rows {
        let servers = row["by_server"].as_array().expect("servers");
        assert_eq!(Some(servers.len() as u64), row["servers"].as_u64());
        let shares: f64 = servers.iter().map(|one| one["share"].as_f64().expect("a share")).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{row}");
        if servers.len() == 1 {
            assert!(row["times_one_server"].is_null() && row["balance"].is_null(), "{row}");
            continue;
        }
        assert!(row["times_one_server"]["median"].as_f64().is_some_and(|times| times > 0.0));
        let balance = row["balance"].as_f64().expect("a number");
        let of = |pick: fn(f64, f64) -> f64, start| {
            servers
                .iter()
                .map(|one| one["operations"].as_f64().expect("a number"))
                .fold(start, pick)
        };
        let expected = of(f64::min, f64::INFINITY) / of(f64::max, 0.0);
        assert!((balance - expected).abs() < 1e-9, "{row}");
        // Objects lie on all of them; the pairs of a client on one.
        if row["kind"] == "object" {
            assert!(balance > 0.0, "{row}");
        }
    }
    assert_eq!(std::fs::read_dir(place).expect("is there").count(), 0);
    assert_eq!(processes(place), [0; 0]);
}

#[test]
fn a_process_that_dies_ends_the_benchmark() {
    let (scene, served) = served();
    let load = ["object", "--case", "create+write", "--processes", "3"];
    let (child, clients) = endless(&scene, &served.tcp, &load, 3);
    kill_process(Pid::from_raw(clients[1] as i32).expect("a number"), Signal::KILL).expect("runs");
    let ran = finish(child);
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.contains("one of its processes ended process="), "{ran:?}");
    assert!(clients.iter().all(|client| !Path::new(&format!("/proc/{client}")).exists()));
    assert_empty(&scene, &served.tcp);
}

#[test]
fn a_failure_in_a_process_is_told_once_with_its_kind() {
    let (scene, mut served) = served();
    let store = format!("{}&deadline=1s", served.tcp);
    let (child, clients) = endless(&scene, &store, &["kv", "--case", "put", "--processes", "2"], 2);
    signal(&served.child, Signal::KILL);
    served.child.wait().expect("it ends");
    let ran = finish(child);
    assert_eq!(ran.status, Some(11), "{ran:?}");
    // What it could not take away is said, too.
    let errors = ran.stderr.lines().filter(|line| line.starts_with("terrace: cannot "));
    assert_eq!(errors.count(), 1, "{ran:?}");
    assert!(clients.iter().all(|client| !Path::new(&format!("/proc/{client}")).exists()));
}

#[test]
fn an_interrupted_benchmark_leaves_no_process_and_no_object() {
    let (scene, served) = served();
    for (number, name) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let load = ["object", "--case", "create", "--processes", "2", "--clients", "2"];
        let (child, clients) = endless(&scene, &served.tcp, &load, 2);
        signal(&child, number);
        let ran = finish(child);
        assert_eq!((ran.signal, ran.stdout.as_str()), (Some(name), ""), "{ran:?}");
        assert_eq!(ran.stderr, "terrace: interrupted: nothing was left behind\n");
        assert!(clients.iter().all(|client| !Path::new(&format!("/proc/{client}")).exists()));
        assert_empty(&scene, &served.tcp);
    }
}

#[test]
fn an_interrupted_cluster_leaves_no_server() {
    let scene = Scene::empty();
    let place = scene.path("place");
    std::fs::create_dir(&place).expect("a directory");
    let place = place.to_str().expect("UTF-8");
    let load = ["cluster", "--directory", place, "--processes", "2"];
    // Clients of one server, and of both.
    let (child, _) = endless(&scene, "unused", &load, 4);
    assert!(processes(place).len() > 2, "servers and clients");
    signal(&child, Signal::INT);
    let ran = finish(child);
    assert_eq!(ran.signal, Some(2), "{ran:?}");
    assert_eq!(processes(place), [0; 0]);
    assert_eq!(std::fs::read_dir(place).expect("is there").count(), 0);
}

/// A process with clients, ordered by this test.
struct Member {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Member {
    fn start(scene: &Scene, store: &str) -> Self {
        let mut command = scene.command(with(store, &["bench", "--obey"]));
        let mut child = piped(command.stdin(Stdio::piped()));
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, output }
    }

    fn order(&mut self, order: &Value) -> Value {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{order}").expect("it listens");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }
}

fn task() -> Value {
    json!({ "make": {
        "kind": "object", "case": "create", "size_bytes": 0, "batch": 2, "threads": 2,
        "semantics": "default", "keys": "uniform", "bounds": { "objects": 100, "bytes": 1000000 },
        "clients": 1, "parts": 1, "process": 0, "prefix": "test",
    }})
}

#[test]
fn a_process_is_ready_before_it_begins_and_begins_when_it_is_told() {
    let (scene, served) = served();
    let mut member = Member::start(&scene, &served.tcp);
    assert_eq!(member.order(&task()), json!({ "made": { "calls_max": 25 } }));
    let prepare = json!({ "prepare": { "calls": 3, "block_ns": 3_600_000_000_000_u64 } });
    assert_eq!(member.order(&prepare), json!("ready"));
    let before = operations(&scene, &served.tcp);
    assert_eq!(scene.ok(with(&served.tcp, &["ls"])), "", "it has begun");
    let done = member.order(&json!("go"));
    assert_eq!(done["done"]["calls"], json!([3, 3]), "{done}");
    assert_eq!(operations(&scene, &served.tcp), before + 12 + 1, "and one for the listing");
    assert_eq!(scene.ok(with(&served.tcp, &["ls", "test-0"])).lines().count(), 12);
    assert_eq!(member.order(&json!("clean")), json!("over"));
    assert_eq!(scene.ok(with(&served.tcp, &["ls", "test-0"])), "");
    assert_eq!(member.order(&json!("forget")), json!("over"));
    // What is no order ends it, and it says so.
    let odd = member.order(&json!("dance"));
    assert_eq!(odd["failed"]["kind"], "io", "{odd}");
    assert_eq!(finish(member.child).status, Some(0));
}

#[test]
fn a_process_ends_with_whoever_orders_it() {
    let (scene, served) = served();
    for orders in [1, 2] {
        let mut member = Member::start(&scene, &served.tcp);
        let prepare = json!({ "prepare": { "calls": 3, "block_ns": 3_600_000_000_000_u64 } });
        for order in [task(), prepare].iter().take(orders) {
            member.order(order);
        }
        drop(member.child.stdin.take());
        let ran = finish(member.child);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert_empty(&scene, &served.tcp);
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let (scene, served) = served();
    for alone in [["--clients", "2"], ["--processes", "2"]] {
        let arguments = [&["bench", "object", "--case", "create"], &alone[..]].concat();
        let error = scene.fails(2, with("", &arguments));
        assert!(error.contains("no store is named"), "{error}");
    }
    for own in [["--directory", "."], ["--backend", "memory"], ["--engine", "lmdb"]] {
        let arguments = [&["bench", "object", "--case", "create"], &own[..]].concat();
        let error = scene.fails(2, with(&served.tcp, &arguments));
        assert!(error.contains("--store names one"), "{error}");
    }
    let ran = scene.run(["bench", "cluster", "--servers", "0"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
}
