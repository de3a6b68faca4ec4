// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace replay`.

use std::path::PathBuf;
use std::thread;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use terrace_core::Error;
use terrace_core::units::show_bytes;
use terrace_replay::{CacheReplay, Capacity, Counts, Order, Outcome, Trace, Wish};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Output, count, show_name};
use crate::progress::Progress;
use crate::reading::Reading;
use crate::table::Table;

/// Ask policies what they would have done with a trace
///
/// With `--model cache`, the requests of the trace go through a plain cache of the given capacity,
/// which gives up objects in the order of the policy. What is not there is a miss; it enters, and
/// others leave until there is room. Reads and writes count alike, time does not count at all. This
/// tells which order suits a load, not what it costs to move the data.
///
/// Several policies and capacities are tried side by side, on all processors, while the trace is read
/// once. `belady` gives up what is needed again last, which only a replay knows: a bound that no
/// policy beats where all objects are of one size. It keeps the trace in memory, 20 bytes a request.
///
/// The trace is a directory that `terrace trace record` wrote, or a file of another program:
/// oracleGeneral, vscsi, lcs, CSV, one name a line, Darshan DXT as text, DFTracer; packed by gzip or
/// not. docs/replay.md defines the policies and the formats.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// A file, or the directory of a trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// How a request is answered
    #[arg(long, value_name = "MODEL")]
    model: Model,
    /// Policies to try, separated by commas
    #[arg(long = "policy", value_name = "NAME", required = true, value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Order::ALL.map(Order::word)))]
    policies: Vec<String>,
    /// Capacities to try, separated by commas: in objects, whatever their sizes (1000obj), or in
    /// bytes (128MiB)
    #[arg(long = "capacity", value_name = "SIZE", required = true, value_delimiter = ',')]
    capacities: Vec<String>,
    /// Take all objects for equally large; needs capacities in objects, which do so anyway
    #[arg(long)]
    ignore_size: bool,
    #[command(flatten)]
    reading: Reading,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// A plain cache: only the order of replacement counts.
    Cache,
}

impl Verb for Replay {
    const NAME: &'static str = "replay";
    const GROUP: Group = Group::Trial;
    const EXAMPLES: &'static str = "
  terrace replay disk.vscsi --model cache --policy lru --capacity 128MiB
  terrace replay trace.csv --model cache --policy lru,s3-fifo,belady --capacity 1000obj,10000obj
  terrace replay trace.bin --model cache --policy arc --capacity 1GiB --json | jq .misses
  terrace replay my-store/trace --model cache --policy sieve --capacity 10GB";

    fn run(self, context: &Context) -> Result<()> {
        let Model::Cache = self.model;
        let wishes = self.wishes()?;
        let mut trace = Trace::open(&self.trace, &self.reading.options()?)?;
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut progress = Progress::items("replay", None);
        let outcome = CacheReplay::new(wishes.clone(), threads)
            .run(&mut trace, &mut |requests| progress.advance(requests))?;
        drop(progress);
        trace.notes().iter().for_each(|note| context.note(note));
        let report = Report { name: self.trace.display().to_string(), trace, wishes, outcome };
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
}

impl Replay {
    /// Every policy with every capacity.
    fn wishes(&self) -> Result<Vec<Wish>> {
        let mut wishes = Vec::new();
        for text in &self.capacities {
            let capacity = Capacity::parse(text)?;
            if self.ignore_size && matches!(capacity, Capacity::Bytes(_)) {
                let reason = "without sizes a capacity is a number of objects, such as 1000obj; \
                              leave out --ignore-size for one in bytes";
                let error = Error::invalid("replay the trace", reason);
                return Err(error.with("capacity", capacity).into());
            }
            for policy in &self.policies {
                wishes.push(Wish { order: Order::from_word(policy)?, capacity });
            }
        }
        Ok(wishes)
    }
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
