// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The store as it would be if the shadow decided: the same applications, other locations.
//!
//! Migrations run one after another at the speed of the tiers, and are done when the round after
//! that comes. What the real policy does to locations is not shown.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use terrace_core::{
    Action, ActionKind, Event, EventKind, Outcome, Placement, Placer, SegmentView, Slot, TierIndex,
    TierSet, TierView, View,
};

use super::score::Score;
use super::{Newcomer, Post};
use crate::report::ShadowSide;

pub(super) struct World {
    pub(super) view: View,
    placer: Option<Arc<dyn Placer>>,
    /// By slot: the real tier of the primary.
    actual: Vec<TierIndex>,
    /// By tier: bytes of primaries and of copies, here.
    used_bytes: Vec<u64>,
    copy_bytes: Vec<u64>,
    /// By tier: bytes on their way to it, here.
    coming_bytes: Vec<u64>,
    /// By tier: bytes of primaries as they really lie.
    actual_bytes: Vec<u64>,
    /// By tier: holes of the primaries that really lie there, which take no room.
    holes_bytes: Vec<u64>,
    moves: BTreeMap<Slot, Move>,
    /// When the last of the moves will be done.
    busy_until_ns: u64,
    /// For the next round: what became of actions.
    told: Vec<Event>,
    score: Score,
    actual_score: Score,
}

/// A migration that runs.
#[derive(Clone, Copy)]
struct Move {
    kind: ActionKind,
    to: TierIndex,
    incarnation: u32,
    bytes: u64,
    done_ns: u64,
}

impl World {
    /// As `view` shows it.
    pub(super) fn new(mut view: View) -> Self {
        let count = view.tiers.len();
        let (mut used_bytes, mut copy_bytes) = (vec![0; count], vec![0; count]);
        for segment in &mut view.segments {
            // What moves now moves for another.
            segment.is_moving = false;
            if !segment.is_live {
                continue;
            }
            used_bytes[segment.tier.index()] += segment.size_bytes;
            for tier in tiers_of(segment.copies, count) {
                copy_bytes[tier.index()] += segment.size_bytes;
            }
        }
        let actual = view.segments.iter().map(|segment| segment.tier).collect();
        let (coming_bytes, actual_bytes) = (vec![0; count], used_bytes.clone());
        let (score, actual_score) = (Score::new(&view.tiers), Score::new(&view.tiers));
        let holes_bytes = holes(&view.tiers, &actual_bytes);
        let mut world = Self {
            view,
            placer: None,
            actual,
            used_bytes,
            copy_bytes,
            coming_bytes,
            actual_bytes,
            holes_bytes,
            moves: BTreeMap::new(),
            busy_until_ns: 0,
            told: Vec::new(),
            score,
            actual_score,
        };
        world.account();
        world
    }

    /// What was there when the shadow began.
    pub(super) fn present(&self) -> Vec<Event> {
        let present = |(slot, segment): (Slot, &SegmentView)| Event {
            tier: segment.tier,
            length_bytes: segment.size_bytes,
            ..Event::new(EventKind::Present, slot, segment.incarnation, self.view.now_ns)
        };
        self.view.live().map(present).collect()
    }

    pub(super) fn tier_count(&self) -> usize {
        self.used_bytes.len()
    }

    pub(super) fn set_placer(&mut self, placer: Arc<dyn Placer>) {
        self.placer = Some(placer);
    }

    /// Takes what happened; returns what of it the shadow sees.
    pub(super) fn take(&mut self, post: Post) -> Vec<Event> {
        let Post { now_ns, tiers, events, mut created, .. } = post;
        self.view.now_ns = now_ns;
        self.view.tiers = tiers.clone();
        let mut seen = std::mem::take(&mut self.told);
        self.end_moves(&mut seen);
        for event in events {
            self.happen(event, &mut created, &mut seen);
        }
        self.holes_bytes = holes(&tiers, &self.actual_bytes);
        self.account();
        seen
    }

