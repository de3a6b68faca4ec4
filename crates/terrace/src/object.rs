// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that are read and written anywhere.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use terrace_core::{Access, Backend, Create, Key, Result, Stat};
use terrace_store::Store;

use crate::Options;

/// An object that is about to be opened.
#[derive(Clone)]
pub struct ObjectBuilder {
    store: Store,
    key: Key,
    options: Options,
}

impl ObjectBuilder {
    pub(crate) fn new(store: Store, key: Key) -> Self {
        Self { store, key, options: Options::default() }
    }

    /// The same with these options.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Opens an object for reading. Errors: `NotFound`, `Unsupported`, `Unreachable`, `Io`.
    pub fn read(&self) -> Result<Object> {
        self.open_as(Create::Never, Access::Read)
    }

    /// Opens an object for reading and writing. Errors: `NotFound`, `Denied`, `Unsupported`,
    /// `Unreachable`, `Io`.
    pub fn open(&self) -> Result<Object> {
        self.open_as(Create::Never, Access::Write)
    }

    /// Opens an object for reading and writing, and makes it if it is missing. Errors: `NoSpace`,
    /// `Denied`, `Unsupported`, `Unreachable`, `Io`.
    pub fn create(&self) -> Result<Object> {
        self.open_as(Create::IfMissing, Access::Write)
    }

    /// Makes an object that must not exist. Errors: `Exists`, and as [`ObjectBuilder::create`].
    pub fn create_new(&self) -> Result<Object> {
        self.open_as(Create::New, Access::Write)
    }

    /// Begins a new value of the object, which replaces the old one when it is published: [`Store::put`](crate::Store::put)
    /// for values that are written in pieces. Errors: as `put`.
    pub fn replace(&self) -> Result<Draft> {
        let how = self.options.open(Create::IfMissing, Access::Write);
        Ok(Draft { inner: self.store.draft(&self.key, &how)?.into() })
    }

    fn open_as(&self, create: Create, access: Access) -> Result<Object> {
        let opened = self.store.open(&self.key, &self.options.open(create, access))?;
        Ok(Object { inner: opened.into() })
    }
}

/// A new value of an object, which is invisible until it is published. Dropped unpublished it is discarded.
#[derive(Clone)]
pub struct Draft {
    inner: Arc<dyn terrace_core::Draft>,
}

impl Draft {
    /// The handle through which the value is written. It stays usable after the publication.
    pub fn object(&self) -> Object {
        Object { inner: self.inner.object() }
    }

    /// Makes the name stand for the new value, atomically: every reader gets the old value or the new one.
    ///
    /// # Errors
    ///
    /// `Invalid` (published before), `NoSpace`, `Unreachable`, `Io`. The object then has its old value.
    pub fn publish(&self) -> Result<()> {
        self.inner.publish().map(drop)
    }
}

/// An open object. Clones are the same handle.
#[derive(Clone)]
pub struct Object {
    pub(crate) inner: Arc<dyn terrace_core::Object>,
}

impl Object {
    /// Reads into a buffer; returns the bytes read, fewer than asked for only at the end. Holes read
    /// as zeros.
    pub fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        self.inner.read_at(offset_bytes, &mut [IoSliceMut::new(buffer)])
    }

    /// Writes all of `data`; the object grows as needed. Errors: `NoSpace`, `Denied`, `NotFound` (it was
    /// deleted), `Unreachable`, `Io`.
    pub fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.inner.write_at(offset_bytes, &[IoSlice::new(data)])
    }

    /// Writes all of `data` at the end and returns where it begins. Appends never overlap. Errors as
    /// [`Object::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.inner.append(&[IoSlice::new(data)])
    }

    /// Makes everything durable that was written to the object before the call. A failure stays: every
    /// later call on this handle fails, too.
    pub fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    /// The length.
    pub fn len(&self) -> Result<u64> {
        Ok(self.inner.stat()?.size_bytes)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the object, or lets it grow with zeros. Errors as [`Object::write_at`].
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)
    }

    /// Size and times.
    pub fn stat(&self) -> Result<Stat> {
        self.inner.stat()
    }

    /// The label that the object was created with.
    pub fn label(&self) -> Option<Vec<u8>> {
        self.inner.label().map(|label| label.to_vec())
    }
}
