// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What engines that keep files promise beyond the suite: crashes, damage and second openings.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use terrace_backends::kv::{ENGINES, open_kv};
use terrace_core::{ErrorKind, Kv, KvExt, KvRange, Random, Result};

/// Names of the engines that keep files.
fn engines() -> impl Iterator<Item = &'static str> {
    ENGINES.iter().filter(|engine| engine.file.is_some()).map(|engine| engine.name)
}

fn open(engine: &str, path: &Path) -> Result<Arc<dyn Kv>> {
    open_kv(engine, path)
}

/// The error of an opening that must fail.
fn refused(engine: &str, path: &Path) -> terrace_core::Error {
    open(engine, path).err().expect("the opening must fail")
}

const CHILD_ENGINE: &str = "TERRACE_TEST_KV_ENGINE";
const CHILD_DIRECTORY: &str = "TERRACE_TEST_KV_CHILD";

fn pair_key(side: u8, index: u32) -> Vec<u8> {
    [&[side], &index.to_be_bytes()[..]].concat()
}

/// Commits until it is killed, and prints every commit that was acknowledged. Does nothing unless
/// [`killed_processes_lose_no_commit`] started it.
#[test]
fn child_that_commits_until_it_is_killed() {
    let Some(path) = env::var_os(CHILD_DIRECTORY) else { return };
    let engine = env::var(CHILD_ENGINE).expect("set with the directory");
    let kv = open(&engine, Path::new(&path)).expect("open");
    let start = kv.scan(&KvRange::prefix(b"a"), usize::MAX).expect("scan").len() as u32;
    for index in start..u32::MAX {
        let value = [index as u8; 300];
        // Two keys, so that half a commit would show.
        kv.transact(&mut |txn| {
            txn.put(&pair_key(b'a', index), &value)?;
            txn.put(&pair_key(b'b', index), &value)
        })
        .expect("commit");
        println!("acknowledged {index}");
    }
}

#[test]
fn killed_processes_lose_no_commit() {
    engines().for_each(kill_processes);
}

fn kill_processes(engine: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("catalog");
    let mut random = Random::new(1);
    for _ in 0..5 {
        let mut child = Command::new(env::current_exe().expect("this test"))
            .args(["--exact", "kv_files::child_that_commits_until_it_is_killed", "--nocapture"])
            .env(CHILD_ENGINE, engine)
            .env(CHILD_DIRECTORY, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let acknowledged = lines.map_while(|line| line.ok()).filter_map(|line| {
            // The harness may have begun the line with the test's name.
            line.split("acknowledged ").nth(1)?.parse::<u32>().ok()
        });
        let mut last = None;
        for (count, index) in acknowledged.enumerate() {
            last = Some(index);
            // Kill it in the middle, then read on: what it said before it died counts too.
            if count as u64 == 500 + random.below(500) || count == 1000 {
                child.kill().expect("kill");
            }
        }
        child.wait().expect("reap");
        let last = last.expect("it committed something");
        let kv = open(engine, &path).expect("open after the kill");
        let [left, right] =
            [b'a', b'b'].map(|side| kv.scan(&KvRange::prefix(&[side]), usize::MAX).expect("scan"));
        assert!(left.len() as u32 > last, "{} commits, {last} was acknowledged", left.len());
        assert_eq!(left.len(), right.len(), "half a commit survived");
        for (index, (left, right)) in (0u32..).zip(left.iter().zip(&right)) {
            let value = vec![index as u8; 300];
            assert_eq!(left, &(pair_key(b'a', index), value.clone()));
            assert_eq!(right, &(pair_key(b'b', index), value));
        }
    }
}

#[test]
fn a_second_opening_is_busy() {
    for engine in engines() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = open(engine, directory.path()).expect("open");
        let error = refused(engine, directory.path());
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("path="), "{error}");
        drop(first);
        open(engine, directory.path()).expect("free again");
    }
}

#[test]
fn a_directory_of_another_engine_is_refused() {
    for engine in engines() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        drop(open(engine, directory.path()).expect("open"));
        for other in engines().filter(|other| *other != engine) {
            let error = refused(other, directory.path());
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(engine), "{error}");
        }
        open(engine, directory.path()).expect("as before");
    }
}

#[test]
fn a_file_in_the_place_of_the_directory_is_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("catalog");
    fs::write(&path, b"not a directory").expect("write");
    for engine in engines() {
        refused(engine, &path);
    }
}

/// Every file of an engine that has tables and a journal, with its contents.
fn files_of(engine: &str, path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let kv = open(engine, path).expect("open");
    // More than a memtable, so that tables are written.
    for round in 0..20u32 {
        let value = vec![round as u8; 100_000];
        let put = |index: u32| [round.to_be_bytes(), index.to_be_bytes()].concat();
        let ticket = kv
            .transact(&mut |txn| (0..10).try_for_each(|index| txn.put(&put(index), &value)))
            .expect("commit");
        kv.wait(ticket).expect("wait");
    }
    drop(kv);
    // A recovery replays the journal; what follows is the journal's content alone.
    let kv = open(engine, path).expect("open again");
    kv.wait(kv.put(b"last", b"value").expect("commit")).expect("wait");
    drop(kv);
    let mut files = Vec::new();
    let mut directories = vec![path.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("list") {
            let path = entry.expect("list").path();
            match path.is_dir() {
                true => directories.push(path),
                false => files.push((path.clone(), fs::read(path).expect("read"))),
            }
        }
    }
    files.sort();
    files
}

