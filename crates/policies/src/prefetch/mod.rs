// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Brings up what is going to be read next: sequences, strides, and orders that were read before.
//! Everything else goes by heat.

mod ahead;
mod followers;
mod sequence;
mod settings;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::json;
use terrace_core::{
    Actions, Event, EventKind, Parameter, Placer, Policy, Result, SegmentView, Slot, View,
};

use crate::heat::Heats;
use crate::mechanism::gate::Demand;
use crate::mechanism::habits::mix;
use crate::mechanism::pace;
use crate::mechanism::parameters::Chosen;
use crate::mechanism::saved;
use crate::mechanism::tiering::Tiering;
use ahead::{Ahead, Expected};
use followers::Followers;
use sequence::{ByName, Sequence};
use settings::PrefetchSettings;
use state::State;

/// Makes the policy; `docs/policies/prefetch.md` is its definition.
pub(crate) fn create(view: &View, parameters: &[(String, String)]) -> Result<Box<dyn Policy>> {
    let settings = Chosen::new(PrefetchSettings::default(), view, parameters)?;
    let heats = Heats::new(&*settings);
    Ok(Box::new(Prefetch {
        tiering: Tiering::new(settings, heats, view),
        known: Vec::new(),
        by_name: Sequence::default(),
        by_creation: Sequence::default(),
        followers: Followers::default(),
        ahead: Ahead::default(),
        usual: Usual::default(),
    }))
}

struct Prefetch {
    tiering: Tiering<Heats<PrefetchSettings>>,
    /// By slot.
    known: Vec<Known>,
    by_name: Sequence<ByName>,
    by_creation: Sequence<(u64, ByName)>,
    followers: Followers,
    ahead: Ahead,
    usual: Usual,
}

/// Which segment is in a slot, and when it was last read.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    incarnation: Option<u32>,
    read_ns: Option<u64>,
}

/// How long reads are.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    reads: u32,
    read_bytes: f32,
}

impl Policy for Prefetch {
    fn placer(&self) -> Arc<dyn Placer> {
        self.tiering.placer()
    }

    fn observe(&mut self, view: &View, events: &[Event]) {
        self.tiering.observe(view, events);
        for event in events {
            let Some(segment) = view.segment(event.slot, event.incarnation) else {
                let known = self.known.get(event.slot as usize);
                if known.is_some_and(|known| known.incarnation == Some(event.incarnation)) {
                    self.forget(event.slot);
                }
                continue;
            };
            self.meet(event.slot, segment);
            match event.kind {
                EventKind::Read => self.read(view, event),
                EventKind::Moved => self.arrive(event, segment),
                _ => {}
            }
        }
    }

    fn plan(&mut self, view: &View, actions: &mut Actions) {
        self.ahead.expire(view.now_ns, self.tiering.settings().min_hit_rate);
        if self.ahead.is_on() {
            let soonest_first = self.ahead.soonest_first().into_iter();
            let proposals = soonest_first.filter_map(|(slot, it)| self.proposal(view, slot, &it));
            let proposals = proposals.collect();
            self.tiering.propose(proposals);
        }
        self.tiering.plan(view, actions);
    }

    fn message(&mut self, view: &View, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        if kind != "status" {
            return self.tiering.message(view, kind, body);
        }
        let mut status = self.tiering.status(view);
        let counts = self.ahead.counts;
        status["prefetch"] = json!({
            "is_on": self.ahead.is_on(),
            "hit_rate": self.ahead.hit_rate(),
            "expected": self.ahead.count(),
            "hits": counts.hits,
            "hits_in_time": counts.in_time,
            "misses": counts.misses,
        });
        Ok(saved::reply(&status))
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.tiering.parameters()
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        self.tiering.set_parameter(name, value)
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn save(&self, view: &View, out: &mut Vec<u8>) {
        saved::write(&self.to_state(view), out);
    }

    fn restore(&mut self, view: &View, version: u32, state: &[u8]) -> Result<()> {
        let state: State = saved::read(self.state_version(), version, state)?;
        self.take_over(view, &state);
        Ok(())
    }
}

impl Prefetch {
    /// Notes which segment is in a slot.
    fn meet(&mut self, slot: Slot, segment: &SegmentView) {
        let index = slot as usize;
        if index >= self.known.len() {
            self.known.resize(index + 1, Known::default());
        }
        match self.known[index].incarnation {
            Some(incarnation) if incarnation == segment.incarnation => return,
            Some(_) => self.forget(slot),
            None => {}
        }
        self.known[index] = Known { incarnation: Some(segment.incarnation), read_ns: None };
        self.by_name.put(slot, ByName::of(segment));
        self.by_creation.put(slot, (segment.created_ns, ByName::of(segment)));
    }

