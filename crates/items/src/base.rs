// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What items are built on.

use terrace_core::{
    Backend, Cursor, Draft, Key, Object, Open, Page, Pair, Persistency, Result, Stat,
};
use terrace_store::Store;

use crate::place::NAMESPACE;

/// Objects, and the pairs of the namespace [`NAMESPACE`]: a [`Store`], or in tests something that
/// stops at a step.
///
/// # Contract
///
/// - Each call takes effect at once for all, or not at all.
/// - Of several opens of one key with [`terrace_core::Create::New`] at the same time one succeeds.
/// - Of several removals of one pair at the same time one returns true.
pub trait Base: Send + Sync {
    /// Opens an object, as [`Backend::open`] does.
    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>>;

    /// Begins a new value of an object, as [`Backend::draft`] does.
    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>>;

    /// Size and times of an object, as [`Backend::stat`].
    fn stat(&self, key: &Key) -> Result<Stat>;

    /// Removes an object, as [`Backend::delete`].
    fn delete(&self, key: &Key) -> Result<()>;

    /// Objects of [`NAMESPACE`] whose names begin with `prefix`, as [`Backend::list`].
    fn list(&self, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page>;

    /// Reads a pair.
    fn pair(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Writes a pair, as durable as `persistency` says when this returns.
    fn put_pair(&self, key: &[u8], value: &[u8], persistency: Persistency) -> Result<()>;

    /// Removes a pair; whether it was there. A loss of power after this does not bring it back where
    /// an object that is deleted after it stays away.
    fn remove_pair(&self, key: &[u8]) -> Result<bool>;

    /// Up to `max` pairs whose keys begin with `prefix`, in order, after `after`.
    fn pairs(&self, prefix: &[u8], after: Option<&[u8]>, max: usize) -> Result<Vec<Pair>>;
}

impl Base for Store {
    fn open(&self, key: &Key, how: &Open) -> Result<Box<dyn Object>> {
        Backend::open(self, key, how)
    }

    fn draft(&self, key: &Key, how: &Open) -> Result<Box<dyn Draft>> {
        Backend::draft(self, key, how)
    }

    fn stat(&self, key: &Key) -> Result<Stat> {
        Backend::stat(self, key)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        Backend::delete(self, key)
    }

    fn list(&self, prefix: &str, cursor: &Cursor, max: usize) -> Result<Page> {
        Backend::list(self, NAMESPACE, prefix, cursor, max)
    }

    fn pair(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.kv_get(NAMESPACE, key)
    }

    fn put_pair(&self, key: &[u8], value: &[u8], persistency: Persistency) -> Result<()> {
        self.kv_put(NAMESPACE, key, value, persistency)
    }

    fn remove_pair(&self, key: &[u8]) -> Result<bool> {
        self.kv_remove_before_object(NAMESPACE, key)
    }

    fn pairs(&self, prefix: &[u8], after: Option<&[u8]>, max: usize) -> Result<Vec<Pair>> {
        self.kv_scan(NAMESPACE, prefix, after, max)
    }
}
