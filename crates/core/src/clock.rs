// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time as an argument, so that tests and replay can choose it.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

/// Where time comes from.
///
/// # Contract
///
/// - `now_ns` never goes back; its origin is arbitrary but the same for all threads.
/// - `wall_ns` is nanoseconds since 1970 and may jump.
/// - `sleep` may return late, never early.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Monotonic nanoseconds.
    fn now_ns(&self) -> u64;

    /// Nanoseconds since 1970-01-01 UTC.
    fn wall_ns(&self) -> u64;

    /// Blocks the calling thread.
    fn sleep(&self, duration: Duration);
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others are given")]
    fn default() -> Self {
        Self { origin: Instant::now() }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that others are given")]
impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        // 584 years of nanoseconds fit u64.
        self.origin.elapsed().as_nanos() as u64
    }

    fn wall_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // A clock set before 1970 reads as 1970.
        since.map_or(0, |duration| duration.as_nanos() as u64)
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
