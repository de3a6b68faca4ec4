// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open store.

use std::path::Path;

use terrace_core::{
    Access, Backend, BackendExt, Create, Object, ObjectExt, Result, Stat, with_object,
};
use terrace_settings::Settings;
use terrace_store::{Notice, OpenOptions, Seen, WatchFilter};

use crate::memory::reserve;
use crate::names::key;
use crate::{Admin, Batch, Kv, List, ObjectBuilder, Options};

/// Bytes of the first read of a whole object: a smaller object needs no other request. Each read that
/// follows is four times as long, up to the longest; a short one is the end, so that the size need not be
/// asked for.
const FIRST_READ_BYTES: usize = 64 << 10;
const READ_BYTES_MAX: usize = 16 << 20;

/// An open store. Clones are the same store.
///
/// One process owns a store; others that open its directory meanwhile are served by the owner. An owned
/// store is closed with its last clone; [`Store::close`] reports errors.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: terrace_store::Store,
}

impl Store {
    /// Makes a store in a directory, with the configuration of `terrace init`.
    ///
    /// # Errors
    ///
    /// `Exists` where a store is already, `Denied`, `NoSpace`, `Io`. Nothing is left behind then.
    pub fn create(directory: &str) -> Result<()> {
        terrace_store::Store::init(Path::new(directory), &Settings::example())
    }

    /// Opens a store: its directory, or `terrace://HOST:PORT`, `terrace+unix:///PATH`, several servers
    /// `terrace://HOST:PORT,HOST:PORT` or `terrace+map:///PATH`.
    ///
    /// # Errors
    ///
    /// `NotFound` (no store there), `Busy` (another process owns it and does not serve it), `Invalid`
    /// (a wrong configuration or address), `Denied`, `Stale`, `Corrupt`, `Unreachable`, `Io`.
    pub fn open(address: &str) -> Result<Self> {
        Ok(Self { inner: terrace_store::Store::open(address)? })
    }

    /// Opens a store that cannot be changed through this handle. Errors as [`Store::open`].
    pub fn open_read_only(address: &str) -> Result<Self> {
        let options = OpenOptions { access: Access::Read, ..OpenOptions::default() };
        Ok(Self { inner: terrace_store::Store::open_with(address, options)? })
    }

    /// Makes an object hold exactly `data`, atomically: every reader gets the old value or the new one.
    /// After an error, or where the process is killed, the object has its old value; the old and the new
    /// value need room at the same time.
    ///
    /// # Errors
    ///
    /// `NoSpace`, `Denied`, `Invalid` (the name), `Io`; `Unreachable`, which says whether it may have been
    /// replaced.
    pub fn put(&self, name: &str, data: &[u8]) -> Result<()> {
        self.put_with(name, data, &Options::default())
    }

    /// The same with options. Errors as [`Store::put`].
    pub fn put_with(&self, name: &str, data: &[u8], options: &Options) -> Result<()> {
        self.inner.put(&key(name)?, data, &options.open(Create::IfMissing, Access::Write))
    }

    /// Reads a whole object.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` (the name), `Corrupt`, `Unreachable`, `Io`.
    pub fn get(&self, name: &str) -> Result<Vec<u8>> {
        let how = Options::default().open(Create::Never, Access::Read);
        let key = key(name)?;
        with_object(|| self.inner.open(&key, &how), |object| read_whole(&*object))
    }

    /// Returns the size and times of an object. Errors: `NotFound`, `Invalid`, `Unreachable`, `Io`.
    pub fn stat(&self, name: &str) -> Result<Stat> {
        self.inner.stat(&key(name)?)
    }

    /// Removes an object. Errors: `NotFound`, `Invalid`, `Denied`, `Unreachable`, `Io`.
    pub fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(&key(name)?)
    }

    /// The objects whose full names, `namespace/name`, begin with `prefix`; `""` for all.
    pub fn list(&self, prefix: &str) -> List {
        List::new(self.inner.clone(), prefix)
    }

    /// An object to be opened or created. Errors: `Invalid` for a name that is none.
    pub fn object(&self, name: &str) -> Result<ObjectBuilder> {
        Ok(ObjectBuilder::new(self.inner.clone(), key(name)?))
    }

    /// Several operations with one request.
    pub fn batch(&self) -> Batch {
        Batch::new(self.inner.clone())
    }

    /// The key-value pairs of a namespace.
    pub fn kv(&self, namespace: &str) -> Kv {
        Kv::new(self.inner.clone(), namespace)
    }

    /// Calls `each` for everything that happens in the store (migrations, tiers, the policy, scrubs),
    /// until it returns false; with `None` from time to time where nothing happens.
    ///
    /// # Errors
    ///
    /// `Busy` with 16 watchers, `Unreachable` once the store is closed, `Unsupported` behind several
    /// servers.
    pub fn watch(&self, each: &mut dyn FnMut(Option<Notice>) -> bool) -> Result<()> {
        self.inner.admin().watch(&WatchFilter::default(), &mut |seen| match seen {
            Seen::Begun | Seen::Nothing => each(None),
            Seen::Notice(notice) => each(Some(*notice)),
        })
    }

    /// Tiers, placement and migrations.
    pub fn admin(&self) -> Admin {
        Admin::new(self.inner.clone())
    }

    /// Makes everything durable that was acknowledged.
    pub fn sync(&self) -> Result<()> {
        self.inner.sync_all()
    }

    /// Whether another process or a server owns the store, so that each operation is a request to it.
    pub fn is_attached(&self) -> bool {
        self.inner.is_attached()
    }

    /// Closes a store that this process owns: objects that are still open fail from then on. Does
    /// nothing for a store that another process owns.
    ///
    /// # Errors
    ///
    /// What a tier or the catalog says; the next opening then recovers.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

/// Reads an object to its end.
pub(crate) fn read_whole(object: &dyn Object) -> Result<Vec<u8>> {
    let (mut data, mut step_bytes) = (Vec::new(), FIRST_READ_BYTES);
    loop {
        let start = data.len();
        reserve(&mut data, step_bytes, "read a whole object")?;
        data.resize(start + step_bytes, 0);
        let count = object.read(start as u64, &mut data[start..])?;
        data.truncate(start + count);
        if count < step_bytes {
            return Ok(data);
        }
        step_bytes = READ_BYTES_MAX.min(step_bytes * 4);
    }
}
