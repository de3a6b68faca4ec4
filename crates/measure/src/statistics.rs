// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Medians with their 95 % bounds.

use serde::Serialize;
use terrace_core::Random;

/// A median with the 95 % bound of where it lies, by bootstrap.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bound {
    /// The median of the samples.
    pub median: f64,
    /// 2.5 % of the resampled medians lie below.
    pub low95: f64,
    /// 2.5 % of the resampled medians lie above.
    pub high95: f64,
}

/// Resamplings: enough for stable second digits of the bound.
const RESAMPLES: usize = 2000;

impl Bound {
    /// The bound of the median of `samples`; there must be at least one.
    pub fn of(samples: &[f64]) -> Self {
        // Fixed, so that the same samples always give the same bound.
        let mut random = Random::new(0x7e44_ace0);
        let mut medians = Vec::with_capacity(RESAMPLES);
        let mut sample = vec![0.0; samples.len()];
        for _ in 0..RESAMPLES {
            for slot in &mut sample {
                *slot = samples[random.below(samples.len() as u64) as usize];
            }
            medians.push(median(&mut sample));
        }
        medians.sort_by(f64::total_cmp);
        let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share) as usize];
        Self { median: median(&mut samples.to_vec()), low95: at(0.025), high95: at(0.975) }
    }
}

/// Sorts the samples and returns the middle one.
pub fn median(samples: &mut [f64]) -> f64 {
    quantile(samples, 0.5)
}

/// Sorts the samples and returns the one at this share.
pub fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[((samples.len() - 1) as f64 * share).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_its_median_and_narrows_with_more_samples() {
        let mut random = Random::new(1);
        let mut draw = |count| (0..count).map(|_| random.unit()).collect::<Vec<_>>();
        let (few, many) = (Bound::of(&draw(20)), Bound::of(&draw(2000)));
        for bound in [few, many] {
            assert!(bound.low95 <= bound.median && bound.median <= bound.high95);
        }
        assert!(many.high95 - many.low95 < few.high95 - few.low95);
        assert!((many.median - 0.5).abs() < 0.1);
    }
}
