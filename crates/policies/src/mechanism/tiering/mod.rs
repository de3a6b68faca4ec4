// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers with watermarks: full ones are drained, what is worth it moves up. Which segments those
//! are is a [`Choice`], in which the policies of this kind differ.

mod candidates;
mod demotion;
mod orders;
mod promotion;
pub(crate) mod settings;
mod state;

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use terrace_core::{
    ActionKind, Actions, Event, EventKind, Outcome, Parameter, Placer, Policy, Result, SegmentView,
    Slot, TierIndex, View,
};

use super::gate::{Demand, Gate};
use super::pace::{self, Drain, Turn};
use super::parameters::Chosen;
use super::place::On;
use super::roster::{Asked, Roster, Seen};
use super::saved::{self, Name, Names};
use super::staging::Staging;
use candidates::Candidates;
pub(crate) use orders::{Order, Ordered};
use settings::{Common, Tiered};
pub(crate) use state::State;

/// Segments that one round looks at on a tier to find some that can be demoted. What cannot is
/// taken out of its row until an event says that it can, so a long row of it costs only once.
pub(crate) const STEPS_MAX: usize = 4096;

/// In which order segments leave a tier, and which of them are worth a look on the way up.
///
/// Each tier has a row of the segments that may leave it, the first to leave first.
pub(crate) trait Choice: Send + 'static {
    /// The policy's name.
    const NAME: &'static str;

    /// Whether what follows in a row was used later, so that one that is not idle ends the search.
    const IS_BY_USE: bool;

    /// The policy's parameters.
    type Settings: Tiered;

    /// What is saved of the choice.
    type Saved: Serialize + DeserializeOwned;

    /// Takes over settings and tiers that may have changed. Called before each round's events and
    /// before each plan.
    fn adapt(&mut self, view: &View, settings: &Self::Settings);

    /// Takes in a segment that existed before the policy, the least recently used first.
    fn meet(&mut self, view: &View, settings: &Self::Settings, slot: Slot, segment: &SegmentView);

    /// Takes note of a create, open, read, write, new length, close or arrival on a tier; says
    /// whether the promotion of the segment is to be judged.
    fn observe(
        &mut self,
        view: &View,
        settings: &Self::Settings,
        event: &Event,
        segment: &SegmentView,
    ) -> bool;

    /// Puts a segment into its row, unless it is in it: what kept it out may be over.
    fn list(&mut self, view: &View, slot: Slot, segment: &SegmentView);

    /// A move of the segment has failed, and is not tried again for a while.
    fn postpone(&mut self, slot: Slot, segment: &SegmentView);

    /// Puts a segment that nothing below can take behind all others.
    fn put_last(&mut self, slot: Slot, segment: &SegmentView);

    /// Takes a segment out of its row.
    fn unlist(&mut self, slot: Slot);

    /// Forgets a segment that is gone.
    fn forget(&mut self, slot: Slot);

    /// The first of a tier's row.
    fn first(&self, tier: usize) -> Option<Slot>;

    /// The last of a tier's row.
    fn last(&self, tier: usize) -> Option<Slot>;

    /// The next in the row of a segment that is in one.
    fn after(&self, slot: Slot) -> Option<Slot>;

    /// Whether a segment is in its row.
    fn contains(&self, slot: Slot) -> bool;

    /// How many are in a tier's row.
    fn count(&self, tier: usize) -> usize;

    /// Sees to it that segments of so many bytes are in a tier's row, if there are.
    fn offer(&mut self, view: &View, tier: TierIndex, bytes: u64);

    /// What to expect of a segment.
    fn demand(&self, view: &View, settings: &Self::Settings, slot: Slot) -> Demand;

    /// Why this one leaves, for people; a clause.
    fn excuse(&self, view: &View, settings: &Self::Settings, slot: Slot) -> String;

    /// What is to be saved.
    fn save(&self, view: &View, roster: &Roster) -> Self::Saved;

    /// The segments that a saved choice names.
    fn names(saved: &Self::Saved) -> Vec<&Name>;

    /// Takes over what was saved, and [adopts](Roster::adopt) the segments in rows.
    fn restore(&mut self, view: &View, names: &Names<'_>, saved: &Self::Saved, roster: &mut Roster);
}

