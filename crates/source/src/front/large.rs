// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading large files, of which the cache has blocks.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use terrace_core::Clock;

use super::Front;
use super::open::{Bytes, InState, SETTLED_NS, read_state};
use crate::cache::{BLOCK_BYTES, Blocks, Claim};
use crate::calls::is_unreachable;
use crate::handle::OpenFile;
use crate::lock;
use crate::meta::Meta;
use crate::nodes::Node;

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
    file: Mutex<Option<Arc<OpenFile>>>,
    /// The last block that was read.
    last: AtomicU64,
}

impl Front {
    pub(super) fn open_large(&self, node: &Node, path: &Path, meta: &Meta) -> Result<Bytes, Errno> {
        if meta.is_modified_within(SETTLED_NS, self.clock.wall_ns()) {
            self.cache.note_miss();
            self.cache.note_refused();
            return Ok(Bytes::Direct(self.open_source(path, meta)?));
        }
        let blocks = match self.cache.blocks(path, meta) {
            Ok(blocks) => blocks,
            Err(errno) => {
                tracing::debug!(%errno, path = %path.display(), "a file cannot be kept in blocks");
                self.cache.note_refused();
                return Ok(Bytes::Past(self.open_same(path, meta)?));
            }
        };
        let is_suspect = self.file_systems.calls_of(path).is_suspect();
        let file = match blocks.is_complete() || is_suspect {
            true => None,
            // Now, as its name may lead elsewhere later.
            false => match self.open_same(path, meta) {
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
            let is_past = match blocks.claim(block, self.file_systems.deadline())? {
                Claim::Present => match blocks.read_at(from, part) {
                    Ok(()) => false,
                    Err(errno) => {
                        blocks.discard(errno);
                        true
                    }
                },
                Claim::Fetch(claimed) => {
                    let fetched = self.fetch_part(node, large, start, length)?;
                    part.copy_from_slice(
                        &fetched.bytes[(from - start) as usize..(to - start) as usize],
                    );
                    if fetched.is_same {
                        claimed.store(&fetched.bytes);
                    }
                    false
                }
                Claim::Past => true,
            };
            if is_past {
                part.copy_from_slice(&self.fetch_part(node, large, from, part.len())?.bytes);
            }
        }
        if large.last.swap(last, Ordering::Relaxed).wrapping_add(1) == first {
            self.read_ahead(large, last as usize + 1);
        }
        Ok(data)
    }

    /// Reads a block, or a part of one, from the source's file, which is opened where it is not.
    fn fetch_part(
        &self,
        node: &Node,
        large: &Large,
        offset_bytes: u64,
        length: usize,
    ) -> Result<InState, Errno> {
        let file = self.same_file(node, &large.file)?;
        let (asked, blocks) = (Arc::clone(&file), Arc::clone(&large.blocks));
        file.calls().run(move || fetch(&asked, &blocks, offset_bytes, length))
    }

    /// Fetches the next blocks in the background.
    fn read_ahead(&self, large: &Large, from: usize) {
        let Some(file) = lock(&large.file).clone() else { return };
        for block in from..(from + AHEAD_BLOCKS).min(large.blocks.len()) {
            if self.ahead.load(Ordering::Relaxed) >= AHEAD_BLOCKS_MAX {
                return;
            }
            let Some(claimed) = large.blocks.claim_ahead(block) else { continue };
            self.ahead.fetch_add(1, Ordering::Relaxed);
            let (asked, blocks) = (Arc::clone(&file), Arc::clone(&large.blocks));
            let running = Running(Arc::clone(&self.ahead));
            file.calls().spawn(move || {
                let _running = running;
                let (start, length) = blocks.extent(block);
                let fetched = fetch(&asked, &blocks, start, length)?;
                if fetched.is_same {
                    claimed.store(&fetched.bytes);
                }
                Ok(())
            });
        }
    }
}

/// A block that is read ahead, counted until this is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads a block, or a part of one, from the source's file in the state that the copy is of.
///
/// # Errors
///
/// `ESTALE` where it has been changed. Those of the source.
fn fetch(
    file: &OpenFile,
    blocks: &Blocks,
    offset_bytes: u64,
    length: usize,
) -> Result<InState, Errno> {
    let fetched = read_state(file, blocks.meta(), offset_bytes, length);
    let is_stale = match &fetched {
        Ok(fetched) => !fetched.is_same,
        Err(errno) => *errno == Errno::STALE,
    };
    if is_stale {
        blocks.set_stale();
    }
    fetched
}
