// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the segments that were used again move up.

use std::collections::BTreeMap;

use terrace_core::{Action, ActionKind, SegmentView, Slot, TierIndex};

use super::settings::Tiered;
use super::{Choice, Tiering};
use crate::mechanism::gate::{Demand, Judgement, Victim};
use crate::mechanism::pace::{self, Fits, Turn};
use crate::mechanism::roster::Asked;

impl<C: Choice> Tiering<C> {
    /// Asks for the promotions that pay.
    pub(super) fn promote(&mut self, turn: &mut Turn<'_>) {
        let view = turn.view;
        let mut wishes = Vec::new();
        let proposals = std::mem::take(&mut self.proposals);
        let proposed: BTreeMap<Slot, Demand> = proposals.iter().copied().collect();
        let candidates = self.candidates.take().into_iter();
        let candidates = candidates.filter(|slot| !proposed.contains_key(slot));
        let candidates: Vec<_> = candidates.chain(proposals.iter().map(|it| it.0)).collect();
        for slot in candidates {
            let Some(segment) = self.roster.segment(view, slot) else { continue };
            let can_move = self.roster.is_free(slot, segment)
                && !self.staging.holds(slot)
                && !self.is_left_alone(slot, view.now_ns);
            if !can_move {
                continue;
            }
            match self.best_target(turn, slot, segment, proposed.get(&slot)) {
                Some(wish) => wishes.push(wish),
                // What is only expected is judged in each round.
                None => self.counts.refused += u64::from(!proposed.contains_key(&slot)),
            }
        }
        // Most seconds a byte first. Without the gate all are worth nothing, and the order of
        // arrival stays.
        let worth = |wish: &Wish| {
            wish.benefit_s / view.segments[wish.slot as usize].size_bytes.max(1) as f64
        };
        wishes.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        for wish in wishes {
            let (slot, to, bytes) = (wish.slot, wish.to, wish.bytes);
            let segment = &view.segments[slot as usize];
            let target = &view.tiers[to.index()];
            let missing_bytes = self.missing_bytes(turn, to, segment.size_bytes);
            if missing_bytes > 0 && wish.is_displacing {
                // Just as much as this needs, or a whole drain would come and go by turns.
                let why = format!("{} has to take {}", target.name, segment.key);
                self.demote(turn, to, missing_bytes, &why);
            }
            if missing_bytes > 0 || !turn.room.has(to, bytes) {
                // It is judged again in a later round, if room is being made or another has just
                // taken what there was.
                if target.outgoing_bytes > 0 || turn.leaving_bytes(to) > 0 || !wish.is_displacing {
                    self.candidates.add(slot);
                }
                continue;
            }
            let share = match self.common().is_gated {
                true => pace::quiet_share(&view.tiers[segment.tier.index()], target),
                false => 1.0,
            };
            match turn.fits(bytes, share) {
                Fits::Yes => {}
                Fits::Later => {
                    self.candidates.add(slot);
                    continue;
                }
                Fits::Never => continue,
            }
            let wanted = Action {
                benefit_s: wish.benefit_s,
                ..pace::action(slot, segment, ActionKind::Promote { to }, wish.reason)
            };
            if turn.ask(segment, wanted, to, bytes) {
                self.roster.ask(slot, Asked::Promotion);
                self.counts.promotions += 1;
            }
        }
    }

    /// The tier above that pays most, or, without the gate, the first that can take the segment.
    fn best_target(
        &self,
        turn: &Turn<'_>,
        slot: Slot,
        segment: &SegmentView,
        proposed: Option<&Demand>,
    ) -> Option<Wish> {
        let view = turn.view;
        let bytes_to = |to| if segment.copies.contains(to) { 0 } else { segment.size_bytes };
        let fits = |to: &TierIndex| {
            let target = &view.tiers[to.index()];
            segment.size_bytes <= self.common().levels.high_bytes(target)
        };
        let mut able = (0..segment.tier.0)
            .map(TierIndex)
            .filter(|to| pace::can_take(view, *to, segment) && fits(to));
        if !self.common().is_gated {
            let to = able.next()?;
            let why = if proposed.is_some() { "expected soon" } else { "used again" };
            let reason = format!("{why} (the gate is off)");
            let bytes = bytes_to(to);
            return Some(Wish { slot, to, bytes, is_displacing: true, benefit_s: 0.0, reason });
        }
        let terms = &self.settings.common().terms;
        let known = self.choice.demand(view, &self.settings, slot);
        let demand = proposed.copied().filter(|it| it.bytes() > known.bytes()).unwrap_or(known);
        let judged = able.filter_map(|to| {
            let victim = self.victim(turn, to, segment.size_bytes);
            let judgement = self.gate.judge(view, segment, &demand, to, victim, terms);
            judgement.passes(terms).then_some((to, judgement))
        });
        let benefit_s = |judgement: &Judgement| judgement.saving_s - judgement.cost_s;
        let (to, judgement) =
            judged.max_by(|(_, a), (_, b)| benefit_s(a).total_cmp(&benefit_s(b)))?;
        Some(Wish {
            slot,
            to,
            bytes: bytes_to(to),
            is_displacing: self.missing_bytes(turn, to, segment.size_bytes) > 0,
            benefit_s: benefit_s(&judgement),
            reason: format!(
                "{:.1} more accesses expected save {:.3} s, moving costs {:.3} s",
                judgement.expected_accesses, judgement.saving_s, judgement.cost_s
            ),
        })
    }

    /// Bytes that have to leave a tier before `bytes` more keep it at high.
    fn missing_bytes(&self, turn: &Turn<'_>, tier: TierIndex, bytes: u64) -> u64 {
        let target = &turn.view.tiers[tier.index()];
        let after_bytes = pace::committed_bytes(target) + turn.coming_bytes(tier) + bytes;
        after_bytes
            .saturating_sub(turn.leaving_bytes(tier))
            .saturating_sub(self.common().levels.high_bytes(target))
    }

    /// What would have to leave a tier for `bytes` more: the first of its row, as an example of
    /// all that would.
    fn victim<'a>(&self, turn: &Turn<'a>, tier: TierIndex, bytes: u64) -> Option<Victim<'a>> {
        if self.missing_bytes(turn, tier, bytes) == 0 {
            return None;
        }
        let slot = self.choice.first(tier.index())?;
        let segment = self.roster.segment(turn.view, slot)?;
        let demand = self.choice.demand(turn.view, &self.settings, slot);
        Some(Victim { segment, demand })
    }
}

/// A promotion that would pay.
struct Wish {
    slot: Slot,
    to: TierIndex,
    bytes: u64,
    /// Whether it pays even if something else has to leave for it.
    is_displacing: bool,
    benefit_s: f64,
    reason: String,
}
