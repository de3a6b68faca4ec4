// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a backend in main memory keeps beside the bytes of objects: names, identities, the superblock.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::{Bound, Deref};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use terrace_core::{
    Capability, Create, Cursor, Error, ErrorKind, Identity, Key, Open, Page, Result, Superblock,
    TierBackend,
};

/// Objects by name; errors carry the key and `target`.
#[derive(Debug)]
pub(super) struct Names<T> {
    target: &'static str,
    shards: [RwLock<Shard<T>>; SHARDS],
    superblock: RwLock<Option<Superblock>>,
}

/// An object and its identity.
#[derive(Debug)]
pub(super) struct Named<T> {
    object: T,
    identity: RwLock<Option<Identity>>,
}

impl<T> Named<T> {
    /// An object that is opened as `how` says, which no key names yet.
    pub(super) fn new(object: T, how: &Open) -> Arc<Self> {
        Arc::new(Self { object, identity: RwLock::new(how.identity.as_deref().cloned()) })
    }
}

impl<T> Deref for Named<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

/// Enough that threads seldom meet: opens hold a shard for less than a microsecond.
const SHARDS: usize = 16;

/// Objects by namespace and name; no namespace is empty.
type Shard<T> = BTreeMap<String, BTreeMap<String, Arc<Named<T>>>>;

impl<T> Names<T> {
    pub(super) fn new(target: &'static str) -> Self {
        Self { target, shards: Default::default(), superblock: RwLock::default() }
    }

    pub(super) fn target(&self) -> &'static str {
        self.target
    }

    /// See [`Capability::check_open`].
    pub(super) fn check_open(
        &self,
        capability: &Capability,
        operation: &'static str,
        key: &Key,
        how: &Open,
    ) -> Result<()> {
        let checked = capability.check_open(operation, how);
        checked.map_err(|error| error.with("key", key).with("target", self.target))
    }

    /// The object of a key. Errors: `NotFound`.
    pub(super) fn get(&self, operation: &'static str, key: &Key) -> Result<Arc<Named<T>>> {
        let shard = read(self.shard(key));
        let found = shard.get(key.namespace()).and_then(|names| names.get(key.name()));
        found.cloned().ok_or_else(|| self.not_found(operation, key))
    }

    /// The object of a key, or a new one where `how` says so. Errors: `NotFound`, `Exists`.
    pub(super) fn open(
        &self,
        key: &Key,
        how: &Open,
        make: impl FnOnce() -> T,
    ) -> Result<Arc<Named<T>>> {
        const OPERATION: &str = "open an object";
        // Most objects that may be created are there: look without excluding others.
        let found = match how.create {
            Create::New => None,
            Create::IfMissing => self.get(OPERATION, key).ok(),
            Create::Never => return self.get(OPERATION, key),
        };
        if let Some(object) = found {
            return Ok(object);
        }
        let mut shard = write(self.shard(key));
        let names = shard.entry(key.namespace().into()).or_default();
        match names.get(key.name()) {
            Some(_) if how.create == Create::New => Err(self.exists("create an object", key)),
            Some(object) => Ok(Arc::clone(object)),
            None => {
                let object = Named::new(make(), how);
                names.insert(key.name().into(), Arc::clone(&object));
                Ok(object)
            }
        }
    }

    /// Makes a key name another object, and returns the one that it named. Errors: `NotFound`, `Exists`.
    pub(super) fn replace(
        &self,
        operation: &'static str,
        key: &Key,
        create: Create,
        object: Arc<Named<T>>,
    ) -> Result<Option<Arc<Named<T>>>> {
        let mut shard = write(self.shard(key));
        let found = shard.get(key.namespace()).and_then(|names| names.get(key.name()));
        self.check(operation, key, create, found.is_some())?;
        Ok(shard.entry(key.namespace().into()).or_default().insert(key.name().into(), object))
    }

    /// Refuses what [`Names::replace`] would refuse now.
    pub(super) fn check_create(
        &self,
        operation: &'static str,
        key: &Key,
        create: Create,
    ) -> Result<()> {
        self.check(operation, key, create, self.get(operation, key).is_ok())
    }

    fn check(
        &self,
        operation: &'static str,
        key: &Key,
        create: Create,
        is_there: bool,
    ) -> Result<()> {
        match (create, is_there) {
            (Create::New, true) => Err(self.exists(operation, key)),
            (Create::Never, false) => Err(self.not_found(operation, key)),
            _ => Ok(()),
        }
    }

    /// Takes a name away, and returns its object. Errors: `NotFound`.
    pub(super) fn remove(&self, key: &Key) -> Result<Arc<Named<T>>> {
        let mut shard = write(self.shard(key));
        let missing = || self.not_found("delete an object", key);
        let names = shard.get_mut(key.namespace()).ok_or_else(missing)?;
        let object = names.remove(key.name()).ok_or_else(missing)?;
        if names.is_empty() {
            shard.remove(key.namespace());
        }
        Ok(object)
    }

    /// See [`Backend::list`](terrace_core::Backend::list); in order of the names.
    pub(super) fn list(
        &self,
        namespace: &str,
        prefix: &str,
        cursor: &Cursor,
        max: usize,
    ) -> Result<Page> {
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
        for shard in &self.shards {
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

    /// The namespaces that hold objects, in order.
    pub(super) fn namespaces(&self) -> Vec<String> {
        let mut namespaces = BTreeSet::new();
        for shard in &self.shards {
            namespaces.extend(read(shard).keys().cloned());
        }
        namespaces.into_iter().collect()
    }

    pub(super) fn not_found(&self, operation: &'static str, key: &Key) -> Error {
        Error::new(ErrorKind::NotFound, operation).with("key", key).with("target", self.target)
    }

    fn exists(&self, operation: &'static str, key: &Key) -> Error {
        Error::new(ErrorKind::Exists, operation).with("key", key).with("target", self.target)
    }

    fn shard(&self, key: &Key) -> &RwLock<Shard<T>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        &self.shards[hash as usize % SHARDS]
    }
}

impl<T: Send + Sync> TierBackend for Names<T> {
    fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        Ok(read(&self.get("read an identity", key)?.identity).clone())
    }

    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        *write(&self.get("set an identity", key)?.identity) = Some(identity.clone());
        Ok(())
    }

    fn superblock(&self) -> Result<Option<Superblock>> {
        Ok(read(&self.superblock).clone())
    }

    fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        *write(&self.superblock) = Some(superblock.clone());
        Ok(())
    }
}

/// First byte of every cursor.
const CURSOR_TAG: u8 = b'>';

fn bad_cursor(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("list objects", "the cursor was not made by this backend").caused_by(source)
}

// No method leaves what a lock guards half changed, so it is sound even after a panic elsewhere.

pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
