// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of a server: its end is when all of them have let go of what is served.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;

/// Counts threads.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    count: Mutex<usize>,
    left: Condvar,
}

/// A thread of the crew, until it is dropped.
#[derive(Debug)]
pub(crate) struct Member(Arc<Crew>);

impl Crew {
    /// To be called before the thread begins, and dropped by it, as the last of all that it has.
    pub(crate) fn join(self: &Arc<Self>) -> Member {
        *self.count() += 1;
        Member(Arc::clone(self))
    }

    /// Waits until all have left, or `deadline_ns`; false where it passed.
    pub(crate) fn wait(&self, clock: &dyn Clock, deadline_ns: u64) -> bool {
        let mut count = self.count();
        while *count > 0 {
            let left_ns = deadline_ns.saturating_sub(clock.now_ns());
            if left_ns == 0 {
                return false;
            }
            let waited = self.left.wait_timeout(count, Duration::from_nanos(left_ns));
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.left.notify_all();
    }
}
