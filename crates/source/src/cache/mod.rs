// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of a source's files in a directory of the local disk.
//!
//! A copy is a file of its own, as long as the original, named by a hash of the path, with a record of what it
//! is a copy of in an extended attribute. It gets its name when it is complete. All copies are clean: any of
//! them may be removed at any time.

mod blocks;
mod control;
mod draft;
mod epochs;
mod evict;
mod open;
mod record;
mod remembered;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use terrace_core::{Clock, SystemClock};

pub(crate) use self::blocks::{BLOCK_BYTES, Blocks, Claim};
use self::control::Control;
pub use self::control::{CacheStatus, evict};
use self::epochs::Epochs;
use self::evict::Index;
use self::record::{CopyKey, Record};
use self::remembered::Remembered;
use crate::lock;
use crate::meta::Meta;

const OPERATION: &str = "open the cache";
/// Below the cache: copies, those that are being made, the lock.
const COPIES: &str = "copies";
const DRAFTS: &str = "drafts";
const LOCK: &str = "lock";
/// How often what was written is made durable.
const SYNC_PERIOD: Duration = Duration::from_secs(30);
/// The time of a copy's last use is written to the disk this often, for the order after a restart.
const USE_PERIOD_NS: u64 = 600 * 1_000_000_000;
/// Longest file that is copied as a whole; longer ones are copied in blocks.
pub(crate) const WHOLE_BYTES_MAX: u64 = 8 << 20;
/// Where a cache is, and how large it may become.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// Its directory, which is made where it is missing.
    pub directory: PathBuf,
    /// The most that its copies take; four fifths of what is free on the device by default.
    pub bytes_max: Option<u64>,
    /// What it is used for, for other processes that want it.
    pub purpose: String,
}

/// Copies of a source's files. One process uses it at a time.
pub struct Cache {
    shared: Arc<Shared>,
    control: Option<Control>,
    background: Vec<JoinHandle<()>>,
    /// Dropped to end the threads in the background.
    stop: Option<Sender<()>>,
}

struct Shared {
    directory: PathBuf,
    copies: PathBuf,
    drafts: PathBuf,
    /// What it is used for.
    purpose: String,
    next_draft: AtomicU64,
    epochs: Epochs,
    /// Whether copies can be made: not yet where the disk was full when the cache was opened.
    is_ready: AtomicBool,
    index: Mutex<Index>,
    /// The copies in blocks that are open. Locked before the index.
    open_blocks: Mutex<HashMap<CopyKey, Weak<Blocks>>>,
    /// The records of directories and links.
    remembered: Mutex<Remembered>,
    counters: Counters,
    clock: SystemClock,
    /// Locked as long as this process uses the cache.
    _lock: File,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    fetched_bytes: AtomicU64,
    evicted: AtomicU64,
    refused: AtomicU64,
}

/// What a cache holds, and what it was good for since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Bytes that its copies take.
    pub used_bytes: u64,
    /// The most that they may take.
    pub bytes_max: u64,
    /// Copies.
    pub copies: u64,
    /// Whether the copies of earlier processes are counted already.
    pub is_counted: bool,
    /// Opens of files of which there was a copy.
    pub hits: u64,
    /// Opens of files of which there was none.
    pub misses: u64,
    /// Bytes that were read from the source for copies.
    pub fetched_bytes: u64,
    /// Copies that were removed for others.
    pub evicted: u64,
    /// Files that were read past the cache because it could not take them.
    pub refused: u64,
}

/// A copy that is open; it is not evicted as long as this lives.
pub(crate) struct Copy {
    pub(crate) file: OwnedFd,
    /// That of its record.
    pub(crate) epoch: u64,
    key: CopyKey,
    shared: Arc<Shared>,
}

impl Copy {
    /// Reads from a whole copy, within its length.
    ///
    /// # Errors
    ///
    /// `EIO` where the copy is void or shorter. Those of the disk.
    pub(crate) fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        self.read_part(offset_bytes, buffer)?;
        // After the read: pages that were lost before the last failed sync are not served.
        self.shared.epochs.is_trusted(self.epoch).then_some(()).ok_or(Errno::IO)
    }

    /// Reads from the copy, whether or not it is void.
    fn read_part(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        match read_all(&self.file, offset_bytes, buffer)? {
            read if read == buffer.len() => Ok(()),
            _ => Err(Errno::IO),
        }
    }

    /// Removes the copy of a path, which cannot be read: the next open makes another one.
    pub(crate) fn discard(&self, path: &Path, errno: Errno) {
        tracing::warn!(
            %errno,
            path = %path.display(),
            cache = %self.shared.directory.display(),
            "a copy cannot be read and is dropped: its file is read from the source"
        );
        let place = self.shared.copies.join(self.key.place());
        // Another one may have taken its place.
        let is_own = rustix::fs::stat(&place).and_then(|there| {
            let own = rustix::fs::fstat(&self.file)?;
            Ok((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino))
        });
        if is_own == Ok(true) {
            self.shared.remove_by_name(self.key);
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        lock(&self.shared.index).unpin(self.key);
    }
}

