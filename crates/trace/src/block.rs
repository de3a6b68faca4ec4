// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks: what a file is made of, each checked by itself.

use terrace_core::Key;

use crate::access::{Before, is_access};
use crate::codec::{Decoder, Wrong};
use crate::entry;
use crate::record::{Record, Subject};

/// The first bytes of a file: what it is, and the version of its format.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"TERRTRC\x01";

/// The first bytes of a block, by which a reader finds the next one behind damage.
pub(crate) const BLOCK_MAGIC: [u8; 4] = [0xb7, b'T', b'B', 0x1a];

/// Magic, length, checksum, kind and three zeros, records, first and last time.
pub(crate) const PREFIX_BYTES: usize = 36;

/// Longest content of a block, so that the whole has at most 64 KiB.
pub(crate) const CONTENT_BYTES_MAX: usize = (64 << 10) - PREFIX_BYTES;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// What the file says of itself; the first block.
    Head = 1,
    /// What slots stand for; in front of the records that mention them.
    Subjects = 2,
    /// Records.
    Records = 3,
    /// Where all blocks are; the last block of a file that was ended.
    Index = 4,
}

/// What is in front of a block's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) kind: Kind,
    pub(crate) content_bytes: usize,
    checksum: u32,
    /// Records, or subjects, in it.
    pub(crate) records: u32,
    /// The earliest and the latest time in it; the first above the last where there is none.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// The span that contains no time.
pub(crate) const NO_TIME: (u64, u64) = (u64::MAX, 0);

impl Prefix {
    /// Reads a prefix; `None` where there is none.
    pub(crate) fn read(bytes: &[u8; PREFIX_BYTES]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let magic: [u8; 4] = decoder.array().ok()?;
        let content_bytes = decoder.u32().ok()? as usize;
        let checksum = decoder.u32().ok()?;
        let kind = match decoder.array().ok()? {
            [1, 0, 0, 0] => Kind::Head,
            [2, 0, 0, 0] => Kind::Subjects,
            [3, 0, 0, 0] => Kind::Records,
            [4, 0, 0, 0] => Kind::Index,
            _ => return None,
        };
        let (records, first_ns, last_ns) =
            (decoder.u32().ok()?, decoder.u64().ok()?, decoder.u64().ok()?);
        let is_one = magic == BLOCK_MAGIC && content_bytes <= CONTENT_BYTES_MAX;
        is_one.then_some(Self { kind, content_bytes, checksum, records, first_ns, last_ns })
    }

    /// Whether prefix and content are as they were written.
    pub(crate) fn fits(&self, bytes: &[u8; PREFIX_BYTES], content: &[u8]) -> bool {
        content.len() == self.content_bytes && checksum(bytes, content) == self.checksum
    }
}

/// Completes a block: `bytes` are room for the prefix and then the content.
pub(crate) fn seal(bytes: &mut [u8], kind: Kind, records: u32, times: (u64, u64)) {
    let (prefix, content) =
        bytes.split_first_chunk_mut::<PREFIX_BYTES>().expect("a block has room for its prefix");
    debug_assert!(content.len() <= CONTENT_BYTES_MAX, "a block is bounded");
    prefix[..4].copy_from_slice(&BLOCK_MAGIC);
    prefix[4..8].copy_from_slice(&(content.len() as u32).to_le_bytes());
    prefix[12..16].copy_from_slice(&[kind as u8, 0, 0, 0]);
    prefix[16..20].copy_from_slice(&records.to_le_bytes());
    prefix[20..28].copy_from_slice(&times.0.to_le_bytes());
    prefix[28..36].copy_from_slice(&times.1.to_le_bytes());
    let checksum = checksum(prefix, content);
    prefix[8..12].copy_from_slice(&checksum.to_le_bytes());
}

/// Of everything but the checksum itself.
fn checksum(prefix: &[u8; PREFIX_BYTES], content: &[u8]) -> u32 {
    let start = crc32c::crc32c(&prefix[..8]);
    let rest = crc32c::crc32c_append(start, &prefix[12..]);
    crc32c::crc32c_append(rest, content)
}

/// Reads the entries of blocks of records, one block after the other.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    before: Before,
    /// The parts so far of an entry that is longer than a block; `None` outside of one, and where
    /// a part of it is missing.
    parts: Option<Vec<u8>>,
}

impl Entries {
    /// Begins another block. Where one between is missing, parts of what was in it are dropped.
    pub(crate) fn begin(&mut self, is_next: bool) {
        self.before = Before::default();
        if !is_next {
            self.parts = None;
        }
    }

    /// The next record; `None` where an entry was a part of a longer one.
    pub(crate) fn next(
        &mut self,
        bytes: &mut Decoder<'_>,
        key_of: impl Fn((u32, u32)) -> Key,
    ) -> Result<Option<Record>, Wrong> {
        let head = bytes.u8()?;
        if is_access(head) {
            return self.before.get(head, bytes).map(|access| Some(Record::Access(access)));
        }
        match head {
            entry::FIRST_PART => {
                self.parts = Some(bytes.list()?.to_vec());
                Ok(None)
            }
            entry::PART => {
                let part = bytes.list()?;
                self.parts.iter_mut().for_each(|parts| parts.extend_from_slice(part));
                Ok(None)
            }
            entry::LAST_PART => {
                let part = bytes.list()?;
                let Some(mut parts) = self.parts.take() else { return Ok(None) };
                parts.extend_from_slice(part);
                let mut whole = Decoder::new(&parts);
                let head = whole.u8()?;
                read(head, whole, key_of).map(Some)
            }
            head => {
                let content = Decoder::new(bytes.list()?);
                read(head, content, key_of).map(Some)
            }
        }
    }
}

fn read(
    head: u8,
    mut content: Decoder<'_>,
    key_of: impl Fn((u32, u32)) -> Key,
) -> Result<Record, Wrong> {
    let record = match head {
        entry::SNAPSHOT => Record::Snapshot(content.snapshot()?),
        entry::STATE => Record::State(content.state(key_of)?),
        entry::ROUND => Record::Round(content.round()?),
        entry::DECISION => Record::Decision(content.decision()?),
        entry::POLICY => Record::Policy(content.policy()?),
        _ => return Err(Wrong("there is no such kind of record")),
    };
    content.finish().map(|()| record)
}

/// Reads a block of subjects.
pub(crate) fn subjects(
    content: &[u8],
    mut each: impl FnMut((u32, u32), Subject),
) -> Result<(), Wrong> {
    let mut decoder = Decoder::new(content);
    while decoder.left() > 0 {
        let (slot, subject) = decoder.subject()?;
        each(slot, subject);
    }
    Ok(())
}
