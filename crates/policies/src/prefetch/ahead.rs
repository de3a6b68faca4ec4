// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is expected to be read, and how often that came true.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use terrace_core::{SegmentView, Slot, TierIndex, View};

use crate::mechanism::saved::{Name, Names};

/// Weight of the newest expectation in the hit rate.
const NEWEST: f64 = 1.0 / 8.0;

/// How far above the rate at which prefetching ends it begins, so that it does not come and go.
const MORE: f64 = 0.1;

/// How much may be expected at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) count: usize,
    pub(super) bytes: u64,
}

/// A segment that is expected to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) incarnation: u32,
    bytes: u64,
    /// Where it was when it was expected first.
    pub(super) tier: TierIndex,
    /// When it is expected.
    pub(super) at_ns: u64,
    /// When it is not expected any more.
    pub(super) deadline_ns: u64,
}

/// All segments that are expected, whether they are brought up or not: so the hit rate is known also
/// while nothing is.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    expected: BTreeMap<Slot, Expected>,
    deadlines: BTreeSet<(u64, Slot)>,
    bytes: u64,
    hit_rate: f64,
    is_on: bool,
    pub(super) counts: Counts,
}

/// What came of expectations since the policy was made.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Hits of segments that had been brought up by then.
    pub(super) in_time: u64,
}

/// As it is saved: with the time that is left, because clocks start anew.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedAhead {
    expected: Vec<SavedExpected>,
    /// The bits of the number, which JSON would round.
    hit_rate_bits: u64,
    is_on: bool,
    counts: Counts,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedExpected {
    name: Name,
    bytes: u64,
    tier: String,
    /// From now, where that is to come, and how long ago, where it has been.
    at_left_ns: i64,
    left_ns: u64,
}

impl SavedAhead {
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.expected.iter().map(|expected| &expected.name)
    }
}

impl Ahead {
    /// Whether expectations come true often enough to act on them.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Share of the latest expectations that came true.
    pub(super) fn hit_rate(&self) -> f64 {
        self.hit_rate
    }

    pub(super) fn count(&self) -> usize {
        self.expected.len()
    }

    /// Whether nothing more can be expected now.
    pub(super) fn is_full(&self, window: Window) -> bool {
        self.expected.len() >= window.count || self.bytes >= window.bytes
    }

    /// Expects a segment, unless it is expected already or there is no more room in the window. One
    /// that is larger than the window is expected alone.
    pub(super) fn expect(
        &mut self,
        slot: Slot,
        segment: &SegmentView,
        at_ns: u64,
        deadline_ns: u64,
        window: Window,
    ) {
        let SegmentView { incarnation, size_bytes: bytes, tier, .. } = *segment;
        let has_room = self.bytes.saturating_add(bytes) <= window.bytes || self.bytes == 0;
        if self.is_full(window) || !has_room || self.expected.contains_key(&slot) {
            return;
        }
        self.insert(slot, Expected { incarnation, bytes, tier, at_ns, deadline_ns });
    }

    fn insert(&mut self, slot: Slot, expected: Expected) {
        self.bytes += expected.bytes;
        self.deadlines.insert((expected.deadline_ns, slot));
        self.expected.insert(slot, expected);
    }

    /// What is expected of a segment.
    pub(super) fn get(&self, slot: Slot) -> Option<&Expected> {
        self.expected.get(&slot)
    }

    /// Ends an expectation that can no longer be met.
    pub(super) fn forget(&mut self, slot: Slot) -> Option<Expected> {
        let expected = self.expected.remove(&slot)?;
        self.deadlines.remove(&(expected.deadline_ns, slot));
        self.bytes -= expected.bytes;
        Some(expected)
    }

    /// A segment is read: the expectation that has come true.
    pub(super) fn hit(&mut self, slot: Slot, tier: TierIndex, min_rate: f64) -> Option<Expected> {
        let expected = self.forget(slot)?;
        self.counts.hits += 1;
        self.counts.in_time += u64::from(tier < expected.tier);
        self.learn(1.0, min_rate);
        Some(expected)
    }

