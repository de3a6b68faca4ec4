// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checksums that have not been computed yet.
//!
//! Writers must see to it that no checksum outlives their write, and they look for one before
//! every write. So the scrub first makes the location look like one with a checksum: a writer
//! replaces it then, which the scrub notices. The catalog learns of the checksum alone, at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrace_core::{Key, Result};

use super::Scrub;
use super::read::Found;
use crate::catalog::map::Write;
use crate::catalog::record::SegmentRecord;
use crate::memory::entry::{Entry, Segment};
use crate::memory::site::Location;

impl Scrub<'_> {
    /// Reads the files of a segment without a checksum, and records it.
    pub(super) fn record(
        &mut self,
        key: &Key,
        object_id: u64,
        segment: &SegmentRecord,
    ) -> Result<()> {
        // Nothing can rot, and an empty segment with a checksum could not be placed elsewhere.
        if segment.length_bytes == 0 {
            return Ok(());
        }
        if !self.can_write() {
            return self.look(key, object_id, segment);
        }
        let Some((entry, segment)) = self.find(key, object_id, segment.number)? else {
            self.report.skipped += 1;
            return Ok(());
        };
        // What cannot be settled now is written to, or tried again by others.
        let _ = self.shared.settle(&entry, &segment);
        let Some(watched) = watch(self, &entry, &segment) else {
            self.report.skipped += 1;
            return Ok(());
        };
        let result = self.record_watched(key, &entry, &segment, &watched);
        unwatch(&entry, &segment, &watched);
        if !entry.is_open() {
            self.shared.close_files(&entry);
        }
        result
    }

    fn record_watched(
        &mut self,
        key: &Key,
        entry: &Entry,
        segment: &Segment,
        watched: &Arc<Location>,
    ) -> Result<()> {
        let mut sums = Vec::new();
        let mut bad = None;
        for site in watched.sites() {
            let of = (entry.object_id, segment.number);
            match self.file(of, &site.place, segment.length())? {
                Found::Whole(sum) => sums.push(sum),
                Found::Bad(kind, detail) => bad = Some((kind, detail)),
                Found::Stopped => return Ok(()),
                Found::Offline => {
                    self.report.skipped += 1;
                    return Ok(());
                }
            }
        }
        let _changes = crate::lock(&entry.changes);
        if !is_same(entry, segment, watched) {
            self.report.skipped += 1;
            return Ok(());
        }
        if sums.windows(2).any(|pair| pair[0] != pair[1]) {
            let detail = "its primary and a copy differ, and no checksum says which is right";
            bad = Some(("differing-copies", detail.into()));
        }
        match (bad, sums.first()) {
            (Some((kind, detail)), _) => self.problem(kind, key, detail),
            (None, Some(sum)) => {
                let mut next = (**watched).clone();
                (next.checksum, next.is_watched) = (Some(*sum), false);
                let record = entry.record_with(segment, &next, segment.allocated());
                // Shown in any case: a commit that fails may have been written all the same, and
                // a writer takes back the location that it sees.
                let committed = self.shared.catalog.commit(&[Write::Put(&entry.key, &record)]);
                segment.location.publish(Arc::new(next));
                committed?;
                self.shared.failpoints.hit("scrub.recorded")?;
                self.report.recorded += 1;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Reads the files where nothing may be changed.
    fn look(&mut self, key: &Key, object_id: u64, segment: &SegmentRecord) -> Result<()> {
        for place in std::iter::once(&segment.primary).chain(&segment.copies) {
            match self.file((object_id, segment.number), place, segment.length_bytes)? {
                Found::Bad(kind, detail) => self.problem(kind, key, detail),
                Found::Offline => self.report.skipped += 1,
                Found::Whole(_) | Found::Stopped => {}
            }
        }
        Ok(())
    }
}

/// Whether a segment was neither written to, moved, cut off nor deleted since.
pub(super) fn is_same(entry: &Entry, segment: &Segment, before: &Arc<Location>) -> bool {
    !entry.has_lost(segment) && Arc::ptr_eq(&segment.location.load_full(), before)
}

/// Makes every writer say so before the next byte; `None` where that cannot be had now.
fn watch(scrub: &Scrub<'_>, entry: &Entry, segment: &Segment) -> Option<Arc<Location>> {
    let shared = scrub.shared;
    let _changes = crate::lock(&entry.changes);
    let location = segment.location.load_full();
    // Writes past the stack are not reported.
    let is_lost = entry.has_lost(segment) || segment.holds.is_written();
    if is_lost || location.settling.is_some() || location.checksum.is_some() {
        return None;
    }
    let mut next = (*location).clone();
    next.is_watched = true;
    let watched = Arc::new(next);
    // Writers inside have looked already; later ones find the new location.
    let _gate = crate::lock(&segment.gate);
    let is_closed = segment.guard.close(&shared.parking, shared.settings.switch_time_max);
    if is_closed {
        segment.location.publish(Arc::clone(&watched));
    }
    segment.guard.open(&shared.parking);
    if !is_closed {
        return None;
    }
    // Without a policy, a handle that was open before passes no gate. Counting is a write on both
    // sides, so that one of the two sees the other.
    if shared.is_bare && entry.opens.fetch_add(0, Ordering::AcqRel) > 0 {
        segment.location.publish(location);
        return None;
    }
    Some(watched)
}

/// Lets writers go on without saying so.
fn unwatch(entry: &Entry, segment: &Segment, watched: &Arc<Location>) {
    let _changes = crate::lock(&entry.changes);
    if Arc::ptr_eq(&segment.location.load_full(), watched) {
        let mut next = (**watched).clone();
        next.is_watched = false;
        segment.location.publish(Arc::new(next));
    }
}
