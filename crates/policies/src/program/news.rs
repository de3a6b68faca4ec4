// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program was not shown yet: events, and the segments that they changed as they are now.

use std::os::fd::BorrowedFd;

use serde_json::{Value, json};
use terrace_core::{Event, EventKind, Key, Result, SLOT_NONE, SegmentView, Slot, TierView, View};

use super::memory::Memory;
use crate::mechanism::boundary::{persistency, temperature};

/// Bytes of a segment and of an event, as `docs/formats/policy-program.md` lists them.
const SEGMENT_BYTES: usize = 72;
const EVENT_BYTES: usize = 56;
const SLOT_BYTES: usize = size_of::<Slot>();

/// Most bytes of an event with what it changes.
const CHANGE_BYTES: usize = EVENT_BYTES + SEGMENT_BYTES + SLOT_BYTES;

/// Bytes of events, segments and their slots from which on they are not kept back.
const BYTES_MAX: usize = 8 << 20;

/// Most events that are added at once: the memory has room for so many beyond [`BYTES_MAX`].
pub(super) const EVENTS_MAX: usize = 1 << 10;

/// Collected until the program is asked for something.
#[derive(Debug)]
pub(super) struct News {
    /// Where the program reads them: all events, then all segments, then their slots.
    memory: Memory,
    events: usize,
    /// Whose segments changed beyond what events say.
    slots: Vec<Slot>,
    /// By slot, a bit each: whether the program knows it. Every event asks, so it is small.
    is_shown: Vec<u64>,
    /// By slot: the last batch that had it among its `slots`.
    noted: Vec<u64>,
    batch: u64,
    /// By slot: the key that the program knows it by.
    keys: Vec<Option<(Key, u32)>>,
    /// As the program knows them.
    tiers: Vec<TierView>,
}

impl News {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            memory: Memory::new(BYTES_MAX + EVENTS_MAX * CHANGE_BYTES)?,
            events: 0,
            slots: Vec::new(),
            is_shown: Vec::new(),
            noted: Vec::new(),
            batch: 1,
            keys: Vec::new(),
            tiers: Vec::new(),
        })
    }

    /// What the program maps.
    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.lent()
    }

    /// What a call says of the view as a whole: time, how many slots there are, and the tiers where
    /// they are others than the program knows.
    pub(super) fn head(&mut self, view: &View) -> Value {
        let mut head = json!({ "now_ns": view.now_ns, "slots": view.segments.len() });
        if self.tiers != view.tiers {
            head["tiers"] = view.tiers.iter().map(tier).collect();
            self.tiers.clone_from(&view.tiers);
        }
        head
    }

    /// Notes events, at most [`EVENTS_MAX`], and that their segments changed, unless an event has
    /// it all. Where this is full it has to be sent before there can be more.
    pub(super) fn add(&mut self, view: &View, events: &[Event]) {
        for event in events {
            let is_told = says_all(event) && self.is_shown(event.slot);
            if event.slot != SLOT_NONE && !is_told {
                if event.slot as usize >= view.segments.len() {
                    continue;
                }
                self.note(event.slot);
            }
            let start = self.events * EVENT_BYTES;
            self.memory.bytes()[start..start + EVENT_BYTES].copy_from_slice(&event_bytes(event));
            self.events += 1;
        }
    }

    fn is_shown(&self, slot: Slot) -> bool {
        self.is_shown.get(slot as usize / 64).is_some_and(|bits| bits >> (slot % 64) & 1 == 1)
    }

    fn note(&mut self, slot: Slot) {
        let index = slot as usize;
        if self.noted.len() <= index {
            self.is_shown.resize(index / 64 + 1, 0);
            self.noted.resize(index + 1, 0);
            self.keys.resize(index + 1, None);
        }
        self.is_shown[index / 64] |= 1 << (index % 64);
        if self.noted[index] != self.batch {
            self.noted[index] = self.batch;
            self.slots.push(slot);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.events * EVENT_BYTES + self.slots.len() * (SEGMENT_BYTES + SLOT_BYTES) >= BYTES_MAX
    }

    /// Puts the segments behind the events, as they are now, and says in the head what there is.
    pub(super) fn tell(&mut self, view: &View, head: &mut Value) {
        let mut new_keys = Vec::new();
        let behind = &mut self.memory.bytes()[self.events * EVENT_BYTES..];
        let (rows, behind) = behind.split_at_mut(self.slots.len() * SEGMENT_BYTES);
        let rows = rows.chunks_exact_mut(SEGMENT_BYTES).zip(behind.chunks_exact_mut(SLOT_BYTES));
        for (&slot, (row, number)) in self.slots.iter().zip(rows) {
            let segment = &view.segments[slot as usize];
            row.copy_from_slice(&segment_bytes(segment));
            number.copy_from_slice(&slot.to_le_bytes());
            let known = &mut self.keys[slot as usize];
            if !known.as_ref().is_some_and(|known| is_known(known, segment)) {
                new_keys.push(json!([slot, segment.key.as_str()]));
                *known = Some((segment.key.clone(), segment.segment));
            }
        }
        head["changed"] = self.slots.len().into();
        head["events"] = self.events.into();
        head["keys"] = new_keys.into();
        self.clear();
    }

    fn clear(&mut self) {
        self.events = 0;
        self.slots.clear();
        self.batch += 1;
    }
}

fn is_known((key, number): &(Key, u32), segment: &SegmentView) -> bool {
    let is_same = key.as_str().as_ptr() == segment.key.as_str().as_ptr();
    *number == segment.segment && (is_same || *key == segment.key)
}

fn tier(tier: &TierView) -> Value {
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
        "price_per_1000_write_requests": tier.figures.prices.per_1000_write_requests,
        "price_per_1000_read_requests": tier.figures.prices.per_1000_read_requests,
        "price_per_gb_month": tier.figures.prices.per_gb_month,
        "price_per_gb_read": tier.figures.prices.per_gb_read,
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
}

/// Whether the program can do to its segment what [`View::apply`] does: of these there are many. What a
/// full ring summed up changes the view beyond what it says.
fn says_all(event: &Event) -> bool {
    match event.kind {
        EventKind::Read | EventKind::Write => event.count == 1,
        EventKind::Stat | EventKind::Sync => true,
        _ => false,
    }
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
