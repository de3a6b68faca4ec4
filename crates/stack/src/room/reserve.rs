// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes and gives back room behind the ends of objects, and has the catalog say so first.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{End, Error, ErrorKind, Object, Open, Persistency, Result, Semantics};

use crate::catalog::map::Write;
use crate::memory::entry::{Entry, Segment};
use crate::memory::site::Site;
use crate::shared::Shared;
use crate::shared::promises::{OBJECTS_MAX, Promised, ends, row, row_key, rows};
use crate::tiers::account::Class;

impl Shared {
    /// Notes that something is about to be promised to an object, before any of its files has room
    /// behind its end; to be ended with [`Shared::end_promising`].
    ///
    /// # Errors
    ///
    /// `Unsupported` where too many objects have a promise.
    pub(crate) fn begin_promising(&self, entry: &Arc<Entry>) -> Result<()> {
        entry.promising.fetch_add(1, Ordering::AcqRel);
        // This waits for a thread that takes the row away; a later one sees the count.
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
    /// for that. Where its guards are bypassed by a writer a part stays promised.
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
            let reach = before.reach(segment.number).unwrap_or(0);
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
        let cut = self.cut_empty(entry, &|segment| before.reach(segment.number).is_none());
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
    // A writer past the stack may make the file longer meanwhile: its end is not touched.
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
    // A dense one may have holes, which were not looked for beside the room of before.
    segment.note_unsure();
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
    let tier = shared.tier(site.place.tier);
    // A file that was made as a whole has none.
    if !tier.is_online() || tier.is_whole() {
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
