// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairs that a test comes in between of.

use std::ops::Deref;

use terrace_core::{Kv, KvRange, Pair, Persistency, Result, Ticket, Txn};

/// What carries a transaction out.
pub type Body<'a> = &'a mut dyn FnMut(&mut dyn Txn) -> Result<()>;

/// What comes in between of other pairs; each method passes on, unless it says otherwise.
pub trait KvLayer: Send + Sync {
    /// Those below.
    fn inner(&self) -> &dyn Kv;

    /// As [`Kv::persistency`].
    fn persistency(&self) -> Persistency {
        self.inner().persistency()
    }

    /// As [`Kv::get`].
    ///
    /// # Errors
    ///
    /// As that.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner().get(key)
    }

    /// As [`Kv::scan`].
    ///
    /// # Errors
    ///
    /// As that.
    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.inner().scan(range, max)
    }

    /// As [`Kv::transact`].
    ///
    /// # Errors
    ///
    /// As that.
    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        self.inner().transact(body)
    }

    /// As [`Kv::wait`].
    ///
    /// # Errors
    ///
    /// As that.
    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.inner().wait(ticket)
    }

    /// As [`Kv::has_room`].
    fn has_room(&self) -> bool {
        self.inner().has_room()
    }
}

/// Pairs with a layer over them.
pub struct Layered<L>(pub L);

impl<L> Deref for Layered<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.0
    }
}

impl<L: KvLayer> Kv for Layered<L> {
    fn target(&self) -> &str {
        self.inner().target()
    }

    fn persistency(&self) -> Persistency {
        self.0.persistency()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(key)
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.0.scan(range, max)
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        self.0.transact(body)
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.0.wait(ticket)
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }
}
