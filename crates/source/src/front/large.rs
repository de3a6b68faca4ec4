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
            return Ok(Bytes::Direct(self.open_source(path, meta)?));
        }
        let blocks = match self.cache.blocks(path, meta) {
            Ok(blocks) => blocks,
            Err(errno) => {
                tracing::debug!(%errno, path = %path.display(), "a file cannot be kept in blocks");
                self.cache.note_refused();
                return Ok(Bytes::Direct(self.open_same(path, meta)?));
            }
        };
        let file = match blocks.is_complete() || self.calls.is_suspect() {
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
            match blocks.claim(block, self.calls.deadline())? {
                Claim::Present => blocks.read_at(from, part)?,
                Claim::Fetch(claimed) => {
                    let file = self.source_of(node, large)?;
                    let asked = Arc::clone(blocks);
                    let fetched = self.calls.run(move || fetch(&*file, &asked, start, length))?;
                    part.copy_from_slice(
                        &fetched.bytes[(from - start) as usize..(to - start) as usize],
                    );
                    if fetched.is_same {
                        claimed.store(&fetched.bytes);
                    }
                }
                Claim::Past => {
                    let file = self.source_of(node, large)?;
                    let (blocks, length) = (Arc::clone(blocks), part.len());
                    let fetched = self.calls.run(move || fetch(&*file, &blocks, from, length))?;
                    part.copy_from_slice(&fetched.bytes);
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
        let file = self.open_same(&node.path(), large.blocks.meta())?;
        Ok(Arc::clone(lock(&large.file).get_or_insert(file)))
    }

    /// Opens the source's file in a state.
    ///
    /// # Errors
    ///
    /// `ESTALE` where the name leads to another file, or the file has another state: the kernel looks the name
    /// up again then. Those of the source.
    fn open_same(&self, path: &Path, meta: &Meta) -> Result<Arc<dyn SourceFile>, Errno> {
        let (asked, meta) = (path.to_path_buf(), meta.clone());
        let opened = self.ask(move |source| {
            let file: Arc<dyn SourceFile> = Arc::from(source.open(&asked, &meta)?);
            let is_same = file.look()?.is_same_state(&meta);
            is_same.then_some(file).ok_or(Errno::STALE)
        });
        opened.map_err(|errno| self.stale(path, errno))
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
            let (file, blocks) = (Arc::clone(&file), Arc::clone(&large.blocks));
            let running = Running(Arc::clone(&self.ahead));
            self.calls.spawn(move || {
                let _running = running;
                let (start, length) = blocks.extent(block);
                let fetched = fetch(&*file, &blocks, start, length)?;
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

/// Bytes of the state of the file that the copy is of.
struct Fetched {
    bytes: Vec<u8>,
    /// Whether the file still has this state: else nothing is stored.
    is_same: bool,
}

/// Reads from the source's file.
///
/// # Errors
///
/// `ESTALE` where it has been changed: its bytes are not those of the file that was opened. Those of the source.
fn fetch(
    file: &dyn SourceFile,
    blocks: &Blocks,
    offset_bytes: u64,
    length: usize,
) -> Result<Fetched, Errno> {
    let mut bytes = vec![0; length];
    let read = file.read_at(offset_bytes, &mut bytes).inspect_err(|errno| {
        if *errno == Errno::STALE {
            blocks.set_stale();
        }
    })?;
    // After the read: each change before it has changed the state by now.
    let found = file.look_again()?;
    let is_same = found.is_same_state(blocks.meta());
    if !is_same {
        blocks.set_stale();
    }
    match read == length && (is_same || is_same_but_for_names(&found, blocks.meta())) {
        true => Ok(Fetched { bytes, is_same }),
        false => Err(Errno::STALE),
    }
}

/// Whether a file differs from what it was by the number of its names and the time of that change only: another
/// file was renamed over it, or it was removed. Its bytes are the same.
fn is_same_but_for_names(found: &Meta, meta: &Meta) -> bool {
    found.links != meta.links && Meta { changed: meta.changed, ..found.clone() }.is_same_state(meta)
}
