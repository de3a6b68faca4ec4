// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pairs whose changes a test decides about.

use std::sync::Arc;

use terrace_core::{Kv, Result, Ticket};
use terrace_testkit::{Body, KvLayer, Layered};

use super::cluster::Server;

/// Has `transact` make, or not make, whatever changes the pairs of a server from now on.
pub(crate) fn change_through(
    server: &mut Server,
    transact: impl Fn(&dyn Kv, Body<'_>) -> Result<Ticket> + Send + Sync + 'static,
) {
    server.kv = Arc::new(Layered(Changed { inner: Arc::clone(&server.kv), transact }));
}

struct Changed<F> {
    inner: Arc<dyn Kv>,
    transact: F,
}

impl<F> KvLayer for Changed<F>
where
    F: Fn(&dyn Kv, Body<'_>) -> Result<Ticket> + Send + Sync + 'static,
{
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        (self.transact)(&*self.inner, body)
    }
}
