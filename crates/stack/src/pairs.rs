// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An application's pairs of one namespace as a key-value engine.

use std::ops::Bound;
use std::sync::Arc;

use terrace_core::{Kv, KvRange, Pair, Persistency, Result, Ticket, Txn};

use crate::catalog::map::application_prefix;
use crate::shared::Shared;

/// The pairs of a namespace. Keys are shorter than an engine's by the length of the namespace and
/// a few bytes.
pub(crate) struct Pairs {
    shared: Arc<Shared>,
    /// What all keys of the namespace begin with.
    prefix: Vec<u8>,
}

impl Pairs {
    pub(crate) fn new(shared: &Arc<Shared>, namespace: &str) -> Self {
        Self { shared: Arc::clone(shared), prefix: application_prefix(namespace) }
    }

    fn full(&self, key: &[u8]) -> Result<Vec<u8>> {
        full(&self.prefix, key)
    }
}

fn full(prefix: &[u8], key: &[u8]) -> Result<Vec<u8>> {
    if key.is_empty() {
        return Err(terrace_core::Error::invalid("use a pair", "the key is empty"));
    }
    Ok([prefix, key].concat())
}

/// The same range behind a prefix.
fn behind(prefix: &[u8], range: &KvRange) -> KvRange {
    let whole = KvRange::prefix(prefix);
    let shifted = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) => Some(Bound::Included([prefix, key].concat())),
        Bound::Excluded(key) => Some(Bound::Excluded([prefix, key].concat())),
        Bound::Unbounded => None,
    };
    KvRange {
        start: shifted(&range.start).unwrap_or(whole.start),
        end: shifted(&range.end).unwrap_or(whole.end),
    }
}

fn without(prefix: &[u8], pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.into_iter().map(|(key, value)| (key[prefix.len()..].to_vec(), value)).collect()
}

impl Kv for Pairs {
    fn target(&self) -> &str {
        &self.shared.target
    }

    fn persistency(&self) -> Persistency {
        self.shared.catalog.persistency()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.shared.catalog.kv().get(&self.full(key)?)
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        let pairs = self.shared.catalog.kv().scan(&behind(&self.prefix, range), max)?;
        Ok(without(&self.prefix, pairs))
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        let mut has_written = false;
        let is_writable = self.shared.check_writable("change a pair");
        let ticket = self.shared.catalog.application_transact(&mut |txn| {
            let mut scoped = Scoped { txn, prefix: &self.prefix, has_written: false };
            body(&mut scoped)?;
            has_written = scoped.has_written;
            match &is_writable {
                Err(error) if has_written => {
                    Err(terrace_core::Error::relayed(error.kind(), &error.to_string()))
                }
                _ => Ok(()),
            }
        })?;
        if has_written && self.shared.settings.persistency >= Persistency::Storage {
            self.wait(ticket)?;
        }
        Ok(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.shared.wait_for(ticket, self.shared.settings.persistency.max(Persistency::Storage))
    }
}

/// The same pairs in a catalog that no stack has open.
pub(crate) struct SavedPairs {
    catalog: Arc<dyn Kv>,
    prefix: Vec<u8>,
}

impl SavedPairs {
    pub(crate) fn new(catalog: &Arc<dyn Kv>, namespace: &str) -> Self {
        Self { catalog: Arc::clone(catalog), prefix: application_prefix(namespace) }
    }
}

impl Kv for SavedPairs {
    fn target(&self) -> &str {
        self.catalog.target()
    }

    fn persistency(&self) -> Persistency {
        self.catalog.persistency()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.catalog.get(&full(&self.prefix, key)?)
    }

    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        let pairs = self.catalog.scan(&behind(&self.prefix, range), max)?;
        Ok(without(&self.prefix, pairs))
    }

    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket> {
        self.catalog.transact(&mut |txn| {
            body(&mut Scoped { txn, prefix: &self.prefix, has_written: false })
        })
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        self.catalog.wait(ticket)
    }
}

/// A transaction whose keys are those of the namespace.
struct Scoped<'a> {
    txn: &'a mut dyn Txn,
    prefix: &'a [u8],
    has_written: bool,
}

impl Txn for Scoped<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.txn.get(&full(self.prefix, key)?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.has_written = true;
        self.txn.put(&full(self.prefix, key)?, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.has_written = true;
        self.txn.delete(&full(self.prefix, key)?)
    }

    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        let pairs = self.txn.scan(&behind(self.prefix, range), max)?;
        Ok(without(self.prefix, pairs))
    }
}
