// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace bench` at its smallest: what it prints, not how fast anything is.

use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{Scene, finish, piped, signal};

fn ran(arguments: &[&str]) -> Value {
    let text = Scene::empty().ok([&["bench"], arguments, &["--json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// All rows have these fields, as numbers of at least 0.
pub(crate) fn assert_numbers(rows: &Value, fields: &[&str]) {
    for row in rows.as_array().expect("rows") {
        for field in fields {
            assert!(row[field].as_f64().is_some_and(|number| number >= 0.0), "{field} of {row}");
        }
    }
}

pub(crate) fn names(rows: &Value) -> Vec<&str> {
    rows.as_array().expect("rows").iter().map(|row| row["case"].as_str().expect("text")).collect()
}

#[test]
fn overhead_has_its_cases_and_no_verdict_from_few_groups() {
    let report = ran(&["overhead", "--seconds", "0.2", "--groups", "1"]);
    let cases = &report["cases"];
    let expected = [
        "read-4k",
        "write-4k",
        "read-1m",
        "write-1m",
        "bare-read-4k",
        "bare-write-4k",
        "open",
        "create",
        "scaling-2-read-4k",
        "scaling-2-write-4k",
        "record-read-4k",
        "record-write-4k",
        "record-read-64k",
        "record-write-64k",
    ];
    assert_eq!(names(cases), expected);
    assert_numbers(cases, &["raw_ns", "stack_ns", "cpu_ns_per_op", "ratio"]);
    for case in cases.as_array().expect("rows") {
        assert_eq!((&case["level"], &case["verdict"]), (&"process".into(), &"not resolved".into()));
        assert!(case["low95_ns"].is_f64() && case["high95_ns"].is_f64(), "{case}");
    }
    let one = ran(&["overhead", "--seconds", "0.1", "--groups", "1", "--case", "open"]);
    assert_eq!(names(&one["cases"]), ["open"]);
    let case = "python-write-4k";
    let one = ran(&["overhead", "--seconds", "0.1", "--groups", "1", "--case", case]);
    assert_eq!(names(&one["cases"]), [case]);
}

pub(crate) const OBJECT_CASES: [&str; 11] = [
    "create",
    "delete",
    "create+delete",
    "create+write",
    "status",
    "read",
    "write",
    "mixed",
    "open+read",
    "read-run",
    "write-run",
];

pub(crate) const KV_CASES: [&str; 4] = ["put", "get", "delete", "put+delete"];

pub(crate) const QUICK: [&str; 4] = ["--seconds", "0.02", "--repetitions", "2"];

#[test]
fn size_makes_a_store_in_another_process_and_meets_all_of_it() {
    let scene = Scene::empty();
    let place = scene.path("place");
    std::fs::create_dir(&place).expect("room");
    let place = place.to_str().expect("UTF-8");
    let text = scene.ok(["bench", "size", "--objects", "1500", "--directory", place, "--json"]);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["objects"], &report["policy"]), (&1500.into(), &"lru".into()));
    let rows = report["rows"].as_array().expect("rows");
    let steps: Vec<_> = rows.iter().map(|row| row["step"].as_str().expect("text")).collect();
    assert_eq!(steps, ["open", "list", "stat", "open and read", "fsck", "close"]);
    assert_numbers(&report["rows"], &["seconds", "per_s", "memory_bytes", "bytes_per_object"]);
    // So few objects say nothing about many.
    assert!(rows.iter().all(|row| row["verdict"].is_null()), "{text}");
    assert_eq!(std::fs::read_dir(place).expect("there").count(), 0, "it is removed");
}

#[test]
fn size_compares_every_object_after_its_catalog_was_lost() {
    let scene = Scene::empty();
    let place = scene.path("place");
    std::fs::create_dir(&place).expect("room");
    let place = place.to_str().expect("UTF-8");
    let count = ["bench", "size", "--rebuild", "--objects", "2500", "--directory", place, "--json"];
    let report: Value = serde_json::from_str(&scene.ok(count)).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let steps: Vec<_> = rows.iter().map(|row| row["step"].as_str().expect("text")).collect();
    assert_eq!(steps, ["rebuild", "recover", "fsck", "in all", "compare all", "close"]);
    let seconds = |at: usize| rows[at]["seconds"].as_f64().expect("a number");
    assert!((seconds(3) - seconds(0) - seconds(1) - seconds(2)).abs() < 1e-9);
    assert_eq!(std::fs::read_dir(place).expect("there").count(), 0, "it is removed");
}

#[test]
fn without_a_part_it_measures_single_operations_on_objects_and_pairs() {
    let report = ran(&QUICK);
    let cases = &report["cases"];
    assert_eq!(names(cases), [&OBJECT_CASES[..], &KV_CASES].concat());
    let fields = [
        "ops_per_s_low95",
        "ops_per_s_high95",
        "raw_ops_per_s_low95",
        "raw_ops_per_s_high95",
        "mb_per_s",
        "p50_us",
        "p99_us",
        "p999_us",
        "raw_p50_us",
        "cpu_us_per_op",
        "ended_early",
    ];
    assert_numbers(cases, &fields);
    for case in cases.as_array().expect("rows") {
        let is_object = OBJECT_CASES.iter().any(|name| case["case"] == **name);
        assert!(
            case["kind"] == "object"
                || (case["kind"] == "kv" && !is_object)
                || case["case"] == "delete"
        );
        assert_eq!((&case["threads"], &case["batch"]), (&1.into(), &1.into()));
        assert_eq!((&case["level"], &case["repetitions"]), (&"process".into(), &2.into()));
        for field in ["ops_per_s", "raw_ops_per_s", "operations", "raw_operations"] {
            assert!(case[field].as_f64().is_some_and(|number| number > 0.0), "{field} of {case}");
        }
        // Two repetitions tell nothing.
        let verdict =
            if case["bar_ops_per_s"].is_null() { Value::Null } else { "not resolved".into() };
        assert_eq!(case["verdict"], verdict);
    }
}

#[test]
fn every_combination_is_a_row_and_nothing_is_left() {
    let scene = Scene::empty();
    let place = scene.path("place");
    std::fs::create_dir(&place).expect("a directory");
    let place_text = place.to_str().expect("UTF-8");
    let lists = [
        "object",
        "--case",
        "create+write",
        "--threads",
        "1..2",
        "--batch",
        "1,7",
        "--size",
        "4KiB,9kB",
        "--level",
        "process,storage",
        "--keys",
        "zipf",
        "--directory",
        place_text,
    ];
    let report = ran(&[&lists[..], &QUICK].concat());
    let rows = report["cases"].as_array().expect("rows");
    let of = |row: &Value| {
        ["case", "level", "size_bytes", "batch", "threads"].map(|name| row[name].clone())
    };
    let seen: std::collections::HashSet<_> =
        rows.iter().map(|row| format!("{:?}", of(row))).collect();
    assert_eq!((rows.len(), seen.len()), (16, 16), "{seen:?}");
    for row in rows {
        assert_eq!((&row["keys"], &row["directory"]), (&"zipf".into(), &place_text.into()));
        let rate = row["ops_per_s"].as_f64().expect("a number");
        let size = row["size_bytes"].as_f64().expect("a number");
        let bytes = row["mb_per_s"].as_f64().expect("a number");
        assert!((bytes - rate * size / 1e6).abs() <= bytes * 1e-9, "{row}");
        // Each of the threads made at least one call in each repetition.
        let least = row["batch"].as_u64().zip(row["threads"].as_u64()).expect("numbers");
        assert!(row["operations"].as_u64() >= Some(2 * least.0 * least.1), "{row}");
    }
    assert_eq!(std::fs::read_dir(&place).expect("is there").count(), 0);
}

#[test]
fn empty_objects_make_one_row_whatever_the_sizes() {
    let sizes = ["--case", "create", "--case", "delete", "--size", "4KiB,8KiB"];
    let report = ran(&[&sizes[..], &QUICK].concat());
    let rows = report["cases"].as_array().expect("rows");
    let seen: Vec<_> =
        rows.iter().map(|row| (row["kind"].clone(), row["size_bytes"].clone())).collect();
    let expected = [("object", 0), ("object", 0), ("kv", 4096), ("kv", 8192)];
    assert_eq!(seen, expected.map(|(kind, size)| (kind.into(), size.into())));
}

#[test]
fn amr_says_what_the_computation_waited() {
    let small = ["--steps", "2", "--blocks", "10", "--computing", "0s", "--repetitions", "2"];
    let report = ran(&[&["amr", "--queue", "1"], &small[..]].concat());
    let cases = &report["cases"];
    assert_eq!(names(cases), ["amr-write", "amr-read"]);
    assert_numbers(cases, &["ops_per_s", "raw_ops_per_s", "mb_per_s", "p99_us", "cpu_us_per_op"]);
    let [write, read] = [&cases[0], &cases[1]];
    assert_eq!((&write["operations"], &read["operations"]), (&40.into(), &10.into()));
    assert!(write["waited_ms_per_step"]["median"].is_f64() && read["waited_ms_per_step"].is_null());
    let mean = write["size_bytes"].as_u64().expect("a number");
    assert!((33_000..=50_000).contains(&mean), "{mean}");
    let scene = Scene::empty();
    let much = ["bench", "amr", "--steps", "1000", "--blocks", "100000"];
    assert!(scene.fails(4, much).contains("blocks_bytes="));
}

#[test]
fn hsm_study_runs_every_policy_single_and_in_batches_and_draws_it() {
    let scene = Scene::empty();
    let policies = terrace_policies::POLICIES.iter().map(|entry| entry.name).collect::<Vec<_>>();
    // One command a pair: each makes dozens of stores, and a command has a minute.
    for (pair, level) in [("memory/tmpfs", "none"), ("tmpfs/disk", "process")] {
        let small = ["--objects", "8", "--repetitions", "1", "--json"];
        let one = ["--pair", pair, "--picture", "study.svg"];
        let text = scene.ok(["bench", "hsm-study"].into_iter().chain(small).chain(one));
        let report: Value = serde_json::from_str(&text).expect("JSON");
        let cases = report["cases"].as_array().expect("rows");
        let batches = [1, 8].into_iter();
        let expected: Vec<_> =
            batches.flat_map(|batch| policies.iter().map(move |policy| (batch, *policy))).collect();
        let seen = cases.iter().map(|row| {
            let word = |name: &str| row[name].as_str().expect("text");
            assert_eq!((word("pair"), word("level")), (pair, level));
            let policy = word("policy").split(' ').next().expect("a name");
            (row["batch"].as_u64().expect("a number"), policy)
        });
        assert_eq!(seen.collect::<Vec<_>>(), expected);
        for row in cases {
            for field in ["write_mb_per_s", "read_mb_per_s"] {
                assert!(row[field]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
            }
            assert!(
                row["fast_reads"].as_f64().is_some_and(|part| (0.0..=1.0).contains(&part)),
                "{row}"
            );
            assert!(row["moved"].is_f64(), "{row}");
        }
        let picture = String::from_utf8(scene.read("study.svg")).expect("UTF-8");
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches("<g><title>").count(), expected.len());
    }
}

#[test]
fn prediction_foresees_what_it_then_does() {
    let scene = Scene::empty();
    for (pair, is_real) in [("memory/simulated", false), ("tmpfs/disk", true)] {
        let words = "--workload mixed --policy pinned --policy lru --repetitions 1 --calibration 2";
        let one = ["bench", "prediction", "--json", "--pair", pair];
        let report = scene.json(one.into_iter().chain(words.split(' '))).remove(0);
        let rows = report["rows"].as_array().expect("rows");
        let policies: Vec<_> = rows.iter().map(|row| &row["policy"]).collect();
        assert_eq!(policies, ["pinned", "lru"]);
        for row in rows {
            assert_eq!((&row["pair"], &row["is_real"]), (&pair.into(), &is_real.into()));
            for runs in ["foreseen", "live"].map(|side| row[side].as_array().expect("runs")) {
                assert_eq!(runs.len(), 1);
                let run = &runs[0];
                assert!(run["makespan_s"].as_f64().is_some_and(|took| took > 0.0), "{row}");
            }
        }
        // What moves nothing serves the same bytes wherever it runs, but for what another client is
        // too late to have made.
        let served = |run: &Value| run["served_bytes"][0].as_f64().expect("bytes");
        let (foreseen, live) = (served(&rows[0]["foreseen"][0]), served(&rows[0]["live"][0]));
        assert!((foreseen - live).abs() <= 0.05 * foreseen, "{report}");
        for run in [&rows[0]["foreseen"][0], &rows[0]["live"][0]] {
            assert_eq!(run["migrated_bytes"], 0, "{report}");
        }
        for run in [&rows[1]["foreseen"][0], &rows[1]["live"][0]] {
            assert!(run["migrated_bytes"].as_u64() > Some(0), "{report}");
        }
        let ordered = report["ordered"].as_u64().expect("a number");
        let bars = report["bars"].as_array().expect("bars").len() as u64;
        assert_eq!(bars, 4 + ordered.min(1), "{report}");
    }
    let error = scene.fails(2, "bench prediction --pair disk/network".split(' '));
    assert!(error.contains("--network"), "{error}");
}

#[test]
fn an_interrupted_benchmark_leaves_nothing() {
    let scene = Scene::empty();
    let place = scene.path("place");
    std::fs::create_dir(&place).expect("a directory");
    for (endless, number, name) in [
        ("object --case create --seconds 3600 --directory place", Signal::INT, 2),
        ("size --objects 100000000 --directory place", Signal::TERM, 15),
        ("migrate --size 1MiB --rounds 1000 --directory place", Signal::INT, 2),
        ("overhead --seconds 3600", Signal::TERM, 15),
    ] {
        let child = piped(&mut scene.command(["bench"].into_iter().chain(endless.split(' '))));
        let mine = format!("terrace-bench-{}.", child.id());
        let left = || {
            let places = [place.as_path(), "/dev/shm".as_ref(), "/var/tmp".as_ref()];
            let entries = places.into_iter().filter_map(|place| std::fs::read_dir(place).ok());
            let names = entries.flatten().map(|entry| entry.expect("readable").file_name());
            names.filter(|name| name.to_string_lossy().starts_with(&mine)).count()
        };
        // It listens for signals before it makes anything.
        while left() == 0 {
            std::thread::yield_now();
        }
        signal(&child, number);
        let ran = finish(child);
        assert_eq!(ran.signal, Some(name), "{endless}: {ran:?}");
        assert_eq!((left(), ran.stdout.as_str()), (0, ""), "{endless}");
    }
}

#[test]
fn a_level_that_cannot_be_given_is_refused() {
    let scene = Scene::empty();
    let memory = ["bench", "object", "--case", "create", "--backend", "memory"];
    assert!(scene.fails(10, memory).contains("level=process"));
    let none = ["--engine", "memory", "--level", "none", "--json"];
    let text = scene.ok(memory.into_iter().chain(none).chain(QUICK));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&report["cases"][0]["level"], &report["cases"][0]["backend"]),
        (&"none".into(), &"memory".into())
    );
}

