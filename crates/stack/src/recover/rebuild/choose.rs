// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the files of one object to its record.

use terrace_core::{Hint, Identity, Key, Layout, Persistency, Result, Role, TierIndex};

use super::compare::have_same_bytes;
use super::read::FoundFile;
use super::saved::SavedCatalog;
use super::versions::Versions;
use crate::Parts;
use crate::catalog::files::FileName;
use crate::catalog::map::GarbageRow;
use crate::catalog::record::{Owner, Place, Record, SegmentRecord};
use crate::memory::marks;
use crate::recover::doubt::{File, differing, of_nobody};
use crate::report::Problem;

/// What becomes of the files with one object's number.
#[derive(Default)]
pub(super) struct Choice {
    /// The object, where it is complete.
    pub(super) object: Option<(Key, Record)>,
    /// Files of it that it does not need.
    pub(super) superseded: Vec<GarbageRow>,
    /// Older files of it that hold something else than the newer ones.
    pub(super) doubtful: Vec<GarbageRow>,
    /// Marks that must be written, because the files say something else.
    pub(super) marks: Vec<(TierIndex, Key, Identity)>,
    /// Files that stay where they are, although the new catalog does not name them.
    pub(super) left_alone: Vec<FileName>,
    pub(super) problems: Vec<Problem>,
    pub(super) notes: Vec<Problem>,
}

/// A file that says that it belongs to this store, with its mark.
struct Candidate<'a> {
    file: &'a FoundFile,
    identity: &'a Identity,
    length_bytes: u64,
}

impl Candidate<'_> {
    fn place(&self) -> Place {
        self.file.name.place(self.identity.generation, self.identity.epoch)
    }

    /// What it takes where its tier packs, and that is less than its length.
    fn packed_bytes(&self, parts: &Parts) -> Option<u64> {
        let tier = &parts.tiers[self.file.name.tier.index()];
        let stat = self.file.stat.as_ref().ok().filter(|_| tier.backend.capability().packed)?;
        Some(stat.allocated_bytes).filter(|bytes| *bytes < stat.size_bytes)
    }

    fn row(&self) -> GarbageRow {
        GarbageRow {
            object_id: self.file.name.object_id,
            segment: self.file.name.segment,
            place: self.place(),
            bytes: self.length_bytes,
        }
    }
}

/// Whether the first file that its object had is marked as unfinished: then the object is a draft,
/// whose publication marks its first file last.
fn is_unpublished(file: &Candidate<'_>) -> bool {
    let name = &file.file.name;
    name.file == name.object_id && file.identity.role == Role::Partial
}

pub(super) struct Chooser {
    store_id: u128,
    /// The next generation that no file has.
    next_number: u64,
}

