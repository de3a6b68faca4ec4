// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is refused, and how that is said.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use terrace_core::{Clock, SystemClock};

use crate::scene::{Scene, Served};

/// The exit status of what somebody else uses.
const BUSY: i32 = 5;

fn run(scene: &Scene, arguments: &[&str]) -> Output {
    scene.command(arguments.iter().copied()).output().expect("the binary runs")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
    table.contains(path.to_str().expect("UTF-8"))
}

#[test]
fn a_mounted_store_is_not_mounted_once_more_not_even_to_read() {
    let Some(scene) = Scene::new() else { return };
    let _mounted = scene.mount("mnt", &[]);
    let other = scene.directory("other");
    for options in ["rw", "ro"] {
        let output = run(&scene, &["mount", "-o", options, "store", "other"]);
        assert_eq!(output.status.code(), Some(BUSY), "{options}: {}", errors(&output));
        assert!(errors(&output).contains("has it mounted for itself"), "{}", errors(&output));
        assert!(!is_mounted(&other));
    }
}

#[test]
fn what_is_left_of_a_mount_that_was_killed_is_to_be_taken_away_first() {
    let Some(scene) = Scene::new() else { return };
    let mut mounted = scene.mount("mnt", &[]);
    fs::write(mounted.path().join("file"), [7; 10_000]).expect("there is room");
    // What the kernel may remember.
    mounted.path().metadata().expect("it is mounted");
    mounted.kill_process();
    let output = run(&scene, &["mount", "store", "mnt"]);
    assert_eq!(output.status.code(), Some(BUSY), "{}", errors(&output));
    assert!(errors(&output).contains("with umount"), "{}", errors(&output));
    assert!(!errors(&output).contains("recovered"), "it was not opened: {}", errors(&output));
    mounted.kill();
    mounted.mount(&scene);
    assert_eq!(fs::read(mounted.path().join("file")).expect("it is there"), [7; 10_000]);
    mounted.unmount();
}

/// The process that served a mount ends a moment after `umount` has returned.
#[test]
fn what_needs_the_store_waits_for_a_mount_that_ends() {
    let Some(scene) = Scene::new() else { return };
    let other = scene.directory("other");
    fs::write(scene.directory("new").join("file"), [7; 10_000]).expect("written");
    let clock = SystemClock::default();
    for arguments in [
        &["fsck", "--repair"][..],
        &["fsck", "--rebuild"],
        &["import", "new"],
        &["mount", "store", "other"],
    ] {
        let mut mounted = scene.mount("mnt", &[]);
        fs::write(mounted.path().join("file"), [7; 10_000]).expect("there is room");
        let mut command = scene.command(arguments.iter().copied());
        let mut process = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        for _ in 0..20 {
            // It has found the store in use by now, and must not have given up.
            clock.sleep(Duration::from_millis(10));
            assert!(process.try_wait().expect("a process").is_none(), "{arguments:?}");
        }
        mounted.unmount();
        let output = process.wait_with_output().expect("a process");
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
        if is_mounted(&other) {
            assert_eq!(fs::read(other.join("file")).expect("it is there"), [7; 10_000]);
            rustix::mount::unmount(&other, UnmountFlags::empty()).expect("nobody uses it");
        }
    }
    scene.ok(["fsck"]);
}

#[test]
fn what_cannot_be_mounted_is_said_once() {
    let Some(scene) = Scene::new() else { return };
    scene.directory("mnt");
    for option in ["quux", "remount"] {
        let output = run(&scene, &["mount", "-o", option, "store", "mnt"]);
        let text = errors(&output);
        assert!(text.contains(&format!("option={option}")), "{text}");
        assert_eq!(text.matches("cannot mount").count(), 1, "{text}");
    }
}

#[test]
fn what_is_missing_or_too_large_on_the_command_line_is_said() {
    let Some(scene) = Scene::new() else { return };
    let other = scene.directory("other");
    fs::write(scene.path("file"), b"").expect("there is room");
    for (arguments, reason) in [
        (&["mount", "store"][..], "a store and a directory are expected"),
        (&["mount", "store", "file"], "a directory is expected path=file"),
        (&["mount", "file", "other"], "a directory is expected path=file"),
        (&["mount", "--inline", "65KiB", "store", "other"], "--inline is at most 64KiB"),
    ] {
        let mut command = scene.command(arguments.iter().copied());
        let output = command.env_remove("TERRACE_STORE").output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(errors(&output).contains(reason), "{}", errors(&output));
        assert!(!is_mounted(&other));
    }
}

#[test]
fn a_file_may_be_named_without_a_dot_where_no_store_is() {
    let Some(scene) = Scene::new() else { return };
    let mounted = scene.mount("mnt", &[]);
    fs::write(mounted.path().join("file"), [7; 10_000]).expect("there is room");
    symlink("file", mounted.path().join("link")).expect("made");
    let explained = scene.ok(["explain", "./mnt/file"]);
    for named in ["mnt/file", "mnt/link"] {
        let mut command = scene.command(["explain", named]);
        let output = command.env_remove("TERRACE_STORE").output().expect("the binary runs");
        assert!(output.status.success(), "{named}: {}", errors(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), explained);
    }
    for arguments in [&["migrate", "mnt/file", "--to", "slow"][..], &["pin", "mnt/file"]] {
        let mut command = scene.command(arguments.iter().copied());
        let output = command.env_remove("TERRACE_STORE").output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    }
    // Where one is, it is a key; the path is told.
    let output = run(&scene, &["explain", "mnt/file"]);
    assert!(!output.status.success());
    assert!(errors(&output).contains("./mnt/file"), "{}", errors(&output));
    let output = run(&scene, &["explain", "mnt/other"]);
    assert!(!errors(&output).contains("./mnt"), "{}", errors(&output));
}

