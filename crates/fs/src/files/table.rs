// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that are open here.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::open::Shared;
use crate::lock;

/// So many locks stand between those who look for different files.
const PARTS: usize = 64;

/// A file that is open here.
pub(super) struct Opened {
    pub(super) file: Arc<Shared>,
    pub(super) readers: u64,
    pub(super) writers: u64,
    /// How often it was opened for writing since it was not open at all.
    pub(super) opened_for_writing: u64,
}

/// The files that are open here, by number.
///
/// Who opens or closes one may have to wait for servers: they have its number to themselves meanwhile,
/// and hold up nobody who wants another one.
pub(super) struct Table([Part; PARTS]);

#[derive(Default)]
struct Part {
    state: Mutex<State>,
    given_back: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` while somebody holds the number.
    files: HashMap<u64, Option<Opened>>,
    waiting: usize,
}

/// One number, which nobody else opens or closes meanwhile.
pub(super) struct Held<'a> {
    part: &'a Part,
    number: u64,
    /// `None` where it is not open here.
    pub(super) opened: Option<Opened>,
}

impl Default for Table {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Part::default()))
    }
}

impl Table {
    /// Waits until nobody holds a number, and holds it.
    pub(super) fn hold(&self, number: u64) -> Held<'_> {
        let part = &self.0[number as usize % PARTS];
        let is_held = |state: &mut State| matches!(state.files.get(&number), Some(None));
        let mut state = lock(&part.state);
        if is_held(&mut state) {
            state.waiting += 1;
            let woken = part.given_back.wait_while(state, is_held);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        let opened = state.files.insert(number, None).flatten();
        Held { part, number, opened }
    }

    /// The file with a number, where it is open here; as who opens or closes it leaves it.
    pub(super) fn file(&self, number: u64) -> Option<Arc<Shared>> {
        self.hold(number).opened.as_ref().map(|opened| Arc::clone(&opened.file))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.part.state);
        match self.opened.take() {
            Some(opened) => drop(state.files.insert(self.number, Some(opened))),
            None => drop(state.files.remove(&self.number)),
        }
        if state.waiting > 0 {
            self.part.given_back.notify_all();
        }
    }
}
