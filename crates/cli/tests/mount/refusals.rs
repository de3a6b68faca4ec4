// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is refused, and how that is said.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use serde_json::Value;
use terrace_core::{Clock, SystemClock};

use crate::scene::{Mounted, Scene, Served};

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
    let mut mounted = scene.mount("mnt", &[]);
    let other = scene.directory("other");
    let purpose = |mounted: &Mounted| format!("purpose=\"mount at {}\"", mounted.path().display());
    scene.directory("tree");
    for arguments in [
        &["mount", "-o", "rw", "store", "other"][..],
        &["mount", "-o", "ro", "store", "other"],
        &["mount", "--io", "passthrough", "store", "other"],
        &["import", "tree"],
        &["export", "tree"],
        &["fsck", "--repair"],
    ] {
        let output = run(&scene, arguments);
        let said = errors(&output);
        let is_unsupported = arguments.contains(&"passthrough");
        let status = if is_unsupported { 10 } else { BUSY };
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(&purpose(&mounted)), "{arguments:?}: {said}");
        assert!(said.contains(&format!("process={}", mounted.process())), "{arguments:?}: {said}");
        assert!(!is_mounted(&other));
    }
    mounted.unmount();
    let reading = scene.mount("mnt", &["-o", "ro"]);
    for arguments in [&["mount", "store", "other"][..], &["ls"]] {
        let output = run(&scene, arguments);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(BUSY), "{arguments:?}: {said}");
        assert!(said.contains("reading only") && said.contains(&purpose(&reading)), "{said}");
    }
}

#[test]
fn a_path_is_taken_by_a_command_or_the_tool_for_it_is_named() {
    let Some(scene) = Scene::new() else { return };
    // In the other mode a small file has an object where one was ready when it was made.
    let mounted = scene.mount("mnt", &["--io", "served"]);
    fs::create_dir(mounted.path().join("dir")).expect("made");
    for (name, length) in [("file", 10_000), ("dir/file", 10_000), ("small", 10)] {
        fs::write(mounted.path().join(name), vec![7; length]).expect("there is room");
    }
    let explained: Value =
        serde_json::from_str(&scene.ok(["--json", "explain", "./mnt/file"])).expect("JSON");
    let key = explained["key"].as_str().expect("a key");
    let said = scene.ok(["stat", "./mnt/file"]);
    assert_eq!(said, scene.ok(["stat", key]));
    let mut command = scene.command(["stat", "mnt/file"]);
    let output = command.env_remove("TERRACE_STORE").output().expect("the binary runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{}", errors(&output));
    let output = run(&scene, &["stat", "./mnt/small"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(errors(&output).contains("kept with the metadata"), "{}", errors(&output));
    let file = mounted.path().join("file");
    let file = file.to_str().expect("UTF-8");
    for (arguments, tool) in [
        (&["get", "./mnt/file"][..], "cp(1)"),
        (&["get", file, "out"], "cp(1)"),
        (&["get", "./mnt/missing", "out"], "cp(1)"),
        (&["put", file, "store/terrace.toml"], "cp(1)"),
        (&["cp", file, "out"], "cp(1)"),
        (&["cp", "-r", "./mnt/dir", "out"], "cp(1)"),
        (&["rm", "./mnt/file"], "rm(1)"),
        (&["rm", "-r", "./mnt/dir"], "rm(1)"),
        (&["ls", "./mnt"], "ls(1)"),
        (&["ls", "-l", file], "getfattr"),
        (&["watch", "./mnt/dir"], "terrace explain"),
        (&["quota", "show", "./mnt"], "terrace explain"),
        (&["quota", "set", "./mnt", "--objects", "1"], "terrace explain"),
        (&["quota", "clear", "./mnt"], "terrace explain"),
        (&["scrub", "--namespace", "./mnt"], "terrace explain"),
    ] {
        let output = run(&scene, arguments);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.contains("in a mounted store") && said.contains(tool),
            "{arguments:?}: {said}"
        );
    }
    // Where no store is named, without a dot in front, too.
    let mut command = scene.command(["get", "mnt/file", "out"]);
    let output = command.env_remove("TERRACE_STORE").output().expect("the binary runs");
    assert!(errors(&output).contains("cp(1)"), "{}", errors(&output));
    // The directory of a mount is that of no store.
    let output = run(&scene, &["ls", "--store", "mnt"]);
    let store = fs::canonicalize(scene.path("store")).expect("it is there");
    let said = errors(&output);
    assert!(said.contains(&format!("mounted={}", store.display())), "{said}");
    // What is copied out of objects or into them goes through the mount as through any directory.
    scene.ok(["put", "a/copy", file]);
    scene.ok(["get", "a/copy", "mnt/copy"]);
    assert_eq!(fs::read(mounted.path().join("copy")).expect("copied"), [7; 10_000]);
    assert!(!scene.path("out").exists());
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
