// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An open object: the hot path.

mod end;
mod write;

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use terrace_core::{
    Access, Buffer, End, Error, ErrorKind, EventKind, FileLease, HeldGrowth, Key, Later, Object,
    ObjectFile, Persistency, ReadSummary, Result, Stat, TierIndex,
};

use self::write::{Again, Reach, Sent};
use crate::memory::entries::Opened;
use crate::memory::entry::Segment;
use crate::memory::holds::Holder;
use crate::memory::site::Site;
use crate::shared::Shared;
use crate::watch::ring::Took;

/// Largest offset: an offset plus a length fits in 63 bits.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// A handle on an object of a stack.
pub(crate) struct StackObject {
    shared: Arc<Shared>,
    entry: Opened,
    access: Access,
    level: Persistency,
    /// The first segment, which most objects have alone.
    first: Arc<Segment>,
    /// The tier's file of an object that nothing can move or divide, from its first use on.
    straight: OnceLock<Arc<Box<dyn Object>>>,
    /// Whether a write is more than its bytes: they are synced, or a failpoint is watched.
    is_followed: bool,
    /// What was lost once is not tried again as if it were there: later syncs fail too.
    has_failed_sync: AtomicBool,
    /// Whether this handle has lent the file, and holds its word.
    is_holder: AtomicBool,
    /// Whether it holds the object in its file.
    holder: Holder,
}

impl StackObject {
    pub(crate) fn new(
        shared: Arc<Shared>,
        entry: Opened,
        access: Access,
        level: Persistency,
    ) -> Self {
        let first = Arc::clone(&entry.segments.load()[0]);
        let has_failed_sync = AtomicBool::new(false);
        let is_followed = level >= Persistency::Storage || shared.failpoints.is_watched();
        Self {
            shared,
            entry,
            access,
            level,
            first,
            straight: OnceLock::new(),
            is_followed,
            has_failed_sync,
            is_holder: AtomicBool::new(false),
            holder: Holder::default(),
        }
    }

    /// The tier's file, where there is one tier and no policy: nothing is between an object of one
    /// segment and its file then. Whatever else is true of it needs a longer way.
    #[inline]
    fn straight(&self) -> Result<Option<&dyn Object>> {
        match self.straight.get() {
            Some(file) => Ok(Some(&***file)),
            None if self.shared.is_bare => self.find_straight(),
            None => Ok(None),
        }
    }

    #[cold]
    fn find_straight(&self) -> Result<Option<&dyn Object>> {
        // A store that had a policy may hold segments and checksums of that time.
        let is_whole = self.first.limit_bytes.load(Ordering::Acquire) == u64::MAX;
        let location = self.first.location.load();
        if !is_whole || location.is_clean() && self.access == Access::Write {
            return Ok(None);
        }
        if self.access == Access::Write && !self.first.is_whole() {
            // What has lost its end is written the long way, which looks before each write.
            self.shared.check_left(&self.first, 0)?;
            if !self.first.is_whole() {
                return Ok(None);
            }
        }
        let handle = location.primary.open(self.shared.backend(&location.primary))?;
        let file = handle.as_ref().expect("it was just opened");
        if self.access == Access::Write {
            self.entry.is_written_straight.store(true, Ordering::Release);
        }
        Ok(Some(&***self.straight.get_or_init(|| Arc::clone(file))))
    }

    /// Whether the object has one segment and `end_bytes` lies inside it.
    #[inline]
    fn is_simple(&self, end_bytes: u64) -> bool {
        end_bytes <= self.first.limit_bytes.load(Ordering::Acquire)
    }

