// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value pairs in main memory: the reference for the behaviour suite, and the catalog of
//! stores that need not outlive their process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use terrace_core::{Kv, KvRange, Pair, Persistency, Result, Ticket, Txn};

use super::{bounds, check_key, check_ticket, check_value};

/// Keeps pairs in main memory until it is dropped. A transaction excludes everybody else.
#[derive(Debug, Default)]
pub struct Memory {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    pairs: Map,
    committed: u64,
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Makes an empty engine; the path means nothing to it.
pub(super) fn open(_path: &Path) -> Result<Arc<dyn Kv>> {
    Ok(Arc::new(Memory::default()))
}

impl Memory {
    // A failed or panicking transaction takes back what it did, so the state is always sound.

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kv for Memory {
    fn target(&self) -> &str {
        "memory:"
    }

    fn persistency(&self) -> Persistency {
        Persistency::None
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        Ok(self.read().pairs.get(key).cloned())
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        Ok(scan(&self.read().pairs, range, max))
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        let mut state = self.write();
        let mut txn = MemoryTxn { pairs: &mut state.pairs, undo: Vec::new() };
        body(&mut txn)?;
        let has_changed = !std::mem::take(&mut txn.undo).is_empty();
        drop(txn);
        state.committed += u64::from(has_changed);
        Ok(Ticket(state.committed))
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        check_ticket(ticket, self.read().committed)
    }
}

/// Changes the pairs in place and takes the changes back when it is dropped before the commit.
struct MemoryTxn<'a> {
    pairs: &'a mut Map,
    /// What was there before each change, in order.
    undo: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Drop for MemoryTxn<'_> {
    fn drop(&mut self) {
        for (key, old) in self.undo.drain(..).rev() {
            match old {
                Some(value) => drop(self.pairs.insert(key, value)),
                None => drop(self.pairs.remove(&key)),
            }
        }
    }
}

impl Txn for MemoryTxn<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        Ok(self.pairs.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(key, value)?;
        let old = self.pairs.insert(key.to_vec(), value.to_vec());
        self.undo.push((key.to_vec(), old));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        if let Some(old) = self.pairs.remove(key) {
            self.undo.push((key.to_vec(), Some(old)));
        }
        Ok(())
    }

    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        Ok(scan(self.pairs, range, max))
    }
}

fn scan(pairs: &Map, range: &KvRange, max: usize) -> Vec<Pair> {
    let Some(bounds) = bounds(range) else { return Vec::new() };
    let found = pairs.range::<[u8], _>(bounds).take(max);
    found.map(|(key, value)| (key.clone(), value.clone())).collect()
}
