// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value pairs in a directory, kept by the log-structured tree fjall.
//!
//! fjall gives a journal, sorted tables and snapshots. What it leaves to us: serialisable
//! transactions (one writer at a time, its changes in an overlay, one atomic batch), reads that
//! never see half a batch, syncs shared by waiting threads, and noticing a journal that lost its
//! end ([`SyncMark`]).

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, LsmError, OwnedWriteBatch, PersistMode, Readable,
    Slice,
};
use terrace_core::{
    Error, ErrorKind, KV_KEY_BYTES_MAX, Kv, KvRange, Pair, Persistency, Result, Ticket, Txn,
};

use super::changing::{self, Changing, Committed};
use super::group_sync::GroupSync;
use super::journal::Journal;
use super::spare::{self, Spare};
use super::sync_mark::SyncMark;
use super::{FAILED, bounds, check_key, check_ticket};

/// Blocks of tables kept in memory. fjall's own default; the catalog's hot part is cached above.
const CACHE_BYTES: u64 = 32 << 20;

/// Pairs that are only in the journal and in memory. fjall stops writers at four full memtables
/// that wait for the disk, so all together take at most 80 MiB; 16 MiB is 70 000 catalog records.
const MEMTABLE_BYTES: u64 = 16 << 20;

/// What a pair takes in a memtable beside its bytes: a node of the skip list and two headers.
const PAIR_OVERHEAD_BYTES: u64 = 100;

/// All journals together; fjall's least is 64 MiB and it rotates at 64 MB, so this is two. They
/// are read when a store opens, at about 100 MB/s.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;

/// One thread writes full memtables and compacts tables. A second one would poll while the first
/// compacts (fjall 3.1, worker_pool.rs), which costs a small node one of its cores.
///
/// One is enough only because we rotate memtables ourselves. Where fjall does, every put to a full
/// memtable queues a request; the worker that serves the first then waits for room in that queue,
/// which no other thread empties, and memtable and journal grow without bound.
const WORKER_THREADS: usize = 1;

/// Open tables: a catalog of 10 million segments has about 30.
const OPEN_FILES_MAX: usize = 128;

/// fjall's version file, and its length.
const VERSION: &str = "version";
const VERSION_BYTES: u64 = 4;

/// Holds the number of the last sync outside of the engine.
const MARK: &str = "synced";

/// Holds the number of the last sync in the engine. It is longer than any legal key, so it cannot
/// collide with one, and greater than any, so scans meet it last.
const SYNC_KEY: [u8; KV_KEY_BYTES_MAX + 1] = [u8::MAX; KV_KEY_BYTES_MAX + 1];

/// Keeps pairs in a directory.
///
/// - Commits reach the operating system before they are acknowledged.
/// - After an error of the disk, a full one included, it takes no more commits until it is opened
///   again: what the journal holds is not known then.
pub struct Fjall {
    database: Database,
    pairs: Keyspace,
    path: PathBuf,
    target: String,
    /// Held through a transaction, which therefore sees no other changes.
    writer: Mutex<()>,
    /// Odd while a commit is applied; see [`Kv::get`].
    commit_sequence: AtomicU64,
    /// The last commit's ticket.
    committed: AtomicU64,
    /// About what the memtable holds; only the writer changes it.
    memtable_bytes: AtomicU64,
    group: GroupSync,
    journal: Journal,
    mark: SyncMark,
    /// Number of the last sync, in this life of the store or before.
    syncs: AtomicU64,
    spare: Spare,
}

/// Whether anything may have been kept in a directory: fjall makes its first tree after all its other files.
fn is_made(path: &Path) -> bool {
    let trees = std::fs::read_dir(path.join("keyspaces"));
    SyncMark::exists(path, MARK) || trees.is_ok_and(|mut trees| trees.next().is_some())
}

