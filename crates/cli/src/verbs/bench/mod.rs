// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `terrace bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use terrace_core::units::parse_bytes;

use super::{Group, Verb};
use crate::bench::{migrate, object, overhead, slow_place};
use crate::context::Context;
use crate::failure::Result;
use crate::output::Output;
use crate::table::Table;

/// Measure what the stack costs
///
/// Runs the raw backend and a stack of two tiers in turns, in one process and on stores of its
/// own, which are removed afterwards. A bar is `met` only when the 95 % bound of the difference or
/// ratio meets it; where noise hides the answer the verdict is `not resolved`. All rows are at
/// level `process`. Fast files are in /dev/shm where there is one.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Nanoseconds that the stack adds to reads, writes, opens and creates
    ///
    /// The stack has two tiers and the policy lru; the `bare` cases have one tier and no policy.
    /// `scaling` compares the gain by a second thread on another object.
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
    /// Rates and latencies of create, status, write, read and delete
    Object {
        /// Time for all cases together, in seconds
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Bytes that each write and read transfers
        #[arg(long, default_value = "4KiB")]
        size: String,
    },
    /// A large object between main memory and a disk, beside `cp` and fsync
    ///
    /// Copies physically, in both directions, and looks at what readers and writers notice.
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
  terrace bench overhead
  terrace bench overhead --json | jq '.cases[] | {case, raw_ns, stack_ns, verdict}'
  terrace bench object --size 64KiB
  terrace bench migrate --size 256MiB --directory /mnt/disk";

    fn run(self, context: &Context) -> Result<()> {
        let mut output = Output::new();
        match self.what {
            What::Overhead { seconds, groups, cases } => {
                let seconds = seconds.clamp(0.1, 3600.0);
                let settings = overhead::Settings { seconds, groups: groups as usize, cases };
                let cases = overhead::run(&settings)?;
                if context.is_json {
                    output.json(&json!({ "cases": cases }))?;
                } else {
                    print(&mut output, &overhead_table(&cases))?;
                }
            }
            What::Object { seconds, size } => {
                let size_bytes = parse_bytes(&size)?.clamp(1, 1 << 30) as usize;
                let cases = object::run(seconds.clamp(0.1, 600.0), size_bytes)?;
                if context.is_json {
                    output.json(&json!({ "cases": cases }))?;
                } else {
                    print(&mut output, &object_table(&cases))?;
                }
            }
            What::Migrate { size, directory, rounds, moves } => {
                let report = migrate::run(&migrate::Settings {
                    size_bytes: parse_bytes(&size)?.max(4096),
                    slow: directory.unwrap_or_else(slow_place),
                    rounds: rounds as usize,
                    stall_moves: moves as usize,
                })?;
                if context.is_json {
                    output.json(&json!(report))?;
                } else {
                    print(&mut output, &migrate_table(&report))?;
                }
            }
        }
        output.flush()
    }
}

fn print(output: &mut Output, table: &Table) -> Result<()> {
    for line in table.lines() {
        output.line(line)?;
    }
    Ok(())
}

fn overhead_table(cases: &[overhead::Case]) -> Table {
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

fn object_table(rows: &[object::Row]) -> Table {
    let mut table = Table::new(&[2, 3, 4, 5, 6]);
    table.heading(["case", "side", "operations/s", "MB/s", "p50 us", "p99 us", "cpu us", "level"]);
    for row in rows {
        table.row([
            row.case.into(),
            row.side.into(),
            format!("{:.0}", row.ops_per_s),
            format!("{:.1}", row.mb_per_s),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            format!("{:.2}", row.cpu_us_per_op),
            row.level.into(),
        ]);
    }
    table
}

fn migrate_table(report: &migrate::Report) -> Table {
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
