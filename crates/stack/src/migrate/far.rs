// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The level `shared`: bytes on a shared tier, and the catalog's log there.
//!
//! A sync at this level copies every segment that has no file on the tier of the log to that tier, then
//! waits until the log there has the commit. A write to a segment drops the copy from the record; its
//! file is retained until the next copy is in the log, so that the tier always has the bytes of the last
//! sync. Files on shared tiers are deleted only once the log has the commit that made them garbage: the
//! next owner of the store may begin with any earlier state.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Outcome, Persistency, Result, Ticket, TierIndex};

use crate::catalog::far_log::FarLog;
use crate::catalog::map::GarbageRow;
use crate::catalog::record::{Place, Record};
use crate::memory::entry::{Entry, Segment};
use crate::migrate::transfer;
use crate::shared::Shared;
use crate::shared::drops::Drop as Superseded;
use crate::shared::moves::{Move, MoveRequest, MoveWish};
use crate::tiers::list::TierState;

const OPERATION: &str = "sync at the level shared";

/// Tries to copy a segment that is written meanwhile.
const ATTEMPTS_MAX: u32 = 200;

/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(5);

/// Segments of an object that are copied at once, each by a thread that mostly waits for the service.
const COPIES_AT_ONCE_MAX: usize = 8;

impl TierState {
    /// Whether another machine that takes the store over finds what it holds. A tier that is written in place is
    /// none, whatever it survives: the owner before may still write there.
    pub(crate) fn is_shared(&self) -> bool {
        self.capability.persistency >= Persistency::Shared && self.is_whole()
    }
}

impl Shared {
    fn far(&self) -> Option<Arc<dyn FarLog>> {
        self.far.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_far(&self, far: Option<Arc<dyn FarLog>>) {
        *self.far.write().unwrap_or_else(PoisonError::into_inner) = far;
    }

    /// Whether the level `shared` can be given.
    pub(crate) fn is_shareable(&self) -> bool {
        self.far().is_some_and(|far| {
            self.tiers.find(far.tier()).is_some_and(|(_, tier)| tier.is_online())
        })
    }

    /// Waits until a commit is as durable as `level` asks.
    pub(crate) fn wait_for(&self, ticket: Ticket, level: Persistency) -> Result<()> {
        if level >= Persistency::Storage {
            self.catalog.wait(ticket)?;
        }
        if level >= Persistency::Shared { self.wait_far(ticket.0) } else { Ok(()) }
    }

    fn wait_far(&self, ticket: u64) -> Result<()> {
        match self.far() {
            Some(far) => far.wait(ticket),
            None => Err(unsupported()),
        }
    }

    /// Waits until the log has every commit so far, where there is one.
    pub(crate) fn wait_far_all(&self) -> Result<()> {
        match self.far() {
            Some(far) => far.wait(self.catalog.last_commit()),
            None if self.settings.has_far_log => Err(unsupported()),
            None => Ok(()),
        }
    }

    /// Writes a commit to the log, where there is one: it comes before the seal of a takeover, or finds it. A wait
    /// for commits that the log has already finds no seal.
    pub(crate) fn confirm_owner(&self) -> Result<()> {
        match self.far() {
            Some(far) => far.wait(self.catalog.rewrite_header()?.0),
            None => self.wait_far_all(),
        }
    }

    /// Refuses everything from now on: another machine owns the store.
    pub(crate) fn fence(&self, reason: &str) {
        let _ = self.fenced.set(reason.into());
    }

    /// # Errors
    ///
    /// `Denied` where another machine has taken the store over.
    pub(crate) fn check_owner(&self, operation: &'static str) -> Result<()> {
        match self.fenced.get() {
            None => Ok(()),
            Some(reason) => Err(Error::new(ErrorKind::Denied, operation).because(reason.clone())),
        }
    }

    /// Whether a segment has a file with its present bytes on a shared tier.
    pub(crate) fn has_shared(&self, segment: &Segment) -> bool {
        let location = segment.location.load();
        location.settling.is_none()
            && location.sites().any(|site| self.tier(site.place.tier).is_shared())
    }

    /// Whether an object would lose what its level promises by losing this file of a segment.
    pub(crate) fn needs_shared(&self, entry: &Entry, segment: &Segment, tier: TierIndex) -> bool {
        let is_other = |place: &Place| place.tier != tier && self.tier(place.tier).is_shared();
        entry.persistency() >= Persistency::Shared
            && self.tier(tier).is_shared()
            && !segment.location.load().sites().any(|site| is_other(&site.place))
    }

    /// Whether an object would lose what its level promises where a segment leaves a tier that keeps nothing of it.
    pub(crate) fn would_unshare(
        &self,
        entry: &Entry,
        segment: &Segment,
        from: TierIndex,
        to: TierIndex,
    ) -> bool {
        !self.tier(to).is_shared() && self.needs_shared(entry, segment, from)
    }

    /// Gives an object what the level `shared` promises, after its bytes were synced; does nothing at
    /// other levels.
    pub(crate) fn share(&self, entry: &Arc<Entry>) -> Result<()> {
        // One that was deleted has nothing left to lose.
        if entry.persistency() < Persistency::Shared || entry.is_draft() || entry.is_deleted() {
            return Ok(());
        }
        self.share_segments(entry)?;
        // Also the commits that name the copies: the next opening would take a copy that no record names for
        // the rest of a crash.
        self.catalog.wait_all()?;
        self.wait_far_all()?;
        self.release(entry);
        Ok(())
    }

    /// Copies the segments of an object, or of a draft, that have no file on a shared tier.
    pub(crate) fn share_segments(&self, entry: &Arc<Entry>) -> Result<()> {
        let far = self.far().ok_or_else(unsupported)?;
        let (to, _) = self.tiers.find(far.tier()).ok_or_else(unsupported)?;
        let segments = entry.segments.load_full();
        let lacking: Vec<_> = segments.iter().filter(|one| !self.has_shared(one)).collect();
        let next = AtomicUsize::new(0);
        let copy = || -> Result<()> {
            while let Some(segment) = lacking.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.share_segment(entry, segment, to).inspect_err(|_| {
                    // The others end with what they have begun.
                    next.store(lacking.len(), Ordering::Relaxed);
                })?;
            }
            Ok(())
        };
        let helpers = lacking.len().min(COPIES_AT_ONCE_MAX).saturating_sub(1);
        let copy = &copy;
        let copied = std::thread::scope(|scope| {
            let spawn = |_| {
                let thread = std::thread::Builder::new().name("terrace-share".into());
                // Without it this thread copies more.
                thread.spawn_scoped(scope, move || {
                    terrace_affinity::roam();
                    copy()
                })
            };
            let helpers: Vec<_> = (0..helpers).flat_map(spawn).collect();
            let own = copy();
            helpers.into_iter().fold(own, |done, helper| {
                let helped = helper.join().unwrap_or_else(|panic| resume_unwind(panic));
                done.and(helped)
            })
        });
        copied.map_err(|error: Error| error.with("key", &entry.key))
    }

