// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value pairs in a directory, kept by the mapped B-tree LMDB behind a journal of ours.
//!
//! A durable commit of LMDB costs two syncs of the disk, and one that is not durable can cost the
//! whole tree in a loss of power (`tree`). So a commit goes into a journal and into memory, where
//! reads find it; many together are written to the tree in one go, by a thread, and leave the
//! journal. What has to hold:
//!
//! - The journal is durable before the tree learns of its commits: the tree gets them in several
//!   steps, and a crash between two is mended by writing all of them again.
//! - The journal is emptied after the tree has all of its commits, durably.
//! - Changes stay in memory, over the tree, until then: readers never see a part.

mod engine;
mod journal;
mod merge;
#[cfg(test)]
mod power_loss;
#[cfg(test)]
mod tests;
mod tree;

use std::fs::{File, TryLockError};
use std::iter::once;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};

use terrace_core::{
    Error, ErrorKind, Failpoints, Kv, KvRange, Pair, Persistency, Result, Ticket, Txn,
};

use self::engine::{Engine, Limits, State};
use self::journal::{Changes, Journal, encode};
use self::tree::Tree;
use super::changing::{Changing, Committed};
use super::group_sync::GroupSync;
use super::spare::{self, Spare};
use super::sync_mark::SyncMark;
use super::{check_key, check_ticket};

const OPENING: &str = "open the lmdb engine";

/// Holds the number of the last commit that was durable.
const DURABLE_MARK: &str = "synced";

/// Holds the length of the tree's file.
const LENGTH_MARK: &str = "data-bytes";

/// One takes commits while those of the other are written to the tree.
const JOURNALS: [&str; 2] = ["journal-0", "journal-1"];

/// The buffer that commits are written from keeps this much.
const RECORD_BYTES_KEPT: usize = 1 << 20;

const LIMITS: Limits = Limits {
    // 70 000 catalog records.
    changes_bytes: 16 << 20,
    journal_bytes: 16 << 20,
    // 8 MiB of pages where every change is on another one.
    step_changes: 2048,
    map_bytes: 4 << 30,
};

/// Keeps pairs in a directory.
///
/// - Commits reach the operating system before they are acknowledged.
/// - A full disk fails commits until there is room. After any other error of the disk it takes no
///   more of them until it is opened again.
pub struct Lmdb {
    engine: Arc<Engine>,
    /// Held through a transaction, which therefore sees no other changes.
    writer: Mutex<Writer>,
    spare: Spare,
}

struct Writer {
    /// The record of a commit.
    record: Vec<u8>,
    /// Writes frozen changes to the tree.
    applying: Option<JoinHandle<Result<()>>>,
}

/// Opens a directory, which is made where it is missing.
pub(super) fn open(path: &Path) -> Result<Arc<dyn Kv>> {
    Ok(Arc::new(Lmdb::open(path)?))
}

impl Lmdb {
    /// Opens a directory, which is made where it is missing.
    ///
    /// # Errors
    ///
    /// `Busy` (another process has it open), `Corrupt` (damaged files, or durable commits are
    /// missing), `Unsupported` (written by another version of LMDB), `Denied`, `NoSpace`, `Io`.
    pub fn open(path: &Path) -> Result<Self> {
        spare::with_all(path, || Self::open_within(path, LIMITS, Failpoints::default()))
    }

