// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client of a file system that a server keeps: what it caches, and what it defers.
//!
//! [`RemoteFiles`] implements `Metadata` over a connection. Each request takes at most one round trip, and none
//! where a cache here has the answer. All coherence of these caches with other clients is in this crate.

mod ahead;
mod attributes;
mod cache_counts;
mod changed;
mod delegated;
mod held;
mod in_use;
mod later;
mod listings;
mod neighbours;
mod recent;
mod remote_files;
mod removals;
mod soon;

pub use in_use::{InUse, Using};
pub use remote_files::RemoteFiles;
