// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of Python objects: bytes, bytearrays, memoryviews, arrays.
//!
//! A view does not always keep the memory that it shows: `io.BufferedWriter`, for one, passes views of a buffer of its own
//! without an owner, and frees that when it is gone. So memory that is read or written behind the end of a call must not
//! be that of a view.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyErr, ffi};

/// `Py_buffer`, as every CPython since 3.3 has it. The stable interface of CPython has it since 3.11; 3.10 exports
/// the same functions.
#[repr(C)]
struct View {
    bytes: *mut c_void,
    object: *mut ffi::PyObject,
    length_bytes: isize,
    item_bytes: isize,
    is_read_only: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

const READABLE: c_int = 0;
const WRITABLE: c_int = 1;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// Contiguous memory of a Python object, which stays where it is while the call goes on that it was passed to.
///
/// Operations without the GIL share it with their caller, so that it is dropped with the GIL: to take that anew in a
/// destructor is no good while the interpreter ends.
pub(crate) struct Buffer {
    /// Exporters keep pointers into it, so that it must not move.
    view: Box<View>,
}

// SAFETY: the memory stays until the call that it was passed to returns, which waits for all that uses it. That another
// thread of Python changes it meanwhile is for the program to prevent, as with every `readinto`.
unsafe impl Send for Buffer {}
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory to read from.
    pub(crate) fn readable(object: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        Self::of(object, READABLE).map(Arc::new)
    }

    /// Memory to write to.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        Self::of(object, WRITABLE).map(Arc::new)
    }

    /// A copy of its bytes, made without the GIL.
    fn copied(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let mut copy = reserved(self.len())?;
        py.detach(|| copy.extend_from_slice(self.bytes()));
        Ok(copy)
    }

    fn of(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(View {
            bytes: ptr::null_mut(),
            object: ptr::null_mut(),
            length_bytes: 0,
            item_bytes: 0,
            is_read_only: 0,
            dimensions: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: the GIL is held, and the view is of the layout that CPython writes.
        match unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } {
            0 => Ok(Self { view }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.view.length_bytes.unsigned_abs()
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.len() {
            0 => &[],
            // SAFETY: the view covers so many bytes until it is released.
            length => unsafe { std::slice::from_raw_parts(self.view.bytes.cast(), length) },
        }
    }

    /// Its bytes from `start` on, at most `length`, of a buffer that is writable. One caller uses them at a time.
    #[expect(clippy::mut_from_ref, reason = "the memory is that of another object")]
    pub(crate) fn part_mut(&self, start: usize, length: usize) -> &mut [u8] {
        assert!(self.view.is_read_only == 0, "the buffer was asked for as writable");
        let length = length.min(self.len().saturating_sub(start));
        match length {
            0 => &mut [],
            // SAFETY: as above, and the exporter says that it may be written to.
            _ => unsafe {
                std::slice::from_raw_parts_mut(self.view.bytes.cast::<u8>().add(start), length)
            },
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A thread that outlives the interpreter leaves the memory as it is.
        let _ = Python::try_attach(|_| {
            // SAFETY: the GIL is held, and the view was filled by `PyObject_GetBuffer`.
            unsafe { PyBuffer_Release(&raw mut *self.view) }
        });
    }
}

/// What an operation reads. The caller keeps a clone until the operation has ended, so that it is dropped with the GIL.
#[derive(Clone)]
pub(crate) enum Input {
    /// The memory of the caller, for an operation that ends before the call does.
    Lent(Arc<Buffer>),
    /// `bytes`, which own their memory and never change.
    Kept(Arc<Kept>),
    /// A copy.
    Copied(Arc<Vec<u8>>),
}

impl Input {
    /// What stays also where the caller has freed its memory.
    pub(crate) fn owned(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            let memory: *const [u8] = bytes.as_bytes();
            return Ok(Self::Kept(Arc::new(Kept { memory, _bytes: bytes.clone().unbind() })));
        }
        Ok(Self::Copied(Arc::new(Buffer::readable(object)?.copied(object.py())?)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Lent(buffer) => buffer.bytes(),
            // SAFETY: the object is kept.
            Self::Kept(kept) => unsafe { &*kept.memory },
            Self::Copied(copy) => copy,
        }
    }
}

/// The memory of an object, and a reference to that. A thread without the GIL may drop it: PyO3 releases the object later.
pub(crate) struct Kept {
    memory: *const [u8],
    _bytes: Py<PyBytes>,
}

// SAFETY: the memory is constant, and stays with the object.
unsafe impl Send for Kept {}
unsafe impl Sync for Kept {}

/// Room for so many bytes.
pub(crate) fn reserved(length: usize) -> PyResult<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(length).map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    Ok(room)
}
