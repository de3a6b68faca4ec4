// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace bench` at its smallest: what it prints, not how fast anything is.

use serde_json::Value;

use crate::scene::Scene;

fn ran(arguments: &[&str]) -> Value {
    let text = Scene::empty().ok([&["bench"], arguments, &["--json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// All rows have these fields, as numbers of at least 0.
fn assert_numbers(rows: &Value, fields: &[&str]) {
    for row in rows.as_array().expect("rows") {
        for field in fields {
            assert!(row[field].as_f64().is_some_and(|number| number >= 0.0), "{field} of {row}");
        }
    }
}

fn names(rows: &Value) -> Vec<&str> {
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
    ];
    assert_eq!(names(cases), expected);
    assert_numbers(cases, &["raw_ns", "stack_ns", "cpu_ns_per_op", "ratio"]);
    for case in cases.as_array().expect("rows") {
        assert_eq!((&case["level"], &case["verdict"]), (&"process".into(), &"not resolved".into()));
        assert!(case["low95_ns"].is_f64() && case["high95_ns"].is_f64(), "{case}");
    }
    let one = ran(&["overhead", "--seconds", "0.1", "--groups", "1", "--case", "open"]);
    assert_eq!(names(&one["cases"]), ["open"]);
}

#[test]
fn object_measures_both_sides() {
    let report = ran(&["object", "--seconds", "0.2", "--size", "8KiB"]);
    let cases = &report["cases"];
    let expected = ["create", "status", "write", "read", "delete"];
    assert_eq!(names(cases), expected.map(|name| [name; 2]).concat());
    assert_numbers(cases, &["ops_per_s", "mb_per_s", "p50_us", "p99_us", "cpu_us_per_op"]);
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
    for arguments in [["object", "--size", "much"], ["overhead", "--case", "nothing"]] {
        let ran = scene.run(["bench", arguments[0], arguments[1], arguments[2]]);
        assert_eq!(ran.status, Some(2), "{ran:?}");
    }
    let ran = scene.run(["bench", "migrate", "--directory", "/nowhere/at/all"]);
    assert!(
        ran.status.is_some_and(|status| status > 0) && ran.stderr.contains("/nowhere"),
        "{ran:?}"
    );
}
