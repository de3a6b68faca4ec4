// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which segments leave a full tier.

use terrace_core::{ActionKind, TierIndex};

use super::settings::Tiered;
use super::{Choice, STEPS_MAX, Tiering};
use crate::mechanism::pace::{self, Below, Fits, Turn};
use crate::mechanism::roster::Asked;

impl<C: Choice> Tiering<C> {
    /// Brings a tier that was above high down to low.
    pub(super) fn drain(&mut self, turn: &mut Turn<'_>, tier: TierIndex, coming_bytes: u64) {
        let view = turn.view;
        let source = &view.tiers[tier.index()];
        let common = self.settings.common();
        let is_busy = common.is_gated && pace::is_busy(source, common.busy);
        let levels = &common.levels;
        let excess_bytes = self.drain.excess_bytes(turn, tier, levels, coming_bytes, is_busy);
        if excess_bytes > 0 {
            let why = format!("{} is {:.0} % full", source.name, source.fill() * 100.0);
            self.demote(turn, tier, excess_bytes, &why);
        }
    }

    /// Asks for demotions of the first in the tier's row, until `excess_bytes` leave the tier.
    /// Fewer do where no more can leave now.
    pub(super) fn demote(
        &mut self,
        turn: &mut Turn<'_>,
        tier: TierIndex,
        mut excess_bytes: u64,
        why: &str,
    ) {
        let view = turn.view;
        self.choice.offer(view, tier, excess_bytes);
        let last = self.choice.last(tier.index());
        let mut next = self.choice.first(tier.index());
        for _ in 0..STEPS_MAX {
            let Some(slot) = next.filter(|_| excess_bytes > 0) else { return };
            // Some go to the other end of the row on the way, and are not looked at twice.
            next = self.choice.after(slot).filter(|_| Some(slot) != last);
            let Some(segment) = self.roster.segment(view, slot).filter(|it| it.tier == tier) else {
                self.choice.unlist(slot);
                continue;
            };
            if self.is_held(slot, segment) {
                self.choice.unlist(slot);
                continue;
            }
            if pace::idle_ns(view, segment) < self.common().idle_ns {
                match C::IS_BY_USE {
                    true => return,
                    false => continue,
                }
            }
            if self.is_left_alone(slot, view.now_ns) {
                continue;
            }
            let (to, bytes) = match turn.room.below(view, segment) {
                Below::To(to, bytes) => (to, bytes),
                Below::Full => return,
                Below::Never => {
                    self.choice.put_last(slot, segment);
                    continue;
                }
            };
            match turn.fits(bytes, 1.0) {
                Fits::Yes => {}
                Fits::Later => return,
                Fits::Never => {
                    self.choice.put_last(slot, segment);
                    continue;
                }
            }
            let reason = format!("{why}, and {}", self.choice.excuse(view, &self.settings, slot));
            let action = pace::action(slot, segment, ActionKind::Move { to }, reason);
            if !turn.ask(segment, action, to, bytes) {
                return;
            }
            self.choice.unlist(slot);
            self.roster.ask(slot, Asked::Demotion);
            self.counts.demotions += 1;
            excess_bytes = excess_bytes.saturating_sub(segment.size_bytes);
        }
    }
}
