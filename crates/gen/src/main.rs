// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A parallel load generator for file systems: the patterns of IOR and mdtest by their parameters.
//!
//! [`arguments`] reads the command line, [`layout`] and [`tree`] assign bytes and items to
//! processes, [`data`] and [`items`] do the work, [`group`] leads processes of one or many hosts through
//! it, and [`report`] is what comes out.

mod arguments;
mod clock;
mod content;
mod crew;
mod data;
mod error;
mod group;
mod items;
mod latency;
mod layout;
mod mix;
mod permutation;
mod phase;
mod quantity;
mod report;
mod tree;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Role};
use crate::error::{Error, Result};
use crate::group::{coordinator, member, worker};
use crate::report::Report;

fn main() -> ExitCode {
    let plan = match Arguments::parse().plan(|name| std::env::var(name).ok()) {
        Ok(plan) => plan,
        Err(error) => return fail(&error),
    };
    let done = match &plan.role {
        Role::Coordinator { processes, remote, joining } => {
            coordinator::run(&plan, *processes, remote.as_ref(), *joining)
                .and_then(|gathered| print(&Report::new(&plan, gathered)?))
        }
        Role::Member { processes, first_rank, remote } => {
            member::run(&plan, remote, *first_rank, *processes)
        }
        Role::Worker { rank, processes, is_remote } => {
            let done = worker::run(&plan, *rank, *processes, *is_remote);
            if !is_remote && done.is_err() {
                // The coordinator has received it, and prints it.
                return ExitCode::FAILURE;
            }
            done
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn print(report: &Report<'_>) -> Result<()> {
    let text = serde_json::to_string(report).expect("a report is plain values");
    let written = writeln!(io::stdout(), "{text}");
    written.map_err(|error| Error::system("print the report", error))
}

fn fail(error: &Error) -> ExitCode {
    eprintln!("terrace-gen: {error}");
    ExitCode::FAILURE
}
