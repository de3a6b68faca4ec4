// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Emptying a tier while the store is in use: nothing new comes, copies are dropped, primaries move.
//!
//! A drain is a mark in the header, so that it goes on after a restart. What it does is done by the
//! mover; here is what submits it, object by object, until a look at all objects finds nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use terrace_core::{Error, Key, Outcome, Result, TierIndex};

use crate::memory::entry::{Entry, Segment};
use crate::memory::holds::HELD;
use crate::report::{DrainReport, Stuck};
use crate::shared::Shared;
use crate::shared::drains::{Drains, Look, PAUSE_MIN};
use crate::shared::moves::{MoveRequest, MoveWish};
use crate::tiers::account::Class;
use crate::tiers::list::TierState;

const OPERATION: &str = "drain a tier";

/// Objects that are looked at together.
const PAGE_OBJECTS: usize = 256;

/// Migrations of one drain that wait or run: enough to keep every thread of the mover busy.
const MOVES_MAX: usize = 64;

/// Longest pause after a look at all objects that left something.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Segments that are named of those that cannot move.
const STUCK_NAMED_MAX: usize = 16;

/// Begins to drain a tier, or makes sure that it goes on.
pub(crate) fn begin(shared: &Shared, name: &str, tier: TierIndex) -> Result<()> {
    shared.check_writable(OPERATION)?;
    shared.check_many(OPERATION)?;
    let _changing = crate::lock(&shared.tiers.changing);
    let takes_data =
        |(other, state): (TierIndex, &TierState)| other != tier && state.takes_writes();
    if !shared.tiers.indexed().any(takes_data) {
        return Err(Error::invalid(OPERATION, "no other tier takes new data").with("tier", name));
    }
    mark(shared, tier, true)?;
    shared.failpoints.hit("drain.header")?;
    shared.tier(tier).set_draining(true);
    // What leaves it now is kept elsewhere.
    shared.update_keeping();
    shared.tell_tier(tier, "draining");
    // What is under way to it may still arrive, and leaves again.
    shared.mover.cancel_where(shared, |one| one.request.to == tier, Duration::ZERO);
    shared.drains.forget(tier);
    shared.drains.wake();
    Ok(())
}

/// Ends a drain: what has moved stays where it is now.
pub(crate) fn cancel(shared: &Shared, tier: TierIndex) -> Result<()> {
    shared.check_writable("cancel a drain")?;
    let _changing = crate::lock(&shared.tiers.changing);
    mark(shared, tier, false)?;
    shared.tier(tier).set_draining(false);
    shared.update_keeping();
    shared.tell_tier(tier, "undrained");
    let is_mine =
        |one: &crate::shared::moves::Move| one.from == tier && one.request.wish == MoveWish::Drain;
    shared.mover.cancel_where(shared, is_mine, Duration::ZERO);
    shared.drains.forget(tier);
    Ok(())
}

fn mark(shared: &Shared, tier: TierIndex, is_draining: bool) -> Result<()> {
    let number = shared.catalog.tiers.number(tier);
    shared.catalog.change_header(|header| {
        for entry in header.tiers.iter_mut().filter(|entry| entry.number == number) {
            entry.is_draining = is_draining;
        }
    })
}

/// How far a drain is; `None` for a tier that is not drained.
pub(crate) fn report(shared: &Shared, tier: TierIndex) -> Option<DrainReport> {
    let state = shared.tier(tier);
    if !state.is_draining() {
        return None;
    }
    let look = crate::lock(&shared.drains.state).looks.get(&tier).cloned();
    let is_done = look.as_ref().is_some_and(|look| look.files == 0) && !state.holds_anything();
    let look = look.unwrap_or_default();
    Some(DrainReport {
        is_done,
        segments: state.segments.load(std::sync::atomic::Ordering::Relaxed),
        bytes: state.account.taken().saturating_sub(state.account.bytes(Class::Kept)),
        stuck_segments: look.stuck_segments,
        stuck: look.stuck,
    })
}

