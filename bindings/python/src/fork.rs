// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a forked child must not use: handles whose threads and locks are those of its parent.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::PyResult;
use pyo3::exceptions::PyOSError;

/// Forks between the process that loaded the module and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on, also those of C libraries.
pub(crate) fn count_forks() -> PyResult<()> {
    static REGISTERED: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handler is async-signal-safe, and stays loaded: Python unloads no modules.
    let result =
        *REGISTERED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
    match result {
        0 => Ok(()),
        number => Err(PyOSError::new_err((number, "cannot register a handler for forks"))),
    }
}

/// Distinguishes a process from all that it was forked from.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// A value that belongs to the process that made it. A forked child forgets it: dropping it would wait for threads
/// that the child does not have.
pub(crate) struct Owned<T> {
    generation: u64,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { generation: generation(), value: ManuallyDrop::new(value) }
    }

    /// Whether this process made it.
    pub(crate) fn is_own(&self) -> bool {
        self.generation == generation()
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: it is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
