// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open objects, and new values of objects.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use super::open::Access;
use super::stat::{End, HeldGrowth, Stat};
use crate::later::Later;
use crate::{Error, FileLease, ReadSummary, Result, check_extent};

/// An open object.
///
/// # Contract
///
/// - Methods may be called from many threads at once and may block.
/// - After a failed write, each byte of the written extent is old or new; all others, and the bytes
///   before a growing end, are unchanged. `Semantics` ask for more.
/// - A failed `sync` is sticky: every later `sync` of the handle fails too, because the lost
///   pages are not tried again by the kernel.
pub trait Object: Send + Sync {
    /// Reads into `buffers` one after the other; returns the bytes read, fewer than asked for
    /// only at the end of the object. Holes read as zeros.
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize>;

    /// Begins reads and writes that complete asynchronously, where this can.
    fn later(&self) -> Option<&dyn Later> {
        None
    }

    /// Writes all of `data` one after the other, growing the object as needed. A gap before
    /// `offset_bytes` reads as zeros.
    ///
    /// # Errors
    ///
    /// `NoSpace`, `Denied` (opened for reading), `Io`.
    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()>;

    /// Writes all of `data` at the end and returns where it begins. Appends never overlap.
    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64>;

    /// Cuts or grows the object; growth reads as zeros and takes no room where
    /// `capability().sparse`.
    ///
    /// - Room that was [reserved](Object::allocate) behind the end is given back, also where the
    ///   object has that size already; where it grows, the room stays.
    fn set_len(&self, bytes: u64) -> Result<()>;

    /// Reserves room for a range, so that writing there cannot run out of space. The bytes do not
    /// change.
    ///
    /// - With [`End::Grows`] the object grows to the end of the range.
    /// - With [`End::Stays`] it keeps its size. What lies behind its end is neither read nor found
    ///   by `next_data`; a later write or `set_len` that makes the object longer grows into it. It
    ///   is kept, also over restarts, until [`Object::set_len`] gives it back or the object is
    ///   deleted.
    ///
    /// # Errors
    ///
    /// `NoSpace`, `Unsupported`. Then nothing is promised, but for what several devices or servers
    /// may keep of a range on which they do not agree.
    fn allocate(&self, range: Range<u64>, end: End) -> Result<()>;

    /// Makes a range read as zeros and frees its room where `capability().sparse`; never changes
    /// the size, nor what is reserved behind the end.
    fn punch(&self, range: Range<u64>) -> Result<()>;

    /// The first range at or after `offset_bytes` that may hold data; `None` when only a hole
    /// remains. A backend that knows no holes returns everything up to the end, as the default does.
    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent(offset_bytes, 0)?;
        let rest = offset_bytes..self.stat()?.size_bytes;
        Ok((!rest.is_empty()).then_some(rest))
    }

    /// Size and times of the open object.
    fn stat(&self) -> Result<Stat>;

    /// When the object was created, as [`Stat::created_ns`]. An object that keeps it in memory returns
    /// it without I/O, and without what counts or observes a `stat`.
    fn created_ns(&self) -> Result<u64> {
        Ok(self.stat()?.created_ns)
    }

    /// Sets the time of the last modification, so that a migration can leave it as it was.
    fn set_modified(&self, wall_ns: u64) -> Result<()>;

    /// Makes everything written through any handle before the call as durable as
    /// `capability().persistency` allows; after success it survives what that level says.
    fn sync(&self) -> Result<()>;

    /// What lends the file that holds the object's bytes; `None` where no file of this machine does.
    fn file(&self) -> Option<&dyn ObjectFile> {
        None
    }

    /// The label that the object was created with, known since it was opened: no I/O.
    fn label(&self) -> Option<Arc<[u8]>> {
        None
    }
}

/// An open object whose bytes are in a file of this machine, which others may use directly.
///
/// On a `dyn Object` the same methods lend nothing where [`Object::file`] is `None`.
pub trait ObjectFile: Send + Sync {
    /// A descriptor for reading of the file that holds exactly this object's bytes, where there is
    /// one and nothing between it and the caller would be bypassed; else `None`, which another time
    /// may be another answer.
    ///
    /// - It allows nothing but reading, also where this handle does.
    /// - Where the file may stop being the object while the handle is open, the lease comes with a
    ///   word: it is changed before a write that goes elsewhere is acknowledged, and before the
    ///   object's deletion is. A reader of the file that finds the word unchanged *afterwards* has
    ///   read what this handle could have read in the same time.
    /// - A short read is the end of the object, where the word is unchanged.
    /// - It ends with this handle at the latest.
    ///
    /// # Errors
    ///
    /// `Io`.
    fn lease_file(&self) -> Result<Option<FileLease>>;

