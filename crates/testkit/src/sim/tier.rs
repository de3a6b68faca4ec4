// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names on a simulated disk, and the control that tests hold.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use terrace_core::{
    Error, ErrorKind, Identity, Key, Persistency, Random, Result, Space, Superblock,
};

use super::file::SimFile;
use super::{Faults, Operation, SimWorld};

/// A test's control over one simulated disk.
#[derive(Clone, Debug)]
pub struct SimTier {
    pub(super) world: Arc<SimWorld>,
    pub(super) tier: usize,
}

/// A file as it is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Its name.
    pub key: Key,
    /// Its length.
    pub length_bytes: u64,
    /// The room it takes; equal to the length where it has no holes.
    pub allocated_bytes: u64,
    /// What it belongs to.
    pub identity: Option<Identity>,
}

impl SimTier {
    pub(super) fn new(world: Arc<SimWorld>, tier: usize) -> Self {
        Self { world, tier }
    }

    /// Every file, in the order of the keys, whatever the state of the world.
    pub fn files(&self) -> Vec<StoredFile> {
        let state = self.world.lock();
        let tier = &state.tiers[self.tier];
        let stored = |(key, entry): (&Key, &Entry)| {
            let file = &tier.files[&entry.file];
            StoredFile {
                key: key.clone(),
                length_bytes: file.length_bytes(),
                allocated_bytes: file.allocated_bytes(),
                identity: entry.identity.clone(),
            }
        };
        tier.entries.iter().map(stored).collect()
    }

    /// Capacity and use, whatever the state of the world.
    pub fn space(&self) -> Space {
        self.world.lock().tiers[self.tier].space()
    }

    /// Makes the next operation of this sort fail.
    pub fn fail_next(&self, operation: Operation, kind: ErrorKind) {
        self.world.lock().tiers[self.tier].faults.order(operation, kind, false);
    }

    /// Makes every operation of this sort fail until [`SimTier::heal`] or a crash.
    pub fn fail_always(&self, operation: Operation, kind: ErrorKind) {
        self.world.lock().tiers[self.tier].faults.order(operation, kind, true);
    }

    /// Takes back all failures that did not happen yet.
    pub fn heal(&self) {
        self.world.lock().tiers[self.tier].faults = Faults::default();
    }

    /// Lets another user of the disk take all room but `free_bytes`; `u64::MAX` gives it back.
    pub fn fill(&self, free_bytes: u64) {
        let mut state = self.world.lock();
        let tier = &mut state.tiers[self.tier];
        let room_bytes = tier.capacity_bytes.saturating_sub(tier.used_bytes);
        tier.foreign_bytes = room_bytes.saturating_sub(free_bytes);
    }

    /// Lets the disk as it is opened from now on lend real files with the bytes of its own.
    pub fn lend_files(&self) {
        self.world.lock().tiers[self.tier].lends_files = true;
    }

    /// Makes every operation block until [`SimTier::release`] or a crash.
    pub fn hang(&self) {
        self.world.lock().tiers[self.tier].is_hanging = true;
    }

    /// Lets operations go on.
    pub fn release(&self) {
        self.world.lock().tiers[self.tier].is_hanging = false;
        self.world.changed.notify_all();
    }

    /// Blocks until `count` operations hang.
    pub fn wait_until_hanging(&self, count: usize) {
        let state = self.world.lock();
        let is_early = |state: &mut super::State| state.tiers[self.tier].hanging < count;
        let waited = self.world.changed.wait_while(state, is_early);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Names a file of a tier; never reused.
pub(super) type FileId = u64;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) file: FileId,
    pub(super) identity: Option<Identity>,
}

pub(super) struct TierState {
    pub(super) name: String,
    pub(super) persistency: Persistency,
    capacity_bytes: u64,
    /// Sum of `allocated_bytes` of the named files.
    used_bytes: u64,
    /// Taken by another user of the disk.
    foreign_bytes: u64,
    pub(super) entries: BTreeMap<Key, Entry>,
    /// Every state of each name that changed since the last sync of the names, the synced one
    /// first; the present one is in `entries`.
    past: BTreeMap<Key, Vec<Option<Entry>>>,
    /// Named files, and those that a state in `past` names.
    files: BTreeMap<FileId, SimFile>,
    file_next: FileId,
    pub(super) superblock: Option<Superblock>,
    pub(super) faults: Faults,
    /// Whether objects can be leased.
    pub(super) lends_files: bool,
    pub(super) is_hanging: bool,
    /// Operations that wait for `is_hanging` to end.
    pub(super) hanging: usize,
}

impl TierState {
    pub(super) fn new(name: &str, capacity_bytes: u64, persistency: Persistency) -> Self {
        Self {
            name: name.into(),
            persistency,
            capacity_bytes,
            used_bytes: 0,
            foreign_bytes: 0,
            entries: BTreeMap::new(),
            past: BTreeMap::new(),
            files: BTreeMap::new(),
            file_next: 0,
            superblock: None,
            faults: Faults::default(),
            lends_files: false,
            is_hanging: false,
            hanging: 0,
        }
    }

