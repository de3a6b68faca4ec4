// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file systems that an owner of a store has opened, and how one is opened and made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrace_core::{Backend, Clock, Cursor, Error, ErrorKind, Key, Kv, Result};
use terrace_fs::{FileClock, Tree, TreeOptions};

/// The file systems that an owner of a store has opened.
#[derive(Default)]
pub(crate) struct Trees {
    planted: Mutex<HashMap<String, Planted>>,
    /// The one that is being checked: it is not used meanwhile. Locked behind `planted`.
    checked: Mutex<Option<String>>,
}

/// An opened file system.
pub(crate) struct Planted {
    pub(crate) tree: Arc<Tree>,
    /// Whether it is used exclusively in this process.
    pub(crate) is_taken: bool,
}

impl Trees {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<String, Planted>> {
        // Entries are put in and changed as wholes.
        self.planted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn checked(&self) -> MutexGuard<'_, Option<String>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a file system from being used until the return value is dropped; `None` where it is
    /// in use.
    pub(crate) fn keep_out(&self, name: &str) -> Option<Checked<'_>> {
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
pub(crate) struct Checked<'a>(&'a Trees);

impl Drop for Checked<'_> {
    fn drop(&mut self) {
        *self.0.checked() = None;
    }
}

pub(crate) const OPEN: &str = "open a file system";
pub(crate) const MAKE: &str = "make a file system";

pub(crate) fn make_tree(kv: &dyn Kv, options: &TreeOptions) -> Result<()> {
    let mut entropy = [0; 32];
    terrace_transport::random_bytes(&mut entropy)?;
    let clock = terrace_core::SystemClock::default();
    Tree::create(kv, options, &clock, &entropy).map_err(|failure| failure.into_error(MAKE))
}

pub(crate) fn open_tree(kv: Arc<dyn Kv>, clock: &Arc<dyn Clock>, name: &str) -> Result<Arc<Tree>> {
    if !Tree::exists(&*kv).map_err(|failure| failure.into_error(OPEN))? {
        return Err(Error::new(ErrorKind::NotFound, OPEN)
            .because("the store has none of this name; `terrace mount` makes one")
            .with("name", name));
    }
    Tree::open(kv, FileClock::new(Arc::clone(clock))).map_err(|failure| failure.into_error(OPEN))
}

/// An object of a namespace, if there is any.
pub(crate) fn first_object(data: &dyn Backend, namespace: &str) -> Result<Option<Key>> {
    let mut cursor = Some(Cursor::start());
    while let Some(from) = cursor {
        let mut page = data.list(namespace, "", &from, 1)?;
        if let found @ Some(_) = page.keys.pop() {
            return Ok(found);
        }
        cursor = page.next;
    }
    Ok(None)
}
