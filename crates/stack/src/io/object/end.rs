// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where an object ends, and the room behind that: it grows, is cut, and is promised more.

use std::error::Error as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{Error, ErrorKind, Object, Result};

use super::StackObject;
use super::write::{Again, Reach, Sent};
use crate::memory::entry::Segment;
use crate::memory::sparse;
use crate::memory::usage::QuotaExceeded;
use crate::room::reserve::allocate_behind;
use crate::shared::promises::Promised;

/// Segments that one change of the length may add: each is a commit with all of them. A file system takes
/// files of some length only (ext4 16 TiB), or the process may write no longer ones.
const SEGMENTS_AT_ONCE_MAX: usize = 128;

/// Longest block of a file system: a page of the largest size.
const BLOCK_BYTES_MAX: u64 = 64 << 10;

impl StackObject {
    /// Cuts the object to `length_bytes` again, after a write of `range` that failed. Where another write
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

    /// Grows the object to `bytes`; the growth reads as zeros.
    pub(super) fn grow(&self, bytes: u64) -> Result<()> {
        self.reach(bytes, &|| Ok(self.length()? >= bytes))
    }

    /// Ends the object at `bytes`, before its end. Where that is in a hole, a segment is to reach to there: if it
    /// cannot, nothing is cut.
    pub(super) fn cut(&self, bytes: u64) -> Result<()> {
        self.check_cut(bytes)?;
        let ends_there = |segment: &Arc<Segment>| {
            let (start, length) = (segment.start_bytes, segment.length());
            start < bytes && bytes - start <= length
        };
        let is_there = || Ok(bytes == 0 || self.entry.segments.load().iter().any(ends_there));
        match self.reach(bytes, &is_there) {
            // There is room as soon as the rest is cut.
            Err(error) if error.source().is_some_and(|source| source.is::<QuotaExceeded>()) => {}
            reached => reached?,
        }
        self.shared.shrink(&self.entry, bytes, u64::MAX, &|| Ok(true))?;
        // Another cut may have come between, or the quota.
        self.grow(bytes)
    }

