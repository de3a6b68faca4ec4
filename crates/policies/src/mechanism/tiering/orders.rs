// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves and copies that a policy wants beside drains and promotions that pay.

use terrace_core::{ActionKind, SegmentView, Slot, TierIndex};

use super::settings::Tiered;
use super::{Choice, Tiering};
use crate::mechanism::pace::{self, Below, Fits, Turn};
use crate::mechanism::roster::Asked;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) slot: Slot,
    pub(crate) what: Ordered,
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// To a tier. On the way up the old location stays as a clean copy.
    Move(TierIndex),
    /// A clean copy on the next lower tier with room.
    CopyBelow,
}

impl<C: Choice> Tiering<C> {
    /// Has these carried out in the next round, the first first, as far as they can be.
    pub(crate) fn order(&mut self, orders: Vec<Order>) {
        self.orders = orders;
    }

    pub(super) fn carry_out(&mut self, turn: &mut Turn<'_>) {
        let view = turn.view;
        for Order { slot, what, reason } in std::mem::take(&mut self.orders) {
            let Some(segment) = self.roster.segment(view, slot) else { continue };
            let Some((kind, asked, to, bytes)) = self.possible(turn, slot, segment, what) else {
                continue;
            };
            let (source, target) = (&view.tiers[segment.tier.index()], &view.tiers[to.index()]);
            match turn.fits(bytes, pace::quiet_share(source, target)) {
                Fits::Yes => {}
                Fits::Later => return,
                Fits::Never => continue,
            }
            let action = pace::action(slot, segment, kind, reason);
            let is_taken = match what {
                Ordered::Move(_) => turn.ask(segment, action, to, bytes),
                Ordered::CopyBelow => turn.ask_copy(action, to, bytes),
            };
            if !is_taken {
                return;
            }
            self.roster.ask(slot, asked);
            match asked {
                Asked::Promotion => self.counts.promotions += 1,
                Asked::Demotion => self.counts.demotions += 1,
                _ => {}
            }
        }
    }

    /// What to ask for, if it can be done now: what, for what purpose, to where, and the bytes.
    fn possible(
        &self,
        turn: &Turn<'_>,
        slot: Slot,
        segment: &SegmentView,
        what: Ordered,
    ) -> Option<(ActionKind, Asked, TierIndex, u64)> {
        let view = turn.view;
        let is_able = segment.size_bytes > 0
            && self.roster.is_free(slot, segment)
            && !self.staging.holds(slot)
            && !self.roster.has_failed(slot, view.now_ns);
        let is_idle =
            segment.opens == 0 && pace::idle_ns(view, segment) >= self.settings.common().idle_ns;
        let is_up = matches!(what, Ordered::Move(to) if to < segment.tier);
        if !is_able || !(is_idle || is_up) {
            return None;
        }
        let to = match what {
            Ordered::Move(to) => to,
            Ordered::CopyBelow => {
                let Below::To(to, bytes) = turn.room.below(view, segment) else { return None };
                // Where none are copied it has a copy.
                return (bytes > 0).then_some((ActionKind::Copy { to }, Asked::Copy, to, bytes));
            }
        };
        let bytes = if segment.copies.contains(to) { 0 } else { segment.size_bytes };
        let can_go = to != segment.tier
            && pace::can_take(view, to, segment)
            && turn.room.has(to, bytes)
            && !self.roster.is_resting(slot, view.now_ns);
        let (kind, asked) = match is_up {
            true => (ActionKind::Promote { to }, Asked::Promotion),
            false => (ActionKind::Move { to }, Asked::Demotion),
        };
        can_go.then_some((kind, asked, to, bytes))
    }
}
