// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fsck` of file systems.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use terrace_core::Access;
use terrace_fs::{Files, Kind, Made, Metadata, ROOT, RenameHow, Request, Session, TreeOptions};
use terrace_mount::{NAME_DEFAULT, Opening};
use terrace_recovery::Source;
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
        degraded: false,
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

/// Loses the catalog, makes it anew, and copies all files to `out`.
fn rebuilt(scene: &Scene) -> String {
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    let printed = scene.ok(["fsck", "--rebuild"]);
    let _ = fs::remove_dir_all(scene.path("out"));
    scene.ok(["export", "out"]);
    printed
}

/// The checkpoint of a store and the files of its log, below a directory.
fn saved(scene: &Scene, directory: &str) -> Vec<String> {
    let Ok(entries) = scene.path(directory).join(".terrace-catalog").read_dir() else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("listed").file_name();
    let mut names: Vec<_> =
        entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// Waits until something is so.
#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let clock = terrace_core::SystemClock::default();
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        terrace_core::Clock::sleep(&clock, Duration::from_millis(10));
    }
    panic!("it did not come");
}

/// Waits until the log of a held store has bytes that no earlier one had.
#[track_caller]
fn until_logged(scene: &Scene, words: &[u8]) {
    until(|| {
        let names = saved(scene, "slow");
        let mut logs = names.iter().filter(|name| name.contains(".log-"));
        logs.any(|name| {
            let bytes = fs::read(scene.path("slow/.terrace-catalog").join(name));
            bytes.is_ok_and(|bytes| bytes.windows(words.len()).any(|part| part == words))
        })
    });
}

#[test]
fn a_held_store_keeps_its_names_on_a_tier_without_being_told_to() {
    let scene = filled();
    // Who only opened it for a moment has left them there.
    assert_eq!(saved(&scene, "fast"), [""; 0]);
    assert!(saved(&scene, "slow").contains(&"checkpoint".into()));
    scene.ok(["fsck"]);
    let held = scene.hold();
    scene.file("more/later", b"later");
    scene.file("more/longer", [9; LONG]);
    scene.ok(["import", "more"]);
    until_logged(&scene, b"later");
    // Kills it.
    drop(held);
    let printed = rebuilt(&scene);
    assert!(printed.contains("took names and pairs from the checkpoint "), "{printed}");
    assert!(printed.contains("slow/.terrace-catalog/checkpoint of 20"), "{printed}");
    assert!(printed.ends_with(": 1 directory, 4 files: no problems\n"), "{printed}");
    assert_eq!(scene.read("out/small"), b"small");
    assert_eq!(scene.read("out/later"), b"later");
    assert_eq!(scene.read("out/longer"), [9; LONG]);
    assert_eq!(scene.read("out/long"), [7; LONG]);
    // And once more, from what the repaired store has written since.
    let held = scene.hold();
    scene.file("again/afterwards", b"afterwards");
    scene.ok(["import", "again"]);
    held.stop();
    rebuilt(&scene);
    assert_eq!(scene.read("out/later"), b"later");
    assert_eq!(scene.read("out/afterwards"), b"afterwards");
}

