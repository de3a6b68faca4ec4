// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fsck` of file systems.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use terrace_core::Access;
use terrace_fs::{Files, Kind, Made, Metadata, ROOT, Request, Session, TreeOptions};
use terrace_mount::{NAME_DEFAULT, Opening};
use terrace_store::{OpenOptions, Persistency, Store};

use crate::scene::Scene;

/// Longer than what is kept with the metadata.
const LONG: usize = 10_000;

/// The first number that is given after the root's.
const FIRST: u64 = 2;

fn open(scene: &Scene) -> Store {
    open_for(scene, Access::Write)
}

fn open_for(scene: &Scene, access: Access) -> Store {
    let options = OpenOptions { attach: false, access, ..OpenOptions::default() };
    Store::open_with(scene.path("store").to_str().expect("UTF-8"), options).expect("opens")
}

fn files(store: &Store) -> Arc<Files> {
    files_for(store, Access::Write)
}

fn files_for(store: &Store, access: Access) -> Arc<Files> {
    let is_writer = access == Access::Write;
    let opening = Opening {
        name: NAME_DEFAULT.into(),
        create: is_writer.then(TreeOptions::default),
        ready_objects: 0,
        access,
        believed_for: Duration::MAX,
    };
    terrace_mount::open(store, &opening).expect("opens")
}

fn write(files: &Arc<Files>, name: &str, bytes: &[u8]) -> u64 {
    let made = Made { kind: Kind::File, permissions: 0o644, is_opened: true, ..Made::default() };
    let (node, file) = files.create(ROOT, name.as_bytes(), made, false).expect("made");
    file.write(0, bytes, false).expect("written");
    file.close().expect("closed");
    node.number
}

/// A store with a file system of a small and a long file.
fn filled() -> Scene {
    let scene = Scene::new();
    let store = open(&scene);
    let files = files(&store);
    write(&files, "small", b"small");
    write(&files, "long", &[7; LONG]);
    files.close().expect("closed");
    drop(files);
    store.close().expect("closed");
    scene
}

/// The key of a node's record.
fn node(number: u64) -> Vec<u8> {
    [b"i", number.to_be_bytes().as_slice()].concat()
}

fn damage(scene: &Scene) {
    let store = open(scene);
    let level = Persistency::Process;
    assert!(store.kv_remove(NAME_DEFAULT, &node(FIRST), level).expect("removed"));
    store.kv_put(NAME_DEFAULT, &node(FIRST + 1), b"nonsense", level).expect("written");
    store.close().expect("closed");
}

#[test]
fn a_sound_file_system_is_said_to_be_so() {
    let scene = filled();
    let printed = scene.ok(["fsck"]);
    let expected = "1 object, 1 segment: no problems\n\
                    file system files: 1 directory, 2 files: no problems\n";
    assert_eq!(printed, expected);
    let report = &scene.json(["fsck"])[0];
    assert_eq!(report["files"][0]["name"], "files");
    assert_eq!(report["files"][0]["entries"], 2);
}

