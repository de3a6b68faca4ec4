// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named steps at which a test may stop the world.

use std::fmt;
use std::sync::Arc;

use crate::Result;

/// Is called at every failpoint that is passed.
pub trait Watcher: Send + Sync + fmt::Debug {
    /// Called at the step; an error makes the step fail, as if the process had died there.
    ///
    /// # Errors
    ///
    /// Whatever the test wants the caller to see.
    fn hit(&self, name: &'static str) -> Result<()>;
}

/// A crate's hook to its failpoints: nothing in production, a [`Watcher`] in tests.
///
/// Every crate that has failpoints lists their names in one table; the crash tests enumerate the
/// table and fail when one was not visited.
#[derive(Clone, Debug, Default)]
pub struct Failpoints {
    watcher: Option<Arc<dyn Watcher>>,
}

impl Failpoints {
    /// Failpoints that report to `watcher`.
    pub fn watched(watcher: Arc<dyn Watcher>) -> Self {
        Self { watcher: Some(watcher) }
    }

    /// Whether a watcher is set.
    pub fn is_watched(&self) -> bool {
        self.watcher.is_some()
    }

    /// Passes the failpoint `name`.
    ///
    /// # Errors
    ///
    /// What the watcher returns; never without one.
    #[inline]
    pub fn hit(&self, name: &'static str) -> Result<()> {
        match &self.watcher {
            None => Ok(()),
            Some(watcher) => watcher.hit(name),
        }
    }
}