    fn happen(
        &mut self,
        mut event: Event,
        created: &mut VecDeque<Newcomer>,
        seen: &mut Vec<Event>,
    ) {
        let slot = event.slot as usize;
        match event.kind {
            EventKind::Create => {
                let Some((segment, size_hint_bytes)) = created.pop_front() else { return };
                self.create(&mut event, segment, size_hint_bytes);
            }
            EventKind::Moved => {
                let Some(segment) = self.view.segment(event.slot, event.incarnation) else {
                    return;
                };
                self.actual_bytes[self.actual[slot].index()] -= segment.size_bytes;
                self.actual_bytes[event.tier.index()] += segment.size_bytes;
                self.actual[slot] = event.tier;
                return;
            }
            EventKind::Receipt => {
                if event.outcome == Outcome::Done && event.length_bytes > 0 {
                    self.actual_score.moved(event.length_bytes);
                }
                return;
            }
            EventKind::Queued | EventKind::Copied | EventKind::Uncopied => return,
            EventKind::Read | EventKind::Write => {
                let Some(segment) = self.view.segment(event.slot, event.incarnation) else {
                    return;
                };
                let tier = segment.tier;
                self.actual_score.access(&self.view.tiers, event.tier, &event);
                self.score.access(&self.view.tiers, tier, &event);
                event.tier = tier;
            }
            EventKind::Stat | EventKind::Sync => {
                if let Some(segment) = self.view.segment(event.slot, event.incarnation) {
                    event.tier = segment.tier;
                }
            }
            _ => {}
        }
        let is_change =
            matches!(event.kind, EventKind::Write | EventKind::SetLen | EventKind::Delete);
        if is_change {
            self.drop_copies(&event, seen);
        }
        self.apply(&event);
        if event.kind == EventKind::Delete {
            self.end(event.slot);
        }
        seen.push(event);
    }

    fn create(
        &mut self,
        event: &mut Event,
        mut segment: SegmentView,
        size_hint_bytes: Option<u64>,
    ) {
        let slot = event.slot as usize;
        if self.actual.len() <= slot {
            self.actual.resize(slot + 1, TierIndex(0));
        }
        self.actual[slot] = segment.tier;
        segment.tier = self.place(&segment, size_hint_bytes);
        segment.copies = TierSet::default();
        event.tier = segment.tier;
        self.used_bytes[segment.tier.index()] += segment.size_bytes;
        self.actual_bytes[self.actual[slot].index()] += segment.size_bytes;
        while self.view.segments.len() < slot {
            let dead = SegmentView { is_live: false, ..segment.clone() };
            self.view.segments.push(dead);
        }
        self.view.insert(event.slot, segment);
    }

    /// Where the shadow would have put a new segment: the next tier with room, as the stack does.
    fn place(&self, segment: &SegmentView, size_hint_bytes: Option<u64>) -> TierIndex {
        let wanted = self.placer.as_ref().map_or(TierIndex(0), |placer| {
            placer
                .place(&Placement {
                    key: &segment.key,
                    hint: segment.hint,
                    size_hint_bytes,
                    segment: segment.segment,
                    start_bytes: segment.start_bytes,
                })
                .tier
        });
        let count = self.view.tiers.len();
        let first = wanted.index().min(count - 1);
        let need_bytes = size_hint_bytes.unwrap_or(1).max(1);
        let able = (first..count).chain((0..first).rev()).filter(|index| {
            let tier = &self.view.tiers[*index];
            tier.is_writable && tier.persistency >= segment.persistency
        });
        let below = |index: &usize, limit_bytes: u64| {
            let taken_bytes =
                self.used(*index) + self.copy_bytes[*index] + self.coming_bytes[*index];
            taken_bytes.saturating_add(need_bytes) <= limit_bytes
        };
        let capacity = |index: &usize| self.view.tiers[*index].figures.capacity_bytes;
        let critical = |index: &usize| match capacity(index) {
            u64::MAX => u64::MAX,
            bytes => (self.view.tiers[*index].watermarks.critical * bytes as f64) as u64,
        };
        let roomy = able.clone().find(|index| below(index, critical(index)));
        let found = roomy.or_else(|| able.clone().find(|index| below(index, capacity(index))));
        TierIndex(found.unwrap_or(first) as u8)
    }

    /// What changes a segment makes its copies worthless.
    fn drop_copies(&mut self, event: &Event, seen: &mut Vec<Event>) {
        let Some(segment) = self.view.segment(event.slot, event.incarnation) else { return };
        for tier in tiers_of(segment.copies, self.used_bytes.len()) {
            let kind = EventKind::Uncopied;
            let gone =
                Event { tier, ..Event::new(kind, event.slot, event.incarnation, event.time_ns) };
            self.apply(&gone);
            seen.push(gone);
        }
    }

