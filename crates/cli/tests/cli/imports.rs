// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `import` and `export`: what comes back is what went in, bit by bit.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, getxattr, makedev, mknodat,
    removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Signal, geteuid};

use crate::scene::{Ran, Scene, finish, piped, signal};

/// Far behind the last byte before.
const HOLE: u64 = 3 << 20;

const COLOUR: &str = "user.colour";

const ACCESS: &str = "system.posix_acl_access";

/// What a file is, but for when it was read.
struct Seen {
    content: Vec<u8>,
    rest: Rest,
}

#[derive(Debug, PartialEq, Eq)]
struct Rest {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    device: u64,
    names: u64,
    colour: Option<Vec<u8>>,
    access: Option<Vec<u8>>,
    has_holes: bool,
    /// The first path of the same file.
    same: Option<PathBuf>,
}

/// Everything below a directory, and itself.
fn see(directory: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = BTreeMap::new();
    let mut first = BTreeMap::new();
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).expect("is there");
        let relative = path.strip_prefix(directory).expect("is below").to_path_buf();
        let kind = metadata.file_type();
        let mut below: Vec<PathBuf> = Vec::new();
        if kind.is_dir() {
            let entries = fs::read_dir(&path).expect("can be read");
            below.extend(entries.map(|entry| entry.expect("can be read").path()));
            // The same order on both sides, so that the first name is the same.
            below.sort();
        }
        waiting.extend(below);
        let content = match () {
            () if kind.is_symlink() => {
                fs::read_link(&path).expect("can be read").into_os_string().into_vec()
            }
            () if kind.is_file() => fs::read(&path).expect("can be read"),
            () => Vec::new(),
        };
        let mut value = [0; 64];
        let mut attribute = |name| match kind.is_symlink() {
            true => None,
            false => getxattr(&path, name, &mut value[..]).ok().map(|n| value[..n].to_vec()),
        };
        let (colour, access) = (attribute(COLOUR), attribute(ACCESS));
        let same = (!kind.is_dir() && metadata.nlink() > 1)
            .then(|| first.entry(metadata.ino()).or_insert_with(|| relative.clone()).clone());
        let rest = Rest {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            device: metadata.rdev(),
            names: if kind.is_dir() { 0 } else { metadata.nlink() },
            colour,
            access,
            has_holes: kind.is_file() && metadata.blocks() * 512 + (1 << 20) < metadata.len(),
            same,
        };
        all.insert(relative, Seen { content, rest });
    }
    all
}

fn set_modified(path: &Path, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("set");
}

/// A directory with one of everything.
fn plant(scene: &Scene) -> PathBuf {
    let root = scene.path("source");
    scene.file("source/empty", b"");
    scene.file("source/small", b"small");
    let long = scene.file("source/below/deeper/long", vec![7; 300_000]);
    let sparse = File::create(root.join("sparse")).expect("made");
    sparse.write_all_at(b"first", 0).expect("written");
    sparse.write_all_at(b"second", HOLE).expect("written");
    sparse.set_len(2 * HOLE).expect("grown");
    File::create(root.join("hole")).expect("made").set_len(1000).expect("grown");
    fs::hard_link(&long, root.join("another")).expect("linked");
    fs::hard_link(root.join("small"), root.join("below/small too")).expect("linked");
    std::os::unix::fs::symlink("below/nowhere", root.join("link")).expect("linked");
    let odd: OsString = OsString::from_vec(b"not \xff UTF-8\n".to_vec());
    fs::write(root.join(&odd), b"odd").expect("written");
    let fifo = Mode::from_raw_mode(0o640);
    mknodat(CWD, root.join("fifo"), FileType::Fifo, fifo, 0).expect("made");
    mknodat(CWD, root.join("socket"), FileType::Socket, fifo, 0).expect("made");
    if geteuid().is_root() {
        let device = makedev(300, 70_000);
        let kind = FileType::CharacterDevice;
        mknodat(CWD, root.join("device"), kind, fifo, device).expect("made");
        std::os::unix::fs::lchown(root.join("link"), Some(1234), Some(5678)).expect("given");
        chown(root.join("small"), Some(1), Some(2)).expect("given");
    }
    link_others(&root, "below");
    for path in ["small", "below"] {
        setxattr(root.join(path), COLOUR, b"blue", XattrFlags::empty()).expect("set");
    }
    for (path, mode) in [("small", 0o4711), ("below", 0o1755), ("below/deeper", 0o500)] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(root.join(path), permissions).expect("set");
    }
    for (seconds, path) in
        ["small", "sparse", "link", "below/deeper", "below", ""].into_iter().enumerate()
    {
        set_modified(&root.join(path), 1_000_000_000 + seconds as i64);
    }
    set_modified(&root.join("empty"), -5);
    root
}

