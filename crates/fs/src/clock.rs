// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock by which files get their times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use terrace_core::Clock;

use crate::node::Time;

/// The clock by which files get their times.
///
/// The kernel stamps the files of tiers by a clock that goes in steps of a few milliseconds, and finer
/// where two changes of a file would have the same time. So does this one: times of metadata and
/// those of tiers' files are in the order in which things happened, but for one step.
#[derive(Debug)]
pub struct FileClock {
    fine: Arc<dyn Clock>,
    has_steps: bool,
    /// The finest time that was given: no later one is before it.
    floor_ns: AtomicU64,
}

impl FileClock {
    /// A clock like the kernel's, with `fine` between its steps.
    pub fn new(fine: Arc<dyn Clock>) -> Self {
        Self { fine, has_steps: true, floor_ns: AtomicU64::new(0) }
    }

    /// A clock that follows `clock` alone.
    pub fn following(clock: Arc<dyn Clock>) -> Self {
        Self { fine: clock, has_steps: false, floor_ns: AtomicU64::new(0) }
    }

    /// Now, for one change of possibly many nodes.
    pub(crate) fn now(&self) -> Moment<'_> {
        let ns = match self.has_steps {
            true => step_ns().max(self.floor_ns.load(Ordering::Acquire)),
            false => self.fine.wall_ns(),
        };
        Moment { clock: self, time: Time::from_ns(ns) }
    }

    /// Nanoseconds that passed since some moment.
    pub(crate) fn passed_ns(&self) -> u64 {
        self.fine.now_ns()
    }

    pub(crate) fn sleep(&self, duration: Duration) {
        self.fine.sleep(duration);
    }

    fn fine(&self) -> Time {
        let ns = self.fine.wall_ns();
        self.floor_ns.fetch_max(ns, Ordering::AcqRel);
        Time::from_ns(ns)
    }
}

/// The time of the last step of the kernel's clock, nanoseconds since 1970.
fn step_ns() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    // A clock set before 1970 reads as 1970.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// When a change happens.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'a> {
    clock: &'a FileClock,
    time: Time,
}

impl Moment<'_> {
    /// For what has no time yet.
    pub(crate) fn time(self) -> Time {
        self.time
    }

    /// For what last changed at `before`: later than that, so that the change is seen, also where
    /// the clock was set back meanwhile.
    pub(crate) fn after(self, before: Time) -> Time {
        self.both_after(before).1
    }

    /// For bytes or entries of what last changed at `before`: when they are modified, and when that
    /// changes it. One time, unless the clock was set back: times of modification go with it, as other
    /// programs know them from native files.
    pub(crate) fn both_after(self, before: Time) -> (Time, Time) {
        let modified = if self.time > before { self.time } else { self.clock.fine() };
        (modified, modified.max(before.next()))
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::SystemClock;

    use super::*;

    #[test]
    fn two_changes_of_a_node_have_two_times() {
        let clock = FileClock::new(Arc::new(SystemClock::default()));
        let mut changed = clock.now().time();
        for _ in 0..1000 {
            let next = clock.now().after(changed);
            assert!(next > changed, "{next:?} {changed:?}");
            changed = next;
        }
        assert!(clock.now().time() >= changed, "no later time is before it");
    }

    #[test]
    fn a_change_is_later_than_the_last_one_also_by_a_clock_that_was_set_back() {
        let clock = FileClock::following(Arc::new(SystemClock::default()));
        let hour_ns = 3_600_000_000_000;
        let before = Time::from_ns(clock.now().time().to_ns() + hour_ns);
        assert_eq!(clock.now().after(before), before.next());
        let (modified, changed) = clock.now().both_after(before);
        assert_eq!(changed, before.next());
        assert!(modified < before, "it goes with the clock");
    }
}
