// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace of our own from another one: every event is kept as it is, with its name, tier and waits.
//!
//! Slots are numbered anew, and times are those of the wall: a trace may be of several recordings.
//! What a policy saw and decided is left out: in a part of a trace it would be of no use.

use std::collections::HashSet;
use std::path::Path;

use terrace_core::{Event, EventKind, Result, SLOT_NONE};
use terrace_trace::{About, Head, Origin, Waits};

use super::Converted;
use super::recorder::Recorder;
use crate::cut::Cut;
use crate::objects::Objects;
use crate::read::Source as _;
use crate::read::own::{Own, Told};

/// Events between two reports of progress.
const PROGRESS_EVENTS: u64 = 10_000;

struct Copy {
    recorder: Recorder,
    objects: Objects,
    numbers: Vec<u32>,
    /// Objects of which something was left out, because it was too early.
    cut_off: HashSet<u64>,
    /// The file that is read: when its recording was started, and its number.
    file: Option<(u64, u64)>,
}

/// Copies what is to be kept of the trace in a directory to a new one.
pub(super) fn copy(
    from: &Path,
    cut: &Cut,
    to: &Path,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<Converted>> {
    let (mut own, mut cut) = (Own::open(from, true)?, *cut);
    let mut copy = Copy {
        recorder: Recorder::new(to),
        objects: Objects::default(),
        numbers: Vec::new(),
        cut_off: HashSet::new(),
        file: None,
    };
    let (mut converted, mut events) = (Converted::default(), 0);
    while let Some(told) = own.next()? {
        let is_access = told.request.is_some_and(|request| request.operation.is_access());
        converted.read += u64::from(is_access);
        if cut.keeps_at(told.wall_ns, told.object, is_access) {
            copy.put(&own, &told)?;
            converted.written += u64::from(is_access);
        } else {
            copy.cut_off.insert(told.object);
        }
        events += 1;
        if events == PROGRESS_EVENTS {
            if !progress(events) {
                return Ok(None);
            }
            events = 0;
        }
    }
    copy.recorder.begin(|| origin(own.head(), 0))?;
    copy.recorder.finish()?;
    converted.notes = own.notes();
    Ok(Some(converted))
}

impl Copy {
    fn put(&mut self, own: &Own, told: &Told) -> Result<()> {
        self.recorder.begin(|| origin(own.head(), told.wall_ns))?;
        let file = own.head().map(|head| (head.started_wall_ns, head.number));
        if file != self.file {
            self.recorder.set_tiers(own.head().map_or(&[], |head| &head.tiers));
            self.file = file;
        }
        let Told { event, waits, object, wall_ns, .. } = *told;
        let subject = own.subject(&event);
        let key = subject.map(|subject| subject.name.key());
        let about = subject.zip(key.as_ref()).map(|(subject, key)| About {
            object_id: subject.object_id,
            segment: subject.segment,
            start_bytes: subject.start_bytes,
            key,
        });
        let mut slot = SLOT_NONE;
        let mut was_there = None;
        if event.slot != SLOT_NONE {
            let known = self.objects.count();
            self.numbers.clear();
            self.objects.numbers(std::iter::once(object), &mut self.numbers)?;
            slot = self.numbers[0];
            if slot == known && self.cut_off.contains(&object) {
                was_there = Some(told.before_bytes).filter(|_| event.kind != EventKind::Create);
            }
        }
        let event = Event { slot, incarnation: 0, time_ns: wall_ns, ..event };
        if let Some(length_bytes) = was_there {
            let tier = event.tier;
            let present = Event::new(EventKind::Present, slot, 0, wall_ns);
            let present = Event { length_bytes, tier, ..present };
            self.recorder.put(&present, Waits::default(), || about)?;
        }
        self.recorder.put(&event, waits, || about)
    }
}

fn origin(head: Option<&Head>, now_ns: u64) -> Origin {
    Origin {
        store_id: head.map_or(0, |head| head.store_id),
        wall_ns: now_ns,
        monotonic_ns: now_ns,
        tiers: head.map_or_else(Vec::new, |head| head.tiers.clone()),
    }
}