impl Chooser {
    pub(super) fn new(store_id: u128, next_number: u64) -> Self {
        Self { store_id, next_number }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Decides over the files with one object's number.
    pub(super) fn choose(
        &mut self,
        parts: &Parts,
        saved: Option<&SavedCatalog<'_>>,
        versions: &Versions,
        files: &[FoundFile],
    ) -> Choice {
        let mut choice = Choice::default();
        let mut candidates = Vec::new();
        for file in files {
            match self.candidate(file) {
                Ok(candidate) => candidates.push(candidate),
                Err(detail) => {
                    choice.left_alone.push(file.name);
                    choice.problems.push(Problem {
                        kind: "unknown-file".into(),
                        place: parts.tiers[file.name.tier.index()].name.clone(),
                        detail: format!("{} {detail}; it was left alone", file.name.key()),
                    });
                }
            }
        }
        for candidate in &candidates {
            self.next_number = self.next_number.max(candidate.identity.generation + 1);
        }
        let is_version = |candidate: &Candidate<'_>| {
            let (name, key) = (&candidate.file.name, &candidate.identity.key);
            versions.is_kept(name.file)
                && !saved.is_some_and(|saved| saved.is_current(key, name.object_id, name.file))
        };
        candidates.retain(|candidate| !is_version(candidate));
        let is_garbage = |candidate: &Candidate<'_>| {
            matches!(candidate.identity.role, Role::Partial | Role::Dead)
                || saved.is_some_and(|saved| saved.is_garbage(candidate.file.name.file))
        };
        let (garbage, candidates): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_garbage);
        choice.superseded.extend(garbage.iter().map(Candidate::row));
        if garbage.iter().any(is_unpublished) {
            choice.superseded.extend(candidates.iter().map(Candidate::row));
            return choice;
        }
        let Some(latest) = candidates.iter().max_by_key(|one| one.identity.generation) else {
            return choice;
        };
        let (key, object_id) = (latest.identity.key.clone(), latest.file.name.object_id);
        let is_doubtful = |file| saved.is_some_and(|saved| saved.is_doubtful(file));
        let is_gone = saved.is_some_and(|saved| saved.is_gone(&key, object_id));
        if is_gone && candidates.iter().all(|one| is_doubtful(one.file.name.file)) {
            choice.leave_doubtful(parts, &key, &candidates);
            return choice;
        }
        if saved.is_some_and(|saved| saved.knows_another(&key, object_id)) {
            choice.left_alone.extend(candidates.iter().map(|one| one.file.name));
            choice.problems.extend(candidates.iter().map(|one| Problem {
                kind: "unknown-file".into(),
                place: parts.tiers[one.file.name.tier.index()].name.clone(),
                detail: format!(
                    "{} is of an earlier or later {key}; it was left alone",
                    one.file.name.key()
                ),
            }));
            return choice;
        }
        let known = saved.and_then(|saved| saved.record(&key, object_id));
        let believed = known.as_ref().filter(|_| saved.is_some_and(|saved| saved.is_present));
        let segments = match believed {
            Some(record) => {
                let segments = self.believe(parts, record, &candidates, &key, &mut choice);
                let superseded = std::mem::take(&mut choice.superseded).into_iter();
                (choice.doubtful, choice.superseded) =
                    superseded.partition(|row| is_doubtful(row.place.file));
                segments
            }
            None => {
                if saved.is_some_and(|saved| saved.is_present) {
                    choice.notes.push(note(&key, "brought-back", latest));
                }
                self.find_segments(parts, &candidates, &key, &mut choice)
            }
        };
        choice.describe_doubtful(parts, &key, &segments);
        if segments.first().is_none_or(|segment| segment.start_bytes > 0) {
            // Whatever is there of it stays: the tier with the rest may be brought back.
            choice.superseded.clear();
            choice.doubtful.clear();
            choice.marks.clear();
            choice.left_alone.extend(files.iter().map(|file| file.name));
            choice.problems.push(Problem {
                kind: "incomplete-object".into(),
                place: key.as_str().into(),
                detail: format!(
                    "its beginning is on no tier; {} of it were left alone",
                    count_files(candidates.len())
                ),
            });
            return choice;
        }
        let record = match known {
            Some(record) => Record { segments, ..record },
            None => new_record(parts, object_id, &candidates, segments),
        };
        choice.object = Some((key, record));
        choice
    }

    /// Whether a file is what its name says; else why not.
    fn candidate<'a>(&self, file: &'a FoundFile) -> Result<Candidate<'a>, String> {
        let name = &file.name;
        // An unfinished packed object has no length that can be read.
        let is_unfinished =
            matches!(&file.identity, Ok(Some(identity)) if identity.role == Role::Partial);
        let length_bytes = match &file.stat {
            Ok(stat) => stat.size_bytes,
            Err(_) if is_unfinished => 0,
            Err(error) => return Err(error.chain()),
        };
        let identity = match &file.identity {
            Ok(Some(identity)) => identity,
            Ok(None) => return Err("has no identity".into()),
            Err(error) => return Err(format!("has no readable identity: {}", error.chain())),
        };
        if identity.store_id != self.store_id {
            return Err(format!("belongs to another store, {:032x}", identity.store_id));
        }
        if (identity.object_id, identity.segment) != (name.object_id, name.segment) {
            return Err(format!("says {}", marks::in_words(identity, self.store_id)));
        }
        Ok(Candidate { file, identity, length_bytes })
    }

    /// The segments that the files alone tell: of each number the primary with the highest
    /// generation. A copy stands in for a primary that is gone. An older primary goes only where
    /// the newer has the same bytes: after a loss of power it may be the one that has them all.
    fn find_segments(
        &mut self,
        parts: &Parts,
        candidates: &[Candidate<'_>],
        key: &Key,
        choice: &mut Choice,
    ) -> Vec<SegmentRecord> {
        let mut segments = Vec::new();
        for group in candidates.chunk_by(|a, b| a.file.name.segment == b.file.name.segment) {
            let rank = |one: &&Candidate<'_>| {
                (one.identity.role == Role::Primary, one.identity.generation)
            };
            let best = group.iter().max_by_key(rank).expect("a group has one");
            let mut place = best.place();
            if best.identity.role != Role::Primary {
                place = self.promote(best, key, choice);
            }
            for other in group.iter().filter(|one| one.file.name != best.file.name) {
                // An empty one has nothing to lose; where a tier was full there are many.
                let has_bytes = other.identity.role == Role::Primary && other.length_bytes > 0;
                if has_bytes && !is_same(parts, best, other) {
                    choice.doubtful.push(other.row());
                } else {
                    choice.superseded.push(other.row());
                }
            }
            segments.push(SegmentRecord {
                number: best.file.name.segment,
                start_bytes: best.identity.start_bytes,
                length_bytes: best.length_bytes,
                // The next opening looks at the file, unless it was written as a whole.
                allocated_bytes: best.packed_bytes(parts),
                checksum: None,
                primary: place,
                copies: Vec::new(),
                settling: None,
                synced: Vec::new(),
                is_added: false,
            });
        }
        segments.sort_by_key(|segment| segment.start_bytes);
        segments
    }

    /// The segments of a record that is believed, with what is there of their files.
    fn believe(
        &mut self,
        parts: &Parts,
        record: &Record,
        candidates: &[Candidate<'_>],
        key: &Key,
        choice: &mut Choice,
    ) -> Vec<SegmentRecord> {
        let find = |segment: &SegmentRecord, place: &Place| {
            candidates.iter().find(|one| {
                let name = &one.file.name;
                (name.segment, name.tier, name.file) == (segment.number, place.tier, place.file)
            })
        };
        let mut used = Vec::new();
        let mut segments = Vec::new();
        for known in &record.segments {
            let mut segment = SegmentRecord { settling: None, ..known.clone() };
            segment.copies.retain(|copy| find(known, copy).is_some());
            if let Some(primary) = find(known, &known.primary) {
                segment.primary = Place { epoch: primary.identity.epoch, ..known.primary };
                // The next opening knows whether the switch holds.
                let settling = known.settling.as_ref();
                segment.settling =
                    settling.filter(|one| find(known, &one.source).is_some()).copied();
                let owner = record.owner(key);
                self.restore_mark(primary, &segment.primary, owner, known, choice);
            } else if let Some(copy) = segment.copies.first().copied() {
                let copy = find(known, &copy).expect("those that are missing were left out");
                segment.primary = self.promote(copy, key, choice);
                segment.copies.remove(0);
            } else if let Some(other) = latest_primary(candidates, known.number) {
                segment.primary = other.place();
                segment.checksum = None;
                choice.notes.push(note(key, "found-elsewhere", other));
            } else {
                choice.problems.push(Problem {
                    kind: "missing-file".into(),
                    place: key.as_str().into(),
                    detail: format!("segment {} is on no tier", known.number),
                });
            }
            if let Some(primary) = find(&segment, &segment.primary) {
                if primary.length_bytes != segment.length_bytes {
                    segment.checksum = None;
                    choice.notes.push(note(key, "length-taken-from-file", primary));
                }
                segment.length_bytes = primary.length_bytes;
            }
            let length_bytes = segment.length_bytes;
            segment.copies.retain(|copy| {
                find(known, copy).is_some_and(|file| file.length_bytes == length_bytes)
            });
            if let Some(primary) = find(&segment, &segment.primary) {
                // Where that is another file than the record knew. Copies take what the primary does.
                let packed_bytes = primary.packed_bytes(parts);
                segment.allocated_bytes = match packed_bytes {
                    Some(bytes) if segment.copies.is_empty() => Some(bytes),
                    Some(_) => None,
                    None => segment.allocated_bytes,
                };
            }
            let places = std::iter::once(&segment.primary).chain(&segment.copies);
            let source = segment.settling.as_ref().map(|settling| &settling.source);
            let places = places.chain(source);
            used.extend(places.map(|place| (segment.number, place.tier, place.file)));
            segments.push(segment);
        }
        let is_used = |one: &&Candidate<'_>| {
            let name = &one.file.name;
            used.contains(&(name.segment, name.tier, name.file))
        };
        let others = candidates.iter().filter(|one| !is_used(one));
        choice.superseded.extend(others.map(Candidate::row));
        segments
    }

    /// Makes a copy the primary.
    fn promote(&mut self, copy: &Candidate<'_>, key: &Key, choice: &mut Choice) -> Place {
        let generation = self.next_number;
        self.next_number += 1;
        let identity = Identity { generation, role: Role::Primary, ..copy.identity.clone() };
        choice.notes.push(note(key, "copy-made-primary", copy));
        choice.marks.push((copy.file.name.tier, copy.file.name.key(), identity));
        Place { generation, ..copy.place() }
    }

    fn restore_mark(
        &self,
        file: &Candidate<'_>,
        place: &Place,
        owner: Owner<'_>,
        segment: &SegmentRecord,
        choice: &mut Choice,
    ) {
        let (key, label) = (owner.key, owner.label);
        let wanted = Identity {
            generation: place.generation,
            role: Role::Primary,
            start_bytes: segment.start_bytes,
            key: key.clone(),
            label: label.cloned(),
            ..file.identity.clone()
        };
        if wanted != *file.identity {
            choice.notes.push(note(key, "mark-restored", file));
            choice.marks.push((file.file.name.tier, file.file.name.key(), wanted));
        }
    }
}

