// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the parts of a stack have to tell.

use std::sync::atomic::Ordering;

use terrace_core::{Event, Key, Outcome, TierIndex, View};

use crate::migrate::history;
use crate::report::Problem;
use crate::shared::Shared;
use crate::shared::moves::Move;
use crate::tiers::account::Class;
use crate::watch::{
    EventNotice, EventsNotice, Fill, Happening, MigrationNotice, NoticeKind, PolicyNotice,
    ScrubNotice, TierNotice,
};

/// How often a migration tells how far it is.
const PROGRESS_NS: u64 = 500_000_000;

/// How a migration ended.
pub(crate) struct Ended<'a> {
    pub(crate) outcome: Outcome,
    pub(crate) detail: &'a str,
    /// How long it took; zero for one that never began.
    pub(crate) took_ns: u64,
}

impl Shared {
    /// A migration entered a state.
    pub(crate) fn tell_migration(&self, one: &Move, state: &str, ended: Option<Ended<'_>>) {
        let what = || {
            let energy_j = |ended: &Ended<'_>| history::energy_j(self, one, ended.took_ns);
            Happening::Migration(MigrationNotice {
                state: state.into(),
                id: one.id,
                key: one.request.key.to_string(),
                segment: one.request.segment,
                action: one.request.wish.word().into(),
                from: self.tier(one.from).name.clone(),
                to: self.tier(one.request.to).name.clone(),
                by: one.request.by.clone(),
                reason: one.request.reason.clone(),
                size_bytes: one.size_bytes,
                copied_bytes: one.copied_bytes.load(Ordering::Relaxed),
                outcome: ended.as_ref().map(|ended| ended.outcome.word().into()),
                detail: ended.as_ref().map_or_else(String::new, |ended| ended.detail.into()),
                duration_ns: ended.as_ref().map(|ended| ended.took_ns),
                modelled_energy_j: ended.as_ref().map(energy_j),
            })
        };
        let about = Some(&one.request.key);
        self.watches.tell(NoticeKind::Migration, about, &*self.clock, what);
    }

    /// A migration copied something.
    #[inline]
    pub(crate) fn tell_progress(&self, one: &Move) {
        if !self.watches.wants(NoticeKind::Migration) {
            return;
        }
        let now_ns = self.clock.now_ns();
        let told_ns = one.told_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(told_ns) >= PROGRESS_NS {
            one.told_ns.store(now_ns, Ordering::Relaxed);
            self.tell_migration(one, "progress", None);
        }
    }

    /// A tier changed.
    pub(crate) fn tell_tier(&self, tier: TierIndex, state: &str) {
        let what = || {
            let tier = self.tier(tier).name.clone();
            Happening::Tier(TierNotice { tier, state: state.into() })
        };
        self.watches.tell(NoticeKind::Tier, None, &*self.clock, what);
    }

    /// The policy changed, or failed.
    pub(crate) fn tell_policy(&self, name: &str, change: &str, detail: impl FnOnce() -> String) {
        let what = || {
            let (name, change) = (name.into(), change.into());
            Happening::Policy(PolicyNotice { name, change, detail: detail() })
        };
        self.watches.tell(NoticeKind::Policy, None, &*self.clock, what);
    }

    /// A scrub found something, or mended it.
    pub(crate) fn tell_scrub(&self, key: &Key, is_mended: bool, finding: impl FnOnce() -> Problem) {
        let what = || Happening::Scrub(ScrubNotice { is_mended, finding: finding() });
        self.watches.tell(NoticeKind::Scrub, Some(key), &*self.clock, what);
    }
}

impl Fill {
    /// Tells of tiers that have become full, or roomy again, since the last look.
    pub(crate) fn look(&self, shared: &Shared) {
        let mut full = crate::lock(&self.full);
        for (index, tier) in shared.tiers.indexed() {
            let bit = 1 << index.index();
            // Clean copies make room by themselves.
            let taken_bytes = tier.account.taken().saturating_sub(tier.account.bytes(Class::Copy));
            let is_full = taken_bytes >= tier.critical_bytes();
            if is_full != (*full & bit != 0) {
                *full ^= bit;
                shared.tell_tier(index, if is_full { "full" } else { "roomy" });
            }
        }
    }
}

/// Storage events for watchers.
pub(crate) struct EventTeller<'a> {
    shared: &'a Shared,
    /// Between the two clocks.
    wall_from_now_ns: u64,
    gathered: Vec<(Key, EventNotice)>,
}

impl<'a> EventTeller<'a> {
    /// `None` where events are not watched.
    pub(crate) fn new(shared: &'a Shared) -> Option<Self> {
        let is_wanted = shared.watches.wants(NoticeKind::Events);
        is_wanted.then(|| Self {
            shared,
            wall_from_now_ns: shared.clock.wall_ns().saturating_sub(shared.clock.now_ns()),
            gathered: Vec::new(),
        })
    }

    /// Takes an event, which the view shows already.
    pub(crate) fn take(&mut self, view: &View, event: &Event) {
        let segment = view.segments.get(event.slot as usize);
        let Some(segment) = segment.filter(|one| one.incarnation == event.incarnation) else {
            return;
        };
        let tier = view.tiers.get(event.tier.index());
        let notice = EventNotice {
            wall_ns: self.wall_from_now_ns.saturating_add(event.time_ns),
            event: event.kind.word().into(),
            key: segment.key.to_string(),
            segment: segment.segment,
            tier: tier.map_or_else(String::new, |tier| tier.name.clone()),
            offset_bytes: event.offset_bytes,
            length_bytes: event.length_bytes,
            latency_ns: event.latency_ns,
            count: event.count,
            outcome: event.outcome.word().into(),
        };
        self.gathered.push((segment.key.clone(), notice));
        if self.gathered.len() >= EventsNotice::MAX {
            self.pass_on();
        }
    }

    fn pass_on(&mut self) {
        let wall_ns = self.shared.clock.wall_ns();
        self.shared.watches.tell_events(wall_ns, &self.gathered);
        self.gathered.clear();
    }
}

impl Drop for EventTeller<'_> {
    fn drop(&mut self) {
        self.pass_on();
    }
}