#[test]
fn what_was_renamed_and_removed_is_so_at_the_logs_end() {
    let scene = filled();
    {
        let store = open_served(&scene);
        let files = files(&store);
        write(&files, "gone", b"gone");
        write(&files, "gone-too", &[1; LONG]);
        write(&files, "old", b"contents");
        let (_, file) = files.open(FIRST, Access::Write).expect("opens");
        file.write(0, b"SMALL", false).expect("written");
        file.close().expect("closed");
        files.remove(ROOT, b"gone", false).expect("removed");
        files.remove(ROOT, b"gone-too", false).expect("removed");
        let how = RenameHow::default();
        files.rename((ROOT, b"old"), (ROOT, b"new"), how, (0, 0)).expect("renamed");
        files.remove(ROOT, b"long", false).expect("removed");
        files.close().expect("closed");
        drop(files);
        store.close().expect("closed");
    }
    rebuilt(&scene);
    let mut names: Vec<_> = fs::read_dir(scene.path("out"))
        .expect("listed")
        .map(|entry| entry.expect("listed").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    assert_eq!(names, ["new", "small"]);
    assert_eq!(scene.read("out/new"), b"contents");
    assert_eq!(scene.read("out/small"), b"SMALL");
}

/// As a mount opens it.
fn open_served(scene: &Scene) -> Store {
    Store::open(scene.path("store").to_str().expect("UTF-8")).expect("opens")
}

/// Changes a line of the configuration.
fn configure(scene: &Scene, from: &str, to: &str) {
    let settings = scene.path("store/terrace.toml");
    let text = fs::read_to_string(&settings).expect("can be read");
    assert!(text.contains(from), "{text}");
    fs::write(&settings, text.replacen(from, to, 1)).expect("written");
}

#[test]
fn checkpoints_go_elsewhere_or_nowhere_where_that_is_configured() {
    let scene = filled();
    configure(&scene, "[catalog]\n", "[catalog]\ncheckpoint = \"../saved\"\n");
    let held = scene.hold();
    scene.file("more/later", b"later");
    scene.ok(["import", "more"]);
    held.stop();
    assert!(scene.path("saved").exists());
    assert_eq!(saved(&scene, "slow"), [""; 0], "the one that was there would be taken for newer");
    rebuilt(&scene);
    assert_eq!(scene.read("out/later"), b"later");
    configure(&scene, "checkpoint = \"../saved\"\n", "");
    scene.hold().stop();
    assert!(saved(&scene, "slow").contains(&"checkpoint".into()));
    configure(&scene, "[catalog]\n", "[catalog]\ncheckpoint = false\n");
    scene.hold().stop();
    assert_eq!(saved(&scene, "slow"), [""; 0]);
    fs::remove_file(scene.path("saved")).expect("removed");
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    let printed = scene.ok(["fsck", "--rebuild"]);
    assert!(!printed.contains("checkpoint"), "{printed}");
    assert!(!printed.contains("file system"), "{printed}");
}

#[test]
fn a_checkpoint_is_written_every_so_often_where_that_is_configured() {
    let scene = filled();
    let every = "[catalog]\ncheckpoint = \"../saved\"\ncheckpoint_every = \"10ms\"\n";
    configure(&scene, "[catalog]\n", every);
    let held = scene.hold();
    let saved = scene.path("saved");
    until(|| saved.exists());
    for round in 0..2 {
        fs::remove_file(&saved).expect("removed");
        scene.ok_with(b"x", ["put", &format!("x{round}")]);
        until(|| saved.exists());
    }
    drop(held);
    rebuilt(&scene);
    assert_eq!(scene.read("out/small"), b"small");
}

#[test]
fn a_process_that_is_killed_between_two_checkpoints_leaves_one_with_its_log() {
    let scene = filled();
    configure(&scene, "[catalog]\n", "[catalog]\ncheckpoint_every = \"1ms\"\n");
    let mut number = 0;
    for round in 0..3 {
        let held = scene.hold();
        let is_new = |name: &String| name.contains(".log-");
        let logs = || saved(&scene, "slow").into_iter().filter(is_new).collect::<Vec<_>>();
        let before = logs();
        // Until the second that comes now is being made, or has just been.
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let directory = format!("d{number}");
            scene.file(&format!("{directory}/n{number}"), format!("the words of {number}"));
            scene.ok(["import", &directory]);
            number += 1;
            seen.extend(logs().into_iter().filter(|name| !before.contains(name)));
            seen.sort();
            seen.dedup();
        }
        let last = format!("the words of {}", number - 1);
        until(|| {
            let directory = scene.path("slow/.terrace-catalog");
            let durable = saved(&scene, "slow").into_iter().filter(|name| !name.ends_with(".new"));
            durable.into_iter().any(|name| {
                let bytes = fs::read(directory.join(name)).unwrap_or_default();
                bytes.windows(last.len()).any(|part| part == last.as_bytes())
            })
        });
        drop(held);
        let printed = rebuilt(&scene);
        let files = format!(": 1 directory, {} files: no problems\n", 2 + number);
        assert!(printed.ends_with(&files), "round {round}: {printed}");
        for one in 0..number {
            assert_eq!(
                scene.read(&format!("out/n{one}")),
                format!("the words of {one}").as_bytes()
            );
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_said_and_not_passed_over() {
    let scene = filled();
    let file = scene.path("slow/.terrace-catalog/checkpoint");
    let mut bytes = fs::read(&file).expect("is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("written");
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    let error = scene.fails(8, ["fsck", "--rebuild"]);
    assert!(error.contains("slow/.terrace-catalog/checkpoint"), "{error}");
    assert!(error.contains("move it away"), "{error}");
    fs::remove_file(file).expect("removed");
    scene.ok(["fsck", "--rebuild"]);
}

#[test]
fn a_torn_log_is_cut_and_a_foreign_one_is_not_taken() {
    let scene = filled();
    let held = scene.hold();
    let log = || {
        let names = saved(&scene, "slow");
        names.iter().rfind(|name| name.contains(".log-")).cloned()
    };
    scene.file("more/first", b"first");
    scene.ok(["import", "more"]);
    until_logged(&scene, b"first");
    scene.file("then/second", b"second");
    scene.ok(["import", "then"]);
    until_logged(&scene, b"second");
    drop(held);
    let path = scene.path("slow/.terrace-catalog").join(log().expect("there is one"));
    let bytes = fs::read(&path).expect("read");
    let at = bytes.windows(6).position(|part| part == b"second").expect("is there");
    fs::write(&path, &bytes[..at]).expect("cut");
    let printed = rebuilt(&scene);
    assert!(printed.contains("at its end were cut off"), "{printed}");
    assert_eq!(scene.read("out/first"), b"first");
    assert!(!scene.path("out/second").exists());
    // Of the same name, and of another log.
    let mut foreign = bytes.clone();
    foreign[24] ^= 1;
    fs::write(&path, foreign).expect("written");
    let printed = rebuilt(&scene);
    assert!(printed.contains("and 0 commits of the log"), "{printed}");
    assert!(!scene.path("out/first").exists());
}

#[test]
fn a_checkpoint_leaves_a_tier_that_is_drained_and_one_that_is_removed() {
    let scene = filled();
    let held = scene.hold();
    until(|| saved(&scene, "slow").contains(&"checkpoint".into()));
    scene.ok(["tiers", "drain", "slow"]);
    until(|| saved(&scene, "fast").contains(&"checkpoint".into()));
    until(|| saved(&scene, "slow").is_empty());
    scene.ok(["tiers", "drain", "slow", "--cancel"]);
    held.stop();
    rebuilt(&scene);
    assert_eq!(scene.read("out/small"), b"small");
    // Nobody serves the store while its tier goes.
    let scene = filled();
    assert!(saved(&scene, "slow").contains(&"checkpoint".into()));
    scene.ok(["tiers", "remove", "slow"]);
    assert_eq!(saved(&scene, "slow"), [""; 0]);
    assert!(saved(&scene, "fast").contains(&"checkpoint".into()));
    rebuilt(&scene);
    assert_eq!(scene.read("out/small"), b"small");
}

#[test]
fn a_store_that_is_opened_for_a_moment_goes_on_with_the_log() {
    let scene = filled();
    let before = saved(&scene, "slow");
    let written = |name: &str| {
        let path = scene.path("slow/.terrace-catalog").join(name);
        path.metadata().expect("is there").modified().expect("has a time")
    };
    let checkpoint = written("checkpoint");
    for number in 0..3 {
        let store = open_served(&scene);
        let files = files(&store);
        write(&files, &format!("n{number}"), b"new");
        files.close().expect("closed");
        drop(files);
        store.close().expect("closed");
    }
    assert_eq!((saved(&scene, "slow"), written("checkpoint")), (before, checkpoint));
    let printed = rebuilt(&scene);
    assert!(printed.ends_with(": 1 directory, 5 files: no problems\n"), "{printed}");
    assert_eq!(scene.read("out/n2"), b"new");
    // One that changed the store without a log in between: it does not say everything any more.
    scene.hold().stop();
    scene.ok(["kv", "put", "jobs/a", "1"]);
    scene.hold().stop();
    scene.ok(["kv", "put", "jobs/a", "2"]);
    scene.hold().stop();
    rebuilt(&scene);
    assert_eq!(scene.ok(["kv", "get", "jobs/a"]).trim(), "2");
}

#[test]
fn who_only_reads_writes_no_checkpoint() {
    let scene = filled();
    fs::remove_dir_all(scene.path("slow/.terrace-catalog")).expect("removed");
    let options = OpenOptions { attach: false, access: Access::Read, ..OpenOptions::default() };
    let path = scene.path("store");
    let store = Store::open_with(path.to_str().expect("UTF-8"), options).expect("opens");
    store.close().expect("closed");
    assert_eq!(saved(&scene, "slow"), [""; 0]);
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

/// A store whose names came back with a backup, by a process that ended before it mended them; the
/// number of a file that was made since the backup.
fn restored_in_part() -> (Scene, u64) {
    let scene = filled();
    scene.ok(["backup", "saved"]);
    let store = open(&scene);
    let open_files = files(&store);
    let number = write(&open_files, "since", &[9; LONG]);
    open_files.close().expect("closed");
    drop(open_files);
    store.close().expect("closed");
    drop(store);
    fs::remove_dir_all(scene.path("store/catalog")).expect("removed");
    let address = scene.path("store");
    let saved = scene.path("saved");
    let source = Source::Backup(&saved);
    terrace_recovery::rebuild(address.to_str().expect("UTF-8"), source, false, &mut |_, _| {})
        .expect("made anew");
    (scene, number)
}

#[test]
fn where_a_restore_was_cut_off_nobody_writes_over_files_made_since() {
    let (scene, number) = restored_in_part();
    scene.file("again/new", [1; LONG]);
    for arguments in [["import", "again"], ["export", "out"]] {
        let ran = scene.run(arguments);
        assert!(ran.status != Some(0) && ran.stderr.contains("fsck --repair"), "{ran:?}");
    }
    let ran = scene.run(["fsck"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("problem: restored-names files/"), "{ran:?}");
    let printed = scene.ok(["fsck", "--repair"]);
    assert!(printed.contains("1 node in lost+found"), "{printed}");
    assert!(printed.ends_with("2 directories, 3 files: no problems\n"), "{printed}");
    scene.ok(["import", "again"]);
    scene.ok(["export", "out"]);
    assert_eq!(scene.read(&format!("out/lost+found/{number:016x}")), [9; LONG]);
    assert_eq!(scene.read("out/new"), [1; LONG]);
    assert_eq!(scene.read("out/long"), [7; LONG]);
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
