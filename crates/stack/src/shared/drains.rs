// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What drains of tiers have found so far.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::TierIndex;

use crate::report::Stuck;

/// First pause after a look at all objects that left something.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(50);

/// What moves away what a closed tier holds.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    pub(crate) state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) looks: HashMap<TierIndex, Look>,
    /// Something changed that is worth another look at once.
    is_woken: bool,
    pub(crate) pause: Duration,
}

/// What the latest look at all objects found on a tier.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Files that records named.
    pub(crate) files: u64,
    /// Whether nothing was left, also not of what was deleted.
    pub(crate) is_done: bool,
    pub(crate) stuck: Vec<Stuck>,
    pub(crate) stuck_segments: u64,
}

impl Drains {
    /// Waits until it is time to look again.
    pub(crate) fn wait(&self) {
        let state = crate::lock(&self.state);
        let pause = state.pause.max(PAUSE_MIN);
        let is_quiet = |state: &mut State| !state.is_woken;
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, pause, is_quiet)
            .unwrap_or_else(PoisonError::into_inner);
        state.is_woken = false;
    }

    /// Ends a wait.
    pub(crate) fn wake(&self) {
        let mut state = crate::lock(&self.state);
        (state.is_woken, state.pause) = (true, PAUSE_MIN);
        drop(state);
        self.changed.notify_all();
    }

    pub(crate) fn forget(&self, tier: TierIndex) {
        crate::lock(&self.state).looks.remove(&tier);
    }
}
