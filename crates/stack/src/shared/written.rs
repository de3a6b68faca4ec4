// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that a process may write to past the stack.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::memory::entry::Entry;

/// First and longest pause between two looks whether anybody can still write to a file: a kernel
/// closes its files a moment after the program does, and a mapping stays for hours.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The objects of a stack that may be written to past it, by number. They stay in memory.
#[derive(Debug, Default)]
pub(crate) struct Written {
    all: Mutex<HashMap<u64, Object>>,
}

#[derive(Debug)]
struct Object {
    entry: Arc<Entry>,
    /// Since all handles are gone.
    look: Option<Look>,
}

/// When it is looked next whether anybody can still write.
#[derive(Clone, Copy, Debug)]
struct Look {
    due_ns: u64,
    pause: Duration,
}

impl Written {
    /// Notes an object that is held for writing; false, and nothing is noted, where `is_over` returns
    /// true. A look whether [anything is noted](Written::is_any) after `is_over` has become
    /// true finds it.
    pub(crate) fn add(&self, entry: &Arc<Entry>, is_over: impl FnOnce() -> bool) -> bool {
        let mut all = crate::lock(&self.all);
        if is_over() {
            return false;
        }
        all.insert(entry.object_id, Object { entry: Arc::clone(entry), look: None });
        true
    }

    /// Notes that all handles are gone, or that the last look at `now_ns` found a writer.
    pub(crate) fn look_later(&self, object_id: u64, now_ns: u64) {
        if let Some(object) = crate::lock(&self.all).get_mut(&object_id) {
            let pause = object.look.map_or(PAUSE_MIN, |look| (look.pause * 2).min(PAUSE_MAX));
            object.look = Some(Look { due_ns: now_ns + pause.as_nanos() as u64, pause });
        }
    }

    /// It can no longer be written to past the stack.
    pub(crate) fn remove(&self, object_id: u64) {
        let removed = crate::lock(&self.all).remove(&object_id);
        // The last reference may close files: behind the lock.
        drop(removed);
    }

    /// Those whose handles are gone and whose time to be looked at has come.
    pub(crate) fn due(&self, now_ns: u64) -> Vec<Arc<Entry>> {
        let all = crate::lock(&self.all);
        let is_due = |object: &&Object| object.look.is_some_and(|look| look.due_ns <= now_ns);
        all.values().filter(is_due).map(|object| Arc::clone(&object.entry)).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        crate::lock(&self.all).values().map(|object| Arc::clone(&object.entry)).collect()
    }

    /// Whether there are any but those that were deleted.
    pub(crate) fn is_any(&self) -> bool {
        crate::lock(&self.all).values().any(|object| !object.entry.is_deleted())
    }
}
