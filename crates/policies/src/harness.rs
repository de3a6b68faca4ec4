// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stack that carries out every action at once, so that tests see only what policies decide.

use terrace_core::{
    Action, ActionKind, Actions, Event, EventKind, Figures, Hint, Key, Outcome, Persistency,
    Placement, Policy, SegmentView, Slot, TierIndex, TierSet, TierView, View,
};

use crate::registry;

/// One second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Tiers `t0`, `t1`, … of these capacities, each ten times slower than the one above.
pub(crate) fn tiers(capacities_bytes: &[u64]) -> Vec<TierView> {
    let tier = |(index, capacity_bytes): (usize, &u64)| {
        let slowness = 10_u64.pow(index as u32);
        let bytes_per_s = 1e9 / slowness as f64;
        let figures = Figures {
            capacity_bytes: *capacity_bytes,
            latency_ns: 100_000 * slowness,
            read_bytes_per_s: bytes_per_s,
            write_bytes_per_s: bytes_per_s,
            parallelism: 8,
            ..Figures::default()
        };
        TierView::empty(&format!("t{index}"), figures)
    };
    capacities_bytes.iter().enumerate().map(tier).collect()
}

/// A closed segment that was never used.
pub(crate) fn segment(key: &str, size_bytes: u64, tier: TierIndex) -> SegmentView {
    SegmentView {
        key: Key::parse(key).expect("a legal key"),
        segment: 0,
        incarnation: 1,
        is_live: true,
        start_bytes: 0,
        size_bytes,
        tier,
        copies: TierSet::default(),
        opens: 0,
        is_moving: false,
        is_pinned: false,
        persistency: Persistency::Process,
        hint: Hint::default(),
        created_ns: 0,
        last_read_ns: 0,
        last_write_ns: 0,
        last_close_ns: 0,
    }
}