    pub(crate) fn shared_state(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn object_id(&self) -> u64 {
        self.entry.object_id
    }

    pub(crate) fn key(&self) -> &Key {
        &self.entry.key
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.entry.is_deleted()
    }

    pub(crate) fn check_access(&self, operation: &'static str) -> Result<()> {
        if self.access == Access::Read {
            return Err(Error::new(ErrorKind::Denied, operation)
                .because("the object was opened for reading")
                .with("key", &self.entry.key));
        }
        self.entry.check_exists(operation)?;
        self.shared.check_writable(operation)
    }

    /// Reads from one segment; on an error from a copy, from the primary.
    fn read_segment(
        &self,
        segment: &Segment,
        offset_bytes: u64,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let shared = &*self.shared;
        let started_ns = shared.clock.now_ns();
        let is_ahead = shared.posting.is_ahead();
        if is_ahead {
            let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
            let there_bytes = segment.length().saturating_sub(offset_bytes);
            let extent = (offset_bytes, there_bytes.min(want as u64));
            let tier = segment.location.load().read_site().place.tier;
            shared.post(EventKind::Read, segment, tier, started_ns, extent, Took::default());
        }
        let check = |site: &Site, end_bytes| self.check_end(segment, site, end_bytes);
        let (count, tier) = self.read_files(segment, offset_bytes, buffers, check)?;
        let latency_ns = shared.clock.now_ns() - started_ns;
        shared.tier(tier).ledger.access(false, count as u64, latency_ns);
        self.entry.ledger.access(false, count as u64, latency_ns);
        if !is_ahead {
            let extent = (offset_bytes, count as u64);
            shared.post(EventKind::Read, segment, tier, started_ns, extent, Took::of(latency_ns));
        }
        Ok(count)
    }

    /// Reads from the best file of a segment, or another valid one; the bytes, and the tier that
    /// had them. Where a file ends before the buffers do, `check` says whether it may.
    #[inline(always)]
    fn read_files(
        &self,
        segment: &Segment,
        offset_bytes: u64,
        buffers: &mut [IoSliceMut<'_>],
        check: impl Fn(&Site, u64) -> Result<()>,
    ) -> Result<(usize, TierIndex)> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let location = segment.location.load();
        let site = location.read_site();
        let mut tier = site.place.tier;
        let read = |site: &Site, buffers: &mut [IoSliceMut<'_>]| {
            let handle = site.open(self.shared.backend(site))?;
            let file = handle.as_ref().expect("it was just opened");
            let count = file.read_at(offset_bytes, buffers)?;
            if count < want {
                check(site, offset_bytes.saturating_add(count as u64))?;
            }
            Ok(count)
        };
        let mut result = read(site, buffers);
        if result.is_err() && !location.copies.is_empty() {
            for other in location.sites().filter(|other| !Arc::ptr_eq(other, site)) {
                result = read(other, buffers);
                if result.is_ok() {
                    tier = other.place.tier;
                    break;
                }
            }
        }
        Ok((result.map_err(|error| self.explain(error, tier))?, tier))
    }

    /// The bytes of a range inside the object, for the stack itself: it counts as no access.
    pub(crate) fn peek(&self, range: Range<u64>) -> Result<Vec<u8>> {
        self.peek_with(range, |segment, site, end_bytes| self.check_end(segment, site, end_bytes))
    }

    /// The same with the gate closed by the caller; what is lost reads as zeros.
    fn peek_closed(&self, range: Range<u64>) -> Result<Vec<u8>> {
        self.peek_with(range, |_, _, _| Ok(()))
    }

    fn peek_with(
        &self,
        range: Range<u64>,
        check: impl Fn(&Segment, &Site, u64) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut data = vec![0; range.end.saturating_sub(range.start) as usize];
        for (segment, inside, part) in self.shared.pieces(&self.entry, range.start, data.len()) {
            let buffer = &mut [IoSliceMut::new(&mut data[part])];
            let check = |site: &Site, end_bytes| check(&segment, site, end_bytes);
            self.read_files(&segment, inside, buffer, check)?;
        }
        Ok(data)
    }

    /// Refuses the end that a read has come to where it is not the segment's.
    #[cold]
    fn check_end(&self, segment: &Segment, site: &Site, end_bytes: u64) -> Result<()> {
        match end_bytes >= segment.length() {
            true => Ok(()),
            false => self.shared.check_file("read", segment, site),
        }
    }

    /// Refuses a hole up to `end_bytes` that is none: where the file that is to have it ends.
    fn check_hole(&self, hole: Range<u64>) -> Result<()> {
        for segment in self.entry.segments.load_full().iter() {
            let end_bytes = segment.start_bytes.saturating_add(segment.length());
            if hole.start < end_bytes && end_bytes <= hole.end {
                let location = segment.location.load_full();
                let site = self.shared.reachable(&location);
                self.shared.check_file("find data", segment, site)?;
            }
        }
        Ok(())
    }

    /// An error of a tier, which counts it, with what was read or written there.
    fn explain(&self, error: Error, tier: terrace_core::TierIndex) -> Error {
        let tier = self.shared.tier(tier);
        tier.ledger.fail(error.kind());
        error.with("object", &self.entry.key).with("tier", &tier.name)
    }

    /// The next bytes that are no hole, as far as it is known how long the object is.
    fn find_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        let length = self.entry.length();
        let segments = self.entry.segments.load_full();
        for segment in segments.iter() {
            let end = segment.start_bytes.saturating_add(segment.length());
            if end <= offset_bytes {
                continue;
            }
            let location = segment.location.load();
            let site = self.shared.reachable(&location);
            let handle = site.open(self.shared.backend(site))?;
            let inside = offset_bytes.saturating_sub(segment.start_bytes);
            let found = handle.as_ref().expect("it was just opened").next_data(inside)?;
            if let Some(range) = found {
                let start = segment.start_bytes + range.start;
                let end = (segment.start_bytes + range.end).min(length);
                if start < end {
                    return Ok(Some(start..end));
                }
            }
        }
        Ok(None)
    }

