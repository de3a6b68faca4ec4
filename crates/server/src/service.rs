// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is served.

use std::sync::Arc;

use terrace_core::{Access, Backend, Kv, Result};

/// What a server serves.
pub trait Service: Send + Sync {
    /// The number of the store, the same at all times.
    fn store_id(&self) -> u128;

    /// Its objects.
    fn backend(&self) -> &dyn Backend;

    /// The key-value pairs of a namespace.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace that cannot be, `Unsupported` where no pairs are kept.
    fn kv(&self, namespace: &str) -> Result<Arc<dyn Kv>>;

    /// Carries out a call of the control plane.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no call, `Denied` for a change with [`Access::Read`]; what the call says.
    fn call(&self, call: &Call<'_>, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Called>;
}

/// A call of the control plane.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What the client may do.
    pub access: Access,
    /// Whether the client is a process of this machine, of the same user or root: whoever reaches
    /// a Unix socket is.
    pub is_local: bool,
    /// What is asked for, as JSON.
    pub json: &'a [u8],
    /// Bytes that belong to it.
    pub body: &'a [u8],
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// The result, as JSON.
    pub json: Vec<u8>,
    /// Bytes that belong to it.
    pub body: Vec<u8>,
}
