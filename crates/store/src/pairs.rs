// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many of the application's key-value pairs with one call.

use terrace_core::{Kv, Persistency, Result};
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

    /// Removes a pair that names an object, before that is deleted; whether it was there. As durable as
    /// the store's own level asks. Over several servers, where the object may be on another one than the
    /// pair, it is as durable as it can be there: else the pair could come back after a loss of power,
    /// and the object not.
    ///
    /// # Errors
    ///
    /// As [`Store::kv_put`].
    pub fn kv_remove_before_object(&self, namespace: &str, key: &[u8]) -> Result<bool> {
        let level = match &self.side {
            Side::Attached(link) if link.is_over_many() => link.kv(namespace)?.persistency(),
            _ => Persistency::None,
        };
        self.kv_remove(namespace, key, level)
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
