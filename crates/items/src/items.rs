// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All collections of a store.

use std::fmt;
use std::sync::Arc;

use terrace_core::{Clock, Cursor, Error, ErrorKind, Persistency, Result, SystemClock};
use terrace_store::Store;

use crate::claim::{delete_if_exists, with_claim};
use crate::name::{Id, check_collection, check_prefix};
use crate::place::{ItemObject, Shelf, collection_claim};
use crate::record::Record;
use crate::{Base, Collection};

/// Pairs asked for at a time where all of them are wanted.
pub(crate) const PAGE_PAIRS: usize = 1000;

/// The collections of a store. Cloning is cheap.
///
/// # Contract
///
/// - Of several that make a collection, or an item of one collection, of the same name at the same
///   time one succeeds; the others get `Exists`, or `Busy` while it is not done.
/// - What is made under a name that was used before has nothing of what was there.
/// - A collection that is deleted takes its items along, or is not deleted.
#[derive(Clone)]
pub struct Items {
    pub(crate) base: Arc<dyn Base>,
    clock: Arc<dyn Clock>,
}

/// What deleting a collection does with its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A collection that has items is not deleted.
    Keep,
    /// They are deleted with it.
    Delete,
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePage {
    /// Names, in the order of their bytes; may be fewer than asked for.
    pub names: Vec<String>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// A pair that was found under a name.
pub(crate) struct Found {
    pub(crate) id: Id,
    /// The record, not looked at yet.
    pub(crate) value: Vec<u8>,
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items").finish_non_exhaustive()
    }
}

impl Items {
    /// The collections of a store, which may be owned, attached or behind a server.
    pub fn new(store: &Store) -> Self {
        Self::over(Arc::new(store.clone()), Arc::new(SystemClock::default()))
    }

    /// The same over anything that can be a base of them; `clock` is the time in records.
    pub fn over(base: Arc<dyn Base>, clock: Arc<dyn Clock>) -> Self {
        Self { base, clock }
    }

    /// Makes an empty collection, as durable as `persistency` says when this returns.
    ///
    /// # Errors
    ///
    /// `Exists`, `Busy` (another caller makes or deletes it), `Invalid` (the name), and what the
    /// store returns. A crash leaves the collection or none, and perhaps a claim on its name.
    pub fn create(&self, name: &str, persistency: Persistency) -> Result<Collection> {
        const OPERATION: &str = "create a collection";
        check_collection(name)?;
        let id = Id::random()?;
        let record = self.record();
        let check_free = || match self.find(&Shelf::collections(), name)? {
            Some(_) => Err(Error::new(ErrorKind::Exists, OPERATION).with("collection", name)),
            None => Ok(()),
        };
        // Also before: a claim on a collection that is there keeps others from making items.
        check_free()?;
        with_claim(&*self.base, &collection_claim(name), OPERATION, || {
            check_free()?;
            self.base.put_pair(&Shelf::collections().key(name, id), &record.encode(), persistency)
        })?;
        Ok(Collection::new(self.clone(), name, id, record))
    }

    /// Opens a collection.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` (the name), `Corrupt` (its record), and what the store says.
    pub fn open(&self, name: &str) -> Result<Collection> {
        check_collection(name)?;
        let Found { id, value } = self
            .find(&Shelf::collections(), name)?
            .ok_or_else(|| missing("open a collection", name))?;
        let record = Record::decode(&value).map_err(|error| error.with("collection", name))?;
        Ok(Collection::new(self.clone(), name, id, record))
    }

    /// Up to `max` collections whose names begin with `prefix`, from `cursor` on, in order.
    ///
    /// # Errors
    ///
    /// `Invalid` for a cursor of another listing, and what the store says.
    pub fn list(&self, prefix: &str, cursor: &Cursor, max: usize) -> Result<NamePage> {
        self.page(&Shelf::collections(), prefix, cursor, max)
    }

