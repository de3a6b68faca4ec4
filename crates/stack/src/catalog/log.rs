// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log behind a checkpoint as bytes; the format is in `docs/formats/catalog-log.md`.

use std::io::{self, Read};

use terrace_core::{Error, Kv, Result};

use crate::catalog::pair_block::split_pairs;

const MAGIC: [u8; 8] = *b"TERRLOG1";

/// Longest record; a commit that writes more ends the log.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;

/// Bytes at the beginning of a log's file.
pub const LOG_HEAD_BYTES: usize = 8 + 16 + 8 + 8 + 4;

/// Bytes before those of a record.
const RECORD_HEAD_BYTES: usize = 4 + 4 + 8 + 1;

/// Bytes of the record that ends a log.
pub const LOG_END_BYTES: usize = RECORD_HEAD_BYTES + 16;

/// Kinds of records.
const COMMIT: u8 = 0;
const END: u8 = 1;

/// Records are put into an engine together until they have so many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// A record of a log: everything up to it. The number of a log is drawn at random, so that no other
/// has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPoint {
    /// The log; 0 for none.
    pub log: u64,
    /// How many records it has by then, over all of its files.
    pub sequence: u64,
}

/// An opening of a store for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Counts them.
    pub epoch: u64,
    /// When it was, in nanoseconds since 1970: one of a catalog that was made anew, or was brought
    /// back from an older copy, has the number of another one.
    pub opened_ns: u64,
}

/// The beginning of a file.
pub fn log_head(store_id: u128, point: LogPoint) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend(store_id.to_le_bytes());
    head.extend(point.log.to_le_bytes());
    head.extend(point.sequence.to_le_bytes());
    head.extend(crc32c::crc32c(&head).to_le_bytes());
    head
}

/// Reads what [`log_head`] makes; `None` for anything else.
pub fn read_log_head(bytes: &[u8]) -> Option<(u128, LogPoint)> {
    let head = bytes.get(..LOG_HEAD_BYTES)?;
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let store_id = u128::from_le_bytes(head[8..24].try_into().expect("16 bytes"));
    let point = LogPoint { log: number(24), sequence: number(32) };
    (log_head(store_id, point) == head).then_some((store_id, point))
}

/// Adds the record of a commit to `out`.
pub fn push_log_commit(out: &mut Vec<u8>, sequence: u64, changes: &[u8]) {
    push(out, sequence, COMMIT, changes);
}

/// Adds the last record: the store was closed in this opening, and the log says all that changed.
pub fn push_log_end(out: &mut Vec<u8>, sequence: u64, opening: Opening) {
    let body = [opening.epoch.to_le_bytes(), opening.opened_ns.to_le_bytes()].concat();
    push(out, sequence, END, &body);
}

fn push(out: &mut Vec<u8>, sequence: u64, kind: u8, body: &[u8]) {
    out.extend((body.len() as u32).to_le_bytes());
    let crc_at = out.len();
    out.extend([0; 4]);
    out.extend(sequence.to_le_bytes());
    out.push(kind);
    out.extend(body);
    let crc = crc32c::crc32c(&out[crc_at - 4..crc_at]);
    let crc = crc32c::crc32c_append(crc, &out[crc_at + 4..]);
    out[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The sequence and the opening of the record that ends a log; `None` for other bytes.
pub fn read_log_end(mut bytes: &[u8]) -> Option<(u64, Opening)> {
    let mut records = Records { input: &mut bytes };
    let record = records.next().ok()?.filter(|record| record.kind == END)?;
    let body: [u8; 16] = record.body.try_into().ok()?;
    let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().expect("8 bytes"));
    Some((record.sequence, Opening { epoch: number(0), opened_ns: number(8) }))
}

/// What was taken from a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Commits.
    pub commits: u64,
    /// Bytes of the file up to the last record that is whole.
    pub bytes: u64,
}

/// Applies the records of a file behind `point` to an engine, up to the first that is torn,
/// damaged or not the next; `point` moves along. `input` begins behind the head, whose point is
/// `begin`.
///
/// # Errors
///
/// Those of the engine; `Io`.
pub fn apply_log(
    input: &mut dyn Read,
    begin: LogPoint,
    point: &mut LogPoint,
    target: &dyn Kv,
) -> Result<LogReport> {
    let mut report = LogReport { commits: 0, bytes: LOG_HEAD_BYTES as u64 };
    if begin.log != point.log || begin.sequence > point.sequence {
        return Ok(report);
    }
    let mut records = Records { input };
    let mut last = begin.sequence;
    let mut batch = Batch { bodies: Vec::new(), bytes: 0, target };
    while let Some(record) = records.next()? {
        let is_next = match record.kind {
            COMMIT => record.sequence == last + 1,
            // Of a store that was opened again.
            _ => record.sequence == last,
        };
        let is_readable = record.kind != COMMIT || split_pairs(&record.body).is_ok();
        if !is_next || !is_readable {
            break;
        }
        report.bytes += (RECORD_HEAD_BYTES + record.body.len()) as u64;
        last = record.sequence;
        if record.kind == COMMIT && record.sequence == point.sequence + 1 {
            batch.add(record.body)?;
            point.sequence += 1;
            report.commits += 1;
        }
    }
    batch.write()?;
    Ok(report)
}

