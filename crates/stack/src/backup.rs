// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A catalog as a file; the format is in `docs/formats/backup.md`.

use std::io::{self, Read, Write};

use terrace_core::{Error, ErrorKind, KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, Kv, Result};

use crate::report::BackupReport;
use crate::shared::Shared;

const MAGIC: [u8; 8] = *b"TERRBAK1";

/// A block is written when it has so many bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// Longest block: one more pair than fits.
const BLOCK_BYTES_MAX: usize =
    BLOCK_BYTES + KV_KEY_BYTES_MAX + KV_VALUE_BYTES_MAX + PAIR_HEAD_BYTES;

/// Length of the key and of the value.
const PAIR_HEAD_BYTES: usize = 2 + 4;

/// In the place of a value's length: the pair is gone.
const GONE: u32 = u32::MAX;

/// How often progress is told, in pairs.
const PROGRESS_PAIRS: u64 = 4096;

/// Writes the catalog as of one moment, while the store is in use.
pub(crate) fn write(
    shared: &Shared,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<BackupReport> {
    if shared.check_writable("back up").is_ok() {
        // Lengths in the catalog lag behind.
        shared.flush()?;
    }
    let mut blocks = Blocks { out, block: Vec::new(), report: BackupReport::default() };
    blocks.write_all(&MAGIC)?;
    blocks.write_all(&shared.store_id.to_le_bytes())?;
    shared.catalog.copy(&mut |key, value| {
        blocks.pair(key, value)?;
        if blocks.report.pairs.is_multiple_of(PROGRESS_PAIRS) {
            progress(blocks.report.pairs);
        }
        Ok(())
    })?;
    blocks.finish()
}

struct Blocks<'a> {
    out: &'a mut dyn Write,
    block: Vec<u8>,
    report: BackupReport,
}

impl Blocks<'_> {
    fn pair(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.block.extend((key.len() as u16).to_le_bytes());
        self.block.extend(value.map_or(GONE, |value| value.len() as u32).to_le_bytes());
        self.block.extend(key);
        self.block.extend(value.unwrap_or_default());
        self.report.pairs += 1;
        if self.block.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<()> {
        let block = std::mem::take(&mut self.block);
        self.write_all(&(block.len() as u32).to_le_bytes())?;
        self.write_all(&crc32c::crc32c(&block).to_le_bytes())?;
        self.write_all(&block)
    }

    /// The last block is empty: a file that was cut off has none.
    fn finish(mut self) -> Result<BackupReport> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.end_block()?;
        Ok(self.report)
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.report.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|error| Error::from_io("write a backup", error))
    }
}

/// Reads a backup into an empty engine; `progress` gets the bytes read. Returns the id of the
/// store.
///
/// # Errors
///
/// `Corrupt` for a file that is no backup, is damaged or was cut off; `Io`.
pub fn read_backup(
    input: &mut dyn Read,
    target: &dyn Kv,
    progress: &mut dyn FnMut(u64),
) -> Result<u128> {
    let mut head = [0; 24];
    read_exact(input, &mut head)?;
    if head[..8] != MAGIC {
        return Err(corrupt("it is not a backup of a catalog, or one of another version"));
    }
    let store_id = u128::from_le_bytes(head[8..].try_into().expect("16 bytes"));
    let mut done = head.len() as u64;
    loop {
        let mut frame = [0; 8];
        read_exact(input, &mut frame)?;
        let length = u32::from_le_bytes(frame[..4].try_into().expect("4 bytes")) as usize;
        let checksum = u32::from_le_bytes(frame[4..].try_into().expect("4 bytes"));
        if length > BLOCK_BYTES_MAX {
            return Err(corrupt("a block is longer than any can be"));
        }
        // Grows with what is there, not with what a damaged length says.
        let mut block = Vec::new();
        let read = input.take(length as u64).read_to_end(&mut block).map_err(failed)?;
        if read < length {
            return Err(corrupt("it was cut off"));
        }
        if crc32c::crc32c(&block) != checksum {
            return Err(corrupt("a block's checksum is wrong"));
        }
        if block.is_empty() {
            return Ok(store_id);
        }
        let pairs = split(&block)?;
        target.transact(&mut |txn| {
            pairs.iter().try_for_each(|(key, value)| match value {
                Some(value) => txn.put(key, value),
                None => txn.delete(key),
            })
        })?;
        done += (frame.len() + length) as u64;
        progress(done);
    }
}

type Change<'a> = (&'a [u8], Option<&'a [u8]>);

fn split(mut block: &[u8]) -> Result<Vec<Change<'_>>> {
    let mut pairs = Vec::new();
    while let Some((head, rest)) = block.split_first_chunk::<PAIR_HEAD_BYTES>() {
        let [a, b, c, d, e, f] = *head;
        let key_bytes = usize::from(u16::from_le_bytes([a, b]));
        let value_bytes = u32::from_le_bytes([c, d, e, f]);
        let cut = || corrupt("a pair is longer than its block");
        let is_long = value_bytes != GONE && value_bytes as usize > KV_VALUE_BYTES_MAX;
        if key_bytes == 0 || key_bytes > KV_KEY_BYTES_MAX || is_long {
            return Err(corrupt("the length of a key or a value is out of bounds"));
        }
        let (key, rest) = rest.split_at_checked(key_bytes).ok_or_else(cut)?;
        let (value, rest) = match value_bytes {
            GONE => (None, rest),
            bytes => {
                let (value, rest) = rest.split_at_checked(bytes as usize).ok_or_else(cut)?;
                (Some(value), rest)
            }
        };
        pairs.push((key, value));
        block = rest;
    }
    if block.is_empty() { Ok(pairs) } else { Err(corrupt("a block ends in the middle of a pair")) }
}

fn read_exact(input: &mut dyn Read, bytes: &mut [u8]) -> Result<()> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => corrupt("it was cut off"),
        _ => failed(error),
    })
}

fn failed(error: io::Error) -> Error {
    Error::from_io("read a backup", error)
}

fn corrupt(reason: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, "read a backup").because(reason)
}
