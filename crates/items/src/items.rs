// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All collections of a store.

use std::sync::Arc;

use terrace_core::{Clock, Cursor, Error, ErrorKind, Persistency, Result, SystemClock};
use terrace_store::Store;

use crate::claim::with_claim;
use crate::name::{Id, check_collection};
use crate::place::{ItemObject, Shelf, collection_claim};
use crate::record::Record;
use crate::records::{Found, NamePage, PAGE_PAIRS, Records};
use crate::{Base, Collection};

/// The collections of a store. Cloning is cheap.
///
/// # Contract
///
/// - Of several that make a collection, or an item of one collection, of the same name at the same
///   time one succeeds; the others get `Exists`, or `Busy` while it is not done.
/// - What is made under a name that was used before has nothing of what was there.
/// - A collection that is deleted takes its items along, or is not deleted.
#[derive(Clone, Debug)]
pub struct Items {
    pub(crate) records: Records,
}

/// What deleting a collection does with its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A collection that has items is not deleted.
    Keep,
    /// They are deleted with it.
    Delete,
}

impl Items {
    /// The collections of a store, which may be owned, attached or behind a server.
    pub fn new(store: &Store) -> Self {
        Self::over(Arc::new(store.clone()), Arc::new(SystemClock::default()))
    }

    /// The same over anything that can be a base of them; `clock` is the time in records.
    pub fn over(base: Arc<dyn Base>, clock: Arc<dyn Clock>) -> Self {
        Self { records: Records::new(base, clock) }
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
        let record = self.records.now();
        let check_free = || match self.records.find(&Shelf::collections(), name)? {
            Some(_) => Err(Error::new(ErrorKind::Exists, OPERATION).with("collection", name)),
            None => Ok(()),
        };
        // Also before: a claim on a collection that is there keeps others from making items.
        check_free()?;
        with_claim(&*self.records.base, &collection_claim(name), OPERATION, || {
            check_free()?;
            self.records.base.put_pair(
                &Shelf::collections().key(name, id),
                &record.encode(),
                persistency,
            )
        })?;
        Ok(Collection::new(self.records.clone(), name, id, record))
    }

    /// Opens a collection.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` (the name), `Corrupt` (its record), and what the store says.
    pub fn open(&self, name: &str) -> Result<Collection> {
        check_collection(name)?;
        let Found { id, value } = self
            .records
            .find(&Shelf::collections(), name)?
            .ok_or_else(|| missing("open a collection", name))?;
        let record = Record::decode(&value).map_err(|error| error.with("collection", name))?;
        Ok(Collection::new(self.records.clone(), name, id, record))
    }

    /// Up to `max` collections whose names begin with `prefix`, from `cursor` on, in order.
    ///
    /// # Errors
    ///
    /// `Invalid` for a cursor of another listing, and what the store says.
    pub fn list(&self, prefix: &str, cursor: &Cursor, max: usize) -> Result<NamePage> {
        self.records.page(&Shelf::collections(), prefix, cursor, max)
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
        with_claim(&*self.records.base, &collection_claim(name), OPERATION, || {
            let found = self.records.find(&Shelf::collections(), name)?;
            let id = found.ok_or_else(|| missing(OPERATION, name))?.id;
            if contents == Contents::Keep {
                let has_items =
                    !self.records.base.pairs(&Shelf::items(id).prefix(""), None, 1)?.is_empty();
                if has_items {
                    let reason = "it has items; delete them first, or with it";
                    return Err(Error::invalid(OPERATION, reason).with("collection", name));
                }
            } else {
                self.delete_items(id)?;
            }
            // A caller that put an item there since saw the claim, or will see that this is gone,
            // and takes it back.
            self.records.base.remove_pair(&Shelf::collections().key(name, id)).map(drop)
        })
    }

    fn delete_items(&self, collection: Id) -> Result<()> {
        let shelf = Shelf::items(collection);
        let mut after: Option<Vec<u8>> = None;
        loop {
            let pairs = self.records.base.pairs(&shelf.prefix(""), after.as_deref(), PAGE_PAIRS)?;
            let Some((last, _)) = pairs.last() else { return Ok(()) };
            for (key, _) in &pairs {
                if let Some((name, id)) = shelf.parse(key) {
                    self.records.remove(&ItemObject { collection, id, name: name.into() })?;
                }
            }
            after = Some(last.clone());
        }
    }
}

fn missing(operation: &'static str, collection: &str) -> Error {
    Error::new(ErrorKind::NotFound, operation).with("collection", collection)
}
