// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an opening does after a crash. Every step may be interrupted and is done again.
//!
//! The catalog is right about what exists; the files are right about how long they are. Files
//! that no record names are garbage if the crashed opening made them or they are marked as
//! unfinished; anything else unknown is left alone and reported.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use terrace_core::{
    Error, ErrorKind, Identity, Key, Open, Persistency, Result, Role, Semantics, TierIndex,
};

use crate::catalog::files::{self, FileName};
use crate::catalog::header::Header;
use crate::catalog::map::{GarbageRow, Write};
use crate::catalog::record::{Owner, Place, Record, SEGMENT_NAMESPACE, SegmentRecord};
use crate::catalog::versions::{KeptRow, KeptState};
use crate::memory::site::Site;
use crate::recover::doubt;
use crate::shared::Shared;
use crate::shared::drops::Drop as Superseded;
use crate::tiers::account::Class;

/// Objects whose changed records are committed together.
const BATCH: usize = 256;

/// Changed objects that are kept in memory before they are committed.
const CHANGES_MAX: usize = 4096;

/// Files that are looked at together.
const CHUNK_FILES: usize = 4096;

/// A file on a tier.
#[derive(Default)]
struct FileState {
    /// Its length; `None` where that never changes, and is what the record says.
    bytes: Option<u64>,
    /// What its tier has allocated of that, where that is less.
    allocated_bytes: Option<u64>,
    /// Whether a record names it.
    is_named: bool,
    /// Whether its mark as a primary or a copy may be another one than it was made with.
    may_be_marked: bool,
}

/// An object with another record.
struct Changed {
    key: Key,
    record: Record,
    garbage: Vec<GarbageRow>,
    /// Whether it is as long as before, each segment of it: then no value of it has ended.
    is_as_long: bool,
}

/// Files that no record names, by what becomes of them.
#[derive(Default)]
struct Orphans {
    deleted: u64,
    /// They are garbage, and are deleted behind the next write of the log on the shared tier.
    waiting: u64,
    /// They stay.
    unknown: u64,
}

struct Recovery<'a> {
    shared: &'a Shared,
    /// The opening that crashed.
    crashed: &'a Header,
    files: HashMap<FileName, FileState>,
    /// How many files are called as no segment is.
    foreign: u64,
    changed: Vec<Changed>,
    removed: Vec<(Key, Record)>,
    lost: u64,
    reverted: u64,
    damaged: u64,
}

/// Brings catalog, media and accounts together after a crash.
pub(crate) fn recover(shared: &Shared, crashed: &Header, notes: &mut Vec<String>) -> Result<()> {
    let mut recovery = Recovery {
        shared,
        crashed,
        files: HashMap::new(),
        foreign: 0,
        changed: Vec::new(),
        removed: Vec::new(),
        lost: 0,
        reverted: 0,
        damaged: 0,
    };
    for (tier, state) in shared.tiers.indexed() {
        if state.is_online() {
            recovery.list_files(tier)?;
        }
    }
    shared.catalog.for_each(&mut |key, record| match record {
        Ok(record) => recovery.look_at(key, record),
        Err(_) => {
            recovery.damaged += 1;
            Ok(())
        }
    })?;
    recovery.commit()?;
    // Sources that a reverted or finished switch superseded are rows by now.
    let rows = shared.catalog.garbage()?;
    let (in_use, rows): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| recovery.is_named(row.object_id, row.segment, &row.place));
    // A commit that failed and was written all the same; the records were committed after it.
    if !in_use.is_empty() {
        shared.catalog.commit(&in_use.iter().map(Write::GarbageGone).collect::<Vec<_>>())?;
    }
    for row in rows.iter().chain(&doubt::rows(&shared.catalog)?) {
        recovery.name(row.object_id, row.segment, &row.place);
    }
    recovery.name_kept()?;
    let orphans = recovery.delete_orphans()?;
    collect_garbage(shared)?;
    // What the crashed process wrote without a sync is synced by the next close.
    shared.entries.note_evicted_unsynced();
    shared.failpoints.hit("recover.done")?;
    notes.push("the store was not closed: it was recovered".into());
    for (count, what) in [
        (recovery.reverted, "migrations were undone, because the machine restarted meanwhile"),
        (recovery.lost, "objects were lost that were not promised to survive this"),
        (recovery.damaged, "records are damaged; see terrace fsck"),
        (orphans.deleted, "files of unfinished operations were deleted"),
        (
            orphans.waiting,
            "files of unfinished operations go with the next write of the shared log",
        ),
        (orphans.unknown, "unknown files were left alone; see terrace fsck"),
    ] {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    }
    Ok(())
}

