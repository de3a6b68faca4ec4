// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers of requests, and which of their answers the server keeps.

use std::collections::{BTreeMap, BTreeSet};

use terrace_wire::KEPT_BYTES_MAX;

/// Changes whose answers the server may have to keep at a time; half of what it keeps.
pub(super) const ANSWERS_MAX: usize = 2048;

/// Bytes of these answers; half of what it keeps.
pub(super) const ANSWERS_BYTES_MAX: usize = 2 << 20;

/// Numbers of requests.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) last: u64,
    /// Changes whose answer has not come.
    pub(super) open: BTreeSet<u64>,
    /// Changes from the first of these on: their answers are kept by the server. With the bytes of
    /// those that have come.
    kept: BTreeMap<u64, usize>,
    /// Their sum.
    kept_bytes: usize,
    /// Changes of [`Ids::open`] without a waiting caller that may be asked for again.
    pub(super) left: BTreeSet<u64>,
    /// Threads that wait until fewer are kept.
    pub(super) waiters: usize,
}

impl Ids {
    /// The next number; whether it is a change whose answer is kept.
    pub(super) fn next(&mut self, is_kept: bool) -> u64 {
        self.last += 1;
        if is_kept {
            self.open.insert(self.last);
            self.kept.insert(self.last, 0);
        }
        self.last
    }

    /// Whether the server has to keep enough.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= ANSWERS_MAX || self.kept_bytes >= ANSWERS_BYTES_MAX
    }

    /// An answer of this length has come.
    pub(super) fn note_answer(&mut self, number: u64, frame_bytes: usize) {
        // Of a longer one hardly anything is kept.
        if frame_bytes <= KEPT_BYTES_MAX
            && let Some(bytes) = self.kept.get_mut(&number)
        {
            let before = std::mem::replace(bytes, frame_bytes);
            self.kept_bytes = self.kept_bytes + frame_bytes - before;
        }
    }

    /// Every change with a smaller number was answered.
    pub(super) fn acknowledged(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.last + 1)
    }

    pub(super) fn end(&mut self, number: u64) {
        self.left.remove(&number);
        if self.open.remove(&number) {
            let later = self.kept.split_off(&self.acknowledged());
            let dropped = std::mem::replace(&mut self.kept, later);
            self.kept_bytes -= dropped.values().sum::<usize>();
        }
    }

    /// Whether the server still has the result of an asynchronous change; a caller waits for it
    /// from now on.
    pub(super) fn take_up(&mut self, number: u64) -> bool {
        self.left.remove(&number);
        self.open.contains(&number)
    }

    /// Has the server forget the results of changes without waiting callers.
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
        for is_kept in [true, true, false, true] {
            ids.next(is_kept);
        }
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
        let mut ids = Ids::default();
        for _ in 0..3 {
            ids.next(true);
        }
        ids.left.extend([1, 2]);
        assert!(ids.take_up(2), "the server knows what became of it");
        ids.give_up_left();
        assert_eq!((ids.acknowledged(), ids.kept.len()), (2, 2));
        assert!(!ids.take_up(1), "it was given up");
    }

    #[test]
    fn few_long_answers_are_as_much_as_many_short_ones() {
        let mut ids = Ids::default();
        for (frame_bytes, count) in [(KEPT_BYTES_MAX, 32), (100, 2047), (KEPT_BYTES_MAX + 1, 2047)]
        {
            let slow = ids.next(true);
            for _ in 0..count {
                assert!(!ids.is_full(), "{count} of {frame_bytes} bytes");
                let number = ids.next(true);
                ids.note_answer(number, frame_bytes);
                ids.end(number);
            }
            assert!(ids.is_full(), "{count} of {frame_bytes} bytes");
            ids.end(slow);
            assert_eq!((ids.kept.len(), ids.kept_bytes), (0, 0));
        }
    }
}
