// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Segments with holes: their tier and their quota account what is allocated, and not the length.
//!
//! A dense segment has room for its whole length: a write into it asks for none. A segment becomes
//! sparse with a write, or a growth, that leaves a hole behind all the room that it has. From then on
//! it has no room by offsets: `allocated_bytes` bounds from above what its tier has allocated of it,
//! every write adds the blocks that it touches to that bound first, and where the account of the segment
//! would not cover the sum the write takes more room. So the account is never less than what is
//! allocated. The bound is replaced by what the file says (`stat`) when it has run ahead, when a write
//! finds no room, once a second with the lengths, by a cut, a switch and the last close.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::Ordering;

use terrace_core::{End, Object, Result};

use crate::memory::entry::{Accounted, Segment};

/// Unit in which file systems allocate; where one takes larger units, what it took is accounted with
/// the next look.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Room that a sparse segment takes ahead, and by which its bound may run ahead of what is allocated.
pub(crate) const STEP_BYTES: u64 = 4 << 20;

/// Room that a sparse segment takes ahead at least: it asks with each write.
const STEP_BYTES_MIN: u64 = 64 << 10;

/// What a change may allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Blocks that nothing is reserved for yet.
    pub(crate) fresh_bytes: u64,
    /// Room behind the end that becomes a part of the length.
    absorbed_bytes: u64,
    /// Room behind the end that is promised from then on.
    promised_bytes: u64,
}

impl Demand {
    /// Room that it takes beside what is taken.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.fresh_bytes.saturating_add(self.promised_bytes)
    }
}

/// What room is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Bytes that are written, of which at most so many are holes.
    Bytes { holes_bytes: u64 },
    /// Room that is promised, behind the end or inside.
    Promise,
}

impl Purpose {
    /// Bytes that are written where nothing is known of holes.
    pub(crate) const WRITE: Self = Purpose::Bytes { holes_bytes: u64::MAX };
}

/// Room that a segment lacks.
pub(crate) struct Wanted {
    pub(crate) need: u64,
    /// The same with what it takes ahead.
    pub(crate) step: u64,
    /// Whether the file may well have less allocated than is assumed.
    pub(crate) ran_ahead: bool,
}

/// Bytes of the blocks that an extent touches.
pub(crate) fn blocks(extent: &Range<u64>) -> u64 {
    if extent.is_empty() {
        return 0;
    }
    let start = extent.start / BLOCK_BYTES * BLOCK_BYTES;
    let end = extent.end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX);
    end - start
}

/// Whether bytes that begin at `start` leave a hole behind room up to `room`: a whole block.
pub(crate) fn leaves_hole(room: u64, start: u64) -> bool {
    let room = room.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX);
    start / BLOCK_BYTES * BLOCK_BYTES > room
}

/// How many bytes from `start` on fit into so much room, to the last whole block.
pub(crate) fn fitting(start: u64, room_bytes: u64) -> u64 {
    (room_bytes / BLOCK_BYTES * BLOCK_BYTES).saturating_sub(start % BLOCK_BYTES)
}

/// Whether other writers may be inside a segment that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    KeptOut,
    MayWrite,
}

impl Segment {
    /// What a change of a sparse segment may allocate.
    pub(crate) fn demand(&self, extent: &Range<u64>, purpose: Purpose) -> Demand {
        let (length, reach) = (self.length(), self.reach());
        match purpose {
            Purpose::Bytes { holes_bytes } => {
                let absorbed_bytes = extent.end.min(reach).saturating_sub(length);
                // What was promised behind the end is reserved.
                let promised = extent.end.min(reach).saturating_sub(extent.start.max(length));
                let fresh_bytes = blocks(extent).saturating_sub(promised).min(holes_bytes);
                Demand { fresh_bytes, absorbed_bytes, promised_bytes: 0 }
            }
            Purpose::Promise => {
                let inside = extent.start.min(length)..extent.end.min(length);
                // The block with the end may be a hole.
                let fresh_bytes = blocks(&inside).max(BLOCK_BYTES);
                let promised_bytes = extent.end.saturating_sub(reach);
                Demand { fresh_bytes, absorbed_bytes: 0, promised_bytes }
            }
        }
    }

