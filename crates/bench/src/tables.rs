// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was measured, for people.

use terrace_console::table::Table;
use terrace_measure::compared::Compared;
use terrace_measure::{Bound, Verdict};

use crate::amr::AmrRow;
use crate::micro::{Kind, Row};
use crate::study::StudyRow;
use crate::{files, migrate, mount, net, overhead, prediction, served, size};

/// What the stack adds to each case.
pub fn overhead(cases: &[overhead::Case]) -> Table {
    let mut table = Table::new(&[1, 2, 3, 4, 5]);
    let heading = [
        "case",
        "raw ns",
        "stack ns",
        "more ns (95 %)",
        "ratio (95 %)",
        "cpu ns",
        "bar",
        "verdict",
    ];
    table.heading(heading);
    for case in cases {
        table.row([
            case.case.into(),
            format!("{:.0}", case.raw_ns),
            format!("{:.0}", case.stack_ns),
            format!("{:.0} to {:.0}", case.low95_ns, case.high95_ns),
            format!("{:.3} ({:.3} to {:.3})", case.ratio, case.ratio_low95, case.ratio_high95),
            format!("{:.0}", case.cpu_ns_per_op),
            case.bar.into(),
            case.verdict.word().into(),
        ]);
    }
    table
}

/// What a store of many objects takes.
pub fn size(report: &size::Report) -> Table {
    let mut table = Table::new(&[1, 2, 3, 4]);
    table.heading(["step", "seconds", "per s", "memory MB", "B an object", "bar", "verdict"]);
    for row in &report.rows {
        table.row([
            row.step.into(),
            format!("{:.2}", row.seconds),
            format!("{:.0}", row.per_s),
            format!("{:.0}", row.memory_bytes as f64 / 1e6),
            format!("{:.0}", row.bytes_per_object),
            row.bar.clone(),
            row.verdict.map_or("", Verdict::word).into(),
        ]);
    }
    table
}

/// Rows over the network, beside what the network can do.
pub fn net(rows: &[net::Row]) -> Table {
    let mut table = Table::new(&[3, 4, 5, 6, 7]);
    let heading = [
        "row",
        "over",
        "level",
        "value",
        "yardstick",
        "95 %",
        "client us",
        "server us",
        "bar",
        "verdict",
    ];
    table.heading(heading);
    for row in rows {
        let compared = &row.compared;
        let yardstick = compared.yardstick.map_or_else(|| compared.yardstick_is.into(), short);
        table.row([
            compared.row.into(),
            row.transport.into(),
            row.level.into(),
            value(compared),
            yardstick,
            bounds(compared),
            format!("{:.2}", row.client_cpu_us_per_op),
            format!("{:.2}", row.server_cpu_us_per_op),
            compared.bar.clone(),
            compared.verdict.word().into(),
        ]);
    }
    table
}

/// Rows through mounts, beside the directory below.
pub fn mount(rows: &[mount::Row]) -> Table {
    let mut table = Table::new(&[2, 3, 4, 5, 6]);
    let heading =
        ["row", "mode", "value", "yardstick", "95 %", "daemon us", "its us", "bar", "verdict"];
    table.heading(heading);
    for row in rows {
        let compared = &row.compared;
        let yardstick = compared.yardstick.map(short).unwrap_or_default();
        table.row([
            compared.row.into(),
            row.mode.into(),
            value(compared),
            format!("{yardstick} {}", compared.yardstick_is),
            bounds(compared),
            format!("{:.1}", row.daemon_cpu_us_per_op),
            format!("{:.1}", row.yardstick_cpu_us_per_op),
            compared.bar.clone(),
            compared.verdict.word().into(),
        ]);
    }
    table
}

