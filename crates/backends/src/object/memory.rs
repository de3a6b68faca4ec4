// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in main memory: the fastest tier, and the reference for the behaviour suite.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{IoSlice, IoSliceMut};
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use terrace_core::{
    Access, Atomicity, Backend, Capability, Clock, Create, Cursor, Draft, End, Error, ErrorKind,
    Identity, Key, Object, Open, Page, Persistency, Result, Space, Stat, Superblock, SystemClock,
    TierBackend, Writes, check_extent, check_range,
};

/// Keeps objects in main memory, up to a bound, until it is dropped.
///
/// - Promises nothing about crashes: opening for writing under semantics above
///   [`Persistency::None`] is `Unsupported`.
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
    shards: [RwLock<Shard>; SHARDS],
    superblock: RwLock<Option<Superblock>>,
    clock: Arc<dyn Clock>,
}

/// Enough that threads seldom meet: opens hold a shard for less than a microsecond.
const SHARDS: usize = 16;

/// Objects by namespace and name; no namespace is empty.
type Shard = BTreeMap<String, BTreeMap<String, Arc<RwLock<Contents>>>>;

#[derive(Debug)]
struct Contents {
    bytes: Vec<u8>,
    /// To where room is promised, where that is behind the end.
    promised_bytes: u64,
    identity: Option<Identity>,
    label: Option<Arc<[u8]>>,
    created_ns: u64,
    modified_ns: u64,
    is_deleted: bool,
}

#[derive(Debug)]
struct MemoryObject {
    shared: Arc<Shared>,
    key: Key,
    contents: Arc<RwLock<Contents>>,
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
            shards: Default::default(),
            superblock: RwLock::default(),
            clock,
        };
        Self { shared: Arc::new(shared) }
    }

    fn shard(&self, key: &Key) -> &RwLock<Shard> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        &self.shared.shards[hash as usize % SHARDS]
    }

    fn contents(&self, operation: &'static str, key: &Key) -> Result<Arc<RwLock<Contents>>> {
        let shard = read(self.shard(key));
        let found = shard.get(key.namespace()).and_then(|names| names.get(key.name()));
        found.cloned().ok_or_else(|| not_found(operation, key))
    }

    fn create(&self, key: &Key, how: &Open) -> Result<Arc<RwLock<Contents>>> {
        let mut shard = write(self.shard(key));
        let names = shard.entry(key.namespace().into()).or_default();
        if let Some(contents) = names.get(key.name()) {
            return match how.create {
                Create::New => Err(Error::new(ErrorKind::Exists, "create an object")
                    .with("key", key)
                    .with("target", TARGET)),
                Create::IfMissing | Create::Never => Ok(Arc::clone(contents)),
            };
        }
        let contents = self.new_contents(how);
        names.insert(key.name().into(), Arc::clone(&contents));
        Ok(contents)
    }

    fn new_contents(&self, how: &Open) -> Arc<RwLock<Contents>> {
        let now_ns = self.shared.clock.wall_ns();
        Arc::new(RwLock::new(Contents {
            bytes: Vec::new(),
            promised_bytes: 0,
            identity: how.identity.as_deref().cloned(),
            label: how.label.clone(),
            created_ns: now_ns,
            modified_ns: now_ns,
            is_deleted: false,
        }))
    }

    /// Refuses what main memory cannot promise.
    fn check(&self, operation: &'static str, key: &Key, how: &Open) -> Result<()> {
        self.capability().check_atomicity(operation, how.semantics.atomicity)?;
        let asked = how.semantics.persistency;
        if how.access == Access::Write && asked > Persistency::None {
            return Err(Error::new(ErrorKind::Unsupported, operation)
                .because("main memory is lost with the process")
                .with("key", key)
                .with("persistency", asked)
                .with("target", TARGET));
        }
        how.check_label(&self.capability())
            .map_err(|error| error.with("key", key).with("target", TARGET))
    }
}

const TARGET: &str = "memory:";

impl Backend for Memory {
    fn target(&self) -> &str {
        TARGET
    }