impl Drains {
    /// Looks once at everything for each tier that is drained.
    pub(crate) fn run(&self, shared: &Arc<Shared>) {
        let mut has_moved = false;
        for (tier, state) in shared.tiers.indexed() {
            if !state.is_draining() || !state.is_online() || shared.check_writable("drain").is_err()
            {
                continue;
            }
            let before = state.account.taken();
            let mut round = Round::new(shared, tier);
            // What could not be read now is tried again at the next look.
            if round.all().is_ok() && !round.is_over() {
                let is_done = round.look.files == 0 && !state.holds_anything();
                let look = Look { is_done, ..round.look };
                let before = crate::lock(&self.state).looks.insert(tier, look);
                if is_done && !before.is_some_and(|before| before.is_done) {
                    shared.tell_tier(tier, "drained");
                }
            }
            has_moved |= state.account.taken() != before;
        }
        let mut state = crate::lock(&self.state);
        state.pause = if has_moved { PAUSE_MIN } else { (state.pause * 2).min(PAUSE_MAX) };
    }
}

/// One look at all objects.
struct Round<'a> {
    shared: &'a Arc<Shared>,
    tier: TierIndex,
    /// Migrations that were asked for, oldest first, and what they move.
    moves: VecDeque<(u64, Key, u32)>,
    look: Look,
}

impl<'a> Round<'a> {
    fn new(shared: &'a Arc<Shared>, tier: TierIndex) -> Self {
        Self { shared, tier, moves: VecDeque::new(), look: Look::default() }
    }

    fn is_over(&self) -> bool {
        let is_draining = self.shared.tier(self.tier).is_draining();
        !is_draining || self.shared.check_writable(OPERATION).is_err()
    }