#[test]
fn people_see_the_bars() {
    let table = Scene::empty().ok(["bench", "object", "--case", "read"].into_iter().chain(QUICK));
    assert!(table.contains("operations/s (95 %)") && table.contains("object read"), "{table}");
    if std::path::Path::new("/dev/shm").is_dir() {
        assert!(table.contains("at least 450000/s  not resolved"), "{table}");
    }
}

#[test]
fn migrate_compares_with_cp_and_removes_its_files() {
    let scene = Scene::empty();
    let slow = scene.path("slow");
    std::fs::create_dir(&slow).expect("a directory");
    let slow_text = slow.to_str().expect("UTF-8");
    let arguments =
        ["migrate", "--size", "2MB", "--directory", slow_text, "--rounds", "2", "--moves", "3"];
    let report = ran(&arguments);
    assert_eq!(report["size_bytes"], 2_000_000);
    let rows = &report["rows"];
    let expected = [
        "tmpfs to disk",
        "disk to tmpfs",
        "readers meanwhile",
        "readers meanwhile",
        "writer meanwhile",
    ];
    assert_eq!(names(rows), expected);
    assert_numbers(rows, &["value", "control"]);
    let errors = rows.as_array().expect("rows").iter().find(|row| row["what"] == "errors");
    assert_eq!(errors.expect("a row")["value"], 0.0, "{report}");
    assert_eq!(std::fs::read_dir(&slow).expect("is there").count(), 0);
    let fast = report["fast"].as_str().expect("a path");
    assert!(!std::path::Path::new(fast).exists(), "{fast} is left");
}

