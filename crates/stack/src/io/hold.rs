// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holding objects in their files, for readers and writers past the stack, and finding out
//! when a file can no longer be written to.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrace_core::{Access, EventKind, Object, Open, Persistency, Result, Semantics, Stat};

use crate::io::shape::NoRoom;
use crate::io::writers;
use crate::memory::entry::{Accounted, Entry, Segment};
use crate::memory::holds::Holder;
use crate::memory::site::Site;
use crate::memory::sparse::{Others, Purpose};
use crate::recover::survivors;
use crate::shared::Shared;
use crate::tiers::account::Class;
use crate::tiers::list::{Holding, TierState};
use crate::watch::ring::Took;

/// Looks at an object that changes under them, before nothing is held.
const LOOKS_MAX: usize = 3;

/// Room that is kept ahead of a file that is held for writing: what a fast device writes between
/// two looks at its length in small files, and little beside large ones.
const ROOM_BYTES: u64 = 4 << 20;

/// Looks for the end of the reads that use the stack's own descriptor: reads end by themselves.
const USERS_LOOKS_MAX: u32 = 50;
const USERS_LOOK: Duration = Duration::from_micros(100);

/// What comes of an attempt to hold a file.
enum Attempt {
    Held(File),
    Refused,
    /// It was written, or its tier filled, since it was looked at.
    Changed,
}

impl Shared {
    /// Holds an object of one segment, its `first`, in the file of its primary. `holder` says what
    /// the handle that asks holds already.
    pub(crate) fn hold(
        &self,
        entry: &Arc<Entry>,
        first: &Segment,
        holder: &Holder,
        access: Access,
    ) -> Result<Option<File>> {
        for _ in 0..LOOKS_MAX {
            if !self.may_hold(entry, first, access) || !self.is_held_whole(first)? {
                return Ok(None);
            }
            // Once one process can write, another one makes nothing worse.
            let is_first = access == Access::Write && !first.holds.is_written();
            if is_first && !self.prepare_writing(entry, first)? {
                return Ok(None);
            }
            match self.try_hold(entry, first, holder, access)? {
                Attempt::Held(file) => {
                    self.failpoints.hit("hold.marked")?;
                    return Ok(Some(file));
                }
                Attempt::Refused => return Ok(None),
                Attempt::Changed => {}
            }
        }
        Ok(None)
    }

    fn may_hold(&self, entry: &Entry, first: &Segment, access: Access) -> bool {
        let is_whole = first.limit_bytes.load(Ordering::Acquire) == u64::MAX;
        let is_over = entry.is_deleted() || self.is_closing.load(Ordering::Acquire);
        if !is_whole || is_over {
            return false;
        }
        // A sync at this level makes a copy on a shared tier, and what changes past the stack has none.
        if entry.persistency() >= Persistency::Shared && !first.holds.is_held() {
            return false;
        }
        // Where readers use a copy, a holder of the primary would read what is slower.
        let location = first.location.load_full();
        let is_best = Arc::ptr_eq(location.read_site(), &location.primary);
        let tier = self.tier(location.primary.place.tier);
        let is_wanted_elsewhere =
            || !tier.takes_data() || self.mover.of_segment(entry.object_id, first.number).is_some();
        // What stays for one holder stays for another.
        (access == Access::Write || is_best)
            && tier.capability.leases
            && (first.holds.is_held() || !is_wanted_elsewhere())
    }

    /// Whether the file ends where the object does: else a user past the stack would find an
    /// end, or zeros, in place of bytes that are lost. All holders use one file.
    fn is_held_whole(&self, first: &Segment) -> Result<bool> {
        if first.holds.is_held() {
            return Ok(true);
        }
        let location = first.location.load_full();
        self.has_its_end("hold a file", first, &location.primary)
    }

    /// Whether a writer to a tier had better be able to go on elsewhere.
    fn is_crowded(&self, tier: &TierState) -> bool {
        let taken = tier.account.taken();
        if !tier.takes_data() || taken >= tier.high_bytes() {
            return true;
        }
        if self.tiers.len() == 1 {
            return false;
        }
        // Its capacity may be none, or more than there is, and others may fill its file system, too.
        let left = match tier.backend.space() {
            Ok(space) if space.capacity_bytes < u64::MAX => {
                space.capacity_bytes.saturating_sub(space.used_bytes)
            }
            _ => return false,
        };
        taken >= tier.high_of(taken.saturating_add(left))
    }

