// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds of the engine, a full disk, and damage that it notices by itself.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;
use terrace_core::{
    Error, ErrorKind, Failpoints, Kv, KvExt, KvRange, Random, Result, Ticket, Watcher,
};

use super::engine::{Limits, failpoint};
use super::{JOURNALS, Lmdb, tree};

const LIMITS: Limits = Limits {
    changes_bytes: 8 << 10,
    journal_bytes: 16 << 10,
    step_changes: 5,
    map_bytes: 64 << 10,
};

/// Memory that holds everything that the tests put.
const ROOMY: Limits = Limits { changes_bytes: 1 << 20, journal_bytes: 1 << 20, ..LIMITS };

const VALUE: [u8; 500] = [1; 500];

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn open(path: &Path, limits: Limits) -> Result<Lmdb> {
    Lmdb::open_within(path, limits, Failpoints::default())
}

fn count(kv: &Lmdb) -> usize {
    kv.scan(&KvRange::all(), usize::MAX).expect("scan").len()
}

#[test]
fn the_map_grows_while_others_read() {
    let directory = temporary();
    let limits = Limits { changes_bytes: 64 << 10, step_changes: 100, ..ROOMY };
    let kv = open(directory.path(), limits).expect("open");
    kv.put(b"first", &VALUE).expect("commit");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(kv.get(b"first").expect("get").as_deref(), Some(&VALUE[..]));
                    kv.scan(&KvRange::all(), 10).expect("scan");
                }
            });
        }
        for index in 0..2000u32 {
            kv.put(&index.to_be_bytes(), &VALUE).expect("commit");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(count(&kv), 2001);
    drop(kv);
    let file_bytes = directory.path().join(tree::FILE_NAME).metadata().expect("is there").len();
    assert!(file_bytes > 8 * LIMITS.map_bytes as u64, "the file has {file_bytes} bytes");
    assert_eq!(count(&open(directory.path(), LIMITS).expect("open again")), 2001);
}

#[test]
fn one_value_may_be_larger_than_every_bound() {
    let directory = temporary();
    let value = vec![2; 1 << 20];
    let kv = open(directory.path(), LIMITS).expect("open");
    for index in 0..5u8 {
        kv.put(&[index], &value).expect("commit");
    }
    drop(kv);
    let kv = open(directory.path(), LIMITS).expect("open again");
    for index in 0..5u8 {
        assert!(kv.get(&[index]).expect("get").as_ref() == Some(&value));
    }
}

/// The same key again and again takes no memory, and must not fill the disk either.
#[test]
fn journals_stay_short() {
    let directory = temporary();
    let kv = open(directory.path(), LIMITS).expect("open");
    for round in 0..500u32 {
        kv.put(b"key", &[&VALUE[..], &round.to_be_bytes()].concat()).expect("commit");
        let longest = kv.engine.journals.iter().map(|journal| journal.bytes()).max();
        assert!(longest.expect("there are two") < LIMITS.journal_bytes + 1000);
    }
}

/// Refuses to write to the tree while the disk is full.
#[derive(Debug, Default)]
struct FullDisk {
    is_full: AtomicBool,
}

impl Watcher for FullDisk {
    fn hit(&self, name: &'static str) -> Result<()> {
        if name == failpoint::WRITE_TREE && self.is_full.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NoSpace, "write to the tree"));
        }
        Ok(())
    }
}

#[test]
fn a_full_disk_refuses_commits_until_there_is_room() {
    let directory = temporary();
    let disk = Arc::new(FullDisk::default());
    let watched = Failpoints::watched(disk.clone());
    let kv = Lmdb::open_within(directory.path(), LIMITS, watched).expect("open");
    disk.is_full.store(true, Ordering::Relaxed);
    let mut last = Ticket::default();
    let mut commits = 0u32;
    let refused = loop {
        match kv.put(&commits.to_be_bytes(), &VALUE) {
            Ok(ticket) => last = ticket,
            Err(error) => break error,
        }
        commits += 1;
        assert!(commits < 100, "memory is bounded");
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert_eq!(count(&kv), commits as usize);
    kv.wait(last).expect("what was acknowledged can be made durable");
    assert_eq!(kv.put(b"key", &VALUE).expect_err("still full").kind(), ErrorKind::NoSpace);
    disk.is_full.store(false, Ordering::Relaxed);
    kv.put(b"key", &VALUE).expect("there is room");
    kv.put(b"other key", &VALUE).expect("there is room");
    assert_eq!(count(&kv), commits as usize + 2);
    drop(kv);
    assert_eq!(count(&open(directory.path(), LIMITS).expect("open")), commits as usize + 2);
}

/// Durable commits in the journal alone, and the file that has them.
fn journaled(path: &Path, commits: u32) -> std::path::PathBuf {
    let kv = open(path, ROOMY).expect("open");
    for index in 0..commits {
        kv.put(&index.to_be_bytes(), &VALUE).expect("commit");
    }
    kv.wait(Ticket(u64::from(commits))).expect("wait");
    path.join(JOURNALS[0])
}

#[test]
fn damage_to_durable_commits_in_a_journal_is_noticed() {
    let mut random = Random::new(1);
    for _ in 0..20 {
        let directory = temporary();
        let journal = journaled(directory.path(), 10);
        let mut contents = fs::read(&journal).expect("read");
        // A record has 20 bytes, its only change 6, key and value.
        let at = random.below(10 * (20 + 6 + 4 + 500)) as usize;
        contents[at] ^= 1 << random.below(8);
        fs::write(&journal, &contents).expect("write");
        let error = open(directory.path(), ROOMY).err().expect("it is damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {}", error.chain());
        // It stays so: nothing was overwritten.
        let error = open(directory.path(), ROOMY).err().expect("it is damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {}", error.chain());
    }
}

#[test]
fn a_torn_end_of_a_journal_ends_it() {
    let directory = temporary();
    let journal = journaled(directory.path(), 10);
    let contents = fs::read(&journal).expect("read");
    let end = 10 * (20 + 6 + 4 + 500);
    // The beginning of the first record, as if the next one had begun there.
    let torn = [&contents[..end], &contents[..100], &[0; 50]].concat();
    fs::write(&journal, torn).expect("write");
    let kv = open(directory.path(), ROOMY).expect("open");
    assert_eq!(count(&kv), 10);
    kv.put(b"key", &VALUE).expect("commit");
    drop(kv);
    assert_eq!(count(&open(directory.path(), ROOMY).expect("open again")), 11);
}

#[test]
fn damage_to_values_in_the_tree_is_noticed() {
    let directory = temporary();
    drop(journaled(directory.path(), 10));
    drop(open(directory.path(), ROOMY).expect("brings the changes to the tree"));
    let file = directory.path().join(tree::FILE_NAME);
    let contents = fs::read(&file).expect("read");
    let values = contents.windows(VALUE.len()).enumerate().filter(|(_, bytes)| *bytes == VALUE);
    let places: Vec<usize> = values.map(|(at, _)| at).collect();
    assert!(places.len() >= 10, "the tree has the values");
    let mut damaged = contents.clone();
    for at in places {
        damaged[at + 250] ^= 4;
    }
    fs::write(&file, damaged).expect("write");
    let kv = open(directory.path(), ROOMY).expect("open");
    for index in 0..10u32 {
        let error = kv.get(&index.to_be_bytes()).expect_err("it is damaged");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("path="), "{error}");
    }
    let error = kv.scan(&KvRange::all(), 10).expect_err("it is damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
