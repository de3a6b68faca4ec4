// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the catalog says about the store as a whole.

use terrace_core::Result;

use crate::catalog::codec::{Reader, Writer};
use crate::catalog::format::{self, FORMAT_VERSION};

/// Version of the header's frame: its fields follow from the format version inside.
const FRAME_VERSION: u8 = 1;

/// What the catalog says about the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The version that it was read in; the present one is written.
    pub(crate) format: u32,
    pub(crate) store_id: u128,
    /// Number of the store's latest opening.
    pub(crate) epoch: u64,
    /// Whether that opening was ended by a close.
    pub(crate) is_clean: bool,
    /// Number of the latest opening up to which catalog and media were known to agree: durably,
    /// because it was closed.
    pub(crate) settled_epoch: u64,
    /// Whether the machine restarted since then.
    pub(crate) is_rebooted: bool,
    /// Hash of the machine's boot in which it was opened.
    pub(crate) boot: u64,
    /// When it was opened, nanoseconds since 1970.
    pub(crate) opened_ns: u64,
    /// No object id or generation from here on was used.
    pub(crate) next_number: u64,
    pub(crate) tiers: Vec<TierEntry>,
}

/// What the catalog says about a tier; the totals hold after a clean close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TierEntry {
    pub(crate) number: u8,
    pub(crate) name: String,
    pub(crate) segments: u64,
    pub(crate) used_bytes: u64,
    pub(crate) copy_bytes: u64,
    pub(crate) garbage_bytes: u64,
    /// Nothing new is placed there, and what it holds moves away.
    pub(crate) is_draining: bool,
    /// Number of the latest opening for writing in which it was there.
    pub(crate) epoch: u64,
}

impl TierEntry {
    /// A tier that holds nothing and was there in the opening `epoch`.
    pub(crate) fn new(number: u8, name: &str, epoch: u64) -> Self {
        Self {
            number,
            name: name.into(),
            segments: 0,
            used_bytes: 0,
            copy_bytes: 0,
            garbage_bytes: 0,
            is_draining: false,
            epoch,
        }
    }

    pub(crate) fn holds_anything(&self) -> bool {
        self.segments + self.used_bytes + self.copy_bytes + self.garbage_bytes > 0
    }
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(FRAME_VERSION);
        out.u32(FORMAT_VERSION).u128(self.store_id).u64(self.epoch);
        out.u8(u8::from(self.is_clean)).u64(self.settled_epoch).u8(u8::from(self.is_rebooted));
        out.u64(self.boot).u64(self.opened_ns).u64(self.next_number);
        out.u32(self.tiers.len() as u32);
        for tier in &self.tiers {
            out.u8(tier.number).text(&tier.name).u64(tier.segments);
            out.u64(tier.used_bytes).u64(tier.copy_bytes).u64(tier.garbage_bytes);
            out.u8(u8::from(tier.is_draining)).u64(tier.epoch);
        }
        out.finish()
    }

    /// # Errors
    ///
    /// `Unsupported` for a version that is not read, `Corrupt`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(bytes, FRAME_VERSION, "header")?;
        let format = input.u32()?;
        format::check(format)?;
        let mut header = Header {
            format,
            store_id: input.u128()?,
            epoch: input.u64()?,
            is_clean: input.flag()?,
            settled_epoch: input.u64()?,
            is_rebooted: input.flag()?,
            boot: input.u64()?,
            opened_ns: input.u64()?,
            next_number: input.u64()?,
            tiers: Vec::new(),
        };
        for _ in 0..input.u32()? {
            let mut tier = TierEntry {
                number: input.u8()?,
                name: input.text()?,
                segments: input.u64()?,
                used_bytes: input.u64()?,
                copy_bytes: input.u64()?,
                garbage_bytes: input.u64()?,
                is_draining: false,
                // Before version 2 a store was opened for writing with all its tiers or not at all.
                epoch: header.epoch,
            };
            if format >= 2 {
                tier.is_draining = input.flag()?;
                tier.epoch = input.u64()?;
            }
            header.tiers.push(tier);
        }
        input.finish()?;
        Ok(header)
    }

    /// A number for a further tier: one that records do not name, and rather one that they never
    /// named.
    pub(crate) fn new_tier_number(&self, used: &[u8]) -> u8 {
        let entries = self.tiers.iter().map(|entry| entry.number);
        let taken: Vec<u8> = entries.chain(used.iter().copied()).collect();
        let next = taken.iter().max().map_or(Some(0), |highest| highest.checked_add(1));
        let free = || (0..=u8::MAX).find(|number| !taken.contains(number));
        next.or_else(free).expect("tiers are fewer than numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            format: FORMAT_VERSION,
            store_id: 0x0123_4567_89ab_cdef,
            epoch: 7,
            is_clean: true,
            settled_epoch: 6,
            is_rebooted: false,
            boot: 99,
            opened_ns: 5,
            next_number: 1 << 20,
            tiers: vec![
                TierEntry { used_bytes: 17, is_draining: true, ..TierEntry::new(3, "fast", 7) },
                TierEntry { segments: 2, ..TierEntry::new(0, "slow", 4) },
            ],
        }
    }

    /// The header as version 1 wrote it.
    fn encode_version_1(header: &Header) -> Vec<u8> {
        let mut out = Writer::new(1);
        out.u32(1).u128(header.store_id).u64(header.epoch);
        out.u8(u8::from(header.is_clean)).u64(header.settled_epoch);
        out.u8(u8::from(header.is_rebooted));
        out.u64(header.boot).u64(header.opened_ns).u64(header.next_number);
        out.u32(header.tiers.len() as u32);
        for tier in &header.tiers {
            out.u8(tier.number).text(&tier.name).u64(tier.segments);
            out.u64(tier.used_bytes).u64(tier.copy_bytes).u64(tier.garbage_bytes);
        }
        out.finish()
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        assert_eq!(Header::decode(&header().encode()).expect("legal"), header());
    }

    #[test]
    fn a_header_of_version_1_has_all_its_tiers() {
        let read = Header::decode(&encode_version_1(&header())).expect("the version before");
        let mut expected = Header { format: 1, ..header() };
        for tier in &mut expected.tiers {
            (tier.is_draining, tier.epoch) = (false, expected.epoch);
        }
        assert_eq!(read, expected);
    }

    #[test]
    fn numbers_of_tiers_are_new_as_long_as_there_are_new_ones() {
        let mut header = header();
        assert_eq!(header.new_tier_number(&[]), 4);
        assert_eq!(header.new_tier_number(&[9]), 10);
        header.tiers.push(TierEntry::new(u8::MAX, "last", 0));
        assert_eq!(header.new_tier_number(&[1]), 2);
    }
}
