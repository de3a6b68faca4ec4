// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When to make room, how much, where to, and how fast.

use terrace_core::{
    Action, ActionKind, Actions, SegmentView, Slot, TierIndex, TierSet, TierView, View,
};

/// The least share of `max_bytes` that busy tiers still get, so that what pays is done at last.
const BUSY_SHARE_MIN: f64 = 0.1;

/// Fill levels at which a policy makes room; `None` for the tier's own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Levels {
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
}

impl Levels {
    pub(crate) fn low_bytes(&self, tier: &TierView) -> u64 {
        share(tier, self.low.unwrap_or(tier.watermarks.low))
    }

    pub(crate) fn high_bytes(&self, tier: &TierView) -> u64 {
        share(tier, self.high.unwrap_or(tier.watermarks.high))
    }

    /// What stands in the way of parameters like these.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match (self.low, self.high) {
            (Some(low), Some(high)) if low > high => Err("low must not exceed high"),
            _ => Ok(()),
        }
    }
}

/// Bytes that will be on a tier when all that is under way has ended. Clean copies and garbage do
/// not count: the stack itself drops them where room is wanted.
pub(crate) fn committed_bytes(tier: &TierView) -> u64 {
    (tier.used_bytes + tier.reserved_bytes).saturating_sub(tier.outgoing_bytes)
}

/// How long a segment was not used; a close is a use.
pub(crate) fn idle_ns(view: &View, segment: &SegmentView) -> u64 {
    let used_ns = segment.last_access_ns().max(segment.last_close_ns);
    view.now_ns.saturating_sub(used_ns)
}

/// When a segment was last written; its create counts.
pub(crate) fn last_write_ns(segment: &SegmentView) -> u64 {
    segment.created_ns.max(segment.last_write_ns)
}

/// Whether applications keep a tier so busy that only urgent moves should run.
pub(crate) fn is_busy(tier: &TierView, busy: f64) -> bool {
    tier.utilisation > busy
}

fn share(tier: &TierView, share: f64) -> u64 {
    (tier.figures.capacity_bytes as f64 * share) as u64
}

/// Remembers which tiers are being drained: begun above high, a drain ends at low.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drain {
    tiers: TierSet,
}

impl Drain {
    /// The names of the tiers that are being drained, to be saved.
    pub(crate) fn save(&self, view: &View) -> Vec<String> {
        let tiers = view.tiers.iter().enumerate();
        let drained = tiers.filter(|(index, _)| self.tiers.contains(TierIndex(*index as u8)));
        drained.map(|(_, tier)| tier.name.clone()).collect()
    }

    /// Goes on with the drains of these tiers.
    pub(crate) fn restore(&mut self, view: &View, saved: &[String]) {
        let find = |name: &String| view.tiers.iter().position(|tier| tier.name == *name);
        self.tiers = saved
            .iter()
            .filter_map(find)
            .fold(TierSet::default(), |tiers, index| tiers.with(TierIndex(index as u8)));
    }

    /// Bytes that should leave a tier besides those that this turn has asked for, if
    /// `coming_bytes` more are wanted there. While a tier `is_busy`, only what is above high; the
    /// rest waits until it is quiet.
    pub(crate) fn excess_bytes(
        &mut self,
        turn: &Turn<'_>,
        index: TierIndex,
        levels: &Levels,
        coming_bytes: u64,
        is_busy: bool,
    ) -> u64 {
        let tier = &turn.view.tiers[index.index()];
        let staying_bytes = committed_bytes(tier).saturating_sub(turn.leaving_bytes(index));
        let bytes = staying_bytes.saturating_add(coming_bytes);
        let (low_bytes, high_bytes) = (levels.low_bytes(tier), levels.high_bytes(tier));
        if bytes > high_bytes {
            self.tiers = self.tiers.with(index);
        } else if bytes <= low_bytes {
            self.tiers = self.tiers.without(index);
        }
        match (self.tiers.contains(index), is_busy) {
            (false, _) => 0,
            (true, true) => bytes.saturating_sub(high_bytes),
            (true, false) => bytes.saturating_sub(low_bytes.min(high_bytes)),
        }
    }
}

/// Room on each tier below its critical mark, less what this round has asked for.
#[derive(Debug)]
pub(crate) struct Room {
    free_bytes: Vec<u64>,
}

/// Where a segment can be demoted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// There, copying this many bytes.
    To(TierIndex, u64),
    /// The tiers below are full now.
    Full,
    /// No tier below can take it at all.
    Never,
}

impl Room {
    pub(crate) fn new(view: &View) -> Self {
        let free = |tier: &TierView| {
            let taken_bytes =
                tier.used_bytes + tier.reserved_bytes + tier.garbage_bytes + tier.incoming_bytes;
            share(tier, tier.watermarks.critical).saturating_sub(taken_bytes)
        };
        Self { free_bytes: view.tiers.iter().map(free).collect() }
    }

