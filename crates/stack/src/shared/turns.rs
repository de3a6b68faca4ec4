// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The locks of operations that are seen whole or not at all.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks for all objects. Two objects with one lock wait for each other, so there are more of them
/// than operations at a time.
const LOCKS: u64 = 256;

/// Locks by object, held over the I/O of one operation: shared by reads, exclusive for changes. No
/// thread takes two of them, and a thread that holds one waits for no name and no migration.
#[derive(Debug)]
pub(crate) struct Turns(Box<[Turn]>);

/// On a cache line of its own: neighbours do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Turn(RwLock<()>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Turn::default()).collect())
    }
}

impl Turns {
    pub(crate) fn shared(&self, object_id: u64) -> RwLockReadGuard<'_, ()> {
        self.of(object_id).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Also after a panic: the operation restored what it had overwritten before it released the lock.
    pub(crate) fn alone(&self, object_id: u64) -> RwLockWriteGuard<'_, ()> {
        self.of(object_id).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers of objects are given one after the other, so they spread by themselves.
    fn of(&self, object_id: u64) -> &RwLock<()> {
        &self.0[(object_id % LOCKS) as usize].0
    }
}
