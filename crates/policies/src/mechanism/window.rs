// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quantiles of the latest samples.

/// Samples kept: a p95 of 128 rests on the six largest, and sorting them takes microseconds.
pub(crate) const SAMPLES_MAX: usize = 128;

/// The latest [`SAMPLES_MAX`] samples of a quantity, so that a quantile follows a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    samples: Vec<u64>,
    next: usize,
}

impl Window {
    /// Adds a sample; a full window forgets its oldest one.
    pub(crate) fn add(&mut self, sample: u64) {
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(sample);
        } else {
            self.samples[self.next] = sample;
            self.next = (self.next + 1) % SAMPLES_MAX;
        }
    }

    /// The smallest sample that at least `share` of all samples do not exceed (nearest rank).
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        let rank = (share * self.samples.len() as f64).ceil() as usize;
        let index = rank.max(1) - 1;
        let mut sorted = self.samples.clone();
        (index < sorted.len()).then(|| *sorted.select_nth_unstable(index).1)
    }

    /// The samples, oldest first.
    pub(crate) fn samples(&self) -> impl Iterator<Item = u64> {
        let (newer, older) = self.samples.split_at(self.next);
        older.iter().chain(newer).copied()
    }

    /// How many samples there are.
    pub(crate) fn count(&self) -> usize {
        self.samples.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_is_the_nearest_rank() {
        let mut window = Window::default();
        assert_eq!(window.quantile(0.95), None);
        (1..=20).rev().for_each(|sample| window.add(sample));
        assert_eq!(window.quantile(0.95), Some(19));
        assert_eq!((window.quantile(0.0), window.quantile(1.0)), (Some(1), Some(20)));
    }

    #[test]
    fn a_full_window_forgets_its_oldest_sample() {
        let mut window = Window::default();
        (0..SAMPLES_MAX as u64 + 3).for_each(|sample| window.add(sample));
        assert_eq!(window.count(), SAMPLES_MAX);
        assert_eq!(window.samples().next(), Some(3));
        assert_eq!(window.quantile(0.0), Some(3));
    }
}
