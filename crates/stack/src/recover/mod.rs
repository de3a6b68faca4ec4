// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening a stack: checks before anything is changed, recovery after a crash, and a catalog made anew.
//!
//! Owns the rules by which an opening trusts superblocks, catalog and files. Each step may be interrupted and
//! is idempotent.
//!
//! Locks: an opening has the stack for itself. Notes of objects that are written past the stack (`survivors`)
//! are changed under `changes` of the object.

pub(crate) mod check;
pub(crate) mod crash;
pub(crate) mod doubt;
pub(crate) mod open;
pub(crate) mod rebuild;
pub(crate) mod superblock;
pub(crate) mod survivors;
mod tail;
pub(crate) mod takeover;