    /// Whether a segment fits on a tier.
    pub(crate) fn has(&self, tier: TierIndex, bytes: u64) -> bool {
        bytes <= self.free_bytes[tier.index()]
    }

    fn take(&mut self, tier: TierIndex, bytes: u64) {
        let free_bytes = &mut self.free_bytes[tier.index()];
        *free_bytes = free_bytes.saturating_sub(bytes);
    }

    /// Finds the most preferred tier below the segment's that can take it; one with a clean copy
    /// comes first, because that move copies nothing.
    pub(crate) fn below(&self, view: &View, segment: &SegmentView) -> Below {
        let lower = || tiers_from(view, segment.tier.index() + 1);
        let able = || lower().filter(|tier| can_take(view, *tier, segment));
        if let Some(tier) = able().find(|tier| segment.copies.contains(*tier)) {
            return Below::To(tier, 0);
        }
        match able().find(|tier| self.has(*tier, segment.size_bytes)) {
            Some(tier) => Below::To(tier, segment.size_bytes),
            None if able().next().is_some() => Below::Full,
            None => Below::Never,
        }
    }
}

fn tiers_from(view: &View, first: usize) -> impl Iterator<Item = TierIndex> {
    (first..view.tiers.len()).map(|index| TierIndex(index as u8))
}

/// Whether a tier takes new data and keeps what the segment was promised.
pub(crate) fn can_take(view: &View, tier: TierIndex, segment: &SegmentView) -> bool {
    let tier = &view.tiers[tier.index()];
    tier.is_writable && tier.persistency >= segment.persistency
}

/// One round of planning: what may still be asked for.
pub(crate) struct Turn<'a> {
    pub(crate) view: &'a View,
    pub(crate) actions: &'a mut Actions,
    pub(crate) room: Room,
    leaving_bytes: Vec<u64>,
    coming_bytes: Vec<u64>,
    under_way_bytes: u64,
    max_bytes: u64,
}

/// Whether a round has place for a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fits {
    Yes,
    /// Not in this round.
    Later,
    /// It is larger than a whole round of the stack.
    Never,
}

impl<'a> Turn<'a> {
    /// Begins a round in which at most `max_bytes` are under way, asked for now or before.
    pub(crate) fn new(view: &'a View, actions: &'a mut Actions, max_bytes: u64) -> Self {
        let under_way_bytes = view.tiers.iter().map(|tier| tier.incoming_bytes).sum();
        Self {
            view,
            actions,
            room: Room::new(view),
            leaving_bytes: vec![0; view.tiers.len()],
            coming_bytes: view.tiers.iter().map(|tier| tier.incoming_bytes).collect(),
            under_way_bytes,
            max_bytes,
        }
    }

    /// Bytes that moves asked for in this round take away from a tier.
    pub(crate) fn leaving_bytes(&self, tier: TierIndex) -> u64 {
        self.leaving_bytes[tier.index()]
    }

    /// Bytes that moves bring to a tier, asked for in this round or before.
    pub(crate) fn coming_bytes(&self, tier: TierIndex) -> u64 {
        self.coming_bytes[tier.index()]
    }

    /// Whether a move of `bytes` may be asked for at this `share` of full speed. The first may
    /// always, or a segment larger than `max_bytes` would never move.
    pub(crate) fn fits(&self, bytes: u64, share: f64) -> Fits {
        let limit_bytes = (self.max_bytes as f64 * share) as u64;
        let is_first = self.under_way_bytes == 0;
        if self.actions.count_left() == 0 {
            Fits::Later
        } else if bytes > self.actions.bytes_left() {
            if self.actions.list().is_empty() { Fits::Never } else { Fits::Later }
        } else if is_first || self.under_way_bytes.saturating_add(bytes) <= limit_bytes {
            Fits::Yes
        } else {
            Fits::Later
        }
    }

    /// Asks for a move of the segment to `to` that copies `bytes`; false when the stack's budget
    /// is used.
    pub(crate) fn ask(
        &mut self,
        segment: &SegmentView,
        action: Action,
        to: TierIndex,
        bytes: u64,
    ) -> bool {
        let is_taken = self.actions.push(action, bytes);
        if is_taken {
            self.room.take(to, bytes);
            self.under_way_bytes = self.under_way_bytes.saturating_add(bytes);
            self.leaving_bytes[segment.tier.index()] += segment.size_bytes;
            self.coming_bytes[to.index()] += segment.size_bytes;
        }
        is_taken
    }

