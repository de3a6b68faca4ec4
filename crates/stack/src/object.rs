// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open object: the hot path.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use terrace_core::{
    Access, Buffer, End, Error, ErrorKind, EventKind, FileLease, Key, Object, Persistency,
    ReadBegun, ReadDone, ReadSummary, Result, Stat, TierIndex,
};

use crate::entries::Opened;
use crate::entry::{Location, Segment};
use crate::holds::Holder;
use crate::ledger::Count;
use crate::promises::{Promised, allocate_behind};
use crate::ring::Took;
use crate::shape::NoRoom;
use crate::shared::Shared;

/// Largest offset: an offset plus a length fits in 63 bits.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Longest block of a file system: a page of the largest size.
const BLOCK_BYTES_MAX: u64 = 64 << 10;

/// A handle on an object of a stack.
pub(crate) struct StackObject {
    shared: Arc<Shared>,
    entry: Opened,
    access: Access,
    level: Persistency,
    /// The first segment, which most objects have alone.
    first: Arc<Segment>,
    /// The tier's file of an object that nothing can move or divide, from its first use on.
    straight: OnceLock<Arc<Box<dyn Object>>>,
    /// Whether a write is more than its bytes: they are synced, or a failpoint is watched.
    is_followed: bool,
    /// What was lost once is not tried again as if it were there: later syncs fail too.
    has_failed_sync: AtomicBool,
    /// Whether this handle has lent the file, and holds its word.
    is_holder: AtomicBool,
    /// Whether it holds the object in its file.
    holder: Holder,
}

/// Why a piece of a write has to be looked at again.
enum Again {
    /// The segment ends before the piece does.
    Restructured,
    /// The namespace may not take up more: another tier does not help.
    OverQuota(Error),
    Failed(Error),
}

impl From<NoRoom> for Again {
    fn from(refusal: NoRoom) -> Self {
        match refusal {
            NoRoom::Here(error) => Again::Failed(error),
            NoRoom::InQuota(error) => Again::OverQuota(error),
        }
    }
}

impl From<Error> for Again {
    fn from(error: Error) -> Self {
        Again::Failed(error)
    }
}

/// What a change does to the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It stays where it is, and takes no room.
    Inside,
    /// It moves to the end of what is changed, where it is not behind that.
    Grows,
    /// It stays where it is; up to the end of what is changed there is room for it. Bytes stay as they
    /// are.
    Promised,
}

/// Changes a part of an object: takes the segment's file, the offset in it, and the part's range.
type ChangePiece<'a> = dyn Fn(&dyn Object, u64, Range<u64>) -> Result<()> + 'a;

impl StackObject {
    pub(crate) fn new(
        shared: Arc<Shared>,
        entry: Opened,
        access: Access,
        level: Persistency,
    ) -> Self {
        let first = Arc::clone(&entry.segments.load()[0]);
        let has_failed_sync = AtomicBool::new(false);
        let is_followed = level == Persistency::Storage || shared.failpoints.is_watched();
        Self {
            shared,
            entry,
            access,
            level,
            first,
            straight: OnceLock::new(),
            is_followed,
            has_failed_sync,
            is_holder: AtomicBool::new(false),
            holder: Holder::default(),
        }
    }

    /// The tier's file, where there is one tier and no policy: nothing is between an object of one
    /// segment and its file then. Whatever else is true of it needs a longer way.
    #[inline]
    fn straight(&self) -> Result<Option<&dyn Object>> {
        match self.straight.get() {
            Some(file) => Ok(Some(&***file)),
            None if self.shared.is_bare => self.find_straight(),
            None => Ok(None),
        }
    }

    #[cold]
    fn find_straight(&self) -> Result<Option<&dyn Object>> {
        // A store that had a policy may hold segments and checksums of that time.
        let is_whole = self.first.limit_bytes.load(Ordering::Acquire) == u64::MAX;
        let location = self.first.location.load();
        if !is_whole || location.is_clean() && self.access == Access::Write {
            return Ok(None);
        }
        let handle = location.primary.open(self.shared.backend(&location.primary))?;
        let file = handle.as_ref().expect("it was just opened");
        Ok(Some(&***self.straight.get_or_init(|| Arc::clone(file))))
    }

