// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes changes certain: clean to written, switched to settled, lengths to the catalog.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use terrace_core::{Error, ErrorKind, EventKind, Result, Role, TierIndex};

use crate::catalog::map::{GarbageRow, Write};
use crate::memory::entry::{Entry, Segment};
use crate::memory::site::{Location, Site};
use crate::shared::Shared;
use crate::shared::drops::Drop as Superseded;
use crate::shared::promises;
use crate::tiers::account::Class;
use crate::watch::ledger::Timed;

/// Objects that are synced one by one; where there are more, whole tiers are: a sync of a file takes
/// about 0.2 ms on a disk, one of a file system with a thousand new files about 10 ms.
pub(crate) const SINGLE_SYNCS_MAX: usize = 64;

impl Shared {
    /// Prepares the first write to a segment with copies or a checksum: they are gone from the
    /// catalog, durably, before a byte changes. A switch that is not yet durable stays so, and the
    /// write waits for no device: should the power be lost, its source is as it was.
    pub(crate) fn make_unclean(&self, entry: &Entry, segment: &Segment) -> Result<()> {
        self.check_online(segment)?;
        let _changes = crate::lock(&entry.changes);
        let location = segment.location.load_full();
        if !location.is_clean() || entry.has_lost(segment) {
            return Ok(());
        }
        self.check_open("write")?;
        let (primary, settling) = (Arc::clone(&location.primary), location.settling.clone());
        if !location.copies.is_empty() {
            // A copy of a primary that is gone has the only bytes: it goes for no write that fails then.
            drop(primary.open(self.backend(&primary))?);
        }
        let next = self.location(primary, Vec::new(), None, settling);
        if location.checksum.is_none() && location.copies.is_empty() {
            // The catalog knows of nothing that is to be taken back.
            segment.location.publish(Arc::new(next));
            return Ok(());
        }
        let dropped: Vec<_> = location.copies.to_vec();
        let record = entry.record_with(segment, &next, segment.allocated());
        let put = Write::Put(&entry.key, &record);
        self.commit_location(entry, segment, &next, put, &dropped)?;
        self.failpoints.hit("write.unclean")?;
        self.show_location(entry, segment, next, dropped);
        Ok(())
    }

    /// Refuses what would change a segment whose primary cannot be reached: its copies stay.
    pub(crate) fn check_online(&self, segment: &Segment) -> Result<()> {
        let tier = self.tier(segment.location.load().primary.place.tier);
        match &tier.offline {
            Some(reason) => Err(Error::new(ErrorKind::Io, "change an object")
                .because(format!("the tier that it is on is offline: {reason}"))
                .with("tier", &tier.name)),
            None => Ok(()),
        }
    }

    /// Drops the clean copy of a segment on a tier; false where there is none.
    pub(crate) fn drop_copy(
        &self,
        entry: &Entry,
        segment: &Segment,
        tier: TierIndex,
    ) -> Result<bool> {
        self.drop_copy_where(entry, segment, tier, || !self.needs_shared(entry, segment, tier))
    }

    /// The same for a copy whose bytes are wrong: the level `shared` needs another one.
    pub(crate) fn drop_bad_copy(
        &self,
        entry: &Entry,
        segment: &Segment,
        tier: TierIndex,
    ) -> Result<bool> {
        self.drop_copy_where(entry, segment, tier, || true)
    }

    fn drop_copy_where(
        &self,
        entry: &Entry,
        segment: &Segment,
        tier: TierIndex,
        may_go: impl FnOnce() -> bool,
    ) -> Result<bool> {
        self.settle(entry, segment)?;
        let _changes = crate::lock(&entry.changes);
        let location = segment.location.load_full();
        let (dropped, kept): (Vec<_>, Vec<_>) =
            location.copies.iter().cloned().partition(|copy| copy.place.tier == tier);
        let is_settled = location.settling.is_none();
        if dropped.is_empty() || !is_settled || entry.has_lost(segment) || !may_go() {
            return Ok(false);
        }
        let primary = Arc::clone(&location.primary);
        let next = self.location(primary, kept, location.checksum, None);
        let record = entry.record_with(segment, &next, segment.allocated());
        // The file would take as much room as one that is kept.
        let put = Write::PutSame(&entry.key, &record);
        self.commit_location(entry, segment, &next, put, &dropped)?;
        self.failpoints.hit("uncopy.committed")?;
        self.show_location(entry, segment, next, dropped);
        Ok(true)
    }