fn owned(parameters: &[(&str, &str)]) -> Vec<(String, String)> {
    parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

/// A policy over a view that does what it asks for.
pub(crate) struct Harness {
    pub(crate) view: View,
    pub(crate) policy: Box<dyn Policy>,
    /// Given to every round.
    pub(crate) budget: (u64, usize),
    /// Whether moves wait for [`Harness::finish`] instead of ending at once.
    pub(crate) is_slow: bool,
    events: Vec<Event>,
    waiting: Vec<Action>,
    incarnation: u32,
    asked: Vec<String>,
    name: String,
}

impl Harness {
    pub(crate) fn new(name: &str, parameters: &[(&str, &str)], tiers: Vec<TierView>) -> Self {
        let mut view = View::new(tiers, 0);
        view.now_ns = SECOND_NS;
        Self {
            policy: registry::create(name, &view, &owned(parameters)).expect("legal parameters"),
            view,
            budget: (u64::MAX, usize::MAX),
            is_slow: false,
            events: Vec::new(),
            waiting: Vec::new(),
            incarnation: 0,
            asked: Vec::new(),
            name: name.into(),
        }
    }

    /// Everything that was asked for, in order, each with its time.
    pub(crate) fn asked(self) -> Vec<String> {
        self.asked
    }

    pub(crate) fn advance(&mut self, seconds: f64) {
        self.view.now_ns += (seconds * SECOND_NS as f64) as u64;
    }

    /// Creates an object where the policy wants it, or below if it is full.
    pub(crate) fn create(&mut self, key: &str) -> Slot {
        let key = Key::parse(key).expect("a legal key");
        let placement = Placement {
            key: &key,
            hint: Hint::default(),
            size_hint_bytes: None,
            segment: 0,
            start_bytes: 0,
        };
        let first = self.policy.placer().place(&placement).tier;
        let has_room = |tier: &TierIndex| self.view.tiers[tier.index()].fill() < 0.97;
        let tier = (first.0..self.view.tiers.len() as u8).map(TierIndex).find(has_room);
        let slot = self.view.segments.iter().position(|segment| !segment.is_live);
        let slot = slot.unwrap_or(self.view.segments.len()) as Slot;
        self.incarnation += 1;
        let segment = SegmentView {
            incarnation: self.incarnation,
            created_ns: self.view.now_ns,
            ..segment(key.as_str(), 0, tier.expect("a tier has room"))
        };
        self.view.insert(slot, segment);
        self.event(EventKind::Create, slot);
        slot
    }

    /// Creates an object, writes it and closes it.
    pub(crate) fn write(&mut self, key: &str, bytes: u64) -> Slot {
        let slot = self.create(key);
        self.event(EventKind::Open, slot);
        self.overwrite(slot, bytes);
        self.event(EventKind::Close, slot);
        slot
    }

    /// A write takes clean copies back, as a stack does it.
    pub(crate) fn overwrite(&mut self, slot: Slot, bytes: u64) {
        let copies = self.view.segments[slot as usize].copies;
        let tiers = (0..self.view.tiers.len() as u8).map(TierIndex);
        for tier in tiers.filter(|tier| copies.contains(*tier)) {
            self.emit(Event { tier, ..self.blank(EventKind::Uncopied, slot) });
        }
        self.access(EventKind::Write, slot, 0, bytes);
    }

    pub(crate) fn read(&mut self, slot: Slot, offset_bytes: u64, length_bytes: u64) {
        self.access(EventKind::Read, slot, offset_bytes, length_bytes);
    }

    /// An event of a kind that needs no more than the slot.
    pub(crate) fn event(&mut self, kind: EventKind, slot: Slot) {
        let event = self.blank(kind, slot);
        self.emit(event);
    }

    pub(crate) fn emit(&mut self, event: Event) {
        let slot = event.slot as usize;
        let before = self.view.segments.get(slot).cloned();
        self.view.apply(&event);
        if let Some(before) = before {
            self.account(&before, slot);
        }
        self.events.push(event);
    }

    /// Shows the events, asks for a plan, checks it and carries it out.
    pub(crate) fn round(&mut self) -> Vec<Action> {
        self.policy.observe(&self.view, &std::mem::take(&mut self.events));
        let mut actions = Actions::with_budget(self.budget.0, self.budget.1);
        self.policy.plan(&self.view, &mut actions);
        let list = actions.into_list();
        for action in &list {
            self.check(action);
            self.asked.push(format!("at {} ns {action:?}", self.view.now_ns));
        }
        for action in list.clone() {
            self.begin(action);
        }
        if !self.is_slow {
            self.finish();
        }
        list
    }

    /// Ends all moves that wait.
    pub(crate) fn finish(&mut self) {
        for action in std::mem::take(&mut self.waiting) {
            self.end(&action, Outcome::Done);
        }
    }

    /// Ends all moves that wait without having moved anything.
    pub(crate) fn fail(&mut self, outcome: Outcome) {
        for action in std::mem::take(&mut self.waiting) {
            self.end(&action, outcome);
        }
    }

    /// Ends all moves that wait, and shows the policy what happened.
    pub(crate) fn settle(&mut self) {
        self.finish();
        self.policy.observe(&self.view, &std::mem::take(&mut self.events));
    }

    /// Puts a new policy in the place of the old one, with its state.
    pub(crate) fn restart(&mut self, name: &str, parameters: &[(&str, &str)]) {
        let mut state = Vec::new();
        self.policy.save(&self.view, &mut state);
        let version = self.policy.state_version();
        let parameters = owned(parameters);
        self.policy = registry::create(name, &self.view, &parameters).expect("legal parameters");
        self.policy.restore(&self.view, version, &state).expect("its own state");
        let mut again = Vec::new();
        self.policy.save(&self.view, &mut again);
        assert_eq!(String::from_utf8(again), String::from_utf8(state), "{name} saves what it took");
        let live: Vec<_> = self.view.live().map(|(slot, _)| slot).collect();
        live.into_iter().for_each(|slot| self.event(EventKind::Present, slot));
        // Before anything happens that could delete one of them.
        self.settle();
    }

    /// The fill of a tier, 0 to 1.
    pub(crate) fn fill(&self, tier: usize) -> f64 {
        self.view.tiers[tier].fill()
    }

    pub(crate) fn tier(&self, slot: Slot) -> u8 {
        self.view.segments[slot as usize].tier.0
    }

    pub(crate) fn message(&mut self, kind: &str, body: &str) -> serde_json::Value {
        let reply = self.policy.message(&self.view, kind, body.as_bytes()).expect("a legal body");
        serde_json::from_slice(&reply).expect("a reply is JSON")
    }

    fn access(&mut self, kind: EventKind, slot: Slot, offset_bytes: u64, length_bytes: u64) {
        let segment = &self.view.segments[slot as usize];
        let figures = &self.view.tiers[segment.tier.index()].figures;
        let latency_ns = (figures.read_s(length_bytes) * 1e9) as u64;
        let event = self.blank(kind, slot);
        self.emit(Event { offset_bytes, length_bytes, latency_ns, ..event });
    }

    fn blank(&self, kind: EventKind, slot: Slot) -> Event {
        let segment = &self.view.segments[slot as usize];
        let event = Event::new(kind, slot, segment.incarnation, self.view.now_ns);
        Event { tier: segment.tier, ..event }
    }

    /// Brings the tiers' bytes in line with a segment that has changed.
    fn account(&mut self, before: &SegmentView, slot: usize) {
        let after = self.view.segments[slot].clone();
        if before.is_live {
            self.view.tiers[before.tier.index()].used_bytes -= before.size_bytes;
        }
        if after.is_live {
            self.view.tiers[after.tier.index()].used_bytes += after.size_bytes;
        }
        for (index, tier) in self.view.tiers.iter_mut().enumerate() {
            let index = TierIndex(index as u8);
            if before.is_live && before.copies.contains(index) {
                tier.copy_bytes -= before.size_bytes;
            }
            if after.is_live && after.copies.contains(index) {
                tier.copy_bytes += after.size_bytes;
            }
        }
    }

    /// What no policy may ask for, whatever happens.
    fn check(&self, action: &Action) {
        let wrong = |what: &str| format!("{} asks for a segment {what}: {action:?}", self.name);
        let segment = self.view.segment(action.slot, action.incarnation);
        let segment = segment.unwrap_or_else(|| panic!("{}", wrong("that is gone")));
        let (ActionKind::Move { to } | ActionKind::Promote { to } | ActionKind::Copy { to }) =
            action.kind
        else {
            return;
        };
        assert!(!segment.is_pinned, "{}", wrong("that is pinned"));
        assert!(!segment.is_moving, "{}", wrong("whose move waits or runs already"));
        assert_ne!(to, segment.tier, "{}", wrong("that is there"));
        let is_again = matches!(action.kind, ActionKind::Copy { .. });
        assert!(!(is_again && segment.copies.contains(to)), "{}", wrong("that has a copy there"));
        let tier = &self.view.tiers[to.index()];
        assert!(tier.is_writable, "{}", wrong("on a tier that takes nothing"));
        let is_kept = tier.persistency >= segment.persistency;
        assert!(is_kept, "{}", wrong("on a tier that keeps less than was promised"));
        // A stack drops clean copies where room is wanted.
        let free_bytes = tier.free_bytes() + tier.copy_bytes;
        let is_free = segment.copies.contains(to) || segment.size_bytes <= free_bytes;
        assert!(is_free, "{}", wrong("that is larger than the room there"));
    }

    fn begin(&mut self, action: Action) {
        let slot = action.slot;
        match action.kind {
            ActionKind::Move { to } | ActionKind::Promote { to } => {
                let segment = &self.view.segments[slot as usize];
                let (from, bytes) = (segment.tier, segment.size_bytes);
                self.view.tiers[from.index()].outgoing_bytes += bytes;
                self.view.tiers[to.index()].incoming_bytes += bytes;
                self.event(EventKind::Queued, slot);
                self.waiting.push(action);
            }
            ActionKind::Cancel => {
                let cancelled = self.waiting.iter().position(|waiting| waiting.slot == slot);
                if let Some(index) = cancelled {
                    let waiting = self.waiting.remove(index);
                    self.end(&waiting, Outcome::Cancelled);
                }
                self.event(EventKind::Receipt, slot);
            }
            ActionKind::Copy { to } => {
                let bytes = self.view.segments[slot as usize].size_bytes;
                self.view.tiers[to.index()].incoming_bytes += bytes;
                self.event(EventKind::Queued, slot);
                self.waiting.push(action);
            }
            ActionKind::DropCopy { .. } => unreachable!("no policy here asks for it"),
        }
    }

    fn end(&mut self, action: &Action, outcome: Outcome) {
        let (ActionKind::Move { to } | ActionKind::Promote { to } | ActionKind::Copy { to }) =
            action.kind
        else {
            return;
        };
        let is_copy = matches!(action.kind, ActionKind::Copy { .. });
        // The accounts of migrations hold the size that it had when it was asked for; tests that
        // write to moving segments look at decisions, not at these.
        let Some(segment) = self.view.segment(action.slot, action.incarnation).cloned() else {
            self.view.tiers.iter_mut().for_each(|tier| {
                (tier.incoming_bytes, tier.outgoing_bytes) = (0, 0);
            });
            return;
        };
        let (from, bytes) = (segment.tier, segment.size_bytes);
        let is_copied = outcome == Outcome::Done && !segment.copies.contains(to);
        let length_bytes = if is_copied { bytes } else { 0 };
        if !is_copy {
            let outgoing = &mut self.view.tiers[from.index()].outgoing_bytes;
            *outgoing = outgoing.saturating_sub(bytes);
        }
        let incoming = &mut self.view.tiers[to.index()].incoming_bytes;
        *incoming = incoming.saturating_sub(bytes);
        let slot = action.slot;
        if outcome == Outcome::Done && is_copy {
            self.emit(Event { tier: to, ..self.blank(EventKind::Copied, slot) });
        } else if outcome == Outcome::Done {
            if segment.copies.contains(to) {
                self.emit(Event { tier: to, ..self.blank(EventKind::Uncopied, slot) });
            }
            self.emit(Event { tier: to, ..self.blank(EventKind::Moved, slot) });
            if matches!(action.kind, ActionKind::Promote { .. }) {
                self.emit(Event { tier: from, ..self.blank(EventKind::Copied, slot) });
            }
        }
        let receipt = self.blank(EventKind::Receipt, slot);
        self.emit(Event { outcome, tier: to, length_bytes, ..receipt });
    }
}
