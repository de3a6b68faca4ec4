// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs fjall's journal without stopping commits.
//!
//! `Database::persist` holds the journal's lock while the disk works: no thread can commit
//! meanwhile, so each sync finds only one or two commits to make durable, and threads that need no
//! sync wait for those that do. A descriptor of our own on the same file has the same effect
//! without the lock, because every batch was written to the operating system before it was
//! acknowledged.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use terrace_core::{Error, ErrorKind, Result};

/// The journals `0.jnl`, `1.jnl`, … in fjall's directory.
///
/// fjall syncs a journal before it begins the next, so syncing the newest makes everything
/// durable that was in any when the call began (fjall 3.1, journal/writer.rs, `rotate`).
#[derive(Debug)]
pub(super) struct Journal {
    directory: PathBuf,
    /// Opened once per journal: the kernel reports an error of the disk only to descriptors that
    /// were open at the time.
    newest: Mutex<Option<(u64, File)>>,
}

impl Journal {
    pub(super) fn open(directory: PathBuf) -> Result<Self> {
        let journal = Self { directory, newest: Mutex::default() };
        journal.sync()?;
        Ok(journal)
    }

    /// Makes everything durable that was written when this was called.
    pub(super) fn sync(&self) -> Result<()> {
        // The lock is held while the disk works: one thread at a time syncs anyway.
        let mut open = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.find_newest().map_err(|source| self.failed(source))?;
        let newest = newest.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "sync the journal")
                .because("it is missing")
                .with("path", self.directory.display())
        })?;
        let file = match open.take() {
            Some((number, file)) if number == newest => file,
            _ => File::open(self.directory.join(format!("{newest}{SUFFIX}")))
                .map_err(|source| self.failed(source))?,
        };
        let synced = file.sync_data();
        *open = Some((newest, file));
        synced.map_err(|source| self.failed(source))
    }

    fn find_newest(&self) -> io::Result<Option<u64>> {
        let mut newest = None;
        for entry in self.directory.read_dir()? {
            let name = entry?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            newest = newest.max(stem.and_then(|stem| stem.parse().ok()));
        }
        Ok(newest)
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::from_io("sync the journal", source).with("path", self.directory.display())
    }
}

const SUFFIX: &str = ".jnl";
