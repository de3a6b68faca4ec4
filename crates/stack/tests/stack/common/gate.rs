// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A gate at which a test holds other threads.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Holds threads until a test lets them go.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    /// From now on threads are held.
    pub(crate) fn close(&self) {
        self.state.lock().expect("never poisoned").is_closed = true;
    }

    /// Lets all go.
    pub(crate) fn open(&self) {
        self.state.lock().expect("never poisoned").is_closed = false;
        self.changed.notify_all();
    }

    /// Held while the gate is closed.
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().expect("never poisoned");
        state.waiting += 1;
        self.changed.notify_all();
        while state.is_closed {
            state = self.changed.wait(state).expect("never poisoned");
        }
        state.waiting -= 1;
    }

    /// Waits until a thread is held.
    ///
    /// # Panics
    ///
    /// When none comes within ten seconds.
    pub(crate) fn wait_until_held(&self) {
        let state = self.state.lock().expect("never poisoned");
        let limit = Duration::from_secs(10);
        let waited = self.changed.wait_timeout_while(state, limit, |state| state.waiting == 0);
        let is_held = waited.expect("never poisoned").0.waiting > 0;
        assert!(is_held, "no thread reached the gate");
    }

    /// Whether a thread is held.
    pub(crate) fn is_holding(&self) -> bool {
        self.state.lock().expect("never poisoned").waiting > 0
    }
}
