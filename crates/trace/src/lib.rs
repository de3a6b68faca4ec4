// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of what happened in a stack and of what its policy decided.
//!
//! A [`Writer`] fills a directory with files, a [`Reader`] reads them, also while they are
//! written, and [`Scene`] gives back what the policy was shown. The format is documented in
//! `docs/formats/trace.md`.

mod access;
mod block;
mod codec;
mod directory;
mod disk;
mod entry;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod names;
mod reader;
mod record;
mod scene;
mod writer;

pub use file::is_file;
pub use reader::{Damage, Item, Problem, Reader};
pub use record::{
    Access, Cause, HASHED_NAMESPACE, Head, ObjectName, ParameterValue, PolicyChange, Record, Round,
    SavedState, Snapshot, State, Subject, Tier, TierState, Waits,
};
pub use scene::{Scene, Step};
pub use writer::{About, MAX_BYTES_DEFAULT, MAX_BYTES_MIN, Origin, Report, Settings, Writer};
