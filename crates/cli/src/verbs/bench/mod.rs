// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace bench`.

mod amr;
mod files;
mod micro;
mod size;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use terrace_bench::micro::{self as rows, Kind};
use terrace_bench::{
    fast_place, migrate, mount, net, overhead, prediction, served, slow_place, study, tables,
};
use terrace_core::units::{parse_bytes, parse_duration};

use super::{Group, Verb};
use crate::context::Context;
use crate::failure::{Failure, Result, from_local};
use crate::interrupt::Interrupt;
use crate::output::Output;

/// Measure what a store can do, beside what lies below it
///
/// Without a part it measures single operations on objects and key-value pairs, as its parts
/// `object` and `kv` do. Every part runs on stores of its own, which are removed afterwards, and
/// measures what lies below the stack in turns with it, in one process: the bare backend (`raw`)
/// or `cp`.
///
/// Where --store is the address of servers, `object` and `kv` measure that store instead, in
/// namespaces that they make and remove, with --clients in each of --processes. Where one of these
/// is given, --store may also be a directory.
///
/// Rates and times are medians of the repetitions; in brackets is the 95 % bound of where the
/// median lies. A bar is `met` only when that bound meets it; where noise hides the answer the
/// verdict is `not resolved`. docs/reference/bench.md describes each case and its columns.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    micro: micro::Micro,

    /// Do what is ordered on standard input: what the command starts itself for, so that clients
    /// are in processes of their own
    #[arg(long, hide = true)]
    obey: bool,
}

const CLUSTER_EXAMPLES: &str = "\
Examples:
  terrace bench cluster
  terrace bench cluster --servers 3 --clients 4 --processes 2 --case status --case create
  terrace bench cluster --size 4MiB --case read --json | jq '.cases[] | {servers, mb_per_s, balance}'";

const OBJECT_EXAMPLES: &str = "\
Examples:
  terrace bench object --size 4KiB,64KiB,1MiB --case read --case write
  terrace bench object --threads 1..4 --keys zipf --case open+read
  terrace bench object --level storage --batch 1,1000 --case create+write --directory /mnt/disk";

const AMR_EXAMPLES: &str = "\
Examples:
  terrace bench amr
  terrace bench amr --blocks 1000 --queue 64 --writers 4
  terrace bench amr --level storage --steps 4 --blocks 50 --directory /mnt/disk";

const STUDY_EXAMPLES: &str = "\
Examples:
  terrace bench hsm-study
  terrace bench hsm-study --pair tmpfs/disk --objects 128 --directory /mnt/disk
  terrace bench hsm-study --json | jq '.cases[] | [.pair, .policy, .batch, .write_mb_per_s.median]'";

const PREDICTION_EXAMPLES: &str = "\
Examples:
  terrace bench prediction
  terrace bench prediction --pair tmpfs/disk --repetitions 5 --directory /mnt/disk
  terrace bench prediction --pair disk/network --network /mnt/nfs --json | jq .bars";

const KV_EXAMPLES: &str = "\
Examples:
  terrace bench kv
  terrace bench kv --engine memory --level none --case get --keys zipf
  terrace bench kv --level storage --batch 1000 --case put --directory /mnt/disk";

const OVERHEAD_EXAMPLES: &str = "\
Examples:
  terrace bench overhead
  terrace bench overhead --seconds 5 --case read-4k --case open
  terrace bench overhead --json | jq '.cases[] | {case, raw_ns, stack_ns, verdict}'";

const SIZE_EXAMPLES: &str = "\
Examples:
  terrace bench size --objects 3000000
  terrace bench size --rebuild --directory /mnt/disk";

const NET_EXAMPLES: &str = "\
Examples:
  terrace bench net
  terrace bench net --row status-16c --row striped-2-read --directory /mnt/disk
  terrace bench net --json | jq '.rows[] | {row, value, yardstick, verdict}'";

