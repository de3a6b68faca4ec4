// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An object of a service: written once through the handle that made it, read by all.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use object_store::path::Path;
use terrace_core::{Access, End, Error, ErrorKind, Key, Object, Result, Stat, check_extent};

use super::Shared;
use super::readahead::LARGE_BYTES;
use super::record::Record;
use super::requests::lock;
use super::upload::Upload;

/// Bytes of one of the requests that a large read consists of.
const RANGE_BYTES: u64 = 4 << 20;

/// A handle on an object.
pub(super) struct ServiceObject {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) path: Path,
    pub(super) access: Access,
    pub(super) state: Mutex<State>,
}

pub(super) enum State {
    Writing(Box<Upload>),
    There {
        size_bytes: u64,
        record: Record,
    },
    /// A sync has failed, and every later one does.
    Failed,
}

impl ServiceObject {
    fn unsupported<T>(&self, operation: &'static str, reason: &'static str) -> Result<T> {
        Err(Error::new(ErrorKind::Unsupported, operation)
            .because(reason)
            .with("key", &self.key)
            .with("target", &self.shared.service.target))
    }

    fn failed<T>(&self, operation: &'static str) -> Result<T> {
        Err(Error::new(ErrorKind::Io, operation)
            .because("the object could not be written")
            .with("key", &self.key)
            .with("target", &self.shared.service.target))
    }

    /// Has `write` write to an object that is not there yet.
    fn write_with<T>(&self, write: impl FnOnce(&mut Upload) -> Result<T>) -> Result<T> {
        const OPERATION: &str = "write an object";
        if self.access == Access::Read {
            return Err(Error::new(ErrorKind::Denied, OPERATION)
                .because("the object was opened for reading")
                .with("key", &self.key));
        }
        match &mut *lock(&self.state) {
            State::Writing(upload) => write(upload).map_err(|error| error.with("key", &self.key)),
            State::There { .. } => {
                self.unsupported(OPERATION, "an object of a service is written once, as a whole")
            }
            State::Failed => self.failed(OPERATION),
        }
    }

    /// The size of an object that is there.
    fn size_bytes(&self) -> Result<u64> {
        const OPERATION: &str = "read an object";
        match &*lock(&self.state) {
            State::There { size_bytes, .. } => Ok(*size_bytes),
            State::Writing(_) => {
                self.unsupported(OPERATION, "it is still being written, and nothing is there yet")
            }
            State::Failed => self.failed(OPERATION),
        }
    }

    /// A range inside the object, in pieces.
    fn fetch(&self, range: Range<u64>, size_bytes: u64) -> Result<Vec<(Range<u64>, Bytes)>> {
        let service = &self.shared.service;
        let begin = |range| service.begin_range(&self.path, range);
        if range.end - range.start < LARGE_BYTES {
            let spawn = |request| {
                service.runtime().spawn(request);
            };
            let readahead = &self.shared.readahead;
            let found = readahead.read(&self.path, size_bytes, range.clone(), begin, spawn);
            if let Some(windows) = found {
                return Ok(windows);
            }
        }
        // All at once; how many run at a time the service bounds.
        let mut reading = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let piece = at..(at + RANGE_BYTES).min(range.end);
            at = piece.end;
            reading.push((piece.clone(), begin(piece)));
        }
        let each = reading.into_iter().map(|(piece, bytes)| Ok((piece, service.block_on(bytes)?)));
        each.collect()
    }
}

impl Object for ServiceObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        check_extent(offset_bytes, want as u64)?;
        let size_bytes = self.size_bytes()?;
        let count = (want as u64).min(size_bytes.saturating_sub(offset_bytes));
        if count == 0 {
            return Ok(0);
        }
        let wanted = offset_bytes..offset_bytes + count;
        let pieces = self.fetch(wanted.clone(), size_bytes);
        let pieces = pieces.map_err(|error| error.with("key", &self.key))?;
        let mut ranges = buffers.iter_mut();
        let mut buffer: &mut [u8] = ranges.next().map_or(&mut [], |buffer| &mut **buffer);
        for (range, bytes) in pieces {
            let inside = wanted.start.max(range.start)..wanted.end.min(range.end);
            let at = (inside.start - range.start) as usize;
            let mut left = &bytes[at..at + (inside.end - inside.start) as usize];
            while !left.is_empty() {
                if buffer.is_empty() {
                    buffer = ranges.next().map_or(&mut [], |buffer| &mut **buffer);
                    continue;
                }
                let taken = left.len().min(buffer.len());
                let (head, tail) = std::mem::take(&mut buffer).split_at_mut(taken);
                head.copy_from_slice(&left[..taken]);
                (left, buffer) = (&left[taken..], tail);
            }
        }
        Ok(count as usize)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let count: usize = data.iter().map(|part| part.len()).sum();
        check_extent(offset_bytes, count as u64)?;
        self.write_with(|upload| {
            let mut at = offset_bytes;
            data.iter().filter(|part| !part.is_empty()).try_for_each(|part| {
                upload.write(at, part)?;
                at += part.len() as u64;
                Ok(())
            })
        })
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.write_with(|upload| {
            let start = upload.end_bytes();
            data.iter().try_for_each(|part| upload.write(upload.end_bytes(), part))?;
            Ok(start)
        })
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent(bytes, 0)?;
        let is_that = |have: u64| have == bytes;
        if let State::There { size_bytes, .. } = &*lock(&self.state)
            && is_that(*size_bytes)
        {
            return Ok(());
        }
        self.write_with(|upload| match upload.end_bytes() > bytes {
            true => self.unsupported("set length", "an object of a service cannot be cut"),
            false => upload.grow(bytes),
        })
    }

    fn allocate(&self, _: Range<u64>, _: End) -> Result<()> {
        self.unsupported("allocate", "the service reserves no room")
    }

    fn punch(&self, _: Range<u64>) -> Result<()> {
        self.unsupported("punch", "an object of a service is written once, as a whole")
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent(offset_bytes, 0)?;
        let rest = offset_bytes..self.size_bytes()?;
        Ok((!rest.is_empty()).then_some(rest))
    }

    fn stat(&self) -> Result<Stat> {
        match &*lock(&self.state) {
            State::Writing(upload) => Ok(super::stat(upload.end_bytes(), &upload.record)),
            State::There { size_bytes, record } => Ok(super::stat(*size_bytes, record)),
            State::Failed => self.failed("stat an object"),
        }
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        let mut state = lock(&self.state);
        match &mut *state {
            State::Writing(upload) => upload.record.modified_ns = wall_ns,
            State::There { record, .. } if record.modified_ns == wall_ns => {}
            State::There { record, .. } => {
                const OPERATION: &str = "set the time of an object";
                // The identity may have been replaced since the object was opened.
                let change = |known: &mut Record| known.modified_ns = wall_ns;
                *record = self.shared.change_record(OPERATION, &self.key, None, change)?;
            }
            State::Failed => return self.failed("set the time of an object"),
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let State::Writing(upload) = &mut *state else {
            return match &*state {
                State::Failed => self.failed("sync an object"),
                _ => Ok(()),
            };
        };
        let finished = upload.finish().map_err(|error| error.with("key", &self.key));
        *state = match &finished {
            Ok(()) => {
                State::There { size_bytes: upload.end_bytes(), record: upload.record.clone() }
            }
            Err(_) => State::Failed,
        };
        finished
    }
}
