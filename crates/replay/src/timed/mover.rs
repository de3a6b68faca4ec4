// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Migrations in virtual time: as many of a pair of tiers at once as a store runs, each by turns
//! reading, writing and looking at what it wrote.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use terrace_core::{ActionKind, Outcome, Slot, TierIndex};

use super::UNAWAITED;
use super::device::{Job, Work};
use super::recent::User;
use super::store::Store;

/// Requests as which a store reads and writes.
pub(super) const REQUEST_BYTES: u64 = 256 << 10;

/// What is read, then written and looked at, before the other side gets its turn: so many requests
/// in one job, because nothing is different between them.
const STEP_BYTES: u64 = 4 << 20;

/// From this size on, what was written is looked at beside the copying.
const BESIDE_BYTES_MIN: u64 = 4 << 20;

/// Migrations that wait.
const WAITING_MAX: usize = 100_000;

/// How migrations share devices with applications.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    /// How many run at once from one tier to another.
    pub(super) threads: usize,
    pub(super) bytes_per_s: Option<f64>,
    /// Whether they wait while applications keep a tier busy.
    pub(super) yields: bool,
}

#[derive(Debug)]
pub(super) struct Mover {
    manners: Manners,
    moves: HashMap<u64, Move>,
    pairs: BTreeMap<(TierIndex, TierIndex), Pair>,
    waiting: usize,
    last_id: u64,
    /// When bytes may be read again, where there is a rate.
    free_ns: u64,
    /// Those that pause, and until when.
    pausing: BTreeSet<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Pair {
    waiting: BTreeSet<(Reverse<i32>, u64)>,
    running: usize,
}

#[derive(Debug)]
struct Move {
    slot: Slot,
    wish: Wish,
    from: TierIndex,
    to: TierIndex,
    reserved_bytes: u64,
    size_bytes: u64,
    copied_bytes: u64,
    /// What was written meanwhile and is to be copied again.
    dirty_bytes: u64,
    step: Step,
    step_began_ns: u64,
    /// Whether what it takes beside its bytes is done.
    is_prepared: bool,
    is_cancelled: bool,
    /// Whether a clean copy became the primary.
    is_flip: bool,
    /// Whether it was written before the last of its bytes was read.
    was_written_early: bool,
    /// Whether a recall waits for it, and the job that this is.
    is_recall: bool,
    awaited: Option<Job>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Move,
    Promote,
    Copy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Waits,
    Pauses,
    Reads(u64),
    Writes(u64),
    Looks(u64),
    Switches,
}

/// A migration that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) slot: Slot,
    pub(super) from: TierIndex,
    pub(super) to: TierIndex,
    pub(super) outcome: Outcome,
    pub(super) copied_bytes: u64,
    /// Whether a clean copy became the primary, so that nothing was copied.
    pub(super) is_flip: bool,
    /// Whether a whole object of it was complete before a write made that useless.
    pub(super) was_completed: bool,
    /// The job that waited for it.
    pub(super) awaited: Option<Job>,
}

/// What the mover asks of a device: the migration that goes on when it is done, if one waits for it.
pub(super) struct Asked {
    pub(super) id: Option<u64>,
    pub(super) tier: TierIndex,
    pub(super) work: Work,
}

/// What happens meanwhile: the caller carries it out.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) asked: Vec<Asked>,
    pub(super) ended: Vec<Ended>,
}

impl Mover {
    pub(super) fn new(manners: Manners) -> Self {
        Self {
            manners,
            moves: HashMap::new(),
            pairs: BTreeMap::new(),
            waiting: 0,
            last_id: 0,
            free_ns: 0,
            pausing: BTreeSet::new(),
        }
    }

    /// Migrations that may still be queued.
    pub(super) fn room(&self) -> usize {
        WAITING_MAX - self.waiting.min(WAITING_MAX)
    }