    /// The length of the object. Without a policy nothing keeps a cut and a write apart but the
    /// file itself, so it is asked; so is one that may be written past the stack.
    pub(crate) fn length(&self) -> Result<u64> {
        if self.shared.is_bare {
            return Ok(self.shared.stat_entry(&self.entry)?.size_bytes);
        }
        self.shared.measure(&self.entry, &self.first)?;
        Ok(self.entry.length())
    }

    /// What comes after a write that is more than its bytes.
    #[cold]
    pub(crate) fn follow(&self) -> Result<()> {
        self.shared.failpoints.hit("write.done")?;
        self.settle_level()
    }

    /// What a handle with storage semantics does after every change.
    fn settle_level(&self) -> Result<()> {
        if self.level >= Persistency::Storage {
            self.shared.sync_entry(&self.entry)
        } else {
            Ok(())
        }
    }
}

impl Object for StackObject {
    fn read_at(&self, offset_bytes: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if let Some(file) = self.straight()? {
            let count = file.read_at(offset_bytes, buffers)?;
            if count < want {
                let end_bytes = offset_bytes.saturating_add(count as u64);
                self.check_end(&self.first, &self.first.location.load().primary, end_bytes)?;
            }
            return Ok(count);
        }
        let end_bytes = check_extent("read", offset_bytes, want as u64)?;
        if self.is_simple(end_bytes) {
            let count = self.read_segment(&self.first, offset_bytes, buffers)?;
            let is_alone = self.first.limit_bytes.load(Ordering::Acquire) == u64::MAX;
            if count == want || is_alone {
                return Ok(count);
            }
            // A short first segment before a later one ends in a hole, not in the object's end.
        }
        let length = self.entry.length();
        let count = want.min(length.saturating_sub(offset_bytes) as usize);
        let mut data = Buffer::zeroed(count);
        for (segment, inside, range) in self.shared.pieces(&self.entry, offset_bytes, count) {
            // A segment shorter than its part of the object has a hole at its end.
            self.read_segment(&segment, inside, &mut [IoSliceMut::new(&mut data[range])])?;
        }
        let mut rest = &data[..];
        for buffer in buffers {
            let (head, tail) = rest.split_at(rest.len().min(buffer.len()));
            buffer[..head.len()].copy_from_slice(head);
            rest = tail;
        }
        Ok(count)
    }