impl Choice {
    /// They are not needed any more, but only a person removes them.
    fn leave_doubtful(&mut self, parts: &Parts, key: &Key, files: &[Candidate<'_>]) {
        for file in files {
            let tier = &parts.tiers[file.file.name.tier.index()];
            self.doubtful.push(file.row());
            let name = tier.name_of(&file.file.name.key());
            self.problems.push(of_nobody(key, &name, &tier.name));
        }
    }

    fn describe_doubtful(&mut self, parts: &Parts, key: &Key, segments: &[SegmentRecord]) {
        for row in &self.doubtful {
            let file = |place: &Place, bytes| {
                let tier = &parts.tiers[place.tier.index()];
                let name = tier.name_of(&place.key(row.object_id, row.segment));
                File { name, tier: &tier.name, bytes }
            };
            let newer = segments.iter().find(|segment| segment.number == row.segment);
            let Some(newer) = newer else { continue };
            let newer = file(&newer.primary, newer.length_bytes);
            self.problems.push(differing(key, &file(&row.place, row.bytes), &newer));
        }
    }
}

/// Whether two files surely hold the same.
fn is_same(parts: &Parts, one: &Candidate<'_>, other: &Candidate<'_>) -> bool {
    one.length_bytes == other.length_bytes
        && have_same_bytes(&parts.tiers, &one.file.name, &other.file.name).unwrap_or(false)
}

fn latest_primary<'a, 'b>(
    candidates: &'a [Candidate<'b>],
    segment: u32,
) -> Option<&'a Candidate<'b>> {
    let is_primary = |one: &&Candidate<'_>| {
        one.file.name.segment == segment && one.identity.role == Role::Primary
    };
    candidates.iter().filter(is_primary).max_by_key(|one| one.identity.generation)
}

