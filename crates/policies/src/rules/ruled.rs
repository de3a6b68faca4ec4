// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which rule each segment is under, and what follows from it.
//!
//! Nothing is scanned: a segment is judged when something happens to it, and when the time comes at
//! which its rule may be another.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use terrace_core::{Event, EventKind, SegmentView, Slot, TierIndex, View};

use super::book::{Action, Book, Facts, NEVER_NS, Rule};
use super::settings::{RulesSettings, Terms};
use crate::heat::warmth::Heat;
use crate::mechanism::gate::Demand;
use crate::mechanism::pace;
use crate::mechanism::roster::Roster;
use crate::mechanism::rows::Rows;
use crate::mechanism::saved::{Name, Names};
use crate::mechanism::tiering::settings::Tiered;
use crate::mechanism::tiering::{Choice, Order, Ordered};

/// Segments that one round judges because their time has come, and as many because the rules have
/// changed.
const JUDGED_MAX: usize = 4096;

/// Moves and copies that one round asks for at most, each.
const ORDERS_MAX: usize = 1024;

/// Segments whose ages and heats are saved; others begin anew.
const SAVED_MAX: usize = 200_000;

/// What keeps a segment behind all others that may leave.
const KEPT: f64 = 1e15;

const HOUR_NS: f64 = 3600e9;

#[derive(Debug)]
pub(super) struct Ruled {
    book: Arc<Book>,
    terms: Terms,
    /// By slot.
    states: Vec<State>,
    /// The segments that may leave each tier, and those of them that have no copy below.
    rows: Rows,
    dirty_rows: Rows,
    /// When segments have to be judged again.
    due: BTreeSet<(i64, Slot)>,
    /// Segments that are not where their rule, which comes first, wants them.
    movers: BTreeSet<(usize, Slot)>,
    /// With which the next round begins, so that each gets its turn.
    next_mover: (usize, Slot),
    /// The first slot that was not judged since the rules have changed.
    unjudged: Option<Slot>,
    /// By tier: bytes of segments that have no copy below.
    dirty_bytes: Vec<u64>,
    /// Segments under each rule.
    counts: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    is_known: bool,
    facts: Facts,
    /// The largest size that its heat is in shares of.
    size_bytes: u64,
    mask: u64,
    rule: Option<usize>,
    due_ns: i64,
    dirty: Option<(TierIndex, u64)>,
}

const UNKNOWN: State = State {
    is_known: false,
    facts: Facts { created_ns: 0, used_ns: 0, heat: Heat { at: 0.0, at_ns: 0 } },
    size_bytes: 0,
    mask: 0,
    rule: None,
    due_ns: NEVER_NS,
    dirty: None,
};

#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    segments: Vec<SavedSegment>,
    next_mover: (usize, Slot),
}

/// With ages, because clocks start anew.
#[derive(Serialize, Deserialize)]
struct SavedSegment {
    name: Name,
    age_ns: u64,
    idle_ns: u64,
    /// The bits of the number, which JSON would round.
    heat_bits: u64,
    heat_age_ns: u64,
    size_bytes: u64,
}

impl Ruled {
    pub(super) fn new(settings: &RulesSettings) -> Self {
        Self {
            book: Arc::clone(&settings.book),
            terms: settings.terms,
            states: Vec::new(),
            rows: Rows::default(),
            dirty_rows: Rows::default(),
            due: BTreeSet::new(),
            movers: BTreeSet::new(),
            next_mover: (0, 0),
            unjudged: None,
            dirty_bytes: Vec::new(),
            counts: vec![0; settings.book.rules.len()],
        }
    }

