// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room behind the ends of objects that their users were promised.
//!
//! A promise is the offset in a segment up to which its tier has room for it. The segment's account
//! keeps that room reserved, and the tier's file system has allocated it where it can. A row in the
//! catalog tells the next opening, and is there before a file has anything behind its end: what a
//! crash leaves there is found again. Objects with a promise stay in memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use terrace_core::{End, Error, ErrorKind, Key, Object, Open, Persistency, Result, Semantics};

use crate::account::Class;
use crate::catalog::{Catalog, Write};
use crate::codec::{Reader, Writer};
use crate::entry::{Entry, Segment, Site};
use crate::shared::Shared;

const PROMISED: u8 = b'r';
const VERSION: u8 = 1;

/// Objects with a promise at a time: each stays in memory.
const OBJECTS_MAX: usize = 65_536;

/// The objects with a promise, by number.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    objects: Mutex<HashMap<u64, Arc<Entry>>>,
}

impl Promises {
    /// False where there are `most` already.
    fn add(&self, entry: &Arc<Entry>, most: usize) -> bool {
        let mut objects = crate::lock(&self.objects);
        let is_full = objects.len() >= most && !objects.contains_key(&entry.object_id);
        if !is_full {
            objects.insert(entry.object_id, Arc::clone(entry));
        }
        !is_full
    }