    /// Commits a location without some copies, with the record that `put` is; durably, where there were any: a catalog that
    /// forgot the removal would serve them as clean. What a switch came from is kept until that is
    /// certain, and no garbage before.
    fn commit_location(
        &self,
        entry: &Entry,
        segment: &Segment,
        next: &Location,
        put: Write<'_>,
        dropped: &[Arc<Site>],
    ) -> Result<()> {
        let bytes = segment.amount();
        let mut writes = vec![put];
        for copy in dropped.iter().filter(|copy| !next.comes_from(copy)) {
            writes.push(Write::Garbage(garbage(entry, segment, copy, bytes)));
        }
        let ticket = self.catalog.commit(&writes)?;
        if dropped.is_empty() { Ok(()) } else { self.catalog.wait(ticket) }
    }

    fn show_location(
        &self,
        entry: &Entry,
        segment: &Segment,
        next: Location,
        mut dropped: Vec<Arc<Site>>,
    ) {
        let bytes = segment.amount();
        let next = Arc::new(next);
        segment.location.publish(Arc::clone(&next));
        for copy in &dropped {
            self.tier(copy.place.tier).account.turn(Class::Copy, Class::Garbage, bytes);
            self.post_change(EventKind::Uncopied, segment, copy.place.tier);
        }
        dropped.retain(|copy| !next.comes_from(copy));
        let superseded = dropped
            .into_iter()
            .map(|site| Superseded { row: garbage(entry, segment, &site, bytes), site });
        self.drops.add(self.retain_among(entry, superseded.collect()));
    }

    /// Makes the latest switch of a segment certain: its bytes and its commit are durable, and the
    /// source is let go.
    pub(crate) fn settle(&self, entry: &Entry, segment: &Segment) -> Result<()> {
        // What is gone needs nothing any more; trying again for ever would keep its files.
        if entry.has_lost(segment) || segment.location.load().settling.is_none() {
            return Ok(());
        }
        let _settling = crate::lock(&segment.settle);
        let location = segment.location.load_full();
        let Some(pending) = location.settling.clone() else { return Ok(()) };
        self.sync_site(&location.primary)?;
        if location.keeps_source() {
            // It may become the primary again without a byte being copied.
            self.sync_site(&pending.source)?;
        }
        self.catalog.wait_all()?;
        let _changes = crate::lock(&entry.changes);
        let location = segment.location.load_full();
        if entry.has_lost(segment) || location.settling.is_none() {
            return Ok(());
        }
        // A write may have dropped the copy meanwhile.
        let is_copy = location.keeps_source();
        let mut next = (*location).clone();
        next.settling = None;
        let record = entry.record_with(segment, &next, segment.allocated());
        let row = garbage(entry, segment, &pending.source, pending.bytes);
        let mut writes = vec![Write::Put(&entry.key, &record)];
        if !is_copy {
            writes.push(Write::Garbage(row.clone()));
        }
        self.catalog.commit(&writes)?;
        segment.location.publish(Arc::new(next));
        self.failpoints.hit("move.settled")?;
        if is_copy {
            let source = &pending.source;
            let identity = self.identity(
                entry.owner(),
                segment.number,
                segment.start_bytes,
                &source.place,
                Role::Copy,
            );
            // On a tier of whole objects it stays as it was made: a mark is a request.
            let is_whole = self.tier(source.place.tier).is_whole();
            if let Some(identity) = identity.filter(|_| !is_whole) {
                // It is done all the same: an old mark is put right by the next opening after a
                // crash.
                let _ = self.backend(source).set_identity(&source.key, &identity);
            }
        } else {
            // It may have the bytes of the last sync at level `shared`.
            let superseded = vec![Superseded { site: pending.source, row }];
            self.drops.add(self.retain_among(entry, superseded));
        }
        Ok(())
    }

    /// Makes a file durable, with its name.
    pub(crate) fn sync_site(&self, site: &Site) -> Result<()> {
        if self.tier(site.place.tier).is_whole() {
            // It is durable since there is a file.
            return Ok(());
        }
        site.open(self.backend(site))?.as_ref().expect("it was just opened").sync()?;
        self.backend(site).sync()
    }

