// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a file that was ended: where its blocks are, and from when.

use crate::block::{CONTENT_BYTES_MAX, Kind, NO_TIME, PREFIX_BYTES, Prefix, seal};
use crate::codec::{Decoder, Encoder, Wrong};

/// The last bytes of a file, behind the offset of its index.
pub(crate) const END_MAGIC: [u8; 8] = *b"TERRTRCX";

/// The last bytes of a file: offset of the index, and the magic.
pub(crate) const TRAILER_BYTES: usize = 16;

/// Blocks of one file: their rows fit one block.
pub(crate) const BLOCKS_MAX: usize = 1500;

/// Bytes of the longest row: two numbers of at most 5 bytes, a kind and two times.
const ROW_BYTES_MAX: usize = 5 + 1 + 5 + 16;

const _: () = assert!(BLOCKS_MAX * ROW_BYTES_MAX + 20 < CONTENT_BYTES_MAX);

/// A block in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) offset_bytes: u64,
    pub(crate) prefix: Prefix,
}

/// A block as the index tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) offset_bytes: u64,
    pub(crate) is_records: bool,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// Records in these blocks.
pub(crate) fn records(rows: &[Row]) -> u64 {
    let is_records = |row: &&Row| row.prefix.kind == Kind::Records;
    rows.iter().filter(is_records).map(|row| u64::from(row.prefix.records)).sum()
}

/// Index and trailer, for a file that ends at `end_bytes` so far.
pub(crate) fn tail(rows: &[Row], end_bytes: u64) -> Vec<u8> {
    let mut block = Encoder::default();
    block.raw(&[0; PREFIX_BYTES]).number(records(rows)).number(rows.len() as u64);
    let mut before_bytes = 0;
    for row in rows {
        block.number(row.offset_bytes - before_bytes).u8(row.prefix.kind as u8);
        block.number(row.prefix.records.into());
        block.u64(row.prefix.first_ns).u64(row.prefix.last_ns);
        before_bytes = row.offset_bytes;
    }
    seal(&mut block.bytes, Kind::Index, rows.len() as u32, NO_TIME);
    block.u64(end_bytes).raw(&END_MAGIC);
    block.bytes
}

/// The offset of the index, where these are the last bytes of a file that was ended.
pub(crate) fn trailer(bytes: &[u8; TRAILER_BYTES]) -> Option<u64> {
    let (offset, magic) = bytes.split_first_chunk::<8>()?;
    (magic == END_MAGIC).then(|| u64::from_le_bytes(*offset))
}

/// Reads the content of an index: the number of records, and the blocks.
pub(crate) fn read(content: &[u8]) -> Result<(u64, Vec<Known>), Wrong> {
    let mut decoder = Decoder::new(content);
    let records = decoder.number()?;
    let mut offset_bytes = 0_u64;
    let mut rows = Vec::new();
    for _ in 0..decoder.count(19)? {
        let further = decoder.number()?;
        offset_bytes = offset_bytes.checked_add(further).ok_or(Wrong("an offset is too large"))?;
        let is_records = decoder.u8()? == Kind::Records as u8;
        decoder.number_u32()?;
        let (first_ns, last_ns) = (decoder.u64()?, decoder.u64()?);
        rows.push(Known { offset_bytes, is_records, first_ns, last_ns });
    }
    decoder.finish()?;
    Ok((records, rows))
}
