// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in main memory: the fastest tier, and the reference for the behaviour suite.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use terrace_core::{
    Access, Backend, Capability, Clock, Create, Cursor, Draft, End, Error, ErrorKind, Key, Object,
    Open, Page, Result, Space, Stat, SystemClock, TierBackend, check_extent, check_range,
};

use super::names::{Named, Names, read, write};

/// Keeps objects in main memory, up to a bound, until it is dropped.
///
/// - Promises nothing about crashes: opening for writing under semantics above
///   [`Persistency::None`](terrace_core::Persistency::None) is `Unsupported`.
/// - Holes are zeros and take room.
/// - Deleting frees the room at once; handles of a deleted object fail with `NotFound`.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capacity_bytes: u64,
    /// Sum of the lengths of all objects.
    used_bytes: AtomicU64,
    names: Names<RwLock<Contents>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Contents {
    bytes: Vec<u8>,
    /// To where room is promised, where that is behind the end.
    promised_bytes: u64,
    label: Option<Arc<[u8]>>,
    created_ns: u64,
    modified_ns: u64,
    is_deleted: bool,
}

#[derive(Debug)]
struct MemoryObject {
    shared: Arc<Shared>,
    key: Key,
    contents: Arc<Named<RwLock<Contents>>>,
    label: Option<Arc<[u8]>>,
    access: Access,
}

impl Memory {
    /// An empty backend that takes up to `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self::with_clock(capacity_bytes, Arc::new(SystemClock::default()))
    }

    /// The same with the clock that gives objects their times.
    pub fn with_clock(capacity_bytes: u64, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            capacity_bytes,
            used_bytes: AtomicU64::new(0),
            names: Names::new("memory:"),
            clock,
        };
        Self { shared: Arc::new(shared) }
    }

    fn new_contents(&self, how: &Open) -> RwLock<Contents> {
        let now_ns = self.shared.clock.wall_ns();
        RwLock::new(Contents {
            bytes: Vec::new(),
            promised_bytes: 0,
            label: how.label.clone(),
            created_ns: now_ns,
            modified_ns: now_ns,
            is_deleted: false,
        })
    }
}

impl Backend for Memory {
    fn target(&self) -> &str {
        self.shared.names.target()
    }

