// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a measurement met what it has to reach.

use serde::Serialize;

use crate::Bound;

/// Whether a bar was met: only when the whole 95 % bound meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
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
    pub fn at_most(bound: &Bound, limit: f64) -> Self {
        match bound {
            bound if bound.high95 <= limit => Verdict::Met,
            bound if bound.low95 > limit => Verdict::Missed,
            _ => Verdict::NotResolved,
        }
    }

    /// For a bar that is a lower limit.
    pub fn at_least(bound: &Bound, limit: f64) -> Self {
        match bound {
            bound if bound.low95 >= limit => Verdict::Met,
            bound if bound.high95 < limit => Verdict::Missed,
            _ => Verdict::NotResolved,
        }
    }

    /// What several come to: the worst of them, and met where there is none.
    pub fn of_all(verdicts: &[Self]) -> Self {
        let from_the_worst = [Verdict::Missed, Verdict::NotRun, Verdict::NotResolved];
        let worst = from_the_worst.into_iter().find(|worst| verdicts.contains(worst));
        worst.unwrap_or(Verdict::Met)
    }

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::NotResolved => "not resolved",
            Verdict::NotRun => "not run",
        }
    }
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
