// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is left of the files after a loss of power, at every step and in many ways.
//!
//! A model of the disk knows what was synced. Of everything since, each sector of a journal and
//! each page of the tree may be there or not, as a file system is free to leave them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use tempfile::TempDir;
use terrace_core::{Failpoints, Kv, KvRange, Random, Result, Watcher};

use super::engine::{Engine, Limits, failpoint};
use super::{DURABLE_MARK, JOURNALS, LENGTH_MARK, Lmdb, tree};

/// Few, so that changes are always on their way to the tree, in several steps.
const LIMITS: Limits =
    Limits { changes_bytes: 4 << 10, journal_bytes: 8 << 10, step_changes: 2, map_bytes: 64 << 10 };

const SECTOR_BYTES: usize = 512;

const COMMITS: usize = 40;

/// Every commit puts its number here.
const NUMBER_KEY: &[u8] = b"number";

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// The computer whose power is lost.
#[derive(Debug)]
struct Machine {
    engine: OnceLock<Weak<Engine>>,
    disk: Mutex<Disk>,
}

#[derive(Debug)]
struct Disk {
    path: PathBuf,
    copies: TempDir,
    random: Random,
    /// What was synced, or of the marks what was written after a sync.
    tree: Vec<u8>,
    length_mark: Vec<u8>,
    journals: [Vec<u8>; 2],
    durable_mark: Vec<u8>,
    /// The pairs after each commit, that which runs included.
    states: Vec<Pairs>,
    /// Commits that were waited for.
    durable: usize,
    losses: usize,
}

impl Machine {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("a loss that nobody survived")
    }
}

impl Watcher for Machine {
    fn hit(&self, name: &'static str) -> Result<()> {
        let engine = self.engine.get().and_then(Weak::upgrade).expect("it is open");
        let frozen = 1 - engine.state().active_journal;
        let mut disk = self.disk();
        if name == failpoint::WRITE_TREE {
            disk.journals[frozen] = disk.now(JOURNALS[frozen]);
        }
        // A step came between: its pages were written in any order, those that name the new root
        // after all others were synced.
        let tree = disk.now(tree::FILE_NAME);
        let left = if disk.random.chance(0.5) { disk.torn_tree(&tree) } else { tree.clone() };
        disk.lose_power(&left);
        disk.tree = tree;
        disk.length_mark = disk.now(LENGTH_MARK);
        Ok(())
    }
}

impl Disk {
    fn now(&self, name: &str) -> Vec<u8> {
        fs::read(self.path.join(name)).expect("it is there")
    }

    /// Everything that was committed is durable.
    fn waited(&mut self, engine: &Engine) {
        self.durable = self.states.len() - 1;
        for (index, name) in JOURNALS.into_iter().enumerate() {
            let synced_bytes = engine.journals[index].synced_bytes();
            self.journals[index] = self.now(name);
            self.journals[index].truncate(synced_bytes as usize);
        }
        self.durable_mark = self.now(DURABLE_MARK);
    }

    fn torn_tree(&mut self, new: &[u8]) -> Vec<u8> {
        let page_bytes = rustix::param::page_size();
        let old = self.tree.clone();
        let mut torn = mixed(&mut self.random, &old, new, page_bytes);
        let roots = ..2 * page_bytes;
        torn[roots].copy_from_slice(&old[roots]);
        torn
    }

    /// Opens what is left, with this tree: it is the state after some commit, and none is missing
    /// that was waited for.
    fn lose_power(&mut self, tree: &[u8]) {
        let path = self.copies.path().join(self.losses.to_string());
        self.losses += 1;
        fs::create_dir(&path).expect("make");
        let write = |name: &str, contents: &[u8]| fs::write(path.join(name), contents);
        write(tree::FILE_NAME, tree).expect("write");
        write(LENGTH_MARK, &self.length_mark).expect("write");
        write(DURABLE_MARK, &self.durable_mark).expect("write");
        for (index, name) in JOURNALS.into_iter().enumerate() {
            let (synced, now) = (self.journals[index].clone(), self.now(name));
            let left = mixed(&mut self.random, &synced, &now, SECTOR_BYTES);
            write(name, &left).expect("write");
        }
        let found = pairs(&path);
        let number = found.get(NUMBER_KEY).map_or(0, |value| {
            usize::from_le_bytes(*value.first_chunk().expect("it begins with a number"))
        });
        assert!(number >= self.durable, "{number} commits are left of {}", self.durable);
        assert!(found == self.states[number], "these are not the pairs after commit {number}");
        fs::remove_dir_all(path).expect("remove");
    }
}

