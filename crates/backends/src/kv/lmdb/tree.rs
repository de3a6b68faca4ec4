// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The B-tree in a mapped file, by LMDB.
//!
//! Every commit of LMDB is synced: its other modes let the operating system write the page that
//! names the new root before the pages under it, and a loss of power between them leaves neither
//! the old tree nor the new one. LMDB has no checksums; every value carries one of ours.

use std::fs::File;
use std::io::ErrorKind as Os;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions, MdbError, RoTxn, WithTls};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use terrace_core::{Error, ErrorKind, KV_KEY_BYTES_MAX, Result};

use super::merge::Change;
use crate::kv::FAILED;

/// LMDB's own name for its file.
pub(super) const FILE_NAME: &str = "data.mdb";

/// Threads that may have read and still live.
const READERS_MAX: u32 = 4096;

/// What LMDB keeps of them, 64 bytes for each after at most a block.
const READERS_NAME: &str = "lock.mdb";
const READERS_BYTES: u64 = READERS_MAX as u64 * 64 + 4096;

/// Names the version of the format, for journals and tree (`docs/formats/lmdb.md`).
const VERSION_KEY: &[u8] = b"version";
const VERSION: u64 = 1;

/// Names the number of the last commit in the tree.
const APPLIED_KEY: &[u8] = b"applied";

const CHECKSUM_BYTES: usize = 4;

type Pairs = Database<Bytes, Bytes>;

/// Pairs in a mapped file. Transactions borrow it, so that a mutable borrow proves that there are
/// none.
pub(super) struct Tree {
    env: Env<WithTls>,
    pairs: Pairs,
    state: Pairs,
    path: PathBuf,
    map_bytes: usize,
    /// Growing the map lost it: LMDB has no address to read from.
    is_lost: bool,
}

/// The length of an empty tree: LMDB begins its file with two pages of its own.
pub(super) fn file_bytes_min() -> u64 {
    2 * rustix::param::page_size() as u64
}

/// Takes room for what LMDB writes through a mapping: where the disk is too full for that, the process would die.
fn allocate_readers(directory: &Path) -> std::io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false);
    let readers = options.open(directory.join(READERS_NAME))?;
    match rustix::fs::fallocate(&readers, FallocateFlags::empty(), 0, READERS_BYTES) {
        // Some file systems allocate nothing ahead.
        Err(Errno::OPNOTSUPP) => Ok(()),
        allocated => Ok(allocated?),
    }
}

/// Why changes were not written.
pub(super) enum Refusal {
    /// The map is too small: grow it and try again.
    MapFull,
    /// Anything else.
    Other(Error),
}

