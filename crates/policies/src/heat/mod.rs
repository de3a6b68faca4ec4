// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps what is read most, and most lately, on the fast tiers: heat that halves with time.

pub(crate) mod settings;
#[cfg(test)]
mod tests;
pub(crate) mod warmth;

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};
use terrace_core::{Event, EventKind, Policy, Result, SegmentView, Slot, TierIndex, View};

use crate::mechanism::gate::Demand;
use crate::mechanism::habits::mix;
use crate::mechanism::parameters::Chosen;
use crate::mechanism::roster::Roster;
use crate::mechanism::rows::Rows;
use crate::mechanism::saved::{Name, Names};
use crate::mechanism::tiering::{Choice, Tiering};
use settings::{HeatSettings, Heated, Weights};
use warmth::Heat;

/// Segments whose heat is saved, the warmest; others are as good as cold.
const SAVED_MAX: usize = 200_000;

/// Makes the policy; `docs/policies/heat.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(HeatSettings::default(), view, parameters)?;
    let heats = Heats::new(&*settings);
    Ok(Box::new(Tiering::new(settings, heats, view)))
}

/// What leaves first is what is coldest, and what is warm enough may come up.
#[derive(Debug)]
pub(crate) struct Heats<S> {
    /// By slot.
    used: Vec<Used>,
    rows: Rows,
    /// With which the heats were computed.
    half_life_ns: u64,
    settings: PhantomData<S>,
}

/// What is known of a segment beside the view.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    heat: Heat,
    /// The largest size that its heat is in shares of.
    size_bytes: u64,
    accesses: u32,
    /// Moving averages, as the gate needs them.
    access_bytes: f32,
    write_share: f32,
    /// When the application declared that it is not needed any more, until it is used again.
    done_ns: Option<u64>,
}

impl Used {
    /// Takes note of a read or write.
    fn access(&mut self, event: &Event, size_bytes: u64, weights: Weights, half_life_ns: u64) {
        // Bytes that were the whole of a shorter segment are a part of the longer one: what grows
        // while it is written once is as warm as what is written at once.
        if size_bytes > self.size_bytes {
            self.heat.at *= self.size_bytes as f64 / size_bytes as f64;
            self.size_bytes = size_bytes;
        }
        let count = event.count.max(1);
        let is_write = event.kind == EventKind::Write;
        let weight = if is_write { weights.write } else { weights.read };
        let share = event.length_bytes as f64 / self.size_bytes.max(1) as f64;
        self.heat.add(weight * share.min(f64::from(count)), event.time_ns, half_life_ns);

        self.accesses = self.accesses.saturating_add(count);
        let access_bytes = event.length_bytes as f32 / count as f32;
        mix(&mut self.access_bytes, access_bytes, count, self.accesses);
        mix(&mut self.write_share, f32::from(is_write), count, self.accesses);
    }
}

/// What is saved of a segment; `age_ns` is how long ago its heat was computed, because clocks start
/// anew.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedHeat {
    name: Name,
    /// The bits of the number, which JSON would round.
    heat_bits: u64,
    age_ns: u64,
    size_bytes: u64,
    accesses: u32,
    access_bytes: f32,
    write_share: f32,
    /// How long ago the application declared that it is not needed any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    done_age_ns: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Saved {
    heats: Vec<SavedHeat>,
}

impl<S: Heated> Heats<S> {
    pub(crate) fn new(settings: &S) -> Self {
        Self {
            used: Vec::new(),
            rows: Rows::default(),
            half_life_ns: settings.warming().half_life_ns,
            settings: PhantomData,
        }
    }

    /// The segment is not needed any more, until it is used again: it leaves before all others.
    pub(crate) fn finish(&mut self, view: &View, slot: Slot) {
        self.used_mut(slot).done_ns = Some(view.now_ns);
        if self.rows.tier_of(slot).is_some() {
            self.enlist(slot, view.segments[slot as usize].tier);
        }
    }

    fn used(&self, slot: Slot) -> Used {
        self.used.get(slot as usize).copied().unwrap_or_default()
    }

    fn used_mut(&mut self, slot: Slot) -> &mut Used {
        let index = slot as usize;
        if index >= self.used.len() {
            self.used.resize(index + 1, Used::default());
        }
        &mut self.used[index]
    }

    fn heat(&self, view: &View, slot: Slot) -> f64 {
        self.used(slot).heat.now(view.now_ns, self.half_life_ns)
    }

    fn enlist(&mut self, slot: Slot, tier: TierIndex) {
        let used = self.used(slot);
        match used.done_ns {
            Some(_) => self.rows.put_first(tier.index(), slot),
            None => self.rows.put(tier.index(), slot, used.heat.rank(self.half_life_ns)),
        }
    }
}

impl<S: Heated> Choice for Heats<S> {
    const NAME: &'static str = S::NAME;
    const IS_BY_USE: bool = false;

    type Settings = S;
    type Saved = Saved;

    /// Heats keep what they are when another half-life begins to hold.
    fn adapt(&mut self, view: &View, settings: &S) {
        if settings.warming().half_life_ns == self.half_life_ns {
            return;
        }
        for used in &mut self.used {
            used.heat.add(0.0, view.now_ns, self.half_life_ns);
        }
        self.half_life_ns = settings.warming().half_life_ns;
        for slot in 0..self.used.len() as Slot {
            if let Some(tier) = self.rows.tier_of(slot) {
                self.enlist(slot, TierIndex(tier as u8));
            }
        }
    }

