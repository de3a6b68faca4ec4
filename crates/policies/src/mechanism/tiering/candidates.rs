// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The segments whose promotion is to be judged.

use std::collections::VecDeque;

use terrace_core::Slot;

/// Segments that wait to be judged; the oldest give way and come back with their next access.
const CANDIDATES_MAX: usize = 1024;

/// Segments on lower tiers that were used again, oldest first, each once.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    queue: VecDeque<Slot>,
    is_queued: Vec<bool>,
}

impl Candidates {
    /// Adds a segment, unless it waits already.
    pub(super) fn add(&mut self, slot: Slot) {
        let index = slot as usize;
        if index >= self.is_queued.len() {
            self.is_queued.resize(index + 1, false);
        }
        if std::mem::replace(&mut self.is_queued[index], true) {
            return;
        }
        if self.queue.len() == CANDIDATES_MAX
            && let Some(oldest) = self.queue.pop_front()
        {
            self.is_queued[oldest as usize] = false;
        }
        self.queue.push_back(slot);
    }

    /// The segments that wait, oldest first.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.queue.iter().copied()
    }

    /// Takes all.
    pub(super) fn take(&mut self) -> VecDeque<Slot> {
        self.queue.iter().for_each(|slot| self.is_queued[*slot as usize] = false);
        std::mem::take(&mut self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way_and_each_waits_once() {
        let mut candidates = Candidates::default();
        for slot in 0..=CANDIDATES_MAX as Slot {
            candidates.add(slot);
            candidates.add(slot);
        }
        let taken = candidates.take();
        assert_eq!((taken.len(), taken.front()), (CANDIDATES_MAX, Some(&1)));
        candidates.add(1);
        assert_eq!(candidates.take(), [1], "it may come again");
    }
}