/// Remarks on rows, and on all of them together.
pub fn mount_notes(rows: &[mount::Row]) -> Vec<String> {
    let note = |row: &mount::Row| Some(format!("{}: {}", row.compared.row, row.note.as_ref()?));
    let mut lines: Vec<_> = rows.iter().filter_map(note).collect();
    let counted = [Verdict::Met, Verdict::Missed, Verdict::NotResolved, Verdict::NotRun];
    let counted = counted.map(|verdict| {
        let count = rows.iter().filter(|row| row.compared.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.word()))
    });
    let counted: Vec<_> = counted.into_iter().flatten().collect();
    lines.push(format!("all: {} ({})", mount::verdict(rows).word(), counted.join(", ")));
    lines
}

/// The figure of a row.
fn value(compared: &Compared) -> String {
    let value = compared.value.map(|value| format!("{} {}", short(value), compared.unit));
    value.unwrap_or_default()
}

/// Where it lies.
fn bounds(compared: &Compared) -> String {
    let bounds = compared.low95.zip(compared.high95);
    let text = |(low, high)| format!("{} to {} ({})", short(low), short(high), compared.bound_of);
    bounds.map(text).unwrap_or_default()
}

/// A row for each directory that was measured.
pub fn files(rows: &[files::Row]) -> Table {
    let mut table = Table::new(&[1, 3, 4, 5]);
    table.heading(["row", "processes", "at", "value", "first / this (95 %)", "daemon us"]);
    for row in rows {
        for (index, place) in row.places.iter().enumerate() {
            let is_first = index == 0;
            let times = place.first_times.map(|bound| {
                format!("{:.2} ({:.2} to {:.2})", bound.median, bound.low95, bound.high95)
            });
            table.row([
                if is_first { row.row.into() } else { String::new() },
                if is_first { row.processes.to_string() } else { String::new() },
                format!("{}{}", place.name, if place.daemons_forgot { ", forgot" } else { "" }),
                format!("{} {}", short(place.value), row.unit),
                times.unwrap_or_default(),
                place.daemon_cpu_us_per_op.map(|us| format!("{us:.1}")).unwrap_or_default(),
            ]);
        }
    }
    table
}

/// Thousands with a `k`.
fn short(number: f64) -> String {
    match number {
        number if number >= 1e3 => format!("{:.1}k", number / 1e3),
        number => format!("{number:.2}"),
    }
}

/// Single operations, beside what lies below the stack.
pub fn micro(rows: &[Row]) -> Table {
    let mut table = Table::new(&[1, 2, 4, 5, 6, 7, 8, 9, 10]);
    let heading = [
        "case",
        "threads",
        "batch",
        "level",
        "size",
        "operations/s (95 %)",
        "raw/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "cpu us",
        "bar",
        "verdict",
    ];
    table.heading(heading);
    for row in rows {
        table.row([
            format!("{} {}", row.kind.word(), row.case),
            row.threads.to_string(),
            row.batch.to_string(),
            row.level.into(),
            size_of(row.size_bytes),
            rate(row),
            format!("{:.0}", row.raw_ops_per_s),
            format!("{:.1}", row.mb_per_s),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            format!("{:.2}", row.p999_us),
            format!("{:.2}", row.cpu_us_per_op),
            row.bar_ops_per_s.map(|bar| format!("at least {bar:.0}/s")).unwrap_or_default(),
            row.verdict.map(Verdict::word).unwrap_or_default().into(),
        ]);
    }
    table
}

