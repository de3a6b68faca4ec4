// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What such a policy knows, as it is saved.

use serde::{Deserialize, Serialize};
use terrace_core::{Slot, TierIndex, View};

use super::allowance::SavedAllowance;
use super::settings::Lifted;
use super::{CLEAN, Elevator, WRITTEN};
use crate::mechanism::roster::SavedRest;
use crate::mechanism::saved::{Name, Names};
use crate::mechanism::staging::SavedLease;

#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    /// Oldest first.
    written: Vec<Name>,
    clean: Vec<Name>,
    /// Segments that were seen and are in neither list.
    unlisted: Vec<Name>,
    draining: Vec<String>,
    rests: Vec<SavedRest>,
    leases: Vec<SavedLease>,
    next_lease: Slot,
    allowance: SavedAllowance,
    placed: String,
}

impl<S: Lifted> Elevator<S> {
    pub(crate) fn to_state(&self, view: &View) -> State {
        let names = |list| {
            let slots = std::iter::successors(self.order.oldest(list), |at| self.order.newer(*at));
            slots.filter_map(|slot| self.roster.segment(view, slot)).map(Name::of).collect()
        };
        let unlisted = self.roster.live(view).filter(|(slot, _)| !self.order.contains(*slot));
        State {
            written: names(WRITTEN),
            clean: names(CLEAN),
            unlisted: unlisted.map(|(_, segment)| Name::of(segment)).collect(),
            draining: self.drain.save(view),
            rests: self.roster.save(view),
            leases: self.staging.save(view),
            next_lease: self.staging.next(),
            allowance: self.allowance.save(view.now_ns),
            placed: view.tiers[self.placed.index()].name.clone(),
        }
    }

    pub(crate) fn take_over(&mut self, view: &View, state: &State) {
        let listed = state.written.iter().chain(&state.clean);
        let named = listed.clone().chain(&state.unlisted);
        let named = named.chain(state.leases.iter().map(SavedLease::name));
        let names = Names::new(view, named.chain(state.rests.iter().map(SavedRest::name)));
        for slot in listed.filter_map(|name| names.slot(name)) {
            self.roster.adopt(view, slot);
            self.enlist(slot, &view.segments[slot as usize]);
        }
        self.drain.restore(view, &state.draining);
        self.roster.restore(view, &names, &state.rests);
        self.staging.restore(view, &names, &state.leases, state.next_lease);
        self.allowance.restore(view.now_ns, &state.allowance);
        if let Some(tier) = view.tiers.iter().position(|tier| tier.name == state.placed) {
            self.placed = TierIndex(tier as u8);
        }
        for slot in state.unlisted.iter().filter_map(|name| names.slot(name)) {
            self.roster.adopt(view, slot);
            let segment = &view.segments[slot as usize];
            // A segment that was open before a restart gets no close after it.
            if self.is_movable(slot, segment) && segment.opens == 0 {
                self.enlist(slot, segment);
            }
        }
    }
}