    fn remove(&self, object_id: u64) {
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
        if count > crate::record::SEGMENTS_MAX {
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
}

fn row_key(object_id: u64) -> Vec<u8> {
    [&[PROMISED][..], &object_id.to_be_bytes()].concat()
}

/// Up to where something is promised to these segments behind their ends, by number.
fn ends(segments: &[Arc<Segment>]) -> Vec<(u32, u64)> {
    let promised = segments.iter().filter(|segment| segment.reach() > segment.length());
    promised.map(|segment| (segment.number, segment.reach())).collect()
}

/// The row of an object with these segments; none where nothing is promised to it, nor just about
/// to be.
fn row(entry: &Entry, segments: &[Arc<Segment>]) -> Write<'static> {
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

impl Shared {
    /// Notes that something is about to be promised to an object, before any of its files has room
    /// behind its end; to be ended with [`Shared::end_promising`].
    ///
    /// # Errors
    ///
    /// `Unsupported` where too many objects have a promise.
    pub(crate) fn begin_promising(&self, entry: &Arc<Entry>) -> Result<()> {
        entry.promising.fetch_add(1, Ordering::AcqRel);
        // Whoever takes the row away is waited for; whoever comes later sees the count.
        let changes = crate::lock(&entry.changes);
        let has_row = entry.is_promised();
        drop(changes);
        if has_row {
            return Ok(());
        }
        self.note_promises(entry).inspect_err(|_| {
            entry.promising.fetch_sub(1, Ordering::AcqRel);
        })
    }

    /// Notes what came of it.
    pub(crate) fn end_promising(&self, entry: &Arc<Entry>) -> Result<()> {
        entry.promising.fetch_sub(1, Ordering::AcqRel);
        self.note_promises(entry)
    }

    /// Writes what is promised to an object to the catalog.
    pub(crate) fn note_promises(&self, entry: &Arc<Entry>) -> Result<()> {
        let _changes = crate::lock(&entry.changes);
        if entry.is_deleted() {
            return Ok(());
        }
        let row = row(entry, &entry.segments.load());
        let is_any = matches!(row, Write::Row(_, Some(_)));
        if is_any && !self.promises.add(entry, OBJECTS_MAX) {
            return Err(Error::new(ErrorKind::Unsupported, "reserve room")
                .because("too many objects have room behind their ends")
                .with("objects_max", OBJECTS_MAX)
                .with("key", &entry.key));
        }
        let noted = self.catalog.commit(&[row]).map(drop);
        // Where the first row could not be written nothing may be promised; one that could not be
        // taken away is there still.
        let is_promised = if noted.is_ok() { is_any } else { entry.is_promised() };
        entry.is_promise_unnoted.store(noted.is_err(), Ordering::Release);
        entry.set_promised(is_promised);
        if !is_promised {
            self.promises.remove(entry.object_id);
        }
        noted?;
        self.failpoints.hit("promise.catalog")
    }

    /// Takes back what was promised to an object in `range` since `before`, and segments that it got
    /// for that. Where somebody writes past its guards a part stays promised.
    pub(crate) fn take_back_promises(
        &self,
        entry: &Arc<Entry>,
        before: &Promised,
        range: &Range<u64>,
    ) -> Result<()> {
        if entry.is_deleted() {
            return Ok(());
        }
        let mut taken_back = Ok(());
        for segment in entry.segments.load_full().iter() {
            let reach = before.0.get(&segment.number).copied().unwrap_or(0);
            let (start, length) = (segment.start_bytes, segment.length());
            let limit = start.saturating_add(segment.limit_bytes.load(Ordering::Acquire));
            // A tier that refused may have given its file a part.
            let may_have_part =
                reach <= length && start + length < range.end && range.start < limit;
            if segment.reach() > reach.max(length) || may_have_part {
                // Where it fails for one, the others have theirs back all the same.
                taken_back = taken_back.and(self.take_back_promise(entry, segment, reach));
            }
        }
        let cut = self.cut_empty(entry, &|segment| !before.0.contains_key(&segment.number));
        taken_back.and(cut.map(drop))
    }

    /// Has a segment reach to `reach_bytes` only, or to its end where that is behind it.
    fn take_back_promise(
        &self,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        reach_bytes: u64,
    ) -> Result<()> {
        let _closed = self.close(segment);
        self.take_back_closed(entry, segment, reach_bytes)
    }

    fn take_back_closed(
        &self,
        entry: &Arc<Entry>,
        segment: &Segment,
        reach_bytes: u64,
    ) -> Result<()> {
        if self.is_bare || segment.holds.is_written() {
            return Ok(());
        }
        let location = segment.location.load_full();
        let handle = location.primary.open(self.backend(&location.primary))?;
        let object = handle.as_ref().expect("it was just opened");
        let stat = object.stat()?;
        // To the length that it has: no byte changes, and clean copies stay.
        object.set_len(stat.size_bytes)?;
        let kept = match reach_bytes > stat.size_bytes {
            true => allocate_behind(&***object, stat.size_bytes..reach_bytes),
            false => Ok(()),
        };
        // Where the file's system has given the room away meanwhile, the account still has it.
        segment.promise_only(reach_bytes);
        segment.note_unsure();
        self.trim_cut(entry, segment);
        kept.and_then(|()| object.set_modified(stat.modified_ns))
    }

    /// An object is gone, and what it was promised with it.
    pub(crate) fn forget_promises(&self, entry: &Entry) {
        if entry.is_promised() {
            self.promises.remove(entry.object_id);
        }
    }

    /// Forgets promises that were made use of, after the last handle was closed, and notes what could
    /// not be noted before.
    pub(crate) fn tidy_promises(&self, entry: &Arc<Entry>) {
        let is_kept = |segment: &Arc<Segment>| segment.reach() > segment.length();
        let is_over = self.is_closing.load(Ordering::Acquire);
        let is_unnoted = entry.is_promise_unnoted.load(Ordering::Acquire);
        if is_over || !is_unnoted && entry.segments.load().iter().any(is_kept) {
            return;
        }
        // What stays is looked at by the next opening.
        if let Err(error) = self.note_promises(entry) {
            tracing::debug!(key = %entry.key, %error, "cannot forget a promise of room");
        }
    }
}

/// Takes back what an earlier opening promised; how many objects lost their promise, because there
/// is no room for it any more. After a crash files may have room behind their ends that was never
/// promised, or was given back: that is given back first.
pub(crate) fn load(shared: &Shared, was_crash: bool) -> Result<u64> {
    let mut lost = 0;
    for (object_id, row) in rows(&shared.catalog)? {
        let entry = match shared.borrow_entry(&row.key) {
            Ok(entry) => entry.filter(|entry| entry.object_id == object_id),
            // A damaged record is reported where it is used.
            Err(error) if error.kind() == ErrorKind::Corrupt => continue,
            Err(error) => return Err(error),
        };
        let Some(entry) = entry else {
            shared.catalog.commit(&[Write::Row(row_key(object_id), None)])?;
            continue;
        };
        entry.set_promised(true);
        let mut has_all = true;
        for segment in entry.segments.load().iter() {
            let end = row.ends.iter().find(|(number, _)| *number == segment.number);
            let end_bytes = end.map_or(0, |(_, end_bytes)| *end_bytes);
            has_all &= take(shared, &entry, segment, end_bytes, was_crash);
        }
        lost += u64::from(!has_all);
        let is_noted = ends(&entry.segments.load()) == row.ends && !row.ends.is_empty();
        if !(is_noted && shared.promises.add(&entry, OBJECTS_MAX)) {
            shared.note_promises(&entry)?;
        }
    }
    Ok(lost)
}

/// Takes room for a segment up to `end_bytes`; false where there is none. What the file has allocated
/// is accounted then.
fn take(
    shared: &Shared,
    entry: &Arc<Entry>,
    segment: &Segment,
    end_bytes: u64,
    was_crash: bool,
) -> bool {
    let has_room = take_up_to(shared, entry, segment, end_bytes, was_crash);
    if was_crash && !segment.holds.is_held() {
        // What its file got behind its end outlives a clean close, as if it was promised just now.
        entry.is_unsynced.store(true, Ordering::Release);
        segment.note_unsure();
        shared.fit_room(entry, segment, &mut crate::lock(&segment.accounted));
    }
    has_room
}

fn take_up_to(
    shared: &Shared,
    entry: &Entry,
    segment: &Segment,
    end_bytes: u64,
    was_crash: bool,
) -> bool {
    let location = segment.location.load_full();
    let tier = shared.tier(location.primary.place.tier);
    // Who still writes to a file past the stack may make it longer meanwhile: its end is not touched.
    let was_crash = was_crash && !segment.holds.is_held();
    if was_crash {
        location.sites().for_each(|site| give_back(shared, site));
    }
    let length = segment.length();
    let end_bytes = end_bytes.min(segment.limit_bytes.load(Ordering::Acquire));
    if end_bytes <= length {
        return true;
    }
    let mut accounted = crate::lock(&segment.accounted);
    let room = accounted.total();
    let more = (segment.amount() + end_bytes - length).saturating_sub(room);
    let has_room = tier.account.take(Class::Reserved, more, tier.capacity_bytes());
    let is_there = || !was_crash || !tier.is_online();
    let range = length..end_bytes;
    if !has_room || !is_there() && allocate(shared, &location.primary, range).is_err() {
        if has_room {
            tier.account.free(Class::Reserved, more);
        }
        if !segment.holds.is_held() {
            give_back(shared, &location.primary);
        }
        return false;
    }
    // Of the quota it was taken before, whatever the limit is now.
    entry.usage.bytes.found(more);
    accounted.reserved_bytes += more;
    if !segment.is_sparse() {
        segment.room_bytes.store(room + more, Ordering::Release);
    }
    segment.promise(end_bytes);
    true
}

/// Changes what a file has behind its end; its time stays.
fn change(
    shared: &Shared,
    site: &Site,
    change: impl FnOnce(&dyn Object, u64) -> Result<()>,
) -> Result<()> {
    let how = Open::write().with_semantics(Semantics::at_level(Persistency::None));
    let object = shared.backend(site).open(&site.key, &how)?;
    let stat = object.stat()?;
    change(&*object, stat.size_bytes)?;
    object.set_modified(stat.modified_ns)
}

/// Gives back what a file has behind its end. What cannot be given back now is with the next cut.
pub(crate) fn give_back(shared: &Shared, site: &Site) {
    if !shared.tier(site.place.tier).is_online() {
        return;
    }
    if let Err(error) = change(shared, site, |object, length| object.set_len(length)) {
        tracing::warn!(file = %site.key, %error, "cannot give back room behind an end");
    }
}

fn allocate(shared: &Shared, site: &Site, range: Range<u64>) -> Result<()> {
    change(shared, site, |object, _| allocate_behind(object, range))
}

/// Has a tier's file allocate a range without becoming longer; where the file system cannot, the
/// accounts alone keep the room.
pub(crate) fn allocate_behind(object: &dyn Object, range: Range<u64>) -> Result<()> {
    match object.allocate(range, End::Stays) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use terrace_core::{Hint, Layout};

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
