// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the checkpoints of `partdiff` and prints the sum of each main diagonal.

use std::process::ExitCode;

use partdiff::arguments::Arguments;
use partdiff::read;
use terrace_store::Result;

const HELP: &str = "\
Reads the checkpoints of partdiff in batches of ten, headers first, and prints of each the sum of
its main diagonal.

Usage: partdiff-read --store ADDRESS|--files DIRECTORY [--namespace NAME]

  --store ADDRESS    the store, a directory that `terrace init` made [or TERRACE_STORE]
  --namespace NAME   where in the store the checkpoints are [partdiff]
  --files DIRECTORY  where they are files";

fn main() -> ExitCode {
    match analyse() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("partdiff-read: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}

fn analyse() -> Result<()> {
    let names = ["store", "namespace", "files"];
    let Some(arguments) = Arguments::parse(&names, std::env::args().skip(1))? else {
        println!("{HELP}");
        return Ok(());
    };
    let summary = arguments.with_place(|place| {
        read(place, &mut |reading| {
            println!(
                "{}  iteration {:8}  diagonal {:.9}",
                reading.name, reading.header.iteration, reading.diagonal
            );
        })
    })?;
    println!("{} checkpoints, checksum {:016x}", summary.checkpoints, summary.checksum);
    Ok(())
}
