// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page cache of a machine: what was read or written not long ago is read without a device.

use std::collections::HashMap;

use terrace_core::{Slot, TierIndex};
use terrace_policies::replacement::{Cache, Lru};

/// What is remembered as one.
const PAGE_BYTES: u64 = 64 << 10;

pub(super) struct Pages {
    cache: Cache<Lru>,
    /// Numbers without gaps for the pages that were ever seen.
    numbers: HashMap<(Slot, TierIndex, u64), u32>,
}

impl Pages {
    pub(super) fn new(bytes: u64) -> Self {
        Self { cache: Cache::new(Lru::default(), bytes), numbers: HashMap::new() }
    }

    /// Notes that a range of a segment's file on a tier is used; how much of it was not there.
    pub(super) fn touch(
        &mut self,
        (slot, tier): (Slot, TierIndex),
        offset_bytes: u64,
        bytes: u64,
    ) -> u64 {
        let mut missed_bytes = 0;
        for (page, part_bytes) in pages_of(offset_bytes, bytes) {
            let next = self.numbers.len() as u32;
            let number = *self.numbers.entry((slot, tier, page)).or_insert(next);
            self.cache.grow(self.numbers.len());
            if !self.cache.request(number, PAGE_BYTES) {
                missed_bytes += part_bytes;
            }
        }
        missed_bytes
    }
}

/// The pages of a range, and how many of its bytes are in each.
pub(super) fn pages_of(offset_bytes: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let end_bytes = offset_bytes.saturating_add(bytes);
    let pages = offset_bytes / PAGE_BYTES..end_bytes.div_ceil(PAGE_BYTES);
    let parts = pages.map(move |page| {
        let start_bytes = offset_bytes.max(page * PAGE_BYTES);
        (page, end_bytes.min((page + 1) * PAGE_BYTES) - start_bytes)
    });
    parts.filter(|(_, bytes)| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_there_until_others_push_it_out() {
        let mut pages = Pages::new(2 * PAGE_BYTES);
        let [one, other, moved] = [(1, TierIndex(0)), (2, TierIndex(0)), (1, TierIndex(1))];
        assert_eq!(pages.touch(one, 100, 50), 50);
        assert_eq!(pages.touch(one, 0, 100), 0, "its page is there");
        assert_eq!(pages.touch(one, PAGE_BYTES - 10, 20), 10, "the next one is not");
        assert_eq!(pages.touch(other, 0, PAGE_BYTES), PAGE_BYTES, "the same page of another one");
        assert_eq!(pages.touch(one, 0, 1), 1, "it was used least recently");
        assert_eq!(pages.touch(moved, 0, 1), 1, "its file on another tier is another file");
    }
}
