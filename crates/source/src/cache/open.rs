// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening a cache, also where its disk is full.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use terrace_core::{Clock, Error, ErrorKind, Result, SystemClock};

use super::control::{self, Control};
use super::epochs::Epochs;
use super::evict::Index;
use super::record::Record;
use super::{COPIES, Cache, CacheSettings, Counters, DRAFTS, LOCK, OPERATION, Shared};
use crate::lock;
use crate::meta::Meta;

/// Longest text of the lock: process and purpose.
const LOCK_BYTES_MAX: u64 = 4096;
/// A cache in use is waited for so long: a mount that ends makes its last copies durable first.
const ENDING_TIME_MAX: Duration = Duration::from_secs(5);
const ENDING_TICK: Duration = Duration::from_millis(20);
/// What the files take that a cache begins with: its state, its directories, an attribute that is tried.
const PREPARED_BYTES: u64 = 64 << 10;

impl Cache {
    /// Opens a cache, or makes one in an empty or missing directory, for a source with this identity.
    ///
    /// Where its disk is full, copies are removed for what it has to write. Where there are none it takes no copies
    /// until the disk has room.
    ///
    /// # Errors
    ///
    /// `Busy` where another process uses it (names it), `Invalid` where it belongs to another source or the
    /// directory is used for something else, `Unsupported` without extended attributes, `Denied`, `Io`.
    pub fn open(settings: &CacheSettings, source: &str) -> Result<Self> {
        let directory = &settings.directory;
        let failed = |error| Error::from_io(OPERATION, error).with("cache", directory.display());
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let directory = directory.canonicalize().map_err(failed)?;
        let state = Epochs::state_of(&directory)?;
        if state.is_none()
            && fs::read_dir(&directory).map_err(failed)?.any(|entry| !is_ours(&entry))
        {
            let reason = "the directory holds something else; name an empty one";
            return Err(Error::invalid(OPERATION, reason).with("cache", directory.display()));
        }
        let lock = take_lock(&directory, &settings.purpose)?;
        // Another process may have begun it before the lock was ours.
        let state = Epochs::state_of(&directory)?;
        if let Some(state) = state.as_ref().filter(|state| state.source != source) {
            let reason = "it holds copies of another source, or what was mounted at the source is not any more; \
                          name another directory, or remove this one";
            return Err(Error::invalid(OPERATION, reason)
                .with("cache", directory.display())
                .with("of", format!("{:?}", state.source))
                .with("source", format!("{source:?}")));
        }
        let (copies, drafts) = (directory.join(COPIES), directory.join(DRAFTS));
        let _ = fs::remove_dir_all(&drafts);
        let epochs = Epochs::begin(&directory, source, state)?;
        let free_bytes = free_bytes(&directory).map_err(|errno| failed(errno.into()))?;
        let index = Index::new(settings.bytes_max, free_bytes);
        let shared = Arc::new(Shared {
            directory,
            copies,
            drafts,
            purpose: settings.purpose.clone(),
            next_draft: AtomicU64::new(0),
            epochs,
            is_ready: AtomicBool::new(false),
            index: Mutex::new(index),
            open_blocks: Mutex::default(),
            remembered: Mutex::default(),
            counters: Counters::default(),
            clock: SystemClock::default(),
            _lock: lock,
        });
        match shared.prepare() {
            Err(full) if is_full(&full) => {
                shared.scan(&|| false);
                match shared.prepare_again() {
                    Err(error) if is_full(&error) => tracing::warn!(
                        error = error.chain(),
                        cache = %shared.directory.display(),
                        "the disk of the cache is full with other files: no copies are made until it has room"
                    ),
                    prepared => prepared?,
                }
            }
            prepared => prepared?,
        }
        let control = Control::start(&shared);
        let mut cache = Self { shared, control, background: Vec::new(), stop: None };
        cache.start_background().map_err(failed)?;
        Ok(cache)
    }
}

impl Shared {
    /// Whether copies can be made: the state that they need is on the disk.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Writes what has to be on the disk before the first copy.
    fn prepare(&self) -> Result<()> {
        for path in [&self.copies, &self.drafts] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| Error::from_io(OPERATION, error).with("cache", path.display()))?;
        }
        check_attributes(&self.drafts)?;
        self.epochs.save()?;
        self.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Does it once more after it has failed on a full disk, in the place of copies.
    ///
    /// # Errors
    ///
    /// Those of the disk, which may be that it is full again.
    pub(super) fn prepare_again(&self) -> Result<()> {
        let mut prepared = self.prepare();
        if prepared.as_ref().is_err_and(is_full) {
            let chosen = lock(&self.index).choose_to_free(PREPARED_BYTES);
            self.remove(&chosen);
            prepared = self.prepare();
        }
        prepared?;
        if let Ok(free_bytes) = free_bytes(&self.directory) {
            lock(&self.index).set_free_bytes(free_bytes);
        }
        tracing::warn!(
            cache = %self.directory.display(),
            "the disk of the cache was full: the cache has room again"
        );
        Ok(())
    }
}

fn free_bytes(directory: &Path) -> std::result::Result<u64, Errno> {
    let found = rustix::fs::statvfs(directory)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether a file could not be written because its disk, or the quota there, is full.
fn is_full(error: &Error) -> bool {
    let errno = error.os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| matches!(errno, Errno::NOSPC | Errno::DQUOT))
}

fn is_ours(entry: &io::Result<fs::DirEntry>) -> bool {
    // A process that ended while it made a cache has left these.
    let names = [LOCK, COPIES, DRAFTS, control::SOCKET, "cache.next"];
    entry.as_ref().is_ok_and(|entry| names.iter().any(|name| entry.file_name() == *name))
}

fn take_lock(directory: &Path, purpose: &str) -> Result<File> {
    let path = directory.join(LOCK);
    let failed = |error| Error::from_io(OPERATION, error).with("file", path.display());
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    let clock = SystemClock::default();
    let begun_ns = clock.now_ns();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        let waited_ns = clock.now_ns().saturating_sub(begun_ns);
        if Duration::from_nanos(waited_ns) >= ENDING_TIME_MAX {
            let mut holder = String::new();
            let _ = (&file).take(LOCK_BYTES_MAX).read_to_string(&mut holder);
            return Err(Error::new(ErrorKind::Busy, OPERATION)
                .because(format!("another process uses it: {}", holder.trim_end()))
                .with("cache", directory.display()));
        }
        clock.sleep(ENDING_TICK);
    }
    let text = format!("process={} purpose={purpose:?}\n", std::process::id());
    file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
    match file.write_all(text.as_bytes()).map_err(failed) {
        // It is locked. Another process that wants it cannot name this one.
        Err(error) if is_full(&error) => Ok(file),
        written => written.map(|()| file),
    }
}

fn check_attributes(drafts: &Path) -> Result<()> {
    let path = drafts.join("attributes");
    let failed = |error| Error::from_io(OPERATION, error).with("file", path.display());
    let file = File::create(&path).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
    let written = Record::new(Path::new(""), &Meta::of(&stat), 0).write(&file);
    let _ = fs::remove_file(&path);
    written.map_err(|errno| match errno {
        Errno::OPNOTSUPP => Error::new(ErrorKind::Unsupported, OPERATION)
            .because("its file system has no extended attributes (user.*)")
            .with("cache", drafts.display()),
        errno => failed(errno.into()),
    })
}
