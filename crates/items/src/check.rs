// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds, and on request removes, what interrupted operations left.

use std::collections::HashMap;

use terrace_core::{Cursor, ErrorKind, Key, Pair, Result, Stat};

use crate::claim::delete_if_exists;
use crate::name::Id;
use crate::place::{
    CLAIM_OBJECTS, ITEM_OBJECTS, ItemObject, Shelf, all_items, collection_of, is_claim,
};
use crate::record::Record;
use crate::records::PAGE_PAIRS;
use crate::{Base, Items};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// The item as `collection/name` where it has one, or the key of an object or pair.
    pub place: String,
    /// Whether it was removed.
    pub is_removed: bool,
}

/// What is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// A claim that was not given back: its name cannot be made or deleted.
    Claim,
    /// An object without a record: no name leads to it.
    Object,
    /// A record without an object: an item that cannot be opened.
    Record,
    /// A record of a collection that is gone. Removed with its object, but only while that has no
    /// bytes: what was left while its collection was deleted has none, so else the collection's
    /// record was lost.
    Lost,
    /// An object without a record, of a collection that is gone. Never removed: after a rebuild
    /// without a backup all objects are.
    Stranded,
    /// A record that cannot be read. Never removed: `terrace item rm` does that.
    Damaged,
    /// A second item of a name, which is hidden by the first. Never removed.
    Hidden,
    /// A pair or object that nothing here wrote. Never removed.
    Foreign,
}

impl FindingKind {
    /// The word scripts see.
    pub fn word(self) -> &'static str {
        match self {
            FindingKind::Claim => "claim",
            FindingKind::Object => "object",
            FindingKind::Record => "record",
            FindingKind::Lost => "lost",
            FindingKind::Stranded => "stranded",
            FindingKind::Damaged => "damaged",
            FindingKind::Hidden => "hidden",
            FindingKind::Foreign => "foreign",
        }
    }

    /// What it means, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            FindingKind::Claim => "an interrupted create or delete still claims the name",
            FindingKind::Object => "an object that belongs to no item",
            FindingKind::Record => "an item without its object",
            FindingKind::Lost => "an item of a collection that is gone",
            FindingKind::Stranded => {
                "an object without an item, of a collection that is gone; `terrace rm` removes it"
            }
            FindingKind::Damaged => "a record that cannot be read; `item rm` removes it",
            FindingKind::Hidden => "hidden by another item of its name; `item rm` removes that one",
            FindingKind::Foreign => "not written by `terrace item`",
        }
    }
}

/// What a check saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Collections.
    pub collections: u64,
    /// Items of collections that are there.
    pub items: u64,
    /// What would have been a finding and is too young to be one: an operation on it may be under
    /// way.
    pub young: u64,
    /// Findings that were not removed.
    pub problems: u64,
    /// Findings that were.
    pub removed: u64,
}

impl Items {
    /// Compares records, objects and claims with each other, page by page.
    ///
    /// What others make or delete at the same time looks like what an interruption leaves, but is
    /// younger: only what is older than `before_ns` (nanoseconds since 1970) is a finding. With
    /// `is_repair` it is removed where [`FindingKind`] does not say otherwise. `report` gets every
    /// finding as it comes; an error of it ends the check.
    ///
    /// # Errors
    ///
    /// Those of `report`, and what the store says. What was removed by then stays so.
    pub fn check(
        &self,
        before_ns: u64,
        is_repair: bool,
        report: &mut dyn FnMut(&Finding) -> Result<()>,
    ) -> Result<Summary> {
        let summary = Summary::default();
        let mut check = Check { base: &*self.records.base, before_ns, is_repair, report, summary };
        // Collections first: one that is made later has only young items. Objects after records,
        // so that those of records that are removed are found.
        let collections = check.collections()?;
        check.item_records(&collections)?;
        check.objects(ITEM_OBJECTS, &mut |check, key| check.item_object(&collections, key))?;
        check.objects(CLAIM_OBJECTS, &mut Check::claim)?;
        Ok(check.summary)
    }
}

/// A check that runs.
struct Check<'a> {
    base: &'a dyn Base,
    before_ns: u64,
    is_repair: bool,
    report: &'a mut dyn FnMut(&Finding) -> Result<()>,
    summary: Summary,
}

impl<'a> Check<'a> {
    /// The names of all collections by their ids.
    fn collections(&mut self) -> Result<HashMap<Id, String>> {
        let shelf = Shelf::collections();
        let mut names: HashMap<Id, String> = HashMap::new();
        let mut last = String::new();
        self.pairs(&shelf.prefix(""), &mut |check, (key, value)| {
            let Some((name, id)) = shelf.parse(key) else { return check.foreign_pair(key) };
            check.summary.collections += 1;
            names.insert(id, name.into());
            if last == name {
                check.found(FindingKind::Hidden, name.into(), None)?;
            }
            last = name.into();
            if Record::decode(value).is_err() {
                check.found(FindingKind::Damaged, name.into(), None)?;
            }
            Ok(())
        })?;
        Ok(names)
    }

