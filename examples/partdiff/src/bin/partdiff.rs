// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Solves the heat equation and writes checkpoints to a store.

use std::process::ExitCode;

use partdiff::arguments::Arguments;
use partdiff::{Settings, run};
use terrace_store::{Result, Store};

const HELP: &str = "\
Solves the heat equation on a square grid and writes a checkpoint every few iterations.

Usage: partdiff --store ADDRESS [OPTIONS]

  --store ADDRESS      the store, a directory that `terrace init` made [or TERRACE_STORE]
  --namespace NAME     where the checkpoints go [partdiff]
  --grid POINTS        points along one edge, at least 3 [256]
  --checkpoints COUNT  how many to write [100]
  --interval COUNT     iterations between two of them [100]
  --method METHOD      jacobi or gauss-seidel [gauss-seidel]
  --persistency LEVEL  what a checkpoint survives: none, process (a crash) or storage (a loss of
                       power) [process]";

const NAMES: &[&str] =
    &["store", "namespace", "grid", "checkpoints", "interval", "method", "persistency"];

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
        namespace: arguments.get("namespace", default.namespace)?,
        dimension: arguments.get("grid", default.dimension)?.max(3),
        method: arguments.get("method", default.method)?,
        checkpoints: arguments.get("checkpoints", default.checkpoints)?,
        interval: arguments.get("interval", default.interval)?,
        persistency: arguments.get("persistency", default.persistency)?,
    };
    let store = Store::open(&arguments.store()?)?;
    let summary = run(&store, &settings, &mut |header| {
        println!("iteration {:8}  residuum {:.6e}", header.iteration, header.residuum);
    })?;
    println!("{} checkpoints, checksum {:016x}", summary.checkpoints, summary.checksum);
    store.close()
}
