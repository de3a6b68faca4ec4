// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies: what decides which segment lives on which tier.
//!
//! One file a policy and one line in [`POLICIES`]; what they share is in `mechanism`; [`host`]
//! loads policies from shared libraries, [`program`] asks those in Python, [`calls`] tells which of
//! them hangs; [`replacement`] has orders in which caches give up objects.
//! `docs/policies/` defines each of them.

pub mod calls;
pub mod host;
pub mod program;
pub mod replacement;
pub mod tunable;

mod elevator;
mod energy;
mod filter;
mod heat;
mod lru;
mod mechanism;
mod pinned;
mod prefetch;
mod registry;
mod rules;
mod size;
mod workflow;
mod write_buffer;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod properties;

pub use registry::{Create, POLICIES, PolicyEntry, create};
