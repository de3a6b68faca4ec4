// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One migration, step by step: reserve, track, copy, verify, durable, switch, settle.
//!
//! Readers are never stopped, writers only behind the gate, and nothing is freed before its
//! successor is certain.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use terrace_core::{
    Buffer, Create, Error, ErrorKind, EventKind, Object, Open, Outcome, Persistency, Result, Role,
    Semantics, TierIndex,
};

use crate::account::Class;
use crate::catalog::{GarbageRow, Write};
use crate::dirty::Dirty;
use crate::drops::Drop as Superseded;
use crate::entry::{Accounted, Entry, Location, Pending, Segment, Site};
use crate::holds::HELD;
use crate::ledger::Count;
use crate::mover::{Move, MoveWish};
use crate::promises::{self, allocate_behind};
use crate::record::Place;
use crate::shared::Shared;
use crate::tiers::TierState;
use crate::verify::{Piece, Verifier};

/// Bytes copied at a time: they stay in the processor's cache between reading, checking and
/// writing, and file systems take as many in larger pages than fewer.
const STEP_BYTES: usize = 256 << 10;

/// Most bytes that are copied while writers wait.
const FINAL_BYTES_MAX: u64 = 256 << 10;

/// Rounds and attempts to switch before a segment counts as too hot.
const ATTEMPTS_MAX: u32 = 40;

/// Longest wait for the writes that were in flight when tracking began.
const DRAIN_LOOKS_MAX: u32 = 250;
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// From this size on, what was copied is verified by a thread of its own: it saves far more than
/// the thread costs.
const BESIDE_BYTES_MIN: u64 = 4 << 20;

/// Bytes that are verified at a time beside the copying: waking a thread costs as much as copying
/// a tenth of them.
const PIECE_BYTES: usize = 1 << 20;

/// Pieces that copying may be ahead of verifying: few, so that they are still in a cache.
const PIECES_AHEAD_MAX: usize = 2;

/// Whether whoever waits for the processor gets it behind each reading, writing and look: else reads
/// of a file that moves take twice as long. Not in ranges as they are copied while writers wait.
fn gives_way(range: &Range<u64>) -> bool {
    range.end.saturating_sub(range.start) > FINAL_BYTES_MAX
}

/// Why a migration ends early.
enum Stop {
    Outcome(Outcome, String),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

fn stop(outcome: Outcome) -> Stop {
    Stop::Outcome(outcome, String::new())
}

/// Carries out a migration; never fails, but says how it ended.
pub(crate) fn carry_out(shared: &Shared, one: &Move) -> (Outcome, String) {
    match try_carry_out(shared, one) {
        Ok(()) => (Outcome::Done, String::new()),
        Err(Stop::Outcome(outcome, detail)) => (outcome, detail),
        Err(Stop::Failed(error)) => {
            let outcome = match error.kind() {
                ErrorKind::NoSpace => Outcome::NoSpace,
                ErrorKind::NotFound | ErrorKind::Stale => Outcome::Stale,
                _ => Outcome::Io,
            };
            (outcome, error.chain())
        }
    }
}

fn try_carry_out(shared: &Shared, one: &Move) -> Result<(), Stop> {
    let entry = shared.borrow_entry(&one.request.key)?.ok_or_else(|| stop(Outcome::Stale))?;
    if entry.object_id != one.object_id {
        return Err(stop(Outcome::Stale));
    }
    let segments = entry.segments.load_full();
    let found = segments.iter().find(|segment| segment.number == one.request.segment);
    let segment = found.ok_or_else(|| stop(Outcome::Stale))?;
    let wish = one.request.wish;
    if entry.is_pinned.load(Ordering::Acquire) && wish != MoveWish::Drain {
        return Err(stop(Outcome::Pinned));
    }
    // Looked at once it is among those that run: a tier that is being removed is closed first, and
    // then those are waited for.
    if wish != MoveWish::DropCopy && !shared.tier(one.request.to).takes_data() {
        return Err(Stop::Outcome(Outcome::NoSpace, "the tier takes nothing new".into()));
    }
    let writings = segment.holds.writings();
    let job = Job { shared, one, entry: &entry, segment, writings };
    job.check()?;
    let result = match wish {
        MoveWish::DropCopy => match shared.drop_copy(&entry, segment, one.request.to)? {
            true => Ok(()),
            false => Err(stop(Outcome::Invalid)),
        },
        MoveWish::Copy => job.transfer(),
        MoveWish::Move | MoveWish::Drain | MoveWish::Promote => match job.copy_on_target() {
            true => job.flip(),
            false => job.transfer(),
        },
    };
    if !entry.is_open() {
        // A migration must not leave files open that nobody uses.
        shared.close_files(&entry);
    }
    result
}

struct Job<'a> {
    shared: &'a Shared,
    one: &'a Move,
    entry: &'a Arc<Entry>,
    segment: &'a Arc<Segment>,
    /// [`Holds::writings`](crate::holds::Holds::writings) when it began: what was written past the
    /// guard since then is not marked.
    writings: u32,
}

