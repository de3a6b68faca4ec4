// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether what a server has forgotten may be opened again.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use terrace_core::{Key, Result};

/// Decides whether an object can still be used in a later life of the session through handles that
/// were opened in an earlier one.
pub trait ReopenGuard: Send + Sync {
    /// Asked before the object is opened again; may ask servers.
    ///
    /// # Errors
    ///
    /// Why it cannot be used: so fails whatever was to be done with it.
    fn before_reopen(&self, key: &Key) -> Result<()>;
}

/// All guards that are asked.
#[derive(Default)]
pub(super) struct Reopening {
    guards: RwLock<Vec<Weak<dyn ReopenGuard>>>,
}

impl Reopening {
    pub(super) fn add(&self, guard: &Arc<dyn ReopenGuard>) {
        let mut guards = self.guards.write().unwrap_or_else(PoisonError::into_inner);
        guards.retain(|guard| guard.strong_count() > 0);
        guards.push(Arc::downgrade(guard));
    }

    /// Asks all.
    ///
    /// # Errors
    ///
    /// What the first says that has something against it.
    pub(super) fn check(&self, key: &Key) -> Result<()> {
        // Not held over questions.
        let guards = self.guards.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut guards = guards.iter().filter_map(Weak::upgrade);
        guards.try_for_each(|guard| guard.before_reopen(key))
    }
}