/// What is no file and no directory gets a further name in a directory.
fn link_others(root: &Path, directory: &str) {
    for name in ["link", "fifo", "socket", "device"] {
        if fs::symlink_metadata(root.join(name)).is_ok() {
            let further = root.join(directory).join(format!("{name} too"));
            fs::hard_link(root.join(name), further).expect("linked");
        }
    }
}

#[track_caller]
fn assert_same(source: &Path, target: &Path) {
    let (wanted, found) = (see(source), see(target));
    let names = |all: &BTreeMap<PathBuf, Seen>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&wanted));
    for (path, seen) in &wanted {
        // Bytes apart: nobody reads a difference of a megabyte.
        assert!(found[path].content == seen.content, "{}: other bytes", path.display());
        assert_eq!(found[path].rest, seen.rest, "{}", path.display());
    }
}

#[test]
fn a_tree_comes_back_as_it_went_in() {
    let scene = Scene::new();
    let source = plant(&scene);
    let printed = scene.ok(["import", "source"]);
    assert!(printed.starts_with("imported 6 files, "), "{printed}");
    scene.ok(["export", "target"]);
    assert_same(&source, &scene.path("target"));
    let printed = scene.ok(["fsck"]);
    assert!(printed.ends_with(": no problems\n"), "{printed}");
}

