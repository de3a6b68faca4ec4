// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a replay in virtual time came to.

use hdrhistogram::Histogram;
use terrace_core::Prices;

use super::{Story, Traffic};

/// What came of one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timed {
    /// From the first request to the last answer.
    pub makespan_s: f64,
    /// Requests that were answered.
    pub requests: u64,
    /// How long reads took.
    pub reads: Latencies,
    /// How long writes took.
    pub writes: Latencies,
    /// For each tier, in order of preference.
    pub tiers: Vec<TierTimed>,
    /// Bytes that migrations copied.
    pub migrated_bytes: u64,
    /// Migrations that were carried out.
    pub migrations: u64,
    /// Actions that were asked for, and how many rounds it was asked.
    pub actions: u64,
    /// See [`Timed::actions`].
    pub rounds: u64,
    /// How actions ended, by word, in alphabetical order.
    pub outcomes: Vec<(String, u64)>,
    /// Energy of all tiers.
    pub joules: f64,
    /// Energy times makespan.
    pub edp_js: f64,
    /// What the providers of all tiers charge, by their prices.
    pub cost: f64,
    /// Requests that the page cache answered.
    pub cached_requests: u64,
    /// Of all actions, in their order.
    pub action_hash: u64,
    /// What each tier held, at even intervals: seconds, and bytes by tier.
    pub fill: Vec<(f64, Vec<u64>)>,
    /// What each tier read and wrote over time.
    pub traffic: Traffic,
    /// What was done with each of [`super::TimedOptions::followed`].
    pub stories: Vec<Story>,
}

/// Times from request to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_s: f64,
    /// Half of them took no longer; to 0.1 %.
    pub p50_s: f64,
    /// 99 of 100 took no longer; to 0.1 %.
    pub p99_s: f64,
}

/// What came of one tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierTimed {
    /// Its name.
    pub name: String,
    /// Requests to read that it served, and their bytes.
    pub reads: u64,
    /// See [`TierTimed::reads`].
    pub read_bytes: u64,
    /// Requests to write that it served, and their bytes.
    pub writes: u64,
    /// See [`TierTimed::writes`].
    pub written_bytes: u64,
    /// Bytes that migrations brought, and took away.
    pub moved_in_bytes: u64,
    /// See [`TierTimed::moved_in_bytes`].
    pub moved_out_bytes: u64,
    /// Time for which its servers worked, divided by how many they are.
    pub busy_s: f64,
    /// Energy.
    pub joules: f64,
    /// Most that it held.
    pub most_bytes: u64,
    /// What its provider charges for, …
    pub usage: Usage,
    /// … and how much, by the prices of the tier.
    pub cost: f64,
}

/// What the provider of a tier charges for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Requests that write, those of migrations among them: to a bucket as its backend makes them, to others
    /// as applications do, and of migrations pieces of 256 KiB.
    pub write_requests: u64,
    /// Requests that read, likewise.
    pub read_requests: u64,
    /// Requests that delete, which have no price.
    pub delete_requests: u64,
    /// Bytes that requests read, as many as they take there.
    pub out_bytes: u64,
    /// Bytes that primaries and copies take, times the seconds for which they were stored.
    pub stored_byte_s: f64,
}

impl Usage {
    /// What that costs.
    pub fn cost(&self, prices: &Prices) -> f64 {
        prices.writes(self.write_requests as f64)
            + prices.reads(self.read_requests as f64, self.out_bytes as f64)
            + prices.storing(self.stored_byte_s)
    }
}

/// Points of a course over time: when there are so many, every second is left out.
const POINTS_MAX: usize = 512;

/// What each tier holds over time.
#[derive(Debug)]
pub(super) struct Course {
    points: Vec<(f64, Vec<u64>)>,
    every_s: f64,
}

impl Course {
    pub(super) fn new() -> Self {
        Self { points: Vec::new(), every_s: 1e-3 }
    }

    pub(super) fn note(&mut self, now_s: f64, held: impl Iterator<Item = u64>) {
        if self.points.last().is_some_and(|(last_s, _)| now_s < last_s + self.every_s) {
            return;
        }
        self.points.push((now_s, held.collect()));
        if self.points.len() >= POINTS_MAX {
            self.every_s *= 2.0;
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    pub(super) fn into_points(self) -> Vec<(f64, Vec<u64>)> {
        self.points
    }
}

/// Latencies as they come.
#[derive(Debug)]
pub(super) struct Times {
    histogram: Histogram<u64>,
    sum_ns: f64,
}

/// Significant digits of percentiles.
const DIGITS: u8 = 3;

impl Times {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new(DIGITS).expect("it takes up to 5 digits");
        Self { histogram, sum_ns: 0.0 }
    }

    pub(super) fn note(&mut self, ns: u64) {
        // It takes everything since it may grow.
        let _ = self.histogram.record(ns);
        self.sum_ns += ns as f64;
    }

    pub(super) fn latencies(&self) -> Latencies {
        let count = self.histogram.len();
        let seconds = |ns: u64| ns as f64 * 1e-9;
        Latencies {
            count,
            mean_s: if count == 0 { 0.0 } else { self.sum_ns * 1e-9 / count as f64 },
            p50_s: seconds(self.histogram.value_at_quantile(0.5)),
            p99_s: seconds(self.histogram.value_at_quantile(0.99)),
        }
    }
}