const MOUNT_EXAMPLES: &str = "\
Examples:
  terrace bench mount                          as root
  terrace bench mount --row net-stat --row net-ls-lr
  terrace bench mount --row million-mount --files 100000 --json";

const MIGRATE_EXAMPLES: &str = "\
Examples:
  terrace bench migrate
  terrace bench migrate --size 256MiB --directory /mnt/disk --rounds 10";

#[derive(Subcommand, Debug)]
enum What {
    /// Every policy over pairs of tiers, with objects of 256 KiB
    ///
    /// Writes objects, four times as many as the fast tier takes, then reads twice as often as
    /// there are objects, the popular ones more often (zipf); each under every built-in policy, over
    /// memory, tmpfs, a disk and simulated devices, one by one and 8 at once. Draws what it found.
    #[command(after_long_help = STUDY_EXAMPLES)]
    HsmStudy {
        /// Objects of a run over a simulated device; eight times as many over others
        #[arg(long, value_name = "COUNT", default_value_t = 32,
              value_parser = clap::value_parser!(u64).range(8..=1024))]
        objects: u64,
        /// Runs of each policy over each pair
        #[arg(long, value_name = "COUNT", default_value_t = 3,
              value_parser = clap::value_parser!(u64).range(1..=100))]
        repetitions: u64,
        /// Only this pair of tiers; may be given several times
        #[arg(long = "pair", value_name = "PAIR", value_parser = PossibleValuesParser::new(study::pair_names()))]
        pairs: Vec<String>,
        /// Where the tiers on a disk are [default: /var/tmp]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// The drawing
        #[arg(long, value_name = "FILE", default_value = "hsm-study.svg")]
        picture: PathBuf,
    },
    /// How well replays foresee what stores do
    ///
    /// Calibrates the tiers of each pair, then does the same twice: replays small traces of five kinds
    /// of programs under five policies in virtual time, and plays them on stores. Compares the
    /// time that they took, what each tier served, what was moved, and which policy was better.
    #[command(after_long_help = PREDICTION_EXAMPLES)]
    Prediction {
        /// Live runs of each workload under each policy over each pair
        #[arg(long, value_name = "COUNT", default_value_t = 3,
              value_parser = clap::value_parser!(u64).range(1..=100))]
        repetitions: u64,
        /// Only this pair of tiers; may be given several times
        #[arg(long = "pair", value_name = "PAIR", value_parser = PossibleValuesParser::new(prediction::pair_names()))]
        pairs: Vec<String>,
        /// Only this workload; may be given several times
        #[arg(long = "workload", value_name = "NAME", value_parser = PossibleValuesParser::new(prediction::workload_names()))]
        workloads: Vec<String>,
        /// Only this policy; may be given several times
        #[arg(long = "policy", value_name = "NAME", value_parser = prediction::POLICIES)]
        policies: Vec<String>,
        /// How long the tiers of each pair are measured, a part of it before each repetition
        #[arg(long, value_name = "SECONDS", default_value_t = 90,
              value_parser = clap::value_parser!(u64).range(1..=3600))]
        calibration: u64,
        /// Where tiers on a disk are [default: /var/tmp]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Where tiers on another machine are: a directory of a network file system; the pair
        /// disk/network needs it
        #[arg(long, value_name = "DIR")]
        network: Option<PathBuf>,
    },
    /// Nanoseconds that the stack adds to reads, writes, opens and creates
    ///
    /// The stack has two tiers and the policy lru; the `bare` cases have one tier and no policy.
    /// `scaling` compares the gain by a second thread on another object. The `python` cases compare a
    /// policy in Python with lru; they are measured only when they are named, and need NumPy.
    #[command(after_long_help = OVERHEAD_EXAMPLES)]
    Overhead {
        /// Time for all cases together, in seconds
        #[arg(long, default_value_t = 30.0)]
        seconds: f64,
        /// Groups of four blocks (raw, stack, stack, raw) for each case; fewer than 20 support no
        /// verdict
        #[arg(long, value_name = "COUNT", default_value_t = 40,
              value_parser = clap::value_parser!(u64).range(1..=1000))]
        groups: u64,
        /// Only this case; may be given several times
        #[arg(long = "case", value_name = "CASE", value_parser = overhead::CASES)]
        cases: Vec<String>,
    },
    /// Rates and latencies of single operations on objects
    ///
    /// - `create`: a new, empty object
    /// - `delete`: an object without bytes
    /// - `create+delete`: both, which counts as one operation
    /// - `create+write`: a new object with --size bytes
    /// - `status`: size and times by name, of 10000 objects
    /// - `read`, `write`: all of an open object; `mixed`: seven reads for three writes
    /// - `open+read`: all of an object by name
    /// - `read-run`, `write-run`: a batch goes through one object, --size bytes at a time
    ///
    /// Raw is the same call on the bare backend, in a directory beside that of the stack. In
    /// batches, all operations are by name and share one call of `execute`.
    #[command(after_long_help = OBJECT_EXAMPLES)]
    Object(micro::Micro),
    /// Rates and latencies of single operations on key-value pairs
    ///
    /// - `put`: a new pair whose value has --size bytes
    /// - `get`: the value of one of 10000 pairs
    /// - `delete`: a pair, and whether it was there
    /// - `put+delete`: both, which counts as one operation
    ///
    /// Raw is the same on the bare engine; there, a batch of changes is one transaction. A stack
    /// commits the pairs of a batch one by one and makes them durable together.
    #[command(after_long_help = KV_EXAMPLES)]
    Kv(micro::Micro),
    /// A code with an adaptive mesh, which writes while it computes
    ///
    /// In every time step it computes, then hands a burst of blocks of 33 to 50 kB to threads that
    /// write an object each while it computes on. Where the queue before them is full, it waits:
    /// that is what it notices of the store. When all is written, a quarter of the blocks is read
    /// back, in any order, and compared.
    ///
    /// Raw is the same program on the bare backend. Its rate of writing includes the computing.
    #[command(after_long_help = AMR_EXAMPLES)]
    Amr(amr::Amr),
    /// Time and memory that a store of many objects takes
    ///
    /// Makes a store of empty objects in another process, then opens, lists, reads and checks it in
    /// this one; `memory` is the anonymous memory of this process.
    #[command(after_long_help = SIZE_EXAMPLES)]
    Size(size::Size),
    /// A store over the network, beside what the network itself can do
    ///
    /// Starts servers of its own on this machine, with authentication and checksums on, and runs
    /// every row in turns with its yardstick: iperf3, a bare echo server, or pread of the same files.
    /// CPU time is that of client and server together for each operation.
    #[command(after_long_help = NET_EXAMPLES)]
    Net {
        /// Pairs of blocks for each row; fewer than 20 support no verdict
        #[arg(long, value_name = "COUNT", default_value_t = 20,
              value_parser = clap::value_parser!(u64).range(1..=1000))]
        groups: u64,
        /// How long a block lasts, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 200,
              value_parser = clap::value_parser!(u64).range(10..=10_000))]
        block_ms: u64,
        /// Only this row; may be given several times
        #[arg(long = "row", value_name = "ROW", value_parser = net::ROWS)]
        rows: Vec<String>,
        /// Where the store on a disk is [default: /var/tmp]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Mounted stores, beside the directories of their tiers and a daemon that passes everything on
    ///
    /// Mounts what it needs below a directory of its own in main memory, as root, and unmounts it; runs every
    /// row in turns with its yardstick. CPU time is that of the daemons for each operation.
    ///
    /// The rows `pjdfstest-...` count tests that fail on the mount and pass on a directory in the same
    /// run; `fsx-...` count migrations of the file that fsx uses meanwhile. Where a suite is not found, its
    /// rows are not run.
    ///
    /// In `migrating-read-p99` and `fsx-...` all that is read is compared. The rows `million-...` are about
    /// a directory and a tree with --files files.
    ///
    /// The last line is about all rows: met only where each of them is.
    #[command(after_long_help = MOUNT_EXAMPLES)]
    Mount {
        /// Groups of four blocks for each row; fewer than 20 support no verdict
        #[arg(long, value_name = "COUNT", default_value_t = 20,
              value_parser = clap::value_parser!(u64).range(1..=1000))]
        groups: u64,
        /// How long a block lasts, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 100,
              value_parser = clap::value_parser!(u64).range(10..=10_000))]
        block_ms: u64,
        /// Only this row; may be given several times
        #[arg(long = "row", value_name = "ROW", value_parser = mount::ROWS)]
        rows: Vec<String>,
        /// Files of the rows that have very many
        #[arg(long, value_name = "COUNT", default_value_t = 1_000_000,
              value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
        files: u64,
        /// Where pjdfstest and fsx are, as `tools/setup.sh --suites` installs them [default: PATH]
        #[arg(long, value_name = "DIR")]
        suites: Option<PathBuf>,
        /// Operations of fsx; fewer than 200000 support no verdict
        #[arg(long, value_name = "COUNT", default_value_t = mount::FSX_OPERATIONS,
              value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
        fsx_operations: u64,
        /// Mirror this directory instead: what the command starts itself for
        #[arg(long, value_name = "DIR", hide = true, requires = "place")]
        mirror: Option<PathBuf>,
        /// How long the mirror may be believed
        #[arg(long, value_name = "DURATION", hide = true, default_value = "1s")]
        cache: String,
        /// Have the kernel ask the mirror over io_uring
        #[arg(long, hide = true)]
        uring: bool,
        /// Where the mirror is mounted
        #[arg(hide = true)]
        place: Option<PathBuf>,
    },
    /// The same work in directories of any file systems, in turns
    ///
    /// Makes, reads, looks at, lists and removes small files, and reads and writes one large file from
    /// several processes, in a directory of its own below each that is given. The first is
    /// compared with each of the others. Before every block the caches of this machine's kernel are
    /// dropped, as root, and no file is asked for twice in a block. What daemons and servers keep in
    /// their own memory stays, but for what --forget has them forget: the rows `shared-...-read-...` are
    /// about a file that was just written, which a daemon may still have.
    ///
    /// - `create-1k`, `remove`: a file of 1 KiB
    /// - `stat`, `read-1k`: each of 2000 files once
    /// - `ls-lr`: `ls -lR` of a tree
    /// - `shared-seq-...`: 1 MiB at a time of one file, every process every other MiB
    /// - `shared-rand-...`: 4 KiB at a time, all over it
    ///
    /// Writes end with an fsync of every process, which counts.
    #[command(after_long_help = files::EXAMPLES)]
    Files(files::Files),
    /// Servers and clients on this machine: every case over one server and over all
    ///
    /// Starts servers with a store and a secret each, on free ports of the loopback interface, and
    /// processes with clients; measures the cases of `object` and `kv` over the first server and
    /// over all of them, in turns; ends everything. Says what each server did and what it cost.
    #[command(after_long_help = CLUSTER_EXAMPLES)]
    Cluster {
        /// How many servers
        #[arg(long, value_name = "COUNT", default_value_t = 2,
              value_parser = clap::value_parser!(u64).range(1..=16))]
        servers: u64,
        #[command(flatten)]
        micro: micro::Micro,
    },
    /// A large object between main memory and a disk, beside `cp` and fsync
    ///
    /// Copies physically, in both directions, and looks at what readers and writers notice.
    #[command(after_long_help = MIGRATE_EXAMPLES)]
    Migrate {
        /// Size of the object
        #[arg(long, default_value = "1GiB")]
        size: String,
        /// Where the slow tier is: a directory on another file system [default: /var/tmp]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Migrations each way, every other one with readers; fewer than 40 support no verdict
        #[arg(long, value_name = "COUNT", default_value_t = 40,
              value_parser = clap::value_parser!(u64).range(2..=1000))]
        rounds: u64,
        /// Migrations under a writer, whose longest wait is looked for; fewer than 100 support no
        /// verdict
        #[arg(long, value_name = "COUNT", default_value_t = 100,
              value_parser = clap::value_parser!(u64).range(1..=10_000))]
        moves: u64,
    },
}

