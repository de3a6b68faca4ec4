// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is allocated of segments with holes: found out from their files, accounted, and moved where a
//! tier has no room for a hole.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{Access, Error, ErrorKind, Outcome, Result, Stat, TierIndex};

use crate::io::shape::left_on;
use crate::memory::entry::{Accounted, Entry, Segment};
use crate::memory::sparse::{Others, STEP_BYTES, blocks};
use crate::shared::Shared;
use crate::shared::moves::{MoveRequest, MoveWish};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;

/// Migrations, of others or of its own, that a write waits for.
const MIGRATIONS_MAX: usize = 16;

impl Shared {
    /// Whether a segment may have holes that take no room: its tier keeps them.
    pub(crate) fn keeps_holes(&self, segment: &Segment) -> bool {
        self.tier(segment.location.load().primary.place.tier).capability.sparse
    }

    /// Replaces the bound of a segment by what its file says, and makes it dense or sparse accordingly;
    /// the caller has `accounted`, and keeps writers out. With copies it stays: they are
    /// accounted with it. Where the file cannot tell it stays as well.
    pub(crate) fn look(&self, entry: &Arc<Entry>, segment: &Segment, accounted: &mut Accounted) {
        let location = segment.location.load_full();
        let tier = self.tier(location.primary.place.tier);
        let is_known = !segment.is_unsure() || !location.copies.is_empty();
        let is_reading = self.settings.access == Access::Read;
        // What a dense one is promised need not be on the medium: its holes show once that is filled or given back.
        let is_promised = !segment.is_sparse() && segment.behind() > 0;
        if is_known || is_promised || is_reading || !tier.takes_less() || !tier.is_online() {
            return;
        }
        let Ok(stat) = location.primary.stat(self.backend(&location.primary)) else { return };
        segment.note_sure();
        self.take_over(entry, segment, &stat, Others::KeptOut, accounted);
    }

    /// Takes over what a file says is allocated, and sees to it that the record will say the same; the
    /// caller has `accounted`.
    pub(crate) fn take_over(
        &self,
        entry: &Arc<Entry>,
        segment: &Segment,
        stat: &Stat,
        others: Others,
        accounted: &mut Accounted,
    ) {
        let (length, behind) = (segment.length(), segment.behind());
        if stat.size_bytes < length {
            // A file that was cut by others has lost its end, which is no hole.
            return;
        }
        let mut allocated_bytes = stat.allocated_bytes.saturating_sub(behind);
        if others == Others::MayWrite {
            // What they have asked room for may be on its way.
            let before = accounted.total().saturating_sub(behind);
            allocated_bytes = allocated_bytes.max(segment.allocated().unwrap_or(before));
            segment.note_unsure();
        }
        let allocated_bytes = allocated_bytes.min(length);
        // One whose last block alone is not full is dense.
        let is_sparse = allocated_bytes < length;
        // What a dense one is promised need not be on the medium.
        if !segment.is_sparse() && (!is_sparse || behind > 0) {
            return;
        }
        let before = segment.amount();
        let missing = (allocated_bytes + behind).saturating_sub(accounted.total());
        if missing > 0 {
            // It is there, whatever the limits are.
            let account = &self.tier(segment.location.load().primary.place.tier).account;
            account.found(Class::Reserved, missing);
            entry.usage.bytes.found(missing);
            accounted.reserved_bytes += missing;
        }
        let account = &self.tier(segment.location.load().primary.place.tier).account;
        let grown = allocated_bytes.saturating_sub(accounted.used_bytes);
        let shrunk = accounted.used_bytes.saturating_sub(allocated_bytes);
        account.turn(Class::Reserved, Class::Used, grown);
        account.turn(Class::Used, Class::Reserved, shrunk);
        accounted.used_bytes = allocated_bytes;
        accounted.reserved_bytes = accounted.reserved_bytes + shrunk - grown;
        segment.set_allocated(is_sparse.then_some(allocated_bytes));
        let room_bytes = if is_sparse { 0 } else { accounted.total() };
        segment.room_bytes.store(room_bytes, Ordering::Release);
        if segment.amount() != before {
            self.note_unflushed(entry);
        }
    }

    /// Looks at a segment with its gate closed, and gives back room beyond a step.
    pub(crate) fn look_alone(&self, entry: &Arc<Entry>, segment: &Segment) {
        if !segment.is_unsure() || !self.keeps_holes(segment) {
            return;
        }
        let _closed = self.close(segment);
        let mut accounted = crate::lock(&segment.accounted);
        if entry.has_lost(segment) || self.is_closing.load(Ordering::Acquire) {
            return;
        }
        // A writer without a guard may have seen the room of a dense one.
        if !segment.is_sparse() && self.is_bare {
            return;
        }
        self.look(entry, segment, &mut accounted);
        self.give_back_spare(entry, segment, &mut accounted, STEP_BYTES);
    }

    /// Gives back all that the segments with holes of an object have taken ahead; whether that was any.
    pub(crate) fn give_back_ahead(&self, entry: &Entry) -> bool {
        let mut has_given = false;
        for segment in entry.segments.load().iter() {
            let mut accounted = crate::lock(&segment.accounted);
            has_given |= !entry.has_lost(segment)
                && self.give_back_spare(entry, segment, &mut accounted, 0) > 0;
        }
        has_given
    }

