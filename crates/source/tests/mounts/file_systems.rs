// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sources on several file systems, of which one hangs.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tempfile::TempDir;

use crate::{PATIENT, SHORT, ground, mount, mount_sized, pattern, write};

/// File systems of their own, which are unmounted with this.
struct Below(Vec<PathBuf>);

impl Below {
    fn mount(&mut self, ground: &TempDir, name: &str) {
        let path = ground.path().join("source").join(name);
        fs::create_dir(&path).expect("room");
        let mut command = Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "none"]).arg(&path).status();
        assert!(mounted.expect("mount").success());
        self.0.push(path);
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

#[test]
fn files_of_file_systems_below_the_source_are_told_apart() {
    let Some(ground) = ground() else { return };
    let mut below = Below(Vec::new());
    for name in ["a", "b"] {
        below.mount(&ground, name);
        write(&ground, &format!("{name}/file"), name.as_bytes());
        let linked = ground.path().join("source").join(name);
        fs::hard_link(linked.join("file"), linked.join("link")).expect("room");
    }
    let number = |path: PathBuf| fs::metadata(path).expect("it is there").ino();
    let at_source = |name: &str| number(ground.path().join("source").join(name));
    assert_eq!(at_source("a/file"), at_source("b/file"), "both count from the beginning");
    let mounted = mount(&ground, PATIENT, PATIENT);
    let at = |name: &str| number(mounted.path.join(name));
    assert_ne!(at("a/file"), at("b/file"));
    assert_ne!(at("a"), at("b"));
    assert_eq!(at("a/file"), at("a/link"), "a hard link is one file");
    for name in ["a", "b"] {
        let read = fs::read(mounted.path.join(name).join("file")).expect("read");
        assert_eq!(read, name.as_bytes());
        let entry = fs::read_dir(mounted.path.join(name)).expect("listed");
        let entry = entry.map(|entry| entry.expect("listed")).find(|it| it.file_name() == "file");
        let listed = entry.expect("it is there").ino();
        assert_eq!(listed, at(&format!("{name}/file")));
    }
}

#[test]
fn a_file_system_that_hangs_holds_up_no_other() {
    let Some(ground) = ground() else { return };
    let mut below = Below(Vec::new());
    for name in ["a", "b"] {
        below.mount(&ground, name);
        for file in ["first", "second"] {
            write(&ground, &format!("{name}/{file}"), name.as_bytes());
        }
    }
    let mounted = mount(&ground, Duration::ZERO, SHORT);
    let read = |name: &str| fs::read(mounted.path.join(name));
    *mounted.gate.place.lock().expect("no panic") = "b".into();
    mounted.gate.set_closed(true);
    assert_eq!(read("b/first").expect_err("it hangs").kind(), ErrorKind::TimedOut);
    std::thread::scope(|scope| {
        let asked = mounted.gate.waited.load(Ordering::Relaxed);
        // One caller waits for the deadline again.
        let trial = scope.spawn(|| read("b/second"));
        while mounted.gate.waited.load(Ordering::Relaxed) == asked {
            std::thread::yield_now();
        }
        assert_eq!(read("a/first").expect("it answers"), b"a");
        let listed = fs::read_dir(mounted.path.join("a")).expect("listed").count();
        assert_eq!(listed, 2);
        assert_eq!(read("a/second").expect("it answers"), b"a");
        assert_eq!(trial.join().expect("no panic").expect_err("hangs").kind(), ErrorKind::TimedOut);
    });
    mounted.gate.set_closed(false);
    assert_eq!(read("b/first").expect("it answers again"), b"b");
}

#[test]
fn no_thread_that_serves_the_kernel_closes_a_file_of_the_source() {
    let Some(ground) = ground() else { return };
    write(&ground, "in/file", &pattern(5000));
    write(&ground, "in/large", &pattern(9 << 20));
    // One is read past the cache, the other one in blocks.
    for cache_bytes in [0, 1 << 30] {
        let mounted = mount_sized(&ground, PATIENT, PATIENT, cache_bytes);
        let mut part = [0; 4096];
        for name in ["file", "large"] {
            let file = File::open(mounted.path.join("in").join(name)).expect("it is there");
            file.read_exact_at(&mut part, 0).expect("read");
        }
        assert_eq!(fs::read_dir(mounted.path.join("in")).expect("listed").count(), 2);
        let closers = || mounted.gate.closers.lock().expect("no panic").clone();
        while closers().len() < 3 {
            std::thread::yield_now();
        }
        assert!(closers().iter().all(|name| name == "terrace-source"), "{:?}", closers());
    }
}
