// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a replay counts while it runs.

use std::collections::BTreeMap;

use terrace_core::{EventKind, Outcome, TierIndex};

use super::device::Work;
use super::mover;
use super::report::{Course, TierTimed, Times};
use super::store::Recall;
use super::traffic::Collector;

/// What is counted.
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) cached_requests: u64,
    pub(super) reads: Times,
    pub(super) writes: Times,
    pub(super) tiers: Vec<TierTimed>,
    pub(super) migrations: u64,
    pub(super) migrated_bytes: u64,
    pub(super) outcomes: BTreeMap<&'static str, u64>,
    pub(super) course: Course,
    pub(super) traffic: Collector,
    pub(super) last_answer_ns: u64,
}

impl Tally {
    pub(super) fn new(tiers: Vec<TierTimed>) -> Self {
        Self {
            requests: 0,
            cached_requests: 0,
            reads: Times::new(),
            writes: Times::new(),
            migrations: 0,
            migrated_bytes: 0,
            outcomes: BTreeMap::new(),
            course: Course::new(),
            traffic: Collector::new(tiers.len()),
            last_answer_ns: 0,
            tiers,
        }
    }

    pub(super) fn served(&mut self, tier: TierIndex, work: Work) {
        let tier = &mut self.tiers[tier.index()];
        let (requests, bytes) = match work.is_write {
            true => (&mut tier.writes, &mut tier.written_bytes),
            false => (&mut tier.reads, &mut tier.read_bytes),
        };
        *requests += 1;
        *bytes += work.bytes;
    }

    pub(super) fn answered(&mut self, kind: EventKind, latency_ns: u64, now_ns: u64) {
        self.requests += 1;
        self.last_answer_ns = now_ns;
        match kind {
            EventKind::Write => self.writes.note(latency_ns),
            _ => self.reads.note(latency_ns),
        }
    }

    pub(super) fn moved(&mut self, ended: &mover::Ended) {
        self.note_outcome(ended.outcome);
        self.migrations += u64::from(ended.outcome == Outcome::Done);
        self.copied(ended.from, ended.to, ended.copied_bytes);
    }

    /// A segment was moved to be changed.
    pub(super) fn recalled(&mut self, recall: &Recall) {
        self.migrations += 1;
        self.copied(recall.from, recall.to, recall.bytes);
    }

    fn copied(&mut self, from: TierIndex, to: TierIndex, bytes: u64) {
        self.migrated_bytes += bytes;
        self.tiers[from.index()].moved_out_bytes += bytes;
        self.tiers[to.index()].moved_in_bytes += bytes;
    }

    pub(super) fn note_outcome(&mut self, outcome: Outcome) {
        *self.outcomes.entry(outcome.word()).or_default() += 1;
    }
}
