// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What changes the shape of an object: room, segments, length.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{
    Error, ErrorKind, EventKind, Layout, Persistency, Placement, Result, TierIndex,
};

use crate::catalog::map::{GarbageRow, Write};
use crate::catalog::record::{Record, SegmentRecord};
use crate::memory::entry::{Accounted, Entry, Segment};
use crate::memory::guard::Closed;
use crate::memory::site::Site;
use crate::memory::sparse::{self, Purpose, Wanted};
use crate::shared::Shared;
use crate::shared::drops::{Drop as Superseded, Which};
use crate::shared::promises;
use crate::tiers::account::Class;
use crate::tiers::list::TierState;
use crate::watch::ring::Took;

/// A part of an object: its segment, where the part begins in it, and where in the whole range.
pub(crate) type Piece = (Arc<Segment>, u64, Range<usize>);

/// Why a segment may not grow.
pub(crate) enum NoRoom {
    /// Its tier has none, or the object is gone; it may go on elsewhere.
    Here(Error),
    /// It may not take up more, wherever it is: its namespace, or the catalog, has no room.
    Anywhere(Error),
}

impl NoRoom {
    /// The error, for callers that do not distinguish.
    pub(crate) fn into_error(self) -> Error {
        match self {
            NoRoom::Here(error) | NoRoom::Anywhere(error) => error,
        }
    }
}

/// Why an object goes on nowhere else.
const IN_ONE_FILE: &str = "the object stays in one file";

impl Shared {
    /// Takes room on the segment's tier, and in its namespace's quota, so that `extent` may be
    /// written, or promised: for all bytes to its end, or, where it leaves a hole that the tier keeps,
    /// for the blocks of the extent. A segment that has become dense since is asked for anew.
    ///
    /// # Errors
    ///
    /// `NoSpace` where the tier is full of what cannot be dropped; `NotFound` once deleted.
    pub(crate) fn take_room(
        &self,
        entry: &Arc<Entry>,
        segment: &Segment,
        extent: &Range<u64>,
        purpose: Purpose,
    ) -> Result<(), NoRoom> {
        debug_assert!(extent.start <= extent.end, "an extent");
        let (mut looked, mut gave_back) = (false, false);
        let (mut freed_garbage, mut dropped_copies) = (false, false);
        loop {
            let mut accounted = crate::lock(&segment.accounted);
            entry.check_exists("write").map_err(NoRoom::Here)?;
            self.check_open("write").map_err(NoRoom::Here)?;
            let room = accounted.total();
            // One that was cut off gets none: a writer finds that out behind its gate.
            if entry.has_lost(segment) {
                return Ok(());
            }
            if !segment.is_sparse()
                && purpose != Purpose::Promise
                && extent.end > room
                && sparse::leaves_hole(room, extent.start)
                && self.keeps_holes(segment)
            {
                segment.make_sparse(&accounted);
            }
            if segment.is_sparse() && extent.end > segment.length() {
                // Its length has to be noted, also where it takes nothing.
                self.check_room("write").map_err(NoRoom::Anywhere)?;
            }
            let Some(wanted) = segment.wanted(&accounted, extent, purpose) else { return Ok(()) };
            self.check_room("write").map_err(NoRoom::Anywhere)?;
            // What was written over is no reason to take more.
            if !looked && segment.allocated().is_some_and(|_| wanted.ran_ahead) {
                looked = true;
                drop(accounted);
                self.look_alone(entry, segment);
                continue;
            }
            let index = segment.location.load().primary.place.tier;
            let tier = self.tier(index);
            let Wanted { need, step, .. } = wanted;
            let mut has_quota = entry.usage.has_room(need);
            for bytes in [step, need] {
                if !has_quota || !tier.account.take(Class::Reserved, bytes, tier.capacity_bytes()) {
                    continue;
                }
                if entry.usage.take_bytes(bytes) {
                    accounted.reserved_bytes += bytes;
                    if !segment.is_sparse() {
                        segment.room_bytes.store(room + bytes, Ordering::Release);
                    }
                    return Ok(());
                }
                tier.account.free(Class::Reserved, bytes);
                has_quota = bytes != need;
            }
            let is_sparse = segment.is_sparse();
            drop(accounted);
            if is_sparse && !looked {
                looked = true;
                self.look_alone(entry, segment);
                continue;
            }
            // No room that could be made on any tier would help.
            if !has_quota {
                if !gave_back && self.give_back_ahead(entry) {
                    gave_back = true;
                    continue;
                }
                return Err(NoRoom::Anywhere(entry.usage.refusal(need, &entry.key)));
            }
            if !freed_garbage {
                freed_garbage = true;
                self.free_garbage_for_writes(index);
                continue;
            }
            if dropped_copies || !self.drop_copies_on(index, need) {
                return Err(NoRoom::Here(
                    Error::new(ErrorKind::NoSpace, "write")
                        .with("key", &entry.key)
                        .with("tier", &tier.name)
                        .with("need_bytes", need)
                        .with("capacity_bytes", tier.capacity_bytes()),
                ));
            }
            dropped_copies = true;
        }
    }

