// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of commits that the tree may not have yet.
//!
//! Specified, with a test vector, in `docs/formats/lmdb.md`. A commit is one record; the first that
//! is not whole ends the journal.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind as Os, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};
use terrace_core::{Error, ErrorKind, Result};

use crate::kv::{FAILED, changing};

/// What journals and memory hold of commits.
pub(super) type Changes = changing::Changes<Box<[u8]>>;

/// Room is asked for in steps of this: a sync that need not make the file longer takes 110 us, one
/// that does 160 us (ext4, virtual machine).
const ALLOCATION_BYTES: u64 = 1 << 20;

const HEADER_BYTES: usize = 20;
const REMOVED: u32 = u32::MAX;

/// One thread appends and one syncs at a time; a reset excludes appends.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    end_bytes: AtomicU64,
    allocated_bytes: AtomicU64,
    /// Held while the disk works, so that a reset never mixes with a sync.
    synced_bytes: Mutex<u64>,
    /// What the file holds is not known: an error of the disk is reported only once.
    has_failed: AtomicBool,
}

impl Journal {
    /// Opens a journal, which is made where it is missing. Its records are to be read and removed
    /// before the first is appended.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(|source| failed("open a journal", &path, source))?;
        let length_bytes =
            file.metadata().map_err(|source| failed("open a journal", &path, source))?.len();
        Ok(Self {
            file,
            path,
            end_bytes: AtomicU64::new(length_bytes),
            allocated_bytes: AtomicU64::new(length_bytes),
            synced_bytes: Mutex::default(),
            has_failed: AtomicBool::new(false),
        })
    }

    /// Bytes of all records.
    pub(super) fn bytes(&self) -> u64 {
        self.end_bytes.load(Ordering::Relaxed)
    }

    /// Fails where an earlier operation left something that is not known.
    pub(super) fn check(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "use the journal")
                .because(FAILED)
                .with("path", self.path.display()));
        }
        Ok(())
    }

    /// Hands a record to the operating system, whole or not at all.
    pub(super) fn append(&self, record: &[u8]) -> Result<()> {
        self.check()?;
        let start_bytes = self.end_bytes.load(Ordering::Relaxed);
        let end_bytes = start_bytes + record.len() as u64;
        self.allocate(end_bytes)?;
        if let Err(source) = self.file.write_all_at(record, start_bytes) {
            // A part may be there. If it stays, the next record may end inside it.
            let is_full = matches!(source.kind(), Os::StorageFull | Os::QuotaExceeded);
            if !is_full || self.file.set_len(start_bytes).is_err() {
                self.has_failed.store(true, Ordering::Relaxed);
            }
            self.allocated_bytes.store(start_bytes, Ordering::Relaxed);
            return Err(failed("append to the journal", &self.path, source));
        }
        self.end_bytes.store(end_bytes, Ordering::Release);
        Ok(())
    }

    fn allocate(&self, end_bytes: u64) -> Result<()> {
        let allocated_bytes = self.allocated_bytes.load(Ordering::Relaxed);
        if end_bytes <= allocated_bytes {
            return Ok(());
        }
        let goal_bytes = end_bytes.next_multiple_of(ALLOCATION_BYTES);
        let allocated = retry_on_intr(|| {
            let flags = FallocateFlags::empty();
            rustix::fs::fallocate(&self.file, flags, allocated_bytes, goal_bytes - allocated_bytes)
        });
        match allocated {
            Ok(()) => self.allocated_bytes.store(goal_bytes, Ordering::Relaxed),
            // Some file systems cannot: the writes make the file longer.
            Err(Errno::OPNOTSUPP) => self.allocated_bytes.store(u64::MAX, Ordering::Relaxed),
            Err(errno) => return Err(failed("append to the journal", &self.path, errno.into())),
        }
        Ok(())
    }

    /// Makes everything durable that was appended when this was called.
    pub(super) fn sync(&self) -> Result<()> {
        let mut synced_bytes = self.synced();
        self.check()?;
        let end_bytes = self.end_bytes.load(Ordering::Acquire);
        if *synced_bytes < end_bytes {
            if let Err(source) = self.file.sync_data() {
                self.has_failed.store(true, Ordering::Relaxed);
                return Err(failed("sync the journal", &self.path, source));
            }
            *synced_bytes = end_bytes;
        }
        Ok(())
    }

    /// Removes all records.
    pub(super) fn reset(&self) -> Result<()> {
        let mut synced_bytes = self.synced();
        // Zeros follow the next records, never the remains of these.
        self.file.set_len(0).map_err(|source| failed("empty the journal", &self.path, source))?;
        self.allocated_bytes.store(0, Ordering::Relaxed);
        self.end_bytes.store(0, Ordering::Relaxed);
        *synced_bytes = 0;
        Ok(())
    }

    /// Bytes that a loss of power leaves.
    #[cfg(test)]
    pub(super) fn synced_bytes(&self) -> u64 {
        *self.synced()
    }

    fn synced(&self) -> MutexGuard<'_, u64> {
        // Nothing that can panic runs under the lock.
        self.synced_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The commits that an earlier opening left here, in order. Errors are those of reading.
    pub(super) fn records(&self) -> Result<Records> {
        let opened = File::open(&self.path)
            .map_err(|source| failed("read a journal", &self.path, source))?;
        Ok(Records {
            file: BufReader::new(opened),
            path: self.path.clone(),
            left_bytes: self.bytes(),
            next: None,
        })
    }
}

