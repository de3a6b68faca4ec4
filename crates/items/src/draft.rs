// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A new value of an item.

use std::fmt;
use std::sync::Arc;

use terrace_core::{Draft, Key, Object, Result};

/// Publishes the draft of an item's object, and what makes it an item.
pub(crate) type Publish = Box<dyn Fn(&dyn Draft) -> Result<()> + Send + Sync>;

/// A new value of an item, written beside the old one: see [`Collection::draft`](crate::Collection::draft).
pub struct ItemDraft {
    key: Key,
    draft: Box<dyn Draft>,
    publish: Publish,
}

impl fmt::Debug for ItemDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemDraft").field("key", &self.key).finish_non_exhaustive()
    }
}

impl ItemDraft {
    pub(crate) fn new(key: Key, draft: Box<dyn Draft>, publish: Publish) -> Self {
        Self { key, draft, publish }
    }

    /// The key of the object.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The handle through which the new value is written.
    pub fn object(&self) -> Arc<dyn Object> {
        self.draft.object()
    }

    /// Makes the item have the new value, atomically.
    ///
    /// # Errors
    ///
    /// As [`Draft::publish`]; `NotFound` where an item that was there was deleted since; `Exists` where
    /// another caller has made the item since, `Busy` where another caller makes it just now. The item
    /// then is as it was. A crash leaves the item or none, and perhaps an object or a claim that
    /// [`Items::check`](crate::Items::check) finds.
    pub fn publish(&self) -> Result<()> {
        (self.publish)(&*self.draft)
    }
}