    /// Applies an event to the view and to the accounts.
    fn apply(&mut self, event: &Event) {
        self.count(event, false);
        self.view.apply(event);
        self.count(event, true);
    }

    /// Adds the segment of an event to the accounts, or takes it out.
    fn count(&mut self, event: &Event, is_added: bool) {
        let Some(segment) = self.view.segment(event.slot, event.incarnation) else { return };
        let change = |sum: &mut u64| match is_added {
            true => *sum += segment.size_bytes,
            false => *sum -= segment.size_bytes,
        };
        change(&mut self.used_bytes[segment.tier.index()]);
        change(&mut self.actual_bytes[self.actual[event.slot as usize].index()]);
        for tier in tiers_of(segment.copies, self.copy_bytes.len()) {
            change(&mut self.copy_bytes[tier.index()]);
        }
    }

    /// Begins what an action asks for; says why, where it does not.
    pub(super) fn carry_out(&mut self, action: &Action) -> Option<Outcome> {
        let outcome = self.begin(action);
        if let Some(outcome) = outcome {
            self.tell(EventKind::Receipt, action.slot, action.incarnation, outcome, 0);
        }
        outcome.filter(|outcome| *outcome != Outcome::Done)
    }

    /// Begins it; the outcome where that is known at once.
    fn begin(&mut self, action: &Action) -> Option<Outcome> {
        let (slot, incarnation) = (action.slot, action.incarnation);
        let Some(segment) = self.view.segment(slot, incarnation) else {
            return Some(Outcome::Stale);
        };
        let to = match action.kind {
            ActionKind::Move { to } | ActionKind::Promote { to } | ActionKind::Copy { to } => to,
            ActionKind::DropCopy { tier } => {
                if !segment.copies.contains(tier) {
                    return Some(Outcome::Invalid);
                }
                let kind = EventKind::Uncopied;
                let gone = Event { tier, ..Event::new(kind, slot, incarnation, self.view.now_ns) };
                self.apply(&gone);
                self.told.push(gone);
                return Some(Outcome::Done);
            }
            ActionKind::Cancel => {
                if self.end(slot).is_none() {
                    return Some(Outcome::Invalid);
                }
                self.view.segments[slot as usize].is_moving = false;
                self.tell(EventKind::Receipt, slot, incarnation, Outcome::Cancelled, 0);
                return Some(Outcome::Done);
            }
        };
        let Some(target) = self.view.tiers.get(to.index()) else { return Some(Outcome::Invalid) };
        let is_there = segment.tier == to
            || matches!(action.kind, ActionKind::Copy { .. }) && segment.copies.contains(to);
        let bytes = if segment.copies.contains(to) { 0 } else { segment.size_bytes };
        let refused = if is_there {
            Some(Outcome::Already)
        } else if segment.is_pinned {
            Some(Outcome::Pinned)
        } else if segment.is_moving {
            Some(Outcome::Busy)
        } else if target.persistency < segment.persistency {
            Some(Outcome::TooWeak)
        } else if bytes > self.room_bytes(to) || !target.is_writable {
            Some(Outcome::NoSpace)
        } else {
            None
        };
        if refused.is_some() {
            return refused;
        }
        let source = &self.view.tiers[segment.tier.index()];
        let time_s = match bytes {
            0 => 0.0,
            bytes => source.figures.read_s(bytes) + target.figures.write_s(bytes),
        };
        let start_ns = self.busy_until_ns.max(self.view.now_ns);
        let done_ns = start_ns.saturating_add((time_s * 1e9) as u64);
        self.busy_until_ns = done_ns;
        self.moves.insert(slot, Move { kind: action.kind, to, incarnation, bytes, done_ns });
        self.coming_bytes[to.index()] += bytes;
        self.view.segments[slot as usize].is_moving = true;
        self.tell(EventKind::Queued, slot, incarnation, Outcome::Done, 0);
        None
    }

    /// Room on a tier, clean copies given up, with what is on its way taken out.
    fn room_bytes(&self, tier: TierIndex) -> u64 {
        let taken = self.used(tier.index()) + self.coming_bytes[tier.index()];
        self.view.tiers[tier.index()].figures.capacity_bytes.saturating_sub(taken)
    }

