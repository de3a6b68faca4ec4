// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all parts of a stack share.
//!
//! The files of this folder own the state of one part each: its fields, its locks, and what can be
//! done with them alone. What takes [`Shared`] is in a module of the part itself, which imports its
//! state from here; nothing here imports such a module.

pub(crate) mod benefits;
pub(crate) mod desk;
pub(crate) mod drafts;
pub(crate) mod drains;
pub(crate) mod drops;
pub(crate) mod moves;
pub(crate) mod placing;
pub(crate) mod promises;
pub(crate) mod recording;
pub(crate) mod scrubbing;
pub(crate) mod turns;
pub(crate) mod written;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use terrace_core::{
    Access, Backend, Clock, Error, ErrorKind, Event, EventKind, Failpoints, Outcome, Placed,
    Placement, Result, TierIndex,
};

use self::benefits::Benefits;
use self::desk::Desk;
use self::drafts::Unpublished;
use self::drains::Drains;
use self::drops::Drops;
use self::moves::Mover;
use self::placing::{Attendant, Published};
use self::promises::Promises;
use self::recording::Recording;
use self::scrubbing::Scrubbing;
use self::written::Written;
use crate::Settings;
use crate::catalog::far_log::FarLog;
use crate::catalog::log::Opening;
use crate::catalog::low_space;
use crate::catalog::map::Catalog;
use crate::memory::entries::Entries;
use crate::memory::entry::{Accounted, Entry, Segment};
use crate::memory::guard::Parking;
use crate::memory::leases::Leases;
use crate::memory::site::{Location, Pending, Site};
use crate::memory::sparse::Others;
use crate::memory::usage::Usages;
use crate::shared::turns::Turns;
use crate::tiers::account::Class;
use crate::tiers::list::{TierState, Tiers};
use crate::watch::posting::Posting;
use crate::watch::ring::{Change, Mailbox, Posted, Took};
use crate::watch::slots::Slots;
use crate::watch::{Fill, Watches};

/// Unused tier files that are kept open; each is a descriptor.
const IDLE_FILES_MAX: usize = 1024;

/// Everything of one open stack.
pub(crate) struct Shared {
    pub(crate) target: String,
    pub(crate) store_id: u128,
    pub(crate) epoch: u64,
    /// The opening before, as its catalog tells.
    pub(crate) previous_opening: Opening,
    pub(crate) boot: u64,
    pub(crate) tiers: Tiers,
    pub(crate) catalog: Catalog,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) failpoints: Failpoints,
    /// One tier, no policy and no trace: I/O goes straight to the tier.
    pub(crate) is_bare: bool,
    /// The store was not closed and is only read: lengths of files are newer than those noted.
    pub(crate) is_unrecovered: bool,
    /// The trace that is recorded, or the end of the last one.
    pub(crate) recording: Mutex<Recording>,
    pub(crate) entries: Entries,
    pub(crate) parking: Parking,
    pub(crate) leases: Arc<Leases>,
    /// What may be written to past the stack.
    pub(crate) written: Written,
    /// What has room promised behind its end.
    pub(crate) promises: Promises,
    /// Drafts that were neither published nor discarded, by number.
    pub(crate) drafts: Mutex<BTreeMap<u64, Unpublished>>,
    /// For operations with atomicity; no others take one.
    pub(crate) turns: Turns,
    pub(crate) slots: Slots,
    pub(crate) usages: Usages,
    pub(crate) scrubbing: Scrubbing,
    pub(crate) mailbox: Mailbox,
    pub(crate) posting: Posting,
    pub(crate) placer: ArcSwap<Published>,
    pub(crate) attendant: Attendant,
    pub(crate) desk: Desk,
    pub(crate) mover: Mover,
    pub(crate) benefits: Benefits,
    pub(crate) drops: Drops,
    pub(crate) drains: Drains,
    pub(crate) watches: Arc<Watches>,
    pub(crate) fill: Fill,
    /// Objects whose length is not in the catalog yet, by number.
    pub(crate) unflushed: Mutex<BTreeMap<u64, Arc<Entry>>>,
    /// Objects with a switch that its migration could not make certain.
    pub(crate) unsettled: Mutex<Vec<Arc<Entry>>>,
    /// Objects that were open and may keep their files open; the oldest first.
    pub(crate) idle: Mutex<VecDeque<Weak<Entry>>>,
    /// The catalog's log on a shared tier, where it has one.
    pub(crate) far: RwLock<Option<Arc<dyn FarLog>>>,
    /// Why another machine owns the store now.
    pub(crate) fenced: OnceLock<String>,
    /// Superseded files with the bytes of the last sync at level `shared`, by object.
    pub(crate) retained: Mutex<HashMap<u64, Vec<drops::Drop>>>,
    /// Held while everything is synced.
    pub(crate) syncing: Mutex<()>,
    pub(crate) is_closing: AtomicBool,
    /// The catalog may say something else than memory: nothing may be written any more.
    pub(crate) is_broken: AtomicBool,
    /// Whether a sync failed: the state of its device is unknown, also where a later one succeeds.
    pub(crate) has_failed_sync: AtomicBool,
    pub(crate) opened_clock_ns: u64,
    /// When utilisation was last computed, and the busy time of each tier until then.
    pub(crate) utilisation_since: Mutex<(u64, Vec<u64>)>,
}

