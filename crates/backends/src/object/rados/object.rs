// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open object of a pool.

use std::ffi::CString;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use terrace_core::{
    Access, Clock, End, Error, ErrorKind, Key, Object, Result, Stat, check_extent, check_range,
};

use super::attributes::{INSTANCE, MODIFIED};
use super::library::{Errno, WriteOp};
use super::{Rados, Shared, is_other_version};

/// Longest range of one request: as `rados bench` and CephFS use it, a tenth of what an OSD takes
/// (`osd_max_write_size`, 90 MB).
pub(super) const PIECE_BYTES: usize = 4 << 20;

/// Tries of a change that depends on the end of an object, which other clients may move meanwhile.
const TRIES_MAX: usize = 1000;

pub(super) struct RadosObject {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) name: CString,
    pub(super) access: Access,
    /// What tells the object from the next one of its name.
    pub(super) instance: Vec<u8>,
    pub(super) label: Option<Arc<[u8]>>,
}

impl RadosObject {
    fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        self.shared.failed(operation, errno).with("key", &self.key)
    }

    /// A change of this object, and of no other one of its name, that sets the time.
    fn change(&self, modified_ns: u64) -> WriteOp {
        let change = self.shared.pool.change().assert_exists();
        let change = change.assert_attribute(INSTANCE, &self.instance);
        change.set_attribute(MODIFIED, &modified_ns.to_le_bytes())
    }

    fn make(&self, operation: &'static str, change: WriteOp) -> Result<()> {
        self.shared.make(operation, &self.key, &self.name, change)
    }

    fn look(&self, operation: &'static str) -> Result<(Stat, u64)> {
        let (found, version) = self.shared.look(operation, &self.key, &self.name)?;
        if found.instance != self.instance {
            return Err(Error::new(ErrorKind::NotFound, operation)
                .because("the object was deleted, and another one has its name")
                .with("key", &self.key)
                .with("target", &self.shared.target));
        }
        Ok((found.stat, version))
    }

    fn check_size(&self, operation: &'static str, size_bytes: u64) -> Result<()> {
        if size_bytes <= Rados::OBJECT_BYTES_MAX {
            return Ok(());
        }
        // The stack distinguishes it by its source from a tier that is full.
        Err(Error::new(ErrorKind::NoSpace, operation)
            .because("an object of a pool is not longer than this")
            .caused_by(io::Error::from(io::ErrorKind::FileTooLarge))
            .with("key", &self.key)
            .with("size_bytes", size_bytes)
            .with("size_bytes_max", Rados::OBJECT_BYTES_MAX)
            .with("target", &self.shared.target))
    }

    /// Makes a change that depends on the length of the object; returns the length that it began with.
    /// `None` of `build` is no change.
    fn change_at(
        &self,
        operation: &'static str,
        build: impl Fn(WriteOp, u64) -> Result<Option<WriteOp>>,
    ) -> Result<u64> {
        // Held across the I/O: otherwise callers of this process would only repeat each other's tries.
        let _turn = self.shared.turn(&self.name);
        for _ in 0..TRIES_MAX {
            let (stat, version) = self.look(operation)?;
            let change = self.change(self.shared.clock.wall_ns()).assert_version(version);
            let Some(change) = build(change, stat.size_bytes)? else { return Ok(stat.size_bytes) };
            match self.shared.pool.make(&self.name, change) {
                Ok(_) => return Ok(stat.size_bytes),
                Err(errno) if is_other_version(errno) => {}
                Err(errno) => return Err(self.failed(operation, errno)),
            }
        }
        Err(Error::new(ErrorKind::Busy, operation)
            .because("other clients write to it all the time")
            .with("key", &self.key)
            .with("target", &self.shared.target))
    }
}

