// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `calibrate`: what tiers can do, for the configuration.

use std::fs;
use std::path::PathBuf;
use std::thread;

use terrace_settings::Settings;

use rustix::process::Signal;

use crate::scene::{Scene, finish, piped, signal};

/// A store with a slow tier of known figures, and comments.
fn with_slow_tier() -> Scene {
    let scene = Scene::new();
    let file = scene.path("store/terrace.toml");
    let text = fs::read_to_string(&file).expect("it was made");
    let at = text.find("name = \"slow\"").expect("it has the tier");
    let device = "# a disk\nthrottle = { latency = \"5ms\", bandwidth = \"20MB/s\" } # simulated\n";
    fs::write(&file, format!("{}{device}{}", &text[..at], &text[at..])).expect("written");
    scene
}

/// Files below the directories of the tiers.
fn files(scene: &Scene) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![scene.path("fast"), scene.path("slow")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).expect("it is there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() { left.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

#[test]
fn figures_are_written_and_everything_else_stays() {
    let scene = with_slow_tier();
    scene.ok_with(b"kept", ["put", "a"]);
    let before = files(&scene);
    let words = "calibrate store --tier slow --seconds 4 --write";
    let found = scene.json(words.split_whitespace()).remove(0);
    assert_eq!(files(&scene), before, "its objects are gone");
    assert_eq!(scene.ok(["get", "a"]), "kept");
    let tier = &found["tiers"][0];
    assert_eq!((&tier["tier"], &tier["is_cold"]), (&"slow".into(), &false.into()));
    let text = fs::read_to_string(scene.path("store/terrace.toml")).expect("it is there");
    for kept in ["# a disk\n", " # simulated\n", "# The tiers, most preferred first."] {
        assert!(text.contains(kept), "{text}");
    }
    let settings = Settings::read(&scene.path("store/terrace.toml")).expect("it is legal");
    let [fast, slow] = &settings.tiers[..] else { panic!("{settings:?}") };
    assert_eq!(fast.figures.latency_ns, 0, "nobody asked for it");
    let within = |value: f64, expected: f64| value > expected / 2.0 && value < expected * 2.0;
    assert!(within(slow.figures.latency_ns as f64, 5e6), "{found}");
    let switch = slow.device.switch.expect("objects were moved to it");
    assert!(switch.latency.as_millis() >= 5 && switch.cpu < switch.latency, "{found}");
    assert!(slow.device.cpu_share < 0.2, "nearly all of it is waiting: {found}");
    assert!(within(slow.figures.read_bytes_per_s, 20e6), "{found}");
    assert!(within(slow.figures.write_bytes_per_s, 20e6), "{found}");
}

#[test]
fn what_the_machine_has_in_memory_is_measured_beside_the_device() {
    let scene = with_slow_tier();
    let words = "calibrate store --tier fast --seconds 4 --write";
    let found = scene.json(words.split_whitespace()).remove(0);
    let tier = &found["tiers"][0];
    assert_eq!(tier["tier"], "fast");
    let sizes = |what: &str| tier[what].as_array().map(Vec::len);
    // Of files that are in memory anyway, nothing is measured twice.
    let is_cold = tier["is_cold"].as_bool().expect("a word");
    let expected = if is_cold { sizes("reads") } else { Some(0) };
    assert!(sizes("cached_reads") == expected && sizes("reads") > Some(1), "{found}");
    let settings = Settings::read(&scene.path("store/terrace.toml")).expect("it is legal");
    let device = settings.tiers[0].device;
    let nanoseconds = |of: Option<std::time::Duration>| of.map(|of| of.as_nanos() as f64);
    let found_ns = |what: &str| tier[what].as_f64();
    // Texts have three digits.
    let near = |one: Option<f64>, other: Option<f64>| match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= 0.01 * other,
        (one, other) => one == other,
    };
    assert!(near(nanoseconds(Some(device.create_latency)), found_ns("create_ns")), "{found}");
    assert!(near(nanoseconds(Some(device.sync_latency)), found_ns("sync_ns")), "{found}");
    let cached = tier["cached"].as_array();
    let bandwidth = device.cached.map(|cached| cached.bandwidth);
    assert!(near(bandwidth, cached.and_then(|cached| cached[1].as_f64())), "{found}");
}

#[test]
fn without_write_it_only_prints() {
    let scene = with_slow_tier();
    let before = scene.read("store/terrace.toml");
    let text = scene.ok("calibrate --tier fast --seconds 1".split_whitespace());
    assert!(text.contains("# fast: measured on "), "{text}");
    assert!(text.contains("[[tier]]  # fast\nlatency = \""), "{text}");
    assert_eq!(scene.read("store/terrace.toml"), before);
}

#[test]
fn an_interrupted_calibration_leaves_nothing_behind() {
    let scene = with_slow_tier();
    scene.ok_with(b"kept", ["put", "a"]);
    let (before, settings) = (files(&scene), scene.read("store/terrace.toml"));
    let mut child = piped(&mut scene.command("calibrate --seconds 60 --write".split_whitespace()));
    while files(&scene) == before {
        assert_eq!(child.try_wait().expect("it runs"), None, "it ended before it began");
        thread::yield_now();
    }
    signal(&child, Signal::INT);
    let ran = finish(child);
    assert_eq!(ran.signal, Some(2), "{ran:?}");
    assert_eq!((files(&scene), scene.read("store/terrace.toml")), (before, settings));
}

#[test]
fn what_a_killed_one_left_is_gone_after_one_of_another_tier() {
    let scene = with_slow_tier();
    let before = files(&scene);
    let words = "calibrate --tier slow --seconds 60";
    let mut child = piped(&mut scene.command(words.split_whitespace()));
    while files(&scene) == before {
        assert_eq!(child.try_wait().expect("it runs"), None, "it ended before it began");
        thread::yield_now();
    }
    signal(&child, Signal::KILL);
    finish(child);
    assert_ne!(files(&scene), before, "it had no time to tidy up");
    scene.ok("calibrate --tier fast --seconds 1".split_whitespace());
    assert_eq!(files(&scene), before);
}

#[test]
fn a_store_in_use_and_a_tier_without_room_are_refused() {
    let scene = Scene::new();
    let held = scene.hold();
    let said = scene.fails(5, ["calibrate", "--seconds", "1"]);
    assert!(said.contains("another process owns it"), "{said}");
    held.stop();
    let said = scene.fails(3, "calibrate --tier medium --seconds 1".split_whitespace());
    assert!(said.contains("fast, slow"), "{said}");
    let text = fs::read_to_string(scene.path("store/terrace.toml")).expect("it was made");
    let small = text.replace("capacity = \"1MB\"", "capacity = \"100kB\"");
    fs::write(scene.path("store/terrace.toml"), small).expect("written");
    let said = scene.fails(4, "calibrate --tier fast --seconds 1".split_whitespace());
    assert!(said.contains("tier=fast") && said.contains("left_bytes=100000"), "{said}");
    scene.fails(2, ["calibrate", "--seconds", "0"]);
    scene.fails(10, "calibrate --store terrace://127.0.0.1:9/".split_whitespace());
}
