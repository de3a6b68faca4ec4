// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What commands, and the libraries that do their work, have of the terminal and of the process.
//!
//! - [`failure`]: why a command ends early, as one line on standard error and an exit status.
//! - [`interrupt`]: signals that ask a command to stop.
//! - [`output`]: standard output, for people and for programs.
//! - [`progress`]: a bar for what takes longer than a second.
//! - [`table`]: columns for people.
//!
//! It knows no stores: whatever works for a minute can report how far it is, and can be interrupted.
#![allow(clippy::disallowed_methods, reason = "a command runs in real time")]

pub mod failure;
pub mod interrupt;
pub mod output;
pub mod progress;
pub mod table;