#[test]
fn sizes_and_cases_that_are_none_are_refused() {
    let scene = Scene::empty();
    for arguments in [
        ["object", "--size", "much"],
        ["object", "--size", "17MiB"],
        ["object", "--case", "put"],
        ["object", "--threads", "2..1"],
        ["kv", "--case", "create"],
        ["kv", "--batch", "0"],
        ["kv", "--level", "disk"],
        ["overhead", "--case", "nothing"],
    ] {
        let ran = scene.run(["bench", arguments[0], arguments[1], arguments[2]]);
        assert_eq!(ran.status, Some(2), "{ran:?}");
    }
    let ran = scene.run(["bench", "migrate", "--directory", "/nowhere/at/all"]);
    assert!(
        ran.status.is_some_and(|status| status > 0) && ran.stderr.contains("/nowhere"),
        "{ran:?}"
    );
}

#[test]
fn semantics_are_for_objects_and_told_in_each_row() {
    let ask = |part: &'static str, case: &'static str| {
        [&[part, "--case", case, "--semantics", "posix,persistency=none"], &QUICK[..]].concat()
    };
    let report = ran(&[&ask("object", "write-run")[..], &["--batch", "3"]].concat());
    let case = &report["cases"][0];
    assert_eq!((&case["level"], &case["batch"]), (&"none".into(), &3.into()));
    let told = "default,atomicity=operation,ordering=strict,persistency=none";
    assert_eq!(case["semantics"], told);
    let refused = Scene::empty().fails(2, [&["bench"], &ask("kv", "put")[..]].concat());
    assert!(refused.contains("pairs have the level alone"), "{refused}");
}