    fn item_records(&mut self, collections: &HashMap<Id, String>) -> Result<()> {
        let mut last = None;
        self.pairs(&all_items(), &mut |check, (key, value)| {
            let parsed = collection_of(key).and_then(|collection| {
                let (name, id) = Shelf::items(collection).parse(key)?;
                Some(ItemObject { collection, id, name: name.into() })
            });
            let Some(item) = parsed else { return check.foreign_pair(key) };
            let is_second = last.replace((item.collection, item.name.clone()))
                == Some((item.collection, item.name.clone()));
            let collection = collections.get(&item.collection);
            let place = match collection {
                Some(collection) => format!("{collection}/{}", item.name),
                None => format!("{}/{}", item.collection, item.name),
            };
            let Ok(record) = Record::decode(value) else {
                return check.found(FindingKind::Damaged, place, None);
            };
            if collection.is_none() {
                return check.lost(key, &item, record, place);
            }
            check.summary.items += 1;
            if is_second {
                check.found(FindingKind::Hidden, place.clone(), None)?;
            }
            check.item_record(key, &item, record, place)
        })
    }

    /// The record of an item whose collection is there.
    fn item_record(
        &mut self,
        key: &[u8],
        item: &ItemObject,
        record: Record,
        place: String,
    ) -> Result<()> {
        match self.base.stat(&item.key()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other.map(drop),
        }
        // A deletion removes the record first: is it still there?
        if self.base.pair(key)?.is_none() {
            self.summary.items -= 1;
        } else if record.created_ns >= self.before_ns {
            self.summary.young += 1;
        } else {
            let base = self.base;
            let remove = || base.remove_pair(key).map(drop);
            self.found(FindingKind::Record, place, Some(&remove))?;
        }
        Ok(())
    }

    /// The record of an item whose collection is gone.
    fn lost(&mut self, key: &[u8], item: &ItemObject, record: Record, place: String) -> Result<()> {
        if record.created_ns >= self.before_ns {
            self.summary.young += 1;
            return Ok(());
        }
        let base = self.base;
        let remove = || {
            base.remove_pair(key)?;
            delete_if_exists(base, &item.key())
        };
        match base.stat(&item.key()) {
            Ok(stat) if stat.size_bytes > 0 => self.found(FindingKind::Lost, place, None),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => self.found(FindingKind::Lost, place, Some(&remove)),
        }
    }

    fn item_object(&mut self, collections: &HashMap<Id, String>, key: &Key) -> Result<()> {
        let Some(item) = ItemObject::parse(key.name()) else {
            return self.found(FindingKind::Foreign, key.to_string(), None);
        };
        let record = Shelf::items(item.collection).key(&item.name, item.id);
        if self.base.pair(&record)?.is_some() {
            return Ok(());
        }
        match collections.contains_key(&item.collection) {
            true => self.left_object(FindingKind::Object, key),
            false => self.left_object(FindingKind::Stranded, key),
        }
    }

    fn claim(&mut self, key: &Key) -> Result<()> {
        match is_claim(key.name()) {
            true => self.left_object(FindingKind::Claim, key),
            false => self.found(FindingKind::Foreign, key.to_string(), None),
        }
    }

    /// An object that should not be there, unless an operation on it is under way.
    fn left_object(&mut self, kind: FindingKind, key: &Key) -> Result<()> {
        match self.base.stat(key) {
            // Gone since it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(stat) if age_mark_ns(&stat) >= self.before_ns => {
                self.summary.young += 1;
                Ok(())
            }
            Ok(_) => {
                let base = self.base;
                let remove = || delete_if_exists(base, key);
                let may_remove = kind != FindingKind::Stranded;
                self.found(kind, key.to_string(), may_remove.then_some(&remove))
            }
        }
    }

    fn foreign_pair(&mut self, key: &[u8]) -> Result<()> {
        self.found(FindingKind::Foreign, format!("pair {}", key.escape_ascii()), None)
    }

    /// Counts and reports a finding; carries out `remove` where there is a way and it is wanted.
    fn found(
        &mut self,
        kind: FindingKind,
        place: String,
        remove: Option<&dyn Fn() -> Result<()>>,
    ) -> Result<()> {
        let remove = remove.filter(|_| self.is_repair);
        let is_removed = remove.is_some();
        if let Some(remove) = remove {
            remove()?;
            self.summary.removed += 1;
        } else {
            self.summary.problems += 1;
        }
        (self.report)(&Finding { kind, place, is_removed })
    }

    /// Calls `each` with all pairs with this prefix.
    fn pairs(
        &mut self,
        prefix: &[u8],
        each: &mut dyn FnMut(&mut Self, &Pair) -> Result<()>,
    ) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let pairs = self.base.pairs(prefix, after.as_deref(), PAGE_PAIRS)?;
            for pair in &pairs {
                each(self, pair)?;
            }
            match pairs.into_iter().next_back() {
                Some((key, _)) => after = Some(key),
                None => return Ok(()),
            }
        }
    }

    /// Calls `each` with all objects with this prefix.
    fn objects(
        &mut self,
        prefix: &str,
        each: &mut dyn FnMut(&mut Self, &Key) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = Cursor::start();
        loop {
            let page = self.base.list(prefix, &cursor, PAGE_PAIRS)?;
            for key in &page.keys {
                each(self, key)?;
            }
            match page.next {
                Some(next) => cursor = next,
                None => return Ok(()),
            }
        }
    }
}

/// When an object was made, or where that is unknown, last written.
fn age_mark_ns(stat: &Stat) -> u64 {
    if stat.created_ns > 0 { stat.created_ns } else { stat.modified_ns }
}
