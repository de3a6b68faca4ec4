// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the runs with what was asked for.

use terrace_core::units::show_bytes;
use terrace_measure::{Ratio, compare, gather};

use super::blocks::{BATCH, Series};
use super::plan::FIXED;
use super::report::{Finding, RunReport, Verdict};

const TIME_RATIO_MAX: f64 = 1.05;
const ROOM_SHARE_MAX: f64 = 0.25;
const DEDUCED_RATIO_MAX: f64 = 1.5;
const GATE_RATIO_MAX: f64 = 1.02;
const REREAD_RATIO_MIN: f64 = 2.0;

/// All verdicts that the runs allow; a bar whose runs are missing is left out.
pub(crate) fn verdicts(runs: &[RunReport], blocks: &[Series]) -> Vec<Verdict> {
    let run = |id: &str| runs.iter().find(|run| run.id == id && run.skipped.is_none());
    let mut list = Vec::new();
    if let (Some(fast), Some(fixed)) = (run("fast"), best_fixed(runs, blocks)) {
        list.extend(writing(fixed, fast, blocks));
        list.push(room(fixed, fast));
        if let Some(deduced) = run("write-buffer-deduced") {
            list.extend(writing(deduced, fast, blocks));
            list.push(deduced_room(deduced, fixed));
        }
    }
    for (prefix, what) in [("", ", as in the study"), ("wide-", "")] {
        let of = |id: &str| run(&format!("{prefix}{id}"));
        if let Some(pinned) = of("pinned") {
            list.extend(of("lru-off").map(|off| slowdown(off, pinned, what)));
            list.extend(of("lru-on").map(|on| gate(on, pinned)));
        }
    }
    if let (Some(pinned), Some(lru)) = (run("reread-pinned"), run("reread-lru")) {
        list.push(reread(lru, pinned));
    }
    list
}

/// The fixed timeout with the least room among those that do not slow the application down.
fn best_fixed<'a>(runs: &'a [RunReport], blocks: &[Series]) -> Option<&'a RunReport> {
    let fast = runs.iter().find(|run| run.id == "fast")?;
    let slows_down = |run: &RunReport| {
        writing(run, fast, blocks).is_some_and(|verdict| verdict.finding == Finding::Missed)
    };
    runs.iter()
        .filter(|run| run.id.starts_with(FIXED) && blocks.iter().any(|series| series.id == run.id))
        .min_by_key(|run| (slows_down(run), run.fast_bytes_max))
}

/// Times of writing are compared in interleaved blocks.
fn writing(run: &RunReport, fast: &RunReport, blocks: &[Series]) -> Option<Verdict> {
    let series = |id: &str| blocks.iter().find(|series| series.id == id);
    let (of, with) = (series(&run.id)?, series(&fast.id)?);
    let ratio = compare(&of.block_s, &with.block_s);
    let finding = at_most(ratio, TIME_RATIO_MAX);
    let meaning = match finding {
        Finding::Met => "the application does not wait for the slow tier",
        Finding::Missed => "the application waits for the slow tier",
        Finding::Unresolved => "something else keeps this machine too busy to tell",
    };
    Some(Verdict {
        bar: format!(
            "{}: writes in at most {TIME_RATIO_MAX} × the time of {}",
            run.name, fast.name
        ),
        finding,
        ratio: ratio.median,
        bounds: Some(ratio),
        words: format!("{} {meaning}", show(ratio, "interleaved blocks")),
    })
}

fn room(run: &RunReport, fast: &RunReport) -> Verdict {
    let share = run.fast_bytes_max as f64 / fast.fast_bytes_max as f64;
    Verdict {
        bar: format!(
            "{}: needs at most {:.0} % of the room of {}",
            run.name,
            ROOM_SHARE_MAX * 100.0,
            fast.name,
        ),
        finding: found(share <= ROOM_SHARE_MAX),
        ratio: share,
        bounds: None,
        words: format!(
            "{:.1} % at the peak ({} of {})",
            share * 100.0,
            show_bytes(run.fast_bytes_max),
            show_bytes(fast.fast_bytes_max),
        ),
    }
}

fn deduced_room(deduced: &RunReport, fixed: &RunReport) -> Verdict {
    let ratio = deduced.fast_bytes_max as f64 / fixed.fast_bytes_max as f64;
    Verdict {
        bar: format!(
            "{}: needs at most {DEDUCED_RATIO_MAX} × the room of the best fixed timeout",
            deduced.name
        ),
        finding: found(ratio <= DEDUCED_RATIO_MAX),
        ratio,
        bounds: None,
        words: format!(
            "{ratio:.2} × at the peak ({} against {} with {})",
            show_bytes(deduced.fast_bytes_max),
            show_bytes(fixed.fast_bytes_max),
            fixed.name,
        ),
    }
}

/// What the gate would have prevented happens while the application reads, so that is compared,
/// batch by batch.
fn slowdown(off: &RunReport, pinned: &RunReport, what: &str) -> Verdict {
    let batches = |run: &RunReport| {
        let checkpoints = run.read_each_s.len().max(1);
        gather(&run.read_each_s, checkpoints.div_ceil(BATCH))
    };
    let ratio = compare(&batches(off), &batches(pinned));
    let finding = match at_most(ratio, 1.0) {
        Finding::Met => Finding::Missed,
        Finding::Missed => Finding::Met,
        Finding::Unresolved => Finding::Unresolved,
    };
    Verdict {
        bar: format!("{}: reads slower than {}{what}", off.name, pinned.name),
        finding,
        ratio: ratio.median,
        bounds: Some(ratio),
        words: format!(
            "{} until all is at rest {:.2} × ({:.2} s against {:.2} s): it moved {} in {} \
             migrations that nobody needed",
            show(ratio, "batches"),
            off.total_s() / pinned.total_s(),
            off.total_s(),
            pinned.total_s(),
            show_bytes(off.migrated_bytes),
            off.moves,
        ),
    }
}

