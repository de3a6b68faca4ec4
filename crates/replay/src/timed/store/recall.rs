// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recall: a segment on a tier that takes whole objects only is on another one before it is changed.

use terrace_core::{Hint, Placement, Slot, TierIndex};

use super::Store;

/// A segment that was moved from a tier of whole objects to be changed.
#[derive(Clone, Copy, Debug)]
pub(in crate::timed) struct Recall {
    pub(in crate::timed) slot: Slot,
    pub(in crate::timed) from: TierIndex,
    pub(in crate::timed) to: TierIndex,
    /// What was copied: nothing where `to` had a clean copy.
    pub(in crate::timed) bytes: u64,
}

impl Store {
    /// Moves what is to be changed from tiers of whole objects: segments with bytes in a range, or that
    /// are cut or become longer there.
    pub(in crate::timed) fn recall(&mut self, object: u32, start_bytes: u64, end_bytes: u64) {
        if !self.tiers.iter().any(|tier| tier.is_whole) {
            return;
        }
        let Some(found) = self.object(object) else { return };
        let (key, slots) = (found.named.key.clone(), found.segments.clone());
        let first_number = found.named.segment;
        for (index, slot) in slots.iter().enumerate() {
            let segment = self.segment(*slot);
            let (from, size_bytes) = (segment.tier, segment.size_bytes);
            let segment_end = segment.start_bytes.saturating_add(size_bytes);
            let is_last = index + 1 == slots.len();
            let has_bytes = segment.start_bytes < end_bytes && start_bytes < segment_end;
            let is_resized = segment.start_bytes <= start_bytes && start_bytes < segment_end
                || is_last && end_bytes > segment_end;
            if !self.tier(from).is_whole || !has_bytes && !is_resized {
                continue;
            }
            let placement = Placement {
                key: &key,
                hint: Hint::default(),
                size_hint_bytes: Some(size_bytes),
                segment: first_number + index as u32,
                start_bytes: segment.start_bytes,
            };
            let written = (0..self.tiers.len() as u8).map(TierIndex);
            let mut written = written.filter(|tier| self.takes_writes(*tier));
            let copy = written.find(|tier| segment.copies.contains(*tier));
            let to = copy.unwrap_or_else(|| {
                self.with_room(self.sane(self.placer.place(&placement).tier), size_bytes)
            });
            if self.tier(to).is_whole {
                // There is no other one.
                continue;
            }
            if copy.is_none() {
                self.take_room(to, size_bytes, self.tier(to).view.figures.capacity_bytes);
            }
            self.switch(*slot, to, false);
            let bytes = if copy.is_some() { 0 } else { size_bytes };
            self.recalled.push(Recall { slot: *slot, from, to, bytes });
        }
    }
}