    /// Drops clean copies of objects in memory from a full tier until `need_bytes` are on their
    /// way out; false where there are none.
    pub(crate) fn drop_copies_on(&self, tier: TierIndex, need_bytes: u64) -> bool {
        if self.tier(tier).account.bytes(Class::Copy) == 0 {
            return false;
        }
        let mut freed = 0;
        let mut holders = Vec::new();
        self.entries.for_each(|entry| {
            for segment in entry.segments.load().iter() {
                let location = segment.location.load();
                if location.copies.iter().any(|copy| copy.place.tier == tier) {
                    holders.push((Arc::clone(entry), Arc::clone(segment)));
                }
            }
        });
        for (entry, segment) in holders {
            if freed >= need_bytes {
                break;
            }
            let bytes = segment.amount();
            if self.drop_copy(&entry, &segment, tier).unwrap_or(false) {
                freed += bytes;
            }
        }
        // Their files go now, not when the dropper comes round.
        self.drops.run_on(self, tier, Which::All);
        freed > 0
    }

    /// The segment that holds an offset, made if it is missing, and the offset in it.
    pub(crate) fn segment_for_write(
        &self,
        entry: &Arc<Entry>,
        offset_bytes: u64,
    ) -> Result<(Arc<Segment>, u64)> {
        if let Some(found) = holding(entry, offset_bytes) {
            return Ok(found);
        }
        let _changes = crate::lock(&entry.changes);
        if let Some(found) = holding(entry, offset_bytes) {
            return Ok(found);
        }
        entry.check_exists("write")?;
        let segments = entry.segments.load_full();
        let before = segments.iter().rev().find(|segment| segment.start_bytes <= offset_bytes);
        let before = before.expect("the first segment starts at 0");
        let reach = before.start_bytes + before.limit_bytes.load(Ordering::Acquire);
        let start = match &entry.layout {
            Layout::One => reach,
            Layout::Fixed { segment_bytes } => {
                (offset_bytes / segment_bytes * segment_bytes).max(reach)
            }
            Layout::Steps { starts_bytes } => {
                let cut = starts_bytes.iter().rev().find(|cut| **cut <= offset_bytes);
                cut.copied().unwrap_or(0).max(reach)
            }
        };
        let tier = if entry.is_pinned.load(Ordering::Acquire) {
            // It stays where it is, all of it.
            before.location.load().primary.place.tier
        } else {
            let placement = Placement {
                key: &entry.key,
                hint: entry.hint,
                size_hint_bytes: None,
                segment: segments.len() as u32,
                start_bytes: start,
            };
            self.place(&placement).tier
        };
        self.add_segment(entry, start, tier, None)?;
        holding(entry, offset_bytes)
            .ok_or_else(|| Error::new(ErrorKind::Busy, "write").with("key", &entry.key))
    }