/// After a clean close: what was on volatile tiers is gone.
pub(crate) fn forget_volatile(shared: &Shared, notes: &mut Vec<String>) -> Result<()> {
    for tier in shared.tiers.iter() {
        for class in [Class::Used, Class::Copy, Class::Garbage] {
            tier.account.free(class, tier.account.bytes(class));
        }
        tier.segments.store(0, Ordering::Relaxed);
    }
    let mut changed = Vec::new();
    let mut removed = Vec::new();
    shared.catalog.for_each(&mut |key, record| {
        let Ok(mut record) = record else { return Ok(()) };
        if forget_volatile_places(shared, &mut record) {
            changed.push((key, record));
        } else if record.segments.iter().any(|one| is_volatile(shared, &one.primary)) {
            removed.push((key, record));
        } else {
            count(shared, &key, &record);
        }
        Ok(())
    })?;
    for (key, record) in &changed {
        shared.catalog.commit(&[Write::Put(key, record)])?;
        count(shared, key, record);
    }
    for (key, record) in &removed {
        remove(shared, key, record)?;
    }
    if !removed.is_empty() {
        notes.push(format!("{} objects on volatile tiers are gone", removed.len()));
    }
    collect_garbage(shared)
}

/// Only counts, for a stack that may not change anything.
pub(crate) fn count_only(shared: &Shared) -> Result<()> {
    shared.catalog.for_each(&mut |key, record| {
        if let Ok(record) = record {
            count(shared, &key, &record);
        }
        Ok(())
    })
}

/// Hands the files that wait to be deleted to the dropper; accounts what is not yet accounted. A service is not
/// asked for each: its files do not change.
pub(crate) fn collect_garbage(shared: &Shared) -> Result<()> {
    for tier in shared.tiers.iter() {
        tier.account.free(Class::Garbage, tier.account.bytes(Class::Garbage));
    }
    let mut drops = Vec::new();
    for mut row in shared.retain_rows(shared.catalog.garbage()?)? {
        let tier = shared.tier(row.place.tier);
        if tier.offline.is_some() {
            tier.account.found(Class::Garbage, row.bytes);
            continue;
        }
        if !tier.is_whole() {
            let stat = tier.backend.stat(&name(&row));
            row.bytes = stat.map_or(0, |stat| tier.media_bytes(&stat));
        }
        tier.account.found(Class::Garbage, row.bytes);
        drops.push(Superseded { site: Site::new(row.place, row.object_id, row.segment), row });
    }
    shared.drops.add(drops);
    doubt::account(shared)?;
    shared.failpoints.hit("recover.garbage")
}

fn name(row: &GarbageRow) -> Key {
    row.place.key(row.object_id, row.segment)
}

fn is_volatile(shared: &Shared, place: &Place) -> bool {
    shared.tier(place.tier).is_volatile()
}

/// Removes a record; what is left of its files is garbage.
fn remove(shared: &Shared, key: &Key, record: &Record) -> Result<()> {
    let mut writes = vec![Write::Remove(key, record)];
    for segment in &record.segments {
        writes.extend(rows(record.object_id, segment).into_iter().map(Write::Garbage));
    }
    shared.catalog.commit(&writes).map(drop)
}

/// All files of a segment as garbage.
fn rows(object_id: u64, segment: &SegmentRecord) -> Vec<GarbageRow> {
    let row = |place: &Place| GarbageRow {
        object_id,
        segment: segment.number,
        place: *place,
        bytes: segment.amount(),
    };
    segment.places().map(row).collect()
}

/// Removes copies on volatile tiers; true where there were any and the primary is not volatile.
fn forget_volatile_places(shared: &Shared, record: &mut Record) -> bool {
    let mut changed = false;
    for segment in &mut record.segments {
        if is_volatile(shared, &segment.primary) {
            return false;
        }
        let before = segment.copies.len();
        segment.copies.retain(|copy| !is_volatile(shared, copy));
        changed |= segment.copies.len() < before;
    }
    changed
}

/// Whether two marks differ only in what moves change.
fn is_same_segment(found: &Identity, wanted: &Identity) -> bool {
    let names = |one: &Identity| (one.store_id, one.object_id, one.segment);
    names(found) == names(wanted) && found.key == wanted.key
}

/// How long each of its segments is.
fn lengths(record: &Record) -> impl Iterator<Item = (u32, u64)> + '_ {
    record.segments.iter().map(|segment| (segment.number, segment.length_bytes))
}

