// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which opens of a file that other clients change, too, the kernel may cache.
//!
//! The kernel drops what it has cached of such a file whenever it sees that the file has changed,
//! also through writes of its own. What one program writes is in the cache before it is here: if
//! it is dropped in between, and another program reads, the bytes from before are cached, and stay.
//! So a file is cached for those who only read it, or for one program alone; other opens of it are
//! not, and after their writes the kernel drops what it has of that place ([`Refresher`]).
//!
//! It pays, too: to a file that it caches the kernel lets one program write at a time.
//!
//! [`Refresher`]: crate::refresher::Refresher

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many locks stand between opens and closes.
const STRIPES: usize = 64;

/// How the files that are open are used on this mount.
pub(crate) struct Caching {
    open: [Mutex<HashMap<u64, Users>>; STRIPES],
}

/// What an open file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// Opens of a file.
#[derive(Default)]
struct Users {
    readers: u64,
    writers: u64,
}

impl Default for Caching {
    fn default() -> Self {
        Self { open: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Caching {
    /// Notes that a file is opened, to be ended with [`Caching::close`]; whether the kernel may cache
    /// what is read and written through this open. `may_be_long` where it was made for it, and nothing
    /// speaks against much being written.
    pub(crate) fn open(&self, number: u64, usage: Use, may_be_long: bool) -> bool {
        let mut open = self.stripe(number);
        let users = open.entry(number).or_default();
        let is_alone = users.readers == 0 && users.writers == 0;
        users.readers += u64::from(usage.reads);
        users.writers += u64::from(usage.writes);
        match usage {
            Use { writes: false, .. } => users.writers == 0,
            Use { reads: true, .. } => is_alone,
            // Most new files are written from the front, and soon read. Of a short one the kernel gets the
            // bytes with the first open for reading, and for its cache it would ask first whether a
            // write takes something away.
            Use { reads: false, .. } => is_alone && may_be_long,
        }
    }

    pub(crate) fn close(&self, number: u64, usage: Use) {
        let mut open = self.stripe(number);
        let Some(users) = open.get_mut(&number) else { return };
        users.readers -= u64::from(usage.reads);
        users.writers -= u64::from(usage.writes);
        if users.readers == 0 && users.writers == 0 {
            open.remove(&number);
        }
    }

    /// Whether somebody may read the file, or have it mapped: also through the descriptor that
    /// writes to it.
    pub(crate) fn is_read(&self, number: u64) -> bool {
        self.stripe(number).get(&number).is_some_and(|users| users.readers > 0)
    }

    /// Whether somebody may write the file.
    pub(crate) fn is_written(&self, number: u64) -> bool {
        self.stripe(number).get(&number).is_some_and(|users| users.writers > 0)
    }

    fn stripe(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Users>> {
        let stripe = &self.open[number as usize % STRIPES];
        // Counts change in single steps.
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: Use = Use { reads: true, writes: false };
    const WRITER: Use = Use { reads: false, writes: true };
    const BOTH: Use = Use { reads: true, writes: true };

    #[test]
    fn readers_are_cached_while_nobody_writes() {
        let caching = Caching::default();
        assert!(caching.open(1, READER, false));
        assert!(caching.open(1, READER, false));
        assert!(!caching.open(1, WRITER, false));
        assert!(!caching.open(1, READER, false), "beside a writer");
        assert!(caching.open(2, READER, false), "another file");
        caching.close(1, WRITER);
        assert!(caching.open(1, READER, false));
    }

    #[test]
    fn one_program_is_cached_where_it_reads_or_made_a_long_file() {
        let caching = Caching::default();
        for (usage, may_be_long, is_cached) in
            [(BOTH, false, true), (BOTH, true, true), (WRITER, true, true), (WRITER, false, false)]
        {
            let may_cache = caching.open(1, usage, may_be_long);
            assert_eq!(may_cache, is_cached, "{usage:?}, {may_be_long}");
            assert!(!caching.open(1, BOTH, false), "it is not alone");
            caching.close(1, BOTH);
            caching.close(1, usage);
        }
    }

    #[test]
    fn who_writes_knows_of_those_who_read() {
        let caching = Caching::default();
        caching.open(1, WRITER, false);
        assert!(!caching.is_read(1));
        for usage in [READER, BOTH] {
            caching.open(1, usage, false);
            assert!(caching.is_read(1), "{usage:?}");
            caching.close(1, usage);
            assert!(!caching.is_read(1));
        }
    }
}
