// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace replay --model cache`.

use std::path::Path;
use std::thread;

use serde_json::{Value, json};
use terrace_core::Error;
use terrace_core::units::show_bytes;
use terrace_replay::{CacheReplay, Capacity, Counts, Options, Order, Outcome, Trace, Wish};

use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, count, show_name};
use crate::progress::Progress;
use crate::reading::open_once;
use crate::table::Table;

/// Sends a trace through caches, and tells what came of it.
pub(super) fn run(
    path: &Path,
    options: &Options,
    wishes: Vec<Wish>,
    context: &Context,
) -> Result<()> {
    let (mut trace, name) = open_once(path, options)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut progress = Progress::items("replay", None);
    let outcome = CacheReplay::new(wishes.clone(), threads)
        .run(&mut trace, &mut |requests| progress.advance(requests))?;
    drop(progress);
    trace.notes().iter().for_each(|note| context.note(note));
    let report = Report { name, trace, wishes, outcome };
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

/// Every policy with every capacity.
pub(super) fn wishes(
    policies: &[String],
    capacities: &[String],
    ignores_size: bool,
) -> Result<Vec<Wish>> {
    let mut wishes = Vec::new();
    for text in capacities {
        let capacity = Capacity::parse(text)?;
        if ignores_size && matches!(capacity, Capacity::Bytes(_)) {
            let reason = "without sizes a capacity is a number of objects, such as 1000obj; \
                          leave out --ignore-size for one in bytes";
            let error = Error::invalid("replay the trace", reason);
            return Err(error.with("capacity", capacity).into());
        }
        for policy in policies {
            wishes.push(Wish { order: Order::from_word(policy)?, capacity });
        }
    }
    Ok(wishes)
}

/// What there is to tell.
struct Report {
    name: String,
    trace: Trace,
    wishes: Vec<Wish>,
    outcome: Outcome,
}

impl Report {
    fn rows(&self) -> impl Iterator<Item = (&Wish, &Counts)> {
        self.wishes.iter().zip(&self.outcome.counts)
    }

    /// One object for a single cache; else what is the same for all, and an object for each.
    fn value(&self) -> Value {
        let Outcome { requests, bytes, objects, .. } = &self.outcome;
        let mut whole = json!({
            "trace": self.name,
            "format": self.trace.format().word(),
            "requests": requests,
            "objects": objects,
            "bytes": bytes,
        });
        let mut rows: Vec<Value> =
            self.rows().map(|(wish, counts)| self.row(wish, counts)).collect();
        let known = whole.as_object_mut().expect("it was made an object above");
        match &mut rows[..] {
            [Value::Object(row)] => known.append(row),
            _ => {
                known.insert("replays".into(), rows.into());
            }
        }
        whole
    }

    fn row(&self, wish: &Wish, counts: &Counts) -> Value {
        let unit = match wish.capacity {
            Capacity::Objects(_) => "capacity_objects",
            Capacity::Bytes(_) => "capacity_bytes",
        };
        json!({
            "model": "cache",
            "policy": wish.order.word(),
            "capacity": wish.capacity.to_string(),
            unit: wish.capacity.number(),
            "requests": self.outcome.requests,
            "misses": counts.misses,
            "bytes_missed": counts.bytes_missed,
            "miss_ratio": ratio(counts.misses, self.outcome.requests),
            "bytes_missed_ratio": ratio(counts.bytes_missed, self.outcome.bytes),
        })
    }

    fn lines(&self) -> Vec<String> {
        let Outcome { requests, bytes, objects, .. } = self.outcome;
        let (requests_text, objects) = (count(requests, "request"), count(objects, "object"));
        let mut lines = vec![format!(
            "{} ({}): {requests_text} for {objects}, {}\n",
            show_name(&self.name),
            self.trace.format(),
            show_bytes(bytes),
        )];
        let mut table = Table::new(&[1, 2, 3, 4, 5]);
        table.heading(["policy", "capacity", "misses", "of requests", "missed", "of bytes"]);
        for (wish, counts) in self.rows() {
            let part = |part, whole| format!("{:.2} %", 100.0 * ratio(part, whole));
            table.row([
                wish.order.word().into(),
                wish.capacity.to_string(),
                counts.misses.to_string(),
                part(counts.misses, requests),
                show_bytes(counts.bytes_missed),
                part(counts.bytes_missed, bytes),
            ]);
        }
        lines.extend(table.lines());
        lines
    }
}

/// A part of a whole; 0 of nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
