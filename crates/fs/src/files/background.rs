// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that works until it is ended.

use std::sync::Mutex;
use std::thread::JoinHandle;

use terrace_core::Error;

use crate::failure::Result;
use crate::lock;

/// A thread that works in the background.
pub(super) struct Background(Mutex<Option<JoinHandle<()>>>);

impl Background {
    /// Starts it.
    pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<Self> {
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .map_err(|error| Error::from_io("start a thread", error))?;
        Ok(Self(Mutex::new(Some(thread))))
    }

    /// None: there is nothing to be done.
    pub(super) fn idle() -> Self {
        Self(Mutex::new(None))
    }

    /// Has `tell` say that it is to end, and waits until it has; false where it has already.
    pub(super) fn stop(&self, tell: impl FnOnce()) -> bool {
        let Some(thread) = lock(&self.0).take() else { return false };
        tell();
        // A panic of the thread is in the log.
        let _ = thread.join();
        true
    }
}
