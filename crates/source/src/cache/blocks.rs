// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of large files, block by block: only what is read is fetched.
//!
//! Such a copy is a sparse file: the bytes, and behind them the map, which has for each block the epoch in which it
//! was written, or 0. An entry of the map is written after the bytes of its block. When the last block is there,
//! the record says that the copy is whole, and the map is cut off.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLockReadGuard, Weak};
use std::time::Duration;

use rustix::fs::{CWD, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use terrace_core::Clock;

use super::record::{CopyKey, Record};
use super::{Cache, Copy, Shared, read_all, write_all};
use crate::lock;
use crate::meta::Meta;

/// A block of a large file.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;
/// Longest file that is copied in blocks: of each open one the memory has a byte for each block.
const FILE_BYTES_MAX: u64 = 4 << 40;
/// The map begins at a multiple of this.
const PAGE_BYTES: u64 = 4096;
/// An entry of the map.
const ENTRY_BYTES: usize = 4;

/// A copy of a large file, of which some blocks may be missing. While one is open there is no other one of the same
/// file in the cache: the last block is there once, and then the map is cut off.
pub(crate) struct Blocks {
    copy: Copy,
    path: std::path::PathBuf,
    meta: Meta,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    present: Vec<bool>,
    missing: usize,
    fetching: HashSet<usize>,
    /// The source's file has changed, or the disk fails: nothing more is stored.
    is_closed: bool,
    /// There was no room for a block.
    is_refused: bool,
}

impl State {
    /// Takes blocks for missing that are not there. Returns how many these are.
    fn keep(&mut self, there: &[bool]) -> usize {
        let before = self.missing;
        self.present.iter_mut().zip(there).for_each(|(present, is_there)| *present &= is_there);
        self.missing = self.present.iter().filter(|is_there| !**is_there).count();
        self.missing - before
    }
}

/// What has to be done for a block.
pub(crate) enum Claim {
    /// Nothing: it is in the copy.
    Present,
    /// The caller fetches it.
    Fetch(Claimed),
    /// It cannot be kept: the caller reads past the cache.
    Past,
}

/// A block that the caller alone fetches, and for which there is room. Dropped, others may claim it.
pub(crate) struct Claimed {
    blocks: Arc<Blocks>,
    block: usize,
    /// What it takes of the cache; given back where it is not stored.
    reserved_bytes: u64,
}

impl Cache {
    /// The copy of a large file in this state, which is made where there is none.
    ///
    /// # Errors
    ///
    /// `EFBIG` where the file is too long for that, `ENOSPC` where there is no room, those of the disk.
    pub(crate) fn blocks(&self, path: &Path, meta: &Meta) -> Result<Arc<Blocks>, Errno> {
        let (key, shared) = (CopyKey::of(path), &self.shared);
        if meta.size_bytes > FILE_BYTES_MAX {
            self.note_miss();
            return Err(Errno::FBIG);
        }
        // Held until it is open, so that no other thread opens the same.
        let mut open = lock(&shared.open_blocks);
        let there = open.get(&key).and_then(Weak::upgrade);
        if let Some(blocks) = there {
            if blocks.meta.is_same_state(meta) {
                self.note_hit();
                return Ok(blocks);
            }
            // The last reference takes the lock when it is dropped.
            drop(open);
            drop(blocks);
            open = lock(&shared.open_blocks);
        }
        let blocks = Arc::new(self.open_or_make(key, path, meta)?);
        open.insert(key, Arc::downgrade(&blocks));
        Ok(blocks)
    }

    fn open_or_make(&self, key: CopyKey, path: &Path, meta: &Meta) -> Result<Blocks, Errno> {
        let shared = &self.shared;
        if let Some((copy, present)) = shared.open_copy_in_blocks(key, meta) {
            self.note_hit();
            return Ok(Blocks::new(copy, path, meta, present));
        }
        self.note_miss();
        let draft = self.draft(0)?;
        let file = draft.file.as_ref().expect("it is open until it is published");
        let blocks = block_count(meta.size_bytes);
        rustix::fs::ftruncate(file, map_start(meta.size_bytes) + (blocks * ENTRY_BYTES) as u64)?;
        let (file, epoch) = draft.publish_as(key, path, meta, None, true)?;
        let copy = Copy { file, epoch, key, shared: Arc::clone(shared) };
        Ok(Blocks::new(copy, path, meta, vec![false; blocks]))
    }
}

impl Shared {
    fn open_copy_in_blocks(
        self: &Arc<Self>,
        key: CopyKey,
        meta: &Meta,
    ) -> Option<(Copy, Vec<bool>)> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let place = self.copies.join(key.place());
        let file = rustix::fs::openat(CWD, &place, flags, Mode::empty()).ok()?;
        let record = Record::read(&file).ok().flatten()?;
        let is_right = record.is_in_blocks && record.meta.is_same_state(meta);
        if !is_right || !self.epochs.is_trusted(record.epoch) {
            return None;
        }
        let present = self.map(&file, meta.size_bytes)?;
        let bytes = present.iter().filter(|is_there| **is_there).count() as u64 * BLOCK_BYTES;
        lock(&self.index).use_pinned(key, bytes, self.clock.wall_ns(), u64::MAX);
        Some((Copy { file, epoch: record.epoch, key, shared: Arc::clone(self) }, present))
    }

    /// Which blocks are there.
    pub(super) fn map(&self, file: impl std::os::fd::AsFd, size_bytes: u64) -> Option<Vec<bool>> {
        let mut map = vec![0; block_count(size_bytes) * ENTRY_BYTES];
        let read = read_all(file, map_start(size_bytes), &mut map).ok()?;
        if read != map.len() {
            return None;
        }
        let epochs = map.chunks_exact(ENTRY_BYTES);
        let epochs = epochs.map(|entry| u32::from_le_bytes(entry.try_into().expect("four bytes")));
        Some(epochs.map(|epoch| epoch != 0 && self.epochs.is_trusted(epoch.into())).collect())
    }
}

