// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of large files, block by block: only what is read is fetched.
//!
//! Such a copy is a sparse file: the bytes, and behind them the map, which has for each block the epoch in which it
//! was written, or 0. An entry of the map is written after the bytes of its block. When the last block is there,
//! the record says that the copy is whole, and the map is cut off.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use terrace_core::Clock;

use super::record::{CopyKey, Record};
use super::{Cache, Copy, Shared, read_all, write_all};
use crate::lock;
use crate::meta::Meta;

/// A block of a large file.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;
/// The map begins at a multiple of this.
const PAGE_BYTES: u64 = 4096;
/// An entry of the map.
const ENTRY_BYTES: usize = 4;

/// A copy of a large file, of which some blocks may be missing. All handles of one inode share it.
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
    /// The source's file has changed: nothing more is stored.
    is_stale: bool,
}

/// What has to be done for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nothing: it is in the copy.
    Present,
    /// The caller fetches it, and then calls [`Blocks::done`].
    Fetch,
    /// It cannot be kept: the caller reads past the cache.
    Past,
}

impl Cache {
    /// The copy of a large file in this state, which is made where there is none.
    pub(crate) fn blocks(&self, path: &Path, meta: &Meta) -> Result<Arc<Blocks>, Errno> {
        let (key, shared) = (CopyKey::of(path), &self.shared);
        if let Some((copy, present)) = shared.open_blocks(key, meta) {
            self.note_hit();
            return Ok(Arc::new(Blocks::new(copy, path, meta, present)));
        }
        self.note_miss();
        let draft = self.draft(0)?;
        let file = draft.file.as_ref().expect("it is open until it is published");
        let blocks = block_count(meta.size_bytes);
        rustix::fs::ftruncate(file, map_start(meta.size_bytes) + (blocks * ENTRY_BYTES) as u64)?;
        let file = draft.publish_as(key, path, meta, None, true)?;
        lock(&shared.index).add_pinned(key, 0, shared.clock.wall_ns());
        let copy = Copy { file, key, shared: Arc::clone(shared) };
        Ok(Arc::new(Blocks::new(copy, path, meta, vec![false; blocks])))
    }
}

impl Shared {
    fn open_blocks(self: &Arc<Self>, key: CopyKey, meta: &Meta) -> Option<(Copy, Vec<bool>)> {
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
        Some((Copy { file, key, shared: Arc::clone(self) }, present))
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
        let state = State { present, missing, fetching: HashSet::new(), is_stale: false };
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
    pub(crate) fn claim(&self, block: usize, patience: Duration) -> Result<Claim, Errno> {
        let state = lock(&self.state);
        let is_busy = |state: &mut State| state.fetching.contains(&block);
        let waited = self.changed.wait_timeout_while(state, patience, is_busy);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() && state.fetching.contains(&block) {
            return Err(Errno::TIMEDOUT);
        }
        Ok(state.claim(block))
    }

    /// The same for reading ahead, which waits for nothing: whether the caller has to fetch the block.
    pub(crate) fn claim_ahead(&self, block: usize) -> bool {
        let mut state = lock(&self.state);
        !state.fetching.contains(&block) && state.claim(block) == Claim::Fetch
    }

    /// A block that was claimed was fetched in the state of the file that this is a copy of (`Some`), or not.
    /// Returns whether it is in the copy.
    pub(crate) fn done(&self, block: usize, bytes: Option<&[u8]>) -> bool {
        let is_stored = bytes.is_some_and(|bytes| self.store(block, bytes).is_ok());
        let mut state = lock(&self.state);
        state.fetching.remove(&block);
        let mut is_last = false;
        if is_stored && !state.present[block] {
            state.present[block] = true;
            state.missing -= 1;
            is_last = state.missing == 0;
        }
        drop(state);
        self.changed.notify_all();
        if is_last && let Err(errno) = self.complete() {
            tracing::debug!(%errno, path = %self.path.display(), "a copy stays in blocks");
        }
        is_stored
    }

    /// The source's file has another state by now.
    pub(crate) fn set_stale(&self) {
        lock(&self.state).is_stale = true;
    }

    /// Reads from the copy, within blocks that are there.
    pub(crate) fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        match read_all(&self.copy.file, offset_bytes, buffer)? {
            read if read == buffer.len() => Ok(()),
            _ => Err(Errno::IO),
        }
    }

    fn store(&self, block: usize, bytes: &[u8]) -> Result<(), Errno> {
        let (shared, file) = (&self.copy.shared, &self.copy.file);
        shared.make_room(BLOCK_BYTES);
        if !lock(&shared.index).grow(self.copy.key, BLOCK_BYTES) {
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Errno::NOSPC);
        }
        let (start, _) = self.extent(block);
        write_all(file, start, bytes)?;
        let epoch = shared.epochs.enter();
        let entry = u32::try_from(*epoch).map_err(|_| Errno::OVERFLOW)?.to_le_bytes();
        let place = map_start(self.meta.size_bytes) + (block * ENTRY_BYTES) as u64;
        write_all(file, place, &entry)?;
        shared.counters.fetched_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// All blocks are there: the next open finds an ordinary copy.
    fn complete(&self) -> Result<(), Errno> {
        let epoch = self.copy.shared.epochs.enter();
        // A copy that is longer than the file is not found, and fetched again: after a crash between both.
        Record::new(&self.path, &self.meta, *epoch).write(&self.copy.file)?;
        rustix::fs::ftruncate(&self.copy.file, self.meta.size_bytes)
    }
}

impl State {
    fn claim(&mut self, block: usize) -> Claim {
        if self.present[block] {
            return Claim::Present;
        }
        if self.is_stale {
            return Claim::Past;
        }
        self.fetching.insert(block);
        Claim::Fetch
    }
}

pub(super) fn block_count(size_bytes: u64) -> usize {
    size_bytes.div_ceil(BLOCK_BYTES) as usize
}

fn map_start(size_bytes: u64) -> u64 {
    size_bytes.next_multiple_of(PAGE_BYTES)
}
