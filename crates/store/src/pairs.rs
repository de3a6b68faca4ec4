// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many of the application's key-value pairs with one call.

use terrace_core::{Persistency, Result};
use terrace_stack::PairChange;

use crate::Store;
use crate::store::Side;

impl Store {
    /// Changes pairs of a namespace in their order and with one commit: all of them or none.
    /// Returns how many of those to be removed were there. Errors as [`Store::kv_put`].
    pub fn kv_apply(
        &self,
        namespace: &str,
        changes: &[PairChange<'_>],
        persistency: Persistency,
    ) -> Result<usize> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_apply(namespace, changes, persistency),
            Side::Attached(link) => link.kv(namespace)?.apply(changes, persistency),
        }
    }

    /// Reads many pairs of a namespace, each as [`Store::kv_get`] does, with few round trips where
    /// another process owns them.
    pub fn kv_get_many(&self, namespace: &str, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        match &self.side {
            Side::Owned(_) => keys.iter().map(|key| self.kv_get(namespace, key)).collect(),
            Side::Attached(link) => link.kv(namespace)?.get_many(keys),
        }
    }
}
