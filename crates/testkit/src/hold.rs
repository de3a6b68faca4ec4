// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that a server in memory holds until a test lets them go.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Hold {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Requests that wait, or were let go and have not ended yet.
    held: u64,
    /// Calls of [`Hold::release`].
    releases: u64,
    is_over: bool,
}

/// A request that was let go; dropped when it has ended.
pub(crate) struct Held<'a>(&'a Hold);

impl Hold {
    /// Blocks until the next call of [`Hold::release`].
    pub(crate) fn wait(&self) -> Held<'_> {
        let mut state = self.state();
        state.held += 1;
        let releases = state.releases;
        self.changed.notify_all();
        let is_held = |state: &mut State| state.releases == releases && !state.is_over;
        drop(self.changed.wait_while(state, is_held).unwrap_or_else(PoisonError::into_inner));
        Held(self)
    }

    /// Blocks until a request is held.
    pub(crate) fn wait_held(&self) {
        let is_free = |state: &mut State| state.held == 0;
        drop(
            self.changed.wait_while(self.state(), is_free).unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Lets all requests go that are held, and blocks until they have ended.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        state.releases += 1;
        self.changed.notify_all();
        let is_running = |state: &mut State| state.held > 0;
        drop(self.changed.wait_while(state, is_running).unwrap_or_else(PoisonError::into_inner));
    }

    /// Holds no request any more.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state().held -= 1;
        self.0.changed.notify_all();
    }
}