fn note(key: &Key, kind: &str, file: &Candidate<'_>) -> Problem {
    Problem {
        kind: kind.into(),
        place: key.as_str().into(),
        detail: file.file.name.key().to_string(),
    }
}

fn count_files(count: usize) -> String {
    if count == 1 { "1 file".into() } else { format!("{count} files") }
}

/// What files do not tell is what a new object would have; the level is the strongest that all its
/// tiers keep, so that none is lost that was promised.
fn new_record(
    parts: &Parts,
    object_id: u64,
    candidates: &[Candidate<'_>],
    segments: Vec<SegmentRecord>,
) -> Record {
    let level = |segment: &SegmentRecord| {
        parts.tiers[segment.primary.tier.index()].backend.capability().persistency
    };
    let created = candidates.iter().filter_map(|one| one.file.stat.as_ref().ok());
    let layout = match segments.len() {
        1 => Layout::One,
        _ => Layout::Steps {
            starts_bytes: segments[1..].iter().map(|segment| segment.start_bytes).collect(),
        },
    };
    Record {
        object_id,
        is_pinned: false,
        persistency: segments.iter().map(level).min().unwrap_or(Persistency::Process),
        hint: Hint::default(),
        created_ns: created.map(|stat| stat.created_ns).min().unwrap_or(0),
        layout,
        segments,
        identity: None,
        // All its files have the same: it never changes.
        label: candidates.iter().find_map(|one| one.identity.label.clone()),
        is_draft: false,
    }
}