impl Blocks {
    fn new(copy: Copy, path: &Path, meta: &Meta, present: Vec<bool>) -> Self {
        let missing = present.iter().filter(|is_there| !**is_there).count();
        let state = State {
            present,
            missing,
            fetching: HashSet::new(),
            is_closed: false,
            is_refused: false,
        };
        Self {
            copy,
            path: path.into(),
            meta: meta.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.state).missing == 0
    }

    /// How many blocks the file has.
    pub(crate) fn len(&self) -> usize {
        block_count(self.meta.size_bytes)
    }

    /// Where a block begins, and how long it is.
    pub(crate) fn extent(&self, block: usize) -> (u64, usize) {
        let start = block as u64 * BLOCK_BYTES;
        (start, (self.meta.size_bytes - start).min(BLOCK_BYTES) as usize)
    }

    /// Claims a block, or waits until another thread that fetches it is done.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` where that takes longer than `patience`.
    pub(crate) fn claim(
        self: &Arc<Self>,
        block: usize,
        patience: Duration,
    ) -> Result<Claim, Errno> {
        let state = lock(&self.state);
        let is_busy = |state: &mut State| state.fetching.contains(&block);
        let waited = self.changed.wait_timeout_while(state, patience, is_busy);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() && state.fetching.contains(&block) {
            return Err(Errno::TIMEDOUT);
        }
        if state.present[block] {
            return Ok(Claim::Present);
        }
        if state.is_closed {
            return Ok(Claim::Past);
        }
        state.fetching.insert(block);
        drop(state);
        Ok(self.reserve(block).map_or(Claim::Past, Claim::Fetch))
    }

    /// The same for reading ahead, which waits for nothing: `None` where there is nothing to fetch.
    pub(crate) fn claim_ahead(self: &Arc<Self>, block: usize) -> Option<Claimed> {
        let mut state = lock(&self.state);
        if state.present[block] || state.is_closed || !state.fetching.insert(block) {
            return None;
        }
        drop(state);
        self.reserve(block)
    }

