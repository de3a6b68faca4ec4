// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of Python objects: bytes, bytearrays, memoryviews, arrays.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::prelude::*;
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

/// Contiguous memory of a Python object, which stays where it is until this is dropped.
///
/// Operations without the GIL share it with their caller, so that it is dropped with the GIL: to take that anew in a
/// destructor is no good while the interpreter ends.
pub(crate) struct Buffer {
    /// Exporters keep pointers into it, so that it must not move.
    view: Box<View>,
}

// SAFETY: the memory stays until the view is released, which takes the GIL. That another thread of Python changes it
// meanwhile is for the program to prevent, as with every `readinto`.
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
