// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in memory: where the bytes of an object are now.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use terrace_core::{Error, ErrorKind, Hint, Identity, Key, Layout, Persistency, Result, Slot};

use crate::catalog::record::{Owner, Record, SegmentRecord, Settling};
use crate::memory::dirty::Dirty;
use crate::memory::guard::Guard;
use crate::memory::holds::Holds;
use crate::memory::located::Located;
use crate::memory::site::Location;
use crate::memory::usage::Usage;
use crate::watch::ledger::ObjectLedger;

/// An object that is open, or was lately.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) object_id: u64,
    pub(crate) created_ns: u64,
    /// What its applications were promised, or just about to be; changes under `changes`.
    promised: AtomicU8,
    /// What of it was made good: all that a caller which opens it may take for given.
    kept: AtomicU8,
    /// Held while more is promised, until that is made good or taken back. Taken before `changes`.
    pub(crate) raising: Mutex<()>,
    pub(crate) hint: Hint,
    pub(crate) layout: Layout,
    pub(crate) label: Option<Arc<[u8]>>,
    /// What the object is to a store that has this one as a tier; replaced under `changes`.
    pub(crate) identity: Mutex<Option<Arc<Identity>>>,
    /// By start; the first starts at 0. Replaced as a whole under `changes`.
    pub(crate) segments: Segments,
    /// Held to commit this object's record, or to change its list of segments: commits of one
    /// object never overtake each other. Never taken while holding a lock of the entry map.
    pub(crate) changes: Mutex<()>,
    /// Held over an append, so that appends never overlap.
    pub(crate) appends: Mutex<()>,
    pub(crate) is_pinned: AtomicBool,
    is_deleted: AtomicBool,
    /// Whether no key names it yet; cleared under `changes`.
    is_draft: AtomicBool,
    /// Whether a length differs from the catalog's.
    pub(crate) is_dirty: AtomicBool,
    /// Whether bytes were written that no sync has covered, or begun to cover.
    pub(crate) is_unsynced: AtomicBool,
    /// Syncs of it that go on.
    syncs: AtomicU32,
    /// Whether the catalog has a row of what is promised to it; changes under `changes`.
    is_promised: AtomicBool,
    /// How many are about to promise it something.
    pub(crate) promising: AtomicU32,
    /// Whether that row may say something else than what is promised, because it could not be
    /// written; changes under `changes`.
    pub(crate) is_promise_unnoted: AtomicBool,
    /// Whether its last handle was closed before.
    pub(crate) was_closed: AtomicBool,
    /// Whether it is in the list of those that may keep their files open.
    pub(crate) is_idle_listed: AtomicBool,
    pub(crate) opens: AtomicU32,
    /// Whether a handle that passes no guard was ever to write to it.
    pub(crate) is_written_straight: AtomicBool,
    pub(crate) ledger: ObjectLedger,
    /// What its namespace takes up.
    pub(crate) usage: Arc<Usage>,
}

/// The list of an object's segments, replaced as a whole. Reads and writes of an object with one
/// segment do not look at it; for the rest a lock costs less than an `ArcSwap`, which looks at
/// every thread when it is dropped.
#[derive(Debug)]
pub(crate) struct Segments(RwLock<Arc<Vec<Arc<Segment>>>>);

impl Segments {
    /// The list now.
    pub(crate) fn load(&self) -> Arc<Vec<Arc<Segment>>> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The list now.
    pub(crate) fn load_full(&self) -> Arc<Vec<Arc<Segment>>> {
        self.load()
    }

    /// Replaces the list; the first segment stays. Leases are for objects of one segment, and end
    /// before anybody can write to another.
    pub(crate) fn publish(&self, next: Arc<Vec<Arc<Segment>>>) {
        let first = Arc::clone(&next[0]);
        let replace = || {
            let mut list = self.0.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *list, next)
        };
        // The old list is dropped behind the locks.
        drop(first.location.end_leases(replace));
    }
}

