// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `terrace` command.
//!
//! Every verb is one file under `verbs/` with its help, its arguments and its code. What they
//! share: [`command`] builds the command line, [`context`] opens the store, [`address`] reads
//! keys and places, [`transfer`] moves bytes, [`output`] and [`progress`] print, [`failure`] turns
//! errors into one line and an exit status.
#![allow(clippy::disallowed_methods, reason = "a command runs in real time")]

mod address;
mod attributes;
mod bench;
mod cached;
mod command;
mod context;
mod demo;
mod drawing;
mod failure;
mod inherited;
mod interrupt;
mod log;
mod metrics;
mod modelled;
mod mount_helper;
mod mounted;
mod output;
mod places;
mod progress;
mod reached;
mod reading;
mod selection;
mod service_manager;
mod table;
mod tier_text;
mod time;
mod transfer;
mod trees;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    inherited::settle();
    // There are no threads yet, for which it takes longer than most commands.
    terrace_store::make_room_for_descriptors();
    match command::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => ended.exit(),
    }
}
