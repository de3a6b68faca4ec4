// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One deadline for an operation that asks several times.
//!
//! Objects and pairs are asked through traits that know of no time. So what an operation has waited
//! for servers until now goes with the thread that carries it out, and to those that it has work.

use std::cell::Cell;
use std::time::Duration;

use terrace_core::Clock;

/// This part of a shared deadline is kept back by [`keep_rest`].
const REST: u32 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    spent: Duration,
    keeps_rest: bool,
}

thread_local! {
    static SHARED: Cell<Option<Shared>> = const { Cell::new(None) };
}

/// Sets back what was there before, also where the work between panics.
struct Restore(Option<Shared>);

impl Drop for Restore {
    fn drop(&mut self) {
        SHARED.set(self.0);
    }
}

/// Does something of which all requests, one after the other, have one deadline together. Long
/// transfers that come to their end do not count: they have it for each piece.
pub(crate) fn share<T>(work: impl FnOnce() -> T) -> T {
    if SHARED.get().is_some() {
        return work();
    }
    let _restore = Restore(None);
    SHARED.set(Some(Shared::default()));
    work()
}

/// Does something, and keeps an eighth of the shared deadline for what comes behind it.
pub(crate) fn keep_rest<T>(work: impl FnOnce() -> T) -> T {
    /// Ends it, and leaves what was spent.
    struct Give;
    impl Drop for Give {
        fn drop(&mut self) {
            let shared = SHARED.get().map(|shared| Shared { keeps_rest: false, ..shared });
            SHARED.set(shared);
        }
    }
    let _give = Give;
    SHARED.set(SHARED.get().map(|shared| Shared { keeps_rest: true, ..shared }));
    work()
}

/// What the next request has of a deadline.
pub(crate) fn left(deadline: Duration) -> Duration {
    let Some(shared) = SHARED.get() else { return deadline };
    let kept = if shared.keeps_rest { deadline / REST } else { Duration::ZERO };
    deadline.saturating_sub(kept).saturating_sub(shared.spent)
}

/// Whether nothing is left of a shared deadline: what is not asked for yet is not asked for.
pub(crate) fn is_over(deadline: Duration) -> bool {
    SHARED.get().is_some() && left(deadline).is_zero()
}

fn spend(duration: Duration) {
    SHARED.set(SHARED.get().map(|shared| Shared { spent: shared.spent + duration, ..shared }));
}

/// Counts the time up to its end, where a deadline is shared.
pub(crate) struct Spending<'a>(Option<(&'a dyn Clock, u64)>);

impl<'a> Spending<'a> {
    pub(crate) fn begin(clock: &'a dyn Clock) -> Self {
        Self(SHARED.get().map(|_| (clock, clock.now_ns())))
    }

    /// What took the time was worth it.
    pub(crate) fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        if let Some((clock, begun_ns)) = self.0 {
            spend(Duration::from_nanos(clock.now_ns().saturating_sub(begun_ns)));
        }
    }
}

/// What goes from the thread of an operation to another one.
#[derive(Clone, Copy)]
pub(crate) struct Carried(Option<Shared>);

/// What this thread's operation has of its deadline.
pub(crate) fn carried() -> Carried {
    Carried(SHARED.get())
}

impl Carried {
    /// Does a part of the operation on this thread; with what it was afterwards.
    pub(crate) fn resume<T>(self, work: impl FnOnce() -> T) -> (T, Self) {
        let _restore = Restore(SHARED.replace(self.0));
        let done = work();
        (done, carried())
    }

    /// Another thread did a part at the same time: the longest of all is what they took.
    pub(crate) fn join(self) {
        let longest = |shared: Shared| {
            let spent = self.0.map_or(shared.spent, |other| other.spent.max(shared.spent));
            Shared { spent, ..shared }
        };
        SHARED.set(SHARED.get().map(longest));
    }
}

#[cfg(test)]
mod tests {
    use terrace_testkit::ManualClock;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(80);

    fn wait(seconds: u64) {
        let clock = ManualClock::new();
        let _spending = Spending::begin(&clock);
        clock.advance(Duration::from_secs(seconds));
    }

    fn left_s() -> u64 {
        left(DEADLINE).as_secs()
    }

    #[test]
    fn each_request_has_its_own_deadline_unless_it_is_shared() {
        wait(50);
        assert_eq!((left_s(), is_over(DEADLINE)), (80, false));
        share(|| {
            wait(30);
            share(|| wait(20));
            assert_eq!((left_s(), is_over(DEADLINE)), (30, false));
            wait(40);
            assert_eq!((left_s(), is_over(DEADLINE)), (0, true));
        });
        assert_eq!((left_s(), is_over(DEADLINE)), (80, false));
    }

    #[test]
    fn a_rest_is_kept_for_what_comes_last() {
        share(|| {
            keep_rest(|| {
                assert_eq!(left_s(), 70);
                wait(100 - 30);
                assert!(is_over(DEADLINE));
            });
            assert_eq!((left_s(), is_over(DEADLINE)), (10, false));
        });
    }

    #[test]
    fn what_is_done_at_the_same_time_takes_as_long_as_the_longest() {
        let after = share(|| {
            wait(10);
            let carried = carried();
            let parts = std::thread::scope(|scope| {
                [5, 20]
                    .map(|seconds| scope.spawn(move || carried.resume(|| wait(seconds)).1))
                    .map(|thread| thread.join().expect("nothing panics"))
            });
            wait(7);
            parts.into_iter().for_each(Carried::join);
            left_s()
        });
        assert_eq!(after, 80 - 10 - 20);
        assert_eq!(left_s(), 80, "nothing stays");
    }

    #[test]
    fn a_transfer_that_ends_well_takes_nothing() {
        share(|| {
            let clock = ManualClock::new();
            let spending = Spending::begin(&clock);
            clock.advance(DEADLINE);
            spending.forget();
            assert_eq!(left_s(), 80);
        });
    }
}