/// Reads the commits of a journal one by one.
pub(super) struct Records {
    file: BufReader<File>,
    path: PathBuf,
    left_bytes: u64,
    /// The number that the next record must have.
    next: Option<u64>,
}

impl Iterator for Records {
    type Item = Result<(u64, Changes)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.read() {
            Ok(record) => record.map(Ok),
            // Another process cut the file while we read it.
            Err(source) if source.kind() == Os::UnexpectedEof => None,
            Err(source) => Some(Err(failed("read a journal", &self.path, source))),
        }
    }
}

impl Records {
    fn read(&mut self) -> std::io::Result<Option<(u64, Changes)>> {
        let mut header = [0; HEADER_BYTES];
        let Some(left_bytes) = self.left_bytes.checked_sub(HEADER_BYTES as u64) else {
            return Ok(None);
        };
        self.file.read_exact(&mut header)?;
        let (checksum, checked) = header.split_first_chunk::<4>().expect("longer");
        let (length, sequence) = checked.split_first_chunk::<8>().expect("longer");
        let sequence = u64::from_le_bytes(sequence.try_into().expect("eight bytes are left"));
        let length_bytes = u64::from_le_bytes(*length);
        let Some(left_bytes) = left_bytes.checked_sub(length_bytes) else { return Ok(None) };
        // At most the file's own length.
        let mut payload = vec![0; length_bytes as usize];
        self.file.read_exact(&mut payload)?;
        let found = crc32c::crc32c_append(crc32c::crc32c(checked), &payload);
        let follows = self.next.is_none_or(|next| next == sequence);
        if found != u32::from_le_bytes(*checksum) || !follows {
            return Ok(None);
        }
        self.left_bytes = left_bytes;
        self.next = Some(sequence + 1);
        Ok(decoded(&payload).map(|changes| (sequence, changes)))
    }
}

/// Replaces `record` by that of a commit.
pub(super) fn encode(sequence: u64, changes: &Changes, record: &mut Vec<u8>) {
    record.clear();
    record.resize(HEADER_BYTES, 0);
    for (key, value) in changes {
        // Both lengths were checked when they were put.
        record.extend((key.len() as u16).to_le_bytes());
        let value_bytes = value.as_ref().map_or(REMOVED, |value| value.len() as u32);
        record.extend(value_bytes.to_le_bytes());
        record.extend_from_slice(key);
        record.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let length_bytes = (record.len() - HEADER_BYTES) as u64;
    record[4..12].copy_from_slice(&length_bytes.to_le_bytes());
    record[12..HEADER_BYTES].copy_from_slice(&sequence.to_le_bytes());
    let checksum = crc32c::crc32c(&record[4..]);
    record[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// `None` for what [`encode`] does not make.
fn decoded(mut payload: &[u8]) -> Option<Changes> {
    let mut changes = Changes::new();
    while !payload.is_empty() {
        let (key_bytes, rest) = payload.split_first_chunk()?;
        let (value_bytes, rest) = rest.split_first_chunk()?;
        let value_bytes = u32::from_le_bytes(*value_bytes);
        payload = rest;
        let key = payload.split_off(..usize::from(u16::from_le_bytes(*key_bytes)))?;
        let value = match value_bytes {
            REMOVED => None,
            _ => Some(payload.split_off(..value_bytes as usize)?.into()),
        };
        changes.insert(key.into(), value);
    }
    Some(changes)
}

fn failed(operation: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::from_io(operation, source).with("path", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../../docs/formats/lmdb.md");

    #[test]
    fn the_documented_vector_is_made_and_read_back() {
        let put = (Box::from(&b"key"[..]), Some(Box::from(&b"value"[..])));
        let changes = Changes::from([(Box::from(&b"gone"[..]), None), put]);
        let mut record = Vec::new();
        encode(300, &changes, &mut record);
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        let block = DOCUMENT.split("```vector\n").nth(1).expect("the document has a vector");
        let vector: String =
            block.split("```").next().expect("it ends").split_whitespace().collect();
        assert_eq!(hex, vector);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("journal");
        std::fs::write(&path, &record).expect("write");
        let journal = Journal::open(path).expect("open");
        let found: Result<Vec<_>> = journal.records().expect("open").collect();
        assert_eq!(found.expect("read"), [(300, changes)]);
    }
}
