// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything is written to the fast tier and copied down in the background, in the order in which
//! it was written; what has a copy leaves when room is wanted, which moves nothing.

mod allowance;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use terrace_core::{
    ActionKind, Actions, Event, EventKind, Parameter, Placer, Policy, Result, SegmentView, Slot,
    TierIndex, View, units,
};

use crate::mechanism::order::Order;
use crate::mechanism::pace::{self, Below, Drain, Fits, Turn};
use crate::mechanism::parameters::Chosen;
use crate::mechanism::place::{self, On};
use crate::mechanism::roster::{Asked, Roster, SavedRest, Seen};
use crate::mechanism::saved::{self, Name, Names};
use crate::mechanism::staging::{SavedLease, Staging};
use allowance::{Allowance, SavedAllowance};
use settings::ElevatorSettings;

/// Segments that one round looks at in one list. What has to wait for an event is taken out of its
/// list until then.
const STEPS_MAX: usize = 4096;

/// Lists: segments of the buffer by their last write, and those that have a copy below, by their
/// last use.
const WRITTEN: usize = 0;
const CLEAN: usize = 1;

/// Makes the policy; `docs/policies/elevator.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(ElevatorSettings::default(), view, parameters)?;
    Ok(Box::new(Elevator {
        placed: settings.buffer,
        settings,
        order: Order::default(),
        roster: Roster::default(),
        drain: Drain::default(),
        staging: Staging::default(),
        allowance: Allowance::new(view.now_ns),
        copying: 0,
        regrets: Vec::new(),
    }))
}

struct Elevator {
    settings: Chosen<ElevatorSettings>,
    /// Where new segments go now.
    placed: TierIndex,
    order: Order,
    roster: Roster,
    drain: Drain,
    staging: Staging,
    allowance: Allowance,
    /// Copies that were asked for and have not ended.
    copying: u32,
    /// Segments that were written after their copying was asked for.
    regrets: Vec<Slot>,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// Oldest first.
    written: Vec<Name>,
    clean: Vec<Name>,
    /// Segments that were seen and are in neither list.
    unlisted: Vec<Name>,
    draining: Vec<String>,
    rests: Vec<SavedRest>,
    leases: Vec<SavedLease>,
    next_lease: Slot,
    allowance: SavedAllowance,
    placed: String,
}

