// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy in virtual time: what it is shown, when it is asked, and what it answers.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use terrace_core::{
    Action, ActionKind, Actions, Event, EventKind, Interest, Placer, Policy, SLOT_NONE, TierIndex,
    TierView, View,
};
use terrace_policies::calls::Call;

use super::store::{INCARNATION, Told};
use super::watchdog::Watch;

/// Actions of one round at most; the same as in a store.
const ACTIONS_MAX: usize = 100_000;

/// When and how a policy is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// After so many events, …
    pub(super) after_events: u64,
    /// … and this often.
    pub(super) every_ns: u64,
    /// Bytes that one round may ask to move.
    pub(super) round_bytes: u64,
}

/// Sees what a policy is shown and what it asks for, and takes no part in it.
pub trait Observer: Send {
    /// The policy was shown these events, and the view as it is behind them. At the end of a replay come those that no
    /// round was left for.
    fn observe(&mut self, view: &View, events: &[Event]);

    /// The policy asked for this.
    fn planned(&mut self, view: &View, actions: &[Action]);
}

pub(super) struct Mind {
    policy: Box<dyn Policy>,
    observer: Option<Box<dyn Observer>>,
    watch: Arc<Watch>,
    view: View,
    pace: Pace,
    pending: Vec<Change>,
    /// How many of them are refusals, which call no policy.
    refusals: usize,
    last_round_ns: u64,
    next_round_ns: u64,
    pub(super) rounds: u64,
    pub(super) actions: u64,
    /// Of all actions, in their order: the same for the same decisions.
    hash: SipHasher13,
}

/// Something for the policy, in the order in which it happened.
enum Change {
    Event(Event),
    /// A segment is new; put into the view before the event.
    Created(Event, Box<terrace_core::SegmentView>),
}

impl Mind {
    /// A policy that has seen nothing.
    pub(super) fn new(
        policy: Box<dyn Policy>,
        observer: Option<Box<dyn Observer>>,
        watch: Arc<Watch>,
        view: View,
        pace: Pace,
    ) -> Self {
        let next_round_ns = pace.every_ns;
        let (pending, hash) = (Vec::new(), SipHasher13::new());
        Self {
            policy,
            observer,
            watch,
            view,
            pace,
            pending,
            refusals: 0,
            last_round_ns: 0,
            next_round_ns,
            rounds: 0,
            actions: 0,
            hash,
        }
    }

    /// The optional kinds of events that it is shown.
    pub(super) fn interest(&self) -> Interest {
        self.policy.interest()
    }

    pub(super) fn placer(&self) -> Arc<dyn Placer> {
        self.watch.placer(self.watch.over(Call::Publish, || self.policy.placer()))
    }

    /// Shows it what is there when it starts.
    pub(super) fn introduce(&mut self, told: &mut Vec<Told>) {
        let mut events = Vec::with_capacity(told.len());
        for told in told.drain(..) {
            let Told::Created(slot, view) = told else { continue };
            events.push(Event {
                tier: view.tier,
                length_bytes: view.size_bytes,
                ..Event::new(EventKind::Present, slot, INCARNATION, 0)
            });
            self.view.insert(slot, view);
        }
        if let Some(observer) = &mut self.observer {
            observer.observe(&self.view, &events);
        }
        self.watch.over(Call::Observe, || self.policy.observe(&self.view, &events));
    }

    /// Notes what became of segments.
    pub(super) fn tell(&mut self, told: &mut Vec<Told>, now_ns: u64) {
        for told in told.drain(..) {
            let event =
                |kind, slot, tier| Event { tier, ..Event::new(kind, slot, INCARNATION, now_ns) };
            let change = match told {
                Told::Created(slot, view) => {
                    Change::Created(event(EventKind::Create, slot, view.tier), Box::new(view))
                }
                Told::Moved(slot, tier) => Change::Event(event(EventKind::Moved, slot, tier)),
                Told::Copied(slot, tier) => Change::Event(event(EventKind::Copied, slot, tier)),
                Told::Uncopied(slot, tier) => Change::Event(event(EventKind::Uncopied, slot, tier)),
                Told::Deleted(slot) => Change::Event(event(EventKind::Delete, slot, TierIndex(0))),
            };
            self.pending.push(change);
        }
    }

