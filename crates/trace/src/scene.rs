// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a policy was shown, from a trace with decisions.

use terrace_core::{
    Action, Event, EventKind, Hint, Key, Persistency, Random, SLOT_NONE, SegmentView, TierIndex,
    TierSet, View,
};

use crate::record::{
    Access, Cause, Head, PolicyChange, Record, Round, Snapshot, State, Tier, TierState,
};

/// Most slots that a snapshot may say there are: its segments follow, and grow the view further.
const SLOTS_MAX: u32 = 1 << 22;

/// How far a slot may be beyond those that are known: segments that are created at once come in
/// another order than their slots, …
const SLOTS_AHEAD_MAX: usize = 1 << 16;

/// … and for each segment that came so far, that slots of segments that are gone were in between.
/// A trace from anywhere takes memory in proportion to its length.
const SLOTS_AHEAD_PER_STATE: usize = 16;

/// Follows a trace and keeps the view as the policy had it.
///
/// A replay gives every item to [`Scene::take`] and calls its policy as the steps say, with
/// [`Scene::view`] as it is then.
#[derive(Debug)]
pub struct Scene {
    /// Whether the file is of a recording with decisions; of others there is nothing to replay.
    has_decisions: bool,
    tiers: Vec<Tier>,
    view: View,
    /// The first slot that no snapshot and no number of segments so far explains.
    slots_max: usize,
    pending: Vec<Event>,
    /// The round whose decisions still come.
    round: Option<(Round, Vec<Event>, Vec<Action>)>,
}

/// What happened to the policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It changed. After [`Cause::Start`] it restored the state and was shown `present`.
    Policy {
        /// How.
        change: PolicyChange,
        /// All live segments, as the policy was shown them first; empty but after a start.
        present: Vec<Event>,
    },
    /// It was shown these events, then asked for a plan within a budget.
    Round {
        /// The call.
        round: Round,
        /// What it was shown, the timer included.
        events: Vec<Event>,
        /// What it asked for.
        actions: Vec<Action>,
    },
    /// What follows does not continue what was before: the trace lacks a part.
    Gap,
}

impl Default for Scene {
    fn default() -> Self {
        let view = View::new(Vec::new(), 0);
        Self {
            has_decisions: false,
            tiers: Vec::new(),
            view,
            slots_max: SLOTS_AHEAD_MAX,
            pending: Vec::new(),
            round: None,
        }
    }
}

impl Scene {
    /// The view at the step that was returned last.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Takes the head of a file.
    pub fn file(&mut self, head: &Head) {
        self.has_decisions = head.has_decisions;
        self.tiers.clone_from(&head.tiers);
    }

    /// Takes a record; returns a step once it is complete.
    pub fn take(&mut self, record: &Record) -> Option<Step> {
        if !self.has_decisions {
            return None;
        }
        match record {
            Record::Access(access) => self.access(access),
            Record::Snapshot(snapshot) => self.begin(snapshot),
            Record::State(state) => return self.state(state),
            Record::Policy(change) => return Some(self.policy(change)),
            Record::Round(round) => return self.round(round),
            Record::Decision(action) => return self.decision(action),
        }
        None
    }

    fn access(&mut self, access: &Access) {
        self.view.apply(&access.event);
        self.pending.push(access.event);
    }

    fn begin(&mut self, snapshot: &Snapshot) {
        self.view.segments.clear();
        self.pending.clear();
        self.round = None;
        let dead = SegmentView {
            key: Key::new("unknown", "dead").expect("letters"),
            segment: 0,
            incarnation: 0,
            is_live: false,
            start_bytes: 0,
            size_bytes: 0,
            tier: TierIndex(0),
            copies: TierSet::default(),
            opens: 0,
            is_moving: false,
            is_pinned: false,
            persistency: Persistency::None,
            hint: Hint::default(),
            created_ns: 0,
            last_read_ns: 0,
            last_write_ns: 0,
            last_close_ns: 0,
        };
        let slots = snapshot.slots.min(SLOTS_MAX) as usize;
        self.view.segments.resize(slots, dead);
        self.slots_max = slots + SLOTS_AHEAD_MAX;
    }

    fn state(&mut self, State { slot, view }: &State) -> Option<Step> {
        let index = *slot as usize;
        if index >= self.slots_max {
            return Some(Step::Gap);
        }
        self.slots_max += SLOTS_AHEAD_PER_STATE;
        while self.view.segments.len() < index {
            self.view.segments.push(SegmentView { is_live: false, ..view.clone() });
        }
        self.view.insert(*slot, view.clone());
        None
    }

    fn show_tiers(&mut self, states: &[TierState], now_ns: u64) {
        self.view.now_ns = now_ns;
        self.view.tiers =
            self.tiers.iter().zip(states).map(|(tier, state)| tier.view(state)).collect();
    }

    fn policy(&mut self, change: &PolicyChange) -> Step {
        self.show_tiers(&change.tiers, change.now_ns);
        self.pending.clear();
        self.round = None;
        let mut present = Vec::new();
        if matches!(change.cause, Cause::Start(_)) {
            self.view.random = Random::new(change.seed);
            present = present_events(&self.view);
        }
        Step::Policy { change: change.clone(), present }
    }

    fn round(&mut self, round: &Round) -> Option<Step> {
        self.show_tiers(&round.tiers, round.now_ns);
        let mut events = std::mem::take(&mut self.pending);
        if self.round.take().is_some() || events.len() as u64 != round.events {
            return Some(Step::Gap);
        }
        events.push(Event::new(EventKind::Timer, SLOT_NONE, 0, round.now_ns));
        self.round = Some((round.clone(), events, Vec::new()));
        self.complete()
    }

    fn decision(&mut self, action: &Action) -> Option<Step> {
        let Some((_, _, actions)) = &mut self.round else { return Some(Step::Gap) };
        actions.push(action.clone());
        self.complete()
    }

    fn complete(&mut self) -> Option<Step> {
        let (round, events, actions) = self.round.take()?;
        if (actions.len() as u64) < round.actions {
            self.round = Some((round, events, actions));
            return None;
        }
        Some(Step::Round { round, events, actions })
    }
}

/// Every live segment, as a policy that starts is shown it.
fn present_events(view: &View) -> Vec<Event> {
    let one = |(slot, segment): (u32, &SegmentView)| Event {
        tier: segment.tier,
        length_bytes: segment.size_bytes,
        ..Event::new(EventKind::Present, slot, segment.incarnation, view.now_ns)
    };
    view.live().map(one).collect()
}
