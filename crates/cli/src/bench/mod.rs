// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benchmarks: what the stack costs beside what lies below it, in turns and in one process.

pub(crate) mod amr;
mod blocks;
mod compared;
pub(crate) mod files;
pub(crate) mod micro;
pub(crate) mod migrate;
pub(crate) mod mount;
pub(crate) mod net;
pub(crate) mod overhead;
mod place;
pub(crate) mod prediction;
mod processes;
pub(crate) mod served;
pub(crate) mod size;
mod statistics;
pub(crate) mod study;
mod team;

pub(crate) use crate::demo::file_system;
pub(crate) use compared::Compared;
pub(crate) use place::{fast_place, slow_place};
pub(crate) use statistics::Bound;

use serde::Serialize;

/// Whether a bar was met: only when the whole 95 % bound meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Verdict {
    /// The bound lies within the bar.
    #[serde(rename = "met")]
    Met,
    /// The bound lies beyond the bar.
    #[serde(rename = "missed")]
    Missed,
    /// The bar lies within the bound: noise hides the answer.
    #[serde(rename = "not resolved")]
    NotResolved,
    /// What it takes is not installed.
    #[serde(rename = "not run")]
    NotRun,
}

impl Verdict {
    /// For a bar that is an upper limit.
    pub(crate) fn at_most(bound: &Bound, limit: f64) -> Self {
        match bound {
            bound if bound.high95 <= limit => Verdict::Met,
            bound if bound.low95 > limit => Verdict::Missed,
            _ => Verdict::NotResolved,
        }
    }

    /// For a bar that is a lower limit.
    pub(crate) fn at_least(bound: &Bound, limit: f64) -> Self {
        match bound {
            bound if bound.low95 >= limit => Verdict::Met,
            bound if bound.high95 < limit => Verdict::Missed,
            _ => Verdict::NotResolved,
        }
    }

    /// What several come to: the worst of them, and met where there is none.
    pub(crate) fn of_all(verdicts: &[Self]) -> Self {
        let from_the_worst = [Verdict::Missed, Verdict::NotRun, Verdict::NotResolved];
        let worst = from_the_worst.into_iter().find(|worst| verdicts.contains(worst));
        worst.unwrap_or(Verdict::Met)
    }

    /// For people.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::NotResolved => "not resolved",
            Verdict::NotRun => "not run",
        }
    }
}

/// CPU time of the whole process so far, user and system, in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A moment on the clock that all processes of the machine share.
pub(crate) fn shared_now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_met_where_each_is() {
        use Verdict::{Met, Missed, NotResolved, NotRun};
        assert_eq!(Verdict::of_all(&[Met, Met]), Met);
        assert_eq!(Verdict::of_all(&[Met, NotResolved]), NotResolved);
        assert_eq!(Verdict::of_all(&[NotResolved, NotRun, Met]), NotRun);
        assert_eq!(Verdict::of_all(&[NotRun, Missed, Met]), Missed);
    }
}