impl Object for RadosObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want_bytes: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        check_extent(offset_bytes, want_bytes as u64)?;
        let mut filled = buffers.iter_mut().filter(|buffer| !buffer.is_empty());
        match (filled.next(), filled.next()) {
            (None, _) => Ok(0),
            (Some(buffer), None) => self.read_into(offset_bytes, buffer),
            _ => {
                let mut whole = vec![0; want_bytes];
                let count = self.read_into(offset_bytes, &mut whole)?;
                let mut left = &whole[..count];
                for buffer in buffers {
                    let (now, later) = left.split_at(buffer.len().min(left.len()));
                    buffer[..now.len()].copy_from_slice(now);
                    left = later;
                }
                Ok(count)
            }
        }
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        const OPERATION: &str = "write";
        let length_bytes = data.iter().map(|part| part.len() as u64).sum();
        let end_bytes = check_extent(offset_bytes, length_bytes)?;
        self.access.check_change(&self.key)?;
        if length_bytes == 0 {
            return Ok(());
        }
        self.check_size(OPERATION, end_bytes)?;
        let whole = whole(data);
        let now_ns = self.shared.clock.wall_ns();
        let pieces = whole.chunks(PIECE_BYTES).enumerate();
        let changes = pieces.map(|(index, piece)| {
            self.change(now_ns).write(offset_bytes + (index * PIECE_BYTES) as u64, piece)
        });
        let made = self.shared.pool.make_all(&self.name, changes);
        made.map_err(|errno| self.failed(OPERATION, errno))
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        const OPERATION: &str = "append";
        self.access.check_change(&self.key)?;
        let whole = whole(data);
        // What follows the first piece goes behind it, so the first one makes the room for all.
        let (first, rest) = whole.split_at(whole.len().min(PIECE_BYTES));
        let start_bytes = self.change_at(OPERATION, |change, size_bytes| {
            let end_bytes = check_extent(size_bytes, whole.len() as u64)?;
            self.check_size(OPERATION, end_bytes)?;
            let change = change.write(size_bytes, first);
            Ok((!whole.is_empty()).then(|| match rest.is_empty() {
                true => change,
                false => change.truncate(end_bytes),
            }))
        })?;
        if !rest.is_empty() {
            self.write_at(start_bytes + first.len() as u64, &[IoSlice::new(rest)])?;
        }
        Ok(start_bytes)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        const OPERATION: &str = "set the length of an object";
        check_extent(bytes, 0)?;
        self.access.check_change(&self.key)?;
        self.check_size(OPERATION, bytes)?;
        self.make(OPERATION, self.change(self.shared.clock.wall_ns()).truncate(bytes))
    }

    fn allocate(&self, range: Range<u64>, _end: End) -> Result<()> {
        check_range(&range)?;
        self.access.check_change(&self.key)?;
        Err(Error::new(ErrorKind::Unsupported, "reserve room")
            .because("a pool reserves no room")
            .with("key", &self.key)
            .with("target", &self.shared.target))
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range(&range)?;
        self.access.check_change(&self.key)?;
        // A range of zeros behind the end would make the object longer on its OSD; one to the end cuts it.
        self.change_at("punch a hole", |change, size_bytes| {
            let end_bytes = range.end.min(size_bytes);
            Ok((range.start < end_bytes).then(|| {
                let change = change.zero(range.start, end_bytes - range.start);
                if end_bytes == size_bytes { change.truncate(size_bytes) } else { change }
            }))
        })
        .map(drop)
    }

    fn stat(&self) -> Result<Stat> {
        self.look("stat an object").map(|(stat, _)| stat)
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.access.check_change(&self.key)?;
        self.make("set the time of an object", self.change(wall_ns))
    }

    fn sync(&self) -> Result<()> {
        // What was acknowledged is durable on the OSDs.
        Ok(())
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        self.label.clone()
    }
}

impl RadosObject {
    fn read_into(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        let pieces = buffer.chunks_mut(PIECE_BYTES).enumerate();
        let mut pieces: Vec<_> = pieces
            .map(|(index, piece)| (offset_bytes + (index * PIECE_BYTES) as u64, piece))
            .collect();
        let guard = (INSTANCE, &self.instance[..]);
        let counts = self.shared.pool.read_pieces(&self.name, guard, &mut pieces);
        let counts = counts.map_err(|errno| self.failed("read", errno))?;
        let mut done = 0;
        for (count, (_, piece)) in counts.iter().zip(&pieces) {
            done += count;
            if *count < piece.len() {
                break;
            }
        }
        Ok(done)
    }
}

/// The bytes of all parts one after the other.
fn whole<'a>(data: &'a [IoSlice<'a>]) -> std::borrow::Cow<'a, [u8]> {
    match data {
        [one] => (&**one).into(),
        parts => {
            let mut whole = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
            parts.iter().for_each(|part| whole.extend_from_slice(part));
            whole.into()
        }
    }
}
