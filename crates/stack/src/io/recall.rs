// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recall: brings a segment back from a tier that takes whole objects only, before it is changed.
//!
//! The switch is that of every migration. The writer waits for it outside all guards.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrace_core::{Error, ErrorKind, Outcome, Placement, Result, TierIndex};

use crate::io::shape::left_on;
use crate::memory::entry::{Entry, Segment};
use crate::shared::Shared;
use crate::shared::moves::{MoveRequest, MoveWish};
use crate::tiers::account::Class;

const OPERATION: &str = "recall a segment to change it";

/// Migrations of one segment that a writer waits for. A policy that moves it back each time would
/// keep the writer waiting for ever.
const ATTEMPTS_MAX: u32 = 100;

/// Pause where the mover takes no request now.
const PAUSE: Duration = Duration::from_millis(2);

/// Pauses in a row before the mover counts as too busy.
const PAUSES_MAX: u32 = 5000;

impl Shared {
    /// Whether the bytes of a segment cannot be changed where they are.
    #[inline]
    pub(crate) fn is_immutable(&self, segment: &Segment) -> bool {
        self.tier(segment.location.load().primary.place.tier).is_whole()
    }

    /// Moves a segment to a tier where it can be changed, and waits for that. Does nothing where it
    /// is on such a tier, or was deleted.
    ///
    /// # Errors
    ///
    /// `Denied` where the object is pinned, `NoSpace` where no such tier has room for it, `Busy`,
    /// and what its tiers say.
    pub(crate) fn recall(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        segment: &Arc<Segment>,
    ) -> Result<()> {
        let from = segment.location.load().primary.place.tier;
        let fail = |kind, reason: String| {
            Err(Error::new(kind, OPERATION)
                .because(reason)
                .with("key", &entry.key)
                .with("tier", &self.tier(from).name))
        };
        let (mut attempts, mut pauses, mut full) = (0, 0, Vec::new());
        while self.is_immutable(segment) && !entry.has_lost(segment) {
            self.check_online(segment)?;
            self.check_open(OPERATION)?;
            if entry.is_pinned.load(Ordering::Acquire) {
                let reason = "the object is pinned to a tier that takes whole objects only; unpin \
                              it before it is written";
                return fail(ErrorKind::Denied, reason.into());
            }
            let id = match self.mover.of_segment(entry.object_id, segment.number) {
                // Wherever that goes, there is another answer then.
                Some(moving) => moving.id,
                None => {
                    let Some(to) = self.recall_target(entry, segment, &full) else {
                        let reason = "no tier that can be written in place has room for it";
                        return fail(ErrorKind::NoSpace, reason.into());
                    };
                    match self.mover.submit(self, self.recall_request(entry, segment, to)) {
                        Ok(id) => id,
                        Err(Outcome::Busy | Outcome::Already) if pauses < PAUSES_MAX => {
                            pauses += 1;
                            self.clock.sleep(PAUSE);
                            continue;
                        }
                        // Deleted, or cut off: the loop ends, or the next try finds out.
                        Err(Outcome::Stale) if attempts < ATTEMPTS_MAX => {
                            attempts += 1;
                            continue;
                        }
                        Err(outcome) => {
                            let reason = format!("it cannot move now: {}", outcome.word());
                            return fail(ErrorKind::Busy, reason);
                        }
                    }
                }
            };
            let ended = self.mover.wait_for_end(id);
            attempts += 1;
            pauses = 0;
            let Some(ended) = ended else { continue };
            match ended.outcome() {
                Some(Outcome::NoSpace) => full.push(ended.request.to),
                Some(Outcome::Io) => {
                    let detail = ended.report(self).detail;
                    return fail(ErrorKind::Io, detail);
                }
                _ if attempts >= ATTEMPTS_MAX => {
                    let reason = "it is moved back as often as it is recalled; see terrace explain";
                    return fail(ErrorKind::Busy, reason.into());
                }
                // The next look at the segment says what came of it.
                _ => {}
            }
        }
        Ok(())
    }

    fn recall_request(&self, entry: &Entry, segment: &Segment, to: TierIndex) -> MoveRequest {
        let from = segment.location.load().primary.place.tier;
        MoveRequest {
            key: entry.key.clone(),
            segment: segment.number,
            wish: MoveWish::Move,
            to,
            priority: i32::MAX,
            reason: format!("it is written, and {} takes whole objects only", self.tier(from).name),
            by: "stack".into(),
            benefit_s: 0.0,
            slot: Some((segment.slot, segment.incarnation)),
        }
    }

    /// Where a recalled segment goes: to a clean copy of it, else where the policy places data of the
    /// object, else to the most preferred tier; each where it has room and was not found `full`.
    fn recall_target(
        &self,
        entry: &Entry,
        segment: &Segment,
        full: &[TierIndex],
    ) -> Option<TierIndex> {
        let location = segment.location.load_full();
        let bytes = segment.length();
        let able: Vec<_> = self
            .tiers
            .indexed()
            .filter(|(index, tier)| {
                tier.takes_writes() && tier.keeps(entry.persistency()) && !full.contains(index)
            })
            .map(|(index, _)| index)
            .collect();
        let has_copy =
            |tier: &&TierIndex| location.copies.iter().any(|copy| copy.place.tier == **tier);
        if let Some(tier) = able.iter().find(has_copy) {
            return Some(*tier);
        }
        let has_room = |index: &&TierIndex| {
            let tier = self.tier(**index);
            // Copies and garbage make room by themselves.
            let classes = [Class::Copy, Class::Garbage].map(|class| tier.account.bytes(class));
            let kept = tier.account.taken().saturating_sub(classes.iter().sum());
            let sum = kept.saturating_add(bytes);
            sum <= tier.capacity_bytes() && bytes <= left_on(tier).saturating_add(classes[1])
        };
        let placement = Placement {
            key: &entry.key,
            hint: entry.hint,
            size_hint_bytes: Some(bytes),
            segment: segment.number,
            start_bytes: segment.start_bytes,
        };
        let wanted = self.place(&placement).tier;
        let is_wanted = |index: &&TierIndex| **index == wanted;
        let found = able.iter().find(|index| is_wanted(index) && has_room(index));
        found.or_else(|| able.iter().find(has_room)).copied()
    }
}