    fn all(&mut self) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.shared.catalog.page(None, after.as_ref(), PAGE_OBJECTS)?;
            let Some((last, _)) = page.objects.last() else { break };
            after = Some(last.clone());
            for (key, record) in page.objects {
                if self.is_over() {
                    return Ok(());
                }
                // A damaged record is reported by `fsck`, and keeps the tier from being removed.
                if record.is_ok_and(|record| record.is_on(self.tier)) {
                    self.object(&key);
                }
            }
        }
        while !self.moves.is_empty() {
            self.wait_for_oldest();
        }
        Ok(())
    }

    fn object(&mut self, key: &Key) {
        let Ok(Some(entry)) = self.shared.borrow_entry(key) else { return };
        for segment in entry.segments.load_full().iter() {
            let location = segment.location.load_full();
            let files = location.sites().filter(|site| site.place.tier == self.tier).count();
            self.look.files += files as u64;
            if location.settling.is_some() {
                // Its source may be here; it goes when the switch is certain.
                self.look.files += 1;
                let _ = self.shared.settle(&entry, segment);
            }
            if location.primary.place.tier == self.tier {
                self.primary(&entry, segment);
            } else if files > 0 {
                self.copies(&entry, segment);
            }
        }
    }

    fn copies(&mut self, entry: &Entry, segment: &Segment) {
        match self.shared.drop_copy(entry, segment, self.tier) {
            Ok(false) if self.shared.needs_shared(entry, segment, self.tier) => {
                self.note_outcome(&entry.key, segment.number, Outcome::TooWeak.word(), "");
            }
            Ok(_) => {}
            Err(error) => self.note_stuck(&entry.key, segment.number, error.chain()),
        }
    }

    fn primary(&mut self, entry: &Entry, segment: &Segment) {
        if segment.holds.is_held() {
            return self.note_stuck(&entry.key, segment.number, HELD.into());
        }
        let Some(to) = self.target(entry, segment) else { return };
        let request = MoveRequest {
            key: entry.key.clone(),
            segment: segment.number,
            wish: MoveWish::Drain,
            to,
            priority: 0,
            reason: format!("{} is drained", self.shared.tier(self.tier).name),
            by: "drain".into(),
            benefit_s: 0.0,
            slot: None,
        };
        match self.shared.mover.submit(self.shared, request) {
            Ok(id) => self.moves.push_back((id, entry.key.clone(), segment.number)),
            Err(outcome) => self.note_outcome(&entry.key, segment.number, outcome.word(), ""),
        }
        if self.moves.len() >= MOVES_MAX {
            self.wait_for_oldest();
        }
    }

    /// Where a segment goes: to a clean copy of it, to a tier that stays below its critical level,
    /// else to one that has room; each time less preferred tiers first, then more preferred ones.
    fn target(&mut self, entry: &Entry, segment: &Segment) -> Option<TierIndex> {
        let shared = self.shared;
        let count = shared.tiers.len() as u8;
        let order = (self.tier.0 + 1..count).chain((0..self.tier.0).rev()).map(TierIndex);
        let able = order.filter(|tier| {
            let state = shared.tier(*tier);
            state.takes_data()
                && state.keeps(entry.persistency())
                && !shared.would_unshare(entry, segment, self.tier, *tier)
        });
        let able: Vec<_> = able.collect();
        let location = segment.location.load_full();
        let has_copy =
            |tier: &TierIndex| location.copies.iter().any(|copy| copy.place.tier == *tier);
        let fits = |tier: &TierIndex, limit_bytes: u64| {
            let state = shared.tier(*tier);
            // Clean copies make room by themselves.
            let taken = state.account.taken() - state.account.bytes(Class::Copy);
            let sum = taken.checked_add(state.amount_of(segment, shared.tier(self.tier)));
            sum.is_some_and(|sum| sum <= limit_bytes)
        };
        let roomy = |tier: &&TierIndex| fits(tier, shared.tier(**tier).critical_bytes());
        let tight = |tier: &&TierIndex| fits(tier, shared.tier(**tier).capacity_bytes());
        let copy = able.iter().find(|tier| has_copy(tier));
        let found = copy.or_else(|| able.iter().find(roomy)).or_else(|| able.iter().find(tight));
        if found.is_none() {
            let outcome = if able.is_empty() { Outcome::TooWeak } else { Outcome::NoSpace };
            self.note_outcome(&entry.key, segment.number, outcome.word(), "");
        }
        found.copied()
    }

    fn wait_for_oldest(&mut self) {
        let Some((id, key, segment)) = self.moves.front().cloned() else { return };
        match self.shared.mover.wait(id, PAUSE_MIN) {
            Some((_, false)) => {
                // A tier that is no longer drained has its migrations cancelled; a store that
                // closes cancels all.
                if self.is_over() {
                    self.moves.clear();
                }
                return;
            }
            Some((ended, true)) => {
                let report = ended.report(self.shared);
                let outcome = report.outcome.unwrap_or_default();
                self.note_outcome(&key, segment, &outcome, &report.detail);
            }
            // It ended long ago.
            None => {}
        }
        self.moves.pop_front();
    }

    /// Notes what will not get better by trying again soon.
    fn note_outcome(&mut self, key: &Key, segment: u32, outcome: &str, detail: &str) {
        let is_passing = [
            Outcome::Done,
            Outcome::Stale,
            Outcome::Already,
            Outcome::Busy,
            Outcome::HotWrite,
            Outcome::Cancelled,
        ];
        if is_passing.iter().all(|passing| passing.word() != outcome) {
            let separator = if detail.is_empty() { "" } else { ": " };
            self.note_stuck(key, segment, format!("{outcome}{separator}{detail}"));
        }
    }

    fn note_stuck(&mut self, key: &Key, segment: u32, reason: String) {
        self.look.stuck_segments += 1;
        if self.look.stuck.len() < STUCK_NAMED_MAX {
            self.look.stuck.push(Stuck { key: key.to_string(), segment, reason });
        }
    }
}
