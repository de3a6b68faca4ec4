// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace replay --model time`.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::{Map, Value, json};
use terrace_core::units::{show_bytes, show_ns};
use terrace_replay::{Latencies, Options, Population, TierTimed, Timed, TimedReplay, Trace};

use super::contenders::Contender;
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, count, show_name};
use crate::progress::Progress;
use crate::table::Table;

/// Replays a trace with each of them, on all processors, and tells what came of it.
pub(super) fn run(
    path: &Path,
    options: &Options,
    contenders: Vec<Contender>,
    context: &Context,
) -> Result<()> {
    let options = Options { has_lives: true, ..options.clone() };
    let open = || Trace::open(path, &options);
    let mut trace = open()?;
    let mut progress = Progress::items("look for objects", None);
    let population = Population::read(&mut trace, &mut |requests| progress.advance(requests))?;
    drop(progress);
    trace.notes().iter().for_each(|note| context.note(note));
    let names: Vec<_> = contenders.iter().map(|contender| contender.name.clone()).collect();
    let all = population.requests().saturating_mul(names.len() as u64);
    let mut progress = Progress::items("replay", Some(all));
    let (sender, answered) = channel();
    let results = thread::scope(|scope| {
        let running = scope.spawn(|| replay_all(contenders, &population, &open, sender));
        // It ends with the last sender.
        answered.iter().for_each(|requests| progress.advance(requests));
        running.join().expect("what is replayed does not panic")
    });
    drop(progress);
    let outcomes: Vec<_> =
        names.into_iter().zip(results.into_iter().collect::<Result<Vec<_>>>()?).collect();
    let report = Report { name: path.display().to_string(), trace, population, outcomes };
    let mut output = Output::new();
    if context.is_json {
        output.json(&report.value())?;
    } else {
        for line in report.lines() {
            output.line(line)?;
        }
    }
    output.flush()
}

/// As many at once as there are processors; the outcomes in the order of the contenders.
fn replay_all(
    contenders: Vec<Contender>,
    population: &Population,
    open: &(impl Fn() -> terrace_core::Result<Trace> + Sync),
    sender: Sender<u64>,
) -> Vec<Result<Timed>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let contenders: Vec<_> =
        contenders.into_iter().map(|contender| Mutex::new((Some(contender), None))).collect();
    let lock = |index: usize| contenders[index].lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for _ in 0..threads.min(contenders.len()) {
            let sender = sender.clone();
            let (next, lock) = (&next, &lock);
            let count = contenders.len();
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let taken = lock(index).0.take();
                    let Contender { options, policy, .. } = taken.expect("each is taken once");
                    // Nobody is interested in progress any more where sending fails.
                    let mut progress = |requests| _ = sender.send(requests);
                    let outcome = open().and_then(|mut trace| {
                        TimedReplay::new(options).run(population, &mut trace, policy, &mut progress)
                    });
                    lock(index).1 = Some(outcome);
                }
            });
        }
    });
    drop(sender);
    let outcome = |one: Mutex<(Option<Contender>, Option<terrace_core::Result<Timed>>)>| {
        let (_, outcome) = one.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(outcome.expect("all have run")?)
    };
    contenders.into_iter().map(outcome).collect()
}

/// What there is to tell.
struct Report {
    name: String,
    trace: Trace,
    population: Population,
    outcomes: Vec<(String, Timed)>,
}

impl Report {
    fn value(&self) -> Value {
        let replays: Vec<_> = self.outcomes.iter().map(|(name, timed)| row(name, timed)).collect();
        json!({
            "trace": self.name,
            "format": self.trace.format().word(),
            "model": "time",
            "requests": self.population.requests(),
            "objects": self.population.objects(),
            "replays": replays,
        })
    }

    fn lines(&self) -> Vec<String> {
        let requests = count(self.population.requests(), "request");
        let objects = count(self.population.objects() as u64, "object");
        let mut lines = vec![format!(
            "{} ({}): {requests} for {objects}\n",
            show_name(&self.name),
            self.trace.format(),
        )];
        let mut table = Table::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        table.heading([
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
        ]);
        for (name, timed) in &self.outcomes {
            let [read_p50, read_p99] = shown(&timed.reads);
            let [write_p50, write_p99] = shown(&timed.writes);
            table.row([
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
            ]);
        }
        lines.extend(table.lines());
        lines
    }
}

/// Share of the read bytes that came from the first tier, where there are several.
fn from_first(timed: &Timed) -> String {
    let all: u64 = timed.tiers.iter().map(|tier| tier.read_bytes).sum();
    match &timed.tiers[..] {
        [first, _, ..] if all > 0 => {
            format!("{:.2} %", 100.0 * first.read_bytes as f64 / all as f64)
        }
        _ => "–".into(),
    }
}

/// Half of them and 99 of 100 took no longer.
fn shown(latencies: &Latencies) -> [String; 2] {
    match latencies.count {
        0 => ["–".into(), "–".into()],
        _ => [latencies.p50_s, latencies.p99_s].map(|s| show_ns((s * 1e9).round() as u64)),
    }
}

fn seconds(s: f64) -> String {
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
        "action_hash": format!("{:016x}", timed.action_hash),
        "fill": fill,
    })
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
        "most_bytes": tier.most_bytes,
    })
}
