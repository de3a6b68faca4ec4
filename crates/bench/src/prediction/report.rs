// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was foreseen beside what came.

use serde::Serialize;
use terrace_replay::Timed;

use terrace_measure::{Bound, Verdict, median};

/// A workload under a policy over a pair of tiers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) pair: &'static str,
    /// Whether nothing of the pair is simulated.
    pub(crate) is_real: bool,
    pub(crate) workload: &'static str,
    pub(crate) policy: &'static str,
    /// With the figures that were measured before each run.
    pub(crate) foreseen: Vec<Outcome>,
    /// In the order of the runs.
    pub(crate) live: Vec<Outcome>,
}

/// What a run came to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) makespan_s: f64,
    /// What a request took, in the mean.
    pub(crate) latency_s: f64,
    /// What a read took, and a write, in the mean.
    pub(crate) read_s: f64,
    pub(crate) write_s: f64,
    /// What applications read and wrote, on the fast tier and on the slow one.
    pub(crate) served_bytes: Vec<u64>,
    pub(crate) migrated_bytes: u64,
}

/// A bar, and what there is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    /// 95 % bound, where there is one.
    pub(crate) low95: Option<f64>,
    pub(crate) high95: Option<f64>,
    pub(crate) bar: &'static str,
    pub(crate) verdict: Verdict,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) bars: Vec<Bar>,
    /// Pairs of policies on the same workload and tiers whose live runs differ by more than their
    /// spread, and pairs that do not.
    pub(crate) ordered: usize,
    pub(crate) ties: usize,
}