    /// Deletes a collection; `contents` says what becomes of its items.
    ///
    /// Nothing can be made in it meanwhile. After a failure, or a crash, it is there with those of
    /// its items that were not deleted, or it is gone; after a crash its name may be claimed, and
    /// new items are then refused as `Busy` until the claim was removed.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` (it has items and shall keep them, or the name), `Busy` (another
    /// caller makes or deletes it), and what the store returns.
    pub fn delete(&self, name: &str, contents: Contents) -> Result<()> {
        const OPERATION: &str = "delete a collection";
        check_collection(name)?;
        with_claim(&*self.base, &collection_claim(name), OPERATION, || {
            let found = self.find(&Shelf::collections(), name)?;
            let id = found.ok_or_else(|| missing(OPERATION, name))?.id;
            if contents == Contents::Keep {
                let has_items = !self.base.pairs(&Shelf::items(id).prefix(""), None, 1)?.is_empty();
                if has_items {
                    let reason = "it has items; delete them first, or with it";
                    return Err(Error::invalid(OPERATION, reason).with("collection", name));
                }
            } else {
                self.delete_items(id)?;
            }
            // A caller that put an item there since saw the claim, or will see that this is gone,
            // and takes it back.
            self.base.remove_pair(&Shelf::collections().key(name, id)).map(drop)
        })
    }

    fn delete_items(&self, collection: Id) -> Result<()> {
        let shelf = Shelf::items(collection);
        let mut after: Option<Vec<u8>> = None;
        loop {
            let pairs = self.base.pairs(&shelf.prefix(""), after.as_deref(), PAGE_PAIRS)?;
            let Some((last, _)) = pairs.last() else { return Ok(()) };
            for (key, _) in &pairs {
                if let Some((name, id)) = shelf.parse(key) {
                    self.remove(&ItemObject { collection, id, name: name.into() })?;
                }
            }
            after = Some(last.clone());
        }
    }

    /// Removes an item: first the record, so that no lookup finds it any more, then the object.
    /// Whether it was there.
    pub(crate) fn remove(&self, item: &ItemObject) -> Result<bool> {
        let key = Shelf::items(item.collection).key(&item.name, item.id);
        // Of several that remove it one gets true.
        if !self.base.remove_pair(&key)? {
            return Ok(false);
        }
        delete_if_exists(&*self.base, &item.key())?;
        Ok(true)
    }

    /// What has a name now.
    pub(crate) fn find(&self, shelf: &Shelf, name: &str) -> Result<Option<Found>> {
        let pairs = self.base.pairs(&shelf.named(name), None, 1)?;
        let Some((key, value)) = pairs.into_iter().next() else { return Ok(None) };
        let (_, id) = shelf.parse(&key).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "find an item")
                .because("a pair has its name and no id")
                .with("pair", key.escape_ascii())
        })?;
        Ok(Some(Found { id, value }))
    }

    /// A record of now.
    pub(crate) fn record(&self) -> Record {
        Record { created_ns: self.clock.wall_ns() }
    }

    pub(crate) fn page(
        &self,
        shelf: &Shelf,
        prefix: &str,
        cursor: &Cursor,
        max: usize,
    ) -> Result<NamePage> {
        check_prefix(prefix)?;
        let keys = shelf.prefix(prefix);
        let after = (!cursor.is_start()).then_some(cursor.0.as_slice());
        if after.is_some_and(|after| !after.starts_with(&keys)) {
            return Err(Error::invalid("list names", "the cursor is of another listing"));
        }
        let pairs = self.base.pairs(&keys, after, max)?;
        let mut names: Vec<String> = Vec::new();
        for (key, _) in &pairs {
            // What nothing here wrote is left out; so is a second item of one name.
            if let Some((name, _)) = shelf.parse(key)
                && names.last().is_none_or(|last| last != name)
            {
                names.push(name.into());
            }
        }
        let last = pairs.last().filter(|_| pairs.len() == max);
        let next = last.map(|(key, _)| match shelf.parse(key) {
            Some((name, _)) => Cursor(shelf.behind(name)),
            None => Cursor(key.clone()),
        });
        Ok(NamePage { names, next })
    }
}

fn missing(operation: &'static str, collection: &str) -> Error {
    Error::new(ErrorKind::NotFound, operation).with("collection", collection)
}
