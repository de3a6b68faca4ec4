// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks catalog, accounts and media against each other; changes nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{
    Access, Buffer, Cursor, ErrorKind, Identity, Key, Open, Result, Role, TierIndex,
};

use crate::catalog::files::{self, FileName};
use crate::catalog::record::{Place, Record, SEGMENT_NAMESPACE, SegmentRecord};
use crate::catalog::versions::{KeptState, MARKER_NAMESPACE, marker_of};
use crate::is_damage;
use crate::memory::entry::Entry;
use crate::memory::marks;
use crate::recover::doubt;
use crate::report::{CheckReport, Problem};
use crate::shared::Shared;
use crate::shared::promises::{self, PromiseRow};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;

/// Markers of kept files that are listed together.
const MARKERS_PAGE: usize = 4096;

/// How often progress is reported, in objects.
const PROGRESS_OBJECTS: u64 = 256;

struct Check<'a> {
    shared: &'a Shared,
    verify: bool,
    report: CheckReport,
    known: HashSet<FileName>,
    /// Markers of files that are kept.
    kept: HashSet<(TierIndex, Key)>,
    /// Bytes of primaries and of copies that the records name, and of what is promised to those, by
    /// tier.
    sums: Vec<(u64, u64, u64)>,
    /// What is promised, by the number of the object.
    promises: HashMap<u64, PromiseRow>,
    /// Objects and bytes that the records name, by namespace.
    usage: BTreeMap<String, (u64, u64)>,
}

