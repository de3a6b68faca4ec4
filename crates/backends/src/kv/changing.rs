// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The view of the only writer of an engine: what is committed, under its own changes.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use terrace_core::{KvRange, Pair, Result, Txn};

use super::{check_key, check_value};

/// New values by key; `None` removes.
pub(super) type Changes<B> = BTreeMap<B, Option<B>>;

/// What was committed to an engine that has one writer at a time.
pub(super) trait Committed {
    /// How it holds keys and values.
    type Bytes: Ord + Borrow<[u8]> + for<'a> From<&'a [u8]>;

    /// The committed value of a key.
    fn read_committed(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The first pairs of a range, as they are under these changes.
    fn scan_under(
        &self,
        changes: &Changes<Self::Bytes>,
        range: &KvRange,
        max: usize,
    ) -> Result<Vec<Pair>>;
}

/// A transaction that collects its changes.
pub(super) struct Changing<'a, E: Committed> {
    engine: &'a E,
    changes: Changes<E::Bytes>,
}

impl<'a, E: Committed> Changing<'a, E> {
    /// The changes that `body` makes; nothing is kept of them where it fails.
    pub(super) fn collect(
        engine: &'a E,
        body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>,
    ) -> Result<Changes<E::Bytes>> {
        let mut txn = Self { engine, changes: Changes::new() };
        body(&mut txn)?;
        Ok(txn.changes)
    }
}

impl<E: Committed> Txn for Changing<'_, E> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        match self.changes.get(key) {
            Some(value) => Ok(value.as_ref().map(|value| value.borrow().to_vec())),
            None => self.engine.read_committed(key),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(key, value)?;
        self.changes.insert(key.into(), Some(value.into()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.changes.insert(key.into(), None);
        Ok(())
    }

    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.engine.scan_under(&self.changes, range, max)
    }
}