    /// Takes room for a block that is claimed; where there is none it is claimed no more.
    fn reserve(self: &Arc<Self>, block: usize) -> Option<Claimed> {
        let mut claimed = Claimed { blocks: Arc::clone(self), block, reserved_bytes: 0 };
        let shared = &self.copy.shared;
        let grow = || lock(&shared.index).grow(self.copy.key, BLOCK_BYTES, self.meta.size_bytes);
        let Some(chosen) = shared.is_ready().then(grow).flatten() else {
            if !std::mem::replace(&mut lock(&self.state).is_refused, true) {
                shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
            return None;
        };
        claimed.reserved_bytes = BLOCK_BYTES;
        shared.remove(&chosen);
        Some(claimed)
    }

    /// The source's file has another state by now.
    pub(crate) fn set_stale(&self) {
        lock(&self.state).is_closed = true;
    }

    /// The copy cannot be read: it is dropped, and nothing more is stored.
    pub(crate) fn discard(&self, errno: Errno) {
        if !std::mem::replace(&mut lock(&self.state).is_closed, true) {
            self.copy.discard(&self.path, errno);
        }
    }

    /// Reads from the copy, within blocks that are there.
    pub(crate) fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        // Each block has an epoch of its own.
        self.copy.read_part(offset_bytes, buffer)
    }

    /// Writes a block and its entry in the map. Returns its epoch, to be held until the block is noted as present.
    fn write(&self, block: usize, bytes: &[u8]) -> Result<RwLockReadGuard<'_, u64>, Errno> {
        let (shared, file) = (&self.copy.shared, &self.copy.file);
        let (start, _) = self.extent(block);
        shared.with_room(bytes.len() as u64, || write_all(file, start, bytes))?;
        let epoch = shared.epochs.enter()?;
        let entry = u32::try_from(*epoch).map_err(|_| Errno::OVERFLOW)?.to_le_bytes();
        let place = map_start(self.meta.size_bytes) + (block * ENTRY_BYTES) as u64;
        shared.with_room(0, || write_all(file, place, &entry))?;
        shared.counters.fetched_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(epoch)
    }

    /// Takes blocks for missing that are void since a sync failed: they are fetched again.
    pub(super) fn drop_void(&self) {
        let shared = &self.copy.shared;
        let mut state = lock(&self.state);
        // The record of a whole copy stands for all blocks: it has no map.
        let record = Record::read(&self.copy.file).ok().flatten();
        let is_whole =
            |record: Record| !record.is_in_blocks && shared.epochs.is_trusted(record.epoch);
        if record.is_some_and(is_whole) {
            return;
        }
        let there = shared.map(&self.copy.file, self.meta.size_bytes);
        self.keep(&mut state, &there.unwrap_or_else(|| vec![false; self.len()]));
    }

    /// Takes blocks for missing that are not there, and gives back their room: it is taken again with each of them.
    fn keep(&self, state: &mut State, there: &[bool]) {
        let bytes = state.keep(there) as u64 * BLOCK_BYTES;
        lock(&self.copy.shared.index).shrink(self.copy.key, bytes);
    }

    /// All blocks are there: the next open finds an ordinary copy.
    fn complete(&self) -> Result<(), Errno> {
        let shared = &self.copy.shared;
        let epoch = shared.epochs.enter()?;
        let mut state = lock(&self.state);
        // The record stands for all blocks. One may have become void since it was written.
        let there = shared.map(&self.copy.file, self.meta.size_bytes).ok_or(Errno::IO)?;
        self.keep(&mut state, &there);
        if state.missing > 0 {
            return Ok(());
        }
        // A copy that is longer than the file is not found, and fetched again: after a crash between both.
        Record::new(&self.path, &self.meta, *epoch).write(&self.copy.file)?;
        rustix::fs::ftruncate(&self.copy.file, self.meta.size_bytes)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let mut open = lock(&self.copy.shared.open_blocks);
        // Another one may have taken its place.
        if open.get(&self.copy.key).is_some_and(|there| there.strong_count() == 0) {
            open.remove(&self.copy.key);
        }
    }
}

