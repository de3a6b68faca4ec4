// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Administration: one trait, [`Admin`], with three implementations.
//!
//! [`Owned`] is a store of this process, with its policy and its file systems; [`Cluster`] is several stores behind servers.
//!
//! `operations` declares each operation once; what a client sends and how a server takes it apart follows
//! from that. `local` carries them out for a store that this process owns, `remote` asks a server, and
//! `cluster` several. `request` is what is sent (`docs/formats/control.md`), `reports` what is passed and
//! returned where no other crate has it.
//!
//! To add an operation: declare it, and write its body in `local`. Several servers refuse it unless `cluster`
//! says how it is asked of all.

mod cluster;
mod local;
mod operations;
mod remote;
mod reports;
mod request;

pub use cluster::Cluster;
pub use local::{Alone, Owned, WATCH_TICK};
pub use operations::Admin;
pub use reports::{FilesReport, Recording, Seen};
pub use request::{Progress, Request, answer};
