// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks, and what ends a measurement early.

use std::sync::atomic::{AtomicBool, Ordering};

use terrace_core::{Error, ErrorKind, Result};

/// CPU time of the whole process so far, user and system, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A moment on the clock that all processes of the machine share.
pub fn shared_now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Fails once the benchmark is interrupted.
pub fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Busy, "run the benchmark").because("it was interrupted"));
    }
    Ok(())
}
