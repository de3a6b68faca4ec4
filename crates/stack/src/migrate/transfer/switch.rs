// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The switch to a file that was copied, behind the gate.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{Error, ErrorKind, EventKind, Outcome, Result};

use super::{FINAL_BYTES_MAX, Job, OPERATION, Stop, Target, stop};
use crate::catalog::map::Write;
use crate::memory::dirty::Dirty;
use crate::memory::entry::Accounted;
use crate::memory::site::{Location, Pending, Site};
use crate::room::reserve::allocate_behind;
use crate::shared::moves::MoveWish;
use crate::tiers::account::Class;
use crate::watch::ledger::Count;

impl Job<'_> {
    /// One attempt to switch; false where writers did not pause.
    pub(super) fn try_switch(
        &self,
        target: &mut Target<'_>,
        checksum: Option<u32>,
    ) -> Result<bool, (Stop, bool)> {
        let _changes = crate::lock(&self.entry.changes);
        let _gate = crate::lock(&self.segment.gate);
        let parking = &self.shared.parking;
        let longest = self.shared.settings.switch_time_max;
        if !self.segment.guard.close(parking, longest) {
            self.segment.guard.open(parking);
            return Ok(false);
        }
        let result = self.switch(target, checksum);
        self.segment.guard.open(parking);
        if let Ok(true) = result {
            self.shared
                .failpoints
                .hit("move.switched")
                .map_err(|error| (Stop::Failed(error), true))?;
        }
        result
    }

    /// Behind the gate: copies the last ranges, commits, and shows the new location.
    fn switch(&self, target: &mut Target<'_>, checksum: Option<u32>) -> Result<bool, (Stop, bool)> {
        let early = |reason: Stop| (reason, false);
        let left = crate::lock(&self.segment.dirty).as_ref().map_or(0, Dirty::bytes);
        if left > FINAL_BYTES_MAX {
            return Ok(false);
        }
        self.copy_dirty(target).map_err(early)?;
        self.check().map_err(early)?;
        let was_written = crate::lock(&self.segment.dirty).as_ref().is_some_and(Dirty::was_written);
        let (wish, stays) = (self.one.request.wish, self.keeps_source());
        if wish == MoveWish::Copy && was_written {
            return Err(early(Stop::Outcome(
                Outcome::HotWrite,
                "it was written while the copy was made".into(),
            )));
        }
        let length = self.segment.length();
        // Its amount does not change from here on: writers are kept out.
        self.shared.look(self.entry, self.segment, &mut crate::lock(&self.segment.accounted));
        self.reserve_more(target, self.room_bytes()).map_err(early)?;
        let location = self.segment.location.load_full();
        self.finish_file(&location.primary, target, length).map_err(|error| early(error.into()))?;
        let behind = self.reach_bytes() - length;
        let amount = self.amount_on(target, &location, behind, stays).map_err(early)?;
        let room = amount + behind;
        let checksum = checksum.filter(|_| !was_written);
        if checksum.is_some() && location.checksum.is_some_and(|known| checksum != Some(known)) {
            let error = Error::new(ErrorKind::Corrupt, OPERATION)
                .because("its bytes fail their checksum; see terrace scrub")
                .with("tier", &self.shared.tier(location.primary.place.tier).name);
            return Err(early(Stop::Failed(error)));
        }
        // Locked over the commit: no room is taken on the tier that is being left.
        let mut accounted = crate::lock(&self.segment.accounted);
        let source_amount = self.segment.amount();
        let source = Arc::clone(&location.primary);
        let site = Arc::clone(&target.site);
        let next = match wish {
            MoveWish::Copy => {
                let mut copies = location.copies.clone();
                copies.push(site);
                self.shared.location(source, copies, location.checksum.or(checksum), None)
            }
            _ => {
                let mut copies = location.copies.clone();
                if stays {
                    copies.push(Arc::clone(&source));
                }
                let pending = Pending { source, bytes: source_amount, boot: self.shared.boot };
                self.shared.location(site, copies, checksum, Some(pending))
            }
        };
        let allocated = (amount < length).then_some(amount);
        let record = self.entry.record_with(self.segment, &next, allocated);
        let late = |error: Error| (Stop::Failed(error), true);
        if let Err(error) = self.shared.catalog.commit(&[Write::Put(&self.entry.key, &record)]) {
            let is_back = self.shared.take_back_changes(self.entry, &[], &error);
            return Err((Stop::Failed(error), !is_back));
        }
        let step = if wish == MoveWish::Copy { "copy.committed" } else { "move.committed" };
        self.shared.failpoints.hit(step).map_err(late)?;
        self.segment.location.publish(Arc::new(next));
        target.tier.account.free(Class::Reserved, target.reserved_bytes - room);
        if wish == MoveWish::Copy {
            target.tier.account.turn(Class::Reserved, Class::Copy, amount);
            self.shared.post_change(EventKind::Copied, self.segment, self.to());
        } else {
            target.tier.account.turn(Class::Reserved, Class::Used, amount);
            self.leave(&mut accounted, source_amount, (amount, room), stays);
            self.shared.post_change(EventKind::Moved, self.segment, self.to());
            if stays {
                self.shared.post_change(EventKind::Copied, self.segment, self.one.from);
            }
        }
        Ok(true)
    }

    /// Gives the target the room behind its end that was promised to the segment. What was promised or
    /// cut since is seen to behind the gate.
    pub(super) fn give_room(&self, target: &mut Target<'_>) -> Result<()> {
        let length = self.segment.length();
        let reach = self.reach_bytes();
        if reach > length.max(target.promised_bytes) && self.room_bytes() <= target.reserved_bytes {
            allocate_behind(&*target.object, length..reach)?;
            target.promised_bytes = reach;
        }
        Ok(())
    }

    /// Reserves what the target needs beyond what is reserved.
    fn reserve_more(&self, target: &mut Target<'_>, room: u64) -> Result<(), Stop> {
        let more = room.saturating_sub(target.reserved_bytes);
        let account = &target.tier.account;
        if more > 0 && !account.take(Class::Reserved, more, target.tier.capacity_bytes()) {
            return Err(stop(Outcome::NoSpace));
        }
        target.reserved_bytes += more;
        Ok(())
    }

    /// What the segment takes on the target, which is finished: what that has allocated. With copies it
    /// is what the source takes: they are accounted with the primary.
    fn amount_on(
        &self,
        target: &mut Target<'_>,
        location: &Location,
        behind: u64,
        stays: bool,
    ) -> Result<u64, Stop> {
        let length = self.segment.length();
        let has_copies =
            stays || self.one.request.wish == MoveWish::Copy || !location.copies.is_empty();
        if target.tier.capability.packed && !has_copies {
            return Ok(target.object.stat()?.allocated_bytes.min(length));
        }
        if !self.segment.is_sparse() || !target.tier.capability.sparse {
            return Ok(length);
        }
        if has_copies {
            return Ok(self.segment.amount());
        }
        let allocated_bytes = target.object.stat()?.allocated_bytes;
        let amount = allocated_bytes.saturating_sub(behind).min(length);
        self.reserve_more(target, amount + behind)?;
        Ok(amount)
    }

    /// Gives the target its length, its room, its time and its place in the object.
    fn finish_file(&self, source: &Site, target: &mut Target<'_>, length: u64) -> Result<()> {
        let handle = source.open(self.shared.backend(source))?;
        let stat = handle.as_ref().expect("it was just opened").stat()?;
        // The target would have zeros there, and a checksum of them.
        self.shared.check_tail(OPERATION, source, stat.size_bytes, length)?;
        let target_bytes = target.object.stat()?.size_bytes;
        let has_too_much = target.promised_bytes > self.reach_bytes();
        if target.tier.is_whole() {
            // Its length is what was copied: a write since then has ended the migration.
            target.object.set_modified(stat.modified_ns)?;
            self.shared.failpoints.hit("move.gate")?;
            return self.shared.failpoints.hit("move.identity");
        }
        if target_bytes != length || has_too_much {
            target.object.set_len(length)?;
        }
        if target_bytes > length || has_too_much {
            // With the cut went what was behind.
            target.promised_bytes = 0;
        }
        self.give_room(target)?;
        target.object.set_modified(stat.modified_ns)?;
        self.shared.failpoints.hit("move.gate")?;
        if let Some(identity) = self.identity(&target.site, self.final_role()) {
            self.shared.backend(&target.site).set_identity(&target.site.key, &identity)?;
        }
        self.shared.failpoints.hit("move.identity")
    }

    /// Accounts that the primary has left its tier, where its file takes `source_amount`; where it is now
    /// it takes an amount, and has room.
    pub(super) fn leave(
        &self,
        accounted: &mut Accounted,
        source_amount: u64,
        (amount, room): (u64, u64),
        stays_as_copy: bool,
    ) {
        let from = self.shared.tier(self.one.from);
        let class = if stays_as_copy { Class::Copy } else { Class::Garbage };
        let from_used = accounted.used_bytes.min(source_amount);
        let from_reserved = accounted.reserved_bytes.min(source_amount - from_used);
        from.account.turn(Class::Used, class, from_used);
        from.account.turn(Class::Reserved, class, from_reserved);
        from.account.free(Class::Used, accounted.used_bytes - from_used);
        from.account.free(Class::Reserved, accounted.reserved_bytes - from_reserved);
        self.entry.usage.resize(accounted.total(), room);
        *accounted = Accounted { used_bytes: amount, reserved_bytes: room - amount };
        let is_sparse = amount < self.segment.length();
        self.segment.set_allocated(is_sparse.then_some(amount));
        self.segment.room_bytes.store(if is_sparse { 0 } else { room }, Ordering::Release);
        from.segments.fetch_sub(1, Ordering::Relaxed);
        from.ledger.add(Count::MovesOut, 1);
        let to = self.shared.tier(self.to());
        to.segments.fetch_add(1, Ordering::Relaxed);
        to.ledger.add(Count::MovesIn, 1);
    }
}
