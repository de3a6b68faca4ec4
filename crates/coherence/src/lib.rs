// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cache coherence of file system clients as pure state machines: time and messages in, messages out.
//!
//! A server grants a client *capabilities* on inodes ([`Caps`]) and recalls them before a conflicting request
//! of another client is carried out ([`Table`]). A client answers from its cache while it holds a capability
//! and its lease lasts, and defers changes in an ordered log while it holds an exclusive one ([`Client`]).
//! The references are delegations of NFSv4 (RFC 8881, sections 8.4 and 10) and capabilities of CephFS.
//!
//! Nothing here does I/O, reads a clock or locks. The simulation in `sim` runs server and clients over a
//! network that delays, reorders, cuts and restarts, and checks that what clients see is linearizable.
//! Mounts do not use this crate yet ([ADR 57](../../../docs/adr/0057-capabilities.md)).

mod caps;
mod changes;
mod client;
mod log;
mod mutant;
#[cfg(test)]
mod sim;
mod table;

pub use caps::{Access, Caps, Claim, Cover, Grant, Recall, Release, Session, Touch};
pub use client::{Client, ClientSettings, Flush, Full};
pub use log::{LogSettings, Logged, Refused};
pub use table::{Output, Refusal, Table, TableSettings};