/// A part of an object: the unit of location and migration.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) slot: Slot,
    pub(crate) incarnation: u32,
    pub(crate) start_bytes: u64,
    /// First offset in the segment that belongs to the next one, 0 once it was cut off; changes only
    /// behind the gate.
    pub(crate) limit_bytes: AtomicU64,
    /// Bytes that the segment may have without asking its tier for more room.
    pub(crate) room_bytes: AtomicU64,
    pub(crate) length_bytes: AtomicU64,
    /// To where its tier has promised it room, where that is behind its end: never beyond what is
    /// accounted for it. Grows inside the guard, and goes behind the gate.
    promised_bytes: AtomicU64,
    pub(crate) guard: Guard,
    pub(crate) location: Located,
    /// What was written since a migration began to copy.
    pub(crate) dirty: Mutex<Option<Dirty>>,
    pub(crate) accounted: Mutex<Accounted>,
    /// Held while the gate is closed: only one at a time keeps writers out.
    pub(crate) gate: Mutex<()>,
    /// Held while a switch is made certain, so that two do not do it twice.
    pub(crate) settle: Mutex<()>,
    /// The users of its file past the stack.
    pub(crate) holds: Holds,
    /// It was cut where writers pass no gate, and may be shorter than what is noted of it.
    is_cut: AtomicBool,
    /// Its file was found to be as long as it is.
    is_whole: AtomicBool,
    /// What its tier has allocated of its length at most, where it has holes; else [`DENSE`]. Changes
    /// under `accounted`.
    allocated_bytes: AtomicU64,
    /// Whether its tier may have allocated less of it than is accounted.
    is_unsure: AtomicBool,
    /// Whether it was added to an object that had the level `shared`.
    is_added: bool,
}

/// Of a segment whose length is accounted, and that takes no more.
const DENSE: u64 = u64::MAX;

/// Length from which on a segment is looked at when it is closed: it may have holes of which the
/// catalog does not know. One look beside so many bytes costs nothing.
const LOOKED_AT_BYTES: u64 = 64 << 20;

/// What a segment takes on the tier of its primary. Held while a location switches, so that room
/// is always taken on the tier where the bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounted {
    pub(crate) used_bytes: u64,
    pub(crate) reserved_bytes: u64,
}

impl Accounted {
    /// All of it.
    pub(crate) fn total(&self) -> u64 {
        self.used_bytes + self.reserved_bytes
    }
}

impl Segment {
    /// A segment with nothing accounted.
    pub(crate) fn new(
        record: &SegmentRecord,
        slot: (Slot, u32),
        limit_bytes: u64,
        location: Location,
    ) -> Self {
        Self {
            number: record.number,
            slot: slot.0,
            incarnation: slot.1,
            start_bytes: record.start_bytes,
            limit_bytes: AtomicU64::new(limit_bytes),
            room_bytes: AtomicU64::new(match record.allocated_bytes {
                Some(_) => 0,
                None => record.length_bytes,
            }),
            length_bytes: AtomicU64::new(record.length_bytes),
            promised_bytes: AtomicU64::new(0),
            guard: Guard::default(),
            location: Located::new(location, &record.synced),
            dirty: Mutex::default(),
            accounted: Mutex::new(Accounted { used_bytes: record.amount(), reserved_bytes: 0 }),
            gate: Mutex::default(),
            settle: Mutex::default(),
            holds: Holds::default(),
            is_cut: AtomicBool::new(false),
            is_whole: AtomicBool::new(record.length_bytes == 0),
            allocated_bytes: AtomicU64::new(record.allocated_bytes.unwrap_or(DENSE)),
            is_unsure: AtomicBool::new(record.length_bytes >= LOOKED_AT_BYTES),
            is_added: record.is_added,
        }
    }

    /// What of its length its tier has allocated at most, where it has holes.
    pub(crate) fn allocated(&self) -> Option<u64> {
        let bytes = self.allocated_bytes.load(Ordering::Acquire);
        (bytes != DENSE).then_some(bytes)
    }

