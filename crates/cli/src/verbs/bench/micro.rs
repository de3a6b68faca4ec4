// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of the micro-benchmarks.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use terrace_backends::{BACKENDS, kv::ENGINES};
use terrace_bench::fast_place;
use terrace_bench::micro::{self, Kind, Place, Settings};
use terrace_bench::served::Clients;
use terrace_core::units::parse_bytes;
use terrace_core::{Error, Persistency, Semantics};

use crate::context::Context;
use crate::failure::Result;

/// What an operation may have to survive.
pub(super) const LEVELS: [&str; 3] = ["none", "process", "storage"];

/// Most threads of a row; most clients of a process.
const THREADS_MAX: usize = 256;

/// Most processes with clients.
const PROCESSES_MAX: u64 = 64;

/// Largest object or value.
const SIZE_BYTES_MAX: u64 = 16 << 20;

/// Which rows are measured, and how. Lists are separated by commas; every combination is a row.
#[derive(Args, Debug)]
pub(crate) struct Micro {
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "CASE", value_parser = case_names())]
    cases: Vec<String>,

    /// Threads that work at once: a number, a range (1..4) or a list of both; each makes a row
    #[arg(long, value_name = "LIST", default_value = "1", value_parser = parse_threads)]
    threads: Threads,

    /// Clients of each process, each a session of its own whose threads share its connections, as
    /// --threads; needs a store [default: 1]
    #[arg(long, value_name = "LIST", value_parser = parse_threads)]
    clients: Option<Threads>,

    /// Processes that work at once, all alike; needs a store [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=PROCESSES_MAX))]
    processes: Option<u64>,

    /// Bytes of an object, a value, a read and a write, up to 16MiB; a list makes several rows
    #[arg(long = "size", value_name = "SIZE", default_value = "4KiB", value_delimiter = ',')]
    sizes: Vec<String>,

    /// Operations of one call: a batch of objects goes through `execute`, one of pairs is one
    /// transaction; a list makes several rows
    #[arg(long = "batch", value_name = "COUNT", default_value = "1", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batches: Vec<u64>,

    /// What an operation survives once it is done: nothing, a crash of the process, or a loss of
    /// power; a list makes several rows [default: that of --semantics, which is process]
    #[arg(long = "level", value_name = "LEVEL", value_delimiter = ',', value_parser = LEVELS)]
    levels: Vec<String>,

    /// What is asked for the operations on objects, as in `terrace put`; on the raw side without
    /// its atomicity, which no bare backend gives
    #[arg(long, value_name = "SEMANTICS")]
    semantics: Option<Semantics>,

    /// Which objects are looked up, read and written, and which pairs are read
    #[arg(long, value_enum, default_value = "uniform")]
    keys: Keys,

    /// Time for each row, both sides together, in seconds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,

    /// Blocks of each side in a row; fewer than 20 support no verdict
    #[arg(long, value_name = "COUNT", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    repetitions: u64,

    /// Where the files go; they are removed afterwards [default: /dev/shm where there is one]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// What the tiers are; the raw side is the same one without a stack [default: file]
    #[arg(long, value_name = "NAME", value_parser = backend_names())]
    backend: Option<String>,

    /// The key-value engine of the catalog; of pairs, the raw side is the same one without a stack
    /// [default: fjall]
    #[arg(long, value_name = "NAME", value_parser = engine_names())]
    engine: Option<String>,
}

/// How often each object is touched.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Keys {
    /// All alike
    Uniform,
    /// The k-th most popular one in proportion to 1 / k^0.99, as in the Yahoo cloud benchmark
    Zipf,
}

/// Numbers of threads, in the order given.
#[derive(Clone, Debug)]
struct Threads(Vec<usize>);

impl Micro {
    /// How many processes and clients measure a store behind servers.
    pub(crate) fn who(&self) -> Clients {
        let clients = self.clients.as_ref().map_or_else(|| vec![1], |clients| clients.0.clone());
        Clients { processes: self.processes.unwrap_or(1) as usize, clients }
    }

