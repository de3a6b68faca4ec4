// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files and directories by number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock;

/// More than the threads that usually serve one mount, so that they seldom meet.
const SHARDS: usize = 16;

/// Things by number. A number is never used again.
pub(crate) struct Table<T> {
    next: AtomicU64,
    shards: [Mutex<HashMap<u64, Arc<T>>>; SHARDS],
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), shards: Default::default() }
    }
}

impl<T> Table<T> {
    pub(crate) fn add(&self, thing: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(self.shard(number)).insert(number, Arc::new(thing));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        lock(self.shard(number)).get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) {
        // Dropped after the lock is released: that may take a moment.
        let removed = lock(self.shard(number)).remove(&number);
        drop(removed);
    }

    fn shard(&self, number: u64) -> &Mutex<HashMap<u64, Arc<T>>> {
        &self.shards[number as usize % SHARDS]
    }
}