    /// Asks for a clean copy of `bytes` on `to`; false when the stack's budget is used.
    pub(crate) fn ask_copy(&mut self, action: Action, to: TierIndex, bytes: u64) -> bool {
        let is_taken = self.actions.push(action, bytes);
        if is_taken {
            self.room.take(to, bytes);
            self.under_way_bytes = self.under_way_bytes.saturating_add(bytes);
        }
        is_taken
    }
}

/// An action of usual priority that frees room or saves no time.
pub(crate) fn action(
    slot: Slot,
    segment: &SegmentView,
    kind: ActionKind,
    reason: String,
) -> Action {
    Action { slot, incarnation: segment.incarnation, kind, priority: 0, reason, benefit_s: 0.0 }
}

/// The share of full speed that applications leave for moves between two tiers.
pub(crate) fn quiet_share(source: &TierView, target: &TierView) -> f64 {
    let utilisation = source.utilisation.max(target.utilisation);
    (1.0 - utilisation).clamp(BUSY_SHARE_MIN, 1.0)
}

/// Seconds that copying `bytes` takes beside what applications do: reading and writing go on at the
/// same time.
pub(crate) fn move_s(bytes: u64, source: &TierView, target: &TierView) -> f64 {
    let alone_s = source.figures.read_s(bytes).max(target.figures.write_s(bytes));
    alone_s / quiet_share(source, target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{segment, tiers};
    use terrace_core::Persistency;

    fn view(used_bytes: u64) -> View {
        let mut view = View::new(tiers(&[1000, 1000, 1000]), 0);
        view.tiers[0].used_bytes = used_bytes;
        view
    }

    #[test]
    fn a_drain_begins_above_high_and_ends_at_low() {
        let mut drain = Drain::default();
        let mut excess = |used_bytes, is_busy| {
            let (view, mut actions) = (view(used_bytes), Actions::with_budget(0, 0));
            let turn = Turn::new(&view, &mut actions, 0);
            drain.excess_bytes(&turn, TierIndex(0), &Levels::default(), 0, is_busy)
        };
        assert_eq!(excess(900, false), 0);
        assert_eq!(excess(901, false), 201);
        assert_eq!(excess(800, false), 100, "it goes on below high");
        assert_eq!(excess(800, true), 0, "but not while applications are busy");
        assert_eq!(excess(950, true), 50);
        assert_eq!(excess(700, false), 0);
        assert_eq!(excess(800, false), 0, "it has ended");
    }

    #[test]
    fn what_leaves_already_is_not_asked_for_again() {
        let mut view = view(950);
        view.tiers[0].outgoing_bytes = 250;
        let mut actions = Actions::with_budget(0, 0);
        let turn = Turn::new(&view, &mut actions, 0);
        let excess =
            Drain::default().excess_bytes(&turn, TierIndex(0), &Levels::default(), 0, false);
        assert_eq!(excess, 0);
    }

    #[test]
    fn a_demotion_goes_where_room_and_persistency_are() {
        let mut view = view(0);
        let mut segment = segment("n/a", 100, TierIndex(0));
        let below = |view: &View, segment: &SegmentView| Room::new(view).below(view, segment);
        assert_eq!(below(&view, &segment), Below::To(TierIndex(1), 100));
        view.tiers[1].incoming_bytes = 900;
        assert_eq!(below(&view, &segment), Below::To(TierIndex(2), 100));
        segment.copies = TierSet::default().with(TierIndex(1));
        assert_eq!(below(&view, &segment), Below::To(TierIndex(1), 0));
        view.tiers[1].is_writable = false;
        view.tiers[2].used_bytes = 900;
        assert_eq!(below(&view, &segment), Below::Full);
        view.tiers[2].persistency = Persistency::None;
        assert_eq!(below(&view, &segment), Below::Never);
    }

    #[test]
    fn a_round_takes_one_large_segment_or_several_small_ones() {
        let (view, segment) = (view(0), segment("n/a", 60, TierIndex(0)));
        let mut actions = Actions::with_budget(1000, 10);
        let mut turn = Turn::new(&view, &mut actions, 100);
        assert_eq!(turn.fits(500, 1.0), Fits::Yes);
        assert_eq!(turn.fits(1001, 1.0), Fits::Never);
        let kind = ActionKind::Move { to: TierIndex(1) };
        assert!(turn.ask(&segment, action(0, &segment, kind, String::new()), TierIndex(1), 60));
        assert_eq!(turn.leaving_bytes(TierIndex(0)), 60);
        assert_eq!(turn.coming_bytes(TierIndex(1)), 60);
        assert_eq!(turn.fits(40, 1.0), Fits::Yes);
        assert_eq!(turn.fits(41, 1.0), Fits::Later);
        assert_eq!(turn.fits(10, 0.5), Fits::Later);
    }
}