    fn capability(&self) -> Capability {
        let least = Capability::LEAST;
        Capability { ordered_listing: true, identity: true, labels: true, ..least }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.shared.names.check_open(&self.capability(), "open an object", key, how)?;
        let contents = self.shared.names.open(key, how, || self.new_contents(how))?;
        let shared = Arc::clone(&self.shared);
        let label = read(&contents).label.clone();
        let (key, access) = (key.clone(), how.access);
        Ok(Box::new(MemoryObject { shared, key, contents, label, access }))
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        let how = Open { access: Access::Write, ..how.clone() };
        let names = &self.shared.names;
        names.check_open(&self.capability(), REPLACE, key, &how)?;
        names.check_create(REPLACE, key, how.create)?;
        let object = Arc::new(MemoryObject {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            contents: Named::new(self.new_contents(&how), &how),
            label: how.label,
            access: Access::Write,
        });
        Ok(Box::new(MemoryDraft { create: how.create, object, is_published: Mutex::default() }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        let contents = self.shared.names.get("stat an object", key)?;
        let stat = read(&contents).stat();
        Ok(stat)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.shared.free(&*self.shared.names.remove(key)?);
        Ok(())
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        self.shared.names.list(namespace, prefix, cursor, max)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        Ok(self.shared.names.namespaces())
    }

    fn space(&self) -> Result<Space> {
        Ok(Space {
            capacity_bytes: self.shared.capacity_bytes,
            used_bytes: self.shared.used_bytes.load(Ordering::Relaxed),
            file_system: None,
        })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        Some(&self.shared.names)
    }
}

impl Shared {
    /// Ends an object that no key names any more.
    fn free(&self, contents: &RwLock<Contents>) {
        let mut contents = write(contents);
        contents.is_deleted = true;
        self.used_bytes.fetch_sub(contents.taken_bytes(), Ordering::Relaxed);
        (contents.bytes, contents.promised_bytes) = (Vec::new(), 0);
    }
}

/// A new value that no key names before it is published.
struct MemoryDraft {
    create: Create,
    object: Arc<MemoryObject>,
    is_published: Mutex<bool>,
}

impl Draft for MemoryDraft {
    fn object(&self) -> Arc<dyn Object> {
        Arc::clone(&self.object) as _
    }

    fn publish(&self) -> Result<Option<Arc<[u8]>>> {
        let MemoryObject { shared, key, contents, .. } = &*self.object;
        let mut is_published = self.is_published.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_published {
            return Err(Error::invalid(REPLACE, "the draft was published before").with("key", key));
        }
        let old = shared.names.replace(REPLACE, key, self.create, Arc::clone(contents))?;
        *is_published = true;
        let Some(old) = old else { return Ok(None) };
        shared.free(&old);
        let label = read(&old).label.clone();
        Ok(label)
    }
}

impl Drop for MemoryDraft {
    fn drop(&mut self) {
        if !*self.is_published.get_mut().unwrap_or_else(PoisonError::into_inner) {
            self.object.shared.free(&self.object.contents);
        }
    }
}

const REPLACE: &str = "replace an object";

impl MemoryObject {
    fn read(&self) -> Result<RwLockReadGuard<'_, Contents>> {
        let contents = read(&self.contents);
        self.check_exists(&contents)?;
        Ok(contents)
    }

    /// Locks the contents for a change.
    fn write(&self) -> Result<RwLockWriteGuard<'_, Contents>> {
        self.access.check_change(&self.key)?;
        let contents = write(&self.contents);
        self.check_exists(&contents)?;
        Ok(contents)
    }

    fn check_exists(&self, contents: &Contents) -> Result<()> {
        match contents.is_deleted {
            true => Err(self.shared.names.not_found("use an open object", &self.key)),
            false => Ok(()),
        }
    }

    /// Takes room from the capacity for growth to `length_bytes`, and reserves the memory.
    fn reserve(&self, contents: &mut Contents, length_bytes: u64) -> Result<()> {
        let need_bytes = length_bytes.saturating_sub(contents.taken_bytes());
        if need_bytes == 0 {
            return Ok(());
        }
        let capacity_bytes = self.shared.capacity_bytes;
        let no_space = |used_bytes| {
            Error::new(ErrorKind::NoSpace, "write")
                .with("key", &self.key)
                .with("need_bytes", need_bytes)
                .with("used_bytes", used_bytes)
                .with("capacity_bytes", capacity_bytes)
                .with("target", self.shared.names.target())
        };
        self.shared
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used_bytes| {
                used_bytes.checked_add(need_bytes).filter(|used| *used <= capacity_bytes)
            })
            .map_err(no_space)?;
        if contents.reserve(length_bytes).is_err() {
            let used = self.shared.used_bytes.fetch_sub(need_bytes, Ordering::Relaxed);
            return Err(no_space(used - need_bytes).because("the machine has no more memory"));
        }
        Ok(())
    }

    fn put(&self, contents: &mut Contents, offset: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let count: usize = data.iter().map(|part| part.len()).sum();
        let end_bytes = check_extent(offset, count as u64)?;
        if count == 0 {
            return Ok(());
        }
        self.reserve(contents, end_bytes)?;
        // Lengths are bounded by memory that was just reserved, so the casts cannot truncate.
        let mut at = offset as usize;
        for part in data {
            contents.put(at, part);
            at += part.len();
        }
        contents.modified_ns = self.shared.clock.wall_ns();
        Ok(())
    }
}

