// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Size and times of an object. Nothing is opened for them, and nothing is put into memory: a
//! walk over a million objects asks each tier once for each file.

use terrace_core::{Error, ErrorKind, Event, EventKind, Key, Result, Stat};

use crate::catalog::record::{Place, Record};
use crate::memory::entry::{Entry, Segment};
use crate::shared::Shared;
use crate::watch::ring::Took;

impl Shared {
    /// Size and times of the object that a key names, for a caller.
    pub(crate) fn stat_object(&self, key: &Key) -> Result<Stat> {
        const OPERATION: &str = "stat object";
        if let Some(entry) = self.entries.ready(key) {
            self.release_left(&entry);
            return self.stat_opened(&entry);
        }
        let missing = || Error::new(ErrorKind::NotFound, OPERATION).with("key", key);
        let record = self.catalog.get(key)?.ok_or_else(missing)?;
        let post = |time_ns, took| self.post_stat(&record, time_ns, took);
        self.with_event(EventKind::Stat, post, || match self.stat_record(&record) {
            // The file may have been superseded since the record was read: memory knows better.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let entry = self.borrow_entry(key)?.ok_or_else(missing)?;
                self.stat_entry(&entry)
            }
            other => other,
        })
    }

    /// Size and times of an object in memory, for a caller.
    pub(crate) fn stat_opened(&self, entry: &Entry) -> Result<Stat> {
        let post = |time_ns, took| self.post_all(EventKind::Stat, entry, time_ns, took);
        self.with_event(EventKind::Stat, post, || self.stat_entry(entry))
    }

    /// Posts an event for each segment of an object that may not be in memory. One that was deleted
    /// meanwhile has no slot.
    fn post_stat(&self, record: &Record, time_ns: u64, took: Took) {
        for segment in &record.segments {
            let slot = self.slots.find(record.object_id, segment.number);
            if let Some((slot, incarnation)) = slot {
                let event = Event {
                    tier: segment.primary.tier,
                    latency_ns: took.latency_ns,
                    ..Event::new(EventKind::Stat, slot, incarnation, time_ns)
                };
                self.mailbox.post(event.into());
            }
        }
    }

    /// Size and times of an object in memory.
    pub(crate) fn stat_entry(&self, entry: &Entry) -> Result<Stat> {
        let mut sum =
            Stat { size_bytes: entry.length(), created_ns: entry.created_ns, ..Stat::default() };
        sum.is_labelled = entry.label.is_some();
        for segment in entry.segments.load().iter() {
            let one = self.stat_segment(segment)?;
            // It may be written past the stack.
            let is_held = segment.holds.is_written();
            let may_differ = self.is_bare || is_held;
            sum.is_held |= is_held;
            // Asked behind the look at the file, which a cut comes before.
            let is_its = segment.was_cut() || self.is_unrecovered;
            add(&mut sum, segment.start_bytes, &one, may_differ.then_some(is_its));
        }
        Ok(sum)
    }

    /// What the medium says of a segment.
    pub(crate) fn stat_segment(&self, segment: &Segment) -> Result<Stat> {
        // Its sites are not deleted while this is held.
        let location = segment.location.load_full();
        let site = self.reachable(&location);
        site.stat(self.backend(site))
    }

    /// The same of one that is not: its lengths are in the catalog then.
    fn stat_record(&self, record: &Record) -> Result<Stat> {
        let length = record.length();
        let mut sum = Stat { size_bytes: length, created_ns: record.created_ns, ..Stat::default() };
        sum.is_labelled = record.label.is_some();
        for segment in &record.segments {
            // A clean copy has the same length and times.
            let is_there = |place: &&Place| self.tier(place.tier).offline.is_none();
            let place = std::iter::once(&segment.primary).chain(&segment.copies).find(is_there);
            let place = place.unwrap_or(&segment.primary);
            let name = place.key(record.object_id, segment.number);
            let one = self.tier(place.tier).backend.stat(&name)?;
            let its_end = self.is_bare.then_some(self.is_unrecovered);
            add(&mut sum, segment.start_bytes, &one, its_end);
        }
        Ok(sum)
    }
}

/// Adds what a file says. Where that may reach further than what is noted, `is_its` says whether it
/// counts also where it is shorter: else its end is lost.
fn add(sum: &mut Stat, start_bytes: u64, one: &Stat, is_its: Option<bool>) {
    // Empty segments behind the end are room for it.
    if let Some(is_its) = is_its.filter(|_| start_bytes == 0 || one.size_bytes > 0) {
        let end_bytes = start_bytes + one.size_bytes;
        sum.size_bytes = if is_its { end_bytes } else { sum.size_bytes.max(end_bytes) };
    }
    sum.allocated_bytes += one.allocated_bytes;
    sum.modified_ns = sum.modified_ns.max(one.modified_ns);
}
