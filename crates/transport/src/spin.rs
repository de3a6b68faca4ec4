// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for the other side without going to sleep.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use terrace_core::{Clock, SystemClock};

use crate::Transport;

/// How long a connection is looked at: longer than it takes the other side to be woken on a core
/// that slept, and to answer. On a virtual machine that is 200 us, and a core that is kept awake
/// meanwhile spends less time in all than one that is woken for every message.
const LOOK_NS: u64 = 500_000;

/// Tries are rarer the more of them failed, down to one of so many (a power of 2).
const RAREST: u32 = 6;

/// Whether it pays to look for an answer for a moment before sleeping until it comes.
///
/// Where two sides take turns it does: to sleep and be woken costs both more time than the answer.
/// Where the other side thinks, it does not, and is tried rarely. Whoever else needs the core gets
/// it between two looks.
#[derive(Debug, Default)]
pub struct Spin {
    /// Tries that failed lately.
    failures: AtomicU32,
    /// Waits until the next try.
    skip: AtomicU32,
}

impl Spin {
    /// Returns when there is something to read, or soon. Only one thread waits at a time.
    pub fn wait(&self, transport: &dyn Transport) {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            return self.skip.store(skip - 1, Ordering::Relaxed);
        }
        let failures = self.failures.load(Ordering::Relaxed);
        let failures = match look(transport) {
            // The other side was slow for as long as this one was: soon both are quick.
            true => failures / 2,
            false => (failures + 1).min(RAREST),
        };
        self.failures.store(failures, Ordering::Relaxed);
        self.skip.store((1 << failures) - 1, Ordering::Relaxed);
    }
}

/// Looks for something to read for a while.
fn look(transport: &dyn Transport) -> bool {
    let clock = SystemClock::default();
    loop {
        if transport.is_readable(Duration::ZERO) {
            return true;
        }
        if clock.now_ns() >= LOOK_NS {
            return false;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::Socket;

    /// How many of so many waits were tries.
    fn tries(spin: &Spin, transport: &Socket, waits: u32) -> u32 {
        (0..waits)
            .map(|_| {
                let is_try = spin.skip.load(Ordering::Relaxed) == 0;
                spin.wait(transport);
                u32::from(is_try)
            })
            .sum()
    }

    #[test]
    fn it_is_tried_where_it_pays() {
        let (near, far) = Socket::pair().expect("pair");
        let spin = Spin::default();
        let silent = tries(&spin, &near, 1000);
        assert!((10..40).contains(&silent), "{silent} tries where nothing comes");
        far.write_vectored(&[IoSlice::new(b"byte")]).expect("room");
        tries(&spin, &near, 1000);
        assert_eq!(tries(&spin, &near, 100), 100, "it always comes at once");
    }
}
