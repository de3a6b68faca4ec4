// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file system of a store, mounted for every program.
//!
//! `terrace-fs` knows files, `terrace-fuse` the kernel; here one is put before the other. Each file
//! is in one of two modes while it is open: the kernel reads and writes the tier's file itself
//! (*passthrough*), or asks this process for every range (*served*), which can move it meanwhile.

mod aliases;
mod behind;
mod below;
mod caching;
mod front;
mod locked;
mod locks;
mod mode;
mod mount;
mod open;
mod options;
mod probe;
mod refresher;
mod requests;
mod seen;
mod sizes;
mod slots;
mod tiers;
mod waiters;

pub use mount::Mount;
pub use open::{NAME_DEFAULT, Opening, open};
pub use options::{IoMode, Options};
pub use requests::{Requests, RequestsReport};
pub use tiers::Tiers;