    fn later(&self) -> Option<&dyn Later> {
        None
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>]) -> Result<()> {
        let result = self.write_only(offset_bytes, data);
        if self.is_followed && result.is_ok() { self.follow() } else { result }
    }

    fn append(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let start = self.append_with(|start| self.write_through(start, data).map(drop))?;
        self.settle_level()?;
        Ok(start)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        check_extent("set length", 0, bytes)?;
        self.check_access("set length")?;
        let length = self.length()?;
        if bytes < length {
            self.cut(bytes)?;
        } else if bytes > length {
            self.grow_or_stay(|| self.grow(bytes))?;
        } else if self.entry.is_promised() {
            self.shared.shrink(&self.entry, bytes, u64::MAX, &|| Ok(true))?;
        }
        self.settle_level()
    }

    fn allocate(&self, range: Range<u64>, end: End) -> Result<()> {
        check_range("allocate", &range)?;
        self.check_access("allocate")?;
        if range.is_empty() {
            return Ok(());
        }
        self.check_reservation(&range)?;
        match end {
            End::Stays => self.promise(range)?,
            End::Grows => self.grow_or_stay(|| {
                self.change_pieces(range, Reach::Grows, Sent::Shape, &|object, inside, part| {
                    object.allocate(inside..inside + (part.end - part.start), End::Grows)
                })
            })?,
        }
        self.settle_level()
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        check_range("punch", &range)?;
        self.check_access("punch")?;
        self.shared.measure(&self.entry, &self.first)?;
        let end_bytes = range.end.min(self.entry.length());
        let count = end_bytes.saturating_sub(range.start) as usize;
        for (segment, inside, part) in self.shared.pieces(&self.entry, range.start, count) {
            let end = (inside + part.len() as u64).min(segment.length());
            if inside >= end {
                continue;
            }
            let punch = |object: &dyn Object| object.punch(inside..end);
            match self.change_segment(&segment, inside..end, Reach::Inside, Sent::Shape, punch) {
                Ok(()) => {}
                Err(Again::Failed(error) | Again::Anywhere(error)) => return Err(error),
                Err(Again::Restructured) => return self.punch(range),
                Err(Again::Immutable) => {
                    self.shared.recall(&self.entry, &segment)?;
                    return self.punch(range);
                }
            }
        }
        self.settle_level()
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        check_extent("find data", offset_bytes, 0)?;
        self.shared.measure(&self.entry, &self.first)?;
        let found = self.find_data(offset_bytes)?;
        let hole_end = found.as_ref().map_or(u64::MAX, |found| found.start);
        self.check_hole(offset_bytes..hole_end)?;
        Ok(found)
    }

    fn stat(&self) -> Result<Stat> {
        self.shared.stat_opened(&self.entry)
    }

    fn created_ns(&self) -> Result<u64> {
        Ok(self.entry.created_ns)
    }

    fn set_modified(&self, wall_ns: u64) -> Result<()> {
        self.check_access("set times")?;
        let segments = self.entry.segments.load_full();
        for segment in segments.iter() {
            let (entered, _) = segment.guard.enter(&self.shared.parking);
            let location = segment.location.load();
            let handle = location.primary.open(self.shared.backend(&location.primary))?;
            handle.as_ref().expect("it was just opened").set_modified(wall_ns)?;
            // One on a tier of whole objects gets it when it becomes the primary: it is a request there.
            let is_whole = |copy: &Site| self.shared.tier(copy.place.tier).is_whole();
            for copy in location.copies.iter().filter(|copy| !is_whole(copy)) {
                // A copy that cannot be changed has an old time, and all its bytes.
                if let Ok(file) = copy.open_once(self.shared.backend(copy)) {
                    let _ = file.set_modified(wall_ns);
                }
            }
            drop(entered);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        if self.has_failed_sync.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Io, "sync object")
                .because("an earlier sync of this handle failed")
                .with("key", &self.entry.key));
        }
        let shared = &self.shared;
        let post = |time_ns, took| shared.post_all(EventKind::Sync, &self.entry, time_ns, took);
        shared
            .with_event(EventKind::Sync, post, || shared.sync_entry(&self.entry))
            .inspect_err(|_| self.has_failed_sync.store(true, Ordering::Release))
    }

    fn label(&self) -> Option<Arc<[u8]>> {
        self.entry.label.clone()
    }

    fn file(&self) -> Option<&dyn ObjectFile> {
        Some(self)
    }
}

impl ObjectFile for StackObject {
    fn lease_file(&self) -> Result<Option<FileLease>> {
        self.shared.lend(&self.entry, &self.first, &self.is_holder)
    }

    fn hold_file(&self, access: Access) -> Result<Option<File>> {
        if access == Access::Write {
            self.check_access("hold a file for writing")?;
            // What is written past this handle would not be durable when it is acknowledged.
            if self.level >= Persistency::Storage {
                return Ok(None);
            }
        }
        self.shared.hold(&self.entry, &self.first, &self.holder, access)
    }

    fn held_growth(&self) -> Result<HeldGrowth> {
        self.shared.held_growth(&self.entry, &self.first)
    }

    fn note_reads(&self, reads: &ReadSummary) {
        self.shared.note_reads(&self.entry, &self.first, reads);
    }
}

impl Drop for StackObject {
    fn drop(&mut self) {
        if *self.is_holder.get_mut() {
            self.first.location.give_back();
        }
        if self.holder.is_any() {
            // The tier's file can be written through this.
            self.straight.take();
            self.shared.let_go(&self.entry, &self.first, &self.holder);
        }
        self.shared.close_entry(&self.entry);
    }
}

/// The end of an extent.
///
/// # Errors
///
/// `Invalid` beyond 63 bits.
fn check_extent(operation: &'static str, offset_bytes: u64, bytes: u64) -> Result<u64> {
    offset_bytes.checked_add(bytes).filter(|end| *end <= OFFSET_MAX).ok_or_else(|| {
        Error::invalid(operation, "the range ends beyond 2^63 bytes")
            .with("offset_bytes", offset_bytes)
            .with("length_bytes", bytes)
    })
}

fn check_range(operation: &'static str, range: &Range<u64>) -> Result<()> {
    match range.end.checked_sub(range.start) {
        Some(bytes) => check_extent(operation, range.start, bytes).map(drop),
        None => Err(Error::invalid(operation, "the range ends before it begins")
            .with("start_bytes", range.start)
            .with("end_bytes", range.end)),
    }
}
