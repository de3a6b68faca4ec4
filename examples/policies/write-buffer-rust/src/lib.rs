// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A write buffer as a Terrace policy: new objects go to tier 0 and move one tier down
//! [`TIMEOUT_S`] after their last write. Where the buffer is fuller than [`HIGH`], the objects that
//! were not written for longest go at once. Only closed ones go. The message `drain` empties it now.
//! Try: change a value, `cargo build --release`, and run again.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use terrace_policy::{
    Actions, Event, Parameter, Placed, Placement, Policy, Refusal, View, Wish, WishKind, event,
    export_policy,
};

/// Seconds from the last write to the move.
const TIMEOUT_S: f64 = 5.0;
/// Share of the buffer from which on nothing waits for the timeout.
const HIGH: f64 = 0.9;

struct WriteBuffer {
    timeout_s: f64,
    high: f64,
    /// The segments in the buffer: last write as far as `plan` looked, slot, incarnation.
    waiting: BTreeSet<(u64, u32, u32)>,
    /// What was not written since is due, whatever the timeout.
    drain_until_ns: u64,
}

export_policy!(WriteBuffer);

impl Policy for WriteBuffer {
    const NAME: &'static str = "write-buffer-rust";
    type Published = ();

    fn create(view: &View<'_>) -> Result<Self, Refusal> {
        if view.tiers().len() < 2 {
            return Err(Refusal::Invalid("a write buffer needs two tiers".into()));
        }
        Ok(Self { timeout_s: TIMEOUT_S, high: HIGH, waiting: BTreeSet::new(), drain_until_ns: 0 })
    }

    fn publish(&self) {}

    fn place(_published: &(), _new: &Placement<'_>) -> Placed {
        Placed::Whole { tier: 0 }
    }

    fn observe(&mut self, view: &View<'_>, events: &[Event]) {
        for event in events {
            // Writes are not followed one by one: `plan` looks at the time of the last one.
            if matches!(event.kind, event::CREATE | event::PRESENT | event::MOVED)
                && view.find(event.slot, event.incarnation).is_some_and(|found| found.tier == 0)
            {
                self.waiting.insert((event.time_ns, event.slot, event.incarnation));
            }
        }
    }

    fn plan(&mut self, view: &View<'_>, actions: &mut Actions<'_>) {
        let (buffer, below) = (&view.tiers()[0], &view.tiers()[1]);
        let high_bytes = (self.high * buffer.capacity_bytes as f64) as u64;
        let mut excess_bytes = buffer.expected_bytes().saturating_sub(high_bytes);
        let mut room_bytes = below.capacity_bytes.saturating_sub(below.expected_bytes());
        let timeout_ns = (self.timeout_s * 1e9) as u64;
        let due_ns = self.drain_until_ns.max(view.now_ns().saturating_sub(timeout_ns));
        let mut after = Unbounded;
        while let Some(&entry) = self.waiting.range((after, Unbounded)).next() {
            let (since_ns, slot, incarnation) = entry;
            after = Excluded(entry);
            let Some(segment) = view.find(slot, incarnation).filter(|found| found.tier == 0) else {
                self.waiting.remove(&entry);
                continue;
            };
            let is_due = since_ns <= due_ns;
            if !is_due && excess_bytes == 0 {
                break;
            }
            let is_busy = segment.opens > 0 || segment.is_moving != 0 || segment.is_pinned != 0;
            if segment.last_write_ns > since_ns {
                self.waiting.remove(&entry);
                self.waiting.insert((segment.last_write_ns, slot, incarnation));
                continue;
            } else if is_busy || segment.size_bytes > room_bytes {
                continue;
            }
            let reason = if is_due { "not written for the timeout" } else { "the buffer is full" };
            if !actions.push(Wish::new(WishKind::Move, slot, segment, 1, reason)) {
                break;
            }
            excess_bytes = excess_bytes.saturating_sub(segment.size_bytes);
            room_bytes -= segment.size_bytes;
        }
    }

    fn message(&mut self, view: &View<'_>, kind: &str, _: &[u8]) -> Result<Vec<u8>, Refusal> {
        if kind != "drain" {
            return Err(Refusal::Unsupported);
        }
        self.drain_until_ns = view.now_ns();
        Ok(format!("draining {} segments\n", self.waiting.len()).into_bytes())
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter::new("timeout_s", self.timeout_s, "seconds from the last write to the move"),
            Parameter::new("high", self.high, "share of the buffer from which on none waits"),
        ]
    }

    fn set_parameter(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        let (place, max) = match name {
            "timeout_s" => (&mut self.timeout_s, 1e9),
            "high" => (&mut self.high, 1.0),
            _ => return Err(Refusal::NotFound),
        };
        let number = value.parse().ok().filter(|number| (0.0..=max).contains(number));
        *place = number.ok_or_else(|| Refusal::Invalid(format!("0 to {max} is expected")))?;
        Ok(())
    }
}