impl Cache {
    fn start_background(&mut self) -> io::Result<()> {
        let (stop, stopped) = channel::<()>();
        let shared = Arc::clone(&self.shared);
        let work = move || {
            // On a full disk they have been counted already.
            let is_counted = lock(&shared.index).is_counted();
            if !is_counted {
                shared.scan(&|| stopped.try_recv() == Err(TryRecvError::Disconnected));
            }
            while stopped.recv_timeout(SYNC_PERIOD) == Err(RecvTimeoutError::Timeout) {
                if !shared.is_ready()
                    && let Err(error) = shared.prepare_again()
                {
                    tracing::debug!(error = error.chain(), "the cache is not ready");
                }
                shared.sync();
            }
        };
        let thread = thread::Builder::new().name("terrace-cache".into()).spawn(work)?;
        self.background.push(thread);
        self.stop = Some(stop);
        Ok(())
    }

    /// Its directory, absolute.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// What it holds, and what it was good for.
    pub fn report(&self) -> CacheReport {
        self.shared.report()
    }

    /// Whether copies of an epoch are whole.
    pub(crate) fn is_trusted(&self, epoch: u64) -> bool {
        self.shared.epochs.is_trusted(epoch)
    }

    /// The copy of a file in this state, if there is one.
    pub(crate) fn find(&self, path: &Path, meta: &Meta) -> Option<Copy> {
        let found = self.shared.find(CopyKey::of(path), meta)?;
        self.note_hit();
        Some(found)
    }

    /// How many bytes of a file in this state are in the cache.
    pub(crate) fn cached_bytes(&self, path: &Path, meta: &Meta) -> u64 {
        let found = self.shared.open_copy(CopyKey::of(path));
        match found.filter(|(_, record)| record.meta.is_same_state(meta)) {
            None => 0,
            Some((_, record)) if !record.is_in_blocks => meta.size_bytes,
            Some((file, _)) => {
                let present = self.shared.map(&file, meta.size_bytes).unwrap_or_default();
                let bytes = present.iter().enumerate().filter(|(_, is_there)| **is_there);
                let left = |block: usize| meta.size_bytes - block as u64 * BLOCK_BYTES;
                bytes.map(|(block, _)| left(block).min(BLOCK_BYTES)).sum()
            }
        }
    }

    /// What is known of a path from an earlier time, for a source that does not answer.
    pub(crate) fn recall(&self, path: &Path) -> Option<(Meta, Option<Vec<u8>>)> {
        let (_, record) = self.shared.open_copy(CopyKey::of(path))?;
        Some((record.meta, record.link))
    }

    /// Removes what is known of a path from an earlier time where the source has returned another state since,
    /// or none: it is not to come back when the source does not answer.
    pub(crate) fn void_other(&self, path: &Path, found: Option<&Meta>) {
        let (key, shared) = (CopyKey::of(path), &self.shared);
        let Some((_, record)) = shared.open_copy(key) else { return };
        if found.is_some_and(|meta| record.meta.is_same_inode(meta)) {
            return;
        }
        // A copy that another caller has made of a newer state meanwhile is made again.
        shared.remove_by_name(key);
    }