    /// Notes an event.
    pub(super) fn note(&mut self, event: Event) {
        self.pending.push(Change::Event(event));
    }

    /// Notes that what it asked for is refused, which it learns with the next call.
    pub(super) fn refuse(&mut self, event: Event) {
        self.refusals += 1;
        self.note(event);
    }

    /// When it is asked next, if not enough happens before.
    pub(super) fn next_round_ns(&self) -> u64 {
        self.next_round_ns
    }

    /// Whether so much happened that it is asked now: once at a time, as it takes some on a store.
    pub(super) fn is_full(&self, now_ns: u64) -> bool {
        let happened = (self.pending.len() - self.refusals) as u64;
        happened >= self.pace.after_events && now_ns > self.last_round_ns
    }

    /// Shows it what happened, and asks for a plan.
    pub(super) fn round(
        &mut self,
        now_ns: u64,
        tiers: impl Iterator<Item = TierView>,
        room: usize,
    ) -> Vec<Action> {
        let mut events = self.take_pending();
        self.view.now_ns = now_ns;
        self.view.tiers = tiers.collect();
        if let Some(observer) = &mut self.observer {
            observer.observe(&self.view, &events);
        }
        events.push(Event::new(EventKind::Timer, SLOT_NONE, 0, now_ns));
        self.watch.over(Call::Observe, || self.policy.observe(&self.view, &events));
        let mut actions = Actions::with_budget(self.pace.round_bytes, room.min(ACTIONS_MAX));
        self.watch.over(Call::Plan, || self.policy.plan(&self.view, &mut actions));
        self.rounds += 1;
        self.last_round_ns = now_ns;
        self.next_round_ns = now_ns.saturating_add(self.pace.every_ns);
        let actions = actions.into_list();
        if let Some(observer) = &mut self.observer {
            observer.planned(&self.view, &actions);
        }
        self.actions += actions.len() as u64;
        for action in &actions {
            self.hash_action(now_ns, action);
        }
        actions
    }

    /// Shows the observer what came after the last round.
    pub(super) fn end(&mut self) {
        let events = self.take_pending();
        if let Some(observer) = &mut self.observer {
            observer.observe(&self.view, &events);
        }
    }

    /// What happened since the round before, and is in the view from now on.
    fn take_pending(&mut self) -> Vec<Event> {
        self.refusals = 0;
        let mut events = Vec::with_capacity(self.pending.len() + 1);
        for change in self.pending.drain(..) {
            let event = match change {
                Change::Event(event) => event,
                Change::Created(event, view) => {
                    self.view.insert(event.slot, *view);
                    event
                }
            };
            self.view.apply(&event);
            events.push(event);
        }
        events
    }

    /// Whether the slot of an action is that of a live segment.
    pub(super) fn knows(&self, action: &Action) -> bool {
        self.view.segment(action.slot, action.incarnation).is_some()
    }

    /// The hash of all actions so far.
    pub(super) fn action_hash(&self) -> u64 {
        self.hash.finish()
    }

    fn hash_action(&mut self, now_ns: u64, action: &Action) {
        let (word, tier) = match action.kind {
            ActionKind::Move { to } => (1, to),
            ActionKind::Promote { to } => (2, to),
            ActionKind::Copy { to } => (3, to),
            ActionKind::DropCopy { tier } => (4, tier),
            ActionKind::Cancel => (5, TierIndex(0)),
        };
        for number in [now_ns, u64::from(action.slot), word, u64::from(tier.0)] {
            self.hash.write(&number.to_le_bytes());
        }
        self.hash.write(&action.priority.to_le_bytes());
    }
}
