// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace replay`.

mod cache;
mod contenders;
mod page;
mod pictures;
mod report;
mod stories;
mod timed;

pub(super) use contenders::named;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use terrace_core::Error;

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::Result;
use crate::modelled::{Manner, modelled};
use crate::reading::{Reading, is_same};

/// Ask policies what they would have done with a trace
///
/// The time model (`--model time`, the default) has the requests of the trace come to the tiers of a
/// store in virtual time, and the very policies that run on a live store move what lies on them. Each
/// client waits for its answer, then thinks as long as it did when the trace was recorded. `--store`
/// names the store, or its `terrace.toml`: how fast its tiers are, what they hold and draw, and how the
/// policy is called are taken from there; the store itself is not touched. Side by side with the
/// policies is what would come of everything on the first tier alone, and on the last.
///
/// With `--model cache`, the requests of the trace go through a plain cache of the given capacity,
/// which gives up objects in the order of the policy. What is not there is a miss; it enters, and
/// others leave until there is room. Reads and writes count alike, time does not count at all. This
/// tells which order suits a load, not what it costs to move the data. Several policies and capacities
/// are tried while the trace is read once. `belady` gives up what is needed again last, which only a
/// replay knows: a bound that no policy beats where all objects are of one size. It keeps the trace in
/// memory, 20 bytes a request.
///
/// The trace is a directory that `terrace trace record` wrote, or a file of another program:
/// oracleGeneral, vscsi, lcs, CSV, one name a line, Darshan DXT as text, DFTracer; packed by gzip,
/// by zstd or not. Policies are tried side by side, on all processors.
/// docs/reference/replay.md defines models, policies and formats.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// A file, the directory of a trace, or - for standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// How a request is answered
    #[arg(long, value_name = "MODEL", default_value = "time")]
    model: Model,
    /// Policies to try, separated by commas. Time: a built-in one or the path of a library, with
    /// parameters behind colons (`lru:idle=5s:high=0.8`); the store's own where none is given. Cache:
    /// fifo, lru, clock, sieve, s3-fifo, s3-fifo-v1, arc, 2q, lfu, gdsf, w-tinylfu, belady
    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',')]
    policies: Vec<String>,
    /// Cache: capacities to try, separated by commas: in objects, whatever their sizes (1000obj), or
    /// in bytes (128MiB)
    #[arg(long = "capacity", value_name = "SIZE", value_delimiter = ',')]
    capacities: Vec<String>,
    /// Cache: take all objects for equally large; needs capacities in objects, which do so anyway
    #[arg(long)]
    ignore_size: bool,
    #[command(flatten)]
    manner: Manner,
    /// Time: tell everything that each policy did with this object, why, and what it saved; may be
    /// repeated. The number that the object has in the trace, its name there, or its key where the
    /// trace is of a store
    #[arg(long, value_name = "KEY|ID")]
    explain: Vec<String>,
    /// Time: write a page with tables, plots and the timeline of each policy, for a browser, to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Model {
    /// Tiers in virtual time: what requests and migrations take, in seconds and joules, and cost.
    Time,
    /// A plain cache: only the order of replacement counts.
    Cache,
}

impl Verb for Replay {
    const NAME: &'static str = "replay";
    const GROUP: Group = Group::Trial;
    const EXAMPLES: &'static str = "
  terrace replay my-store/trace --store my-store --policy lru,write-buffer
  terrace replay disk.vscsi --store my-store/terrace.toml --policy lru,lru:high=0.7:low=0.5 --json
  terrace replay disk.vscsi --store my-store --policy lru,heat --html report.html --explain 1234
  terrace replay disk.vscsi --model cache --policy lru --capacity 128MiB
  terrace replay trace.csv --model cache --policy lru,s3-fifo,belady --capacity 1000obj,10000obj
  terrace replay trace.bin --model cache --policy arc --capacity 1GiB --json | jq .misses
  xzcat trace.xz | terrace replay - --format oracleGeneral --model cache --policy arc --capacity 1GiB";

    fn run(self, context: &Context) -> Result<()> {
        // Before hours of work.
        self.html.iter().try_for_each(|file| context.check_output(file))?;
        match self.model {
            Model::Cache => self.run_cache(context),
            Model::Time => self.run_timed(context),
        }
    }
}

impl Replay {
    fn run_cache(&self, context: &Context) -> Result<()> {
        let timed = [
            ("--open-loop", self.manner.open_loop),
            ("--page-cache", self.manner.page_cache.is_some()),
            ("--processors", self.manner.processors.is_some()),
            ("--present-on", self.manner.present_on.is_some()),
            ("--explain", !self.explain.is_empty()),
            ("--html", self.html.is_some()),
        ];
        refuse(&timed, "the cache model knows no time; it is for --model time")?;
        let missing = [
            ("--policy", self.policies.is_empty(), "--policy lru,s3-fifo"),
            ("--capacity", self.capacities.is_empty(), "--capacity 128MiB"),
        ];
        if let Some((option, _, example)) = missing.iter().find(|(_, is_missing, _)| *is_missing) {
            let reason = format!("the cache model needs {option}, such as {example}");
            return Err(Error::invalid("replay the trace", reason).into());
        }
        let wishes = cache::wishes(&self.policies, &self.capacities, self.ignore_size)?;
        cache::run(&self.trace, &self.reading.options()?, wishes, context)
    }

    fn run_timed(&self, context: &Context) -> Result<()> {
        let cached =
            [("--capacity", !self.capacities.is_empty()), ("--ignore-size", self.ignore_size)];
        let reason = "the capacities of the time model are those of the store's tiers; it is for \
                      --model cache";
        refuse(&cached, reason)?;
        if self.html.as_ref().is_some_and(|page| is_same(page, &self.trace)) {
            let reason = "the page would take the place of the trace";
            return Err(Error::invalid("replay the trace", reason).with("option", "--html").into());
        }
        let modelled = modelled(context)?;
        let manner = self.manner.model()?;
        let contenders = contenders::contenders(&modelled, &self.policies, &manner)?;
        let wanted = timed::Wanted { explained: &self.explain, page: self.html.as_deref() };
        let options = self.reading.options()?;
        timed::run(&self.trace, &options, &modelled, contenders, &wanted, context)
    }
}

/// Refuses options that the model does not know.
fn refuse(options: &[(&str, bool)], reason: &str) -> Result<()> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            Err(Error::invalid("replay the trace", reason).with("option", option).into())
        }
        None => Ok(()),
    }
}
