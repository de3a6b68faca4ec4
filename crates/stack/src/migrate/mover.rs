// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queues and cancels migrations, and runs the threads that carry them out.
//!
//! Every pair of tiers has its own queue and its own threads, so that a device that never comes
//! back stops only what goes there.

use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{Event, EventKind, Outcome, SLOT_NONE, Slot, TierIndex};

use crate::memory::entry::{Entry, Segment};
use crate::migrate::history;
use crate::migrate::notices::Ended;
use crate::migrate::transfer;
use crate::report::MoveReport;
use crate::shared::Shared;
use crate::shared::moves::{Move, MoveRequest, MoveWish, Mover, Progress, State};
use crate::watch::endings::Ending;
use crate::watch::ring::Change;

/// Migrations that have ended and are still shown.
const ENDED_MAX: usize = 1000;

/// How long a thread without work stays. The end of a store wakes it: longer than a close waits, so that
/// a close that forgot to would not pass for a slow one.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// How much less of a busy processor migrations get than reads and writes (nice(2)), and how
/// much later.
const NICE: i32 = 10;

impl Move {
    pub(crate) fn new(
        id: u64,
        object_id: u64,
        segment: &Segment,
        from: TierIndex,
        request: MoveRequest,
    ) -> Self {
        let progress = Progress { state: "queued", outcome: None, detail: String::new() };
        Self {
            id,
            object_id,
            slot: (segment.slot, segment.incarnation),
            from,
            size_bytes: segment.amount(),
            copied_bytes: AtomicU64::new(0),
            told_ns: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            progress: Mutex::new(progress),
            request,
        }
    }

    /// For people.
    pub(crate) fn report(&self, shared: &Shared) -> MoveReport {
        let progress = crate::lock(&self.progress).clone();
        MoveReport {
            id: self.id,
            key: self.request.key.to_string(),
            segment: self.request.segment,
            kind: self.request.wish.word().into(),
            from: shared.tier(self.from).name.clone(),
            to: shared.tier(self.request.to).name.clone(),
            state: progress.state.into(),
            outcome: progress.outcome.map(|outcome| outcome.word().into()),
            reason: self.request.reason.clone(),
            size_bytes: self.size_bytes,
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed),
            detail: progress.detail,
        }
    }
}

impl Mover {
    /// Queues a migration.
    ///
    /// # Errors
    ///
    /// The outcome that it would have at once.
    pub(crate) fn submit(
        &self,
        shared: &Arc<Shared>,
        request: MoveRequest,
    ) -> Result<u64, Outcome> {
        let entry = match shared.borrow_entry(&request.key) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Err(Outcome::Stale),
            Err(_) => return Err(Outcome::Io),
        };
        let segments = entry.segments.load();
        let found = segments.iter().find(|segment| segment.number == request.segment);
        let segment = found.ok_or(Outcome::Stale)?;
        let slot = (segment.slot, segment.incarnation);
        if request.slot.is_some_and(|meant| meant != slot) {
            return Err(Outcome::Stale);
        }
        // Under the lock: a migration that ends now has moved the segment already.
        let mut state = crate::lock(&self.state);
        // A close that began cancels what was queued until then.
        if shared.is_closing.load(Ordering::Acquire) {
            return Err(Outcome::Cancelled);
        }
        let from = check(shared, &entry, segment, &request)?;
        let segment_key = (entry.object_id, segment.number);
        let is_full = state.waiting >= shared.settings.queue_max;
        if is_full || state.by_segment.contains_key(&segment_key) {
            return Err(Outcome::Busy);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let pair_key = (from, request.to);
        let queued = Arc::new(Move::new(id, entry.object_id, segment, from, request));
        state.by_segment.insert(segment_key, id);
        if slot.0 != SLOT_NONE {
            state.by_slot.insert(slot.0, id);
        }
        state.active.insert(id, Arc::clone(&queued));
        state.waiting += 1;
        state.count_pending(&queued, true);
        // Posted under the lock, so that no worker's receipt overtakes it.
        post(shared, EventKind::Queued, &queued, Outcome::Done);
        shared.tell_migration(&queued, "queued", None);
        let rank = (Reverse(queued.request.priority), id);
        let pair = state.pairs.entry(pair_key).or_default();
        pair.waiting.insert(rank, queued);
        let wants_thread = pair.workers < shared.settings.move_threads;
        if wants_thread {
            pair.workers += 1;
            state.workers += 1;
        }
        drop(state);
        if wants_thread {
            self.spawn(shared, pair_key);
        }
        self.work.notify_all();
        Ok(id)
    }

