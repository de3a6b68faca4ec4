// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Demotes what was not used for longest when a tier is full; promotes what is used again.

mod candidates;
mod promotion;
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

use crate::mechanism::gate::Gate;
use crate::mechanism::habits::Habits;
use crate::mechanism::order::Order;
use crate::mechanism::pace::{self, Below, Drain, Fits, Turn};
use crate::mechanism::parameters::Chosen;
use crate::mechanism::place::On;
use crate::mechanism::roster::{Asked, Roster, Seen};
use crate::mechanism::saved::{self, Name, Names};
use crate::mechanism::staging::{SavedLease, Staging};
use candidates::Candidates;
use settings::LruSettings;

/// Segments that one round looks at on a tier to find some that can be demoted. What cannot is
/// taken out of the order until an event says that it can, so a long row of it costs only once.
const STEPS_MAX: usize = 4096;

/// Segments of a tier whose order is saved, newest first; the rest counts as older.
const SAVED_MAX: usize = 100_000;

/// Makes the policy; `docs/policies/lru.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    Ok(Box::new(Lru {
        settings: Chosen::new(LruSettings::default(), view, parameters)?,
        order: Order::default(),
        roster: Roster::default(),
        habits: Habits::default(),
        gate: Gate::new(view.now_ns),
        drain: Drain::default(),
        staging: Staging::default(),
        candidates: Candidates::default(),
        regrets: Vec::new(),
        counts: Counts::default(),
    }))
}

struct Lru {
    settings: Chosen<LruSettings>,
    /// One list a tier: the segments that may be demoted from it.
    order: Order,
    roster: Roster,
    habits: Habits,
    gate: Gate,
    drain: Drain,
    staging: Staging,
    candidates: Candidates,
    /// Segments that were used after their demotion was asked for.
    regrets: Vec<Slot>,
    counts: Counts,
}

/// What was asked for since the policy started.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    demotions: u64,
    promotions: u64,
    /// Promotions that the gate refused.
    refused: u64,
    cancelled: u64,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// Tier names with their segments, newest first.
    tiers: Vec<(String, Vec<Name>)>,
    leases: Vec<SavedLease>,
}