impl Shared {
    #[inline]
    pub(crate) fn tier(&self, tier: TierIndex) -> &TierState {
        self.tiers.get(tier).expect("an index is only made for a tier")
    }

    pub(crate) fn backend(&self, site: &Site) -> &dyn Backend {
        &*self.tier(site.place.tier).backend
    }

    /// # Errors
    ///
    /// `Denied` where the stack was opened for reading.
    pub(crate) fn check_writable(&self, operation: &'static str) -> Result<()> {
        if self.settings.access == Access::Read {
            return Err(Error::new(ErrorKind::Denied, operation)
                .because("the store is open for reading only"));
        }
        if self.is_broken.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Io, operation)
                .because("the catalog failed in the middle of a change; open the store again"));
        }
        self.check_open(operation)
    }

    /// Refuses to change the tiers of a store with one tier and no policy, whose reads and writes pass all
    /// that moves objects.
    ///
    /// # Errors
    ///
    /// `Unsupported`.
    pub(crate) fn check_many(&self, operation: &'static str) -> Result<()> {
        if self.is_bare {
            return Err(Error::new(ErrorKind::Unsupported, operation).because(
                "the store was opened with one tier and no policy; change its tiers while it is \
                 closed",
            ));
        }
        Ok(())
    }

    /// Refuses what a closing store takes no more. A change of an object looks again inside its
    /// guard or its locks: a close waits for operations inside, and then notes how long objects are.
    ///
    /// # Errors
    ///
    /// `Busy` where the store closes.
    pub(crate) fn check_open(&self, operation: &'static str) -> Result<()> {
        self.check_owner(operation)?;
        if self.is_closing.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Busy, operation).because("the store is closing"));
        }
        Ok(())
    }

    /// Refuses what grows where the disk of the catalog has room only for what makes room.
    pub(crate) fn check_room(&self, operation: &'static str) -> Result<()> {
        if self.catalog.kv().has_room() { Ok(()) } else { Err(low_space::refusal(operation)) }
    }

    /// Asks the placer. Where it fails, takes too long or names no tier, it is the first tier, as the
    /// fallback would have it.
    pub(crate) fn place(&self, new: &Placement<'_>) -> Placed {
        let first = || Placed::on(TierIndex(0));
        let published = self.placer.load();
        if published.has_failed() {
            return first();
        }
        let placed = self.attendant.place(&self.clock, &published, new);
        if published.has_failed() {
            self.mailbox.call();
        }
        let placed = placed.filter(|placed| self.tiers.get(placed.tier).is_some());
        let mut placed = placed.unwrap_or_else(first);
        placed.tier = self.written_instead_of(placed.tier);
        placed
    }

    /// The tier that takes new data in place of one that takes whole objects only: the next more
    /// preferred one, else the next less preferred one.
    fn written_instead_of(&self, tier: TierIndex) -> TierIndex {
        let is_written =
            |tier: &TierIndex| self.tiers.get(*tier).is_some_and(|state| !state.is_whole());
        if is_written(&tier) {
            return tier;
        }
        let before = (0..tier.0).rev();
        let behind = tier.0..self.tiers.len() as u8;
        before.chain(behind).map(TierIndex).find(is_written).unwrap_or(tier)
    }

    /// A location with the best site for reading chosen.
    pub(crate) fn location(
        &self,
        primary: Arc<Site>,
        copies: Vec<Arc<Site>>,
        checksum: Option<u32>,
        settling: Option<Pending>,
    ) -> Location {
        // 256 KiB: the object size of the study that this grew from; what matters is the order.
        const TYPICAL_READ_BYTES: u64 = 256 << 10;
        let cost = |site: &Site| {
            let tier = self.tier(site.place.tier);
            let is_offline = tier.offline.is_some();
            let preference = f64::from(site.place.tier.0) * 1e-9;
            if is_offline {
                f64::INFINITY
            } else {
                tier.figures.read_s(TYPICAL_READ_BYTES) + preference
            }
        };
        let is_shared = |site: &Site| self.tier(site.place.tier).is_shared();
        Location::new(primary, copies, checksum, settling, cost, is_shared)
    }

    /// The primary, or what readers use instead where its tier is offline.
    pub(crate) fn reachable<'a>(&self, location: &'a Location) -> &'a Arc<Site> {
        match &self.tier(location.primary.place.tier).offline {
            Some(_) => location.read_site(),
            None => &location.primary,
        }
    }

    /// Posts an access for the policy.
    #[inline]
    pub(crate) fn post(
        &self,
        kind: EventKind,
        segment: &Segment,
        tier: TierIndex,
        time_ns: u64,
        extent: (u64, u64),
        took: Took,
    ) {
        if self.is_bare {
            return;
        }
        let event = Event {
            kind,
            slot: segment.slot,
            incarnation: segment.incarnation,
            tier,
            count: 1,
            time_ns,
            offset_bytes: extent.0,
            length_bytes: extent.1,
            latency_ns: took.latency_ns,
            outcome: Outcome::Done,
        };
        self.mailbox.post(Posted { event, guard_ns: took.guard_ns, stack_ns: took.stack_ns });
    }

    /// Does what a caller asks of an object as a whole. Where the policy asks for events of this kind,
    /// `post` gets the time at which it began and how long it took, before or after it.
    #[inline]
    pub(crate) fn with_event<T>(
        &self,
        kind: EventKind,
        post: impl FnOnce(u64, Took),
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if !self.posting.takes(kind) {
            return act();
        }
        let began_ns = self.clock.now_ns();
        if self.posting.is_ahead() {
            post(began_ns, Took::default());
            return act();
        }
        let done = act()?;
        post(began_ns, Took::of(self.clock.now_ns() - began_ns));
        Ok(done)
    }

    /// Posts an event for each segment of an object, about all of its bytes.
    pub(crate) fn post_all(&self, kind: EventKind, entry: &Entry, time_ns: u64, took: Took) {
        for segment in entry.segments.load().iter() {
            let tier = self.reachable(&segment.location.load_full()).place.tier;
            self.post(kind, segment, tier, time_ns, (0, 0), took);
        }
    }

    /// Posts a change of where a segment is, or whether.
    pub(crate) fn post_change(&self, kind: EventKind, segment: &Segment, tier: TierIndex) {
        if self.is_bare {
            return;
        }
        let time_ns = self.clock.now_ns();
        let event = Event { tier, ..Event::new(kind, segment.slot, segment.incarnation, time_ns) };
        self.mailbox.post_change(Change::of(event));
    }

    /// Gives a segment its slot; none where no policy looks.
    pub(crate) fn slot(&self, object_id: u64, segment: u32) -> (u32, u32) {
        if self.is_bare {
            (terrace_core::SLOT_NONE, 0)
        } else {
            self.slots.assign(object_id, segment)
        }
    }

    /// Pauses in proportion to how busy applications keep these tiers, after a piece of background
    /// work that took so long.
    pub(crate) fn yield_to_foreground(&self, tiers: &[TierIndex], took_ns: u64) {
        if !self.settings.move_yields {
            return;
        }
        let busy = |tier: &TierIndex| self.tier(*tier).utilisation_permille.load(Ordering::Relaxed);
        let busiest = tiers.iter().map(busy).max().unwrap_or(0);
        // Below half, the device has room for both; fully busy, background work takes half its
        // time.
        const FREE_PERMILLE: u64 = 500;
        if busiest > FREE_PERMILLE {
            let pause_ns = took_ns * (busiest.min(1000) - FREE_PERMILLE) / FREE_PERMILLE;
            // Bounded, so that one slow request does not put it to sleep.
            self.clock.sleep(Duration::from_nanos(pause_ns.min(10_000_000)));
        }
    }

    /// Notes that an object's length is to be written to the catalog.
    pub(crate) fn note_unflushed(&self, entry: &Arc<Entry>) {
        if !entry.is_dirty.swap(true, Ordering::AcqRel) {
            crate::lock(&self.unflushed).insert(entry.object_id, Arc::clone(entry));
        }
    }

    /// Lets go of an object that was deleted: its length is of no use, and its files stay as long as
    /// they are referenced.
    pub(crate) fn forget_unflushed(&self, entry: &Entry) {
        if entry.is_dirty.load(Ordering::Acquire) {
            crate::lock(&self.unflushed).remove(&entry.object_id);
        }
    }

    /// Settles an object's room, and closes its files where too many are open, after its last
    /// handle was closed.
    pub(crate) fn last_close(&self, entry: &Arc<Entry>) {
        for segment in entry.segments.load().iter() {
            self.trim_room(entry, segment);
        }
        if entry.may_have_promise_row() {
            self.tidy_promises(entry);
        }
        // One that is opened and closed again and again keeps its place.
        if entry.is_idle_listed.load(Ordering::Acquire) {
            return;
        }
        let is_used_again = entry.was_closed.swap(true, Ordering::AcqRel);
        let mut idle = crate::lock(&self.idle);
        let is_full = idle.len() >= IDLE_FILES_MAX;
        if is_full && !is_used_again {
            // Most objects are used once, and closing another's file, which no cache has any
            // more, would take longer than making this one did.
            drop(idle);
            self.close_files(entry);
            return self.entries.pass(entry);
        }
        if !entry.is_idle_listed.swap(true, Ordering::AcqRel) {
            idle.push_back(Arc::downgrade(entry));
        }
        let oldest = if is_full { idle.pop_front() } else { None };
        drop(idle);
        let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) else { return };
        oldest.is_idle_listed.store(false, Ordering::Release);
        // What is open now is listed again when it is closed.
        if !oldest.is_open() {
            self.close_files(&oldest);
        }
    }

    /// Closes the tier files of an object.
    pub(crate) fn close_files(&self, entry: &Entry) {
        for segment in entry.segments.load().iter() {
            segment.location.load_full().sites().for_each(|site| site.close());
        }
    }

    /// Gives back what a segment reserved beyond its length and what it was promised, and accounts
    /// its length.
    pub(crate) fn trim_room(&self, entry: &Arc<Entry>, segment: &Segment) {
        let mut accounted = crate::lock(&segment.accounted);
        // A caller that opened it meanwhile may have asked for room that it has not filled yet. Writers
        // ask under this lock and only while the object is open; a closing store lets none write.
        let is_used = entry.is_open() || segment.holds.is_written();
        let may_be_written = is_used && !self.is_closing.load(Ordering::Acquire);
        if entry.has_lost(segment) || may_be_written {
            return;
        }
        if self.is_bare || segment.holds.is_written() {
            self.take_length(entry, segment, &mut accounted);
        }
        self.fit_room(entry, segment, &mut accounted);
    }

    /// Takes over the length of a file of which another one than that was noted: by a cut beside a
    /// write, or a write past the stack. Without a cut, a file that is shorter has lost its end.
    fn take_length(&self, entry: &Arc<Entry>, segment: &Segment, accounted: &mut Accounted) {
        let location = segment.location.load_full();
        let handle = location.primary.open(self.backend(&location.primary));
        let was_cut = segment.take_cut();
        let stat = handle.and_then(|handle| handle.as_ref().expect("just opened").stat());
        let Ok(stat) = stat else {
            if was_cut {
                segment.note_cut();
            }
            return;
        };
        let before = segment.length();
        let bytes = if was_cut { stat.size_bytes } else { stat.size_bytes.max(before) };
        segment.length_bytes.store(bytes, Ordering::Release);
        // What was written over a close had its room taken away.
        if segment.holds.is_written() || self.is_bare {
            self.account_found(entry, segment, &stat, Others::KeptOut, accounted);
        }
        if bytes != before {
            self.note_unflushed(entry);
        }
    }

    /// Gives back what was reserved beyond the new end of a segment that was cut. Its gate is
    /// closed: a caller that took room before looks again.
    pub(crate) fn trim_cut(&self, entry: &Arc<Entry>, segment: &Segment) {
        let mut accounted = crate::lock(&segment.accounted);
        // Without a policy, writers pass no gate.
        if !self.is_bare && !entry.has_lost(segment) {
            self.fit_room(entry, segment, &mut accounted);
        }
    }

    /// Trims the account of a segment without writers to what it has allocated and what it is promised.
    pub(crate) fn fit_room(
        &self,
        entry: &Arc<Entry>,
        segment: &Segment,
        accounted: &mut Accounted,
    ) {
        // Behind a close nothing is written any more, also not where it would fit; the next opening
        // takes again what was promised.
        let is_closing = self.is_closing.load(Ordering::Acquire);
        self.look(entry, segment, accounted);
        let (amount, has) = (segment.amount(), accounted.total());
        let reach = amount + segment.behind();
        let reach = if is_closing { amount } else { reach.min(has) };
        let account = &self.tier(segment.location.load_full().primary.place.tier).account;
        account.turn(Class::Reserved, Class::Used, amount.saturating_sub(accounted.used_bytes));
        account.turn(Class::Used, Class::Reserved, accounted.used_bytes.saturating_sub(amount));
        account.free(Class::Reserved, has - reach);
        entry.usage.resize(has, reach);
        *accounted = Accounted { used_bytes: amount, reserved_bytes: reach - amount };
        if segment.is_sparse() {
            // Each write takes room; there is none behind a close.
            segment.set_allocated(Some(amount));
        } else {
            segment.room_bytes.store(if is_closing { 0 } else { reach }, Ordering::Release);
        }
    }
}
