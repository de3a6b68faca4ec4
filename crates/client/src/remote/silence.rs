// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a server answers, as all connections to it know together.
//!
//! A program makes several calls where a person gives one command: `df` looks at the directory and then asks for
//! its room. After one of them waited for the whole deadline in vain, those that follow at once wait for a short
//! time only. A client that ends waits for a bounded time, too, however long the deadline is.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use terrace_transport::Transport;

/// After a request got no answer, others have a short time while no more than this is between.
const UNANSWERED_FOR: Duration = Duration::from_secs(1);

/// The least and the most that such requests have, and the part of the deadline in between.
const SHORT_MIN: Duration = Duration::from_millis(500);
const SHORT_MAX: Duration = Duration::from_secs(1);
const SHORT_PART: u32 = 4;

/// A client that ends gives up a server that sent nothing for so long.
const ENDING_SILENCE_MAX: Duration = Duration::from_secs(3);

/// Whether a server answers.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Until when requests have a short time; 0 where the server sent something since.
    short_until_ns: AtomicU64,
    /// Whether the client ends.
    is_ending: AtomicBool,
    /// Whether it waits no more.
    is_over: AtomicBool,
    /// When the server sent something last, or the client began to end; unknown before that.
    heard_ns: AtomicU64,
    /// The connections to it.
    transports: Mutex<Vec<Weak<dyn Transport>>>,
}

impl Silence {
    /// Takes note of a connection, which is closed when the client waits no more.
    pub(super) fn watch(&self, transport: Weak<dyn Transport>) {
        let mut transports = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        transports.retain(|one| one.strong_count() > 0);
        transports.push(transport);
    }

    /// Takes note that the server sent something; `now_ns` is asked for where the time matters.
    pub(super) fn note_heard(&self, now_ns: impl FnOnce() -> u64) {
        if self.short_until_ns.load(Ordering::Relaxed) != 0 {
            self.short_until_ns.store(0, Ordering::Relaxed);
        }
        if self.is_ending.load(Ordering::Relaxed) {
            self.heard_ns.store(now_ns(), Ordering::Relaxed);
        }
    }

    /// Takes note that a request got no answer up to its deadline.
    pub(super) fn note_unanswered(&self, now_ns: u64) {
        let until_ns = now_ns.saturating_add(UNANSWERED_FOR.as_nanos() as u64);
        self.short_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// The same of one that began then, unless it had next to nothing of a deadline that it shares.
    pub(super) fn note_unanswered_since(&self, begun_ns: u64, now_ns: u64, deadline: Duration) {
        if Duration::from_nanos(now_ns.saturating_sub(begun_ns)) >= short(deadline) {
            self.note_unanswered(now_ns);
        }
    }

    /// What a request has that begins now and would have `left` of its deadline.
    pub(super) fn bound(&self, now_ns: u64, left: Duration, deadline: Duration) -> Duration {
        if self.is_over() {
            return Duration::ZERO;
        }
        match now_ns < self.short_until_ns.load(Ordering::Relaxed) {
            true => left.min(short(deadline)),
            false => left,
        }
    }

    /// Begins the end of the client; false where it has begun before.
    pub(super) fn begin_ending(&self, now_ns: u64) -> bool {
        self.heard_ns.store(now_ns, Ordering::Relaxed);
        !self.is_ending.swap(true, Ordering::Relaxed)
    }

    /// Whether a client that ends waits no more, from now on where the server was silent for too long: its
    /// connections are closed then, so that threads which wait for an answer go on.
    pub(super) fn give_up(&self, now_ns: u64) -> bool {
        let silent_ns = now_ns.saturating_sub(self.heard_ns.load(Ordering::Relaxed));
        if Duration::from_nanos(silent_ns) < ENDING_SILENCE_MAX {
            return false;
        }
        self.is_over.store(true, Ordering::Release);
        let transports = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        for transport in transports.iter().filter_map(Weak::upgrade) {
            transport.shutdown(Shutdown::Both);
        }
        true
    }

    /// Whether the client waits no more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// What a request has after one that got no answer.
fn short(deadline: Duration) -> Duration {
    (deadline / SHORT_PART).clamp(SHORT_MIN, SHORT_MAX).min(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn ns(duration: Duration) -> u64 {
        duration.as_nanos() as u64
    }

    #[test]
    fn requests_behind_an_unanswered_one_have_a_short_time() {
        let silence = Silence::default();
        let bound = |now: Duration| silence.bound(ns(now), DEADLINE, DEADLINE);
        assert_eq!(bound(Duration::ZERO), DEADLINE);
        silence.note_unanswered(ns(DEADLINE));
        assert_eq!(bound(DEADLINE), SHORT_MAX);
        assert_eq!(bound(DEADLINE + UNANSWERED_FOR), DEADLINE, "it is tried anew");
        silence.note_unanswered(ns(DEADLINE));
        silence.note_heard(|| panic!("the time does not matter"));
        assert_eq!(bound(DEADLINE), DEADLINE, "it is there again");
    }

    #[test]
    fn a_short_time_is_never_longer_than_the_deadline() {
        for (deadline, expected) in
            [(200, 200), (1000, 500), (2000, 500), (3000, 750), (60_000, 1000)]
        {
            let [deadline, expected] = [deadline, expected].map(Duration::from_millis);
            assert_eq!(short(deadline), expected);
        }
    }

    #[test]
    fn a_client_that_ends_gives_up_a_silent_server_alone() {
        let silence = Silence::default();
        assert!(silence.begin_ending(0));
        assert!(!silence.begin_ending(0), "once");
        let second = ns(Duration::from_secs(1));
        assert!(!silence.give_up(2 * second));
        silence.note_heard(|| 2 * second);
        assert!(!silence.give_up(4 * second), "it answers");
        assert!(!silence.is_over());
        assert!(silence.give_up(5 * second));
        assert!(silence.is_over());
        assert_eq!(silence.bound(5 * second, DEADLINE, DEADLINE), Duration::ZERO);
    }
}