    /// The rules with how many segments are under each.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let names = self.book.rules.iter().map(|rule| rule.name.as_str());
        names.zip(self.counts.iter().copied())
    }

    /// How many segments are not where their rule wants them.
    pub(super) fn mover_count(&self) -> usize {
        self.movers.len()
    }

    /// Judges what is due, and what is not judged by new rules yet; bounded work.
    pub(super) fn advance(&mut self, view: &View) {
        let now_ns = signed(view.now_ns);
        for _ in 0..JUDGED_MAX {
            let Some((due_ns, slot)) = self.due.first().copied() else { break };
            if due_ns > now_ns {
                break;
            }
            self.judge_again(view, slot);
        }
        if let Some(first) = self.unjudged {
            let end = self.states.len().min(first as usize + JUDGED_MAX) as Slot;
            for slot in first..end {
                if let Some(segment) = view.segments.get(slot as usize) {
                    self.states[slot as usize].mask = self.book.matching(&segment.key);
                }
                self.judge_again(view, slot);
            }
            self.unjudged = Some(end).filter(|end| (*end as usize) < self.states.len());
        }
    }

    /// A copy of a segment came or went.
    pub(super) fn refresh(&mut self, view: &View, slot: Slot) {
        if self.states.get(slot as usize).is_some_and(|state| state.is_known) {
            self.judge_again(view, slot);
        }
    }

    /// What the rules want to be moved, and what is to be copied before room is wanted.
    pub(super) fn orders(&mut self, view: &View, settings: &RulesSettings) -> Vec<Order> {
        let mut orders = Vec::new();
        let behind = self.movers.range(self.next_mover..);
        let before = self.movers.range(..self.next_mover);
        for (rule, slot) in behind.chain(before).take(ORDERS_MAX) {
            self.next_mover = (*rule, slot.saturating_add(1));
            let Rule { name, action, .. } = &self.book.rules[*rule];
            if let Action::Move(to) = action {
                let reason = format!("the rule {name:?}");
                orders.push(Order { slot: *slot, what: Ordered::Move(*to), reason });
            }
        }
        for (index, tier) in view.tiers.iter().enumerate() {
            let may_bytes = (settings.premigrate * tier.figures.capacity_bytes as f64) as u64;
            let dirty_bytes = self.dirty_bytes.get(index).copied().unwrap_or(0);
            let is_last = index + 1 == view.tiers.len();
            let mut excess_bytes = dirty_bytes.saturating_sub(may_bytes);
            if is_last || pace::is_busy(tier, settings.common().busy) {
                continue;
            }
            let row = std::iter::successors(self.dirty_rows.first(index), |slot| {
                self.dirty_rows.after(*slot)
            });
            for slot in row.take(ORDERS_MAX) {
                if excess_bytes == 0 {
                    break;
                }
                let reason = format!("premigrated: {} has too much without a copy", tier.name);
                orders.push(Order { slot, what: Ordered::CopyBelow, reason });
                excess_bytes = excess_bytes.saturating_sub(view.segments[slot as usize].size_bytes);
            }
        }
        orders
    }

    fn state_mut(&mut self, slot: Slot) -> &mut State {
        let index = slot as usize;
        if index >= self.states.len() {
            self.states.resize(index + 1, UNKNOWN);
        }
        &mut self.states[index]
    }

    /// Takes in a segment, unless it is known.
    fn know(&mut self, slot: Slot, segment: &SegmentView) {
        let mask = self.book.matching(&segment.key);
        let state = self.state_mut(slot);
        if !state.is_known {
            let facts = Facts {
                created_ns: signed(segment.created_ns),
                used_ns: signed(segment.last_access_ns()),
                heat: Heat::default(),
            };
            let size_bytes = segment.size_bytes;
            *state = State { is_known: true, facts, size_bytes, mask, ..UNKNOWN };
        }
    }

    fn judge_again(&mut self, view: &View, slot: Slot) {
        let live = view.segments.get(slot as usize).filter(|segment| segment.is_live);
        match live {
            Some(segment) if self.states[slot as usize].is_known => self.judge(view, slot, segment),
            _ => self.withdraw(slot),
        }
    }

    /// Finds the rule of a segment and what follows from it.
    fn judge(&mut self, view: &View, slot: Slot, segment: &SegmentView) {
        self.know(slot, segment);
        let is_listed = self.rows.tier_of(slot).is_some();
        self.withdraw(slot);
        let State { facts, mask, .. } = self.states[slot as usize];
        let now_ns = signed(view.now_ns);
        let half_life_ns = self.terms.half_life_ns;
        let (rule, due_ns) = self.book.judge(mask, &facts, segment, now_ns, half_life_ns);
        if due_ns != NEVER_NS {
            self.due.insert((due_ns, slot));
        }
        let mut is_never = false;
        if let Some(rule) = rule {
            self.counts[rule] += 1;
            match self.book.rules[rule].action {
                Action::Move(to) if to != segment.tier => {
                    self.movers.insert((rule, slot));
                }
                Action::Never => is_never = true,
                _ => {}
            }
        }
        let tier = segment.tier.index();
        let below = segment.copies.0.checked_shr(u32::from(segment.tier.0) + 1).unwrap_or(0);
        let is_dirty = below == 0 && segment.size_bytes > 0 && !is_never;
        let rank = self.rank(&facts, segment, rule);
        if is_listed && !is_never {
            self.rows.put(tier, slot, rank);
        }
        if is_dirty {
            self.dirty_rows.put(tier, slot, rank);
            if self.dirty_bytes.len() <= tier {
                self.dirty_bytes.resize(tier + 1, 0);
            }
            self.dirty_bytes[tier] += segment.size_bytes;
        }
        let state = &mut self.states[slot as usize];
        (state.rule, state.due_ns) = (rule, due_ns);
        state.dirty = is_dirty.then_some((segment.tier, segment.size_bytes));
    }

    /// Takes back what followed from the last judgement.
    fn withdraw(&mut self, slot: Slot) {
        self.rows.unlist(slot);
        self.dirty_rows.unlist(slot);
        let state = self.state_mut(slot);
        let State { rule, due_ns, dirty, .. } = *state;
        (state.rule, state.due_ns, state.dirty) = (None, NEVER_NS, None);
        self.due.remove(&(due_ns, slot));
        if let Some(rule) = rule {
            self.counts[rule] -= 1;
            self.movers.remove(&(rule, slot));
        }
        if let Some((tier, bytes)) = dirty {
            self.dirty_bytes[tier.index()] -= bytes;
        }
    }

    /// The greatest weight leaves first. As all get idle at the same time, the order does not change
    /// while nothing happens.
    fn rank(&self, facts: &Facts, segment: &SegmentView, rule: Option<usize>) -> f64 {
        let rule = rule.map(|rule| &self.book.rules[rule]);
        let mib = segment.size_bytes as f64 / f64::from(1 << 20);
        let weight = self.terms.size_weight * (1.0 + mib).log2()
            - self.terms.idle_weight * facts.used_ns as f64 / HOUR_NS
            + rule.map_or(0.0, |rule| rule.weight);
        let is_kept = rule.is_some_and(|rule| rule.action == Action::Keep);
        if is_kept { KEPT - weight } else { -weight }
    }

    fn enlist(&mut self, view: &View, slot: Slot, segment: &SegmentView) {
        self.know(slot, segment);
        // In its row, so that judging leaves it there.
        self.rows.put(segment.tier.index(), slot, 0.0);
        self.judge(view, slot, segment);
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

impl Choice for Ruled {
    const NAME: &'static str = "rules";
    const IS_BY_USE: bool = false;

    type Settings = RulesSettings;
    type Saved = Saved;

    /// By new rules segments are judged little by little.
    fn adapt(&mut self, view: &View, settings: &RulesSettings) {
        if Arc::ptr_eq(&self.book, &settings.book) && self.terms == settings.terms {
            return;
        }
        for state in &mut self.states {
            let half_life_ns = self.terms.half_life_ns;
            state.facts.heat.add(0.0, view.now_ns, half_life_ns);
            state.rule = None;
        }
        self.book = Arc::clone(&settings.book);
        self.terms = settings.terms;
        self.movers.clear();
        self.next_mover = (0, 0);
        self.counts = vec![0; self.book.rules.len()];
        self.unjudged = Some(0);
    }

    fn meet(&mut self, view: &View, _: &RulesSettings, slot: Slot, segment: &SegmentView) {
        self.enlist(view, slot, segment);
    }

    fn observe(
        &mut self,
        view: &View,
        _: &RulesSettings,
        event: &Event,
        segment: &SegmentView,
    ) -> bool {
        let slot = event.slot;
        self.know(slot, segment);
        let half_life_ns = self.terms.half_life_ns;
        let state = self.state_mut(slot);
        if event.kind != EventKind::Moved {
            state.facts.used_ns = state.facts.used_ns.max(signed(event.time_ns));
        }
        if matches!(event.kind, EventKind::Read | EventKind::Write) {
            state.size_bytes = state.size_bytes.max(segment.size_bytes);
            let share = event.length_bytes as f64 / state.size_bytes.max(1) as f64;
            let share = share.min(f64::from(event.count.max(1)));
            state.facts.heat.add(share, event.time_ns, half_life_ns);
        }
        self.enlist(view, slot, segment);
        false
    }

    fn list(&mut self, view: &View, slot: Slot, segment: &SegmentView) {
        self.enlist(view, slot, segment);
    }

    fn postpone(&mut self, slot: Slot, segment: &SegmentView) {
        let State { is_known, facts, rule, .. } = *self.state_mut(slot);
        let action = rule.map(|rule| self.book.rules[rule].action);
        if is_known && action != Some(Action::Never) {
            self.rows.put(segment.tier.index(), slot, self.rank(&facts, segment, rule));
        }
    }

    fn put_last(&mut self, slot: Slot, segment: &SegmentView) {
        self.rows.put_last(segment.tier.index(), slot);
    }

    fn unlist(&mut self, slot: Slot) {
        self.rows.unlist(slot);
    }

    fn forget(&mut self, slot: Slot) {
        self.withdraw(slot);
        *self.state_mut(slot) = UNKNOWN;
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

    /// Nothing moves up because it pays.
    fn demand(&self, _: &View, _: &RulesSettings, _: Slot) -> Demand {
        Demand::default()
    }

    fn excuse(&self, _: &View, _: &RulesSettings, slot: Slot) -> String {
        let rule = self.states.get(slot as usize).and_then(|state| state.rule);
        match rule {
            Some(rule) => {
                format!("by the rule {:?} this leaves before others", self.book.rules[rule].name)
            }
            None => "this leaves before others".into(),
        }
    }

    fn save(&self, view: &View, roster: &Roster) -> Saved {
        let mut known: Vec<_> = roster.live(view).collect();
        if known.len() > SAVED_MAX {
            known.sort_by_key(|(_, segment)| std::cmp::Reverse(segment.last_access_ns()));
            known.truncate(SAVED_MAX);
        }
        let age_ns = |ns: i64| signed(view.now_ns).saturating_sub(ns).max(0) as u64;
        let saved = |(slot, segment): (Slot, &SegmentView)| {
            let state = self.states.get(slot as usize).filter(|state| state.is_known)?;
            Some(SavedSegment {
                name: Name::of(segment),
                age_ns: age_ns(state.facts.created_ns),
                idle_ns: age_ns(state.facts.used_ns),
                heat_bits: state.facts.heat.at.to_bits(),
                heat_age_ns: view.now_ns.saturating_sub(state.facts.heat.at_ns),
                size_bytes: state.size_bytes,
            })
        };
        let segments = known.into_iter().filter_map(saved).collect();
        Saved { segments, next_mover: self.next_mover }
    }

    fn names(saved: &Saved) -> Vec<&Name> {
        saved.segments.iter().map(|segment| &segment.name).collect()
    }

    fn restore(&mut self, view: &View, names: &Names<'_>, saved: &Saved, roster: &mut Roster) {
        let before_ns = |ns: u64| signed(view.now_ns).saturating_sub(signed(ns));
        self.next_mover = saved.next_mover;
        for saved in &saved.segments {
            let Some(slot) = names.slot(&saved.name) else { continue };
            let segment = &view.segments[slot as usize];
            let at = f64::from_bits(saved.heat_bits);
            let half_life_ns = self.terms.half_life_ns;
            let facts = Facts {
                created_ns: before_ns(saved.age_ns),
                used_ns: before_ns(saved.idle_ns),
                heat: Heat::aged(at, saved.heat_age_ns, view.now_ns, half_life_ns),
            };
            let mask = self.book.matching(&segment.key);
            let size_bytes = saved.size_bytes;
            *self.state_mut(slot) = State { is_known: true, facts, size_bytes, mask, ..UNKNOWN };
            roster.adopt(view, slot);
            self.enlist(view, slot, segment);
        }
    }
}
