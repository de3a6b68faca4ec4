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
    /// What was copied: nothing where `to` had a clean copy, or a migration was under way there.
    pub(in crate::timed) bytes: u64,
    /// Whether that migration is waited for.
    pub(in crate::timed) waits: bool,
}

impl Store {
    /// Moves what is to be changed from tiers of whole objects: segments with bytes in a range, or that
    /// are cut or become longer there. `take_over` says where a migration brings a segment that the recall
    /// can wait for.
    pub(in crate::timed) fn recall(
        &mut self,
        object: u32,
        (start_bytes, end_bytes): (u64, u64),
        take_over: &mut dyn FnMut(&mut Self, Slot) -> Option<TierIndex>,
    ) {
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
            // A later segment that is cut at its start is deleted, and behind a full one another begins.
            let is_cut = (index == 0 || segment.start_bytes < start_bytes)
                && segment.start_bytes <= start_bytes
                && start_bytes < segment_end;
            let is_longer = is_last && end_bytes > segment_end && segment_end < segment.limit_bytes;
            let is_resized = is_cut || is_longer;
            if !self.tier(from).is_whole || !has_bytes && !is_resized {
                continue;
            }
            let segment_start = segment.start_bytes;
            if let Some(to) = take_over(self, *slot) {
                self.switch(*slot, to, false);
                // It is read until the migration ends.
                self.deleted.pop();
                self.recalled.push(Recall { slot: *slot, from, to, bytes: 0, waits: true });
                continue;
            }
            let segment = self.segment(*slot);
            let placement = Placement {
                key: &key,
                hint: Hint::default(),
                size_hint_bytes: Some(size_bytes),
                segment: first_number + index as u32,
                start_bytes: segment_start,
            };
            let written = (0..self.tiers.len() as u8).map(TierIndex);
            let mut written = written.filter(|tier| self.is_written_in_place(*tier));
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
            self.recalled.push(Recall { slot: *slot, from, to, bytes, waits: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terrace_core::{Figures, Key, Layout, Persistency, Placed, Placer, TierView};

    use super::*;
    use crate::read::Named;
    use crate::timed::store::Tier;
    use crate::timed::{Character, Recent, TimedTier};

    const SEGMENT_BYTES: u64 = 1 << 14;

    #[derive(Debug)]
    struct Segments;

    impl Placer for Segments {
        fn place(&self, _: &Placement<'_>) -> Placed {
            let layout = Layout::Fixed { segment_bytes: SEGMENT_BYTES };
            Placed { tier: TierIndex(0), layout }
        }
    }

    /// The number of segments that are recalled before a range changes, of an object of two full ones in a
    /// bucket.
    fn recalled(start_bytes: u64, end_bytes: u64) -> usize {
        let tiers = [false, true].map(|is_whole| {
            let view = TierView::empty("tier", Figures::default());
            let character = Character { is_whole, ..Character::default() };
            Tier::new(&TimedTier { view, character, recent: Recent::default() }, false)
        });
        let mut store = Store::new(tiers.into(), Arc::new(Segments), Persistency::None);
        let key = Key::new("test", "object").expect("legal");
        store.create(0, Named { key, segment: 0 });
        store.write(0, 0, 2 * SEGMENT_BYTES, &mut Vec::new());
        for slot in store.slots(0).to_vec() {
            store.switch(slot, TierIndex(1), false);
        }
        store.recall(0, (start_bytes, end_bytes), &mut |_, _| None);
        store.recalled.len()
    }

    #[test]
    fn what_no_store_recalls_is_not() {
        let end_bytes = 2 * SEGMENT_BYTES;
        // Another segment begins behind one that is full.
        assert_eq!(recalled(end_bytes, end_bytes + 100), 0);
        assert_eq!(recalled(end_bytes - 1, end_bytes + 100), 1);
        // A cut deletes the second, or changes one of them.
        assert_eq!(recalled(SEGMENT_BYTES, SEGMENT_BYTES), 0);
        assert_eq!(recalled(SEGMENT_BYTES + 1, SEGMENT_BYTES + 1), 1);
        assert_eq!(recalled(5, 5), 1);
        assert_eq!(recalled(0, 0), 1);
        assert_eq!(recalled(SEGMENT_BYTES - 1, SEGMENT_BYTES + 1), 2);
    }
}