    /// Adds a segment that starts at `start_bytes`; the caller holds `entry.changes`. `outgrown`
    /// is the tier that had no room for it, where that is why there is one.
    fn add_segment(
        &self,
        entry: &Arc<Entry>,
        start_bytes: u64,
        wanted: TierIndex,
        outgrown: Option<TierIndex>,
    ) -> Result<()> {
        self.check_open("write")?;
        let old = entry.segments.load_full();
        let number = old.iter().map(|segment| segment.number).max().expect("at least one") + 1;
        if old.len() >= crate::catalog::record::SEGMENTS_MAX as usize {
            return Err(Error::new(ErrorKind::Unsupported, "write")
                .because("the object would have too many segments")
                .with("key", &entry.key));
        }
        let level = entry.persistency();
        let site = self.new_file(entry.owner(), number, start_bytes, wanted, level, None)?;
        self.failpoints.hit("grow.file")?;
        let record = SegmentRecord {
            number,
            start_bytes,
            length_bytes: 0,
            allocated_bytes: None,
            checksum: None,
            primary: site.place,
            copies: Vec::new(),
            settling: None,
            synced: Vec::new(),
            is_added: entry.kept() >= Persistency::Shared,
        };
        let next = old.iter().map(|other| other.start_bytes).find(|start| *start > start_bytes);
        let cut = entry.layout.next_cut(start_bytes);
        let limit = next.unwrap_or(u64::MAX).min(cut.unwrap_or(u64::MAX));
        let limit = if limit == u64::MAX { u64::MAX } else { limit - start_bytes };
        let now = old.iter().map(|segment| segment.record(&segment.location.load()));
        let mut records: Vec<_> = now.chain([record.clone()]).collect();
        records.sort_by_key(|record| record.start_bytes);
        let to = site.place.tier;
        let spilled_from = outgrown.or((to != wanted).then_some(wanted));
        let spilled = |wanted| crate::migrate::history::spilled(self, wanted, to, level);
        let mut history = spilled_from.map(spilled);
        let of_draft = history.take_if(|_| entry.is_draft());
        let history = history.map(|it| Write::History(entry.object_id, number, Some(it)));
        if let Err(error) = self.commit_grown(entry, &site, &entry.record(records), history) {
            let unwritten = Write::History(entry.object_id, number, None);
            self.take_back(entry, number, site, None, unwritten);
            return Err(error);
        }
        if let Some(history) = of_draft {
            self.keep_history(entry, number, history);
        }
        let new = self.new_segment(entry.object_id, &record, limit, Arc::clone(&site));
        let segment = Arc::new(new);
        let mut list = (*old).clone();
        list.push(Arc::clone(&segment));
        list.sort_by_key(|segment| segment.start_bytes);
        entry.segments.publish(Arc::new(list));
        self.post_created(entry, &segment, None);
        for _ in 0..entry.opens.load(Ordering::Acquire).min(1) {
            let now_ns = self.clock.now_ns();
            self.post(EventKind::Open, &segment, site.place.tier, now_ns, (0, 0), Took::default());
        }
        Ok(())
    }

    /// Commits the record of an object with a new segment, as durably as the object is promised.
    fn commit_grown(
        &self,
        entry: &Entry,
        site: &Site,
        record: &Record,
        history: Option<Write<'_>>,
    ) -> Result<()> {
        let is_durable = entry.persistency() >= Persistency::Storage;
        if is_durable {
            // Names first: a record that is durable never names a file that is not.
            self.backend(site).sync()?;
        }
        let writes: Vec<_> = [Write::Put(&entry.key, record)].into_iter().chain(history).collect();
        let ticket = self.catalog.commit(&writes)?;
        self.failpoints.hit("grow.catalog")?;
        if is_durable { self.catalog.wait(ticket) } else { Ok(()) }
    }

