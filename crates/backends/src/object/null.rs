// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects without bytes: what is left of a measurement when the medium costs nothing.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use terrace_core::{
    Access, Atomicity, Backend, Capability, Clock, Create, Cursor, End, Error, ErrorKind, Identity,
    Key, Object, Open, Page, Persistency, Result, Space, Stat, Superblock, SystemClock,
    TierBackend, Writes, check_extent, check_range,
};

/// Keeps the keys, sizes, times and identities of objects and forgets their bytes: all read as
/// zeros.
///
/// - Promises nothing about crashes: opening for writing under semantics above
///   [`Persistency::None`] is `Unsupported`.
/// - Never full: it holds nothing.
/// - Handles of a deleted object fail with `NotFound`.
#[derive(Clone, Debug)]
pub struct Null {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capacity_bytes: u64,
    objects: RwLock<BTreeMap<Key, Arc<Entry>>>,
    superblock: Mutex<Option<Superblock>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Entry {
    size_bytes: AtomicU64,
    created_ns: u64,
    modified_ns: AtomicU64,
    identity: Mutex<Option<Identity>>,
    is_deleted: AtomicBool,
}

struct NullObject {
    shared: Arc<Shared>,
    key: Key,
    entry: Arc<Entry>,
    access: Access,
}

const TARGET: &str = "null:";

impl Null {
    /// An empty backend that reports `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self::with_clock(capacity_bytes, Arc::new(SystemClock::default()))
    }

    /// The same with the clock that gives objects their times.
    pub fn with_clock(capacity_bytes: u64, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            capacity_bytes,
            objects: RwLock::default(),
            superblock: Mutex::default(),
            clock,
        };
        Self { shared: Arc::new(shared) }
    }

    fn entry(&self, operation: &'static str, key: &Key) -> Result<Arc<Entry>> {
        let objects = self.shared.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(key).cloned().ok_or_else(|| not_found(operation, key))
    }

    fn create(&self, key: &Key, how: &Open) -> Result<Arc<Entry>> {
        let now_ns = self.shared.clock.wall_ns();
        let mut objects = self.shared.objects.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = objects.get(key) {
            return match how.create {
                Create::New => Err(Error::new(ErrorKind::Exists, "create an object")
                    .with("key", key)
                    .with("target", TARGET)),
                Create::IfMissing | Create::Never => Ok(Arc::clone(entry)),
            };
        }
        let entry = Arc::new(Entry {
            size_bytes: AtomicU64::new(0),
            created_ns: now_ns,
            modified_ns: AtomicU64::new(now_ns),
            identity: Mutex::new(how.identity.as_deref().cloned()),
            is_deleted: AtomicBool::new(false),
        });
        objects.insert(key.clone(), Arc::clone(&entry));
        Ok(entry)
    }
}

