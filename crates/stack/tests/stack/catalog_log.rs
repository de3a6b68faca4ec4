// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log behind a checkpoint: with it, a checkpoint of any moment becomes the catalog of a later
//! one, and whatever is torn off leaves the state after some commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::world::{World, key, put};
use terrace_backends::kv::open_kv;
use terrace_core::{
    Backend, Error, ErrorKind, Kv, KvExt, KvRange, Persistency, Random, Result, Ticket, Txn,
};
use terrace_stack::{
    BackupMoment, LOG_HEAD_BYTES, LogPiece, LogPieces, LogPoint, Stack, apply_log, log_head,
    push_log_commit, read_backup,
};
use terrace_testkit::{Body, KvLayer, Layered};

const LEVEL: Persistency = Persistency::Process;

/// A log as whoever serves a store writes it.
#[derive(Default)]
struct Log {
    files: Vec<(LogPoint, Vec<u8>)>,
    sequence: u64,
}

impl Log {
    fn write(&mut self, taken: LogPieces) {
        assert_eq!(taken.ended, None);
        for piece in taken.pieces {
            match piece {
                LogPiece::Begin(point) => {
                    self.sequence = point.sequence;
                    self.files.push((point, log_head(7, point)));
                }
                LogPiece::Commit(record) => {
                    self.sequence += 1;
                    let (_, file) = self.files.last_mut().expect("it began");
                    push_log_commit(file, self.sequence, &record);
                }
            }
        }
    }

    /// A checkpoint at the end of the log.
    fn applied(&self, checkpoint: &[u8]) -> (Arc<dyn Kv>, LogPoint) {
        let target = open_kv("memory", Path::new("")).expect("opens");
        let moment = read_backup(&mut &*checkpoint, &*target, &mut |_| {}).expect("is whole");
        let mut point = moment.point;
        for (begin, file) in &self.files {
            let mut records = &file[LOG_HEAD_BYTES..];
            apply_log(&mut records, *begin, &mut point, &*target).expect("applies");
        }
        (target, point)
    }
}

fn checkpoint(stack: &Stack) -> (Vec<u8>, BackupMoment) {
    let mut bytes = Vec::new();
    let (_, moment) = stack.checkpoint(Some(5), &mut bytes).expect("written");
    (bytes, moment)
}

/// Everything that a log tells of.
fn pairs(kv: &dyn Kv) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    kv.for_each(KvRange::all(), &mut |key, value| {
        if !matches!(key[0], b'g' | b'd') {
            pairs.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    })
    .expect("reads");
    pairs
}

/// Changes pairs that others change as well, and makes and deletes objects.
fn work(stack: &Stack, seed: u64, is_over: &AtomicBool, done: &AtomicU64) {
    let pairs = stack.kv("files").expect("legal");
    let mut random = Random::new(seed);
    let mut kept = 0;
    while !is_over.load(Ordering::Acquire) {
        let name = random.below(50).to_le_bytes();
        match random.below(6) {
            0 => drop(pairs.transact(&mut |txn| txn.delete(&name)).expect("commits")),
            1 => {
                // One that reads what it writes, so that the order counts.
                let add = &mut |txn: &mut dyn Txn| {
                    let mut value = txn.get(&name)?.unwrap_or_default();
                    value.truncate(20);
                    value.push(seed as u8);
                    txn.put(&name, &value)?;
                    txn.put(b"last", &value)
                };
                pairs.transact(add).expect("commits");
            }
            2 => {
                let object = key(&format!("o{seed}"));
                put(stack, &object, &[1; 100]);
                stack.delete(&object).expect("deletes");
            }
            3 => {
                kept += 1;
                put(stack, &key(&format!("kept{seed}-{kept}")), &[2; 50]);
            }
            _ => {
                let value = random.below(1000).to_le_bytes();
                stack.kv_put("other", &name, &value, LEVEL).expect("puts");
            }
        }
        done.fetch_add(1, Ordering::AcqRel);
    }
}

fn every_checkpoint_leads_to_the_last(catalog: &Arc<dyn Kv>) {
    let world = World::two();
    world.create_parts(|parts| parts.catalog = Arc::clone(catalog));
    let stack = world.open_with(|parts| parts.catalog = Arc::clone(catalog));
    stack.kv_put("files", b"before", b"1", LEVEL).expect("puts");
    // Some pages of a copy, between the pairs that change.
    for index in 0..3000_u64 {
        let name = [&(index % 50).to_le_bytes()[..], &index.to_le_bytes()].concat();
        stack.kv_put("files", &name, b"1", LEVEL).expect("puts");
    }
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut log = Log::default();
    let mut checkpoints = Vec::new();
    std::thread::scope(|scope| {
        let worker = |seed| {
            let (stack, is_over, done) = (&stack, &is_over, &done);
            scope.spawn(move || work(stack, seed, is_over, done))
        };
        let workers: Vec<_> = (1..=4).map(worker).collect();
        for round in 1..=5 {
            checkpoints.push(checkpoint(&stack).0);
            while done.load(Ordering::Acquire) < round * 400 {
                log.write(stack.take_log());
                assert!(workers.iter().all(|worker| !worker.is_finished()), "it panicked");
            }
        }
        is_over.store(true, Ordering::Release);
    });
    // The moment of the last ends the log for the others.
    let (last, moment) = checkpoint(&stack);
    let mut taken = stack.take_log();
    let is_last = |piece: &LogPiece| *piece == LogPiece::Begin(moment.point);
    let end = taken.pieces.iter().position(is_last).expect("it began");
    taken.pieces.truncate(end);
    log.write(taken);
    let expected = pairs(&*Log::default().applied(&last).0);
    for bytes in &checkpoints {
        let (found, point) = log.applied(bytes);
        assert_eq!(point, moment.point);
        assert!(pairs(&*found) == expected, "another catalog");
    }
    assert!(log.files.len() == 5 && log.sequence > 1000, "{} records", log.sequence);
    stack.close().expect("closes");
}