    /// As warm as if it had been written when it was last used.
    fn meet(&mut self, _: &View, settings: &S, slot: Slot, segment: &SegmentView) {
        let heat = Heat { at: settings.warming().weights.write, at_ns: segment.last_access_ns() };
        *self.used_mut(slot) = Used { heat, size_bytes: segment.size_bytes, ..Used::default() };
        self.enlist(slot, segment.tier);
    }

    fn observe(&mut self, view: &View, settings: &S, event: &Event, segment: &SegmentView) -> bool {
        let slot = event.slot;
        let is_access = matches!(event.kind, EventKind::Read | EventKind::Write);
        let is_use = is_access || event.kind == EventKind::Open;
        // What was used before the message may be shown after it.
        if is_use && self.used(slot).done_ns.is_some_and(|done_ns| event.time_ns > done_ns) {
            self.used_mut(slot).done_ns = None;
        }
        if is_access {
            let half_life_ns = self.half_life_ns;
            let used = self.used_mut(slot);
            used.access(event, segment.size_bytes, settings.warming().weights, half_life_ns);
        }
        self.enlist(slot, segment.tier);
        is_access && self.heat(view, slot) > settings.warming().min_heat
    }

    fn list(&mut self, _: &View, slot: Slot, segment: &SegmentView) {
        self.enlist(slot, segment.tier);
    }

    fn postpone(&mut self, slot: Slot, segment: &SegmentView) {
        self.enlist(slot, segment.tier);
    }

    fn put_last(&mut self, slot: Slot, segment: &SegmentView) {
        self.rows.put_last(segment.tier.index(), slot);
    }

    fn unlist(&mut self, slot: Slot) {
        self.rows.unlist(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.rows.unlist(slot);
        *self.used_mut(slot) = Used::default();
    }

    fn first(&self, tier: usize) -> Option<Slot> {
        self.rows.first(tier)
    }

    fn last(&self, tier: usize) -> Option<Slot> {
        self.rows.last(tier)
    }

    fn after(&self, slot: Slot) -> Option<Slot> {
        self.rows.after(slot)
    }

    fn contains(&self, slot: Slot) -> bool {
        self.rows.tier_of(slot).is_some()
    }

    fn count(&self, tier: usize) -> usize {
        self.rows.count(tier)
    }

    fn offer(&mut self, _: &View, _: TierIndex, _: u64) {}

    /// Heat counts whole segments, so it stands for so many accesses of the usual length.
    fn demand(&self, view: &View, settings: &S, slot: Slot) -> Demand {
        let used = self.used(slot);
        let heat = self.heat(view, slot);
        let is_faint = heat <= settings.warming().min_heat && !S::COUNTS_FAINT;
        if used.done_ns.is_some() || is_faint {
            return Demand::default();
        }
        let access_bytes = used.access_bytes.max(1.0);
        let accesses_each = used.size_bytes as f64 / f64::from(access_bytes);
        Demand {
            accesses: heat * accesses_each,
            access_bytes: access_bytes as u64,
            write_share: f64::from(used.write_share),
        }
    }

    fn excuse(&self, view: &View, _: &S, slot: Slot) -> String {
        if self.used(slot).done_ns.is_some() {
            return "no task needs this any more".into();
        }
        format!("this has a heat of {:.3}, and what stays is warmer", self.heat(view, slot))
    }

    fn save(&self, view: &View, roster: &Roster) -> Saved {
        let mut slots: Vec<_> = roster.live(view).collect();
        if slots.len() > SAVED_MAX {
            let heat = |slot: Slot| self.heat(view, slot);
            slots.sort_by(|(a, _), (b, _)| heat(*b).total_cmp(&heat(*a)));
            slots.truncate(SAVED_MAX);
        }
        let saved = |(slot, segment): (Slot, &SegmentView)| {
            let used = self.used(slot);
            SavedHeat {
                name: Name::of(segment),
                heat_bits: used.heat.at.to_bits(),
                age_ns: view.now_ns.saturating_sub(used.heat.at_ns),
                size_bytes: used.size_bytes,
                accesses: used.accesses,
                access_bytes: used.access_bytes,
                write_share: used.write_share,
                done_age_ns: used.done_ns.map(|done_ns| view.now_ns.saturating_sub(done_ns)),
            }
        };
        Saved { heats: slots.into_iter().map(saved).collect() }
    }

    fn names(saved: &Saved) -> Vec<&Name> {
        saved.heats.iter().map(|saved| &saved.name).collect()
    }

    fn restore(&mut self, view: &View, names: &Names<'_>, saved: &Saved, roster: &mut Roster) {
        for saved in &saved.heats {
            let Some(slot) = names.slot(&saved.name) else { continue };
            let at = f64::from_bits(saved.heat_bits);
            let heat = Heat::aged(at, saved.age_ns, view.now_ns, self.half_life_ns);
            *self.used_mut(slot) = Used {
                heat,
                size_bytes: saved.size_bytes,
                accesses: saved.accesses,
                access_bytes: saved.access_bytes,
                write_share: saved.write_share,
                done_ns: saved.done_age_ns.map(|age_ns| view.now_ns.saturating_sub(age_ns)),
            };
            roster.adopt(view, slot);
            self.enlist(slot, view.segments[slot as usize].tier);
        }
    }
}
