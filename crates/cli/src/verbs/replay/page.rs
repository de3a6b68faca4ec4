// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace replay --html`: one page that needs nothing else, with tables and plots.

use askama::Template;
use terrace_core::Prices;
use terrace_core::units::{show_bytes, show_rate};
use terrace_replay::{Served, Timed};
use terrace_report::STYLE;
use terrace_report::plot::{self, Axis, Bar, Point, swatch};
use terrace_report::timeline::{Picture, VIEWER};
use terrace_tuning::Modelled;

use super::report::{Replayed, Report, from_first, seconds, shown};
use super::stories::{self, Told};
use crate::failure::Result;
use crate::output::{command_line, show_price};

/// Steps of a plot over time: as many as a narrow one shows apart.
const STEPS: usize = 80;

/// The page.
#[derive(Template)]
#[template(path = "replay.html")]
struct Page {
    style: &'static str,
    title: String,
    version: &'static str,
    command: String,
    file: String,
    settings: String,
    rows: Vec<Row>,
    tiers: Vec<TierRow>,
    has_cost: bool,
    /// Time, moved bytes, energy, and cost where there is one.
    bars: Vec<(String, String)>,
    front: String,
    key: Vec<KeyRow>,
    courses: Vec<Course>,
    help: &'static str,
    viewer: &'static str,
    stories: Vec<(String, Vec<(String, Told)>)>,
}

/// A row of the comparison: its name and cells.
struct Row {
    name: String,
    cells: Vec<String>,
    cost: String,
    hash: String,
}

/// What one tier served under one policy.
struct TierRow {
    policy: String,
    tier: String,
    cells: Vec<String>,
    /// Requests that write and read, bytes that were read, GB and months that were stored, and cost.
    charged: Vec<String>,
}

/// How a tier looks, and what a fill of 100 % means.
struct KeyRow {
    swatch: String,
    name: String,
    whole: String,
}

/// One policy over time.
struct Course {
    name: String,
    fill: String,
    traffic: String,
    /// With its key.
    timeline: String,
}

/// The page of a report.
pub(super) fn page(report: &Report, modelled: &Modelled) -> Result<String> {
    let wholes = wholes(report, modelled);
    let key =
        modelled.settings.tiers.iter().zip(&wholes).enumerate().map(|(index, (tier, whole))| {
            let bytes = show_bytes(*whole as u64);
            let whole = match tier.figures.capacity_bytes {
                u64::MAX => format!("100 % is the most that it held: {bytes}"),
                _ => format!("100 % is its capacity: {bytes}"),
            };
            KeyRow { swatch: swatch(index), name: tier.name.clone(), whole }
        });
    let page = Page {
        style: STYLE,
        title: report.title(),
        version: env!("CARGO_PKG_VERSION"),
        command: command_line(),
        file: modelled.file.display().to_string(),
        settings: modelled.text()?,
        rows: report.replays.iter().map(row).collect(),
        tiers: report.replays.iter().flat_map(tier_rows).collect(),
        has_cost: report.has_prices,
        bars: bars(report),
        front: front(report),
        key: key.collect(),
        courses: courses(report, &wholes),
        help: Picture::help(),
        viewer: VIEWER,
        stories: stories(report),
    };
    Ok(page.render().expect("the template asks for nothing that can fail"))
}

fn row(replayed: &Replayed) -> Row {
    let timed = &replayed.timed;
    let [read_p50, read_p99] = shown(&timed.reads);
    let [write_p50, write_p99] = shown(&timed.writes);
    let cells = vec![
        seconds(timed.makespan_s),
        read_p50,
        read_p99,
        write_p50,
        write_p99,
        from_first(timed),
        show_bytes(timed.migrated_bytes),
        timed.migrations.to_string(),
        format!("{:.1} J", timed.joules),
        format!("{:.4e} Js", timed.edp_js),
    ];
    let (cost, hash) = (show_price(timed.cost), format!("{:016x}", timed.action_hash));
    Row { name: replayed.name.clone(), cells, cost, hash }
}

