// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a filter knows, as it is saved.

use serde::{Deserialize, Serialize};
use terrace_core::{SegmentView, Slot, View};

use super::{Filter, Filtering, Touch};
use crate::mechanism::habits::SavedHabit;
use crate::mechanism::roster::Roster;
use crate::mechanism::saved::{Name, Names};
use crate::replacement::{Known, Snapshot};

#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    /// The order's lists: segments with their sizes, counts and priorities.
    lists: Vec<Vec<(Name, u64, u64, u64)>>,
    hand: Option<Name>,
    numbers: Vec<u64>,
    /// A list a tier, the first to leave first.
    rows: Vec<Vec<Name>>,
    /// How long ago the last touches were, and whether they were returns.
    touches: Vec<(Name, u64, bool)>,
    habits: Vec<SavedHabit>,
}

impl Saved {
    pub(super) fn names(&self) -> Vec<&Name> {
        let lists = self.lists.iter().flatten().map(|(name, ..)| name);
        let touches = self.touches.iter().map(|(name, ..)| name);
        let habits = self.habits.iter().map(SavedHabit::name);
        let rows = self.rows.iter().flatten();
        lists.chain(&self.hand).chain(rows).chain(touches).chain(habits).collect()
    }
}

pub(super) fn save<R: Filtering>(filter: &Filter<R>, view: &View, roster: &Roster) -> Saved {
    let name = |slot: Slot| roster.segment(view, slot).map(Name::of);
    let Snapshot { lists, hand, numbers } = filter.residents.snapshot();
    let known = |Known { object, bytes, count, priority }: Known| {
        Some((name(object)?, bytes, count, priority))
    };
    let row = |tier| {
        let oldest = filter.rows.oldest(tier);
        let row = std::iter::successors(oldest, |slot| filter.rows.newer(*slot));
        row.filter_map(name).collect()
    };
    let touched = |(slot, segment): (Slot, &SegmentView)| {
        let touch = filter.touches.get(slot as usize)?;
        let ago_ns = view.now_ns.saturating_sub(touch.at_ns?);
        Some((Name::of(segment), ago_ns, touch.is_return))
    };
    Saved {
        lists: lists.into_iter().map(|list| list.into_iter().filter_map(known).collect()).collect(),
        hand: hand.and_then(name),
        numbers,
        rows: (0..view.tiers.len()).map(row).collect(),
        touches: roster.live(view).filter_map(touched).collect(),
        habits: filter.habits.save(view, roster),
    }
}

pub(super) fn restore<R: Filtering>(
    filter: &mut Filter<R>,
    view: &View,
    names: &Names<'_>,
    saved: &Saved,
    roster: &mut Roster,
) {
    let known = |(name, bytes, count, priority): &(Name, u64, u64, u64)| {
        let object = names.slot(name)?;
        Some(Known { object, bytes: *bytes, count: *count, priority: *priority })
    };
    let list = |list: &Vec<_>| list.iter().filter_map(known).collect();
    let snapshot = Snapshot {
        lists: saved.lists.iter().map(list).collect(),
        hand: saved.hand.as_ref().and_then(|name| names.slot(name)),
        numbers: saved.numbers.clone(),
    };
    filter.residents.resume(&snapshot, view.segments.len());
    for (name, ago_ns, is_return) in &saved.touches {
        let Some(slot) = names.slot(name) else { continue };
        let at_ns = Some(view.now_ns.saturating_sub(*ago_ns));
        *filter.touch_mut(slot) = Touch { at_ns, is_return: *is_return };
    }
    for slot in saved.rows.iter().flatten().filter_map(|name| names.slot(name)) {
        roster.adopt(view, slot);
        filter.rows.touch(view.segments[slot as usize].tier.index(), slot);
    }
    filter.habits.restore(view, names, &saved.habits);
    filter.settle(view);
}
