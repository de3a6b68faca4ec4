// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file beside an engine that remembers how much of it was durable.
//!
//! A log-structured engine takes a damaged log for one that ends early, as it does after a crash,
//! and opens without the commits behind the damage. So every sync writes its number into the
//! engine before and into this file after; an engine that knows a smaller number than the file has
//! lost commits that were durable. Anything else that only grows can be marked the same way.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Result};

/// A number, for example that of the last sync, `MAGIC`, and the crc32c of both: 16 bytes, which a
/// disk writes whole or not at all. The file itself is never synced: an old number is a weaker
/// claim, not a wrong one.
#[derive(Debug)]
pub(super) struct SyncMark {
    file: File,
    path: PathBuf,
}

const MAGIC: &[u8; 4] = b"TRSM";
const RECORD_BYTES: usize = 16;

impl SyncMark {
    /// Opens the mark in a directory and returns its number, 0 for a new one.
    ///
    /// # Errors
    ///
    /// `Corrupt`, and those of the operating system.
    pub(super) fn open(directory: &Path, name: &str) -> Result<(Self, u64)> {
        let path = directory.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| failed("open a sync mark", &path, source))?;
        let mark = Self { file, path };
        let number = mark.read()?;
        Ok((mark, number))
    }

    /// Whether a directory has a mark that says anything.
    pub(super) fn exists(directory: &Path, name: &str) -> bool {
        std::fs::metadata(directory.join(name)).is_ok_and(|file| file.len() > 0)
    }

    /// Replaces the number.
    pub(super) fn write(&self, number: u64) -> Result<()> {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&number.to_le_bytes());
        record[8..12].copy_from_slice(MAGIC);
        let checksum = crc32c::crc32c(&record[..12]);
        record[12..].copy_from_slice(&checksum.to_le_bytes());
        self.file
            .write_all_at(&record, 0)
            .map_err(|source| failed("write a sync mark", &self.path, source))
    }

    fn read(&self) -> Result<u64> {
        let mut record = [0; RECORD_BYTES + 1];
        let length = self
            .file
            .read_at(&mut record, 0)
            .map_err(|source| failed("read a sync mark", &self.path, source))?;
        // A crash right after the file was made leaves it empty.
        if length == 0 {
            return Ok(0);
        }
        let (number, rest) = record.split_first_chunk::<8>().expect("longer");
        let checksum = crc32c::crc32c(&record[..12]).to_le_bytes();
        if length != RECORD_BYTES || rest[..4] != *MAGIC || rest[4..8] != checksum {
            return Err(Error::new(ErrorKind::Corrupt, "read a sync mark")
                .with("path", self.path.display()));
        }
        Ok(u64::from_le_bytes(*number))
    }
}

fn failed(operation: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::from_io(operation, source).with("path", path.display())
}
