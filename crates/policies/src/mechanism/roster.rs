// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is in which slot, and what was asked for it.

use terrace_core::{Event, EventKind, Outcome, SegmentView, Slot, View};

/// How long a segment is left alone after a move of it failed, so that a full or broken tier is
/// not asked the same thing in every round.
const RETRY_NS: u64 = 1_000_000_000;

/// What a policy has asked for and has no receipt of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    #[default]
    Nothing,
    Demotion,
    Promotion,
    Staging,
    /// The end of what was asked for before.
    Cancel,
}

/// How an event's segment stands to what the policy knew.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen<'a> {
    /// Seen for the first time, whatever the event: forget who had the slot before.
    New(&'a SegmentView),
    /// Seen before.
    Known(&'a SegmentView),
    /// It was known and is deleted.
    Gone,
    /// About no segment, or about one that was deleted before it was seen.
    Nothing,
}

/// One entry a slot, grown with the view.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// It has moved, and stays where it is until then.
    rest_until_ns: u64,
    /// A move of it failed, and none is tried until then.
    retry_ns: u64,
    incarnation: u32,
    is_known: bool,
    asked: Asked,
}

impl Roster {
    /// Takes note of an event. `rest_ns` is the least time between two moves of a segment.
    pub(crate) fn see<'a>(&mut self, view: &'a View, event: &Event, rest_ns: u64) -> Seen<'a> {
        let index = event.slot as usize;
        if index >= view.segments.len() {
            return Seen::Nothing;
        }
        if index >= self.entries.len() {
            self.entries.resize(view.segments.len(), Entry::default());
        }
        let entry = &mut self.entries[index];
        let was_known = entry.is_known && entry.incarnation == event.incarnation;
        let Some(segment) = view.segment(event.slot, event.incarnation) else {
            if was_known {
                *entry = Entry::default();
            }
            return if was_known { Seen::Gone } else { Seen::Nothing };
        };
        if !was_known {
            *entry = Entry { incarnation: event.incarnation, is_known: true, ..Entry::default() };
        }
        match event.kind {
            EventKind::Moved => entry.rest_until_ns = event.time_ns.saturating_add(rest_ns),
            EventKind::Receipt => {
                entry.asked = Asked::Nothing;
                // Nothing is wrong with a segment whose move was only called off.
                let is_failed = !matches!(event.outcome, Outcome::Done | Outcome::Cancelled);
                if is_failed {
                    entry.retry_ns = event.time_ns.saturating_add(RETRY_NS);
                }
            }
            _ => {}
        }
        if was_known { Seen::Known(segment) } else { Seen::New(segment) }
    }

    /// Takes note of a segment that a restored state names.
    pub(crate) fn adopt(&mut self, view: &View, slot: Slot) {
        let incarnation = view.segments[slot as usize].incarnation;
        self.see(view, &Event::new(EventKind::Present, slot, incarnation, view.now_ns), 0);
    }

    /// The segment in a slot if the policy has seen it and it still lives.
    pub(crate) fn segment<'a>(&self, view: &'a View, slot: Slot) -> Option<&'a SegmentView> {
        let entry = self.entries.get(slot as usize).filter(|entry| entry.is_known)?;
        view.segment(slot, entry.incarnation)
    }

    /// Whether a move of the segment makes sense: nobody pinned it, and none waits or runs.
    pub(crate) fn is_free(&self, slot: Slot, segment: &SegmentView) -> bool {
        !segment.is_pinned && !segment.is_moving && self.asked(slot) == Asked::Nothing
    }

    /// Whether the segment moved a shorter time ago than a policy's own moves may follow.
    pub(crate) fn is_resting(&self, slot: Slot, now_ns: u64) -> bool {
        self.entries.get(slot as usize).is_some_and(|entry| now_ns < entry.rest_until_ns)
    }

    /// Whether a move of the segment failed so short a time ago that no move is tried.
    pub(crate) fn has_failed(&self, slot: Slot, now_ns: u64) -> bool {
        self.entries.get(slot as usize).is_some_and(|entry| now_ns < entry.retry_ns)
    }

    /// What was asked for a slot.
    pub(crate) fn asked(&self, slot: Slot) -> Asked {
        self.entries.get(slot as usize).map_or(Asked::Nothing, |entry| entry.asked)
    }

    /// Remembers what was asked for a segment that was seen.
    pub(crate) fn ask(&mut self, slot: Slot, what: Asked) {
        self.entries[slot as usize].asked = what;
    }
}