/// Opens damaged files and reads everything: errors must be typed, name the path and not panic;
/// where nothing fails, nothing may be missing.
fn check_damaged(engine: &str, path: &Path, damage: &str) {
    let read_all = || {
        let kv = open(engine, path)?;
        let mut count = 0;
        kv.for_each(KvRange::all(), &mut |_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    };
    match read_all() {
        Ok(count) => assert_eq!(count, 201, "{damage}: pairs are missing and nobody says so"),
        Err(error) => {
            let error: terrace_core::Error = error;
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {}", error.chain());
            assert!(error.to_string().contains("path="), "{damage}: {error}");
        }
    }
}

#[test]
fn damage_is_an_error_or_harmless_but_never_silent() {
    damage("fjall", &[".jnl", "/version", "/synced", "keyspaces/1/tables/"]);
    damage("lmdb", &["/journal-0", "/journal-1", "/synced", "/data.mdb", "/data-bytes"]);
}

/// Damages every file in turn; `parts` of names must be among them.
fn damage(engine: &str, parts: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let original = directory.path().join("original");
    let files = files_of(engine, &original);
    for part in parts {
        let has = files.iter().any(|(path, _)| path.to_string_lossy().contains(part));
        assert!(has, "no {part}");
    }
    let mut random = Random::new(2);
    for (index, (file, contents)) in files.iter().enumerate() {
        let mut garbage = vec![0; contents.len().min(1 << 20)];
        random.fill(&mut garbage);
        let mut flipped = contents.clone();
        if let Some(byte) = flipped.get_mut(contents.len() / 3) {
            *byte ^= 0x10;
        }
        let damages = [
            ("garbage", garbage),
            ("half", contents[..contents.len() / 2].to_vec()),
            ("empty", Vec::new()),
            ("one bit", flipped),
        ];
        for (damage, damaged) in damages {
            let copy = directory.path().join(format!("{index}-{damage}"));
            for (path, contents) in &files {
                let contents = if path == file { &damaged } else { contents };
                write_copy(&original, path, &copy, contents);
            }
            check_damaged(engine, &copy, &format!("{damage} in {}", file.display()));
            fs::remove_dir_all(copy).expect("remove");
        }
    }
}

#[test]
fn a_missing_file_is_noticed() {
    engines().for_each(remove_files);
}

fn remove_files(engine: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let original = directory.path().join("original");
    let files = files_of(engine, &original);
    for (index, (missing, _)) in files.iter().enumerate() {
        let copy = directory.path().join(index.to_string());
        for (path, contents) in files.iter().filter(|(path, _)| path != missing) {
            write_copy(&original, path, &copy, contents);
        }
        check_damaged(engine, &copy, &format!("{} missing", missing.display()));
        fs::remove_dir_all(copy).expect("remove");
    }
}

/// Writes a file to where it would be if `original` were `copy`.
fn write_copy(original: &Path, path: &Path, copy: &Path, contents: &[u8]) {
    let target = copy.join(path.strip_prefix(original).expect("inside"));
    fs::create_dir_all(target.parent().expect("has one")).expect("make");
    fs::write(target, contents).expect("write");
}

/// Goal: what is only in the journal stays bounded, or each opening would read more of it.
#[test]
fn many_short_openings_of_fjall_fill_tables() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let tables = directory.path().join("keyspaces/1/tables");
    let count = || fs::read_dir(&tables).map_or(0, |entries| entries.count());
    for opening in 0..40u32 {
        let kv = open("fjall", directory.path()).expect("open");
        kv.put(&opening.to_be_bytes(), &vec![1; 1 << 20]).expect("commit");
    }
    assert!(count() > 0, "40 MiB were written and a memtable has 16 MiB");
}

/// A crash, or a full disk, while the engine is made: nothing was kept yet.
#[test]
fn fjall_is_made_where_its_making_was_cut_off() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let made = directory.path().join("made");
    drop(open("fjall", &made).expect("open"));
    let version = fs::read(made.join("version")).expect("it is there");
    let cut_off = |name: &str, version: Option<&[u8]>| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.join("keyspaces")).expect("make");
        for file in ["lock", "0.jnl"] {
            fs::write(path.join(file), b"").expect("write");
        }
        if let Some(version) = version {
            fs::write(path.join("version"), version).expect("write");
        }
        path
    };
    let paths = [
        cut_off("before", None),
        cut_off("empty", Some(b"")),
        cut_off("short", Some(&version[..2])),
        cut_off("after", Some(&version)),
    ];
    for path in paths {
        let kv = open("fjall", &path).unwrap_or_else(|error| panic!("{path:?}: {}", error.chain()));
        kv.put(b"key", b"value").expect("commit");
        drop(kv);
        let kv = open("fjall", &path).expect("open");
        assert_eq!(kv.get(b"key").expect("read").as_deref(), Some(&b"value"[..]), "{path:?}");
    }
}

/// Where it holds anything, a damaged version file is damage.
#[test]
fn fjall_with_tables_is_not_made_anew() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    open("fjall", directory.path()).expect("open").put(b"key", b"value").expect("commit");
    fs::remove_file(directory.path().join("synced")).expect("it is there");
    for version in [Some(b""), None] {
        match version {
            Some(bytes) => fs::write(directory.path().join("version"), bytes).expect("write"),
            None => fs::remove_file(directory.path().join("version")).expect("it is there"),
        }
        assert_eq!(refused("fjall", directory.path()).kind(), ErrorKind::Corrupt, "{version:?}");
    }
}