    /// Does what a policy wants, or queues it.
    ///
    /// # Errors
    ///
    /// The outcome that it has at once.
    pub(super) fn submit(
        &mut self,
        store: &mut Store,
        slot: Slot,
        (kind, priority): (ActionKind, i32),
        effects: &mut Effects,
    ) -> Result<(), Outcome> {
        let (wish, to) = match kind {
            ActionKind::Move { to } => (Wish::Move, to),
            ActionKind::Promote { to } => (Wish::Promote, to),
            ActionKind::Copy { to } => (Wish::Copy, to),
            ActionKind::DropCopy { tier } => {
                return match tier.index() < store.tiers.len() && store.drop_copy(slot, tier) {
                    true => Err(Outcome::Done),
                    false => Err(Outcome::Invalid),
                };
            }
            ActionKind::Cancel => {
                return match self.cancel(store, slot, effects) {
                    true => Err(Outcome::Done),
                    false => Err(Outcome::Invalid),
                };
            }
        };
        if to.index() >= store.tiers.len() {
            return Err(Outcome::Invalid);
        }
        let segment = store.segment(slot);
        if !segment.is_live {
            return Err(Outcome::Stale);
        }
        let is_there = segment.tier == to || wish == Wish::Copy && segment.copies.contains(to);
        if is_there {
            return Err(Outcome::Already);
        }
        if wish != Wish::Copy && !store.keeps(to) {
            return Err(Outcome::TooWeak);
        }
        if segment.moving.is_some() || self.waiting >= WAITING_MAX {
            return Err(Outcome::Busy);
        }
        let (from, size_bytes) = (segment.tier, segment.size_bytes);
        self.last_id += 1;
        let id = self.last_id;
        store.segments[slot as usize].moving = Some(id);
        store.tiers[to.index()].view.incoming_bytes += size_bytes;
        store.tiers[from.index()].view.outgoing_bytes += size_bytes;
        let queued = Move {
            slot,
            wish,
            from,
            to,
            reserved_bytes: 0,
            size_bytes,
            copied_bytes: 0,
            dirty_bytes: 0,
            step: Step::Waits,
            step_began_ns: 0,
            is_prepared: false,
            is_cancelled: false,
            is_flip: false,
            was_written_early: false,
            is_recall: false,
            awaited: None,
        };
        self.moves.insert(id, queued);
        self.pairs.entry((from, to)).or_default().waiting.insert((Reverse(priority), id));
        self.waiting += 1;
        Ok(())
    }

    /// Cancels the migration of a segment; false where there is none.
    pub(super) fn cancel(&mut self, store: &mut Store, slot: Slot, effects: &mut Effects) -> bool {
        let Some(id) = store.segment(slot).moving else { return false };
        let one = self.moves.get_mut(&id).expect("a segment names a migration that there is");
        one.is_cancelled = true;
        if one.step == Step::Waits {
            let pair = self.pairs.get_mut(&(one.from, one.to)).expect("it waits there");
            pair.waiting.retain(|(_, other)| *other != id);
            self.waiting -= 1;
            self.end(store, id, Outcome::Cancelled, effects);
        }
        true
    }

    /// Notes that a segment is written while it moves.
    pub(super) fn note_write(&mut self, id: u64, bytes: u64) {
        if let Some(one) = self.moves.get_mut(&id)
            && one.step != Step::Waits
            && !one.is_recall
        {
            one.dirty_bytes = one.dirty_bytes.saturating_add(bytes);
            let under_way = if let Step::Writes(bytes) = one.step { bytes } else { 0 };
            one.was_written_early |= one.copied_bytes + under_way < one.size_bytes;
        }
    }

    /// Has a recall wait for the migration of its segment that runs, and `job` end with it: where the
    /// segment comes to be. A migration that has not begun, or goes where nothing is written, is
    /// cancelled.
    pub(super) fn take_over(
        &mut self,
        store: &mut Store,
        slot: Slot,
        job: Job,
        effects: &mut Effects,
    ) -> Option<TierIndex> {
        let id = store.segment(slot).moving?;
        let one = self.moves.get_mut(&id).expect("a segment names a migration that there is");
        let is_of_use = !store.tier(one.to).is_whole && store.keeps(one.to);
        if one.step == Step::Waits || one.is_cancelled || !is_of_use {
            self.cancel(store, slot, effects);
            return None;
        }
        one.is_recall = true;
        one.awaited = (job != UNAWAITED).then_some(job);
        // The segment takes its room from now on.
        store.tiers[one.to.index()].view.reserved_bytes -= std::mem::take(&mut one.reserved_bytes);
        Some(one.to)
    }

