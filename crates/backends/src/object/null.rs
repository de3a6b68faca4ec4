// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects without bytes: what is left of a measurement when the medium costs nothing.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use terrace_core::{
    Access, Backend, Capability, Clock, Cursor, End, Key, Object, Open, Page, Result, Space, Stat,
    SystemClock, TierBackend, check_extent, check_range,
};

use super::names::{Named, Names};

/// Keeps the keys, sizes, times and identities of objects and forgets their bytes: all read as zeros.
///
/// - Promises nothing about crashes: opening for writing under semantics above
///   [`Persistency::None`](terrace_core::Persistency::None) is `Unsupported`.
/// - Never full: it holds nothing. Handles of a deleted object go on.
#[derive(Debug)]
pub struct Null {
    capacity_bytes: u64,
    names: Names<Entry>,
    clock: Arc<SystemClock>,
}

#[derive(Debug)]
struct Entry {
    size_bytes: AtomicU64,
    created_ns: u64,
    modified_ns: AtomicU64,
}

struct NullObject {
    key: Key,
    entry: Arc<Named<Entry>>,
    clock: Arc<SystemClock>,
    access: Access,
}

impl Null {
    /// An empty backend that reports `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, names: Names::new("null:"), clock: Arc::default() }
    }
}

impl Backend for Null {
    fn target(&self) -> &str {
        self.names.target()
    }

    fn capability(&self) -> Capability {
        let least = Capability::LEAST;
        Capability { ordered_listing: true, identity: true, keeps_data: false, ..least }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.names.check_open(&self.capability(), "open an object", key, how)?;
        let entry = self.names.open(key, how, || {
            let created_ns = self.clock.wall_ns();
            Entry { size_bytes: 0.into(), created_ns, modified_ns: created_ns.into() }
        })?;
        let clock = Arc::clone(&self.clock);
        Ok(Box::new(NullObject { key: key.clone(), entry, clock, access: how.access }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        Ok(self.names.get("stat an object", key)?.stat())
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.names.remove(key).map(drop)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.names.list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        Ok(self.names.namespaces())
    }

    fn space(&self) -> Result<Space> {
        Ok(Space { capacity_bytes: self.capacity_bytes, ..Space::default() })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(&self.names)
    }
}

impl Entry {
    fn stat(&self) -> Stat {
        let (size_bytes, modified_ns) =
            (self.size_bytes.load(SeqCst), self.modified_ns.load(SeqCst));
        Stat { size_bytes, created_ns: self.created_ns, modified_ns, ..Stat::default() }
    }
}

impl NullObject {
    /// Gives the object another size, and returns the one before.
    fn resize(&self, next: impl Fn(u64) -> Result<u64>) -> Result<u64> {
        self.access.check_change(&self.key)?;
        let changed = |bytes| next(bytes).ok();
        let before = self.entry.size_bytes.fetch_update(SeqCst, SeqCst, changed).or_else(next)?;
        self.entry.modified_ns.store(self.clock.wall_ns(), SeqCst);
        Ok(before)
    }
}

impl Object for NullObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        check_extent(offset_bytes, want as u64)?;
        let mut left =
            self.stat()?.size_bytes.saturating_sub(offset_bytes).min(want as u64) as usize;
        let count = left;
        for buffer in buffers {
            let taken = buffer.len().min(left);
            buffer[..taken].fill(0);
            left -= taken;
        }
        Ok(count)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = data.iter().map(|part| part.len() as u64).sum();
        let end_bytes = match check_extent(offset_bytes, length_bytes)? {
            _ if length_bytes == 0 => 0,
            end_bytes => end_bytes,
        };
        self.resize(|bytes| Ok(bytes.max(end_bytes))).map(drop)
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let length_bytes = data.iter().map(|part| part.len() as u64).sum();
        self.resize(|bytes| check_extent(bytes, length_bytes))
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent(bytes, 0)?;
        self.resize(|_| Ok(bytes)).map(drop)
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        check_range(&range)?;
        let is_growth = end == End::Grows && !range.is_empty();
        self.resize(|bytes| Ok(if is_growth { bytes.max(range.end) } else { bytes })).map(drop)
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range(&range)?;
        self.resize(Ok).map(drop)
    }

    fn stat(&self) -> Result<Stat> {
        Ok(self.entry.stat())
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.access.check_change(&self.key)?;
        self.entry.modified_ns.store(wall_ns, SeqCst);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
