// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the catalog keeps of an object; the format is in `docs/formats/catalog.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use terrace_core::{
    Hint, Identity, Key, LABEL_BYTES_MAX, Layout, Persistency, Result, Role, Temperature, TierIndex,
};

use crate::catalog::codec::{Reader, Writer};

/// Namespace of the stack's files in every tier.
pub(crate) const SEGMENT_NAMESPACE: &str = "seg";

const VERSION: u8 = 1;

/// Of a record that has a label or an identity with one.
const VERSION_LABELLED: u8 = 2;

/// Of a record with a segment that has holes: labels, and what each segment takes.
const VERSION_SPARSE: u8 = 3;

/// Of a record at level `shared`: the same, and what shared tiers have of each segment.
const VERSION_SYNCED: u8 = 4;

/// Allocated bytes of a dense segment in a record of these versions.
const DENSE: u64 = u64::MAX;

/// Most segments of one object: bounds what a damaged record can make us allocate.
pub(crate) const SEGMENTS_MAX: u32 = 1 << 20;

/// An object as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) object_id: u64,
    pub(crate) is_pinned: bool,
    pub(crate) persistency: Persistency,
    pub(crate) hint: Hint,
    pub(crate) created_ns: u64,
    pub(crate) layout: Layout,
    /// By start; the first starts at 0.
    pub(crate) segments: Vec<SegmentRecord>,
    /// What the object is to a store that has this one as a tier.
    pub(crate) identity: Option<Arc<Identity>>,
    /// What the object was created with.
    pub(crate) label: Option<Arc<[u8]>>,
    /// Whether no key names it: not encoded, because the catalog has rows of garbage instead.
    pub(crate) is_draft: bool,
}

/// What all files of an object say of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) key: &'a Key,
    pub(crate) object_id: u64,
    pub(crate) label: Option<&'a Arc<[u8]>>,
    /// Whether the object is a draft, whose files are marked as unfinished.
    pub(crate) is_draft: bool,
}

/// A segment as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentRecord {
    /// Unique in its object; that of one that was cut off may be used again.
    pub(crate) number: u32,
    pub(crate) start_bytes: u64,
    /// As of the last flush; the file has the truth after a crash.
    pub(crate) length_bytes: u64,
    /// What of its length its tier has allocated, where that is less: it has holes.
    pub(crate) allocated_bytes: Option<u64>,
    /// CRC-32C of all bytes, while nothing was written since it was computed.
    pub(crate) checksum: Option<u32>,
    pub(crate) primary: Place,
    pub(crate) copies: Vec<Place>,
    pub(crate) settling: Option<Settling>,
    /// Of an object at level `shared`: the files on shared tiers with the bytes of the last sync, or newer ones. The
    /// record names them, or a write took them out and they are retained.
    pub(crate) synced: Vec<Place>,
    /// Whether it was added to an object that had the level `shared`, and no shared tier has had a file of it.
    pub(crate) is_added: bool,
}

/// One stored file of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) tier: TierIndex,
    /// Number in the file's name: the generation in which it was made.
    pub(crate) file: u64,
    /// Number of this location; the highest complete primary is the right one.
    pub(crate) generation: u64,
    /// The store's opening in which the file was made.
    pub(crate) epoch: u64,
}

/// A switch whose durability is not yet certain: until it is settled, the source stays, and it is
/// the right location after a restart of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settling {
    pub(crate) source: Place,
    /// Hash of the boot in which the switch was made.
    pub(crate) boot: u64,
}

impl Place {
    /// The name of the file in its tier.
    pub(crate) fn key(&self, object_id: u64, segment: u32) -> Key {
        let mut name = String::with_capacity(48);
        push_hex(&mut name, object_id, 16);
        name.push('.');
        name.push_str(&segment.to_string());
        name.push('.');
        push_hex(&mut name, self.file, 1);
        Key::new(SEGMENT_NAMESPACE, &name).expect("short and without NUL")
    }
}

/// Appends a number in hexadecimal with at least so many digits: every create names a file, and
/// `format!` takes three times as long.
fn push_hex(text: &mut String, number: u64, digits_min: u32) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(digits_min);
    for digit in (0..digits).rev() {
        let value = (number >> (4 * digit)) as u32 & 0xf;
        text.push(char::from_digit(value, 16).expect("four bits"));
    }
}

