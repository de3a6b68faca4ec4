// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One migration, step by step: reserve, track, copy, verify, durable, switch, settle.
//!
//! Readers are never stopped, writers only behind the gate, and nothing is freed before its
//! successor is certain.

mod copy;
mod flip;
mod switch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrace_core::{
    Create, Error, ErrorKind, Object, Open, Outcome, Persistency, Result, Role, Semantics,
    TierIndex,
};

use crate::catalog::map::GarbageRow;
use crate::catalog::record::Place;
use crate::memory::dirty::Dirty;
use crate::memory::entry::{Entry, Segment};
use crate::memory::holds::HELD;
use crate::memory::site::Site;
use crate::shared::Shared;
use crate::shared::moves::{Move, MoveRequest, MoveWish};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;

/// Most bytes that are copied while writers wait.
const FINAL_BYTES_MAX: u64 = 256 << 10;

/// Rounds and attempts to switch before a segment counts as too hot.
const ATTEMPTS_MAX: u32 = 40;

/// What a migration calls itself where it finds damage.
const OPERATION: &str = "migrate a segment";

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

/// Whether a request is what the level `shared` of an object needs: that pins it to nothing else.
pub(crate) fn is_sharing(shared: &Shared, entry: &Entry, request: &MoveRequest) -> bool {
    request.wish == MoveWish::Copy
        && entry.persistency() >= Persistency::Shared
        && shared.tiers.get(request.to).is_some_and(TierState::is_shared)
}

/// Carries out a migration; never fails, but says how it ended.
pub(crate) fn carry_out(shared: &Shared, one: &Move) -> (Outcome, String) {
    ended(try_carry_out(shared, one))
}

/// The same for an object that the caller has.
pub(crate) fn carry_out_on(shared: &Shared, one: &Move, entry: &Arc<Entry>) -> (Outcome, String) {
    ended(try_carry_out_on(shared, one, entry))
}

