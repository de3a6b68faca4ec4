// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes of a backend one whose objects are compressed, encrypted, or both.
//!
//! An object is cut into frames, each of which can be read without the others. It is written once, as a whole,
//! whatever the backend below can do: [`Writes::Whole`]. Where that shows objects before they are finished,
//! this hides them, and their identity is *partial* until then.

mod cache;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod object;
mod read;
mod seal;
mod shape;
mod tier;
mod write;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{
    Access, Backend, Capability, Create, Cursor, Error, ErrorKind, Identity, Key, Object, Op, Open,
    Page, Persistency, Result, Role, Semantics, Space, Stat, TierBackend, Writes,
};

use super::{create_whole, execute_creating};

use self::cache::Cache;
use self::object::{FramedObject, State};
use self::write::Writing;

pub use self::seal::FrameKey;

/// How objects are framed that are written.
#[derive(Clone, Debug, Default)]
pub struct Packing {
    /// The level of zstd; `None` stores frames as they are.
    pub level: Option<i32>,
    /// The key by which the tier is encrypted; `None` where it is not.
    pub key: Option<FrameKey>,
}

impl Packing {
    /// The levels of compression.
    pub const LEVELS: std::ops::RangeInclusive<i32> = 1..=19;
}

/// A backend whose objects are framed.
pub struct Framed {
    shared: Arc<Shared>,
}

/// What a framed backend and its open objects share.
struct Shared {
    inner: Arc<dyn Backend>,
    packing: Packing,
    /// The line of the superblock about frames.
    line: String,
    /// Whether the backend below takes whole objects, and hides those that are not finished.
    is_whole: bool,
    cache: Cache,
    handles: AtomicU64,
    /// Objects that are being written to a backend which shows them.
    unfinished: Mutex<HashSet<Key>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that a lock guards is left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Framed {
    /// Frames the objects of `inner`, which has none yet or had them framed before.
    ///
    /// # Errors
    ///
    /// `Denied` where its objects are not framed, or are encrypted with another key, or are not encrypted and
    /// `packing` has a key; `Corrupt`, and errors of the backend below.
    pub fn open(inner: Arc<dyn Backend>, packing: Packing) -> Result<Self> {
        let line = tier::line(&*inner, packing.key.as_ref())?;
        let shared = Shared {
            is_whole: inner.capability().writes == Writes::Whole,
            inner,
            packing,
            line,
            cache: Cache::default(),
            // 0 caches nothing.
            handles: AtomicU64::new(1),
            unfinished: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Largest object over a backend that takes objects of up to `below_bytes`: bytes that are not compressed fit
    /// with their seals, the index and the trailer.
    pub fn object_bytes_max(below_bytes: u64, is_encrypted: bool) -> u64 {
        format::plain_bytes_max(below_bytes, is_encrypted)
    }

    fn handle(&self, key: &Key, access: Access, handle: u64, state: State) -> Box<dyn Object> {
        Box::new(FramedObject {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            access,
            handle,
            state: Mutex::new(state),
        })
    }

    fn create(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let shared = &self.shared;
        let mut below = Open { create: Create::New, ..how.clone() };
        let mut identity = None;
        if !shared.is_whole {
            let partial = |identity: &Arc<Identity>| {
                Arc::new(Identity { role: Role::Partial, ..(**identity).clone() })
            };
            below.identity = how.identity.as_ref().map(partial);
            identity = how.identity.clone();
            lock(&shared.unfinished).insert(key.clone());
        }
        let begun = shared
            .inner
            .open(key, &below)
            .and_then(|object| Writing::new(object, &shared.packing, key));
        let writing = Box::new(begun.inspect_err(|_| _ = shared.note_finished(key))?);
        Ok(self.handle(
            key,
            Access::Write,
            shared.next_handle(),
            State::Writing { writing, identity },
        ))
    }

    fn existing(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        let shared = &self.shared;
        shared.check_finished("open an object", key)?;
        let object = shared.inner.open(key, &Open { create: Create::Never, ..how.clone() })?;
        let handle = shared.next_handle();
        let index = read::open_index(shared, key, &*object, handle)
            .map_err(|error| error.with("target", shared.inner.target()))?;
        let state = State::There { object: object.into(), index: Arc::new(index) };
        Ok(self.handle(key, how.access, handle, state))
    }
}

impl Shared {
    fn next_handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that an object is finished, or given up.
    fn note_finished(&self, key: &Key) -> bool {
        lock(&self.unfinished).remove(key)
    }

    fn is_unfinished(&self, key: &Key) -> bool {
        !self.is_whole && lock(&self.unfinished).contains(key)
    }

    fn check_finished(&self, operation: &'static str, key: &Key) -> Result<()> {
        match self.is_unfinished(key) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::NotFound, operation)
                .with("key", key)
                .with("target", self.inner.target())),
        }
    }
}

impl Backend for Framed {
    fn target(&self) -> &str {
        self.shared.inner.target()
    }

    fn capability(&self) -> Capability {
        let below = self.shared.inner.capability();
        let is_encrypted = self.shared.packing.key.is_some();
        // The level `shared` counts on objects that no owner before can still write to. Frames do not change
        // that of what is written in place below.
        let persistency = match below.writes {
            Writes::Whole => below.persistency,
            Writes::InPlace => below.persistency.min(Persistency::Storage),
        };
        Capability {
            sparse: false,
            leases: false,
            writes: Writes::Whole,
            object_bytes_max: Self::object_bytes_max(below.object_bytes_max, is_encrypted),
            packed: true,
            persistency,
            ..below
        }
    }

    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        match how.create {
            Create::New => self.create(key, how),
            Create::Never => self.existing(key, how),
            Create::IfMissing => match self.existing(key, how) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.create(key, how),
                other => other,
            },
        }
    }

    /// Opens the index, so that an object that was cut is noticed.
    fn stat(&self, key: &Key) -> Result<Stat> {
        const NOT_CACHED: u64 = 0;
        let shared = &self.shared;
        shared.check_finished("stat an object", key)?;
        let object = shared.inner.open(key, &Open::read())?;
        let index = read::open_index(shared, key, &*object, NOT_CACHED)
            .map_err(|error| error.with("target", shared.inner.target()))?;
        Ok(Stat { size_bytes: index.size_bytes, ..object.stat()? })
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.shared.inner.delete(key)
    }

    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        let mut page = self.shared.inner.list(namespace, prefix, cursor, max)?;
        page.keys.retain(|key| !self.shared.is_unfinished(key));
        Ok(page)
    }

    fn namespaces(&self) -> Result<Vec<String>> {
        self.shared.inner.namespaces()
    }

    fn space(&self) -> Result<Space> {
        self.shared.inner.space()
    }

    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        let create = |key: &Key, data: &[u8]| create_whole(self, key, data, semantics);
        execute_creating(self, operations, create, semantics);
    }

    fn sync(&self) -> Result<()> {
        self.shared.inner.sync()
    }

    fn sync_all(&self) -> Result<()> {
        self.shared.inner.sync_all()
    }

    fn tier(&self) -> Option<&dyn TierBackend> {
        self.shared.inner.tier().map(|_| self as &dyn TierBackend)
    }
}