    /// Notes that a file was opened of which there is a copy.
    pub(crate) fn note_hit(&self) {
        self.shared.counters.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a file was opened of which there is none.
    pub(crate) fn note_miss(&self) {
        self.shared.counters.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a file was read past the cache.
    pub(crate) fn note_refused(&self) {
        self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps the attributes of a directory or a link for the time when the source does not answer. Failing
    /// is no error: then they are not known in that time.
    pub(crate) fn remember(&self, path: &Path, meta: &Meta, link: Option<Vec<u8>>) {
        let (key, shared) = (CopyKey::of(path), &self.shared);
        let now_ns = shared.clock.wall_ns();
        let epoch = lock(&shared.remembered).epoch_of(key, meta, now_ns);
        if epoch.is_some_and(|epoch| shared.epochs.is_trusted(epoch)) {
            return;
        }
        let draft = self.record_draft();
        let kept = draft.and_then(|draft| draft.publish_as(key, path, meta, link, false));
        if let Ok((_, epoch)) = kept {
            // What was there as a copy is none any more.
            lock(&shared.index).remove(key);
            let count_max = Remembered::count_max(lock(&shared.index).bytes_max());
            let chosen = lock(&shared.remembered).add(key, meta, epoch, now_ns, count_max);
            shared.forget(&chosen);
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        drop(self.control.take());
        drop(self.stop.take());
        for thread in self.background.drain(..) {
            let _ = thread.join();
        }
        self.shared.sync();
    }
}

impl Shared {
    fn report(&self) -> CacheReport {
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let index = lock(&self.index);
        CacheReport {
            used_bytes: index.used_bytes(),
            bytes_max: index.bytes_max(),
            copies: index.len() as u64,
            is_counted: index.is_counted(),
            hits: load(&counters.hits),
            misses: load(&counters.misses),
            fetched_bytes: load(&counters.fetched_bytes),
            evicted: load(&counters.evicted),
            refused: load(&counters.refused),
        }
    }

    fn open_copy(&self, key: CopyKey) -> Option<(OwnedFd, Record)> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let place = self.copies.join(key.place());
        let file = rustix::fs::openat(CWD, &place, flags, Mode::empty()).ok()?;
        let record = Record::read(&file).ok().flatten()?;
        self.epochs.is_trusted(record.epoch).then_some((file, record))
    }

    fn find(self: &Arc<Self>, key: CopyKey, meta: &Meta) -> Option<Copy> {
        let (file, record) = self.open_copy(key)?;
        if record.is_in_blocks || !record.meta.is_same_state(meta) {
            return None;
        }
        let size_bytes = rustix::fs::fstat(&file).ok()?.st_size.cast_unsigned();
        if size_bytes != meta.size_bytes {
            return None;
        }
        let now_ns = self.clock.wall_ns();
        if lock(&self.index).use_pinned(key, size_bytes, now_ns, USE_PERIOD_NS) {
            let now = Timespec {
                tv_sec: (now_ns / 1_000_000_000).cast_signed(),
                tv_nsec: (now_ns % 1_000_000_000).cast_signed(),
            };
            let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let times = Timestamps { last_access: now, last_modification: omitted };
            // The order after a restart is a little worse where this fails.
            let _ = rustix::fs::futimens(&file, &times);
        }
        Some(Copy { file, epoch: record.epoch, key, shared: Arc::clone(self) })
    }

    /// Makes durable what was written.
    fn sync(&self) {
        if !self.is_ready() {
            return;
        }
        // Before the epoch ends: nothing is lost where the directory cannot be opened.
        let directory = match File::open(&self.copies) {
            Ok(directory) => directory,
            Err(error) => {
                tracing::warn!(%error, cache = %self.directory.display(),
                    "the cache cannot be synced now: its last copies are durable after the next sync");
                return;
            }
        };
        self.end_epoch(|| Ok(rustix::fs::syncfs(directory.as_fd())?));
    }

    /// Ends an epoch, of which `sync` makes durable what was written.
    fn end_epoch(&self, sync: impl FnOnce() -> io::Result<()>) {
        if let Err(error) = self.epochs.end(sync) {
            let open: Vec<_> = lock(&self.open_blocks).values().filter_map(Weak::upgrade).collect();
            // The last reference takes the lock of the map when it is dropped.
            open.iter().for_each(|blocks| blocks.drop_void());
            tracing::warn!(%error, cache = %self.directory.display(),
                "the cache cannot be synced: its last copies are fetched again");
        }
    }

    /// Removes copies that have not been used for longest until there is room for so many bytes.
    fn make_room(&self, bytes: u64) {
        let chosen = lock(&self.index).choose(bytes);
        self.remove(&chosen);
    }

    /// Does a step of making a copy that needs so many bytes. Where the disk is full, also with what others wrote
    /// there, copies are removed for them, and the step is done once more.
    fn with_room<T>(&self, bytes: u64, step: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        let full = match step() {
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => errno,
            other => return other,
        };
        let chosen = lock(&self.index).choose_to_free(bytes);
        if chosen.is_empty() {
            return Err(full);
        }
        self.remove(&chosen);
        step()
    }

    /// Removes the copy or record of a path. The next one is made only when this one has no name any more.
    fn remove_by_name(&self, key: CopyKey) {
        let mut open = lock(&self.open_blocks);
        open.remove(&key);
        lock(&self.index).remove(key);
        lock(&self.remembered).remove(key);
        let _ = fs::remove_file(self.copies.join(key.place()));
    }

    /// Removes copies that were taken out of the index.
    fn remove(&self, chosen: &[CopyKey]) {
        for key in chosen {
            self.counters.evicted.fetch_add(1, Ordering::Relaxed);
            let _ = fs::remove_file(self.copies.join(key.place()));
        }
    }

    /// Removes records of directories and links that were taken out of those remembered.
    fn forget(&self, chosen: &[CopyKey]) {
        for key in chosen {
            let _ = fs::remove_file(self.copies.join(key.place()));
        }
    }

    /// Counts what earlier processes have left.
    fn scan(&self, is_stopped: &dyn Fn() -> bool) {
        let visited = each_file(&self.copies, is_stopped, &mut |key, bytes, used_ns| match bytes {
            Some(bytes) => lock(&self.index).add_found(key, bytes, used_ns),
            None => lock(&self.remembered).add_found(key, used_ns),
        });
        if let Err(error) = visited {
            tracing::warn!(%error, cache = %self.directory.display(), "the cache cannot be counted");
        }
        let count_max = {
            let mut index = lock(&self.index);
            index.set_counted();
            Remembered::count_max(index.bytes_max())
        };
        self.make_room(0);
        let chosen = lock(&self.remembered).take_out(count_max);
        self.forget(&chosen);
    }

    /// Removes the copies of files at or below a path of the source; of all for the empty path. Copies that are
    /// open stay readable. Returns how many were removed, and the bytes that they had.
    fn evict(&self, path: &Path, is_stopped: &dyn Fn() -> bool) -> io::Result<(u64, u64)> {
        let own = CopyKey::of(path);
        let record_of = |key: CopyKey| {
            let file = File::open(self.copies.join(key.place())).ok()?;
            Record::read(&file).ok().flatten().filter(|record| record.meta.is_file())
        };
        let mut chosen = Vec::new();
        if record_of(own).is_some() {
            // Nothing is below a file.
            chosen.push(own);
        } else {
            // Records have paths as text.
            let above = PathBuf::from(path.to_string_lossy().into_owned());
            each_file(&self.copies, is_stopped, &mut |key, bytes, _| {
                if bytes.is_some()
                    && record_of(key).is_some_and(|record| record.may_be_below(&above))
                {
                    chosen.push(key);
                }
            })?;
        }
        let (mut count, mut bytes) = (0, 0);
        for key in chosen {
            let place = self.copies.join(key.place());
            // The next open makes a new one, but not before this one has no name any more.
            let mut open = lock(&self.open_blocks);
            open.remove(&key);
            // First, so that a copy that is made meanwhile is counted rather twice than not at all.
            lock(&self.index).remove(key);
            let found = fs::metadata(&place);
            match fs::remove_file(&place) {
                Ok(()) => {
                    count += 1;
                    bytes += found.map_or(0, |found| filled_bytes(&found));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok((count, bytes))
    }
}

/// Visits the files of a directory of copies: the key, the bytes of a copy that are there, or `None` for the record
/// of a directory or link, the time of the last use.
fn each_file(
    copies: &Path,
    is_stopped: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(CopyKey, Option<u64>, u64),
) -> io::Result<()> {
    for directory in fs::read_dir(copies)? {
        let directory = directory?;
        for entry in fs::read_dir(directory.path())? {
            if is_stopped() {
                return Ok(());
            }
            let entry = entry?;
            let (parent, name) = (directory.file_name(), entry.file_name());
            let names = parent.to_str().zip(name.to_str());
            let key = names.and_then(|(parent, name)| CopyKey::of_place(parent, name));
            // One that was evicted meanwhile is not counted.
            if let Some((key, found)) = key.zip(entry.metadata().ok()) {
                // Records of directories and links have no bytes.
                let is_copy = found.len() > 0 || is_file(&entry.path());
                visit(key, is_copy.then(|| filled_bytes(&found)), found.accessed_ns());
            }
        }
    }
    Ok(())
}

/// The bytes of a copy that are there: one in blocks has holes.
fn filled_bytes(found: &fs::Metadata) -> u64 {
    found.len().min(found.blocks() * 512)
}

fn write_all(file: impl AsFd, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(&file, &bytes[done..], offset_bytes + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Reads up to the end of the file; how much.
fn read_all(file: impl AsFd, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(&file, &mut buffer[done..], offset_bytes + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

trait AccessedNs {
    fn accessed_ns(&self) -> u64;
}

impl AccessedNs for fs::Metadata {
    fn accessed_ns(&self) -> u64 {
        let seconds = u64::try_from(self.atime()).unwrap_or_default();
        seconds.saturating_mul(1_000_000_000).saturating_add(self.atime_nsec().cast_unsigned())
    }
}

fn is_file(place: &Path) -> bool {
    let record = File::open(place).ok().and_then(|file| Record::read(&file).ok().flatten());
    record.is_some_and(|record| record.meta.is_file())
}
