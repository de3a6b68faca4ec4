// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are steered: by commands that take paths, and by their attributes.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Output;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, XattrFlags, getxattr, mkdirat, mknodat, open, openat, removexattr,
    setxattr,
};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::receipts::ask;
use crate::scene::{Scene, Served, wait_until};

/// Kept as an object.
const LENGTH: usize = 10_000;

const PIN: &str = "user.terrace.pin";
pub(crate) const TIER: &str = "user.terrace.tier";
pub(crate) const STATE: &str = "user.terrace.state";

/// What an attribute says.
pub(crate) fn attribute(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = [0; 100];
    let read = getxattr(path, name, &mut value[..])?;
    Ok(String::from_utf8_lossy(&value[..read]).into_owned())
}

#[track_caller]
fn run_on(scene: &Scene, arguments: &[&str], path: &Path) -> Output {
    let mut command = scene.command(arguments.iter().copied());
    let output = command.arg(path).output().expect("the binary runs");
    assert!(output.status.success(), "{arguments:?} {path:?}: {output:?}");
    output
}

#[test]
fn paths_that_are_no_text_are_paths() {
    let Some(scene) = Scene::new() else { return };
    let mounted = scene.mount("mnt", &[]);
    let odd = || OsString::from_vec(b"caf\xe9".to_vec());
    let directory = mounted.path().join(odd());
    fs::create_dir(&directory).expect("made");
    let file = directory.join(odd());
    fs::write(&file, [7; LENGTH]).expect("there is room");
    let explained = run_on(&scene, &["explain"], &file);
    assert!(String::from_utf8_lossy(&explained.stdout).contains("on fast"), "{explained:?}");
    run_on(&scene, &["migrate", "--to", "slow"], &file);
    assert_eq!(attribute(&file, TIER).as_deref(), Ok("slow"));
    run_on(&scene, &["migrate", "-r", "--to", "fast"], &directory);
    assert_eq!(attribute(&file, TIER).as_deref(), Ok("fast"));
    let hex = |path: &Path| -> String {
        let bytes = path.as_os_str().as_encoded_bytes();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    for (verb, is_pinned) in [("pin", true), ("unpin", false)] {
        let output = run_on(&scene, &["--json", verb], &file);
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(said, json!({ "path_hex": hex(&file), "is_pinned": is_pinned }));
        assert_eq!(attribute(&file, PIN).is_ok(), is_pinned);
    }
    // Where no store is named, without a dot in front, too.
    let mut command = scene.command(["explain"]);
    command.arg(Path::new("mnt").join(odd()).join(odd())).env_remove("TERRACE_STORE");
    assert_eq!(command.output().expect("the binary runs").stdout, {
        run_on(&scene, &["explain"], &file).stdout
    });
    // Also where it is not there, or on no tier.
    let pipe = mounted.path().join("pipe");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, &pipe, FileType::Fifo, mode, 0).expect("made");
    let mut command = scene.command(["explain", "mnt/pipe"]);
    let output = command.env_remove("TERRACE_STORE").output().expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("no regular file"), "{output:?}");
    let mut command = scene.command(["explain", "mnt/nosuch"]);
    let output = command.env_remove("TERRACE_STORE").output().expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && text.contains("path=./mnt/nosuch"), "{output:?}");
    // What is empty is no directory: not that in which a program happens to be.
    let mut command = scene.command(["migrate", "-r", "--to", "slow", ""]);
    command.current_dir(mounted.path()).env_remove("TERRACE_STORE");
    let output = command.output().expect("the binary runs");
    assert!(!output.status.success(), "{output:?}");
    // What is no path is a key, which is text.
    let mut command = scene.command(["pin"]);
    let output = command.arg(odd()).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("UTF-8"), "{output:?}");
}

#[test]
fn the_log_says_which_attributes_and_tiers_exist() {
    let Some(scene) = Scene::new() else { return };
    let mounted = scene.mount("mnt", &[]);
    let file = mounted.path().join("file");
    fs::write(&file, [7; LENGTH]).expect("there is room");
    let log = || fs::read_to_string(scene.path("mnt.log")).expect("it logs");
    let set = |name: &str, value: &str| {
        let name = format!("user.terrace.{name}");
        setxattr(&file, name, value.as_bytes(), XattrFlags::empty())
    };
    for (name, value, errno, expected) in [
        ("tier", "hdd", Errno::INVAL, "one of the tiers fast, slow, which `terrace tiers` lists"),
        ("pin", "ssd", Errno::INVAL, "one of the tiers fast, slow, which `terrace tiers` lists"),
        ("tear", "fast", Errno::INVAL, "the attributes are tier, pin, hint, segment and movable"),
        ("hint", "warm", Errno::INVAL, "hot, cold or none"),
        ("movable", "maybe", Errno::INVAL, "1 or 0"),
        ("segment", "1", Errno::INVAL, "a length from 4KiB to 1GiB"),
        ("key", "a/b", Errno::PERM, "it can only be read"),
    ] {
        assert_eq!(set(name, value), Err(errno), "{name}={value}");
        let line = |log: &str| {
            let named = format!("attribute=\"user.terrace.{name}\" value=\"{value}\"");
            log.lines().any(|line| line.contains(&named) && line.contains(expected))
        };
        wait_until("it is logged", || line(&log()));
    }
    let removed = removexattr(&file, "user.terrace.tear");
    assert_eq!(removed, Err(Errno::PERM));
    let is_named = |line: &&str| line.contains("user.terrace.tear\" value=\"\"");
    wait_until("it is logged", || log().lines().any(|line| is_named(&line)));
    let long = "x".repeat(10_000);
    assert_eq!(set("tier", &long), Err(Errno::INVAL));
    wait_until("it is logged", || log().contains("value=\"xxxx"));
    assert!(!log().contains(&long), "no program fills the log at will");
}