    /// Whether it has holes that its tier has reserved no room for: each write takes room.
    #[inline]
    pub(crate) fn is_sparse(&self) -> bool {
        self.allocated_bytes.load(Ordering::Acquire) != DENSE
    }

    /// What its bytes take of its tier, and of a quota: its length, or what is allocated of that.
    pub(crate) fn amount(&self) -> u64 {
        let length = self.length();
        self.allocated().map_or(length, |bytes| bytes.min(length))
    }

    /// Notes what is allocated of it, or that it has no holes; the caller has `accounted`.
    pub(crate) fn set_allocated(&self, bytes: Option<u64>) {
        self.allocated_bytes.store(bytes.unwrap_or(DENSE), Ordering::Release);
    }

    /// Room behind its end that was promised to it.
    pub(crate) fn behind(&self) -> u64 {
        self.reach() - self.length()
    }

    /// Notes that its tier may have allocated less of it than is accounted.
    #[inline]
    pub(crate) fn note_unsure(&self) {
        self.is_unsure.store(true, Ordering::Release);
    }

    /// Whether that may be.
    pub(crate) fn is_unsure(&self) -> bool {
        self.is_unsure.load(Ordering::Acquire)
    }

    /// Notes that it was looked at.
    pub(crate) fn note_sure(&self) {
        self.is_unsure.store(false, Ordering::Release);
    }

    /// The length now.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    /// To where it has bytes, or room that was promised.
    pub(crate) fn reach(&self) -> u64 {
        self.promised_bytes.load(Ordering::Acquire).max(self.length())
    }

    /// Promises it room up to `end_bytes`, which are accounted for it.
    pub(crate) fn promise(&self, end_bytes: u64) {
        self.promised_bytes.fetch_max(end_bytes, Ordering::AcqRel);
    }

    /// Takes back what was promised behind `end_bytes`.
    pub(crate) fn promise_only(&self, end_bytes: u64) {
        self.promised_bytes.store(end_bytes, Ordering::Release);
    }

    /// Notes that it was cut off its object; behind the gate.
    pub(crate) fn note_cut_off(&self) {
        self.limit_bytes.store(0, Ordering::Release);
    }

    /// Notes that it is about to be cut where writers pass no gate.
    pub(crate) fn note_cut(&self) {
        self.is_cut.store(true, Ordering::Release);
    }

    /// Whether it was, and the length of its file has not been taken over since.
    pub(crate) fn was_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    /// Forgets that it was cut, before the length of its file is taken over; whether it was.
    pub(crate) fn take_cut(&self) -> bool {
        self.is_cut.swap(false, Ordering::AcqRel)
    }

    /// Whether its file was found to have all of its bytes.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Notes that its file has all of its bytes.
    pub(crate) fn note_whole(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
    }

    /// Marks a range as written; only for writers that the guard let in as tracked.
    pub(crate) fn mark(&self, start: u64, end: u64) {
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dirty) = dirty.as_mut() {
            dirty.mark(start..end);
        }
    }

    /// What the catalog should say of this segment if its location were `location`.
    pub(crate) fn record(&self, location: &Location) -> SegmentRecord {
        let synced = self.location.synced(location);
        SegmentRecord {
            is_added: self.is_added && synced.is_empty(),
            synced,
            number: self.number,
            start_bytes: self.start_bytes,
            length_bytes: self.length(),
            allocated_bytes: self.allocated().map(|_| self.amount()),
            checksum: location.checksum,
            primary: location.primary.place,
            copies: location.copies.iter().map(|copy| copy.place).collect(),
            settling: location
                .settling
                .as_ref()
                .map(|pending| Settling { source: pending.source.place, boot: pending.boot }),
        }
    }
}

