// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of an object's bytes: through the guard of the segment, or straight to its file.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::Ordering;

use terrace_core::{Access, Error, ErrorKind, EventKind, Object, Result};

use super::{StackObject, check_extent};
use crate::io::shape::NoRoom;
use crate::memory::entry::Segment;
use crate::memory::guard::{Closed, Entered};
use crate::memory::site::Location;
use crate::memory::sparse::{self, Purpose};
use crate::watch::ledger::Timed;
use crate::watch::ring::Took;

/// Why a piece of a write has to be looked at again.
pub(super) enum Again {
    /// The segment ends before the piece does.
    Restructured,
    /// Its tier takes whole objects only: it is to be recalled first.
    Immutable,
    /// It may not take up more, and another tier does not help.
    Anywhere(Error),
    Failed(Error),
}

impl From<NoRoom> for Again {
    fn from(refusal: NoRoom) -> Self {
        match refusal {
            NoRoom::Here(error) => Again::Failed(error),
            NoRoom::Anywhere(error) => Again::Anywhere(error),
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
pub(super) enum Reach {
    /// It stays where it is, and takes no room.
    Inside,
    /// It moves to the end of what is changed, where it is not behind that.
    Grows,
    /// It stays where it is; up to the end of what is changed there is room for it. Bytes stay as they
    /// are.
    Promised,
}

/// What of a change goes to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All its bytes.
    Bytes,
    /// Where the file is to have a hole or room: no bytes.
    Shape,
    /// Where the file is to end, which depends on where it ends: no other write runs meanwhile.
    End,
}

/// How a change got into a segment.
enum Passed<'a> {
    /// Among other writers.
    Among(Entered<'a>),
    /// With everybody else kept out.
    Alone { _closed: Closed<'a> },
}

impl Passed<'_> {
    /// Whether what is changed must be marked before leaving.
    fn is_tracked(&self) -> bool {
        match self {
            Passed::Among(entered) => entered.is_tracked,
            Passed::Alone { .. } => true,
        }
    }
}

/// Changes a part of an object: takes the segment's file, the offset in it, and the part's range.
pub(super) type ChangePiece<'a> = dyn Fn(&dyn Object, u64, Range<u64>) -> Result<()> + 'a;

impl StackObject {
    /// Changes bytes of one segment: passes the guard, sees to room, and marks what it touched.
    ///
    /// `change` gets the location behind the guard; `extent` is what it may touch.
    pub(super) fn change_segment(
        &self,
        segment: &Segment,
        extent: Range<u64>,
        reach: Reach,
        sent: Sent,
        change: impl Fn(&dyn Object) -> Result<()>,
    ) -> Result<(), Again> {
        let shared = &*self.shared;
        let started_ns = shared.clock.now_ns();
        let mut guard_ns = 0;
        let grows = reach != Reach::Inside;
        // An end that moves puts no bytes anywhere.
        let written = if sent == Sent::End { extent.end..extent.end } else { extent.clone() };
        let mut purpose = match reach {
            Reach::Promised => Purpose::Promise,
            _ => Purpose::WRITE,
        };
        if shared.is_immutable(segment) {
            return Err(Again::Immutable);
        }
        if grows && !segment.is_whole() {
            // Bytes may follow those that are left; what is a shape alone would put zeros there.
            let behind = if sent == Sent::Bytes { extent.start } else { extent.end };
            shared.check_left(segment, behind)?;
        }
        loop {
            if grows && extent.end > segment.room_bytes.load(Ordering::Acquire) {
                let taken = shared.take_room(&self.entry, segment, &written, purpose);
                if taken.is_err() && purpose == Purpose::WRITE && segment.is_sparse() {
                    // A write over data needs no room.
                    let holes_bytes = shared.holes_in(segment, &written)?;
                    purpose = Purpose::Bytes { holes_bytes };
                    continue;
                }
                taken?;
            }
            let (entered, waited) = match sent {
                Sent::Bytes | Sent::Shape => {
                    let (entered, waited) = segment.guard.enter(&shared.parking);
                    (Passed::Among(entered), waited)
                }
                Sent::End => (Passed::Alone { _closed: shared.close(segment) }, false),
            };
            if waited {
                let waited_ns = shared.clock.now_ns() - started_ns;
                guard_ns = waited_ns;
                let tier = segment.location.load().primary.place.tier;
                shared.tier(tier).ledger.time(Timed::MigrationWait, waited_ns);
                self.entry.ledger.migration_wait_ns.fetch_add(waited_ns, Ordering::Relaxed);
            }
            if extent.end > segment.limit_bytes.load(Ordering::Acquire) {
                return Err(Again::Restructured);
            }
            self.entry.check_exists("write").map_err(Again::Failed)?;
            shared.check_open("write").map_err(Again::Failed)?;
            let location = segment.location.load();
            if shared.tier(location.primary.place.tier).is_whole() {
                return Err(Again::Immutable);
            }
            // A copy is accounted with what its primary takes.
            let changes = reach != Reach::Promised || segment.is_sparse();
            if location.is_clean() && changes {
                drop(entered);
                drop(location);
                shared.make_unclean(&self.entry, segment)?;
                continue;
            }
            // A switch to another tier takes the room back that was taken on the old one.
            if grows && !has_room(segment, &extent, &written, purpose) {
                continue;
            }
            let tier = location.primary.place.tier;
            let device_ns = shared.clock.now_ns();
            // All of it may become dense, with room that is where it is.
            let is_whole = extent.start == 0 && extent.end >= segment.length();
            let fills = segment.is_sparse() && grows && sent == Sent::Shape && !is_whole;
            let change = |object: &dyn Object| match fills {
                true => {
                    let grows = reach == Reach::Grows;
                    sparse::reserve(object, extent.clone(), segment.length(), grows)
                }
                false => change(object),
            };
            let bytes = extent.end - extent.start;
            let is_ahead = reach != Reach::Promised && shared.posting.is_ahead();
            if is_ahead {
                let extent = (extent.start, bytes);
                shared.post(EventKind::Write, segment, tier, started_ns, extent, Took::default());
            }
            let result = location
                .primary
                .open(shared.backend(&location.primary))
                .and_then(|handle| change(&***handle.as_ref().expect("it was just opened")));
            let ended_ns = shared.clock.now_ns();
            if reach == Reach::Promised {
                if result.is_ok() {
                    segment.promise(extent.end);
                }
                if fills && entered.is_tracked() {
                    segment.mark(extent.start, extent.end);
                }
                if segment.is_sparse() {
                    shared.note_unflushed(&self.entry);
                }
                self.note_unsynced();
                drop(entered);
                shared.look_alone(&self.entry, segment);
                return result.map_err(|error| Again::Failed(self.explain(error, tier)));
            }
            if grows {
                // An end that moves fills no block, not even its own.
                let begins_at = match sent {
                    Sent::End => extent.end.saturating_add(sparse::BLOCK_BYTES - 1),
                    Sent::Bytes | Sent::Shape => extent.start,
                };
                self.grown(segment, &location, begins_at..extent.end, result.is_ok());
                if segment.is_sparse() {
                    // What it takes is noted with its length.
                    shared.note_unflushed(&self.entry);
                }
            } else {
                // Holes give room back when the file is looked at.
                segment.note_unsure();
                shared.note_unflushed(&self.entry);
            }
            if entered.is_tracked() {
                segment.mark(extent.start, extent.end);
            }
            // Also where it failed: some of the bytes may have been written. A store that closes waits
            // for operations inside, and syncs then.
            self.note_unsynced();
            drop(entered);
            if sent == Sent::Shape {
                shared.look_alone(&self.entry, segment);
            }
            if is_ahead && grows {
                // The end is the event's, or after a failure any other.
                shared.mailbox.note_settled(segment.slot, segment.incarnation);
            }
            result.map_err(|error| Again::Failed(self.explain(error, tier)))?;
            let written_bytes = if sent == Sent::Bytes { bytes } else { 0 };
            shared.tier(tier).ledger.access(true, written_bytes, ended_ns - device_ns);
            self.entry.ledger.access(true, written_bytes, ended_ns - device_ns);
            if !is_ahead {
                let extent = (extent.start, bytes);
                let stack_ns = device_ns - started_ns - guard_ns;
                let took = Took::split(ended_ns - started_ns, guard_ns, stack_ns);
                shared.post(EventKind::Write, segment, tier, started_ns, extent, took);
            }
            return Ok(());
        }
    }

    /// Notes that a segment reaches at least to the end of what was written, or, after a failed write, to
    /// where its file reaches.
    #[inline]
    fn grown(&self, segment: &Segment, location: &Location, written: Range<u64>, is_ok: bool) {
        let mut end_bytes = written.end;
        if !is_ok {
            let site = &location.primary;
            let handle = site.open(self.shared.backend(site)).ok();
            let stat = handle.and_then(|handle| handle.as_ref().map(|object| object.stat()));
            match stat {
                Some(Ok(stat)) => end_bytes = stat.size_bytes.min(end_bytes),
                _ => return,
            }
        }
        let length = segment.length_bytes.load(Ordering::Acquire);
        if length < end_bytes {
            if sparse::leaves_hole(length, written.start) {
                segment.note_unsure();
            }
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
        Some(if is_known { Ok(()) } else { self.note_straight(offset_bytes..end_bytes, result) })
    }

    #[cold]
    fn note_straight(&self, written: Range<u64>, result: Result<()>) -> Result<()> {
        self.note_unsynced();
        self.grown(&self.first, &self.first.location.load(), written, result.is_ok());
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
    pub(super) fn write_through(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<u64> {
        let total: usize = data.iter().map(|slice| slice.len()).sum();
        let end_bytes = check_extent("write", offset_bytes, total as u64)?;
        self.check_access("write")?;
        if total == 0 {
            return Ok(0);
        }
        if self.straight()?.is_some() {
            let extent = offset_bytes..end_bytes;
            let taken = self.shared.take_room(&self.entry, &self.first, &extent, Purpose::WRITE);
            // One with holes may need none, which is found out below.
            if !self.first.is_sparse() {
                taken.map_err(NoRoom::into_error)?;
            }
            if let Some(result) = self.write_straight(offset_bytes, data) {
                return result.map(|()| total as u64);
            }
        }
        if self.is_simple(end_bytes) {
            let extent = offset_bytes..end_bytes;
            let write = |object: &dyn Object| object.write_at(offset_bytes, data);
            match self.change_segment(&self.first, extent, Reach::Grows, Sent::Bytes, write) {
                Ok(()) => return Ok(total as u64),
                Err(Again::Anywhere(error)) => return Err(error),
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
        self.change_pieces(range, Reach::Grows, Sent::Bytes, &|object, inside, part| {
            let part = (part.start - offset_bytes) as usize..(part.end - offset_bytes) as usize;
            object.write_at(inside, &[IoSlice::new(&data[part])])
        })
    }

    /// Changes a range piece by piece in the segments that hold it, making those that are missing.
    pub(super) fn change_pieces(
        &self,
        range: Range<u64>,
        reach: Reach,
        sent: Sent,
        change: &ChangePiece<'_>,
    ) -> Result<()> {
        /// Tries before an object that keeps changing its shape is given up.
        const TRIES_MAX: u32 = 1000;
        /// Tries that a tier gets that says that it is full, though by its account it is not.
        const FULL_TRIES_MAX: usize = 3;
        let mut at = range.start;
        let mut tries = 0;
        let mut full_tries = 0;
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
                self.change_segment(&segment, extent, reach, sent, change)
            };
            let outcome = if room == 0 { Err(Again::Restructured) } else { one(room) };
            match outcome {
                Ok(()) => at += room,
                Err(Again::Restructured) => {}
                Err(Again::Immutable) => self.shared.recall(&self.entry, &segment)?,
                Err(Again::Failed(error)) if error.kind() == ErrorKind::NoSpace => {
                    full_tries += 1;
                    if full_tries > FULL_TRIES_MAX * self.shared.tiers.len() {
                        return Err(error);
                    }
                    let extent = inside..inside + room;
                    let fits = match self.shared.make_fit(
                        &self.entry,
                        &segment,
                        tried,
                        extent.clone(),
                        error,
                    ) {
                        Err(refused) => {
                            let (entry, shared) = (&self.entry, &self.shared);
                            shared.move_on(entry, &segment, tried, &extent, refused)?;
                            0
                        }
                        fits => fits?,
                    };
                    if fits > 0 {
                        // The tier takes what it has room for, the rest goes on elsewhere.
                        match one(fits) {
                            Ok(()) => at += fits,
                            Err(Again::Restructured | Again::Immutable) => {}
                            // The room was taken by another object, or the device itself is full: look again.
                            Err(Again::Failed(error)) if error.kind() == ErrorKind::NoSpace => {
                                let extent = inside..inside + fits;
                                let (entry, shared) = (&self.entry, &self.shared);
                                shared.make_fit(entry, &segment, tried, extent, error)?;
                            }
                            Err(Again::Failed(error) | Again::Anywhere(error)) => {
                                return Err(error);
                            }
                        }
                    }
                }
                Err(Again::Failed(error) | Again::Anywhere(error)) => return Err(error),
            }
            (tries, full_tries) = if at > before { (0, 0) } else { (tries + 1, full_tries) };
            if tries > TRIES_MAX {
                return Err(Error::new(ErrorKind::Busy, "write").with("key", &self.entry.key));
            }
        }
        Ok(())
    }
}

/// Whether a segment has room for a change, inside the guard: up to its end, or, where it has holes, for
/// what it writes, which then counts as allocated.
#[inline]
fn has_room(
    segment: &Segment,
    extent: &Range<u64>,
    written: &Range<u64>,
    purpose: Purpose,
) -> bool {
    extent.end <= segment.room_bytes.load(Ordering::Acquire)
        || segment.is_sparse() && segment.consume(&segment.demand(written, purpose))
}

/// One buffer of many, for the writes that are cut differently.
fn flatten(data: &[IoSlice<'_>]) -> Vec<u8> {
    data.iter().flat_map(|slice| slice.iter().copied()).collect()
}
