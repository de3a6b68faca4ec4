// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Journals, changes in memory and tree as one: reads through all of them, and the way of changes
//! from the first to the last.

use std::fs::File;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use terrace_core::{Failpoints, KvRange, Pair, Result, Ticket};

use super::journal::{Changes, Journal};
use super::merge::{Change, Layer, merged};
use super::tree::{Refusal, Tree};
use crate::kv::changing::Committed;
use crate::kv::group_sync::GroupSync;
use crate::kv::sync_mark::SyncMark;
use crate::kv::{Bounds, bounds};

/// What a change takes in memory beside its bytes: its share of a node, and two allocations.
const CHANGE_OVERHEAD_BYTES: u64 = 100;

/// Bytes of values in one step.
const STEP_BYTES: usize = 8 << 20;

/// Steps at which tests look, or stop it.
pub(super) mod failpoint {
    pub(crate) const WRITE_TREE: &str = "lmdb: write a step to the tree";
    pub(crate) const EMPTY_JOURNAL: &str = "lmdb: empty a journal";
    pub(crate) const FORGET_CHANGES: &str = "lmdb: forget changes that are in the tree";
}

/// Where it stops, beside one transaction of any size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Changes in memory: these at most twice, once more while they are written to the tree.
    pub(super) changes_bytes: u64,
    /// Each of the journals. The same key again and again fills it, and memory not.
    pub(super) journal_bytes: u64,
    /// Changes that the tree gets in one step, with values of [`STEP_BYTES`] at most.
    pub(super) step_changes: usize,
    /// Addresses for the tree's file at first; they double.
    pub(super) map_bytes: usize,
}

/// Everything but the writer, shared with the thread that writes to the tree.
pub(super) struct Engine {
    // The fields are dropped in this order: the lock outlives the tree.
    /// Locked after `state`, where both are.
    pub(super) tree: RwLock<Tree>,
    pub(super) journals: [Journal; 2],
    pub(super) state: RwLock<State>,
    pub(super) group: GroupSync,
    pub(super) durable_mark: SyncMark,
    pub(super) length_mark: SyncMark,
    pub(super) limits: Limits,
    pub(super) target: String,
    pub(super) failpoints: Failpoints,
    pub(super) _lock: File,
}

pub(super) struct State {
    /// What the journal has that takes commits.
    active: Changes,
    active_bytes: u64,
    /// Which of the journals that is.
    pub(super) active_journal: usize,
    /// What the other has, on its way to the tree.
    frozen: Option<Arc<Frozen>>,
    /// Number of the last commit, in this life of the store or before.
    pub(super) committed: u64,
}

struct Frozen {
    changes: Changes,
    /// Number of the last commit in it.
    last: u64,
}

impl State {
    pub(super) fn after(committed: u64) -> Self {
        let active = Changes::new();
        Self { active, active_bytes: 0, active_journal: 0, frozen: None, committed }
    }

    pub(super) fn insert(&mut self, key: Box<[u8]>, value: Option<Box<[u8]>>) {
        let key_bytes = key.len() as u64 + CHANGE_OVERHEAD_BYTES;
        let value_bytes = |value: Option<&[u8]>| value.map_or(0, |value| value.len() as u64);
        self.active_bytes += key_bytes + value_bytes(value.as_deref());
        if let Some(old) = self.active.insert(key, value) {
            self.active_bytes -= key_bytes + value_bytes(old.as_deref());
        }
    }
}