    /// Ends what did not come true in time.
    pub(super) fn expire(&mut self, now_ns: u64, min_rate: f64) {
        while let Some((deadline_ns, slot)) = self.deadlines.first().copied() {
            if deadline_ns > now_ns {
                return;
            }
            self.forget(slot);
            self.counts.misses += 1;
            self.learn(0.0, min_rate);
        }
    }

    fn learn(&mut self, hit: f64, min_rate: f64) {
        self.hit_rate += NEWEST * (hit - self.hit_rate);
        let least = if self.is_on { min_rate } else { (min_rate + MORE).min(1.0 - NEWEST) };
        self.is_on = self.hit_rate >= least;
    }

    /// All that is expected, the soonest first.
    pub(super) fn soonest_first(&self) -> Vec<(Slot, Expected)> {
        let mut all: Vec<_> = self.expected.iter().map(|(slot, it)| (*slot, *it)).collect();
        all.sort_by_key(|(slot, expected)| (expected.at_ns, *slot));
        all
    }

    pub(super) fn save(&self, view: &View) -> SavedAhead {
        let saved = |(slot, expected): (&Slot, &Expected)| {
            let segment = view.segment(*slot, expected.incarnation)?;
            let at_left_ns = i128::from(expected.at_ns) - i128::from(view.now_ns);
            Some(SavedExpected {
                name: Name::of(segment),
                bytes: expected.bytes,
                tier: view.tiers[expected.tier.index()].name.clone(),
                at_left_ns: at_left_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
                left_ns: expected.deadline_ns.saturating_sub(view.now_ns),
            })
        };
        SavedAhead {
            expected: self.expected.iter().filter_map(saved).collect(),
            hit_rate_bits: self.hit_rate.to_bits(),
            is_on: self.is_on,
            counts: self.counts,
        }
    }

    pub(super) fn restore(&mut self, view: &View, names: &Names<'_>, saved: &SavedAhead) {
        *self = Self {
            hit_rate: f64::from_bits(saved.hit_rate_bits).clamp(0.0, 1.0),
            is_on: saved.is_on,
            counts: saved.counts,
            ..Self::default()
        };
        for saved in &saved.expected {
            let tier = view.tiers.iter().position(|tier| tier.name == saved.tier);
            let (Some(slot), Some(tier)) = (names.slot(&saved.name), tier) else { continue };
            self.forget(slot);
            self.insert(
                slot,
                Expected {
                    incarnation: view.segments[slot as usize].incarnation,
                    bytes: saved.bytes,
                    tier: TierIndex(tier as u8),
                    at_ns: view.now_ns.saturating_add_signed(saved.at_left_ns),
                    deadline_ns: view.now_ns.saturating_add(saved.left_ns),
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::segment;

    const WINDOW: Window = Window { count: 3, bytes: 100 };

    fn expect(ahead: &mut Ahead, slot: Slot, bytes: u64) -> usize {
        let segment = segment(&format!("n/{slot}"), bytes, TierIndex(1));
        ahead.expect(slot, &segment, 0, 10, WINDOW);
        ahead.count()
    }

    #[test]
    fn the_window_bounds_bytes_and_count() {
        let mut ahead = Ahead::default();
        assert_eq!(expect(&mut ahead, 0, 1000), 1, "a large one alone");
        assert_eq!(expect(&mut ahead, 1, 0), 1);
        ahead.forget(0);
        assert_eq!([(1, 60), (2, 50), (3, 40)].map(|it| expect(&mut ahead, it.0, it.1)), [1, 1, 2]);
        ahead.forget(3);
        assert_eq!([(4, 1), (5, 1), (6, 1)].map(|it| expect(&mut ahead, it.0, it.1)), [2, 3, 3]);
    }

    #[test]
    fn it_is_on_while_expectations_come_true() {
        let mut ahead = Ahead::default();
        let mut hits = 0;
        while !ahead.is_on() {
            expect(&mut ahead, 0, 1);
            assert!(ahead.hit(0, TierIndex(0), 0.5).is_some());
            hits += 1;
        }
        assert_eq!(hits, 7, "it has to prove itself first");
        let mut misses = 0;
        while ahead.is_on() {
            expect(&mut ahead, 0, 1);
            ahead.expire(10, 0.5);
            misses += 1;
        }
        assert_eq!((misses, ahead.counts.misses, ahead.counts.in_time), (2, 2, 7));
    }
}
