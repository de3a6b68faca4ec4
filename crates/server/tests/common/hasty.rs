// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A clock for tests of deadlines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrace_core::Clock;

/// Every look at it takes a second, and a sleep as long as it says, of its own time: who
/// waits for a deadline waits for some looks, on a fast machine as on a slow one.
#[derive(Debug, Default)]
pub struct Hasty {
    now_ns: AtomicU64,
}

const LOOK: Duration = Duration::from_secs(1);

impl Clock for Hasty {
    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(LOOK.as_nanos() as u64, Ordering::SeqCst)
    }

    fn wall_ns(&self) -> u64 {
        self.now_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.now_ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
        std::thread::yield_now();
    }
}
