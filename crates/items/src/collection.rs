// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open collection.

use terrace_core::{Create, Cursor, Draft, Error, ErrorKind, Key, Open, Persistency, Result};

use crate::claim::{delete_if_exists, with_claim};
use crate::name::{Id, check_item};
use crate::place::{ItemObject, Shelf, collection_claim, item_claim};
use crate::record::Record;
use crate::records::{Found, NamePage, Records};
use crate::{Item, ItemDraft, Status};

/// How often an item is looked for again that was deleted, and perhaps made again, meanwhile.
const ROUNDS_MAX: usize = 10;

/// A set of items, each with a name that is its own in it. Cloning is cheap.
///
/// It stays the collection that was opened: once that is deleted nothing is found in it and nothing
/// can be made, also where another has its name by then.
#[derive(Clone, Debug)]
pub struct Collection {
    records: Records,
    name: String,
    id: Id,
    record: Record,
}

impl Collection {
    pub(crate) fn new(records: Records, name: &str, id: Id, record: Record) -> Self {
        Self { records, name: name.into(), id, record }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it was made, nanoseconds since 1970 by the clock of its maker.
    pub fn created_ns(&self) -> u64 {
        self.record.created_ns
    }

    /// Opens an item, making it where `how` says so, with the words for objects: semantics, hint
    /// and size are those of its object, and the record is as durable.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Exists` (with [`Create::New`]), `Busy` (another caller makes it just now, or
    /// deletes the collection), `Invalid` (the name), `Corrupt` (its record is damaged, or its
    /// object is missing), and what the store returns. A crash leaves the item or none, and perhaps
    /// an object or a claim that [`Items::check`](crate::Items::check) finds.
    pub fn open(&self, name: &str, how: &Open) -> Result<Item> {
        const OPERATION: &str = "open an item";
        check_item(name)?;
        for _ in 0..ROUNDS_MAX {
            if how.create == Create::New {
                return self.create(name, how);
            }
            let existing = Open { create: Create::Never, ..how.clone() };
            let opened = self.at(OPERATION, name, &|key| self.records.base.open(key, &existing));
            match opened {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => return other.map(|(key, object)| Item::new(name, key, object)),
            }
            if how.create == Create::Never {
                return Err(self.error(ErrorKind::NotFound, OPERATION, name));
            }
            match self.create(name, how) {
                // Another caller was faster.
                Err(error) if error.kind() == ErrorKind::Exists => {}
                other => return other,
            }
        }
        Err(self.error(ErrorKind::Busy, OPERATION, name))
    }

    /// Begins a new value of an item, making the item where `how` says so. Readers get the old value,
    /// or find no item, until it is published; dropped before, it leaves nothing.
    ///
    /// # Errors
    ///
    /// As [`Collection::open`]; `Unsupported` where the store has no drafts.
    pub fn draft(&self, name: &str, how: &Open) -> Result<ItemDraft> {
        const OPERATION: &str = "replace an item";
        check_item(name)?;
        if how.create != Create::New {
            let existing = Open { create: Create::Never, ..how.clone() };
            match self.at(OPERATION, name, &|key| self.records.base.draft(key, &existing)) {
                Err(error)
                    if error.kind() == ErrorKind::NotFound && how.create == Create::IfMissing => {}
                begun => {
                    let (key, draft) = begun?;
                    let publish = |draft: &dyn Draft| draft.publish().map(drop);
                    return Ok(ItemDraft::new(key, draft, Box::new(publish)));
                }
            }
        } else if self.records.find(&Shelf::items(self.id), name)?.is_some() {
            return Err(self.error(ErrorKind::Exists, OPERATION, name));
        }
        let item = self.item(name, Id::random()?);
        let new = Open { create: Create::New, ..how.clone() };
        let draft = self.records.base.draft(&item.key(), &new)?;
        let (collection, level) = (self.clone(), how.semantics.persistency);
        let key = item.key();
        let publish = move |draft: &dyn Draft| collection.publish(&item, draft, level);
        Ok(ItemDraft::new(key, draft, Box::new(publish)))
    }

    /// Size and times of an item. They are those of its object: right at once for everybody, also
    /// where a program writes to the object alone, and no write has a second thing to change.
    ///
    /// # Errors
    ///
    /// As [`Collection::open`] of an item that shall exist.
    pub fn status(&self, name: &str) -> Result<Status> {
        check_item(name)?;
        let (object, stat) = self.at("stat an item", name, &|key| self.records.base.stat(key))?;
        Ok(Status { object, stat })
    }

    /// Up to `max` items whose names begin with `prefix`, from `cursor` on, in order.
    ///
    /// # Errors
    ///
    /// `Invalid` for a cursor of another listing, and what the store says.
    pub fn list(&self, prefix: &str, cursor: &Cursor, max: usize) -> Result<NamePage> {
        self.records.page(&Shelf::items(self.id), prefix, cursor, max)
    }

    /// Deletes an item; of several that do one succeeds. A crash leaves the item, or none and
    /// perhaps its object, which [`Items::check`](crate::Items::check) finds.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid` (the name), and what the store says.
    pub fn delete(&self, name: &str) -> Result<()> {
        const OPERATION: &str = "delete an item";
        check_item(name)?;
        let found = self.records.find(&Shelf::items(self.id), name)?;
        let is_removed = match found {
            Some(Found { id, .. }) => self.records.remove(&self.item(name, id))?,
            None => false,
        };
        if is_removed { Ok(()) } else { Err(self.error(ErrorKind::NotFound, OPERATION, name)) }
    }

    /// Deletes the item with this object ([`Item::key`]), and no other that has its name by now.
    ///
    /// # Errors
    ///
    /// `NotFound`, also for an object that is none of this collection's items, and what the store
    /// says.
    pub fn delete_object(&self, object: &Key) -> Result<()> {
        let item = ItemObject::parse(object.name())
            .filter(|item| item.collection == self.id && item.key() == *object);
        let is_removed = match &item {
            Some(item) => self.records.remove(item)?,
            None => false,
        };
        if is_removed {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, "delete an item")
            .with("collection", &self.name)
            .with("object", object))
    }

