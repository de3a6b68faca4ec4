// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A catalog made anew from what the tiers hold.
//!
//! Every file says whose bytes it holds, so the highest complete primary of each segment is found
//! without any catalog. What files do not tell (pins, levels, pairs of applications, history) comes
//! from a catalog that was saved, where there is one. Files are only ever deleted as garbage of an
//! object that is complete without them, and not before the next opening. An older file that holds
//! other bytes than the newer is not: see `recover/doubt.rs`.

mod choose;
mod compare;
mod read;
mod saved;
mod versions;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use terrace_core::{
    Backend, Error, ErrorKind, Key, Kv, Persistency, Result, Superblock, Ticket, TierIndex,
};

use self::choose::{Choice, Chooser};
use self::read::{list_all, read_files};
use self::saved::SavedCatalog;
use self::versions::Versions;
use crate::catalog::files::FileName;
use crate::catalog::format::FORMAT_VERSION;
use crate::catalog::header::{Header, TierEntry};
use crate::catalog::map::{Catalog, GarbageRow, Write, application_namespaces};
use crate::catalog::record::{Record, TierNumbers};
use crate::pairs::SavedPairs;
use crate::recover::doubt;
use crate::recover::open::{boot_number, check_parts, keeps_identity};
use crate::recover::superblock::framed;
use crate::report::{Problem, RebuildReport};
use crate::tiers::parts::{Parts, Tier};

/// How to make a catalog anew.
#[derive(Default)]
pub struct RebuildOptions {
    /// Where to take from what files do not tell.
    pub saved: Option<Saved>,
    /// Whether tiers may differ in when they were last written. Bytes of an old copy of a tier may
    /// then come back.
    pub accepts_old_tiers: bool,
}

/// A catalog of the same store.
pub struct Saved {
    /// Its pairs.
    pub catalog: Arc<dyn Kv>,
    /// Whether the tiers were last used with it: then it is believed where it can be read, and the
    /// files decide for the rest. Otherwise the files decide where objects are.
    pub is_present: bool,
}

impl Saved {
    /// The key-value pairs of applications in it, by their namespaces. What is changed there is so in the
    /// new catalog.
    ///
    /// # Errors
    ///
    /// What the catalog says.
    pub fn pairs(&self) -> Result<Vec<(String, Arc<dyn Kv>)>> {
        let names = application_namespaces(&*self.catalog)?;
        let pairs = |name: String| {
            let pairs: Arc<dyn Kv> = Arc::new(SavedPairs::new(&self.catalog, &name));
            (name, pairs)
        };
        Ok(names.into_iter().map(pairs).collect())
    }
}

/// Files that are looked at together; bounds memory.
const CHUNK_FILES: usize = 4096;

/// Numbers left free above the highest that was found: no number that a deleted object may have
/// had is given out again.
const NUMBERS_MARGIN: u64 = 1 << 32;

