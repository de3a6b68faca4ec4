// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collections of items.

use std::collections::VecDeque;

use terrace_core::{Access, Create, Cursor, ObjectExt, Result, Stat, with_object};
use terrace_items::{Contents, Items, NamePage};
use terrace_store::Persistency;

use crate::store::read_whole;
use crate::{Object, Options, Store};

/// Names that are fetched with one request.
const PAGE_NAMES: usize = 1000;

/// A set of items. An item is a record and an object with its bytes; its name is its own in the collection, and opaque.
///
/// It stays the collection that was opened: once that is deleted nothing is found in it, also where another has its
/// name by then.
#[derive(Clone)]
pub struct Collection {
    inner: terrace_items::Collection,
}

impl Store {
    /// Makes a collection, with a name of 1 to 64 bytes without `/`. Errors: `Exists`, `Busy` (another caller makes
    /// it just now), `Invalid` (the name), `Denied`, `NoSpace`, `Unreachable`, `Io`.
    pub fn create_collection(&self, name: &str) -> Result<Collection> {
        let inner = Items::new(&self.inner).create(name, Persistency::default())?;
        Ok(Collection { inner })
    }

    /// Opens a collection. Errors: `NotFound`, `Invalid`, `Corrupt`, `Unreachable`, `Io`.
    pub fn collection(&self, name: &str) -> Result<Collection> {
        Ok(Collection { inner: Items::new(&self.inner).open(name)? })
    }

    /// The names of the collections that begin with `prefix`, in order. Ends after an error.
    pub fn collections(
        &self,
        prefix: &str,
    ) -> impl Iterator<Item = Result<String>> + Send + 'static {
        let (items, prefix) = (Items::new(&self.inner), prefix.to_owned());
        names(move |cursor| items.list(&prefix, cursor, PAGE_NAMES))
    }

    /// Removes a collection that has no items, or with all of its items. Errors: `NotFound`, `Invalid` (it has
    /// items), `Busy`, `Denied`, `Unreachable`, `Io`.
    pub fn delete_collection(&self, name: &str, with_items: bool) -> Result<()> {
        let contents = if with_items { Contents::Delete } else { Contents::Keep };
        Items::new(&self.inner).delete(name, contents)
    }
}

impl Collection {
    /// Its name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Makes an item hold exactly `data`, atomically, and makes the item if it is missing.
    ///
    /// # Errors
    ///
    /// As [`Store::put`]; `NotFound` where the collection was deleted, `Busy` where another caller makes the item just
    /// now.
    pub fn put(&self, name: &str, data: &[u8], options: &Options) -> Result<()> {
        let draft = self.inner.draft(name, &options.open(Create::IfMissing, Access::Write))?;
        draft.object().write(0, data)?;
        draft.publish()
    }

    /// Reads a whole item. Errors: `NotFound`, `Invalid` (the name), `Corrupt`, `Unreachable`, `Io`.
    pub fn get(&self, name: &str) -> Result<Vec<u8>> {
        let how = Options::default().open(Create::Never, Access::Read);
        with_object(
            || Ok(self.inner.open(name, &how)?.into_object()),
            |object| read_whole(&*object),
        )
    }

    /// Opens an item for reading and writing. Errors: `NotFound`, `Denied`, `Unreachable`, `Io`.
    pub fn open(&self, name: &str) -> Result<Object> {
        self.open_as(name, Create::Never, &Options::default())
    }

    /// The same, and makes the item if it is missing. Errors: `NoSpace`, and as [`Collection::open`].
    pub fn create(&self, name: &str, options: &Options) -> Result<Object> {
        self.open_as(name, Create::IfMissing, options)
    }

    /// Size and times of an item. Errors: `NotFound`, `Invalid`, `Corrupt`, `Unreachable`, `Io`.
    pub fn stat(&self, name: &str) -> Result<Stat> {
        Ok(self.inner.status(name)?.stat)
    }

    /// The full name of the object with the bytes of an item: for [`Store::object`] and
    /// [`Admin`](crate::Admin). No other item ever has it. Errors as [`Collection::stat`].
    pub fn object_name(&self, name: &str) -> Result<String> {
        Ok(self.inner.status(name)?.object.as_str().to_owned())
    }

    /// The names of the items that begin with `prefix`, in order. Ends after an error.
    pub fn list(&self, prefix: &str) -> impl Iterator<Item = Result<String>> + Send + 'static {
        let (inner, prefix) = (self.inner.clone(), prefix.to_owned());
        names(move |cursor| inner.list(&prefix, cursor, PAGE_NAMES))
    }

    /// Removes an item. Errors: `NotFound`, `Invalid`, `Denied`, `Unreachable`, `Io`.
    pub fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }

    fn open_as(&self, name: &str, create: Create, options: &Options) -> Result<Object> {
        let item = self.inner.open(name, &options.open(create, Access::Write))?;
        Ok(Object { inner: item.into_object().into() })
    }
}

/// The names of a listing that comes in pages.
fn names(
    mut fetch: impl FnMut(&Cursor) -> Result<NamePage> + Send + 'static,
) -> impl Iterator<Item = Result<String>> + Send + 'static {
    let mut next = Some(Cursor::start());
    let mut page = VecDeque::new();
    std::iter::from_fn(move || {
        while page.is_empty() {
            match fetch(&next.take()?) {
                Ok(found) => {
                    page.extend(found.names);
                    next = found.next;
                }
                Err(error) => return Some(Err(error)),
            }
        }
        page.pop_front().map(Ok)
    })
}
