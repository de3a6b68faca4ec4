// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace bench mount` at its smallest: what it prints and leaves, not how fast anything is.

use std::process::Child;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::{Scene, finish, piped, signal};

/// Whether mounts may be measured here; where not, it says so.
fn may_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: mounts are measured as root");
    }
    is_root
}

/// Where a benchmark has all that it makes begins so.
fn mine(child: &Child) -> String {
    format!("terrace-bench-{}.", child.id())
}

fn is_mounted(mine: &str) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
    table.contains(mine)
}

/// Whether a directory of it is there.
fn is_left(mine: &str) -> bool {
    let entries =
        std::fs::read_dir("/dev/shm").or_else(|_| std::fs::read_dir(std::env::temp_dir()));
    let mut names = entries.expect("it is there").map(|entry| entry.expect("readable").file_name());
    names.any(|name| name.to_string_lossy().starts_with(mine))
}

#[test]
fn mounts_are_measured_in_the_modes_that_rows_name_and_unmounted() {
    let scene = Scene::empty();
    if !may_mount() {
        return;
    }
    // With a yardstick, or against a limit.
    let rows = [
        ("create", "auto", true),
        ("served-rand-read-4k", "served", true),
        ("net-stat", "network", true),
        ("million-mount", "auto", false),
    ];
    let how = ["bench", "mount", "--json", "--groups", "1", "--block-ms", "10", "--files", "1000"];
    let chosen = rows.iter().flat_map(|(row, ..)| ["--row", row]);
    let child = piped(&mut scene.command(how.into_iter().chain(chosen)));
    let mine = mine(&child);
    let ran = finish(child);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(!is_mounted(&mine) && !is_left(&mine), "{mine}");
    let told: Vec<_> = ran.stderr.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(told, rows.map(|(row, ..)| row), "each once it was measured");
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let found = report["rows"].as_array().expect("rows");
    assert_eq!(found.len(), rows.len(), "{report}");
    for (row, (name, mode, is_compared)) in found.iter().zip(rows) {
        assert_eq!((&row["row"], &row["mode"]), (&json!(name), &json!(mode)), "{row}");
        for text in ["unit", "yardstick_is", "bar"] {
            assert!(row[text].as_str().is_some_and(|text| !text.is_empty()), "{text} of {row}");
        }
        let number = |field: &str| row[field].as_f64();
        assert!(number("value").is_some_and(|value| value > 0.0), "{row}");
        assert!(number("low95").zip(number("high95")).is_some_and(|(a, b)| a <= b), "{row}");
        for field in ["daemon_cpu_us_per_op", "yardstick_cpu_us_per_op"] {
            assert!(number(field).is_some_and(|us| us >= 0.0), "{field} of {row}");
        }
        let (bound_of, yardstick) = (&row["bound_of"], number("yardstick"));
        match is_compared {
            true => {
                assert_eq!((bound_of, &row["groups"]), (&json!("ratio"), &json!(1)), "{row}");
                assert!(yardstick.is_some_and(|value| value > 0.0), "{row}");
            }
            false => assert_eq!((bound_of, &row["yardstick"]), (&json!("value"), &Value::Null)),
        }
        // Without a yardstick it takes as many blocks as ever, and the verdict depends on the machine.
        let verdicts: &[_] =
            if is_compared { &["not resolved"] } else { &["met", "missed", "not resolved"] };
        assert!(verdicts.iter().any(|verdict| row["verdict"] == *verdict), "{row}");
    }
}

#[test]
fn an_interrupted_measurement_of_mounts_leaves_none() {
    let scene = Scene::empty();
    if !may_mount() {
        return;
    }
    let endless = ["bench", "mount", "--groups", "1000", "--row", "net-stat"];
    let mut child = piped(&mut scene.command(endless));
    let mine = mine(&child);
    // It listens for signals before it makes anything.
    while !is_mounted(&mine) {
        assert_eq!(child.try_wait().expect("a process"), None, "it ended before it mounted");
        std::thread::yield_now();
    }
    signal(&child, Signal::INT);
    let ran = finish(child);
    assert_eq!(ran.signal, Some(2), "{ran:?}");
    assert!(!is_mounted(&mine) && !is_left(&mine), "{mine}");
}

#[test]
fn mounts_that_cannot_be_measured_so_are_refused() {
    let scene = Scene::empty();
    for wrong in [["--row", "dance"], ["--groups", "0"], ["--block-ms", "1"], ["--files", "0"]] {
        scene.fails(2, [&["bench", "mount"], &wrong[..]].concat());
    }
}
