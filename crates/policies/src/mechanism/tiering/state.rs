// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What such a policy knows, as it is saved: where nothing was under way, another that takes it over
//! goes on as the first would have.

use serde::{Deserialize, Serialize};
use terrace_core::{SegmentView, Slot, View};

use super::{Choice, Tiering};
use crate::mechanism::gate::SavedGate;
use crate::mechanism::roster::SavedRest;
use crate::mechanism::saved::{Name, Names};
use crate::mechanism::staging::SavedLease;

#[derive(Serialize, Deserialize)]
pub(crate) struct State<S> {
    #[serde(flatten)]
    choice: S,
    leases: Vec<SavedLease>,
    // States of earlier releases have none of the following.
    #[serde(default)]
    next_lease: Slot,
    gate: Option<SavedGate>,
    #[serde(default)]
    draining: Vec<String>,
    #[serde(default)]
    rests: Vec<SavedRest>,
    #[serde(default)]
    candidates: Vec<Name>,
    /// Segments that were seen and are in no row.
    #[serde(default)]
    unlisted: Vec<Name>,
}

impl<C: Choice> Tiering<C> {
    pub(crate) fn to_state(&self, view: &View) -> State<C::Saved> {
        let candidates = self.candidates.slots();
        let candidates = candidates.filter_map(|slot| self.roster.segment(view, slot));
        let unlisted = self.roster.live(view).filter(|(slot, _)| !self.choice.contains(*slot));
        State {
            choice: self.choice.save(view, &self.roster),
            leases: self.staging.save(view),
            next_lease: self.staging.next(),
            gate: Some(self.gate.save(view.now_ns)),
            draining: self.drain.save(view),
            rests: self.roster.save(view),
            candidates: candidates.map(Name::of).collect(),
            unlisted: unlisted.map(|(_, segment)| Name::of(segment)).collect(),
        }
    }

    pub(crate) fn take_over(&mut self, view: &View, state: &State<C::Saved>) {
        let named = C::names(&state.choice).into_iter();
        let named = named.chain(state.leases.iter().map(SavedLease::name));
        let named = named.chain(state.rests.iter().map(SavedRest::name));
        let named = named.chain(&state.candidates).chain(&state.unlisted);
        let names = Names::new(view, named);
        self.choice.adapt(view, &self.settings);
        self.choice.restore(view, &names, &state.choice, &mut self.roster);
        self.staging.restore(view, &names, &state.leases, state.next_lease);
        if let Some(gate) = &state.gate {
            self.gate.restore(view.now_ns, gate);
        }
        self.drain.restore(view, &state.draining);
        self.roster.restore(view, &names, &state.rests);
        for slot in state.candidates.iter().filter_map(|name| names.slot(name)) {
            self.candidates.add(slot);
        }
        for slot in state.unlisted.iter().filter_map(|name| names.slot(name)) {
            self.roster.adopt(view, slot);
            let segment = &view.segments[slot as usize];
            // A segment that was open before a restart gets no close after it.
            match self.is_held(slot, segment) {
                true => self.choice.unlist(slot),
                false => self.choice.list(view, slot, segment),
            }
        }
    }

    /// Whether a segment cannot leave its tier until a close, a receipt, a release, an unpin or a
    /// write says that it can.
    pub(super) fn is_held(&self, slot: Slot, segment: &SegmentView) -> bool {
        segment.opens > 0
            || segment.size_bytes == 0
            || self.staging.holds(slot)
            || !self.roster.is_free(slot, segment)
    }
}
