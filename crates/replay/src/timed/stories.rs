// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was done with single objects, why, and whether it was worth it.

use std::collections::HashMap;

use terrace_core::{Action, ActionKind, Outcome, Slot, TierIndex};

use super::SECOND_NS;
use super::mover::Ended;
use super::store::Store;

/// Moves of one object that are listed; the others are counted.
const MOVES_MAX: usize = 4096;

/// What a policy did with one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Story {
    /// The object.
    pub object: u64,
    /// When it was first there, and on which tier; `None` where it never was.
    pub placed: Option<(f64, TierIndex)>,
    /// Times that it was read, and written.
    pub reads: u64,
    /// See [`Story::reads`].
    pub writes: u64,
    /// What was asked for, in that order.
    pub moves: Vec<MoveStory>,
    /// What was asked for beyond those.
    pub moves_left_out: u64,
}

/// One thing that a policy asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct MoveStory {
    /// The index of the segment in its object.
    pub segment: u32,
    /// What: `move`, `promote`, `copy`, `drop-copy`, `cancel`.
    pub what: &'static str,
    /// When.
    pub asked_s: f64,
    /// Where the segment was.
    pub from: TierIndex,
    /// Where it was to go; of a copy that is dropped, where that is.
    pub to: TierIndex,
    /// Why, in the words of the policy.
    pub reason: String,
    /// Seconds that the policy expected to save by it; 0 where it frees room.
    pub expected_s: f64,
    /// When it ended, and how; `None` where it had not by the last answer.
    pub ended: Option<(f64, Outcome)>,
    /// Bytes that were copied for it.
    pub copied_bytes: u64,
    /// Requests for the segment from then on, until it was moved again, that a device answered.
    pub accesses: u64,
    /// How much longer they would have taken where the segment was before, as busy as that tier
    /// was, than they took.
    pub saved_s: f64,
}

/// Follows some objects.
#[derive(Debug, Default)]
pub(super) struct Stories {
    /// With the number of each in the population.
    list: Vec<(Option<u32>, Story)>,
    /// The migration of a segment that waits or runs: of which object, and which of its moves.
    moving: HashMap<Slot, (usize, usize)>,
    /// What brought a segment where it is.
    moved: HashMap<Slot, (usize, usize)>,
    /// What requests that are being answered would take where segments were before.
    flights: HashMap<usize, Vec<(usize, usize, f64)>>,
}

impl Stories {
    /// Follows these objects, each with its number in the population.
    pub(super) fn new(objects: impl Iterator<Item = (u64, Option<u32>)>) -> Self {
        let list = objects.map(|(object, number)| (number, Story { object, ..Story::default() }));
        Self { list: list.collect(), ..Self::default() }
    }

    /// Objects that are there now, and were not before.
    pub(super) fn look(&mut self, store: &Store) {
        for (number, story) in &mut self.list {
            let slots = number.map_or(&[][..], |number| store.slots(number));
            if let (None, Some(first)) = (story.placed, slots.first()) {
                story.placed = Some((store.now_ns as f64 / SECOND_NS, store.segment(*first).tier));
            }
        }
    }

    /// Whether an object is followed.
    pub(super) fn follows(&self, object: u32) -> bool {
        self.list.iter().any(|(number, _)| *number == Some(object))
    }

    /// A policy asked for something, which ends later, or has at once.
    pub(super) fn asked(&mut self, store: &Store, action: &Action, refused: Option<Outcome>) {
        let at = |number: &u32| store.slots(*number).iter().position(|slot| *slot == action.slot);
        let mut found = self
            .list
            .iter()
            .enumerate()
            .filter_map(|(index, (number, _))| Some((index, at(number.as_ref()?)?)));
        let Some((index, segment)) = found.next() else { return };
        let now_s = store.now_ns as f64 / SECOND_NS;
        let here = store.segment(action.slot).tier;
        let (what, to) = match action.kind {
            ActionKind::Move { to } => ("move", to),
            ActionKind::Promote { to } => ("promote", to),
            ActionKind::Copy { to } => ("copy", to),
            ActionKind::DropCopy { tier } => ("drop-copy", tier),
            ActionKind::Cancel => ("cancel", here),
        };
        let story = &mut self.list[index].1;
        if story.moves.len() >= MOVES_MAX {
            story.moves_left_out += 1;
            return;
        }
        if refused.is_none() {
            self.moving.insert(action.slot, (index, story.moves.len()));
        }
        story.moves.push(MoveStory {
            segment: segment as u32,
            what,
            asked_s: now_s,
            from: here,
            to,
            reason: action.reason.clone(),
            expected_s: action.benefit_s,
            ended: refused.map(|outcome| (now_s, outcome)),
            copied_bytes: 0,
            accesses: 0,
            saved_s: 0.0,
        });
    }

    /// A migration has ended.
    pub(super) fn ended(&mut self, now_ns: u64, ended: &Ended) {
        let Some((index, number)) = self.moving.remove(&ended.slot) else { return };
        let one = &mut self.list[index].1.moves[number];
        one.ended = Some((now_ns as f64 / SECOND_NS, ended.outcome));
        one.copied_bytes = ended.copied_bytes;
        if ended.outcome == Outcome::Done {
            self.moved.insert(ended.slot, (index, number));
        }
    }

    /// A request for an object that is followed begins.
    pub(super) fn begun(&mut self, object: u32, is_write: bool) {
        let followed = self.list.iter_mut().filter(|(number, _)| *number == Some(object));
        for (_, story) in followed {
            let count = if is_write { &mut story.writes } else { &mut story.reads };
            *count += 1;
        }
    }

    /// Where a segment was before it was brought where it is.
    pub(super) fn before(&self, slot: Slot) -> Option<TierIndex> {
        let (index, number) = self.moved.get(&slot)?;
        Some(self.list[*index].1.moves[*number].from)
    }

    /// A request that is being answered would take so long where the segment was before.
    pub(super) fn would_take(&mut self, flight: usize, slot: Slot, took_s: f64) {
        if let Some((index, number)) = self.moved.get(&slot) {
            self.flights.entry(flight).or_default().push((*index, *number, took_s));
        }
    }

    /// A request is answered.
    pub(super) fn landed(&mut self, flight: usize, took_s: f64) {
        if self.flights.is_empty() {
            return;
        }
        for (index, number, would_s) in self.flights.remove(&flight).into_iter().flatten() {
            let one = &mut self.list[index].1.moves[number];
            one.accesses += 1;
            one.saved_s += would_s - took_s;
        }
    }

    pub(super) fn into_list(self) -> Vec<Story> {
        self.list.into_iter().map(|(_, story)| story).collect()
    }
}