    fn share_segment(
        &self,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        to: TierIndex,
    ) -> Result<()> {
        let mut last = (Outcome::Busy, String::new());
        for attempt in 0..ATTEMPTS_MAX {
            if entry.has_lost(segment) {
                return Ok(());
            }
            self.settle(entry, segment)?;
            if self.has_shared(segment) {
                return Ok(());
            }
            self.check_owner(OPERATION)?;
            if attempt > 0 {
                self.clock.sleep(PAUSE);
            }
            last = self.copy_now(entry, segment, to);
            match last.0 {
                Outcome::Done => return Ok(()),
                Outcome::Busy | Outcome::HotWrite | Outcome::Stale | Outcome::Already => {}
                Outcome::Cancelled => self.check_open(OPERATION)?,
                _ => break,
            }
        }
        let (outcome, detail) = last;
        let kind = match outcome {
            Outcome::NoSpace => ErrorKind::NoSpace,
            Outcome::Io => ErrorKind::Io,
            _ => ErrorKind::Busy,
        };
        let reason = match detail.is_empty() {
            true => format!("its copy could not be made: {}", outcome.word()),
            false => format!("its copy could not be made: {}: {detail}", outcome.word()),
        };
        Err(Error::new(kind, OPERATION).because(reason).with("tier", &self.tier(to).name))
    }

    /// Makes the copy in this thread, ahead of everything that is queued.
    fn copy_now(
        &self,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        to: TierIndex,
    ) -> (Outcome, String) {
        let request = MoveRequest {
            key: entry.key.clone(),
            segment: segment.number,
            wish: MoveWish::Copy,
            to,
            priority: i32::MAX,
            reason: "it is synced at the level shared".into(),
            by: "stack".into(),
            benefit_s: 0.0,
            slot: Some((segment.slot, segment.incarnation)),
        };
        if entry.is_draft() {
            // No queue knows it, and no policy.
            let from = segment.location.load().primary.place.tier;
            let one = Move::new(0, entry.object_id, segment, from, request);
            return transfer::carry_out_on(self, &one, entry);
        }
        self.mover.run_here(self, entry, segment, request)
    }

