// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Demotes what was not used for longest when a tier is full; promotes what is used again.

mod settings;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use terrace_core::{Event, EventKind, Policy, Result, SegmentView, Slot, TierIndex, View, units};

use crate::mechanism::gate::Demand;
use crate::mechanism::habits::{Habits, SavedHabit};
use crate::mechanism::order::Order;
use crate::mechanism::pace;
use crate::mechanism::parameters::Chosen;
use crate::mechanism::roster::Roster;
use crate::mechanism::saved::{Name, Names};
use crate::mechanism::tiering::settings::Tiered;
use crate::mechanism::tiering::{Choice, Tiering};
use settings::LruSettings;

/// Segments of a tier whose order is saved, newest first; the rest counts as older.
const SAVED_MAX: usize = 100_000;

/// Makes the policy; `docs/policies/lru.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(LruSettings::default(), view, parameters)?;
    Ok(Box::new(Tiering::new(settings, Lru::default(), view)))
}

#[derive(Debug, Default)]
struct Lru {
    /// One list a tier: the segments that may be demoted from it.
    order: Order,
    habits: Habits,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    /// Tier names with their segments, newest first.
    tiers: Vec<(String, Vec<Name>)>,
    // States of earlier releases have none.
    #[serde(default)]
    habits: Vec<SavedHabit>,
}

impl Choice for Lru {
    const NAME: &'static str = "lru";
    const IS_BY_USE: bool = true;

    type Settings = LruSettings;
    type Saved = Saved;

    fn adapt(&mut self, _: &View, _: &LruSettings) {}

    fn meet(&mut self, _: &View, _: &LruSettings, slot: Slot, segment: &SegmentView) {
        self.order.touch(segment.tier.index(), slot);
    }

    fn observe(
        &mut self,
        _: &View,
        settings: &LruSettings,
        event: &Event,
        segment: &SegmentView,
    ) -> bool {
        self.order.touch(segment.tier.index(), event.slot);
        if !matches!(event.kind, EventKind::Read | EventKind::Write) {
            return false;
        }
        let horizon_ns = settings.common().terms.horizon_ns;
        self.habits.access(event, segment.size_bytes, horizon_ns) >= 2
    }

    fn list(&mut self, _: &View, slot: Slot, segment: &SegmentView) {
        if !self.order.contains(slot) {
            self.order.touch(segment.tier.index(), slot);
        }
    }

    fn postpone(&mut self, slot: Slot, segment: &SegmentView) {
        self.order.touch(segment.tier.index(), slot);
    }

    fn put_last(&mut self, slot: Slot, segment: &SegmentView) {
        self.order.touch(segment.tier.index(), slot);
    }

    fn unlist(&mut self, slot: Slot) {
        self.order.unlink(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.order.unlink(slot);
        self.habits.forget(slot);
    }

    fn first(&self, tier: usize) -> Option<Slot> {
        self.order.oldest(tier)
    }

    fn last(&self, tier: usize) -> Option<Slot> {
        self.order.newest(tier)
    }

    fn after(&self, slot: Slot) -> Option<Slot> {
        self.order.newer(slot)
    }

    fn contains(&self, slot: Slot) -> bool {
        self.order.contains(slot)
    }

    fn count(&self, tier: usize) -> usize {
        self.order.count(tier)
    }

    fn offer(&mut self, _: &View, _: TierIndex, _: u64) {}

    fn demand(&self, view: &View, settings: &LruSettings, slot: Slot) -> Demand {
        self.habits.of(slot).demand(view.now_ns, settings.common().terms.horizon_ns)
    }

    fn excuse(&self, view: &View, _: &LruSettings, slot: Slot) -> String {
        let idle_ns = pace::idle_ns(view, &view.segments[slot as usize]);
        format!("this was not used for {}", units::show_ns(idle_ns))
    }

    fn save(&self, view: &View, roster: &Roster) -> Saved {
        let newest_first = |tier: usize| {
            let slots = std::iter::successors(self.order.newest(tier), |at| self.order.older(*at));
            slots
                .take(SAVED_MAX)
                .filter_map(|slot| roster.segment(view, slot))
                .map(Name::of)
                .collect()
        };
        let tiers = view.tiers.iter().enumerate();
        let tiers = tiers.map(|(index, tier)| (tier.name.clone(), newest_first(index)));
        Saved { tiers: tiers.collect(), habits: self.habits.save(view, roster) }
    }

    fn names(saved: &Saved) -> Vec<&Name> {
        let tiers = saved.tiers.iter().flat_map(|(_, names)| names);
        tiers.chain(saved.habits.iter().map(SavedHabit::name)).collect()
    }

    fn restore(&mut self, view: &View, names: &Names<'_>, saved: &Saved, roster: &mut Roster) {
        for (_, newest_first) in &saved.tiers {
            for slot in newest_first.iter().rev().filter_map(|name| names.slot(name)) {
                roster.adopt(view, slot);
                self.order.touch(view.segments[slot as usize].tier.index(), slot);
            }
        }
        self.habits.restore(view, names, &saved.habits);
    }
}
