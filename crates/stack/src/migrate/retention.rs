// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of versions: kept on their tier in place of being deleted, until their time is over.
//!
//! A superseded file that a version names gets a marker beside it on the tier, and then its row of garbage is
//! removed. When its time is over it gets a row of garbage again, and is deleted with its marker. Each step may be
//! done twice, and a crash between two leaves the row of the one before.

use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrace_core::{Cursor, Error, ErrorKind, Open, Persistency, Result, Semantics, TierIndex};

use crate::catalog::map::Write;
use crate::catalog::record::{Record, SegmentRecord, TierNumbers};
use crate::catalog::versions::{
    Keeping, KeptRow, KeptState, MARKER_NAMESPACE, Marker, Version, marker_of,
};
use crate::memory::site::Site;
use crate::shared::Shared;
use crate::shared::drops::{Drop, Which};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;
use crate::{is_damage, missing_is_gone};

/// Files, and versions, that one look for those whose time is over ends at most.
const LOOK_MAX: usize = 1 << 14;

/// Markers that are listed together.
const MARKERS_PAGE: usize = 4096;

/// Bounds of the pause between two looks for files whose time is over, and which part of that time it is.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(3600);
const PAUSE_PART: u32 = 64;

/// What became of a superseded file.
pub(super) enum End {
    Deleted,
    /// It was one of a version, whose time is over or whose tier keeps nothing any more.
    DeletedOfVersion,
    /// It is kept; its row from now on.
    Kept(KeptRow),
}

impl End {
    /// What changes beside its row of garbage.
    pub(super) fn change(&self, drop: &Drop, tiers: &TierNumbers) -> Option<Write<'static>> {
        match self {
            End::Deleted => None,
            End::DeletedOfVersion => Some(KeptRow::gone(drop.site.place.file)),
            End::Kept(row) => Some(row.put(tiers)),
        }
    }
}

impl Shared {
    /// Deletes a superseded file, or marks it as one that is kept. `None` where it is left until the next opening,
    /// because the row that says which is damaged.
    pub(super) fn end_file(&self, drop: &Drop) -> Result<Option<End>> {
        let tier = self.tier(drop.site.place.tier);
        drop.site.close();
        let row = match tier.is_whole() {
            true => self.catalog.kept(drop.site.place.file),
            false => Ok(None),
        };
        let row = match row {
            Err(error) if is_damage(&error) => {
                tracing::warn!(
                    file = %drop.site.key,
                    tier = tier.name,
                    error = error.chain(),
                    "a superseded file is left on its tier, because it may be one of a version; see terrace fsck"
                );
                return Ok(None);
            }
            row => row?,
        };
        let Some(row) = row else {
            self.delete_file(drop)?;
            return Ok(Some(End::Deleted));
        };
        if row.state == KeptState::Expired || !tier.keeps_deleted() {
            self.delete_file(drop)?;
            missing_is_gone(tier.backend.delete(&marker_of(&drop.site.key)))?;
            return Ok(Some(End::DeletedOfVersion));
        }
        let bytes = match tier.capability.packed {
            // Until now it may be accounted with its length, as a copy is.
            true => match tier.backend.stat(&drop.site.key) {
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                stat => tier.media_bytes(&stat?),
            },
            false => drop.row.bytes,
        };
        // Not before its version, though the clock may have been set back since: both end at the same time.
        let since_ns = self.clock.wall_ns().max(row.since_ns);
        let row = KeptRow { state: KeptState::Kept, since_ns, bytes, ..row };
        self.write_marker(tier, drop, &row)?;
        self.failpoints.hit("keep.marked")?;
        Ok(Some(End::Kept(row)))
    }

    fn delete_file(&self, drop: &Drop) -> Result<()> {
        missing_is_gone(self.backend(&drop.site).delete(&drop.site.key))?;
        self.failpoints.hit("drop.file")
    }

    fn write_marker(&self, tier: &TierState, drop: &Drop, row: &KeptRow) -> Result<()> {
        let content = match row.version == drop.site.place.file {
            true => match self.catalog.version(&row.key, row.version) {
                // The file is kept all the same; `fsck` reports the version.
                Err(error) if is_damage(&error) => None,
                version => version?,
            },
            false => None,
        };
        let (store_id, since_ns) = (self.store_id, row.since_ns);
        let (version, key) = (row.version, row.key.clone());
        let bytes = Marker { store_id, since_ns, version, key, content }.encode();
        let how = Open::create_new().with_semantics(Semantics::at_level(Persistency::None));
        let name = marker_of(&drop.site.key);
        let write = || {
            let marker = tier.backend.open(&name, &how)?;
            marker.write_at(0, &[IoSlice::new(&bytes)])?;
            marker.sync()
        };
        match write() {
            Err(error) if error.kind() == ErrorKind::Exists => {
                // From an earlier try, which a crash may have ended in the middle.
                missing_is_gone(tier.backend.delete(&name))?;
                write()
            }
            written => written,
        }
    }

