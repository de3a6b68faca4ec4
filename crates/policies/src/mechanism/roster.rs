// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which segment is in which slot, and what was asked for it.

use serde::{Deserialize, Serialize};
use terrace_core::{Event, EventKind, Outcome, SegmentView, Slot, View};

use super::saved::{Name, Names};

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
    /// A clean copy.
    Copy,
    /// The end of what was asked for before.
    Cancel,
}

/// How an event's segment stands to what the policy knew.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen<'a> {
    /// Seen for the first time, whatever the event: forget which segment had the slot before.
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

/// For how long a segment is left alone, as it is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedRest {
    name: Name,
    rest_left_ns: u64,
    retry_left_ns: u64,
}

impl SavedRest {
    /// The segment that is left alone.
    pub(crate) fn name(&self) -> &Name {
        &self.name
    }
}

impl Roster {
    /// The segments that are left alone, to be saved.
    pub(crate) fn save(&self, view: &View) -> Vec<SavedRest> {
        let left = |until_ns: u64| until_ns.saturating_sub(view.now_ns);
        let saved = |(index, entry): (usize, &Entry)| {
            let (rest_left_ns, retry_left_ns) = (left(entry.rest_until_ns), left(entry.retry_ns));
            let is_left_alone = rest_left_ns > 0 || retry_left_ns > 0;
            let segment = self.segment(view, index as Slot).filter(|_| is_left_alone)?;
            Some(SavedRest { name: Name::of(segment), rest_left_ns, retry_left_ns })
        };
        self.entries.iter().enumerate().filter_map(saved).collect()
    }

    /// Goes on leaving segments alone.
    pub(crate) fn restore(&mut self, view: &View, names: &Names<'_>, saved: &[SavedRest]) {
        for rest in saved {
            let Some(slot) = names.slot(&rest.name) else { continue };
            self.adopt(view, slot);
            let entry = &mut self.entries[slot as usize];
            entry.rest_until_ns = view.now_ns.saturating_add(rest.rest_left_ns);
            entry.retry_ns = view.now_ns.saturating_add(rest.retry_left_ns);
        }
    }

    /// The segments that were seen and live, by slot.
    pub(crate) fn live<'a>(&self, view: &'a View) -> impl Iterator<Item = (Slot, &'a SegmentView)> {
        let slots = 0..self.entries.len() as Slot;
        slots.filter_map(move |slot| Some((slot, self.segment(view, slot)?)))
    }

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

    /// Whether a move of the segment makes sense: it is not pinned, and no move of it waits or
    /// runs.
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
