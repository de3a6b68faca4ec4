// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading large files, of which the cache has blocks.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use terrace_core::Clock;

use super::Front;
use super::open::{Bytes, SETTLED_NS};
use crate::cache::{BLOCK_BYTES, Blocks, Claim};
use crate::calls::is_unreachable;
use crate::lock;
use crate::meta::Meta;
use crate::nodes::Node;
use crate::source::SourceFile;

/// Blocks that are fetched ahead of a sequential reader.
const AHEAD_BLOCKS: usize = 4;
/// The same of all readers together: they bound the memory.
const AHEAD_BLOCKS_MAX: usize = 32;
/// No block was read yet.
const NO_BLOCK: u64 = u64::MAX - 1;

/// An open large file.
pub(super) struct Large {
    blocks: Arc<Blocks>,
    /// The source's file; `None` where it was not needed yet, or the source did not answer.
    file: Mutex<Option<Arc<dyn SourceFile>>>,
    /// The last block that was read.
    last: AtomicU64,
}

impl Front {
    pub(super) fn open_large(&self, node: &Node, path: &Path, meta: &Meta) -> Result<Bytes, Errno> {
        if meta.is_modified_within(SETTLED_NS, self.clock.wall_ns()) {
            self.cache.note_miss();
            self.cache.note_refused();
            return Ok(Bytes::Direct(self.open_source(path)?));
        }
        let blocks = {
            let mut shared = lock(&node.blocks);
            match shared.upgrade() {
                Some(blocks) => {
                    self.cache.note_hit();
                    blocks
                }
                None => match self.cache.blocks(path, meta) {
                    Ok(blocks) => {
                        *shared = Arc::downgrade(&blocks);
                        blocks
                    }
                    Err(errno) => {
                        drop(shared);
                        tracing::debug!(%errno, path = %path.display(), "a file cannot be kept in blocks");
                        self.cache.note_refused();
                        return Ok(Bytes::Direct(self.open_source(path)?));
                    }
                },
            }
        };
        let file = match blocks.is_complete() || self.calls.is_suspect() {
            true => None,
            // Now, as its name may lead elsewhere later.
            false => match self.open_source(path) {
                Err(errno) if is_unreachable(errno) => None,
                other => Some(other?),
            },
        };
        self.remember_above(node);
        Ok(Bytes::Large(Large { blocks, file: Mutex::new(file), last: AtomicU64::new(NO_BLOCK) }))
    }

    pub(super) fn read_large(
        &self,
        node: &Node,
        large: &Large,
        offset: u64,
        bytes: u32,
    ) -> Result<Vec<u8>, Errno> {
        let blocks = &large.blocks;
        let end = offset.saturating_add(bytes.into()).min(blocks.meta().size_bytes);
        if offset >= end {
            return Ok(Vec::new());
        }
        let mut data = vec![0; (end - offset) as usize];
        let (first, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        for block in first as usize..=last as usize {
            let (start, length) = blocks.extent(block);
            let (from, to) = (offset.max(start), end.min(start + length as u64));
            let part = &mut data[(from - offset) as usize..(to - offset) as usize];
            match blocks.claim(block, self.calls.deadline())? {
                Claim::Present => blocks.read_at(from, part)?,
                Claim::Fetch => {
                    let fetched = self.source_of(node, large).and_then(|file| {
                        let blocks = Arc::clone(blocks);
                        self.calls.run(move || fetch(&*file, &blocks, block))
                    });
                    let fetched = fetched.inspect_err(|_| {
                        blocks.done(block, None);
                    })?;
                    blocks.done(
                        block,
                        Some(&fetched)
                            .filter(|fetched| fetched.is_same)
                            .map(|fetched| &*fetched.bytes),
                    );
                    let within = (from - start) as usize..(to - start) as usize;
                    // It has become shorter: what is missing reads as a hole.
                    let there =
                        fetched.bytes.get(within.start..within.end.min(fetched.bytes.len()));
                    let there = there.unwrap_or_default();
                    part[..there.len()].copy_from_slice(there);
                }
                Claim::Past => {
                    let file = self.source_of(node, large)?;
                    let there = self.read_source(&file, from, part.len())?;
                    part[..there.len()].copy_from_slice(&there);
                }
            }
        }
        if large.last.swap(last, Ordering::Relaxed).wrapping_add(1) == first {
            self.read_ahead(large, last as usize + 1);
        }
        Ok(data)
    }

    /// The source's file, which is opened where it is not.
    fn source_of(&self, node: &Node, large: &Large) -> Result<Arc<dyn SourceFile>, Errno> {
        if let Some(file) = &*lock(&large.file) {
            return Ok(Arc::clone(file));
        }
        let file = self.open_source(&node.path())?;
        Ok(Arc::clone(lock(&large.file).get_or_insert(file)))
    }

    /// Fetches the next blocks in the background.
    fn read_ahead(&self, large: &Large, from: usize) {
        let Some(file) = lock(&large.file).clone() else { return };
        for block in from..(from + AHEAD_BLOCKS).min(large.blocks.len()) {
            if self.ahead.load(Ordering::Relaxed) >= AHEAD_BLOCKS_MAX {
                return;
            }
            if !large.blocks.claim_ahead(block) {
                continue;
            }
            self.ahead.fetch_add(1, Ordering::Relaxed);
            let (file, blocks) = (Arc::clone(&file), Arc::clone(&large.blocks));
            let running = Running { ahead: Arc::clone(&self.ahead), blocks, block };
            self.calls.spawn(move || {
                let fetched = fetch(&*file, &running.blocks, block)?;
                running.blocks.done(block, fetched.is_same.then_some(&*fetched.bytes));
                Ok(())
            });
        }
    }
}

/// A block that is read ahead. Dropped, it is claimed no more.
struct Running {
    ahead: Arc<AtomicUsize>,
    blocks: Arc<Blocks>,
    block: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ahead.fetch_sub(1, Ordering::Relaxed);
        self.blocks.done(self.block, None);
    }
}

/// A block as the source had it.
struct Fetched {
    bytes: Vec<u8>,
    /// Whether the file was in the state that the copy is of.
    is_same: bool,
}

fn fetch(file: &dyn SourceFile, blocks: &Blocks, block: usize) -> Result<Fetched, Errno> {
    let (start, length) = blocks.extent(block);
    let mut bytes = vec![0; length];
    let read = file.read_at(start, &mut bytes)?;
    bytes.truncate(read);
    // Behind the read: a change before it has changed the state by now.
    let is_same = read == length && file.look()?.is_same_state(blocks.meta());
    if !is_same {
        blocks.set_stale();
    }
    Ok(Fetched { bytes, is_same })
}
