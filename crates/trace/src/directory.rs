// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of a trace: which files there are, and the lock of its writer.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use terrace_core::{Error, ErrorKind, Result};

use crate::file;

/// What the names of files end in.
const EXTENSION: &str = "trace";

/// Looks at the lock before another writer is believed in: a reader holds it for an instant.
const LOCK_TRIES: u32 = 1000;

/// A file there is.
#[derive(Clone, Copy, Debug)]
struct One {
    number: u64,
    bytes: u64,
    /// Records in it, where it was ended.
    records: u64,
}

/// A directory that one writer has to itself.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    files: VecDeque<One>,
    pub(crate) deleted_files: u64,
    pub(crate) deleted_records: u64,
    /// Held while this process writes here.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is there to be dropped"))]
    lock: Lock,
}

/// A lock that ends when it is dropped by the process that took it. To close the file is not enough while a forked child
/// has it open, and a child must not release the lock of its parent.
#[derive(Debug)]
struct Lock {
    file: File,
    process: u32,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // It fails where there are no locks.
            let _ = self.file.unlock();
        }
    }
}

impl Directory {
    /// Takes a directory for a recording of a store, and makes it where it is missing.
    ///
    /// # Errors
    ///
    /// `Busy` where another process writes a trace there, `Exists` where it holds that of another
    /// store.
    pub(crate) fn take(path: &Path, store_id: u128) -> Result<Self> {
        let failed = |error| {
            Error::from_io("use a directory for the trace", error).with("directory", path.display())
        };
        fs::create_dir_all(path).map_err(failed)?;
        let lock = File::open(path).map_err(failed)?;
        if !try_lock(&lock) {
            return Err(Error::new(ErrorKind::Busy, "use a directory for the trace")
                .because("another recording writes there")
                .with("directory", path.display()));
        }
        let mut taken = Self {
            path: path.into(),
            files: VecDeque::new(),
            deleted_files: 0,
            deleted_records: 0,
            lock: Lock { file: lock, process: std::process::id() },
        };
        for (number, path) in list(path)? {
            let bytes = fs::metadata(&path).map_err(failed)?.len();
            let records = file::record_count(&path).unwrap_or(0);
            taken.files.push_back(One { number, bytes, records });
        }
        if let Some(last) = taken.files.back() {
            // A file whose beginning is damaged says nothing; it is still there for readers.
            if let Some(head) = file::head(&taken.path_of(last.number)) {
                if head.store_id != store_id {
                    return Err(Error::new(ErrorKind::Exists, "use a directory for the trace")
                        .because("it holds the trace of another store")
                        .with("directory", path.display()));
                }
                taken.deleted_files = head.deleted_files;
                taken.deleted_records = head.deleted_records;
            }
        }
        Ok(taken)
    }

    pub(crate) fn path_of(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:06}.{EXTENSION}"))
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.files.back().map_or(1, |last| last.number + 1)
    }

    pub(crate) fn file_count(&self) -> u64 {
        self.files.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|one| one.bytes).sum()
    }

    /// Deletes the oldest files until the others have at most `bytes_max`.
    pub(crate) fn delete_oldest(&mut self, bytes_max: u64) -> Result<()> {
        while self.bytes() > bytes_max {
            let Some(oldest) = self.files.front().copied() else { break };
            let path = self.path_of(oldest.number);
            match fs::remove_file(&path) {
                // Another process may have done it.
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::from_io("delete the oldest file of the trace", error)
                        .with("file", path.display()));
                }
                _ => {}
            }
            self.files.pop_front();
            self.deleted_files += 1;
            self.deleted_records += oldest.records;
        }
        Ok(())
    }

    /// Notes that a file was begun.
    pub(crate) fn begun(&mut self, number: u64) {
        self.files.push_back(One { number, bytes: 0, records: 0 });
    }

    /// Notes that the last file grew.
    pub(crate) fn grown(&mut self, bytes: u64) {
        if let Some(last) = self.files.back_mut() {
            last.bytes += bytes;
        }
    }

    /// Notes that the last file was ended.
    pub(crate) fn ended(&mut self, records: u64) {
        if let Some(last) = self.files.back_mut() {
            last.records = records;
        }
    }
}

fn try_lock(directory: &File) -> bool {
    for _ in 0..LOCK_TRIES {
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            // A file system without locks: a writer cannot be detected there.
            Ok(()) | Err(TryLockError::Error(_)) => return true,
        }
    }
    false
}

/// Whether a process writes a trace in a directory.
pub(crate) fn is_written(path: &Path) -> bool {
    let Ok(directory) = File::open(path) else { return false };
    matches!(directory.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Whether nothing is in a directory, as in that of a recording in which nothing happened.
pub(crate) fn is_blank(path: &Path) -> Result<bool> {
    let failed = |error| Error::from_io("list the trace", error).with("directory", path.display());
    Ok(fs::read_dir(path).map_err(failed)?.next().is_none())
}

/// The files of a trace with their numbers, oldest first.
pub(crate) fn list(path: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let failed = |error| Error::from_io("list the trace", error).with("directory", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let number = stem.and_then(|stem| stem.parse().ok());
        match number {
            Some(number) if path.extension().is_some_and(|ending| ending == EXTENSION) => {
                files.push((number, path));
            }
            _ => {}
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_free_while_another_descriptor_shares_its_lock() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let mut first = Directory::take(home.path(), 1).expect("free");
        assert!(is_written(home.path()));
        // As a forked child has it.
        let shared = first.lock.file.try_clone().expect("a descriptor");
        first.lock.process += 1;
        drop(first);
        assert!(is_written(home.path()), "a child released the lock of its parent");
        drop(shared);
        let first = Directory::take(home.path(), 1).expect("free");
        let shared = first.lock.file.try_clone().expect("a descriptor");
        drop(first);
        assert!(!is_written(home.path()), "the lock is held by a descriptor of a child");
        drop(shared);
    }
}
