// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects in memory, by key: bounded, sharded, and never two of one object.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use terrace_core::{Key, Result};

use crate::entry::Entry;
use crate::hash::Numbers;

const SHARDS: usize = 64;

/// The objects in memory.
#[derive(Debug)]
pub(crate) struct Entries {
    shards: Vec<Shard>,
    hasher: RandomState,
    shard_max: usize,
    /// Whether objects were dropped from memory whose bytes no sync has covered.
    evicted_unsynced: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    /// Held for look-ups only, never over I/O: who loads, creates or deletes an object leaves a
    /// `Busy` mark and lets go.
    map: Mutex<Map>,
    /// A `Busy` mark was lifted.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Map {
    held: HashMap<Named, Held, Numbers>,
    /// Threads that wait for a `Busy` mark: where there are none, nobody needs to be woken.
    waiting: usize,
}

/// A key with its hash, which is computed once for the shard and for all that its map does.
#[derive(Debug)]
struct Named {
    hash: u64,
    key: Key,
}

/// Finds a [`Named`] without a key of its own.
#[derive(Clone, Copy, Debug)]
struct Sought<'a> {
    hash: u64,
    key: &'a Key,
}

/// What [`Named`] and [`Sought`] have in common.
trait Name {
    fn sought(&self) -> Sought<'_>;
}

impl Name for Named {
    fn sought(&self) -> Sought<'_> {
        Sought { hash: self.hash, key: &self.key }
    }
}

impl Name for Sought<'_> {
    fn sought(&self) -> Sought<'_> {
        *self
    }
}

impl<'a> Borrow<dyn Name + 'a> for Named {
    fn borrow(&self) -> &(dyn Name + 'a) {
        self
    }
}

impl Hash for Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for dyn Name + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.sought().hash);
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Named {}

impl PartialEq for dyn Name + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.sought().key == other.sought().key
    }
}

impl Eq for dyn Name + '_ {}

impl Map {
    fn get(&self, name: &Sought<'_>) -> Option<&Held> {
        self.held.get(name as &dyn Name)
    }

    fn insert(&mut self, name: &Sought<'_>, held: Held) -> Option<Held> {
        self.held.insert(Named { hash: name.hash, key: name.key.clone() }, held)
    }

    fn remove(&mut self, name: &Sought<'_>) {
        self.held.remove(name as &dyn Name);
    }
}

#[derive(Debug)]
enum Held {
    Ready(Arc<Entry>),
    /// Somebody loads, creates or deletes it.
    Busy,
}

/// The right to decide what a key names; the mark is lifted when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    shard: &'a Shard,
    name: Sought<'a>,
    is_done: bool,
}

/// What was found under a key.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    Entry(Arc<Entry>),
    Vacant(Claim<'a>),
}