    /// When a migration that pauses goes on.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.pausing.first().map(|(until_ns, _)| *until_ns)
    }

    /// Begins what may run, and goes on with what has paused until now.
    pub(super) fn run(&mut self, store: &mut Store, effects: &mut Effects) {
        while let Some((until_ns, id)) = self.pausing.first().copied()
            && until_ns <= store.now_ns
        {
            self.pausing.pop_first();
            self.read(store, id, effects);
        }
        let keys: Vec<_> = self.pairs.keys().copied().collect();
        for key in keys {
            loop {
                let pair = self.pairs.get_mut(&key).expect("pairs stay");
                if pair.running >= self.manners.threads {
                    break;
                }
                let Some((_, id)) = pair.waiting.pop_first() else { break };
                pair.running += 1;
                self.waiting -= 1;
                self.begin(store, id, effects);
            }
        }
    }

    fn begin(&mut self, store: &mut Store, id: u64, effects: &mut Effects) {
        let one = self.moves.get_mut(&id).expect("it waited");
        let (slot, to, wish) = (one.slot, one.to, one.wish);
        one.step = Step::Pauses;
        let segment = store.segment(slot);
        if segment.tier != one.from {
            return self.stop(store, id, Outcome::Stale, effects);
        }
        if wish != Wish::Copy && segment.copies.contains(to) {
            // The clean copy becomes the primary, and no bytes move.
            one.is_flip = true;
            store.switch(slot, to, wish == Wish::Promote);
            return self.stop(store, id, Outcome::Done, effects);
        }
        let bytes = segment.size_bytes;
        let limit_bytes = store.limit_bytes(to, wish == Wish::Move);
        if !store.take_room(to, bytes, limit_bytes) {
            return self.stop(store, id, Outcome::NoSpace, effects);
        }
        store.tiers[to.index()].view.reserved_bytes += bytes;
        self.moves.get_mut(&id).expect("it runs").reserved_bytes = bytes;
        self.read(store, id, effects);
    }

    /// Reads the next step, once the rate allows it; ends where there is none.
    fn read(&mut self, store: &mut Store, id: u64, effects: &mut Effects) {
        let one = self.moves.get_mut(&id).expect("it runs");
        if one.is_cancelled {
            return self.stop(store, id, Outcome::Cancelled, effects);
        }
        let segment = store.segment(one.slot);
        if !segment.is_live {
            return self.stop(store, id, Outcome::Stale, effects);
        }
        // A whole object cannot be changed once it is made.
        let dirty_bytes = if store.tier(one.to).is_whole { 0 } else { one.dirty_bytes };
        let total_bytes = match one.is_recall {
            // What is changed meanwhile is changed where it goes.
            true => one.size_bytes,
            false => segment.size_bytes.saturating_add(dirty_bytes),
        };
        let left_bytes = total_bytes.saturating_sub(one.copied_bytes);
        if left_bytes == 0 {
            if one.is_prepared || !store.tier(one.to).has_switches() {
                return self.finish(store, id, effects);
            }
            one.step = Step::Switches;
            let work = Work { requests: 1, is_switch: true, ..work(one, 0, true) };
            effects.asked.push(Asked { id: Some(id), tier: one.to, work });
            return;
        }
        if self.free_ns > store.now_ns {
            one.step = Step::Pauses;
            self.pausing.insert((self.free_ns, id));
            return;
        }
        let bytes = left_bytes.min(STEP_BYTES);
        if let Some(rate) = self.manners.bytes_per_s {
            self.free_ns = store.now_ns.saturating_add((bytes as f64 / rate * 1e9) as u64);
        }
        one.step = Step::Reads(bytes);
        one.step_began_ns = store.now_ns;
        let work = work(one, bytes, false);
        effects.asked.push(Asked { id: Some(id), tier: one.from, work });
    }

    /// A device has done what a migration waited for.
    pub(super) fn go_on(&mut self, store: &mut Store, id: u64, effects: &mut Effects) {
        let Some(one) = self.moves.get_mut(&id) else { return };
        let tier = one.to;
        match one.step {
            Step::Reads(bytes) => {
                one.step = Step::Writes(bytes);
                // A store makes it durable before it is what counts.
                let is_apart = !store.tier(tier).has_switches();
                let is_synced = is_apart && one.copied_bytes + bytes >= one.size_bytes;
                let is_first = is_apart && one.copied_bytes == 0;
                let work = Work { is_first, is_synced, ..work(one, bytes, true) };
                effects.asked.push(Asked { id: Some(id), tier, work });
            }
            // Nothing can be read back before it is whole.
            Step::Writes(bytes) if store.tier(tier).is_whole => {
                self.stepped(store, id, bytes, effects);
            }
            Step::Writes(bytes) if one.size_bytes < BESIDE_BYTES_MIN => {
                one.step = Step::Looks(bytes);
                effects.asked.push(Asked { id: Some(id), tier, work: work(one, bytes, false) });
            }
            Step::Writes(bytes) => {
                effects.asked.push(Asked { id: None, tier, work: work(one, bytes, false) });
                self.stepped(store, id, bytes, effects);
            }
            Step::Looks(bytes) => self.stepped(store, id, bytes, effects),
            Step::Switches => {
                one.is_prepared = true;
                self.read(store, id, effects);
            }
            Step::Waits | Step::Pauses => {}
        }
    }

    /// A step is over: leaves the devices to applications for a while, as a store does.
    fn stepped(&mut self, store: &mut Store, id: u64, bytes: u64, effects: &mut Effects) {
        let one = self.moves.get_mut(&id).expect("it runs");
        one.copied_bytes += bytes;
        let busy = |tier: TierIndex| store.tier(tier).view.utilisation;
        let busiest = busy(one.from).max(busy(one.to));
        // Below half, a device has room for both; fully busy, migrations take half its time.
        const FREE: f64 = 0.5;
        if self.manners.yields && busiest > FREE {
            let took_ns = (store.now_ns - one.step_began_ns) as f64;
            let pause_ns = took_ns * (busiest.min(1.0) - FREE) / FREE;
            one.step = Step::Pauses;
            self.pausing.insert((store.now_ns.saturating_add(pause_ns as u64), id));
            return;
        }
        self.read(store, id, effects);
    }

    /// Everything is copied: the segment is there.
    fn finish(&mut self, store: &mut Store, id: u64, effects: &mut Effects) {
        let one = self.moves.get_mut(&id).expect("it runs");
        let (slot, to, wish, from) = (one.slot, one.to, one.wish, one.from);
        let was_written = one.dirty_bytes > 0;
        store.tiers[to.index()].view.reserved_bytes -= std::mem::take(&mut one.reserved_bytes);
        let (tier, bytes) = (store.segment(slot).tier, store.segment(slot).size_bytes);
        let outcome = match wish {
            // The recall has switched.
            _ if one.is_recall => Outcome::Done,
            _ if tier != from => Outcome::Stale,
            _ if was_written && (wish == Wish::Copy || store.tier(to).is_whole) => {
                Outcome::HotWrite
            }
            // It may have grown beyond what was reserved.
            _ if !store.take_room(to, bytes, store.limit_bytes(to, true)) => Outcome::NoSpace,
            Wish::Copy => {
                store.add_copy(slot, to);
                Outcome::Done
            }
            Wish::Move | Wish::Promote => {
                store.switch(slot, to, wish == Wish::Promote);
                Outcome::Done
            }
        };
        self.stop(store, id, outcome, effects);
    }

    /// Ends one that runs.
    fn stop(&mut self, store: &mut Store, id: u64, outcome: Outcome, effects: &mut Effects) {
        let one = &self.moves[&id];
        let pair = self.pairs.get_mut(&(one.from, one.to)).expect("it ran there");
        pair.running -= 1;
        self.end(store, id, outcome, effects);
    }

    fn end(&mut self, store: &mut Store, id: u64, outcome: Outcome, effects: &mut Effects) {
        let one = self.moves.remove(&id).expect("it has not ended");
        let to = &mut store.tiers[one.to.index()].view;
        to.reserved_bytes -= one.reserved_bytes;
        to.incoming_bytes -= one.size_bytes;
        store.tiers[one.from.index()].view.outgoing_bytes -= one.size_bytes;
        store.segments[one.slot as usize].moving = None;
        if one.is_recall {
            store.deleted.push((one.slot, one.from));
        }
        effects.ended.push(Ended {
            slot: one.slot,
            from: one.from,
            to: one.to,
            outcome,
            copied_bytes: one.copied_bytes,
            is_flip: one.is_flip,
            was_completed: outcome == Outcome::HotWrite && !one.was_written_early,
            awaited: one.awaited,
        });
    }
}

/// A step as a device is asked for it.
fn work(one: &Move, bytes: u64, is_write: bool) -> Work {
    let requests = bytes.div_ceil(REQUEST_BYTES).max(1) as u32;
    let at = (one.slot, one.copied_bytes);
    Work {
        is_write,
        requests,
        bytes,
        at,
        is_foreground: false,
        is_first: false,
        is_synced: false,
        is_switch: false,
        user: User::MAX,
        share: 1.0,
    }
}