/// Runs the check; `progress` gets the objects done and their total.
pub(crate) fn run(
    shared: &Shared,
    verify: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport> {
    let was_idle = is_idle(shared);
    // Lengths in the catalog lag behind; what is compared below must be the same on both sides.
    if shared.check_writable("check").is_ok() {
        shared.look_after_held(true);
        shared.flush()?;
        shared.drops.run_all(shared);
    }
    let changes = (shared.mover.submitted(), shared.catalog.last_commit());
    let promises = match shared.settings.access {
        Access::Write => promises::rows(&shared.catalog)?,
        // A check for reading reserves nothing.
        Access::Read => HashMap::new(),
    };
    let mut check = Check {
        shared,
        verify,
        report: CheckReport::default(),
        known: HashSet::new(),
        kept: HashSet::new(),
        sums: vec![(0, 0, 0); shared.tiers.len()],
        promises,
        usage: BTreeMap::new(),
    };
    let segments = |tier: &TierState| tier.segments.load(Ordering::Relaxed);
    let total: u64 = shared.tiers.iter().map(segments).sum();
    shared.catalog.for_each(&mut |key, record| {
        check.report.objects += 1;
        match record {
            Ok(record) => check.object(&key, &record),
            Err(error) => check.problem("damaged-record", key.as_str(), error.chain()),
        }
        if check.report.objects.is_multiple_of(PROGRESS_OBJECTS) {
            progress(check.report.segments.min(total), total);
        }
        Ok(())
    })?;
    check.garbage()?;
    check.unknown_files()?;
    // One that began and ended in between is on one side of the comparison alone.
    let has_changed = (shared.mover.submitted(), shared.catalog.last_commit()) != changes;
    if was_idle && is_idle(shared) && !has_changed {
        check.accounts();
        check.usage();
    } else {
        check.note("in-use", "store", "accounts are not compared while the store is in use".into());
    }
    progress(total, total);
    Ok(check.report)
}

fn is_idle(shared: &Shared) -> bool {
    let mut is_open = false;
    shared.entries.for_each(|entry| is_open |= entry.is_open());
    // An object that is made or replaced has a file before it has a record.
    let is_made = shared.entries.is_any_claimed() || !crate::lock(&shared.drafts).is_empty();
    let is_used = is_open || is_made || shared.written.is_any();
    !is_used && shared.mover.wait_idle(std::time::Duration::ZERO)
}

impl Check<'_> {
    fn problem(&mut self, kind: &str, place: &str, detail: String) {
        let (kind, place) = (kind.into(), place.into());
        self.report.problems.push(Problem { kind, place, detail });
    }

    fn note(&mut self, kind: &str, place: &str, detail: String) {
        let (kind, place) = (kind.into(), place.into());
        self.report.notes.push(Problem { kind, place, detail });
    }

    fn object(&mut self, key: &Key, record: &Record) {
        let bytes: u64 = record.segments.iter().map(SegmentRecord::amount).sum();
        let promised = |segment: &SegmentRecord| {
            let row = self.promises.get(&record.object_id)?;
            let end = row.ends.iter().find(|(number, _)| *number == segment.number)?;
            Some(end.1.saturating_sub(segment.length_bytes))
        };
        let promised: Vec<_> =
            record.segments.iter().map(|segment| promised(segment).unwrap_or(0)).collect();
        let usage = self.usage.entry(key.namespace().into()).or_default();
        *usage = (usage.0 + 1, usage.1 + bytes + promised.iter().sum::<u64>());
        for (segment, promised) in record.segments.iter().zip(promised) {
            self.report.segments += 1;
            self.sums[segment.primary.tier.index()].2 += promised;
            self.file(key, record, segment, &segment.primary, Role::Primary);
            self.sums[segment.primary.tier.index()].0 += segment.amount();
            for copy in &segment.copies {
                self.file(key, record, segment, copy, Role::Copy);
                self.sums[copy.tier.index()].1 += segment.amount();
            }
            if let Some(settling) = &segment.settling {
                let source = &settling.source;
                self.known.insert(FileName::of(record.object_id, segment.number, source));
            }
        }
    }

    fn file(
        &mut self,
        key: &Key,
        record: &Record,
        segment: &SegmentRecord,
        place: &Place,
        role: Role,
    ) {
        let tier = self.shared.tier(place.tier);
        let name = place.key(record.object_id, segment.number);
        self.known.insert(FileName::of(record.object_id, segment.number, place));
        if let Some(reason) = &tier.offline {
            self.problem("offline", key.as_str(), format!("tier {}: {reason}", tier.name));
            return;
        }
        let found =
            tier.backend.stat(&name).and_then(|stat| Ok((stat, self.identity(tier, &name)?)));
        let (stat, identity) = match found {
            Ok(found) => found,
            Err(error) => {
                if self.is_current(key, record) {
                    let is_missing = error.kind() == ErrorKind::NotFound;
                    let kind = if is_missing { "missing-file" } else { "unreadable-file" };
                    self.problem(
                        kind,
                        key.as_str(),
                        format!("{name} on {}: {}", tier.name, error.chain()),
                    );
                }
                return;
            }
        };
        if stat.size_bytes != segment.length_bytes && self.is_current(key, record) {
            let detail = format!(
                "{name} on {} has {} bytes, the catalog says {}",
                tier.name, stat.size_bytes, segment.length_bytes
            );
            self.problem("wrong-length", key.as_str(), detail);
        }
        if let Some(identity) = identity {
            let is_right = identity.store_id == self.shared.store_id
                && identity.object_id == record.object_id
                && identity.segment == segment.number
                && identity.key == *key
                && identity.label == record.label
                && match role {
                    // A crash before a switch to a copy leaves it marked as the coming primary,
                    // and one after a promotion the old primary as it was.
                    Role::Copy => {
                        identity.generation >= place.generation
                            && matches!(identity.role, Role::Copy | Role::Primary)
                    }
                    // After a loss of power the catalog may be older than the mark, which a recovery
                    // does not ask for on a tier of whole objects. A takeover makes copies primaries
                    // without a request for each.
                    Role::Primary if tier.is_whole() => {
                        identity.generation >= place.generation
                            && matches!(identity.role, Role::Copy | Role::Primary)
                    }
                    _ => identity.generation == place.generation && identity.role == role,
                };
            if !is_right && self.is_current(key, record) {
                let words = marks::in_words(&identity, self.shared.store_id);
                let label = match identity.label == record.label {
                    true => "",
                    false => ", with another label",
                };
                let detail = format!("{name} on {} says {words}{label}", tier.name);
                self.problem("wrong-identity", key.as_str(), detail);
            }
        } else if tier.capability.identity {
            self.problem(
                "wrong-identity",
                key.as_str(),
                format!("{name} on {} has none", tier.name),
            );
        }
        if self.verify {
            self.read(key, record, segment, tier, &name);
        }
    }

    fn identity(&self, tier: &TierState, name: &Key) -> Result<Option<terrace_core::Identity>> {
        if tier.capability.identity { tier.backend.identity(name) } else { Ok(None) }
    }

    /// Whether the catalog still says the same: a store in use changes while it is checked.
    fn is_current(&self, key: &Key, record: &Record) -> bool {
        let is_same = matches!(self.shared.catalog.get(key), Ok(Some(now)) if now == *record);
        let in_memory = self.shared.entries.peek(key);
        let may_change = |entry: Arc<Entry>| {
            let is_written = entry.segments.load()[0].holds.is_written();
            is_written || entry.is_dirty.load(Ordering::Acquire)
        };
        is_same && !in_memory.is_some_and(may_change)
    }

    fn read(
        &mut self,
        key: &Key,
        record: &Record,
        segment: &SegmentRecord,
        tier: &TierState,
        name: &Key,
    ) {
        match checksum(tier, name, segment.checksum.is_some()) {
            Ok((bytes, sum)) => {
                self.report.verified_bytes += bytes;
                let is_wrong = segment.checksum.is_some_and(|known| known != sum);
                if is_wrong && self.is_current(key, record) {
                    let detail = format!("{name} on {} fails its checksum", tier.name);
                    self.problem("damaged-data", key.as_str(), detail);
                }
            }
            Err(error) => {
                if self.is_current(key, record) {
                    let detail = format!("{name} on {}: {}", tier.name, error.chain());
                    self.problem("unreadable-file", key.as_str(), detail);
                }
            }
        }
    }

    fn garbage(&mut self) -> Result<()> {
        for row in self.shared.catalog.garbage()? {
            let name = row.place.key(row.object_id, row.segment);
            let tier = self.shared.tier(row.place.tier).name.clone();
            self.note("garbage", &tier, format!("{name} waits to be deleted"));
            self.known.insert(FileName::of(row.object_id, row.segment, &row.place));
        }
        self.kept()?;
        for row in doubt::rows(&self.shared.catalog)? {
            self.known.insert(FileName::of(row.object_id, row.segment, &row.place));
            self.report.problems.push(doubt::problem(self.shared, &row));
        }
        Ok(())
    }

    /// Files of versions: how many each tier keeps, and whether those are there.
    fn kept(&mut self) -> Result<()> {
        let mut rows = Vec::new();
        let shared = self.shared;
        shared.catalog.for_each_kept(&mut |row| {
            match row {
                Ok(row) => rows.push(row),
                Err(error) => self.problem("damaged-record", "versions", error.chain()),
            }
            Ok(())
        })?;
        shared.catalog.for_each_version(&mut |version| {
            if let Err(error) = version {
                self.problem("damaged-record", "versions", error.chain());
            }
            Ok(())
        })?;
        let mut sums: BTreeMap<TierIndex, (u64, u64)> = BTreeMap::new();
        for row in rows {
            let name = FileName::of(row.object_id, row.segment, &row.place);
            self.known.insert(name);
            if row.state != KeptState::Kept {
                continue;
            }
            self.kept.insert((row.place.tier, marker_of(&name.key())));
            let sum = sums.entry(row.place.tier).or_default();
            *sum = (sum.0 + 1, sum.1 + row.bytes);
            let tier = shared.tier(row.place.tier);
            if !tier.is_online() {
                continue;
            }
            let found = tier.backend.stat(&name.key());
            if found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
                && shared.catalog.kept(row.place.file)?.is_some_and(|now| now == row)
            {
                let detail = format!("{} on {} is gone before its time", name.key(), tier.name);
                self.problem("missing-version", row.key.as_str(), detail);
            }
        }
        for (tier, (files, bytes)) in sums {
            let tier = &shared.tier(tier).name.clone();
            let detail = format!("{files} files of versions are kept, {bytes} bytes");
            self.note("kept", tier, detail);
        }
        Ok(())
    }

    /// Markers of kept files on a tier that no row names.
    fn unknown_markers(&mut self, index: TierIndex, tier: &TierState) -> Result<()> {
        let mut unknown = Vec::new();
        let mut cursor = Cursor::start();
        loop {
            let page = tier.backend.list(MARKER_NAMESPACE, "", &cursor, MARKERS_PAGE)?;
            unknown.extend(
                page.keys.into_iter().filter(|key| !self.kept.contains(&(index, key.clone()))),
            );
            let Some(next) = page.next else { break };
            cursor = next;
        }
        for key in unknown {
            // Its file may have been kept, or let go, since the rows were read.
            let file = Key::new(SEGMENT_NAMESPACE, key.name()).ok();
            let name = file.and_then(|file| FileName::parse(index, &file));
            let is_named = match name.map(|name| self.shared.catalog.kept(name.file)) {
                // That is a problem of its own.
                Some(Err(error)) if is_damage(&error) => true,
                row => row.transpose()?.flatten().is_some(),
            };
            if !is_named && tier.backend.stat(&key).is_ok() {
                let detail = format!("{key} marks a file of a version; no row names it");
                self.problem("unknown-file", &tier.name, detail);
            }
        }
        Ok(())
    }

    fn unknown_files(&mut self) -> Result<()> {
        for (index, tier) in self.shared.tiers.iter().enumerate() {
            if !tier.is_online() {
                continue;
            }
            let mut unknown = Vec::new();
            let mut foreign = Vec::new();
            files::list(
                TierIndex(index as u8),
                &*tier.backend,
                &mut |name| {
                    if !self.known.contains(&name) {
                        unknown.push(name);
                    }
                },
                &mut |key| foreign.push(key),
            )?;
            if tier.is_whole() {
                self.unknown_markers(TierIndex(index as u8), tier)?;
            }
            // After the listing: the file of an object that is not being made any more has a record now.
            let is_in_use = !is_idle(self.shared);
            unknown.iter().for_each(|name| self.unknown_file(tier, &name.key(), is_in_use));
            foreign.iter().for_each(|name| self.unknown_file(tier, name, false));
        }
        Ok(())
    }

    /// A file that no record named; `may_be_new` where an object that is being made may have it.
    fn unknown_file(&mut self, tier: &TierState, name: &Key, may_be_new: bool) {
        let identity = self.identity(tier, name);
        let is_new = |identity: &Identity| {
            identity.store_id == self.shared.store_id && identity.epoch == self.shared.epoch
        };
        match identity {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Made or superseded since the records were read.
            Ok(Some(identity)) if is_new(&identity) && (may_be_new || !is_idle(self.shared)) => {}
            // Not marked yet.
            Ok(None) if may_be_new => {}
            Ok(Some(identity)) if self.is_named(&identity, name) => {}
            Ok(identity) if self.is_unfinished(tier, name, identity.as_ref()) => {
                let detail = format!(
                    "{name} is of an operation that a crash ended; the next opening for writing deletes it"
                );
                self.note("unfinished-file", &tier.name, detail);
            }
            Ok(Some(identity)) => {
                let words = marks::in_words(&identity, self.shared.store_id);
                let detail = format!("{name} says {words}; no record names it");
                self.problem("unknown-file", &tier.name, detail);
            }
            _ => self.problem("unknown-file", &tier.name, format!("{name} has no identity")),
        }
    }

    /// Whether a file that no record names is one that the recovery deletes: the store was not closed, and
    /// this opening may not recover it.
    fn is_unfinished(&self, tier: &TierState, name: &Key, identity: Option<&Identity>) -> bool {
        let is_damaged = || self.report.problems.iter().any(|one| one.kind == "damaged-record");
        if !self.shared.is_unrecovered || is_damaged() {
            return false;
        }
        let Some(identity) = identity else {
            let opened = tier.backend.open(name, &Open::read());
            let stat = opened.and_then(|object| object.stat());
            return stat.is_ok_and(|stat| stat.size_bytes == 0);
        };
        let is_young = identity.epoch > self.shared.catalog.header().settled_epoch;
        let is_partial = matches!(identity.role, Role::Partial | Role::Dead);
        identity.store_id == self.shared.store_id && (is_partial || is_young)
    }

    /// Whether the object's record names a file by now.
    fn is_named(&self, identity: &Identity, name: &Key) -> bool {
        let Ok(Some(record)) = self.shared.catalog.get(&identity.key) else { return false };
        record.segments.iter().any(|segment| {
            let places = std::iter::once(&segment.primary).chain(&segment.copies);
            let mut keys = places.map(|place| place.key(record.object_id, segment.number));
            keys.any(|key| key == *name)
        })
    }

    fn accounts(&mut self) {
        for (index, tier) in self.shared.tiers.iter().enumerate() {
            let (used, copies, promised) = self.sums[index];
            let account = &tier.account;
            for (what, counted, summed) in [
                ("used", account.bytes(Class::Used), used),
                ("copy", account.bytes(Class::Copy), copies),
                ("reserved", account.bytes(Class::Reserved), promised),
            ] {
                if counted != summed {
                    let detail = format!(
                        "{what} bytes are accounted as {counted}, the records sum to {summed}"
                    );
                    self.problem("accounting", &tier.name, detail);
                }
            }
        }
    }
}

