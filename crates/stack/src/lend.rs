// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hearing of reads that went past the stack.

use std::sync::atomic::Ordering;

use terrace_core::{Event, EventKind, ReadSummary};

use crate::entry::{Entry, Segment};
use crate::shared::Shared;

/// Most bytes and nanoseconds that are believed at a time: a reader's word alone must not run the
/// counters over.
const BELIEVED_MAX: u64 = 1 << 40;

/// Largest offset that is believed: with the bytes it fits in 63 bits.
const OFFSET_MAX: u64 = i64::MAX as u64 - BELIEVED_MAX;

impl Shared {
    /// Counts reads that somebody did by himself, and posts them as one event.
    pub(crate) fn note_reads(&self, entry: &Entry, first: &Segment, reads: &ReadSummary) {
        if reads.count == 0 || entry.is_deleted.load(Ordering::Acquire) {
            return;
        }
        let reads = ReadSummary {
            bytes: reads.bytes.min(BELIEVED_MAX),
            offset_bytes: reads.offset_bytes.min(OFFSET_MAX),
            latency_ns: reads.latency_ns.min(BELIEVED_MAX),
            ..*reads
        };
        // Where they were done, unless it has just moved.
        let tier = first.location.load().read_site().place.tier;
        self.tier(tier).ledger.reads(&reads);
        entry.ledger.reads(&reads);
        if self.is_bare {
            return;
        }
        let now_ns = self.clock.now_ns();
        let event = Event {
            tier,
            count: reads.count,
            offset_bytes: reads.offset_bytes,
            length_bytes: reads.bytes,
            latency_ns: reads.latency_ns,
            ..Event::new(EventKind::Read, first.slot, first.incarnation, now_ns)
        };
        self.mailbox.post(event.into());
    }
}
