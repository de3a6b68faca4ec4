// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The objects in memory, by key: bounded, sharded, and never two of one object.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use terrace_core::{Key, Result};

use crate::memory::entry::Entry;

const SHARDS: usize = 64;

/// Of so many objects that were used once, one stays in memory where that is full: one that is
/// used again and again stays sooner or later.
const KEPT_ONE_OF: usize = 8;

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
    /// Held for look-ups only, never over I/O: a load, creation or deletion leaves a
    /// `Busy` mark and releases it.
    map: Mutex<Map>,
    /// A `Busy` mark was lifted.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Map {
    named: HashTable<Named>,
    /// Threads that wait for a `Busy` mark: where there are none, no wake-up is needed.
    waiting: usize,
    /// Objects that were closed after their first use while the map was full.
    passed: usize,
}

/// An object, or the claim to it, by its key with its hash, which is computed once for the shard
/// and for all that its map does.
#[derive(Debug)]
struct Named {
    hash: u64,
    key: Key,
    held: Held,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
struct Sought<'a> {
    hash: u64,
    key: &'a Key,
}

impl Map {
    fn get(&self, name: &Sought<'_>) -> Option<&Held> {
        let found = self.named.find(name.hash, |named| named.key == *name.key)?;
        Some(&found.held)
    }

    /// Makes a key name `held`; what it named before.
    fn set(&mut self, name: &Sought<'_>, held: Held) -> Option<Held> {
        let is_it = |named: &Named| named.key == *name.key;
        match self.named.entry(name.hash, is_it, |named| named.hash) {
            Slot::Occupied(found) => Some(std::mem::replace(&mut found.into_mut().held, held)),
            Slot::Vacant(vacant) => {
                vacant.insert(Named { hash: name.hash, key: name.key.clone(), held });
                None
            }
        }
    }

    fn remove(&mut self, name: &Sought<'_>) -> Option<Named> {
        let found = self.named.find_entry(name.hash, |named| named.key == *name.key);
        found.ok().map(|found| found.remove().0)
    }
}

