// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open file as an object.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, retry_on_intr};
use terrace_core::{
    Access, End, Error, ErrorKind, FileLease, HeldGrowth, Identity, Key, Object, ObjectFile, Open,
    Persistency, ReadSummary, Result, Stat, check_extent, check_range,
};

use super::path::ObjectPath;
use super::unsynced::Change;
use super::{Shared, system};

/// Most buffers in one system call (Linux's `UIO_MAXIOV`).
const BUFFERS_MAX: usize = 1024;

/// Zeros are written in pieces of this where holes cannot be punched.
const ZEROS_BYTES: usize = 64 << 10;

pub(super) struct FileObject {
    shared: Arc<Shared>,
    key: Key,
    path: ObjectPath,
    file: OwnedFd,
    access: Access,
    /// Everything acknowledged must survive a loss of power.
    is_durable: bool,
    has_sync_failed: AtomicBool,
    /// The identity given at create, until it is synced.
    unsynced_identity: Mutex<Option<Change>>,
}

/// What a sync writes.
#[derive(Clone, Copy)]
enum Sync {
    /// The bytes and what finds them again.
    Data,
    /// Times and extended attributes as well.
    Everything,
}

impl FileObject {
    pub(super) fn new(
        shared: &Arc<Shared>,
        key: &Key,
        path: ObjectPath,
        file: OwnedFd,
        how: &Open,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            key: key.clone(),
            path,
            file,
            access: how.access,
            is_durable: how.access == Access::Write
                && how.semantics.persistency >= Persistency::Storage,
            has_sync_failed: AtomicBool::new(false),
            unsynced_identity: Mutex::new(None),
        }
    }

    pub(super) fn path(&self) -> &ObjectPath {
        &self.path
    }

    pub(super) fn is_durable(&self) -> bool {
        self.is_durable
    }

    pub(super) fn keep_identity(&self, identity: &Identity) -> Result<()> {
        let change = self.shared.keep_identity(self.file.as_fd(), &self.path, identity)?;
        *self.unsynced_identity() = Some(change);
        Ok(())
    }

    fn unsynced_identity(&self) -> MutexGuard<'_, Option<Change>> {
        self.unsynced_identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        self.shared.name(system::error(operation, errno), Some(&self.key))
    }

    fn check_access(&self) -> Result<()> {
        self.access.check_change(&self.key)
    }

    /// Keeps the promise of the handle's semantics after a change.
    fn settle(&self) -> Result<()> {
        if self.is_durable { self.sync() } else { Ok(()) }
    }

    fn size_bytes(&self) -> Result<u64> {
        let status = rustix::fs::fstat(&self.file).map_err(|e| self.failed("stat an object", e))?;
        Ok(status.st_size as u64)
    }

    fn write_all(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let failed = |errno| self.failed("write", errno);
        // One call does everything; what it leaves over is written buffer by buffer.
        let mut done = match data {
            [_] => 0,
            _ => {
                let batch = &data[..data.len().min(BUFFERS_MAX)];
                retry_on_intr(|| rustix::io::pwritev(&self.file, batch, offset_bytes))
                    .map_err(failed)?
            }
        };
        let mut skip = done;
        for part in data {
            let mut rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            while !rest.is_empty() {
                let at = offset_bytes + done as u64;
                let count = match retry_on_intr(|| rustix::io::pwrite(&self.file, rest, at)) {
                    Ok(0) => return Err(failed(Errno::IO)),
                    Ok(count) => count,
                    Err(errno) => return Err(failed(errno)),
                };
                done += count;
                rest = &rest[count..];
            }
        }
        Ok(())
    }

    fn fill_with_zeros(&self, range: Range<u64>) -> Result<()> {
        let zeros = [0; ZEROS_BYTES];
        let mut at = range.start;
        while at < range.end {
            let count = (range.end - at).min(ZEROS_BYTES as u64);
            self.write_all(at, &[IoSlice::new(&zeros[..count as usize])])?;
            at += count;
        }
        Ok(())
    }

    fn sync_by(&self, sync: Sync) -> Result<()> {
        const OPERATION: &str = "sync an object";
        let earlier = || {
            let error = Error::new(ErrorKind::Io, OPERATION).because("an earlier sync failed");
            self.shared.name(error, Some(&self.key))
        };
        if self.has_sync_failed.load(Ordering::SeqCst) {
            return Err(earlier());
        }
        let identity = *self.unsynced_identity();
        let synced = retry_on_intr(|| match (sync, identity) {
            (Sync::Data, None) => rustix::fs::fdatasync(&self.file),
            (Sync::Everything, _) | (_, Some(_)) => rustix::fs::fsync(&self.file),
        });
        synced.map_err(|errno| {
            self.has_sync_failed.store(true, Ordering::SeqCst);
            self.failed(OPERATION, errno)
        })?;
        if let Some(change) = identity {
            self.shared.unsynced.settle(self.path.as_bytes(), change);
            *self.unsynced_identity() = None;
        }
        // The kernel tells one of two threads that the bytes of both are lost.
        if self.has_sync_failed.load(Ordering::SeqCst) { Err(earlier()) } else { Ok(()) }
    }

    /// Refuses what cannot fit. File systems may try all the same, and leave the disk full.
    fn check_room(&self, range: &Range<u64>) -> Result<()> {
        const OPERATION: &str = "reserve room";
        let own = rustix::fs::fstat(&self.file).map_err(|e| self.failed(OPERATION, e))?;
        let all = rustix::fs::fstatvfs(&self.file).map_err(|e| self.failed(OPERATION, e))?;
        let free_bytes = all.f_bavail.saturating_mul(all.f_frsize);
        // Some of the range may have its room already.
        let within_bytes = free_bytes.saturating_add((own.st_blocks as u64).saturating_mul(512));
        let need_bytes = range.end - range.start;
        if need_bytes > within_bytes {
            let error = Error::new(ErrorKind::NoSpace, OPERATION)
                .with("need_bytes", need_bytes)
                .with("free_bytes", free_bytes);
            return Err(self.shared.name(error, Some(&self.key)));
        }
        Ok(())
    }

    /// A descriptor of its own: a duplicate would share its flags, and what it may do, with ours.
    /// This works even after the name has gone.
    fn open_anew(&self, flags: OFlags) -> Result<File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(|errno| self.failed("lend a descriptor", errno))
    }

    fn fallocate(&self, flags: FallocateFlags, range: &Range<u64>) -> Result<(), Errno> {
        let length_bytes = range.end - range.start;
        retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, range.start, length_bytes))
    }
}

