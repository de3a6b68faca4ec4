// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `watch`, and the program of docs/how-to/watch.md that does the same.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::cut_off::eventually;
use crate::scene::{Scene, finish, one_error, piped, signal, values};

const DOCUMENT: &str = include_str!("../../../../docs/how-to/watch.md");

/// Commands that change tiers, until somebody who watches has seen enough: when a command begins
/// to watch cannot be seen from outside.
fn change_until_it_ends(scene: &Scene, child: &mut Child) {
    while child.try_wait().expect("it is ours").is_none() {
        scene.ok(["tiers", "drain", "slow"]);
        scene.ok(["tiers", "drain", "slow", "--cancel"]);
    }
}

#[test]
fn what_happens_is_shown_as_json_and_in_words() {
    let scene = Scene::new();
    let held = scene.hold();
    let mut child = piped(&mut scene.command(["watch", "--json", "--count", "4"]));
    change_until_it_ends(&scene, &mut child);
    let ran = finish(child);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let notices = values(&ran.stdout);
    for (index, notice) in notices.iter().enumerate() {
        assert_eq!(notice["number"], index as u64 + 1);
        assert_eq!((&notice["kind"], &notice["tier"]), (&"tier".into(), &"slow".into()));
        assert!(notice["wall_ns"].as_u64().expect("a number") > 1 << 60);
    }
    assert_eq!(notices.len(), 4);

    let mut child = piped(&mut scene.command(["watch", "--kind", "tier,policy", "--count", "1"]));
    change_until_it_ends(&scene, &mut child);
    let ran = finish(child);
    assert_eq!((ran.status, ran.stdout.lines().count()), (Some(0), 1), "{ran:?}");
    assert!(ran.stdout.contains("Z  tier slow "), "{ran:?}");
    held.stop();
}

/// One that watches opens no store itself: the room is there from its start, before it has threads.
#[test]
fn there_is_room_for_descriptors_from_the_start() {
    let scene = Scene::new();
    let held = scene.hold();
    let mut child = piped(&mut scene.command(["watch"]));
    let path = format!("/proc/{}/status", child.id());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let least = limit.unwrap_or(u64::MAX).min(16 << 10);
    eventually("room for descriptors", || {
        let status = std::fs::read_to_string(&path).expect("it runs");
        let room = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        room.expect("it is told").trim().parse::<u64>().expect("a number") >= least
    });
    child.kill().expect("it is ours");
    finish(child);
    held.stop();
}

#[test]
fn a_migration_is_shown_with_its_reason_and_its_cost() {
    let scene = Scene::new();
    scene.ok_with(b"hello", ["put", "a/x"]);
    let held = scene.hold();
    let watch = ["watch", "a/x", "--kind", "migration", "--count", "6"];
    let mut child = piped(&mut scene.command(watch));
    let mut to = ["slow", "fast"].into_iter().cycle();
    while child.try_wait().expect("it is ours").is_none() {
        scene.ok(["migrate", "a/x", "--to", to.next().expect("endless")]);
    }
    let ran = finish(child);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for word in [" queued: a/x segment 0, move ", ", 5 B, by user", ", done, 5 B in ", "modelled "]
    {
        assert!(ran.stdout.contains(word), "{word}: {}", ran.stdout);
    }
    held.stop();
}

#[test]
fn a_signal_ends_it_well_and_the_end_of_the_holder_does_not() {
    let scene = Scene::new();
    let ran = scene.run(["watch"]);
    assert_eq!(ran.status, Some(11), "{ran:?}");
    assert!(one_error(&ran).contains("no process holds it"), "{ran:?}");
    let held = scene.hold();
    // One that has shown something watches.
    let seen = || {
        let mut child = piped(&mut scene.command(["watch"]));
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, receiver) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            let mut line = String::new();
            lines.read_line(&mut line).expect("text");
            sender.send(()).expect("the test waits");
            // The rest, so that it never waits for this.
            let _ = lines.read_to_string(&mut line);
        });
        while receiver.try_recv().is_err() {
            scene.ok(["tiers", "drain", "slow"]);
            scene.ok(["tiers", "drain", "slow", "--cancel"]);
        }
        (child, reading)
    };
    let (child, reading) = seen();
    signal(&child, Signal::INT);
    let ran = finish(child);
    reading.join().expect("no panic");
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");

    let (child, reading) = seen();
    held.kill();
    let ran = finish(child);
    reading.join().expect("no panic");
    assert_eq!(ran.status, Some(11), "{ran:?}");
    one_error(&ran);
    scene.fails(2, ["watch", "--kind", "coffee"]);
}

#[test]
fn the_documented_program_watches_too() {
    let scene = Scene::new();
    let (_, program) = DOCUMENT.split_once("```python\n").expect("there is one");
    let (program, _) = program.split_once("```").expect("it ends");
    scene.file("watch.py", program);
    let held = scene.hold();
    let mut command = Command::new("python3");
    command.arg(scene.path("watch.py")).arg(scene.path("store")).arg("2");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.as_mut().expect("python3 is there");
    let mut told = String::new();
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    errors.read_line(&mut told).expect("text");
    assert_eq!(told, "watching\n");
    scene.ok(["tiers", "drain", "slow"]);
    scene.ok(["tiers", "drain", "slow", "--cancel"]);
    let mut shown = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut shown).expect("text");
    assert!(child.wait().expect("it ends").success(), "{shown}");
    assert_eq!(shown.lines().next(), Some("1 tier draining"));
    assert_eq!(shown.lines().count(), 2, "{shown}");
    held.stop();
}