    /// Sees to what the stack cannot see to while bytes change behind its back: room, and nothing
    /// that such a change would make wrong. False where that cannot be.
    fn prepare_writing(&self, entry: &Arc<Entry>, first: &Segment) -> Result<bool> {
        let tier = self.tier(first.location.load().primary.place.tier);
        let has_room = !self.is_crowded(tier) && self.take_room_to_hold(entry, first).is_ok();
        // What stays for readers stays for one more, and all use one file: a kernel that passes it
        // through for them serves no other reader in another way.
        if !has_room && !first.holds.is_held() {
            return Ok(false);
        }
        if first.location.load().is_clean() {
            self.make_unclean(entry, first)?;
        }
        // When such a change is made durable is not reported, and a switch that is not durable is undone
        // where the power is lost. A sync returns why it cannot be made durable.
        Ok(self.settle(entry, first).is_ok())
    }

    /// Takes room for what is written past the stack between two looks at the file.
    fn take_room_to_hold(&self, entry: &Arc<Entry>, first: &Segment) -> Result<(), NoRoom> {
        let length = first.length();
        self.take_room(entry, first, &(length..length.saturating_add(ROOM_BYTES)), Purpose::WRITE)
    }

    fn try_hold(
        &self,
        entry: &Arc<Entry>,
        first: &Segment,
        holder: &Holder,
        access: Access,
    ) -> Result<Attempt> {
        // A migration looks at the holds of a segment under this lock. It is held while a descriptor
        // is opened, which asks no device.
        let _changes = crate::lock(&entry.changes);
        if !self.may_hold(entry, first, access) {
            return Ok(Attempt::Refused);
        }
        let location = first.location.load_full();
        let tier = self.tier(location.primary.place.tier);
        let open = location.primary.open_once(self.backend(&location.primary))?;
        if !holding(tier, &**open)?.allows(access) {
            return Ok(Attempt::Refused);
        }
        let is_first = access == Access::Write && !first.holds.is_written();
        let has_room = || room_left(first) >= ROOM_BYTES || first.holds.is_held();
        let is_ready = || !location.is_clean() && location.settling.is_none() && has_room();
        if is_first && !is_ready() {
            return Ok(Attempt::Changed);
        }
        let Some(file) = open.hold_file(access)? else { return Ok(Attempt::Refused) };
        if access == Access::Write
            && !self.written.add(entry, || self.is_closing.load(Ordering::Acquire))
        {
            return Ok(Attempt::Refused);
        }
        if is_first && let Err(error) = survivors::note(self, entry) {
            self.written.remove(entry.object_id);
            return Err(error);
        }
        first.holds.add(holder, access);
        Ok(Attempt::Held(file))
    }

    /// Holds what a process that has ended held for writing, until it can no longer be written to.
    pub(crate) fn hold_left(&self, entry: &Arc<Entry>) {
        let first = Arc::clone(&entry.segments.load()[0]);
        let _changes = crate::lock(&entry.changes);
        first.holds.leave();
        self.written.add(entry, || false);
        self.written.look_later(entry.object_id, self.clock.now_ns());
    }

    /// A handle that holds something is closed.
    pub(crate) fn let_go(&self, entry: &Arc<Entry>, first: &Segment, holder: &Holder) {
        let changes = crate::lock(&entry.changes);
        let was_writing = holder.is_writing();
        first.holds.remove(holder);
        // Behind a close no error can be returned; the next opening compares the lengths.
        let is_over = self.is_closing.load(Ordering::Acquire);
        if !was_writing || !first.holds.is_left() || is_over {
            return;
        }
        self.written.look_later(entry.object_id, self.clock.now_ns());
        drop(changes);
        // The handle still counts.
        self.try_release(entry, first, 1);
    }