/// The file that is being made, and the room that is reserved for it.
struct Target<'a> {
    site: Arc<Site>,
    object: Box<dyn Object>,
    tier: &'a TierState,
    reserved_bytes: u64,
    /// To where it has room behind its end.
    promised_bytes: u64,
}

impl Job<'_> {
    fn to(&self) -> TierIndex {
        self.one.request.to
    }

    /// Whether the source stays as a clean copy: never on a tier that is being drained, nor with room
    /// that was promised behind its end, which moves with the primary.
    fn keeps_source(&self) -> bool {
        let is_promoted = self.one.request.wish == MoveWish::Promote;
        let has_promise = self.segment.reach() > self.segment.length();
        is_promoted && !has_promise && self.shared.tier(self.one.from).takes_data()
    }

    fn check(&self) -> Result<(), Stop> {
        if self.one.is_cancelled() {
            return Err(stop(Outcome::Cancelled));
        }
        let segments = self.entry.segments.load();
        let is_there = segments.iter().any(|segment| Arc::ptr_eq(segment, self.segment));
        if !is_there || self.entry.is_deleted() {
            return Err(stop(Outcome::Stale));
        }
        let holds = &self.segment.holds;
        let is_dropping = self.one.request.wish == MoveWish::DropCopy;
        if !is_dropping && (holds.is_held() || holds.writings() != self.writings) {
            return Err(Stop::Outcome(Outcome::Busy, HELD.into()));
        }
        // An empty segment may have been put elsewhere, where there is room for its first bytes.
        let tier = self.segment.location.load().primary.place.tier;
        if !is_dropping && tier != self.one.from {
            let detail = "it was put on another tier meanwhile";
            return Err(Stop::Outcome(Outcome::Stale, detail.into()));
        }
        Ok(())
    }

    fn copy_on_target(&self) -> bool {
        let location = self.segment.location.load();
        location.copies.iter().any(|copy| copy.place.tier == self.to())
    }

    /// The room that the segment takes on the target: with what was promised to it, unless it is a
    /// copy.
    fn room_bytes(&self) -> u64 {
        match self.one.request.wish {
            MoveWish::Copy => self.segment.length(),
            _ => self.segment.reach(),
        }
    }

    /// Makes the segment's bytes a file on the target and switches to it.
    fn transfer(&self) -> Result<(), Stop> {
        self.one.enter("reserve");
        // Only one switch of a segment may be uncertain at a time.
        self.shared.settle(self.entry, self.segment)?;
        let mut target = self.reserve()?;
        self.one.enter("track");
        *crate::lock(&self.segment.dirty) = Some(Dirty::default());
        self.segment.guard.track();
        let result = self.copy_and_switch(&mut target);
        self.segment.guard.untrack();
        *crate::lock(&self.segment.dirty) = None;
        match result {
            Ok(()) => {
                self.one.enter("settle");
                // The switch holds whatever happens here; the keeper tries again.
                self.shared.settle(self.entry, self.segment).inspect_err(|_| {
                    crate::lock(&self.shared.unsettled).push(Arc::clone(self.entry));
                })?;
                Ok(())
            }
            Err((reason, commit_tried)) => {
                self.abandon(target, commit_tried);
                Err(reason)
            }
        }
    }

    fn reserve(&self) -> Result<Target<'_>, Stop> {
        let tier = self.shared.tier(self.to());
        let bytes = self.room_bytes();
        let limit = match self.one.request.wish {
            MoveWish::Move | MoveWish::Drain => tier.capacity_bytes(),
            _ => tier.critical_bytes(),
        };
        let take = || tier.account.take(Class::Reserved, bytes, limit);
        // Copies are not dropped for what has no room without them either.
        let kept = tier.account.taken().saturating_sub(tier.account.bytes(Class::Copy));
        let can_fit = kept.saturating_add(bytes) <= limit;
        let taken = take() || can_fit && self.shared.drop_copies_on(self.to(), bytes) && take();
        if !taken {
            return Err(stop(Outcome::NoSpace));
        }
        let made = self.shared.failpoints.hit("move.reserved").and_then(|()| self.make_file());
        match made {
            Ok((site, object)) => {
                Ok(Target { site, object, tier, reserved_bytes: bytes, promised_bytes: 0 })
            }
            Err(error) => {
                tier.account.free(Class::Reserved, bytes);
                Err(error.into())
            }
        }
    }

    fn make_file(&self) -> Result<(Arc<Site>, Box<dyn Object>)> {
        let file = self.shared.catalog.number()?;
        let place = Place { tier: self.to(), file, generation: file, epoch: self.shared.epoch };
        let site = Site::new(place, self.entry.object_id, self.segment.number);
        let how = Open {
            create: Create::New,
            semantics: Semantics::at_level(Persistency::None),
            identity: self.identity(&site, Role::Partial),
            size_hint_bytes: Some(self.segment.length()),
            ..Open::default()
        };
        let object = self.shared.backend(&site).open(&site.key, &how)?;
        if let Err(error) = self.shared.failpoints.hit("move.created") {
            let _ = self.shared.backend(&site).delete(&site.key);
            return Err(error);
        }
        Ok((site, object))
    }

    fn identity(&self, site: &Site, role: Role) -> Option<Arc<terrace_core::Identity>> {
        self.shared.identity(
            self.entry.owner(),
            self.segment.number,
            self.segment.start_bytes,
            &site.place,
            role,
        )
    }

    /// Removes a target that was not switched to. After a commit that may have been written, the
    /// file stays: the catalog may name it, and recovery decides.
    fn abandon(&self, target: Target<'_>, commit_tried: bool) {
        drop(target.object);
        let account = &target.tier.account;
        if !commit_tried && self.shared.backend(&target.site).delete(&target.site.key).is_ok() {
            account.free(Class::Reserved, target.reserved_bytes);
            return;
        }
        account.turn(Class::Reserved, Class::Garbage, target.reserved_bytes);
        if !commit_tried {
            let row = GarbageRow {
                object_id: self.entry.object_id,
                segment: self.segment.number,
                place: target.site.place,
                bytes: target.reserved_bytes,
            };
            self.shared.drops.add(vec![Superseded { site: target.site, row }]);
        }
    }

    /// The second value of an error says whether a commit was tried.
    fn copy_and_switch(&self, target: &mut Target<'_>) -> Result<(), (Stop, bool)> {
        let checksum = self.copy_all(target).map_err(|reason| (reason, false))?;
        for attempt in 0..ATTEMPTS_MAX {
            self.check().map_err(|reason| (reason, false))?;
            if self.copy_dirty(target).map_err(|reason| (reason, false))? > FINAL_BYTES_MAX {
                continue;
            }
            self.one.enter("switch");
            match self.try_switch(target, checksum)? {
                true => return Ok(()),
                false => {
                    let pause = Duration::from_micros(200) * (attempt + 1);
                    self.shared.clock.sleep(pause);
                }
            }
        }
        Err((stop(Outcome::HotWrite), false))
    }

    /// Copies everything; the checksum where there was no hole.
    fn copy_all(&self, target: &mut Target<'_>) -> Result<Option<u32>, Stop> {
        let mut looks = 0;
        while !self.segment.guard.wait_untracked(&self.shared.parking, DRAIN_LOOK) {
            self.check()?;
            looks += 1;
            if looks > DRAIN_LOOKS_MAX {
                return Err(Stop::Outcome(
                    Outcome::Busy,
                    "a write that was in flight did not end".into(),
                ));
            }
        }
        self.shared.failpoints.hit("move.tracked")?;
        self.one.enter("copy");
        let location = self.segment.location.load_full();
        let source = location.primary.open(self.shared.backend(&location.primary))?;
        let source = source.as_ref().expect("it was just opened");
        let length = self.segment.length();
        let (mut checksum, mut has_holes) = (0, false);
        let mut at = 0;
        while at < length {
            let Some(data) = source.next_data(at)? else { break };
            let data = data.start.min(length)..data.end.min(length);
            has_holes |= data.start != at;
            checksum = self.copy_range(&***source, target, data.clone(), checksum)?;
            at = data.end.max(at + 1);
        }
        has_holes |= at < length;
        self.shared.failpoints.hit("move.copied")?;
        // Copied once, it is made durable outside the gate; the rest is small.
        self.copy_dirty(target)?;
        self.give_room(target)?;
        self.one.enter("durable");
        target.object.sync()?;
        self.shared.backend(&target.site).sync()?;
        self.shared.failpoints.hit("move.durable")?;
        Ok((!has_holes).then_some(checksum))
    }

    /// Copies what was written meanwhile; returns how many bytes that were.
    fn copy_dirty(&self, target: &Target<'_>) -> Result<u64, Stop> {
        let dirty = match crate::lock(&self.segment.dirty).as_mut() {
            Some(dirty) if !dirty.is_empty() => std::mem::take(dirty),
            _ => return Ok(0),
        };
        let bytes = dirty.bytes();
        let location = self.segment.location.load_full();
        let source = location.primary.open(self.shared.backend(&location.primary))?;
        let source = source.as_ref().expect("it was just opened");
        for range in dirty.iter() {
            // Beyond the end of the source, what was cut off must not come back.
            if let Err(reason) = self.copy_or_clear(&***source, target, range) {
                self.mark_again(&dirty);
                return Err(reason);
            }
        }
        crate::lock(&self.segment.dirty).as_mut().expect("this migration tracks").note_any();
        Ok(bytes)
    }

    fn mark_again(&self, dirty: &Dirty) {
        for range in dirty.iter() {
            self.segment.mark(range.start, range.end);
        }
    }

    /// Copies a range, holes as zeros, and clears what lies beyond the source's end.
    fn copy_or_clear(
        &self,
        source: &dyn Object,
        target: &Target<'_>,
        range: Range<u64>,
    ) -> Result<(), Stop> {
        let length = source.stat()?.size_bytes;
        let inside = range.start.min(length)..range.end.min(length);
        self.copy_range(source, target, inside, 0)?;
        let target_length = target.object.stat()?.size_bytes;
        let beyond = range.start.max(length)..range.end.min(target_length);
        if !beyond.is_empty() {
            target.object.punch(beyond)?;
        }
        Ok(())
    }

    /// Copies a range and looks whether the target returns what was written to it: beside the
    /// copying where the range is large, because looking takes as long as reading the source.
    fn copy_range(
        &self,
        source: &dyn Object,
        target: &Target<'_>,
        range: Range<u64>,
        checksum: u32,
    ) -> Result<u32, Stop> {
        let (object, tier) = (&*target.object, &*target.tier.name);
        let gives_way = gives_way(&range);
        let mut verifier =
            Verifier { target: object, tier, checksum, gives_way, back: Buffer::new() };
        if range.end.saturating_sub(range.start) < BESIDE_BYTES_MIN {
            let verify = |piece| verifier.verify(&piece).map(|()| true);
            return self.copy_pieces(source, target, range, checksum, verify);
        }
        let (sender, pieces) = sync_channel::<Piece>(PIECES_AHEAD_MAX);
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("terrace-verify".into());
            let thread = thread.spawn_scoped(scope, move || {
                pieces.iter().try_for_each(|piece| verifier.verify(&piece))
            });
            let thread = thread.map_err(|error| Error::from_io("start a thread", error))?;
            let mut gathered: Option<Piece> = None;
            let copied = self.copy_pieces(source, target, range, checksum, |piece| {
                let piece = match gathered.take() {
                    // They follow each other.
                    Some(first) => Piece {
                        offset_bytes: first.offset_bytes,
                        count: first.count + piece.count,
                        checksum: piece.checksum,
                    },
                    None => piece,
                };
                if piece.count < PIECE_BYTES {
                    gathered = Some(piece);
                    return Ok(true);
                }
                // A thread that is gone has found something, which is asked for below.
                Ok(sender.send(piece).is_ok())
            });
            if let Some(last) = gathered {
                let _ = sender.send(last);
            }
            drop(sender);
            let verified = thread.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Io, "verify a migrated segment")
                    .because("the thread that does it panicked"))
            });
            verified?;
            copied
        })
    }

    /// Copies a range piece by piece and continues the checksum of the source's bytes; `verify`
    /// sees to each piece, and says whether to go on.
    fn copy_pieces(
        &self,
        source: &dyn Object,
        target: &Target<'_>,
        range: Range<u64>,
        mut checksum: u32,
        mut verify: impl FnMut(Piece) -> Result<bool>,
    ) -> Result<u32, Stop> {
        let step = STEP_BYTES.min((range.end - range.start.min(range.end)) as usize);
        let mut buffer = Buffer::zeroed(step);
        let gives_way = gives_way(&range);
        let mut at = range.start;
        while at < range.end {
            self.check()?;
            let want = buffer.len().min((range.end - at) as usize);
            self.pace(want as u64);
            let started_ns = self.shared.clock.now_ns();
            let count = source.read_at(at, &mut [IoSliceMut::new(&mut buffer[..want])])?;
            if count == 0 {
                break;
            }
            let data = &buffer[..count];
            checksum = crc32c::crc32c_append(checksum, data);
            if gives_way {
                thread::yield_now();
            }
            target.object.write_at(at, &[IoSlice::new(data)])?;
            if !verify(Piece { offset_bytes: at, count, checksum })? {
                break;
            }
            let took_ns = self.shared.clock.now_ns() - started_ns;
            let from = self.shared.tier(self.one.from);
            from.ledger.add(Count::MovedOutBytes, count as u64);
            from.ledger.add(Count::MoveDeviceNs, took_ns / 2);
            target.tier.ledger.add(Count::MovedInBytes, count as u64);
            target.tier.ledger.add(Count::MoveDeviceNs, took_ns / 2);
            self.one.copied_bytes.fetch_add(count as u64, Ordering::Relaxed);
            self.shared.tell_progress(self.one);
            self.shared.yield_to_foreground(&[self.one.from, self.to()], took_ns);
            if gives_way {
                thread::yield_now();
            }
            at += count as u64;
        }
        Ok(checksum)
    }

    /// Waits for this migration's share of the rate that all together may use.
    fn pace(&self, bytes: u64) {
        let Some(rate) = self.shared.settings.move_bytes_per_s else { return };
        let now_ns = self.shared.clock.now_ns();
        let mut free_ns = crate::lock(&self.shared.mover.rate_free_ns);
        let start_ns = (*free_ns).max(now_ns);
        *free_ns = start_ns + (bytes as f64 / rate * 1e9) as u64;
        drop(free_ns);
        self.shared.clock.sleep(Duration::from_nanos(start_ns - now_ns));
    }

    /// One attempt to switch; false where writers did not pause.
    fn try_switch(
        &self,
        target: &mut Target<'_>,
        checksum: Option<u32>,
    ) -> Result<bool, (Stop, bool)> {
        let _changes = crate::lock(&self.entry.changes);
        let _gate = crate::lock(&self.segment.gate);
        let parking = &self.shared.parking;
        let longest = self.shared.settings.switch_time_max;
        if !self.segment.guard.close(parking, longest) {
            self.segment.guard.open(parking);
            return Ok(false);
        }
        let result = self.switch(target, checksum);
        self.segment.guard.open(parking);
        if let Ok(true) = result {
            self.shared
                .failpoints
                .hit("move.switched")
                .map_err(|error| (Stop::Failed(error), true))?;
        }
        result
    }

    /// Behind the gate: copies the last ranges, commits, and shows the new location.
    fn switch(&self, target: &mut Target<'_>, checksum: Option<u32>) -> Result<bool, (Stop, bool)> {
        let early = |reason: Stop| (reason, false);
        let left = crate::lock(&self.segment.dirty).as_ref().map_or(0, Dirty::bytes);
        if left > FINAL_BYTES_MAX {
            return Ok(false);
        }
        self.copy_dirty(target).map_err(early)?;
        self.check().map_err(early)?;
        let was_written = crate::lock(&self.segment.dirty).as_ref().is_some_and(Dirty::was_written);
        let (wish, stays) = (self.one.request.wish, self.keeps_source());
        if wish == MoveWish::Copy && was_written {
            return Err(early(Stop::Outcome(
                Outcome::HotWrite,
                "it was written while the copy was made".into(),
            )));
        }
        let (length, room) = (self.segment.length(), self.room_bytes());
        if room > target.reserved_bytes {
            let more = room - target.reserved_bytes;
            if !target.tier.account.take(Class::Reserved, more, target.tier.capacity_bytes()) {
                return Err(early(stop(Outcome::NoSpace)));
            }
            target.reserved_bytes = room;
        }
        let location = self.segment.location.load_full();
        self.finish_file(&location.primary, target, length).map_err(|error| early(error.into()))?;
        let checksum = checksum.filter(|_| !was_written);
        if checksum.is_some() && location.checksum.is_some_and(|known| checksum != Some(known)) {
            let error = Error::new(ErrorKind::Corrupt, "migrate a segment")
                .because("its bytes fail their checksum; see terrace scrub")
                .with("tier", &self.shared.tier(location.primary.place.tier).name);
            return Err(early(Stop::Failed(error)));
        }
        let source = Arc::clone(&location.primary);
        let site = Arc::clone(&target.site);
        let next = match wish {
            MoveWish::Copy => {
                let mut copies = location.copies.clone();
                copies.push(site);
                self.shared.location(source, copies, location.checksum.or(checksum), None)
            }
            _ => {
                let mut copies = location.copies.clone();
                if stays {
                    copies.push(Arc::clone(&source));
                }
                let pending = Pending { source, bytes: length, boot: self.shared.boot };
                self.shared.location(site, copies, checksum, Some(pending))
            }
        };
        let record = self.entry.record_with(self.segment.number, &next);
        // Locked over the commit: nobody takes room on the tier that is being left.
        let mut accounted = crate::lock(&self.segment.accounted);
        let late = |error: Error| (Stop::Failed(error), true);
        if let Err(error) = self.shared.catalog.commit(&[Write::Put(&self.entry.key, &record)]) {
            return Err((Stop::Failed(error), !self.take_back(None)));
        }
        let step = if wish == MoveWish::Copy { "copy.committed" } else { "move.committed" };
        self.shared.failpoints.hit(step).map_err(late)?;
        self.segment.location.publish(Arc::new(next));
        target.tier.account.free(Class::Reserved, target.reserved_bytes - room);
        if wish == MoveWish::Copy {
            target.tier.account.turn(Class::Reserved, Class::Copy, length);
            self.shared.post_change(EventKind::Copied, self.segment, self.to());
        } else {
            target.tier.account.turn(Class::Reserved, Class::Used, length);
            self.leave(&mut accounted, (length, room), stays);
            self.shared.post_change(EventKind::Moved, self.segment, self.to());
            if stays {
                self.shared.post_change(EventKind::Copied, self.segment, self.one.from);
            }
        }
        Ok(true)
    }

    /// After a commit that failed and may have been written all the same: commits the location
    /// as it was, and that the file of `kept` is no garbage. When that fails too, the store takes no
    /// more writes, because a crash could bring back either location.
    fn take_back(&self, kept: Option<&GarbageRow>) -> bool {
        let record = self.entry.record_now();
        let mut writes = vec![Write::Put(&self.entry.key, &record)];
        writes.extend(kept.map(Write::GarbageGone));
        let is_back = self.shared.catalog.commit(&writes).is_ok();
        if !is_back {
            self.shared.is_broken.store(true, Ordering::Release);
        }
        is_back
    }

    /// Gives the target the room behind its end that was promised to the segment. What was promised or
    /// cut since is seen to behind the gate.
    fn give_room(&self, target: &mut Target<'_>) -> Result<()> {
        let length = self.segment.length();
        let room = self.room_bytes().min(target.reserved_bytes);
        if room > length.max(target.promised_bytes) {
            allocate_behind(&*target.object, length..room)?;
            target.promised_bytes = room;
        }
        Ok(())
    }

    /// Gives the target its length, its room, its time and its place in the object.
    fn finish_file(&self, source: &Site, target: &mut Target<'_>, length: u64) -> Result<()> {
        let handle = source.open(self.shared.backend(source))?;
        let stat = handle.as_ref().expect("it was just opened").stat()?;
        let target_bytes = target.object.stat()?.size_bytes;
        let has_too_much = target.promised_bytes > self.room_bytes();
        if target_bytes != length || has_too_much {
            target.object.set_len(length)?;
        }
        if target_bytes > length || has_too_much {
            // With the cut went what was behind.
            target.promised_bytes = 0;
        }
        self.give_room(target)?;
        target.object.set_modified(stat.modified_ns)?;
        self.shared.failpoints.hit("move.gate")?;
        let role = match self.one.request.wish {
            MoveWish::Copy => Role::Copy,
            _ => Role::Primary,
        };
        if let Some(identity) = self.identity(&target.site, role) {
            self.shared.backend(&target.site).set_identity(&target.site.key, &identity)?;
        }
        self.shared.failpoints.hit("move.identity")
    }

    /// Accounts that the primary has left its tier; where it is now it has a length, and room.
    fn leave(&self, accounted: &mut Accounted, (length, room): (u64, u64), stays_as_copy: bool) {
        let from = self.shared.tier(self.one.from);
        let class = if stays_as_copy { Class::Copy } else { Class::Garbage };
        let from_used = accounted.used_bytes.min(length);
        let from_reserved = accounted.reserved_bytes.min(length - from_used);
        from.account.turn(Class::Used, class, from_used);
        from.account.turn(Class::Reserved, class, from_reserved);
        from.account.free(Class::Used, accounted.used_bytes - from_used);
        from.account.free(Class::Reserved, accounted.reserved_bytes - from_reserved);
        self.entry.usage.shrink(*accounted, room);
        *accounted = Accounted { used_bytes: length, reserved_bytes: room - length };
        self.segment.room_bytes.store(room, Ordering::Release);
        from.segments.fetch_sub(1, Ordering::Relaxed);
        from.ledger.add(Count::MovesOut, 1);
        let to = self.shared.tier(self.to());
        to.segments.fetch_add(1, Ordering::Relaxed);
        to.ledger.add(Count::MovesIn, 1);
    }

    /// Makes the clean copy on the target the primary: no bytes are copied.
    fn flip(&self) -> Result<(), Stop> {
        self.one.enter("switch");
        let location = self.segment.location.load_full();
        let copy = location.copies.iter().find(|copy| copy.place.tier == self.to());
        let copy = copy.ok_or_else(|| self.copy_is_gone())?;
        // A new generation: the highest complete primary is the right one. It is durable before
        // the catalog says so, and taken back when the switch does not happen.
        let site = copy.with_generation(self.shared.catalog.number()?);
        self.announce(&site)?;
        self.shared.backend(&site).sync()?;
        self.shared.failpoints.hit("flip.identity")?;
        let result = self.flip_to(&site);
        if result.is_err() {
            // A copy that a write has dropped meanwhile has no identity to restore.
            let _ = self.mark(copy, Role::Copy);
        }
        result
    }

    /// Marks a copy as the coming primary. Settling the switch before marks its source as a copy,
    /// which may be the very same file, and must be over.
    fn announce(&self, site: &Site) -> Result<()> {
        self.shared.settle(self.entry, self.segment)?;
        let _changes = crate::lock(&self.entry.changes);
        self.mark(site, Role::Primary)
    }

    fn copy_is_gone(&self) -> Stop {
        Stop::Outcome(Outcome::HotWrite, "its copy was dropped by a write".into())
    }

    /// Writes what a file is to its object.
    fn mark(&self, site: &Site, role: Role) -> Result<()> {
        match self.identity(site, role) {
            Some(identity) => self.shared.backend(site).set_identity(&site.key, &identity),
            None => Ok(()),
        }
    }

    fn flip_to(&self, site: &Arc<Site>) -> Result<(), Stop> {
        let parking = &self.shared.parking;
        for attempt in 0..ATTEMPTS_MAX {
            self.check()?;
            let stays = self.keeps_source();
            if stays {
                // It stays as a copy, which must be as durable as the primary. A write between
                // this and the switch drops the copies, and the switch with them.
                self.shared.sync_site(&self.segment.location.load_full().primary)?;
            }
            let changes = crate::lock(&self.entry.changes);
            let gate = crate::lock(&self.segment.gate);
            let longest = self.shared.settings.switch_time_max;
            if self.segment.guard.close(parking, longest) {
                let result = self.flip_closed(site, stays);
                self.segment.guard.open(parking);
                return result;
            }
            self.segment.guard.open(parking);
            drop((gate, changes));
            self.shared.clock.sleep(Duration::from_micros(200) * (attempt + 1));
        }
        Err(stop(Outcome::HotWrite))
    }

    fn flip_closed(&self, site: &Arc<Site>, stays: bool) -> Result<(), Stop> {
        self.check()?;
        let location = self.segment.location.load_full();
        let (on_target, others): (Vec<_>, Vec<_>) =
            location.copies.iter().cloned().partition(|copy| copy.place.tier == self.to());
        if !on_target.iter().any(|copy| copy.place.file == site.place.file) {
            return Err(self.copy_is_gone());
        }
        if location.settling.is_some() {
            return Err(stop(Outcome::Busy));
        }
        let (length, room) = (self.segment.length(), self.room_bytes());
        let stays = stays && room == length;
        if room == length {
            return self.flip_with_room(site, &location, others, (length, room), stays);
        }
        let tier = self.shared.tier(self.to());
        if !tier.account.take(Class::Reserved, room - length, tier.capacity_bytes()) {
            return Err(stop(Outcome::NoSpace));
        }
        self.flip_with_room(site, &location, others, (length, room), stays).inspect_err(|_| {
            promises::give_back(self.shared, site);
            tier.account.free(Class::Reserved, room - length);
        })
    }

    /// The room that was promised is reserved on the target; its file gets it, too.
    fn flip_with_room(
        &self,
        site: &Arc<Site>,
        location: &Location,
        others: Vec<Arc<Site>>,
        (length, room): (u64, u64),
        stays: bool,
    ) -> Result<(), Stop> {
        if room > length {
            let file = site.open_once(self.shared.backend(site))?;
            let modified_ns = file.stat()?.modified_ns;
            allocate_behind(&**file, length..room)?;
            file.set_modified(modified_ns)?;
        }
        let old = Arc::clone(&location.primary);
        let mut copies = others;
        if stays {
            copies.push(Arc::clone(&old));
        }
        let site = Arc::clone(site);
        let next = self.shared.location(site, copies, location.checksum, None);
        let record = self.entry.record_with(self.segment.number, &next);
        let row = GarbageRow {
            object_id: self.entry.object_id,
            segment: self.segment.number,
            place: old.place,
            bytes: length,
        };
        let mut writes = vec![Write::Put(&self.entry.key, &record)];
        if !stays {
            writes.push(Write::Garbage(row.clone()));
        }
        let mut accounted = crate::lock(&self.segment.accounted);
        if let Err(error) = self.shared.catalog.commit(&writes) {
            self.take_back(Some(&row));
            return Err(error.into());
        }
        self.shared.failpoints.hit("flip.committed")?;
        self.segment.location.publish(Arc::new(next));
        self.shared.tier(self.to()).account.turn(Class::Copy, Class::Used, length);
        self.leave(&mut accounted, (length, room), stays);
        drop(accounted);
        self.shared.post_change(EventKind::Uncopied, self.segment, self.to());
        self.shared.post_change(EventKind::Moved, self.segment, self.to());
        if stays {
            self.shared.post_change(EventKind::Copied, self.segment, self.one.from);
            // It is done all the same: an old mark is put right by the next opening after a crash.
            let _ = self.mark(&old, Role::Copy);
        } else {
            self.shared.drops.add(vec![Superseded { site: old, row }]);
        }
        Ok(())
    }
}
