// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows by rank, as numbers: which segment leaves a tier first.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use terrace_core::Slot;

/// A place in a row.
#[derive(Clone, Copy, Debug)]
struct Rank(f64);

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rank {}

/// One row a tier, the lowest rank first; a segment is in one of them or in none.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<BTreeSet<(Rank, Slot)>>,
    /// By slot: its row and its place there.
    places: Vec<Option<(usize, Rank)>>,
}

impl Rows {
    /// Puts a segment where it belongs on a tier.
    pub(crate) fn put(&mut self, tier: usize, slot: Slot, rank: f64) {
        self.insert(tier, slot, Rank(rank));
    }

    /// Puts a segment before all others of a tier, until it is listed again.
    pub(crate) fn put_first(&mut self, tier: usize, slot: Slot) {
        self.insert(tier, slot, Rank(f64::NEG_INFINITY));
    }

    /// Puts a segment behind all others of a tier, until it is listed again.
    pub(crate) fn put_last(&mut self, tier: usize, slot: Slot) {
        self.insert(tier, slot, Rank(f64::INFINITY));
    }

    fn insert(&mut self, tier: usize, slot: Slot, rank: Rank) {
        self.unlist(slot);
        if self.rows.len() <= tier {
            self.rows.resize_with(tier + 1, BTreeSet::new);
        }
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, None);
        }
        self.rows[tier].insert((rank, slot));
        self.places[slot as usize] = Some((tier, rank));
    }

    /// Takes a segment out of its row.
    pub(crate) fn unlist(&mut self, slot: Slot) {
        if let Some((tier, rank)) = self.place(slot) {
            self.rows[tier].remove(&(rank, slot));
            self.places[slot as usize] = None;
        }
    }

    /// The tier in whose row a segment is.
    pub(crate) fn tier_of(&self, slot: Slot) -> Option<usize> {
        self.place(slot).map(|(tier, _)| tier)
    }

    /// The first of a tier.
    pub(crate) fn first(&self, tier: usize) -> Option<Slot> {
        self.rows.get(tier)?.first().map(|(_, slot)| *slot)
    }

    /// The last of a tier.
    pub(crate) fn last(&self, tier: usize) -> Option<Slot> {
        self.rows.get(tier)?.last().map(|(_, slot)| *slot)
    }

    /// The next of the same tier.
    pub(crate) fn after(&self, slot: Slot) -> Option<Slot> {
        let (tier, rank) = self.place(slot)?;
        let behind = (Bound::Excluded((rank, slot)), Bound::Unbounded);
        self.rows[tier].range(behind).next().map(|(_, slot)| *slot)
    }

    /// How many are in a tier's row.
    pub(crate) fn count(&self, tier: usize) -> usize {
        self.rows.get(tier).map_or(0, BTreeSet::len)
    }

    fn place(&self, slot: Slot) -> Option<(usize, Rank)> {
        self.places.get(slot as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::Random;

    #[test]
    fn a_row_is_in_the_order_of_the_latest_ranks() {
        let mut random = Random::new(3);
        let mut rows = Rows::default();
        let mut ranks = [0.0; 50];
        for _ in 0..2000 {
            let slot = random.below(50) as Slot;
            ranks[slot as usize] = random.unit() - 0.5;
            rows.put(0, slot, ranks[slot as usize]);
        }
        let row: Vec<_> = std::iter::successors(rows.first(0), |at| rows.after(*at)).collect();
        assert_eq!((row.len(), row.last().copied()), (50, rows.last(0)));
        assert!(row.is_sorted_by(|a, b| ranks[*a as usize] <= ranks[*b as usize]));
        rows.put_first(0, row[20]);
        rows.put_last(0, row[10]);
        assert_eq!((rows.first(0), rows.last(0)), (Some(row[20]), Some(row[10])));
    }

    #[test]
    fn a_segment_is_in_one_row_at_most() {
        let mut rows = Rows::default();
        rows.put(0, 4, 1.0);
        rows.put(1, 4, 1.0);
        assert_eq!((rows.count(0), rows.count(1), rows.tier_of(4)), (0, 1, Some(1)));
        rows.unlist(4);
        assert_eq!((rows.count(1), rows.tier_of(4), rows.first(1)), (0, None, None));
    }
}
