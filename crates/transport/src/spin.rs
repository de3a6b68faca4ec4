// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for the other side without going to sleep.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Transport;

/// How often a connection is looked at: for 50 us or so, longer than it takes the other side to be
/// woken on another core and to answer.
const LOOKS_MAX: u32 = 250;

/// Tries are rarer the more of them failed, down to one of so many (a power of 2).
const RAREST: u32 = 8;

/// Whether it pays to look for an answer for a moment before sleeping until it comes.
///
/// Where two sides take turns, each on a core of its own, it does: to sleep and be woken costs both
/// more time than the answer. Where the cores are needed for others, or the other side thinks, it
/// does not, and is tried rarely.
#[derive(Debug, Default)]
pub struct Spin {
    /// Failures, less successes.
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
        let has_come = (0..LOOKS_MAX).any(|_| transport.is_readable(Duration::ZERO));
        let failures = self.failures.load(Ordering::Relaxed);
        if has_come {
            // One success among many failures is luck.
            self.failures.store(failures.saturating_sub(1), Ordering::Relaxed);
        } else {
            self.failures.store((failures + 1).min(RAREST), Ordering::Relaxed);
        }
        let failures = self.failures.load(Ordering::Relaxed);
        self.skip.store((1 << failures) - 1, Ordering::Relaxed);
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
        assert!((5..20).contains(&silent), "{silent} tries where nothing comes");
        far.write_vectored(&[IoSlice::new(b"byte")]).expect("room");
        tries(&spin, &near, 1000);
        assert_eq!(tries(&spin, &near, 100), 100, "it always comes at once");
    }
}