impl Tree {
    /// Opens the tree in a directory that `_lock`, a lock on it, keeps to us.
    #[expect(unsafe_code, reason = "LMDB trusts its callers with what is said below")]
    pub(super) fn open(directory: &Path, map_bytes: usize, _lock: &File) -> Result<Self> {
        const OPERATION: &str = "open the lmdb engine";
        let failed = |error| translated(OPERATION, directory, error);
        allocate_readers(directory).map_err(|source| {
            Error::from_io(OPERATION, source).with("path", directory.display())
        })?;
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes).max_readers(READERS_MAX).max_dbs(2);
        // SAFETY: heed asks that the file be opened once in a process, and be changed by LMDB alone
        // while it is mapped. The lock, which outlives this tree, excludes every other opening by
        // Terrace, in this process and in others; no other program writes to files of a store
        // (docs/adr/0008-lmdb.md). No flag is set that weakens LMDB's own locks.
        let env = unsafe { options.open(directory) }.map_err(failed)?;
        let mut txn = env.write_txn().map_err(failed)?;
        let pairs = env.create_database(&mut txn, Some("pairs")).map_err(failed)?;
        let state = env.create_database(&mut txn, Some("state")).map_err(failed)?;
        if state.is_empty(&txn).map_err(failed)? {
            let version = sealed(VERSION_KEY, &VERSION.to_le_bytes());
            state.put(&mut txn, VERSION_KEY, &version[..]).map_err(failed)?;
        }
        txn.commit().map_err(failed)?;
        // LMDB may have taken more than was asked for: what the file has.
        let map_bytes = env.info().map_size;
        let tree = Self { env, pairs, state, path: directory.into(), map_bytes, is_lost: false };
        let version = tree.number(VERSION_KEY)?;
        if version != VERSION {
            return Err(Error::new(ErrorKind::Unsupported, OPERATION)
                .because("another version of terrace wrote it")
                .with("version", version)
                .with("path", directory.display()));
        }
        Ok(tree)
    }

    /// The number of the last commit that is in the tree as a whole.
    pub(super) fn applied(&self) -> Result<u64> {
        self.number(APPLIED_KEY)
    }

    /// A number of our own, 0 where there is none.
    fn number(&self, key: &[u8]) -> Result<u64> {
        let txn = self.begin()?;
        let value = self.state.get(&txn, key).map_err(|error| self.failed(error))?;
        let Some(stored) = value else { return Ok(0) };
        let number = self.checked(key, stored)?;
        number.try_into().map(u64::from_le_bytes).map_err(|_| self.damaged(key))
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let txn = self.begin()?;
        let value = self.pairs.get(&txn, key).map_err(|error| self.failed(error))?;
        value.map(|stored| Ok(self.checked(key, stored)?.to_vec())).transpose()
    }

    /// Begins to read; the tree stays as it is now for the transaction.
    pub(super) fn begin(&self) -> Result<RoTxn<'_, WithTls>> {
        self.check()?;
        self.env.read_txn().map_err(|error| self.failed(error))
    }

    /// The pairs of a range in order.
    pub(super) fn range<'a>(
        &'a self,
        txn: &'a RoTxn<'_, WithTls>,
        bounds: (Bound<&'a [u8]>, Bound<&'a [u8]>),
    ) -> Result<impl Iterator<Item = Result<Change<'a>>> + 'a> {
        let bounds = (legal_start(bounds.0), bounds.1);
        let found = self.pairs.range(txn, &bounds).map_err(|error| self.failed(error))?;
        Ok(found.map(|pair| {
            let (key, stored) = pair.map_err(|error| self.failed(error))?;
            Ok((key, Some(self.checked(key, stored)?)))
        }))
    }

    /// Writes changes durably, all or none, and with `applied` the number of the commit after
    /// which the tree is whole.
    pub(super) fn write(
        &self,
        changes: &[Change<'_>],
        applied: Option<u64>,
    ) -> Result<(), Refusal> {
        self.check().map_err(Refusal::Other)?;
        self.try_write(changes, applied).map_err(|error| match error {
            heed::Error::Mdb(MdbError::MapFull) => Refusal::MapFull,
            error => Refusal::Other(self.failed(error)),
        })
    }

    fn try_write(&self, changes: &[Change<'_>], applied: Option<u64>) -> heed::Result<()> {
        let mut txn = self.env.write_txn()?;
        for (key, value) in changes {
            match value {
                Some(value) => self.pairs.put(&mut txn, key, &*sealed(key, value))?,
                None => drop(self.pairs.delete(&mut txn, key)?),
            }
        }
        if let Some(number) = applied {
            self.state.put(&mut txn, APPLIED_KEY, &*sealed(APPLIED_KEY, &number.to_le_bytes()))?;
        }
        txn.commit()
    }

    /// Doubles the map. It takes addresses, no memory.
    #[expect(unsafe_code, reason = "LMDB maps the file anew, under the feet of any transaction")]
    pub(super) fn grow(&mut self) -> Result<()> {
        self.check()?;
        let map_bytes = self.map_bytes.saturating_mul(2);
        // SAFETY: LMDB asks that there be no transaction. Each borrows the tree, which is ours
        // alone here; the environment is never given away.
        let resized = unsafe { self.env.resize(map_bytes) };
        self.is_lost = resized.is_err();
        resized.map_err(|error| self.failed(error))?;
        self.map_bytes = map_bytes;
        Ok(())
    }

    /// Bytes of the file. It never becomes shorter.
    pub(super) fn file_bytes(&self) -> Result<u64> {
        self.env.real_disk_size().map_err(|error| self.failed(error))
    }

    fn check(&self) -> Result<()> {
        if self.is_lost {
            return Err(Error::new(ErrorKind::Io, "use the tree")
                .because("its file could not be mapped, so the store must be opened again")
                .with("path", self.path.display()));
        }
        Ok(())
    }

    /// The value in what the tree has stored for a key.
    fn checked<'a>(&self, key: &[u8], stored: &'a [u8]) -> Result<&'a [u8]> {
        let (value, sum) = stored.split_last_chunk().ok_or_else(|| self.damaged(key))?;
        if checksum(key, value) != *sum {
            return Err(self.damaged(key));
        }
        Ok(value)
    }

    fn damaged(&self, key: &[u8]) -> Error {
        Error::new(ErrorKind::Corrupt, "read a key")
            .with("key", key.escape_ascii())
            .with("path", self.path.display())
    }

    fn failed(&self, error: heed::Error) -> Error {
        translated("use the tree", &self.path, error)
    }
}

/// Where LMDB is to begin: it searches only for what could be a key.
fn legal_start(start: Bound<&[u8]>) -> Bound<&[u8]> {
    match start {
        Bound::Included([]) | Bound::Excluded([]) => Bound::Unbounded,
        // No key has more bytes, so one is behind all of them where it is behind the first.
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KV_KEY_BYTES_MAX => {
            Bound::Excluded(&key[..KV_KEY_BYTES_MAX])
        }
        legal => legal,
    }
}

/// A value as the tree has it: with the checksum of the pair.
fn sealed(key: &[u8], value: &[u8]) -> Vec<u8> {
    [value, &checksum(key, value)].concat()
}

fn checksum(key: &[u8], value: &[u8]) -> [u8; CHECKSUM_BYTES] {
    crc32c::crc32c_append(crc32c::crc32c(key), value).to_le_bytes()
}

fn is_disk_full(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|all| all.f_bavail == 0)
}

fn translated(operation: &'static str, path: &Path, error: heed::Error) -> Error {
    let new = |kind| Error::new(kind, operation);
    let error = match error {
        // LMDB reports so that only a part of a write had room.
        heed::Error::Io(source)
            if Errno::from_io_error(&source) == Some(Errno::IO) && is_disk_full(path) =>
        {
            Error::from_io(operation, Errno::NOSPC.into())
        }
        heed::Error::Io(source) => match source.kind() {
            // No caller names these files or offsets, so the file was damaged from outside.
            Os::NotFound | Os::UnexpectedEof | Os::InvalidData | Os::InvalidInput => {
                new(ErrorKind::Corrupt).caused_by(source)
            }
            _ => Error::from_io(operation, source),
        },
        heed::Error::EnvAlreadyOpened => {
            new(ErrorKind::Busy).because("this process has it open already")
        }
        heed::Error::Mdb(MdbError::Panic) => new(ErrorKind::Io).because(FAILED),
        heed::Error::Mdb(MdbError::ReadersFull) => new(ErrorKind::Busy)
            .because("too many threads have read it")
            .with("threads_max", READERS_MAX),
        heed::Error::Mdb(MdbError::VersionMismatch) => {
            new(ErrorKind::Unsupported).because("another version of lmdb wrote it")
        }
        other => new(ErrorKind::Corrupt).caused_by(other.to_string()),
    };
    error.with("path", path.display())
}
