// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Displacement: moves other objects off a full tier, for one that grows and cannot go on elsewhere.
//!
//! A user that reads the file of an object past the stack does not see a second segment. So the object
//! stays in its file, and makes room there. The writer waits for the migrations outside all guards.

use std::sync::Arc;

use terrace_core::{Key, Outcome, Result, TierIndex};

use crate::io::shape::left_on;
use crate::memory::entry::{Entry, Segment};
use crate::shared::Shared;
use crate::shared::moves::{MoveRequest, MoveWish};
use crate::tiers::account::Class;

const OPERATION: &str = "make room on a tier";

/// Objects that are looked at together.
const PAGE_OBJECTS: usize = 64;

/// Moved at least, where there is as much: a writer of small pieces does not wait with each of them.
const BYTES_MIN: u64 = 4 << 20;

impl Shared {
    /// Moves objects other than `growing` off a tier, in the order of their keys, until there is room for
    /// `need_bytes` by the tier's account, and for `written_bytes` on its device, and waits for that. False where
    /// none moved, or all of them have less. Pinned and held objects stay.
    ///
    /// # Errors
    ///
    /// Errors of the catalog; that the stack closes.
    pub(crate) fn displace(
        self: &Arc<Self>,
        growing: &Entry,
        tier: TierIndex,
        need_bytes: u64,
        written_bytes: u64,
    ) -> Result<bool> {
        let state = self.tier(tier);
        let own = growing.segments.load();
        let own = own.iter().filter(|one| one.location.load().primary.place.tier == tier);
        let own_bytes: u64 = own.map(|one| crate::lock(&one.accounted).used_bytes).sum();
        let others_bytes = state.account.bytes(Class::Used).saturating_sub(own_bytes);
        let free_bytes = state.capacity_bytes().saturating_sub(state.account.taken());
        let by_account = need_bytes.saturating_sub(free_bytes);
        let missing_bytes = by_account.max(written_bytes.saturating_sub(left_on(state)));
        if others_bytes == 0 || missing_bytes > others_bytes {
            return Ok(false);
        }
        let wanted_bytes = missing_bytes.max(BYTES_MIN);
        let (mut freed_bytes, mut after) = (0, None);
        while freed_bytes < wanted_bytes {
            let page = self.catalog.page(None, after.as_ref(), PAGE_OBJECTS)?;
            let Some((last, _)) = page.objects.last() else { break };
            after = Some(last.clone());
            for (key, record) in page.objects {
                self.check_open(OPERATION)?;
                if freed_bytes >= wanted_bytes {
                    break;
                }
                if key != growing.key && record.is_ok_and(|record| record.is_on(tier)) {
                    freed_bytes += self.displace_object(&key, tier);
                }
            }
        }
        if freed_bytes > 0 {
            // The files that they left go now, not when the dropper comes round.
            self.free_garbage(tier);
        }
        Ok(freed_bytes > 0)
    }

    /// Moves the segments of an object off a tier; the bytes that they had there.
    fn displace_object(self: &Arc<Self>, key: &Key, tier: TierIndex) -> u64 {
        let Ok(Some(entry)) = self.borrow_entry(key) else { return 0 };
        let segments = entry.segments.load_full();
        let here = segments.iter().filter(|one| one.location.load().primary.place.tier == tier);
        here.map(|segment| self.displace_segment(&entry, segment, tier)).sum()
    }

    fn displace_segment(
        self: &Arc<Self>,
        entry: &Entry,
        segment: &Segment,
        from: TierIndex,
    ) -> u64 {
        let bytes = segment.amount();
        let Some(to) = self.displacement_target(entry, bytes, from) else { return 0 };
        let request = MoveRequest {
            key: entry.key.clone(),
            segment: segment.number,
            wish: MoveWish::Move,
            to,
            priority: i32::MAX,
            reason: format!(
                "{} is full, and an object there cannot leave it",
                self.tier(from).name
            ),
            by: "stack".into(),
            benefit_s: 0.0,
            slot: Some((segment.slot, segment.incarnation)),
        };
        let moved = self.mover.submit(self, request).ok();
        let ended = moved.and_then(|id| self.mover.wait_for_end(id));
        match ended.and_then(|ended| ended.outcome()) {
            Some(Outcome::Done) => bytes,
            _ => 0,
        }
    }

    /// Where a segment goes that is displaced: to a less preferred tier, else to a more preferred one.
    fn displacement_target(&self, entry: &Entry, bytes: u64, from: TierIndex) -> Option<TierIndex> {
        let count = self.tiers.len() as u8;
        let mut order = (from.0 + 1..count).chain((0..from.0).rev()).map(TierIndex);
        order.find(|index| {
            let tier = self.tier(*index);
            // Clean copies make room by themselves.
            let kept = tier.account.taken().saturating_sub(tier.account.bytes(Class::Copy));
            let has_room = kept.saturating_add(bytes) <= tier.capacity_bytes();
            tier.takes_data()
                && tier.keeps(entry.persistency())
                && has_room
                && bytes <= left_on(tier)
        })
    }
}
