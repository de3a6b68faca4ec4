// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files whose servers did not say how long they are, or did not give their bytes.
//!
//! The kernel asks twice for what one call of a program wants, where the first answer is an error, and
//! a program that gets one often tries another way. It is not to wait twice for that.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Clock;

use crate::failure::Failure;
use crate::lock;

/// For so long after its servers gave no answer the same is answered without waiting.
const AWAY: Duration = Duration::from_secs(1);

/// Most files that are remembered.
const FILES_MAX: usize = 4096;

/// When it was that there was no answer, by number of the file.
#[derive(Default)]
pub(super) struct Away(Mutex<HashMap<u64, u64>>);

impl Away {
    /// Takes note of what a file was asked for in vain, where that is because its servers did not answer.
    pub(super) fn note(&self, number: u64, failure: &Failure, clock: &dyn Clock) {
        if failure.errno() != Errno::HOSTUNREACH {
            return;
        }
        let now_ns = clock.now_ns();
        let mut away = lock(&self.0);
        if away.len() >= FILES_MAX {
            away.retain(|_, since_ns| is_recent(*since_ns, now_ns));
        }
        if away.len() < FILES_MAX {
            away.insert(number, now_ns);
        }
    }

    /// Whether that was a moment ago.
    pub(super) fn contains(&self, number: u64, clock: &dyn Clock) -> bool {
        lock(&self.0).get(&number).is_some_and(|since_ns| is_recent(*since_ns, clock.now_ns()))
    }
}

/// The bytes of an open file that were asked for in vain last.
#[derive(Default)]
pub(super) struct Unanswered {
    /// Whether there are any.
    any: AtomicBool,
    /// Which, and when that was.
    last: Mutex<(Range<u64>, u64)>,
}

impl Unanswered {
    pub(super) fn note(&self, bytes: Range<u64>, now_ns: u64) {
        *lock(&self.last) = (bytes, now_ns);
        self.any.store(true, Ordering::Release);
    }

    /// Whether all of these were among them, a moment ago.
    pub(super) fn contains(&self, bytes: &Range<u64>, clock: &dyn Clock) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let (last, since_ns) = &*lock(&self.last);
        last.start <= bytes.start && bytes.end <= last.end && is_recent(*since_ns, clock.now_ns())
    }

    /// Forgets them.
    pub(super) fn clear(&self) {
        if self.any.load(Ordering::Acquire) {
            self.any.store(false, Ordering::Release);
        }
    }
}

fn is_recent(since_ns: u64, now_ns: u64) -> bool {
    Duration::from_nanos(now_ns.saturating_sub(since_ns)) < AWAY
}

#[cfg(test)]
mod tests {
    use terrace_testkit::ManualClock;

    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let (away, clock) = (Away::default(), ManualClock::new());
        let [silent, other] = [Errno::HOSTUNREACH, Errno::IO].map(Failure::from);
        for number in 0..=FILES_MAX as u64 {
            away.note(number, &silent, &clock);
        }
        clock.advance(AWAY - Duration::from_nanos(1));
        assert!(away.contains(0, &clock));
        assert!(!away.contains(FILES_MAX as u64, &clock), "there was no room");
        clock.advance(Duration::from_nanos(1));
        assert!(!away.contains(0, &clock));
        away.note(FILES_MAX as u64, &silent, &clock);
        away.note(0, &other, &clock);
        assert_eq!(lock(&away.0).len(), 1);
        assert!(away.contains(FILES_MAX as u64, &clock));
    }
}
