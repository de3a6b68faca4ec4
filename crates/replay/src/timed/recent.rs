// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The caches of a processor in front of memory: what was used a moment ago is read faster.

use std::collections::HashMap;

use terrace_core::{Slot, TierIndex};

use super::pages::pages_of;

/// Which part of its time a read from memory takes, by how many bytes were used since its own were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent {
    /// Bytes, and the share, in ascending order.
    points: Vec<(u64, f64)>,
}

impl Recent {
    /// Of what was measured; between two points, shares grow with the logarithm of the bytes.
    pub fn new(mut points: Vec<(u64, f64)>) -> Self {
        points.sort_by_key(|(bytes, _)| *bytes);
        Self { points }
    }

    /// From so many bytes on a read takes all of its time; 0 where it always does.
    pub(super) fn end_bytes(&self) -> u64 {
        self.points.last().map_or(0, |(bytes, _)| *bytes)
    }

    fn share(&self, since_bytes: u64) -> f64 {
        let next = self.points.partition_point(|(bytes, _)| *bytes <= since_bytes);
        match (next.checked_sub(1).map(|index| self.points[index]), self.points.get(next)) {
            (None, Some((_, share))) => *share,
            (Some((low, below)), Some((high, above))) => {
                let logarithm = |bytes: u64| (bytes.max(1) as f64).ln();
                let way =
                    (logarithm(since_bytes) - logarithm(low)) / (logarithm(*high) - logarithm(low));
                below + way * (above - below)
            }
            _ => 1.0,
        }
    }
}

/// A user of something, on a processor of its own: a client, or all migrations.
pub(super) type User = u32;

/// When each part of each file was used last and by which user, in bytes that the same one used
/// until then.
#[derive(Default)]
pub(super) struct Uses {
    used_bytes: HashMap<User, u64>,
    last: HashMap<(User, Slot, TierIndex, u64), u64>,
    /// What was used longer ago is as good as never used.
    end_bytes: u64,
    /// How many there may be before those are forgotten.
    last_max: usize,
}

/// So many are kept without a look at how old they are.
const LAST_MIN: usize = 1 << 16;

impl Uses {
    /// For tiers with all of these.
    pub(super) fn of<'a>(all: impl Iterator<Item = &'a Recent>) -> Self {
        let end_bytes = all.map(Recent::end_bytes).max().unwrap_or(0);
        Self { end_bytes, last_max: LAST_MIN, ..Self::default() }
    }

    /// Whether it matters for any tier.
    pub(super) fn matters(&self) -> bool {
        self.end_bytes > 0
    }

    fn forget_old(&mut self) {
        let Self { used_bytes, last, end_bytes, .. } = self;
        last.retain(|(user, ..), at| used_bytes[user] - *at < *end_bytes);
        self.last_max = LAST_MIN.max(2 * self.last.len());
    }

    /// Notes that a user reads or writes a range of a segment's file on a tier; the part of its
    /// time that reading it takes.
    pub(super) fn touch(
        &mut self,
        user: User,
        (slot, tier): (Slot, TierIndex),
        offset_bytes: u64,
        bytes: u64,
        recent: &Recent,
    ) -> f64 {
        let used_bytes = self.used_bytes.entry(user).or_default();
        let mut sum = 0.0;
        for (page, part_bytes) in pages_of(offset_bytes, bytes) {
            let last = self.last.insert((user, slot, tier, page), *used_bytes);
            let share = last.map_or(1.0, |last| recent.share(*used_bytes - last));
            sum += share * part_bytes as f64;
        }
        *used_bytes += bytes;
        if self.last.len() > self.last_max {
            self.forget_old();
        }
        if bytes == 0 { 1.0 } else { sum / bytes as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_with_the_logarithm_of_the_bytes() {
        let recent = Recent::new(vec![(1 << 22, 1.0), (1 << 20, 0.5)]);
        let shares = [0, 1 << 20, 1 << 21, 1 << 22, 1 << 30].map(|bytes| recent.share(bytes));
        for (share, expected) in shares.into_iter().zip([0.5, 0.5, 0.75, 1.0, 1.0]) {
            assert!((share - expected).abs() < 1e-9, "{shares:?}");
        }
        assert_eq!(Recent::default().share(0).to_bits(), 1.0_f64.to_bits());
    }

    #[test]
    fn what_others_use_meanwhile_makes_it_old() {
        const PAGE: u64 = 64 << 10;
        let recent = Recent::new(vec![(PAGE, 0.25), (4 * PAGE, 1.0)]);
        let mut uses = Uses::of([&recent].into_iter());
        let [one, other, moved] = [(1, TierIndex(0)), (2, TierIndex(0)), (1, TierIndex(1))];
        assert!((uses.touch(7, one, 0, PAGE, &recent) - 1.0).abs() < 1e-9, "somebody else");
        let mut touch = |file, offset, bytes| uses.touch(3, file, offset, bytes, &recent);
        assert_eq!(touch(one, 0, PAGE).to_bits(), 1.0_f64.to_bits(), "never used");
        assert_eq!(touch(one, 0, PAGE).to_bits(), 0.25_f64.to_bits(), "its own bytes since");
        assert!((touch(one, 0, 2 * PAGE) - 0.625).abs() < 1e-9, "half of it was never used");
        assert!((touch(other, 0, 2 * PAGE) - 1.0).abs() < 1e-9, "another object");
        assert!((touch(one, 0, 10) - 1.0).abs() < 1e-9, "too long ago");
        assert!((touch(moved, 0, 10) - 1.0).abs() < 1e-9, "its file on another tier");
        assert!((touch(moved, 0, 0) - 1.0).abs() < 1e-9, "nothing takes what it takes");
        for slot in 10..10 + 2 * LAST_MIN as Slot {
            touch((slot, TierIndex(0)), 0, PAGE);
        }
        assert!(touch((9 + 2 * LAST_MIN as Slot, TierIndex(0)), 0, PAGE) < 0.5, "just used");
        assert!(uses.last.len() <= LAST_MIN + 1, "what is old is forgotten");
    }
}