impl Policy for Elevator {
    fn placer(&self) -> Arc<dyn Placer> {
        Arc::new(On(self.placed))
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        let mut present = Vec::new();
        for event in events {
            let asked = self.roster.asked(event.slot);
            let seen = self.roster.see(view, event, 0);
            if asked == Asked::Copy && self.roster.asked(event.slot) != Asked::Copy {
                self.copying = self.copying.saturating_sub(1);
            }
            match seen {
                Seen::Nothing => {}
                Seen::Gone => {
                    self.order.unlink(event.slot);
                    self.staging.forget(event.slot);
                }
                Seen::New(segment) => {
                    self.order.unlink(event.slot);
                    self.staging.meet(event.slot, event.incarnation);
                    match event.kind {
                        EventKind::Present => present.push(event.slot),
                        _ => self.note(event, segment, Asked::Nothing),
                    }
                }
                Seen::Known(segment) => self.note(event, segment, asked),
            }
        }
        present.sort_by_key(|slot| (pace::last_write_ns(&view.segments[*slot as usize]), *slot));
        for slot in present {
            self.enlist(slot, &view.segments[slot as usize]);
        }
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        let expired = self.staging.expire(view.now_ns);
        self.free(view, &expired);

        self.cancel(view, actions);
        let mut turn = Turn::new(view, actions, self.settings.max_bytes);
        let coming_bytes = self.staging.plan(&mut turn, &mut self.roster);
        self.make_room(&mut turn, coming_bytes[self.settings.buffer.index()]);
        self.copy_down(&mut turn);
        self.placed = place::buffer_or_below(view, self.settings.buffer, &self.settings.levels);
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        if kind == "status" {
            return Ok(saved::reply(&self.status(view)));
        }
        let (reply, released) = self.staging.answer(view, kind, body)?;
        self.free(view, &released);
        Ok(reply)
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.settings.list()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        let buffer = self.settings.buffer;
        self.settings.set(name, value)?;
        if self.settings.buffer != buffer {
            self.placed = self.settings.buffer;
        }
        Ok(())
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        let names = |list| {
            let slots = std::iter::successors(self.order.oldest(list), |at| self.order.newer(*at));
            slots.filter_map(|slot| self.roster.segment(view, slot)).map(Name::of).collect()
        };
        let unlisted = self.roster.live(view).filter(|(slot, _)| !self.order.contains(*slot));
        let state = State {
            written: names(WRITTEN),
            clean: names(CLEAN),
            unlisted: unlisted.map(|(_, segment)| Name::of(segment)).collect(),
            draining: self.drain.save(view),
            rests: self.roster.save(view),
            leases: self.staging.save(view),
            next_lease: self.staging.next(),
            allowance: self.allowance.save(view.now_ns),
            placed: view.tiers[self.placed.index()].name.clone(),
        };
        saved::write(&state, out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        let state: State = saved::read(self.state_version(), version, state)?;
        let listed = state.written.iter().chain(&state.clean);
        let named = listed.clone().chain(&state.unlisted);
        let named = named.chain(state.leases.iter().map(SavedLease::name));
        let names = Names::new(view, named.chain(state.rests.iter().map(SavedRest::name)));
        for slot in listed.filter_map(|name| names.slot(name)) {
            self.roster.adopt(view, slot);
            self.enlist(slot, &view.segments[slot as usize]);
        }
        self.drain.restore(view, &state.draining);
        self.roster.restore(view, &names, &state.rests);
        self.staging.restore(view, &names, &state.leases, state.next_lease);
        self.allowance.restore(view.now_ns, &state.allowance);
        if let Some(tier) = view.tiers.iter().position(|tier| tier.name == state.placed) {
            self.placed = TierIndex(tier as u8);
        }
        for slot in state.unlisted.iter().filter_map(|name| names.slot(name)) {
            self.roster.adopt(view, slot);
            let segment = &view.segments[slot as usize];
            // Who had it open before a restart does not close it after.
            if self.is_movable(slot, segment) && segment.opens == 0 {
                self.enlist(slot, segment);
            }
        }
        Ok(())
    }
}

impl Elevator {
    fn note(&mut self, event: &Event, segment: &SegmentView, asked: Asked) {
        let slot = event.slot;
        match event.kind {
            EventKind::Write | EventKind::SetLen => {
                self.enlist(slot, segment);
                if asked == Asked::Copy && self.regrets.len() < STEPS_MAX {
                    self.regrets.push(slot);
                }
            }
            // Of those with copies the least recently used leaves first.
            EventKind::Read if !self.is_clean(segment) => {}
            EventKind::Create
            | EventKind::Read
            | EventKind::Moved
            | EventKind::Copied
            | EventKind::Uncopied => self.enlist(slot, segment),
            EventKind::Close | EventKind::Unpin => self.enlist_again(slot, segment),
            EventKind::Receipt => {
                self.staging.observe(event, asked);
                // One whose copying failed goes behind all others.
                self.enlist(slot, segment);
            }
            EventKind::Present
            | EventKind::Open
            | EventKind::Delete
            | EventKind::Queued
            | EventKind::Timer
            | EventKind::Pin => {}
        }
    }

    /// Makes the segment the last one of its list; takes it out if it is not in the buffer.
    fn enlist(&mut self, slot: Slot, segment: &SegmentView) {
        match segment.tier == self.settings.buffer {
            true => self.order.touch(self.list_of(segment), slot),
            false => self.order.unlink(slot),
        }
    }

    /// Puts back a segment that could not be moved before.
    fn enlist_again(&mut self, slot: Slot, segment: &SegmentView) {
        if segment.tier != self.settings.buffer || !self.order.contains(slot) {
            self.enlist(slot, segment);
        }
    }

    fn list_of(&self, segment: &SegmentView) -> usize {
        if self.is_clean(segment) { CLEAN } else { WRITTEN }
    }

    /// Whether a tier below the buffer has a copy.
    fn is_clean(&self, segment: &SegmentView) -> bool {
        let below = segment.copies.0.checked_shr(u32::from(self.settings.buffer.0) + 1);
        below.is_some_and(|tiers| tiers != 0)
    }

    /// Whether nothing keeps the segment from being moved or copied.
    fn is_movable(&self, slot: Slot, segment: &SegmentView) -> bool {
        segment.tier == self.settings.buffer
            && segment.size_bytes > 0
            && self.roster.is_free(slot, segment)
            && !self.staging.holds(slot)
    }

    fn cancel(&mut self, view: &View, actions: &mut Actions) {
        for slot in std::mem::take(&mut self.regrets) {
            let Some(segment) = self.roster.segment(view, slot) else { continue };
            if self.roster.asked(slot) != Asked::Copy {
                continue;
            }
            let reason = "written again while its copying waited".into();
            if !actions.push(pace::action(slot, segment, ActionKind::Cancel, reason), 0) {
                break;
            }
            self.roster.ask(slot, Asked::Cancel);
            self.copying = self.copying.saturating_sub(1);
        }
    }