    /// The store to measure: that behind servers, and, where clients are asked for, any; otherwise
    /// none, as the benchmark has stores of its own.
    ///
    /// # Errors
    ///
    /// `Invalid` where clients are asked for and there is no store.
    pub(crate) fn store<'a>(&self, context: &'a Context) -> Result<Option<&'a str>> {
        if self.clients.is_none() && self.processes.is_none() {
            return Ok(context.servers());
        }
        context.store().map(Some)
    }

    /// Checks that nothing is given that a store which is there decides for itself.
    ///
    /// # Errors
    ///
    /// `Invalid`, which says what.
    pub(crate) fn check_served(&self) -> Result<()> {
        if self.directory.is_none() && self.backend.is_none() && self.engine.is_none() {
            return Ok(());
        }
        let reason = "--directory, --backend and --engine are for stores of its own, and here \
                      --store names one";
        Err(Error::invalid("run the benchmark", reason).into())
    }

    /// The settings for the cases of these kinds.
    ///
    /// # Errors
    ///
    /// `Invalid` for a case that these kinds do not have, a size out of bounds, or one that is none.
    pub(crate) fn settings(self, kinds: &[Kind]) -> Result<Settings> {
        let known = kinds.iter().flat_map(|kind| kind.cases().iter().map(|case| (*kind, *case)));
        let known: Vec<_> = known.collect();
        if let Some(case) = self.cases.iter().find(|case| !known.iter().any(|(_, one)| one == case))
        {
            return Err(Error::invalid("run the benchmark", "this part of it has no such case")
                .with("case", case)
                .into());
        }
        let is_chosen =
            |case: &str| self.cases.is_empty() || self.cases.iter().any(|one| one == case);
        let cases: Vec<_> = known.into_iter().filter(|(_, case)| is_chosen(case)).collect();
        if self.semantics.is_some() && cases.iter().any(|(kind, _)| *kind == Kind::Kv) {
            return Err(Error::invalid(
                "run the benchmark",
                "of the semantics, pairs have the level alone; give them to `terrace bench object`",
            )
            .into());
        }
        let semantics = self.semantics.unwrap_or_default();
        let levels = self.levels.iter().map(|level| level.parse::<Persistency>());
        let mut levels = levels.collect::<terrace_core::Result<Vec<_>>>()?;
        if levels.is_empty() {
            levels.push(semantics.persistency);
        }
        Ok(Settings {
            cases,
            threads: self.threads.0,
            sizes_bytes: self.sizes.iter().map(|size| parse_size(size)).collect::<Result<_>>()?,
            batches: self.batches.into_iter().map(|batch| batch as usize).collect(),
            levels,
            semantics,
            keys: match self.keys {
                Keys::Uniform => micro::Keys::Uniform,
                Keys::Zipf => micro::Keys::Zipf,
            },
            seconds: self.seconds.clamp(0.01, 3600.0),
            repetitions: self.repetitions as usize,
            place: Place {
                directory: self.directory.unwrap_or_else(fast_place),
                backend: self.backend.unwrap_or_else(|| "file".into()),
                engine: self.engine.unwrap_or_else(|| "fjall".into()),
            },
        })
    }
}

fn case_names() -> PossibleValuesParser {
    let (objects, pairs) = (Kind::Object.cases(), Kind::Kv.cases());
    let extra = pairs.iter().filter(|case| !objects.contains(case));
    objects.iter().chain(extra).copied().collect::<Vec<_>>().into()
}

/// The names of all backends.
pub(super) fn backend_names() -> PossibleValuesParser {
    BACKENDS.iter().map(|entry| entry.name).collect::<Vec<_>>().into()
}

fn engine_names() -> PossibleValuesParser {
    ENGINES.iter().map(|entry| entry.name).collect::<Vec<_>>().into()
}

fn parse_size(text: &str) -> Result<usize> {
    let bytes = parse_bytes(text)?;
    if !(1..=SIZE_BYTES_MAX).contains(&bytes) {
        return Err(Error::invalid("run the benchmark", "the size is out of bounds")
            .with("size_bytes", bytes)
            .with("size_bytes_max", SIZE_BYTES_MAX)
            .into());
    }
    Ok(bytes as usize)
}

/// Reads `4`, `1..4` (both ends included) or a list of them.
fn parse_threads(text: &str) -> std::result::Result<Threads, String> {
    let number = |text: &str| match text.trim().parse() {
        Ok(number @ 1..=THREADS_MAX) => Ok(number),
        _ => Err(format!("{text:?} is not a number of threads from 1 to {THREADS_MAX}")),
    };
    let mut threads = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => threads.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("{part:?} ends before it begins"));
                }
                threads.extend(first..=last);
            }
        }
    }
    Ok(Threads(threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_numbers_ranges_and_lists() {
        let read = |text| parse_threads(text).map(|threads| threads.0);
        assert_eq!(read("4"), Ok(vec![4]));
        assert_eq!(read("1..3"), Ok(vec![1, 2, 3]));
        assert_eq!(read("1,2..3,8"), Ok(vec![1, 2, 3, 8]));
        for wrong in ["", "0", "3..1", "1..", "257", "two"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
