// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Key-value pairs of a namespace.

use terrace_core::{Persistency, Result};
use terrace_store::Store;

/// The key-value pairs of a namespace: small values with durable, atomic changes.
#[derive(Clone)]
pub struct Kv {
    store: Store,
    namespace: String,
    persistency: Persistency,
}

impl Kv {
    pub(crate) fn new(store: Store, namespace: &str) -> Self {
        Self { store, namespace: namespace.into(), persistency: Persistency::Process }
    }

    /// The same where each change survives this when it returns; `Process` unless asked for.
    #[must_use]
    pub fn persistency(mut self, persistency: Persistency) -> Self {
        self.persistency = persistency;
        self
    }

    /// Reads a value. Errors: `Invalid`, `Unreachable`, `Io`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.kv_get(&self.namespace, key)
    }

    /// Writes a value. Errors: `Invalid` (too long), `Unsupported` (the level), `Denied`, `NoSpace`,
    /// `Unreachable`, `Io`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.kv_put(&self.namespace, key, value, self.persistency)
    }

    /// Removes a value; whether it was there. Errors as [`Kv::put`].
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.store.kv_remove(&self.namespace, key, self.persistency)
    }

    /// Changes pairs in their order and together; `None` removes. Errors as [`Kv::put`], and then
    /// nothing was changed.
    pub fn apply(&self, changes: &[(&[u8], Option<&[u8]>)]) -> Result<()> {
        self.store.kv_apply(&self.namespace, changes, self.persistency).map(drop)
    }

    /// Up to `max` pairs whose keys begin with `prefix`, in order, behind the key `after`.
    pub fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.store.kv_scan(&self.namespace, prefix, after, max)
    }
}