#[test]
fn every_checkpoint_leads_to_the_last_with_each_engine() {
    for engine in ["fjall", "lmdb"] {
        let directory = tempfile::tempdir().expect("a directory");
        every_checkpoint_leads_to_the_last(&open_kv(engine, directory.path()).expect("opens"));
    }
}

#[test]
fn whatever_is_torn_off_leaves_the_state_after_a_commit() {
    let world = World::two();
    let stack = world.create();
    let (bytes, _) = checkpoint(&stack);
    for count in 0..10_u8 {
        // Two pairs in one commit.
        let both: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(&[count])), (b"z", Some(&[count]))];
        stack.kv_apply("pairs", &both, LEVEL).expect("puts");
    }
    let mut log = Log::default();
    log.write(stack.take_log());
    let (point, whole) = log.files.pop().expect("it began");
    let mut last = None;
    for cut in LOG_HEAD_BYTES..=whole.len() {
        log.files = vec![(point, whole[..cut].to_vec())];
        let found = log.applied(&bytes).0;
        let [a, z] = [b"kpairs\0a", b"kpairs\0z"].map(|key| found.get(key).expect("reads"));
        assert_eq!(a, z, "cut at {cut}");
        assert!(a >= last, "cut at {cut}");
        last = a;
    }
    assert_eq!(last, Some(vec![9]));
    // A file that does not follow, and one of another log.
    let (_, tail) = (point, whole[LOG_HEAD_BYTES..].to_vec());
    for wrong in [LogPoint { sequence: 3, ..point }, LogPoint { log: 6, ..point }] {
        log.files = vec![(wrong, [log_head(7, wrong), tail.clone()].concat())];
        assert_eq!(log.applied(&bytes).0.get(b"kpairs\0a").expect("reads"), None);
    }
}

#[test]
fn a_closed_store_changes_no_pair_behind_the_end_of_its_log() {
    let world = World::two();
    let stack = world.create();
    checkpoint(&stack);
    let pairs = stack.kv("files").expect("legal");
    pairs.put(b"a", b"1").expect("puts");
    stack.close().expect("closes");
    let (last, is_whole) = stack.finish_log();
    assert!(is_whole);
    assert!(last.pieces.len() > 1);
    assert_eq!(pairs.put(b"a", b"2").expect_err("closed").kind(), ErrorKind::Busy);
}

#[test]
fn a_commit_that_fails_ends_the_log() {
    let inner = open_kv("memory", Path::new("")).expect("opens");
    let failing = Arc::new(Layered(Failing { inner, fails: AtomicBool::new(false) }));
    let world = World::two();
    world.create_parts(|parts| parts.catalog = failing.clone());
    let stack = world.open_with(|parts| parts.catalog = failing.clone());
    checkpoint(&stack);
    stack.take_log();
    // What the body refuses is none.
    let pairs = stack.kv("files").expect("legal");
    let refused = |txn: &mut dyn Txn| {
        txn.put(b"a", b"1")?;
        Err(Error::invalid("test", "refused"))
    };
    pairs.transact(&mut { refused }).expect_err("refused");
    assert!(stack.is_logged());
    failing.fails.store(true, Ordering::Release);
    pairs.put(b"a", b"1").expect_err("fails");
    failing.fails.store(false, Ordering::Release);
    assert!(!stack.is_logged());
    assert!(stack.take_log().ended.is_some());
    pairs.put(b"b", b"1").expect("puts");
    assert_eq!(stack.take_log().pieces, []);
    // The next one is another.
    let mut bytes = Vec::new();
    let (_, moment) = stack.checkpoint(Some(6), &mut bytes).expect("written");
    assert_eq!(moment.point, LogPoint { log: 6, sequence: 0 });
}

/// An engine whose commits can fail, whether or not they were written.
struct Failing {
    inner: Arc<dyn Kv>,
    fails: AtomicBool,
}

impl KvLayer for Failing {
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn persistency(&self) -> Persistency {
        Persistency::Storage
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        let ticket = self.inner.transact(body)?;
        match self.fails.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Io, "commit").because("the disk is broken")),
            false => Ok(ticket),
        }
    }
}
