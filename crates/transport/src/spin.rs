// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for the other side, with or without going to sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::{Clock, SystemClock};

use crate::Transport;
use crate::contest::{Contest, Way};

/// How long a connection is looked at: longer than it takes the other side to be woken on a core
/// that slept, and to answer. On a virtual machine that is 200 us, and a core that is kept awake
/// meanwhile spends less time in all than one that is woken for every message.
const LOOK_NS: u64 = 500_000;

/// Tries are rarer the more of them failed, down to one of so many (a power of 2).
const RAREST: u32 = 6;

/// A thread that gets the core back so much later lost it to one that needs it for longer than a
/// message takes: spinning for the next turn does not pay.
const CROWDED_NS: u64 = 100_000;

/// Waits for messages: looks for the next one for a moment before it sleeps until that comes, where
/// this is quicker.
///
/// Spinning pays where two sides take turns and no other thread needs the cores: to sleep and be
/// woken costs both more time than the answer. Where the other side computes, spinning finds
/// nothing, and is tried rarely. Beside other programs, a spinning thread takes the cores from the
/// other side, and is scheduled behind those that it yields to; that differs from one moment to the
/// next, and is found out by comparing (`Contest`).
#[derive(Debug, Default)]
pub struct Spin {
    clock: SystemClock,
    /// Messages since it waited last.
    came: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    contest: Contest,
    tries: Tries,
    /// When it waited last.
    waited_ns: u64,
}

impl Spin {
    /// Notes that a message came.
    pub fn came(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when there is something to read, or soon. Only one thread waits at a time.
    pub fn wait(&self, transport: &dyn Transport) {
        if self.state().begin(self.clock.now_ns(), self.came.swap(0, Ordering::Relaxed)) {
            let is_readable = look(transport, &self.clock, std::thread::yield_now);
            self.state().tries.note(is_readable);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether to look, now that so many messages came since the wait before.
    fn begin(&mut self, now_ns: u64, messages: u64) -> bool {
        let before = self.contest.way();
        self.contest.count(messages, now_ns.saturating_sub(self.waited_ns));
        self.waited_ns = now_ns;
        match (before, self.contest.way()) {
            (_, Way::Sleep) => false,
            // What failed before says nothing of now.
            (Way::Sleep, Way::Look) => {
                self.tries = Tries::default();
                true
            }
            (Way::Look, Way::Look) => self.tries.is_due(),
        }
    }
}

/// Which waits are tries to look.
#[derive(Debug, Default)]
struct Tries {
    /// Those that failed lately.
    failures: u32,
    /// Waits until the next one.
    skip: u32,
}

impl Tries {
    fn is_due(&mut self) -> bool {
        let is_due = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        is_due
    }

    fn note(&mut self, is_readable: bool) {
        self.failures = match is_readable {
            // The other side was slow for as long as this one was: soon both are quick.
            true => self.failures / 2,
            false => (self.failures + 1).min(RAREST),
        };
        self.skip = (1 << self.failures) - 1;
    }
}

/// Looks for something to read for a while, and gives the core away between two looks; whether there
/// is something.
fn look(transport: &dyn Transport, clock: &dyn Clock, mut give_way: impl FnMut()) -> bool {
    let began_ns = clock.now_ns();
    while !transport.is_readable(Duration::ZERO) {
        let gave_ns = clock.now_ns();
        if gave_ns - began_ns >= LOOK_NS {
            return false;
        }
        give_way();
        if clock.now_ns() - gave_ns >= CROWDED_NS {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::Socket;

    /// A clock that is set by hand.
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
    fn whoever_needs_the_core_ends_a_look() {
        let (near, far) = Socket::pair().expect("pair");
        let clock = Told::default();
        let looks = |gives_for_ns: u64| {
            let (clock, mut looks) = (&clock, 0);
            let give_way = || {
                looks += 1;
                clock.0.fetch_add(gives_for_ns, Ordering::Relaxed);
            };
            (look(&near, clock, give_way), looks)
        };
        assert_eq!(looks(CROWDED_NS), (false, 1), "it takes too long to get it back");
        assert_eq!(looks(CROWDED_NS / 2), (false, 10), "it looks until it is over");
        far.write_vectored(&[IoSlice::new(b"byte")]).expect("room");
        assert_eq!(looks(CROWDED_NS), (true, 0));
    }

    /// How many of so many waits were tries, which came to this.
    fn tries(tries: &mut Tries, is_readable: bool, waits: u32) -> u32 {
        let tried = |_: &u32| {
            let is_due = tries.is_due();
            if is_due {
                tries.note(is_readable);
            }
            is_due
        };
        (0..waits).filter(tried).count() as u32
    }

    #[test]
    fn it_is_tried_where_it_pays() {
        let mut state = Tries::default();
        let silent = tries(&mut state, false, 1000);
        assert!((10..40).contains(&silent), "{silent} tries where nothing comes");
        tries(&mut state, true, 1000);
        assert_eq!(tries(&mut state, true, 100), 100, "it always comes at once");
    }

    /// How many of the last 1000 of so many waits were looks, where a message takes so long each
    /// way.
    fn looks_of(state: &mut State, waits: u32, message_ns: impl Fn(bool) -> u64) -> usize {
        let (mut looks, mut now_ns) = (Vec::new(), state.waited_ns);
        for _ in 0..waits {
            let is_look = state.begin(now_ns, 1);
            if is_look {
                state.tries.note(true);
            }
            looks.push(is_look);
            now_ns += message_ns(is_look);
        }
        looks.iter().rev().take(1000).filter(|&&is_look| is_look).count()
    }

    #[test]
    fn the_quicker_way_is_taken_also_after_others_came_or_went() {
        let mut state = State::default();
        let quiet = |looks: bool| if looks { 50_000 } else { 80_000 };
        let crowded = |looks: bool| if looks { 600_000 } else { 90_000 };
        assert!(looks_of(&mut state, 30_000, quiet) >= 850);
        assert!(looks_of(&mut state, 30_000, crowded) <= 150);
        assert!(looks_of(&mut state, 30_000, quiet) >= 850);
    }

    #[test]
    fn what_failed_before_it_slept_is_forgotten() {
        let mut state = State::default();
        for _ in 0..1000 {
            state.tries.note(false);
        }
        while state.contest.way() == Way::Look {
            state.begin(state.waited_ns + 1000, 1);
        }
        assert_ne!(state.tries.failures, 0);
        while state.contest.way() == Way::Sleep {
            state.begin(state.waited_ns + 1000, 1);
        }
        assert_eq!(state.tries.failures, 0);
    }
}