impl Verb for Bench {
    const NAME: &'static str = "bench";
    const GROUP: Group = Group::Trial;
    const EXAMPLES: &'static str = "
  terrace bench
  terrace bench --case create --case status --threads 1..4 --json
  terrace bench object --level storage --batch 1000 --case create+write --directory /mnt/disk
  terrace --store terrace://host bench object --clients 4 --processes 2 --case status
  terrace bench cluster --servers 2 --clients 4
  terrace bench amr --writers 4
  terrace bench hsm-study --picture study.svg
  terrace bench overhead --json | jq '.cases[] | {case, raw_ns, stack_ns, verdict}'
  terrace bench size --objects 3000000
  terrace bench files --at terrace=/mnt/files --at nfs=/mnt/nfs
  terrace bench migrate --size 256MiB --directory /mnt/disk";

    fn run(self, context: &Context) -> Result<()> {
        if self.obey {
            let interrupt = Interrupt::watch()?;
            served::obey(context.store()?, &interrupt.flag());
            return Ok(());
        }
        match self.what {
            None => run_micro(self.micro, &[Kind::Object, Kind::Kv], context),
            Some(What::Object(micro)) => run_micro(micro, &[Kind::Object], context),
            Some(What::Kv(micro)) => run_micro(micro, &[Kind::Kv], context),
            Some(What::Amr(options)) => {
                let settings = options.settings()?;
                let cases = until_interrupted(|stop| terrace_bench::amr::run(&settings, stop))?;
                show(context, &json!({ "cases": cases }), || tables::amr(&cases).lines())
            }
            Some(What::HsmStudy { objects, repetitions, pairs, directory, picture }) => {
                context.check_output(&picture)?;
                let settings = study::Settings {
                    objects: objects as usize,
                    repetitions: repetitions as usize,
                    pairs,
                    fast: fast_place(),
                    disk: directory.unwrap_or_else(slow_place),
                };
                let cases = until_interrupted(|stop| study::run(&settings, stop))?;
                std::fs::write(&picture, study::picture::draw(&cases)).map_err(|error| {
                    from_local("write the picture", error).with("file", picture.display())
                })?;
                show(context, &json!({ "cases": cases, "picture": picture }), || {
                    let mut lines = tables::study(&cases).lines();
                    lines.push(format!("{} shows it", picture.display()));
                    lines
                })
            }
            Some(What::Prediction {
                repetitions,
                pairs,
                workloads,
                policies,
                calibration,
                directory,
                network,
            }) => {
                let settings = prediction::Settings {
                    pairs,
                    workloads,
                    policies,
                    repetitions: repetitions as usize,
                    calibration: Duration::from_secs(calibration),
                    disk: directory.unwrap_or_else(slow_place),
                    network,
                };
                let report = until_interrupted(|stop| prediction::run(&settings, stop))?;
                show(context, &json!(report), || tables::prediction(&report))
            }
            Some(What::Overhead { seconds, groups, cases }) => {
                let seconds = seconds.clamp(0.1, 3600.0);
                let settings = overhead::Settings { seconds, groups: groups as usize, cases };
                let cases = until_interrupted(|stop| overhead::run(&settings, stop))?;
                show(context, &json!({ "cases": cases }), || tables::overhead(&cases).lines())
            }
            Some(What::Cluster { servers, micro }) => {
                let (clients, servers) = (micro.who(), servers as usize);
                let settings = micro.settings(&[Kind::Object, Kind::Kv])?;
                let rows = until_interrupted(|stop| {
                    served::run_cluster(&settings, &clients, servers, stop)
                })?;
                show_served(context, &rows)
            }
            Some(What::Size(options)) => {
                let fill = options.fill.clone();
                let settings = options.settings();
                if let Some(place) = fill {
                    return Ok(terrace_bench::size::fill(&place, &settings)?);
                }
                let report = until_interrupted(|stop| terrace_bench::size::run(&settings, stop))?;
                show(context, &json!(report), || tables::size(&report).lines())
            }
            Some(What::Net { groups, block_ms, rows, directory }) => {
                let disk = directory.unwrap_or_else(slow_place);
                let settings = net::Settings { groups: groups as usize, block_ms, rows, disk };
                let rows = until_interrupted(|stop| net::run(&settings, stop))?;
                show(context, &json!({ "rows": rows }), || tables::net(&rows).lines())
            }
            Some(What::Mount {
                mirror: Some(source), place: Some(place), cache, uring, ..
            }) => Ok(mount::mirror(&source, &place, parse_duration(&cache)?, uring)?),
            Some(What::Mount { groups, block_ms, rows, files, suites, fsx_operations, .. }) => {
                let groups = groups as usize;
                let settings =
                    mount::Settings { groups, block_ms, rows, files, suites, fsx_operations };
                let rows = until_interrupted(|stop| mount::run(&settings, stop))?;
                let verdict = mount::verdict(&rows);
                show(context, &json!({ "rows": rows, "verdict": verdict }), || {
                    let mut lines = tables::mount(&rows).lines();
                    lines.extend(tables::mount_notes(&rows));
                    lines
                })
            }
            Some(What::Files(options)) => {
                if options.obey {
                    terrace_bench::files::obey();
                    return Ok(());
                }
                let settings = options.settings()?;
                let rows = until_interrupted(|stop| terrace_bench::files::run(settings, stop))?;
                show(context, &json!({ "rows": rows }), || tables::files(&rows).lines())
            }
            Some(What::Migrate { size, directory, rounds, moves }) => {
                let settings = migrate::Settings {
                    size_bytes: parse_bytes(&size)?.max(4096),
                    slow: directory.unwrap_or_else(slow_place),
                    rounds: rounds as usize,
                    stall_moves: moves as usize,
                };
                let report = until_interrupted(|stop| migrate::run(&settings, stop))?;
                show(context, &json!(report), || tables::migrate(&report).lines())
            }
        }
    }
}

