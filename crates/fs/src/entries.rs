// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries of a directory whose names share a hash: usually one.
//!
//! Directories are read in the order of the hashes, so that a position in one is a number that
//! stays good while entries come and go, and 63 bits suffice.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::failure::{Failure, Result};
use crate::node::Kind;
use crate::record::Reader;

/// Bits of a position that tell entries with one hash apart.
const INDEX_BITS: u32 = 4;

/// Most entries with one hash. With 58 bits of a keyed hash a second one is not seen in practice.
const SAME_HASH_MAX: usize = 1 << INDEX_BITS;

/// The hash of a name, 58 bits: with the index, and a few positions before all, 63 bits hold it.
pub(crate) fn hash(seed: u128, name: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&seed.to_le_bytes());
    hasher.write(name);
    hasher.finish() >> (INDEX_BITS + 2)
}

/// A name in a directory and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// Tells entries with one hash apart; stays with the entry.
    pub(crate) index: u8,
}

impl Entry {
    /// Where the entry is in its directory. Two lower numbers are left for `.` and `..`, which are
    /// before all others.
    pub(crate) fn position(&self, hash: u64) -> u64 {
        (hash << INDEX_BITS | u64::from(self.index)) + POSITIONS_BEFORE
    }
}

/// Positions of `.` and `..`, and the one before them.
pub(crate) const POSITIONS_BEFORE: u64 = 3;

/// The hash and the index of the first entry that comes after a position.
pub(crate) fn after(position: u64) -> (u64, u8) {
    let next = position.saturating_sub(POSITIONS_BEFORE - 1);
    (next >> INDEX_BITS, (next % SAME_HASH_MAX as u64) as u8)
}

/// Entries whose names have the same hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket(pub(crate) Vec<Entry>);

impl Bucket {
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.name == name)
    }

    /// Adds an entry whose name is not there.
    ///
    /// # Errors
    ///
    /// `NOSPC` where too many names have this hash.
    pub(crate) fn add(&mut self, name: &[u8], number: u64, kind: Kind) -> Result<()> {
        let is_taken = |index: &u8| self.0.iter().any(|entry| entry.index == *index);
        let index = (0..SAME_HASH_MAX as u8)
            .find(|index| !is_taken(index))
            .ok_or(Failure::of(rustix::io::Errno::NOSPC))?;
        self.0.push(Entry { name: name.into(), number, kind, index });
        self.0.sort_by_key(|entry| entry.index);
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.0.retain(|entry| entry.name != name);
    }

    /// The value of the pair; `None` where no entry is left.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let mut bytes = Vec::with_capacity(32);
        for entry in &self.0 {
            bytes.push(entry.index);
            bytes.extend_from_slice(&entry.number.to_le_bytes());
            // The four bits of the kind in a mode.
            bytes.push((entry.kind.bits() >> 12) as u8);
            bytes.push(u8::try_from(entry.name.len()).expect("names have at most 255 bytes"));
            bytes.extend_from_slice(&entry.name);
        }
        Some(bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let mut entries = Vec::with_capacity(1);
        while !reader.0.is_empty() {
            let entry = decode_entry(&mut reader)
                .ok_or_else(|| Failure::corrupt("an entry of a directory has another form"))?;
            entries.push(entry);
        }
        Ok(Self(entries))
    }
}

fn decode_entry(reader: &mut Reader<'_>) -> Option<Entry> {
    let index = reader.u8().filter(|index| usize::from(*index) < SAME_HASH_MAX)?;
    let number = reader.u64()?;
    let kind = Kind::from_mode(u32::from(reader.u8()?) << 12)?;
    let length = reader.u8().filter(|length| *length > 0)?;
    let name = reader.take(length.into())?.to_vec();
    Some(Entry { name, number, kind, index })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_one_hash_are_kept_apart() {
        let mut bucket = Bucket::default();
        for index in 0..SAME_HASH_MAX as u8 {
            bucket.add(&[b'a' + index], index.into(), Kind::File).unwrap();
        }
        assert!(bucket.add(b"one too many", 1, Kind::File).is_err());
        bucket.remove(b"c");
        bucket.add(b"new", 99, Kind::Directory).unwrap();
        // The free index is used again, those of the others stay.
        assert_eq!(bucket.find(b"new").map(|entry| entry.index), Some(2));
        assert_eq!(bucket.find(b"d").map(|entry| entry.index), Some(3));
        assert_eq!(Bucket::decode(&bucket.encode().unwrap()), Ok(bucket));
    }

    #[test]
    fn a_walk_goes_on_behind_a_position() {
        let entry = |index| Entry { name: b"n".into(), number: 1, kind: Kind::File, index };
        assert_eq!(after(0), (0, 0));
        assert_eq!(after(2), (0, 0));
        assert_eq!(after(entry(0).position(7)), (7, 1));
        assert_eq!(after(entry(15).position(7)), (8, 0));
        let last = entry(15).position(u64::MAX >> (INDEX_BITS + 2));
        assert!(i64::try_from(last).is_ok(), "{last}");
    }

    #[test]
    fn damaged_entries_are_refused() {
        let mut bucket = Bucket::default();
        bucket.add(b"name", 5, Kind::File).unwrap();
        let good = bucket.encode().unwrap();
        for cut in 1..good.len() {
            assert!(Bucket::decode(&good[..cut]).is_err(), "cut at {cut}");
        }
    }
}