impl Policy for Lru {
    fn placer(&self) -> Arc<dyn Placer> {
        Arc::new(On(self.settings.place))
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        let mut present = Vec::new();
        for event in events {
            self.gate.observe(event);
            let asked = self.roster.asked(event.slot);
            match self.roster.see(view, event, self.settings.rest_ns()) {
                Seen::Nothing => {}
                Seen::Gone => {
                    self.forget(event.slot);
                    self.staging.forget(event.slot);
                }
                Seen::New(segment) => {
                    self.forget(event.slot);
                    self.staging.meet(event.slot, event.incarnation);
                    match event.kind {
                        EventKind::Present => present.push(event.slot),
                        _ => self.note(event, segment, Asked::Nothing),
                    }
                }
                Seen::Known(segment) => self.note(event, segment, asked),
            }
        }
        // Shown in no order of use, so the one that the view still knows is restored.
        present.sort_by_key(|slot| (view.segments[*slot as usize].last_access_ns(), *slot));
        for slot in present {
            self.order.touch(view.segments[slot as usize].tier.index(), slot);
        }
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        self.gate.tick(view.now_ns);
        let expired = self.staging.expire(view.now_ns);
        self.free(view, &expired);

        self.cancel(view, actions);
        let mut turn = Turn::new(view, actions, self.settings.max_bytes);
        let coming_bytes = self.staging.plan(&mut turn, &mut self.roster);
        for (tier, coming_bytes) in coming_bytes.into_iter().enumerate() {
            self.drain(&mut turn, TierIndex(tier as u8), coming_bytes);
        }
        self.promote(&mut turn);
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        let reply = match kind {
            "stage" => self.staging.stage(view, body)?,
            "release" => {
                let (reply, released) = self.staging.release(view, body)?;
                self.free(view, &released);
                reply
            }
            "status" => self.status(view),
            _ => return Err(saved::unknown_message(kind, "stage, release, status")),
        };
        Ok(saved::reply(&reply))
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.settings.list()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.settings.set(name, value)
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        let newest_first = |tier: usize| {
            let slots = std::iter::successors(self.order.newest(tier), |at| self.order.older(*at));
            slots
                .take(SAVED_MAX)
                .filter_map(|slot| self.roster.segment(view, slot))
                .map(Name::of)
                .collect()
        };
        let tiers = view.tiers.iter().enumerate();
        let state = State {
            tiers: tiers.map(|(index, tier)| (tier.name.clone(), newest_first(index))).collect(),
            leases: self.staging.save(view),
        };
        saved::write(&state, out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        let state: State = saved::read(self.state_version(), version, state)?;
        let leased = state.leases.iter().map(SavedLease::name);
        let names = Names::new(view, state.tiers.iter().flat_map(|(_, names)| names).chain(leased));
        for (_, newest_first) in &state.tiers {
            for slot in newest_first.iter().rev().filter_map(|name| names.slot(name)) {
                self.roster.adopt(view, slot);
                self.order.touch(view.segments[slot as usize].tier.index(), slot);
            }
        }
        self.staging.restore(view, &names, &state.leases);
        Ok(())
    }
}

impl Lru {
    fn note(&mut self, event: &Event, segment: &SegmentView, asked: Asked) {
        let (slot, tier) = (event.slot, segment.tier.index());
        match event.kind {
            EventKind::Read | EventKind::Write => {
                self.order.touch(tier, slot);
                self.regret(slot, asked);
                let horizon_ns = self.settings.terms.horizon_ns;
                let accesses = self.habits.access(event, segment.size_bytes, horizon_ns);
                if accesses >= 2 && tier > 0 {
                    self.candidates.add(slot);
                }
            }
            EventKind::Open => {
                self.order.touch(tier, slot);
                self.regret(slot, asked);
            }
            EventKind::Create | EventKind::Close | EventKind::SetLen | EventKind::Moved => {
                self.order.touch(tier, slot);
            }
            // Whatever kept it out of the order may be over now; and one whose move failed goes
            // behind all others.
            EventKind::Receipt | EventKind::Unpin => {
                self.staging.observe(event, asked);
                let is_refused = event.kind == EventKind::Receipt && event.outcome != Outcome::Done;
                if is_refused || !self.order.contains(slot) {
                    self.order.touch(tier, slot);
                }
            }
            EventKind::Present
            | EventKind::Delete
            | EventKind::Queued
            | EventKind::Copied
            | EventKind::Uncopied
            | EventKind::Timer
            | EventKind::Pin => {}
        }
    }

    fn regret(&mut self, slot: Slot, asked: Asked) {
        if asked == Asked::Demotion && self.settings.is_gated && self.regrets.len() < STEPS_MAX {
            self.regrets.push(slot);
        }
    }

    fn cancel(&mut self, view: &View, actions: &mut Actions) {
        for slot in std::mem::take(&mut self.regrets) {
            let Some(segment) = self.roster.segment(view, slot) else { continue };
            if self.roster.asked(slot) != Asked::Demotion {
                continue;
            }
            let reason = "used again while its demotion waited".into();
            if !actions.push(pace::action(slot, segment, ActionKind::Cancel, reason), 0) {
                break;
            }
            self.roster.ask(slot, Asked::Cancel);
            self.counts.cancelled += 1;
        }
    }

    /// Brings a tier that was above high down to low.
    fn drain(&mut self, turn: &mut Turn<'_>, tier: TierIndex, coming_bytes: u64) {
        let view = turn.view;
        let source = &view.tiers[tier.index()];
        let is_busy = self.settings.is_gated && pace::is_busy(source, self.settings.busy);
        let levels = &self.settings.levels;
        let excess_bytes = self.drain.excess_bytes(turn, tier, levels, coming_bytes, is_busy);
        if excess_bytes > 0 {
            let why = format!("{} is {:.0} % full", source.name, source.fill() * 100.0);
            self.demote(turn, tier, excess_bytes, &why);
        }
    }