impl Object for FileObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want_bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        check_extent(offset_bytes, want_bytes)?;
        let failed = |errno| self.failed("read", errno);
        // One call does everything; what it leaves over is read buffer by buffer. The end of the
        // file is certain only when a read gives nothing.
        let mut done = match buffers {
            [_] => 0,
            _ => {
                let count = buffers.len().min(BUFFERS_MAX);
                let batch = &mut buffers[..count];
                retry_on_intr(|| rustix::io::preadv(&self.file, batch, offset_bytes))
                    .map_err(failed)?
            }
        };
        let mut skip = done;
        for buffer in buffers {
            let skipped = skip.min(buffer.len());
            skip -= skipped;
            let mut rest = &mut buffer[skipped..];
            while !rest.is_empty() {
                let at = offset_bytes + done as u64;
                let count = retry_on_intr(|| rustix::io::pread(&self.file, &mut *rest, at))
                    .map_err(failed)?;
                if count == 0 {
                    return Ok(done);
                }
                done += count;
                rest = &mut rest[count..];
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        self.check_access()?;
        check_extent(offset_bytes, data.iter().map(|part| part.len() as u64).sum())?;
        self.write_all(offset_bytes, data)?;
        self.settle()
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.check_access()?;
        let length_bytes = data.iter().map(|part| part.len() as u64).sum();
        let offset_bytes = {
            // Held across the I/O: the next append begins where this one ends.
            let _turn =
                super::append_turn(&self.key).lock().unwrap_or_else(PoisonError::into_inner);
            let offset_bytes = self.size_bytes()?;
            check_extent(offset_bytes, length_bytes)?;
            self.write_all(offset_bytes, data)?;
            offset_bytes
        };
        self.settle()?;
        Ok(offset_bytes)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent(bytes, 0)?;
        self.check_access()?;
        retry_on_intr(|| rustix::fs::ftruncate(&self.file, bytes))
            .map_err(|errno| self.failed("set the length of an object", errno))?;
        self.settle()
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        check_range(&range)?;
        self.check_access()?;
        if range.is_empty() {
            return Ok(());
        }
        self.check_room(&range)?;
        let flags = match end {
            End::Grows => FallocateFlags::empty(),
            End::Stays => FallocateFlags::KEEP_SIZE,
        };
        self.fallocate(flags, &range).map_err(|errno| {
            let error = self.failed("reserve room", errno);
            match errno {
                Errno::OPNOTSUPP => error.because("the file system cannot"),
                _ => error,
            }
        })?;
        self.settle()
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range(&range)?;
        self.check_access()?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let range = range.start..range.end.min(self.size_bytes()?);
        if range.is_empty() {
            return Ok(());
        }
        match self.fallocate(flags, &range) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => self.fill_with_zeros(range)?,
            Err(errno) => return Err(self.failed("punch a hole", errno)),
        }
        self.settle()
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent(offset_bytes, 0)?;
        // No other code uses the shared file position that this moves.
        let seek = |place| match rustix::fs::seek(&self.file, place) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(self.failed("look for data", errno)),
        };
        let Some(start) = seek(SeekFrom::Data(offset_bytes))? else { return Ok(None) };
        // None when the file was cut behind `start` in between.
        let end = seek(SeekFrom::Hole(start))?;
        Ok(end.map(|end| start..end))
    }

    fn stat(&self) -> Result<Stat> {
        let flags = rustix::fs::AtFlags::EMPTY_PATH;
        rustix::fs::statx(&self.file, c"", flags, system::STAT_MASK)
            .map(|status| system::stat(&status))
            .map_err(|errno| self.failed("stat an object", errno))
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.check_access()?;
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: (wall_ns / 1_000_000_000) as i64,
                tv_nsec: (wall_ns % 1_000_000_000) as i64,
            },
        };
        rustix::fs::futimens(&self.file, &times)
            .map_err(|errno| self.failed("set the time of an object", errno))?;
        // A time is no data, so syncing data alone would leave it.
        if self.is_durable { self.sync_by(Sync::Everything) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        self.sync_by(Sync::Data)
    }

    fn file(&self) -> Option<&dyn ObjectFile> {
        Some(self)
    }
}

impl ObjectFile for FileObject {
    fn lease_file(&self) -> Result<Option<FileLease>> {
        Ok(Some(FileLease { file: self.open_anew(OFlags::RDONLY)?, word: None }))
    }

    /// Nothing moves here: a file is the object as long as there is one.
    fn hold_file(&self, access: Access) -> Result<Option<File>> {
        if access == Access::Read {
            return self.open_anew(OFlags::RDONLY).map(Some);
        }
        self.check_access()?;
        if self.is_durable {
            // What is written there would not be durable when it is acknowledged.
            return Ok(None);
        }
        self.open_anew(OFlags::RDWR).map(Some)
    }

    fn held_growth(&self) -> Result<HeldGrowth> {
        let capacity_bytes = self.shared.settings.capacity_bytes;
        if capacity_bytes == u64::MAX {
            return Ok(HeldGrowth::Full);
        }
        let space = self.shared.space().map_err(|error| self.shared.name(error, None))?;
        let size_bytes = space.file_system.map_or(u64::MAX, |file_system| file_system.size_bytes);
        Ok(if size_bytes <= capacity_bytes { HeldGrowth::Full } else { HeldGrowth::Unbounded })
    }

    fn note_reads(&self, _reads: &ReadSummary) {}
}