    /// Lets go of files that were retained for an object, because the tier has newer ones or the
    /// object is gone; the log has that.
    pub(crate) fn release(&self, entry: &Entry) {
        let released = crate::lock(&self.retained).remove(&entry.object_id);
        let Some(released) = released else { return };
        let segments = entry.segments.load_full();
        let is_shared = |number: u32| {
            let found = segments.iter().find(|segment| segment.number == number);
            found.is_none_or(|segment| entry.has_lost(segment) || self.has_shared(segment))
        };
        let (gone, kept): (Vec<_>, Vec<_>) =
            released.into_iter().partition(|one| is_shared(one.row.segment));
        self.drops.add(gone);
        kept.into_iter().for_each(|one| self.retain(one));
    }

    /// Keeps a superseded file that has the bytes of the last sync.
    pub(crate) fn retain(&self, superseded: Superseded) {
        crate::lock(&self.retained).entry(superseded.row.object_id).or_default().push(superseded);
    }

    /// Retains those among superseded files of an object that have the bytes of its last sync, and no other file
    /// on a shared tier has; the others are returned. The new location is published.
    pub(crate) fn retain_among(&self, entry: &Entry, all: Vec<Superseded>) -> Vec<Superseded> {
        if entry.persistency() < Persistency::Shared || entry.is_deleted() {
            return all;
        }
        let segments = entry.segments.load_full();
        let is_needed = |one: &Superseded| {
            let found = segments.iter().find(|segment| segment.number == one.row.segment);
            self.tier(one.row.place.tier).is_shared()
                && !found.is_some_and(|segment| self.has_shared(segment))
        };
        let (retained, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(is_needed);
        retained.into_iter().for_each(|one| self.retain(one));
        rest
    }

    /// Splits off the rows of garbage that an opening must retain: objects at level `shared` that were
    /// written since their last sync.
    pub(crate) fn retain_rows(&self, rows: Vec<GarbageRow>) -> Result<Vec<GarbageRow>> {
        let is_shared = |row: &GarbageRow| self.tier(row.place.tier).is_shared();
        if !rows.iter().any(is_shared) {
            return Ok(rows);
        }
        let mut wanted = HashSet::new();
        self.catalog.for_each(&mut |_, record| {
            if let Ok(record) = record {
                wanted.extend(unshared(self, &record));
            }
            Ok(())
        })?;
        let (retained, rest): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| is_shared(row) && wanted.contains(&(row.object_id, row.segment)));
        for row in retained {
            let site = crate::memory::site::Site::new(row.place, row.object_id, row.segment);
            self.tier(row.place.tier)
                .account
                .found(crate::tiers::account::Class::Garbage, row.bytes);
            self.retain(Superseded { site, row });
        }
        Ok(rest)
    }

    /// Gives all objects what the level `shared` promises, for a sync of everything.
    pub(crate) fn share_all(&self, synced: &[Arc<Entry>], is_complete: bool) -> Result<()> {
        if self.far().is_none() || self.is_closing.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut any = false;
        let is_one = |entry: &&Arc<Entry>| entry.persistency() >= Persistency::Shared;
        for entry in synced.iter().filter(is_one) {
            any = true;
            self.share(entry)?;
        }
        if !is_complete {
            let mut left = Vec::new();
            self.catalog.for_each(&mut |key, record| {
                if record.is_ok_and(|record| !unshared(self, &record).is_empty()) {
                    left.push(key);
                }
                Ok(())
            })?;
            for key in left {
                if let Some(entry) = self.borrow_entry(&key)? {
                    any = true;
                    self.share(&entry)?;
                }
            }
        }
        if any || self.settings.persistency >= Persistency::Shared {
            self.wait_far_all()?;
        }
        Ok(())
    }
}

/// The segments of an object at level `shared` that have no file on a shared tier.
fn unshared(shared: &Shared, record: &Record) -> Vec<(u64, u32)> {
    if record.persistency < Persistency::Shared {
        return Vec::new();
    }
    let lacks = |one: &&crate::catalog::record::SegmentRecord| {
        !std::iter::once(&one.primary)
            .chain(&one.copies)
            .any(|place| shared.tier(place.tier).is_shared())
    };
    record.segments.iter().filter(lacks).map(|one| (record.object_id, one.number)).collect()
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, OPERATION)
        .because("the catalog has no log on a shared tier; see docs/how-to/takeover.md")
}