fn ended(result: Result<(), Stop>) -> (Outcome, String) {
    match result {
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
    try_carry_out_on(shared, one, &entry)
}

fn try_carry_out_on(shared: &Shared, one: &Move, entry: &Arc<Entry>) -> Result<(), Stop> {
    let segments = entry.segments.load_full();
    // Not one that has got the number since that one was cut off.
    let is_meant = |segment: &&Arc<Segment>| {
        segment.number == one.request.segment && (segment.slot, segment.incarnation) == one.slot
    };
    let segment = segments.iter().find(is_meant).ok_or_else(|| stop(Outcome::Stale))?;
    let wish = one.request.wish;
    // Looked at once it is among those that run: a tier that is being removed is closed first, and
    // then those are waited for.
    if wish != MoveWish::DropCopy && !shared.tier(one.request.to).takes_data() {
        return Err(Stop::Outcome(Outcome::NoSpace, "the tier takes nothing new".into()));
    }
    let writings = segment.holds.writings();
    let job = Job { shared, one, entry, segment, writings };
    job.check()?;
    let result = match wish {
        MoveWish::DropCopy => match shared.drop_copy(entry, segment, one.request.to)? {
            true => {
                shared.look_packed(entry, segment);
                Ok(())
            }
            false => Err(stop(Outcome::Invalid)),
        },
        MoveWish::Copy => job.transfer(),
        MoveWish::Move | MoveWish::Drain | MoveWish::Promote => match job.copy_on_target() {
            true => job.flip(),
            false => job.transfer(),
        },
    };
    if !entry.is_open() {
        // A migration must not leave unused files open.
        shared.close_files(entry);
    }
    result
}

struct Job<'a> {
    shared: &'a Shared,
    one: &'a Move,
    entry: &'a Arc<Entry>,
    segment: &'a Arc<Segment>,
    /// [`Holds::writings`](crate::memory::holds::Holds::writings) when it began: what was written past the
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
        // The level `shared` is kept until the next sync, also where the segment is recalled.
        let is_needed = self.shared.needs_shared(self.entry, self.segment, self.one.from)
            && !self.shared.tier(self.to()).is_shared();
        let is_usual = (is_promoted || is_needed) && !has_promise && self.takes_the_same();
        is_usual && self.shared.tier(self.one.from).takes_data()
    }

    /// Whether it may go on. A switch looks under `changes`, under which an object is pinned and
    /// promised more: what was acknowledged stays true.
    fn check(&self) -> Result<(), Stop> {
        if self.one.is_cancelled() {
            return Err(stop(Outcome::Cancelled));
        }
        if self.entry.has_lost(self.segment) {
            return Err(stop(Outcome::Stale));
        }
        let wish = self.one.request.wish;
        let is_pinned = self.entry.is_pinned.load(Ordering::Acquire);
        let is_sharing = is_sharing(self.shared, self.entry, &self.one.request);
        if is_pinned && wish != MoveWish::Drain && !is_sharing {
            return Err(stop(Outcome::Pinned));
        }
        let is_dropping = wish == MoveWish::DropCopy;
        let is_primary = !is_dropping && wish != MoveWish::Copy;
        if is_primary && !self.shared.tier(self.to()).keeps(self.entry.persistency()) {
            return Err(stop(Outcome::TooWeak));
        }
        if wish == MoveWish::Drain
            && self.shared.would_unshare(self.entry, self.segment, self.one.from, self.to())
        {
            return Err(stop(Outcome::TooWeak));
        }
        let holds = &self.segment.holds;
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

    /// To where the segment has room on the target: with what was promised to it, unless it is a copy.
    fn reach_bytes(&self) -> u64 {
        match self.one.request.wish {
            MoveWish::Copy => self.segment.length(),
            _ => self.segment.reach(),
        }
    }

    /// The room that the segment takes on the target, with what was promised to it.
    fn room_bytes(&self) -> u64 {
        let from = self.shared.tier(self.one.from);
        let amount = self.shared.tier(self.to()).amount_of(self.segment, from);
        amount + (self.reach_bytes() - self.segment.length())
    }

    /// Whether copies can be accounted with the primary: both take the same.
    fn takes_the_same(&self) -> bool {
        let (from, to) = (self.shared.tier(self.one.from), self.shared.tier(self.to()));
        !self.segment.is_sparse() || to.capability.sparse && !from.capability.packed
    }

    /// Makes the segment's bytes a file on the target and switches to it.
    fn transfer(&self) -> Result<(), Stop> {
        self.one.enter("reserve");
        // Only one switch of a segment may be uncertain at a time.
        self.shared.settle(self.entry, self.segment)?;
        if matches!(self.one.request.wish, MoveWish::Copy | MoveWish::Promote) {
            self.shared.account_unpacked(self.entry, self.segment);
        }
        self.switch_over().inspect_err(|_| self.shared.look_packed(self.entry, self.segment))
    }

    /// The same behind what the accounts need.
    fn switch_over(&self) -> Result<(), Stop> {
        if self.one.request.wish != MoveWish::Copy && !self.takes_the_same() {
            // Copies are accounted with the primary, which takes more there.
            self.shared.make_unclean(self.entry, self.segment)?;
        }
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
        if !self.shared.catalog.kv().has_room() && !has_much_room(tier) {
            let reason = "the disk of the catalog is full, and the tier may be on the same one";
            return Err(Stop::Outcome(Outcome::NoSpace, reason.into()));
        }
        if self.one.request.wish == MoveWish::Copy && !self.takes_the_same() {
            let reason = "a copy would take more than its primary, which has holes or is packed";
            return Err(Stop::Outcome(Outcome::NoSpace, reason.into()));
        }
        self.check_whole(tier)?;
        // What is written over may have run ahead of what is allocated.
        self.shared.look_alone(self.entry, self.segment);
        let bytes = self.room_bytes();
        let limit = match self.one.request.wish {
            MoveWish::Move | MoveWish::Drain => tier.capacity_bytes(),
            _ => tier.critical_bytes(),
        };
        let take = || tier.account.take(Class::Reserved, bytes, limit);
        // Copies are not dropped for what has no room without them either.
        let can_fit = || {
            let kept = tier.account.taken().saturating_sub(tier.account.bytes(Class::Copy));
            kept.saturating_add(bytes) <= limit
        };
        let taken = self.shared.take_with_garbage(self.to(), take)
            || can_fit() && self.shared.drop_copies_on(self.to(), bytes) && take();
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

    /// Refuses what a tier that takes whole objects, or none above a size, cannot have.
    fn check_whole(&self, tier: &TierState) -> Result<(), Stop> {
        if self.segment.length() > tier.capability.object_bytes_max {
            let most = tier.capability.object_bytes_max;
            let reason = format!("the tier takes no object above {most} bytes");
            return Err(Stop::Outcome(Outcome::NoSpace, reason));
        }
        if tier.is_whole() && self.reach_bytes() > self.segment.length() {
            let reason = "the tier cannot keep the room that is promised behind its end";
            return Err(Stop::Outcome(Outcome::NoSpace, reason.into()));
        }
        Ok(())
    }

    /// What the finished file is to its object.
    fn final_role(&self) -> Role {
        match self.one.request.wish {
            MoveWish::Copy => Role::Copy,
            _ => Role::Primary,
        }
    }

    fn make_file(&self) -> Result<(Arc<Site>, Box<dyn Object>)> {
        let file = self.shared.catalog.number()?;
        let place = Place { tier: self.to(), file, generation: file, epoch: self.shared.epoch };
        let site = Site::new(place, self.entry.object_id, self.segment.number);
        // One that is there only once it is whole is never unfinished.
        let is_whole = self.shared.tier(self.to()).is_whole();
        let role = if is_whole { self.final_role() } else { Role::Partial };
        let how = Open {
            create: Create::New,
            semantics: Semantics::at_level(Persistency::None),
            identity: self.identity(&site, role),
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
        // It takes the room until it is gone.
        let account = &target.tier.account;
        account.turn(Class::Reserved, Class::Garbage, target.reserved_bytes);
        if commit_tried {
            return;
        }
        let row = GarbageRow {
            object_id: self.entry.object_id,
            segment: self.segment.number,
            place: target.site.place,
            bytes: target.reserved_bytes,
        };
        self.shared.delete_unnamed(target.site, row);
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
}

/// Whether a tier has more room than a disk that is too full for the catalog.
fn has_much_room(tier: &TierState) -> bool {
    const BYTES: u64 = 64 << 20;
    tier.backend
        .space()
        .is_ok_and(|space| space.capacity_bytes.saturating_sub(space.used_bytes) >= BYTES)
}
