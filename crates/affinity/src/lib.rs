// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which processors a thread runs on.
//!
//! A thread starts where the one that started it may run. One that serves the requests of a single
//! processor stays there ([`stay_on`]), and whatever is started while it does would stay with it; so
//! threads that handlers start begin with [`roam`].

use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where threads of this process ran before one of them stayed on a processor.
static EVERYWHERE: OnceLock<CpuSet> = OnceLock::new();

/// Keeps the calling thread on one processor. False where this process may not run there, or the
/// machine does not have it running; then nothing changes.
pub fn stay_on(processor: usize) -> bool {
    // It may have stayed on another one.
    roam();
    if !may_run_on(processor) {
        return false;
    }
    let Ok(before) = sched_getaffinity(None) else { return false };
    EVERYWHERE.get_or_init(|| before);
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).is_ok()
}

/// Lets the calling thread run wherever the process may. Costs nothing where no thread has stayed
/// anywhere.
pub fn roam() {
    if let Some(everywhere) = EVERYWHERE.get() {
        // Where it fails the thread is slower, and no less right.
        let _ = sched_setaffinity(None, everywhere);
    }
}

/// Whether threads that the calling one starts can run on a processor.
pub fn may_run_on(processor: usize) -> bool {
    processor < CpuSet::MAX_CPU && sched_getaffinity(None).is_ok_and(|set| set.is_set(processor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|processor| may_run_on(*processor)).collect()
    }

    #[test]
    fn who_stays_starts_threads_that_stay_until_they_roam() {
        let all = own();
        let last = *all.last().expect("it runs somewhere");
        std::thread::scope(|scope| {
            let stays = scope.spawn(|| {
                assert!(stay_on(all[0]));
                assert!(stay_on(last));
                assert_eq!(own(), [last]);
                let started = std::thread::spawn(|| {
                    let before = own();
                    roam();
                    (before, own())
                });
                started.join().expect("no panic")
            });
            assert_eq!(stays.join().expect("no panic"), (vec![last], all.clone()));
        });
        assert_eq!(own(), all);
        assert!(!stay_on(CpuSet::MAX_CPU));
    }
}
