// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the stack asks of a log of the catalog on a shared tier.

use terrace_core::Result;

/// The catalog's log on a shared tier, which another machine reads after the loss of this one.
pub trait FarLog: Send + Sync {
    /// The name of the tier that has it.
    fn tier(&self) -> &str;

    /// Blocks until the log has every commit up to `ticket`. Concurrent callers share a request.
    ///
    /// # Errors
    ///
    /// `Denied` where another machine has taken the store over; errors of the tier.
    fn wait(&self, ticket: u64) -> Result<()>;
}