    /// Gives up a new file that was to be a segment's: commits the record as it was, because a
    /// commit that failed may have been written all the same, and has the file deleted. `kept` is
    /// the row of a file that is no garbage after all, `history` what brings back that of the segment.
    /// False where the commit fails; the next opening then recovers.
    fn take_back(
        &self,
        entry: &Entry,
        segment: u32,
        site: Arc<Site>,
        kept: Option<&GarbageRow>,
        history: Write<'_>,
    ) -> bool {
        let row = GarbageRow { object_id: entry.object_id, segment, place: site.place, bytes: 0 };
        let record = entry.record_now();
        let mut writes =
            vec![Write::Put(&entry.key, &record), Write::Garbage(row.clone()), history];
        writes.extend(kept.map(Write::GarbageGone));
        let is_back = self.catalog.commit(&writes).is_ok();
        self.tier(site.place.tier).segments.fetch_sub(1, Ordering::SeqCst);
        if is_back {
            self.drops.add(vec![Superseded { site, row }]);
        }
        is_back
    }

    /// Sees to it that a write which the tier `tried` refused as full can go on: returns the bytes
    /// that the tier still takes, or, when it takes none, gives the object a segment elsewhere and
    /// returns 0. `refused` comes back where every tier is full. A segment that has left `tried`
    /// meanwhile is to be tried again.
    pub(crate) fn make_fit(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        tried: TierIndex,
        extent: Range<u64>,
        refused: Error,
    ) -> Result<u64> {
        if self.is_bare {
            return Err(refused);
        }
        let is_sparse = segment.is_sparse();
        // Before anything is taken: others go on, and nothing has to be given back.
        let need_bytes = match is_sparse {
            true => {
                let holes_bytes = self.holes_in(segment, &extent)?;
                let demand = segment.demand(&extent, Purpose::Bytes { holes_bytes });
                demand.room_bytes().saturating_sub(segment.spare())
            }
            false => extent.end.saturating_sub(segment.room_bytes.load(Ordering::Acquire)),
        };
        let is_held = segment.holds.is_held();
        if is_held && !is_too_long(&refused) {
            // It cannot go on elsewhere, so others make room for it.
            let written_bytes = if is_sparse { need_bytes } else { extent.end - extent.start };
            if self.displace(entry, tried, need_bytes, written_bytes)? {
                return Ok(0);
            }
        }
        if need_bytes > self.most_growth(entry, segment) {
            return Err(match is_held {
                true => refused.with("held", IN_ONE_FILE),
                false => refused,
            });
        }
        let bytes = if is_sparse { need_bytes } else { extent.end };
        if segment.reach() == 0 && self.relocate_empty(entry, segment, tried, bytes)? {
            return Ok(0);
        }
        let location = segment.location.load_full();
        let tier = self.tier(location.primary.place.tier);
        let free = tier.capacity_bytes().saturating_sub(tier.account.taken());
        let fits = match is_sparse {
            true => {
                let room = free.min(left_on(tier)).saturating_add(segment.spare());
                sparse::fitting(extent.start, room).min(extent.end - extent.start)
            }
            false => {
                let reach = segment.room_bytes.load(Ordering::Acquire).saturating_add(free);
                reach.min(extent.end).saturating_sub(extent.start).min(left_on(tier))
            }
        };
        // All of it would fit, and the tier refused all the same: the device itself is full.
        if fits > 0 && fits < extent.end - extent.start {
            return Ok(fits);
        }
        if segment.reach() == 0 && !segment.holds.is_held() && !location.is_plain() {
            // It moved while it was empty. A new segment would have nothing before it: without
            // these the next try puts this one elsewhere.
            self.make_unclean(entry, segment)?;
            self.settle(entry, segment)?;
            return Ok(0);
        }
        self.outgrow(entry, segment, tried, extent, refused).map(|()| 0)
    }

    /// Most bytes by which an object can grow from a segment on: what the tiers that may have its
    /// bytes do not hold yet, or can drop.
    fn most_growth(&self, entry: &Entry, segment: &Segment) -> u64 {
        let own = segment.location.load().primary.place.tier;
        let is_held = segment.holds.is_held();
        let level = entry.persistency();
        let takes = |index: TierIndex, tier: &TierState| {
            index == own || !is_held && tier.keeps(level) && tier.takes_writes()
        };
        let free = |tier: &TierState| {
            let kept = tier.account.taken().saturating_sub(tier.account.bytes(Class::Copy));
            tier.capacity_bytes().saturating_sub(kept)
        };
        let tiers = self.tiers.indexed().filter(|(index, tier)| takes(*index, tier));
        tiers.map(|(_, tier)| free(tier)).fold(0, u64::saturating_add)
    }

