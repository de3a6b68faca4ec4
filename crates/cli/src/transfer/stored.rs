// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in the store.

use terrace_core::{
    Access, Backend, Create, ErrorKind, Hint, Key, Object, ObjectExt, Open, Semantics,
};
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
        let size_bytes = object.stat()?.size_bytes;
        Ok(Self { object, key: key.clone(), size_bytes, offset_bytes: 0 })
    }
}

impl Source for StoredSource {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
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
        let how = Open {
            create: Create::New,
            access: Access::Write,
            size_hint_bytes: size_bytes,
            semantics: self.semantics,
            hint: self.hint,
            identity: None,
            label: None,
        };
        let opened = match store.open(key, &how) {
            Err(error) if error.kind() == ErrorKind::Exists && !self.must_be_new => {
                let object = store.open(key, &Open { create: Create::IfMissing, ..how })?;
                let old_bytes = object.stat()?.size_bytes;
                make_room(&*object, old_bytes, size_bytes)?;
                Ok((object, false))
            }
            other => other.map(|object| (object, true)),
        };
        let (object, is_new) = opened.map_err(|error| about(error, key))?;
        Ok(StoredTarget {
            store: store.clone(),
            object: Some(object),
            key: key.clone(),
            is_new,
            written_bytes: 0,
        })
    }
}

fn make_room(object: &dyn Object, old_bytes: u64, new_bytes: Option<u64>) -> Result<()> {
    match new_bytes {
        Some(new_bytes) if new_bytes > old_bytes => match object.allocate(old_bytes..new_bytes) {
            // The end is then found while writing.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            Err(error) => {
                object.set_len(old_bytes)?;
                Err(error.into())
            }
            Ok(()) => Ok(()),
        },
        _ => Ok(()),
    }
}

/// An object whose content is being written.
pub(crate) struct StoredTarget {
    store: Store,
    /// `None` once it is finished or abandoned.
    object: Option<Box<dyn Object>>,
    key: Key,
    is_new: bool,
    written_bytes: u64,
}

impl StoredTarget {
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
        if self.is_new {
            drop(object);
            self.store.delete(&self.key)?;
        } else {
            object.set_len(self.written_bytes)?;
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
