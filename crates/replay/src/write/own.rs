// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace of our own, as of a store with one tier, from requests.
//!
//! Nothing is made up that the time model would take for something that happened: an object is
//! created, cut and deleted where the other trace has that. Its length, where that is another
//! length than known from requests, is in an event of the kind `present`. What is not known to be a
//! write becomes a read.

use std::path::Path;

use terrace_core::{Event, EventKind, Figures, Persistency, Result, Watermarks};
use terrace_trace::{About, Origin, Tier, Waits};

use super::Sink;
use super::recorder::Recorder;
use crate::objects::Objects;
use crate::request::{Operation, Request};
use crate::timed::trace_key;

pub(super) struct Own {
    recorder: Recorder,
    objects: Objects,
    /// The size of each object, as a reader takes it to be.
    sizes: Vec<u64>,
    numbers: Vec<u32>,
}

impl Own {
    pub(super) fn new(directory: &Path) -> Self {
        let recorder = Recorder::new(directory);
        Self { recorder, objects: Objects::default(), sizes: Vec::new(), numbers: Vec::new() }
    }

    /// The events that stand for a request.
    fn events(&mut self, request: &Request, slot: u32) -> Vec<Event> {
        let event = |kind| Event::new(kind, slot, 0, request.time_ns);
        let mut events = Vec::new();
        let is_new = slot as usize == self.sizes.len();
        if is_new {
            self.sizes.push(0);
        }
        let size = &mut self.sizes[slot as usize];
        let end_bytes = request.offset_bytes.saturating_add(request.length_bytes);
        if request.operation.is_access() {
            // What is read first was there before.
            let was_there = is_new && request.operation != Operation::Write;
            if was_there || request.size_bytes != end_bytes.max(*size) {
                let length_bytes = request.size_bytes;
                events.push(Event { length_bytes, ..event(EventKind::Present) });
                *size = length_bytes;
            }
        }
        let kind = match request.operation {
            Operation::Write => EventKind::Write,
            Operation::Read | Operation::Unknown => EventKind::Read,
            Operation::Create => EventKind::Create,
            Operation::Open => EventKind::Open,
            Operation::Close => EventKind::Close,
            Operation::SetLength => EventKind::SetLen,
            Operation::Delete => EventKind::Delete,
            Operation::Stat => EventKind::Stat,
            Operation::Sync => EventKind::Sync,
        };
        match kind {
            EventKind::Read | EventKind::Write => *size = end_bytes.max(*size),
            EventKind::SetLen => *size = request.length_bytes,
            EventKind::Delete => *size = 0,
            _ => {}
        }
        let Request { offset_bytes, length_bytes, latency_ns, .. } = *request;
        events.push(Event { offset_bytes, length_bytes, latency_ns, ..event(kind) });
        events
    }
}

/// When nothing else is known: a recording that begins now, of one tier.
fn origin(now_ns: u64) -> Origin {
    let tier = Tier {
        name: "tier".into(),
        figures: Figures::default(),
        watermarks: Watermarks::default(),
        persistency: Persistency::Storage,
    };
    Origin { store_id: 0, wall_ns: now_ns, monotonic_ns: now_ns, tiers: vec![tier] }
}

impl Sink for Own {
    fn push(&mut self, request: &Request) -> Result<()> {
        self.numbers.clear();
        self.objects.numbers(std::iter::once(request.object), &mut self.numbers)?;
        let events = self.events(request, self.numbers[0]);
        self.recorder.begin(|| origin(request.time_ns))?;
        // As a replay calls it, so that a policy that looks at keys does the same.
        let key = trace_key(request.object)?;
        let about = About { object_id: request.object, segment: 0, start_bytes: 0, key: &key };
        events
            .iter()
            .try_for_each(|event| self.recorder.put(event, Waits::default(), || Some(about)))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.recorder.begin(|| origin(0))?;
        self.recorder.finish()
    }
}
