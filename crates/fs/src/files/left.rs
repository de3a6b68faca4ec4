// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are closed here and that may be changed all the same: a mapping outlives the
//! close. As long as that is so the object is asked whenever its size is needed, as for one that is
//! open; then the answer is noted, and it is not asked any more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrace_core::{Access, Stat};

use super::Files;
use super::open::Shared;
use crate::failure::Result;
use crate::lock;
use crate::request::Settled;

/// Pauses before each look. A kernel tells of a close, and then lets go of the file; a mapping stays for
/// longer than all of this.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_micros(20),
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
];

/// Those of which nothing was noted when they were closed.
#[derive(Default)]
pub(super) struct StillHeld(Mutex<HashSet<u64>>);

impl StillHeld {
    pub(super) fn contains(&self, number: u64) -> bool {
        lock(&self.0).contains(&number)
    }
}

impl Files {
    /// What the object of a file says as its last writer here closes it, beside readers or not; `None`,
    /// so that a later look asks, where that cannot be done now or it may still be changed.
    pub(super) fn stat_left(&self, file: Arc<Shared>, has_readers: bool) -> Option<Stat> {
        let number = file.number;
        let stat = file.object_stat().ok()??;
        if !stat.is_held {
            return Some(stat);
        }
        // By its own handle as well, which readers go on to use.
        drop(file);
        let key = self.key(number).ok()?;
        for pause in PAUSES.iter().filter(|_| !has_readers) {
            self.clock.sleep(*pause);
            let stat = self.data.stat(&key).ok()?;
            if !stat.is_held {
                return Some(stat);
            }
        }
        lock(&self.still_held.0).insert(number);
        None
    }

    /// Asks the object of a file once more that was still held when its last writer closed it, unless
    /// it is open here.
    pub(super) fn look_at_left(&self, number: u64) {
        // The holder of the number may want this lock: nothing waits for that holder with it.
        let is_left = lock(&self.still_held.0).contains(&number);
        if is_left && self.open.file(number).is_none() {
            self.forget_left(number);
            self.note_left(number);
        }
    }

    /// Asks for one no more.
    pub(super) fn forget_left(&self, number: u64) {
        lock(&self.still_held.0).remove(&number);
    }

    /// Asks the objects of all of them once more, at the end.
    pub(super) fn look_at_all_left(&self) {
        let all = std::mem::take(&mut *lock(&self.still_held.0));
        all.into_iter().for_each(|number| self.note_left(number));
    }

    fn note_left(&self, number: u64) {
        // Where this fails a later look at the file asks the object.
        if let Err(failure) = self.node(number) {
            tracing::debug!(file = number, %failure, "cannot ask the object of a closed file");
        }
    }

    /// As [`Files::settle`], of an object that may go on to be changed: with a writer it is still asked
    /// behind this.
    pub(super) fn settle_held(self: &Arc<Self>, number: u64, stat: Stat) -> Result<u64> {
        let writer = match stat.is_held {
            true => Some(self.open_stale(number, Access::Write)?),
            false => None,
        };
        let settled = self.settle(number, stat);
        drop(writer);
        settled
    }
}

/// What the metadata get of an object.
pub(super) fn settled(stat: Stat) -> Settled {
    Settled {
        size: stat.size_bytes,
        allocated_bytes: stat.allocated_bytes,
        modified_ns: stat.modified_ns,
    }
}
