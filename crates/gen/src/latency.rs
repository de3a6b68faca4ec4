// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long single operations took: a log-linear histogram, its percentiles and its steps.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Two significant digits: 128 buckets for each power of two.
const DIGITS: u8 = 2;

/// By how much of itself a value may be reported too large; never too small.
pub(crate) const ERROR_MAX: f64 = 1.0 / 128.0;

/// Longer ones count as so long.
const NS_MAX: u64 = 24 * 3600 * 1_000_000_000;

/// Most steps of the distribution in a report.
const STEPS_MAX: usize = 200;

/// Parts of the operations in steps of the distribution, before those of the tail.
const EVEN_STEPS: usize = 160;

/// Latencies of many operations.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

/// Latencies as they travel: value and how often, of those that there are.
pub(crate) type Counts = Vec<(u64, u64)>;

/// Figures for a reader, in nanoseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) min: u64,
    pub(crate) mean: f64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: u64,
    #[serde(rename = "p99.99")]
    pub(crate) p99_99: u64,
    pub(crate) max: u64,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, NS_MAX, DIGITS);
        Self(histogram.expect("the bounds are in order and the digits at most 5"))
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.0.iter_recorded().map(|one| (one.value_iterated_to(), one.count_at_value())).collect()
    }

    /// Adds those that another process has counted.
    pub(crate) fn add(&mut self, counts: &Counts) -> Result<()> {
        for &(value, count) in counts {
            let added = self.0.record_n(value, count);
            added.map_err(|_| {
                Error::new("add latencies", "one is out of range").with("ns", value)
            })?;
        }
        Ok(())
    }

    /// `None` where nothing was recorded.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| self.0.value_at_quantile(quantile);
        (self.count() > 0).then(|| Percentiles {
            min: self.0.min(),
            mean: self.0.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: self.0.max(),
        })
    }

    /// Steps of the empirical distribution: nanoseconds, part of the operations at or below. The last
    /// part is 1; there are at most 200.
    pub(crate) fn steps(&self) -> Vec<(u64, f64)> {
        let total = self.count();
        let mut thresholds: Vec<u64> = (0..EVEN_STEPS as u64)
            .map(|step| (total as u128 * u128::from(step) / EVEN_STEPS as u128) as u64)
            .collect();
        // Four further steps for each tenth of what is left, down to single operations of 10^9.
        let mut tail = total / EVEN_STEPS as u64;
        while tail > 0 && thresholds.len() + 2 < STEPS_MAX {
            thresholds.push(total - tail);
            tail = tail * 9 / 16;
        }
        thresholds.push(total.saturating_sub(1));
        let mut next = thresholds.into_iter().peekable();
        let (mut steps, mut seen) = (Vec::new(), 0);
        for one in self.0.iter_recorded() {
            seen += one.count_at_value();
            if next.peek().is_some_and(|threshold| seen > *threshold) {
                steps.push((one.value_iterated_to(), seen as f64 / total as f64));
                while next.next_if(|threshold| seen > *threshold).is_some() {}
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::{ERROR_MAX, Latencies, STEPS_MAX};

    #[test]
    fn values_are_told_at_most_that_much_too_large() {
        let mut value = 1;
        while value < 3_600_000_000_000 {
            let mut latencies = Latencies::new();
            latencies.record(value);
            let told = latencies.counts()[0].0;
            assert!(told >= value, "{value} became {told}");
            let excess = (told - value) as f64 / value as f64;
            assert!(excess <= ERROR_MAX, "{value} became {told}: {excess}");
            value += value / 37 + 1;
        }
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut latencies = Latencies::new();
        (1..=100_000).for_each(|value| latencies.record(value));
        let told = latencies.percentiles().unwrap();
        for (told, right) in [(told.p50, 50_000), (told.p99, 99_000), (told.p99_9, 99_900)] {
            let excess = told as f64 / f64::from(right) - 1.0;
            assert!((0.0..=ERROR_MAX).contains(&excess), "{told} for {right}");
        }
    }

    #[test]
    fn nothing_recorded_has_no_percentiles() {
        assert!(Latencies::new().percentiles().is_none());
        assert!(Latencies::new().steps().is_empty());
    }

    #[test]
    fn steps_are_few_rise_and_end_with_the_slowest() {
        for count in [1, 3, 250, 1_000_000] {
            let mut latencies = Latencies::new();
            for index in 0..count {
                latencies.record(1000 + crate::mix::mix(index) % 10_000_000);
            }
            latencies.record(1 << 35);
            let steps = latencies.steps();
            assert!(steps.len() <= STEPS_MAX, "{} steps of {count}", steps.len());
            assert!(steps.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1));
            assert_eq!(steps.last().unwrap().1, 1.0);
            assert!(steps.last().unwrap().0 >= 1 << 35);
            let median = steps.iter().find(|step| step.1 >= 0.5).unwrap().0;
            assert!(median.abs_diff(latencies.percentiles().unwrap().p50) <= 100_000);
        }
    }

    #[test]
    fn counts_of_processes_add_up() {
        let (mut one, mut two) = (Latencies::new(), Latencies::new());
        one.record(500);
        two.record(500);
        two.record(70_000);
        one.add(&two.counts()).unwrap();
        assert_eq!(one.counts().iter().map(|(_, count)| count).sum::<u64>(), 3);
        assert!(one.add(&vec![(u64::MAX, 1)]).is_err());
    }
}
