// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room behind the ends of objects that their users were promised.
//!
//! A promise is the offset in a segment up to which its tier has room for it. The segment's account
//! keeps that room reserved, and the tier's file system has allocated it where it can. A row in the
//! catalog tells the next opening, and is there before a file has anything behind its end: what a
//! crash leaves there is found again. Objects with a promise stay in memory.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use terrace_core::{Key, Result};

use crate::catalog::codec::{Reader, Writer};
use crate::catalog::map::{Catalog, Write};
use crate::memory::entry::{Entry, Segment};

const PROMISED: u8 = b'r';
const VERSION: u8 = 1;

/// Objects with a promise at a time: each stays in memory.
pub(crate) const OBJECTS_MAX: usize = 65_536;

/// The objects with a promise, by number.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    objects: Mutex<HashMap<u64, Arc<Entry>>>,
}

impl Promises {
    /// False where there are `most` already.
    pub(crate) fn add(&self, entry: &Arc<Entry>, most: usize) -> bool {
        let mut objects = crate::lock(&self.objects);
        let is_full = objects.len() >= most && !objects.contains_key(&entry.object_id);
        if !is_full {
            objects.insert(entry.object_id, Arc::clone(entry));
        }
        !is_full
    }

    pub(crate) fn remove(&self, object_id: u64) {
        let removed = crate::lock(&self.objects).remove(&object_id);
        // The last reference may close files: behind the lock.
        drop(removed);
    }
}

/// What the catalog says of an object's promises: up to where, by the number of the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromiseRow {
    pub(crate) key: Key,
    pub(crate) ends: Vec<(u32, u64)>,
}

impl PromiseRow {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(VERSION);
        out.text(self.key.as_str()).u32(self.ends.len() as u32);
        for (segment, end_bytes) in &self.ends {
            out.u32(*segment).u64(*end_bytes);
        }
        out.finish()
    }

    /// # Errors
    ///
    /// `Corrupt` for anything that `encode` does not write.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(bytes, VERSION, "promise of room")?;
        let key = input.text()?;
        let key = Key::parse(&key).map_err(|_| input.wrong("its key is illegal"))?;
        let count = input.u32()?;
        if count > crate::catalog::record::SEGMENTS_MAX {
            return Err(input.wrong("its number of segments is out of bounds"));
        }
        let mut ends = Vec::new();
        for _ in 0..count {
            ends.push((input.u32()?, input.u64()?));
        }
        input.finish()?;
        Ok(Self { key, ends })
    }
}

/// What an object is promised at a moment: where the segments reach that it has, by number.
pub(crate) struct Promised(HashMap<u32, u64>);

impl Promised {
    pub(crate) fn of(entry: &Entry) -> Self {
        let segments = entry.segments.load();
        Self(segments.iter().map(|segment| (segment.number, segment.reach())).collect())
    }

    /// Where a segment reached; `None` for one that the object did not have.
    pub(crate) fn reach(&self, segment: u32) -> Option<u64> {
        self.0.get(&segment).copied()
    }
}

pub(crate) fn row_key(object_id: u64) -> Vec<u8> {
    [&[PROMISED][..], &object_id.to_be_bytes()].concat()
}

/// Up to where something is promised to these segments behind their ends, by number.
pub(crate) fn ends(segments: &[Arc<Segment>]) -> Vec<(u32, u64)> {
    let promised = segments.iter().filter(|segment| segment.reach() > segment.length());
    promised.map(|segment| (segment.number, segment.reach())).collect()
}

/// The row of an object with these segments; none where nothing is promised to it, nor just about
/// to be.
pub(crate) fn row(entry: &Entry, segments: &[Arc<Segment>]) -> Write<'static> {
    let ends = ends(segments);
    let is_there = !ends.is_empty() || entry.promising.load(Ordering::Acquire) > 0;
    let row = is_there.then(|| PromiseRow { key: entry.key.clone(), ends }.encode());
    Write::Row(row_key(entry.object_id), row)
}

/// What a commit that leaves an object with these segments says of its promises.
pub(crate) fn write(entry: &Entry, segments: &[Arc<Segment>]) -> Option<Write<'static>> {
    entry.is_promised().then(|| row(entry, segments))
}

/// What a commit that removes an object says of its promises.
pub(crate) fn write_gone(entry: &Entry) -> Option<Write<'static>> {
    entry.may_have_promise_row().then(|| Write::Row(row_key(entry.object_id), None))
}

/// All promises of the catalog, by the number of the object; those that cannot be read are left out.
pub(crate) fn rows(catalog: &Catalog) -> Result<HashMap<u64, PromiseRow>> {
    let rows = catalog.rows(PROMISED)?.into_iter();
    let row = |(key, value): (Vec<u8>, Vec<u8>)| {
        let number = <[u8; 8]>::try_from(&key[1..]).ok()?;
        Some((u64::from_be_bytes(number), PromiseRow::decode(&value).ok()?))
    };
    Ok(rows.filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::record::Record;
    use terrace_core::{Hint, Layout, Persistency};

    fn key() -> Key {
        Key::new("test", "name").expect("legal")
    }

    fn entry(object_id: u64) -> Arc<Entry> {
        let record = Record {
            object_id,
            is_pinned: false,
            persistency: Persistency::Process,
            hint: Hint::default(),
            created_ns: 0,
            layout: Layout::One,
            segments: Vec::new(),
            identity: None,
            label: None,
            is_draft: false,
        };
        Arc::new(Entry::new(key(), &record, Vec::new(), Arc::default()))
    }

    #[test]
    fn no_more_objects_than_stay_in_memory_are_promised_room() {
        let promises = Promises::default();
        let [one, two, three] = [1, 2, 3].map(entry);
        assert!(promises.add(&one, 2) && promises.add(&two, 2));
        assert!(!promises.add(&three, 2));
        assert!(promises.add(&one, 2), "it counts already");
        promises.remove(2);
        assert!(promises.add(&three, 2));
        assert_eq!(Arc::strong_count(&two), 1, "what is forgotten may leave memory");
    }

    #[test]
    fn a_row_survives_its_encoding_and_damage_is_noticed() {
        let row = PromiseRow { key: key(), ends: vec![(0, 4096), (7, u64::MAX)] };
        let bytes = row.encode();
        assert_eq!(PromiseRow::decode(&bytes).expect("own encoding"), row);
        for index in 0..bytes.len() {
            assert!(PromiseRow::decode(&bytes[..index]).is_err(), "cut at {index}");
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert!(PromiseRow::decode(&damaged).is_err(), "byte {index}");
        }
    }
}