impl Row {
    pub(super) fn new(
        (pair, is_real): (&'static str, bool),
        workload: &'static str,
        policy: &'static str,
    ) -> Self {
        let (foreseen, live) = (Vec::new(), Vec::new());
        Self { pair, is_real, workload, policy, foreseen, live }
    }

    /// Notes a run with what a replay predicted of it.
    pub(super) fn note(&mut self, timed: &Timed, played: Outcome) {
        let served = |tier: &terrace_replay::TierTimed| tier.read_bytes + tier.written_bytes;
        let requests = timed.reads.count + timed.writes.count;
        let waited_s = timed.reads.mean_s * timed.reads.count as f64
            + timed.writes.mean_s * timed.writes.count as f64;
        self.foreseen.push(Outcome {
            makespan_s: timed.makespan_s,
            latency_s: waited_s / requests.max(1) as f64,
            read_s: timed.reads.mean_s,
            write_s: timed.writes.mean_s,
            served_bytes: timed.tiers.iter().map(served).collect(),
            migrated_bytes: timed.migrated_bytes,
        });
        self.live.push(played);
    }

    /// The makespans of the live runs, as they lie.
    fn makespans(&self) -> Vec<f64> {
        let mut all: Vec<_> = self.live.iter().map(|run| run.makespan_s).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Median, shortest and longest makespan of the live runs.
    pub(crate) fn live_s(&self) -> (f64, f64, f64) {
        let all = self.makespans();
        let end = |one: Option<&f64>| one.copied().unwrap_or(0.0);
        (median(&mut all.clone()), end(all.first()), end(all.last()))
    }

    /// How far the live runs are apart, as a share of their median.
    pub(crate) fn spread(&self) -> f64 {
        let (middle, shortest, longest) = self.live_s();
        (longest - shortest) / middle
    }

    /// The median of the makespans that were foreseen.
    pub(crate) fn foreseen_s(&self) -> f64 {
        middle(&self.foreseen, |run| run.makespan_s)
    }

    /// How far the foreseen makespan is from the live one, as a share of it.
    pub(crate) fn error(&self) -> f64 {
        let (live_s, ..) = self.live_s();
        (self.foreseen_s() - live_s) / live_s
    }

    /// The share of an application's bytes that the fast tier served: foreseen, and live.
    pub(crate) fn fast_share(&self) -> (f64, f64) {
        let share = |run: &Outcome| {
            let all: u64 = run.served_bytes.iter().sum();
            run.served_bytes[0] as f64 / all.max(1) as f64
        };
        self.both(share)
    }

    /// What a request took in the mean: foreseen, and live.
    pub(crate) fn latency_s(&self) -> (f64, f64) {
        self.both(|run| run.latency_s)
    }

    /// Bytes that migrations wrote: foreseen, and live.
    pub(crate) fn migrated_bytes(&self) -> (f64, f64) {
        self.both(|run| run.migrated_bytes as f64)
    }

    /// How far foreseen migrations are from the live ones, as a share of them; of the application's
    /// bytes, where nothing moved.
    fn migrated_error(&self) -> f64 {
        let (foreseen, live) = self.migrated_bytes();
        let all = middle(&self.foreseen, |run| run.served_bytes.iter().sum::<u64>() as f64);
        let of = if live > 0.0 { live } else { all };
        (foreseen - live).abs() / of
    }

    /// Medians: foreseen, and live.
    fn both(&self, of: impl Fn(&Outcome) -> f64) -> (f64, f64) {
        (middle(&self.foreseen, &of), middle(&self.live, &of))
    }

    pub(super) fn title(&self) -> String {
        format!("{} {}", self.workload, self.policy)
    }
}

/// The median of what runs came to.
fn middle(runs: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    median(&mut runs.iter().map(of).collect::<Vec<_>>())
}

/// Medians foreseen within this share of the live ones, …
const MEDIAN_MAX: f64 = 0.1;

/// … and every one within this and the spread of the live runs.
const WORST_MAX: f64 = 0.2;

/// Bytes that applications read and write on each tier, as a share of all.
const SERVED_MAX: f64 = 0.01;

/// Bytes of migrations.
const MIGRATED_MAX: f64 = 0.05;

/// Order of policies.
const TAU_MIN: f64 = 0.8;

impl Report {
    pub(super) fn new(rows: Vec<Row>) -> Self {
        if rows.is_empty() {
            return Self { rows, bars: Vec::new(), ordered: 0, ties: 0 };
        }
        let of = |of: &dyn Fn(&Row) -> f64| rows.iter().map(of).collect::<Vec<_>>();
        let worst = |values: &[f64]| values.iter().copied().fold(f64::MIN, f64::max);
        let bounded = |what, values: &[f64], limit, bar| {
            let bound = Bound::of(values);
            Bar {
                what,
                value: bound.median,
                low95: Some(bound.low95),
                high95: Some(bound.high95),
                bar,
                verdict: Verdict::at_most(&bound, limit),
            }
        };
        let single = |what, value, bar, is_met| {
            let verdict = if is_met { Verdict::Met } else { Verdict::Missed };
            Bar { what, value, low95: None, high95: None, bar, verdict }
        };
        let errors = of(&|row| row.error().abs());
        let beyond = worst(&of(&|row| row.error().abs() - row.spread()));
        let served = of(&|row| (row.fast_share().0 - row.fast_share().1).abs());
        let migrated = of(&Row::migrated_error);
        let (tau, ordered, ties) = order(&rows);
        let mut bars = vec![
            bounded("error of the makespan, median", &errors, MEDIAN_MAX, "at most 10 %"),
            single(
                "error of the makespan beyond the spread, worst",
                beyond,
                "at most 20 %",
                beyond <= WORST_MAX,
            ),
            bounded(
                "bytes by tier, error of the share, median",
                &served,
                SERVED_MAX,
                "at most 1 %",
            ),
            bounded("migrated bytes, error, median", &migrated, MIGRATED_MAX, "at most 5 %"),
        ];
        // Where all are ties there is no order to be foreseen.
        let of_order = |tau: f64| {
            single("order of policies, Kendall's tau", tau, "at least 0.8", tau >= TAU_MIN)
        };
        bars.extend(tau.map(of_order));
        Self { rows, bars, ordered, ties }
    }
}

/// Kendall's tau, if there is an order, over the pairs of policies on the same workload and tiers whose live runs do not
/// overlap; how many pairs these are, and how many the others.
fn order(rows: &[Row]) -> (Option<f64>, usize, usize) {
    let (mut agreeing, mut opposed, mut ties) = (0, 0, 0);
    for (index, one) in rows.iter().enumerate() {
        let same = |other: &&Row| other.pair == one.pair && other.workload == one.workload;
        for other in rows[index + 1..].iter().filter(same) {
            let ((_, one_first, one_last), (_, other_first, other_last)) =
                (one.live_s(), other.live_s());
            let live_is_less = match () {
                () if one_last < other_first => true,
                () if other_last < one_first => false,
                () => {
                    ties += 1;
                    continue;
                }
            };
            let less = one.foreseen_s().total_cmp(&other.foreseen_s());
            match (less.is_eq(), less.is_lt() == live_is_less) {
                (true, _) => {}
                (false, true) => agreeing += 1,
                (false, false) => opposed += 1,
            }
        }
    }
    let ordered = agreeing + opposed;
    let tau = (ordered > 0).then(|| (agreeing as f64 - opposed as f64) / ordered as f64);
    (tau, ordered, ties)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(makespan_s: f64, fast: u64, migrated_bytes: u64) -> Outcome {
        let served_bytes = vec![fast, 100 - fast];
        let (latency_s, read_s, write_s) = (0.0, 0.0, 0.0);
        Outcome { makespan_s, latency_s, read_s, write_s, served_bytes, migrated_bytes }
    }

    fn row(policy: &'static str, foreseen: Outcome, live: &[f64]) -> Row {
        let (fast, moved) = (foreseen.served_bytes[0], foreseen.migrated_bytes);
        let live = live.iter().map(|makespan_s| run(*makespan_s, fast, moved)).collect();
        Row { pair: "a/b", is_real: true, workload: "w", policy, foreseen: vec![foreseen], live }
    }

    #[test]
    fn what_is_foreseen_exactly_meets_every_bar() {
        let rows = vec![
            row("slow", run(10.0, 0, 0), &[10.0, 10.0, 10.0]),
            row("fast", run(5.0, 80, 50), &[5.0, 5.0, 5.0]),
        ];
        let report = Report::new(rows);
        assert_eq!((report.ordered, report.ties), (1, 0));
        assert!(report.bars.iter().all(|bar| bar.verdict == Verdict::Met), "{report:?}");
    }

    #[test]
    fn errors_are_shares_of_what_came_and_the_spread_excuses_the_worst() {
        let one = row("one", run(13.0, 50, 10), &[9.0, 10.0, 12.0]);
        assert!((one.error() - 0.3).abs() < 1e-9 && (one.spread() - 0.3).abs() < 1e-9);
        let mut other = row("other", run(10.0, 50, 0), &[10.0]);
        other.live[0] = run(20.0, 20, 0);
        assert!((other.error() + 0.5).abs() < 1e-9);
        assert_eq!(other.fast_share(), (0.5, 0.2));
        let report = Report::new(vec![one, other]);
        let verdict = |start: &str| {
            let found = report.bars.iter().find(|bar| bar.what.starts_with(start));
            found.map(|bar| (bar.value, bar.verdict)).expect("there is such a bar")
        };
        assert_eq!(verdict("error of the makespan beyond"), (0.5, Verdict::Missed));
        assert_eq!(verdict("migrated"), (0.0, Verdict::Met));
    }

    #[test]
    fn what_moved_in_no_live_run_is_a_share_of_all_bytes() {
        let mut one = row("one", run(10.0, 0, 30), &[10.0]);
        one.live[0].migrated_bytes = 0;
        assert_eq!(one.migrated_error(), 0.3);
    }

    #[test]
    fn order_counts_only_where_live_runs_do_not_overlap() {
        let rows = [
            row("a", run(3.0, 0, 0), &[1.0, 2.0]),
            row("b", run(2.0, 0, 0), &[3.0, 4.0]),
            row("c", run(9.0, 0, 0), &[3.5, 5.0]),
        ];
        // a before b is foreseen the other way round, a before c as it came; b and c overlap.
        assert_eq!(order(&rows), (Some(0.0), 2, 1));
        let mut apart = rows.to_vec();
        apart[1].workload = "other";
        assert_eq!(order(&apart), (Some(1.0), 1, 0));
        assert_eq!(order(&rows[1..]), (None, 0, 1));
    }
}
