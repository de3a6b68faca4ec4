// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace bench files` at its smallest: what it prints and leaves, not how fast anything is.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::scene::{Scene, finish, piped, signal};

/// Two directories of the scene; `None` where caches may not be dropped, which it says.
fn places(scene: &Scene) -> Option<[String; 2]> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: caches are dropped as root");
        return None;
    }
    Some(["a", "b"].map(|name| {
        let path = scene.path(name);
        std::fs::create_dir(&path).expect("room");
        format!("{name}={}", path.display())
    }))
}

#[test]
fn directories_are_compared_with_the_first_and_nothing_is_left() {
    let scene = Scene::empty();
    let Some([first, second]) = places(&scene) else { return };
    let daemon = format!("b={}", std::process::id());
    let rows = ["create-1k", "ls-lr", "shared-seq-read-1m", "shared-rand-write-4k"];
    let how = ["--groups", "1", "--size", "3MiB", "--processes", "3", "--daemon", &daemon];
    let chosen = rows.iter().flat_map(|row| ["--row", row]);
    let all = ["bench", "files", "--json", "--at", &first, "--at", &second];
    let ran = scene.run(all.into_iter().chain(how).chain(chosen));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let told: Vec<_> = ran.stderr.lines().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(told, rows, "each once it was measured");
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let found = report["rows"].as_array().expect("rows");
    let names: Vec<_> = found.iter().map(|row| row["row"].clone()).collect();
    assert_eq!(names, rows);
    for row in found {
        let is_shared = row["row"].as_str().is_some_and(|name| name.starts_with("shared"));
        assert_eq!(row["processes"], json!(if is_shared { 3 } else { 1 }), "{row}");
        assert_eq!(row["groups"], 1);
        let [a, b] = &row["places"].as_array().expect("places")[..] else { panic!("{row}") };
        assert_eq!((&a["name"], &b["name"]), (&json!("a"), &json!("b")));
        assert!(a["value"].as_f64().is_some_and(|value| value > 0.0), "{row}");
        assert_eq!((&a["first_times"], &a["daemon_cpu_us_per_op"]), (&Value::Null, &Value::Null));
        let median = a["value"].as_f64().zip(b["value"].as_f64()).map(|(a, b)| a / b);
        assert_eq!(b["first_times"]["median"].as_f64(), median, "{row}");
        assert!(b["daemon_cpu_us_per_op"].is_f64(), "{row}");
    }
    for name in ["a", "b"] {
        assert_eq!(scene.path(name).read_dir().expect("is there").count(), 0);
    }
}

#[test]
fn daemons_forget_before_each_block_that_reads_a_shared_file_which_nobody_has_open() {
    let scene = Scene::empty();
    let Some([first, second]) = places(&scene) else { return };
    let forget = "b=if find /proc/[0-9]*/fd /proc/[0-9]*/cwd -lname \"$PWD/b/*\" 2>/dev/null | grep -q .; \
        then exit 3; fi; ls b/* >>forgot; echo $PPID";
    let how = ["--groups", "1", "--size", "3MiB", "--processes", "3", "--forget", forget];
    let rows = [
        "create-1k",
        "shared-seq-write-1m",
        "shared-seq-read-1m",
        "shared-rand-write-4k",
        "shared-rand-read-4k",
    ];
    let chosen = rows.iter().flat_map(|row| ["--row", row]);
    let all = ["bench", "files", "--json", "--at", &first, "--at", &second];
    let ran = scene.run(all.into_iter().chain(how).chain(chosen));
    assert_eq!(ran.status, Some(0), "{ran:?}");
    // One to get warm, and a group of two.
    let blocks = |row| [row, row, row];
    let expected = ["shared-seq-read-1m", "shared-rand-read-4k"].map(blocks).concat();
    let forgot = String::from_utf8(scene.read("forgot")).expect("names");
    assert_eq!(forgot.lines().collect::<Vec<_>>(), expected);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let told = |place: usize, what: &str| {
        let found = report["rows"].as_array().expect("rows").iter();
        found.map(|row| row["places"][place][what].clone()).collect::<Vec<_>>()
    };
    assert_eq!(told(0, "daemons_forgot"), [false; 5]);
    assert_eq!(told(1, "daemons_forgot"), [false, false, true, false, true]);
    // From then on the daemons are those that the command named.
    let is_known = |cpu: Value| cpu.is_f64();
    let cpu_is_known: Vec<_> = told(1, "daemon_cpu_us_per_op").into_iter().map(is_known).collect();
    assert_eq!(cpu_is_known, [false, false, true, true, true]);
}

#[test]
fn a_command_to_forget_that_fails_ends_all() {
    let scene = Scene::empty();
    let Some([first, second]) = places(&scene) else { return };
    let all = ["bench", "files", "--at", &first, "--at", &second, "--row", "shared-rand-read-4k"];
    let how = ["--size", "3MiB", "--processes", "3"];
    for (forget, status, told) in [
        ("b=echo 'target is busy' >&2; exit 3", 1, "said=target is busy name=b command=echo"),
        ("b=echo mounted", 2, "line=mounted name=b command=echo mounted"),
    ] {
        let error = scene.fails(status, all.iter().chain(&how).chain(&["--forget", forget]));
        assert!(error.contains(told), "{error}");
        for name in ["a", "b"] {
            assert_eq!(scene.path(name).read_dir().expect("is there").count(), 0);
        }
    }
}

#[test]
fn an_interrupted_row_leaves_nothing() {
    let scene = Scene::empty();
    let Some([first, second]) = places(&scene) else { return };
    for row in ["stat", "shared-rand-write-4k"] {
        let all = ["bench", "files", "--groups", "1000", "--row", row, "--at", &first];
        let child = piped(&mut scene.command(all.into_iter().chain(["--at", &second])));
        let left = |name| scene.path(name).read_dir().expect("it is there").count();
        // It listens for signals before it makes anything.
        while left("b") == 0 {
            std::thread::yield_now();
        }
        signal(&child, Signal::INT);
        let ran = finish(child);
        assert_eq!(ran.signal, Some(2), "{row}: {ran:?}");
        assert_eq!((left("a"), left("b")), (0, 0), "{row}");
    }
}

#[test]
fn files_that_cannot_be_measured_so_are_refused() {
    let scene = Scene::empty();
    for wrong in [
        &["--groups", "1"][..],
        &["--at", "here"],
        &["--at", "=here"],
        &["--at", "a=.", "--at", "a=."],
        &["--at", "a=.", "--daemon", "b=1"],
        &["--at", "a=.", "--daemon", "a=one"],
        &["--at", "a=.", "--forget", "b=true"],
        &["--at", "a=.", "--forget", "a="],
        &["--at", "a=.", "--forget", "a=true", "--forget", "a=true"],
        &["--at", "a=.", "--size", "1MB"],
        &["--at", "a=.", "--size", "3MiB"],
        &["--at", "a=.", "--row", "dance"],
    ] {
        scene.fails(2, [&["bench", "files"], wrong].concat());
    }
}
