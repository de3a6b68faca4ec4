// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies and records that are being made. What they will take is reserved from the beginning.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use terrace_core::Clock;

use super::record::{CopyKey, Record};
use super::{Cache, Copy, Shared, write_all};
use crate::lock;
use crate::meta::Meta;

/// A copy that is being made. Dropped unpublished it leaves nothing.
pub(crate) struct Draft {
    pub(super) file: Option<OwnedFd>,
    path: PathBuf,
    /// The room that is reserved in the index.
    reserved: Reserved,
    shared: Arc<Shared>,
}

/// Room in the index, given back when this is dropped.
struct Reserved {
    /// `None` for records, which are counted beside the copies.
    size_bytes: Option<u64>,
    shared: Arc<Shared>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(size_bytes) = self.size_bytes {
            lock(&self.shared.index).release(size_bytes);
        }
    }
}

impl Cache {
    /// Begins a copy of so many bytes, which are reserved until it is published or dropped.
    ///
    /// # Errors
    ///
    /// `NOSPC` where there is no room beside the copies that are open or being made, those of the disk.
    pub(crate) fn draft(&self, size_bytes: u64) -> Result<Draft, Errno> {
        if !lock(&self.shared.index).may_take(size_bytes) {
            return Err(Errno::NOSPC);
        }
        // Before the room is made: no copy goes for one that cannot begin.
        let mut draft = self.record_draft()?;
        let chosen = lock(&self.shared.index).reserve(size_bytes).ok_or(Errno::NOSPC)?;
        draft.reserved.size_bytes = Some(size_bytes);
        self.shared.remove(&chosen);
        Ok(draft)
    }

    /// Begins a record of a directory or link, for which nothing is reserved.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub(super) fn record_draft(&self) -> Result<Draft, Errno> {
        let shared = &self.shared;
        if !shared.is_ready() {
            return Err(Errno::NOSPC);
        }
        let number = shared.next_draft.fetch_add(1, Ordering::Relaxed);
        let path = shared.drafts.join(number.to_string());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR);
        let file = shared.with_room(0, open)?;
        let reserved = Reserved { size_bytes: None, shared: Arc::clone(shared) };
        Ok(Draft { file: Some(file), path, reserved, shared: Arc::clone(shared) })
    }
}

impl Draft {
    pub(crate) fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Errno> {
        let file = self.file.as_ref().expect("it is open until it is published");
        self.shared.with_room(bytes.len() as u64, || write_all(file, offset_bytes, bytes))
    }

    /// Gives the copy its name: from now on it is found.
    pub(crate) fn publish(self, path: &Path, meta: &Meta) -> Result<Copy, Errno> {
        let (key, shared) = (CopyKey::of(path), Arc::clone(&self.shared));
        let size_bytes = self.reserved.size_bytes.unwrap_or_default();
        shared.counters.fetched_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        let (file, epoch) = self.publish_as(key, path, meta, None, false)?;
        Ok(Copy { file, key, epoch, shared })
    }

    /// The same for any record, also of its epoch. A copy is pinned in the index.
    pub(super) fn publish_as(
        mut self,
        key: CopyKey,
        path: &Path,
        meta: &Meta,
        link: Option<Vec<u8>>,
        is_in_blocks: bool,
    ) -> Result<(OwnedFd, u64), Errno> {
        let shared = Arc::clone(&self.shared);
        let place = shared.copies.join(key.place());
        let file = self.file.as_ref().expect("it is open until it is published");
        // What was written before the epoch began is synced at its end, too.
        let entered = shared.epochs.enter()?;
        let epoch = *entered;
        let record = Record { link, is_in_blocks, ..Record::new(path, meta, epoch) };
        shared.with_room(0, || record.write(file))?;
        shared.with_room(0, || match rustix::fs::rename(&self.path, &place) {
            Err(Errno::NOENT) => {
                let directory = place.parent().expect("copies are in directories");
                match rustix::fs::mkdir(directory, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                rustix::fs::rename(&self.path, &place)
            }
            other => other,
        })?;
        drop(entered);
        if meta.is_file() {
            lock(&shared.remembered).remove(key);
        }
        if let Some(size_bytes) = self.reserved.size_bytes.take() {
            let mut index = lock(&shared.index);
            index.release(size_bytes);
            index.add_pinned(key, size_bytes, shared.clock.wall_ns());
        }
        Ok((self.file.take().expect("it was open"), epoch))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.file.is_some() {
            // The next start removes what is left.
            let _ = fs::remove_file(&self.path);
        }
    }
}