fn run_micro(micro: micro::Micro, kinds: &[Kind], context: &Context) -> Result<()> {
    if let Some(address) = micro.store(context)? {
        micro.check_served()?;
        let clients = micro.who();
        let settings = micro.settings(kinds)?;
        let rows = until_interrupted(|stop| served::run(&settings, &clients, address, stop))?;
        return show_served(context, &rows);
    }
    let settings = micro.settings(kinds)?;
    let rows = until_interrupted(|stop| rows::run(&settings, stop))?;
    show(context, &json!({ "cases": rows }), || {
        let mut lines = tables::micro(&rows).lines();
        lines.extend(tables::ended_early(&rows));
        lines
    })
}

fn show_served(context: &Context, rows: &[served::Row]) -> Result<()> {
    show(context, &json!({ "cases": rows }), || {
        let mut lines = tables::served(rows).lines();
        lines.extend(tables::servers(rows).lines());
        lines.extend(tables::served_early(rows));
        lines
    })
}

/// Lets Ctrl-C end a benchmark so that it removes its files.
fn until_interrupted<T, E>(run: impl FnOnce(&AtomicBool) -> std::result::Result<T, E>) -> Result<T>
where
    Failure: From<E>,
{
    let interrupt = Interrupt::watch()?;
    let outcome = run(&interrupt.flag());
    interrupt.check("nothing was left behind")?;
    Ok(outcome?)
}

/// Prints a report for programs, or its lines for people.
fn show(context: &Context, report: &Value, lines: impl FnOnce() -> Vec<String>) -> Result<()> {
    let mut output = Output::new();
    if context.is_json {
        output.json(report)?;
    } else {
        for line in lines() {
            output.line(line)?;
        }
    }
    output.flush()
}
