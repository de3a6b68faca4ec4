// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Solves the heat equation and writes checkpoints to a store, or to files.

use std::process::ExitCode;

use partdiff::arguments::Arguments;
use partdiff::{Settings, Timed, run};
use terrace_store::{Clock, Result, SystemClock};

const HELP: &str = "\
Solves the heat equation on a square grid and writes a checkpoint every few iterations.

Usage: partdiff --store ADDRESS|--files DIRECTORY [OPTIONS]

  --store ADDRESS      the store, a directory that `terrace init` made [or TERRACE_STORE]
  --namespace NAME     where in the store the checkpoints go [partdiff]
  --files DIRECTORY    one file for each checkpoint in this directory, in place of a store
  --grid POINTS        points along one edge, 3 to 32768 [256]
  --checkpoints COUNT  how many to write [100]
  --interval COUNT     iterations between two of them [100]
  --method METHOD      jacobi or gauss-seidel [gauss-seidel]
  --persistency LEVEL  what a checkpoint survives: none, process (a crash) or storage (a loss of
                       power) [process]";

const NAMES: &[&str] =
    &["store", "namespace", "files", "grid", "checkpoints", "interval", "method", "persistency"];

fn main() -> ExitCode {
    match solve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("partdiff: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}

fn solve() -> Result<()> {
    let Some(arguments) = Arguments::parse(NAMES, std::env::args().skip(1))? else {
        println!("{HELP}");
        return Ok(());
    };
    let default = Settings::default();
    let settings = Settings {
        dimension: arguments.get("grid", default.dimension)?,
        method: arguments.get("method", default.method)?,
        checkpoints: arguments.get("checkpoints", default.checkpoints)?,
        interval: arguments.get("interval", default.interval)?,
        persistency: arguments.get("persistency", default.persistency)?,
    };
    let summary = arguments.with_place(|place| {
        let clock = SystemClock::default();
        let place = Timed::new(place, &clock);
        let start_ns = clock.now_ns();
        let summary = run(&place, &settings, &mut |header| {
            println!("iteration {:8}  residuum {:.6e}", header.iteration, header.residuum);
        })?;
        let create_s = place.create_ns() as f64 * 1e-9;
        let compute_s = (clock.now_ns() - start_ns) as f64 * 1e-9 - create_s;
        println!("compute {compute_s:.6} s, checkpoints {create_s:.6} s");
        Ok(summary)
    })?;
    println!("{} checkpoints, checksum {:016x}", summary.checkpoints, summary.checksum);
    Ok(())
}
