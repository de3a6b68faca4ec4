// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Versions: values of objects that are superseded or deleted, and whose files a tier keeps for a time.
//!
//! A commit that takes a file of a keeping tier out of an object's record notes the value of before in the same
//! transaction: one row for the version, and one for each file that it names. A file with such a row is not
//! deleted when it is garbage. `docs/formats/catalog.md` has the rows.

use std::collections::HashSet;
use std::sync::Arc;

use terrace_core::{Clock, Key, Result, Txn};

use crate::catalog::codec::{Reader, Writer, corrupt};
use crate::catalog::format::{KEPT, VERSION, scoped};
use crate::catalog::record::{
    Place, Record, SEGMENTS_MAX, SegmentRecord, TierNumbers, decode_label,
};

const VERSION_VERSION: u8 = 1;
const KEPT_VERSION: u8 = 1;

/// Bytes of the number behind the name in the key of a version.
const ID_BYTES: usize = 8;

/// Which tiers keep what leaves them.
pub(crate) struct Keeping {
    /// Names of all tiers, by index.
    pub(crate) names: Vec<String>,
    /// Those that keep, by index.
    pub(crate) keeps: Vec<bool>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Keeping {
    fn is_kept(&self, place: &Place) -> bool {
        self.keeps.get(place.tier.index()).is_some_and(|keeps| *keeps)
    }
}

/// Why a value is no longer that of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionEnd {
    /// A file left the tier, because a part of the object was changed or moved.
    Changed,
    /// Another object has the key.
    Replaced,
    Deleted,
}

/// A value that an object had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The number of the first file that left the tier with it; no other version of the store has it.
    pub(crate) id: u64,
    /// When it was noted, nanoseconds since 1970.
    pub(crate) since_ns: u64,
    pub(crate) end: VersionEnd,
    pub(crate) object_id: u64,
    pub(crate) created_ns: u64,
    /// The label of the object.
    pub(crate) label: Option<Arc<[u8]>>,
    /// Those that are not empty, by start.
    pub(crate) segments: Vec<VersionSegment>,
}

/// A segment of a version. Tiers have their names, because their numbers change where the catalog is rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionSegment {
    pub(crate) number: u32,
    pub(crate) start_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) checksum: Option<u32>,
    /// The tier of its file, or where no file is kept the tier that had the only one.
    pub(crate) tier: String,
    pub(crate) file: u64,
    pub(crate) is_kept: bool,
}

impl Version {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.start_bytes + last.length_bytes)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(VERSION_VERSION);
        out.u64(self.since_ns);
        out.u8(match self.end {
            VersionEnd::Changed => 0,
            VersionEnd::Replaced => 1,
            VersionEnd::Deleted => 2,
        });
        out.u64(self.object_id).u64(self.created_ns);
        out.bytes(self.label.as_deref().unwrap_or_default());
        out.u32(self.segments.len() as u32);
        for segment in &self.segments {
            out.u32(segment.number).u64(segment.start_bytes).u64(segment.length_bytes);
            match segment.checksum {
                None => out.u8(0),
                Some(checksum) => out.u8(1).u32(checksum),
            };
            out.text(&segment.tier).u64(segment.file).u8(u8::from(segment.is_kept));
        }
        out.finish()
    }

    pub(crate) fn decode(id: u64, bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(bytes, VERSION_VERSION, "version")?;
        let since_ns = input.u64()?;
        let end = match input.u8()? {
            0 => VersionEnd::Changed,
            1 => VersionEnd::Replaced,
            2 => VersionEnd::Deleted,
            _ => return Err(input.wrong("why it ended is unknown")),
        };
        let (object_id, created_ns) = (input.u64()?, input.u64()?);
        let label = decode_label(&mut input)?;
        let count = input.u32()?;
        if count > SEGMENTS_MAX {
            return Err(input.wrong("its number of segments is out of bounds"));
        }
        let mut segments: Vec<VersionSegment> = Vec::new();
        for _ in 0..count {
            let (number, start_bytes, length_bytes) = (input.u32()?, input.u64()?, input.u64()?);
            let checksum = match input.flag()? {
                false => None,
                true => Some(input.u32()?),
            };
            let (tier, file, is_kept) = (input.text()?, input.u64()?, input.flag()?);
            let end_bytes = segments.last().map_or(0, |last| last.start_bytes + last.length_bytes);
            if start_bytes < end_bytes || start_bytes.checked_add(length_bytes).is_none() {
                return Err(input.wrong("its segments are out of order"));
            }
            segments.push(VersionSegment {
                number,
                start_bytes,
                length_bytes,
                checksum,
                tier,
                file,
                is_kept,
            });
        }
        input.finish()?;
        Ok(Self { id, since_ns, end, object_id, created_ns, label, segments })
    }
}

/// What is with a file that a version names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptState {
    /// A record names it still, or it is garbage that is to be kept.
    Named,
    /// It is kept, and no row of garbage names it.
    Kept,
    /// Its time is over: there is a row of garbage, and it is deleted as any other.
    Expired,
}