fn tier_rows(replayed: &Replayed) -> impl Iterator<Item = TierRow> {
    replayed.timed.tiers.iter().map(|tier| TierRow {
        policy: replayed.name.clone(),
        tier: tier.name.clone(),
        cells: vec![
            tier.reads.to_string(),
            show_bytes(tier.read_bytes),
            tier.writes.to_string(),
            show_bytes(tier.written_bytes),
            show_bytes(tier.moved_in_bytes),
            show_bytes(tier.moved_out_bytes),
            seconds(tier.busy_s),
            format!("{:.1} J", tier.joules),
            show_bytes(tier.most_bytes),
        ],
        charged: vec![
            tier.usage.write_requests.to_string(),
            tier.usage.read_requests.to_string(),
            show_bytes(tier.usage.out_bytes),
            show_price(tier.usage.stored_byte_s / 1e9 / Prices::MONTH_S),
            show_price(tier.cost),
        ],
    })
}

fn bars(report: &Report) -> Vec<(String, String)> {
    let draw = |title: &str, value: fn(&Timed) -> f64, text: fn(&Timed) -> String| {
        let bar = |one: &Replayed| Bar {
            name: one.name.clone(),
            value: value(&one.timed),
            text: text(&one.timed),
            is_bound: one.is_bound,
        };
        let bars: Vec<_> = report.replays.iter().map(bar).collect();
        (title.to_string(), plot::bars(title, &bars))
    };
    let mut bars = vec![
        draw("Time", |timed| timed.makespan_s, |timed| seconds(timed.makespan_s)),
        draw("Energy", |timed| timed.joules, |timed| format!("{:.1} J", timed.joules)),
        draw(
            "Moved bytes",
            |timed| timed.migrated_bytes as f64,
            |timed| show_bytes(timed.migrated_bytes),
        ),
    ];
    if report.has_prices {
        bars.push(draw("Cost", |timed| timed.cost, |timed| show_price(timed.cost)));
    }
    bars
}

fn front(report: &Report) -> String {
    let point = |one: &Replayed| Point {
        name: one.name.clone(),
        x: one.timed.makespan_s,
        y: one.timed.joules,
        is_bound: one.is_bound,
    };
    let points: Vec<_> = report.replays.iter().map(point).collect();
    // Around what there is, because policies often differ by little.
    let axis = |name, of: fn(&Point) -> f64| {
        let least = points.iter().map(of).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(of).fold(0.0, f64::max);
        let room = ((most - least) * 0.06).max(most * 0.001);
        Axis { name, start: least - room, end: most + room, show: &short }
    };
    let x = axis("time in s", |point| point.x);
    let y = axis("energy in J", |point| point.y);
    plot::front("Time against energy", &x, &y, &points)
}

/// The bytes that are 100 % of each tier: its capacity, or the most that any policy had there.
fn wholes(report: &Report, modelled: &Modelled) -> Vec<f64> {
    let policies = || report.replays.iter().filter(|one| !one.is_bound);
    let most = |index: usize| policies().map(|one| one.timed.tiers[index].most_bytes).max();
    let whole = |(index, capacity)| match capacity {
        u64::MAX => most(index).unwrap_or(0).max(1) as f64,
        capacity => capacity as f64,
    };
    let capacities = modelled.settings.tiers.iter().map(|tier| tier.figures.capacity_bytes);
    capacities.enumerate().map(whole).collect()
}