#[test]
fn a_store_is_neither_copied_into_itself_nor_written_over() {
    let scene = Scene::new();
    let belongs = |error: String, what: &str| {
        assert!(error.contains(&format!("it belongs to {what}")), "{error}");
    };
    fs::create_dir_all(scene.path("source/store/deep")).expect("made");
    fs::write(scene.path("source/store/terrace.toml"), b"another one").expect("written");
    fs::write(scene.path("source/terrace.toml"), b"another one").expect("written");
    symlink("store", scene.path("link")).expect("made");
    let settings = || fs::read(scene.path("store/terrace.toml")).expect("it is there");
    let before = settings();
    scene.ok(["import", "source"]);
    for (place, what) in [
        ("store", "the store"),
        ("store/new/deep", "the store"),
        ("link", "the store"),
        ("store/catalog", "its catalog"),
        ("fast", "tier fast"),
        ("fast/../slow/new", "tier slow"),
    ] {
        belongs(scene.fails(2, ["export", place]), what);
    }
    let error = scene.fails(2, ["export", "missing/../slow/new"]);
    assert!(error.contains("not there"), "{error}");
    assert!(!scene.path("slow/new").exists(), "nothing is made there");
    for (place, what) in [("store", "the store"), ("link", "the store"), ("slow", "tier slow")] {
        belongs(scene.fails(2, ["import", "--to", "/new", place]), what);
    }
    scene.ok(["export", "target"]);
    assert!(!scene.path("target/new").exists(), "nothing is made");
    fs::remove_dir_all(scene.path("target")).expect("it is there");
    // Also where they are below: all else is copied.
    let run = |verb: &str| {
        let output = scene.command([verb, "."]).output().expect("the binary runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("it is text"))
    };
    let (status, said) = run("export");
    assert_eq!(status, Some(2), "{said}");
    belongs(said, "the store");
    assert_eq!(fs::read(scene.path("terrace.toml")).expect("copied"), b"another one");
    fs::remove_file(scene.path("terrace.toml")).expect("it is there");
    fs::write(scene.path("beside"), b"beside").expect("written");
    let (status, said) = run("import");
    assert_eq!(status, Some(0), "{said}");
    for what in ["the store", "tier fast", "tier slow"] {
        belongs(said.clone(), what);
    }
    assert_eq!(settings(), before);
    scene.ok(["export", "target"]);
    assert_eq!(fs::read(scene.path("target/beside")).expect("copied"), b"beside");
    assert!(!scene.path("target/fast").exists(), "it is no part of the tree");
}

#[test]
fn what_is_no_directory_is_no_tree() {
    let scene = Scene::new();
    fs::write(scene.path("source"), b"a file").expect("written");
    let error = scene.fails(2, ["import", "source"]);
    assert!(error.contains("it is none"), "{error}");
}

#[test]
fn what_is_there_is_not_copied_again() {
    let scene = Scene::new();
    let source = plant(&scene);
    scene.ok(["import", "--to", "/a/b", "source"]);
    let again = &scene.json(["import", "--to", "/a/b", "source"])[0];
    assert_eq!((&again["files"], &again["bytes"]), (&0.into(), &0.into()));
    scene.ok(["export", "--from", "a/b", "target"]);
    let again = &scene.json(["export", "--from", "a/b", "target"])[0];
    assert_eq!((&again["files"], &again["bytes"]), (&0.into(), &0.into()));
    // What changed is.
    fs::write(source.join("small"), b"other").expect("written");
    fs::remove_file(source.join("link")).expect("removed");
    fs::write(source.join("link"), b"a file now").expect("written");
    let again = &scene.json(["import", "--to", "/a/b", "source"])[0];
    assert_eq!(again["files"], 2);
    scene.ok(["export", "--from", "a/b", "target"]);
    assert_same(&source, &scene.path("target"));
}

#[test]
fn a_further_name_may_come_in_a_later_run() {
    let scene = Scene::new();
    let source = plant(&scene);
    scene.ok(["import", "source"]);
    scene.ok(["export", "target"]);
    fs::create_dir(source.join("later")).expect("made");
    link_others(&source, "later");
    fs::hard_link(source.join("small"), source.join("later/small")).expect("linked");
    let again = &scene.json(["import", "source"])[0];
    let others = if geteuid().is_root() { 4 } else { 3 };
    // Two files have two names, one of them three now, and all others three.
    assert_eq!(again["links"], 3 + 2 * others);
    assert_eq!(again["files"], 0);
    scene.ok(["export", "target"]);
    assert_same(&source, &scene.path("target"));
    // What is a file of its own again is so on the other side.
    fs::remove_file(source.join("later/link too")).expect("removed");
    std::os::unix::fs::symlink("below/nowhere", source.join("later/link too")).expect("linked");
    scene.ok(["import", "source"]);
    scene.ok(["export", "target"]);
    assert_same(&source, &scene.path("target"));
    let printed = scene.ok(["fsck"]);
    assert!(printed.ends_with(": no problems\n"), "{printed}");
}

/// A list for a file with the permissions 0644 by which this user may read it, too, as in an extended
/// attribute (Linux, `posix_acl_xattr.h`).
fn readable_by(user: u32) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries =
        [(1, 6, NOBODY), (2, 4, user), (4, 4, NOBODY), (0x10, 4, NOBODY), (0x20, 4, NOBODY)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([tag, permissions].map(u16::to_le_bytes).concat());
        list.extend(u32::to_le_bytes(id));
    }
    list
}

