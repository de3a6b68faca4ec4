// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a segment to another tier: all of them, then what was written meanwhile.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use terrace_core::{Buffer, Error, ErrorKind, Object, Outcome, Result};

use super::{FINAL_BYTES_MAX, Job, OPERATION, Stop, Target};
use crate::memory::dirty::Dirty;
use crate::tiers::list::TierState;
use crate::tiers::verify::{Piece, SLOW_LATENCY_NS, Verifier};
use crate::watch::ledger::Count;

/// Bytes copied at a time: they stay in the processor's cache between reading, checking and
/// writing, and file systems take as many in larger pages than fewer. Behind so many others get their
/// turn.
const STEP_BYTES: usize = 256 << 10;

/// Bytes copied at a time between files of file systems, of which most calls copy to and from memory: where
/// the kernel does not give up a processor before a call ends (`PREEMPT_NONE`), reads of a file that moves
/// wait so much less for one.
const QUICK_STEP_BYTES: usize = 64 << 10;

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

/// Whether the thread yields the processor behind each reading, writing and look: else reads
/// of a file that moves take twice as long. Not in ranges as they are copied while writers wait.
fn gives_way(range: &Range<u64>) -> bool {
    range.end.saturating_sub(range.start) > FINAL_BYTES_MAX
}

/// Whether a tier has ordinary files, as far as is known on nothing slow: no server of ours, for which each
/// request waits.
fn is_quick(tier: &TierState) -> bool {
    tier.capability.leases && tier.figures.latency_ns < SLOW_LATENCY_NS
}

impl Job<'_> {
    /// Copies everything; the checksum where there was no hole.
    pub(super) fn copy_all(&self, target: &mut Target<'_>) -> Result<Option<u32>, Stop> {
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
        // What is lost by now is found before anything is copied, what is lost meanwhile by the switch.
        self.shared.check_primary(OPERATION, self.segment)?;
        let location = self.segment.location.load_full();
        let source = location.primary.open(self.shared.backend(&location.primary))?;
        let source = source.as_ref().expect("it was just opened");
        let length = self.segment.length();
        if target.tier.is_whole() {
            target.object.set_modified(source.stat()?.modified_ns)?;
        }
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
        if target.tier.is_whole() {
            // A hole at the end.
            target.object.set_len(length)?;
        }
        self.one.enter("durable");
        target.object.sync()?;
        self.shared.backend(&target.site).sync()?;
        self.shared.failpoints.hit("move.durable")?;
        Ok((!has_holes).then_some(checksum))
    }

    /// Copies what was written meanwhile; returns how many bytes that were.
    pub(super) fn copy_dirty(&self, target: &Target<'_>) -> Result<u64, Stop> {
        let dirty = match crate::lock(&self.segment.dirty).as_mut() {
            Some(dirty) if !dirty.is_empty() && target.tier.is_whole() => {
                let reason = "it was written while a whole object was made of it";
                return Err(Stop::Outcome(Outcome::HotWrite, reason.into()));
            }
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

    /// Copies a range, with its holes, and clears what lies beyond the source's end.
    fn copy_or_clear(
        &self,
        source: &dyn Object,
        target: &Target<'_>,
        range: Range<u64>,
    ) -> Result<(), Stop> {
        let length = source.stat()?.size_bytes;
        let end = range.end.min(length);
        let mut at = range.start.min(length);
        while at < end {
            let data = source.next_data(at)?;
            let data = data.map_or(end..end, |data| data.start.min(end)..data.end.min(end));
            self.clear(target, at..data.start)?;
            at = data.end.max(at);
            if data.is_empty() {
                break;
            }
            self.copy_range(source, target, data, 0)?;
        }
        self.clear(target, range.start.max(length)..range.end)
    }

    /// Makes a hole of what the target has in a range.
    fn clear(&self, target: &Target<'_>, range: Range<u64>) -> Result<(), Stop> {
        if range.is_empty() {
            return Ok(());
        }
        let target_length = target.object.stat()?.size_bytes;
        let inside = range.start..range.end.min(target_length);
        if inside.start < inside.end {
            target.object.punch(inside)?;
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
        let (object, tier) = (&*target.object, target.tier);
        let gives_way = gives_way(&range);
        if tier.is_whole() {
            // Nothing can be read back before it is whole. Its service refuses bytes that fail the
            // checksum which is sent with them.
            return self.copy_pieces(source, target, range, checksum, |_| Ok(true));
        }
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
        let gives_way = gives_way(&range);
        let from = self.shared.tier(self.one.from);
        let step = match gives_way && is_quick(from) && is_quick(target.tier) {
            true => QUICK_STEP_BYTES,
            false => STEP_BYTES,
        };
        let mut buffer =
            Buffer::zeroed(step.min((range.end - range.start.min(range.end)) as usize));
        let mut at = range.start;
        // Since the last turn of others, and how long that took.
        let (mut turn_bytes, mut turn_ns) = (0, 0);
        while at < range.end {
            self.check()?;
            let left = (range.end - at) as usize;
            if turn_bytes == 0 {
                self.pace(STEP_BYTES.min(left) as u64);
            }
            let want = buffer.len().min(left);
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
            from.ledger.add(Count::MovedOutBytes, count as u64);
            from.ledger.add(Count::MoveDeviceNs, took_ns / 2);
            target.tier.ledger.add(Count::MovedInBytes, count as u64);
            target.tier.ledger.add(Count::MoveDeviceNs, took_ns / 2);
            self.one.copied_bytes.fetch_add(count as u64, Ordering::Relaxed);
            self.shared.tell_progress(self.one);
            (turn_bytes, turn_ns) = (turn_bytes + count, turn_ns + took_ns);
            at += count as u64;
            if turn_bytes >= STEP_BYTES || at >= range.end {
                self.shared.yield_to_foreground(&[self.one.from, self.to()], turn_ns);
                (turn_bytes, turn_ns) = (0, 0);
            }
            if gives_way {
                thread::yield_now();
            }
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
}
