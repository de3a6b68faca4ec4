// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call, and a question of a file system, that take as long as a test wants.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use terrace_core::{Backend, Kv, Result};
use terrace_server::{Call, Called, Caller, Kept, Service};

/// Serves what another does; the call `"hold"`, and what the file system `hold` is asked, end when the
/// test releases them.
pub struct Held {
    inner: Arc<dyn Service>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_held: bool,
    is_released: bool,
}

impl Held {
    pub fn new(inner: Arc<dyn Service>) -> Self {
        Self { inner, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits until one is held.
    pub fn wait_until_held(&self) {
        self.wait_while(|state| !state.is_held);
    }

    /// Lets all end, those that come later, too.
    pub fn release(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_released = true;
        self.changed.notify_all();
    }

    fn hold(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_held = true;
        self.changed.notify_all();
        self.wait_while(|state| !state.is_released);
    }

    fn wait_while(&self, is_early: impl Fn(&mut State) -> bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, is_early));
    }
}

impl Service for Held {
    fn store_id(&self) -> u128 {
        self.inner.store_id()
    }

    fn openings(&self) -> terrace_wire::Openings {
        self.inner.openings()
    }

    fn backend(&self) -> &dyn Backend {
        self.inner.backend()
    }

    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>> {
        self.inner.kv(namespace)
    }

    fn files(&self, namespace: &str, kept: &Kept, request: &[u8]) -> Result<Vec<u8>> {
        if namespace == "hold" {
            self.hold();
        }
        self.inner.files(namespace, kept, request)
    }

    fn ends(&self) {
        self.inner.ends();
    }

    fn call(&self, call: &Call<'_>, caller: &mut dyn Caller) -> Result<Called> {
        if call.json != b"\"hold\"" {
            return self.inner.call(call, caller);
        }
        self.hold();
        Ok(Called::default())
    }
}
