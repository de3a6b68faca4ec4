// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Versions in a catalog that is made anew: from the markers beside their files, and from the saved catalog.

use std::collections::{HashMap, HashSet};
use std::io::IoSliceMut;

use terrace_core::{
    Backend, Cursor, Key, Open, Persistency, Result, Semantics, Ticket, TierIndex, Writes,
};

use super::saved::SavedCatalog;
use crate::catalog::files::FileName;
use crate::catalog::map::{Catalog, Write};
use crate::catalog::record::{Place, Record, SEGMENT_NAMESPACE};
use crate::catalog::versions::{
    KeptRow, KeptState, MARKER_NAMESPACE, Marker, Version, marker_of, version_key,
};
use crate::report::Problem;
use crate::tiers::parts::Parts;

/// Markers that are listed, and rows that are committed, together.
const PAGE: usize = 4096;

/// Longest marker that is read.
const MARKER_BYTES_MAX: u64 = 16 << 20;

/// What was found of versions.
#[derive(Default)]
pub(super) struct Versions {
    /// Files that versions name, by number.
    rows: HashMap<u64, KeptRow>,
    /// Files with a marker that cannot be read: its name alone says that they are kept.
    unreadable: HashSet<u64>,
    found: HashMap<(Key, u64), Version>,
}

impl Versions {
    /// Reads the markers of all tiers. A marker decides over a row of the saved catalog, which may be older.
    pub(super) fn read(
        parts: &Parts,
        store_id: u128,
        saved: Option<&SavedCatalog<'_>>,
        problems: &mut Vec<Problem>,
    ) -> Result<Self> {
        let mut all = Self::default();
        for row in saved.map(SavedCatalog::kept).transpose()?.into_iter().flatten() {
            // Whether it was kept since then, its marker says.
            let row = KeptRow { state: KeptState::Named, ..row };
            all.rows.insert(row.place.file, row);
        }
        for (index, tier) in parts.tiers.iter().enumerate() {
            if tier.backend.capability().writes != Writes::Whole {
                continue;
            }
            let mut cursor = Cursor::start();
            loop {
                let page = tier.backend.list(MARKER_NAMESPACE, "", &cursor, PAGE)?;
                for key in page.keys {
                    let index = TierIndex(index as u8);
                    if let Err(detail) = all.marker(index, store_id, &*tier.backend, &key) {
                        let (kind, place) = ("unknown-file".into(), tier.name.clone());
                        let detail = format!("{key} {detail}");
                        problems.push(Problem { kind, place, detail });
                    }
                }
                let Some(next) = page.next else { break };
                cursor = next;
            }
        }
        all.name_live(parts);
        Ok(all)
    }

    /// Files that a version names and that are not kept by it yet: their object may still have them.
    fn name_live(&mut self, parts: &Parts) {
        for ((key, id), version) in &self.found {
            for one in version.segments.iter().filter(|one| one.is_kept) {
                let tier = parts.tiers.iter().position(|tier| tier.name == one.tier);
                let Some(tier) = tier.map(|index| TierIndex(index as u8)) else { continue };
                self.rows.entry(one.file).or_insert_with(|| KeptRow {
                    object_id: version.object_id,
                    segment: one.number,
                    place: Place { tier, file: one.file, generation: 0, epoch: 0 },
                    bytes: one.length_bytes,
                    state: KeptState::Named,
                    since_ns: version.since_ns,
                    version: *id,
                    key: key.clone(),
                });
            }
        }
    }

    fn marker(
        &mut self,
        tier: TierIndex,
        store_id: u128,
        backend: &dyn Backend,
        key: &Key,
    ) -> Result<(), String> {
        let file = Key::new(SEGMENT_NAMESPACE, key.name()).ok();
        let name = file.and_then(|file| FileName::parse(tier, &file));
        let name = name.ok_or("is not the name of a kept file; it was left alone")?;
        let marker = read(backend, key).and_then(|bytes| Marker::decode(&bytes));
        let marker = marker.map_err(|error| {
            self.unreadable.insert(name.file);
            format!("cannot be read, and its file was taken for a kept one: {}", error.chain())
        })?;
        if marker.store_id != store_id {
            return Err("marks a file of another store; it was left alone".into());
        }
        let row = KeptRow {
            object_id: name.object_id,
            segment: name.segment,
            place: name.place(0, 0),
            bytes: backend.stat(&name.key()).map_or(0, |stat| match backend.capability().packed {
                true => stat.allocated_bytes.min(stat.size_bytes),
                false => stat.size_bytes,
            }),
            state: KeptState::Kept,
            since_ns: marker.since_ns,
            version: marker.version,
            key: marker.key.clone(),
        };
        self.rows.insert(name.file, row);
        if let Some(version) = marker.content {
            self.found.insert((marker.key, version.id), version);
        }
        Ok(())
    }

    /// Whether a file is one that a version alone names.
    pub(super) fn is_kept(&self, file: u64) -> bool {
        self.unreadable.contains(&file)
            || self.rows.get(&file).is_some_and(|row| row.state == KeptState::Kept)
    }

    /// Lets the files of a record be no kept ones, without markers. Versions name them still.
    pub(super) fn take_out(&mut self, parts: &Parts, record: &Record) -> Result<()> {
        for segment in &record.segments {
            for place in segment.places() {
                if !self.is_kept(place.file) {
                    continue;
                }
                let marker = marker_of(&place.key(record.object_id, segment.number));
                crate::missing_is_gone(parts.tiers[place.tier.index()].backend.delete(&marker))?;
                self.unreadable.remove(&place.file);
                self.rows.entry(place.file).and_modify(|row| row.state = KeptState::Named);
            }
        }
        Ok(())
    }

    /// Forgets files that a version names and that are not kept: the next opening would delete what no record
    /// names.
    pub(super) fn let_be(&mut self, names: &[FileName]) {
        for name in names {
            if self.rows.get(&name.file).is_some_and(|row| row.state == KeptState::Named) {
                self.rows.remove(&name.file);
            }
        }
    }

    /// Versions of which a marker tells.
    pub(super) fn count(&self) -> u64 {
        self.found.len() as u64
    }

    /// Writes the rows, behind those that the saved catalog had. Of files that are not among `names` only those
    /// with a marker count: the marker is to be deleted once.
    pub(super) fn write(&self, catalog: &Catalog, names: &[FileName]) -> Result<Option<Ticket>> {
        let there: HashSet<u64> = names.iter().map(|name| name.file).collect();
        let rows = self.rows.values();
        let rows =
            rows.filter(|row| row.state == KeptState::Kept || there.contains(&row.place.file));
        let rows = rows.map(|row| row.put(&catalog.tiers));
        let found = self
            .found
            .iter()
            .map(|((key, id), version)| Write::Row(version_key(key, *id), Some(version.encode())));
        let writes: Vec<_> = rows.chain(found).collect();
        let mut last = None;
        for batch in writes.chunks(PAGE) {
            last = Some(catalog.commit(batch)?);
        }
        Ok(last)
    }
}

fn read(backend: &dyn Backend, key: &Key) -> Result<Vec<u8>> {
    let how = Open::read().with_semantics(Semantics::at_level(Persistency::None));
    let object = backend.open(key, &how)?;
    let length = object.stat()?.size_bytes.min(MARKER_BYTES_MAX) as usize;
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        match object.read_at(done as u64, &mut [IoSliceMut::new(&mut bytes[done..])])? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