    fn capability(&self) -> Capability {
        Capability {
            atomicity: Atomicity::None,
            persistency: Persistency::None,
            sparse: false,
            ordered_listing: true,
            identity: true,
            leases: false,
            keeps_data: true,
            labels: true,
            writes: Writes::InPlace,
            object_bytes_max: u64::MAX,
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        self.check("open an object", key, how)?;
        let contents = match how.create {
            Create::Never => self.contents("open an object", key)?,
            // Most objects that may be created are there: look without excluding others.
            Create::IfMissing => match self.contents("open an object", key) {
                Ok(contents) => contents,
                Err(_) => self.create(key, how)?,
            },
            Create::New => self.create(key, how)?,
        };
        let shared = Arc::clone(&self.shared);
        let label = read(&contents).label.clone();
        let (key, access) = (key.clone(), how.access);
        Ok(Box::new(MemoryObject { shared, key, contents, label, access }))
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        let how = Open { access: Access::Write, ..how.clone() };
        self.check(REPLACE, key, &how)?;
        check_create(how.create, self.contents(REPLACE, key).is_ok(), key)?;
        let object = Arc::new(MemoryObject {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            contents: self.new_contents(&how),
            label: how.label,
            access: Access::Write,
        });
        let is_published = AtomicBool::new(false);
        Ok(Box::new(MemoryDraft { memory: self.clone(), create: how.create, object, is_published }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        let contents = self.contents("stat an object", key)?;
        let stat = read(&contents).stat();
        Ok(stat)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        let mut shard = write(self.shard(key));
        let missing = || not_found("delete an object", key);
        let names = shard.get_mut(key.namespace()).ok_or_else(missing)?;
        let contents = names.remove(key.name()).ok_or_else(missing)?;
        if names.is_empty() {
            shard.remove(key.namespace());
        }
        drop(shard);
        self.shared.free(&contents);
        Ok(())
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        let after = match cursor.0.split_first() {
            None => None,
            Some((&CURSOR_TAG, name)) => Some(std::str::from_utf8(name).map_err(bad_cursor)?),
            Some(_) => return Err(bad_cursor("the tag is wrong")),
        };
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        // One more than asked for from each shard says whether there is more.
        let one_more = max.saturating_add(1);
        let mut names = Vec::new();
        for shard in &self.shared.shards {
            let shard = read(shard);
            let Some(all) = shard.get(namespace) else { continue };
            let from = all.range::<str, _>((start, Bound::Unbounded)).map(|(name, _)| name);
            names.extend(from.take_while(|name| name.starts_with(prefix)).take(one_more).cloned());
        }
        names.sort();
        let is_last = names.len() <= max;
        names.truncate(max);
        let next = match names.last() {
            _ if is_last => None,
            Some(last) => Some(Cursor([&[CURSOR_TAG], last.as_bytes()].concat())),
            None => Some(cursor.clone()),
        };
        let keys = names.iter().map(|name| Key::new(namespace, name)).collect::<Result<_>>()?;
        Ok(Page { keys, next })
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        let mut namespaces = BTreeSet::new();
        for shard in &self.shared.shards {
            namespaces.extend(read(shard).keys().cloned());
        }
        Ok(namespaces.into_iter().collect())
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
        Some(self)
    }
}

impl TierBackend for Memory {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        let contents = self.contents("read an identity", key)?;
        let identity = read(&contents).identity.clone();
        Ok(identity)
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        let contents = self.contents("set an identity", key)?;
        write(&contents).identity = Some(identity.clone());
        Ok(())
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        Ok(read(&self.shared.superblock).clone())
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        *write(&self.shared.superblock) = Some(superblock.clone());
        Ok(())
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
    memory: Memory,
    create: Create,
    object: Arc<MemoryObject>,
    is_published: AtomicBool,
}

impl Draft for MemoryDraft {
    fn object(&self) -> Arc<dyn Object> {
        Arc::clone(&self.object) as _
    }

    fn publish(&self) -> Result<Option<Arc<[u8]>>> {
        let key = &self.object.key;
        let mut shard = write(self.memory.shard(key));
        if self.is_published.load(Ordering::Relaxed) {
            return Err(Error::invalid(REPLACE, "the draft was published before").with("key", key));
        }
        let found = shard.get(key.namespace()).and_then(|names| names.get(key.name()));
        check_create(self.create, found.is_some(), key)?;
        let names = shard.entry(key.namespace().into()).or_default();
        let old = names.insert(key.name().into(), Arc::clone(&self.object.contents));
        self.is_published.store(true, Ordering::Relaxed);
        drop(shard);
        let Some(old) = old else { return Ok(None) };
        self.memory.shared.free(&old);
        let label = read(&old).label.clone();
        Ok(label)
    }
}

impl Drop for MemoryDraft {
    fn drop(&mut self) {
        if !*self.is_published.get_mut() {
            self.memory.shared.free(&self.object.contents);
        }
    }
}

const REPLACE: &str = "replace an object";

fn check_create(create: Create, is_there: bool, key: &Key) -> Result<()> {
    match (create, is_there) {
        (Create::New, true) => {
            Err(Error::new(ErrorKind::Exists, REPLACE).with("key", key).with("target", TARGET))
        }
        (Create::Never, false) => Err(not_found(REPLACE, key)),
        _ => Ok(()),
    }
}

impl MemoryObject {
    fn read(&self) -> Result<RwLockReadGuard<'_, Contents>> {
        let contents = read(&self.contents);
        self.check_exists(&contents)?;
        Ok(contents)
    }

    /// Locks the contents for a change.
    fn write(&self) -> Result<RwLockWriteGuard<'_, Contents>> {
        if self.access == Access::Read {
            return Err(Error::new(ErrorKind::Denied, "change an object")
                .because("it was opened for reading")
                .with("key", &self.key));
        }
        let contents = write(&self.contents);
        self.check_exists(&contents)?;
        Ok(contents)
    }

    fn check_exists(&self, contents: &Contents) -> Result<()> {
        match contents.is_deleted {
            true => Err(not_found("use an open object", &self.key)),
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
                .with("target", TARGET)
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

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent(offset_bytes, 0)?;
        let rest = offset_bytes..self.read()?.bytes.len() as u64;
        Ok((!rest.is_empty()).then_some(rest))
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

/// First byte of every cursor.
const CURSOR_TAG: u8 = b'>';

fn bad_cursor(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("list objects", "the cursor was not made by this backend").caused_by(source)
}

fn not_found(operation: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, operation).with("key", key).with("target", TARGET)
}

// No method leaves what a lock guards half changed, so it is sound even after a panic elsewhere.

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
