// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ranges written since a migration began to copy.

use std::collections::BTreeMap;
use std::ops::Range;

/// Most ranges kept apart; beyond that, neighbours are joined with the gap between them.
const RANGES_MAX: usize = 256;

/// A set of byte ranges, disjoint and bounded in number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
    /// Whether anything was ever marked or noted, also if it was copied since.
    was_written: bool,
}

impl Dirty {
    /// Adds a range.
    pub(crate) fn mark(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Ranges that touch the new one lie before its end; walk back from there.
        while let Some((&other_start, &other_end)) = self.ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            start = start.min(other_start);
            end = end.max(other_end);
            self.ranges.remove(&other_start);
        }
        self.ranges.insert(start, end);
        if self.ranges.len() > RANGES_MAX {
            self.join_nearest();
        }
    }

    /// Notes that ranges were marked which have been taken out since.
    pub(crate) fn note_any(&mut self) {
        self.was_written = true;
    }

    /// Whether anything was written since tracking began.
    pub(crate) fn was_written(&self) -> bool {
        self.was_written || !self.ranges.is_empty()
    }

    /// Bytes in all ranges.
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Whether nothing was marked.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }

    fn join_nearest(&mut self) {
        let gap = |pair: &((&u64, &u64), (&u64, &u64))| pair.1.0 - pair.0.1;
        let pairs = self.ranges.iter().zip(self.ranges.iter().skip(1));
        let nearest = pairs.min_by_key(gap).map(|(first, second)| (*first.0, *second.0, *second.1));
        if let Some((first, second, end)) = nearest {
            self.ranges.remove(&second);
            self.ranges.insert(first, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::Random;

    fn ranges(dirty: &Dirty) -> Vec<(u64, u64)> {
        dirty.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn touching_ranges_become_one() {
        let mut dirty = Dirty::default();
        for range in [10..20, 30..40, 20..30, 0..5, 3..12, 50..50] {
            dirty.mark(range);
        }
        assert_eq!(ranges(&dirty), [(0, 40)]);
        assert_eq!(dirty.bytes(), 40);
    }

    #[test]
    fn every_marked_byte_stays_marked_within_the_bound() {
        let mut random = Random::new(1);
        let mut dirty = Dirty::default();
        let mut marked = vec![false; 100_000];
        for _ in 0..3000 {
            let start = random.below(99_000);
            let end = start + random.below(20);
            dirty.mark(start..end);
            marked[start as usize..end as usize].fill(true);
            assert!(dirty.ranges.len() <= RANGES_MAX);
        }
        for range in dirty.iter() {
            marked[range.start as usize..range.end as usize].fill(false);
        }
        assert!(!marked.contains(&true));
    }
}
