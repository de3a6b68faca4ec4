// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that does soon what was put off.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use terrace_core::Clock;
use terrace_fs::Result;

/// What nobody asks for is done after this time, or twice as much.
pub(crate) const LATER_MAX: Duration = Duration::from_millis(1);

/// Pause after nobody answered.
const PAUSE: Duration = Duration::from_millis(500);

/// So often it is looked in vain for what is to be done before the thread that does so sleeps.
const LOOKS_MAX: u32 = 32;

/// What such a thread waits for.
pub(crate) struct Soon {
    waker: Mutex<Waker>,
    woken: Condvar,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Waker {
    is_awake: bool,
    is_stopped: bool,
}

impl Soon {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { waker: Mutex::default(), woken: Condvar::new(), clock }
    }

    /// Something was put off just now.
    pub(crate) fn wake(&self) {
        if !self.waker().is_awake {
            self.woken.notify_one();
        }
    }

    /// Has `work` do what was put off for long enough, again and again, until there is nobody any more for
    /// whom; more rarely where nobody answers. Sleeps while `has_none` is to be done.
    pub(crate) fn run(
        &self,
        has_none: impl Fn() -> bool,
        work: impl Fn(Duration) -> Option<Result<()>>,
    ) {
        loop {
            let sleeps = |waker: &mut Waker| {
                let sleeps = has_none() && !waker.is_stopped;
                waker.is_awake = !sleeps;
                sleeps
            };
            let waker = self.woken.wait_while(self.waker(), sleeps);
            if waker.unwrap_or_else(PoisonError::into_inner).is_stopped {
                return;
            }
            let mut looks = 0;
            while looks < LOOKS_MAX {
                self.clock.sleep(LATER_MAX);
                looks = if has_none() { looks + 1 } else { 0 };
                match work(LATER_MAX) {
                    Some(Ok(())) => {}
                    Some(Err(_)) => self.clock.sleep(PAUSE),
                    None => return,
                }
            }
        }
    }

    /// Ends that.
    pub(crate) fn stop(&self) {
        self.waker().is_stopped = true;
        self.woken.notify_all();
    }

    fn waker(&self) -> MutexGuard<'_, Waker> {
        // Each change is one step.
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
