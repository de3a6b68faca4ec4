// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for the other side without going to sleep.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use terrace_core::{Clock, SystemClock};

use crate::Transport;

/// How long a connection is looked at: longer than it takes the other side to be woken on a core
/// that slept, and to answer. On a virtual machine that is 200 us, and a core that is kept awake
/// meanwhile spends less time in all than one that is woken for every message.
const LOOK_NS: u64 = 500_000;

/// Tries are rarer the more of them failed, down to one of so many (a power of 2).
const RAREST: u32 = 6;

/// Who gets the core back so much later gave it to somebody who needs it: what takes turns with a
/// connection is done sooner. Looking then costs more than sleeping, because a scheduler that shares
/// fairly takes a look for work, and whoever gave a core away comes behind all others.
const CROWDED_NS: u64 = 30_000;

/// Without a try after that; twice as long each time, so many times.
const CROWDED_PAUSE_NS: u64 = 100_000_000;
const CROWDED_DOUBLINGS: u32 = 5;

/// Whether it pays to look for an answer for a moment before sleeping until it comes.
///
/// Where two sides take turns it does: to sleep and be woken costs both more time than the answer.
/// Where the other side thinks, it does not, and is tried rarely. Whoever else needs the core gets
/// it between two looks, and then it is not tried for a while.
#[derive(Debug, Default)]
pub struct Spin {
    clock: SystemClock,
    /// Tries that failed lately.
    failures: AtomicU32,
    /// Waits until the next try.
    skip: AtomicU32,
    /// Tries in a row in which somebody else needed the core, and until when there is none.
    crowded: AtomicU32,
    crowded_until_ns: AtomicU64,
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    Readable,
    Nothing,
    Crowded,
}

impl Spin {
    /// Returns when there is something to read, or soon. Only one thread waits at a time.
    pub fn wait(&self, transport: &dyn Transport) {
        if self.is_due() {
            let looked = look(transport, &self.clock, std::thread::yield_now);
            self.note(looked, self.clock.now_ns());
        }
    }

    fn is_due(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            self.skip.store(skip - 1, Ordering::Relaxed);
            return false;
        }
        self.clock.now_ns() >= self.crowded_until_ns.load(Ordering::Relaxed)
    }

    fn note(&self, looked: Looked, now_ns: u64) {
        let failures = self.failures.load(Ordering::Relaxed);
        let failures = match looked {
            // The other side was slow for as long as this one was: soon both are quick.
            Looked::Readable => failures / 2,
            Looked::Nothing => (failures + 1).min(RAREST),
            Looked::Crowded => {
                let times = self.crowded.load(Ordering::Relaxed);
                let until_ns = now_ns.saturating_add(CROWDED_PAUSE_NS << times);
                self.crowded_until_ns.store(until_ns, Ordering::Relaxed);
                return self.crowded.store((times + 1).min(CROWDED_DOUBLINGS), Ordering::Relaxed);
            }
        };
        self.crowded.store(0, Ordering::Relaxed);
        self.failures.store(failures, Ordering::Relaxed);
        self.skip.store((1 << failures) - 1, Ordering::Relaxed);
    }
}

/// Looks for something to read for a while, and gives the core away between two looks.
fn look(transport: &dyn Transport, clock: &dyn Clock, mut give_way: impl FnMut()) -> Looked {
    let began_ns = clock.now_ns();
    loop {
        if transport.is_readable(Duration::ZERO) {
            return Looked::Readable;
        }
        let gave_ns = clock.now_ns();
        if gave_ns - began_ns >= LOOK_NS {
            return Looked::Nothing;
        }
        give_way();
        if clock.now_ns() - gave_ns >= CROWDED_NS {
            return Looked::Crowded;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::Socket;

    /// A clock that says what it is told.
    #[derive(Debug, Default)]
    struct Told(AtomicU64);

    impl Clock for Told {
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        fn wall_ns(&self) -> u64 {
            self.now_ns()
        }

        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn whoever_needs_the_core_gets_it_for_a_while() {
        let (near, far) = Socket::pair().expect("pair");
        let clock = Told::default();
        let gives_for = |ns: u64| {
            let clock = &clock;
            look(&near, clock, move || _ = clock.0.fetch_add(ns, Ordering::Relaxed))
        };
        assert_eq!(gives_for(CROWDED_NS), Looked::Crowded);
        assert_eq!(gives_for(CROWDED_NS - 1), Looked::Nothing, "it looks until it is over");
        far.write_vectored(&[IoSlice::new(b"byte")]).expect("room");
        assert_eq!(gives_for(CROWDED_NS), Looked::Readable);
        // The pauses grow, and end with a try in which nobody else needed the core.
        let spin = Spin::default();
        let pauses_ns = |count: u32| -> Vec<u64> {
            let pause_ns = |_| {
                spin.note(Looked::Crowded, 0);
                spin.crowded_until_ns.load(Ordering::Relaxed)
            };
            (0..count).map(pause_ns).collect()
        };
        let first_ns = CROWDED_PAUSE_NS;
        assert_eq!(pauses_ns(7), [1, 2, 4, 8, 16, 32, 32].map(|times| times * first_ns));
        spin.note(Looked::Nothing, 0);
        assert_eq!(pauses_ns(1), [first_ns]);
        // No try meanwhile.
        spin.skip.store(0, Ordering::Relaxed);
        spin.crowded_until_ns.store(0, Ordering::Relaxed);
        assert!(spin.is_due());
        spin.crowded_until_ns.store(u64::MAX, Ordering::Relaxed);
        assert!(!spin.is_due());
    }

    /// How many of so many waits were tries, which came to this.
    fn tries(spin: &Spin, looked: Looked, waits: u32) -> u32 {
        let tried = |_: &u32| {
            let is_due = spin.is_due();
            if is_due {
                spin.note(looked, 0);
            }
            is_due
        };
        (0..waits).filter(tried).count() as u32
    }

    #[test]
    fn it_is_tried_where_it_pays() {
        let spin = Spin::default();
        let silent = tries(&spin, Looked::Nothing, 1000);
        assert!((10..40).contains(&silent), "{silent} tries where nothing comes");
        tries(&spin, Looked::Readable, 1000);
        assert_eq!(tries(&spin, Looked::Readable, 100), 100, "it always comes at once");
    }
}
