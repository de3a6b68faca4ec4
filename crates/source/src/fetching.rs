// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One fetch of a file at a time: callers that want the same file wait for it, and fail with it.

use std::sync::{Condvar, Mutex, PoisonError};

use rustix::io::Errno;

use crate::lock;

/// Lets one caller at a time fetch a file.
#[derive(Default)]
pub(crate) struct Fetching {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    is_running: bool,
    /// Fetches that have ended.
    ended: u64,
    /// What the last one failed with, where its waiters fail with it.
    failure: Option<Errno>,
    waiting: usize,
}

/// A fetch. Dropped, it lets the next caller try.
pub(crate) struct Running<'a> {
    fetching: &'a Fetching,
    failure: Option<Errno>,
}

impl Fetching {
    /// Begins a fetch when no other runs. Every call of a fetch has a deadline, so it ends.
    ///
    /// # Errors
    ///
    /// That of a fetch that this caller waited for, where it ended with [`Running::fail`].
    pub(crate) fn begin(&self) -> Result<Running<'_>, Errno> {
        let mut state = lock(&self.state);
        while state.is_running {
            let ended = state.ended;
            state.waiting += 1;
            let waited = self.ended.wait_while(state, |state| state.ended == ended);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            if let Some(errno) = state.failure {
                return Err(errno);
            }
        }
        state.is_running = true;
        Ok(Running { fetching: self, failure: None })
    }
}

impl Running<'_> {
    /// Ends it; callers that wait fail with this error.
    pub(crate) fn fail(mut self, errno: Errno) {
        self.failure = Some(errno);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.fetching.state);
        state.is_running = false;
        state.ended += 1;
        state.failure = self.failure;
        drop(state);
        self.fetching.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_callers_fail_with_the_fetch_that_they_waited_for() {
        let fetching = Fetching::default();
        std::thread::scope(|scope| {
            let running = fetching.begin().expect("no other");
            let begin = || fetching.begin().map(drop);
            let callers: Vec<_> = (0..3).map(|_| scope.spawn(begin)).collect();
            while lock(&fetching.state).waiting < 3 {
                std::thread::yield_now();
            }
            running.fail(Errno::TIMEDOUT);
            for caller in callers {
                assert_eq!(caller.join().expect("no panic"), Err(Errno::TIMEDOUT));
            }
        });
        assert!(fetching.begin().is_ok(), "a later caller tries again");
    }

    #[test]
    fn a_waiting_caller_has_its_turn_after_a_fetch() {
        let fetching = Fetching::default();
        std::thread::scope(|scope| {
            let running = fetching.begin().expect("no other");
            let caller = scope.spawn(|| fetching.begin().map(drop));
            while lock(&fetching.state).waiting < 1 {
                std::thread::yield_now();
            }
            drop(running);
            assert_eq!(caller.join().expect("no panic"), Ok(()));
        });
    }
}
