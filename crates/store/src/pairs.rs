// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The application's key-value pairs.

use terrace_core::{Kv, KvRange, Pair, Persistency, Result};
use terrace_stack::PairChange;

use crate::Store;
use crate::store::Side;

impl Store {
    /// Reads one of the application's key-value pairs.
    pub fn kv_get(&self, namespace: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_get(namespace, key),
            Side::Attached(link) => link.kv(namespace)?.get(key),
        }
    }

    /// Writes one, as durable as `persistency` says when this returns.
    ///
    /// # Errors
    ///
    /// `Invalid` for a namespace, key or value that is too long, `Unsupported` for a level that
    /// the catalog's engine cannot give, `Denied`, `NoSpace`, `Io`.
    pub fn kv_put(
        &self,
        namespace: &str,
        key: &[u8],
        value: &[u8],
        persistency: Persistency,
    ) -> Result<()> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_put(namespace, key, value, persistency),
            Side::Attached(link) => {
                link.kv(namespace)?.apply(&[(key, Some(value))], persistency).map(drop)
            }
        }
    }

    /// Removes one; whether it was there. Errors as [`Store::kv_put`].
    pub fn kv_remove(&self, namespace: &str, key: &[u8], persistency: Persistency) -> Result<bool> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_remove(namespace, key, persistency),
            Side::Attached(link) => Ok(link.kv(namespace)?.apply(&[(key, None)], persistency)? > 0),
        }
    }

    /// Up to `max` pairs whose keys start with `prefix`, in order, after `after`.
    pub fn kv_scan(
        &self,
        namespace: &str,
        prefix: &[u8],
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<Vec<Pair>> {
        match &self.side {
            Side::Owned(owned) => owned.stack.kv_scan(namespace, prefix, after, max),
            Side::Attached(link) => {
                let range = KvRange::prefix(prefix);
                let range = after.map_or_else(|| range.clone(), |after| range.rest_after(after));
                link.kv(namespace)?.scan(&range, max)
            }
        }
    }

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
