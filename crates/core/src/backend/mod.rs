// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places that keep the bytes of objects.
//!
//! [`Backend`] is implemented by what keeps objects, [`Object`] by what it opens; `open` has what a
//! backend can do and how objects are opened, `stat` what is known of objects and of space, `batch`
//! the operations of a batch.

mod batch;
mod object;
mod open;
mod stat;

use std::io::IoSlice;

pub use batch::{Op, Reply, Request, execute_each, execute_strictly};
pub use object::{Draft, Object, ObjectExt, ObjectFile};
pub use open::{Access, Capability, Create, LABEL_BYTES_MAX, Open, Writes};
pub use stat::{Cursor, End, FileSystem, HeldGrowth, Page, Space, Stat};

use crate::{Error, ErrorKind, Identity, Key, Result, Semantics, Superblock};

/// A place that keeps the bytes of objects.
///
/// A directory, a stack of tiers and a remote server are all backends. One suite,
/// `terrace_testkit::behaviour`, states what each method must do and runs against all of them.
///
/// # Contract
///
/// - Methods may be called from many threads at once and may block.
/// - Offsets and lengths are in bytes; an offset plus a length fits in 63 bits, else `Invalid`.
/// - A key never names anything outside its namespace and the backend's own directory.
/// - The methods with a default are for what only some backends can do; the default is right for
///   all others. A wrapper that is to forward all of them carries
///   `#[deny(clippy::missing_trait_methods)]`. Conveniences live in [`BackendExt`].
/// - What only a tier of a stack needs is in [`TierBackend`].
pub trait Backend: Send + Sync {
    /// Address in logs and errors, for example `file:/scratch/t1`.
    fn target(&self) -> &str;

    /// What this backend can do. Constant for its lifetime.
    fn capability(&self) -> Capability;

    /// Opens an object, creating it where `how` says so.
    ///
    /// - The handle stays usable when the object is deleted meanwhile: reads then either go on
    ///   or fail with `NotFound`; they never see another object's bytes.
    /// - An object that is created is empty and visible to others when this returns.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Exists` (with [`Create::New`]), `NoSpace`, `Denied`, `Unsupported` (semantics
    /// this backend cannot meet, a label without `capability().labels`), `Invalid` (a label that
    /// is empty or too long), `Io`.
    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>>;

    /// Begins a new value of an object, which replaces the old one when it is published.
    ///
    /// `how.create` says what must be there when it is published, `how.access` is ignored. A backend
    /// that cannot switch a key atomically refuses.
    ///
    /// # Errors
    ///
    /// As [`Backend::open`]; `Unsupported` where values are not replaced atomically.
    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        let _ = how;
        Err(Error::new(ErrorKind::Unsupported, "replace an object")
            .because("objects are not replaced atomically here")
            .with("key", key)
            .with("target", self.target()))
    }

    /// Returns an object's size and times. Errors: `NotFound`, `Io`.
    fn stat(&self, key: &Key) -> Result<Stat>;

    /// Removes an object; its name is free when this returns.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Denied`, `Io`. After an error other than `NotFound` the object is either
    /// whole or gone.
    fn delete(&self, key: &Key) -> Result<()>;

    /// Lists up to `max` keys of a namespace whose names start with `prefix`, from `cursor` on.
    ///
    /// - An object that exists throughout a walk is returned exactly once; one that is created or
    ///   deleted during it, at most once.
    /// - In order of the names where `capability().ordered_listing`.
    /// - A page may be empty and still have a next cursor.
    ///
    /// # Errors
    ///
    /// `Invalid` (a cursor that this backend did not make), `Io`.
    fn list(&self, namespace: &str, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page>;

    /// The namespaces that hold objects, in order.
    fn namespaces(&self) -> Result<Vec<String>>;

    /// Capacity and use in bytes.
    fn space(&self) -> Result<Space>;

    /// Carries out the operations of a batch, which share `semantics`, and fills every `outcome`.
    ///
    /// - Those on one object run in the order given, and so do all of them where `semantics` ask
    ///   for a strict ordering; else those on different objects run in any order and at the same
    ///   time.
    /// - One that fails does not stop the others, whatever the ordering.
    /// - Where `semantics` ask for an atomicity above `capability().atomicity`, every operation is
    ///   refused as `Unsupported`, also those that change nothing.
    ///
    /// The default is [`execute_each`].
    fn execute(&self, operations: &mut [Op<'_>], semantics: &Semantics) {
        execute_each(self, operations, semantics);
    }

    /// What a stack needs of its tiers; `None` where this cannot be one.
    fn tier(&self) -> Option<&dyn TierBackend> {
        None
    }

    /// Makes creations, deletions and identities durable that were acknowledged before the call
    /// (directories, not the bytes of objects: see [`Object::sync`]).
    fn sync(&self) -> Result<()>;

    /// Makes everything durable that was acknowledged before the call: what [`Backend::sync`] does,
    /// and the bytes of all objects, as [`Object::sync`] would on each. For many objects at once;
    /// it may also wait for what others wrote to the same device.
    ///
    /// # Errors
    ///
    /// As [`Backend::sync`]; afterwards nothing is known of the bytes of any object that was not
    /// synced before.
    fn sync_all(&self) -> Result<()>;
}

/// What a backend keeps beside objects so that it can be a tier: the identity of each object, and a
/// superblock that names the store.
///
/// On a `dyn Backend` the same methods are `Unsupported` where [`Backend::tier`] is `None`.
pub trait TierBackend: Send + Sync {
    /// Reads the identity stored with an object; `None` where it has none.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Corrupt`, `Unsupported` (without `capability().identity`), `Io`.
    fn identity(&self, key: &Key) -> Result<Option<Identity>>;

    /// Replaces the identity stored with an object. Errors as [`TierBackend::identity`].
    fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()>;

    /// The objects of a namespace whose identity may have been replaced since they were made, in a few
    /// requests; `None` where any may.
    ///
    /// # Errors
    ///
    /// As [`Backend::list`].
    fn replaced_identities(&self, _namespace: &str) -> Result<Option<Vec<Key>>> {
        Ok(None)
    }

    /// Reads the backend's superblock; `None` on a fresh one.
    ///
    /// # Errors
    ///
    /// `Corrupt`, `Unsupported` (without `capability().identity`), `Io`.
    fn superblock(&self) -> Result<Option<Superblock>>;

    /// Replaces the superblock, durably and atomically.
    fn set_superblock(&self, superblock: &Superblock) -> Result<()>;
}

impl dyn Backend + '_ {
    fn as_tier(&self, operation: &'static str) -> Result<&dyn TierBackend> {
        self.tier().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, operation).with("target", self.target())
        })
    }

    /// See [`TierBackend::identity`].
    pub fn identity(&self, key: &Key) -> Result<Option<Identity>> {
        self.as_tier("read an identity")?.identity(key)
    }

    /// See [`TierBackend::set_identity`].
    pub fn set_identity(&self, key: &Key, identity: &Identity) -> Result<()> {
        self.as_tier("write an identity")?.set_identity(key, identity)
    }

    /// See [`TierBackend::replaced_identities`].
    pub fn replaced_identities(&self, namespace: &str) -> Result<Option<Vec<Key>>> {
        self.as_tier("list identities")?.replaced_identities(namespace)
    }

    /// See [`TierBackend::superblock`].
    pub fn superblock(&self) -> Result<Option<Superblock>> {
        self.as_tier("read a superblock")?.superblock()
    }

    /// See [`TierBackend::set_superblock`].
    pub fn set_superblock(&self, superblock: &Superblock) -> Result<()> {
        self.as_tier("write a superblock")?.set_superblock(superblock)
    }
}

