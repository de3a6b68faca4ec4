// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock by which files get their times.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use terrace_core::Clock;

/// A clock whose wall time is that by which the kernel stamps files: it goes in steps of a few
/// milliseconds. So times of metadata and those of the tiers' files are in the order in which
/// things happened.
#[derive(Debug)]
pub struct FileClock(pub Arc<dyn Clock>);

impl Clock for FileClock {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn wall_ns(&self) -> u64 {
        let time = clock_gettime(ClockId::RealtimeCoarse);
        // A clock set before 1970 reads as 1970.
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}
