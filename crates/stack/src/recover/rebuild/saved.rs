// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A catalog that was saved, or the one that is to be replaced: read as far as it can be.

use std::collections::HashSet;

use terrace_core::{Error, ErrorKind, Key, Kv, KvRange, Result};

use super::Saved;
use crate::Parts;
use crate::catalog::format::{APPLICATION, DOUBTFUL, GARBAGE, KEPT};
use crate::catalog::header::{Header, TierEntry};
use crate::catalog::map::{Catalog, HEADER_KEY, OBJECT};
use crate::catalog::record::{Record, SegmentRecord, TierNumbers};
use crate::catalog::versions::KeptRow;
use crate::recover::doubt;

/// Pairs that are copied together.
const BATCH_PAIRS: usize = 1000;

pub(super) struct SavedCatalog<'a> {
    kv: &'a dyn Kv,
    pub(super) is_present: bool,
    pub(super) header: Header,
    catalog: Catalog,
    /// Files that its rows of garbage name.
    garbage: HashSet<u64>,
    /// Files that it keeps because they are in doubt.
    doubtful: HashSet<u64>,
}

impl<'a> SavedCatalog<'a> {
    pub(super) fn read(saved: &'a Saved, parts: &Parts, store_id: u128) -> Result<Self> {
        let header = Catalog::header_of(&*saved.catalog)?.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "read the saved catalog").because("it has no header")
        })?;
        if header.store_id != store_id {
            return Err(Error::new(ErrorKind::Denied, "read the saved catalog")
                .because("it is that of another store")
                .with("store", format!("{:032x}", header.store_id))
                .with("expected_store", format!("{store_id:032x}")));
        }
        let catalog =
            Catalog::new(saved.catalog.clone(), header.clone(), numbers(parts, &header.tiers));
        let garbage = match catalog.garbage() {
            Ok(rows) => rows.into_iter().map(|row| row.place.file).collect(),
            // Without them, files that were to go are taken for what they say they are.
            Err(_) => HashSet::new(),
        };
        // These are not taken for superseded, so each must be known.
        let doubtful = match saved.is_present {
            true => doubt::rows(&catalog)?.into_iter().map(|row| row.place.file).collect(),
            false => HashSet::new(),
        };
        let (kv, is_present) = (&*saved.catalog, saved.is_present);
        Ok(Self { kv, is_present, header, catalog, garbage, doubtful })
    }

    /// Whether it is the present catalog, and the machine restarted since the store crashed.
    pub(super) fn was_rebooted(&self, boot: u64) -> bool {
        let header = &self.header;
        self.is_present && !header.is_clean && (header.is_rebooted || header.boot != boot)
    }

    /// Whether it is the present catalog, and a tier is drained.
    pub(super) fn is_draining(&self, tier: &str) -> bool {
        let found = self.header.tiers.iter().find(|entry| entry.name == tier);
        self.is_present && found.is_some_and(|entry| entry.is_draining)
    }

    /// The record of an object; `None` where there is none that can be read, or another object has
    /// the key.
    pub(super) fn record(&self, key: &Key, object_id: u64) -> Option<Record> {
        self.catalog.get(key).ok().flatten().filter(|record| record.object_id == object_id)
    }

    /// Whether the present catalog says that another object has the key.
    pub(super) fn knows_another(&self, key: &Key, object_id: u64) -> bool {
        let known = self.catalog.get(key).ok().flatten();
        self.is_present && known.is_some_and(|record| record.object_id != object_id)
    }

    /// Whether a file was to be deleted.
    pub(super) fn is_garbage(&self, file: u64) -> bool {
        self.is_present && self.garbage.contains(&file)
    }

    /// The files of its versions, as far as its rows can be read.
    pub(super) fn kept(&self) -> Result<Vec<KeptRow>> {
        self.catalog.kept_where(&mut |_| true)
    }

    /// Whether it is the present catalog, and a record of it says that a file has bytes of its object.
    pub(super) fn is_current(&self, key: &Key, object_id: u64, file: u64) -> bool {
        self.is_present
            && self.record(key, object_id).is_some_and(|record| {
                let current = |one: &SegmentRecord| {
                    one.primary.file == file || one.copies.iter().any(|copy| copy.file == file)
                };
                record.segments.iter().any(current)
            })
    }

    /// Whether a file is kept until a person decides.
    pub(super) fn is_doubtful(&self, file: u64) -> bool {
        self.doubtful.contains(&file)
    }

    /// Whether it says that an object is there no more.
    pub(super) fn is_gone(&self, key: &Key, object_id: u64) -> bool {
        let known = self.catalog.get(key);
        known.is_ok_and(|known| known.is_none_or(|record| record.object_id != object_id))
    }

    /// Calls `each` for every record that can be read.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(Key, Record) -> Result<()>) -> Result<()> {
        self.catalog.for_each(&mut |key, record| match record {
            Ok(record) => each(key, record),
            Err(_) => Ok(()),
        })
    }

    /// Copies what belongs to no object: pairs of applications, states of policies and the like.
    /// Returns how many pairs.
    pub(super) fn copy_rows(&self, target: &dyn Kv) -> Result<u64> {
        const REBUILT: [u8; 5] = [HEADER_KEY[0], OBJECT, GARBAGE, DOUBTFUL, KEPT];
        let mut range = KvRange::all();
        let mut copied = 0;
        loop {
            let pairs = self.kv.scan(&range, BATCH_PAIRS)?;
            let Some((last, _)) = pairs.last() else { return Ok(copied) };
            range = range.after(last);
            let rows = pairs.iter().filter(|(key, _)| !REBUILT.contains(&key[0]));
            target.transact(&mut |txn| {
                rows.clone().try_for_each(|(key, value)| txn.put(key, value))
            })?;
            copied += rows.filter(|(key, _)| key[0] == APPLICATION).count() as u64;
        }
    }
}

/// The numbers by which the saved catalog names the tiers of now. One that it does not know gets
/// a number that no record has.
fn numbers(parts: &Parts, known: &[TierEntry]) -> TierNumbers {
    let mut unused =
        (0..=u8::MAX).rev().filter(|number| known.iter().all(|one| one.number != *number));
    let numbers = parts.tiers.iter().map(|tier| {
        let entry = known.iter().find(|entry| entry.name == tier.name);
        entry.map_or_else(|| unused.next().expect("tiers are few"), |entry| entry.number)
    });
    TierNumbers::new(&numbers.collect::<Vec<_>>())
}