/// Opens an object and gives it to `work`; does both again where `work` fails with `NotFound`, because
/// the object was replaced after it was opened and its handle goes on with what was deleted.
///
/// # Errors
///
/// Those of `open` and `work`; `Busy` where it is replaced all the time.
pub fn with_object<T>(
    mut open: impl FnMut() -> Result<Box<dyn Object>>,
    mut work: impl FnMut(Box<dyn Object>) -> Result<T>,
) -> Result<T> {
    const ATTEMPTS_MAX: usize = 100;
    for _ in 0..ATTEMPTS_MAX {
        match work(open()?) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other,
        }
    }
    Err(Error::new(ErrorKind::Busy, "read an object").because("it is replaced all the time"))
}

/// Conveniences over every [`Backend`].
pub trait BackendExt: Backend {
    /// Reads a whole object.
    fn read_all(&self, key: &Key) -> Result<Vec<u8>> {
        with_object(|| self.open(key, &Open::read()), |object| object.read_to_end())
    }

    /// Makes an object hold exactly `data`, creating it if it is missing.
    fn write_all(&self, key: &Key, data: &[u8]) -> Result<()> {
        let object = self.open(key, &Open::create())?;
        object.set_len(0)?;
        object.write_at(0, &[IoSlice::new(data)])
    }

    /// Makes an object hold exactly `data`, atomically: readers get the old value or the new one, and
    /// after an error the old one. Errors as [`Backend::draft`] and [`Draft::publish`].
    fn put(&self, key: &Key, data: &[u8], how: &Open) -> Result<()> {
        let how = Open { size_hint_bytes: Some(data.len() as u64), ..how.clone() };
        let draft = self.draft(key, &how)?;
        if !data.is_empty() {
            draft.object().write_at(0, &[IoSlice::new(data)])?;
        }
        draft.publish().map(drop)
    }

    /// Removes an object that may be missing.
    fn delete_if_exists(&self, key: &Key) -> Result<()> {
        match self.delete(key) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// All keys of a namespace that start with `prefix`, in order.
    fn list_all(&self, namespace: &str, prefix: &str) -> Result<Vec<Key>> {
        const PAGE_KEYS: usize = 1000;
        let mut keys = Vec::new();
        let mut cursor = Cursor::start();
        loop {
            let page = self.list(namespace, prefix, &cursor, PAGE_KEYS)?;
            keys.extend(page.keys);
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        keys.sort();
        Ok(keys)
    }
}

impl<B: Backend + ?Sized> BackendExt for B {}
