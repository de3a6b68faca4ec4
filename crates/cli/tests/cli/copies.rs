// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cp`.

use std::process::Command;

use crate::scene::{Scene, finish, piped};

#[test]
fn cp_copies_between_files_and_objects() {
    let scene = Scene::new();
    scene.file("in.txt", "hello");
    scene.file("out/keep", "");
    scene.ok(["cp", "in.txt", ":a/x"]);
    scene.ok(["cp", ":a/x", ":b/y"]);
    scene.ok(["cp", ":b/y", "copy"]);
    assert_eq!(scene.read("copy"), b"hello");
    scene.ok(["cp", "in.txt", ":a/"]);
    assert_eq!(scene.ok(["get", "a/in.txt"]), "hello");
    scene.ok(["cp", ":a/in.txt", "out"]);
    assert_eq!(scene.read("out/in.txt"), b"hello");
    scene.ok_with(b"stream", ["cp", "-", ":plain"]);
    assert_eq!(scene.ok(["cp", ":default/plain", "-"]), "stream");
}

#[test]
fn cp_copies_trees_there_and_back() {
    let scene = Scene::new();
    for name in ["tree/a", "tree/sub/b", "tree/sub/deep/c"] {
        scene.file(name, name);
    }
    scene.ok(["cp", "-r", "tree", ":runs/42"]);
    assert_eq!(scene.ok(["ls"]), "runs/42/a\nruns/42/sub/b\nruns/42/sub/deep/c\n");
    scene.ok(["cp", "-r", ":runs/42/", ":keep/best"]);
    assert_eq!(scene.ok(["ls", "keep"]), "keep/best/a\nkeep/best/sub/b\nkeep/best/sub/deep/c\n");
    scene.ok(["cp", "-r", ":keep/best/", "back"]);
    assert_eq!(scene.files("back"), ["a", "sub/b", "sub/deep/c"]);
    assert_eq!(scene.read("back/sub/b"), b"tree/sub/b");
    scene.ok(["cp", "-r", ":keep", "whole"]);
    assert_eq!(scene.files("whole"), ["best/a", "best/sub/b", "best/sub/deep/c"]);
}

#[test]
fn cp_never_writes_outside_the_target_directory() {
    let scene = Scene::new();
    for name in ["run/../escaped", "run//absolute", "run/ok", "run/a/../../escaped"] {
        scene.ok_with(b"x", ["put", name]);
    }
    let ran = scene.run(["cp", "-r", ":run", "in/out"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 3, "{ran:?}");
    assert_eq!(scene.files("in"), ["out/ok"]);
    assert!(!scene.path("escaped").exists());
    // With a name of its own, such an object can be copied.
    scene.ok(["cp", ":run/../escaped", "file"]);
    assert_eq!(scene.read("file"), b"x");
    scene.fails(2, ["cp", ":run/..", "in"]);
}

#[test]
fn cp_leaves_links_out_and_says_so() {
    let scene = Scene::new();
    scene.file("tree/a", "a");
    std::os::unix::fs::symlink("/etc/passwd", scene.path("tree/link")).expect("made");
    let ran = scene.run(["cp", "-r", "tree", ":t"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("note: left out") && ran.stderr.contains("tree/link"), "{ran:?}");
    assert_eq!(scene.ok(["ls"]), "t/a\n");
}

#[test]
fn cp_refuses_what_makes_no_sense() {
    let scene = Scene::new();
    scene.file("in", "x");
    scene.ok(["cp", "in", ":a/x"]);
    for (source, target) in [("in", "out"), (":a/x", ":a/x"), ("-", ":a/")] {
        scene.fails(2, ["cp", source, target]);
    }
    for (source, target) in [(":a", ":a/sub"), (":a/x", ":a"), ("-", ":a"), (":a", "-")] {
        scene.fails(2, ["cp", "-r", source, target]);
    }
    scene.fails(3, ["cp", "missing", ":a/y"]);
    scene.fails(3, ["cp", ":a/missing", "y"]);
    assert_eq!(scene.ok(["get", "a/x"]), "x");
    assert_eq!(scene.ok(["ls"]), "a/x\n");
}

#[test]
fn cp_reports_as_json() {
    let scene = Scene::new();
    scene.file("tree/a", "hello");
    let printed = scene.json(["cp", "-r", "tree", ":t"]);
    let expected = serde_json::json!({"source": "tree/a", "target": ":t/a", "size_bytes": 5});
    assert_eq!(printed, [expected]);
}

/// Closing the store syncs every object, one after the other.
#[test]
fn cp_copies_more_objects_than_it_may_have_files_open() {
    let scene = Scene::new();
    for index in 0..1500 {
        scene.file(&format!("many/{index}"), [1; 10]);
    }
    let terrace = scene.command(["cp", "-r", "many", ":many"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 1200 && exec \"$0\" \"$@\""]).arg(terrace.get_program());
    limited.args(terrace.get_args()).current_dir(scene.path(".")).env("TERRACE_STORE", "store");
    let ran = finish(piped(&mut limited));
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(scene.ok(["fsck"]), "1500 objects, 1500 segments: no problems\n");
}