/// Policies over time, all on the same axes; bounds have only one tier.
fn courses(report: &Report, wholes: &[f64]) -> Vec<Course> {
    let policies = || report.replays.iter().filter(|one| !one.is_bound);
    let end_s = policies().map(|one| one.timed.makespan_s).fold(0.0, f64::max);
    let step_s = if end_s > 0.0 { end_s / STEPS as f64 } else { 1.0 };
    let rates: Vec<_> = policies().map(|one| rates(&one.timed, wholes.len(), step_s)).collect();
    let of_all = |(_, rates): &(usize, Vec<f64>), at: usize| rates[at];
    let total = |(tiers, moved): &(Vec<(usize, Vec<f64>)>, Vec<f64>), at: usize| {
        tiers.iter().map(|tier| of_all(tier, at)).sum::<f64>().max(moved[at])
    };
    let most = rates.iter().flat_map(|rates| (0..STEPS).map(|at| total(rates, at)));
    let most = most.fold(0.0, f64::max);
    let x = Axis { name: "s", start: 0.0, end: end_s, show: &short };
    let percent = Axis { name: "fill in %", start: 0.0, end: 104.0, show: &short };
    let rate = Axis { name: "bytes per second", start: 0.0, end: most * 1.04, show: &show_rate };
    policies()
        .zip(&rates)
        .map(|(one, (tiers, moved))| Course {
            name: one.name.clone(),
            fill: plot::lines("Fill over time", &x, &percent, &fills(&one.timed, wholes)),
            traffic: plot::stack("Accesses over time", &x, &rate, tiers, moved, step_s),
            timeline: one
                .picture
                .as_ref()
                .map(|it| it.key() + &it.html(&one.name))
                .unwrap_or_default(),
        })
        .collect()
}

/// The fill of each tier over time, in percent.
fn fills(timed: &Timed, wholes: &[f64]) -> Vec<(usize, Vec<(f64, f64)>)> {
    let line = |(tier, whole): (usize, &f64)| {
        let point = |(s, bytes): &(f64, Vec<u64>)| (*s, 100.0 * bytes[tier] as f64 / whole);
        (tier, timed.fill.iter().map(point).collect())
    };
    wholes.iter().enumerate().map(line).collect()
}

/// What applications had each tier read and write, and what migrations had all of them, in bytes
/// per second for each step.
fn rates(timed: &Timed, tiers: usize, step_s: f64) -> (Vec<(usize, Vec<f64>)>, Vec<f64>) {
    let rate = |of: &dyn Fn(&[Served]) -> u64| {
        let mut steps = vec![0.0; STEPS];
        for (index, served) in timed.traffic.intervals.iter().enumerate() {
            let (from_s, length_s) = (index as f64 * timed.traffic.every_s, timed.traffic.every_s);
            spread(&mut steps, step_s, from_s..from_s + length_s, of(served) as f64);
        }
        steps
    };
    let by_tier = (0..tiers).map(|tier| {
        (tier, rate(&|served: &[Served]| served[tier].read_bytes + served[tier].written_bytes))
    });
    let moved = rate(&|served: &[Served]| served.iter().map(|tier| tier.moved_bytes).sum());
    (by_tier.collect(), moved)
}

/// Adds bytes of a span of time to the steps that it overlaps, as a rate.
fn spread(steps: &mut [f64], step_s: f64, span_s: std::ops::Range<f64>, bytes: f64) {
    let whole_s = span_s.end - span_s.start;
    let first = (span_s.start / step_s) as usize;
    for (index, step) in steps.iter_mut().enumerate().skip(first) {
        let from_s = span_s.start.max(index as f64 * step_s);
        let to_s = span_s.end.min((index + 1) as f64 * step_s);
        if to_s <= from_s {
            break;
        }
        *step += bytes * (to_s - from_s) / whole_s / step_s;
    }
}

fn stories(report: &Report) -> Vec<(String, Vec<(String, Told)>)> {
    let told = |index: usize| {
        let policies = report.replays.iter().filter(|one| !one.is_bound);
        let tell = |one: &Replayed| {
            (one.name.clone(), stories::tell(&one.timed.stories[index], &one.timed))
        };
        policies.map(tell).collect()
    };
    let asked = report.asked.iter().enumerate();
    asked.map(|(index, asked)| (asked.name.clone(), told(index))).collect()
}

/// A number on an axis.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{value:.1e}"),
        large if large >= 100.0 => format!("{value:.0}"),
        _ => terrace_report::label(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spread_over_steps_stays_as_much() {
        let mut steps = vec![0.0; 4];
        spread(&mut steps, 0.5, 0.25..1.25, 100.0);
        assert_eq!(steps, [50.0, 100.0, 50.0, 0.0]);
        spread(&mut steps, 0.5, 1.75..2.0, 10.0);
        assert_eq!(steps[3], 20.0);
    }
}
