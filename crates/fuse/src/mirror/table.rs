// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Things by number, for many threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// More than the threads that serve one mount, so that they seldom meet.
const SHARDS: usize = 16;

/// Things by number. A number is never used again.
#[derive(Debug)]
pub(super) struct Table<T> {
    next: AtomicU64,
    shards: [RwLock<HashMap<u64, Arc<T>>>; SHARDS],
}

impl<T> Table<T> {
    /// Numbers from `first` on.
    pub(super) fn new(first: u64) -> Self {
        Self { next: AtomicU64::new(first), shards: Default::default() }
    }

    /// A number for something that will be put in.
    pub(super) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn put(&self, number: u64, thing: Arc<T>) {
        self.write(number, |things| things.insert(number, thing));
    }

    pub(super) fn add(&self, thing: T) -> u64 {
        let number = self.next_number();
        self.put(number, Arc::new(thing));
        number
    }

    pub(super) fn get(&self, number: u64) -> Option<Arc<T>> {
        let things = self.shard(number).read().unwrap_or_else(PoisonError::into_inner);
        things.get(&number).cloned()
    }

    pub(super) fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.write(number, |things| things.remove(&number))
    }

    fn write<R>(&self, number: u64, change: impl FnOnce(&mut HashMap<u64, Arc<T>>) -> R) -> R {
        // A map is whole between its calls, also after a panic.
        change(&mut self.shard(number).write().unwrap_or_else(PoisonError::into_inner))
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<T>>> {
        &self.shards[number as usize % SHARDS]
    }
}
