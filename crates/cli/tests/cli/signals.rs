// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ctrl-C and readers that go away.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::scene::{Scene, finish, piped, signal, values};

/// Starts a put whose input does not end, and returns once it has written some of it.
fn half_a_put(scene: &Scene, key: &str) -> Child {
    half_of(scene.command(["put", key]))
}

/// Starts a command that stores its input, which does not end, and returns once it has written some of
/// it.
pub(crate) fn half_of(mut command: Command) -> Child {
    let mut child = piped(command.stdin(Stdio::piped()));
    let stdin = child.stdin.as_mut().expect("it is a pipe");
    // A pipe holds 64 KiB: when all this is taken, more than two pieces of 1 MiB were read, and
    // a piece is written before the next is read.
    stdin.write_all(&vec![1; 3 << 20]).expect("the child reads");
    child
}

#[test]
fn an_interrupted_put_leaves_no_new_object() {
    for (number, name) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let scene = Scene::new();
        let child = half_a_put(&scene, "new");
        signal(&child, number);
        let ran = finish(child);
        assert_eq!(ran.signal, Some(name), "{ran:?}");
        assert_eq!(ran.stderr, "terrace: interrupted: put was not finished\n");
        assert_eq!(scene.ok(["ls"]), "");
        scene.ok(["fsck"]);
    }
}

/// `timeout` signals the process and then its group.
#[test]
fn two_signals_at_once_are_one() {
    let scene = Scene::new();
    let child = half_a_put(&scene, "new");
    signal(&child, Signal::INT);
    signal(&child, Signal::TERM);
    let ran = finish(child);
    assert_eq!(ran.stderr, "terrace: interrupted: put was not finished\n", "{ran:?}");
    assert_eq!(scene.ok(["ls"]), "");
}

#[test]
fn an_interrupted_put_over_an_object_leaves_the_old_content() {
    let scene = Scene::new();
    scene.ok_with(&vec![9; 5 << 20], ["put", "old"]);
    let child = half_a_put(&scene, "old");
    signal(&child, Signal::INT);
    finish(child);
    let content = scene.command(["get", "old"]).output().expect("it runs").stdout;
    assert!(content == vec![9; 5 << 20], "{} bytes", content.len());
    scene.ok(["fsck"]);
}

#[test]
fn an_interrupted_put_says_so_as_json() {
    let scene = Scene::new();
    let mut child = piped(scene.command(["put", "new", "--json"]).stdin(Stdio::piped()));
    child.stdin.as_mut().expect("a pipe").write_all(&vec![1; 3 << 20]).expect("the child reads");
    signal(&child, Signal::INT);
    let error = values(&finish(child).stderr)[0]["error"].clone();
    assert_eq!(error["kind"], "interrupted");
}

#[test]
fn a_reader_that_goes_away_is_no_error_message() {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "a/x"]);
    for arguments in [&["ls"][..], &["get", "a/x"], &["man"], &["help"], &["tiers", "--json"]] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut command = scene.command(arguments);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().expect("it runs");
        let ran = finish(child);
        assert_eq!((ran.signal, ran.stderr.as_str()), (Some(13), ""), "{arguments:?}: {ran:?}");
    }
    scene.ok(["fsck"]);
}

#[test]
fn a_signal_that_the_parent_ignores_stays_ignored() {
    let scene = Scene::new();
    // As `nohup` does.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" --store store put new"]);
    command.arg(env!("CARGO_BIN_EXE_terrace")).current_dir(scene.path("."));
    let mut child = piped(command.stdin(Stdio::piped()));
    child.stdin.as_mut().expect("a pipe").write_all(&vec![1; 3 << 20]).expect("the child reads");
    signal(&child, Signal::HUP);
    drop(child.stdin.take());
    let ran = finish(child);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_eq!(scene.json(["stat", "new"])[0]["size_bytes"], 3 << 20);
}

#[test]
fn errors_that_nobody_reads_change_no_status() {
    let scene = Scene::new();
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let child = scene.command(["get", "nope"]).stderr(writer).spawn().expect("it runs");
    assert_eq!(finish(child).status, Some(3));
}