#[test]
fn damage_to_names_is_found_and_repaired() {
    let scene = filled();
    damage(&scene);
    let ran = scene.run(["fsck"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains("problem: missing-node files/0000000000000002: /small: "),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains("problem: damaged-node files/0000000000000003: /long: "),
        "{ran:?}"
    );
    let printed = scene.ok(["fsck", "--repair"]);
    assert!(
        printed.contains("mended file system files: 1 damaged-node, 1 missing-node\n"),
        "{printed}"
    );
    assert!(printed.ends_with("1 directory, 2 files: no problems\n"), "{printed}");
    assert!(!scene.path("store/catalog.old-1").exists(), "the catalog is not made anew for it");
    let store = open(&scene);
    let files = files(&store);
    assert_eq!(files.lookup(ROOT, b"long").expect("is there").size, LONG as u64);
}

/// The file of the one object on a tier.
fn stored(scene: &Scene, tier: &str) -> PathBuf {
    let files = scene.files(tier);
    let mut segments = files.iter().filter(|name| name.contains("seg/"));
    let found = segments.next().expect("there is one");
    assert_eq!(segments.next(), None);
    scene.path(tier).join(found)
}

#[test]
fn a_file_whose_bytes_are_lost_is_named_and_emptied() {
    let scene = filled();
    fs::remove_file(stored(&scene, "fast")).expect("removed");
    for arguments in [&["fsck"][..], &["--json", "fsck"]] {
        let ran = scene.run(arguments);
        assert_eq!(ran.status, Some(1), "{ran:?}");
        for found in ["missing-file", "missing-object", "0000000000000003"] {
            assert!(ran.stdout.contains(found), "{found}: {ran:?}");
        }
    }
    let ran = scene.run(["fsck"]);
    for found in ["missing-file", "missing-object"] {
        let line = format!("problem: {found} files/0000000000000003: /long: ");
        assert!(ran.stdout.contains(&line), "{line}: {ran:?}");
    }
    let ran = scene.run(["--json", "fsck"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    for found in [&report["problems"][0], &report["files"][0]["damages"][0]] {
        assert_eq!((&found["path"], &found["names"]), (&"/long".into(), &1.into()), "{report}");
    }
    // Others are copied.
    let error = scene.fails(1, ["export", "out"]);
    assert!(error.contains("out/long"), "{error}");
    assert_eq!(scene.read("out/small"), b"small");
    assert!(!scene.path("out/long").exists());
    let printed = scene.ok(["fsck", "--repair"]);
    assert!(printed.contains("mended file system files: 1 missing-object\n"), "{printed}");
    assert!(printed.ends_with("1 directory, 2 files: no problems\n"), "{printed}");
    scene.ok(["fsck"]);
    scene.ok(["export", "out"]);
    assert_eq!(scene.read("out/long"), b"");
    // It can be written again.
    let store = open(&scene);
    let files = files(&store);
    let number = files.lookup(ROOT, b"long").expect("is there").number;
    let (_, file) = files.open(number, Access::Write).expect("opens");
    file.write(0, &[9; LONG], false).expect("written");
}

#[test]
fn files_on_a_missing_tier_are_said_and_the_others_can_be_used() {
    let scene = filled();
    let settings = scene.path("store/terrace.toml");
    let text = fs::read_to_string(&settings).expect("can be read");
    let text = text.replacen("[store]\n", "[store]\ndegraded = true\n", 1);
    fs::write(&settings, text).expect("written");
    scene.ok(["migrate", "-r", "files", "--to", "slow"]);
    scene.file("more/later", [5; LONG]);
    scene.ok(["import", "more"]);
    fs::rename(scene.path("slow"), scene.path("away")).expect("renamed");
    let ran = scene.run(["fsck"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("problem: offline files/0000000000000003: /long: "), "{ran:?}");
    assert!(
        ran.stdout.contains("problem: unreadable-object files/0000000000000003: /long: "),
        "{ran:?}"
    );
    let ran = scene.run(["export", "out"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("out/long"), "{ran:?}");
    assert_eq!(scene.read("out/small"), b"small");
    assert_eq!(scene.read("out/later"), [5; LONG]);
    // Nothing is mended that may come back.
    let ran = scene.run(["fsck", "--repair"]);
    assert_ne!(ran.status, Some(0), "{ran:?}");
    fs::rename(scene.path("away"), scene.path("slow")).expect("renamed");
    let ran = scene.run(["export", "out"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert_eq!(scene.read("out/long"), [7; LONG]);
    scene.ok(["fsck"]);
}

#[test]
fn a_file_whose_bytes_are_lost_is_named_by_its_path_while_it_is_in_use() {
    let scene = filled();
    fs::remove_file(stored(&scene, "fast")).expect("removed");
    let store = Store::open(scene.path("store").to_str().expect("UTF-8")).expect("opens");
    let files = files(&store);
    let number = files.lookup(ROOT, b"long").expect("is there").number;
    files.link(number, ROOT, b"longer").expect("linked");
    let ran = scene.run(["fsck"]);
    let line = format!("problem: missing-file files/{number:016x}: /long");
    assert!(ran.stdout.contains(&line), "{ran:?}");
    assert!(ran.stdout.contains(" (1 of 2 names): "), "{ran:?}");
    assert!(ran.stdout.contains("note: in-use files: "), "{ran:?}");
}

#[test]
fn a_file_system_in_use_is_passed_over() {
    let scene = filled();
    damage(&scene);
    let store = Store::open(scene.path("store").to_str().expect("UTF-8")).expect("opens");
    let files = files(&store);
    let printed = scene.ok(["fsck"]);
    assert!(printed.contains("note: in-use files: "), "{printed}");
    drop(files);
    // Through the owner, now that nobody uses it.
    assert_eq!(scene.run(["fsck"]).status, Some(1));
    assert!(scene.fails(5, ["fsck", "--repair"]).contains("owns it"));
}

/// A store that writes checkpoints every so often.
fn with_checkpoints(every: &str) -> Scene {
    let scene = filled();
    let settings = scene.path("store/terrace.toml");
    let text = fs::read_to_string(&settings).expect("can be read");
    let place = format!("[catalog]\ncheckpoint = \"../saved\"\ncheckpoint_every = \"{every}\"\n");
    fs::write(&settings, text.replacen("[catalog]\n", &place, 1)).expect("written");
    scene
}

#[test]
fn files_come_back_from_a_checkpoint() {
    // One at the end, and one in the middle of the life of a process that was killed.
    for (every, is_killed) in [("1h", false), ("10ms", true)] {
        let scene = with_checkpoints(every);
        let held = scene.hold();
        scene.file("more/later", b"later");
        scene.ok(["import", "more"]);
        let saved = scene.path("saved");
        if is_killed {
            // Everything is in the second one that comes now; none comes where nothing changes.
            let mut names = (0..).map(|number| format!("x{number}"));
            for _ in 0..2 {
                let _ = fs::remove_file(&saved);
                while !saved.exists() {
                    scene.ok_with(b"x", ["put", &names.next().expect("they do not end")]);
                }
            }
            // Kills it.
            drop(held);
            assert!(saved.exists());
        } else {
            assert!(!saved.exists());
            held.stop();
        }
        fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
        let printed = scene.ok(["fsck", "--rebuild"]);
        assert!(printed.ends_with(": 1 directory, 3 files: no problems\n"), "{printed}");
        scene.ok(["export", "out"]);
        assert_eq!(scene.read("out/later"), b"later");
        assert_eq!(scene.read("out/long"), [7; LONG]);
    }
}

#[test]
fn files_come_back_with_a_backup_and_those_made_since_are_found() {
    let scene = filled();
    scene.ok(["backup", "saved"]);
    let store = open(&scene);
    let open_files = files(&store);
    let number = write(&open_files, "since", &[9; LONG]);
    open_files.remove(ROOT, b"long", false).expect("removed");
    open_files.close().expect("closed");
    drop(open_files);
    store.close().expect("closed");
    drop(store);
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    let printed = scene.ok(["restore", "saved"]);
    assert!(printed.contains("1 node in lost+found"), "{printed}");
    assert!(
        printed.ends_with("file system files: 2 directories, 2 files: no problems\n"),
        "{printed}"
    );
    let store = open(&scene);
    let files = files(&store);
    assert_eq!(files.lookup(ROOT, b"small").expect("is there").size, 5);
    assert!(files.lookup(ROOT, b"long").is_err(), "it was removed since");
    let lost = files.lookup(ROOT, b"lost+found").expect("is there").number;
    let found = files.lookup(lost, format!("{number:016x}").as_bytes()).expect("is there");
    assert_eq!((found.number, found.size), (number, LONG as u64));
    assert!(write(&files, "new", b"new") > number, "no number is given again");
}

/// Has a user of the files die who has written to one, has another open that has no name any more,
/// and has not deleted the object of a third.
fn leave_behind(scene: &Scene) {
    let store = open(scene);
    let files = files(&store);
    let [unnamed, gone] = ["unnamed", "gone"].map(|name| write(&files, name, &[7; LONG]));
    let key = files.key(FIRST + 1).expect("a key");
    files.close().expect("closed");
    drop(files);
    let alone = store.files_alone(NAME_DEFAULT).expect("nobody uses them");
    let session = Session::new(alone.tree());
    let remove = |name| {
        let request = Request::Remove { directory: ROOT, name, is_directory: false };
        session.call(&request).expect("removed");
    };
    for number in [FIRST + 1, unnamed] {
        session.call(&Request::Open { number, is_for_writing: true }).expect("it is there");
    }
    let how = terrace_core::Open { access: Access::Write, ..terrace_core::Open::default() };
    let object = terrace_core::Backend::open(&store, &key, &how).expect("opens");
    object.write_at(LONG as u64, &[std::io::IoSlice::new(b"more")]).expect("written");
    remove(b"unnamed");
    remove(b"gone");
    session.leave_open();
    drop(object);
    drop(session);
    drop(alone);
    store.close().expect("closed");
    assert_ne!(unnamed, gone);
}

#[test]
fn who_only_reads_sees_what_the_dead_wrote_and_clears_up_nothing() {
    let scene = filled();
    leave_behind(&scene);
    for _ in 0..2 {
        let store = open_for(&scene, Access::Read);
        let files = files_for(&store, Access::Read);
        assert_eq!(files.lookup(ROOT, b"long").expect("found").size, LONG as u64 + 4);
        assert!(files.lookup(ROOT, b"gone").is_err());
        files.sweep().expect("there is nothing to do");
        files.close().expect("closed");
        drop(files);
        store.close().expect("closed");
    }
    let objects = |store: &Store| {
        let start = terrace_core::Cursor::default();
        let page = terrace_core::Backend::list(store, NAME_DEFAULT, "", &start, 100);
        page.expect("listed").keys.len()
    };
    let store = open(&scene);
    assert_eq!(objects(&store), 3, "nothing was deleted so far");
    let files = files(&store);
    files.sweep().expect("deleted");
    assert_eq!(objects(&store), 1);
    assert_eq!(files.lookup(ROOT, b"long").expect("found").size, LONG as u64 + 4);
}
