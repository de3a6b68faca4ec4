// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue of migrations: those that wait, run, or have ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrace_core::{Key, Outcome, Slot, TierIndex};

use crate::watch::endings::Endings;

/// Longest wait for a migration at a time.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// What a migration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveWish {
    Move,
    /// A move away from a tier that is being drained; of pinned objects, too.
    Drain,
    Promote,
    Copy,
    DropCopy,
}

impl MoveWish {
    pub(crate) fn word(self) -> &'static str {
        match self {
            MoveWish::Move => "move",
            MoveWish::Drain => "drain",
            MoveWish::Promote => "promote",
            MoveWish::Copy => "copy",
            MoveWish::DropCopy => "drop-copy",
        }
    }
}

/// Which party wants what moved where.
#[derive(Clone, Debug)]
pub(crate) struct MoveRequest {
    pub(crate) key: Key,
    pub(crate) segment: u32,
    pub(crate) wish: MoveWish,
    pub(crate) to: TierIndex,
    pub(crate) priority: i32,
    pub(crate) reason: String,
    /// `user`, or the policy by name.
    pub(crate) by: String,
    /// Seconds that it is expected to save; 0 where that is not given.
    pub(crate) benefit_s: f64,
    /// The slot that was meant; `None` from users, whose request names a key.
    pub(crate) slot: Option<(Slot, u32)>,
}

/// A migration that waits, runs or has ended.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) id: u64,
    pub(crate) request: MoveRequest,
    pub(crate) object_id: u64,
    pub(crate) slot: (Slot, u32),
    pub(crate) from: TierIndex,
    pub(crate) size_bytes: u64,
    pub(crate) copied_bytes: AtomicU64,
    /// When watchers last got its progress.
    pub(crate) told_ns: AtomicU64,
    pub(crate) is_cancelled: AtomicBool,
    pub(crate) progress: Mutex<Progress>,
}

#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) state: &'static str,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) detail: String,
}

/// The queue, by pair of tiers.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    pub(crate) state: Mutex<State>,
    /// Work came, or the end.
    pub(crate) work: Condvar,
    /// A migration ended.
    pub(crate) ended: Condvar,
    pub(crate) next_id: AtomicU64,
    pub(crate) endings: Endings,
    /// Earliest time at which the next bytes may be read, where there is a rate limit.
    pub(crate) rate_free_ns: Mutex<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) pairs: HashMap<(TierIndex, TierIndex), Pair>,
    /// Those that wait and those that run, by id.
    pub(crate) active: BTreeMap<u64, Arc<Move>>,
    pub(crate) by_segment: HashMap<(u64, u32), u64>,
    pub(crate) by_slot: HashMap<Slot, u64>,
    pub(crate) waiting: usize,
    pub(crate) workers: usize,
    pub(crate) last: VecDeque<Arc<Move>>,
    /// Bytes on their way, by tier: to it and from it.
    pub(crate) pending: HashMap<TierIndex, (u64, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct Pair {
    /// Highest priority first, then oldest.
    pub(crate) waiting: BTreeMap<(Reverse<i32>, u64), Arc<Move>>,
    pub(crate) workers: usize,
}

impl Move {
    /// How it ended, if it has.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        crate::lock(&self.progress).outcome
    }

    pub(crate) fn enter(&self, state: &'static str) {
        crate::lock(&self.progress).state = state;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

impl Mover {
    /// Migrations that were ever queued.
    pub(crate) fn submitted(&self) -> u64 {
        self.next_id.load(Ordering::Acquire)
    }

    /// Whether a migration of the segment in this slot waits or runs.
    pub(crate) fn is_moving(&self, slot: Slot) -> bool {
        crate::lock(&self.state).by_slot.contains_key(&slot)
    }

    /// Bytes that wait or run: to a tier, and from it.
    pub(crate) fn pending_bytes(&self, tier: TierIndex) -> (u64, u64) {
        crate::lock(&self.state).pending.get(&tier).copied().unwrap_or_default()
    }

    /// The migration of a segment that waits or runs.
    pub(crate) fn of_segment(&self, object_id: u64, segment: u32) -> Option<Arc<Move>> {
        let state = crate::lock(&self.state);
        let id = state.by_segment.get(&(object_id, segment))?;
        state.active.get(id).cloned()
    }

    /// All that wait or run, then those that ended last.
    pub(crate) fn all(&self) -> Vec<Arc<Move>> {
        let state = crate::lock(&self.state);
        state.active.values().chain(&state.last).cloned().collect()
    }

    /// Waits until a migration has ended; `None` where it is unknown.
    pub(crate) fn wait(&self, id: u64, longest: Duration) -> Option<(Arc<Move>, bool)> {
        let state = crate::lock(&self.state);
        let is_active = |state: &mut State| state.active.contains_key(&id);
        let (state, _) = self
            .ended
            .wait_timeout_while(state, longest, is_active)
            .unwrap_or_else(PoisonError::into_inner);
        match state.active.get(&id) {
            Some(active) => Some((Arc::clone(active), false)),
            None => {
                let found = state.last.iter().find(|one| one.id == id)?;
                Some((Arc::clone(found), true))
            }
        }
    }

    /// Waits until a migration has ended, which it does by itself; `None` where it ended so long ago that
    /// it is unknown.
    pub(crate) fn wait_for_end(&self, id: u64) -> Option<Arc<Move>> {
        loop {
            if let (ended, true) = self.wait(id, WAIT_MAX)? {
                return Some(ended);
            }
        }
    }

    /// Waits until nothing waits or runs; false where the time ran out.
    pub(crate) fn wait_idle(&self, longest: Duration) -> bool {
        let state = crate::lock(&self.state);
        let is_busy = |state: &mut State| !state.active.is_empty();
        let (state, _) = self
            .ended
            .wait_timeout_while(state, longest, is_busy)
            .unwrap_or_else(PoisonError::into_inner);
        state.active.is_empty()
    }
}

impl State {
    pub(crate) fn count_pending(&mut self, one: &Move, begins: bool) {
        let bytes = one.size_bytes;
        if matches!(one.request.wish, MoveWish::DropCopy) {
            return;
        }
        let change = |sum: &mut u64| if begins { *sum += bytes } else { *sum -= bytes };
        change(&mut self.pending.entry(one.request.to).or_default().0);
        if matches!(one.request.wish, MoveWish::Move | MoveWish::Drain) {
            change(&mut self.pending.entry(one.from).or_default().1);
        }
    }

    /// Lets another migration of its segment be queued. What has its slot since may have one already.
    pub(crate) fn forget(&mut self, one: &Move) {
        let segment = (one.object_id, one.request.segment);
        if self.by_segment.get(&segment) == Some(&one.id) {
            self.by_segment.remove(&segment);
        }
        if self.by_slot.get(&one.slot.0) == Some(&one.id) {
            self.by_slot.remove(&one.slot.0);
        }
    }

    pub(crate) fn worker_ends(&mut self, pair: (TierIndex, TierIndex)) {
        self.pairs.entry(pair).or_default().workers -= 1;
        self.workers -= 1;
    }
}