    /// Has the segment that holds the byte before `bytes` reach to there, until that is so.
    fn reach(&self, bytes: u64, is_there: &dyn Fn() -> Result<bool>) -> Result<()> {
        let mut goal = bytes;
        let segments_max = self.entry.segments.load().len() + SEGMENTS_AT_ONCE_MAX;
        while !is_there()? {
            let (segment, last) = self.shared.segment_for_write(&self.entry, goal - 1)?;
            let inside = last + 1;
            let tried = segment.location.load().primary.place.tier;
            let extent = segment.length().min(inside)..inside;
            let grow = |object: &dyn Object| {
                if object.stat()?.size_bytes >= inside {
                    return Ok(());
                }
                if self.shared.is_bare {
                    // Writes past the guard may land behind the new end now: that is cut off.
                    segment.note_cut();
                }
                object.set_len(inside)
            };
            let grown =
                self.change_segment(&segment, extent.clone(), Reach::Grows, Sent::End, grow);
            match grown {
                Ok(()) => goal = bytes,
                Err(Again::Restructured) => {}
                Err(Again::Immutable) => self.shared.recall(&self.entry, &segment)?,
                Err(Again::Failed(error)) if error.kind() == ErrorKind::NoSpace => {
                    if self.entry.segments.load().len() >= segments_max {
                        return Err(error);
                    }
                    let start = extent.start;
                    let fits = self.shared.make_fit(&self.entry, &segment, tried, extent, error)?;
                    // First what the full tier has room for, then the rest in another segment.
                    goal = if fits > 0 { segment.start_bytes + start + fits } else { bytes };
                }
                Err(Again::Failed(error) | Again::Anywhere(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Carries out what makes the object longer with zeros; where that fails in the middle the object
    /// is cut again, unless another write has landed there meanwhile.
    pub(super) fn grow_or_stay(&self, grow: impl FnOnce() -> Result<()>) -> Result<()> {
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

    fn give_back(&self, length_bytes: u64, promised: Vec<Range<u64>>) -> Result<()> {
        let grown = length_bytes..self.length()?;
        if grown.is_empty() || self.entry.is_deleted() {
            return Ok(());
        }
        // The block in which it ended counts as data to its end.
        let edge_bytes = grown.end.min(length_bytes.next_multiple_of(BLOCK_BYTES_MAX));
        // Looked at when the file can no longer be written to.
        let is_unwritten = || {
            let edge = self.peek_closed(length_bytes..edge_bytes)?;
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

    /// Promises what was promised before, as far as the room was not taken meanwhile.
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
        self.change_pieces(range, Reach::Promised, Sent::Shape, &|object, inside, part| {
            allocate_behind(object, inside..inside + (part.end - part.start))
        })
    }

    /// Refuses room that all tiers together do not have. Tried for piece by piece it would fill them, and
    /// others would find none until all was given back.
    pub(super) fn check_reservation(&self, range: &Range<u64>) -> Result<()> {
        if self.shared.is_bare {
            // Its tier sees to that.
            return Ok(());
        }
        let length_bytes = range.end - range.start;
        let Some(most) = self.shared.most_room(&self.entry, length_bytes) else { return Ok(()) };
        if length_bytes <= most.bytes {
            return Ok(());
        }
        // Some of the range may have its room already, by the accounts or on the media.
        let (mut own_bytes, mut on_media_bytes) = (0_u64, 0_u64);
        for segment in self.entry.segments.load().iter() {
            // A tier that cannot be asked is asked again by what reserves the room.
            let Ok(stat) = self.shared.stat_segment(segment) else { return Ok(()) };
            let end = segment.reach().max(stat.size_bytes);
            let behind = stat.allocated_bytes.saturating_sub(end);
            let inside = room_inside(segment, range, end).saturating_add(behind);
            let on_media = inside.min(stat.allocated_bytes);
            let room_bytes = segment.room_bytes.load(Ordering::Acquire);
            let accounted = room_inside(segment, range, room_bytes);
            on_media_bytes = on_media_bytes.saturating_add(on_media);
            own_bytes = own_bytes.saturating_add(on_media.max(accounted));
        }
        let need_bytes = length_bytes.saturating_sub(own_bytes);
        let media_need_bytes = length_bytes.saturating_sub(on_media_bytes);
        if need_bytes <= most.bytes && media_need_bytes <= most.media_bytes {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NoSpace, "reserve room")
            .with("key", &self.entry.key)
            .with("need_bytes", media_need_bytes)
            .with("free_bytes", most.bytes))
    }

    /// Promises room for a range, while the end stays where it is; where that fails, what was promised
    /// before is what is promised.
    pub(super) fn promise(&self, range: Range<u64>) -> Result<()> {
        // Held over the I/O: one at a time promises something to an object.
        let _appending = crate::lock(&self.entry.appends);
        self.length()?;
        let before = Promised::of(&self.entry);
        self.shared.begin_promising(&self.entry)?;
        // What is in holes already cannot be distinguished from what this call puts there, and could not be taken
        // back: so the holes come last, when all accounts have agreed.
        let promised = self
            .promise_behind(range.clone())
            .and_then(|()| self.promise_pieces(range.start..range.end.min(self.entry.length())))
            .and_then(|()| self.shared.failpoints.hit("promise.file"))
            .inspect_err(|_| self.take_back(&before, &range));
        let noted = self.shared.end_promising(&self.entry);
        if promised.is_ok() && noted.is_err() {
            // A caller that gets an error, and so no promise, gives nothing back.
            self.take_back(&before, &range);
            if let Err(error) = self.shared.note_promises(&self.entry) {
                // With the last close it is tried again.
                tracing::warn!(key = %self.entry.key, %error, "cannot note what is promised");
            }
        }
        promised.and(noted)
    }

    /// Has promised to the object only what was promised before.
    fn take_back(&self, before: &Promised, range: &Range<u64>) {
        if let Err(error) = self.shared.take_back_promises(&self.entry, before, range) {
            tracing::warn!(key = %self.entry.key, %error, "room stays promised");
        }
    }

    /// Promises the room of a range that is behind the ends of files, and nothing inside them. A file gets
    /// all of its room from its end on: so it is known how much of what it has allocated is behind the end.
    fn promise_behind(&self, range: Range<u64>) -> Result<()> {
        self.change_pieces(range, Reach::Promised, Sent::Shape, &|object, inside, part| {
            let end = inside + (part.end - part.start);
            let start = object.stat()?.size_bytes;
            if start.max(inside) < end { allocate_behind(object, start..end) } else { Ok(()) }
        })
    }

    /// Refuses a cut into a hole whose rest the quota has no room for, while nothing is cut: the
    /// segment before the hole is to reach to the new end.
    fn check_cut(&self, bytes: u64) -> Result<()> {
        let segments = self.entry.segments.load();
        let (kept, cut): (Vec<_>, Vec<_>) =
            segments.iter().partition(|segment| segment.start_bytes < bytes);
        let Some(last) = kept.last() else { return Ok(()) };
        let end = bytes - last.start_bytes;
        if self.shared.keeps_holes(last) && sparse::leaves_hole(last.reach(), end) {
            // The rest of the hole takes nothing.
            return Ok(());
        }
        let need = end.saturating_sub(last.reach());
        let freed = cut.iter().map(|segment| segment.amount() + segment.behind()).sum();
        let more = need.saturating_sub(freed);
        if self.entry.usage.has_room(more) || more == 0 {
            return Ok(());
        }
        Err(self.entry.usage.refusal(more, &self.entry.key))
    }
}

/// How much of a range of an object is in front of `end`, an offset in one of its segments, and in that.
fn room_inside(segment: &Segment, range: &Range<u64>, end: u64) -> u64 {
    let limit = segment.limit_bytes.load(Ordering::Acquire);
    let end = segment.start_bytes.saturating_add(end.min(limit));
    end.min(range.end).saturating_sub(range.start.max(segment.start_bytes))
}
