// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations that are seen whole or not at all by all others that ask for it.
//!
//! They meet at locks of their own, so that operations without atomicity take none. What a write
//! overwrites is kept until it has succeeded, and put back where it fails or panics in the middle.

use std::io::{IoSlice, IoSliceMut};
use std::ops::{Deref, Range};
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use terrace_core::{Atomicity, End, Error, ErrorKind, Later, Object, ObjectFile, Result, Stat};

use crate::io::object::StackObject;

/// A handle whose operations are seen whole or not at all.
pub(crate) struct WholeObject(pub(crate) StackObject);

fn check_bytes(operation: &'static str, bytes: usize) -> Result<()> {
    Atomicity::Operation.check_bytes(operation, bytes)
}

impl WholeObject {
    fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.shared_state().turns.shared(self.object_id())
    }

    fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared_state().turns.alone(self.object_id())
    }

    /// Writes without looking at durability.
    pub(crate) fn write_only(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let bytes = length_of(data);
        check_bytes("write", bytes)?;
        let _turn = self.alone();
        self.change(offset_bytes, bytes as u64, || self.0.write_only(offset_bytes, data))
    }

    /// Carries out a write to a range, and takes it back unless it succeeds.
    fn change(
        &self,
        offset_bytes: u64,
        bytes: u64,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.check_access("write")?;
        // One that is out of bounds is refused by the write itself.
        let Some(end_bytes) = offset_bytes.checked_add(bytes).filter(|_| bytes > 0) else {
            return write();
        };
        let mut before = Before::of(self, offset_bytes..end_bytes)?;
        let written = write();
        before.is_over = true;
        let Err(error) = written else { return Ok(()) };
        // An object that was deleted meanwhile is not visible.
        if self.is_deleted() {
            return Err(error);
        }
        match before.put_back() {
            Ok(()) => Err(error),
            Err(failed) => Err(Error::new(ErrorKind::Io, "write")
                .because("it failed, and a part of it stays: what was there cannot be put back")
                .with("key", self.key())
                .with("failure", error.chain())
                .caused_by(failed)),
        }
    }
}

/// What a range held before it was written.
struct Before<'a> {
    object: &'a StackObject,
    range: Range<u64>,
    /// The bytes that were there, up to the end of the object.
    bytes: Vec<u8>,
    /// The length of the object.
    length_bytes: u64,
    /// Room that was promised behind its ends.
    promised: Vec<Range<u64>>,
    is_over: bool,
}

impl<'a> Before<'a> {
    fn of(object: &'a StackObject, range: Range<u64>) -> Result<Self> {
        let length_bytes = object.length()?;
        let bytes = object.peek(range.start..range.end.min(length_bytes))?;
        let promised = object.promised();
        Ok(Self { object, range, bytes, length_bytes, promised, is_over: false })
    }

    fn put_back(&self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.object.write_only(self.range.start, &[IoSlice::new(&self.bytes)])?;
        }
        self.object.take_back_growth(self.length_bytes, self.promised.clone(), &self.range)
    }
}

impl Drop for Before<'_> {
    /// In a panic in the middle of the write.
    fn drop(&mut self) {
        if !self.is_over {
            // There is no caller to return a failure to.
            let _ = self.put_back();
        }
    }
}

fn length_of(data: &[IoSlice<'_>]) -> usize {
    data.iter().map(|slice| slice.len()).sum()
}

impl Deref for WholeObject {
    type Target = StackObject;

    fn deref(&self) -> &StackObject {
        &self.0
    }
}

#[deny(clippy::missing_trait_methods)]
impl Object for WholeObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        check_bytes("read", buffers.iter().map(|buffer| buffer.len()).sum())?;
        let _turn = self.shared();
        self.0.read_at(offset_bytes, buffers)
    }

    fn later(&self) -> Option<&dyn Later> {
        None
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        self.write_only(offset_bytes, data)?;
        // Behind the lock: it is whole by now, and a sync takes long.
        self.follow()
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let bytes = length_of(data);
        check_bytes("append", bytes)?;
        let turn = self.alone();
        let start = self.0.append_with(|start| {
            self.change(start, bytes as u64, || self.0.write_only(start, data))
        })?;
        drop(turn);
        self.follow()?;
        Ok(start)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let _turn = self.alone();
        self.0.set_len(bytes)
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        let _turn = self.alone();
        self.0.allocate(range, end)
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        let _turn = self.alone();
        self.0.punch(range)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        let _turn = self.shared();
        self.0.next_data(offset_bytes)
    }

    fn stat(&self) -> Result<Stat> {
        let _turn = self.shared();
        self.0.stat()
    }

    fn created_ns(&self) -> Result<u64> {
        self.0.created_ns()
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        let _turn = self.alone();
        self.0.set_modified(wall_ns)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        self.0.label()
    }

    /// A program that uses the file itself takes no lock.
    fn file(&self) -> Option<&dyn ObjectFile> {
        None
    }
}
