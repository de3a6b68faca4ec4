// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of the objects a call touches, drawn before anything is measured.

use serde::{Deserialize, Serialize};
use terrace_core::Random;

/// How often each object is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keys {
    /// All alike.
    Uniform,
    /// The k-th most popular one in proportion to 1 / k^0.99, as in the Yahoo cloud benchmark.
    Zipf,
}

/// Draws; asked for more, they begin again.
const DRAWS: usize = 1 << 16;

/// A sequence of numbers below a bound.
pub(crate) struct Picks {
    numbers: Vec<u32>,
}

impl Picks {
    /// Draws numbers in `0..count`; `seed` tells threads apart.
    pub(crate) fn new(keys: Keys, count: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let numbers = match keys {
            Keys::Uniform => (0..DRAWS).map(|_| random.below(count as u64) as u32).collect(),
            Keys::Zipf => zipf(count, &mut random),
        };
        Self { numbers }
    }

    /// The number for a position in the sequence.
    pub(crate) fn at(&self, position: u64) -> usize {
        self.numbers[position as usize % DRAWS] as usize
    }
}

fn zipf(count: usize, random: &mut Random) -> Vec<u32> {
    const EXPONENT: f64 = 0.99;
    // Popular ones are not neighbours: in which order ranks meet numbers is drawn, too.
    let mut number_of_rank: Vec<u32> = (0..count as u32).collect();
    let mut shuffle = Random::new(count as u64);
    for last in (1..count).rev() {
        number_of_rank.swap(last, shuffle.below(last as u64 + 1) as usize);
    }
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=count)
        .map(|rank| {
            sum += (rank as f64).powf(-EXPONENT);
            sum
        })
        .collect();
    let mut draw = || {
        let at = random.unit() * sum;
        number_of_rank[sums.partition_point(|sum| *sum <= at).min(count - 1)]
    };
    (0..DRAWS).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys: Keys) -> Vec<usize> {
        let picks = Picks::new(keys, 100, 7);
        let mut counts = vec![0; 100];
        (0..DRAWS as u64).for_each(|position| counts[picks.at(position)] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn uniform_touches_all_alike_and_zipf_a_few_much_more() {
        let uniform = counts(Keys::Uniform);
        assert!(uniform[0] < 2 * uniform[99], "{uniform:?}");
        let zipf = counts(Keys::Zipf);
        // The sum of 1 / k^0.99 for 100 of them is 5.3, so the first has 19 % and the second half
        // as many.
        let share = zipf[0] as f64 / DRAWS as f64;
        assert!((0.18..0.20).contains(&share), "{share}");
        assert!((1.8..2.2).contains(&(zipf[0] as f64 / zipf[1] as f64)), "{zipf:?}");
        assert!(zipf[99] > 0);
    }
}
