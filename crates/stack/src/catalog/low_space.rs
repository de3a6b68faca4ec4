// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of pairs where the disk of the catalog has room only for what makes room.

use terrace_core::{Error, ErrorKind, KvRange, Pair, Result, Txn};

/// What a change of a pair may take beside that: a time, a length that became longer.
const GROWTH_BYTES_MAX: usize = 512;

/// A transaction that counts what it adds and takes away.
pub(crate) struct Thrifty<'a> {
    txn: &'a mut dyn Txn,
    more: Size,
    less: Size,
}

#[derive(Default)]
struct Size {
    pairs: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.pairs += 1;
        self.bytes += key.len() + value.len();
    }
}

impl<'a> Thrifty<'a> {
    pub(crate) fn new(txn: &'a mut dyn Txn) -> Self {
        Self { txn, more: Size::default(), less: Size::default() }
    }

    /// Refuses what has added more than it took away. Errors: `NoSpace`.
    pub(crate) fn check(&self) -> Result<()> {
        let is_more = self.more.pairs > self.less.pairs
            || self.more.bytes > self.less.bytes + GROWTH_BYTES_MAX;
        if is_more { Err(refusal("change a pair")) } else { Ok(()) }
    }

    fn count_old(&mut self, key: &[u8]) -> Result<()> {
        if let Some(old) = self.txn.get(key)? {
            self.less.add(key, &old);
        }
        Ok(())
    }
}

/// Why something may not grow.
pub(crate) fn refusal(operation: &'static str) -> Error {
    Error::new(ErrorKind::NoSpace, operation)
        .because("the disk of the catalog is full; what is left is for removing")
}

impl Txn for Thrifty<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.txn.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.count_old(key)?;
        self.more.add(key, value);
        self.txn.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.count_old(key)?;
        self.txn.delete(key)
    }

    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.txn.scan(range, max)
    }
}