#[derive(Debug)]
enum Held {
    Ready(Arc<Entry>),
    /// A thread loads, creates or deletes it.
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
    /// Room for about `entries_max` unused objects, beside those in use; for a while
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
                    map.set(&name, Held::Busy);
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
        map.set(&name, Held::Busy);
        drop(map);
        let claim = Claim { shard, name, is_done: false };
        let Some(entry) = load()? else { return Ok(None) };
        let entry = Arc::new(entry);
        self.fulfil(claim, Arc::clone(&entry));
        Ok(Some(entry))
    }

    /// The object in memory, once no thread loads, creates or deletes it.
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
        let before = map.set(&name, Held::Busy);
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
                shard.lock().named.iter().filter_map(|named| named.held.entry()).cloned().collect();
            ready.iter().for_each(&mut each);
        }
    }

    /// Whether an object is being loaded, made or deleted.
    pub(crate) fn is_any_claimed(&self) -> bool {
        let is_busy = |named: &Named| matches!(named.held, Held::Busy);
        self.shards.iter().any(|shard| shard.lock().named.iter().any(is_busy))
    }

    /// Makes `claim` name `entry`. Where nothing was [trimmed](Entries::trim) for long, some
    /// unused objects are dropped here, so that there are never many more than twice the bound.
    pub(crate) fn fulfil(&self, mut claim: Claim<'_>, entry: Arc<Entry>) {
        let mut map = claim.shard.lock();
        let dropped = self.surplus(&mut map, self.shard_max * 2);
        map.set(&claim.name, Held::Ready(entry));
        claim.is_done = true;
        claim.shard.lifted(map);
        drop(dropped);
    }

    /// Drops unused objects where there are too many.
    pub(crate) fn trim(&self) {
        for shard in &self.shards {
            let dropped = self.surplus(&mut shard.lock(), self.shard_max);
            drop(dropped);
        }
    }

    /// Takes out unused objects where there are more than `most`, until there are no more than
    /// the bound; to be dropped behind the lock, because the last reference closes files.
    fn surplus(&self, map: &mut Map, most: usize) -> Vec<Named> {
        if map.named.len() <= most {
            return Vec::new();
        }
        let mut surplus = map.named.len() - self.shard_max;
        let taken = map.named.extract_if(|named| {
            let Some(entry) = named.held.entry().filter(|_| surplus > 0) else { return false };
            // Every user but the map has a reference of his own: handles, migrations, and the
            // list of those whose length is not in the catalog yet.
            if Arc::strong_count(entry) > 1 {
                return false;
            }
            surplus -= 1;
            if entry.is_unsynced.load(Ordering::Acquire) {
                self.note_evicted_unsynced();
            }
            true
        });
        taken.collect()
    }

    /// Forgets an object whose last handle was closed after its first use, where as many are in
    /// memory as may be. Most objects are used once: what takes the place of one then is another
    /// such, in memory that is still in the processor's cache.
    pub(crate) fn pass(&self, entry: &Arc<Entry>) {
        let (shard, name) = self.find(&entry.key);
        let mut map = shard.lock();
        // What no sync has covered stays: a later sync need not sync everything.
        if map.named.len() < self.shard_max || entry.is_unsynced.load(Ordering::Acquire) {
            return;
        }
        let is_it = |held: &Held| held.entry().is_some_and(|one| Arc::ptr_eq(one, entry));
        // The caller's reference and the map's; see `surplus`.
        if Arc::strong_count(entry) > 2 || !map.get(&name).is_some_and(is_it) {
            return;
        }
        map.passed += 1;
        if !map.passed.is_multiple_of(KEPT_ONE_OF) {
            let passed = map.remove(&name);
            drop(map);
            drop(passed);
        }
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
        map.set(&self.name, Held::Ready(entry));
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

#[cfg(test)]
mod tests {
    use terrace_core::{Hint, Layout, Persistency};

    use super::*;
    use crate::catalog::record::Record;

    /// Four objects in each shard.
    fn small() -> Entries {
        Entries::new(4 * SHARDS)
    }

    fn key(number: usize) -> Key {
        Key::new("test", &number.to_string()).expect("legal")
    }

    fn make(entries: &Entries, number: usize) -> Arc<Entry> {
        let record = Record {
            object_id: number as u64,
            is_pinned: false,
            persistency: Persistency::Process,
            hint: Hint::default(),
            created_ns: 0,
            layout: Layout::One,
            segments: Vec::new(),
            identity: None,
            label: None,
            is_draft: false,
        };
        let load = || Ok(Some(Entry::new(key(number), &record, Vec::new(), Arc::default())));
        entries.borrow(&key(number), load).expect("loads").expect("is there")
    }

    fn count(entries: &Entries) -> usize {
        entries.shards.iter().map(|shard| shard.lock().named.len()).sum()
    }

    #[test]
    fn what_was_used_once_is_forgotten_where_there_is_no_room() {
        let entries = small();
        for number in 0..100 * SHARDS {
            entries.pass(&make(&entries, number));
            entries.trim();
        }
        assert_eq!(count(&entries), 4 * SHARDS);
        // One that comes again and again stays in the end.
        let again = key(1_000_000);
        let comes = |_: &usize| {
            let entry = make(&entries, 1_000_000);
            entries.pass(&entry);
            entries.peek(&again).is_some()
        };
        let stays_after = (0..).find(comes).expect("it is endless");
        assert!(stays_after < KEPT_ONE_OF, "{stays_after}");
    }

    #[test]
    fn what_somebody_uses_or_no_sync_has_covered_stays() {
        let entries = small();
        let used: Vec<_> = (0..20 * SHARDS).map(|number| make(&entries, number)).collect();
        for entry in &used {
            // The caller's and this list's: it is used elsewhere.
            entries.pass(&Arc::clone(entry));
        }
        entries.trim();
        assert_eq!(count(&entries), used.len());
        let unsynced = make(&entries, 1_000_000);
        unsynced.is_unsynced.store(true, Ordering::Release);
        for _ in 0..3 * KEPT_ONE_OF {
            entries.pass(&unsynced);
        }
        assert!(entries.peek(&unsynced.key).is_some());
        assert!(!entries.take_evicted_unsynced());
        drop((used, unsynced));
        entries.trim();
        assert_eq!(count(&entries), 4 * SHARDS);
    }

    #[test]
    fn another_object_of_the_same_name_stays() {
        let entries = small();
        let before = make(&entries, 0);
        let (_, claim) = entries.claim(&before.key);
        drop(claim);
        let after = make(&entries, 0);
        (1..20 * SHARDS).for_each(|number| drop(make(&entries, number)));
        for _ in 0..3 * KEPT_ONE_OF {
            entries.pass(&before);
        }
        let found = entries.peek(&after.key).expect("is there");
        assert!(Arc::ptr_eq(&found, &after));
    }
}
