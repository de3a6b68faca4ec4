// SPDX-License-Identifier: Apache-2.0 OR MIT
//! New objects on the fast tier, demoted some time after their last write.

mod classes;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use terrace_core::{
    ActionKind, Actions, Event, EventKind, Outcome, Parameter, Placer, Policy, Result, SegmentView,
    Slot, TierIndex, View, units,
};

use crate::mechanism::order::Order;
use crate::mechanism::pace::{self, Below, Drain, Fits, Turn};
use crate::mechanism::parameters::Chosen;
use crate::mechanism::place::{self, On};
use crate::mechanism::roster::{Asked, Roster, Seen};
use crate::mechanism::saved::{self, Names};
use crate::mechanism::staging::{SavedLease, Staging};
use classes::{ClassIndex, Classes, SavedClass};
use settings::WriteBufferSettings;

/// Segments that one round looks at in one list.
const STEPS_MAX: usize = 4096;

/// Makes the policy; `docs/policies/write-buffer.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(WriteBufferSettings::default(), view, parameters)?;
    Ok(Box::new(WriteBuffer {
        placed: settings.buffer,
        settings,
        classes: Classes::default(),
        written: Vec::new(),
        by_class: Order::default(),
        by_age: Order::default(),
        roster: Roster::default(),
        drain: Drain::default(),
        staging: Staging::default(),
        regrets: Vec::new(),
    }))
}

struct WriteBuffer {
    settings: Chosen<WriteBufferSettings>,
    /// Where new segments go now.
    placed: TierIndex,
    classes: Classes,
    /// By slot.
    written: Vec<Written>,
    /// One list a class: the segments in the buffer by their last write. In a class the timeout
    /// is one for all, so the oldest is due first.
    by_class: Order,
    /// One list: the closed segments in the buffer by their last write.
    by_age: Order,
    roster: Roster,
    drain: Drain,
    staging: Staging,
    /// Segments that were written after their demotion was asked for.
    regrets: Vec<Slot>,
}

/// What is known of a segment beside the view.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    class: ClassIndex,
    /// The last write that its class has learned from.
    learned_ns: u64,
}

/// Why segments leave the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Nothing was written for so many nanoseconds.
    Timeout(u64),
    /// The buffer is full.
    Pressure,
}

#[derive(Serialize, Deserialize)]
struct State {
    classes: Vec<SavedClass>,
    leases: Vec<SavedLease>,
}

