// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers of requests, and which of their answers the server keeps.

use std::collections::BTreeSet;

/// Numbers of requests.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) last: u64,
    /// Changes whose answer has not come.
    pub(super) open: BTreeSet<u64>,
    /// Changes from the first of these on: their answers are kept by the server.
    pub(super) kept: BTreeSet<u64>,
    /// Changes of [`Ids::open`] that nobody waits for now, and that may be asked for again.
    pub(super) left: BTreeSet<u64>,
    /// Threads that wait until fewer are kept.
    pub(super) waiters: usize,
}

impl Ids {
    /// Every change with a smaller number was answered.
    pub(super) fn acknowledged(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.last + 1)
    }

    pub(super) fn end(&mut self, number: u64) {
        self.left.remove(&number);
        if self.open.remove(&number) {
            self.kept = self.kept.split_off(&self.acknowledged());
        }
    }

    /// Whether the server still knows what became of a change that nobody waited for; somebody does
    /// from now on.
    pub(super) fn take_up(&mut self, number: u64) -> bool {
        self.left.remove(&number);
        self.open.contains(&number)
    }

    /// Has the server forget what became of changes that nobody waits for.
    pub(super) fn give_up_left(&mut self) {
        while let Some(number) = self.left.first().copied() {
            self.end(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_acknowledged_up_to_the_first_change_that_is_open() {
        let mut ids = Ids::default();
        for number in [1, 2, 4] {
            ids.open.insert(number);
            ids.kept.insert(number);
        }
        ids.last = 4;
        ids.end(2);
        assert_eq!((ids.acknowledged(), ids.kept.len()), (1, 3));
        ids.end(1);
        assert_eq!((ids.acknowledged(), ids.kept.len()), (4, 1));
        ids.end(3);
        assert_eq!(ids.acknowledged(), 4, "it was no change");
        ids.end(4);
        assert_eq!((ids.acknowledged(), ids.kept.len()), (5, 0));
    }

    #[test]
    fn what_nobody_waits_for_is_given_up_before_what_somebody_asks_for() {
        let mut ids = Ids { last: 3, ..Ids::default() };
        for number in [1, 2, 3] {
            ids.open.insert(number);
            ids.kept.insert(number);
        }
        ids.left.extend([1, 2]);
        assert!(ids.take_up(2), "the server knows what became of it");
        ids.give_up_left();
        assert_eq!((ids.acknowledged(), ids.kept.len()), (2, 2));
        assert!(!ids.take_up(1), "it was given up");
    }
}
