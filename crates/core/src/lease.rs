// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are lent, so that a reader on the same machine reads them without asking anybody.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::{Error, Result};

/// Bytes of one generation word in its page, little-endian.
pub const WORD_BYTES: usize = 8;

/// A descriptor of the file that holds exactly an object's bytes: its end is the object's end.
///
/// It is over when its word says so, when the handle that lent it is dropped, and when the process
/// that lent it has ended. After that end the word does not change any more, so a reader in another
/// process checks, after the word, whether its connection to the lender is still open.
#[derive(Debug)]
pub struct FileLease {
    /// The descriptor.
    pub file: File,
    /// Says whether the file still is the object; `None` where it is as long as the handle lives.
    pub word: Option<GenerationWord>,
}

/// A word in a page of words that the lender changes before the file of a lease stops being the
/// object.
#[derive(Clone, Debug)]
pub struct GenerationWord {
    /// The page, which all leases of one lender share.
    pub page: Arc<File>,
    /// Which word of the page.
    pub index: u32,
    /// What it holds as long as the lease is good. No later lease of the word has the same.
    pub value: u64,
}

/// Reads through a lease, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// How many.
    pub count: u32,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Where the first began.
    pub offset_bytes: u64,
    /// Time that all of them took; 0 where it was not measured.
    pub latency_ns: u64,
}

impl FileLease {
    /// Reads into `buffer`; the bytes read, fewer than asked for only at the end of the object.
    /// `None` where the lease is over: what was read then may be old, and the ordinary way is to be
    /// taken.
    ///
    /// # Errors
    ///
    /// `Io`; the ordinary way may still work.
    pub fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset_bytes + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from_io("read a lent file", error)),
            }
        }
        // Only now: while the word is unchanged, no write can have gone elsewhere.
        Ok(self.is_good()?.then_some(done))
    }

    /// Whether the file still is the object.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn is_good(&self) -> Result<bool> {
        self.word.as_ref().map_or(Ok(true), GenerationWord::is_unchanged)
    }
}

impl GenerationWord {
    /// Where the word is in its page.
    pub fn offset_bytes(&self) -> u64 {
        u64::from(self.index) * WORD_BYTES as u64
    }

    /// Whether the word is what it was when the file was lent.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn is_unchanged(&self) -> Result<bool> {
        let mut word = [0; WORD_BYTES];
        let read = self.page.read_exact_at(&mut word, self.offset_bytes());
        read.map_err(|error| Error::from_io("read a generation word", error))?;
        Ok(u64::from_le_bytes(word) == self.value)
    }
}
