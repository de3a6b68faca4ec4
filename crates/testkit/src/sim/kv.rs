// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated key-value engine: commits that were not waited for may be forgotten.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use terrace_core::{
    Error, ErrorKind, KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, Kv, KvRange, Pair, Persistency, Random,
    Result, Ticket, Txn,
};

use super::{Faults, Operation, SimWorld};

/// A test's control over one simulated key-value engine.
#[derive(Clone, Debug)]
pub struct SimKv {
    world: Arc<SimWorld>,
    kv: usize,
    /// Held through a transaction: there is one writer at a time. Not the world's lock, so that a
    /// failpoint inside a transaction can freeze the world.
    writer: Arc<Mutex<()>>,
}

impl SimKv {
    pub(super) fn new(world: Arc<SimWorld>, kv: usize) -> Self {
        Self { world, kv, writer: Arc::default() }
    }

    /// The engine as the present process sees it; fails with `Io` for ever after the next crash.
    pub fn open(&self) -> Arc<dyn Kv> {
        let epoch = self.world.lock().epoch;
        Arc::new(OpenKv { sim: self.clone(), epoch })
    }

    /// Every pair in order, whatever the state of the world.
    pub fn pairs(&self) -> Vec<Pair> {
        let state = self.world.lock();
        let pairs = state.kvs[self.kv].committed.iter();
        pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Makes the next operation of this sort fail.
    pub fn fail_next(&self, operation: Operation, kind: ErrorKind) {
        self.world.lock().kvs[self.kv].faults.order(operation, kind, false);
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// New values by key; `None` removes.
type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

#[derive(Default)]
pub(super) struct KvState {
    committed: Map,
    /// What is on the medium.
    durable: Map,
    /// What leads from `durable` to `committed`, in order.
    pending: Vec<(Ticket, Changes)>,
    /// Greatest ticket that was given out; never goes back.
    ticket: u64,
    faults: Faults,
    has_sync_failed: bool,
}

impl KvState {
    pub(super) fn restart(&mut self) {
        self.faults = Faults::default();
        self.has_sync_failed = false;
    }

    pub(super) fn lose_unsynced(&mut self, random: Option<&mut Random>) {
        let count = self.pending.len() as u64 + 1;
        let surviving = random.map_or(0, |random| random.below(count)) as usize;
        for (_, changes) in std::mem::take(&mut self.pending).drain(..surviving) {
            apply(&mut self.durable, changes);
        }
        self.committed = self.durable.clone();
    }

    fn commit(&mut self, changes: Changes) -> Ticket {
        self.ticket += 1;
        apply(&mut self.committed, changes.clone());
        self.pending.push((Ticket(self.ticket), changes));
        Ticket(self.ticket)
    }

    /// Makes commits durable up to `ticket` and not one more.
    fn sync(&mut self, ticket: Ticket) {
        let count = self.pending.partition_point(|(pending, _)| *pending <= ticket);
        for (_, changes) in self.pending.drain(..count) {
            apply(&mut self.durable, changes);
        }
    }
}

fn apply(map: &mut Map, changes: Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key, value)),
            None => drop(map.remove(&key)),
        }
    }
}

/// One process's view of the engine.
struct OpenKv {
    sim: SimKv,
    epoch: u64,
}

impl OpenKv {
    /// Runs `step` on the state, unless it is to fail.
    fn run<T>(&self, operation: Operation, step: impl FnOnce(&mut KvState) -> T) -> Result<T> {
        let mut state = self.sim.world.enter(self.epoch)?;
        let kv = &mut state.kvs[self.sim.kv];
        kv.faults.check(operation)?;
        Ok(step(kv))
    }
}

impl Kv for OpenKv {
    fn target(&self) -> &str {
        "sim-kv:"
    }

    fn persistency(&self) -> Persistency {
        Persistency::Storage
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        self.run(Operation::KvRead, |kv| kv.committed.get(key).cloned())
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.run(Operation::KvRead, |kv| scan(&kv.committed, &Changes::new(), range, max))
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        let _writer = self.sim.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut txn = SimTxn { kv: self, changes: Changes::new() };
        body(&mut txn)?;
        let changes = txn.changes;
        self.run(Operation::KvCommit, |kv| kv.commit(changes))
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        let failed = self.run(Operation::KvWait, |kv| {
            kv.sync(if kv.has_sync_failed { Ticket(0) } else { ticket });
            kv.has_sync_failed
        });
        match failed {
            Ok(false) => Ok(()),
            Ok(true) => {
                Err(Error::new(ErrorKind::Io, "sync commits").because("an earlier sync failed"))
            }
            Err(error) => {
                // A crash has replaced the state by then; it must not inherit the failure.
                if let Ok(mut state) = self.sim.world.enter(self.epoch) {
                    state.kvs[self.sim.kv].has_sync_failed = true;
                }
                Err(error)
            }
        }
    }
}

/// The writer's view: committed pairs, which no other thread changes meanwhile, under its own
/// changes.
struct SimTxn<'a> {
    kv: &'a OpenKv,
    changes: Changes,
}

impl Txn for SimTxn<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        match self.changes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.kv.get(key),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        self.changes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.changes.insert(key.to_vec(), None);
        Ok(())
    }

    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.kv.run(Operation::KvRead, |kv| scan(&kv.committed, &self.changes, range, max))
    }
}

/// The first `max` pairs of a range of `map` as it will be after `changes`.
fn scan(map: &Map, changes: &Changes, range: &KvRange, max: usize) -> Vec<Pair> {
    let bounds = (range.start.as_ref(), range.end.as_ref());
    if is_empty(bounds) {
        return Vec::new();
    }
    let unchanged = map.range::<Vec<u8>, _>(bounds).filter(|(key, _)| !changes.contains_key(*key));
    let changed = changes.range::<Vec<u8>, _>(bounds);
    let changed = changed.filter_map(|(key, value)| value.as_ref().map(|value| (key, value)));
    // At most `max` of each can be among the first `max` of both.
    let mut pairs: Vec<Pair> = unchanged
        .take(max)
        .chain(changed.take(max))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    pairs.sort();
    pairs.truncate(max);
    pairs
}

/// Whether no key lies between the bounds; `BTreeMap::range` panics on some of these.
fn is_empty((start, end): (Bound<&Vec<u8>>, Bound<&Vec<u8>>)) -> bool {
    match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (
            Bound::Included(start) | Bound::Excluded(start),
            Bound::Included(end) | Bound::Excluded(end),
        ) => start >= end,
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > KV_KEY_BYTES_MAX {
        return Err(Error::invalid("use a key", "its length is out of bounds")
            .with("key_bytes", key.len())
            .with("key_bytes_max", KV_KEY_BYTES_MAX));
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > KV_VALUE_BYTES_MAX {
        return Err(Error::invalid("use a value", "it is too long")
            .with("value_bytes", value.len())
            .with("value_bytes_max", KV_VALUE_BYTES_MAX));
    }
    Ok(())
}
