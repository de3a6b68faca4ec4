// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A catalog that another machine wrote, made the catalog of this one: segments whose files were on
//! that machine go on with what is on the shared tiers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use terrace_core::{Backend, Cursor, Error, ErrorKind, Key, Kv, Persistency, Result, TierIndex};

use crate::Tier;
use crate::catalog::format::DOUBTFUL;
use crate::catalog::map::{Catalog, Write};
use crate::catalog::record::{Place, Record, SEGMENT_NAMESPACE, SegmentRecord, TierNumbers};
use crate::catalog::versions::KeptRow;
use crate::recover::open::boot_number;
use crate::recover::superblock::{Stage, framed, is_free, superblock};

const OPERATION: &str = "take a store over";

/// Records that are committed together.
const BATCH: usize = 1024;

/// Unreachable objects that are named.
const NAMED_MAX: usize = 1000;

/// What a takeover found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakeoverReport {
    /// Objects with all their bytes.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects of which a part was only on tiers of the machine before.
    pub unreachable: u64,
    /// The first of them.
    pub unreachable_keys: Vec<String>,
    /// The tiers that these need.
    pub missing_tiers: Vec<String>,
    /// Segments that were added to objects at level `shared` since their last sync, were only on tiers of the machine
    /// before, and are left out.
    pub left_out: u64,
    /// The number of the first opening of this machine is behind this one.
    pub epoch: u64,
}

/// Rewrites a catalog for a machine that can reach `tiers` and no other tier of it. Numbers of objects and files
/// begin at `first_number`, so that no name that the owner before creates is one of this owner.
///
/// # Errors
///
/// `Denied` for a tier of another store, `NotFound` for a catalog without a store, `Corrupt`, and what
/// tiers and catalog say.
pub fn take_over(
    catalog: &Arc<dyn Kv>,
    tiers: &[Tier],
    first_number: u64,
    boot_id: &str,
    progress: &mut dyn FnMut(u64),
) -> Result<TakeoverReport> {
    let mut header = Catalog::header_of(&**catalog)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, OPERATION).because("the catalog has no store in it")
    })?;
    let mut reachable = HashMap::new();
    for tier in tiers {
        let Some(index) = header.tiers.iter().position(|entry| entry.name == tier.name) else {
            continue;
        };
        let found = tier.backend.superblock()?.filter(|found| found.store_id == header.store_id);
        let found = found.ok_or_else(|| {
            Error::new(ErrorKind::Denied, OPERATION)
                .because("the tier is empty, or belongs to another store")
                .with("tier", &tier.name)
        })?;
        if let Some(reason) = framed(&found) {
            let error = Error::new(ErrorKind::Denied, OPERATION).because(reason);
            return Err(error.with("tier", &tier.name));
        }
        header.epoch = header.epoch.max(found.epoch);
        reachable.insert(TierIndex(index as u8), Arc::clone(&tier.backend));
    }
    // Openings of the owner before may be newer than its log.
    header.epoch += 1;
    header.is_clean = false;
    header.is_rebooted = false;
    header.boot = boot_number(boot_id);
    header.next_number = header.next_number.max(first_number);
    for (index, entry) in header.tiers.iter_mut().enumerate() {
        if let Some(backend) = reachable.get(&TierIndex(index as u8)) {
            entry.epoch = header.epoch;
            let next = superblock(header.store_id, &entry.name, header.epoch, Stage::Open);
            backend.set_superblock(&next)?;
        }
    }
    let numbers: Vec<_> = header.tiers.iter().map(|entry| entry.number).collect();
    let mut taking = Taking {
        reachable,
        report: TakeoverReport { epoch: header.epoch, ..TakeoverReport::default() },
        missing: BTreeMap::new(),
        changed: Vec::new(),
    };
    let epoch = header.epoch;
    let names: Vec<_> = header.tiers.iter().map(|entry| entry.name.clone()).collect();
    let view = Catalog::new(Arc::clone(catalog), header.clone(), TierNumbers::new(&numbers));
    // Rows of tiers that are gone: nothing can be deleted there. Which files are in doubt a rebuild finds
    // again.
    let rows = view.garbage()?;
    let is_gone =
        |row: &&crate::catalog::map::GarbageRow| !taking.reachable.contains_key(&row.place.tier);
    let garbage = rows.iter().filter(is_gone).map(Write::GarbageGone);
    let doubtful = view.rows(DOUBTFUL)?.into_iter().map(|(key, _)| Write::Row(key, None));
    let lost = view.kept_where(&mut |row| !taking.reachable.contains_key(&row.place.tier))?;
    let lost = lost.iter().map(|row| KeptRow::gone(row.place.file));
    let gone: Vec<_> = garbage.chain(doubtful).chain(lost).collect();
    for writes in gone.chunks(BATCH) {
        view.commit(writes)?;
    }
    let mut done = 0;
    // Pages, because an engine may not be written while it is read.
    let mut after = None;
    loop {
        let page = view.page(None, after.as_ref(), BATCH)?;
        for (key, record) in &page.objects {
            let record = record.as_ref().cloned();
            let record =
                record.map_err(|error| Error::relayed(error.kind(), &error.to_string()))?;
            taking.look_at(key, record, epoch)?;
            done += 1;
        }
        after = page.objects.into_iter().last().map(|(key, _)| key);
        let changed = std::mem::take(&mut taking.changed);
        let writes: Vec<_> = changed.iter().map(|(key, record)| Write::Put(key, record)).collect();
        if !writes.is_empty() {
            view.commit(&writes)?;
        }
        progress(done);
        if page.is_last || after.is_none() {
            break;
        }
    }
    header.tiers.retain(|entry| {
        let index = names.iter().position(|name| *name == entry.name).expect("it is one of them");
        let index = TierIndex(index as u8);
        taking.reachable.contains_key(&index) || taking.missing.contains_key(&index)
    });
    taking.report.missing_tiers =
        taking.missing.keys().map(|tier| names[tier.index()].clone()).collect();
    Catalog::create(&**catalog, &header)?;
    Ok(taking.report)
}

