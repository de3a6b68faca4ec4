// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What came of a replay in virtual time: a table for people, JSON for programs.

use serde_json::{Map, Value, json};
use terrace_core::units::{show_bytes, show_ns};
use terrace_replay::{Format, Latencies, TierTimed, Timed, Traffic};
use terrace_report::timeline::Picture;

use super::stories::{self, Asked};
use crate::output::{count, show_name, show_price};
use crate::table::Table;

/// What there is to tell.
pub(super) struct Report {
    /// The trace, as it was named.
    pub(super) name: String,
    pub(super) format: Format,
    pub(super) requests: u64,
    pub(super) objects: u64,
    /// Whether any tier has a price.
    pub(super) has_prices: bool,
    /// In the order in which they were asked for, between the bounds.
    pub(super) replays: Vec<Replayed>,
    /// The objects that are explained: those of the stories of each replay, in their order.
    pub(super) asked: Vec<Asked>,
}

/// What came of one policy, or of a bound.
pub(super) struct Replayed {
    pub(super) name: String,
    pub(super) is_bound: bool,
    pub(super) timed: Timed,
    /// For the page.
    pub(super) picture: Option<Picture>,
}

impl Report {
    /// All of it, for programs.
    pub(super) fn value(&self) -> Value {
        let replays: Vec<_> = self.replays.iter().map(|one| self.row(one)).collect();
        json!({
            "trace": self.name,
            "format": self.format.word(),
            "model": "time",
            "requests": self.requests,
            "objects": self.objects,
            "replays": replays,
        })
    }

    /// The heading, and a row for each; then what was done with objects.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}\n", self.title())];
        let mut table = Table::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let heading = [
            "policy",
            "makespan",
            "read p50",
            "p99",
            "write p50",
            "p99",
            "from fast",
            "moved",
            "energy",
            "EDP",
        ];
        table.heading(heading.into_iter().chain(self.has_prices.then_some("cost")));
        for Replayed { name, timed, .. } in &self.replays {
            let [read_p50, read_p99] = shown(&timed.reads);
            let [write_p50, write_p99] = shown(&timed.writes);
            let cells = [
                name.clone(),
                seconds(timed.makespan_s),
                read_p50,
                read_p99,
                write_p50,
                write_p99,
                from_first(timed),
                show_bytes(timed.migrated_bytes),
                format!("{:.1} J", timed.joules),
                format!("{:.4e} Js", timed.edp_js),
            ];
            table.row(cells.into_iter().chain(self.has_prices.then(|| show_price(timed.cost))));
        }
        lines.extend(table.lines());
        for (index, asked) in self.asked.iter().enumerate() {
            lines.push(format!("\n{}", show_name(&asked.name)));
            for Replayed { name, timed, .. } in &self.replays {
                let told = stories::tell(&timed.stories[index], timed);
                lines.extend(stories::lines(name, &told));
            }
        }
        lines
    }

    /// What was replayed.
    pub(super) fn title(&self) -> String {
        format!(
            "{} ({}): {} for {}",
            show_name(&self.name),
            self.format,
            count(self.requests, "request"),
            count(self.objects, "object"),
        )
    }

    fn row(&self, replayed: &Replayed) -> Value {
        let Replayed { name, timed, .. } = replayed;
        let mut row = row(name, timed);
        if !self.asked.is_empty() {
            let stories = self.asked.iter().zip(&timed.stories);
            let stories = stories.map(|(asked, story)| stories::value(asked, story, timed));
            row["explained"] = stories.collect();
        }
        row
    }
}

/// Share of the read bytes that came from the first tier, where there are several.
pub(super) fn from_first(timed: &Timed) -> String {
    let all: u64 = timed.tiers.iter().map(|tier| tier.read_bytes).sum();
    match &timed.tiers[..] {
        [first, _, ..] if all > 0 => {
            format!("{:.2} %", 100.0 * first.read_bytes as f64 / all as f64)
        }
        _ => "–".into(),
    }
}

/// Half of them and 99 of 100 took no longer.
pub(super) fn shown(latencies: &Latencies) -> [String; 2] {
    match latencies.count {
        0 => ["–".into(), "–".into()],
        _ => [latencies.p50_s, latencies.p99_s].map(|s| show_ns((s * 1e9).round() as u64)),
    }
}

pub(super) fn seconds(s: f64) -> String {
    format!("{s:.3} s")
}

fn row(name: &str, timed: &Timed) -> Value {
    let outcomes: Map<_, _> =
        timed.outcomes.iter().map(|(word, count)| (word.clone(), (*count).into())).collect();
    let fill: Vec<_> =
        timed.fill.iter().map(|(s, bytes)| json!({ "s": s, "bytes": bytes })).collect();
    json!({
        "policy": name,
        "makespan_s": timed.makespan_s,
        "requests": timed.requests,
        "cached_requests": timed.cached_requests,
        "reads": latencies(&timed.reads),
        "writes": latencies(&timed.writes),
        "tiers": timed.tiers.iter().map(tier).collect::<Vec<_>>(),
        "migrations": timed.migrations,
        "migrated_bytes": timed.migrated_bytes,
        "rounds": timed.rounds,
        "actions": timed.actions,
        "outcomes": outcomes,
        "joules": timed.joules,
        "edp_js": timed.edp_js,
        "cost": timed.cost,
        "action_hash": format!("{:016x}", timed.action_hash),
        "fill": fill,
        "traffic": traffic(&timed.traffic),
    })
}

/// Arrays by tier, so that they are short and can be drawn as they are.
fn traffic(traffic: &Traffic) -> Value {
    let count = traffic.intervals.first().map_or(0, Vec::len);
    let tiers = (0..count).map(|tier| {
        let all = || traffic.intervals.iter().map(|served| served[tier]);
        json!({
            "requests": all().map(|served| served.requests).collect::<Vec<_>>(),
            "read_bytes": all().map(|served| served.read_bytes).collect::<Vec<_>>(),
            "written_bytes": all().map(|served| served.written_bytes).collect::<Vec<_>>(),
            "moved_bytes": all().map(|served| served.moved_bytes).collect::<Vec<_>>(),
        })
    });
    json!({ "every_s": traffic.every_s, "tiers": tiers.collect::<Vec<_>>() })
}

fn latencies(latencies: &Latencies) -> Value {
    let Latencies { count, mean_s, p50_s, p99_s } = latencies;
    json!({ "count": count, "mean_s": mean_s, "p50_s": p50_s, "p99_s": p99_s })
}

fn tier(tier: &TierTimed) -> Value {
    json!({
        "name": tier.name,
        "reads": tier.reads,
        "read_bytes": tier.read_bytes,
        "writes": tier.writes,
        "written_bytes": tier.written_bytes,
        "moved_in_bytes": tier.moved_in_bytes,
        "moved_out_bytes": tier.moved_out_bytes,
        "busy_s": tier.busy_s,
        "joules": tier.joules,
        "cost": tier.cost,
        "write_requests": tier.usage.write_requests,
        "read_requests": tier.usage.read_requests,
        "delete_requests": tier.usage.delete_requests,
        "out_bytes": tier.usage.out_bytes,
        "stored_byte_s": tier.usage.stored_byte_s,
        "most_bytes": tier.most_bytes,
    })
}
