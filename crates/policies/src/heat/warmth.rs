// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How warm segments are, and which of a tier is coldest.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use terrace_core::Slot;

/// What was read and written of a segment, in whole segments, each halved with every half-life that
/// has passed since.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Heat {
    /// As it was at `at_ns`: what it is now is only computed where it is asked for.
    pub(super) at: f64,
    pub(super) at_ns: u64,
}

impl Heat {
    /// What is left of it.
    pub(super) fn now(&self, now_ns: u64, half_life_ns: u64) -> f64 {
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at * (-(passed_ns as f64) / half_life_ns as f64).exp2()
    }

    /// Adds heat at a time; one before the last counts as the last.
    pub(super) fn add(&mut self, more: f64, now_ns: u64, half_life_ns: u64) {
        let now_ns = now_ns.max(self.at_ns);
        *self = Self { at: self.now(now_ns, half_life_ns) + more, at_ns: now_ns };
    }

    /// Its place among others: as all halve at the same time, the order of heats is that of
    /// log2(heat) + time / half-life, whatever the time is.
    fn rank(&self, half_life_ns: u64) -> Rank {
        Rank(self.at.log2() + self.at_ns as f64 / half_life_ns as f64)
    }
}

/// A place among heats, the coldest first.
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

/// One row a tier, the coldest first; a segment is in one of them or in none.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<BTreeSet<(Rank, Slot)>>,
    /// By slot: its row and its place there.
    places: Vec<Option<(usize, Rank)>>,
}

impl Rows {
    /// Puts a segment where it belongs on a tier.
    pub(super) fn list(&mut self, tier: usize, slot: Slot, heat: &Heat, half_life_ns: u64) {
        self.insert(tier, slot, heat.rank(half_life_ns));
    }

    /// Puts a segment before all others of a tier, until it is listed again.
    pub(super) fn put_first(&mut self, tier: usize, slot: Slot) {
        self.insert(tier, slot, Rank(f64::NEG_INFINITY));
    }

    /// Puts a segment behind all others of a tier, until it is listed again.
    pub(super) fn put_last(&mut self, tier: usize, slot: Slot) {
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
    pub(super) fn unlist(&mut self, slot: Slot) {
        if let Some((tier, rank)) = self.place(slot) {
            self.rows[tier].remove(&(rank, slot));
            self.places[slot as usize] = None;
        }
    }

    /// The tier in whose row a segment is.
    pub(super) fn tier_of(&self, slot: Slot) -> Option<usize> {
        self.place(slot).map(|(tier, _)| tier)
    }

    /// The coldest of a tier.
    pub(super) fn first(&self, tier: usize) -> Option<Slot> {
        self.rows.get(tier)?.first().map(|(_, slot)| *slot)
    }

    /// The warmest of a tier.
    pub(super) fn last(&self, tier: usize) -> Option<Slot> {
        self.rows.get(tier)?.last().map(|(_, slot)| *slot)
    }

    /// The next warmer one of the same tier.
    pub(super) fn after(&self, slot: Slot) -> Option<Slot> {
        let (tier, rank) = self.place(slot)?;
        let warmer = (Bound::Excluded((rank, slot)), Bound::Unbounded);
        self.rows[tier].range(warmer).next().map(|(_, slot)| *slot)
    }

    /// How many are in a tier's row.
    pub(super) fn count(&self, tier: usize) -> usize {
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

    const HALF_LIFE_NS: u64 = 1000;

    #[test]
    fn heat_halves_in_a_half_life_before_more_is_added() {
        let mut heat = Heat::default();
        heat.add(1.0, 500, HALF_LIFE_NS);
        assert_eq!(heat.now(1500, HALF_LIFE_NS), 0.5);
        heat.add(0.25, 2500, HALF_LIFE_NS);
        assert_eq!(heat, Heat { at: 0.5, at_ns: 2500 });
        assert_eq!(heat.now(4500, HALF_LIFE_NS), 0.125);
    }

    #[test]
    fn an_event_from_the_past_is_taken_as_of_now() {
        let mut heat = Heat { at: 1.0, at_ns: 1000 };
        heat.add(1.0, 0, HALF_LIFE_NS);
        assert_eq!(heat, Heat { at: 2.0, at_ns: 1000 });
    }

    #[test]
    fn a_row_is_in_the_order_of_heats_at_any_time() {
        let mut random = Random::new(3);
        let mut rows = Rows::default();
        let mut heats = vec![Heat::default(); 50];
        for step in 0..2000 {
            let slot = random.below(50) as Slot;
            let heat = &mut heats[slot as usize];
            heat.add(random.unit(), step * 10, HALF_LIFE_NS);
            rows.list(0, slot, heat, HALF_LIFE_NS);
        }
        let row: Vec<_> = std::iter::successors(rows.first(0), |at| rows.after(*at)).collect();
        assert_eq!((row.len(), row.last().copied()), (50, rows.last(0)));
        for now_ns in [20_000, 23_456, 27_000] {
            let now = |slot: &Slot| heats[*slot as usize].now(now_ns, HALF_LIFE_NS);
            assert!(row.is_sorted_by(|a, b| now(a) <= now(b)));
        }
    }

    #[test]
    fn a_segment_is_in_one_row_at_most() {
        let mut rows = Rows::default();
        let heat = Heat { at: 1.0, at_ns: 0 };
        rows.list(0, 4, &heat, HALF_LIFE_NS);
        rows.list(1, 4, &heat, HALF_LIFE_NS);
        assert_eq!((rows.count(0), rows.count(1), rows.tier_of(4)), (0, 1, Some(1)));
        rows.unlist(4);
        assert_eq!((rows.count(1), rows.tier_of(4), rows.first(1)), (0, None, None));
    }
}
