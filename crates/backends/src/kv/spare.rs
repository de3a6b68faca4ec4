// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room on the disk of an engine that is kept for it.
//!
//! An engine that finds its disk full takes no more commits, and without commits nothing can be
//! removed that would make room. Others fill the same disk: the tiers of the store, whose files the
//! kernel may write to past it. So a file beside the engine takes up some room, and gives it back
//! piece by piece where no more than that is left; meanwhile the engine says that it has no room to
//! grow.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::FallocateFlags;
use terrace_core::{Clock, ErrorKind, Result, SystemClock};

/// The file that takes up the room.
const NAME: &str = "spare";

/// What it takes up: enough for two full memtables of fjall, or as many changes of LMDB.
const BYTES_MAX: u64 = 32 << 20;

/// At most such a part of its file system.
const PART: u64 = 16;

/// The blocks in which room is given back.
const BLOCK_BYTES: u64 = 64 << 10;

/// As statfs(2) names it.
const BTRFS: u64 = 0x9123_683e;

/// Faster than this no disk is filled, so that much room need not be looked at soon again.
const FILLED_BYTES_PER_NS_MAX: u64 = 20;

/// Opens an engine; once more with all that is kept beside it where its disk is too full for what it
/// has to write.
pub(super) fn with_all<T>(directory: &Path, open: impl Fn() -> Result<T>) -> Result<T> {
    let opened = open();
    let is_full = matches!(&opened, Err(error) if error.kind() == ErrorKind::NoSpace);
    let file =
        is_full.then(|| File::options().write(true).open(directory.join(NAME)).ok()).flatten();
    match file.map(|file| file.set_len(0)) {
        Some(Ok(())) => open(),
        _ => opened,
    }
}

/// The room that is kept.
pub(super) struct Spare {
    directory: PathBuf,
    /// `None` where it cannot be made: then nothing is kept.
    file: Option<File>,
    /// What is to be kept.
    whole_bytes: u64,
    /// Held while it is looked at.
    looking: Mutex<()>,
    is_scarce: AtomicBool,
    clock: SystemClock,
    /// When to look again.
    due_ns: AtomicU64,
}

impl Spare {
    /// Keeps room beside an engine that is about to be opened, or gives it what it has kept before.
    pub(super) fn open(directory: &Path) -> Self {
        // What is wrong with the directory, the engine says.
        let _ = std::fs::create_dir_all(directory);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(NAME))
            .ok();
        let whole_bytes = rustix::fs::statvfs(directory).map_or(0, |all| {
            let bytes = (all.f_blocks * all.f_frsize / PART).min(BYTES_MAX);
            bytes - bytes % BLOCK_BYTES
        });
        let spare = Self {
            directory: directory.into(),
            file,
            whole_bytes,
            looking: Mutex::default(),
            is_scarce: AtomicBool::new(false),
            clock: SystemClock::default(),
            due_ns: AtomicU64::new(0),
        };
        spare.look();
        spare
    }

    /// Whether there is room for more than what makes room.
    pub(super) fn has_room(&self) -> bool {
        if self.is_scarce.load(Ordering::Relaxed) {
            self.look();
        }
        !self.is_scarce.load(Ordering::Relaxed)
    }

    /// Sees to it that there is room for a commit, as far as it was kept.
    pub(super) fn look(&self) {
        let now_ns = self.clock.now_ns();
        if now_ns < self.due_ns.load(Ordering::Relaxed) {
            return;
        }
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(file), Some(mut available_bytes)) = (&self.file, self.available()) else {
            return;
        };
        // The file has it: a process that tries to open the engine as well comes by here before it
        // is refused.
        let mut kept_bytes = file.metadata().map_or(0, |file| file.blocks() * 512);
        let least_bytes = self.whole_bytes / 2;
        let missing_bytes = self.whole_bytes.saturating_sub(kept_bytes);
        if available_bytes < least_bytes && kept_bytes > 0 {
            let wanted_bytes = (least_bytes - available_bytes).next_multiple_of(BLOCK_BYTES);
            let left_bytes = kept_bytes.saturating_sub(wanted_bytes);
            if file.set_len(left_bytes).is_ok() {
                available_bytes += kept_bytes - left_bytes;
                kept_bytes = left_bytes;
            }
        } else if missing_bytes > 0 && available_bytes >= missing_bytes + self.whole_bytes {
            // Where the file system cannot do that, the rest of this works without.
            let range = (kept_bytes, missing_bytes);
            if rustix::fs::fallocate(file, FallocateFlags::empty(), range.0, range.1).is_ok() {
                available_bytes -= missing_bytes;
                kept_bytes = self.whole_bytes;
            }
        }
        let is_scarce = available_bytes + kept_bytes < self.whole_bytes + least_bytes;
        self.is_scarce.store(is_scarce, Ordering::Relaxed);
        let pause_ns = match available_bytes / 4 > self.whole_bytes {
            true => (available_bytes / FILLED_BYTES_PER_NS_MAX).min(1_000_000_000),
            false => 0,
        };
        self.due_ns.store(now_ns + pause_ns, Ordering::Relaxed);
    }

    /// What the file system has available to this process. Of btrfs that is more than there is while
    /// others write to it.
    fn available(&self) -> Option<u64> {
        let all = rustix::fs::statfs(&self.directory).ok()?;
        // btrfs calls free what it keeps for itself.
        let is_all = rustix::process::geteuid().is_root() && all.f_type as u64 != BTRFS;
        let blocks = if is_all { all.f_bfree } else { all.f_bavail };
        Some(blocks * all.f_bsize as u64)
    }
}