    pub(super) fn space(&self) -> Space {
        Space {
            capacity_bytes: self.capacity_bytes,
            used_bytes: self.used_bytes + self.foreign_bytes,
            file_system: None,
        }
    }

    pub(super) fn create(&mut self, key: &Key, identity: Option<Identity>, now_ns: u64) -> FileId {
        let file = self.file_next;
        self.file_next += 1;
        self.files.insert(file, SimFile::new(now_ns));
        self.set_entry(key, Some(Entry { file, identity }));
        file
    }

    /// Changes what a name stands for. The file of a name that goes stays until the names are
    /// synced: its name may come back.
    pub(super) fn set_entry(&mut self, key: &Key, entry: Option<Entry>) {
        let old = match entry {
            Some(entry) => self.entries.insert(key.clone(), entry),
            None => self.entries.remove(key),
        };
        if let Some(old) = &old
            && self.entries.get(key).is_none_or(|new| new.file != old.file)
        {
            self.used_bytes -= self.files[&old.file].allocated_bytes();
        }
        self.past.entry(key.clone()).or_default().push(old);
    }

    /// The open file, unless its name was deleted meanwhile.
    pub(super) fn file(&self, key: &Key, id: FileId) -> Result<&SimFile> {
        match self.entries.get(key) {
            Some(entry) if entry.file == id => Ok(&self.files[&id]),
            _ => Err(Error::new(ErrorKind::NotFound, "use an open object").with("key", key)),
        }
    }

    /// A descriptor of a file that is kept equal to the open one.
    pub(super) fn lend(&mut self, key: &Key, id: FileId) -> Result<std::fs::File> {
        self.file(key, id)?;
        let lent = self.files.get_mut(&id).expect("found above").lend();
        lent.map_err(|error| Error::from_io("lend a descriptor", error))
    }

    /// Runs `change` on the open file. `filled` is what it makes present and `length_bytes` the
    /// length it leads to, where it grows.
    pub(super) fn change<T>(
        &mut self,
        key: &Key,
        id: FileId,
        filled: &Range<u64>,
        change: impl FnOnce(&mut SimFile) -> T,
    ) -> Result<T> {
        let file = self.file(key, id)?;
        let old_bytes = file.allocated_bytes();
        let length_bytes = file.length_bytes().max(filled.end);
        let need_bytes = file.allocated_bytes_with(filled, length_bytes).saturating_sub(old_bytes);
        let space = self.space();
        let free_bytes = space.capacity_bytes.saturating_sub(space.used_bytes);
        if need_bytes > free_bytes {
            return Err(Error::new(ErrorKind::NoSpace, "write")
                .with("key", key)
                .with("need_bytes", need_bytes)
                .with("free_bytes", free_bytes));
        }
        let file = self.files.get_mut(&id).expect("found above");
        let value = change(file);
        self.used_bytes = self.used_bytes - old_bytes + file.allocated_bytes();
        Ok(value)
    }

    /// As [`TierState::change`] for what takes no room.
    pub(super) fn change_freely<T>(
        &mut self,
        key: &Key,
        id: FileId,
        change: impl FnOnce(&mut SimFile) -> T,
    ) -> Result<T> {
        let old_bytes = self.file(key, id)?.allocated_bytes();
        let file = self.files.get_mut(&id).expect("found above");
        let value = change(file);
        self.used_bytes = self.used_bytes - old_bytes + file.allocated_bytes();
        Ok(value)
    }

    /// Makes the names durable.
    pub(super) fn sync_names(&mut self) {
        for (key, states) in std::mem::take(&mut self.past) {
            let named = self.entries.get(&key).map(|entry| entry.file);
            for gone in states.into_iter().flatten().filter(|old| Some(old.file) != named) {
                self.files.remove(&gone.file);
            }
        }
    }

    /// Makes the bytes of all files durable.
    pub(super) fn sync_files(&mut self) {
        self.files.values_mut().for_each(SimFile::sync);
    }

    pub(super) fn lose_unsynced(&mut self, mut random: Option<&mut Random>) {
        for (key, mut states) in std::mem::take(&mut self.past) {
            states.push(self.entries.remove(&key));
            let chosen = random.as_mut().map_or(0, |random| random.below(states.len() as u64));
            if let Some(entry) = states.swap_remove(chosen as usize) {
                self.entries.insert(key, entry);
            }
        }
        let mut files = std::mem::take(&mut self.files);
        self.used_bytes = 0;
        for entry in self.entries.values() {
            let mut file = files.remove(&entry.file).expect("every state keeps its file");
            file.lose_unsynced(random.as_deref_mut());
            self.used_bytes += file.allocated_bytes();
            self.files.insert(entry.file, file);
        }
    }

    pub(super) fn forget_everything(&mut self) {
        self.entries.clear();
        self.past.clear();
        self.files.clear();
        self.used_bytes = 0;
        self.superblock = None;
    }
}