fn level(word: &AtomicU8) -> Persistency {
    match word.load(Ordering::Acquire) {
        0 => Persistency::None,
        1 => Persistency::Process,
        2 => Persistency::Storage,
        _ => Persistency::Shared,
    }
}

impl Entry {
    /// An object from its record, closed and clean.
    pub(crate) fn new(
        key: Key,
        record: &Record,
        segments: Vec<Arc<Segment>>,
        usage: Arc<Usage>,
    ) -> Self {
        Self {
            key,
            object_id: record.object_id,
            created_ns: record.created_ns,
            promised: AtomicU8::new(record.persistency as u8),
            kept: AtomicU8::new(record.persistency as u8),
            raising: Mutex::default(),
            hint: record.hint,
            layout: record.layout.clone(),
            label: record.label.clone(),
            identity: Mutex::new(record.identity.clone()),
            segments: Segments(RwLock::new(Arc::new(segments))),
            changes: Mutex::default(),
            appends: Mutex::default(),
            is_pinned: AtomicBool::new(record.is_pinned),
            is_deleted: AtomicBool::new(false),
            is_draft: AtomicBool::new(record.is_draft),
            is_dirty: AtomicBool::new(false),
            is_unsynced: AtomicBool::new(false),
            syncs: AtomicU32::new(0),
            is_promised: AtomicBool::new(false),
            promising: AtomicU32::new(0),
            is_promise_unnoted: AtomicBool::new(false),
            was_closed: AtomicBool::new(false),
            is_idle_listed: AtomicBool::new(false),
            opens: AtomicU32::new(0),
            is_written_straight: AtomicBool::new(false),
            ledger: ObjectLedger::default(),
            usage,
        }
    }

    /// What its applications were promised, or are just about to be: what happens to it meanwhile
    /// keeps that, too.
    pub(crate) fn persistency(&self) -> Persistency {
        level(&self.promised)
    }

    /// What they were promised and have.
    pub(crate) fn kept(&self) -> Persistency {
        level(&self.kept)
    }

    /// Notes that what was promised is made good; the caller holds `raising`.
    pub(crate) fn keep(&self, level: Persistency) {
        self.kept.store(level as u8, Ordering::Release);
    }

    /// Takes back what was promised beyond that; false where it was nothing.
    pub(crate) fn promise_only_kept(&self) -> bool {
        let kept = self.kept.load(Ordering::Acquire);
        self.promised.swap(kept, Ordering::AcqRel) != kept
    }

    /// Promises more; false when as much was promised already. The caller holds `changes`.
    pub(crate) fn promise(&self, level: Persistency) -> bool {
        if level >= Persistency::Shared && self.persistency() < level {
            // They are garbage, and older than what is there: no record may name them as synced.
            self.segments.load().iter().for_each(|segment| segment.location.forget_synced());
        }
        self.promised.fetch_max(level as u8, Ordering::AcqRel) < level as u8
    }

    /// The length of the object: empty segments behind its end are room for it.
    pub(crate) fn length(&self) -> u64 {
        let segments = self.segments.load();
        let ends = segments.iter().rev().map(|segment| (segment.start_bytes, segment.length()));
        let mut filled = ends.filter(|(_, length)| *length > 0);
        filled.next().map_or(0, |(start, length)| start + length)
    }

    /// Whether room behind its end may be promised to it.
    #[inline]
    pub(crate) fn is_promised(&self) -> bool {
        self.is_promised.load(Ordering::Acquire)
    }

    /// Whether the catalog may have a row of what is promised to it, although its commit was
    /// not acknowledged.
    #[inline]
    pub(crate) fn may_have_promise_row(&self) -> bool {
        self.is_promised() || self.is_promise_unnoted.load(Ordering::Acquire)
    }

    /// Notes whether it may be.
    pub(crate) fn set_promised(&self, is_promised: bool) {
        self.is_promised.store(is_promised, Ordering::Release);
    }

