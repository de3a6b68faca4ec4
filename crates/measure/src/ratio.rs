// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ratios of blocks beside each other, with the bounds of the sign test.

use serde::Serialize;

/// A ratio with the bounds that hold the true one with 95 % probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// The lower bound.
    pub low95: f64,
    /// The upper bound.
    pub high95: f64,
    /// Pairs that were compared.
    pub pairs: usize,
}

/// Compares blocks pair by pair.
///
/// # Panics
///
/// Without a pair.
pub fn compare(of_s: &[f64], with_s: &[f64]) -> Ratio {
    let mut ratios: Vec<_> = of_s.iter().zip(with_s).map(|(of, with)| of / with).collect();
    ratios.sort_by(f64::total_cmp);
    let rank = rank95(ratios.len());
    Ratio {
        median: f64::midpoint(ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2]),
        low95: ratios[rank],
        high95: ratios[ratios.len() - 1 - rank],
        pairs: ratios.len(),
    }
}

/// Sums up steps to `count` blocks, or to fewer where there are not as many steps.
pub fn gather(step_s: &[f64], count: usize) -> Vec<f64> {
    let count = count.min(step_s.len()).max(1);
    let at = |block: usize| block * step_s.len() / count;
    (0..count).map(|block| step_s[at(block)..at(block + 1)].iter().sum()).collect()
}

/// How many of `count` sorted values lie outside the 95 % bounds of their median on each side: each
/// lies above the true median with probability one half, so their number is binomial.
fn rank95(count: usize) -> usize {
    let mut probability = 0.5_f64.powi(count as i32);
    let mut tail = 0.0;
    for rank in 0..count / 2 {
        tail += probability;
        if tail > 0.025 {
            return rank.saturating_sub(1);
        }
        probability *= (count - rank) as f64 / (rank + 1) as f64;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_those_of_the_sign_test() {
        // Table values: with 20 the 6th smallest and largest, with 6 the extremes.
        assert_eq!(rank95(20), 5);
        assert_eq!(rank95(6), 0);
        assert_eq!(rank95(40), 13);
    }

    #[test]
    fn blocks_are_compared_pair_by_pair() {
        let blocks = |factor: f64, of: fn(usize) -> f64| -> Vec<_> {
            (0..20).map(|block| factor * of(block)).collect()
        };
        // Whatever befalls both at the same time does not count.
        let noise = |block: usize| if block.is_multiple_of(3) { 9.0 } else { 1.0 };
        let ratio = compare(&blocks(1.5, noise), &blocks(1.0, noise));
        assert_eq!(ratio, Ratio { median: 1.5, low95: 1.5, high95: 1.5, pairs: 20 });
        let ratio = compare(&blocks(1.0, |block| block as f64 + 1.0), &blocks(1.0, |_| 1.0));
        assert_eq!(ratio, Ratio { median: 10.5, low95: 6.0, high95: 15.0, pairs: 20 });
    }

    #[test]
    fn steps_are_gathered_without_losing_one() {
        assert_eq!(gather(&[1.0, 2.0, 4.0, 8.0, 16.0], 2), [3.0, 28.0]);
        assert_eq!(gather(&[1.0, 2.0], 20), [1.0, 2.0]);
    }
}