#[test]
fn attributes_that_changed_since_are_carried_by_the_next_run() {
    let scene = Scene::new();
    let source = scene.path("source");
    let path = |name: &str| source.join(name);
    for name in ["changed", "added", "removed", "readable", "private", "as it was"] {
        let path = scene.file(&format!("source/{name}"), [7; 10_000]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        set_modified(&path, 1_000_000_000);
    }
    let set = |name: &str, attribute: &str, value: &[u8]| {
        setxattr(path(name), attribute, value, XattrFlags::empty()).expect("set");
    };
    for name in ["changed", "removed", "as it was"] {
        set(name, COLOUR, b"blue");
    }
    for name in ["private", "as it was"] {
        set(name, ACCESS, &readable_by(ORDINARY));
    }
    let both = |scene: &Scene| {
        ["import source", "export target"].map(|verb| {
            let report = scene.json(verb.split(" "));
            (report[0]["files"].as_u64(), report[0]["unchanged"].as_u64())
        })
    };
    assert_eq!(both(&scene), [(Some(6), Some(0)); 2]);
    assert_same(&source, &scene.path("target"));
    set("changed", COLOUR, b"green");
    set("added", COLOUR, b"red");
    set("readable", ACCESS, &readable_by(ORDINARY));
    removexattr(path("removed"), COLOUR).expect("it has one");
    removexattr(path("private"), ACCESS).expect("it has one");
    assert_eq!(both(&scene), [(Some(0), Some(6)); 2], "no bytes are copied for it");
    assert_same(&source, &scene.path("target"));
    // What is as it was is left alone.
    let changed = || {
        let metadata = |name| fs::metadata(scene.path("target").join(name)).expect("is there");
        ["changed", "readable", "as it was"]
            .map(metadata)
            .map(|one| (one.ctime(), one.ctime_nsec()))
    };
    let before = changed();
    assert_eq!(both(&scene), [(Some(0), Some(6)); 2]);
    assert_eq!(changed(), before);
}

#[test]
fn attributes_that_only_root_may_set_are_said_to_be_lost() {
    const NOTE: &str = "security.note";
    if !geteuid().is_root() {
        return;
    }
    let scene = Scene::empty();
    chown(scene.path(""), Some(ORDINARY), Some(ORDINARY)).expect("given");
    for name in ["one", "two", "plain"] {
        let path = scene.file(&format!("source/{name}"), name);
        if name != "plain" {
            setxattr(&path, NOTE, b"noted", XattrFlags::empty()).expect("set");
            setxattr(&path, "security.other", b"too", XattrFlags::empty()).expect("set");
        }
        chown(&path, Some(ORDINARY), Some(ORDINARY)).expect("given");
    }
    chown(scene.path("source"), Some(ORDINARY), Some(ORDINARY)).expect("given");
    for arguments in [&["init", "store"][..], &["import", "source"]] {
        let ran = run_as_ordinary(&scene, arguments);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(!ran.stdout.contains("without"), "{ran:?}");
    }
    // Also of what is unchanged.
    for files in [3, 0] {
        let ran = run_as_ordinary(&scene, &["--json", "export", "target"]);
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(
            (&report["files"], &report["xattrs_lost"]),
            (&files.into(), &2.into()),
            "{ran:?}"
        );
        assert_eq!(ran.status, Some(0), "{ran:?}");
    }
    let ran = run_as_ordinary(&scene, &["export", "target"]);
    assert!(ran.stdout.trim_end().ends_with(", 2 without some extended attributes"), "{ran:?}");
    // One that is on the other side alone stays, too.
    setxattr(scene.path("target/plain"), NOTE, b"noted", XattrFlags::empty()).expect("set");
    let ran = run_as_ordinary(&scene, &["--json", "export", "target"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    // For who may set them nothing is lost.
    let report = &scene.json(["export", "target"])[0];
    assert_eq!((&report["files"], &report["xattrs_lost"]), (&0.into(), &0.into()), "{report}");
    let mut value = [0; 64];
    for (name, count) in [("one", Ok(5)), ("two", Ok(5)), ("plain", Err(Errno::NODATA))] {
        let path = scene.path("target").join(name);
        assert_eq!(getxattr(path, NOTE, &mut value[..]), count, "{name}");
    }
}

#[test]
fn files_in_a_directory_that_closes_behind_them_get_their_times() {
    if !geteuid().is_root() {
        return;
    }
    let scene = Scene::new();
    for name in ["source/closed/one", "source/closed/below/two"] {
        set_modified(&scene.file(name, name), 1_000_000_000);
    }
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(scene.path("source/closed"), closed).expect("set");
    scene.ok(["import", "source"]);
    let owner = format!("{ORDINARY}:{ORDINARY}");
    assert!(run(Command::new("chown").args(["-R", &owner]).arg(scene.path(""))));
    let ran = run_as_ordinary(&scene, &["export", "target"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    for name in ["closed/one", "closed/below/two"] {
        let there = fs::metadata(scene.path("target").join(name)).expect("is there");
        assert_eq!(there.mtime(), 1_000_000_000, "{name}");
    }
}

/// Replaces files by one new one with the same bytes and the same time, which has all of these names.
fn replace_together(paths: &[PathBuf]) {
    let [first, others @ ..] = paths else { return };
    let (content, metadata) =
        (fs::read(first).expect("is there"), fs::metadata(first).expect("is there"));
    fs::remove_file(first).expect("removed");
    fs::write(first, content).expect("written");
    set_modified(first, metadata.mtime());
    for other in others {
        fs::remove_file(other).expect("removed");
        fs::hard_link(first, other).expect("linked");
    }
}

#[test]
fn files_of_their_own_are_so_on_the_other_side_though_their_bytes_are_the_same() {
    let scene = Scene::new();
    let source = scene.path("source");
    let path = |name: &str| source.join(name);
    for (first, others) in [("a", &["b"][..]), ("c", &["below/d", "e", "f"])] {
        scene.file(&format!("source/{first}"), [7; 10_000]);
        fs::create_dir_all(path("below")).expect("made");
        set_modified(&path(first), 1_000_000_000);
        others.iter().for_each(|other| {
            fs::hard_link(path(first), path(other)).expect("linked");
        });
    }
    scene.ok(["import", "source"]);
    scene.ok(["export", "target"]);
    assert_same(&source, &scene.path("target"));
    // One of two, and two of four: these are one again.
    replace_together(&[path("b")]);
    replace_together(&[path("below/d"), path("f")]);
    scene.ok(["import", "source"]);
    scene.ok(["export", "anew"]);
    assert_same(&source, &scene.path("anew"));
    scene.ok(["export", "target"]);
    assert_same(&source, &scene.path("target"));
    for again in [&scene.json(["import", "source"])[0], &scene.json(["export", "target"])[0]] {
        assert_eq!((&again["files"], &again["bytes"]), (&0.into(), &0.into()));
    }
    // Names that a file has elsewhere are no reason to copy it.
    fs::create_dir(scene.path("kept")).expect("made");
    fs::hard_link(scene.path("target/a"), scene.path("kept/a")).expect("linked");
    assert_eq!(scene.json(["export", "target"])[0]["files"], 0);
    let printed = scene.ok(["fsck"]);
    assert!(printed.ends_with(": no problems\n"), "{printed}");
}

#[test]
fn a_tree_goes_through_whoever_holds_the_store() {
    let scene = Scene::new();
    let source = plant(&scene);
    let held = scene.hold();
    scene.ok(["import", "source"]);
    scene.ok(["export", "target"]);
    assert_same(&source, &scene.path("target"));
    held.stop();
}

#[test]
fn what_cannot_be_copied_is_said_and_the_rest_goes_on() {
    let scene = Scene::new();
    let source = scene.path("source");
    scene.file("source/a", b"a");
    scene.file("source/z", b"z");
    scene.ok(["import", "source"]);
    fs::remove_file(source.join("a")).expect("removed");
    scene.file("source/a/below", b"in the way");
    fs::create_dir_all(scene.path("target/z/full")).expect("made");
    let ran = scene.run(["export", "target"]);
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("file=target/z"), "{ran:?}");
    assert_ne!(ran.status, Some(0));
    assert_eq!(fs::read(scene.path("target/a")).expect("is there"), b"a");
    assert!(scene.fails(3, ["export", "--name", "none", "target"]).contains("name=none"));
}

/// Whoever may not give files away.
const ORDINARY: u32 = 1234;

/// Runs a command as an ordinary user, to whom the directory of the scene belongs.
fn run_as_ordinary(scene: &Scene, arguments: &[&str]) -> Ran {
    // Where the binary is, only its owner may be allowed to look.
    let binary = scene.path("terrace");
    if !binary.exists() {
        let built = env!("CARGO_BIN_EXE_terrace");
        if fs::hard_link(built, &binary).is_err() {
            fs::copy(built, &binary).expect("there is room");
        }
    }
    let mut command = Command::new(binary);
    command.args(arguments).current_dir(scene.path("")).stdin(Stdio::null());
    command.env("TERRACE_STORE", "store").env("HOME", scene.path(""));
    finish(piped(command.uid(ORDINARY).gid(ORDINARY)))
}

#[test]
fn files_of_others_lose_the_bits_that_lend_what_their_owner_may() {
    if !geteuid().is_root() {
        return;
    }
    let scene = Scene::empty();
    chown(scene.path(""), Some(ORDINARY), Some(ORDINARY)).expect("given");
    let owners = [("all", 0, 0), ("group", 0, ORDINARY), ("user", ORDINARY, 0)];
    for (name, user, group) in owners.into_iter().chain([("own", ORDINARY, ORDINARY)]) {
        for path in [scene.path("source").join(name), scene.path("source/below").join(name)] {
            match path.ends_with(format!("below/{name}")) {
                true => fs::create_dir_all(&path).expect("made"),
                false => drop(scene.file(&format!("source/{name}"), name)),
            }
            chown(&path, Some(user), Some(group)).expect("given");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).expect("set");
        }
    }
    scene.file("source/plain", b"plain");
    for arguments in [&["init", "store"][..], &["import", "source"]] {
        let ran = run_as_ordinary(&scene, arguments);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    }
    let ran = run_as_ordinary(&scene, &["export", "target"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    for directory in ["target", "target/below"] {
        let modes = [("all", 0o755), ("group", 0o2755), ("user", 0o4755), ("own", 0o6755)];
        for (name, mode) in modes {
            let found = fs::metadata(scene.path(directory).join(name)).expect("is there");
            assert_eq!((found.uid(), found.gid()), (ORDINARY, ORDINARY), "{directory}/{name}");
            assert_eq!(found.mode() & 0o7777, mode, "{directory}/{name}");
        }
    }
    // Beside those the directories themselves, and the file without such bits.
    let expected = ", 9 without their owner or group, 6 without their set-user-ID or set-group-ID";
    assert!(ran.stdout.trim_end().ends_with(expected), "{ran:?}");
    let ran = run_as_ordinary(&scene, &["--json", "export", "target"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((&report["owners_lost"], &report["set_ids_lost"]), (&9.into(), &6.into()));
    // What cannot be kept is no reason to copy files again; what can be is.
    assert_eq!((&report["files"], &report["bytes"]), (&0.into(), &0.into()), "{report}");
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(scene.path("target/all"), mode).expect("set");
    let ran = run_as_ordinary(&scene, &["--json", "export", "target"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((&report["files"], &report["owners_lost"]), (&1.into(), &9.into()), "{report}");
    // With the right to give them away they come back as they were: nothing was lost on the way in.
    let report = &scene.json(["export", "whole"])[0];
    assert_eq!((&report["owners_lost"], &report["set_ids_lost"]), (&0.into(), &0.into()));
    assert_same(&scene.path("source"), &scene.path("whole"));
}

/// A small file system in memory.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf) -> Self {
        Self::mount_with(path, c"size=64k")
    }

    fn mount_with(path: PathBuf, options: &CStr) -> Self {
        fs::create_dir(&path).expect("made");
        mount("none", &path, "tmpfs", MountFlags::empty(), options).expect("root may mount");
        Self(path)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Where it fails, the test has failed before.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_local_disk_is_not_taken_for_a_full_tier() {
    if !geteuid().is_root() {
        return;
    }
    let scene = Scene::new();
    scene.file("source/long", vec![7; 300_000]);
    scene.ok(["import", "source"]);
    let small = Small::mount(scene.path("target"));
    let said = scene.fails(4, ["export", "target"]);
    drop(small);
    assert!(said.contains("no space left on the local disk file=target/long"), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(!said.contains("tier"), "{said}");
}

/// A file system on a disk that has less room than it says: what it takes into memory it cannot write.
struct Failing {
    mounted: PathBuf,
    disk: Small,
}

impl Failing {
    /// `None` where there are no loop devices, or nothing that makes a file system.
    fn mount(scene: &Scene, name: &str) -> Option<Self> {
        const BYTES: u64 = 64 << 20;
        let disk = Small::mount_with(scene.path("disk"), c"size=16m");
        let (image, mounted) = (disk.0.join("image"), scene.path(name));
        File::create(&image).and_then(|file| file.set_len(BYTES)).expect("made");
        fs::create_dir_all(&mounted).expect("made");
        let is_made = run(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mounted));
        is_made.then_some(Self { mounted, disk })
    }

    /// Takes all room that the disk has left.
    fn fill(&self) {
        let filling = File::create(self.disk.0.join("filling")).expect("made");
        let mut offset = 0;
        while filling.write_all_at(&[7; 4096], offset).is_ok() {
            offset += 4096;
        }
    }

    /// Gives it the room back; the file system is as it was left.
    fn mend(&self) {
        unmount(&self.mounted, UnmountFlags::empty()).expect("unmounted");
        fs::remove_file(self.disk.0.join("filling")).expect("removed");
        let image = self.disk.0.join("image");
        let mut command = Command::new("mount");
        assert!(run(command.args(["-o", "loop"]).arg(image).arg(&self.mounted)));
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        // Where it fails, the test has failed before.
        let _ = unmount(&self.mounted, UnmountFlags::DETACH);
    }
}

/// Whether a program could be run, and did what it was to do.
fn run(command: &mut Command) -> bool {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn what_does_not_reach_the_local_disk_is_said_and_copied_again() {
    if !geteuid().is_root() {
        return;
    }
    let scene = Scene::new();
    scene.file("source/long", vec![7; 3_000_000]);
    File::create(scene.path("source/hole")).expect("made").set_len(1 << 20).expect("grown");
    scene.ok(["import", "source"]);
    let Some(disk) = Failing::mount(&scene, "target") else { return };
    disk.fill();
    let ran = scene.run(["export", "target"]);
    assert!(ran.status.is_some_and(|status| status != 0), "{ran:?}");
    assert!(ran.stderr.contains("file=target"), "{ran:?}");
    assert!(ran.stdout.contains(" failed\n"), "{ran:?}");
    disk.mend();
    let again = &scene.json(["export", "target"])[0];
    assert_eq!((&again["files"], &again["failed"]), (&2.into(), &0.into()), "{again}");
    assert_eq!(scene.read("target/long"), fs::read(scene.path("source/long")).expect("is there"));
}

#[test]
fn a_file_is_replaced_only_by_one_that_is_on_the_disk() {
    if !geteuid().is_root() {
        return;
    }
    let scene = Scene::new();
    scene.ok_with(&[7; 3_000_000], ["put", "new"]);
    let Some(disk) = Failing::mount(&scene, "target") else { return };
    scene.file("target/file", b"old");
    File::open(scene.path("target/file")).and_then(|file| file.sync_all()).expect("synced");
    disk.fill();
    let ran = scene.run(["get", "new", "target/file"]);
    assert!(ran.status.is_some_and(|status| status != 0), "{ran:?}");
    assert!(ran.stderr.contains("target/file: "), "{ran:?}");
    disk.mend();
    assert_eq!(scene.read("target/file"), b"old");
}

#[test]
fn an_import_that_was_killed_is_gone_on_with() {
    const FILES: usize = 400;
    let scene = Scene::new();
    for index in 0..FILES {
        scene.file(&format!("source/{}/{index}", index % 7), vec![index as u8; 20_000]);
    }
    for killed_at in [1, 20, 200] {
        let child = piped(&mut scene.command(["import", "source"]));
        let mut child = Some(child);
        while let Some(running) = &mut child {
            let is_over = running.try_wait().expect("can be asked").is_some();
            if is_over || scene.files("slow").len() > killed_at {
                if !is_over {
                    signal(running, Signal::KILL);
                }
                running.wait().expect("it ends");
                child = None;
            }
        }
        // It opens for writing, so that the store recovers; then there is nothing to repair.
        let ran = scene.run(["fsck", "--repair"]);
        assert!(ran.status == Some(0) && !ran.stdout.contains("mended"), "{ran:?}");
    }
    scene.ok(["import", "source"]);
    let again = &scene.json(["import", "source"])[0];
    assert_eq!((&again["files"], &again["unchanged"]), (&0.into(), &FILES.into()));
    scene.ok(["export", "target"]);
    assert_same(&scene.path("source"), &scene.path("target"));
}
