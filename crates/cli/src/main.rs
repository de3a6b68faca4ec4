// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `terrace` command.
//!
//! Every verb is one file under `verbs/` with its help, its arguments and its code. What they
//! share: [`command`] builds the command line, [`context`] opens the store, [`address`] reads
//! keys and places. What they print, how far they are and how they fail is in `terrace-console`;
//! what is more than a verb is in a crate of its own: copies in `terrace-transfer`, benchmarks,
//! the demo, the tuning of a store that runs.
#![allow(clippy::disallowed_methods, reason = "a command runs in real time")]

mod address;
mod attributes;
mod cached;
mod command;
mod context;
mod inherited;
mod log;
mod metrics;
mod modelled;
mod mount_helper;
mod mounted;
mod reached;
mod reading;
mod selection;
mod service_manager;
mod time;
mod verbs;

use std::process::ExitCode;

use terrace_console::{failure, interrupt, output, progress, table};

fn main() -> ExitCode {
    inherited::settle();
    // There are no threads yet, for which it takes longer than most commands.
    terrace_store::make_room_for_descriptors();
    match command::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => ended.exit(),
    }
}
