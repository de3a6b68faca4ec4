// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A handle on a framed object: written once through the handle that made it, read by all.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use terrace_core::{
    Access, BackendExt, End, Error, ErrorKind, Identity, Key, Object, Result, Stat, check_extent,
};

use super::format::Index;
use super::write::Writing;
use super::{Shared, lock, read};

pub(super) struct FramedObject {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) access: Access,
    /// By which its frames are cached.
    pub(super) handle: u64,
    pub(super) state: Mutex<State>,
}

pub(super) enum State {
    Writing {
        writing: Box<Writing>,
        /// What the object gets with its sync, where the backend below shows it before.
        identity: Option<Arc<Identity>>,
    },
    There {
        object: Arc<dyn Object>,
        index: Arc<Index>,
    },
    /// A write or a sync has failed, and everything later does.
    Failed,
}

impl FramedObject {
    fn unsupported<T>(&self, operation: &'static str, reason: &'static str) -> Result<T> {
        Err(Error::new(ErrorKind::Unsupported, operation)
            .because(reason)
            .with("key", &self.key)
            .with("target", self.shared.inner.target()))
    }

    fn failed<T>(&self, operation: &'static str) -> Result<T> {
        Err(Error::new(ErrorKind::Io, operation)
            .because("the object could not be written")
            .with("key", &self.key)
            .with("target", self.shared.inner.target()))
    }

    /// Has `write` write to an object that is not there yet.
    fn write_with<T>(&self, write: impl FnOnce(&mut Writing) -> Result<T>) -> Result<T> {
        const OPERATION: &str = "write an object";
        if self.access == Access::Read {
            return Err(Error::new(ErrorKind::Denied, OPERATION)
                .because("the object was opened for reading")
                .with("key", &self.key));
        }
        let mut state = lock(&self.state);
        let result = match &mut *state {
            State::Writing { writing, .. } => write(writing),
            State::There { .. } => {
                return self.unsupported(OPERATION, "a framed object is written once, as a whole");
            }
            State::Failed => return self.failed(OPERATION),
        };
        if result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Unsupported) {
            // A frame may be missing that is in the index already.
            *state = State::Failed;
        }
        result.map_err(|error| error.with("key", &self.key))
    }

    fn there(&self, operation: &'static str) -> Result<(Arc<dyn Object>, Arc<Index>)> {
        match &*lock(&self.state) {
            State::There { object, index } => Ok((Arc::clone(object), Arc::clone(index))),
            State::Writing { .. } => {
                self.unsupported(operation, "it is still being written, and nothing is there yet")
            }
            State::Failed => self.failed(operation),
        }
    }

    fn finish(&self, writing: &mut Writing, identity: Option<&Identity>) -> Result<()> {
        writing.finish()?;
        let tier = self.shared.inner.tier();
        if let (Some(identity), Some(tier)) = (identity, tier) {
            tier.set_identity(&self.key, identity)?;
        }
        self.shared.note_finished(&self.key);
        Ok(())
    }
}