    /// Sets which tiers keep what leaves them, after the tiers or their drains have changed.
    pub(crate) fn update_keeping(&self) {
        let any = self.tiers.iter().any(TierState::keeps_deleted);
        self.catalog.set_keeping(any.then(|| Keeping {
            names: self.tiers.iter().map(|tier| tier.name.clone()).collect(),
            keeps: self.tiers.iter().map(TierState::keeps_deleted).collect(),
            clock: self.clock.clone(),
        }));
        self.drops.next_expiry_ns.store(0, Ordering::Release);
    }

    /// Accounts kept files at an opening, and makes garbage of those whose time is over.
    pub(crate) fn load_kept(&self) -> Result<()> {
        for tier in self.tiers.iter() {
            tier.account.free(Class::Kept, tier.account.bytes(Class::Kept));
        }
        self.for_each_kept_file(&mut |row| {
            self.tier(row.place.tier).account.found(Class::Kept, row.bytes);
        })?;
        self.try_to_expire();
        Ok(())
    }

    /// The same where nothing may be changed; kept files were accounted with garbage by the last close.
    pub(crate) fn show_kept(&self, was_clean: bool) -> Result<()> {
        self.for_each_kept_file(&mut |row| {
            let account = &self.tier(row.place.tier).account;
            match was_clean {
                true => {
                    let bytes = row.bytes.min(account.bytes(Class::Garbage));
                    account.turn(Class::Garbage, Class::Kept, bytes);
                }
                false => account.found(Class::Kept, row.bytes),
            }
        })
    }

    /// Calls `each` for the rows of files that are kept.
    fn for_each_kept_file(&self, each: &mut dyn FnMut(&KeptRow)) -> Result<()> {
        self.catalog.for_each_kept(&mut |row| {
            if let Ok(row) = row.as_ref()
                && row.state == KeptState::Kept
            {
                each(row);
            }
            Ok(())
        })
    }

    /// Looks for kept files whose time is over, where the last look is long enough ago.
    pub(crate) fn look_after_kept(&self) {
        let now_ns = self.clock.now_ns();
        let is_early = now_ns < self.drops.next_expiry_ns.load(Ordering::Acquire);
        if is_early || self.check_writable("remove versions").is_err() {
            return;
        }
        let times = self.tiers.iter().filter_map(|tier| tier.keep_deleted_ns);
        let shortest = times.min().map_or(PAUSE_MAX, Duration::from_nanos);
        let pause = (shortest / PAUSE_PART).clamp(PAUSE_MIN, PAUSE_MAX);
        let next_ns = now_ns.saturating_add(pause.as_nanos() as u64);
        self.drops.next_expiry_ns.store(next_ns, Ordering::Release);
        if self.try_to_expire() {
            let soon_ns = now_ns.saturating_add(PAUSE_MIN.as_nanos() as u64);
            self.drops.next_expiry_ns.store(soon_ns, Ordering::Release);
        }
    }

    /// Removes versions and files whose time is over; returns whether more are left. What fails is tried again.
    fn try_to_expire(&self) -> bool {
        self.expire().unwrap_or_else(|error| {
            tracing::warn!(
                error = error.chain(),
                "versions whose time is over were not removed; this is tried again"
            );
            false
        })
    }

    /// Forgets versions whose time is over, and makes garbage of such files; returns whether more are left.
    fn expire(&self) -> Result<bool> {
        let now_ns = self.clock.wall_ns();
        let is_over = |tier: &TierState, since_ns: u64| {
            let is_younger = |time: u64| since_ns.saturating_add(time) > now_ns;
            tier.is_online() && !tier.keep_deleted_ns.is_some_and(is_younger)
        };
        let versions = self.end_versions(LOOK_MAX, &|version| {
            let mut tiers = version.segments.iter().filter(|one| one.is_kept);
            // A file of it may be kept longer than the others; then a part of it is missing.
            tiers.all(|one| {
                self.tiers.find(&one.tier).is_none_or(|(_, tier)| is_over(tier, version.since_ns))
            })
        })?;
        let files =
            self.end_files(LOOK_MAX, &|row| is_over(self.tier(row.place.tier), row.since_ns))?;
        Ok(versions.max(files) >= LOOK_MAX)
    }

    /// Forgets up to `most` versions; returns how many.
    fn end_versions(&self, most: usize, is_over: &dyn Fn(&Version) -> bool) -> Result<usize> {
        let mut count = 0;
        self.catalog.for_each_version(&mut |found| match found {
            Ok((key, version)) if count < most && is_over(&version) => {
                count += 1;
                self.catalog.end_version(&key, &version)
            }
            _ => Ok(()),
        })?;
        Ok(count)
    }

