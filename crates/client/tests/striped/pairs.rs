// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairs whose changes a test decides about.

use std::sync::Arc;

use terrace_core::{Kv, KvRange, Pair, Persistency, Result, Ticket, Txn};

use super::cluster::Server;

type Body<'a> = &'a mut dyn FnMut(&mut dyn Txn) -> Result<()>;

/// Has `transact` make, or not make, whatever changes the pairs of a server from now on.
pub(crate) fn change_through(
    server: &mut Server,
    transact: impl Fn(&dyn Kv, Body<'_>) -> Result<Ticket> + Send + Sync + 'static,
) {
    server.kv = Arc::new(Changed { inner: Arc::clone(&server.kv), transact });
}

struct Changed<F> {
    inner: Arc<dyn Kv>,
    transact: F,
}

impl<F> Kv for Changed<F>
where
    F: Fn(&dyn Kv, Body<'_>) -> Result<Ticket> + Send + Sync + 'static,
{
    fn target(&self) -> &str {
        self.inner.target()
    }

    fn persistency(&self) -> Persistency {
        self.inner.persistency()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(key)
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.inner.scan(range, max)
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        (self.transact)(&*self.inner, body)
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.inner.wait(ticket)
    }
}
