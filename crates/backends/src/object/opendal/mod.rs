// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects on a service of Apache OpenDAL: a directory of a WebDAV server.
//!
//! These services keep no metadata with an object, replace none atomically, and have no conditional write.
//! [`client`] makes up for it with names of its own, which `docs/formats/opendal-tier.md` specifies.

mod client;
mod failure;
mod late;
mod layout;
mod server;
mod settings;
mod slot;

use super::service::ServiceTier;

pub use settings::{OpendalService, OpendalSettings};

/// A directory of a service.
pub type Opendal = ServiceTier<OpendalSettings>;

impl Opendal {
    /// Longest object: it is one request, whose bytes are in memory until they are sent.
    pub const OBJECT_BYTES_MAX: u64 = server::OBJECT_BYTES_MAX;
}