    /// Puts an empty segment on another tier than `tried` that has room for `bytes`; false where
    /// none has.
    fn relocate_empty(
        &self,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        tried: TierIndex,
        bytes: u64,
    ) -> Result<bool> {
        let _changes = crate::lock(&entry.changes);
        self.check_open("write")?;
        let _closed = self.close(segment);
        self.relocate_closed(entry, segment, tried, bytes)
    }

    fn relocate_closed(
        &self,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        tried: TierIndex,
        bytes: u64,
    ) -> Result<bool> {
        let location = segment.location.load_full();
        let full = location.primary.place.tier;
        if full != tried {
            return Ok(true);
        }
        let has_room = |tier: &TierIndex| {
            let state = self.tier(*tier);
            let sum = state.account.taken().saturating_add(bytes);
            *tier != full
                && state.keeps(entry.persistency())
                && state.takes_writes()
                && sum <= state.capacity_bytes()
                && bytes <= left_on(state)
        };
        let tiers = self.tiers.indexed().map(|(tier, _)| tier);
        let Some(next) = tiers.clone().filter(|tier| *tier > full).chain(tiers).find(has_room)
        else {
            return Ok(false);
        };
        let is_busy = !location.is_plain() || segment.holds.is_held();
        if segment.reach() > 0 || is_busy || entry.has_lost(segment) {
            return Ok(false);
        }
        let site = self.new_file_on(
            entry.owner(),
            segment.number,
            segment.start_bytes,
            next,
            self.catalog.number()?,
        )?;
        let next_location = self.location(Arc::clone(&site), Vec::new(), None, None);
        let record = entry.record_with(segment, &next_location, None);
        let old = &location.primary;
        let row = GarbageRow {
            object_id: entry.object_id,
            segment: segment.number,
            place: old.place,
            bytes: 0,
        };
        let mut accounted = crate::lock(&segment.accounted);
        let past = self.history_of(entry, segment.number)?;
        let history = crate::migrate::history::relocated(self, past.as_deref(), (full, next));
        let mut writes = vec![Write::Put(&entry.key, &record), Write::Garbage(row.clone())];
        if !entry.is_draft() {
            writes.push(Write::History(entry.object_id, segment.number, Some(history.clone())));
        }
        let commit = || {
            self.backend(&site).sync()?;
            let ticket = self.catalog.commit(&writes)?;
            match entry.persistency() {
                Persistency::Storage | Persistency::Shared => self.catalog.wait(ticket),
                _ => Ok(()),
            }
        };
        if let Err(error) = commit() {
            let unwritten =
                Write::History(entry.object_id, segment.number, past.filter(|_| !entry.is_draft()));
            if !self.take_back(entry, segment.number, site, Some(&row), unwritten) {
                // After a crash the catalog could name the new file while bytes go to the old.
                self.is_broken.store(true, Ordering::Release);
            }
            return Err(error);
        }
        if entry.is_draft() {
            self.keep_history(entry, segment.number, history);
        }
        segment.location.publish(Arc::new(next_location));
        let from = self.tier(full);
        from.account.free(Class::Used, accounted.used_bytes);
        from.account.free(Class::Reserved, accounted.reserved_bytes);
        entry.usage.resize(accounted.total(), 0);
        *accounted = Accounted::default();
        segment.set_allocated(None);
        segment.room_bytes.store(0, Ordering::Release);
        drop(accounted);
        from.segments.fetch_sub(1, Ordering::Relaxed);
        self.drops.add(vec![Superseded { site: Arc::clone(old), row }]);
        self.post_change(EventKind::Moved, segment, next);
        Ok(true)
    }

