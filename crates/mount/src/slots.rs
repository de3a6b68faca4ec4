// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files and directories by number.

use std::sync::{Arc, PoisonError, RwLock};

/// Values by a number that the kernel gives back.
pub(crate) struct Slots<T> {
    state: RwLock<State<T>>,
}

struct State<T> {
    values: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { state: RwLock::new(State { values: Vec::new(), free: Vec::new() }) }
    }
}

impl<T> Slots<T> {
    /// Keeps a value and returns its number.
    pub(crate) fn put(&self, value: T) -> u64 {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let value = Some(Arc::new(value));
        let number = match state.free.pop() {
            Some(number) => {
                state.values[number] = value;
                number
            }
            None => {
                state.values.push(value);
                state.values.len() - 1
            }
        };
        number as u64
    }

    /// The value with a number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.values.get(usize::try_from(number).ok()?)?.clone()
    }

    /// Takes a value out; its number is free for another.
    pub(crate) fn take(&self, number: u64) -> Option<Arc<T>> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let number = usize::try_from(number).ok()?;
        let value = state.values.get_mut(number)?.take()?;
        state.free.push(number);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_only_when_it_is_free() {
        let slots = Slots::default();
        let (a, b) = (slots.put('a'), slots.put('b'));
        assert_ne!(a, b);
        assert_eq!(slots.take(a).as_deref(), Some(&'a'));
        assert_eq!(slots.get(a), None);
        assert_eq!(slots.take(a), None);
        assert_eq!(slots.put('c'), a);
        assert_eq!(slots.get(b).as_deref(), Some(&'b'));
        assert_eq!(slots.get(u64::MAX), None);
    }
}
