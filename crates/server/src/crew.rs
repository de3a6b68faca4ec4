// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of a server: its end is when all of them have let go of what is served.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;

/// Address space for the stack of a thread; what is not used costs nothing.
const STACK_BYTES: usize = 1 << 20;

/// Counts threads.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    count: Mutex<usize>,
    left: Condvar,
}

/// A thread of the crew, until it is dropped.
#[derive(Debug)]
struct Member(Arc<Crew>);

impl Crew {
    /// Does something on a thread of the crew.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let member = self.join();
        let work = move || {
            // In this order: what the work owns is dropped when it returns, so that a thread that is not
            // counted any more uses nothing of what is served.
            work();
            drop(member);
        };
        std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(work).map(drop)
    }

    /// To be called before the thread begins, and dropped by it, as the last of all that it has.
    fn join(self: &Arc<Self>) -> Member {
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