    /// Looks after what is held for writing: which files can still be written to, and once a second, which
    /// `is_second` marks, how long the files are.
    pub(crate) fn look_after_held(&self, is_second: bool) {
        for entry in self.written.due(self.clock.now_ns()) {
            let first = Arc::clone(&entry.segments.load()[0]);
            if !self.try_release(&entry, &first, 0) {
                self.written.look_later(entry.object_id, self.clock.now_ns());
            }
        }
        if !is_second {
            return;
        }
        for entry in self.written.all() {
            let first = Arc::clone(&entry.segments.load()[0]);
            // What cannot be found out now is found out at the end.
            let _ = self.measure(&entry, &first);
            if room_left(&first) < ROOM_BYTES / 2 && first.holds.is_written() && !entry.is_deleted()
            {
                // Without room it grows all the same, and is counted.
                let _ = self.take_room_to_hold(&entry, &first);
                // A hold that ended meanwhile has given room back already.
                self.trim_room(&entry, &first);
            }
        }
    }

    /// Looks at once whether an object without a handle for writing can still be written
    /// to.
    pub(crate) fn release_left(&self, entry: &Arc<Entry>) {
        // What a close has noted is not changed behind it: the next opening compares the lengths.
        if self.is_closing.load(Ordering::Acquire) {
            return;
        }
        if let Some(first) = entry.segments.load().first().filter(|first| first.holds.is_left()) {
            self.try_release(entry, first, 0);
        }
    }

    /// Looks at once at everything without a handle for writing; whether any of it can
    /// still be written to.
    pub(crate) fn look_at_left(&self) -> bool {
        let mut are_left = false;
        for entry in self.written.all() {
            let first = Arc::clone(&entry.segments.load()[0]);
            are_left |= first.holds.is_left() && !self.try_release(&entry, &first, 0);
        }
        are_left
    }

    /// Takes over the length of a file that may be written to past the stack.
    pub(crate) fn measure(&self, entry: &Arc<Entry>, segment: &Segment) -> Result<()> {
        if !segment.holds.is_written() || entry.is_deleted() {
            return Ok(());
        }
        // As a writer, so that the file is not cut between the look and the note of it.
        let (_entered, _) = segment.guard.enter(&self.parking);
        self.measure_inside(entry, segment, Others::MayWrite)
    }

    /// The same behind a closed gate.
    pub(crate) fn measure_closed(&self, entry: &Arc<Entry>, segment: &Segment) -> Result<()> {
        if !segment.holds.is_written() || entry.is_deleted() {
            return Ok(());
        }
        self.measure_inside(entry, segment, Others::KeptOut)
    }

    fn measure_inside(&self, entry: &Arc<Entry>, segment: &Segment, others: Others) -> Result<()> {
        let location = segment.location.load_full();
        let open = location.primary.open_once(self.backend(&location.primary))?;
        let stat = open.stat()?;
        // Files are not cut past the stack, and what a writer without a gate has noted meanwhile
        // stays. One that is shorter has lost its end.
        let before = segment.length_bytes.fetch_max(stat.size_bytes, Ordering::AcqRel);
        // Holes may have been filled.
        let is_known = segment.allocated().is_none_or(|known| stat.allocated_bytes <= known);
        if stat.size_bytes <= before && is_known {
            return Ok(());
        }
        let mut accounted = crate::lock(&segment.accounted);
        if entry.is_deleted() {
            return Ok(());
        }
        self.account_found(entry, segment, &stat, others, &mut accounted);
        drop(accounted);
        self.note_unflushed(entry);
        if stat.size_bytes > before {
            let tier = location.primary.place.tier;
            let extent = (0, stat.size_bytes);
            let now_ns = self.clock.now_ns();
            self.post(EventKind::SetLen, segment, tier, now_ns, extent, Took::default());
        }
        Ok(())
    }

    /// Accounts what was found of a file: what is allocated of it, where its tier keeps holes.
    pub(crate) fn account_found(
        &self,
        entry: &Arc<Entry>,
        segment: &Segment,
        stat: &Stat,
        others: Others,
        accounted: &mut Accounted,
    ) {
        let has_copies = !segment.location.load().copies.is_empty();
        if self.keeps_holes(segment) && !has_copies {
            self.take_over(entry, segment, stat, others, accounted);
        }
        let amount = segment.amount();
        self.account_amount(entry, segment, amount, accounted);
    }