    /// What it lacks to have `extent` written or promised; `None` where that is covered. The caller has
    /// `accounted`.
    pub(crate) fn wanted(
        &self,
        accounted: &Accounted,
        extent: &Range<u64>,
        purpose: Purpose,
    ) -> Option<Wanted> {
        // Growing files ask in steps of a quarter, so that appending costs few atomic operations;
        // the bound keeps little room idle while the object is open.
        let room = accounted.total();
        let ahead = (room / 4).min(STEP_BYTES);
        let Some(bound) = self.allocated() else {
            let need = extent.end.checked_sub(room).filter(|need| *need > 0)?;
            // None for bytes that belong to the next segment.
            let most = self.limit_bytes.load(Ordering::Acquire).saturating_sub(room);
            return Some(Wanted { need, step: need.max(ahead.min(most)), ran_ahead: false });
        };
        let demand = self.demand(extent, purpose);
        if self.covers(accounted, &demand) {
            return None;
        }
        let asked = demand.room_bytes().saturating_add(bound).saturating_add(self.behind());
        let need = asked - room;
        let ran_ahead = bound.saturating_sub(accounted.used_bytes) >= STEP_BYTES;
        Some(Wanted { need, step: need.max(ahead.max(STEP_BYTES_MIN)), ran_ahead })
    }

    /// Whether what is accounted covers a change of a sparse segment; the caller has `accounted`.
    pub(crate) fn covers(&self, accounted: &Accounted, demand: &Demand) -> bool {
        let bound = self.allocated().unwrap_or_else(|| self.length());
        let needs = [self.behind(), demand.room_bytes()];
        needs.into_iter().fold(bound, u64::saturating_add) <= accounted.total()
    }

    /// Adds to the bound of a sparse segment what a change may allocate, inside the guard; false where
    /// it is not covered. A segment that is not sparse is refused: the caller tries again.
    pub(crate) fn consume(&self, demand: &Demand) -> bool {
        let accounted = crate::lock(&self.accounted);
        let Some(bound) = self.allocated() else { return false };
        if !self.covers(&accounted, demand) {
            return false;
        }
        self.set_allocated(Some(bound + demand.fresh_bytes + demand.absorbed_bytes));
        self.note_unsure();
        true
    }

    /// Makes it a sparse one, of which all room that it has may be allocated; the caller has
    /// `accounted`.
    pub(crate) fn make_sparse(&self, accounted: &Accounted) {
        self.set_allocated(Some(accounted.total().saturating_sub(self.behind())));
        // From now on writers ask.
        self.room_bytes.store(0, Ordering::Release);
        self.note_unsure();
    }

    /// Room of a sparse segment that no change has asked for yet.
    pub(crate) fn spare(&self) -> u64 {
        let accounted = crate::lock(&self.accounted);
        let bound = self.allocated().unwrap_or_else(|| self.length());
        accounted.total().saturating_sub(bound).saturating_sub(self.behind())
    }
}

/// Reserves the room of a range of a sparse file of this length; where it `grows` up to there. Inside
/// its holes are filled with zeros: so their room is found again wherever the file moves, and differs from
/// holes.
///
/// # Errors
///
/// `NoSpace`; `Unsupported` behind the end, where the file system cannot.
pub(crate) fn reserve(
    object: &dyn Object,
    range: Range<u64>,
    length: u64,
    grows: bool,
) -> Result<()> {
    if grows {
        return fill(object, range);
    }
    fill(object, range.start.min(length)..range.end.min(length))?;
    // All from the end on: so it is known how much of what is allocated is behind the end.
    let behind = length..range.end;
    if behind.is_empty() { Ok(()) } else { object.allocate(behind, End::Stays) }
}

fn fill(object: &dyn Object, range: Range<u64>) -> Result<()> {
    let zeros = [0; 64 << 10];
    let mut at = range.start;
    while at < range.end {
        let data = object.next_data(at)?;
        let hole_end = data.as_ref().map_or(range.end, |data| data.start.min(range.end));
        while at < hole_end {
            let count = (hole_end - at).min(zeros.len() as u64) as usize;
            object.write_at(at, &[IoSlice::new(&zeros[..count])])?;
            at += count as u64;
        }
        at = data.map_or(range.end, |data| data.end).max(at);
    }
    Ok(())
}
