// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of a mount.

use std::sync::{Arc, Weak};

use terrace_fs::Files;
use terrace_mount::Requests;

use crate::samples::{Samples, Source};

/// Figures of a mount.
pub struct MountSource {
    requests: Arc<Requests>,
    files: Weak<Files>,
    mountpoint: String,
    store: String,
    io: &'static str,
}

impl MountSource {
    /// Of the mount of `files` at a place, whose requests are counted in `requests`.
    pub fn new(
        requests: &Arc<Requests>,
        files: &Arc<Files>,
        (mountpoint, store): (&str, &str),
        passes_through: bool,
    ) -> Self {
        Self {
            requests: Arc::clone(requests),
            files: Arc::downgrade(files),
            mountpoint: mountpoint.into(),
            store: store.into(),
            io: if passes_through { "passthrough" } else { "served" },
        }
    }
}

impl Source for MountSource {
    fn collect(&self, samples: &mut Samples) {
        samples.info("terrace_mount", &[&self.mountpoint, &self.store, self.io]);
        let report = self.requests.report();
        for (operation, latencies) in &report.latencies {
            samples.latencies("terrace_mount_request_seconds", &[operation], latencies);
        }
        for (errno, count) in &report.errors {
            samples.count("terrace_mount_errors", &[errno], *count);
        }
        let Some(files) = self.files.upgrade() else { return };
        for cache in files.metadata().caches() {
            for (result, count) in [("hit", cache.hits), ("miss", cache.misses)] {
                samples.count("terrace_mount_cache_lookups", &[cache.cache, result], count);
            }
        }
    }
}
