// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What prefetching knows, as it is saved.

use serde::{Deserialize, Serialize};
use terrace_core::{Slot, View};

use super::ahead::SavedAhead;
use super::followers::SavedFollowers;
use super::sequence::SavedStream;
use super::{Known, Prefetch, Usual};
use crate::heat;
use crate::mechanism::saved::{Name, Names};
use crate::mechanism::tiering;

#[derive(Serialize, Deserialize)]
pub(super) struct State {
    tiering: tiering::State<heat::Saved>,
    /// How long ago segments were read.
    reads: Vec<(Name, u64)>,
    streams_by_name: Vec<SavedStream>,
    streams_by_creation: Vec<SavedStream>,
    followers: SavedFollowers,
    ahead: SavedAhead,
    usual_reads: u32,
    usual_read_bytes: f32,
}

impl Prefetch {
    pub(super) fn to_state(&self, view: &View) -> State {
        let read = |(slot, known): (usize, &Known)| {
            let segment = view.segment(slot as Slot, known.incarnation?)?;
            Some((Name::of(segment), view.now_ns.saturating_sub(known.read_ns?)))
        };
        State {
            tiering: self.tiering.to_state(view),
            reads: self.known.iter().enumerate().filter_map(read).collect(),
            streams_by_name: self.by_name.save(view),
            streams_by_creation: self.by_creation.save(view),
            followers: self.followers.save(view),
            ahead: self.ahead.save(view),
            usual_reads: self.usual.reads,
            usual_read_bytes: self.usual.read_bytes,
        }
    }

    pub(super) fn take_over(&mut self, view: &View, state: &State) {
        self.tiering.take_over(view, &state.tiering);
        let streams = state.streams_by_name.iter().chain(&state.streams_by_creation);
        let named = state.reads.iter().map(|(name, _)| name);
        let named = named.chain(streams.map(|stream| &stream.last));
        let named = named.chain(state.followers.names()).chain(state.ahead.names());
        let names = Names::new(view, named);
        for (name, age_ns) in &state.reads {
            let Some(slot) = names.slot(name) else { continue };
            self.meet(slot, &view.segments[slot as usize]);
            let read_ns = view.now_ns.saturating_sub(*age_ns);
            self.known[slot as usize].read_ns = Some(read_ns);
        }
        self.followers.restore(view, &names, &state.followers);
        self.by_name.restore(view, &names, &state.streams_by_name);
        self.by_creation.restore(view, &names, &state.streams_by_creation);
        self.ahead.restore(view, &names, &state.ahead);
        self.usual = Usual { reads: state.usual_reads, read_bytes: state.usual_read_bytes };
    }
}