/// Both run at the same time, so their checkpoints are compared pair by pair.
fn gate(on: &RunReport, pinned: &RunReport) -> Verdict {
    let each_s = |run: &RunReport| -> Vec<_> {
        run.write_each_s.iter().zip(&run.read_each_s).map(|(write, read)| write + read).collect()
    };
    let ratio = compare(&each_s(on), &each_s(pinned));
    Verdict {
        bar: format!(
            "{}: writes and reads in at most {GATE_RATIO_MAX} × the time of {}",
            on.name, pinned.name
        ),
        finding: at_most(ratio, GATE_RATIO_MAX),
        ratio: ratio.median,
        bounds: Some(ratio),
        words: format!(
            "{} {:.2} s against {:.2} s, {} migrations",
            show(ratio, "checkpoints"),
            on.application_s(),
            pinned.application_s(),
            on.moves,
        ),
    }
}

fn at_most(ratio: Ratio, limit: f64) -> Finding {
    if ratio.high95 <= limit {
        Finding::Met
    } else if ratio.low95 > limit {
        Finding::Missed
    } else {
        Finding::Unresolved
    }
}

fn show(ratio: Ratio, what: &str) -> String {
    format!(
        "{:.3} × (95 %: {:.3} to {:.3}, {} {what});",
        ratio.median, ratio.low95, ratio.high95, ratio.pairs
    )
}

fn reread(lru: &RunReport, pinned: &RunReport) -> Verdict {
    let ratio = pinned.read_s / lru.read_s;
    Verdict {
        bar: format!(
            "{}: reads at least {REREAD_RATIO_MIN} × faster than {}, by migrating",
            lru.name, pinned.name,
        ),
        finding: found(ratio >= REREAD_RATIO_MIN && lru.moves > 0),
        ratio,
        bounds: None,
        words: format!(
            "{ratio:.1} × faster ({:.2} s against {:.2} s) with {} migrations",
            lru.read_s, pinned.read_s, lru.moves,
        ),
    }
}

fn found(is_met: bool) -> Finding {
    if is_met { Finding::Met } else { Finding::Missed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, write_s: f64, read_s: f64, fast_bytes_max: u64) -> RunReport {
        let name = id.to_owned();
        let id = id.to_owned();
        RunReport {
            id,
            name,
            write_s,
            read_s,
            fast_bytes_max,
            moves: 1,
            write_each_s: vec![write_s / 100.0; 100],
            read_each_s: vec![read_s / 100.0; 100],
            ..RunReport::default()
        }
    }

    fn series(id: &str, seconds: f64) -> Series {
        Series { id: id.into(), block_s: vec![seconds; 20] }
    }

    #[test]
    fn each_bar_is_judged_by_its_limit() {
        let judged = |factor: f64| {
            let bytes = |share: f64| (1000.0 * share * factor) as u64;
            let runs = [
                run("fast", 2.0, 0.1, 1000),
                run("write-buffer-fixed-1", 2.0, 1.0, bytes(0.24)),
                run("write-buffer-deduced", 2.0, 1.0, bytes(0.34 * factor)),
                run("pinned", 10.0, 2.0, 0),
                run("lru-on", 10.0 * factor, 2.1 * factor, 0),
                run("lru-off", 10.5, 2.1 / factor, 0),
                run("reread-pinned", 1.0, 2.1, 0),
                run("reread-lru", 1.0, factor, 0),
            ];
            let blocks = [
                series("fast", 1.0),
                series("write-buffer-fixed-1", 1.04 * factor),
                series("write-buffer-deduced", 1.04 * factor),
            ];
            verdicts(&runs, &blocks)
        };
        let met = judged(1.0);
        assert_eq!(met.len(), 7);
        assert!(met.iter().all(|verdict| verdict.finding == Finding::Met), "{met:?}");
        let missed = judged(1.1);
        assert!(missed.iter().all(|verdict| verdict.finding == Finding::Missed), "{missed:?}");
    }

    #[test]
    fn blocks_that_differ_too_much_resolve_nothing() {
        let fast = run("fast", 2.0, 0.1, 1000);
        let fixed = run("write-buffer-fixed-1", 2.0, 1.0, 100);
        let mut noisy = series(&fixed.id, 1.0);
        (0..10).for_each(|block| noisy.block_s[2 * block] = 1.3);
        let verdict = writing(&fixed, &fast, &[series("fast", 1.0), noisy]);
        assert_eq!(verdict.expect("both are there").finding, Finding::Unresolved);
    }

    #[test]
    fn without_migrations_a_fast_reread_does_not_count() {
        let mut lru = run("reread-lru", 1.0, 0.1, 0);
        lru.moves = 0;
        assert_eq!(reread(&lru, &run("reread-pinned", 1.0, 2.0, 0)).finding, Finding::Missed);
    }

    #[test]
    fn the_best_fixed_timeout_is_the_smallest_that_does_not_slow_down() {
        let runs = [
            run("fast", 2.0, 0.1, 1000),
            run("write-buffer-fixed-1", 3.0, 1.0, 50),
            run("write-buffer-fixed-2", 2.0, 1.0, 100),
            run("write-buffer-fixed-3", 2.0, 1.0, 300),
        ];
        let blocks = [
            series("fast", 1.0),
            series("write-buffer-fixed-1", 1.5),
            series("write-buffer-fixed-2", 1.0),
            series("write-buffer-fixed-3", 1.0),
        ];
        let best = best_fixed(&runs, &blocks).expect("there is one");
        assert_eq!(best.id, "write-buffer-fixed-2");
    }
}