    fn forget(&mut self, slot: Slot) {
        self.known[slot as usize] = Known::default();
        self.by_name.remove(slot);
        self.by_creation.remove(slot);
        self.followers.forget(slot);
        self.ahead.forget(slot);
    }

    fn read(&mut self, view: &View, event: &Event) {
        let slot = event.slot;
        let count = event.count.max(1);
        self.usual.reads = self.usual.reads.saturating_add(count);
        let read_bytes = event.length_bytes as f32 / count as f32;
        mix(&mut self.usual.read_bytes, read_bytes, count, self.usual.reads);

        let (together_ns, min_hit_rate) = {
            let settings = self.tiering.settings();
            (settings.together_ns, settings.min_hit_rate)
        };
        let before_ns = self.known[slot as usize].read_ns.replace(event.time_ns);
        if let Some(expected) = self.ahead.hit(slot, event.tier, min_hit_rate) {
            self.tiering.let_go(view, slot, expected.deadline_ns);
        }
        let is_new =
            before_ns.is_none_or(|before_ns| event.time_ns.saturating_sub(before_ns) > together_ns);
        if is_new {
            self.look_ahead(view, event);
        }
    }

    /// Expects what follows a read.
    fn look_ahead(&mut self, view: &View, event: &Event) {
        let (slot, now_ns) = (event.slot, event.time_ns);
        self.followers.touch(view, slot, event.incarnation, now_ns);
        let by_name = self.by_name.touch(slot, now_ns);
        let by_creation = self.by_creation.touch(slot, now_ns);
        let settings = self.tiering.settings();
        let (window, together_ns) = (settings.window(), settings.together_ns);
        let deadline_ns = now_ns.saturating_add(settings.deadline_ns);
        // What comes later would look like a miss before it is late.
        let last_ns = now_ns.saturating_add(settings.deadline_ns / 2);
        if self.ahead.is_full(window) {
            return;
        }
        let followers = self.followers.ahead(view, slot, window.count);
        let named = by_name.iter().flat_map(|stream| self.by_name.ahead(stream));
        let created = by_creation.iter().flat_map(|stream| self.by_creation.ahead(stream));
        let next = followers.into_iter();
        let next = next.chain(named.take(window.count)).chain(created.take(window.count));
        for (next, at_ns) in next {
            let Some(segment) = view.segments.get(next as usize).filter(|it| it.is_live) else {
                continue;
            };
            let read_ns = self.known.get(next as usize).and_then(|known| known.read_ns);
            let is_read = read_ns.is_some_and(|ns| now_ns.saturating_sub(ns) <= together_ns);
            if at_ns <= last_ns && !is_read && !self.followers.is_recent(next) {
                self.ahead.expect(next, segment, at_ns, deadline_ns, window);
            }
        }
    }

    /// What was brought up stays until it is read, or is not expected any more.
    fn arrive(&mut self, event: &Event, segment: &SegmentView) {
        let Some(expected) = self.ahead.get(event.slot) else { return };
        if event.tier < expected.tier && segment.tier == event.tier {
            self.tiering.hold(event.slot, segment, expected.deadline_ns);
        }
    }

    /// What to expect of a segment that can still come up before it is read.
    fn proposal(&self, view: &View, slot: Slot, expected: &Expected) -> Option<(Slot, Demand)> {
        let segment = view.segment(slot, expected.incarnation)?;
        let target = view.tiers.first().filter(|_| segment.tier.0 > 0)?;
        let source = &view.tiers[segment.tier.index()];
        let move_s = pace::move_s(segment.size_bytes, source, target);
        let left_s = expected.at_ns.saturating_sub(view.now_ns) as f64 * 1e-9;
        if move_s > left_s {
            return None;
        }
        let access_bytes = f64::from(self.usual.read_bytes).max(1.0);
        let reads = (segment.size_bytes as f64 / access_bytes).max(1.0);
        let accesses = self.ahead.hit_rate() * reads;
        Some((slot, Demand { accesses, access_bytes: access_bytes as u64, write_share: 0.0 }))
    }
}