/// A file that a version names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptRow {
    pub(crate) object_id: u64,
    pub(crate) segment: u32,
    pub(crate) place: Place,
    pub(crate) bytes: u64,
    pub(crate) state: KeptState,
    /// Since when it is kept, nanoseconds since 1970.
    pub(crate) since_ns: u64,
    /// The latest version that names it.
    pub(crate) version: u64,
    /// The object's key.
    pub(crate) key: Key,
}

impl KeptRow {
    pub(crate) fn encode(&self, tiers: &TierNumbers) -> Vec<u8> {
        let mut out = Writer::new(KEPT_VERSION);
        out.u8(match self.state {
            KeptState::Named => 0,
            KeptState::Kept => 1,
            KeptState::Expired => 2,
        });
        out.u64(self.since_ns).u64(self.version).text(self.key.as_str());
        out.u8(tiers.number(self.place.tier)).u64(self.object_id);
        out.u32(self.segment).u64(self.place.file).u64(self.bytes);
        out.finish()
    }

    pub(crate) fn decode(bytes: &[u8], tiers: &TierNumbers) -> Result<Self> {
        let mut input = Reader::new(bytes, KEPT_VERSION, "kept file")?;
        let state = match input.u8()? {
            0 => KeptState::Named,
            1 => KeptState::Kept,
            2 => KeptState::Expired,
            _ => return Err(input.wrong("its state is unknown")),
        };
        let (since_ns, version, key) = (input.u64()?, input.u64()?, input.text()?);
        let key = Key::parse(&key).map_err(|_| input.wrong("its key is illegal"))?;
        let number = input.u8()?;
        let Some(tier) = tiers.index(number) else {
            return Err(input.wrong("it names a tier that the configuration does not have"));
        };
        let (object_id, segment, file) = (input.u64()?, input.u32()?, input.u64()?);
        let place = Place { tier, file, generation: 0, epoch: 0 };
        let bytes = input.u64()?;
        input.finish()?;
        Ok(Self { object_id, segment, place, bytes, state, since_ns, version, key })
    }
}

/// The key of the row of a file that a version names.
pub(crate) fn kept_key(file: u64) -> Vec<u8> {
    [&[KEPT][..], &file.to_be_bytes()].concat()
}

/// The key of a version's row.
pub(crate) fn version_key(key: &Key, id: u64) -> Vec<u8> {
    let mut row = scoped(VERSION, key.namespace(), key.name().as_bytes());
    row.push(0);
    row.extend(id.to_be_bytes());
    row
}

pub(crate) fn parse_version_key(row: &[u8]) -> Result<(Key, u64)> {
    let wrong = || corrupt("version", "its key has no object and number");
    let (head, id) = row.split_last_chunk::<ID_BYTES>().ok_or_else(wrong)?;
    let head = head.strip_suffix(&[0]).and_then(|head| head.get(1..)).ok_or_else(wrong)?;
    let text = std::str::from_utf8(head).map_err(|_| wrong())?;
    let (namespace, name) = text.split_once('\0').ok_or_else(wrong)?;
    Ok((Key::new(namespace, name)?, u64::from_be_bytes(*id)))
}

/// The files that have the bytes of a segment now: its primary and its clean copies.
fn valid(segment: &SegmentRecord) -> impl Iterator<Item = &Place> {
    std::iter::once(&segment.primary).chain(&segment.copies)
}

/// Notes what an object is until now, where a change of its record takes files off tiers that keep them; `new` is
/// the record of the key behind the change.
pub(crate) fn note(
    keeping: &Keeping,
    tiers: &TierNumbers,
    txn: &mut dyn Txn,
    key: &Key,
    old: &Record,
    new: Option<&Record>,
) -> Result<()> {
    let filled = || old.segments.iter().filter(|segment| segment.length_bytes > 0);
    let kept_place =
        |segment: &SegmentRecord| valid(segment).find(|one| keeping.is_kept(one)).copied();
    let kept: Vec<_> = filled().map(|segment| (segment, kept_place(segment))).collect();
    if kept.iter().all(|(_, place)| place.is_none()) {
        return Ok(());
    }
    let same = new.filter(|new| new.object_id == old.object_id);
    let stays: HashSet<u64> =
        same.iter().flat_map(|new| &new.segments).flat_map(valid).map(|place| place.file).collect();
    let mut places = kept.iter().filter_map(|(_, place)| *place);
    let Some(first) = places.find(|place| !stays.contains(&place.file)) else { return Ok(()) };
    // Of an object that goes on, a value of which a part is elsewhere is none that can be read later.
    if same.is_some() && kept.iter().any(|(_, place)| place.is_none()) {
        return Ok(());
    }
    let version = Version {
        id: first.file,
        since_ns: keeping.clock.wall_ns(),
        end: match (same, new) {
            (Some(_), _) => VersionEnd::Changed,
            (None, Some(_)) => VersionEnd::Replaced,
            (None, None) => VersionEnd::Deleted,
        },
        object_id: old.object_id,
        created_ns: old.created_ns,
        label: old.label.clone(),
        segments: kept.iter().map(|(segment, place)| part(keeping, segment, *place)).collect(),
    };
    txn.put(&version_key(key, version.id), &version.encode())?;
    for (segment, place) in kept {
        let Some(place) = place else { continue };
        let row = KeptRow {
            object_id: old.object_id,
            segment: segment.number,
            place,
            bytes: segment.amount(),
            state: KeptState::Named,
            since_ns: version.since_ns,
            version: version.id,
            key: key.clone(),
        };
        txn.put(&kept_key(place.file), &row.encode(tiers))?;
    }
    Ok(())
}

