// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transactional key-value pairs.

use std::ops::Bound;

use crate::Result;

/// Longest key that every engine takes (LMDB's compiled-in bound).
pub const KV_KEY_BYTES_MAX: usize = 511;

/// Longest value.
pub const KV_VALUE_BYTES_MAX: usize = 16 << 20;

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Transactional key-value pairs, ordered by the bytes of the keys.
///
/// # Contract
///
/// - Methods may be called from many threads at once and may block.
/// - Keys have 1 to [`KV_KEY_BYTES_MAX`] bytes, values at most [`KV_VALUE_BYTES_MAX`]; anything
///   else is `Invalid`.
/// - Transactions are serialisable and atomic, also across crashes.
/// - When `transact` returns, its effect is visible to all and survives a crash of the process
///   where `persistency()` is at least `Process`. It survives a loss of power once its ticket was
///   waited for and `persistency()` is `Storage`.
/// - Commits become durable in the order of their tickets.
pub trait Kv: Send + Sync {
    /// Address in logs and errors.
    fn target(&self) -> &str;

    /// The strongest level that `wait` gives.
    fn persistency(&self) -> crate::Persistency;

    /// Reads the latest committed value.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Returns up to `max` pairs of a range in order. Go on with [`KvRange::after`] the last key.
    fn scan(&self, range: &KvRange, max: usize) -> Result<Vec<Pair>>;

    /// Runs `body` over a consistent view and commits what it wrote, all or nothing.
    ///
    /// - `body` does no I/O of its own, must not call this `Kv`, and is run again on a conflict.
    /// - If `body` fails, nothing is written and its error is returned.
    ///
    /// # Errors
    ///
    /// Those of `body`, `Invalid`, `NoSpace`, `Io`.
    fn transact(&self, body: &mut dyn FnMut(&mut dyn Txn) -> Result<()>) -> Result<Ticket>;

    /// Blocks until the commit of `ticket` and all before it are durable. Waiting threads share
    /// one sync. A failed sync is sticky: every later `wait` fails.
    fn wait(&self, ticket: Ticket) -> Result<()>;

    /// Whether there is room for more pairs: false where its disk is all but full, and only what
    /// makes room should be committed.
    fn has_room(&self) -> bool {
        true
    }
}

/// What a transaction may do. Reads see the transaction's own writes.
pub trait Txn {
    /// Reads a value.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Writes a value.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a key; a missing one is fine.
    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Returns up to `max` pairs of a range in order.
    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>>;
}

/// Names a commit; later commits have greater tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvRange {
    /// Where it begins.
    pub start: Bound<Vec<u8>>,
    /// Where it ends.
    pub end: Bound<Vec<u8>>,
}

impl KvRange {
    /// Every key.
    pub fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// Every key that starts with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        // The successor of a prefix: drop trailing 0xff, then add one to the last byte.
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        let end = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        Self { start: Bound::Included(prefix.to_vec()), end }
    }

    /// What lies after `key`, up to the end of this range; with a `key` before it also what is in between.
    pub fn after(&self, key: &[u8]) -> Self {
        Self { start: Bound::Excluded(key.to_vec()), end: self.end.clone() }
    }

    /// The part of this range that lies after `key`.
    pub fn rest_after(&self, key: &[u8]) -> Self {
        match &self.start {
            Bound::Included(start) | Bound::Excluded(start) if key < start.as_slice() => {
                self.clone()
            }
            _ => self.after(key),
        }
    }
}

/// Conveniences over every [`Kv`].
pub trait KvExt: Kv {
    /// Writes one pair.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.transact(&mut |txn| txn.put(key, value))
    }

    /// Removes one key; returns whether it was there.
    fn remove(&self, key: &[u8]) -> Result<bool> {
        let mut found = false;
        self.transact(&mut |txn| {
            found = txn.get(key)?.is_some();
            txn.delete(key)
        })?;
        Ok(found)
    }

    /// Calls `each` for every pair of a range, page by page.
    #[expect(clippy::type_complexity, reason = "a name for the callback would hide its arguments")]
    fn for_each(
        &self,
        range: KvRange,
        each: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        const PAGE_PAIRS: usize = 1000;
        let mut range = range;
        loop {
            let pairs = self.scan(&range, PAGE_PAIRS)?;
            for (key, value) in &pairs {
                each(key, value)?;
            }
            match pairs.last() {
                Some((key, _)) if pairs.len() == PAGE_PAIRS => range = range.after(key),
                _ => return Ok(()),
            }
        }
    }
}

impl<K: Kv + ?Sized> KvExt for K {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_before_its_successor() {
        assert_eq!(KvRange::prefix(b"ab").end, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(KvRange::prefix(b"a\xff").end, Bound::Excluded(b"b".to_vec()));
        assert_eq!(KvRange::prefix(b"\xff").end, Bound::Unbounded);
    }

    #[test]
    fn the_rest_after_a_key_stays_inside_the_range() {
        let range = KvRange::prefix(b"b");
        assert_eq!(range.rest_after(b"a"), range);
        assert_eq!(range.rest_after(b"b").start, Bound::Excluded(b"b".to_vec()));
        let rest = range.rest_after(b"bc");
        assert_eq!(rest.start, Bound::Excluded(b"bc".to_vec()));
        assert_eq!(rest.rest_after(b"ba"), rest);
        assert_eq!(KvRange::all().rest_after(b"a").start, Bound::Excluded(b"a".to_vec()));
    }
}