    /// What its files say of it.
    pub(crate) fn owner(&self) -> Owner<'_> {
        Owner {
            key: &self.key,
            object_id: self.object_id,
            label: self.label.as_ref(),
            is_draft: self.is_draft(),
        }
    }

    /// The record of this object with these segments.
    pub(crate) fn record(&self, mut segments: Vec<SegmentRecord>) -> Record {
        let persistency = self.persistency();
        if persistency < Persistency::Shared {
            segments.iter_mut().for_each(SegmentRecord::forget_synced);
        }
        Record {
            object_id: self.object_id,
            is_pinned: self.is_pinned.load(Ordering::Acquire),
            persistency,
            hint: self.hint,
            created_ns: self.created_ns,
            layout: self.layout.clone(),
            segments,
            identity: crate::lock(&self.identity).clone(),
            label: self.label.clone(),
            is_draft: self.is_draft(),
        }
    }

    /// The record as everything is now.
    pub(crate) fn record_now(&self) -> Record {
        let segments = self.segments.load();
        self.record(
            segments.iter().map(|segment| segment.record(&segment.location.load_full())).collect(),
        )
    }

    /// The record with another location for one of the segments, of which `allocated` is allocated there:
    /// that one, and no later one that got its number.
    pub(crate) fn record_with(
        &self,
        changed: &Segment,
        location: &Location,
        allocated: Option<u64>,
    ) -> Record {
        let segments = self.segments.load();
        let one = |segment: &Arc<Segment>| {
            if std::ptr::eq(&**segment, changed) {
                SegmentRecord { allocated_bytes: allocated, ..segment.record(location) }
            } else {
                segment.record(&segment.location.load_full())
            }
        };
        self.record(segments.iter().map(one).collect())
    }

    /// Whether it was deleted.
    #[inline]
    pub(crate) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Whether it is a draft: no key names it, and the catalog has rows of garbage for its files.
    pub(crate) fn is_draft(&self) -> bool {
        self.is_draft.load(Ordering::Acquire)
    }

    /// Notes that the catalog names it; the caller holds `changes`.
    pub(crate) fn mark_published(&self) {
        self.is_draft.store(false, Ordering::Release);
    }

    /// Refuses what cannot be done with an object that was deleted.
    pub(crate) fn check_exists(&self, operation: &'static str) -> Result<()> {
        if self.is_deleted() {
            return Err(Error::new(ErrorKind::NotFound, operation)
                .because("the object was deleted")
                .with("key", &self.key));
        }
        Ok(())
    }

    /// Whether a segment is no part of it any more: it was deleted, or the segment cut off. What is
    /// left of that is garbage already, and another segment may have its number: nothing of it is
    /// noted, accounted or moved. It stays as it is for the holder of `changes`, or of what is accounted for it;
    /// for the holder of its gate it is not cut off.
    #[inline]
    pub(crate) fn has_lost(&self, segment: &Segment) -> bool {
        self.is_deleted() || segment.limit_bytes.load(Ordering::Acquire) == 0
    }

    /// Makes it one that was deleted: nothing is written to it any more, and leases end.
    pub(crate) fn mark_deleted(&self) {
        let first = Arc::clone(&self.segments.load()[0]);
        first.location.end_leases(|| self.is_deleted.store(true, Ordering::Release));
    }

    /// Runs a sync of it.
    pub(crate) fn while_syncing<T>(&self, sync: impl FnOnce() -> T) -> T {
        self.syncs.fetch_add(1, Ordering::AcqRel);
        let result = sync();
        self.syncs.fetch_sub(1, Ordering::AcqRel);
        result
    }

    /// Whether bytes were written that no sync that has ended covers.
    pub(crate) fn may_be_unsynced(&self) -> bool {
        let is_unsynced = || self.is_unsynced.load(Ordering::Acquire);
        // Again behind the count: a sync that fails meanwhile sets it first.
        is_unsynced() || self.syncs.load(Ordering::Acquire) > 0 || is_unsynced()
    }

    /// Whether anybody has it open.
    pub(crate) fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }
}