    /// Asks for demotions of what was not used for longest, until `excess_bytes` leave the tier.
    /// Fewer do where no more can leave now.
    fn demote(&mut self, turn: &mut Turn<'_>, tier: TierIndex, mut excess_bytes: u64, why: &str) {
        let view = turn.view;
        let newest = self.order.newest(tier.index());
        let mut next = self.order.oldest(tier.index());
        for _ in 0..STEPS_MAX {
            let Some(slot) = next.filter(|_| excess_bytes > 0) else { return };
            // Some go to the other end of the list on the way, and are not looked at twice.
            next = self.order.newer(slot).filter(|_| Some(slot) != newest);
            let Some(segment) = self.roster.segment(view, slot).filter(|it| it.tier == tier) else {
                self.order.unlink(slot);
                continue;
            };
            // A close, a receipt, a release, an unpin or a write brings these back.
            let is_held = segment.opens > 0
                || segment.size_bytes == 0
                || self.staging.holds(slot)
                || !self.roster.is_free(slot, segment);
            if is_held {
                self.order.unlink(slot);
                continue;
            }
            let used_ns = segment.last_access_ns().max(segment.last_close_ns);
            let idle_ns = view.now_ns.saturating_sub(used_ns);
            // All that follow were used later.
            if idle_ns < self.settings.idle_ns {
                return;
            }
            if self.is_left_alone(slot, view.now_ns) {
                continue;
            }
            let (to, bytes) = match turn.room.below(view, segment) {
                Below::To(to, bytes) => (to, bytes),
                Below::Full => return,
                Below::Never => {
                    self.order.touch(tier.index(), slot);
                    continue;
                }
            };
            match turn.fits(bytes, 1.0) {
                Fits::Yes => {}
                Fits::Later => return,
                Fits::Never => {
                    self.order.touch(tier.index(), slot);
                    continue;
                }
            }
            let reason = format!("{why}, and this was not used for {}", units::show_ns(idle_ns));
            let action = pace::action(slot, segment, ActionKind::Move { to }, reason);
            if !turn.ask(segment, action, to, bytes) {
                return;
            }
            self.order.unlink(slot);
            self.roster.ask(slot, Asked::Demotion);
            self.counts.demotions += 1;
            excess_bytes = excess_bytes.saturating_sub(segment.size_bytes);
        }
    }

    /// Whether the segment moved, or failed to, too short a time ago.
    fn is_left_alone(&self, slot: Slot, now_ns: u64) -> bool {
        self.roster.is_resting(slot, now_ns) || self.roster.has_failed(slot, now_ns)
    }

    /// Puts segments back into the order whose leases have ended.
    fn free(&mut self, view: &View, slots: &[Slot]) {
        for slot in slots {
            if let Some(segment) = self.roster.segment(view, *slot) {
                self.order.touch(segment.tier.index(), *slot);
            }
        }
    }

    fn forget(&mut self, slot: Slot) {
        self.order.unlink(slot);
        self.habits.forget(slot);
    }

    fn status(&self, view: &View) -> serde_json::Value {
        let tiers = view.tiers.iter().enumerate().map(|(index, tier)| {
            json!({ "tier": tier.name, "demotable": self.order.count(index), "fill": tier.fill() })
        });
        json!({
            "policy": "lru",
            "gate": if self.settings.is_gated { "on" } else { "off" },
            "tiers": tiers.collect::<Vec<_>>(),
            "demotions": self.counts.demotions,
            "promotions": self.counts.promotions,
            "promotions_refused": self.counts.refused,
            "cancelled": self.counts.cancelled,
            "staging": self.staging.status(),
        })
    }
}