    /// Makes an object go on in a new segment, because the tier of `segment` is full; `refused`
    /// is returned where it cannot.
    fn outgrow(
        &self,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        tried: TierIndex,
        extent: Range<u64>,
        refused: Error,
    ) -> Result<()> {
        let _changes = crate::lock(&entry.changes);
        let _closed = self.close(segment);
        let old_limit = segment.limit_bytes.load(Ordering::Acquire);
        let full = segment.location.load().primary.place.tier;
        if extent.end > old_limit || full != tried {
            // Another thread was here first.
            return Ok(());
        }
        entry.check_exists("write")?;
        if segment.holds.is_held() {
            // A user of its file past the stack would not see another segment.
            return Err(refused.with("held", IN_ONE_FILE));
        }
        // What was promised stays its own: the next segment begins behind it.
        let reach = segment.reach();
        // A write into the middle of what is there needs no room: the tier itself is full.
        let is_inside = extent.end <= reach;
        let free = |tier: &TierIndex| {
            let tier = self.tier(*tier);
            tier.capacity_bytes().saturating_sub(tier.account.taken()).min(left_on(tier))
        };
        let others: Vec<_> = (full.index() + 1..self.tiers.len())
            .chain(0..full.index())
            .map(|index| TierIndex(index as u8))
            .filter(|tier| {
                let state = self.tier(*tier);
                state.keeps(entry.persistency()) && state.takes_writes() && free(tier) > 0
            })
            .collect();
        let left = extent.end - reach.min(extent.end);
        // One that takes all of it, else the one that takes most.
        let has_next = others
            .iter()
            .find(|tier| free(tier) >= left)
            .or_else(|| others.iter().max_by_key(|tier| free(tier)))
            .copied();
        match has_next {
            Some(next) if !is_inside && reach > 0 => {
                segment.limit_bytes.store(reach, Ordering::Release);
                let start = segment.start_bytes + reach;
                let added = self.add_segment(entry, start, next, Some(full));
                if added.is_err() {
                    segment.limit_bytes.store(old_limit, Ordering::Release);
                }
                added
            }
            _ => Err(refused),
        }
    }

    /// Keeps writers out and waits for those inside, however long their device takes.
    pub(crate) fn close<'a>(&'a self, segment: &'a Segment) -> Closed<'a> {
        segment.guard.close_all(&segment.gate, &self.parking)
    }

    /// Cuts an object to `bytes`, unless it reaches beyond `beyond_bytes` by now: false then.
    pub(crate) fn shrink(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        bytes: u64,
        beyond_bytes: u64,
        is_wanted: &dyn Fn() -> Result<bool>,
    ) -> Result<bool> {
        let staying = |segments: &[Arc<Segment>]| {
            segments.iter().filter(|segment| segment.start_bytes < bytes).count().max(1)
        };
        let (old, keep, changes) = loop {
            // All or nothing: the last one that stays is cut after the others are gone. So it is on a tier
            // where it can be cut before that.
            let segments = entry.segments.load_full();
            let last = &segments[staying(&segments) - 1];
            let is_cut = |last: &Segment| {
                bytes.saturating_sub(last.start_bytes) < last.length() && self.is_immutable(last)
            };
            if is_cut(last) {
                self.recall(entry, last)?;
            }
            let changes = crate::lock(&entry.changes);
            entry.check_exists("set length")?;
            self.check_open("set length")?;
            let old = entry.segments.load_full();
            let keep = staying(&old);
            self.check_online(&old[keep - 1])?;
            if !is_cut(&old[keep - 1]) {
                break (old, keep, changes);
            }
        };
        if keep < old.len() && !self.cut_segments(entry, &old, keep, beyond_bytes, is_wanted)? {
            return Ok(false);
        }
        drop(changes);
        let segment = &old[keep - 1];
        let inside = bytes - segment.start_bytes.min(bytes);
        let beyond = beyond_bytes - segment.start_bytes;
        let is_cut = self.cut_segment(entry, segment, inside, beyond, is_wanted)?;
        if is_cut && entry.is_promised() {
            self.note_promises(entry)?;
        }
        Ok(is_cut)
    }