    /// Lets closed segments leave a full buffer: those with copies first, which moves nothing, and
    /// then those that were written first.
    fn make_room(&mut self, turn: &mut Turn<'_>, coming_bytes: u64) {
        let buffer = self.settings.buffer;
        let levels = &self.settings.levels;
        let mut excess_bytes = self.drain.excess_bytes(turn, buffer, levels, coming_bytes, false);
        for list in [CLEAN, WRITTEN] {
            let mut next = self.order.oldest(list);
            for _ in 0..STEPS_MAX {
                let Some(slot) = next.filter(|_| excess_bytes > 0) else { break };
                next = self.order.newer(slot);
                let Some(segment) = self.listed(turn.view, slot) else { continue };
                // Copying does not mind that it is open.
                if segment.opens > 0 || self.roster.has_failed(slot, turn.view.now_ns) {
                    continue;
                }
                let (to, bytes) = match turn.room.below(turn.view, segment) {
                    Below::To(to, bytes) => (to, bytes),
                    Below::Full => break,
                    Below::Never => continue,
                };
                match turn.fits(bytes, 1.0) {
                    Fits::Yes => {}
                    Fits::Later => break,
                    Fits::Never => continue,
                }
                let source = &turn.view.tiers[buffer.index()];
                let why = match list {
                    CLEAN => "this has a copy below",
                    _ => "this was written first",
                };
                let reason =
                    format!("{} is {:.0} % full, and {why}", source.name, source.fill() * 100.0);
                let action = pace::action(slot, segment, ActionKind::Move { to }, reason);
                if !turn.ask(segment, action, to, bytes) {
                    return;
                }
                self.order.unlink(slot);
                self.roster.ask(slot, Asked::Demotion);
                excess_bytes = excess_bytes.saturating_sub(segment.size_bytes);
            }
        }
    }

    /// Copies what was written first, at a share of the speed that applications leave.
    fn copy_down(&mut self, turn: &mut Turn<'_>) {
        let view = turn.view;
        let buffer = self.settings.buffer;
        let Some(below) = view.tiers.get(buffer.below().index()) else { return };
        let source = &view.tiers[buffer.index()];
        let ElevatorSettings { share, max_bytes, busy, .. } = *self.settings;
        self.allowance.earn(view.now_ns, source, below, share, max_bytes);
        if share == 0.0 || pace::is_busy(source, busy) || pace::is_busy(below, busy) {
            return;
        }
        let mut next = self.order.oldest(WRITTEN);
        for _ in 0..STEPS_MAX {
            let may_begin = self.copying < self.settings.streams && self.allowance.is_open();
            let Some(slot) = next.filter(|_| may_begin) else { return };
            next = self.order.newer(slot);
            let Some(segment) = self.listed(view, slot) else { continue };
            let written_ns = view.now_ns.saturating_sub(pace::last_write_ns(segment));
            // All that follow were written later, or a move of them failed.
            if written_ns < self.settings.idle_ns {
                return;
            }
            if self.roster.has_failed(slot, view.now_ns) {
                continue;
            }
            let (to, bytes) = match turn.room.below(view, segment) {
                Below::To(to, bytes) => (to, bytes),
                Below::Full => return,
                Below::Never => continue,
            };
            match turn.fits(bytes, 1.0) {
                Fits::Yes => {}
                Fits::Later => return,
                Fits::Never => continue,
            }
            let name = &view.tiers[to.index()].name;
            let ago = units::show_ns(written_ns);
            let reason = format!("written {ago} ago, and {name} has no copy of it");
            let action = pace::action(slot, segment, ActionKind::Copy { to }, reason);
            if !turn.ask_copy(action, to, bytes) {
                return;
            }
            self.allowance.spend(bytes);
            self.order.unlink(slot);
            self.roster.ask(slot, Asked::Copy);
            self.copying += 1;
        }
    }

    /// The segment of a list's entry; one that has to wait for an event is taken out.
    fn listed<'a>(&mut self, view: &'a View, slot: Slot) -> Option<&'a SegmentView> {
        let segment = self.roster.segment(view, slot);
        let movable = segment.filter(|segment| self.is_movable(slot, segment));
        if movable.is_none() {
            self.order.unlink(slot);
        }
        movable
    }

    /// Puts segments back into the lists whose leases have ended.
    fn free(&mut self, view: &View, slots: &[Slot]) {
        for slot in slots {
            if let Some(segment) = self.roster.segment(view, *slot) {
                self.enlist_again(*slot, segment);
            }
        }
    }

    fn status(&self, view: &View) -> serde_json::Value {
        let name = |tier: TierIndex| &view.tiers[tier.index()].name;
        json!({
            "policy": "elevator",
            "buffer": name(self.settings.buffer),
            "placing_on": name(self.placed),
            "to_copy": self.order.count(WRITTEN),
            "copying": self.copying,
            "copied": self.order.count(CLEAN),
            "staging": self.staging.status(),
        })
    }
}