/// Removes what is left of a making that a crash or a full disk cut off, and over which fjall would make
/// nothing: it writes its version after the journal, and syncs it, before there is anything to keep.
fn remove_unfinished(path: &Path) -> std::io::Result<()> {
    let is_unfinished = || {
        let version = std::fs::metadata(path.join(VERSION));
        !is_made(path) && version.map_or(0, |file| file.len()) < VERSION_BYTES
    };
    if !is_unfinished() {
        return Ok(());
    }
    // Where another process has the lock, the files are in use, and fjall reports it.
    let lock = File::options().write(true).open(path.join("lock"));
    let Some(lock) = lock.ok().filter(|lock| lock.try_lock().is_ok()) else { return Ok(()) };
    if is_unfinished() {
        for name in [VERSION, "0.jnl"] {
            match std::fs::remove_file(path.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    lock.unlock()
}

/// Opens a directory, which is made where it is missing.
pub(super) fn open(path: &Path) -> Result<Arc<dyn Kv>> {
    Ok(Arc::new(Fjall::open(path)?))
}

impl Fjall {
    /// Opens a directory, which is made where it is missing.
    ///
    /// # Errors
    ///
    /// `Busy` (another process has it open), `Corrupt` (damaged files, or durable commits are
    /// missing), `Unsupported` (written by another version of fjall), `Denied`, `NoSpace`, `Io`.
    pub fn open(path: &Path) -> Result<Self> {
        spare::with_all(path, || Self::open_as_is(path))
    }

    fn open_as_is(path: &Path) -> Result<Self> {
        const OPERATION: &str = "open the fjall engine";
        // Without its version file fjall would begin anew over the old tables.
        if is_made(path) && !path.join(VERSION).exists() {
            return Err(Error::new(ErrorKind::Corrupt, OPERATION)
                .because("its version file is missing")
                .with("path", path.display()));
        }
        remove_unfinished(path)
            .map_err(|source| Error::from_io(OPERATION, source).with("path", path.display()))?;
        let spare = Spare::open(path);
        let (database, pairs) = guarded(OPERATION, path, || {
            let database = Database::builder(path)
                .cache_size(CACHE_BYTES)
                .max_journaling_size(JOURNAL_BYTES_MAX)
                .max_cached_files(Some(OPEN_FILES_MAX))
                .worker_threads(WORKER_THREADS)
                .open()?;
            let options = || KeyspaceCreateOptions::default().max_memtable_size(u64::MAX);
            let pairs = database.keyspace("pairs", options)?;
            Ok((database, pairs))
        })?;
        let syncs = guarded(OPERATION, path, || pairs.get(SYNC_KEY))?.map_or(0, |value| {
            let number = value.first_chunk().copied().unwrap_or_default();
            u64::from_le_bytes(number)
        });
        let (mark, marked) = SyncMark::open(path, MARK)?;
        if marked > syncs {
            return Err(Error::new(ErrorKind::Corrupt, OPERATION)
                .because("durable commits are missing, its journal is damaged")
                .with("path", path.display())
                .with("last_sync", syncs)
                .with("expected_sync", marked));
        }
        // What the journal holds is back in the memtable: many short openings must fill it too.
        let memtable_bytes = AtomicU64::new(database.write_buffer_size());
        Ok(Self {
            database,
            pairs,
            path: path.into(),
            target: format!("fjall:{}", path.display()),
            writer: Mutex::default(),
            commit_sequence: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            memtable_bytes,
            group: GroupSync::default(),
            journal: Journal::open(path.into())?,
            mark,
            syncs: AtomicU64::new(syncs),
            spare,
        })
    }

    /// Calls the engine; see [`guarded`].
    fn call<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce() -> fjall::Result<T>,
    ) -> Result<T> {
        guarded(operation, &self.path, call)
    }

    /// Reads without regard to commits that run at the same time.
    fn read(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.call("read a key", || self.pairs.get(key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn commit(&self, changes: Changes) -> Result<Ticket> {
        self.spare.look();
        self.make_room(&changes)?;
        self.commit_sequence.fetch_add(1, Ordering::AcqRel);
        let applied = self.call("commit", || self.apply(changes));
        self.commit_sequence.fetch_add(1, Ordering::AcqRel);
        applied?;
        Ok(Ticket(self.committed.fetch_add(1, Ordering::AcqRel) + 1))
    }

    /// Lets a full memtable be written to the disk, and begins a new one.
    fn make_room(&self, changes: &Changes) -> Result<()> {
        let size_bytes = |(key, value): (&Slice, &Option<Slice>)| {
            let value_bytes = value.as_ref().map_or(0, |value| value.len());
            (key.len() + value_bytes) as u64 + PAIR_OVERHEAD_BYTES
        };
        let mut memtable_bytes = self.memtable_bytes.load(Ordering::Relaxed);
        if memtable_bytes >= MEMTABLE_BYTES {
            self.call("commit", || self.pairs.rotate_memtable())?;
            memtable_bytes = 0;
        }
        memtable_bytes += changes.iter().map(size_bytes).sum::<u64>();
        self.memtable_bytes.store(memtable_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn apply(&self, mut changes: Changes) -> fjall::Result<()> {
        if changes.len() == 1
            && let Some((key, value)) = changes.pop_first()
        {
            // The same journal record without the batch: a fifth faster.
            return match value {
                Some(value) => self.pairs.insert(key, value),
                None => self.pairs.remove(key),
            };
        }
        let mut batch = OwnedWriteBatch::with_capacity(self.database.clone(), changes.len())
            .durability(Some(PersistMode::Buffer));
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.pairs, key, value),
                None => batch.remove(&self.pairs, key),
            }
        }
        batch.commit()
    }

    /// Makes every commit durable that there is now. One thread at a time calls this.
    fn sync(&self) -> Result<Ticket> {
        self.spare.look();
        let durable = Ticket(self.committed.load(Ordering::Acquire));
        let number = self.syncs.load(Ordering::Relaxed) + 1;
        // The journal is in order: with this record it holds every commit before it.
        self.call("sync commits", || self.pairs.insert(SYNC_KEY, number.to_le_bytes()))?;
        self.journal.sync()?;
        self.syncs.store(number, Ordering::Relaxed);
        self.mark.write(number)?;
        Ok(durable)
    }
}

impl Drop for Fjall {
    fn drop(&mut self) {
        // Only to notice damage later; callers that need durable commits have waited for them.
        let last = Ticket(self.committed.load(Ordering::Acquire));
        let _ = self.group.wait(last, || self.sync());
    }
}

impl Kv for Fjall {
    fn target(&self) -> &str {
        &self.target
    }

    fn persistency(&self) -> Persistency {
        Persistency::Storage
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        // A snapshot costs as much as the read. The latest value is right without one unless a
        // commit was being applied: then others could see its effects in the wrong order.
        let before = self.commit_sequence.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            let value = self.read(key)?;
            if self.commit_sequence.load(Ordering::Acquire) == before {
                return Ok(value);
            }
        }
        let value = self.call("read a key", || self.database.snapshot().get(&self.pairs, key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        let Some(bounds) = bounds(range) else { return Ok(Vec::new()) };
        self.call("scan a range", || {
            let found = self.database.snapshot().range::<&[u8], _>(&self.pairs, bounds);
            pairs(found).take(max).collect()
        })
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        let _writer: MutexGuard<'_, ()> =
            self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = Changing::collect(self, body)?;
        if changes.is_empty() {
            return Ok(Ticket(self.committed.load(Ordering::Acquire)));
        }
        self.commit(changes)
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        check_ticket(ticket, self.committed.load(Ordering::Acquire))?;
        self.group.wait(ticket, || self.sync())
    }

    fn has_room(&self) -> bool {
        self.spare.has_room()
    }
}

type Changes = changing::Changes<Slice>;

impl Committed for Fjall {
    type Bytes = Slice;

    fn read_committed(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(key)
    }

    fn scan_under(&self, changes: &Changes, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        let Some(bounds) = bounds(range) else { return Ok(Vec::new()) };
        // At most `max` of each can be among the first `max` of both.
        let mut found: Vec<Pair> = self.call("scan a range", || {
            let is_unchanged = |pair: &fjall::Result<Pair>| match pair {
                Ok((key, _)) => !changes.contains_key(key.as_slice()),
                Err(_) => true,
            };
            let committed = self.pairs.range::<&[u8], _>(bounds);
            pairs(committed).filter(is_unchanged).take(max).collect()
        })?;
        let changed = changes.range::<[u8], _>(bounds);
        let written = changed.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        found.extend(written.take(max).map(|(key, value)| (key.to_vec(), value.to_vec())));
        found.sort();
        found.truncate(max);
        Ok(found)
    }
}

/// The pairs that are not ours.
fn pairs(found: fjall::Iter) -> impl Iterator<Item = fjall::Result<Pair>> {
    found.map(|guard| guard.into_inner()).filter_map(|pair| match pair {
        Ok((key, _)) if key.len() > KV_KEY_BYTES_MAX => None,
        Ok((key, value)) => Some(Ok((key.to_vec(), value.to_vec()))),
        Err(error) => Some(Err(error)),
    })
}

/// Calls the engine and turns its errors into ours. It panics on some damaged files, and on
/// everything after that; both mean the same to the caller.
fn guarded<T>(
    operation: &'static str,
    path: &Path,
    call: impl FnOnce() -> fjall::Result<T>,
) -> Result<T> {
    // The engine poisons itself where a panic left something half changed.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(translated(operation, error).with("path", path.display())),
        Err(_) => Err(Error::new(ErrorKind::Corrupt, operation)
            .because("the engine gave up, its files are damaged")
            .with("path", path.display())),
    }
}

fn translated(operation: &'static str, error: fjall::Error) -> Error {
    use std::io::ErrorKind as Os;
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(LsmError::Io(source)) => {
            match source.kind() {
                // No caller names these files or offsets: one that is missing, too short or
                // unreadable was damaged from outside.
                Os::NotFound
                | Os::AlreadyExists
                | Os::UnexpectedEof
                | Os::InvalidData
                | Os::InvalidInput => Error::new(ErrorKind::Corrupt, operation).caused_by(source),
                _ => Error::from_io(operation, source),
            }
        }
        fjall::Error::Locked => {
            Error::new(ErrorKind::Busy, operation).because("another process has it open")
        }
        fjall::Error::Poisoned => Error::new(ErrorKind::Io, operation).because(FAILED),
        fjall::Error::InvalidVersion(Some(version)) => {
            Error::new(ErrorKind::Unsupported, operation)
                .because("another version of fjall wrote it")
                .with("version", format!("{version:?}"))
        }
        other => Error::new(ErrorKind::Corrupt, operation).caused_by(other),
    }
}
