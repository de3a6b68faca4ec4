// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that are open here.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::open::Shared;
use crate::lock;

/// So many locks are shared by threads that look for different files.
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
/// An open or a close may have to wait for servers: it holds the number of its file meanwhile,
/// and holds up no thread that wants another one.
pub(super) struct Table([Part; PARTS]);

#[derive(Default)]
struct Part {
    state: Mutex<State>,
    given_back: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` while a thread holds the number.
    files: HashMap<u64, Option<Opened>>,
    waiting: usize,
}

/// One number, which no other thread opens or closes meanwhile.
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
    /// Waits until a number is free, and holds it.
    pub(super) fn hold(&self, number: u64) -> Held<'_> {
        let part = self.part(number);
        let opened = part.wait_for(number).files.insert(number, None).flatten();
        Held { part, number, opened }
    }

    /// Holds a free number.
    pub(super) fn try_hold(&self, number: u64) -> Option<Held<'_>> {
        let part = self.part(number);
        let mut state = lock(&part.state);
        if matches!(state.files.get(&number), Some(None)) {
            return None;
        }
        let opened = state.files.insert(number, None).flatten();
        Some(Held { part, number, opened })
    }

    /// The file with a number, where it is open here; as an open or a close leaves it.
    pub(super) fn file(&self, number: u64) -> Option<Arc<Shared>> {
        let state = self.part(number).wait_for(number);
        let opened = state.files.get(&number)?.as_ref()?;
        Some(Arc::clone(&opened.file))
    }

    /// Whether a number is not open here, and no thread opens or closes it just now; does not wait for them.
    pub(super) fn is_free(&self, number: u64) -> bool {
        !lock(&self.part(number).state).files.contains_key(&number)
    }

    /// Notes of every file that is open here that bytes of it which are with the metadata may be durable
    /// from now on. One that has begun to leave the metadata has an object then.
    pub(super) fn note_all_durable(&self) {
        for part in &self.0 {
            let numbers: Vec<u64> = lock(&part.state).files.keys().copied().collect();
            for file in numbers.into_iter().filter_map(|number| self.file(number)) {
                file.note_durable(true);
                drop(file.look());
            }
        }
    }

    fn part(&self, number: u64) -> &Part {
        &self.0[number as usize % PARTS]
    }
}

impl Part {
    /// Locks it once a number is free.
    fn wait_for(&self, number: u64) -> MutexGuard<'_, State> {
        let is_held = |state: &mut State| matches!(state.files.get(&number), Some(None));
        let mut state = lock(&self.state);
        if is_held(&mut state) {
            state.waiting += 1;
            let woken = self.given_back.wait_while(state, is_held);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_number_is_held_by_one_at_a_time() {
        let (table, holders) = (Table::default(), AtomicUsize::new(0));
        let hold_often = || {
            for _ in 0..1000 {
                let held = table.hold(1);
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                thread::yield_now();
                holders.fetch_sub(1, Ordering::SeqCst);
                drop(held);
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(hold_often);
            }
        });
        assert!(table.0.iter().all(|part| lock(&part.state).files.is_empty()), "nothing is left");
    }

    #[test]
    fn who_looks_for_a_number_waits_for_who_holds_it_alone() {
        let (table, is_given_back) = (Table::default(), AtomicBool::new(false));
        let held = table.hold(1);
        assert!(!table.is_free(1) && table.is_free(2));
        let waits = || {
            assert!(table.file(1).is_none());
            assert!(is_given_back.load(Ordering::SeqCst));
        };
        thread::scope(|scope| {
            scope.spawn(waits);
            while lock(&table.part(1).state).waiting == 0 {
                thread::yield_now();
            }
            // Others of the same part.
            drop(table.hold(1 + PARTS as u64));
            assert!(table.file(1 + PARTS as u64).is_none());
            is_given_back.store(true, Ordering::SeqCst);
            drop(held);
        });
    }
}
