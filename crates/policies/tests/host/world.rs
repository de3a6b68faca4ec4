// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stack without bytes: it keeps the view as the contract of `Policy` says, and carries out
//! every action at once.

use std::path::Path;

use terrace_core::{
    ActionKind, Actions, Error, Event, EventKind, Figures, Hint, Key, Outcome, Persistency,
    Placement, Policy, SLOT_NONE, SegmentView, Slot, TierIndex, TierSet, TierView, View,
};
use terrace_policies::{host, program};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// What a round did: `key kind tier: reason`.
pub(crate) type Done = Vec<String>;

pub(crate) fn tier(name: &str, capacity_bytes: u64) -> TierView {
    TierView::empty(name, Figures { capacity_bytes, ..Figures::default() })
}

pub(crate) fn segment(key: &str, tier: TierIndex, size_bytes: u64, now_ns: u64) -> SegmentView {
    SegmentView {
        key: Key::parse(key).expect("legal"),
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
        created_ns: now_ns,
        last_read_ns: 0,
        last_write_ns: 0,
        last_close_ns: 0,
    }
}

/// A fast tier of 100 bytes over a slow one of 1000.
pub(crate) fn two_tiers() -> View {
    let mut view = View::new(vec![tier("fast", 100), tier("slow", 1000)], 7);
    view.now_ns = SECOND_NS;
    view
}

pub(crate) fn load(path: &Path, parameters: &[(&str, &str)]) -> Result<Box<dyn Policy>, Error> {
    let parameters: Vec<_> =
        parameters.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    match path.extension().is_some_and(|extension| extension == "py") {
        true => program::start(path, &two_tiers(), &parameters),
        false => host::load(path, &two_tiers(), &parameters),
    }
}

pub(crate) struct World {
    pub(crate) view: View,
    pub(crate) policy: Box<dyn Policy>,
    pending: Vec<Event>,
}

impl World {
    pub(crate) fn new(path: &Path, parameters: &[(&str, &str)]) -> Self {
        let policy = load(path, parameters).unwrap_or_else(|error| panic!("{}", error.chain()));
        Self { view: two_tiers(), policy, pending: Vec::new() }
    }

    /// Creates an object of `size_bytes` where the policy wants it.
    pub(crate) fn create(&mut self, key: &str, size_bytes: u64) -> Slot {
        let name = Key::parse(key).expect("legal");
        let (hint, start_bytes) = (Hint::default(), 0);
        let placement =
            Placement { key: &name, hint, size_hint_bytes: None, segment: 0, start_bytes };
        let tier = self.policy.placer().place(&placement).tier;
        let dead = self.view.segments.iter().position(|segment| !segment.is_live);
        let slot = dead.unwrap_or(self.view.segments.len());
        let mut segment = segment(key, tier, size_bytes, self.view.now_ns);
        segment.incarnation += dead.map_or(0, |slot| self.view.segments[slot].incarnation);
        self.view.insert(slot as Slot, segment);
        self.happen(EventKind::Create, slot as Slot);
        slot as Slot
    }

    /// Lets a second pass and something happen to a segment.
    pub(crate) fn happen(&mut self, kind: EventKind, slot: Slot) {
        self.view.now_ns += SECOND_NS;
        let incarnation = self.view.segments[slot as usize].incarnation;
        let mut event = Event::new(kind, slot, incarnation, self.view.now_ns);
        event.tier = self.view.segments[slot as usize].tier;
        self.show(event);
    }

    pub(crate) fn read(&mut self, slot: Slot) {
        self.happen(EventKind::Read, slot);
    }

    pub(crate) fn write(&mut self, slot: Slot) {
        self.happen(EventKind::Write, slot);
    }

    fn show(&mut self, event: Event) {
        self.view.apply(&event);
        self.pending.push(event);
    }

    /// Shows the policy what happened, asks what to do, and does it.
    pub(crate) fn round(&mut self) -> Done {
        self.observe();
        let mut actions = Actions::with_budget(u64::MAX, 1000);
        self.policy.plan(&self.view, &mut actions);
        let done = actions.into_list().into_iter().map(|action| {
            let slot = action.slot;
            let from = self.view.segment(slot, action.incarnation).expect("meant").tier;
            let (word, tier) = match action.kind {
                ActionKind::Move { to } => ("move", to),
                ActionKind::Promote { to } => ("promote", to),
                ActionKind::Copy { to } => ("copy", to),
                ActionKind::DropCopy { tier } => ("drop", tier),
                ActionKind::Cancel => ("cancel", from),
            };
            if word == "promote" {
                self.happen(EventKind::Copied, slot);
            }
            let mut moved =
                Event::new(EventKind::Moved, slot, action.incarnation, self.view.now_ns);
            moved.tier = tier;
            self.show(moved);
            let kind = EventKind::Receipt;
            let mut receipt = Event::new(kind, slot, action.incarnation, self.view.now_ns);
            receipt.outcome = Outcome::Done;
            self.show(receipt);
            let key = &self.view.segments[slot as usize].key;
            format!("{} {word} {tier}: {}", key.name(), action.reason)
        });
        let done: Done = done.collect();
        self.account();
        done
    }

    /// Shows the policy what happened.
    pub(crate) fn observe(&mut self) {
        self.account();
        self.policy.observe(&self.view, &std::mem::take(&mut self.pending));
    }

    /// Shows the passing of time.
    pub(crate) fn wait_s(&mut self, seconds: u64) {
        self.view.now_ns += seconds * SECOND_NS;
        self.show(Event::new(EventKind::Timer, SLOT_NONE, 0, self.view.now_ns));
    }

    pub(crate) fn tier_of(&self, slot: Slot) -> u8 {
        self.view.segments[slot as usize].tier.0
    }

    fn account(&mut self) {
        for index in 0..self.view.tiers.len() {
            let tier = TierIndex(index as u8);
            let bytes = |is_here: &dyn Fn(&SegmentView) -> bool| {
                self.view.live().map(|(_, s)| if is_here(s) { s.size_bytes } else { 0 }).sum()
            };
            let used_bytes = bytes(&|segment| segment.tier == tier);
            let copy_bytes = bytes(&|segment| segment.copies.contains(tier));
            self.view.tiers[index].used_bytes = used_bytes;
            self.view.tiers[index].copy_bytes = copy_bytes;
        }
    }
}
