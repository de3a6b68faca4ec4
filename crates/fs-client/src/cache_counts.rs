// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often the caches of a client had an answer.

use std::sync::atomic::{AtomicU64, Ordering};

use terrace_fs::CacheReport;

/// Hits and misses of one cache.
#[derive(Default)]
struct Counter {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Counters of the caches of a client.
#[derive(Default)]
pub(crate) struct CacheCounts([Counter; Cache::NAMES.len()]);

/// The caches that are counted.
#[derive(Clone, Copy)]
pub(crate) enum Cache {
    /// Inodes returned a moment ago.
    Inodes,
    /// Names that are absent in directories that this client has leased.
    AbsentNames,
    /// Prefetched names.
    Names,
    /// Directories read ahead.
    Listings,
    /// Extended attributes that are absent.
    AbsentXattrs,
}

impl Cache {
    const NAMES: [&str; 5] = ["inodes", "absent-names", "names", "listings", "absent-xattrs"];
}

impl CacheCounts {
    /// Counts a look into a cache.
    pub(crate) fn count(&self, cache: Cache, is_hit: bool) {
        let Counter { hits, misses } = &self.0[cache as usize];
        (if is_hit { hits } else { misses }).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> Vec<CacheReport> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let reports = Cache::NAMES.iter().zip(&self.0).map(|(cache, counter)| CacheReport {
            cache,
            hits: count(&counter.hits),
            misses: count(&counter.misses),
        });
        reports.collect()
    }
}