#[test]
fn who_is_let_in_no_more_is_denied_what_he_asks_for() {
    let Some(scene) = Scene::new() else { return };
    scene.keep_secret("a secret of this test\n");
    let mut served = Served::start_with_secret(&scene);
    let address = format!("terrace://{}/?secret=secret", served.listens_on());
    let mut mounted = scene.mount_address(&address, "mnt", &[]);
    let file = mounted.path().join("file");
    fs::write(&file, [7; 10_000]).expect("there is room");
    let ask = || -> [io::Result<()>; 3] {
        [
            fs::read(&file).map(drop),
            fs::read_dir(mounted.path()).map(drop),
            fs::metadata(mounted.path().join("other")).map(drop).or_else(|error| {
                // That it is not there is an answer.
                if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
            }),
        ]
    };
    let restart = |served: &mut Served, secret: &str| {
        served.stop();
        scene.keep_secret(secret);
        served.start_again(&scene);
    };
    restart(&mut served, "another secret of this test\n");
    for denied in ask() {
        assert_eq!(denied.expect_err("denied").kind(), ErrorKind::PermissionDenied);
    }
    restart(&mut served, "a secret of this test\n");
    for answered in ask() {
        answered.expect("let in again");
    }
    mounted.unmount();
}

#[test]
fn who_reads_a_store_elsewhere_is_named() {
    let Some(scene) = Scene::new() else { return };
    drop(scene.mount("mnt", &[]));
    let _mounted = scene.mount("mnt", &["-o", "ro"]);
    let output = run(&scene, &["tiers"]);
    assert_eq!(output.status.code(), Some(BUSY), "{}", errors(&output));
    assert!(errors(&output).contains("for reading only"), "{}", errors(&output));
    assert!(!errors(&output).contains("control.sock"), "{}", errors(&output));
}

#[test]
fn a_log_that_cannot_be_written_keeps_it_from_being_mounted() {
    let Some(scene) = Scene::new() else { return };
    let path = scene.directory("mnt");
    let output = run(&scene, &["mount", "--log-file", "nowhere/log", "store", "mnt"]);
    assert!(!output.status.success());
    assert!(errors(&output).contains("nowhere/log"), "{}", errors(&output));
    assert!(!is_mounted(&path));
}

#[test]
fn links_are_followed_and_directories_named_by_who_explains() {
    let Some(scene) = Scene::new() else { return };
    let mounted = scene.mount("mnt", &[]);
    fs::write(mounted.path().join("file"), [7; 10_000]).expect("there is room");
    symlink("file", mounted.path().join("link")).expect("made");
    fs::create_dir(mounted.path().join("dir")).expect("made");
    let explained = scene.ok(["explain", "./mnt/file"]);
    assert_eq!(scene.ok(["explain", "./mnt/link"]), explained);
    for arguments in [&["explain", "./mnt/dir"][..], &["migrate", "./mnt/dir", "--to", "slow"]] {
        let output = run(&scene, arguments);
        assert!(errors(&output).contains("it is a directory"), "{}", errors(&output));
    }
    // There is nothing to do in a directory without files.
    let mut migrate = scene.command(["migrate", "-r", "./mnt/dir", "--to", "slow"]);
    let output = migrate.env_remove("TERRACE_STORE").output().expect("the binary runs");
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn a_store_is_not_mounted_over_itself() {
    let Some(scene) = Scene::new() else { return };
    for (place, what) in [("store", "the store"), (".", "the store"), ("fast", "tier fast")] {
        let output = run(&scene, &["mount", "store", place]);
        assert_eq!(output.status.code(), Some(2), "{place}: {}", errors(&output));
        let errors = errors(&output);
        assert!(errors.contains(&format!("would hide {what}")), "{errors}");
        assert!(!is_mounted(&scene.path(place).canonicalize().expect("it is there")));
    }
    fs::create_dir(scene.path("store/inside")).expect("made");
    scene.mount("store/inside", &[]).unmount();
}

#[test]
fn passthrough_that_cannot_be_is_refused_with_the_reason() {
    let Some(scene) = Scene::new() else { return };
    let (path, served) = (scene.directory("mnt"), Served::start(&scene));
    let output = run(&scene, &["mount", "--io", "passthrough", &served.address(), "mnt"]);
    assert!(!output.status.success() && !is_mounted(&path));
    assert!(errors(&output).contains("network"), "{}", errors(&output));
    drop(served);
    let settings = scene.path("store/terrace.toml");
    let text = fs::read_to_string(&settings).expect("it is there");
    let throttled = text.replace("[[tier]]", "[[tier]]\nthrottle = { latency = \"1us\" }");
    assert_ne!(text, throttled);
    fs::write(&settings, throttled).expect("it can be written");
    let output = run(&scene, &["mount", "--io", "passthrough", "store", "mnt"]);
    assert!(!output.status.success() && !is_mounted(&path), "{}", errors(&output));
    assert!(errors(&output).contains("throttled"), "{}", errors(&output));
    // Where it is not asked for, the mount says that nothing is passed through.
    assert!(!scene.mount("mnt", &[]).passes_through());
}
