// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of collections and items: found, listed and removed by their names.

use std::fmt;
use std::sync::Arc;

use terrace_core::{Clock, Cursor, Error, ErrorKind, Result};

use crate::base::Base;
use crate::claim::delete_if_exists;
use crate::name::{Id, check_prefix};
use crate::place::{ItemObject, Shelf};
use crate::record::Record;

/// Pairs asked for at a time where all of them are wanted.
pub(crate) const PAGE_PAIRS: usize = 1000;

/// The records over one base. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) base: Arc<dyn Base>,
    clock: Arc<dyn Clock>,
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

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Records {
    pub(crate) fn new(base: Arc<dyn Base>, clock: Arc<dyn Clock>) -> Self {
        Self { base, clock }
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
    pub(crate) fn now(&self) -> Record {
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
