// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lending the files of objects to readers, and hearing of what they read.

use std::sync::atomic::AtomicBool;

use terrace_core::{Event, EventKind, FileLease, ReadSummary, Result};

use crate::memory::entry::{Entry, Segment};
use crate::memory::located::Lending;
use crate::shared::Shared;

/// Looks at an object that moves from under them, before there is no lease.
const LOOKS_MAX: usize = 3;

/// Most bytes and nanoseconds that are believed at a time: a reader's word alone must not run the
/// counters over.
const BELIEVED_MAX: u64 = 1 << 40;

/// Largest offset that is believed: with the bytes it fits in 63 bits.
const OFFSET_MAX: u64 = i64::MAX as u64 - BELIEVED_MAX;

impl Shared {
    /// Lends the file that readers use, where the object has one segment, its `first`: the file's
    /// end is the object's. `is_holder` says whether the handle that asks holds the word already.
    pub(crate) fn lend(
        &self,
        entry: &Entry,
        first: &Segment,
        is_holder: &AtomicBool,
    ) -> Result<Option<FileLease>> {
        let is_whole = || !entry.is_deleted() && entry.segments.load().len() == 1;
        for _ in 0..LOOKS_MAX {
            // Held while the file is opened: it is not deleted meanwhile.
            let location = first.location.load_full();
            let site = location.read_site();
            if !is_whole() || !self.tier(site.place.tier).capability.leases {
                return Ok(None);
            }
            // A reader takes its end for the object's.
            if !self.has_its_end("lend a file", first, site)? {
                return Ok(None);
            }
            let open = site.open_once(self.backend(site))?;
            let Some(lease) = open.lease_file()? else { return Ok(None) };
            // A tier that is a stack: a reader looks at one word.
            if lease.word.is_some() {
                return Ok(None);
            }
            match first.location.lend(&self.leases, site, is_holder, is_whole)? {
                Lending::Word(word) => {
                    return Ok(Some(FileLease { file: lease.file, word: Some(word) }));
                }
                Lending::Refused => return Ok(None),
                Lending::Moved => {}
            }
        }
        Ok(None)
    }

    /// Counts reads that were done through a lease, and posts them as one event.
    pub(crate) fn note_reads(&self, entry: &Entry, first: &Segment, reads: &ReadSummary) {
        if reads.count == 0 || entry.is_deleted() {
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
