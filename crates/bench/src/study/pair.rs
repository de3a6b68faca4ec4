// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pairs of tiers of the study.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use terrace_backends::object::{Rates, Throttle};
use terrace_backends::{Place, open_backend};
use terrace_core::{Backend, Figures, Persistency, Result, SystemClock};
use terrace_stack::Tier;

/// A fast tier and a slow one.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) media: [Medium; 2],
}

/// What a tier is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Medium {
    /// The backend `memory`.
    Memory,
    /// Files in main memory.
    Tmpfs,
    /// Files on a disk, which the page cache is in front of.
    Disk,
    /// Files in main memory behind a simulated device.
    Simulated(Device),
}

/// A device that is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Device {
    latency_ms: u64,
    bytes_per_s: Option<f64>,
    parallelism: u32,
}

/// All pairs; the last two have the devices of `terrace demo`.
pub(super) const PAIRS: &[Pair] = &[
    Pair {
        name: "memory/tmpfs",
        words: "the backend memory over files in main memory",
        media: [Medium::Memory, Medium::Tmpfs],
    },
    Pair {
        name: "memory/disk",
        words: "the backend memory over files on a disk",
        media: [Medium::Memory, Medium::Disk],
    },
    Pair {
        name: "tmpfs/disk",
        words: "files in main memory over files on a disk",
        media: [Medium::Tmpfs, Medium::Disk],
    },
    Pair {
        name: "tmpfs/slow",
        words: "files in main memory over a simulated device: 50 ms, 10 requests at once",
        media: [
            Medium::Tmpfs,
            Medium::Simulated(Device { latency_ms: 50, bytes_per_s: None, parallelism: 10 }),
        ],
    },
    Pair {
        name: "narrow/wide",
        words: "simulated: 1 ms, 100 MB/s, one request over 20 ms, 1 GB/s each, 16 at once",
        media: [
            Medium::Simulated(Device { latency_ms: 1, bytes_per_s: Some(1e8), parallelism: 1 }),
            Medium::Simulated(Device { latency_ms: 20, bytes_per_s: Some(1e9), parallelism: 16 }),
        ],
    },
];

impl Pair {
    /// Objects of a run: more where nothing is simulated, because that takes milliseconds.
    pub(super) fn objects(&self, objects: usize) -> usize {
        const REAL_TIMES: usize = 8;
        let is_simulated = self.media.iter().any(|medium| matches!(medium, Medium::Simulated(_)));
        if is_simulated { objects } else { objects * REAL_TIMES }
    }

    /// The strongest level short of syncing that both tiers give.
    pub(super) fn level(&self) -> Persistency {
        if self.media.contains(&Medium::Memory) { Persistency::None } else { Persistency::Process }
    }
}

impl Medium {
    /// A tier; `directory` is one that suits it.
    pub(super) fn tier(self, name: &str, directory: &Path, capacity_bytes: u64) -> Result<Tier> {
        let open = |backend, path| {
            open_backend(backend, &Place { path, capacity_bytes, read_only: false })
        };
        let backend: Arc<dyn Backend> = match self {
            Medium::Memory => open("memory", None)?,
            Medium::Tmpfs | Medium::Disk => open("file", Some(directory))?,
            Medium::Simulated(device) => Arc::new(Throttle::new(
                open("file", Some(directory))?,
                device.rates(),
                Arc::new(SystemClock::default()),
            )),
        };
        let figures = Figures { capacity_bytes, ..self.figures() };
        Ok(Tier { figures, ..Tier::new(name, backend) })
    }

    /// The figures that a policy gets: orders of magnitude, not measurements, but for what is simulated.
    fn figures(self) -> Figures {
        let (latency_ns, bytes_per_s, parallelism) = match self {
            Medium::Memory => (500, 8e9, 8),
            Medium::Tmpfs => (5_000, 4e9, 8),
            Medium::Disk => (100_000, 1e9, 8),
            Medium::Simulated(device) => {
                let bytes_per_s = device.bytes_per_s.unwrap_or(2e9);
                (device.latency_ms * 1_000_000, bytes_per_s, device.parallelism)
            }
        };
        Figures {
            latency_ns,
            read_bytes_per_s: bytes_per_s,
            write_bytes_per_s: bytes_per_s,
            parallelism,
            ..Figures::default()
        }
    }
}

impl Device {
    fn rates(self) -> Rates {
        Rates {
            latency: Duration::from_millis(self.latency_ms),
            read_bytes_per_s: self.bytes_per_s,
            write_bytes_per_s: self.bytes_per_s,
            parallelism: self.parallelism,
        }
    }
}
