// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders of replacement as filters: what an order would have in a cache of the first tier's size
//! may come up when it is touched again, and what it gives up leaves first.

mod arc;
mod gdsf;
mod resident;
mod s3_fifo;
mod settings;
mod sieve;
mod state;
#[cfg(test)]
mod tests;
mod two_q;
mod w_tiny_lfu;

use terrace_core::{Event, EventKind, Policy, Result, SegmentView, Slot, TierIndex, View};

use crate::mechanism::gate::Demand;
use crate::mechanism::habits::Habits;
use crate::mechanism::order::Order;
use crate::mechanism::parameters::Chosen;
use crate::mechanism::roster::Roster;
use crate::mechanism::saved::{Name, Names};
use crate::mechanism::tiering::settings::Tiered;
use crate::mechanism::tiering::{Choice, STEPS_MAX, Tiering};
use crate::replacement::Resident;
use resident::Residents;
use settings::FilterSettings;
use state::Saved;

pub(crate) use arc::create as create_arc;
pub(crate) use gdsf::create as create_gdsf;
pub(crate) use s3_fifo::create as create_s3_fifo;
pub(crate) use sieve::create as create_sieve;
pub(crate) use two_q::create as create_two_q;
pub(crate) use w_tiny_lfu::create as create_w_tiny_lfu;

/// An order as a policy.
trait Filtering: Resident + Send + 'static {
    /// The policy's name.
    const NAME: &'static str;

    /// The order's name, for people.
    const WORD: &'static str;

    /// The order of an empty cache.
    fn new(capacity_bytes: u64) -> Self;
}

fn create<R: Filtering>(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(FilterSettings::default(), view, parameters)?;
    let filter = Filter {
        residents: Residents::<R>::new(capacity_bytes(view, &settings)),
        rows: Order::default(),
        touches: Vec::new(),
        habits: Habits::default(),
    };
    Ok(Box::new(Tiering::new(settings, filter, view)))
}

/// What the first tier may hold.
fn capacity_bytes(view: &View, settings: &FilterSettings) -> u64 {
    settings.common().levels.high_bytes(&view.tiers[0])
}

struct Filter<R> {
    residents: Residents<R>,
    /// One list a tier: on the first those that the order gave up, on others all by their last use.
    rows: Order,
    /// By slot.
    touches: Vec<Touch>,
    habits: Habits,
}

/// The last access of a segment that counted.
#[derive(Clone, Copy, Debug, Default)]
struct Touch {
    at_ns: Option<u64>,
    /// Whether the order knew the segment then, and has not given it up since.
    is_return: bool,
}

impl<R: Filtering> Filter<R> {
    fn touch_mut(&mut self, slot: Slot) -> &mut Touch {
        let index = slot as usize;
        if index >= self.touches.len() {
            self.touches.resize(index + 1, Touch::default());
        }
        &mut self.touches[index]
    }

    /// Takes note of an access; whether the segment has come back and may come up.
    fn access(
        &mut self,
        view: &View,
        settings: &FilterSettings,
        event: &Event,
        bytes: u64,
    ) -> bool {
        let slot = event.slot;
        let touch = self.touch_mut(slot);
        let pause_ns = touch.at_ns.map(|at_ns| event.time_ns.saturating_sub(at_ns));
        if pause_ns.is_some_and(|pause_ns| pause_ns < settings.together_ns) {
            return touch.is_return;
        }
        let is_return = self.residents.request(slot, bytes);
        *self.touch_mut(slot) = Touch { at_ns: Some(event.time_ns), is_return };
        self.settle(view);
        // With a hit the order may give it up at once.
        self.touch_mut(slot).is_return
    }

    /// Lists what the order has given up.
    fn settle(&mut self, view: &View) {
        for slot in self.residents.take_victims() {
            self.touch_mut(slot).is_return = false;
            let is_first = |segment: &&SegmentView| segment.tier == TierIndex(0);
            if view.segments.get(slot as usize).filter(is_first).is_some() {
                self.rows.touch(0, slot);
            }
        }
    }

    /// Puts a segment at the end of its tier's row, unless the order wants it on the first.
    fn enlist(&mut self, slot: Slot, segment: &SegmentView) {
        match segment.tier == TierIndex(0) && self.residents.contains(slot) {
            true => self.rows.unlink(slot),
            false => self.rows.touch(segment.tier.index(), slot),
        }
    }
}

impl<R: Filtering> Choice for Filter<R> {
    const NAME: &'static str = R::NAME;
    const IS_BY_USE: bool = false;

    type Settings = FilterSettings;
    type Saved = Saved;