    /// Makes garbage of files that are kept, page by page, until `most` are; returns how many.
    fn end_files(&self, most: usize, is_over: &dyn Fn(&KeptRow) -> bool) -> Result<usize> {
        let (mut count, mut after) = (0, None);
        while count < most {
            let (mut rows, next) = self.catalog.kept_page(after.as_deref())?;
            rows.retain(|row| row.state == KeptState::Kept && is_over(row));
            count += self.end_kept(&rows)?;
            if next.is_none() {
                break;
            }
            after = next;
        }
        Ok(count)
    }

    /// Makes garbage of files that are kept, as far as no other thread did so since the rows were read; returns
    /// how many it tried.
    fn end_kept(&self, rows: &[KeptRow]) -> Result<usize> {
        let mut changes = Vec::new();
        for row in rows {
            let live = match self.catalog.get(&row.key) {
                // The record may name it: `fsck` reports that.
                Err(error) if is_damage(&error) => continue,
                live => live?,
            };
            // A commit that failed and was written all the same may have made it garbage.
            if live.is_some_and(|record| names(&record, row.place.file)) {
                // The marker first: without its row nothing would look for it again, and a rebuild would
                // take the file for one whose time is over. Where it cannot be deleted now, the row stays.
                let marker = marker_of(&row.place.key(row.object_id, row.segment));
                let tier = self.tier(row.place.tier);
                // A later owner may keep the file.
                let is_owner = !tier.is_shared() || self.confirm_owner().is_ok();
                if is_owner && missing_is_gone(tier.backend.delete(&marker)).is_ok() {
                    changes.push((row, vec![KeptRow::gone(row.place.file)]));
                }
                continue;
            }
            let expired = KeptRow { state: KeptState::Expired, ..row.clone() };
            let writes = vec![expired.put(&self.catalog.tiers), Write::Garbage(row.garbage())];
            changes.push((row, writes));
        }
        let count = changes.len();
        if count == 0 {
            return Ok(0);
        }
        self.failpoints.hit("keep.over")?;
        let is_done = self.catalog.change_kept(&changes)?;
        self.failpoints.hit("keep.expired")?;
        let mut drops = Vec::new();
        let done = changes.into_iter().zip(is_done).filter(|(_, is_done)| *is_done);
        for ((row, writes), _) in done {
            let account = &self.tier(row.place.tier).account;
            // Of one that a record names only the row is gone.
            if writes.len() == 1 {
                account.free(Class::Kept, row.bytes);
                continue;
            }
            account.turn(Class::Kept, Class::Garbage, row.bytes);
            let site = Site::new(row.place, row.object_id, row.segment);
            drops.push(Drop { site, row: row.garbage() });
        }
        self.drops.add(drops);
        Ok(count)
    }

    /// Deletes everything that a tier keeps, which is to be removed.
    pub(crate) fn purge_kept(&self, tier: TierIndex) -> Result<()> {
        self.end_files(usize::MAX, &|row| row.place.tier == tier)?;
        self.drops.run_on(self, tier, Which::All);
        let account = &self.tier(tier).account;
        let left_bytes = account.bytes(Class::Kept) + account.bytes(Class::Garbage);
        if left_bytes > 0 {
            return Err(Error::new(ErrorKind::Io, "delete the versions on a tier")
                .because(
                    "not all of their files could be deleted; the tier stays, and is removed when this \
                     is done again and it deletes all of them",
                )
                .with("left_bytes", left_bytes));
        }
        self.delete_markers(self.tier(tier))?;
        let left = self.catalog.kept_where(&mut |row| row.place.tier == tier)?;
        let writes: Vec<_> = left.iter().map(|row| KeptRow::gone(row.place.file)).collect();
        if !writes.is_empty() {
            self.catalog.commit(&writes)?;
        }
        let name = &self.tier(tier).name;
        self.end_versions(usize::MAX, &|version| {
            let mut kept = version.segments.iter().filter(|one| one.is_kept);
            kept.all(|one| one.tier == *name)
        })?;
        Ok(())
    }

    /// Deletes all markers of a tier that keeps no file any more.
    fn delete_markers(&self, tier: &TierState) -> Result<()> {
        let mut cursor = Cursor::start();
        while tier.is_whole() {
            let page = tier.backend.list(MARKER_NAMESPACE, "", &cursor, MARKERS_PAGE)?;
            page.keys.iter().try_for_each(|key| missing_is_gone(tier.backend.delete(key)))?;
            let Some(next) = page.next else { break };
            cursor = next;
        }
        Ok(())
    }
}

/// Whether a record names a file.
fn names(record: &Record, file: u64) -> bool {
    record.segments.iter().flat_map(SegmentRecord::places).any(|place| place.file == file)
}