fn pairs(path: &Path) -> Pairs {
    let kv = Lmdb::open_within(path, LIMITS, Failpoints::default());
    let kv = kv.unwrap_or_else(|error| panic!("{}", error.chain()));
    kv.scan(&KvRange::all(), usize::MAX).expect("scan").into_iter().collect()
}

/// A file of which some units are new and some old; where it has no bytes of that age, zeros.
fn mixed(random: &mut Random, old: &[u8], new: &[u8], unit_bytes: usize) -> Vec<u8> {
    let mut left = if random.chance(0.5) { old.to_vec() } else { new.to_vec() };
    let share_old = [0.0, 0.1, 0.5, 1.0][random.below(4) as usize];
    for (index, unit) in left.chunks_mut(unit_bytes).enumerate() {
        let source = if random.chance(share_old) { old } else { new };
        let rest = source.get(index * unit_bytes..).unwrap_or_default();
        let known = rest.len().min(unit.len());
        unit[..known].copy_from_slice(&rest[..known]);
        unit[known..].fill(0);
    }
    left
}

fn lose_power_all_the_time(seed: u64) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("catalog");
    drop(Lmdb::open_within(&path, LIMITS, Failpoints::default()).expect("open"));
    let read = |name: &str| fs::read(path.join(name)).expect("it is there");
    let machine = Arc::new(Machine {
        engine: OnceLock::new(),
        disk: Mutex::new(Disk {
            tree: read(tree::FILE_NAME),
            length_mark: read(LENGTH_MARK),
            durable_mark: read(DURABLE_MARK),
            journals: Default::default(),
            path: path.clone(),
            copies: tempfile::tempdir().expect("a temporary directory"),
            random: Random::new(seed),
            states: vec![Pairs::new()],
            durable: 0,
            losses: 0,
        }),
    });
    let kv = Lmdb::open_within(&path, LIMITS, Failpoints::watched(machine.clone())).expect("open");
    machine.engine.set(Arc::downgrade(&kv.engine)).expect("set once");
    let mut random = Random::new(seed + 1000);
    for number in 1..=COMMITS {
        let mut changes = vec![(NUMBER_KEY.to_vec(), Some(number.to_le_bytes().to_vec()))];
        for _ in 0..random.below(4) {
            let key = random.below(30).to_be_bytes().to_vec();
            let value_bytes = if random.chance(0.1) { 9000 } else { 300 };
            changes.push((key, random.chance(0.8).then(|| vec![number as u8; value_bytes])));
        }
        let mut state = machine.disk().states[number - 1].clone();
        for (key, value) in &changes {
            match value {
                Some(value) => drop(state.insert(key.clone(), value.clone())),
                None => drop(state.remove(key)),
            }
        }
        machine.disk().states.push(state);
        let committed = kv.transact(&mut |txn| {
            changes.iter().try_for_each(|(key, value)| match value {
                Some(value) => txn.put(key, value),
                None => txn.delete(key),
            })
        });
        let ticket = committed.expect("commit");
        if random.chance(0.2) {
            kv.wait(ticket).expect("wait");
            machine.disk().waited(&kv.engine);
        }
        if random.chance(0.3) {
            let mut disk = machine.disk();
            let tree = disk.tree.clone();
            disk.lose_power(&tree);
        }
    }
    drop(kv);
    let disk = machine.disk();
    assert!(pairs(&path) == disk.states[COMMITS]);
    assert!(disk.losses > COMMITS, "the tree got its changes in few steps");
}

#[test]
fn a_loss_of_power_leaves_a_prefix_with_all_that_was_waited_for() {
    terrace_testkit::seeds(2).for_each(lose_power_all_the_time);
}