impl Backend for Null {
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
            keeps_data: false,
            labels: false,
            writes: Writes::InPlace,
            object_bytes_max: u64::MAX,
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        const OPERATION: &str = "open an object";
        self.capability().check_atomicity(OPERATION, how.semantics.atomicity)?;
        let asked = how.semantics.persistency;
        if how.access == Access::Write && asked > Persistency::None {
            return Err(Error::new(ErrorKind::Unsupported, OPERATION)
                .because("nothing is kept here")
                .with("key", key)
                .with("persistency", asked)
                .with("target", TARGET));
        }
        how.check_label(&self.capability())
            .map_err(|error| error.with("key", key).with("target", TARGET))?;
        let entry = match how.create {
            Create::Never => self.entry(OPERATION, key)?,
            // Most objects that may be created are there: look without excluding others.
            Create::IfMissing => match self.entry(OPERATION, key) {
                Ok(entry) => entry,
                Err(_) => self.create(key, how)?,
            },
            Create::New => self.create(key, how)?,
        };
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(NullObject { shared, key: key.clone(), entry, access: how.access }))
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        Ok(self.entry("stat an object", key)?.stat())
    }

    fn delete(&self, key: &Key) -> Result<()> {
        let mut objects = self.shared.objects.write().unwrap_or_else(PoisonError::into_inner);
        let entry = objects.remove(key).ok_or_else(|| not_found("delete an object", key))?;
        entry.is_deleted.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        let after = match cursor.0.split_first() {
            None => None,
            Some((&CURSOR_TAG, name)) => {
                let name = std::str::from_utf8(name).map_err(|_| bad_cursor())?;
                Some(Key::new(namespace, name).map_err(|_| bad_cursor())?)
            }
            Some(_) => return Err(bad_cursor()),
        };
        // No name is empty, so the first key of a namespace is not below this one.
        let Ok(first) = Key::new(namespace, "\u{1}") else { return Ok(Page::default()) };
        let start = match &after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(&first),
        };
        let objects = self.shared.objects.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = objects
            .range((start, Bound::Unbounded))
            .map(|(key, _)| key)
            .take_while(|key| key.namespace() == namespace)
            .filter(|key| key.name().starts_with(prefix));
        let keys: Vec<Key> = found.by_ref().take(max).cloned().collect();
        let next = match (found.next(), keys.last()) {
            (None, _) => None,
            (Some(_), None) => Some(cursor.clone()),
            (Some(_), Some(last)) => Some(Cursor([&[CURSOR_TAG], last.name().as_bytes()].concat())),
        };
        Ok(Page { keys, next })
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        let objects = self.shared.objects.read().unwrap_or_else(PoisonError::into_inner);
        let mut namespaces: Vec<String> = Vec::new();
        for key in objects.keys() {
            if namespaces.last().is_none_or(|last| last != key.namespace()) {
                namespaces.push(key.namespace().into());
            }
        }
        Ok(namespaces)
    }

    fn space(&self) -> Result<Space> {
        Ok(Space { capacity_bytes: self.shared.capacity_bytes, ..Space::default() })
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

impl TierBackend for Null {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        Ok(self.entry("read an identity", key)?.identity().clone())
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        *self.entry("set an identity", key)?.identity() = Some(identity.clone());
        Ok(())
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        Ok(self.shared.superblock.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        let mut kept = self.shared.superblock.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(superblock.clone());
        Ok(())
    }
}

impl Entry {
    fn stat(&self) -> Stat {
        Stat {
            size_bytes: self.size_bytes.load(Ordering::SeqCst),
            allocated_bytes: 0,
            created_ns: self.created_ns,
            modified_ns: self.modified_ns.load(Ordering::SeqCst),
            is_labelled: false,
            is_held: false,
        }
    }

    fn identity(&self) -> MutexGuard<'_, Option<Identity>> {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NullObject {
    fn check_exists(&self) -> Result<()> {
        match self.entry.is_deleted.load(Ordering::SeqCst) {
            true => Err(not_found("use an open object", &self.key)),
            false => Ok(()),
        }
    }

    fn check_change(&self) -> Result<()> {
        if self.access == Access::Read {
            return Err(Error::new(ErrorKind::Denied, "change an object")
                .because("it was opened for reading")
                .with("key", &self.key));
        }
        self.check_exists()
    }

    fn touch(&self) {
        self.entry.modified_ns.store(self.shared.clock.wall_ns(), Ordering::SeqCst);
    }

    fn grow(&self, end_bytes: u64) {
        self.entry.size_bytes.fetch_max(end_bytes, Ordering::SeqCst);
        self.touch();
    }
}

impl Object for NullObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        check_extent(offset_bytes, buffers.iter().map(|buffer| buffer.len() as u64).sum())?;
        self.check_exists()?;
        let size_bytes = self.entry.size_bytes.load(Ordering::SeqCst);
        let mut left = size_bytes.saturating_sub(offset_bytes);
        let mut done = 0;
        for buffer in buffers {
            let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            buffer[..count].fill(0);
            left -= count as u64;
            done += count;
        }
        Ok(done)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let length_bytes = data.iter().map(|part| part.len() as u64).sum();
        let end_bytes = check_extent(offset_bytes, length_bytes)?;
        self.check_change()?;
        if length_bytes > 0 {
            self.grow(end_bytes);
        }
        Ok(())
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.check_change()?;
        let length_bytes = data.iter().map(|part| part.len() as u64).sum();
        let mut refused = None;
        let appended =
            self.entry.size_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |size_bytes| {
                match check_extent(size_bytes, length_bytes) {
                    Ok(end_bytes) => Some(end_bytes),
                    Err(error) => {
                        refused = Some(error);
                        None
                    }
                }
            });
        match refused {
            Some(error) => Err(error),
            None => {
                self.touch();
                Ok(appended.expect("it was not refused"))
            }
        }
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent(bytes, 0)?;
        self.check_change()?;
        self.entry.size_bytes.store(bytes, Ordering::SeqCst);
        self.touch();
        Ok(())
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        check_range(&range)?;
        self.check_change()?;
        if !range.is_empty() && end == End::Grows {
            self.grow(range.end);
        }
        Ok(())
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range(&range)?;
        self.check_change()?;
        self.touch();
        Ok(())
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent(offset_bytes, 0)?;
        self.check_exists()?;
        let rest = offset_bytes..self.entry.size_bytes.load(Ordering::SeqCst);
        Ok((!rest.is_empty()).then_some(rest))
    }

    fn stat(&self) -> Result<Stat> {
        self.check_exists()?;
        Ok(self.entry.stat())
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.check_change()?;
        self.entry.modified_ns.store(wall_ns, Ordering::SeqCst);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.check_exists()
    }
}

/// First byte of every cursor; a name follows.
const CURSOR_TAG: u8 = b'>';

fn bad_cursor() -> Error {
    Error::invalid("list objects", "the cursor was not made by this backend")
}

fn not_found(operation: &'static str, key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, operation).with("key", key).with("target", TARGET)
}