    /// Accounts bytes of a segment that are there. Beyond all room they count as well.
    pub(crate) fn account_amount(
        &self,
        entry: &Entry,
        segment: &Segment,
        bytes: u64,
        accounted: &mut Accounted,
    ) {
        let account = &self.tier(segment.location.load().primary.place.tier).account;
        let room = accounted.total();
        if bytes > room {
            account.found(Class::Reserved, bytes - room);
            entry.usage.bytes.found(bytes - room);
            accounted.reserved_bytes += bytes - room;
            if !segment.is_sparse() {
                segment.room_bytes.store(bytes, Ordering::Release);
            }
        }
        let more = bytes.saturating_sub(accounted.used_bytes);
        account.turn(Class::Reserved, Class::Used, more);
        accounted.used_bytes += more;
        accounted.reserved_bytes -= more;
    }

    /// Lets an object move again that every handle that held it for writing is gone from, if its
    /// file can no longer be written to. False where it can. `closing` handles count as open
    /// and do nothing any more.
    fn try_release(&self, entry: &Arc<Entry>, first: &Segment, closing: u32) -> bool {
        let _changes = crate::lock(&entry.changes);
        if !first.holds.is_left() {
            // It was released by another thread, or is held again.
            return true;
        }
        if entry.is_deleted() {
            // Nothing is moved or accounted any more.
            self.end_writing(entry, first);
            return true;
        }
        let _gate = crate::lock(&first.gate);
        let is_closed = first.guard.close(&self.parking, self.settings.switch_time_max);
        let is_used = entry.opens.load(Ordering::Acquire) > closing;
        let site = &first.location.load_full().primary;
        let is_free = is_closed
            && self.is_free_of_writers(site, is_used).unwrap_or(false)
            && self.measure_closed(entry, first).is_ok()
            && self.failpoints.hit("hold.proved").is_ok();
        if is_free {
            // What was written past the stack since the last sync no sync has covered.
            entry.is_unsynced.store(true, Ordering::Release);
            self.end_writing(entry, first);
        }
        first.guard.open(&self.parking);
        if is_free {
            self.trim_room(entry, first);
        }
        is_free
    }

    fn end_writing(&self, entry: &Entry, first: &Segment) {
        first.holds.end_writing();
        // A row that stays makes the next opening look once more.
        let _ = survivors::forget(self, entry.object_id);
        self.written.remove(entry.object_id);
    }

    /// Whether a file can be written to by the stack alone, whose writers are kept out. `is_used`
    /// tells the function that the file may be read meanwhile.
    fn is_free_of_writers(&self, site: &Site, is_used: bool) -> Result<bool> {
        let Some(lease) = site.open_once(self.backend(site))?.lease_file()? else {
            return Ok(false);
        };
        // Readers go on with a descriptor for reading. Without a policy handles keep what they
        // find here as long as they are open, and write with it: they find nothing.
        let instead = if is_used && !self.is_bare {
            let how = Open::read().with_semantics(Semantics::at_level(Persistency::None));
            Some(Arc::new(self.backend(site).open(&site.key, &how)?))
        } else {
            None
        };
        let looks_max = if self.is_bare { 0 } else { USERS_LOOKS_MAX };
        if let Some(own) = site.exchange(instead) {
            for _ in 0..looks_max {
                if Arc::strong_count(&own) == 1 {
                    break;
                }
                self.clock.sleep(USERS_LOOK);
            }
            // The last reference closes it.
            drop(own);
        }
        let are_left = writers::are_left(&lease.file);
        site.close();
        Ok(matches!(are_left, Ok(false)))
    }
}

/// Room that a segment has for what is written past the stack.
fn room_left(segment: &Segment) -> u64 {
    match segment.is_sparse() {
        true => segment.spare(),
        false => segment.room_bytes.load(Ordering::Acquire).saturating_sub(segment.length()),
    }
}

/// What can be held on a tier, found out with the first file that may be.
fn holding(tier: &TierState, open: &dyn Object) -> Result<Holding> {
    if let Some(known) = tier.holding.get() {
        return Ok(*known);
    }
    let Some(lease) = open.lease_file()? else { return Ok(Holding::Nothing) };
    let found = match lease.word {
        // A tier that is a stack moves its objects by itself, and closes what this one does not
        // use.
        Some(_) => Holding::Nothing,
        None if writers::are_left(&lease.file).is_err() => Holding::Reading,
        None => Holding::Writing,
    };
    Ok(*tier.holding.get_or_init(|| found))
}