/// Single operations over servers, with several clients.
pub fn served(rows: &[served::Row]) -> Table {
    let mut table = Table::new(&[1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let heading = [
        "case",
        "servers",
        "processes",
        "clients",
        "threads",
        "batch",
        "level",
        "size",
        "operations/s (95 %)",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "client us",
        "server us",
        "times one (95 %)",
    ];
    table.heading(heading);
    for row in rows {
        let (low, high) = (row.ops_per_s_low95, row.ops_per_s_high95);
        let times = row.times_one_server.map(|bound| {
            format!("{:.2} ({:.2} to {:.2})", bound.median, bound.low95, bound.high95)
        });
        table.row([
            format!("{} {}", row.kind.word(), row.case),
            row.servers.to_string(),
            row.processes.to_string(),
            row.clients.to_string(),
            row.threads.to_string(),
            row.batch.to_string(),
            row.level.into(),
            size_of(row.size_bytes),
            format!("{:.0} ({low:.0} to {high:.0})", row.ops_per_s),
            format!("{:.1}", row.mb_per_s),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            format!("{:.2}", row.p999_us),
            format!("{:.2}", row.client_cpu_us_per_op),
            format!("{:.2}", row.server_cpu_us_per_op),
            times.unwrap_or_default(),
        ]);
    }
    table
}

/// What each server did, for rows with several.
pub fn servers(rows: &[served::Row]) -> Table {
    let mut table = Table::new(&[2, 3, 4, 5, 6]);
    let rows = rows.iter().filter(|row| row.servers > 1);
    let mut rows = rows.peekable();
    if rows.peek().is_some() {
        let heading = [
            "case",
            "server",
            "operations",
            "share",
            "cpu us",
            "received MB",
            "sent MB",
            "balance",
        ];
        table.heading(heading);
    }
    for row in rows {
        for server in &row.by_server {
            table.row([
                format!("{} {}", row.kind.word(), row.case),
                server.server.clone(),
                server.operations.to_string(),
                format!("{:.0} %", server.share * 100.0),
                server.cpu_us_per_op.map(|us| format!("{us:.2}")).unwrap_or_default(),
                format!("{:.1}", server.received_bytes as f64 / 1e6),
                format!("{:.1}", server.sent_bytes as f64 / 1e6),
                row.balance.map(|balance| format!("{balance:.2}")).unwrap_or_default(),
            ]);
        }
    }
    table
}

/// What was cut short, a line each.
pub fn served_early(rows: &[served::Row]) -> Vec<String> {
    let cut = rows.iter().filter(|row| row.ended_early > 0);
    cut.map(|row| early(row.kind, row.case, row.ended_early, row.repetitions)).collect()
}

/// What was cut short, a line each.
pub fn ended_early(rows: &[Row]) -> Vec<String> {
    let cut = rows.iter().filter(|row| row.ended_early + row.raw_ended_early > 0);
    cut.map(|row| {
        let stack = early(row.kind, row.case, row.ended_early, row.repetitions);
        format!("{stack}, raw {}", row.raw_ended_early)
    })
    .collect()
}

fn early(kind: Kind, case: &str, ended_early: usize, repetitions: usize) -> String {
    format!(
        "{} {case}: the bound on objects or bytes ended {ended_early} of {repetitions} repetitions early",
        kind.word()
    )
}

/// The workload with an adaptive mesh.
pub fn amr(rows: &[AmrRow]) -> Table {
    let mut table = Table::new(&[1, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let heading = [
        "case",
        "threads",
        "level",
        "operations/s (95 %)",
        "raw/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "cpu us",
        "waited ms/step (95 %)",
        "raw waited",
    ];
    table.heading(heading);
    let waited = |bound: Option<Bound>| {
        bound
            .map(|bound| format!("{:.2} ({:.2} to {:.2})", bound.median, bound.low95, bound.high95))
    };
    for AmrRow { row, waited_ms_per_step, raw_waited_ms_per_step, .. } in rows {
        table.row([
            row.case.into(),
            row.threads.to_string(),
            row.level.into(),
            rate(row),
            format!("{:.0}", row.raw_ops_per_s),
            format!("{:.1}", row.mb_per_s),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            format!("{:.2}", row.p999_us),
            format!("{:.2}", row.cpu_us_per_op),
            waited(*waited_ms_per_step).unwrap_or_default(),
            waited(*raw_waited_ms_per_step).unwrap_or_default(),
        ]);
    }
    table
}

/// Every run beside what was foreseen, then the bars.
pub fn prediction(report: &prediction::Report) -> Vec<String> {
    let mut table = Table::new(&[3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let heading = [
        "tiers",
        "workload",
        "policy",
        "live s (all runs)",
        "foreseen s",
        "error",
        "request us",
        "foreseen",
        "from fast",
        "foreseen",
        "moved MB",
        "foreseen",
    ];
    table.heading(heading);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    for row in &report.rows {
        let (middle, shortest, longest) = row.live_s();
        let ((fast_foreseen, fast), (moved_foreseen, moved)) =
            (row.fast_share(), row.migrated_bytes());
        let (latency_foreseen, latency) = row.latency_s();
        table.row([
            row.pair.into(),
            row.workload.into(),
            row.policy.into(),
            format!("{middle:.3} ({shortest:.3} to {longest:.3})"),
            format!("{:.3}", row.foreseen_s()),
            format!("{:+.1} %", row.error() * 100.0),
            format!("{:.1}", latency * 1e6),
            format!("{:.1}", latency_foreseen * 1e6),
            percent(fast),
            percent(fast_foreseen),
            format!("{:.1}", moved / 1e6),
            format!("{:.1}", moved_foreseen / 1e6),
        ]);
    }
    let mut lines = table.lines();
    lines.push(String::new());
    let mut bars = Table::new(&[1]);
    bars.heading(["what", "value (95 %)", "bar", "verdict"]);
    for bar in &report.bars {
        let is_order = bar.bar.starts_with("at least");
        let value = |value: f64| if is_order { format!("{value:.2}") } else { percent(value) };
        let bound = bar.low95.zip(bar.high95);
        let bound = bound.map(|(low, high)| format!(" ({} to {})", value(low), value(high)));
        bars.row([
            bar.what.into(),
            format!("{}{}", value(bar.value), bound.unwrap_or_default()),
            bar.bar.into(),
            bar.verdict.word().into(),
        ]);
    }
    lines.extend(bars.lines());
    lines.push(format!(
        "{} pairs of policies differ by more than their live runs do; {} are ties",
        report.ordered, report.ties
    ));
    lines
}

/// Each policy over each pair of tiers.
pub fn study(rows: &[StudyRow]) -> Table {
    let mut table = Table::new(&[2, 4, 5, 6, 7, 8, 9]);
    let heading = [
        "tiers",
        "policy",
        "batch",
        "level",
        "write MB/s (95 %)",
        "p99 us",
        "read MB/s (95 %)",
        "p99 us",
        "from fast",
        "moved",
    ];
    table.heading(heading);
    let rate =
        |rate: &Bound| format!("{:.1} ({:.1} to {:.1})", rate.median, rate.low95, rate.high95);
    for row in rows {
        table.row([
            row.pair.into(),
            row.policy.clone(),
            row.batch.to_string(),
            row.level.into(),
            rate(&row.write_mb_per_s),
            format!("{:.0}", row.write_p99_us),
            rate(&row.read_mb_per_s),
            format!("{:.0}", row.read_p99_us),
            format!("{:.0} %", row.fast_reads * 100.0),
            format!("{:.2} times", row.moved),
        ]);
    }
    table
}

fn rate(row: &Row) -> String {
    format!("{:.0} ({:.0} to {:.0})", row.ops_per_s, row.ops_per_s_low95, row.ops_per_s_high95)
}

/// The migrations of a large object.
pub fn migrate(report: &migrate::Report) -> Table {
    let mut table = Table::new(&[2, 3, 4]);
    table.heading(["case", "what", "value", "control", "ratio or value (95 %)", "bar", "verdict"]);
    for row in &report.rows {
        table.row([
            row.case.clone(),
            row.what.clone(),
            format!("{:.2}", row.value),
            format!("{:.2}", row.control),
            format!("{:.2} to {:.2}", row.low95, row.high95),
            row.bar.clone(),
            row.verdict.word().into(),
        ]);
    }
    table
}

/// As on the command line: binary units where they are whole.
fn size_of(bytes: usize) -> String {
    match bytes {
        0 => "empty".into(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}
