// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything is written to the fast tier and copied down in the background, in the order in which
//! it was written; what has a copy leaves when room is wanted, which moves nothing.

mod allowance;
pub(crate) mod settings;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::json;
use terrace_core::{
    ActionKind, Actions, Event, EventKind, Parameter, Placer, Policy, Result, SegmentView, Slot,
    TierIndex, TierSet, View, units,
};

use crate::mechanism::order::Order;
use crate::mechanism::pace::{self, Below, Drain, Fits, Turn};
use crate::mechanism::parameters::Chosen;
use crate::mechanism::place::{self, On};
use crate::mechanism::roster::{Asked, Roster, Seen};
use crate::mechanism::saved;
use crate::mechanism::staging::Staging;
use allowance::Allowance;
use settings::{ElevatorSettings, Lift, Lifted};

pub(crate) use state::State;

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
    Ok(Box::new(Elevator::new(settings, view)))
}

/// Gathers what is written and copies it down.
pub(crate) struct Elevator<S> {
    settings: Chosen<S>,
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

/// A segment that is to come up.
pub(crate) struct Comer {
    pub(crate) slot: Slot,
    /// Usual time between two uses: what was used a shorter time ago does not make room for it.
    pub(crate) pause_ns: u64,
    pub(crate) reason: String,
}

impl<S: Lifted> Policy for Elevator<S> {
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
        self.plan_round(view, actions, TierSet(u32::MAX), Vec::new());
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
        let buffer = self.lift().buffer;
        self.settings.set(name, value)?;
        if self.lift().buffer != buffer {
            self.placed = self.lift().buffer;
        }
        Ok(())
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        saved::write(&self.to_state(view), out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        let state: State = saved::read(self.state_version(), version, state)?;
        self.take_over(view, &state);
        Ok(())
    }
}

impl<S: Lifted> Elevator<S> {
    pub(crate) fn new(settings: Chosen<S>, view: &View) -> Self {
        Self {
            placed: settings.lift().buffer,
            settings,
            order: Order::default(),
            roster: Roster::default(),
            drain: Drain::default(),
            staging: Staging::default(),
            allowance: Allowance::new(view.now_ns),
            copying: 0,
            regrets: Vec::new(),
        }
    }

    /// The parameters as they are now.
    pub(crate) fn settings(&self) -> &S {
        &self.settings
    }

    fn lift(&self) -> &Lift {
        self.settings.lift()
    }

    /// Plans a round in which only these tiers get copies, and `comers` are brought up, the first
    /// first. Returns those for which room is being made.
    pub(crate) fn plan_round(
        &mut self,
        view: &View,
        actions: &mut Actions,
        may_copy_to: TierSet,
        comers: Vec<Comer>,
    ) -> Vec<Slot> {
        let expired = self.staging.expire(view.now_ns);
        self.free(view, &expired);

        self.cancel(view, actions);
        let Lift { buffer, levels, max_bytes, .. } = *self.lift();
        let mut turn = Turn::new(view, actions, max_bytes);
        let coming_bytes = self.staging.plan(&mut turn, &mut self.roster);
        self.make_room(&mut turn, coming_bytes[buffer.index()]);
        let waiting = comers.iter().filter(|comer| !self.bring_up(&mut turn, comer));
        let waiting = waiting.map(|comer| comer.slot).collect();
        self.copy_down(&mut turn, may_copy_to);
        self.placed = place::buffer_or_below(view, buffer, &levels);
        waiting
    }

    /// Bytes that wait to be copied and are not written any more; of many segments only those that
    /// were written first.
    pub(crate) fn due_bytes(&self, view: &View) -> u64 {
        let oldest = self.order.oldest(WRITTEN);
        let written = std::iter::successors(oldest, |slot| self.order.newer(*slot));
        let segments = written.take(STEPS_MAX).filter_map(|slot| self.roster.segment(view, slot));
        let is_due = |segment: &&SegmentView| {
            view.now_ns.saturating_sub(pace::last_write_ns(segment)) >= self.lift().idle_ns
        };
        segments.filter(is_due).map(|segment| segment.size_bytes).sum()
    }