impl Engine {
    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        // Nothing that can panic runs under these locks.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tree(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let state = self.state();
        let frozen = || state.frozen.as_ref()?.changes.get(key);
        if let Some(value) = state.active.get(key).or_else(frozen) {
            return Ok(value.as_deref().map(<[u8]>::to_vec));
        }
        // The tree may have to wait for the disk. What reaches it meanwhile was committed after
        // this began, so finding that is right too.
        drop(state);
        self.tree().get(key)
    }

    /// Whether changes are to be written to the tree before more are taken.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state();
        state.active_bytes >= self.limits.changes_bytes
            || self.journals[state.active_journal].bytes() >= self.limits.journal_bytes
    }

    /// Lets the other journal take commits; `false` where its last are not in the tree.
    pub(super) fn freeze(&self) -> bool {
        let mut state = self.state_mut();
        if state.frozen.is_some() {
            return false;
        }
        let changes = std::mem::take(&mut state.active);
        state.frozen = Some(Arc::new(Frozen { changes, last: state.committed }));
        state.active_bytes = 0;
        state.active_journal = 1 - state.active_journal;
        true
    }

    /// Writes frozen changes to the tree.
    pub(super) fn apply_frozen(&self) -> Result<()> {
        let (frozen, journal) = {
            let state = self.state();
            let Some(frozen) = &state.frozen else { return Ok(()) };
            (Arc::clone(frozen), &self.journals[1 - state.active_journal])
        };
        journal.sync()?;
        self.apply(&frozen.changes, frozen.last)?;
        self.failpoints.hit(failpoint::EMPTY_JOURNAL)?;
        journal.reset()?;
        self.failpoints.hit(failpoint::FORGET_CHANGES)?;
        // The changes themselves are freed at the end, when no thread waits for the lock.
        self.state_mut().frozen = None;
        Ok(())
    }

    /// Writes changes whose journal is durable; `last` is the last commit's number.
    pub(super) fn apply(&self, changes: &Changes, last: u64) -> Result<()> {
        let changes: Vec<Change<'_>> =
            changes.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
        let mut rest = &changes[..];
        loop {
            let (step, later) = rest.split_at(step_length(rest, self.limits.step_changes));
            self.write(step, later.is_empty().then_some(last))?;
            if later.is_empty() {
                break;
            }
            rest = later;
        }
        self.length_mark.write(self.tree().file_bytes()?)
    }

    fn write(&self, changes: &[Change<'_>], applied: Option<u64>) -> Result<()> {
        self.failpoints.hit(failpoint::WRITE_TREE)?;
        loop {
            let written = self.tree().write(changes, applied);
            match written {
                Ok(()) => return Ok(()),
                Err(Refusal::Other(error)) => return Err(error),
                Err(Refusal::MapFull) => {
                    self.tree.write().unwrap_or_else(PoisonError::into_inner).grow()?;
                }
            }
        }
    }

    /// Makes every commit durable that there is now. One thread at a time calls this.
    pub(super) fn sync(&self) -> Result<Ticket> {
        let committed = self.state().committed;
        // What has left them is in the tree, durably.
        self.journals.iter().try_for_each(Journal::sync)?;
        self.durable_mark.write(committed)?;
        Ok(Ticket(committed))
    }
}

impl Committed for Engine {
    type Bytes = Box<[u8]>;

    fn read_committed(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(key)
    }

    fn scan_under(&self, own: &Changes, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        let Some(bounds) = bounds(range) else { return Ok(Vec::new()) };
        // Held while the tree reads, and commits wait: the layers must stay one state.
        let state = self.state();
        let tree = self.tree();
        let txn = tree.begin()?;
        let mut layers = vec![layer(own, bounds)?, layer(&state.active, bounds)?];
        if let Some(frozen) = &state.frozen {
            layers.push(layer(&frozen.changes, bounds)?);
        }
        layers.push(Layer::new(tree.range(&txn, bounds)?)?);
        merged(layers, max)
    }
}

fn layer<'a>(changes: &'a Changes, bounds: Bounds<'a>) -> Result<Layer<'a>> {
    let range = changes.range::<[u8], _>(bounds);
    Layer::new(range.map(|(key, value)| Ok((&**key, value.as_deref()))))
}

/// How many changes one step takes, at least one of any.
fn step_length(changes: &[Change<'_>], max: usize) -> usize {
    let mut bytes = 0;
    let fits = |(_, value): &&Change<'_>| {
        let has_room = bytes < STEP_BYTES;
        bytes += value.unwrap_or_default().len();
        has_room
    };
    changes.iter().take(max).take_while(fits).count()
}
