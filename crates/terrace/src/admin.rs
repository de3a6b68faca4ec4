// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers, placement and migrations.

use std::time::Duration;

use terrace_core::Result;
use terrace_store::{Explanation, MoveKind, PolicySource, Store, TierReport};

use crate::names::key;

/// Shows and steers where objects are. Everything else is done with the command `terrace`.
#[derive(Clone)]
pub struct Admin {
    store: Store,
}

impl Admin {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    /// All tiers, the most preferred first.
    pub fn tiers(&self) -> Result<Vec<TierReport>> {
        self.store.admin().tiers()
    }

    /// Where an object is, and why. Errors: `NotFound`, `Corrupt`, `Unreachable`, `Io`.
    pub fn explain(&self, name: &str) -> Result<Explanation> {
        self.store.admin().explain(&key(name)?)
    }

    /// Queues the migration of an object to a tier. Errors: `NotFound` (object or tier), `Denied`
    /// (pinned), `Busy` (moving already), `Unsupported`, `Invalid`.
    pub fn migrate(&self, name: &str, tier: &str) -> Result<()> {
        self.store.admin().migrate(&key(name)?, tier, MoveKind::Move, 0, "asked for").map(drop)
    }

    /// The same, and keeps the bytes where they were as a clean copy: bringing the object back costs no copying while
    /// it does not change. Errors as [`Admin::migrate`].
    pub fn promote(&self, name: &str, tier: &str) -> Result<()> {
        self.store.admin().migrate(&key(name)?, tier, MoveKind::Promote, 0, "asked for").map(drop)
    }

    /// Blocks until no migration waits or runs; false where that took longer than `timeout`.
    pub fn wait_idle(&self, timeout: Duration) -> Result<bool> {
        self.store.admin().wait_idle(timeout)
    }

    /// Keeps an object where it is. Errors: `NotFound`, `Denied`, `Io`.
    pub fn pin(&self, name: &str) -> Result<()> {
        self.store.admin().pin(&key(name)?)
    }

    /// Allows migrations of an object again. Errors: `NotFound`, `Denied`, `Io`.
    pub fn unpin(&self, name: &str) -> Result<()> {
        self.store.admin().unpin(&key(name)?)
    }

    /// Replaces the policy while the store runs: the name of a built-in one, or the path of a file.
    /// Errors: `NotFound`, `Invalid`, `Unsupported`, `Denied`, `Busy`.
    pub fn set_policy(&self, name: &str, parameters: &[(String, String)]) -> Result<()> {
        self.store.admin().set_policy(&PolicySource::named(name), parameters)
    }
}
