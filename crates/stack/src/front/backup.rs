// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A catalog as a file; the format is in `docs/formats/backup.md`.

use std::io::{self, Read, Seek, SeekFrom, Write};

use terrace_core::{Error, ErrorKind, KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX, Kv, Result};

use crate::catalog::log::LogPoint;
use crate::catalog::pair_block::{PAIR_HEAD_BYTES, push_pair, split_pairs};
use crate::report::BackupReport;
use crate::shared::Shared;

const MAGIC: [u8; 8] = *b"TERRBAK2";

/// Of the version before, which ends without a trailer.
const MAGIC_OLD: [u8; 8] = *b"TERRBAK1";

/// Magic and id of the store.
const HEAD_BYTES: usize = 8 + 16;

/// Behind the last block.
const TRAILER_BYTES: usize = 8 + 8 + 8 + 8 + 4;

/// A block is written when it has so many bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// Longest block: one more pair than fits.
const BLOCK_BYTES_MAX: usize =
    BLOCK_BYTES + KV_KEY_BYTES_MAX + KV_VALUE_BYTES_MAX + PAIR_HEAD_BYTES;

/// How often progress is reported, in pairs.
const PROGRESS_PAIRS: u64 = 4096;

/// Of what moment a backup is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupMoment {
    /// The store.
    pub store_id: u128,
    /// The point of a log behind which that tells what came afterwards; 0 for none.
    pub point: LogPoint,
    /// The opening of the store; 0 in a file of the version before.
    pub epoch: u64,
    /// Nanoseconds since 1970.
    pub written_ns: u64,
}

/// Writes the catalog as of one moment, while the store is in use. Where `log` is a number, changes
/// since that moment are kept for a log.
pub(crate) fn write(
    shared: &Shared,
    log: Option<u64>,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<(BackupReport, BackupMoment)> {
    if shared.check_writable("back up").is_ok() {
        // Lengths in the catalog lag behind.
        shared.flush()?;
    }
    let mut blocks = Blocks { out, block: Vec::new(), report: BackupReport::default() };
    blocks.write_all(&MAGIC)?;
    blocks.write_all(&shared.store_id.to_le_bytes())?;
    let point = shared.catalog.copy(log, &mut |key, value| {
        blocks.pair(key, value)?;
        if blocks.report.pairs.is_multiple_of(PROGRESS_PAIRS) {
            progress(blocks.report.pairs);
        }
        Ok(())
    })?;
    let moment = BackupMoment {
        store_id: shared.store_id,
        point,
        epoch: shared.epoch,
        written_ns: shared.clock.wall_ns(),
    };
    Ok((blocks.finish(&moment)?, moment))
}

impl BackupMoment {
    fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        let numbers = [self.point.log, self.point.sequence, self.epoch, self.written_ns];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..TRAILER_BYTES - 4]);
        bytes[TRAILER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(store_id: u128, bytes: &[u8; TRAILER_BYTES]) -> Result<Self> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let point = LogPoint { log: number(0), sequence: number(8) };
        let moment = Self { store_id, point, epoch: number(16), written_ns: number(24) };
        match moment.encode() == *bytes {
            true => Ok(moment),
            false => Err(corrupt("the checksum of its trailer is wrong")),
        }
    }
}

struct Blocks<'a> {
    out: &'a mut dyn Write,
    block: Vec<u8>,
    report: BackupReport,
}

impl Blocks<'_> {
    fn pair(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        push_pair(&mut self.block, key, value);
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
    fn finish(mut self, moment: &BackupMoment) -> Result<BackupReport> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.end_block()?;
        self.write_all(&moment.encode())?;
        Ok(self.report)
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.report.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|error| Error::from_io("write a backup", error))
    }
}

/// Reads of what moment a backup is, and none of its pairs.
///
/// # Errors
///
/// `Corrupt` for a file that is no backup, or has another end; `Io`.
pub fn read_backup_moment(file: &mut (impl Read + Seek)) -> Result<BackupMoment> {
    file.rewind().map_err(failed)?;
    let (store_id, is_old) = read_head(file)?;
    if is_old {
        return Ok(BackupMoment { store_id, ..BackupMoment::default() });
    }
    let end = file.seek(SeekFrom::End(0)).map_err(failed)?;
    if end < (HEAD_BYTES + TRAILER_BYTES) as u64 {
        return Err(corrupt("it was cut off"));
    }
    file.seek(SeekFrom::Start(end - TRAILER_BYTES as u64)).map_err(failed)?;
    read_trailer(file, store_id)
}

/// The id of the store, and whether the file is of the version before.
fn read_head(input: &mut dyn Read) -> Result<(u128, bool)> {
    let mut head = [0; HEAD_BYTES];
    read_exact(input, &mut head)?;
    let is_old = head[..8] == MAGIC_OLD;
    if !is_old && head[..8] != MAGIC {
        return Err(corrupt("it is not a backup of a catalog, or one of another version"));
    }
    Ok((u128::from_le_bytes(head[8..].try_into().expect("16 bytes")), is_old))
}

fn read_trailer(input: &mut dyn Read, store_id: u128) -> Result<BackupMoment> {
    let mut trailer = [0; TRAILER_BYTES];
    read_exact(input, &mut trailer)?;
    BackupMoment::decode(store_id, &trailer)
}

/// Reads a backup into an empty engine; `progress` gets the bytes read.
///
/// # Errors
///
/// `Corrupt` for a file that is no backup, is damaged or was cut off; `Io`.
pub fn read_backup(
    input: &mut dyn Read,
    target: &dyn Kv,
    progress: &mut dyn FnMut(u64),
) -> Result<BackupMoment> {
    let (store_id, is_old) = read_head(input)?;
    let mut done = HEAD_BYTES as u64;
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
            return match is_old {
                true => Ok(BackupMoment { store_id, ..BackupMoment::default() }),
                false => read_trailer(input, store_id),
            };
        }
        let pairs = split_pairs(&block)?;
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