/// Translates between a tier's index and its number in the catalog, which stays when the
/// configuration is reordered. Tiers may be added, and none is taken out.
#[derive(Debug, Default)]
pub(crate) struct TierNumbers {
    /// By tier index; those from `count` on mean nothing.
    numbers: [AtomicU8; TierIndex::COUNT_MAX],
    count: AtomicUsize,
}

impl TierNumbers {
    /// Numbers by index.
    ///
    /// # Panics
    ///
    /// Where there are more than tiers in a store.
    pub(crate) fn new(numbers: &[u8]) -> Self {
        let new = Self::default();
        numbers.iter().for_each(|number| new.push(*number));
        new
    }

    /// Adds the number of the next tier; one caller at a time.
    pub(crate) fn push(&self, number: u8) {
        let count = self.count.load(Ordering::Acquire);
        self.numbers[count].store(number, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
    }

    /// All, by index.
    pub(crate) fn all(&self) -> Vec<u8> {
        let count = self.count.load(Ordering::Acquire);
        self.numbers[..count].iter().map(|number| number.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn number(&self, tier: TierIndex) -> u8 {
        self.numbers[tier.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn index(&self, number: u8) -> Option<TierIndex> {
        let count = self.count.load(Ordering::Acquire);
        let is_it = |known: &AtomicU8| known.load(Ordering::Relaxed) == number;
        let position = self.numbers[..count].iter().position(is_it)?;
        Some(TierIndex(position as u8))
    }
}

impl SegmentRecord {
    /// What it takes of a tier and of a quota.
    pub(crate) fn amount(&self) -> u64 {
        self.allocated_bytes.map_or(self.length_bytes, |bytes| bytes.min(self.length_bytes))
    }

    /// All files: the primary, the copies, and the source of a switch that is not settled.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        let source = self.settling.as_ref().map(|settling| &settling.source);
        std::iter::once(&self.primary).chain(&self.copies).chain(source)
    }

    /// Forgets the last sync at level `shared`: the places say it.
    pub(crate) fn forget_synced(&mut self) {
        (self.synced, self.is_added) = (Vec::new(), false);
    }

    /// Whether the record has anything of the last sync at level `shared`.
    fn has_synced(&self) -> bool {
        self.is_added || !self.synced.is_empty()
    }
}

impl Record {
    /// What its files say of the object, whose key is `key`.
    pub(crate) fn owner<'a>(&'a self, key: &'a Key) -> Owner<'a> {
        let (object_id, is_draft) = (self.object_id, self.is_draft);
        Owner { key, object_id, label: self.label.as_ref(), is_draft }
    }

    /// The length of the object: empty segments behind its end are room for it.
    pub(crate) fn length(&self) -> u64 {
        let mut filled = self.segments.iter().rev().filter(|segment| segment.length_bytes > 0);
        filled.next().map_or(0, |last| last.start_bytes + last.length_bytes)
    }

    fn inner_label(&self) -> Option<&Arc<[u8]>> {
        self.identity.as_ref().and_then(|identity| identity.label.as_ref())
    }

    /// Whether any of its files is on a tier.
    pub(crate) fn is_on(&self, tier: TierIndex) -> bool {
        self.segments.iter().flat_map(SegmentRecord::places).any(|place| place.tier == tier)
    }

    pub(crate) fn encode(&self, tiers: &TierNumbers) -> Vec<u8> {
        let has_label = self.label.is_some() || self.inner_label().is_some();
        let is_sparse = self.segments.iter().any(|segment| segment.allocated_bytes.is_some());
        let is_synced = self.segments.iter().any(SegmentRecord::has_synced);
        let version = match (is_synced, is_sparse, has_label) {
            (true, ..) => VERSION_SYNCED,
            (false, true, _) => VERSION_SPARSE,
            (false, false, true) => VERSION_LABELLED,
            (false, false, false) => VERSION,
        };
        let mut out = Writer::new(version);
        out.u64(self.object_id);
        out.u8(u8::from(self.is_pinned));
        out.u8(match self.persistency {
            Persistency::None => 0,
            Persistency::Process => 1,
            Persistency::Storage => 2,
            Persistency::Shared => 3,
        });
        out.u8(match self.hint.temperature {
            Temperature::Unknown => 0,
            Temperature::Hot => 1,
            Temperature::Cold => 2,
        });
        out.u64(self.created_ns);
        match &self.layout {
            Layout::One => out.u8(0),
            Layout::Fixed { segment_bytes } => out.u8(1).u64(*segment_bytes),
            Layout::Steps { starts_bytes } => {
                out.u8(2).u32(starts_bytes.len() as u32);
                for start in starts_bytes.iter() {
                    out.u64(*start);
                }
                &mut out
            }
        };
        out.u32(self.segments.len() as u32);
        for segment in &self.segments {
            segment.encode(tiers, &mut out);
        }
        match &self.identity {
            None => {
                out.u8(0);
            }
            Some(identity) => encode_identity(identity, out.u8(1)),
        }
        if version >= VERSION_LABELLED {
            for label in [self.label.as_deref(), self.inner_label().map(|label| &**label)] {
                out.bytes(label.unwrap_or_default());
            }
        }
        if version >= VERSION_SPARSE {
            for segment in &self.segments {
                out.u64(segment.allocated_bytes.unwrap_or(DENSE));
            }
        }
        if version >= VERSION_SYNCED {
            for segment in &self.segments {
                out.u8(u8::from(segment.is_added)).u8(segment.synced.len() as u8);
                segment.synced.iter().for_each(|place| encode_place(place, tiers, &mut out));
            }
        }
        out.finish()
    }

    /// # Errors
    ///
    /// `Corrupt` for anything that `encode` does not write.
    pub(crate) fn decode(bytes: &[u8], tiers: &TierNumbers) -> Result<Self> {
        let (mut input, version) =
            Reader::with_versions(bytes, VERSION..=VERSION_SYNCED, "object")?;
        let object_id = input.u64()?;
        let is_pinned = input.flag()?;
        let persistency = match input.u8()? {
            0 => Persistency::None,
            1 => Persistency::Process,
            2 => Persistency::Storage,
            3 => Persistency::Shared,
            _ => return Err(input.wrong("its persistency is unknown")),
        };
        let temperature = match input.u8()? {
            0 => Temperature::Unknown,
            1 => Temperature::Hot,
            2 => Temperature::Cold,
            _ => return Err(input.wrong("its hint is unknown")),
        };
        let created_ns = input.u64()?;
        let layout = decode_layout(&mut input)?;
        let count = input.u32()?;
        if count == 0 || count > SEGMENTS_MAX {
            return Err(input.wrong("its number of segments is out of bounds"));
        }
        let mut segments = Vec::new();
        for _ in 0..count {
            segments.push(SegmentRecord::decode(&mut input, tiers)?);
        }
        let ascending = segments.windows(2).all(|pair| pair[0].start_bytes < pair[1].start_bytes);
        if segments[0].start_bytes != 0 || !ascending {
            return Err(input.wrong("its segments are out of order"));
        }
        let mut identity = match input.flag()? {
            false => None,
            true => Some(decode_identity(&mut input)?),
        };
        let mut label = None;
        if version >= VERSION_LABELLED {
            label = decode_label(&mut input)?;
            let inner = decode_label(&mut input)?;
            let has_none = version == VERSION_LABELLED && label.is_none() && inner.is_none();
            if has_none || inner.is_some() && identity.is_none() {
                return Err(input.wrong("it has another label than its version says"));
            }
            if let Some(identity) = &mut identity {
                identity.label = inner;
            }
        }
        if version >= VERSION_SPARSE {
            for segment in &mut segments {
                segment.allocated_bytes = Some(input.u64()?).filter(|bytes| *bytes != DENSE);
            }
            let is_dense = segments.iter().all(|segment| segment.allocated_bytes.is_none());
            if version == VERSION_SPARSE && is_dense {
                return Err(input.wrong("it has no holes, and its version says that it has"));
            }
        }
        if version >= VERSION_SYNCED {
            for segment in &mut segments {
                segment.is_added = input.flag()?;
                for _ in 0..input.u8()? {
                    segment.synced.push(decode_place(&mut input, tiers)?);
                }
                if segment.is_added && !segment.synced.is_empty() {
                    return Err(input.wrong("a segment is new to shared tiers, and one has it"));
                }
            }
            if persistency < Persistency::Shared || !segments.iter().any(SegmentRecord::has_synced)
            {
                return Err(input.wrong("its version is that of another level"));
            }
        }
        input.finish()?;
        let hint = Hint { temperature };
        let identity = identity.map(Arc::new);
        Ok(Self {
            object_id,
            is_pinned,
            persistency,
            hint,
            created_ns,
            layout,
            segments,
            identity,
            label,
            is_draft: false,
        })
    }
}

/// A label, or none where it has no bytes.
pub(crate) fn decode_label(input: &mut Reader<'_>) -> Result<Option<Arc<[u8]>>> {
    let label = input.bytes()?;
    if label.len() > LABEL_BYTES_MAX {
        return Err(input.wrong("its label is too long"));
    }
    Ok((!label.is_empty()).then(|| label.into()))
}

fn decode_layout(input: &mut Reader<'_>) -> Result<Layout> {
    match input.u8()? {
        0 => Ok(Layout::One),
        1 => match input.u64()? {
            0 => Err(input.wrong("its segment size is zero")),
            segment_bytes => Ok(Layout::Fixed { segment_bytes }),
        },
        2 => {
            let count = input.u32()?;
            if count > SEGMENTS_MAX {
                return Err(input.wrong("its layout has too many steps"));
            }
            let mut starts = Vec::new();
            for _ in 0..count {
                let start = input.u64()?;
                if start <= starts.last().copied().unwrap_or(0) {
                    return Err(input.wrong("the steps of its layout are out of order"));
                }
                starts.push(start);
            }
            Ok(Layout::Steps { starts_bytes: Arc::from(starts) })
        }
        _ => Err(input.wrong("its layout is unknown")),
    }
}

impl SegmentRecord {
    fn encode(&self, tiers: &TierNumbers, out: &mut Writer) {
        out.u32(self.number).u64(self.start_bytes).u64(self.length_bytes);
        match self.checksum {
            None => out.u8(0),
            Some(checksum) => out.u8(1).u32(checksum),
        };
        encode_place(&self.primary, tiers, out);
        out.u8(self.copies.len() as u8);
        for copy in &self.copies {
            encode_place(copy, tiers, out);
        }
        match &self.settling {
            None => {
                out.u8(0);
            }
            Some(settling) => {
                out.u8(1).u64(settling.boot);
                encode_place(&settling.source, tiers, out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>, tiers: &TierNumbers) -> Result<Self> {
        let number = input.u32()?;
        let start_bytes = input.u64()?;
        let length_bytes = input.u64()?;
        let checksum = match input.flag()? {
            false => None,
            true => Some(input.u32()?),
        };
        let primary = decode_place(input, tiers)?;
        let mut copies = Vec::new();
        for _ in 0..input.u8()? {
            copies.push(decode_place(input, tiers)?);
        }
        let settling = match input.flag()? {
            false => None,
            true => {
                let boot = input.u64()?;
                Some(Settling { source: decode_place(input, tiers)?, boot })
            }
        };
        let allocated_bytes = None;
        Ok(Self {
            number,
            start_bytes,
            length_bytes,
            allocated_bytes,
            checksum,
            primary,
            copies,
            settling,
            synced: Vec::new(),
            is_added: false,
        })
    }
}

fn encode_place(place: &Place, tiers: &TierNumbers, out: &mut Writer) {
    out.u8(tiers.number(place.tier)).u64(place.file).u64(place.generation).u64(place.epoch);
}

fn decode_place(input: &mut Reader<'_>, tiers: &TierNumbers) -> Result<Place> {
    let number = input.u8()?;
    let Some(tier) = tiers.index(number) else {
        return Err(input.wrong("it names a tier that the configuration does not have"));
    };
    Ok(Place { tier, file: input.u64()?, generation: input.u64()?, epoch: input.u64()? })
}

fn encode_identity(identity: &Identity, out: &mut Writer) {
    out.u128(identity.store_id).u64(identity.object_id).u32(identity.segment);
    out.u64(identity.start_bytes).u64(identity.generation).u64(identity.epoch);
    out.u8(match identity.role {
        Role::Partial => 0,
        Role::Primary => 1,
        Role::Copy => 2,
        Role::Dead => 3,
    });
    out.text(identity.key.namespace()).text(identity.key.name());
}

fn decode_identity(input: &mut Reader<'_>) -> Result<Identity> {
    Ok(Identity {
        store_id: input.u128()?,
        object_id: input.u64()?,
        segment: input.u32()?,
        start_bytes: input.u64()?,
        generation: input.u64()?,
        epoch: input.u64()?,
        role: match input.u8()? {
            0 => Role::Partial,
            1 => Role::Primary,
            2 => Role::Copy,
            3 => Role::Dead,
            _ => return Err(input.wrong("the role in its identity is unknown")),
        },
        key: Key::new(&input.text()?, &input.text()?)
            .map_err(|_| input.wrong("the key in its identity is none"))?,
        label: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::ErrorKind;

    fn record() -> (Record, TierNumbers) {
        let place = |tier, file| Place { tier: TierIndex(tier), file, generation: file, epoch: 3 };
        let segment = |number, start_bytes| SegmentRecord {
            number,
            start_bytes,
            length_bytes: 10,
            allocated_bytes: None,
            checksum: Some(7),
            primary: place(1, 5),
            copies: vec![place(0, 6)],
            settling: Some(Settling { source: place(0, 4), boot: 9 }),
            synced: Vec::new(),
            is_added: false,
        };
        let record = Record {
            object_id: 77,
            is_pinned: true,
            persistency: Persistency::Storage,
            hint: Hint { temperature: Temperature::Cold },
            created_ns: 123,
            layout: Layout::Steps { starts_bytes: vec![64, 128].into() },
            segments: vec![segment(0, 0), segment(1, 64)],
            identity: Some(Arc::new(Identity {
                store_id: 1 << 100,
                object_id: 7,
                segment: 1,
                start_bytes: 64,
                generation: 12,
                epoch: 2,
                role: Role::Copy,
                key: Key::new("outer", "name").expect("legal"),
                label: None,
            })),
            label: None,
            is_draft: false,
        };
        (record, TierNumbers::new(&[4, 2]))
    }

    /// The same with a label, with one in its identity, and with both.
    fn labelled() -> [Record; 3] {
        let (plain, _) = record();
        let identity = plain.identity.as_deref().cloned().expect("it has one");
        let identity = Identity { label: Some([5, 6].into()), ..identity };
        let inner = Record { identity: Some(Arc::new(identity)), ..plain.clone() };
        let label: Option<Arc<[u8]>> = Some(vec![7; LABEL_BYTES_MAX].into());
        [Record { label: label.clone(), ..plain }, inner.clone(), Record { label, ..inner }]
    }

    #[test]
    fn a_record_survives_its_encoding() {
        let (plain, tiers) = record();
        let bytes = plain.encode(&tiers);
        assert_eq!(bytes[0], 1, "what has no label is written as ever");
        assert_eq!(Record::decode(&bytes, &tiers).expect("own encoding"), plain);
        for record in labelled() {
            let bytes = record.encode(&tiers);
            assert_eq!(bytes[0], 2, "older programs refuse it");
            assert_eq!(Record::decode(&bytes, &tiers).expect("own encoding"), record);
        }
        for mut record in labelled().into_iter().chain([plain]) {
            record.segments[1].allocated_bytes = Some(4);
            let bytes = record.encode(&tiers);
            assert_eq!(bytes[0], 3, "older programs refuse it");
            let read = Record::decode(&bytes, &tiers).expect("own encoding");
            assert_eq!(read, record);
            assert_eq!([0, 1].map(|index: usize| read.segments[index].amount()), [10, 4]);
        }
    }

    /// A record at level `shared`: one segment with a file that a write took out, and one that was added.
    fn synced(plain: Record) -> Record {
        let mut record = Record { persistency: Persistency::Shared, ..plain };
        record.segments[0].synced = record.segments[0].copies.clone();
        record.segments[0].copies.clear();
        record.segments[1].is_added = true;
        record
    }

    #[test]
    fn a_record_keeps_what_shared_tiers_have() {
        let (plain, tiers) = record();
        for record in labelled().into_iter().chain([plain]).map(synced) {
            let mut sparse = record.clone();
            sparse.segments[1].allocated_bytes = Some(4);
            for record in [record, sparse] {
                let bytes = record.encode(&tiers);
                assert_eq!(bytes[0], 4, "older programs refuse it");
                assert_eq!(Record::decode(&bytes, &tiers).expect("own encoding"), record);
            }
        }
    }

    #[test]
    fn what_contradicts_the_level_shared_is_refused() {
        let (plain, tiers) = record();
        let is_refused = |record: &Record| {
            let read = Record::decode(&record.encode(&tiers), &tiers);
            read.is_err_and(|error| error.kind() == ErrorKind::Corrupt)
        };
        let good = synced(plain);
        assert!(!is_refused(&good));
        assert!(is_refused(&Record { persistency: Persistency::Storage, ..good.clone() }));
        let mut both = good.clone();
        both.segments[0].is_added = true;
        assert!(is_refused(&both), "added, and on a shared tier");
        let bytes = good.encode(&tiers);
        // The two numbers of each segment, a place, and the checksum are at the end.
        let body = bytes.len() - 4 - (2 + 25 + 2);
        let mut none = bytes[..body].to_vec();
        none.extend([0; 4]);
        none.extend(crc32c::crc32c(&none).to_le_bytes());
        assert!(Record::decode(&none, &tiers).is_err(), "a version for nothing");
    }

    #[test]
    fn labels_that_no_record_is_written_with_are_refused() {
        let (plain, tiers) = record();
        let plain = plain.encode(&tiers);
        let refused = |tail: &[u8]| {
            let mut body = plain[..plain.len() - 4].to_vec();
            body[0] = VERSION_LABELLED;
            body.extend(tail);
            let checksum = crc32c::crc32c(&body);
            body.extend(checksum.to_le_bytes());
            Record::decode(&body, &tiers).is_err_and(|error| error.kind() == ErrorKind::Corrupt)
        };
        assert!(refused(&[]), "no labels");
        assert!(refused(&[0; 8]), "two that are empty");
        assert!(refused(&[1, 0, 0, 0, 9]), "one only");
        let long = [&513u32.to_le_bytes()[..], &[1; 513], &[0; 4]].concat();
        assert!(refused(&long), "one that is too long");
        assert!(!refused(&[1, 0, 0, 0, 9, 0, 0, 0, 0]), "a legal one");
    }

    /// Found by fuzzing: each was read, and written again as other bytes.
    #[test]
    fn what_no_record_is_written_as_is_refused() {
        let (record, tiers) = record();
        let bytes = record.encode(&tiers);
        let body = &bytes[..bytes.len() - 4];
        let refused = |at: usize, old: u8, new: u8| {
            let mut body = body.to_vec();
            assert_eq!(std::mem::replace(&mut body[at], new), old, "the byte at {at}");
            let checksum = crc32c::crc32c(&body);
            body.extend(checksum.to_le_bytes());
            Record::decode(&body, &tiers).is_err_and(|error| error.kind() == ErrorKind::Corrupt)
        };
        assert!(refused(9, 1, 2), "a pin that is neither yes nor no");
        assert!(refused(25, 64, 200), "steps out of order");
        assert!(refused(25, 64, 0), "a step at the beginning, where the first segment is");
        assert!(refused(65, 1, 0x11), "a checksum that is neither there nor not");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let (record, tiers) = record();
        let bytes = record.encode(&tiers);
        for index in 0..bytes.len() {
            assert!(Record::decode(&bytes[..index], &tiers).is_err(), "cut at {index}");
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[index] ^= 1 << bit;
                assert!(Record::decode(&damaged, &tiers).is_err(), "bit {bit} of byte {index}");
            }
        }
    }
}