/// Records that are put into an engine together.
struct Batch<'a> {
    bodies: Vec<Vec<u8>>,
    bytes: usize,
    target: &'a dyn Kv,
}

impl Batch<'_> {
    fn add(&mut self, body: Vec<u8>) -> Result<()> {
        self.bytes += body.len();
        self.bodies.push(body);
        if self.bytes >= BATCH_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let commits =
            self.bodies.iter().map(|body| split_pairs(body)).collect::<Result<Vec<_>>>()?;
        self.target.transact(&mut |txn| {
            commits.iter().flatten().try_for_each(|(key, value)| match value {
                Some(value) => txn.put(key, value),
                None => txn.delete(key),
            })
        })?;
        drop(commits);
        self.bodies.clear();
        self.bytes = 0;
        Ok(())
    }
}

struct Record {
    sequence: u64,
    kind: u8,
    body: Vec<u8>,
}

struct Records<'a> {
    input: &'a mut dyn Read,
}

impl Records<'_> {
    /// The next record; `None` where none is left that is whole.
    fn next(&mut self) -> Result<Option<Record>> {
        let mut head = [0; RECORD_HEAD_BYTES];
        match self.input.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map_err(failed)?,
        }
        let length = u32::from_le_bytes(head[..4].try_into().expect("4 bytes")) as usize;
        if length > RECORD_BYTES_MAX {
            return Ok(None);
        }
        // Grows with what is there, not with what a damaged length says.
        let mut body = Vec::new();
        let input = &mut *self.input;
        if input.take(length as u64).read_to_end(&mut body).map_err(failed)? < length {
            return Ok(None);
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..4]), &head[8..]);
        let crc = crc32c::crc32c_append(crc, &body);
        let sequence = u64::from_le_bytes(head[8..16].try_into().expect("8 bytes"));
        let kind = head[16];
        let is_whole = crc.to_le_bytes() == head[4..8] && matches!(kind, COMMIT | END);
        Ok(is_whole.then_some(Record { sequence, kind, body }))
    }
}

fn failed(error: io::Error) -> Error {
    Error::from_io("read a log of the catalog", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::pair_block::push_pair;

    const DOCUMENT: &str = include_str!("../../../../docs/formats/catalog-log.md");

    #[test]
    fn the_documented_file_is_made_and_read_back() {
        let block = DOCUMENT.split("```log\n").nth(1).expect("the document has one");
        let documented = block.split("```").next().expect("the block ends");
        let store_id = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
        let begin = LogPoint { log: 7, sequence: 40 };
        let opening = Opening { epoch: 7, opened_ns: 9 };
        let mut change = Vec::new();
        push_pair(&mut change, b"kfiles\0a", Some(b"1"));
        let mut commit = Vec::new();
        push_log_commit(&mut commit, 41, &change);
        let mut end = Vec::new();
        push_log_end(&mut end, 41, opening);
        let lines = [log_head(store_id, begin), commit, end];
        let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let written: Vec<String> = lines.iter().map(hex).collect();
        assert_eq!(written.join("\n") + "\n", documented);
        assert_eq!(read_log_head(&lines[0]), Some((store_id, begin)));
        assert_eq!(read_log_end(&lines[2]), Some((41, opening)));
        let mut records = &*lines[1..].concat();
        let record = Records { input: &mut records }.next().expect("reads").expect("is whole");
        assert_eq!((record.sequence, record.kind, record.body), (41, COMMIT, change));
    }

    #[test]
    fn no_damage_to_a_head_or_an_end_goes_unnoticed() {
        let head = log_head(3, LogPoint { log: 7, sequence: 40 });
        let mut end = Vec::new();
        push_log_end(&mut end, 41, Opening { epoch: 7, opened_ns: 9 });
        for (bytes, is_read) in [
            (head, (|bytes| read_log_head(bytes).is_some()) as fn(&[u8]) -> bool),
            (end, |bytes| read_log_end(bytes).is_some()),
        ] {
            assert!(is_read(&bytes));
            for at in 0..bytes.len() {
                assert!(!is_read(&bytes[..at]), "cut at {at}");
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert!(!is_read(&damaged), "byte {at}");
            }
        }
    }
}