impl Object for FramedObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        check_extent(offset_bytes, want as u64)?;
        let (object, index) = self.there("read an object")?;
        let count = (want as u64).min(index.size_bytes.saturating_sub(offset_bytes));
        if count == 0 {
            return Ok(0);
        }
        let mut rest = buffers.iter_mut();
        let mut buffer: &mut [u8] = rest.next().map_or(&mut [], |buffer| &mut **buffer);
        // Frames come in their order.
        let put = |mut data: &[u8]| {
            while !data.is_empty() {
                if buffer.is_empty() {
                    buffer = rest.next().map_or(&mut [], |buffer| &mut **buffer);
                    continue;
                }
                let taken = data.len().min(buffer.len());
                let (head, tail) = std::mem::take(&mut buffer).split_at_mut(taken);
                head.copy_from_slice(&data[..taken]);
                (data, buffer) = (&data[taken..], tail);
            }
        };
        let wanted = offset_bytes..offset_bytes + count;
        read::read(&self.shared, &self.key, &*object, self.handle, &index, wanted, put)
            .map_err(|error| error.with("target", self.shared.inner.target()))?;
        Ok(count as usize)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let count: usize = data.iter().map(|part| part.len()).sum();
        check_extent(offset_bytes, count as u64)?;
        self.write_with(|writing| {
            let mut at = offset_bytes;
            data.iter().filter(|part| !part.is_empty()).try_for_each(|part| {
                writing.write(at, part)?;
                at += part.len() as u64;
                Ok(())
            })
        })
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        self.write_with(|writing| {
            let start = writing.end_bytes();
            data.iter().try_for_each(|part| writing.write(writing.end_bytes(), part))?;
            Ok(start)
        })
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent(bytes, 0)?;
        if let State::There { index, .. } = &*lock(&self.state)
            && index.size_bytes == bytes
        {
            return Ok(());
        }
        self.write_with(|writing| match writing.end_bytes() > bytes {
            true => self.unsupported("set length", "a framed object cannot be cut"),
            false => writing.grow(bytes),
        })
    }

    fn allocate(&self, _: Range<u64>, _: End) -> Result<()> {
        self.unsupported("allocate", "a framed object reserves no room")
    }

    fn punch(&self, _: Range<u64>) -> Result<()> {
        self.unsupported("punch", "a framed object is written once, as a whole")
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent(offset_bytes, 0)?;
        let rest = offset_bytes..self.there("read an object")?.1.size_bytes;
        Ok((!rest.is_empty()).then_some(rest))
    }

    fn stat(&self) -> Result<Stat> {
        match &*lock(&self.state) {
            State::Writing { writing, .. } => {
                let below = writing.object.stat()?;
                Ok(Stat {
                    size_bytes: writing.end_bytes(),
                    modified_ns: writing.modified_ns.unwrap_or(below.modified_ns),
                    ..below
                })
            }
            State::There { object, index } => {
                Ok(Stat { size_bytes: index.size_bytes, ..object.stat()? })
            }
            State::Failed => self.failed("stat an object"),
        }
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        match &mut *lock(&self.state) {
            State::Writing { writing, .. } => {
                writing.modified_ns = Some(wall_ns);
                match self.shared.is_whole {
                    // Its first request takes the time along.
                    true => writing.object.set_modified(wall_ns),
                    false => Ok(()),
                }
            }
            State::There { object, .. } => object.set_modified(wall_ns),
            State::Failed => self.failed("set the time of an object"),
        }
    }

    fn sync(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let State::Writing { writing, identity } = &mut *state else {
            return match &*state {
                State::There { object, .. } => object.sync(),
                _ => self.failed("sync an object"),
            };
        };
        let finished = self.finish(writing, identity.as_deref());
        *state = match (std::mem::replace(&mut *state, State::Failed), &finished) {
            (State::Writing { writing, .. }, Ok(())) => {
                let (object, index) = writing.into_index();
                State::There { object: object.into(), index: Arc::new(index) }
            }
            _ => State::Failed,
        };
        finished.map_err(|error| error.with("key", &self.key))
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        match &*lock(&self.state) {
            State::Writing { writing, .. } => writing.object.label(),
            State::There { object, .. } => object.label(),
            State::Failed => None,
        }
    }
}

impl Drop for FramedObject {
    fn drop(&mut self) {
        self.shared.cache.forget(self.handle);
        let is_finished = matches!(&*lock(&self.state), State::There { .. });
        if !is_finished && !self.shared.is_whole {
            // The backend below has shown it since it was created.
            if let Err(error) = self.shared.inner.delete_if_exists(&self.key) {
                let error = error.chain();
                tracing::debug!(key = %self.key, error, "an unfinished object is left to recovery");
            }
            self.shared.note_finished(&self.key);
        }
    }
}