    pub(crate) fn roster(&self) -> &Roster {
        &self.roster
    }

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
            | EventKind::Pin
            | EventKind::Stat
            | EventKind::Sync => {}
        }
    }

    /// Makes the segment the last one of its list; takes it out if it is not in the buffer.
    fn enlist(&mut self, slot: Slot, segment: &SegmentView) {
        match segment.tier == self.lift().buffer {
            true => self.order.touch(self.list_of(segment), slot),
            false => self.order.unlink(slot),
        }
    }

    /// Puts back a segment that could not be moved before.
    fn enlist_again(&mut self, slot: Slot, segment: &SegmentView) {
        if segment.tier != self.lift().buffer || !self.order.contains(slot) {
            self.enlist(slot, segment);
        }
    }

    fn list_of(&self, segment: &SegmentView) -> usize {
        if self.is_clean(segment) { CLEAN } else { WRITTEN }
    }

    /// Whether a tier below the buffer has a copy.
    fn is_clean(&self, segment: &SegmentView) -> bool {
        let below = segment.copies.0.checked_shr(u32::from(self.lift().buffer.0) + 1);
        below.is_some_and(|tiers| tiers != 0)
    }

    /// Whether nothing keeps the segment from being moved or copied.
    fn is_movable(&self, slot: Slot, segment: &SegmentView) -> bool {
        segment.tier == self.lift().buffer
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
        let Lift { buffer, levels, .. } = *self.lift();
        let mut excess_bytes = self.drain.excess_bytes(turn, buffer, &levels, coming_bytes, false);
        let source = &turn.view.tiers[buffer.index()];
        let full = format!("{} is {:.0} % full", source.name, source.fill() * 100.0);
        for (list, which) in [(CLEAN, "this has a copy below"), (WRITTEN, "this was written first")]
        {
            let why = format!("{full}, and {which}");
            excess_bytes = self.leave(turn, list, excess_bytes, 0, &why);
        }
    }

    /// Lets the first closed segments of a list leave the buffer that were not used for `idle_ns`,
    /// until `excess_bytes` do; returns how many do not.
    fn leave(
        &mut self,
        turn: &mut Turn<'_>,
        list: usize,
        mut excess_bytes: u64,
        idle_ns: u64,
        why: &str,
    ) -> u64 {
        let mut next = self.order.oldest(list);
        for _ in 0..STEPS_MAX {
            let Some(slot) = next.filter(|_| excess_bytes > 0) else { break };
            next = self.order.newer(slot);
            let Some(segment) = self.listed(turn.view, slot) else { continue };
            // Copying does not mind that it is open.
            if segment.opens > 0
                || self.roster.has_failed(slot, turn.view.now_ns)
                || pace::idle_ns(turn.view, segment) < idle_ns
            {
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
            let action = pace::action(slot, segment, ActionKind::Move { to }, why.into());
            if !turn.ask(segment, action, to, bytes) {
                break;
            }
            self.order.unlink(slot);
            self.roster.ask(slot, Asked::Demotion);
            excess_bytes = excess_bytes.saturating_sub(segment.size_bytes);
        }
        excess_bytes
    }

    /// Brings up a segment, if room is left or made by what has a copy and was not used for its
    /// pause. False says that it may be tried again in the next round.
    fn bring_up(&mut self, turn: &mut Turn<'_>, comer: &Comer) -> bool {
        let (view, slot) = (turn.view, comer.slot);
        let Lift { buffer, levels, .. } = *self.lift();
        let able = self.roster.segment(view, slot).filter(|segment| {
            segment.tier > buffer
                && pace::can_take(view, buffer, segment)
                && self.roster.is_free(slot, segment)
                && !self.staging.holds(slot)
                && !self.roster.has_failed(slot, view.now_ns)
        });
        let Some(segment) = able else { return true };
        let target = &view.tiers[buffer.index()];
        let after_bytes =
            pace::committed_bytes(target) + turn.coming_bytes(buffer) + segment.size_bytes;
        let missing_bytes = after_bytes
            .saturating_sub(turn.leaving_bytes(buffer))
            .saturating_sub(levels.high_bytes(target));
        if missing_bytes > 0 {
            let why = format!("{} has to take {}", target.name, segment.key);
            return self.leave(turn, CLEAN, missing_bytes, comer.pause_ns, &why) > 0;
        }
        let bytes = if segment.copies.contains(buffer) { 0 } else { segment.size_bytes };
        if !turn.room.has(buffer, bytes) {
            return true;
        }
        match turn.fits(bytes, 1.0) {
            Fits::Yes => {}
            Fits::Later => return false,
            Fits::Never => return true,
        }
        let kind = ActionKind::Promote { to: buffer };
        let action = pace::action(slot, segment, kind, comer.reason.clone());
        if turn.ask(segment, action, buffer, bytes) {
            self.roster.ask(slot, Asked::Promotion);
        }
        true
    }

    /// Copies what was written first, at a share of the speed that applications leave.
    fn copy_down(&mut self, turn: &mut Turn<'_>, may_copy_to: TierSet) {
        let view = turn.view;
        let buffer = self.lift().buffer;
        let Some(below) = view.tiers.get(buffer.below().index()) else { return };
        let source = &view.tiers[buffer.index()];
        let Lift { share, max_bytes, busy, .. } = *self.lift();
        self.allowance.earn(view.now_ns, source, below, share, max_bytes);
        if share == 0.0
            || may_copy_to.is_empty()
            || pace::is_busy(source, busy)
            || pace::is_busy(below, busy)
        {
            return;
        }
        let mut next = self.order.oldest(WRITTEN);
        for _ in 0..STEPS_MAX {
            let may_begin = self.copying < self.lift().streams && self.allowance.is_open();
            let Some(slot) = next.filter(|_| may_begin) else { return };
            next = self.order.newer(slot);
            let Some(segment) = self.listed(view, slot) else { continue };
            let written_ns = view.now_ns.saturating_sub(pace::last_write_ns(segment));
            // All that follow were written later, or a move of them failed.
            if written_ns < self.lift().idle_ns {
                return;
            }
            if self.roster.has_failed(slot, view.now_ns) {
                continue;
            }
            let (to, bytes) = match turn.room.below(view, segment) {
                Below::To(to, bytes) if may_copy_to.contains(to) => (to, bytes),
                Below::To(..) | Below::Never => continue,
                Below::Full => return,
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

    /// The reply to `status`.
    pub(crate) fn status(&self, view: &View) -> serde_json::Value {
        let name = |tier: TierIndex| &view.tiers[tier.index()].name;
        json!({
            "policy": S::NAME,
            "buffer": name(self.lift().buffer),
            "placing_on": name(self.placed),
            "to_copy": self.order.count(WRITTEN),
            "copying": self.copying,
            "copied": self.order.count(CLEAN),
            "staging": self.staging.status(),
        })
    }
}
