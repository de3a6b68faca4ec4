// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the policy's life goes into a trace.

use terrace_core::{Action, Event, Parameter, SegmentView, Slot, View};
use terrace_trace::{
    About, Cause, ParameterValue, PolicyChange, Round, Snapshot, State, TierState, Waits, Writer,
};

use crate::watch::ring::Posted;

/// What the trace needs to know of the policy's thread.
pub(super) struct Witness<'a> {
    pub(super) view: &'a View,
    /// Numbers of objects, by slot.
    pub(super) objects: &'a [u64],
}

impl Witness<'_> {
    /// Records an event.
    #[inline]
    pub(super) fn access(&self, writer: &mut Writer, posted: &Posted) {
        let Posted { event, guard_ns, stack_ns } = posted;
        let waits = Waits { guard_ns: (*guard_ns).into(), stack_ns: (*stack_ns).into() };
        writer.access(event, waits, || {
            let segment = self.view.segments.get(event.slot as usize)?;
            let is_it = segment.incarnation == event.incarnation;
            is_it.then(|| About {
                object_id: self.objects[event.slot as usize],
                segment: segment.segment,
                start_bytes: segment.start_bytes,
                key: &segment.key,
            })
        });
    }

    /// Records a segment as it is.
    pub(super) fn state(
        &self,
        writer: &mut Writer,
        slot: Slot,
        segment: &SegmentView,
        now_ns: u64,
    ) {
        let state = State { slot, view: segment.clone() };
        writer.state(&state, now_ns, self.objects[slot as usize]);
    }

    /// Records all segments.
    pub(super) fn snapshot(&self, writer: &mut Writer) {
        let time_ns = self.view.now_ns;
        writer.snapshot(&Snapshot { time_ns, slots: self.view.segments.len() as u32 });
        for (slot, segment) in self.view.live() {
            self.state(writer, slot, segment, time_ns);
        }
    }

    /// Records that the policy is another one, or of another mind.
    pub(super) fn policy(
        &self,
        writer: &mut Writer,
        name: &str,
        seed: u64,
        parameters: Vec<Parameter>,
        cause: Cause,
    ) {
        let value = |one: Parameter| ParameterValue { name: one.name, value: one.value };
        writer.policy(&PolicyChange {
            now_ns: self.view.now_ns,
            cause,
            name: name.into(),
            parameters: parameters.into_iter().map(value).collect(),
            seed,
            tiers: self.tiers(),
        });
    }

    /// Records a call of the policy with what came of it.
    pub(super) fn round(
        &self,
        writer: &mut Writer,
        number: u64,
        events: &[Event],
        budget: (u64, usize),
        actions: &[Action],
    ) {
        let now_ns = self.view.now_ns;
        writer.round(&Round {
            number,
            now_ns,
            // The timer is the round's own.
            events: events.len() as u64 - 1,
            actions: actions.len() as u64,
            budget_bytes: budget.0,
            budget_actions: budget.1 as u64,
            tiers: self.tiers(),
        });
        for action in actions {
            writer.decision(action, now_ns);
        }
    }

    fn tiers(&self) -> Vec<TierState> {
        self.view.tiers.iter().map(TierState::of).collect()
    }
}
