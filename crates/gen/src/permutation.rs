// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A random order of many numbers that takes no memory.

use crate::mix::mix;

/// Rounds of the network; four mix both halves into each other (Luby, Rackoff, SIAM J. Comput. 1988).
const ROUNDS: usize = 4;

/// A bijection of `0..count`, chosen by a seed: a Feistel network over the next power of two, which
/// is walked along until it is back below `count`; twice on average at most.
#[derive(Debug)]
pub(crate) struct Permutation {
    count: u64,
    low_bits: u32,
    high_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub(crate) fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let high_bits = bits / 2;
        let keys = std::array::from_fn(|round| mix(seed.wrapping_add(mix(round as u64))));
        Self { count, low_bits: bits - high_bits, high_bits, keys }
    }

    /// Where `index` goes; `index` must be below `count`.
    #[inline]
    pub(crate) fn apply(&self, index: u64) -> u64 {
        debug_assert!(index < self.count, "an index beyond the permutation need not come back");
        let mut value = self.scramble(index);
        while value >= self.count {
            value = self.scramble(value);
        }
        value
    }

    #[inline]
    fn scramble(&self, value: u64) -> u64 {
        let (mut high_bits, mut low_bits) = (self.high_bits, self.low_bits);
        let (mut high, mut low) = (value >> low_bits, value & mask(low_bits));
        for key in self.keys {
            (high, low) = (low, high ^ (mix(low ^ key) & mask(high_bits)));
            (high_bits, low_bits) = (low_bits, high_bits);
        }
        (high << low_bits) | low
    }
}

#[inline]
fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::Permutation;

    #[test]
    fn visits_every_number_once() {
        for count in (1..70).chain([255, 256, 257, 4096, 10_007]) {
            for seed in 0..3 {
                let order = Permutation::new(count, seed);
                let mut seen: Vec<u64> = (0..count).map(|index| order.apply(index)).collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..count), "count={count} seed={seed}");
            }
        }
    }

    #[test]
    fn seeds_give_different_orders() {
        let order = |seed| {
            let order = Permutation::new(1000, seed);
            (0..1000).map(|index| order.apply(index)).collect::<Vec<u64>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let in_place = order(1).iter().zip(0..).filter(|(value, index)| **value == *index).count();
        assert!(in_place < 20, "{in_place} of 1000 stayed where they were; one is expected");
    }
}
