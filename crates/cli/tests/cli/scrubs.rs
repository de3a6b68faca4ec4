// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `scrub`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use terrace_core::{Clock, SystemClock};

use crate::scene::{Scene, finish, piped, signal};

/// The files of a tier that hold bytes of objects.
fn files(scene: &Scene, tier: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![scene.path(tier)];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).expect("readable") {
            let path = entry.expect("readable").path();
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push(path),
            }
        }
    }
    found.retain(|path| fs::metadata(path).is_ok_and(|data| data.len() == 90_000));
    found
}

fn flip(path: &PathBuf) {
    let mut data = fs::read(path).expect("readable");
    data[45_000] ^= 1;
    fs::write(path, data).expect("writable");
}

#[test]
fn a_scrub_finds_what_rots_and_mends_what_it_can() {
    for is_held in [false, true] {
        let scene = Scene::new();
        scene.ok_with(&[7; 90_000], ["put", "a/x"]);
        let held = is_held.then(|| scene.hold());
        let first = scene.json(["scrub", "--bandwidth", "1GB/s"]);
        assert_eq!((&first[0]["recorded"], &first[0]["problem_count"]), (&json!(1), &json!(0)));
        assert_eq!(first[0]["read_bytes"], 90_000);
        let tier = first_tier(&scene);
        flip(&files(&scene, &tier)[0]);
        let problem = scene.run(["scrub"]);
        assert!(problem.stdout.contains("problem: damaged-data a/x"), "{problem:?}");
        assert_eq!(problem.status, Some(1));
        flip(&files(&scene, &tier)[0]);
        scene.ok(["migrate", "a/x", "--to", "slow", "--promote"]);
        flip(&files(&scene, "slow")[0]);
        let mended = scene.ok(["scrub"]);
        assert!(mended.contains("mended: damaged-data a/x") && mended.contains("anew"), "{mended}");
        assert_eq!(scene.ok(["scrub", "--status"]).lines().count(), 2);
        let status = scene.json(["scrub", "--status"]);
        assert_eq!(status[0]["ended"]["problems"], 0);
        assert_eq!(status[0]["every_ns"], json!(null));
        scene.ok(["fsck", "--verify"]);
        scene.fails(2, ["scrub", "--bandwidth", "0B/s"]);
        if let Some(held) = held {
            held.stop();
        }
    }
}

fn first_tier(scene: &Scene) -> String {
    let found = ["fast", "slow"].into_iter().find(|tier| !files(scene, tier).is_empty());
    found.expect("the object is somewhere").into()
}

/// Waits until a scrub runs, or none.
fn wait_for_scrub(scene: &Scene, runs: bool) {
    let clock = SystemClock::default();
    for _ in 0..600 {
        // A scrub that has the store for itself lets nobody look.
        let told = scene.run(["scrub", "--status", "--json"]);
        if (told.status == Some(5) || told.stdout.contains("\"is_asked\":true")) == runs {
            return;
        }
        clock.sleep(Duration::from_millis(50));
    }
    panic!("a scrub runs: {}", !runs);
}

#[test]
fn an_interrupted_scrub_ends_and_keeps_what_it_did() {
    for is_held in [false, true] {
        let scene = Scene::new();
        scene.ok_with(&[7; 9_000], ["put", "a/first"]);
        scene.ok_with(&[7; 3 << 20], ["put", "a/second"]);
        let held = is_held.then(|| scene.hold());
        let child = piped(&mut scene.command(["scrub", "--bandwidth", "100kB/s"]));
        wait_for_scrub(&scene, true);
        signal(&child, Signal::INT);
        let ran = finish(child);
        assert_eq!(ran.signal, Some(2), "{ran:?}");
        if !is_held {
            let told = "terrace: interrupted: the scrub was ended; what it did stays\n";
            assert_eq!(ran.stderr, told);
        }
        wait_for_scrub(&scene, false);
        let whole = scene.json(["scrub", "--bandwidth", "1GB/s"]);
        assert_eq!((&whole[0]["is_complete"], &whole[0]["recorded"]), (&json!(true), &json!(1)));
        scene.ok(["fsck", "--verify"]);
        if let Some(held) = held {
            held.stop();
        }
    }
}