impl Claimed {
    /// Keeps the block, which was fetched in the state of the file that the copy is of. Failing is no error: it
    /// is fetched again.
    pub(crate) fn store(mut self, bytes: &[u8]) {
        let blocks = Arc::clone(&self.blocks);
        let epoch = match blocks.write(self.block, bytes) {
            Ok(epoch) => epoch,
            Err(errno) => {
                tracing::debug!(%errno, path = %blocks.path.display(), "a block cannot be kept");
                lock(&blocks.state).is_closed = true;
                let (start, length) = blocks.extent(self.block);
                // A part of it may take space that is not counted.
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(&blocks.copy.file, hole, start, length as u64);
                return;
            }
        };
        self.reserved_bytes = 0;
        let mut state = lock(&blocks.state);
        state.present[self.block] = true;
        state.missing -= 1;
        let is_last = state.missing == 0;
        drop(state);
        drop(epoch);
        if is_last && let Err(errno) = blocks.complete() {
            tracing::debug!(%errno, path = %blocks.path.display(), "a copy stays in blocks");
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let blocks = &self.blocks;
        if self.reserved_bytes > 0 {
            lock(&blocks.copy.shared.index).shrink(blocks.copy.key, self.reserved_bytes);
        }
        lock(&blocks.state).fetching.remove(&self.block);
        blocks.changed.notify_all();
    }
}

pub(super) fn block_count(size_bytes: u64) -> usize {
    size_bytes.div_ceil(BLOCK_BYTES) as usize
}

fn map_start(size_bytes: u64) -> u64 {
    size_bytes.next_multiple_of(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::CacheSettings;
    use super::*;

    const PATIENT: Duration = Duration::from_secs(60);

    fn cache(directory: &Path, bytes_max: u64) -> Cache {
        let settings = CacheSettings {
            directory: directory.join("cache"),
            bytes_max: Some(bytes_max),
            purpose: "a test".into(),
        };
        Cache::open(&settings, "a source").expect("a cache")
    }

    fn meta(size_bytes: u64) -> Meta {
        let stat = rustix::fs::stat("/").expect("root");
        Meta { size_bytes, mode: 0o100_644, ..Meta::of(&stat) }
    }

    fn claim(blocks: &Arc<Blocks>, block: usize) -> Claimed {
        match blocks.claim(block, PATIENT).expect("no other claim") {
            Claim::Fetch(claimed) => claimed,
            Claim::Present => panic!("it is there"),
            Claim::Past => panic!("there is no room"),
        }
    }

    #[test]
    fn a_file_is_open_in_blocks_once() {
        let ground = tempfile::tempdir().expect("a directory");
        let cache = cache(ground.path(), 1 << 30);
        let (path, meta) = (Path::new("a"), meta(2 * BLOCK_BYTES + 5));
        let blocks = cache.blocks(path, &meta).expect("a copy");
        let slow = claim(&blocks, 1);
        // The inode is forgotten while a block is read ahead.
        drop(blocks);
        let blocks = cache.blocks(path, &meta).expect("a copy");
        assert!(blocks.claim_ahead(1).is_none(), "it is being fetched");
        claim(&blocks, 0).store(&vec![1; BLOCK_BYTES as usize]);
        claim(&blocks, 2).store(&[1; 5]);
        assert!(!blocks.is_complete());
        slow.store(&vec![1; BLOCK_BYTES as usize]);
        assert!(blocks.is_complete());
        assert!(matches!(blocks.claim(1, PATIENT), Ok(Claim::Present)));
        assert!(cache.find(path, &meta).is_some(), "as long as the file");
        drop(blocks);
        assert_eq!(lock(&cache.shared.open_blocks).len(), 0);
    }

    #[test]
    fn a_sparse_file_of_any_length_takes_bounded_memory() {
        let ground = tempfile::tempdir().expect("a directory");
        let cache = cache(ground.path(), 1 << 30);
        for size_bytes in [FILE_BYTES_MAX + 1, 7 << 60, i64::MAX as u64] {
            let refused = cache.blocks(Path::new("a"), &meta(size_bytes)).err();
            assert_eq!(refused, Some(Errno::FBIG));
        }
        let blocks = cache.blocks(Path::new("a"), &meta(FILE_BYTES_MAX)).expect("sparse");
        claim(&blocks, blocks.len() - 1).store(&vec![1; BLOCK_BYTES as usize]);
        assert_eq!(cache.report().copies, 1);
    }

    #[test]
    fn a_copy_that_is_removed_while_it_is_open_is_made_anew() {
        let ground = tempfile::tempdir().expect("a directory");
        let cache = cache(ground.path(), 1 << 30);
        let (path, meta) = (Path::new("a"), meta(2 * BLOCK_BYTES));
        let old = cache.blocks(path, &meta).expect("a copy");
        claim(&old, 0).store(&vec![1; BLOCK_BYTES as usize]);
        assert_eq!(cache.shared.evict(path, &|| false).expect("removed").0, 1);
        assert!(matches!(old.claim(1, PATIENT), Ok(Claim::Past)), "it is not counted any more");
        let new = cache.blocks(path, &meta).expect("a copy");
        drop(old);
        assert!(Arc::ptr_eq(&cache.blocks(path, &meta).expect("a copy"), &new));
        claim(&new, 0).store(&vec![1; BLOCK_BYTES as usize]);
    }

    #[test]
    fn a_block_without_room_is_not_fetched_and_removes_nothing() {
        let ground = tempfile::tempdir().expect("a directory");
        let cache = cache(ground.path(), 4 * BLOCK_BYTES);
        let small = meta(5);
        let draft = cache.draft(5).expect("room");
        draft.write_at(0, b"small").expect("room");
        drop(draft.publish(Path::new("small"), &small).expect("room"));
        let blocks = cache.blocks(Path::new("a"), &meta(9 * BLOCK_BYTES)).expect("a copy");
        let dropped = claim(&blocks, 0);
        for block in 1..3 {
            claim(&blocks, block).store(&vec![1; BLOCK_BYTES as usize]);
        }
        assert!(matches!(blocks.claim(3, PATIENT), Ok(Claim::Past)));
        assert!(blocks.claim_ahead(4).is_none());
        drop(dropped);
        let again = claim(&blocks, 3);
        again.store(&vec![1; BLOCK_BYTES as usize]);
        assert!(matches!(blocks.claim(0, PATIENT), Ok(Claim::Past)));
        assert!(cache.find(Path::new("small"), &small).is_some());
        let report = cache.report();
        assert_eq!((report.evicted, report.refused), (0, 1));
    }

    #[test]
    fn a_copy_with_a_void_block_is_not_whole() {
        let ground = tempfile::tempdir().expect("a directory");
        let cache = cache(ground.path(), 1 << 30);
        let (path, meta) = (Path::new("a"), meta(2 * BLOCK_BYTES));
        let blocks = cache.blocks(path, &meta).expect("a copy");
        claim(&blocks, 0).store(&vec![1; BLOCK_BYTES as usize]);
        let failed = cache.shared.epochs.end(|| Err(std::io::ErrorKind::StorageFull.into()));
        failed.expect_err("planned");
        claim(&blocks, 1).store(&vec![1; BLOCK_BYTES as usize]);
        assert!(!blocks.is_complete() && cache.find(path, &meta).is_none());
        claim(&blocks, 0).store(&vec![1; BLOCK_BYTES as usize]);
        assert!(blocks.is_complete() && cache.find(path, &meta).is_some());
    }
}