/// Fills `parts.catalog`, which must be empty; `progress` gets the files done and their total.
pub(crate) fn run(
    parts: &Parts,
    options: &RebuildOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<RebuildReport> {
    check_parts(parts)?;
    if let Some((tier, reason)) =
        parts.tiers.iter().find_map(|one| Some((one, one.offline.as_ref()?)))
    {
        // What is on it would be taken for lost, and older files elsewhere for right.
        return Err(refusal(ErrorKind::Io, "a tier is missing; every tier must be there")
            .with("tier", &tier.name)
            .with("missing", reason));
    }
    if Catalog::header_of(&*parts.catalog)?.is_some() {
        return Err(Error::new(ErrorKind::Exists, "rebuild the catalog")
            .because("the new catalog is not empty")
            .with("catalog", parts.catalog.target()));
    }
    let superblocks = identify(parts, options)?;
    let store_id = superblocks[0].store_id;
    let saved = match &options.saved {
        Some(saved) => Some(SavedCatalog::read(saved, parts, store_id)?),
        None => None,
    };
    let numbers = TierNumbers::new(&(0..parts.tiers.len() as u8).collect::<Vec<_>>());
    let mut header = first_header(parts, &superblocks);
    if let Some(saved) = &saved {
        header.is_rebooted = saved.was_rebooted(header.boot);
        for tier in &mut header.tiers {
            tier.is_draining = saved.is_draining(&tier.name);
        }
    }
    let mut rebuild = Rebuild {
        parts,
        saved,
        catalog: Catalog::new(Arc::clone(&parts.catalog), header.clone(), numbers),
        header,
        hasher: RandomState::new(),
        keys: HashSet::new(),
        last: None,
        versions: Versions::default(),
        report: RebuildReport::default(),
    };
    let names = list_all(parts, &mut rebuild.report.problems)?;
    let problems = &mut rebuild.report.problems;
    rebuild.versions = Versions::read(parts, store_id, rebuild.saved.as_ref(), problems)?;
    rebuild.objects(&names, progress)?;
    rebuild.rest_of_saved()?;
    rebuild.last = rebuild.versions.write(&rebuild.catalog, &names)?.or(rebuild.last);
    rebuild.report.versions = rebuild.versions.count();
    rebuild.finish()
}

/// What the tiers say of themselves: at least one, and all of one store.
fn identify(parts: &Parts, options: &RebuildOptions) -> Result<Vec<Superblock>> {
    let mut found: Vec<(&str, Superblock)> = Vec::new();
    for tier in parts.tiers.iter().filter(|tier| keeps_identity(tier)) {
        let superblock = tier.backend.superblock()?.ok_or_else(|| {
            refusal(ErrorKind::Stale, "a tier has no superblock: it is empty, or another directory")
                .with("tier", &tier.name)
                .with("target", tier.backend.target())
        })?;
        if let Some(reason) = framed(&superblock) {
            return Err(refusal(ErrorKind::Denied, reason).with("tier", &tier.name));
        }
        if superblock.tier != tier.name {
            return Err(refusal(ErrorKind::Denied, "tiers are swapped")
                .with("tier", &tier.name)
                .with("found", &superblock.tier));
        }
        found.push((&tier.name, superblock));
    }
    let Some((first, rest)) = found.split_first() else {
        return Err(refusal(ErrorKind::Unsupported, "no tier keeps anything over a restart"));
    };
    if let Some((name, _)) = rest.iter().find(|(_, one)| one.store_id != first.1.store_id) {
        return Err(refusal(ErrorKind::Denied, "the tiers belong to different stores")
            .with("tier", first.0)
            .with("other", name));
    }
    let epoch = found.iter().map(|(_, one)| one.epoch).max().expect("there is one");
    // A crash in the middle of an opening leaves the others one behind.
    let old = found.iter().find(|(_, one)| one.epoch + 1 < epoch);
    match old {
        Some((name, one)) if !options.accepts_old_tiers => Err(refusal(
            ErrorKind::Stale,
            "a tier was last written before the others: an old copy?",
        )
        .with("tier", name)
        .with("epoch", one.epoch)
        .with("newest_epoch", epoch)),
        _ => Ok(found.into_iter().map(|(_, superblock)| superblock).collect()),
    }
}

fn refusal(kind: ErrorKind, reason: &'static str) -> Error {
    Error::new(kind, "rebuild the catalog").because(reason)
}

/// The header as of a crash of this boot, so that the next opening compares everything once more
/// and accounts for it. Whether power was lost only the present catalog can tell.
fn first_header(parts: &Parts, superblocks: &[Superblock]) -> Header {
    let epoch = superblocks.iter().map(|one| one.epoch).max().expect("there is one");
    let entry = |(index, tier): (usize, &Tier)| {
        // An older one that was accepted has missed the latest openings.
        let own = superblocks.iter().find(|one| one.tier == tier.name);
        TierEntry::new(index as u8, &tier.name, own.map_or(epoch, |one| one.epoch))
    };
    Header {
        format: FORMAT_VERSION,
        store_id: superblocks[0].store_id,
        epoch,
        is_clean: false,
        settled_epoch: epoch,
        is_rebooted: false,
        boot: boot_number(&parts.settings.boot_id),
        opened_ns: parts.clock.wall_ns(),
        next_number: 1,
        tiers: parts.tiers.iter().enumerate().map(entry).collect(),
    }
}

struct Rebuild<'a> {
    parts: &'a Parts,
    saved: Option<SavedCatalog<'a>>,
    catalog: Catalog,
    header: Header,
    hasher: RandomState,
    /// Hashes of the keys so far: of two objects with one key, the later replaces the earlier.
    keys: HashSet<u64>,
    last: Option<Ticket>,
    versions: Versions,
    report: RebuildReport,
}

