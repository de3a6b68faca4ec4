// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open objects: what `terrace.Object`, a file of Python, is made of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use terrace::{Atomicity, Draft, Error, Object, Options, Result};

use crate::buffer::{Buffer, reserved};
use crate::errors::{exception, invalid};
use crate::fork::Owned;
use crate::handle::{StoreHandle, User};
use crate::run::{Course, run};
use crate::stat::Stat;

/// Bytes of a long read between two looks for signals.
const PIECE_BYTES: usize = 8 << 20;

/// How an object is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Read,
    Open,
    Create,
    CreateNew,
    Replace,
}

impl How {
    pub(crate) fn parse(word: &str) -> Result<Self> {
        Ok(match word {
            "read" => Self::Read,
            "open" => Self::Open,
            "create" => Self::Create,
            "create-new" => Self::CreateNew,
            "replace" => Self::Replace,
            other => {
                return Err(invalid("open an object", "the mode is unknown").with("mode", other));
            }
        })
    }
}

/// What is open.
struct Opened {
    object: Object,
    draft: Option<Draft>,
}

/// An object and how to open it again in a forked child.
struct Source {
    store: Arc<StoreHandle>,
    name: String,
    how: How,
    options: Options,
    opened: ArcSwapOption<Owned<Opened>>,
    is_closed: AtomicBool,
}

impl Source {
    fn open(&self, how: How) -> Result<Opened> {
        let builder = self.store.store()?.object(&self.name)?.options(self.options.clone());
        let object = match how {
            How::Read => builder.read()?,
            How::Open => builder.open()?,
            How::Create => builder.create()?,
            How::CreateNew => builder.create_new()?,
            How::Replace => {
                let draft = builder.replace()?;
                return Ok(Opened { object: draft.object(), draft: Some(draft) });
            }
        };
        Ok(Opened { object, draft: None })
    }

    /// What is open, opened by this process.
    fn opened(self: &Arc<Self>) -> Result<Arc<Owned<Opened>>> {
        if self.is_closed.load(Ordering::Relaxed) || self.store.is_closed() {
            return Err(self.closed());
        }
        let found = self.opened.load_full();
        // Only closing takes away what is open, also since the look above.
        let Some(opened) = &found else { return Err(self.closed()) };
        if opened.is_own() {
            return Ok(opened.clone());
        }
        if self.how == How::Replace {
            let reason = "the value is written by the process that this one was forked from";
            return Err(invalid("use an object", reason).with("name", &self.name));
        }
        // It exists by now.
        let how = if self.how == How::Read { How::Read } else { How::Open };
        let opened = Arc::new(Owned::new(self.open(how)?));
        let user: Weak<Self> = Arc::downgrade(self);
        self.store.register(user)?;
        let before = self.opened.compare_and_swap(&found, Some(opened.clone()));
        match &*before {
            None => Err(self.closed()),
            // Another thread was faster.
            Some(other) if other.is_own() => Ok(other.clone()),
            Some(_) => Ok(opened),
        }
    }

    fn object(self: &Arc<Self>) -> Result<Object> {
        Ok(self.opened()?.object.clone())
    }

    /// The error of what comes behind the end.
    fn closed(&self) -> Error {
        match self.store.is_closed() && !self.is_closed.load(Ordering::Relaxed) {
            true => self.store.closed(),
            false => invalid("use an object", "it is closed").with("name", &self.name),
        }
    }
}

impl User for Source {
    fn release(&self) {
        self.opened.store(None);
    }
}

/// An open object. Its methods may be called by many threads at once.
#[pyclass(frozen, module = "terrace._native")]
pub(crate) struct Handle {
    source: Arc<Source>,
}

impl Handle {
    pub(crate) fn open(
        py: Python<'_>,
        store: Arc<StoreHandle>,
        name: String,
        how: How,
        options: Options,
    ) -> PyResult<Self> {
        let source = Arc::new(Source {
            store: store.clone(),
            name,
            how,
            options,
            opened: ArcSwapOption::empty(),
            is_closed: AtomicBool::new(false),
        });
        let opening = source.clone();
        run(py, &store, move || {
            let opened = opening.open(how)?;
            opening.opened.store(Some(Arc::new(Owned::new(opened))));
            let user: Weak<Source> = Arc::downgrade(&opening);
            opening.store.register(user)
        })?;
        Ok(Self { source })
    }

    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(Object) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let source = self.source.clone();
        run(py, &self.source.store, move || work(source.object()?))
    }

    /// Bytes that may be read with one operation: all where an operation is seen whole.
    fn piece_bytes(&self) -> usize {
        match self.source.options.semantics.atomicity {
            Atomicity::None => PIECE_BYTES,
            _ => usize::MAX,
        }
    }
}

