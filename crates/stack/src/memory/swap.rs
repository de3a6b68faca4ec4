// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reference that is replaced as a whole: wait-free where it is read again and again, cheap where
//! it is not.

use std::sync::{OnceLock, PoisonError, RwLock};

use arc_swap::{ArcSwapAny, Guard, RefCnt};

/// A reference to what is valid now.
///
/// An `ArcSwap` looks at every thread's list when it is replaced or dropped, half a microsecond
/// with a dozen threads. Most objects are made, closed and forgotten without a read or write, so
/// only the first of these makes one.
#[derive(Debug)]
pub(crate) struct Swap<T: RefCnt> {
    current: RwLock<T>,
    /// The same for reads and writes, from the first on. Made under the shared lock and replaced
    /// under the exclusive one, so that it never misses a change.
    often: OnceLock<ArcSwapAny<T>>,
}

impl<T: RefCnt> Swap<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { current: RwLock::new(value), often: OnceLock::new() }
    }

    /// What is valid now, without counting a reference; for reads and writes.
    #[inline]
    pub(crate) fn load(&self) -> Guard<T> {
        match self.often.get() {
            Some(often) => often.load(),
            None => self.load_first(),
        }
    }

    #[cold]
    fn load_first(&self) -> Guard<T> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        self.often.get_or_init(|| ArcSwapAny::new(T::clone(&current))).load()
    }

    /// A reference to what is valid now; for everything that is done once.
    pub(crate) fn load_full(&self) -> T {
        match self.often.get() {
            Some(often) => often.load_full(),
            None => T::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Replaces it. A load after this returned gets `next`.
    pub(crate) fn store(&self, next: T) {
        // The last reference may close a file: no other thread waits for that.
        drop(self.replace(next));
    }

    /// Replaces it, and gives what was valid until now: its references are this one and those of
    /// the threads that loaded it before.
    pub(crate) fn replace(&self, next: T) -> T {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(often) = self.often.get() {
            often.store(T::clone(&next));
        }
        std::mem::replace(&mut *current, next)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_was_stored_is_loaded_and_nothing_else_is_kept() {
        let values: Vec<_> = (0..4).map(Arc::new).collect();
        let swap = Swap::new(Arc::clone(&values[0]));
        swap.store(Arc::clone(&values[1]));
        assert_eq!(*swap.load_full(), 1);
        assert_eq!(**swap.load(), 1);
        swap.store(Arc::clone(&values[2]));
        assert_eq!((**swap.load(), *swap.load_full()), (2, 2));
        swap.store(Arc::clone(&values[3]));
        assert!(values[..3].iter().all(|value| Arc::strong_count(value) == 1));
        drop(swap);
        assert_eq!(Arc::strong_count(&values[3]), 1);
    }

    #[test]
    fn nobody_goes_back_to_what_was_replaced() {
        for _ in 0..200 {
            let swap = Swap::new(Arc::new(0));
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for is_often in [false, true] {
                    let (swap, is_over) = (&swap, &is_over);
                    scope.spawn(move || {
                        let mut last = 0;
                        while !is_over.load(Ordering::Acquire) {
                            let now = if is_often { **swap.load() } else { *swap.load_full() };
                            assert!(now >= last);
                            last = now;
                        }
                        assert_eq!((**swap.load(), *swap.load_full()), (100, 100));
                    });
                }
                for next in 1..=100 {
                    swap.store(Arc::new(next));
                }
                is_over.store(true, Ordering::Release);
            });
        }
    }
}
