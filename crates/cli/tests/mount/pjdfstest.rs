// SPDX-License-Identifier: Apache-2.0 OR MIT
//! pjdfstest, a suite for what POSIX says of files: what passes on a directory of the file system that
//! the tiers are on passes on mounts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::scene::{Scene, finish};
use crate::suites::{How, Place, program, uring_is_offered};

/// naptime: more than four of the kernel's ticks at 250 Hz, in which file times advance. The users
/// and groups are those that every Debian has.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Another file system, for what cannot go from one to the other.
const ELSEWHERE: &str = "/dev/shm";

/// Makes as many links as the C library says that the file system allows, which knows ext4's bound and
/// takes that of FUSE for too large to try.
const SKIPPED: &str = "link::link_count_max";

/// The suite has about 400 tests; where fewer are found its output was not understood.
const TESTS_MIN: usize = 300;

/// What became of each test.
type Verdicts = BTreeMap<String, Verdict>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Skipped,
    /// With what the suite says about it.
    Failed(String),
}

#[test]
fn passes_where_the_process_serves() {
    passes(How::Served);
}

#[test]
fn passes_where_the_kernel_passes_through() {
    passes(How::Passed);
}

#[test]
fn passes_over_the_network() {
    passes(How::Network);
}

#[test]
fn passes_strictly_over_the_network() {
    passes(How::Strict);
}

#[test]
fn passes_where_the_kernel_asks_over_io_uring() {
    if uring_is_offered() {
        passes_with(How::Served, &["--uring", "on"]);
    }
}

#[test]
fn passes_over_the_network_where_the_kernel_asks_over_io_uring() {
    if uring_is_offered() {
        passes_with(How::Network, &["--uring", "on"]);
    }
}

fn passes(how: How) {
    passes_with(how, &[]);
}

fn passes_with(how: How, more: &[&str]) {
    let Some(mut place) = Place::new(how, &[&["-o", "suid,dev"], more].concat()) else { return };
    let native = native();
    let mounted = verdicts(&place.scene, place.mounted.path());
    println!("pjdfstest, native: {}", summary(native));
    println!("pjdfstest, {how:?}: {}", summary(&mounted));
    let failed: Vec<_> = mounted
        .iter()
        .filter(|(name, verdict)| **verdict != Verdict::Skipped || *name != SKIPPED)
        .filter(|(name, verdict)| {
            **verdict != Verdict::Passed && native.get(*name) == Some(&Verdict::Passed)
        })
        .collect();
    assert!(failed.is_empty(), "these pass natively, and do not on the mount: {failed:#?}");
    place.mounted.unmount();
}

/// What passes on a directory, and does so twice: some tests depend on time.
fn native() -> &'static Verdicts {
    static VERDICTS: OnceLock<Verdicts> = OnceLock::new();
    VERDICTS.get_or_init(|| {
        let scene = Scene::new().expect("it is root");
        let directory = scene.directory("native");
        let mut first = verdicts(&scene, &directory);
        for (name, second) in verdicts(&scene, &directory) {
            if second != Verdict::Passed {
                first.insert(name, second);
            }
        }
        first
    })
}

fn verdicts(scene: &Scene, directory: &Path) -> Verdicts {
    let configuration = scene.path("pjdfstest.toml");
    std::fs::write(&configuration, CONFIGURATION).expect("there is room");
    let mut command = Command::new(program("pjdfstest"));
    command.env("NO_COLOR", "1").arg("-c").arg(&configuration).arg("-p").arg(directory);
    if Path::new(ELSEWHERE).is_dir() {
        command.args(["-s", ELSEWHERE]);
    }
    let (_, text) = finish(command);
    let verdicts = read(&text);
    assert!(verdicts.len() >= TESTS_MIN, "{} tests: {text}", verdicts.len());
    verdicts
}

/// Reads what the suite prints: a line for each test, and details below some of them.
fn read(text: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    let mut failed: Option<String> = None;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let verdict = match words[..] {
            [name, "ok"] => Some((name, Verdict::Passed)),
            [name, "skipped"] => Some((name, Verdict::Skipped)),
            [name, "FAILED"] => Some((name, Verdict::Failed(String::new()))),
            _ => None,
        };
        match (verdict, &failed) {
            (Some((name, verdict)), _) => {
                failed = matches!(verdict, Verdict::Failed(_)).then(|| name.to_string());
                verdicts.insert(name.to_string(), verdict);
            }
            (None, Some(name)) => {
                if let Some(Verdict::Failed(why)) = verdicts.get_mut(name) {
                    why.push_str(line);
                }
            }
            (None, None) => {}
        }
    }
    verdicts
}

fn summary(verdicts: &Verdicts) -> String {
    let count =
        |matches: fn(&Verdict) -> bool| verdicts.values().filter(|one| matches(one)).count();
    let passed = count(|verdict| *verdict == Verdict::Passed);
    let skipped = count(|verdict| *verdict == Verdict::Skipped);
    format!("{passed} passed, {skipped} skipped, {} failed", verdicts.len() - passed - skipped)
}