    /// Gives back the room of a sparse segment that no change has asked for, but for `kept_bytes`; how much that is.
    /// A change that was to have it asks again.
    fn give_back_spare(
        &self,
        entry: &Entry,
        segment: &Segment,
        accounted: &mut Accounted,
        kept_bytes: u64,
    ) -> u64 {
        let Some(bound) = segment.allocated() else { return 0 };
        let keep = bound.saturating_add(segment.behind()).saturating_add(kept_bytes);
        let total = accounted.total();
        let more = total.saturating_sub(keep).min(accounted.reserved_bytes);
        let account = &self.tier(segment.location.load().primary.place.tier).account;
        account.free(Class::Reserved, more);
        accounted.reserved_bytes -= more;
        entry.usage.resize(total, accounted.total());
        more
    }

    /// Accounts a segment on a tier that packs by what its file takes, where it has no copies any more.
    pub(crate) fn look_packed(&self, entry: &Arc<Entry>, segment: &Segment) {
        let location = segment.location.load_full();
        let is_packed = self.tier(location.primary.place.tier).capability.packed;
        if !is_packed || !location.copies.is_empty() || segment.is_sparse() {
            return;
        }
        segment.note_unsure();
        let _closed = self.close(segment);
        let mut accounted = crate::lock(&segment.accounted);
        if !entry.has_lost(segment) && !self.is_closing.load(Ordering::Acquire) {
            self.fit_room(entry, segment, &mut accounted);
        }
    }

    /// Accounts a segment on a tier that packs by its length, so that copies elsewhere can be accounted with
    /// it. Where its tier has no room for that it stays as it is.
    pub(crate) fn account_unpacked(&self, entry: &Arc<Entry>, segment: &Segment) {
        let tier = self.tier(segment.location.load().primary.place.tier);
        if !tier.capability.packed || !segment.is_sparse() {
            return;
        }
        let _changes = crate::lock(&entry.changes);
        let mut accounted = crate::lock(&segment.accounted);
        let (before, length) = (accounted.total(), segment.length());
        let more = length.saturating_sub(before);
        if entry.has_lost(segment) || !tier.account.take(Class::Used, more, tier.capacity_bytes()) {
            return;
        }
        tier.account.turn(Class::Reserved, Class::Used, accounted.reserved_bytes);
        entry.usage.resize(before, before + more);
        *accounted = Accounted { used_bytes: before + more, reserved_bytes: 0 };
        segment.set_allocated(None);
        segment.room_bytes.store(length, Ordering::Release);
        drop(accounted);
        self.note_unflushed(entry);
    }

    /// Moves a segment with holes to a tier that has room for it and for `extent`, a part of it that the
    /// tier `tried` refused as full, and waits for that: a hole cannot go on elsewhere. A segment that
    /// has left `tried` or become dense meanwhile is to be tried again. `refused` is returned where no tier has
    /// room, or it cannot move.
    pub(crate) fn move_on(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        tried: TierIndex,
        extent: &Range<u64>,
        refused: Error,
    ) -> Result<()> {
        for _ in 0..MIGRATIONS_MAX {
            let own = segment.location.load().primary.place.tier;
            // One that has become dense has room for the holes that it had.
            let is_filled =
                !segment.is_sparse() && extent.start < segment.room_bytes.load(Ordering::Acquire);
            if own != tried || is_filled || entry.has_lost(segment) {
                return Ok(());
            }
            let is_hole = segment.is_sparse() && extent.start < segment.length();
            if refused.kind() != ErrorKind::NoSpace || !is_hole || segment.holds.is_held() {
                return Err(refused);
            }
            let id = match self.mover.of_segment(entry.object_id, segment.number) {
                // It goes to a tier of its policy's choice, and may fail to.
                Some(moving) => moving.id,
                None => match self.begin_to_move_on(entry, segment, own, extent) {
                    Some(Ok(id)) => id,
                    // It has moved, or another migration of it has begun, since it was looked at.
                    Some(Err(Outcome::Already | Outcome::Busy | Outcome::Stale)) => continue,
                    None | Some(Err(_)) => return Err(refused),
                },
            };
            self.mover.wait_for_end(id);
        }
        Err(refused)
    }

    fn begin_to_move_on(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        segment: &Segment,
        own: TierIndex,
        extent: &Range<u64>,
    ) -> Option<Result<u64, Outcome>> {
        let need = segment.amount().saturating_add(segment.behind());
        let need = need.saturating_add(blocks(extent));
        let has_room = |tier: &TierState| {
            let left = tier.capacity_bytes().saturating_sub(tier.account.taken());
            tier.capability.sparse
                && tier.keeps(entry.persistency())
                && tier.takes_writes()
                && need <= left.min(left_on(tier))
        };
        let mut others = self.tiers.indexed().filter(|(index, _)| *index != own);
        let (to, _) = others.find(|(_, tier)| has_room(tier))?;
        let request = MoveRequest {
            key: entry.key.clone(),
            segment: segment.number,
            wish: MoveWish::Move,
            to,
            priority: i32::MAX,
            reason: format!("{} has no room for its holes", self.tier(own).name),
            by: "stack".into(),
            benefit_s: 0.0,
            slot: Some((segment.slot, segment.incarnation)),
        };
        Some(self.mover.submit(self, request))
    }

    /// Bytes of an extent that are holes, as far as the file tells: what writing there allocates at most,
    /// while no hole is punched.
    pub(crate) fn holes_in(&self, segment: &Segment, extent: &Range<u64>) -> Result<u64> {
        let location = segment.location.load_full();
        let handle = location.primary.open(self.backend(&location.primary))?;
        let object = handle.as_ref().expect("it was just opened");
        let (mut at, mut holes) = (extent.start, 0);
        while at < extent.end {
            let data = object.next_data(at)?.filter(|data| data.start < extent.end);
            let Some(data) = data else { break };
            holes += blocks(&(at..data.start));
            at = data.end.max(at + 1);
        }
        Ok(holes + blocks(&(at.min(extent.end)..extent.end)))
    }
}
