// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two clocks that every record of the lab carries.

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

/// One moment on this host, by both of its clocks.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Stamp {
    /// CLOCK_REALTIME; may step.
    pub(crate) real_ns: u64,
    /// CLOCK_MONOTONIC_RAW; never steps, begins anywhere.
    pub(crate) raw_ns: u64,
}

impl Stamp {
    pub(crate) fn now() -> Self {
        Self { real_ns: nanoseconds(clock_gettime(ClockId::Realtime)), raw_ns: raw_ns() }
    }
}

/// CLOCK_MONOTONIC_RAW: for intervals.
#[inline]
pub(crate) fn raw_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::MonotonicRaw))
}

#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    // Neither clock is ever before 1970, and 2^64 ns are 584 years.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