#[pymethods]
impl Handle {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.source.name
    }

    /// Reads into a buffer; returns the bytes read, fewer than asked for only at the end.
    fn read_into(
        &self,
        py: Python<'_>,
        offset_bytes: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let buffer = Buffer::writable(buffer)?;
        let (total, piece_bytes) = (buffer.len(), self.piece_bytes());
        let course = Course::of(&self.source.store);
        let mut staged = Vec::new();
        let mut filled = 0;
        while filled < total {
            let (at, length) = (offset_bytes + filled as u64, piece_bytes.min(total - filled));
            let source = self.source.clone();
            let count = if course.is_interruptible() {
                let mut memory = if filled == 0 { reserved(length)? } else { staged };
                let count;
                (count, staged) = course.run(py, move || {
                    memory.resize(length, 0);
                    Ok((source.object()?.read_at(at, &mut memory)?, memory))
                })?;
                py.detach(|| buffer.part_mut(filled, count).copy_from_slice(&staged[..count]));
                count
            } else {
                let shared = buffer.clone();
                course.run(py, move || {
                    source.object()?.read_at(at, shared.part_mut(filled, length))
                })?
            };
            filled += count;
            if count < length {
                break;
            }
            py.check_signals()?;
        }
        Ok(filled)
    }

    /// Reads up to `length_bytes`.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        const SMALL_BYTES: usize = 64 << 10;
        if length_bytes <= SMALL_BYTES {
            let data = self.with(py, move |object| {
                let mut data = vec![0; length_bytes];
                let count = object.read_at(offset_bytes, &mut data)?;
                data.truncate(count);
                Ok(data)
            })?;
            return Ok(PyBytes::new(py, &data));
        }
        let (object, size_bytes) = self.with(py, |object| Ok((object.clone(), object.len()?)))?;
        let end = offset_bytes.saturating_add(length_bytes as u64).min(size_bytes);
        let length = end.saturating_sub(offset_bytes);
        if self.piece_bytes() == usize::MAX {
            let mut data = reserved(length as usize)?;
            let data = self.with(py, move |object| {
                data.resize(length as usize, 0);
                let count = object.read_at(offset_bytes, &mut data)?;
                data.truncate(count);
                Ok(data)
            })?;
            return Ok(PyBytes::new(py, &data));
        }
        read_rest(py, &self.source.store, object, offset_bytes, length, &[])
    }

    /// Writes all of `data`; the object grows as needed.
    fn write_at(
        &self,
        py: Python<'_>,
        offset_bytes: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let course = Course::of(&self.source.store);
        let data = course.input(data)?;
        let (source, shared) = (self.source.clone(), data.clone());
        course.run(py, move || source.object()?.write_at(offset_bytes, shared.bytes()))?;
        Ok(data.bytes().len())
    }

    /// Writes all of `data` at the end and returns where it begins.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let course = Course::of(&self.source.store);
        let data = course.input(data)?;
        let (source, shared) = (self.source.clone(), data.clone());
        let begin = course.run(py, move || source.object()?.append(shared.bytes()));
        drop(data);
        begin
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |object| object.sync())
    }

    fn length_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |object| object.len())
    }

    fn set_len(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        self.with(py, move |object| object.set_len(bytes))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.with(py, |object| object.stat()).map(Stat::from)
    }

    fn label<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let label = self.with(py, |object| Ok(object.label()))?;
        Ok(label.map(|label| PyBytes::new(py, &label)))
    }

    /// Makes the name stand for the value that was written, where the mode is `replace`.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        let source = self.source.clone();
        run(py, &self.source.store, move || match &source.opened()?.draft {
            Some(draft) => draft.publish(),
            None => Ok(()),
        })
    }

    /// Closes the handle; a value that was not published is discarded.
    fn close(&self, py: Python<'_>) {
        self.source.is_closed.store(true, Ordering::Relaxed);
        let opened = self.source.opened.swap(None);
        py.detach(|| drop(opened));
    }
}

/// The bytes from an offset on as Python's, of which the beginning is known. The object is dropped without the GIL.
pub(crate) fn read_rest<'py>(
    py: Python<'py>,
    store: &StoreHandle,
    object: Object,
    offset_bytes: u64,
    length_bytes: u64,
    beginning: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let read = read_rest_of(py, store, &object, offset_bytes, length_bytes, beginning);
    py.detach(|| drop(object));
    read
}

fn read_rest_of<'py>(
    py: Python<'py>,
    store: &StoreHandle,
    object: &Object,
    offset_bytes: u64,
    length_bytes: u64,
    beginning: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let length = usize::try_from(length_bytes).map_err(|_| {
        exception(py, &invalid("read an object", "it is larger than the memory of this machine"))
    })?;
    let length = length.max(beginning.len());
    let bytes = uninitialised(py, length)?;
    let target = Target(bytes.as_bytes().as_ptr().cast_mut());
    // SAFETY: no other code has a reference to the object yet, and it has that many bytes.
    unsafe { std::ptr::copy_nonoverlapping(beginning.as_ptr(), target.0, beginning.len()) };
    let mut filled = beginning.len();
    while filled < length {
        // Keeps the memory also where a signal interrupts this while a server still sends. It comes back to be dropped
        // under the GIL: without that, dropping takes a lock of PyO3, which a child that is forked meanwhile
        // would find taken for ever.
        let (object, keep) = (object.clone(), bytes.clone().unbind());
        let target = Target(target.0);
        let (count, keep) = run(py, store, move || {
            let target = target;
            let count = PIECE_BYTES.min(length - filled);
            // SAFETY: as above, and the interpreter may not look at the object before it is returned.
            let piece = unsafe { std::slice::from_raw_parts_mut(target.0.add(filled), count) };
            Ok((object.read_at(offset_bytes + filled as u64, piece), keep))
        })?;
        drop(keep);
        let count = count.map_err(|error| exception(py, &error))?;
        if count == 0 {
            // It became shorter meanwhile.
            return Ok(PyBytes::new(py, &bytes.as_bytes()[..filled]));
        }
        filled += count;
        py.check_signals()?;
    }
    Ok(bytes)
}

/// Where a thread may write while the GIL is not held.
struct Target(*mut u8);

// SAFETY: the bytes belong to one reader, which keeps their object alive.
unsafe impl Send for Target {}

/// Bytes that are yet to be written.
fn uninitialised(py: Python<'_>, length: usize) -> PyResult<Bound<'_, PyBytes>> {
    let size = ffi::Py_ssize_t::try_from(length)?;
    // SAFETY: NULL asks for memory without content; the GIL is held.
    let object = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))
    }?;
    Ok(object.cast_into()?)
}
