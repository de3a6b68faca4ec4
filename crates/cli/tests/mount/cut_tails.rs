// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of a tier that have lost their ends: who reads them gets an error, and no early end or zeros.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::Value;

use crate::scene::{Scene, Served, finish};

const WHOLE: u64 = 5_000_001;
const LEFT: u64 = 3_000_000;

/// The only file below a directory that is so long.
fn stored(directory: &Path) -> PathBuf {
    let mut folders = vec![directory.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("lists") {
            let entry = entry.expect("lists");
            let metadata = entry.metadata().expect("is there");
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.len() == WHOLE {
                return entry.path();
            }
        }
    }
    panic!("no file is stored");
}

/// What a program sees of the file.
fn check(path: &Path) {
    let length = |when: &str| {
        assert_eq!(fs::metadata(path).expect("is there").len(), WHOLE, "{when}");
    };
    length("before it is opened");
    let file = File::open(path).expect("opens");
    length("while it is open");
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).expect("is there");
    assert_eq!(block, [7; 4096]);
    for offset in [LEFT + 1_000_000, LEFT + 5000, WHOLE - 1] {
        let error = file.read_at(&mut block, offset).expect_err("it is lost");
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "at {offset}");
    }
    assert_eq!(file.read_at(&mut block, WHOLE).expect("is the end"), 0);
    drop(file);
    fs::read(path).expect_err("it is lost");
    length("after it was read");
}

/// Kinds of problems that `terrace fsck` finds.
fn problems(scene: &Scene) -> Vec<String> {
    let (_, text) = finish(scene.command(["fsck", "--json"]));
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let problems = report["problems"].as_array().unwrap_or_else(|| panic!("{text}"));
    problems.iter().map(|one| one["kind"].as_str().expect("has one").to_owned()).collect()
}

#[test]
fn what_is_lost_is_an_error_and_changes_nothing() {
    for tiers in [&["fast"][..], &["fast", "slow"]] {
        let Some(scene) = Scene::new() else { return };
        for made in ["store", "fast", "slow"] {
            fs::remove_dir_all(scene.path(made)).expect("it was made");
        }
        let named: Vec<_> = tiers.iter().map(|tier| format!("{tier}={tier}")).collect();
        let named = named.iter().flat_map(|tier| ["--tier", tier]);
        scene.ok(["init", "store", "--policy", "none"].into_iter().chain(named));
        let mut mounted = scene.mount("mnt", &["--io", "served"]);
        fs::write(mounted.path().join("a"), vec![7; WHOLE as usize]).expect("written");
        mounted.unmount();
        let file = File::options().write(true).open(stored(&scene.path("fast"))).expect("opens");
        file.set_len(LEFT).expect("cuts");
        for (name, how) in [("served", "served"), ("passed", "auto")] {
            let mut mounted = scene.mount(name, &["--io", how]);
            check(&mounted.path().join("a"));
            mounted.unmount();
            assert!(scene.has_logged(name, "lost its end"));
            assert_eq!(problems(&scene), ["wrong-length"], "{how}");
        }
        let mut served = Served::start(&scene);
        for how in [&[][..], &["--strict"]] {
            let mut mounted = scene.mount_served(&served, "network", how);
            check(&mounted.path().join("a"));
            mounted.unmount();
        }
        served.stop();
        assert_eq!(problems(&scene), ["wrong-length"]);
    }
}