    /// Whether the object has one segment and `end_bytes` lies inside it.
    #[inline]
    fn is_simple(&self, end_bytes: u64) -> bool {
        end_bytes <= self.first.limit_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn shared_state(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn object_id(&self) -> u64 {
        self.entry.object_id
    }

    pub(crate) fn key(&self) -> &Key {
        &self.entry.key
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.entry.is_deleted()
    }

    pub(crate) fn check_access(&self, operation: &'static str) -> Result<()> {
        if self.access == Access::Read {
            return Err(Error::new(ErrorKind::Denied, operation)
                .because("the object was opened for reading")
                .with("key", &self.entry.key));
        }
        if self.entry.is_deleted() {
            return Err(self.deleted(operation));
        }
        self.shared.check_writable(operation)
    }

    fn deleted(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::NotFound, operation)
            .because("the object was deleted")
            .with("key", &self.entry.key)
    }

    /// Reads from one segment; on an error from a copy, from the primary.
    fn read_segment(
        &self,
        segment: &Segment,
        offset_bytes: u64,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let shared = &*self.shared;
        let started_ns = shared.clock.now_ns();
        let (count, tier) = self.read_files(segment, offset_bytes, buffers)?;
        let latency_ns = shared.clock.now_ns() - started_ns;
        shared.tier(tier).ledger.access(false, count as u64, latency_ns);
        self.entry.ledger.access(false, count as u64, latency_ns);
        let extent = (offset_bytes, count as u64);
        shared.post(EventKind::Read, segment, tier, started_ns, extent, Took::of(latency_ns));
        Ok(count)
    }

    /// Reads from the best file of a segment, or another valid one; the bytes, and the tier that
    /// had them.
    #[inline(always)]
    fn read_files(
        &self,
        segment: &Segment,
        offset_bytes: u64,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<(usize, TierIndex)> {
        let location = segment.location.load();
        let site = location.read_site();
        let mut tier = site.place.tier;
        let read = |site: &crate::entry::Site, buffers: &mut [IoSliceMut<'_>]| {
            let handle = site.open(self.shared.backend(site))?;
            handle.as_ref().expect("it was just opened").read_at(offset_bytes, buffers)
        };
        let mut result = read(site, buffers);
        if result.is_err() && location.copies.len() > usize::from(location.best == 0) {
            for other in location.sites().filter(|other| !Arc::ptr_eq(other, site)) {
                result = read(other, buffers);
                if result.is_ok() {
                    tier = other.place.tier;
                    break;
                }
            }
        }
        Ok((result.map_err(|error| self.explain(error, tier))?, tier))
    }

    /// The bytes of a range inside the object, for the stack itself: it counts as no access.
    pub(crate) fn peek(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut data = vec![0; range.end.saturating_sub(range.start) as usize];
        for (segment, inside, part) in self.shared.pieces(&self.entry, range.start, data.len()) {
            self.read_files(&segment, inside, &mut [IoSliceMut::new(&mut data[part])])?;
        }
        Ok(data)
    }

    /// Cuts the object to `length_bytes` again, after a write of `range` that failed. Where somebody
    /// has made it longer than that meanwhile, the range reads as zeros instead.
    pub(crate) fn take_back_growth(
        &self,
        length_bytes: u64,
        promised: Vec<Range<u64>>,
        range: &Range<u64>,
    ) -> Result<()> {
        if self.length()? <= length_bytes {
            return Ok(());
        }
        if self.cut_back(length_bytes, range.end, promised, &|| Ok(true))? {
            return self.grow(length_bytes);
        }
        self.punch(range.start.max(length_bytes)..range.end)
    }

    fn explain(&self, error: Error, tier: terrace_core::TierIndex) -> Error {
        error.with("object", &self.entry.key).with("tier", &self.shared.tier(tier).name)
    }

    /// Changes bytes of one segment: passes the guard, sees to room, and marks what it touched.
    ///
    /// `change` gets the location behind the guard; `extent` is what it may touch.
    fn change_segment(
        &self,
        segment: &Segment,
        extent: Range<u64>,
        reach: Reach,
        kind: EventKind,
        change: impl Fn(&dyn Object) -> Result<()>,
    ) -> Result<(), Again> {
        let shared = &*self.shared;
        let started_ns = shared.clock.now_ns();
        let mut guard_ns = 0;
        let grows = reach != Reach::Inside;
        loop {
            if grows && extent.end > segment.room_bytes.load(Ordering::Acquire) {
                shared.take_room(&self.entry, segment, extent.end)?;
            }
            let (entered, waited) = segment.guard.enter(&shared.parking);
            if waited {
                let waited_ns = shared.clock.now_ns() - started_ns;
                guard_ns = waited_ns;
                let tier = segment.location.load().primary.place.tier;
                shared.tier(tier).ledger.add(Count::MigrationWaitNs, waited_ns);
                self.entry.ledger.migration_wait_ns.fetch_add(waited_ns, Ordering::Relaxed);
            }
            if extent.end > segment.limit_bytes.load(Ordering::Acquire) {
                return Err(Again::Restructured);
            }
            if self.entry.is_deleted() {
                return Err(Again::Failed(self.deleted("write")));
            }
            // A switch to another tier takes the room back that was taken on the old one.
            if grows && extent.end > segment.room_bytes.load(Ordering::Acquire) {
                continue;
            }
            let location = segment.location.load();
            if location.is_clean() && reach != Reach::Promised {
                drop(entered);
                drop(location);
                shared.make_unclean(&self.entry, segment)?;
                continue;
            }
            let tier = location.primary.place.tier;
            let device_ns = shared.clock.now_ns();
            let result = location
                .primary
                .open(shared.backend(&location.primary))
                .and_then(|handle| change(&***handle.as_ref().expect("it was just opened")));
            let ended_ns = shared.clock.now_ns();
            if reach == Reach::Promised {
                if result.is_ok() {
                    segment.promise(extent.end);
                }
                drop(entered);
                self.note_unsynced();
                return result.map_err(|error| Again::Failed(self.explain(error, tier)));
            }
            if grows {
                self.grown(segment, &location, extent.end, result.is_ok());
            }
            if entered.is_tracked {
                segment.mark(extent.start, extent.end);
            }
            drop(entered);
            // Also where it failed: some of the bytes may have been written.
            self.note_unsynced();
            result.map_err(|error| Again::Failed(self.explain(error, tier)))?;
            let bytes = extent.end - extent.start;
            shared.tier(tier).ledger.access(true, bytes, ended_ns - device_ns);
            self.entry.ledger.access(true, bytes, ended_ns - device_ns);
            let extent = (extent.start, bytes);
            let stack_ns = device_ns - started_ns - guard_ns;
            let took = Took::split(ended_ns - started_ns, guard_ns, stack_ns);
            shared.post(kind, segment, tier, started_ns, extent, took);
            return Ok(());
        }
    }

    /// Notes that a segment reaches at least to `end_bytes`, or, after a failed write, to where
    /// its file reaches.
    #[inline]
    fn grown(&self, segment: &Segment, location: &Location, end_bytes: u64, is_ok: bool) {
        let mut end_bytes = end_bytes;
        if !is_ok {
            let site = &location.primary;
            let handle = site.open(self.shared.backend(site)).ok();
            let stat = handle.and_then(|handle| handle.as_ref().map(|object| object.stat()));
            match stat {
                Some(Ok(stat)) => end_bytes = stat.size_bytes.min(end_bytes),
                _ => return,
            }
        }
        if segment.length_bytes.load(Ordering::Acquire) < end_bytes {
            segment.length_bytes.fetch_max(end_bytes, Ordering::AcqRel);
            self.shared.note_unflushed(&self.entry);
        }
    }

    /// Writes one buffer to the tier's file with the accounts alone around it; `None` where more
    /// has to be looked at first. There is room only while the object may be written: deleting it
    /// and closing the stack take all of it away.
    // Inline, and with little to keep over the call: the bar of 1 % leaves room for 4 ns.
    #[inline(always)]
    fn write_straight(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Option<Result<()>> {
        let file = self.straight.get()?;
        let [buffer] = data else { return None };
        let end_bytes = offset_bytes.checked_add(buffer.len() as u64)?;
        let has_room = end_bytes <= self.first.room_bytes.load(Ordering::Acquire);
        if !has_room || buffer.is_empty() || self.access == Access::Read {
            return None;
        }
        let result = file.write_at(offset_bytes, data);
        let is_known = result.is_ok()
            && end_bytes <= self.first.length_bytes.load(Ordering::Relaxed)
            && self.entry.is_unsynced.load(Ordering::Relaxed);
        Some(if is_known { Ok(()) } else { self.note_straight(end_bytes, result) })
    }

    #[cold]
    fn note_straight(&self, end_bytes: u64, result: Result<()>) -> Result<()> {
        self.note_unsynced();
        self.grown(&self.first, &self.first.location.load(), end_bytes, result.is_ok());
        result
    }

    /// Notes that bytes were written, after they were: a sync that forgets it before then has
    /// them still before it.
    #[inline]
    fn note_unsynced(&self) {
        // Mostly it is set already, and a load keeps the cache line where it is.
        if !self.entry.is_unsynced.load(Ordering::Relaxed) {
            self.entry.is_unsynced.store(true, Ordering::Release);
        }
    }

    /// Writes without looking at durability, the long way.
    fn write_through(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<u64> {
        let total: usize = data.iter().map(|slice| slice.len()).sum();
        let end_bytes = check_extent("write", offset_bytes, total as u64)?;
        self.check_access("write")?;
        if total == 0 {
            return Ok(0);
        }
        if self.straight()?.is_some() {
            let taken = self.shared.take_room(&self.entry, &self.first, end_bytes);
            taken.map_err(NoRoom::into_error)?;
            if let Some(result) = self.write_straight(offset_bytes, data) {
                return result.map(|()| total as u64);
            }
        }
        if self.is_simple(end_bytes) {
            let extent = offset_bytes..end_bytes;
            let write = |object: &dyn Object| object.write_at(offset_bytes, data);
            match self.change_segment(&self.first, extent, Reach::Grows, EventKind::Write, write) {
                Ok(()) => return Ok(total as u64),
                Err(Again::OverQuota(error)) => return Err(error),
                Err(Again::Failed(error)) if error.kind() != ErrorKind::NoSpace => {
                    return Err(error);
                }
                // It goes on in another segment.
                Err(_) => {}
            }
        }
        self.write_pieces(offset_bytes, &flatten(data))?;
        Ok(total as u64)
    }

    /// Writes without looking at durability.
    #[inline(always)]
    pub(crate) fn write_only(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        match self.write_straight(offset_bytes, data) {
            Some(result) => result,
            None => self.write_through(offset_bytes, data).map(drop),
        }
    }

    /// Has `write` write at the end; where that was. No other append comes between.
    pub(crate) fn append_with(&self, write: impl FnOnce(u64) -> Result<()>) -> Result<u64> {
        // Held over the I/O: the next append begins where this one ends.
        let _appending = crate::lock(&self.entry.appends);
        let start = self.length()?;
        write(start).map(|()| start)
    }

    /// Writes piece by piece into the segments that hold the range, making those that are missing.
    fn write_pieces(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let range = offset_bytes..offset_bytes + data.len() as u64;
        self.change_pieces(range, Reach::Grows, &|object, inside, part| {
            let part = (part.start - offset_bytes) as usize..(part.end - offset_bytes) as usize;
            object.write_at(inside, &[IoSlice::new(&data[part])])
        })
    }

    /// Changes a range piece by piece in the segments that hold it, making those that are missing.
    fn change_pieces(
        &self,
        range: Range<u64>,
        reach: Reach,
        change: &ChangePiece<'_>,
    ) -> Result<()> {
        /// Tries before an object that keeps changing its shape is given up.
        const TRIES_MAX: u32 = 1000;
        let mut at = range.start;
        let mut tries = 0;
        while at < range.end {
            let before = at;
            let (segment, inside) = self.shared.segment_for_write(&self.entry, at)?;
            let tried = segment.location.load().primary.place.tier;
            let limit = segment.limit_bytes.load(Ordering::Acquire);
            let room = limit.saturating_sub(inside).min(range.end - at);
            let one = |bytes: u64| {
                let extent = inside..inside + bytes;
                let part = at..at + bytes;
                let change = |object: &dyn Object| change(object, inside, part.clone());
                self.change_segment(&segment, extent, reach, EventKind::Write, change)
            };
            let outcome = if room == 0 { Err(Again::Restructured) } else { one(room) };
            match outcome {
                Ok(()) => at += room,
                Err(Again::Restructured) => {}
                Err(Again::Failed(error)) if error.kind() == ErrorKind::NoSpace => {
                    let extent = inside..inside + room;
                    let fits = self.shared.make_fit(&self.entry, &segment, tried, extent, error)?;
                    if fits > 0 {
                        // The tier takes what it has room for, the rest goes on elsewhere.
                        match one(fits) {
                            Ok(()) => at += fits,
                            Err(Again::Restructured) => {}
                            // Somebody else took the room, or the device itself is full: look again.
                            Err(Again::Failed(error)) if error.kind() == ErrorKind::NoSpace => {
                                let extent = inside..inside + fits;
                                let (entry, shared) = (&self.entry, &self.shared);
                                shared.make_fit(entry, &segment, tried, extent, error)?;
                            }
                            Err(Again::Failed(error) | Again::OverQuota(error)) => {
                                return Err(error);
                            }
                        }
                    }
                }
                Err(Again::Failed(error) | Again::OverQuota(error)) => return Err(error),
            }
            tries = if at > before { 0 } else { tries + 1 };
            if tries > TRIES_MAX {
                return Err(Error::new(ErrorKind::Busy, "write").with("key", &self.entry.key));
            }
        }
        Ok(())
    }

    /// Grows the object to `bytes`; the growth reads as zeros.
    fn grow(&self, bytes: u64) -> Result<()> {
        let mut goal = bytes;
        while self.length()? < bytes {
            let (segment, last) = self.shared.segment_for_write(&self.entry, goal - 1)?;
            let inside = last + 1;
            let tried = segment.location.load().primary.place.tier;
            let extent = segment.length().min(inside)..inside;
            let grow = |object: &dyn Object| {
                if object.stat()?.size_bytes < inside { object.set_len(inside) } else { Ok(()) }
            };
            let grown =
                self.change_segment(&segment, extent.clone(), Reach::Grows, EventKind::Write, grow);
            match grown {
                Ok(()) => goal = bytes,
                Err(Again::Restructured) => {}
                Err(Again::Failed(error)) if error.kind() == ErrorKind::NoSpace => {
                    let start = extent.start;
                    let fits = self.shared.make_fit(&self.entry, &segment, tried, extent, error)?;
                    // First what the full tier has room for, then the rest in another segment.
                    goal = if fits > 0 { segment.start_bytes + start + fits } else { bytes };
                }
                Err(Again::Failed(error) | Again::OverQuota(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Carries out what makes the object longer with zeros; where that fails in the middle the object
    /// is cut again, unless somebody has written there meanwhile.
    fn grow_or_stay(&self, grow: impl FnOnce() -> Result<()>) -> Result<()> {
        // Held over the I/O: an append begins at an end that stays.
        let _appending = crate::lock(&self.entry.appends);
        let before = self.length()?;
        let promised = self.promised();
        grow().inspect_err(|_| {
            if let Err(error) = self.give_back(before, promised) {
                tracing::warn!(key = %self.entry.key, %error, "an object stays longer than it was");
            }
        })
    }

    /// The next bytes that are no hole, as far as it is known how long the object is.
    fn find_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        let length = self.entry.length();
        let segments = self.entry.segments.load_full();
        for segment in segments.iter() {
            let end = segment.start_bytes.saturating_add(segment.length());
            if end <= offset_bytes {
                continue;
            }
            let location = segment.location.load();
            let site = self.shared.reachable(&location);
            let handle = site.open(self.shared.backend(site))?;
            let inside = offset_bytes.saturating_sub(segment.start_bytes);
            let found = handle.as_ref().expect("it was just opened").next_data(inside)?;
            if let Some(range) = found {
                let start = segment.start_bytes + range.start;
                let end = (segment.start_bytes + range.end).min(length);
                if start < end {
                    return Ok(Some(start..end));
                }
            }
        }
        Ok(None)
    }

    fn give_back(&self, length_bytes: u64, promised: Vec<Range<u64>>) -> Result<()> {
        let grown = length_bytes..self.length()?;
        if grown.is_empty() || self.entry.is_deleted() {
            return Ok(());
        }
        // The block in which it ended counts as data to its end.
        let edge_bytes = grown.end.min(length_bytes.next_multiple_of(BLOCK_BYTES_MAX));
        // Looked at when nobody can write any more.
        let is_unwritten = || {
            let edge = self.peek(length_bytes..edge_bytes)?;
            Ok(edge.iter().all(|byte| *byte == 0) && self.find_data(edge_bytes)?.is_none())
        };
        if self.cut_back(length_bytes, grown.end, promised, &is_unwritten)? {
            self.grow(length_bytes)?;
        }
        Ok(())
    }

    /// Cuts the object as `shrink` does, but for room that was promised behind its ends before: that is
    /// promised again.
    fn cut_back(
        &self,
        bytes: u64,
        beyond_bytes: u64,
        promised: Vec<Range<u64>>,
        is_wanted: &dyn Fn() -> Result<bool>,
    ) -> Result<bool> {
        let is_cut = self.shared.shrink(&self.entry, bytes, beyond_bytes, is_wanted)?;
        if is_cut {
            self.promise_again(promised)?;
        }
        Ok(is_cut)
    }

    /// Room that is promised behind the ends of segments.
    pub(crate) fn promised(&self) -> Vec<Range<u64>> {
        if !self.entry.is_promised() {
            return Vec::new();
        }
        let segments = self.entry.segments.load();
        let ranges = segments.iter().map(|segment| {
            let start = segment.start_bytes;
            start + segment.length()..start + segment.reach()
        });
        ranges.filter(|range| !range.is_empty()).collect()
    }

    /// Promises what was promised before, as far as nobody else took the room meanwhile.
    fn promise_again(&self, promised: Vec<Range<u64>>) -> Result<()> {
        if promised.is_empty() {
            return Ok(());
        }
        self.shared.begin_promising(&self.entry)?;
        for range in promised {
            if let Err(error) = self.promise_pieces(range) {
                tracing::warn!(key = %self.entry.key, %error, "an object lost room promised to it");
            }
        }
        self.shared.end_promising(&self.entry)
    }

    fn promise_pieces(&self, range: Range<u64>) -> Result<()> {
        self.change_pieces(range, Reach::Promised, &|object, inside, part| {
            allocate_behind(object, inside..inside + (part.end - part.start))
        })
    }

    /// Promises room for a range, while the end stays where it is; where that fails, what was promised
    /// before is what is promised.
    fn promise(&self, range: Range<u64>) -> Result<()> {
        // Held over the I/O: one at a time promises something to an object.
        let _appending = crate::lock(&self.entry.appends);
        self.length()?;
        let before = Promised::of(&self.entry);
        self.shared.begin_promising(&self.entry)?;
        // What is in holes already is not told from what this call puts there, and could not be taken
        // back: so the holes come last, when all accounts have agreed.
        let promised = self
            .promise_behind(range.clone())
            .and_then(|()| self.promise_pieces(range.start..range.end.min(self.entry.length())))
            .and_then(|()| self.shared.failpoints.hit("promise.file"))
            .inspect_err(|_| {
                if let Err(error) = self.shared.take_back_promises(&self.entry, &before, &range) {
                    tracing::warn!(key = %self.entry.key, %error, "room stays promised");
                }
            });
        let noted = self.shared.end_promising(&self.entry);
        promised.and(noted)
    }

    /// Promises the room of a range that is behind the ends of files, and nothing inside them.
    fn promise_behind(&self, range: Range<u64>) -> Result<()> {
        self.change_pieces(range, Reach::Promised, &|object, inside, part| {
            let end = inside + (part.end - part.start);
            let start = object.stat()?.size_bytes.max(inside);
            if start < end { allocate_behind(object, start..end) } else { Ok(()) }
        })
    }

    /// Refuses a cut into a hole whose rest the quota has no room for, while nothing is cut: the
    /// segment before the hole is to reach to the new end.
    fn check_cut(&self, bytes: u64) -> Result<()> {
        let segments = self.entry.segments.load();
        let (kept, cut): (Vec<_>, Vec<_>) =
            segments.iter().partition(|segment| segment.start_bytes < bytes);
        let Some(last) = kept.last() else { return Ok(()) };
        let need = (bytes - last.start_bytes).saturating_sub(last.reach());
        let freed = cut.iter().map(|segment| segment.reach()).sum();
        let more = need.saturating_sub(freed);
        if self.entry.usage.has_room(more) || more == 0 {
            return Ok(());
        }
        Err(self.entry.usage.refusal(more, &self.entry.key))
    }

    /// The length of the object. Without a policy nothing keeps a cut and a write apart but the
    /// file itself, so it is asked; so is one that may be written past the stack.
    pub(crate) fn length(&self) -> Result<u64> {
        if self.shared.is_bare {
            return Ok(self.stat()?.size_bytes);
        }
        self.shared.measure(&self.entry, &self.first)?;
        Ok(self.entry.length())
    }

    /// What comes after a write that is more than its bytes.
    #[cold]
    pub(crate) fn follow(&self) -> Result<()> {
        self.shared.failpoints.hit("write.done")?;
        self.settle_level()
    }

    /// What a handle with storage semantics does after every change.
    fn settle_level(&self) -> Result<()> {
        if self.level == Persistency::Storage {
            self.shared.sync_entry(&self.entry)
        } else {
            Ok(())
        }
    }
}

impl Object for StackObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        if let Some(file) = self.straight()? {
            return file.read_at(offset_bytes, buffers);
        }
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let end_bytes = check_extent("read", offset_bytes, want as u64)?;
        if self.is_simple(end_bytes) {
            let count = self.read_segment(&self.first, offset_bytes, buffers)?;
            let is_alone = self.first.limit_bytes.load(Ordering::Acquire) == u64::MAX;
            if count == want || is_alone {
                return Ok(count);
            }
            // A short first segment before a later one ends in a hole, not in the object's end.
        }
        let length = self.entry.length();
        let count = want.min(length.saturating_sub(offset_bytes) as usize);
        let mut data = Buffer::zeroed(count);
        for (segment, inside, range) in self.shared.pieces(&self.entry, offset_bytes, count) {
            // A segment shorter than its part of the object has a hole at its end.
            self.read_segment(&segment, inside, &mut [IoSliceMut::new(&mut data[range])])?;
        }
        let mut rest = &data[..];
        for buffer in buffers {
            let (head, tail) = rest.split_at(rest.len().min(buffer.len()));
            buffer[..head.len()].copy_from_slice(head);
            rest = tail;
        }
        Ok(count)
    }

    fn read_later(&self, _: u64, _: usize, _: &mut dyn FnMut() -> ReadDone) -> Option<ReadBegun> {
        None
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let result = self.write_only(offset_bytes, data);
        if self.is_followed && result.is_ok() { self.follow() } else { result }
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let start = self.append_with(|start| self.write_through(start, data).map(drop))?;
        self.settle_level()?;
        Ok(start)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent("set length", 0, bytes)?;
        self.check_access("set length")?;
        let length = self.length()?;
        if bytes < length {
            self.check_cut(bytes)?;
            self.shared.shrink(&self.entry, bytes, u64::MAX, &|| Ok(true))?;
            // Where only a hole was left before the new end, the segment in front is too short.
            self.grow(bytes)?;
        } else if bytes > length {
            self.grow_or_stay(|| self.grow(bytes))?;
        } else if self.entry.is_promised() {
            self.shared.shrink(&self.entry, bytes, u64::MAX, &|| Ok(true))?;
        }
        self.settle_level()
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        check_range("allocate", &range)?;
        self.check_access("allocate")?;
        if range.is_empty() {
            return Ok(());
        }
        match end {
            End::Stays => self.promise(range)?,
            End::Grows => self.grow_or_stay(|| {
                self.change_pieces(range, Reach::Grows, &|object, inside, part| {
                    object.allocate(inside..inside + (part.end - part.start), End::Grows)
                })
            })?,
        }
        self.settle_level()
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range("punch", &range)?;
        self.check_access("punch")?;
        self.shared.measure(&self.entry, &self.first)?;
        let end_bytes = range.end.min(self.entry.length());
        let count = end_bytes.saturating_sub(range.start) as usize;
        for (segment, inside, part) in self.shared.pieces(&self.entry, range.start, count) {
            let end = (inside + part.len() as u64).min(segment.length());
            if inside >= end {
                continue;
            }
            let punch = |object: &dyn Object| object.punch(inside..end);
            match self.change_segment(&segment, inside..end, Reach::Inside, EventKind::Write, punch)
            {
                Ok(()) => {}
                Err(Again::Failed(error) | Again::OverQuota(error)) => return Err(error),
                Err(Again::Restructured) => return self.punch(range),
            }
        }
        self.settle_level()
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent("find data", offset_bytes, 0)?;
        self.shared.measure(&self.entry, &self.first)?;
        self.find_data(offset_bytes)
    }

    fn stat(&self) -> Result<Stat> {
        self.shared.stat_entry(&self.entry)
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.check_access("set times")?;
        let segments = self.entry.segments.load_full();
        for segment in segments.iter() {
            let (entered, _) = segment.guard.enter(&self.shared.parking);
            let location = segment.location.load();
            let handle = location.primary.open(self.shared.backend(&location.primary))?;
            handle.as_ref().expect("it was just opened").set_modified(wall_ns)?;
            drop(entered);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        if self.has_failed_sync.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Io, "sync object")
                .because("an earlier sync of this handle failed")
                .with("key", &self.entry.key));
        }
        self.shared
            .sync_entry(&self.entry)
            .inspect_err(|_| self.has_failed_sync.store(true, Ordering::Release))
    }

    fn lease_file(&self) -> Result<Option<FileLease>> {
        self.shared.lend(&self.entry, &self.first, &self.is_holder)
    }

    fn hold_file(&self, access: Access) -> Result<Option<File>> {
        if access == Access::Write {
            self.check_access("hold a file for writing")?;
            // What is written past this handle would not be durable when it is acknowledged.
            if self.level == Persistency::Storage {
                return Ok(None);
            }
        }
        self.shared.hold(&self.entry, &self.first, &self.holder, access)
    }

    fn note_reads(&self, reads: &ReadSummary) {
        self.shared.note_reads(&self.entry, &self.first, reads);
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        self.entry.label.clone()
    }
}

impl Drop for StackObject {
    fn drop(&mut self) {
        if *self.is_holder.get_mut() {
            self.first.location.give_back();
        }
        if self.holder.is_any() {
            // The tier's file can be written through this.
            self.straight.take();
            self.shared.let_go(&self.entry, &self.first, &self.holder);
        }
        self.shared.close_entry(&self.entry);
    }
}

/// The end of an extent.
///
/// # Errors
///
/// `Invalid` beyond 63 bits.
fn check_extent(operation: &'static str, offset_bytes: u64, bytes: u64) -> Result<u64> {
    offset_bytes.checked_add(bytes).filter(|end| *end <= OFFSET_MAX).ok_or_else(|| {
        Error::invalid(operation, "the range ends beyond 2^63 bytes")
            .with("offset_bytes", offset_bytes)
            .with("length_bytes", bytes)
    })
}

fn check_range(operation: &'static str, range: &Range<u64>) -> Result<()> {
    match range.end.checked_sub(range.start) {
        Some(bytes) => check_extent(operation, range.start, bytes).map(drop),
        None => Err(Error::invalid(operation, "the range ends before it begins")
            .with("start_bytes", range.start)
            .with("end_bytes", range.end)),
    }
}

/// One buffer of many, for the writes that are cut differently.
fn flatten(data: &[IoSlice<'_>]) -> Vec<u8> {
    data.iter().flat_map(|slice| slice.iter().copied()).collect()
}