    /// For another capacity the order begins anew, with what is on the tier.
    fn adapt(&mut self, view: &View, settings: &FilterSettings) {
        let capacity_bytes = capacity_bytes(view, settings);
        if capacity_bytes == self.residents.capacity_bytes() {
            return;
        }
        let mut known: Vec<_> = view
            .live()
            .filter(|(slot, segment)| {
                segment.tier == TierIndex(0)
                    && (self.residents.contains(*slot) || self.rows.contains(*slot))
            })
            .collect();
        known.sort_by_key(|(slot, segment)| (segment.last_access_ns(), *slot));
        self.residents = Residents::new(capacity_bytes);
        for (slot, segment) in known {
            self.meet(view, settings, slot, segment);
        }
    }

    fn meet(&mut self, view: &View, _: &FilterSettings, slot: Slot, segment: &SegmentView) {
        if segment.tier == TierIndex(0) {
            self.residents.request(slot, segment.size_bytes);
            self.settle(view);
        }
        self.enlist(slot, segment);
    }

    fn observe(
        &mut self,
        view: &View,
        settings: &FilterSettings,
        event: &Event,
        segment: &SegmentView,
    ) -> bool {
        let is_access = matches!(event.kind, EventKind::Read | EventKind::Write);
        let is_return = is_access && {
            let horizon_ns = settings.common().terms.horizon_ns;
            self.habits.access(event, segment.size_bytes, horizon_ns);
            self.access(view, settings, event, segment.size_bytes)
        };
        self.residents.resize(event.slot, segment.size_bytes);
        self.settle(view);
        self.enlist(event.slot, segment);
        is_return
    }

    fn list(&mut self, _: &View, slot: Slot, segment: &SegmentView) {
        if !self.rows.contains(slot) {
            self.enlist(slot, segment);
        }
    }

    fn postpone(&mut self, slot: Slot, segment: &SegmentView) {
        self.enlist(slot, segment);
    }

    fn put_last(&mut self, slot: Slot, segment: &SegmentView) {
        self.rows.touch(segment.tier.index(), slot);
    }

    fn unlist(&mut self, slot: Slot) {
        self.rows.unlink(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.rows.unlink(slot);
        self.residents.forget(slot);
        self.habits.forget(slot);
        *self.touch_mut(slot) = Touch::default();
    }

    fn first(&self, tier: usize) -> Option<Slot> {
        self.rows.oldest(tier)
    }

    fn last(&self, tier: usize) -> Option<Slot> {
        self.rows.newest(tier)
    }

    fn after(&self, slot: Slot) -> Option<Slot> {
        self.rows.newer(slot)
    }

    fn contains(&self, slot: Slot) -> bool {
        self.rows.contains(slot)
    }

    fn count(&self, tier: usize) -> usize {
        self.rows.count(tier)
    }

    /// Where too little was given up, because what is there cannot leave or came by another way,
    /// more has to be.
    fn offer(&mut self, view: &View, tier: TierIndex, bytes: u64) {
        if tier != TierIndex(0) {
            return;
        }
        let size_bytes = |slot: Slot| view.segments[slot as usize].size_bytes;
        let row = std::iter::successors(self.rows.oldest(0), |slot| self.rows.newer(*slot));
        let mut offered_bytes: u64 = row.take(STEPS_MAX).map(size_bytes).sum();
        for _ in 0..STEPS_MAX {
            if offered_bytes >= bytes {
                return;
            }
            let before = self.rows.newest(0);
            if !self.residents.give_up() {
                return;
            }
            self.settle(view);
            if let Some(newest) = self.rows.newest(0).filter(|newest| Some(*newest) != before) {
                offered_bytes += size_bytes(newest);
            }
        }
    }

    fn demand(&self, view: &View, settings: &FilterSettings, slot: Slot) -> Demand {
        self.habits.of(slot).demand(view.now_ns, settings.common().terms.horizon_ns)
    }

    fn excuse(&self, view: &View, _: &FilterSettings, slot: Slot) -> String {
        match view.segments[slot as usize].tier {
            TierIndex(0) => format!("{} gave this up", R::WORD),
            _ => "this was not used for longest".into(),
        }
    }

    fn save(&self, view: &View, roster: &Roster) -> Saved {
        state::save(self, view, roster)
    }

    fn names(saved: &Saved) -> Vec<&Name> {
        saved.names()
    }

    fn restore(&mut self, view: &View, names: &Names<'_>, saved: &Saved, roster: &mut Roster) {
        state::restore(self, view, names, saved, roster);
    }
}
