// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock by which files get their times.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, MemfdFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::time::{ClockId, clock_gettime};
use terrace_core::Clock;

use crate::node::Time;

/// Attempts to get a finer time than that of the last step of the kernel's clock: one step may fall in between.
const TRIES_MAX: usize = 3;

/// The clock by which files get their times.
///
/// This clock stamps names and small files; the kernel stamps the bytes of longer ones in the files of tiers. On
/// one machine a later change never gets an earlier time, whichever of the two stamps it (Linux 6.13). An older
/// kernel stamps files by a clock that advances in steps of a few milliseconds: times are then in order but for
/// one step, and none is before one that this clock has given or seen.
#[derive(Debug)]
pub struct FileClock {
    fine: Arc<dyn Clock>,
    source: Source,
    /// Lower bound of all later times: the finest one that was given or seen, where the kernel has no such bound.
    floor_ns: AtomicU64,
}

/// Where times come from.
#[derive(Debug)]
enum Source {
    Kernel(KernelTimes),
    /// The kernel's clock that goes in steps, with the fine one between them.
    Steps,
    /// The fine clock alone.
    Fine,
}

impl FileClock {
    /// A clock in order with that of the kernel, with `fine` between its steps where it has no finer times.
    pub fn new(fine: Arc<dyn Clock>) -> Self {
        let source = KernelTimes::new().map_or(Source::Steps, Source::Kernel);
        Self { fine, source, floor_ns: AtomicU64::new(0) }
    }

    /// A clock that follows `clock` alone.
    pub fn following(clock: Arc<dyn Clock>) -> Self {
        Self { fine: clock, source: Source::Fine, floor_ns: AtomicU64::new(0) }
    }

    /// Now, for one change of possibly many nodes.
    pub(crate) fn now(&self) -> Moment<'_> {
        let ns = match &self.source {
            Source::Kernel(times) => times.next_ns().unwrap_or_else(|| self.stepped_ns()),
            Source::Steps => self.stepped_ns(),
            Source::Fine => self.fine.wall_ns(),
        };
        Moment { clock: self, time: Time::from_ns(ns) }
    }

    /// Raises the lower bound of later times to one that a file of a tier has, at most to the present time of
    /// this machine.
    pub(crate) fn see(&self, ns: u64) {
        if matches!(self.source, Source::Steps) {
            self.floor_ns.fetch_max(ns.min(self.fine.wall_ns()), Ordering::AcqRel);
        }
    }

    /// Nanoseconds that passed since some moment.
    pub(crate) fn passed_ns(&self) -> u64 {
        self.fine.now_ns()
    }

    pub(crate) fn sleep(&self, duration: Duration) {
        self.fine.sleep(duration);
    }

    /// The time of the last step, or the floor where the clock was not set back behind that.
    fn stepped_ns(&self) -> u64 {
        let floor_ns = self.floor_ns.load(Ordering::Acquire);
        step_ns().max(floor_ns.min(self.fine.wall_ns()))
    }

    fn fine(&self) -> Time {
        if let Source::Kernel(times) = &self.source
            && let Some(ns) = times.next_ns()
        {
            return Time::from_ns(ns);
        }
        let ns = self.fine.wall_ns();
        self.floor_ns.fetch_max(ns, Ordering::AcqRel);
        Time::from_ns(ns)
    }
}

/// Times in order with those that the kernel gives files ("multigrain timestamps", Linux 6.13).
///
/// The kernel stamps a file by a clock that advances in steps, and finer if the last time of that file was queried
/// and the clock has no later one. No file of any file system gets a time before the last finer one
/// (`inode_set_ctime_current` in fs/inode.c). Here a file in memory is stamped, queried and stamped again: the
/// second time is later than every time that a file had before the first.
#[derive(Debug)]
struct KernelTimes(OwnedFd);

impl KernelTimes {
    /// `None` where the kernel gives no finer times, or no file.
    fn new() -> Option<Self> {
        let file = rustix::fs::memfd_create("terrace-times", MemfdFlags::CLOEXEC).ok()?;
        let times = Self(file);
        let is_finer = |_| times.next_ns().is_some_and(|ns| ns > step_ns());
        (0..TRIES_MAX).any(is_finer).then_some(times)
    }

    /// A time not before any that a file has, and before all that the kernel gives files from now on: a node that
    /// is stamped with it and then written has two times.
    fn next_ns(&self) -> Option<u64> {
        self.stamp_ns()?;
        self.stamp_ns().map(|ns| ns.saturating_sub(1))
    }

    /// Has the kernel stamp the file, and queries the time.
    fn stamp_ns(&self) -> Option<u64> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        rustix::fs::futimens(&self.0, &times).ok()?;
        let stat = rustix::fs::statx(&self.0, "", AtFlags::EMPTY_PATH, StatxFlags::CTIME).ok()?;
        Some(ns(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec.into()))
    }
}

/// The time of the last step of the kernel's clock, nanoseconds since 1970.
fn step_ns() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    ns(time.tv_sec, time.tv_nsec as u64)
}

/// Nanoseconds since 1970; a clock set before that reads as 1970.
fn ns(seconds: i64, nanos: u64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos)
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

    /// The time that the kernel gives a file whose last time was not queried.
    fn stamped() -> Time {
        let file = tempfile::tempfile().expect("there is room");
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", 0).expect("there is room");
        let stat = rustix::fs::fstat(&file).expect("it is open");
        Time { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
    }

    #[test]
    fn times_are_in_order_with_those_of_the_kernel() {
        let clock = FileClock::new(Arc::new(SystemClock::default()));
        if !matches!(clock.source, Source::Kernel(_)) {
            println!("skipped: this kernel stamps files in steps alone");
            return;
        }
        for _ in 0..200 {
            let given = clock.now().time();
            let by_kernel = stamped();
            assert!(given < by_kernel, "{given:?} {by_kernel:?}");
            let next = clock.now().time();
            assert!(by_kernel <= next, "{by_kernel:?} {next:?}");
        }
    }

    #[test]
    fn no_time_of_a_step_is_before_one_that_was_seen() {
        let fine: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let clock = FileClock {
            fine: Arc::clone(&fine),
            source: Source::Steps,
            floor_ns: AtomicU64::new(0),
        };
        for _ in 0..200 {
            let seen_ns = fine.wall_ns();
            clock.see(seen_ns);
            assert!(clock.now().time() >= Time::from_ns(seen_ns));
        }
        let to_come_ns = fine.wall_ns() + 3_600_000_000_000;
        clock.see(to_come_ns);
        assert!(clock.now().time() < Time::from_ns(to_come_ns), "by another clock");
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