impl Entries {
    /// Room for about `entries_max` objects that nobody uses, beside those in use; for a while
    /// for twice as many.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            shard_max: (entries_max / SHARDS).max(1),
            evicted_unsynced: AtomicBool::new(false),
        }
    }

    /// The object in memory, counted as open once more; or the claim to its key, if it is not
    /// in memory.
    pub(crate) fn open<'a>(&'a self, key: &'a Key) -> Found<'a> {
        let (shard, name) = self.find(key);
        let mut map = shard.lock();
        loop {
            match map.get(&name) {
                Some(Held::Ready(entry)) => {
                    entry.opens.fetch_add(1, Ordering::AcqRel);
                    return Found::Entry(Arc::clone(entry));
                }
                Some(Held::Busy) => map = shard.wait(map),
                None => {
                    map.insert(&name, Held::Busy);
                    return Found::Vacant(Claim { shard, name, is_done: false });
                }
            }
        }
    }

    /// The object, loaded if need be, without counting it as open.
    ///
    /// # Errors
    ///
    /// Those of `load`.
    pub(crate) fn borrow(
        &self,
        key: &Key,
        load: impl FnOnce() -> Result<Option<Entry>>,
    ) -> Result<Option<Arc<Entry>>> {
        let (shard, name) = self.find(key);
        let mut map = shard.lock();
        loop {
            match map.get(&name) {
                Some(Held::Ready(entry)) => return Ok(Some(Arc::clone(entry))),
                Some(Held::Busy) => map = shard.wait(map),
                None => break,
            }
        }
        map.insert(&name, Held::Busy);
        drop(map);
        let claim = Claim { shard, name, is_done: false };
        let Some(entry) = load()? else { return Ok(None) };
        let entry = Arc::new(entry);
        self.fulfil(claim, Arc::clone(&entry));
        Ok(Some(entry))
    }

    /// The object in memory, once nobody loads, creates or deletes it.
    pub(crate) fn ready(&self, key: &Key) -> Option<Arc<Entry>> {
        let (shard, name) = self.find(key);
        let mut map = shard.lock();
        loop {
            match map.get(&name) {
                Some(Held::Ready(entry)) => return Some(Arc::clone(entry)),
                Some(Held::Busy) => map = shard.wait(map),
                None => return None,
            }
        }
    }

    /// The object in memory without opening it.
    pub(crate) fn peek(&self, key: &Key) -> Option<Arc<Entry>> {
        let (shard, name) = self.find(key);
        match shard.lock().get(&name) {
            Some(Held::Ready(entry)) => Some(Arc::clone(entry)),
            _ => None,
        }
    }

    /// Takes a key for deletion: what was in memory, and the claim.
    pub(crate) fn claim<'a>(&'a self, key: &'a Key) -> (Option<Arc<Entry>>, Claim<'a>) {
        let (shard, name) = self.find(key);
        let mut map = shard.lock();
        while matches!(map.get(&name), Some(Held::Busy)) {
            map = shard.wait(map);
        }
        let before = map.insert(&name, Held::Busy);
        let claim = Claim { shard, name, is_done: false };
        match before {
            Some(Held::Ready(entry)) => (Some(entry), claim),
            _ => (None, claim),
        }
    }

    /// Calls `each` for every object in memory.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Arc<Entry>)) {
        for shard in &self.shards {
            let ready: Vec<_> =
                shard.lock().held.values().filter_map(Held::entry).cloned().collect();
            ready.iter().for_each(&mut each);
        }
    }

    /// Makes `claim` name `entry`. Where nobody has [trimmed](Entries::trim) for long, some that
    /// nobody uses are dropped here, so that there are never many more than twice the bound.
    pub(crate) fn fulfil(&self, mut claim: Claim<'_>, entry: Arc<Entry>) {
        let mut map = claim.shard.lock();
        let dropped = self.surplus(&mut map, self.shard_max * 2);
        map.insert(&claim.name, Held::Ready(entry));
        claim.is_done = true;
        claim.shard.lifted(map);
        drop(dropped);
    }

    /// Drops objects that nobody uses where there are too many.
    pub(crate) fn trim(&self) {
        for shard in &self.shards {
            let dropped = self.surplus(&mut shard.lock(), self.shard_max);
            drop(dropped);
        }
    }

    /// Takes out what nobody uses where there are more than `most`; to be dropped behind the lock,
    /// because the last reference closes files.
    fn surplus(&self, map: &mut Map, most: usize) -> Vec<(Named, Held)> {
        if map.held.len() <= most {
            return Vec::new();
        }
        // Half of them at once, so that the walk is paid for by many inserts.
        let mut surplus = map.held.len() - self.shard_max / 2;
        let taken = map.held.extract_if(|_, held| {
            let is_idle = match held {
                // Every user but the map has a reference of his own: handles, migrations, and the
                // list of those whose length is not in the catalog yet.
                Held::Ready(entry) => Arc::strong_count(entry) == 1,
                Held::Busy => false,
            };
            let drop_it = is_idle && surplus > 0;
            surplus -= usize::from(drop_it);
            if drop_it && held.entry().is_some_and(|one| one.is_unsynced.load(Ordering::Acquire)) {
                self.note_evicted_unsynced();
            }
            drop_it
        });
        taken.collect()
    }

    /// Whether bytes of objects that left memory may not be durable; forgets it.
    pub(crate) fn take_evicted_unsynced(&self) -> bool {
        self.evicted_unsynced.swap(false, Ordering::AcqRel)
    }

    /// Notes that they may not be.
    pub(crate) fn note_evicted_unsynced(&self) {
        self.evicted_unsynced.store(true, Ordering::Release);
    }

    fn find<'a>(&self, key: &'a Key) -> (&Shard, Sought<'a>) {
        let hash = self.hasher.hash_one(key.as_str());
        (&self.shards[(hash >> 32) as usize % SHARDS], Sought { hash, key })
    }
}

impl Held {
    fn entry(&self) -> Option<&Arc<Entry>> {
        match self {
            Held::Ready(entry) => Some(entry),
            Held::Busy => None,
        }
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, mut map: MutexGuard<'a, Map>) -> MutexGuard<'a, Map> {
        map.waiting += 1;
        let mut map = self.changed.wait(map).unwrap_or_else(PoisonError::into_inner);
        map.waiting -= 1;
        map
    }

    /// A `Busy` mark was lifted.
    fn lifted(&self, map: MutexGuard<'_, Map>) {
        let somebody_waits = map.waiting > 0;
        drop(map);
        if somebody_waits {
            self.changed.notify_all();
        }
    }
}

impl Claim<'_> {
    /// The key that is claimed.
    pub(crate) fn key(&self) -> &Key {
        self.name.key
    }

    /// Puts an object that was claimed for deletion back, because deleting it failed.
    pub(crate) fn put_back(mut self, entry: Arc<Entry>) {
        let mut map = self.shard.lock();
        map.insert(&self.name, Held::Ready(entry));
        self.is_done = true;
        self.shard.lifted(map);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut map = self.shard.lock();
            map.remove(&self.name);
            self.shard.lifted(map);
        }
    }
}

/// An object that is open through this reference.
#[derive(Debug)]
pub(crate) struct Opened(pub(crate) Arc<Entry>);

impl std::ops::Deref for Opened {
    type Target = Arc<Entry>;

    fn deref(&self) -> &Arc<Entry> {
        &self.0
    }
}

/// Loads what a claim names, or leaves the key vacant.
pub(crate) fn load_claimed(
    entries: &Entries,
    claim: Claim<'_>,
    load: impl FnOnce() -> Result<Option<Entry>>,
) -> Result<Option<Arc<Entry>>> {
    let Some(entry) = load()? else { return Ok(None) };
    let entry = Arc::new(entry);
    entry.opens.fetch_add(1, Ordering::AcqRel);
    entries.fulfil(claim, Arc::clone(&entry));
    Ok(Some(entry))
}