    /// Makes a copy in the thread of the caller, unless another migration of the segment waits or runs:
    /// that is waited for, and `Busy` is returned.
    pub(crate) fn run_here(
        &self,
        shared: &Shared,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
        request: MoveRequest,
    ) -> (Outcome, String) {
        let segment_key = (entry.object_id, segment.number);
        let mut state = crate::lock(&self.state);
        if let Some(other) = state.by_segment.get(&segment_key).copied() {
            drop(state);
            self.wait_for_end(other);
            return (Outcome::Busy, "another migration of it ran".into());
        }
        if shared.is_closing.load(Ordering::Acquire) {
            return (Outcome::Cancelled, String::new());
        }
        let from = match check(shared, entry, segment, &request) {
            Ok(from) => from,
            Err(outcome) => return (outcome, String::new()),
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let one = Arc::new(Move::new(id, entry.object_id, segment, from, request));
        let slot = one.slot.0;
        state.by_segment.insert(segment_key, id);
        if slot != SLOT_NONE {
            state.by_slot.insert(slot, id);
        }
        state.active.insert(id, Arc::clone(&one));
        state.count_pending(&one, true);
        post(shared, EventKind::Queued, &one, Outcome::Done);
        drop(state);
        let started_ns = shared.clock.now_ns();
        one.told_ns.store(started_ns, Ordering::Relaxed);
        shared.tell_migration(&one, "started", None);
        let carry_out = AssertUnwindSafe(|| transfer::carry_out_on(shared, &one, entry));
        let (outcome, detail) = catch_unwind(carry_out)
            .unwrap_or_else(|_| (Outcome::Io, "the migration panicked".into()));
        let took_ns = shared.clock.now_ns() - started_ns;
        history::note_move(shared, &one, outcome, took_ns);
        self.end(shared, crate::lock(&self.state), &one, outcome, detail.clone(), took_ns);
        (outcome, detail)
    }

    fn spawn(&self, shared: &Arc<Shared>, pair: (TierIndex, TierIndex)) {
        let shared_of_worker = Arc::clone(shared);
        let name = format!("terrace-move-{}-{}", pair.0, pair.1);
        let spawned =
            std::thread::Builder::new().name(name).stack_size(256 << 10).spawn(move || {
                terrace_affinity::roam();
                work(&shared_of_worker, pair);
            });
        if spawned.is_err() {
            // Another thread of the pair, or the next request, will find the work.
            let mut state = crate::lock(&self.state);
            state.worker_ends(pair);
        }
    }

    /// Cancels the migration of a segment; false where there is none.
    pub(crate) fn cancel_segment(&self, shared: &Shared, slot: (Slot, u32)) -> bool {
        let id = crate::lock(&self.state).by_slot.get(&slot.0).copied();
        id.is_some_and(|id| self.cancel(shared, id))
    }

    /// Cancels what is being done to an object that is gone.
    pub(crate) fn cancel_object(&self, shared: &Shared, object_id: u64) {
        let ids: Vec<_> = {
            let state = crate::lock(&self.state);
            if state.by_segment.is_empty() {
                return;
            }
            let of_object = state.active.values().filter(|one| one.object_id == object_id);
            of_object.map(|one| one.id).collect()
        };
        for id in ids {
            self.cancel(shared, id);
        }
    }

    /// Cancels one; false where it is unknown or has ended.
    pub(crate) fn cancel(&self, shared: &Shared, id: u64) -> bool {
        let mut state = crate::lock(&self.state);
        let Some(found) = state.active.get(&id).cloned() else { return false };
        found.is_cancelled.store(true, Ordering::Release);
        let rank = (Reverse(found.request.priority), id);
        let pair = state.pairs.get_mut(&(found.from, found.request.to));
        let was_waiting = pair.is_some_and(|pair| pair.waiting.remove(&rank).is_some());
        if was_waiting {
            state.waiting -= 1;
            self.end(shared, state, &found, Outcome::Cancelled, String::new(), 0);
        }
        true
    }

    /// Cancels all; returns how many.
    pub(crate) fn cancel_all(&self, shared: &Shared) -> usize {
        let ids: Vec<_> = crate::lock(&self.state).active.keys().copied().collect();
        ids.into_iter().filter(|id| self.cancel(shared, *id)).count()
    }

    /// Cancels all that `is_meant` chooses, and waits up to `longest` for those that run; true when
    /// none of them is left.
    pub(crate) fn cancel_where(
        &self,
        shared: &Shared,
        is_meant: impl Fn(&Move) -> bool,
        longest: Duration,
    ) -> bool {
        let meant = |state: &State| {
            let active = state.active.values().filter(|one| is_meant(one));
            active.map(|one| one.id).collect::<Vec<_>>()
        };
        let ids = meant(&crate::lock(&self.state));
        for id in ids {
            self.cancel(shared, id);
        }
        let state = crate::lock(&self.state);
        let (state, _) = self
            .ended
            .wait_timeout_while(state, longest, |state| !meant(state).is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        meant(&state).is_empty()
    }

    /// Migrations that may still be queued.
    pub(crate) fn room(&self, shared: &Shared) -> usize {
        shared.settings.queue_max - crate::lock(&self.state).waiting.min(shared.settings.queue_max)
    }

    /// Ends all threads; false where one still hangs in its device after `longest`.
    pub(crate) fn stop(&self, shared: &Shared, longest: Duration) -> bool {
        // Takes the lock after the end began: threads that wait for work by then are woken, all others look.
        self.cancel_all(shared);
        self.work.notify_all();
        let state = crate::lock(&self.state);
        let has_workers = |state: &mut State| state.workers > 0;
        let (state, _) = self
            .ended
            .wait_timeout_while(state, longest, has_workers)
            .unwrap_or_else(PoisonError::into_inner);
        state.workers == 0
    }

    /// The next migration of a pair; `None` when the thread has nothing left to stay for.
    fn next(&self, shared: &Shared, pair: (TierIndex, TierIndex)) -> Option<Arc<Move>> {
        let mut state = crate::lock(&self.state);
        let mut has_waited_long = false;
        loop {
            let queue = state.pairs.get_mut(&pair).expect("a worker's pair stays");
            if let Some((_, first)) = queue.waiting.pop_first() {
                state.waiting -= 1;
                return Some(first);
            }
            // Before the wait: a policy that ended the last migration while the store began to close would
            // get no receipt any more.
            if has_waited_long || shared.is_closing.load(Ordering::Acquire) {
                state.worker_ends(pair);
                self.ended.notify_all();
                return None;
            }
            let (next, timeout) =
                self.work.wait_timeout(state, IDLE_TIME).unwrap_or_else(PoisonError::into_inner);
            (state, has_waited_long) = (next, timeout.timed_out());
        }
    }

    fn end(
        &self,
        shared: &Shared,
        mut state: std::sync::MutexGuard<'_, State>,
        ended: &Arc<Move>,
        outcome: Outcome,
        detail: String,
        took_ns: u64,
    ) {
        let told = Ended { outcome, detail: &detail, took_ns };
        shared.tell_migration(ended, "ended", Some(told));
        self.endings.note(&Ending {
            pair: (ended.from, ended.request.to),
            action: ended.request.wish.word(),
            outcome,
            copied_bytes: ended.copied_bytes.load(Ordering::Relaxed),
            took_ns,
            modelled_energy_j: history::energy_j(shared, ended, took_ns),
        });
        *crate::lock(&ended.progress) = Progress { state: "ended", outcome: Some(outcome), detail };
        state.active.remove(&ended.id);
        state.forget(ended);
        state.count_pending(ended, false);
        state.last.push_back(Arc::clone(ended));
        if state.last.len() > ENDED_MAX {
            state.last.pop_front();
        }
        post(shared, EventKind::Receipt, ended, outcome);
        drop(state);
        self.ended.notify_all();
    }
}

/// Whether a request makes sense; the tier that it leaves.
fn check(
    shared: &Shared,
    entry: &Entry,
    segment: &Segment,
    request: &MoveRequest,
) -> Result<TierIndex, Outcome> {
    let Some(target) = shared.tiers.get(request.to) else { return Err(Outcome::Invalid) };
    let location = segment.location.load();
    let from = location.primary.place.tier;
    let has_copy = location.copies.iter().any(|copy| copy.place.tier == request.to);
    let is_pinned = entry.is_pinned.load(Ordering::Acquire);
    if is_pinned && request.wish != MoveWish::Drain && !transfer::is_sharing(shared, entry, request)
    {
        return Err(Outcome::Pinned);
    }
    if shared.is_bare || shared.settings.access == terrace_core::Access::Read {
        return Err(Outcome::Invalid);
    }
    if target.offline.is_some() {
        return Err(Outcome::Io);
    }
    match request.wish {
        MoveWish::DropCopy if shared.needs_shared(entry, segment, request.to) => {
            Err(Outcome::TooWeak)
        }
        MoveWish::DropCopy if has_copy => Ok(request.to),
        MoveWish::DropCopy => Err(Outcome::Invalid),
        // Only what is a copy there already can do without the primary.
        _ if shared.tier(from).offline.is_some()
            && !(has_copy && matches!(request.wish, MoveWish::Move | MoveWish::Drain)) =>
        {
            Err(Outcome::Io)
        }
        _ if from == request.to => Err(Outcome::Already),
        _ if segment.holds.is_held() => Err(Outcome::Busy),
        _ if !target.takes_data() => Err(Outcome::NoSpace),
        MoveWish::Copy if has_copy => Err(Outcome::Already),
        MoveWish::Copy => Ok(from),
        _ if !target.keeps(entry.persistency()) => Err(Outcome::TooWeak),
        MoveWish::Drain if shared.would_unshare(entry, segment, from, request.to) => {
            Err(Outcome::TooWeak)
        }
        _ => Ok(from),
    }
}

fn post(shared: &Shared, kind: EventKind, one: &Move, outcome: Outcome) {
    if one.slot.0 == SLOT_NONE {
        return;
    }
    let event = Event {
        tier: one.request.to,
        outcome,
        length_bytes: one.copied_bytes.load(Ordering::Relaxed),
        ..Event::new(kind, one.slot.0, one.slot.1, shared.clock.now_ns())
    };
    shared.mailbox.post_change(Change::of(event));
}

/// A worker's life.
fn work(shared: &Arc<Shared>, pair: (TierIndex, TierIndex)) {
    // Where it may not, it competes with them.
    let _ = rustix::process::setpriority_process(None, NICE);
    while let Some(next) = shared.mover.next(shared, pair) {
        let started_ns = shared.clock.now_ns();
        next.told_ns.store(started_ns, Ordering::Relaxed);
        shared.tell_migration(&next, "started", None);
        // A bug in one migration must not take the queue with it.
        let carry_out = AssertUnwindSafe(|| transfer::carry_out(shared, &next));
        let (outcome, detail) = catch_unwind(carry_out)
            .unwrap_or_else(|_| (Outcome::Io, "the migration panicked".into()));
        let took_ns = shared.clock.now_ns() - started_ns;
        history::note_move(shared, &next, outcome, took_ns);
        let state = crate::lock(&shared.mover.state);
        shared.mover.end(shared, state, &next, outcome, detail, took_ns);
    }
}
