// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a scrub runs, and when the next is due.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// One scrub at a time.
#[derive(Debug, Default)]
pub(crate) struct Scrubbing {
    pub(crate) running: Mutex<()>,
    /// A scrub is requested: the one in the background lets go.
    pub(crate) is_asked: AtomicBool,
    pub(crate) is_running: AtomicBool,
    /// Before this time nothing is due, nanoseconds since 1970.
    pub(crate) idle_until_ns: Mutex<u64>,
}

impl Scrubbing {
    /// Waits for the end of a scrub that has noticed that the store is closing.
    pub(crate) fn wait(&self) {
        drop(crate::lock(&self.running));
    }
}