    /// Removes the segments at the end that are empty and that `is_wanted` names.
    pub(crate) fn cut_empty(
        &self,
        entry: &Arc<Entry>,
        is_wanted: &dyn Fn(&Segment) -> bool,
    ) -> Result<bool> {
        let _changes = crate::lock(&entry.changes);
        let old = entry.segments.load_full();
        let is_empty = |segment: &&Arc<Segment>| is_wanted(segment) && segment.length() == 0;
        let keep = (old.len() - old.iter().rev().take_while(is_empty).count()).max(1);
        if keep == old.len() || entry.is_deleted() {
            return Ok(false);
        }
        let are_still = || Ok(old[keep..].iter().all(|segment| segment.length() == 0));
        self.cut_segments(entry, &old, keep, u64::MAX, &are_still)
    }

    /// Removes the segments from `keep` on, unless the object reaches beyond `beyond_bytes`: false
    /// then. The caller holds `entry.changes`.
    fn cut_segments(
        &self,
        entry: &Arc<Entry>,
        old: &[Arc<Segment>],
        keep: usize,
        beyond_bytes: u64,
        is_wanted: &dyn Fn() -> Result<bool>,
    ) -> Result<bool> {
        let cut = &old[keep..];
        let records =
            old[..keep].iter().map(|segment| segment.record(&segment.location.load())).collect();
        let record = entry.record(records);
        let closed: Vec<_> = cut.iter().map(|segment| self.close(segment)).collect();
        let is_wanted = if entry.length() > beyond_bytes { Ok(false) } else { is_wanted() };
        if !matches!(is_wanted, Ok(true)) {
            return is_wanted;
        }
        let mut superseded = Vec::new();
        let mut held = Vec::new();
        for segment in cut {
            let mut accounted = crate::lock(&segment.accounted);
            self.look(entry, segment, &mut accounted);
            superseded.extend(self.superseded_with(entry, segment, segment.amount()));
            held.push(accounted);
        }
        let mut writes = vec![Write::Put(&entry.key, &record)];
        writes.extend(superseded.iter().map(|drop| Write::Garbage(drop.row.clone())));
        writes.extend(cut.iter().map(|one| Write::History(entry.object_id, one.number, None)));
        writes.extend(promises::write(entry, &old[..keep]));
        let result = self
            .catalog
            .commit(&writes)
            .inspect_err(|error| {
                let rows: Vec<_> = superseded.iter().map(|drop| &drop.row).collect();
                self.take_back_changes(entry, &rows, error);
            })
            .and_then(|ticket| self.failpoints.hit("truncate.catalog").map(|()| ticket));
        if result.is_ok() {
            for (segment, accounted) in cut.iter().zip(&mut held) {
                segment.note_cut_off();
                self.forget(entry, segment, accounted, segment.amount());
                self.post_change(EventKind::Delete, segment, TierIndex(0));
                self.slots.release(entry.object_id, segment.number);
            }
            let last = &old[keep - 1];
            let limit = entry.layout.next_cut(last.start_bytes);
            let limit = limit.map_or(u64::MAX, |cut| cut - last.start_bytes);
            entry.segments.publish(Arc::new(old[..keep].to_vec()));
            last.limit_bytes.store(limit, Ordering::Release);
        }
        drop(held);
        drop(closed);
        result?;
        self.drops.add(superseded);
        Ok(true)
    }