/// Accounts a record's bytes.
fn count(shared: &Shared, key: &Key, record: &Record) {
    crate::room::quota::count(shared, key, record);
    for segment in &record.segments {
        let tier = shared.tier(segment.primary.tier);
        tier.account.found(Class::Used, segment.amount());
        tier.segments.fetch_add(1, Ordering::Relaxed);
        for copy in &segment.copies {
            shared.tier(copy.tier).account.found(Class::Copy, segment.amount());
        }
    }
}

impl Recovery<'_> {
    fn list_files(&mut self, tier: TierIndex) -> Result<()> {
        let state = self.shared.tier(tier);
        let backend = &*state.backend;
        let mut names = Vec::new();
        let foreign = &mut self.foreign;
        files::list(tier, backend, &mut |name| names.push(name), &mut |_| *foreign += 1)?;
        if state.is_whole() {
            // A service is not asked for each file, and for its mark only where that may be a new one.
            let marked = backend.replaced_identities(SEGMENT_NAMESPACE)?;
            let marked = marked.map(|keys| keys.into_iter().collect::<HashSet<_>>());
            self.files.extend(names.into_iter().map(|name| {
                let may_be_marked = marked.as_ref().is_none_or(|keys| keys.contains(&name.key()));
                (name, FileState { may_be_marked, ..FileState::default() })
            }));
            return Ok(());
        }
        for chunk in names.chunks(CHUNK_FILES) {
            let stats = files::look_at(chunk, |name| backend.stat(&name.key()));
            for (name, stat) in chunk.iter().zip(stats) {
                let stat = stat?;
                let allocated_bytes = state.media_bytes(&stat);
                let state = FileState {
                    bytes: Some(stat.size_bytes),
                    allocated_bytes: Some(allocated_bytes).filter(|bytes| *bytes < stat.size_bytes),
                    is_named: false,
                    may_be_marked: true,
                };
                self.files.insert(*name, state);
            }
        }
        Ok(())
    }

    /// Notes that a file is named.
    fn name(&mut self, object_id: u64, segment: u32, place: &Place) {
        if let Some(file) = self.files.get_mut(&FileName::of(object_id, segment, place)) {
            file.is_named = true;
        }
    }

    /// Names the files of versions. Those that are neither in use nor kept yet had a row of garbage, which is
    /// missing in a catalog that another machine has read from its log. A damaged record may name them, too, and a
    /// damaged row may be that of any file.
    fn name_kept(&mut self) -> Result<()> {
        let mut rows = Vec::new();
        self.shared.catalog.for_each_kept(&mut |row| {
            match row {
                Ok(row) => rows.push(row),
                Err(_) => self.damaged += 1,
            }
            Ok(())
        })?;
        let mut writes = Vec::new();
        for row in rows {
            let (object_id, segment, place) = (row.object_id, row.segment, row.place);
            if self.is_offline(&place) || self.is_named(object_id, segment, &place) {
                continue;
            }
            let is_there = self.is_there(object_id, segment, &place);
            match row.state {
                KeptState::Kept => {}
                KeptState::Named if self.damaged > 0 => {}
                KeptState::Named if !is_there => writes.push(KeptRow::gone(place.file)),
                KeptState::Named | KeptState::Expired => {
                    writes.push(Write::Garbage(row.garbage()));
                }
            }
            self.name(object_id, segment, &place);
        }
        for batch in writes.chunks(BATCH) {
            self.shared.catalog.commit(batch)?;
        }
        Ok(())
    }

    fn is_named(&self, object_id: u64, segment: u32, place: &Place) -> bool {
        let file = self.files.get(&FileName::of(object_id, segment, place));
        file.is_some_and(|file| file.is_named)
    }

    fn look_at(&mut self, key: Key, mut record: Record) -> Result<()> {
        let before = record.clone();
        let mut garbage = Vec::new();
        let is_new_boot = self.crashed.is_rebooted || self.crashed.boot != self.shared.boot;
        let was_switching = record.segments.iter().any(|segment| segment.settling.is_some());
        for segment in &mut record.segments {
            self.end_switch(before.owner(&key), segment, &mut garbage)?;
        }
        self.forget_lost_tail(&mut record, &mut garbage, is_new_boot);
        for segment in &mut record.segments {
            segment.copies.retain(|copy| !is_volatile(self.shared, copy));
            if self.is_offline(&segment.primary) {
                // Its copies serve readers until it is back.
                segment.copies.retain(|copy| {
                    self.is_offline(copy) || self.is_there(before.object_id, segment.number, copy)
                });
                continue;
            }
            let (object_id, number) = (before.object_id, segment.number);
            if is_new_boot && self.is_there(object_id, number, &segment.primary) {
                // Writes that made a checksum void may have outlived the note of it.
                if !self.shared.tier(segment.primary.tier).is_whole() {
                    segment.checksum = None;
                }
                // It has every byte that was synced. A copy may also have later ones, which it has lost: it decides.
                let bytes = segment.amount();
                let row = |place| GarbageRow { object_id, segment: number, place, bytes };
                garbage.extend(segment.copies.drain(..).map(row));
            }
            segment
                .copies
                .retain(|copy| self.is_offline(copy) || self.is_there(object_id, number, copy));
            match self.length(object_id, number, &segment.primary) {
                Some(bytes) => {
                    segment.length_bytes = bytes.unwrap_or(segment.length_bytes);
                    // What a file was packed into never changes.
                    if !self.shared.tier(segment.primary.tier).capability.packed {
                        segment.allocated_bytes =
                            self.allocated(object_id, number, &segment.primary);
                    }
                }
                None if self.may_be_lost(before.persistency, &segment.primary, is_new_boot) => {
                    self.lost += 1;
                    self.removed.push((key, before));
                    return Ok(());
                }
                // Kept as it is, with its copies: reading says what is missing, and nothing else is touched.
                None => self.damaged += 1,
            }
        }
        for segment in &record.segments {
            let is_whole = |place: &Place| self.shared.tier(place.tier).is_whole();
            let may_be_marked = |copy: &&Place| {
                let file = self.files.get(&FileName::of(record.object_id, segment.number, copy));
                file.is_none_or(|file| file.may_be_marked)
            };
            for copy in segment.copies.iter().filter(may_be_marked) {
                self.restore_identity(record.owner(&key), segment, copy, Role::Copy)?;
            }
            // After a loss of power the catalog may be older than the marks of moves back and forth
            // between copies.
            if was_switching || is_new_boot && !is_whole(&segment.primary) {
                let primary = &segment.primary;
                self.restore_identity(record.owner(&key), segment, primary, Role::Primary)?;
            }
            for place in std::iter::once(&segment.primary).chain(&segment.copies) {
                self.name(record.object_id, segment.number, place);
            }
        }
        count(self.shared, &key, &record);
        if record != before {
            let is_as_long = lengths(&record).eq(lengths(&before));
            self.changed.push(Changed { key, record, garbage, is_as_long });
            if self.changed.len() >= CHANGES_MAX {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Finishes a switch whose source was still kept, or goes back to the source.
    fn end_switch(
        &mut self,
        owner: Owner<'_>,
        segment: &mut SegmentRecord,
        garbage: &mut Vec<GarbageRow>,
    ) -> Result<()> {
        let Some(settling) = segment.settling else { return Ok(()) };
        if self.is_offline(&segment.primary) {
            // Decided when it is back; until then it is not written to.
            return Ok(());
        }
        let is_other_boot = settling.boot != self.shared.boot;
        if is_other_boot && self.is_offline(&settling.source) {
            // The target may have lost its last bytes, and writes to it would be lost when the
            // source is back.
            let tier = self.shared.tier(settling.source.tier);
            return Err(Error::new(ErrorKind::Io, "open a store without a tier")
                .because(
                    "power was lost in the middle of a move from it; open the store with it once",
                )
                .with("tier", &tier.name));
        }
        segment.settling = None;
        let object_id = owner.object_id;
        let (number, bytes) = (segment.number, segment.amount());
        let row = |place| GarbageRow { object_id, segment: number, place, bytes };
        // Without its source, which was not synced then, the target is all there is.
        let has_source = self.is_there(object_id, number, &settling.source);
        // A file on a tier of whole objects was complete and durable before the switch, and nothing is written
        // there: the source may have lost bytes, and that has not.
        let target = segment.primary;
        let is_certain = self.shared.tier(target.tier).is_whole()
            && (self.is_offline(&target) || self.is_there(object_id, number, &target));
        if is_other_boot && has_source && !is_certain {
            // The target may have lost its last bytes; the source was kept for this.
            self.mark_dead(owner, segment)?;
            garbage.push(row(segment.primary));
            segment.primary = settling.source;
            segment.copies.retain(|copy| copy.file != settling.source.file);
            segment.checksum = None;
            self.reverted += 1;
            // The record has the length of the target by now.
            self.measure(object_id, number, &settling.source)?;
            return self.shared.failpoints.hit("recover.reverted");
        }
        // It may not be durable yet, and must be before the source is let go.
        self.sync_file(object_id, number, &segment.primary)?;
        if !segment.copies.iter().any(|copy| copy.file == settling.source.file) {
            garbage.push(row(settling.source));
        }
        self.shared.failpoints.hit("recover.settled")
    }

    /// Asks for the length of a file that was not looked at.
    fn measure(&mut self, object_id: u64, segment: u32, place: &Place) -> Result<()> {
        let name = FileName::of(object_id, segment, place);
        if let Some(file) = self.files.get_mut(&name).filter(|file| file.bytes.is_none()) {
            let stat = self.shared.tier(place.tier).backend.stat(&name.key())?;
            file.bytes = Some(stat.size_bytes);
        }
        Ok(())
    }

    /// Makes a target say that it is none: should the catalog be lost before it is deleted, its
    /// generation would make it the right one.
    fn mark_dead(&self, owner: Owner<'_>, segment: &SegmentRecord) -> Result<()> {
        let (number, target) = (segment.number, &segment.primary);
        let object_id = owner.object_id;
        if !self.is_there(object_id, number, target) {
            return Ok(());
        }
        let start = segment.start_bytes;
        match self.shared.identity(owner, number, start, target, Role::Dead) {
            Some(identity) => {
                let backend = &self.shared.tier(target.tier).backend;
                backend.set_identity(&target.key(object_id, number), &identity)
            }
            None => Ok(()),
        }
    }

    /// Whether a file exists, on a tier that is there.
    fn is_there(&self, object_id: u64, segment: u32, place: &Place) -> bool {
        self.length(object_id, segment, place).is_some()
    }

    /// The bytes of a file, as far as they are looked at, where it exists on a tier that is there.
    fn length(&self, object_id: u64, segment: u32, place: &Place) -> Option<Option<u64>> {
        self.files.get(&FileName::of(object_id, segment, place)).map(|file| file.bytes)
    }

    /// What is allocated of such a file, where that is less.
    fn allocated(&self, object_id: u64, segment: u32, place: &Place) -> Option<u64> {
        let file = self.files.get(&FileName::of(object_id, segment, place));
        file.and_then(|file| file.allocated_bytes)
    }

    /// Whether nothing can be known of a file now.
    fn is_offline(&self, place: &Place) -> bool {
        self.shared.tier(place.tier).offline.is_some()
    }

    /// Makes a file's mark say what the catalog says: a switch marks files before and after its
    /// commit.
    fn restore_identity(
        &self,
        owner: Owner<'_>,
        segment: &SegmentRecord,
        place: &Place,
        role: Role,
    ) -> Result<()> {
        let (number, start) = (segment.number, segment.start_bytes);
        if self.is_offline(place) {
            return Ok(());
        }
        let wanted = self.shared.identity(owner, number, start, place, role);
        let Some(wanted) = wanted else { return Ok(()) };
        let backend = &self.shared.tier(place.tier).backend;
        let name = place.key(owner.object_id, number);
        match backend.identity(&name) {
            Ok(Some(found)) if found != *wanted && is_same_segment(&found, &wanted) => {
                backend.set_identity(&name, &wanted)
            }
            // A file without identity, with a damaged one or with another segment's is for `fsck`
            // to report.
            _ => Ok(()),
        }
    }

    /// Forgets later segments whose files are missing and may be: what grew after the last sync.
    fn forget_lost_tail(
        &mut self,
        record: &mut Record,
        garbage: &mut Vec<GarbageRow>,
        is_new_boot: bool,
    ) {
        let object_id = record.object_id;
        let level = record.persistency;
        let mut index = 0;
        record.segments.retain(|segment| {
            index += 1;
            let has_file = self.is_offline(&segment.primary)
                || self.is_there(object_id, segment.number, &segment.primary);
            let is_lost =
                index > 1 && !has_file && self.may_be_lost(level, &segment.primary, is_new_boot);
            if is_lost {
                garbage.extend(rows(object_id, segment));
            }
            !is_lost
        });
    }

    /// Whether the file of an object may be missing without anything being broken: its tier is
    /// volatile, or power was lost and the object was made in that opening with no more than the
    /// promise to survive the process.
    fn may_be_lost(&self, level: Persistency, place: &Place, is_new_boot: bool) -> bool {
        let is_young = place.epoch > self.crashed.settled_epoch;
        is_volatile(self.shared, place) || (is_new_boot && is_young && level < Persistency::Storage)
    }

    fn sync_file(&self, object_id: u64, segment: u32, place: &Place) -> Result<()> {
        let how = Open::write().with_semantics(Semantics::at_level(Persistency::None));
        let backend = &self.shared.tier(place.tier).backend;
        match backend.open(&place.key(object_id, segment), &how) {
            Ok(file) => file.sync(),
            // Whether a missing file is damage is decided where lengths are compared.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn commit(&mut self) -> Result<()> {
        // Names and marks first: a record that is durable never names a file that is not.
        for tier in self.shared.tiers.iter().filter(|tier| tier.is_online()) {
            tier.backend.sync()?;
        }
        for batch in std::mem::take(&mut self.changed).chunks(BATCH) {
            let (mut same, mut other) = (Vec::new(), Vec::new());
            for one in batch {
                let writes = if one.is_as_long { &mut same } else { &mut other };
                writes.push(Write::Put(&one.key, &one.record));
                writes.extend(one.garbage.iter().cloned().map(Write::Garbage));
            }
            self.shared.catalog.commit_unnoted(&same)?;
            self.shared.catalog.commit(&other)?;
        }
        for batch in std::mem::take(&mut self.removed).chunks(BATCH) {
            for (key, record) in batch {
                remove(self.shared, key, record)?;
            }
        }
        self.shared.catalog.wait_all()
    }

    /// Deletes files that no record names. Those on a shared tier become garbage, which is deleted behind a
    /// write of the log there: another machine may have taken the store over since the claim to it, and these
    /// may be its files, or such as only the log names since a loss of power.
    fn delete_orphans(&mut self) -> Result<Orphans> {
        let mut orphans = Orphans { unknown: self.foreign, ..Orphans::default() };
        let mut rows = Vec::new();
        for (name, file) in std::mem::take(&mut self.files) {
            if file.is_named {
                continue;
            }
            let key = name.key();
            match self.is_garbage(name.tier, &key, file.bytes) {
                Ok(true) => {}
                Ok(false) => {
                    orphans.unknown += 1;
                    continue;
                }
                // The owner before deletes what it had let go of.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            self.shared.failpoints.hit("recover.orphan")?;
            let tier = self.shared.tier(name.tier);
            if self.shared.settings.has_far_log && tier.is_shared() {
                let bytes = match tier.backend.stat(&key) {
                    Ok(stat) => tier.media_bytes(&stat),
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                let (object_id, segment, place) = (name.object_id, name.segment, name.place(0, 0));
                rows.push(GarbageRow { object_id, segment, place, bytes });
                continue;
            }
            crate::missing_is_gone(tier.backend.delete(&key))?;
            orphans.deleted += 1;
        }
        orphans.waiting = rows.len() as u64;
        for batch in rows.chunks(BATCH) {
            let writes: Vec<_> = batch.iter().cloned().map(Write::Garbage).collect();
            self.shared.catalog.commit(&writes)?;
        }
        Ok(orphans)
    }

    fn is_garbage(&self, tier: TierIndex, key: &Key, bytes: Option<u64>) -> Result<bool> {
        let state = self.shared.tier(tier);
        if state.is_volatile() {
            return Ok(true);
        }
        let identity = match state.backend.identity(key) {
            Ok(Some(identity)) => identity,
            // Made, and its identity not written yet: bytes come after that.
            Ok(None) => return Ok(bytes == Some(0) && self.damaged == 0),
            Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(false),
            Err(error) => return Err(error),
        };
        let is_ours = identity.store_id == self.shared.store_id;
        let is_unfinished = matches!(identity.role, Role::Partial | Role::Dead);
        // Damaged records may name anything, so then only what is certainly unfinished goes.
        let is_young = identity.epoch > self.crashed.settled_epoch && self.damaged == 0;
        Ok(is_ours && (is_unfinished || is_young))
    }
}

/// Everything a clean close must know of a tier.
pub(crate) fn totals(shared: &Shared) -> Vec<(u64, u64, u64, u64)> {
    let one = |tier: &crate::tiers::list::TierState| {
        (
            tier.segments.load(Ordering::Relaxed),
            tier.account.bytes(Class::Used),
            tier.account.bytes(Class::Copy),
            // A kept file holds the tier in the configuration as any other.
            tier.account.bytes(Class::Garbage) + tier.account.bytes(Class::Kept),
        )
    };
    shared.tiers.iter().map(one).collect()
}
