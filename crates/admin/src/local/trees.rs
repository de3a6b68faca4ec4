// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file systems that an owner of a store has opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_fs::Tree;

/// The file systems that an owner of a store has opened.
#[derive(Default)]
pub(super) struct Trees {
    planted: Mutex<HashMap<String, Planted>>,
    /// The one that is being checked: it is not used meanwhile. Locked behind `planted`.
    checked: Mutex<Option<String>>,
}

/// An opened file system.
pub(super) struct Planted {
    pub(super) tree: Arc<Tree>,
    /// Whether it is used exclusively in this process.
    pub(super) is_taken: bool,
}

impl Trees {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Planted>> {
        // Entries are put in and changed as wholes.
        self.planted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn checked(&self) -> MutexGuard<'_, Option<String>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a file system from being used until the return value is dropped; `None` where it is
    /// in use.
    pub(super) fn keep_out(&self, name: &str) -> Option<Checked<'_>> {
        let mut planted = self.lock();
        let mut checked = self.checked();
        // The map has one; sessions have more.
        let is_used = |one: &Planted| one.is_taken || Arc::strong_count(&one.tree) > 1;
        if checked.is_some() || planted.get(name).is_some_and(is_used) {
            return None;
        }
        // What it remembers may not be so afterwards.
        planted.remove(name);
        *checked = Some(name.into());
        Some(Checked(self))
    }
}

/// Keeps everybody from a file system.
pub(super) struct Checked<'a>(&'a Trees);

impl Drop for Checked<'_> {
    fn drop(&mut self) {
        *self.0.checked() = None;
    }
}