fn part(keeping: &Keeping, segment: &SegmentRecord, place: Option<Place>) -> VersionSegment {
    let shown = place.unwrap_or(segment.primary);
    VersionSegment {
        number: segment.number,
        start_bytes: segment.start_bytes,
        length_bytes: segment.length_bytes,
        checksum: segment.checksum,
        tier: keeping.names.get(shown.tier.index()).cloned().unwrap_or_default(),
        file: shown.file,
        is_kept: place.is_some(),
    }
}

/// What is beside a kept file on its tier, so that a rebuild of the catalog takes it neither for the value of
/// its object nor for garbage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) store_id: u128,
    pub(crate) since_ns: u64,
    pub(crate) version: u64,
    pub(crate) key: Key,
    /// The version itself, beside the file that has its number.
    pub(crate) content: Option<Version>,
}

impl Marker {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(KEPT_VERSION);
        out.u128(self.store_id).u64(self.since_ns).u64(self.version).text(self.key.as_str());
        let content = self.content.as_ref().map(Version::encode);
        out.bytes(content.as_deref().unwrap_or_default());
        out.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(bytes, KEPT_VERSION, "marker of a kept file")?;
        let store_id = input.u128()?;
        let (since_ns, version, key) = (input.u64()?, input.u64()?, input.text()?);
        let key = Key::parse(&key).map_err(|_| input.wrong("its key is illegal"))?;
        let content = match input.bytes()? {
            [] => None,
            bytes => Some(Version::decode(version, bytes)?),
        };
        input.finish()?;
        Ok(Self { store_id, since_ns, version, key, content })
    }
}

/// The namespace of the markers on a tier; each is named like its file.
pub(crate) const MARKER_NAMESPACE: &str = "kept";

/// The name of the marker of a file with this name.
pub(crate) fn marker_of(file: &Key) -> Key {
    Key::new(MARKER_NAMESPACE, file.name()).expect("a legal name is one in each namespace")
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::TierIndex;

    fn version() -> Version {
        let segment = |number, start_bytes, is_kept: bool| VersionSegment {
            number,
            start_bytes,
            length_bytes: 10,
            checksum: is_kept.then_some(7),
            tier: "cold".into(),
            file: 5,
            is_kept,
        };
        Version {
            id: 5,
            since_ns: 9,
            end: VersionEnd::Replaced,
            object_id: 3,
            created_ns: 2,
            label: Some([7, 8].into()),
            segments: vec![segment(0, 0, true), segment(1, 64, false)],
        }
    }

    #[test]
    fn rows_survive_their_encoding() {
        let version = version();
        assert_eq!(Version::decode(5, &version.encode()).expect("own encoding"), version);
        let key = Key::new("outer", "a/name").expect("legal");
        assert_eq!(parse_version_key(&version_key(&key, 77)).expect("own key"), (key.clone(), 77));
        let tiers = TierNumbers::new(&[4, 2]);
        let place = Place { tier: TierIndex(1), file: 8, generation: 0, epoch: 0 };
        for state in [KeptState::Named, KeptState::Kept, KeptState::Expired] {
            let (since_ns, version, key) = (6, 5, key.clone());
            let (object_id, segment, bytes) = (1, 2, 30);
            let row = KeptRow { object_id, segment, place, bytes, state, since_ns, version, key };
            assert_eq!(KeptRow::decode(&row.encode(&tiers), &tiers).expect("own encoding"), row);
        }
        for content in [None, Some(version)] {
            let (store_id, since_ns, version, key) = (8, 1, 5, key.clone());
            let marker = Marker { store_id, since_ns, version, key, content };
            assert_eq!(Marker::decode(&marker.encode()).expect("own encoding"), marker);
        }
    }

    #[test]
    fn segments_out_of_order_are_refused() {
        let mut wrong = version();
        wrong.segments.swap(0, 1);
        assert!(Version::decode(5, &wrong.encode()).is_err());
        let bytes = version().encode();
        assert!((0..bytes.len()).all(|end| Version::decode(5, &bytes[..end]).is_err()));
    }
}
