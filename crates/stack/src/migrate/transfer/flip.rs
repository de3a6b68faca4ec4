// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A clean copy that becomes the primary: no bytes are copied.

use std::sync::Arc;
use std::time::Duration;

use terrace_core::{EventKind, Outcome, Result, Role};

use super::{ATTEMPTS_MAX, Job, OPERATION, Stop, stop};
use crate::catalog::map::{GarbageRow, Write};
use crate::memory::site::{Location, Site};
use crate::room::reserve;
use crate::room::reserve::allocate_behind;
use crate::shared::drops::Drop as Superseded;
use crate::tiers::account::Class;

impl Job<'_> {
    /// Makes the clean copy on the target the primary: no bytes are copied.
    pub(super) fn flip(&self) -> Result<(), Stop> {
        self.one.enter("switch");
        let location = self.segment.location.load_full();
        let copy = location.copies.iter().find(|copy| copy.place.tier == self.to());
        let copy = copy.ok_or_else(|| self.copy_is_gone())?;
        // A new generation: the highest complete primary is the right one. It is durable before
        // the catalog says so, and taken back when the switch does not happen.
        let site = copy.with_generation(self.shared.catalog.number()?);
        let copied_ns = self.announce(&site)?;
        self.shared.backend(&site).sync()?;
        self.shared.failpoints.hit("flip.identity")?;
        let result = self.flip_to(&site, copied_ns);
        if result.is_ok() {
            self.shared.look_packed(self.entry, self.segment);
        } else {
            // A copy that a write has dropped meanwhile has no identity to restore.
            let _ = self.mark(copy, Role::Copy);
        }
        result
    }

    /// Marks a copy as the coming primary, unless it has lost its end; returns its time of modification.
    /// Settling the switch before marks its source as a copy, which may be the very same file, and must be
    /// over.
    fn announce(&self, site: &Site) -> Result<u64, Stop> {
        self.shared.settle(self.entry, self.segment)?;
        let _changes = crate::lock(&self.entry.changes);
        let location = self.segment.location.load_full();
        // As long as it is one the segment has no other length: a writer drops it first, for which
        // it needs the lock.
        let copy = location.copies.iter().find(|copy| copy.place.file == site.place.file);
        let copy = copy.ok_or_else(|| self.copy_is_gone())?;
        let found = site.stat(self.shared.backend(site))?;
        self.shared.check_tail(OPERATION, site, found.size_bytes, self.segment.length())?;
        let mut copied_ns = found.modified_ns;
        if let Some(modified_ns) = self.other_time(copied_ns, &location.primary) {
            // Its file is not marked with the new generation yet.
            self.set_time(copy, modified_ns)?;
            copied_ns = modified_ns;
        }
        // One that fails may have been made.
        self.mark(site, Role::Primary).inspect_err(|_| {
            let _ = self.mark(copy, Role::Copy);
        })?;
        Ok(copied_ns)
    }

    fn copy_is_gone(&self) -> Stop {
        Stop::Outcome(Outcome::HotWrite, "its copy was dropped by a write".into())
    }

    /// Writes what a file is to its object.
    fn mark(&self, site: &Site, role: Role) -> Result<()> {
        match self.identity(site, role) {
            Some(identity) => self.shared.backend(site).set_identity(&site.key, &identity),
            None => Ok(()),
        }
    }

    fn flip_to(&self, site: &Arc<Site>, copied_ns: u64) -> Result<(), Stop> {
        let parking = &self.shared.parking;
        for attempt in 0..ATTEMPTS_MAX {
            self.check()?;
            let stays = self.keeps_source();
            if stays {
                // It stays as a copy, which must be as durable as the primary. A write between
                // this and the switch drops the copies, and the switch with them.
                self.shared.sync_site(&self.segment.location.load_full().primary)?;
            }
            let changes = crate::lock(&self.entry.changes);
            let gate = crate::lock(&self.segment.gate);
            let longest = self.shared.settings.switch_time_max;
            if self.segment.guard.close(parking, longest) {
                let result = self.flip_closed(site, copied_ns, stays);
                self.segment.guard.open(parking);
                return result;
            }
            self.segment.guard.open(parking);
            drop((gate, changes));
            self.shared.clock.sleep(Duration::from_micros(200) * (attempt + 1));
        }
        Err(stop(Outcome::HotWrite))
    }

    fn flip_closed(&self, site: &Arc<Site>, copied_ns: u64, stays: bool) -> Result<(), Stop> {
        self.check()?;
        let location = self.segment.location.load_full();
        let (on_target, others): (Vec<_>, Vec<_>) =
            location.copies.iter().cloned().partition(|copy| copy.place.tier == self.to());
        if !on_target.iter().any(|copy| copy.place.file == site.place.file) {
            return Err(self.copy_is_gone());
        }
        if location.settling.is_some() {
            return Err(stop(Outcome::Busy));
        }
        let is_whole = self.shared.tier(self.to()).is_whole();
        if let Some(modified_ns) = self.other_time(copied_ns, &location.primary) {
            if is_whole {
                let detail =
                    "its time was set, and a tier of whole objects is not asked while writers wait";
                return Err(Stop::Outcome(Outcome::Busy, detail.into()));
            }
            self.set_time(site, modified_ns)?;
        }
        let behind = self.reach_bytes() - self.segment.length();
        if behind == 0 {
            return self.flip_with_room(site, &location, others, behind, stays);
        }
        let tier = self.shared.tier(self.to());
        if is_whole {
            let reason = "the tier cannot keep the room that is promised behind its end";
            return Err(Stop::Outcome(Outcome::NoSpace, reason.into()));
        }
        if !tier.account.take(Class::Reserved, behind, tier.capacity_bytes()) {
            return Err(stop(Outcome::NoSpace));
        }
        self.flip_with_room(site, &location, others, behind, false).inspect_err(|_| {
            reserve::give_back(self.shared, site);
            tier.account.free(Class::Reserved, behind);
        })
    }

    /// The time of a primary where a copy has another one: it may have been set, and room may have been promised,
    /// since the copy was made. None where the primary is gone, or on a tier of whole objects, which is not asked while
    /// writers wait.
    fn other_time(&self, copied_ns: u64, primary: &Site) -> Option<u64> {
        if self.shared.tier(primary.place.tier).is_whole() {
            return None;
        }
        let stat = primary.stat(self.shared.backend(primary)).ok()?;
        Some(stat.modified_ns).filter(|modified_ns| *modified_ns != copied_ns)
    }

    fn set_time(&self, copy: &Site, modified_ns: u64) -> Result<()> {
        let file = copy.open_once(self.shared.backend(copy))?;
        file.set_modified(modified_ns)?;
        file.sync()
    }

    /// The room that was promised is reserved on the target; its file gets it, too.
    fn flip_with_room(
        &self,
        site: &Arc<Site>,
        location: &Location,
        others: Vec<Arc<Site>>,
        behind: u64,
        stays: bool,
    ) -> Result<(), Stop> {
        let length = self.segment.length();
        if behind > 0 {
            let file = site.open_once(self.shared.backend(site))?;
            let modified_ns = file.stat()?.modified_ns;
            allocate_behind(&**file, length..length + behind)?;
            file.set_modified(modified_ns)?;
        }
        let old = Arc::clone(&location.primary);
        let mut copies = others;
        if stays {
            copies.push(Arc::clone(&old));
        }
        let site = Arc::clone(site);
        let next = self.shared.location(site, copies, location.checksum, None);
        // A copy takes what its primary does.
        let amount = self.segment.amount();
        let record = self.entry.record_with(self.segment, &next, self.segment.allocated());
        let row = GarbageRow {
            object_id: self.entry.object_id,
            segment: self.segment.number,
            place: old.place,
            bytes: amount,
        };
        let mut writes = vec![Write::Put(&self.entry.key, &record)];
        if !stays {
            writes.push(Write::Garbage(row.clone()));
        }
        let mut accounted = crate::lock(&self.segment.accounted);
        if let Err(error) = self.shared.catalog.commit(&writes) {
            self.shared.take_back_changes(self.entry, &[&row], &error);
            return Err(error.into());
        }
        self.shared.failpoints.hit("flip.committed")?;
        self.segment.location.publish(Arc::new(next));
        self.shared.tier(self.to()).account.turn(Class::Copy, Class::Used, amount);
        self.leave(&mut accounted, amount, (amount, amount + behind), stays);
        drop(accounted);
        self.shared.post_change(EventKind::Uncopied, self.segment, self.to());
        self.shared.post_change(EventKind::Moved, self.segment, self.to());
        if stays {
            self.shared.post_change(EventKind::Copied, self.segment, self.one.from);
            // It is done all the same: an old mark is put right by the next opening after a crash. On a
            // tier of whole objects it stays as it was made: a mark is a request.
            if !self.shared.tier(old.place.tier).is_whole() {
                let _ = self.mark(&old, Role::Copy);
            }
        } else {
            // It may have the bytes of the last sync at level `shared`.
            let superseded = vec![Superseded { site: old, row }];
            self.shared.drops.add(self.shared.retain_among(self.entry, superseded));
        }
        Ok(())
    }
}
