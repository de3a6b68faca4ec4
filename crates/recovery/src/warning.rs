// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last warning of a background thread, which is not repeated at each try.

use std::sync::Mutex;

use terrace_core::Error;

use crate::lock;

/// The last warning about what does not work.
#[derive(Default)]
pub(crate) struct Warning(Mutex<Option<String>>);

impl Warning {
    /// Logs an error with what it means, unless it is the same as the last one.
    pub(crate) fn log(&self, error: &Error, meaning: &str) {
        let text = error.chain();
        let mut last = lock(&self.0);
        if last.as_ref() != Some(&text) {
            tracing::warn!(error = text, "{meaning}");
            *last = Some(text);
        }
    }

    /// It works again: the next error is logged in any case.
    pub(crate) fn clear(&self) {
        *lock(&self.0) = None;
    }
}