impl Object for MemoryObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want_bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        check_extent(offset_bytes, want_bytes as u64)?;
        let contents = self.read()?;
        let start = usize::try_from(offset_bytes).unwrap_or(usize::MAX);
        let mut left = contents.bytes.get(start..).unwrap_or_default();
        let mut done = 0;
        for buffer in buffers {
            let count = buffer.len().min(left.len());
            buffer[..count].copy_from_slice(&left[..count]);
            left = &left[count..];
            done += count;
        }
        Ok(done)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        self.put(&mut *self.write()?, offset_bytes, data)
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let mut contents = self.write()?;
        let offset_bytes = contents.bytes.len() as u64;
        self.put(&mut contents, offset_bytes, data)?;
        Ok(offset_bytes)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent(bytes, 0)?;
        let mut contents = self.write()?;
        self.reserve(&mut contents, bytes)?;
        let (old_bytes, taken_bytes) = (contents.bytes.len() as u64, contents.taken_bytes());
        contents.bytes.resize(bytes as usize, 0);
        if bytes <= old_bytes {
            contents.promised_bytes = 0;
            contents.bytes.shrink_to_fit();
            self.shared.used_bytes.fetch_sub(taken_bytes - bytes, Ordering::Relaxed);
        }
        contents.modified_ns = self.shared.clock.wall_ns();
        Ok(())
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        check_range(&range)?;
        let mut contents = self.write()?;
        if range.end > contents.bytes.len() as u64 && !range.is_empty() {
            self.reserve(&mut contents, range.end)?;
            match end {
                End::Grows => contents.bytes.resize(range.end as usize, 0),
                End::Stays => contents.promised_bytes = contents.promised_bytes.max(range.end),
            }
            contents.modified_ns = self.shared.clock.wall_ns();
        }
        Ok(())
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range(&range)?;
        let mut contents = self.write()?;
        let length_bytes = contents.bytes.len() as u64;
        let start = range.start.min(length_bytes) as usize;
        let end = range.end.min(length_bytes) as usize;
        contents.bytes[start..end].fill(0);
        contents.modified_ns = self.shared.clock.wall_ns();
        Ok(())
    }

    fn stat(&self) -> Result<Stat> {
        Ok(self.read()?.stat())
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.write()?.modified_ns = wall_ns;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.read().map(|_| ())
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        self.label.clone()
    }
}

impl Contents {
    /// What counts against the capacity.
    fn taken_bytes(&self) -> u64 {
        self.promised_bytes.max(self.bytes.len() as u64)
    }

    fn stat(&self) -> Stat {
        Stat {
            size_bytes: self.bytes.len() as u64,
            allocated_bytes: self.taken_bytes(),
            created_ns: self.created_ns,
            modified_ns: self.modified_ns,
            is_labelled: self.label.is_some(),
            is_held: false,
        }
    }

    /// Reserves memory for a length. Small objects double, so that appending stays linear; large
    /// ones grow in steps, so that at most a step is reserved and not counted.
    fn reserve(&mut self, length_bytes: u64) -> Result<(), ()> {
        const STEP_BYTES: usize = 1 << 20;
        let length = usize::try_from(length_bytes).map_err(|_| ())?;
        if length <= self.bytes.capacity() {
            return Ok(());
        }
        let doubled = (self.bytes.capacity() * 2).min(STEP_BYTES);
        let wanted = match length {
            ..STEP_BYTES => length.max(doubled),
            _ => length.checked_next_multiple_of(STEP_BYTES).ok_or(())?,
        };
        self.bytes.try_reserve_exact(wanted - self.bytes.len()).map_err(|_| ())
    }

    /// Writes at `start`, for which memory is reserved. Appended bytes are not zeroed first.
    fn put(&mut self, start: usize, data: &[u8]) {
        if start > self.bytes.len() {
            self.bytes.resize(start, 0);
        }
        let inside = data.len().min(self.bytes.len() - start);
        self.bytes[start..start + inside].copy_from_slice(&data[..inside]);
        self.bytes.extend_from_slice(&data[inside..]);
    }
}
