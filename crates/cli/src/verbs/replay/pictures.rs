// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The timeline of what a policy did in virtual time, from what it is shown.

use std::sync::{Arc, Mutex, PoisonError};

use terrace_core::{Action, Event, View};
use terrace_replay::{Observer, Timed};
use terrace_report::timeline::{Builder, CELLS_MAX, Picture, Seen, What};

use crate::verbs::trace::picture::what;

/// Marks of all pictures of a page, as far as each can have fewer.
const CELLS_OF_PAGE: usize = 1 << 18;

/// Marks of a picture at least, however many share a page.
const CELLS_MIN: usize = 1 << 13;

/// Draws while a policy is replayed; clones draw into the same picture.
#[derive(Clone)]
pub(super) struct Drawing {
    builder: Arc<Mutex<Builder>>,
}

impl Drawing {
    /// One of so many pictures on a page.
    pub(super) fn of(pictures: usize) -> Self {
        let cells = (CELLS_OF_PAGE / pictures.max(1)).clamp(CELLS_MIN, CELLS_MAX);
        Self { builder: Arc::new(Mutex::new(Builder::new(cells))) }
    }

    /// The picture, with what came of the replay.
    pub(super) fn finish(self, timed: &Timed) -> Picture {
        let mut builder = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
        for (at_s, held) in &timed.fill {
            for (tier, bytes) in held.iter().enumerate() {
                builder.fill((at_s * 1e9) as u64, tier, *bytes);
            }
        }
        std::mem::replace(&mut *builder, Builder::new(CELLS_MIN)).finish()
    }
}

impl Observer for Drawing {
    fn observe(&mut self, view: &View, events: &[Event]) {
        // Each method leaves the builder whole, also where another one panics.
        let mut builder = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
        let builder = &mut *builder;
        for tier in &view.tiers {
            builder.tier(&tier.name, tier.figures.capacity_bytes);
        }
        for event in events {
            let Some(what) = what(event.kind, event.outcome) else { continue };
            let is_access = matches!(what, What::Read | What::Write);
            let end_bytes = event.offset_bytes.saturating_add(event.length_bytes);
            let seen = Seen {
                id: (event.slot.into(), event.incarnation),
                time_ns: event.time_ns,
                what,
                tier: Some(event.tier.index()),
                bytes: if is_access { event.length_bytes } else { 0 },
                size_bytes: end_bytes,
                latency_ns: if is_access { event.latency_ns } else { 0 },
                guard_ns: 0,
                stack_ns: 0,
                count: event.count.max(1).into(),
            };
            builder.take(&seen, || match view.segments.get(event.slot as usize) {
                Some(segment) if segment.segment == 0 => segment.key.to_string(),
                Some(segment) => format!("{} segment {}", segment.key, segment.segment),
                None => "?".into(),
            });
        }
    }

    fn planned(&mut self, _: &View, actions: &[Action]) {
        let mut builder = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
        for action in actions {
            builder.reason((action.slot.into(), action.incarnation), &action.reason);
        }
    }
}
