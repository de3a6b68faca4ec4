// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors as exceptions: a class for each kind, see `python/terrace/_errors.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use terrace::{Error, ErrorKind};

/// The module with the classes, and the name of the dictionary from words of kinds to them.
const MODULE: &str = "terrace._errors";
const CLASSES: &str = "BY_KIND";

static BY_KIND: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Loads the classes. Later calls then run no code of Python: where that gives the GIL away while the interpreter ends,
/// Python 3.13 and earlier end the thread by unwinding its stack, which must not pass through Rust.
pub(crate) fn load(py: Python<'_>) -> PyResult<()> {
    classes(py).map(drop)
}

fn classes(py: Python<'_>) -> PyResult<&'static Py<PyDict>> {
    BY_KIND.get_or_try_init(py, || {
        let classes = py.import(MODULE)?.getattr(CLASSES)?;
        PyResult::Ok(classes.cast_into::<PyDict>()?.unbind())
    })
}

/// The number of the operating system that is nearest to a kind, where none is underneath.
fn number(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::Exists => libc::EEXIST,
        ErrorKind::NoSpace => libc::ENOSPC,
        ErrorKind::Stale => libc::ESTALE,
        ErrorKind::Busy => libc::EBUSY,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::Denied => libc::EACCES,
        ErrorKind::Invalid => libc::EINVAL,
        ErrorKind::Unreachable { .. } => libc::EHOSTUNREACH,
        _ => libc::EIO,
    }
}

/// The exception of an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    match instance(py, error) {
        Ok(instance) => PyErr::from_value(instance),
        Err(failure) => failure,
    }
}

/// The same as an object, for results that hold it.
pub(crate) fn instance<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let class = classes(py)?.bind(py).as_any().get_item(error.kind().word())?;
    let instance =
        class.call1((error.os_error().unwrap_or(number(error.kind())), error.chain()))?;
    if let ErrorKind::Unreachable { applied } = error.kind() {
        // What the request did is unknown, or it is known that it did nothing.
        let is_known = format!("{applied:?}") == "No";
        instance.setattr("applied", is_known.then_some(false))?;
    }
    Ok(instance)
}

/// The error of an argument that is wrong.
pub(crate) fn invalid(operation: &'static str, reason: impl Into<String>) -> Error {
    Error::invalid(operation, reason)
}