/// A policy with watermarks and promotions.
pub(crate) struct Tiering<C: Choice> {
    settings: Chosen<C::Settings>,
    choice: C,
    roster: Roster,
    gate: Gate,
    drain: Drain,
    staging: Staging,
    candidates: Candidates,
    /// Segments of which something is known beside the choice, for the next round.
    proposals: Vec<(Slot, Demand)>,
    /// Moves and copies that are wanted in the next round.
    orders: Vec<Order>,
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

impl<C: Choice> Tiering<C> {
    /// A policy that makes this choice.
    pub(crate) fn new(settings: Chosen<C::Settings>, choice: C, view: &View) -> Self {
        Self {
            settings,
            choice,
            roster: Roster::default(),
            gate: Gate::new(view.now_ns),
            drain: Drain::default(),
            staging: Staging::default(),
            candidates: Candidates::default(),
            proposals: Vec::new(),
            orders: Vec::new(),
            regrets: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The parameters as they are now.
    pub(crate) fn settings(&self) -> &C::Settings {
        &self.settings
    }

    pub(crate) fn choice_mut(&mut self) -> &mut C {
        &mut self.choice
    }

    /// The choice with the parameters.
    pub(crate) fn parts_mut(&mut self) -> (&mut C, &C::Settings) {
        (&mut self.choice, &self.settings)
    }

    pub(crate) fn staging(&self) -> &Staging {
        &self.staging
    }

    /// Has the promotion of these judged in the next round, with at least this demand.
    pub(crate) fn propose(&mut self, proposals: Vec<(Slot, Demand)>) {
        self.proposals = proposals;
    }

    /// Leases a segment where it is, unless it is leased already.
    pub(crate) fn hold(&mut self, slot: Slot, segment: &SegmentView, until_ns: u64) {
        if !self.staging.holds(slot) {
            self.staging.hold(slot, segment, until_ns);
        }
    }

    /// Ends the lease of a segment until this time, if it has one.
    pub(crate) fn let_go(&mut self, view: &View, slot: Slot, until_ns: u64) {
        if self.staging.ends_at(slot) == Some(until_ns) {
            self.staging.forget(slot);
            self.free(view, &[slot]);
        }
    }

    /// Puts other leases in the place of those that there are.
    pub(crate) fn set_staging(&mut self, view: &View, staging: Staging) {
        let before = std::mem::replace(&mut self.staging, staging);
        let ended: Vec<_> = before.slots().filter(|slot| !self.staging.holds(*slot)).collect();
        self.free(view, &ended);
    }

    fn common(&self) -> &Common {
        self.settings.common()
    }
}

impl<C: Choice> Policy for Tiering<C> {
    fn placer(&self) -> Arc<dyn Placer> {
        Arc::new(On(self.common().place))
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        self.choice.adapt(view, &self.settings);
        let rest_ns = self.common().rest_ns();
        let mut present = Vec::new();
        for event in events {
            self.gate.observe(event);
            let asked = self.roster.asked(event.slot);
            match self.roster.see(view, event, rest_ns) {
                Seen::Nothing => {}
                Seen::Gone => {
                    self.choice.forget(event.slot);
                    self.staging.forget(event.slot);
                }
                Seen::New(segment) => {
                    self.choice.forget(event.slot);
                    self.staging.meet(event.slot, event.incarnation);
                    match event.kind {
                        EventKind::Present => present.push(event.slot),
                        _ => self.note(view, event, segment, Asked::Nothing),
                    }
                }
                Seen::Known(segment) => self.note(view, event, segment, asked),
            }
        }
        // Shown in no order of use, so the one that the view still knows is restored.
        present.sort_by_key(|slot| (view.segments[*slot as usize].last_access_ns(), *slot));
        for slot in present {
            self.choice.meet(view, &self.settings, slot, &view.segments[slot as usize]);
        }
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        self.choice.adapt(view, &self.settings);
        self.gate.tick(view.now_ns);
        let expired = self.staging.expire(view.now_ns);
        self.free(view, &expired);

        self.cancel(view, actions);
        let mut turn = Turn::new(view, actions, self.common().max_bytes);
        let coming_bytes = self.staging.plan(&mut turn, &mut self.roster);
        for (tier, coming_bytes) in coming_bytes.into_iter().enumerate() {
            self.drain(&mut turn, TierIndex(tier as u8), coming_bytes);
        }
        self.carry_out(&mut turn);
        self.promote(&mut turn);
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
        self.settings.set(name, value)
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        saved::write(&self.to_state(view), out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        let state = saved::read(self.state_version(), version, state)?;
        self.take_over(view, &state);
        Ok(())
    }
}

impl<C: Choice> Tiering<C> {
    fn note(&mut self, view: &View, event: &Event, segment: &SegmentView, asked: Asked) {
        let slot = event.slot;
        match event.kind {
            EventKind::Create
            | EventKind::Open
            | EventKind::Close
            | EventKind::Read
            | EventKind::Write
            | EventKind::SetLen
            | EventKind::Moved => {
                let is_use =
                    matches!(event.kind, EventKind::Open | EventKind::Read | EventKind::Write);
                if is_use {
                    self.regret(slot, asked);
                }
                let is_wanted = self.choice.observe(view, &self.settings, event, segment);
                if is_wanted && segment.tier > TierIndex(0) {
                    self.candidates.add(slot);
                }
            }
            // Whatever kept it out of its row may be over now; and one whose move failed goes
            // behind all others.
            EventKind::Receipt | EventKind::Unpin => {
                self.staging.observe(event, asked);
                match event.kind == EventKind::Receipt && event.outcome != Outcome::Done {
                    true => self.choice.postpone(slot, segment),
                    false => self.choice.list(view, slot, segment),
                }
            }
            EventKind::Present
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

    fn regret(&mut self, slot: Slot, asked: Asked) {
        if asked == Asked::Demotion && self.common().is_gated && self.regrets.len() < STEPS_MAX {
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

    /// Whether the segment moved, or failed to, too short a time ago.
    fn is_left_alone(&self, slot: Slot, now_ns: u64) -> bool {
        self.roster.is_resting(slot, now_ns) || self.roster.has_failed(slot, now_ns)
    }

    /// Puts segments back into their rows whose leases have ended.
    fn free(&mut self, view: &View, slots: &[Slot]) {
        for slot in slots {
            if let Some(segment) = self.roster.segment(view, *slot) {
                self.choice.list(view, *slot, segment);
            }
        }
    }

    /// The reply to `status`.
    pub(crate) fn status(&self, view: &View) -> serde_json::Value {
        let tiers = view.tiers.iter().enumerate().map(|(index, tier)| {
            json!({ "tier": tier.name, "demotable": self.choice.count(index), "fill": tier.fill() })
        });
        json!({
            "policy": C::NAME,
            "gate": if self.common().is_gated { "on" } else { "off" },
            "tiers": tiers.collect::<Vec<_>>(),
            "demotions": self.counts.demotions,
            "promotions": self.counts.promotions,
            "promotions_refused": self.counts.refused,
            "cancelled": self.counts.cancelled,
            "staging": self.staging.status(),
        })
    }
}