    fn open_within(path: &Path, limits: Limits, failpoints: Failpoints) -> Result<Self> {
        let failed = |source| Error::from_io(OPENING, source).with("path", path.display());
        std::fs::create_dir_all(path).map_err(failed)?;
        let directory = File::open(path).map_err(failed)?;
        // The lock belongs to this opening, so that it excludes the same process too.
        directory.try_lock().map_err(|error| match error {
            TryLockError::Error(source) => failed(source),
            TryLockError::WouldBlock => Error::new(ErrorKind::Busy, OPENING)
                .because("it is open already, here or in another process")
                .with("path", path.display()),
        })?;
        let spare = Spare::open(path);
        let (durable_mark, durable) = SyncMark::open(path, DURABLE_MARK)?;
        let (length_mark, length_bytes) = SyncMark::open(path, LENGTH_MARK)?;
        let missing_journal = JOURNALS.iter().find(|name| !path.join(name).exists());
        let has_journals = missing_journal.is_none();
        // Where its file is missing LMDB would begin anew, and read beyond the end of a cut one.
        let file_bytes = path.join(tree::FILE_NAME).metadata().map_or(0, |file| file.len());
        if file_bytes < length_bytes || (has_journals && file_bytes == 0) {
            return Err(damaged(path, "a part of its tree is missing")
                .with("file", tree::FILE_NAME)
                .with("file_bytes", file_bytes)
                .with("expected_bytes", length_bytes));
        }
        // Its making was cut off, by a crash or a full disk: LMDB would take it for another file. Journals come later.
        if !JOURNALS.iter().any(|name| path.join(name).exists())
            && (1..tree::file_bytes_min()).contains(&file_bytes)
        {
            std::fs::remove_file(path.join(tree::FILE_NAME)).map_err(failed)?;
        }
        let tree = Tree::open(path, limits.map_bytes, &directory)?;
        let applied = tree.applied()?;
        if let Some(name) = missing_journal.filter(|_| durable.max(applied) > 0) {
            return Err(damaged(path, "a journal is missing").with("file", name));
        }
        let journals =
            [Journal::open(path.join(JOURNALS[0]))?, Journal::open(path.join(JOURNALS[1]))?];
        // The names of new files; the caller that made the path makes the parent's part durable.
        directory.sync_all().map_err(failed)?;
        let (changes, last) = replayed(&journals, applied)?;
        if last < durable {
            return Err(damaged(path, "durable commits are missing, its journal is damaged")
                .with("last_commit", last)
                .with("expected_commit", durable));
        }
        let engine = Engine {
            tree: RwLock::new(tree),
            journals,
            state: RwLock::new(State::after(last)),
            group: GroupSync::default(),
            durable_mark,
            length_mark,
            limits,
            target: format!("lmdb:{}", path.display()),
            failpoints,
            _lock: directory,
        };
        engine.journals.iter().try_for_each(Journal::sync)?;
        if last > applied {
            engine.apply(&changes, last)?;
        }
        let filled = engine.journals.iter().filter(|journal| journal.bytes() > 0);
        for journal in filled {
            journal.reset()?;
        }
        engine.length_mark.write(engine.tree().file_bytes()?)?;
        let writer = Writer { record: Vec::new(), applying: None };
        Ok(Self { engine: Arc::new(engine), writer: Mutex::new(writer), spare })
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A body that panics leaves the writer as it was.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit(&self, writer: &mut Writer, changes: Changes) -> Result<Ticket> {
        let engine = &self.engine;
        self.spare.look();
        self.make_room(writer)?;
        engine.journals.iter().try_for_each(Journal::check)?;
        let (sequence, journal) = {
            let state = engine.state();
            (state.committed + 1, &engine.journals[state.active_journal])
        };
        encode(sequence, &changes, &mut writer.record);
        let appended = journal.append(&writer.record);
        writer.record.shrink_to(RECORD_BYTES_KEPT);
        appended?;
        let mut state = engine.state_mut();
        for (key, value) in changes {
            state.insert(key, value);
        }
        state.committed = sequence;
        Ok(Ticket(sequence))
    }

    /// Has full changes written to the tree, and begins new ones. Waits where the last are not
    /// there yet; where they failed, it tries once more per commit.
    fn make_room(&self, writer: &mut Writer) -> Result<()> {
        let engine = &self.engine;
        if !engine.is_full() {
            return Ok(());
        }
        loop {
            if let Some(applying) = writer.applying.take() {
                applying.join().unwrap_or_else(|_| {
                    Err(Error::new(ErrorKind::Io, "commit").because("a thread of ours panicked"))
                })?;
            }
            let has_room = engine.freeze();
            let applier = Arc::clone(engine);
            let thread = thread::Builder::new().name("terrace-lmdb".into());
            let applying = thread.spawn(move || {
                terrace_affinity::roam();
                applier.apply_frozen()
            });
            writer.applying = Some(applying.map_err(|source| Error::from_io("commit", source))?);
            if has_room {
                return Ok(());
            }
        }
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        if let Some(applying) = self.writer().applying.take() {
            // What it could not write is in the journal.
            let _ = applying.join();
        }
        // Only to notice damage later; callers that need durable commits have waited for them.
        let last = Ticket(self.engine.state().committed);
        let _ = self.engine.group.wait(last, || self.engine.sync());
    }
}

impl Kv for Lmdb {
    fn target(&self) -> &str {
        &self.engine.target
    }

    fn persistency(&self) -> Persistency {
        Persistency::Storage
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        self.engine.get(key)
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.engine.scan_under(&Changes::new(), range, max)
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        let mut writer = self.writer();
        let changes = Changing::collect(&*self.engine, body)?;
        if changes.is_empty() {
            return Ok(Ticket(self.engine.state().committed));
        }
        self.commit(&mut writer, changes)
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        check_ticket(ticket, self.engine.state().committed)?;
        self.spare.look();
        self.engine.group.wait(ticket, || self.engine.sync())
    }

    fn has_room(&self) -> bool {
        self.spare.has_room()
    }
}

/// What the journals have beyond the commit `applied`, and the last commit's number. It ends at
/// the first gap: after a loss of power a journal may have kept less than the one after it.
fn replayed(journals: &[Journal], applied: u64) -> Result<(Changes, u64)> {
    let mut logs = Vec::new();
    for journal in journals {
        let mut records = journal.records()?;
        if let Some(first) = records.next().transpose()? {
            logs.push((first, records));
        }
    }
    logs.sort_by_key(|((sequence, _), _)| *sequence);
    let (mut changes, mut last) = (Changes::new(), applied);
    for (first, records) in logs {
        for record in once(Ok(first)).chain(records) {
            let (sequence, commit) = record?;
            if sequence == last + 1 {
                // Not `append`, which makes the whole map anew each time.
                changes.extend(commit);
                last = sequence;
            }
        }
    }
    Ok((changes, last))
}

fn damaged(path: &Path, reason: &str) -> Error {
    Error::new(ErrorKind::Corrupt, OPENING).because(reason).with("path", path.display())
}
