// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whoever keeps the metadata of a file system.

use crate::failure::Result;
use crate::request::{Reply, Request};

/// The metadata of a file system: here, or with a server.
///
/// # Contract
///
/// - Calls may be made from many threads at once and may block.
/// - Each takes effect at once for all, or not at all.
/// - What one call acknowledged, every later call sees.
pub trait Metadata: Send + Sync {
    /// Carries out a request.
    ///
    /// # Errors
    ///
    /// As POSIX says for what was asked; `IO` and others with a text where something broke.
    fn call(&self, request: &Request<'_>) -> Result<Reply>;
}
