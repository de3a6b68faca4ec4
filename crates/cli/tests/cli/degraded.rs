// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `hold --degraded`: a store whose tier is missing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::scene::{Scene, signal};

#[test]
fn a_store_is_held_without_a_tier_and_takes_it_back() {
    let scene = Scene::new();
    scene.ok_with(b"here", ["put", "here"]);
    scene.ok_with(&[7; 5000], ["put", "there"]);
    scene.ok_with(b"doomed", ["put", "doomed"]);
    scene.ok(["migrate", "there", "doomed", "--to", "slow"]);
    fs::rename(scene.path("slow"), scene.path("away")).expect("renamed");
    scene.fails(3, ["put", "new"]);
    let mut held =
        scene.command(["hold", "--degraded"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut line = String::new();
    BufReader::new(held.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
    assert!(line.starts_with("holding store: "), "{line:?}");
    assert_eq!(scene.ok(["get", "here"]), "here");
    scene.ok_with(b"new", ["put", "new"]);
    let error = scene.fails(1, ["get", "there"]);
    assert!(error.contains("offline"), "{error}");
    assert!(scene.ok(["tiers"]).contains("offline"));
    scene.ok(["rm", "doomed"]);
    signal(&held, rustix::process::Signal::TERM);
    assert!(held.wait().expect("ends").success());
    fs::rename(scene.path("away"), scene.path("slow")).expect("renamed");
    let ran = scene.run(["get", "there"]);
    assert_eq!((ran.status, ran.stdout.len()), (Some(0), 5000), "{ran:?}");
    assert!(ran.stderr.contains("the tier slow was missing"), "{ran:?}");
    assert_eq!(scene.ok(["get", "new"]), "new");
    scene.fails(3, ["get", "doomed"]);
    assert!(scene.ok(["fsck", "--verify"]).contains("no problems"));
    let files = scene.files("slow");
    assert_eq!(files.iter().filter(|name| name.contains("seg/")).count(), 1, "{files:?}");
}

#[test]
fn an_empty_mount_point_is_a_missing_tier_and_another_directory_is_not() {
    let scene = Scene::new();
    scene.ok_with(b"here", ["put", "here"]);
    fs::rename(scene.path("slow"), scene.path("away")).expect("renamed");
    fs::create_dir(scene.path("slow")).expect("made");
    let settings = String::from_utf8(scene.read("store/terrace.toml")).expect("text");
    let settings = settings.replacen("[store]\n", "[store]\ndegraded = true\n", 1);
    fs::write(scene.path("store/terrace.toml"), settings).expect("written");
    assert_eq!(scene.run(["get", "here"]).stdout, "here");
    assert_eq!(scene.files("slow"), Vec::<String>::new(), "nothing is put there");
    fs::write(scene.path("slow/file"), "somebody's").expect("written");
    scene.fails(7, ["get", "here"]);
}