    /// A descriptor of the file that holds exactly this object's bytes, which stays the object's
    /// only file until this handle is dropped: for a reader that cannot look at a word, as a kernel
    /// that reads and writes the file for a mount. `None` where that cannot be promised, which
    /// another time may be another answer.
    ///
    /// - It allows reading, with [`Access::Write`] writing as well, and nothing else.
    /// - What is written through it is written to the object: reads through any handle find it, and
    ///   a `sync` through any handle covers it. The end of the file is the end of the object.
    /// - The object may be written through handles, too, and be deleted. The descriptor is that of
    ///   the file then, as any other.
    /// - A handle may be asked several times, and several handles of an object at a time, each for
    ///   reading or for writing: as long as one of them is open they get the same file.
    /// - An object that was held for writing leaves the file only once no process can write to it
    ///   any more: descriptors and mappings may outlive the handle, and the object then stays until
    ///   they are gone. What outlives a handle that held it for *reading* may show old bytes.
    ///
    /// # Errors
    ///
    /// `Denied` (for writing, from a handle for reading), `NotFound` (for writing, once deleted),
    /// `Io`.
    fn hold_file(&self, access: Access) -> Result<Option<File>>;

    /// What limits the growth of the object through a descriptor of [`ObjectFile::hold_file`] for
    /// writing, as of now. The kernel makes that file longer without asking the backend.
    ///
    /// # Errors
    ///
    /// `Io`, where a medium cannot be asked for its space.
    fn held_growth(&self) -> Result<HeldGrowth>;

    /// Counts reads that were done through a lease of this handle, as if they had been done through
    /// the handle; does nothing where reads are not counted, and once the object is deleted.
    fn note_reads(&self, reads: &ReadSummary);
}

impl dyn Object + '_ {
    /// See [`ObjectFile::lease_file`].
    pub fn lease_file(&self) -> Result<Option<FileLease>> {
        self.file().map_or(Ok(None), |file| file.lease_file())
    }

    /// See [`ObjectFile::hold_file`].
    pub fn hold_file(&self, access: Access) -> Result<Option<File>> {
        self.file().map_or(Ok(None), |file| file.hold_file(access))
    }

    /// See [`ObjectFile::held_growth`]: `Unbounded` where there is no file.
    pub fn held_growth(&self) -> Result<HeldGrowth> {
        self.file().map_or(Ok(HeldGrowth::Unbounded), |file| file.held_growth())
    }

    /// See [`ObjectFile::note_reads`].
    pub fn note_reads(&self, reads: &ReadSummary) {
        if let Some(file) = self.file() {
            file.note_reads(reads);
        }
    }
}

/// A new value of an object, written beside the old one: see [`Backend::draft`](super::Backend::draft).
///
/// # Contract
///
/// - No key names it before [`Draft::publish`]: it is not listed, and readers get the old value.
/// - A draft that is dropped, or whose process ends, before it is published leaves nothing.
pub trait Draft: Send + Sync {
    /// The handle through which the new value is written. It stays usable after the publication;
    /// after the draft was dropped unpublished, operations on it fail with `NotFound`.
    fn object(&self) -> Arc<dyn Object>;

    /// Makes the key name the new value, atomically: every open gets the old value or the new one.
    /// Returns the [label](Object::label) of the value that it replaced, where that had one and it is
    /// known.
    ///
    /// - Handles on the old value behave as those on a deleted object.
    /// - The bytes are durable before a key that had a value names them, unless the semantics of
    ///   the draft promise nothing over a crash. A loss of power leaves the old value or the new.
    /// - No write may be in progress through the handle.
    ///
    /// # Errors
    ///
    /// `Exists` (with [`Create::New`](super::Create::New)), `NotFound` (with [`Create::Never`](super::Create::Never), or where the
    /// draft was discarded), `Invalid` (published before), `Unsupported` (it cannot keep the level of the old
    /// value, which appeared or was raised since the draft was begun), `NoSpace`, `Io`, `Unreachable`. The key
    /// then names the old value, unless it is `Unreachable` with [`Applied::Unknown`](crate::Applied). After
    /// a failed sync, or where a server has lost it, the draft is discarded; else it may be published
    /// again.
    fn publish(&self) -> Result<Option<Arc<[u8]>>>;
}

/// Conveniences over every [`Object`].
pub trait ObjectExt: Object {
    /// Reads into one buffer.
    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_at(offset_bytes, &mut [IoSliceMut::new(buffer)])
    }

    /// Fills one buffer; the end of the object before that is `Invalid`.
    fn read_exact(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let want = buffer.len();
        let count = self.read(offset_bytes, buffer)?;
        if count < want {
            return Err(Error::invalid("read", "the object ends before the range does")
                .with("offset_bytes", offset_bytes)
                .with("want_bytes", want)
                .with("got_bytes", count));
        }
        Ok(())
    }

    /// Writes one buffer.
    fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.write_at(offset_bytes, &[IoSlice::new(data)])
    }

    /// Reads everything.
    fn read_to_end(&self) -> Result<Vec<u8>> {
        const STEP_BYTES: usize = 1 << 20;
        let mut data = Vec::new();
        loop {
            let start = data.len();
            data.resize(start + STEP_BYTES, 0);
            let count = self.read(start as u64, &mut data[start..])?;
            data.truncate(start + count);
            if count < STEP_BYTES {
                return Ok(data);
            }
        }
    }
}

impl<O: Object + ?Sized> ObjectExt for O {}