    /// After a commit that failed and may have been written all the same: commits an object as it still
    /// is, and that the files of `kept` are no garbage; the caller holds `changes`. Where that fails too,
    /// the store takes no more writes, because a crash could bring back either, and it returns false.
    pub(crate) fn take_back_changes(
        &self,
        entry: &Entry,
        kept: &[&GarbageRow],
        failed: &Error,
    ) -> bool {
        let record = entry.record_now();
        let mut writes = vec![Write::Put(&entry.key, &record)];
        writes.extend(kept.iter().map(|row| Write::GarbageGone(row)));
        writes.extend(promises::write(entry, &entry.segments.load()));
        let Err(error) = self.catalog.commit(&writes) else { return true };
        // A disk that is full took nothing, and that alone stops no store. An engine that fails in
        // another way now may have kept what it found no room for.
        let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
        if !is_full(failed) || !is_full(&error) {
            self.is_broken.store(true, Ordering::Release);
        }
        false
    }

    /// Makes an object durable: bytes, directory and catalog, after settling a switch; at the level
    /// `shared` on the shared tier, too.
    pub(crate) fn sync_entry(&self, entry: &Arc<Entry>) -> Result<()> {
        entry.while_syncing(|| {
            self.sync_here(entry)?;
            self.share(entry).inspect_err(|_| entry.is_unsynced.store(true, Ordering::Release))
        })
    }

    /// The same on this machine only.
    fn sync_here(&self, entry: &Entry) -> Result<()> {
        let started_ns = self.clock.now_ns();
        // Before the sync, so that what is written meanwhile counts as not synced.
        entry.is_unsynced.store(false, Ordering::Release);
        let result = self.sync_segments(entry, started_ns);
        if result.is_err() {
            entry.is_unsynced.store(true, Ordering::Release);
        }
        result
    }

    fn sync_segments(&self, entry: &Entry, started_ns: u64) -> Result<()> {
        for segment in entry.segments.load_full().iter() {
            self.settle(entry, segment)?;
            let location = segment.location.load_full();
            let site = &location.primary;
            if self.tier(site.place.tier).is_whole() {
                // It has just moved there.
                if location.settling.is_some() {
                    self.settle(entry, segment)?;
                }
                continue;
            }
            let handle = site.open(self.backend(site))?;
            if let Err(error) = handle.as_ref().expect("it was just opened").sync() {
                self.has_failed_sync.store(true, Ordering::Release);
                self.tier(site.place.tier).ledger.fail(error.kind());
                // Sticky for the handle of the caller, which remembers it; others get a file
                // of their own. A switch that is not settled keeps its failed one.
                site.close();
                return Err(error);
            }
            self.failpoints.hit("sync.data")?;
            self.backend(site).sync()?;
            // A switch while this synced went on with the bytes of before it.
            if segment.location.load().settling.is_some() {
                self.settle(entry, segment)?;
            }
            let waited_ns = self.clock.now_ns() - started_ns;
            self.tier(site.place.tier).ledger.time(Timed::Sync, waited_ns);
        }
        self.catalog.wait_all()?;
        let waited_ns = self.clock.now_ns() - started_ns;
        entry.ledger.sync_ns.fetch_add(waited_ns, Ordering::Relaxed);
        self.failpoints.hit("sync.catalog")
    }

    /// Writes lengths that changed to the catalog, and settles switches whose migration could not.
    pub(crate) fn flush(&self) -> Result<()> {
        self.flush_each(|entry| Some(crate::lock(&entry.changes)))
    }

    /// The same in the background: an object that is being changed is left for the next time. Waiting
    /// would keep its files from being deleted.
    pub(crate) fn flush_idle(&self) -> Result<()> {
        self.flush_each(|entry| crate::try_lock(&entry.changes))
    }

    fn flush_each(&self, lock: fn(&Entry) -> Option<MutexGuard<'_, ()>>) -> Result<()> {
        // One that cannot be settled keeps none of the others waiting.
        let mut settled = Ok(());
        let unsettled = std::mem::take(&mut *crate::lock(&self.unsettled));
        for entry in unsettled {
            if let Err(error) = self.settle_all(&entry) {
                settled = settled.and(Err(error.with("key", &entry.key)));
                crate::lock(&self.unsettled).push(entry);
            }
        }
        // Those that are there now, each once; later ones wait for the next time.
        let last = crate::lock(&self.unflushed).last_key_value().map(|(number, _)| *number);
        let mut next = 0;
        while let Some(last) = last.filter(|last| next <= *last)
            && let Some(entry) = self.take_unflushed(next..=last)
        {
            next = entry.object_id + 1;
            entry.is_dirty.store(false, Ordering::Release);
            let flushed = self.flush_one(&entry, lock);
            if !matches!(flushed, Ok(true)) {
                self.note_unflushed(&entry);
                // One that was deleted meanwhile has been forgotten already.
                if entry.is_deleted() {
                    self.forget_unflushed(&entry);
                }
            }
            flushed?;
        }
        settled
    }