#[test]
fn what_is_below_a_path_of_any_length_is_moved() {
    const NAME: usize = 250;
    let Some(scene) = Scene::new() else { return };
    let mounted = scene.mount("mnt", &[]);
    let top = mounted.path().join("top");
    fs::create_dir(&top).expect("made");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = open(&top, flags, Mode::empty()).expect("it is there");
    for depth in 0..20 {
        let name = format!("{depth:0NAME$}");
        mkdirat(&directory, &name, Mode::from_raw_mode(0o755)).expect("made");
        directory = openat(&directory, &name, flags, Mode::empty()).expect("it is there");
    }
    let deepest = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join("file");
    let paths = [top.join("file"), deepest];
    paths.iter().for_each(|path| fs::write(path, [7; LENGTH]).expect("there is room"));
    run_on(&scene, &["migrate", "-r", "--to", "slow"], &top);
    let tiers = paths.each_ref().map(|path| attribute(path, TIER));
    assert_eq!(tiers, ["slow", "slow"].map(|tier| Ok(tier.to_owned())));
    run_on(&scene, &["pin", "-r"], &top);
    assert_eq!(is_pinned(&[&paths[0], &paths[1]]), [true; 2]);
    drop(directory);
}

/// What is pinned in one directory, with what is made in it later.
fn is_pinned(paths: &[&Path]) -> Vec<bool> {
    paths.iter().map(|path| attribute(path, PIN).is_ok()).collect()
}

#[test]
fn pins_of_directories_are_given_and_taken_back_with_what_is_in_them() {
    let Some(scene) = Scene::new() else { return };
    let mounted = scene.mount("mnt", &[]);
    let top = mounted.path().join("top");
    let below = top.join("below");
    fs::create_dir_all(&below).expect("made");
    let paths = [top.join("file"), below.join("file")];
    paths.iter().for_each(|path| fs::write(path, [7; LENGTH]).expect("there is room"));
    let all = [&*top, &*below, &*paths[0], &*paths[1]];
    for round in 0..2 {
        run_on(&scene, &["pin", "-r"], &top);
        assert_eq!(is_pinned(&all), [true; 4], "{round}");
        let later = below.join(format!("later{round}"));
        fs::write(&later, [7; LENGTH]).expect("there is room");
        assert_eq!(is_pinned(&[&later]), [true], "{round}");
        run_on(&scene, &["unpin", "-r"], &top);
        assert_eq!(is_pinned(&all), [false; 4], "{round}");
        assert_eq!(is_pinned(&[&later]), [false], "{round}");
        let later = below.join(format!("last{round}"));
        fs::write(&later, [7; LENGTH]).expect("there is room");
        assert_eq!(is_pinned(&[&later]), [false], "{round}");
    }
}

/// Bytes that take a few seconds to move, and most of these are over once it is pinned.
const MOVING_LENGTH: usize = 50_000_000;

/// Has migrations take their time.
fn slow_down(scene: &Scene) {
    let settings = scene.path("store/terrace.toml");
    let text = fs::read_to_string(&settings).expect("it is there");
    let slow = text.replacen("[store]\n", "[store]\nmove_bandwidth = \"10MB/s\"\n", 1);
    assert_ne!(text, slow);
    fs::write(&settings, slow).expect("it can be written");
}

#[test]
fn what_is_moving_can_be_pinned() {
    let Some(scene) = Scene::new() else { return };
    slow_down(&scene);
    let served = Served::start(&scene);
    let mounted = scene.mount_served(&served, "mnt", &[]);
    let path = mounted.path().join("file");
    for pin in ["fast", "slow", "1"] {
        fs::write(&path, vec![7; MOVING_LENGTH]).expect("there is room");
        assert_eq!(attribute(&path, TIER).as_deref(), Ok("fast"));
        ask(&path, "slow").expect("it may move");
        wait_until("a part is copied", || {
            let explained = run_on(&scene, &["--json", "explain"], &path);
            let explained: Value = serde_json::from_slice(&explained.stdout).expect("JSON");
            explained["segments"][0]["moving"]["copied_bytes"].as_u64() > Some(0)
        });
        let pinned = setxattr(&path, PIN, pin.as_bytes(), XattrFlags::empty());
        assert_eq!(pinned, Ok(()), "{pin}");
        assert_eq!(attribute(&path, PIN).as_deref(), Ok(pin));
        if pin != "1" {
            assert_eq!(attribute(&path, TIER).as_deref(), Ok(pin));
        }
        let state = || attribute(&path, STATE).expect("it is there");
        assert!(state().contains("pinned"), "{}", state());
        wait_until("it moves no longer", || !state().contains("moving"));
        if pin != "1" {
            assert_eq!(attribute(&path, TIER).as_deref(), Ok(pin), "it stays");
        }
        let refused = ask(
            &path,
            if attribute(&path, TIER).as_deref() == Ok("fast") { "slow" } else { "fast" },
        );
        assert_eq!(refused, Err(Errno::PERM), "{pin}");
        fs::remove_file(&path).expect("it is there");
    }
}
