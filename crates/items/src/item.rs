// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open item.

use std::fmt;

use terrace_core::{Key, Object, ObjectExt, Result, Stat};

/// An open item: its bytes are those of its object.
///
/// It stays usable when the item is deleted meanwhile, as an object does: reads then go on or fail
/// with `NotFound`, and never see what is made under its name afterwards.
pub struct Item {
    name: String,
    key: Key,
    object: Box<dyn Object>,
}

/// What is known of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The object with its bytes.
    pub object: Key,
    /// Size and times, those of the object.
    pub stat: Stat,
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("name", &self.name).field("key", &self.key).finish()
    }
}

impl Item {
    pub(crate) fn new(name: &str, key: Key, object: Box<dyn Object>) -> Self {
        Self { name: name.into(), key, object }
    }

    /// Its name in its collection.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of its object, which no other item ever has.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Its object, for everything that can be done with one.
    pub fn object(&self) -> &dyn Object {
        &*self.object
    }

    /// The same, where the name is no longer of interest.
    pub fn into_object(self) -> Box<dyn Object> {
        self.object
    }

    /// Reads into a buffer; fewer bytes only at the end. Errors as [`Object::read_at`].
    pub fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        self.object.read(offset_bytes, buffer)
    }

    /// Writes all of `data`, growing the item as needed. Errors as [`Object::write_at`].
    pub fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.object.write(offset_bytes, data)
    }

    /// Size and times now. Errors as [`Object::stat`].
    pub fn status(&self) -> Result<Status> {
        Ok(Status { object: self.key.clone(), stat: self.object.stat()? })
    }
}
