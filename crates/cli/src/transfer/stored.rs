// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in the store.

use terrace_core::{
    Access, Backend, Create, End, ErrorKind, Hint, Key, Object, ObjectExt, Open, Semantics,
};
use terrace_items::{Collection, Item};
use terrace_store::Store;

use super::{Source, Target};
use crate::failure::{Result, about};

/// An object, from its beginning.
pub(crate) struct StoredSource {
    object: Box<dyn Object>,
    key: Key,
    size_bytes: u64,
    offset_bytes: u64,
}

impl StoredSource {
    /// Opens an object.
    pub(crate) fn open(store: &Store, key: &Key) -> Result<Self> {
        let object = store.open(key, &Open::read()).map_err(|error| about(error, key))?;
        Self::of(key.clone(), object)
    }

    /// Takes an open item.
    pub(crate) fn of_item(item: Item) -> Result<Self> {
        Self::of(item.key().clone(), item.into_object())
    }

    fn of(key: Key, object: Box<dyn Object>) -> Result<Self> {
        let size_bytes = object.stat()?.size_bytes;
        Ok(Self { object, key, size_bytes, offset_bytes: 0 })
    }
}

impl Source for StoredSource {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.offset_bytes >= self.size_bytes {
            // It may have grown. A read that finds nothing would be an access all the same.
            self.size_bytes =
                self.object.stat().map_err(|error| about(error, &self.key))?.size_bytes;
            if self.offset_bytes >= self.size_bytes {
                return Ok(0);
            }
        }
        let read = self.object.read(self.offset_bytes, buffer);
        let count = read.map_err(|error| about(error, &self.key))?;
        self.offset_bytes += count as u64;
        Ok(count)
    }
}

/// Where an object's content is to come from now on, and how it is to be kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewContent {
    /// An object that exists is a failure.
    pub(crate) must_be_new: bool,
    /// What is asked for every write.
    pub(crate) semantics: Semantics,
    /// Advice for the policy.
    pub(crate) hint: Hint,
}

impl NewContent {
    /// Opens the object for the new content, which will have `size_bytes` where that is known.
    ///
    /// Room for an object that grows is reserved first where the size is known, so that a full
    /// store leaves it as it was.
    pub(crate) fn open(
        &self,
        store: &Store,
        key: &Key,
        size_bytes: Option<u64>,
    ) -> Result<StoredTarget> {
        let ((key, object), is_new) = self
            .open_by(size_bytes, &|how| Ok((key.clone(), store.open(key, how)?)))
            .map_err(|failure| failure.about(key))?;
        let (store, removed) = (store.clone(), key.clone());
        let remove: Remove = Box::new(move || store.delete(&removed));
        Ok(StoredTarget::new(key, object, is_new.then_some(remove)))
    }

    /// The same for an item.
    pub(crate) fn open_item(
        &self,
        collection: &Collection,
        name: &str,
        size_bytes: Option<u64>,
    ) -> Result<StoredTarget> {
        let ((key, object), is_new) = self.open_by(size_bytes, &|how| {
            let item = collection.open(name, how)?;
            Ok((item.key().clone(), item.into_object()))
        })?;
        let (collection, removed) = (collection.clone(), key.clone());
        let remove: Remove = Box::new(move || collection.delete_object(&removed));
        Ok(StoredTarget::new(key, object, is_new.then_some(remove)))
    }

    /// Opens by whatever `open` does, and makes room; whether it is new.
    fn open_by(
        &self,
        size_bytes: Option<u64>,
        open: &dyn Fn(&Open) -> terrace_core::Result<Named>,
    ) -> Result<(Named, bool)> {
        let how = Open {
            create: Create::New,
            access: Access::Write,
            size_hint_bytes: size_bytes,
            semantics: self.semantics,
            segment_bytes: None,
            hint: self.hint,
            identity: None,
            label: None,
        };
        match open(&how) {
            Err(error) if error.kind() == ErrorKind::Exists && !self.must_be_new => {
                let (key, object) = open(&Open { create: Create::IfMissing, ..how })?;
                let old_bytes = object.stat()?.size_bytes;
                make_room(&*object, old_bytes, size_bytes)?;
                Ok(((key, object), false))
            }
            other => Ok((other?, true)),
        }
    }
}

fn make_room(object: &dyn Object, old_bytes: u64, new_bytes: Option<u64>) -> Result<()> {
    match new_bytes {
        Some(new_bytes) if new_bytes > old_bytes => {
            match object.allocate(old_bytes..new_bytes, End::Grows) {
                // The end is then found while writing.
                Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
                Err(error) => {
                    object.set_len(old_bytes)?;
                    Err(error.into())
                }
                Ok(()) => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// An open object with its key.
type Named = (Key, Box<dyn Object>);

/// Takes back what was made.
type Remove = Box<dyn FnOnce() -> terrace_core::Result<()>>;

/// An object whose content is being written.
pub(crate) struct StoredTarget {
    /// `None` once it is finished or abandoned.
    object: Option<Box<dyn Object>>,
    key: Key,
    /// `None` where it was there before.
    remove: Option<Remove>,
    written_bytes: u64,
}

impl StoredTarget {
    fn new(key: Key, object: Box<dyn Object>, remove: Option<Remove>) -> Self {
        Self { object: Some(object), key, remove, written_bytes: 0 }
    }

    fn object(&self) -> &dyn Object {
        self.object.as_deref().expect("nothing is written after the end")
    }
}

impl Target for StoredTarget {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        let written = self.object().write(self.written_bytes, data);
        written
            .map_err(|error| about(error, &self.key).with("written_bytes", self.written_bytes))?;
        self.written_bytes += data.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        // Cuts off what is left of a longer old content.
        let ended = self.object().set_len(self.written_bytes);
        self.object = None;
        ended.map_err(|error| about(error, &self.key).into())
    }

    /// Removes a new object. One that was there keeps what was written of the new content: never
    /// a mixture of the two.
    fn abandon(&mut self) -> Result<()> {
        let Some(object) = self.object.take() else { return Ok(()) };
        match self.remove.take() {
            Some(remove) => {
                drop(object);
                remove()?;
            }
            None => object.set_len(self.written_bytes)?,
        }
        Ok(())
    }
}

impl Drop for StoredTarget {
    fn drop(&mut self) {
        // A failure here follows one that was reported.
        let _ = self.abandon();
    }
}