impl Check<'_> {
    /// Compares the use of namespaces in the catalog with the sum of their records.
    fn usage(&mut self) {
        let mut summed = std::mem::take(&mut self.usage);
        for (namespace, usage) in self.shared.usages.all() {
            let counted = (usage.objects.used(), usage.bytes.used());
            let (objects, bytes) = summed.remove(&namespace).unwrap_or_default();
            if counted != (objects, bytes) {
                let detail = format!(
                    "it is said to hold {} objects and {} bytes, its records sum to {objects} and \
                     {bytes}",
                    counted.0, counted.1
                );
                self.problem("usage", &namespace, detail);
            }
        }
        for namespace in summed.into_keys() {
            self.problem("usage", &namespace, "its objects are not counted".into());
        }
    }
}

/// Bytes and CRC-32C of a file; without its holes, where that is compared with nothing.
fn checksum(tier: &TierState, name: &Key, is_compared: bool) -> Result<(u64, u32)> {
    const STEP_BYTES: usize = 256 << 10;
    let how = Open::read()
        .with_semantics(terrace_core::Semantics::at_level(terrace_core::Persistency::None));
    let object = tier.backend.open(name, &how)?;
    let mut buffer = Buffer::zeroed(STEP_BYTES);
    let (mut at, mut bytes, mut sum) = (0, 0, 0);
    loop {
        let data = if is_compared { Some(at..u64::MAX) } else { object.next_data(at)? };
        let Some(data) = data else { return Ok((bytes, sum)) };
        at = data.start;
        let want = (buffer.len() as u64).min(data.end - at) as usize;
        let count = object.read_at(at, &mut [IoSliceMut::new(&mut buffer[..want])])?;
        if count == 0 {
            return Ok((bytes, sum));
        }
        sum = crc32c::crc32c_append(sum, &buffer[..count]);
        bytes += count as u64;
        at += count as u64;
    }
}