/// Brings an empty tier of this machine up to the opening `epoch` of a takeover: an earlier try of that has opened
/// the store with the tier, and the catalog does not know it. One that holds anything stays as it is.
///
/// # Errors
///
/// What the tier says.
pub fn renew_empty(tier: &Tier, epoch: u64) -> Result<()> {
    let found = tier.backend.superblock()?.filter(|found| found.tier == tier.name);
    let Some(found) = found.filter(|found| !is_free(found)) else { return Ok(()) };
    let page = tier.backend.list(SEGMENT_NAMESPACE, "", &Cursor::start(), 1)?;
    if page.keys.is_empty() {
        let next = superblock(found.store_id, &tier.name, epoch, Stage::Open);
        tier.backend.set_superblock(&next)?;
    }
    Ok(())
}

struct Taking {
    reachable: HashMap<TierIndex, Arc<dyn Backend>>,
    report: TakeoverReport,
    /// Segments by the tiers that are not there.
    missing: BTreeMap<TierIndex, u64>,
    changed: Vec<(Key, Record)>,
}

impl Taking {
    fn look_at(&mut self, key: &Key, mut record: Record, epoch: u64) -> Result<()> {
        let before = record.clone();
        let is_shared = before.persistency >= Persistency::Shared;
        let mut missing = Vec::new();
        for (index, segment) in record.segments.iter_mut().enumerate() {
            if !self.place(segment, &before, epoch)? {
                missing.push(index);
            }
        }
        // What was added since the last sync was never acknowledged at this level: the object is whole without it. A
        // segment that a shared tier has had is part of what was.
        let is_added = |index: &usize| *index > 0 && is_shared && before.segments[*index].is_added;
        let is_whole = missing.iter().all(is_added);
        if is_whole {
            self.report.left_out += missing.len() as u64;
            for index in missing.into_iter().rev() {
                record.segments.remove(index);
            }
            self.report.objects += 1;
            self.report.bytes += record.segments.iter().map(|one| one.length_bytes).sum::<u64>();
        } else {
            self.report.unreachable += 1;
            if self.report.unreachable_keys.len() < NAMED_MAX {
                self.report.unreachable_keys.push(key.to_string());
            }
            let places = |one: &SegmentRecord| one.places().chain(&one.synced).copied().collect();
            let places: Vec<Vec<Place>> = record.segments.iter().map(places).collect();
            for place in places.iter().flatten() {
                if !self.reachable.contains_key(&place.tier) {
                    *self.missing.entry(place.tier).or_default() += 1;
                }
            }
        }
        if record != before {
            self.changed.push((key.clone(), record));
        }
        Ok(())
    }

    /// Makes a file that can be reached the primary of a segment; false where there is none, which
    /// leaves the segment as it is.
    fn place(&self, segment: &mut SegmentRecord, record: &Record, epoch: u64) -> Result<bool> {
        let object_id = record.object_id;
        let is_reachable = |place: &Place| self.reachable.contains_key(&place.tier);
        let source = segment.settling.map(|settling| settling.source);
        if is_reachable(&segment.primary) {
            segment.copies.retain(is_reachable);
            // Files on shared tiers are whole and durable since they are there.
            segment.settling = None;
            segment.forget_synced();
            return Ok(true);
        }
        let clean = segment.copies.iter().copied().find(is_reachable);
        let (found, is_clean) = match clean.or(source.filter(is_reachable)) {
            Some(place) => (Some(place), clean.is_some()),
            None => (self.synced_file(segment, object_id, epoch)?, false),
        };
        let Some(place) = found else { return Ok(false) };
        segment.primary = place;
        segment.copies.clear();
        segment.settling = None;
        segment.allocated_bytes = None;
        segment.forget_synced();
        if !is_clean {
            // Bytes of the last sync; the record has the length of what was written since.
            let backend = &self.reachable[&place.tier];
            segment.checksum = None;
            segment.length_bytes = backend.stat(&place.key(object_id, segment.number))?.size_bytes;
        }
        Ok(true)
    }

    /// The file of a segment that has the bytes of the last sync, and that a write since then took out of the
    /// record. No other file is taken for it: that would be an earlier value, or one that was cut off.
    fn synced_file(
        &self,
        segment: &SegmentRecord,
        object_id: u64,
        epoch: u64,
    ) -> Result<Option<Place>> {
        for place in segment.synced.iter().filter(|one| self.reachable.contains_key(&one.tier)) {
            match self.reachable[&place.tier].stat(&place.key(object_id, segment.number)) {
                // It is the primary from here on.
                Ok(_) => return Ok(Some(Place { generation: place.file, epoch, ..*place })),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