impl Rebuild<'_> {
    /// Makes a record of every object whose files are there. `names` are in order of the objects.
    fn objects(&mut self, names: &[FileName], progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let highest = names.iter().map(|name| name.file.max(name.object_id)).max().unwrap_or(0);
        let mut chooser = Chooser::new(self.header.store_id, highest + NUMBERS_MARGIN);
        let (mut start, total) = (0, names.len());
        while start < total {
            let mut end = (start + CHUNK_FILES).min(total);
            while end < total && names[end].object_id == names[end - 1].object_id {
                end += 1;
            }
            let files = read_files(&self.parts.tiers, &names[start..end]);
            let mut choices = Vec::new();
            for group in files.chunk_by(|a, b| a.name.object_id == b.name.object_id) {
                choices.push(chooser.choose(
                    self.parts,
                    self.saved.as_ref(),
                    &self.versions,
                    group,
                ));
            }
            self.commit(choices)?;
            start = end;
            progress(start as u64, total as u64);
        }
        let saved = self.saved.as_ref().map_or(0, |saved| saved.header.next_number);
        self.header.next_number = chooser.next_number().max(saved) + NUMBERS_MARGIN;
        Ok(())
    }

    /// Writes what was chosen, marks first: a record never names a file that is marked otherwise.
    fn commit(&mut self, choices: Vec<Choice>) -> Result<()> {
        let mut records: Vec<(Key, Record)> = Vec::new();
        let mut garbage: Vec<GarbageRow> = Vec::new();
        let mut doubtful = Vec::new();
        for choice in choices {
            for (tier, name, identity) in &choice.marks {
                self.backend(*tier).set_identity(name, identity)?;
            }
            self.report.problems.extend(choice.problems);
            self.report.notes.extend(choice.notes);
            garbage.extend(choice.superseded);
            doubtful.extend(choice.doubtful.iter().map(|row| doubt::note(row, &self.catalog)));
            self.versions.let_be(&choice.left_alone);
            let Some((key, record)) = choice.object else { continue };
            if !self.keys.insert(self.hasher.hash_one(&key)) {
                self.replace_earlier(&key, &mut records, &mut garbage)?;
            }
            records.push((key, record));
        }
        for (_, record) in &records {
            self.count(record, true);
            self.versions.take_out(self.parts, record)?;
        }
        self.report.superseded += garbage.len() as u64;
        let puts = records.iter().map(|(key, record)| Write::Put(key, record));
        let garbage = garbage.into_iter().map(Write::Garbage);
        let writes: Vec<_> = puts.chain(garbage).chain(doubtful).collect();
        self.last = Some(self.catalog.commit(&writes)?);
        Ok(())
    }

    /// A name is used once at a time, so the object with the lower number was deleted before the
    /// other was made, and its files were to go.
    fn replace_earlier(
        &mut self,
        key: &Key,
        records: &mut Vec<(Key, Record)>,
        garbage: &mut Vec<GarbageRow>,
    ) -> Result<()> {
        let earlier = match records.iter().position(|(other, _)| other == key) {
            Some(position) => Some(records.remove(position).1),
            None => self.catalog.get(key)?.inspect(|record| self.count(record, false)),
        };
        for segment in earlier.iter().flat_map(|record| &record.segments) {
            garbage.push(GarbageRow {
                object_id: earlier.as_ref().expect("it has segments").object_id,
                segment: segment.number,
                place: segment.primary,
                bytes: segment.length_bytes,
            });
        }
        Ok(())
    }

    fn count(&mut self, record: &Record, is_added: bool) {
        let segments = record.segments.len() as u64;
        let bytes: u64 = record.segments.iter().map(|segment| segment.length_bytes).sum();
        let report = &mut self.report;
        let change = |sum: &mut u64, by: u64| {
            *sum = if is_added { *sum + by } else { *sum - by };
        };
        change(&mut report.objects, 1);
        change(&mut report.segments, segments);
        change(&mut report.bytes, bytes);
    }

    /// What the saved catalog has beside the objects that were found.
    fn rest_of_saved(&mut self) -> Result<()> {
        let Some(saved) = self.saved.take() else { return Ok(()) };
        self.report.pairs = saved.copy_rows(&*self.parts.catalog)?;
        let mut missing = Vec::new();
        saved.for_each(&mut |key, record| {
            let is_found = self.keys.contains(&self.hasher.hash_one(&key))
                && self.catalog.get(&key)?.is_some();
            if !is_found {
                missing.push((key, record));
            }
            Ok(())
        })?;
        for (key, record) in missing {
            self.missing(&saved, &key, record)?;
        }
        Ok(())
    }

    /// An object of the saved catalog without any file.
    fn missing(&mut self, saved: &SavedCatalog<'_>, key: &Key, record: Record) -> Result<()> {
        let tiers: Vec<_> = record.segments.iter().map(|one| one.primary.tier).collect();
        let is_volatile = |tier: &TierIndex| {
            self.parts.tiers[tier.index()].backend.capability().persistency == Persistency::None
        };
        if tiers.iter().any(is_volatile) {
            return Ok(());
        }
        let names: Vec<_> =
            tiers.iter().map(|tier| self.parts.tiers[tier.index()].name.as_str()).collect();
        let detail = format!("no file of it is on {}", names.join(", "));
        let problem = Problem { kind: "missing-file".into(), place: key.as_str().into(), detail };
        if saved.is_present {
            // Kept, so that reading it says what is missing.
            self.last = Some(self.catalog.commit(&[Write::Put(key, &record)])?);
            self.count(&record, true);
            self.report.problems.push(problem);
        } else {
            self.report.notes.push(Problem { kind: "not-there".into(), ..problem });
        }
        Ok(())
    }

    /// The header comes last, and durably: without it the catalog is none.
    fn finish(self) -> Result<RebuildReport> {
        if let Some(ticket) = self.last {
            self.catalog.wait(ticket)?;
        }
        // The bytes as well: the next opening deletes what they supersede.
        for tier in self.parts.tiers.iter().filter(|tier| keeps_identity(tier)) {
            tier.backend.sync_all()?;
        }
        Catalog::create(&*self.parts.catalog, &self.header)?;
        Ok(self.report)
    }

    fn backend(&self, tier: TierIndex) -> &dyn Backend {
        &*self.parts.tiers[tier.index()].backend
    }
}