    /// Cuts a segment to `inside` bytes, unless it reaches beyond `beyond` or is lost: false then. Other
    /// writers are kept out, so that length and file change together.
    fn cut_segment(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        inside: u64,
        beyond: u64,
        is_wanted: &dyn Fn() -> Result<bool>,
    ) -> Result<bool> {
        loop {
            let changes = || inside < segment.length() || segment.reach() != segment.length();
            if changes() {
                self.recall(entry, segment)?;
            }
            if segment.location.load().is_clean() && changes() {
                self.make_unclean(entry, segment)?;
            }
            let closed = self.close(segment);
            if entry.has_lost(segment) {
                // Deleted meanwhile, or cut off by another call, which left less.
                return Ok(false);
            }
            self.check_open("set length")?;
            let location = segment.location.load();
            let is_ready = !location.is_clean() && !self.is_immutable(segment);
            if !is_ready && changes() {
                continue;
            }
            self.measure_closed(entry, segment)?;
            self.check_new_end(segment, inside.min(segment.length()))?;
            let length = segment.length();
            let is_wanted = if length > beyond { Ok(false) } else { is_wanted() };
            if !matches!(is_wanted, Ok(true)) {
                return is_wanted;
            }
            let now_ns = self.clock.now_ns();
            let tier = location.primary.place.tier;
            let result = if inside >= length && segment.reach() == length {
                Ok(())
            } else {
                // One that is shorter may have room behind its end to give back.
                let inside = inside.min(length);
                if self.is_bare {
                    segment.note_cut();
                }
                let cut =
                    location.primary.open(self.backend(&location.primary)).and_then(|handle| {
                        let object = handle.as_ref().expect("it was just opened");
                        object.set_len(inside)
                    });
                segment.note_unsure();
                if cut.is_ok() {
                    segment.length_bytes.store(inside, Ordering::Release);
                    segment.promise_only(0);
                    if inside < length {
                        segment.mark(inside, length);
                    }
                    self.note_unflushed(entry);
                    self.trim_cut(entry, segment);
                } else {
                    // It may have been cut all the same: the file knows.
                    let handle = location.primary.open(self.backend(&location.primary));
                    let stat =
                        handle.and_then(|handle| handle.as_ref().expect("just opened").stat());
                    if let Ok(stat) = stat {
                        let now = stat.size_bytes.min(length);
                        segment.length_bytes.store(now, Ordering::Release);
                        segment.mark(now, length);
                        self.note_unflushed(entry);
                    }
                }
                cut.and_then(|()| self.failpoints.hit("truncate.file"))
            };
            drop(closed);
            let took_ns = self.clock.now_ns() - now_ns;
            self.tier(tier).ledger.access(true, 0, took_ns);
            self.post(EventKind::SetLen, segment, tier, now_ns, (0, inside), Took::of(took_ns));
            return result.map(|()| true);
        }
    }

    /// The parts of a range by segment, in order; parts that no segment holds are left out.
    pub(crate) fn pieces(&self, entry: &Entry, offset_bytes: u64, count: usize) -> Vec<Piece> {
        let segments = entry.segments.load();
        let end_bytes = offset_bytes + count as u64;
        let mut pieces = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            let limit = segments.get(index + 1).map_or(u64::MAX, |next| next.start_bytes);
            let start = segment.start_bytes.max(offset_bytes);
            let end = limit.min(end_bytes);
            if start < end {
                let range = (start - offset_bytes) as usize..(end - offset_bytes) as usize;
                pieces.push((Arc::clone(segment), start - segment.start_bytes, range));
            }
        }
        pieces
    }
}

/// What is left on the device of a tier, which may be less than of its capacity.
pub(crate) fn left_on(tier: &TierState) -> u64 {
    let space = tier.backend.space();
    space.map_or(u64::MAX, |space| space.capacity_bytes.saturating_sub(space.used_bytes))
}

/// Whether a tier takes no file of such a length, however much room it has.
fn is_too_long(refused: &Error) -> bool {
    let source = std::error::Error::source(refused);
    let error = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::FileTooLarge)
}

/// The segment that holds an offset.
fn holding(entry: &Entry, offset_bytes: u64) -> Option<(Arc<Segment>, u64)> {
    let segments = entry.segments.load();
    let segment = segments.iter().rev().find(|segment| segment.start_bytes <= offset_bytes)?;
    let inside = offset_bytes - segment.start_bytes;
    let is_inside = inside < segment.limit_bytes.load(Ordering::Acquire);
    is_inside.then(|| (Arc::clone(segment), inside))
}
