// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in the store.

use std::sync::Arc;

use terrace_console::failure::{Result, about};
use terrace_core::{Backend, Create, Hint, Key, Object, ObjectExt, Open, Semantics, with_object};
use terrace_items::Collection;
use terrace_store::Store;

use super::{PIECE_BYTES, Source, Target};

/// An object as it was when it was opened, from its beginning.
pub struct StoredSource {
    object: Box<dyn Object>,
    key: Key,
    size_bytes: u64,
    offset_bytes: u64,
    /// Its first bytes, until they are taken.
    first: Vec<u8>,
}

impl StoredSource {
    /// Opens an object.
    pub fn open(store: &Store, key: &Key) -> Result<Self> {
        let open = || Ok((key.clone(), store.open(key, &Open::read())?));
        Self::of(&open).map_err(|error| about(error, key).into())
    }

    /// Opens the object of an item.
    pub fn open_item(collection: &Collection, name: &str) -> Result<Self> {
        let open = || {
            let item = collection.open(name, &Open::read())?;
            Ok((item.key().clone(), item.into_object()))
        };
        Ok(Self::of(&open)?)
    }

    /// Opens by whatever `open` does, and reads the first piece: only the size of a longer object is asked
    /// for. From then on the handle has all that belongs to the object, on several servers, too.
    fn of(
        open: &dyn Fn() -> terrace_core::Result<(Key, Box<dyn Object>)>,
    ) -> terrace_core::Result<Self> {
        let mut key = None;
        let open = || {
            let (opened, object) = open()?;
            key = Some(opened);
            Ok(object)
        };
        let (object, first, size_bytes) = with_object(open, |object| {
            let mut first = vec![0; PIECE_BYTES];
            let count = object.read(0, &mut first)?;
            let size_bytes = match count == PIECE_BYTES {
                true => object.stat()?.size_bytes,
                false => count as u64,
            };
            first.truncate(count);
            Ok((object, first, size_bytes))
        })?;
        let key = key.expect("it was opened");
        Ok(Self { object, key, size_bytes, offset_bytes: 0, first })
    }
}

impl Source for StoredSource {
    fn size_bytes(&self) -> Option<u64> {
        Some(self.size_bytes)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if !self.first.is_empty() {
            let count = self.first.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.first[..count]);
            self.first.drain(..count);
            self.offset_bytes += count as u64;
            return Ok(count);
        }
        let left_bytes = self.size_bytes.saturating_sub(self.offset_bytes);
        let want = usize::try_from(left_bytes).map_or(buffer.len(), |left| left.min(buffer.len()));
        // A read that finds nothing would be an access all the same.
        if want == 0 {
            return Ok(0);
        }
        let read = self.object.read(self.offset_bytes, &mut buffer[..want]);
        let count = read.map_err(|error| about(error, &self.key))?;
        self.offset_bytes += count as u64;
        Ok(count)
    }
}

/// What an object is to hold from now on, and how it is to be kept.
#[derive(Clone, Debug, Default)]
pub struct NewContent {
    /// An object that exists is a failure.
    pub must_be_new: bool,
    /// What is asked for every write.
    pub semantics: Semantics,
    /// Advice for the policy.
    pub hint: Hint,
}

impl NewContent {
    /// Begins the new value of an object, which will have `size_bytes` where that is known.
    pub fn open(&self, store: &Store, key: &Key, size_bytes: Option<u64>) -> Result<StoredTarget> {
        let draft = store.draft(key, &self.how(size_bytes)).map_err(|error| about(error, key))?;
        let object = draft.object();
        let publish = Box::new(move || draft.publish().map(drop));
        Ok(StoredTarget::new(key.clone(), object, publish))
    }

    /// The same for an item.
    pub fn open_item(
        &self,
        collection: &Collection,
        name: &str,
        size_bytes: Option<u64>,
    ) -> Result<StoredTarget> {
        let draft = collection.draft(name, &self.how(size_bytes))?;
        let (key, object) = (draft.key().clone(), draft.object());
        Ok(StoredTarget::new(key, object, Box::new(move || draft.publish())))
    }

    fn how(&self, size_bytes: Option<u64>) -> Open {
        let create = if self.must_be_new { Create::New } else { Create::IfMissing };
        Open {
            create,
            size_hint_bytes: size_bytes,
            semantics: self.semantics,
            hint: self.hint,
            ..Open::default()
        }
    }
}

/// Makes the new value visible; dropped without, it leaves the old one.
type Publish = Box<dyn FnOnce() -> terrace_core::Result<()>>;

/// The new value of an object while it is written. Readers get the old value until it is finished.
pub struct StoredTarget {
    key: Key,
    object: Arc<dyn Object>,
    /// `None` once it is finished or abandoned.
    publish: Option<Publish>,
    written_bytes: u64,
}

impl StoredTarget {
    fn new(key: Key, object: Arc<dyn Object>, publish: Publish) -> Self {
        Self { key, object, publish: Some(publish), written_bytes: 0 }
    }
}

impl Target for StoredTarget {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        let written = self.object.write(self.written_bytes, data);
        written
            .map_err(|error| about(error, &self.key).with("written_bytes", self.written_bytes))?;
        self.written_bytes += data.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let publish = self.publish.take().expect("it is finished once");
        publish().map_err(|error| about(error, &self.key).into())
    }

    fn abandon(&mut self) -> Result<()> {
        self.publish = None;
        Ok(())
    }
}