    /// Makes an item: claim, object, record. The record is the moment from which on it is there.
    fn create(&self, name: &str, how: &Open) -> Result<Item> {
        const OPERATION: &str = "create an item";
        let base = &*self.records.base;
        let item = self.item(name, Id::random()?);
        let shelf = Shelf::items(self.id);
        with_claim(base, &item_claim(self.id, name), OPERATION, || {
            if self.records.find(&shelf, name)?.is_some() {
                return Err(self.error(ErrorKind::Exists, OPERATION, name));
            }
            let key = item.key();
            let object = base.open(&key, &Open { create: Create::New, ..how.clone() })?;
            self.record(OPERATION, &item, how.semantics.persistency)?;
            Ok(Item::new(name, key, object))
        })
    }

    /// Publishes the object of a new item, and then its record.
    fn publish(&self, item: &ItemObject, draft: &dyn Draft, level: Persistency) -> Result<()> {
        const OPERATION: &str = "create an item";
        let name = &item.name;
        with_claim(&*self.records.base, &item_claim(self.id, name), OPERATION, || {
            if self.records.find(&Shelf::items(self.id), name)?.is_some() {
                return Err(self.error(ErrorKind::Exists, OPERATION, name));
            }
            draft.publish()?;
            self.record(OPERATION, item, level)
        })
    }

    /// Writes the record of an item whose object is there: that is the moment from which on the item is.
    /// Takes the object back where it cannot be.
    fn record(&self, operation: &'static str, item: &ItemObject, level: Persistency) -> Result<()> {
        let base = &*self.records.base;
        let value = self.records.now().encode();
        let put = base.put_pair(&Shelf::items(self.id).key(&item.name, item.id), &value, level);
        put.and_then(|()| self.check_open(operation)).inspect_err(|_| {
            // The failure that is reported explains those of tidying up; the object goes also where the
            // record was not written.
            let _ = self.records.remove(item);
            let _ = delete_if_exists(base, &item.key());
        })
    }

    /// Fails where the collection is being deleted, or was. A deletion takes the claim, looks for
    /// items, and removes the collection, in this order; a caller that makes an item calls this
    /// when it is there. So one of the two sees the other.
    fn check_open(&self, operation: &'static str) -> Result<()> {
        let base = &*self.records.base;
        match base.stat(&collection_claim(&self.name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => {
                return Err(Error::new(ErrorKind::Busy, operation)
                    .because(
                        "its collection is being deleted, or that was interrupted: `terrace item \
                         check` shows and removes what was left",
                    )
                    .with("collection", &self.name));
            }
        }
        match base.pair(&Shelf::collections().key(&self.name, self.id))? {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::NotFound, operation)
                .because("its collection was deleted")
                .with("collection", &self.name)),
        }
    }

    /// Does something with the object of an item.
    fn at<T>(
        &self,
        operation: &'static str,
        name: &str,
        act: &dyn Fn(&Key) -> Result<T>,
    ) -> Result<(Key, T)> {
        let mut without_object = None;
        for _ in 0..ROUNDS_MAX {
            let found = self.records.find(&Shelf::items(self.id), name)?;
            let Some(Found { id, value }) = found else {
                return Err(self.error(ErrorKind::NotFound, operation, name));
            };
            Record::decode(&value).map_err(|error| self.about(error, name))?;
            if without_object == Some(id) {
                return Err(self
                    .error(ErrorKind::Corrupt, operation, name)
                    .because("its object is missing; `terrace item check` lists it"));
            }
            let key = self.item(name, id).key();
            match act(&key) {
                // Deleted since, or a record without an object: the next look tells.
                Err(error) if error.kind() == ErrorKind::NotFound => without_object = Some(id),
                Err(error) => return Err(self.about(error, name)),
                Ok(value) => return Ok((key, value)),
            }
        }
        Err(self.error(ErrorKind::Busy, operation, name))
    }

    fn item(&self, name: &str, id: Id) -> ItemObject {
        ItemObject { collection: self.id, id, name: name.into() }
    }

    fn error(&self, kind: ErrorKind, operation: &'static str, name: &str) -> Error {
        self.about(Error::new(kind, operation), name)
    }

    fn about(&self, error: Error, name: &str) -> Error {
        error.with("item", format_args!("{}/{name}", self.name))
    }
}