    /// What primaries take of a tier here: their lengths without the holes of those that really lie there. A
    /// segment that the shadow has moved counts with its length.
    fn used(&self, index: usize) -> u64 {
        self.used_bytes[index].saturating_sub(self.holes_bytes[index])
    }

    /// Takes a migration out.
    fn end(&mut self, slot: Slot) -> Option<Move> {
        let ended = self.moves.remove(&slot)?;
        self.coming_bytes[ended.to.index()] -= ended.bytes;
        Some(ended)
    }

    /// Ends the migrations whose time has come.
    fn end_moves(&mut self, seen: &mut Vec<Event>) {
        let now_ns = self.view.now_ns;
        let done: Vec<_> = self
            .moves
            .iter()
            .filter(|(_, one)| one.done_ns <= now_ns)
            .map(|(slot, one)| (*slot, *one))
            .collect();
        for (slot, one) in done {
            self.end(slot);
            let Some(segment) = self.view.segment(slot, one.incarnation) else { continue };
            let from = segment.tier;
            let event =
                |kind, tier| Event { tier, ..Event::new(kind, slot, one.incarnation, now_ns) };
            let mut happened = Vec::new();
            if !matches!(one.kind, ActionKind::Copy { .. }) {
                if self.view.segments[slot as usize].copies.contains(one.to) {
                    happened.push(event(EventKind::Uncopied, one.to));
                }
                happened.push(event(EventKind::Moved, one.to));
            }
            match one.kind {
                ActionKind::Copy { to } => happened.push(event(EventKind::Copied, to)),
                ActionKind::Promote { .. } => happened.push(event(EventKind::Copied, from)),
                _ => {}
            }
            let receipt = Event { length_bytes: one.bytes, ..event(EventKind::Receipt, one.to) };
            happened.push(receipt);
            for event in &happened {
                self.apply(event);
            }
            if one.bytes > 0 {
                self.score.moved(one.bytes);
            }
            seen.extend(happened);
        }
    }

    fn tell(
        &mut self,
        kind: EventKind,
        slot: Slot,
        incarnation: u32,
        outcome: Outcome,
        length_bytes: u64,
    ) {
        let event = Event::new(kind, slot, incarnation, self.view.now_ns);
        self.told.push(Event { outcome, length_bytes, ..event });
    }

    /// Shows the accounts of this world in its tiers.
    fn account(&mut self) {
        let mut outgoing_bytes = vec![0; self.used_bytes.len()];
        for (slot, one) in &self.moves {
            if let Some(segment) = self.view.segments.get(*slot as usize)
                && matches!(one.kind, ActionKind::Move { .. })
            {
                outgoing_bytes[segment.tier.index()] += one.bytes;
            }
        }
        let used_bytes: Vec<_> = (0..self.used_bytes.len()).map(|index| self.used(index)).collect();
        for (index, tier) in self.view.tiers.iter_mut().enumerate() {
            (tier.incoming_bytes, tier.outgoing_bytes) =
                (self.coming_bytes[index], outgoing_bytes[index]);
            (tier.used_bytes, tier.copy_bytes) = (used_bytes[index], self.copy_bytes[index]);
            (tier.reserved_bytes, tier.garbage_bytes) = (0, 0);
        }
    }

    /// What both would have waited for so far: the store as it is, and this world.
    pub(super) fn sides(&self) -> (ShadowSide, ShadowSide) {
        let actual = self.actual_bytes.iter().zip(&self.holes_bytes);
        let actual = self.actual_score.side(actual.map(|(bytes, holes)| bytes - holes));
        (actual, self.score.side((0..self.used_bytes.len()).map(|index| self.used(index))))
    }
}

/// By tier, what of these lengths of primaries it really takes no room for.
fn holes(tiers: &[TierView], actual_bytes: &[u64]) -> Vec<u64> {
    let taken = tiers.iter().map(|tier| tier.used_bytes.saturating_add(tier.reserved_bytes));
    actual_bytes.iter().zip(taken).map(|(bytes, taken)| bytes.saturating_sub(taken)).collect()
}

/// The tiers of a set.
fn tiers_of(set: TierSet, count: usize) -> impl Iterator<Item = TierIndex> {
    (0..count).map(|index| TierIndex(index as u8)).filter(move |tier| set.contains(*tier))
}
