// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program was not shown yet: events, and the segments that they changed as they are now.

use serde_json::{Value, json};
use terrace_core::{Event, EventKind, Key, SLOT_NONE, SegmentView, Slot, View};

use crate::mechanism::boundary::{persistency, temperature};

/// Bytes of a segment and of an event, as `docs/formats/policy-program.md` lists them.
const SEGMENT_BYTES: usize = 72;
const EVENT_BYTES: usize = 56;

/// Collected until the program is asked for something.
#[derive(Debug, Default)]
pub(super) struct News {
    slots: Vec<Slot>,
    /// By slot: its place in `slots`, beside the number of the batch for which that holds.
    places: Vec<(u64, u32)>,
    batch: u64,
    /// By slot: whether the program knows it.
    is_shown: Vec<bool>,
    /// By slot: the key that the program knows it by.
    keys: Vec<Option<(Key, u32)>>,
    new_keys: Vec<Value>,
    segments: Vec<u8>,
    events: Vec<u8>,
    event_count: usize,
    bytes: Vec<u8>,
}

impl News {
    /// Notes an event, and its segment as the view has it, unless the event says it all.
    pub(super) fn add(&mut self, view: &View, event: &Event) {
        let is_told = self.is_shown.get(event.slot as usize) == Some(&true) && says_all(event);
        if event.slot != SLOT_NONE && !is_told {
            let Some(segment) = view.segments.get(event.slot as usize) else { return };
            self.note(event.slot, segment);
        }
        self.events.extend(event_bytes(event));
        self.event_count += 1;
    }

    fn note(&mut self, slot: Slot, segment: &SegmentView) {
        let index = slot as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, (0, 0));
            self.keys.resize(index + 1, None);
            self.is_shown.resize(index + 1, false);
        }
        self.is_shown[index] = true;
        let row = segment_bytes(segment);
        // The first batch has number 0, which new places have, too: they are of batch + 1.
        let (batch, place) = self.places[index];
        if batch == self.batch + 1 {
            let at = place as usize * SEGMENT_BYTES;
            self.segments[at..at + SEGMENT_BYTES].copy_from_slice(&row);
        } else {
            self.places[index] = (self.batch + 1, self.slots.len() as u32);
            self.slots.push(slot);
            self.segments.extend(row);
        }
        let is_known = self.keys[index].as_ref().is_some_and(|(key, number)| {
            let is_same = key.as_str().as_ptr() == segment.key.as_str().as_ptr();
            *number == segment.segment && (is_same || *key == segment.key)
        });
        if !is_known {
            self.new_keys.push(json!([slot, segment.key.as_str()]));
            self.keys[index] = Some((segment.key.clone(), segment.segment));
        }
    }

    pub(super) fn bytes_count(&self) -> usize {
        self.segments.len() + self.events.len()
    }

    /// Says in the head what follows it.
    pub(super) fn tell(&mut self, head: &mut Value) {
        head["changed"] = self.slots.len().into();
        head["events"] = self.event_count.into();
        head["keys"] = std::mem::take(&mut self.new_keys).into();
        self.bytes.clear();
        self.bytes.extend(self.slots.iter().flat_map(|slot| slot.to_le_bytes()));
        self.bytes.extend_from_slice(&self.segments);
        self.bytes.extend_from_slice(&self.events);
    }

    /// Slots, segments and events, as `tell` found them.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.batch += 1;
        self.event_count = 0;
        self.slots.clear();
        self.segments.clear();
        self.events.clear();
    }
}

/// What every call tells of the view: time, tiers, and how many slots there are.
pub(super) fn head(view: &View) -> Value {
    let tiers: Vec<_> = view
        .tiers
        .iter()
        .map(|tier| {
            // JSON has no infinity: what is not bounded is null.
            json!({
                "name": tier.name,
                "capacity_bytes": bounded(tier.figures.capacity_bytes),
                "latency_ns": tier.figures.latency_ns,
                "read_bytes_per_s": tier.figures.read_bytes_per_s,
                "write_bytes_per_s": tier.figures.write_bytes_per_s,
                "parallelism": tier.figures.parallelism,
                "idle_w": tier.figures.idle_w,
                "active_w": tier.figures.active_w,
                "low": tier.watermarks.low,
                "high": tier.watermarks.high,
                "critical": tier.watermarks.critical,
                "persistency": persistency(tier.persistency),
                "used_bytes": tier.used_bytes,
                "reserved_bytes": tier.reserved_bytes,
                "copy_bytes": tier.copy_bytes,
                "garbage_bytes": tier.garbage_bytes,
                "incoming_bytes": tier.incoming_bytes,
                "outgoing_bytes": tier.outgoing_bytes,
                "utilisation": tier.utilisation,
                "is_writable": tier.is_writable,
            })
        })
        .collect();
    json!({ "now_ns": view.now_ns, "tiers": tiers, "slots": view.segments.len() })
}

/// Whether the program can do to its segment what [`View::apply`] does: of these there are many. What a
/// full ring summed up changes the view beyond what it says.
fn says_all(event: &Event) -> bool {
    matches!(event.kind, EventKind::Read | EventKind::Write) && event.count == 1
}

fn bounded(bytes: u64) -> Option<u64> {
    (bytes < u64::MAX).then_some(bytes)
}

fn segment_bytes(segment: &SegmentView) -> [u8; SEGMENT_BYTES] {
    let mut row = Row::default();
    for number in [
        segment.start_bytes,
        segment.size_bytes,
        segment.created_ns,
        segment.last_read_ns,
        segment.last_write_ns,
        segment.last_close_ns,
    ] {
        row.put(&number.to_le_bytes());
    }
    for number in [segment.incarnation, segment.copies.0, segment.opens, segment.segment] {
        row.put(&number.to_le_bytes());
    }
    row.put(&[
        segment.tier.0,
        persistency(segment.persistency),
        temperature(segment.hint.temperature),
        segment.is_live.into(),
        segment.is_moving.into(),
        segment.is_pinned.into(),
    ]);
    row.bytes
}

fn event_bytes(event: &Event) -> [u8; EVENT_BYTES] {
    let mut row = Row::default();
    for number in [event.kind as u32, event.slot, event.incarnation, event.count] {
        row.put(&number.to_le_bytes());
    }
    for number in [event.time_ns, event.offset_bytes, event.length_bytes, event.latency_ns] {
        row.put(&number.to_le_bytes());
    }
    for number in [u32::from(event.tier.0), event.outcome as u32] {
        row.put(&number.to_le_bytes());
    }
    row.bytes
}

/// Bytes that are filled from the front.
struct Row<const BYTES: usize> {
    bytes: [u8; BYTES],
    at: usize,
}

impl<const BYTES: usize> Default for Row<BYTES> {
    fn default() -> Self {
        Self { bytes: [0; BYTES], at: 0 }
    }
}

impl<const BYTES: usize> Row<BYTES> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}
