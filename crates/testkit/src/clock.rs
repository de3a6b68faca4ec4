// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A clock that stands still until a test moves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrace_core::Clock;

/// A clock that only moves by [`ManualClock::advance`] and [`Clock::sleep`].
///
/// A sleeper does not block: it moves the clock to the end of its own sleep, unless it is there
/// already. So a throttled operation takes no real time, its simulated duration can be asserted,
/// and two threads that sleep 10 ms side by side move the clock by 10 to 20 ms, as it happens.
#[derive(Debug)]
pub struct ManualClock {
    now_ns: AtomicU64,
}

impl ManualClock {
    /// 2026-01-01 00:00:00 UTC: wall-clock time when the clock stands at 0.
    pub const WALL_START_NS: u64 = 1_767_225_600_000_000_000;

    /// A clock that stands at one second: 0 means "never" in views and statistics.
    pub fn new() -> Self {
        Self { now_ns: AtomicU64::new(1_000_000_000) }
    }

    /// Moves the clock.
    pub fn advance(&self, duration: Duration) {
        self.now_ns.fetch_add(duration_ns(duration), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn wall_ns(&self) -> u64 {
        Self::WALL_START_NS + self.now_ns()
    }

    fn sleep(&self, duration: Duration) {
        let end_ns = self.now_ns().saturating_add(duration_ns(duration));
        self.now_ns.fetch_max(end_ns, Ordering::SeqCst);
        // A loop that waits for another thread by sleeping must let it run.
        std::thread::yield_now();
    }
}

fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_moves_only_when_told() {
        let clock = ManualClock::new();
        let start_ns = clock.now_ns();
        assert_eq!(clock.now_ns(), start_ns);
        clock.advance(Duration::from_millis(5));
        clock.sleep(Duration::from_millis(2));
        assert_eq!(clock.now_ns() - start_ns, 7_000_000);
        assert_eq!(clock.wall_ns(), ManualClock::WALL_START_NS + clock.now_ns());
    }
}