    /// Takes the first object with such a number whose length is to be flushed.
    fn take_unflushed(&self, numbers: RangeInclusive<u64>) -> Option<Arc<Entry>> {
        let mut unflushed = crate::lock(&self.unflushed);
        let number = *unflushed.range(numbers).next()?.0;
        unflushed.remove(&number)
    }

    fn settle_all(&self, entry: &Entry) -> Result<()> {
        let segments = entry.segments.load_full();
        segments.iter().try_for_each(|segment| self.settle(entry, segment))
    }

    /// False where `lock` did not get it.
    fn flush_one(
        &self,
        entry: &Arc<Entry>,
        lock: fn(&Entry) -> Option<MutexGuard<'_, ()>>,
    ) -> Result<bool> {
        for segment in entry.segments.load_full().iter() {
            self.look_alone(entry, segment);
        }
        let Some(_changes) = lock(entry) else { return Ok(false) };
        if entry.is_deleted() {
            return Ok(true);
        }
        self.catalog.commit(&[Write::Put(&entry.key, &entry.record_now())])?;
        self.failpoints.hit("flush.catalog")?;
        Ok(true)
    }

    /// Makes everything durable that was acknowledged.
    pub(crate) fn sync_all(&self) -> Result<()> {
        // What another call has begun to sync is durable when that ends.
        let _syncing = crate::lock(&self.syncing);
        let mut unsynced = Vec::new();
        self.entries.for_each(|entry| {
            if entry.may_be_unsynced() && !entry.is_deleted() {
                unsynced.push(Arc::clone(entry));
            }
        });
        // Writes past the stack are not reported.
        let mut written = self.written.all();
        // What has become unsynced meanwhile is in the list only if it was before.
        let known: HashSet<_> = unsynced.iter().map(|entry| entry.object_id).collect();
        written.retain(|entry| !known.contains(&entry.object_id) && !entry.is_deleted());
        unsynced.extend(written);
        // Which objects left memory unsynced is not known, so then everything is synced.
        let has_evicted = self.entries.take_evicted_unsynced();
        if has_evicted || unsynced.len() > SINGLE_SYNCS_MAX {
            self.sync_tiers(&unsynced).inspect_err(|_| {
                if has_evicted {
                    self.entries.note_evicted_unsynced();
                }
            })?;
        } else {
            unsynced.iter().try_for_each(|entry| self.sync_here(entry))?;
            let online = self.tiers.iter().filter(|tier| tier.is_online());
            online.into_iter().try_for_each(|tier| tier.backend.sync())?;
        }
        self.catalog.wait_all()?;
        self.share_all(&unsynced, !has_evicted)
    }

    /// Makes everything on all tiers durable, and settles what `unsynced` objects have to settle.
    fn sync_tiers(&self, unsynced: &[Arc<Entry>]) -> Result<()> {
        // Before the sync, so that what is written meanwhile counts as not synced.
        unsynced.iter().for_each(|entry| entry.is_unsynced.store(false, Ordering::Release));
        let online = self.tiers.iter().filter(|tier| tier.is_online());
        online
            .into_iter()
            .try_for_each(|tier| tier.backend.sync_all())
            .and_then(|()| self.failpoints.hit("sync.tiers"))
            // A switch while this synced went on with the bytes of before it.
            .and_then(|()| unsynced.iter().try_for_each(|entry| self.settle_all(entry)))
            .inspect_err(|_| {
                unsynced.iter().for_each(|entry| entry.is_unsynced.store(true, Ordering::Release));
            })
    }
}

fn garbage(entry: &Entry, segment: &Segment, site: &Site, bytes: u64) -> GarbageRow {
    GarbageRow { object_id: entry.object_id, segment: segment.number, place: site.place, bytes }
}
