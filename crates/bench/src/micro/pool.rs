// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names for what comes and goes in a case, made before anything is measured.

use std::ops::Range;

use terrace_core::Result;

/// How the calls of a block use names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// Not at all.
    None,
    /// A few again and again: what a call makes it takes away, too.
    Again,
    /// New ones for each call.
    Once,
}

/// Names in order: those of the first thread, then those of the second …
pub(super) struct Pool<K> {
    usage: Usage,
    threads: usize,
    batch: usize,
    /// Calls of each thread for which there are names.
    calls: usize,
    names: Vec<K>,
}

impl<K> Pool<K> {
    /// Calls after which [`Usage::Again`] comes back to a name.
    const ROUND_CALLS: u64 = 64;

    pub(super) fn new(usage: Usage, threads: usize, batch: usize) -> Self {
        Self { usage, threads, batch, calls: 0, names: Vec::new() }
    }

    /// Calls that each thread may make when no more than `names_max` names shall be in use.
    pub(super) fn calls_max(&self, names_max: usize) -> u64 {
        match self.usage {
            Usage::Once => (names_max / self.threads / self.batch).max(1) as u64,
            Usage::None | Usage::Again => u64::MAX,
        }
    }

    /// Makes the names for this many calls of each thread.
    pub(super) fn reserve(
        &mut self,
        calls: u64,
        make: impl FnOnce(Range<usize>) -> Result<Vec<K>>,
    ) -> Result<()> {
        self.calls = match self.usage {
            Usage::None => 0,
            Usage::Again => calls.min(Self::ROUND_CALLS) as usize,
            Usage::Once => calls as usize,
        };
        // Those that there are stay, because making them takes long and the next block needs them.
        let missing = self.names.len()..self.all_count().max(self.names.len());
        self.names.extend(make(missing)?);
        Ok(())
    }

    /// All that the block may use.
    pub(super) fn all(&self) -> &[K] {
        &self.names[..self.all_count()]
    }

    /// The names of one call.
    pub(super) fn of_call(&self, thread: usize, call: u64) -> &[K] {
        let call = match self.usage {
            Usage::Again => (call % self.calls as u64) as usize,
            Usage::None | Usage::Once => call as usize,
        };
        &self.of_thread(thread)[call * self.batch..][..self.batch]
    }

    /// What a thread has used up with so many calls, and what it has not.
    pub(super) fn used(&self, thread: usize, calls: u64) -> (&[K], &[K]) {
        self.of_thread(thread).split_at(calls as usize * self.batch)
    }

    fn of_thread(&self, thread: usize) -> &[K] {
        let count = self.calls * self.batch;
        &self.names[thread * count..][..count]
    }

    fn all_count(&self) -> usize {
        self.threads * self.calls * self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(usage: Usage, calls: u64) -> Pool<usize> {
        let mut pool = Pool::new(usage, 2, 3);
        pool.reserve(calls, |numbers| Ok(numbers.collect())).expect("nothing fails");
        pool
    }

    #[test]
    fn no_two_calls_share_a_name_that_is_used_once() {
        let pool = pool(Usage::Once, 5);
        let mut seen = Vec::new();
        for (thread, call) in (0..2).flat_map(|thread| (0..5).map(move |call| (thread, call))) {
            seen.extend_from_slice(pool.of_call(thread, call));
        }
        seen.sort_unstable();
        assert_eq!(seen, pool.all());
        assert_eq!(seen, (0..30).collect::<Vec<_>>());
        let (used, unused) = pool.used(1, 2);
        assert_eq!(
            (used, unused),
            (&(15..21).collect::<Vec<_>>()[..], &(21..30).collect::<Vec<_>>()[..])
        );
        assert_eq!(pool.calls_max(100), 16);
    }

    #[test]
    fn names_that_are_used_again_are_few_and_of_one_thread() {
        let pool = pool(Usage::Again, 1_000_000);
        assert_eq!(pool.all().len(), 2 * 64 * 3);
        assert_eq!(pool.of_call(0, 1), pool.of_call(0, 65));
        let first: Vec<_> = (0..64).flat_map(|call| pool.of_call(0, call)).collect();
        assert!(
            (0..64).all(|call| pool.of_call(1, call).iter().all(|name| !first.contains(&name)))
        );
        assert_eq!(pool.calls_max(100), u64::MAX);
    }
}
