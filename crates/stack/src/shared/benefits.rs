// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What moves of segments were good for: what accesses have taken since, beside what they would have
//! taken where the segment was before.
//!
//! Counted by the policy's thread from the events that it gets anyway, so that reads and writes
//! have nothing to do with it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use terrace_core::{Event, EventKind, Figures, Key, Slot, TierIndex, View};

use crate::hash::Numbers;
use crate::tiers::list::Tiers;
use crate::watch::ring::Posted;

/// Accesses of a tier from which on its own speed counts, not only its figures.
const ACCESSES_MIN: u64 = 100;

/// Since a segment was moved or copied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tally {
    pub(crate) from: TierIndex,
    pub(crate) to: TierIndex,
    /// That the tier it went to served.
    pub(crate) accesses: u64,
    took_ns: u64,
    /// What they would have taken where it was before, by the figures of that tier.
    figures_s: f64,
}

impl Tally {
    fn new(from: TierIndex, to: TierIndex) -> Self {
        Self { from, to, accesses: 0, took_ns: 0, figures_s: 0.0 }
    }

    /// Seconds saved so far; `None` where the figures of the tier before say nothing.
    pub(crate) fn saved_s(&self, tiers: &Tiers) -> Option<f64> {
        if self.accesses == 0 {
            return Some(0.0);
        }
        let would_s = self.figures_s * slowness(tiers, self.from);
        (would_s > 0.0).then_some(would_s - self.took_ns as f64 * 1e-9)
    }
}

/// How many times what its figures say a tier has taken since the store was opened.
fn slowness(tiers: &Tiers, tier: TierIndex) -> f64 {
    let tier = tiers.get(tier).expect("an index is only made for a tier");
    let ledger = tier.ledger.report();
    let accesses = ledger.reads + ledger.writes;
    let figures_s = by_figures_s(&tier.figures, ledger.reads, ledger.read_bytes, false)
        + by_figures_s(&tier.figures, ledger.writes, ledger.written_bytes, true);
    if accesses < ACCESSES_MIN || figures_s <= 0.0 {
        return 1.0;
    }
    ledger.device_ns as f64 * 1e-9 / figures_s
}

fn by_figures_s(figures: &Figures, count: u64, bytes: u64, is_write: bool) -> f64 {
    let bytes_per_s = if is_write { figures.write_bytes_per_s } else { figures.read_bytes_per_s };
    figures.latency_ns as f64 * 1e-9 * count as f64 + bytes as f64 / bytes_per_s
}

/// A segment that was moved since the store was opened.
#[derive(Debug)]
struct Moved {
    incarnation: u32,
    key: Key,
    object_id: u64,
    segment: u32,
    now: Tally,
    /// Of the move before, until that is in the history.
    before: Option<Tally>,
    /// Its migration has not ended: the copy that a promotion leaves behind is still to come.
    is_ending: bool,
}

/// Whose history wants a tally at the end.
pub(crate) struct Owner {
    pub(crate) key: Key,
    pub(crate) object_id: u64,
    pub(crate) segment: u32,
    pub(crate) tally: Tally,
}

/// All of them, by slot.
#[derive(Debug, Default)]
pub(crate) struct Benefits {
    by_slot: Mutex<HashMap<Slot, Moved, Numbers>>,
}

impl Benefits {
    /// Takes note of events while it is held. Accesses that are posted before their I/O tell nothing about
    /// how long it takes: `has_latencies` is false then, and they count for nothing.
    pub(crate) fn taker(&self, has_latencies: bool) -> Taker<'_> {
        Taker { by_slot: crate::lock(&self.by_slot), has_latencies }
    }

    /// The tallies that may be of the last move of a segment.
    pub(crate) fn of(&self, (slot, incarnation): (Slot, u32)) -> Vec<Tally> {
        let by_slot = crate::lock(&self.by_slot);
        let Some(moved) = by_slot.get(&slot) else { return Vec::new() };
        let is_it = moved.incarnation == incarnation;
        let tallies = [Some(&moved.now), moved.before.as_ref()];
        tallies.into_iter().flatten().filter(|_| is_it).cloned().collect()
    }

    /// Those with most accesses.
    pub(crate) fn most(&self, count: usize) -> Vec<Owner> {
        let mut owners: Vec<_> = crate::lock(&self.by_slot)
            .values()
            .filter(|moved| moved.now.accesses > 0)
            .map(|moved| Owner {
                key: moved.key.clone(),
                object_id: moved.object_id,
                segment: moved.segment,
                tally: moved.now.clone(),
            })
            .collect();
        owners.sort_by_key(|owner| std::cmp::Reverse(owner.tally.accesses));
        owners.truncate(count);
        owners
    }

    /// Begins anew: events were lost.
    pub(crate) fn clear(&self) {
        crate::lock(&self.by_slot).clear();
    }
}

/// Follows events.
pub(crate) struct Taker<'a> {
    by_slot: MutexGuard<'a, HashMap<Slot, Moved, Numbers>>,
    has_latencies: bool,
}

impl Taker<'_> {
    /// Takes note of an event that the view does not show yet.
    pub(crate) fn take(&mut self, view: &View, objects: &[u64], posted: &Posted) {
        let event = &posted.event;
        match event.kind {
            EventKind::Read | EventKind::Write => self.access(view, posted),
            EventKind::Moved => self.moved(view, objects, event),
            EventKind::Copied => {
                let is_left_behind =
                    |moved: &Moved| moved.is_ending && moved.now.from == event.tier;
                if !self.known(event).is_some_and(|moved| is_left_behind(moved)) {
                    self.moved(view, objects, event);
                }
            }
            EventKind::Receipt => {
                if let Some(moved) = self.known(event) {
                    moved.is_ending = false;
                }
            }
            EventKind::Delete => {
                self.by_slot.remove(&event.slot);
            }
            _ => {}
        }
    }

    fn known(&mut self, event: &Event) -> Option<&mut Moved> {
        self.by_slot.get_mut(&event.slot).filter(|moved| moved.incarnation == event.incarnation)
    }

    #[inline]
    fn access(&mut self, view: &View, posted: &Posted) {
        let event = &posted.event;
        // At the end of an object no tier is asked.
        if self.by_slot.is_empty() || event.length_bytes == 0 || !self.has_latencies {
            return;
        }
        let Some(moved) = self.known(event) else { return };
        let Some(before) = view.tiers.get(moved.now.from.index()) else { return };
        if event.tier != moved.now.to {
            return;
        }
        let waited_ns = u64::from(posted.guard_ns) + u64::from(posted.stack_ns);
        let (count, is_write) = (u64::from(event.count), event.kind == EventKind::Write);
        moved.now.accesses += count;
        moved.now.took_ns += event.latency_ns.saturating_sub(waited_ns);
        moved.now.figures_s += by_figures_s(&before.figures, count, event.length_bytes, is_write);
    }

    fn moved(&mut self, view: &View, objects: &[u64], event: &Event) {
        let Some(segment) = view.segment(event.slot, event.incarnation) else { return };
        let Some(object_id) = objects.get(event.slot as usize) else { return };
        if segment.tier == event.tier {
            return;
        }
        let before = self.by_slot.remove(&event.slot);
        let before = before.filter(|before| before.incarnation == event.incarnation);
        let moved = Moved {
            incarnation: event.incarnation,
            key: segment.key.clone(),
            object_id: *object_id,
            segment: segment.segment,
            now: Tally::new(segment.tier, event.tier),
            before: before.map(|before| before.now),
            is_ending: true,
        };
        self.by_slot.insert(event.slot, moved);
    }
}