impl Policy for WriteBuffer {
    fn placer(&self) -> Arc<dyn Placer> {
        Arc::new(On(self.placed))
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        let mut present = Vec::new();
        for event in events {
            let asked = self.roster.asked(event.slot);
            match self.roster.see(view, event, 0) {
                Seen::Nothing => {}
                Seen::Gone => {
                    self.unlist(event.slot);
                    self.staging.forget(event.slot);
                }
                Seen::New(segment) => {
                    self.unlist(event.slot);
                    self.staging.meet(event.slot, event.incarnation);
                    self.meet(event.slot, segment);
                    match event.kind {
                        EventKind::Present => present.push(event.slot),
                        _ => self.note(view, event, segment, Asked::Nothing),
                    }
                }
                Seen::Known(segment) => self.note(view, event, segment, asked),
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
        self.demote_due(&mut turn);
        self.demote_oldest(&mut turn, coming_bytes[self.settings.buffer.index()]);
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
        self.settings.set(name, value)?;
        self.placed = self.settings.buffer;
        Ok(())
    }

    fn state_version(&self) -> u32 {
        1
    }

    /// Writes what was learned and the leases. Which segment was written when is in the view.
    fn save(&self, view: &View, out: &mut Vec<u8>) {
        let state = State { classes: self.classes.save(), leases: self.staging.save(view) };
        saved::write(&state, out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        let state: State = saved::read(self.state_version(), version, state)?;
        self.classes.restore(&state.classes, view.now_ns);
        let names = Names::new(view, state.leases.iter().map(SavedLease::name));
        self.staging.restore(view, &names, &state.leases, 0);
        Ok(())
    }
}

impl WriteBuffer {
    fn note(&mut self, view: &View, event: &Event, segment: &SegmentView, asked: Asked) {
        let slot = event.slot;
        match event.kind {
            EventKind::Write | EventKind::SetLen => {
                self.enlist(slot, segment);
                if asked == Asked::Demotion && self.regrets.len() < STEPS_MAX {
                    self.regrets.push(slot);
                }
            }
            EventKind::Create | EventKind::Moved => self.enlist(slot, segment),
            EventKind::Close => {
                self.learn(view, slot, segment);
                self.enlist_again(slot, segment);
            }
            EventKind::Receipt => {
                self.staging.observe(event, asked);
                // One whose move failed goes behind all others.
                match event.outcome {
                    Outcome::Done => self.enlist_again(slot, segment),
                    _ => self.enlist(slot, segment),
                }
            }
            EventKind::Unpin => self.enlist_again(slot, segment),
            EventKind::Present
            | EventKind::Open
            | EventKind::Read
            | EventKind::Delete
            | EventKind::Queued
            | EventKind::Copied
            | EventKind::Uncopied
            | EventKind::Timer
            | EventKind::Pin
            | EventKind::Stat
            | EventKind::Sync => {}
        }
    }

    fn meet(&mut self, slot: Slot, segment: &SegmentView) {
        let index = slot as usize;
        if index >= self.written.len() {
            self.written.resize(index + 1, Written::default());
        }
        let class = self.classes.find(&self.settings.classes, &segment.key);
        self.written[index] = Written { class, learned_ns: 0 };
    }

    /// Makes the segment the last written one of the buffer; takes it out if it is elsewhere.
    fn enlist(&mut self, slot: Slot, segment: &SegmentView) {
        if segment.tier == self.settings.buffer {
            self.by_class.touch(self.written[slot as usize].class, slot);
            self.by_age.touch(0, slot);
        } else {
            self.unlist(slot);
        }
    }

    /// Puts back a segment that could not be moved before.
    fn enlist_again(&mut self, slot: Slot, segment: &SegmentView) {
        if segment.tier != self.settings.buffer {
            self.unlist(slot);
            return;
        }
        if !self.by_class.contains(slot) {
            self.by_class.touch(self.written[slot as usize].class, slot);
        }
        if !self.by_age.contains(slot) {
            self.by_age.touch(0, slot);
        }
    }

    fn unlist(&mut self, slot: Slot) {
        self.by_class.unlink(slot);
        self.by_age.unlink(slot);
    }

    /// A closed segment tells its class how long it was written to; one that is opened and
    /// written again tells it again.
    fn learn(&mut self, view: &View, slot: Slot, segment: &SegmentView) {
        let written = &mut self.written[slot as usize];
        let is_news = segment.last_write_ns > written.learned_ns;
        if segment.opens == 0 && is_news && segment.last_write_ns >= segment.created_ns {
            written.learned_ns = segment.last_write_ns;
            let sample_ns = segment.last_write_ns - segment.created_ns;
            self.classes.get_mut(written.class).learn(sample_ns, view.now_ns);
        }
    }

    fn timeout_ns(&self, class: ClassIndex) -> u64 {
        let deduced_ns = || self.classes.get(class).deduced().map(|deduced| deduced.timeout_ns);
        self.settings.timeout_ns.or_else(deduced_ns).unwrap_or(self.settings.default_timeout_ns)
    }

    fn cancel(&mut self, view: &View, actions: &mut Actions) {
        for slot in std::mem::take(&mut self.regrets) {
            let Some(segment) = self.roster.segment(view, slot) else { continue };
            if self.roster.asked(slot) != Asked::Demotion {
                continue;
            }
            let reason = "written again while its demotion waited".into();
            if !actions.push(pace::action(slot, segment, ActionKind::Cancel, reason), 0) {
                break;
            }
            self.roster.ask(slot, Asked::Cancel);
        }
    }

    /// Asks for the demotion of all whose timeout is over.
    fn demote_due(&mut self, turn: &mut Turn<'_>) {
        let view = turn.view;
        for class in 0..self.classes.count() {
            let timeout_ns = self.timeout_ns(class);
            let mut next = self.by_class.oldest(class);
            for _ in 0..STEPS_MAX {
                let Some(slot) = next else { break };
                next = self.by_class.newer(slot);
                let Some(segment) = self.movable(view, slot) else {
                    self.unlist(slot);
                    continue;
                };
                // All that follow were written later.
                if view.now_ns.saturating_sub(pace::last_write_ns(segment)) < timeout_ns {
                    break;
                }
                let cause = Cause::Timeout(timeout_ns);
                if !self.demote(turn, slot, segment, cause) {
                    return;
                }
            }
        }
    }

    /// Makes room in a full buffer: closed segments, oldest write first.
    fn demote_oldest(&mut self, turn: &mut Turn<'_>, coming_bytes: u64) {
        let (view, buffer) = (turn.view, self.settings.buffer);
        let mut excess_bytes =
            self.drain.excess_bytes(turn, buffer, &self.settings.levels, coming_bytes, false);
        let mut next = self.by_age.oldest(0);
        for _ in 0..STEPS_MAX {
            let Some(slot) = next.filter(|_| excess_bytes > 0) else { return };
            next = self.by_age.newer(slot);
            match self.movable(view, slot) {
                None => self.unlist(slot),
                // Back with its close.
                Some(segment) if segment.opens > 0 => self.by_age.unlink(slot),
                Some(segment) => {
                    let cause = Cause::Pressure;
                    if !self.demote(turn, slot, segment, cause) {
                        return;
                    }
                    excess_bytes = excess_bytes.saturating_sub(segment.size_bytes);
                }
            }
        }
    }

    /// The segment, unless it has to wait for an event that puts it into the lists again.
    fn movable<'a>(&self, view: &'a View, slot: Slot) -> Option<&'a SegmentView> {
        self.roster
            .segment(view, slot)
            .filter(|segment| segment.tier == self.settings.buffer)
            .filter(|segment| self.roster.is_free(slot, segment) && !self.staging.holds(slot))
    }

    /// Asks for a demotion, if the segment can be moved now; false says that the round is over.
    fn demote(
        &mut self,
        turn: &mut Turn<'_>,
        slot: Slot,
        segment: &SegmentView,
        cause: Cause,
    ) -> bool {
        let view = turn.view;
        if self.roster.has_failed(slot, view.now_ns) {
            return true;
        }
        let (to, bytes) = match turn.room.below(view, segment) {
            Below::To(to, bytes) => (to, bytes),
            Below::Full => return false,
            // Looked at again after its next write, close or receipt.
            Below::Never => {
                self.unlist(slot);
                return true;
            }
        };
        let source = &view.tiers[segment.tier.index()];
        let share = match cause {
            Cause::Timeout(_) => pace::quiet_share(source, &view.tiers[to.index()]),
            // Applications would have to write through.
            Cause::Pressure => 1.0,
        };
        match turn.fits(bytes, share) {
            Fits::Yes => {}
            Fits::Later => return false,
            Fits::Never => {
                self.unlist(slot);
                return true;
            }
        }
        let reason = match cause {
            Cause::Timeout(timeout_ns) => {
                format!("nothing was written for {}", units::show_ns(timeout_ns))
            }
            Cause::Pressure => {
                format!("{} is {:.0} % full, oldest first", source.name, source.fill() * 100.0)
            }
        };
        let action = pace::action(slot, segment, ActionKind::Move { to }, reason);
        if !turn.ask(segment, action, to, bytes) {
            return false;
        }
        self.unlist(slot);
        self.roster.ask(slot, Asked::Demotion);
        true
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
        let classes = self.classes.iter().enumerate().map(|(index, class)| {
            let deduced = class.deduced();
            json!({
                "class": class.name,
                "samples": class.sample_count(),
                "timeout_ns": self.timeout_ns(index),
                "deduced_ns": deduced.map(|deduced| deduced.timeout_ns),
                "since_ns": deduced.map(|deduced| deduced.since_ns),
                "buffered": self.by_class.count(index),
            })
        });
        let name = |tier: TierIndex| &view.tiers[tier.index()].name;
        json!({
            "policy": "write-buffer",
            "buffer": name(self.settings.buffer),
            "placing_on": name(self.placed),
            "timeout": if self.settings.timeout_ns.is_some() { "fixed" } else { "deduced" },
            "classes": classes.collect::<Vec<_>>(),
            "staging": self.staging.status(),
        })
    }
}
