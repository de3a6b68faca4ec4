// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is measured of a tier, and the keys of its configuration that say so.

use std::collections::BTreeMap;

use serde::Serialize;
use terrace_core::units::{show_bytes, show_ns, show_rate};

use crate::switches::Switched;

/// A share of processors, or of the time of a read, below this is none.
pub(crate) const SHARE_MIN: f64 = 0.005;

/// What was measured of one tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibrated {
    /// Its name.
    pub tier: String,
    /// Time of a request anywhere until its first byte.
    pub latency_ns: u64,
    /// The part of it that a request does not have that goes on where the one before ended.
    pub seek_ns: u64,
    /// The latency of writes, where it is another one.
    pub write_latency_ns: Option<u64>,
    /// Bytes per second of one large read; `None` where more bytes take no longer.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes per second of one large write, likewise.
    pub write_bytes_per_s: Option<f64>,
    /// Requests that it serves at once.
    pub parallelism: u32,
    /// Bytes per second of all large reads together, where several slow each other more than small ones.
    pub total_bytes_per_s: Option<f64>,
    /// Bytes that it takes fast, and the bytes per second after that, where that is less: because
    /// writes return when the machine has them, or where it was looked for.
    pub burst: Option<(u64, f64)>,
    /// What a write takes longer that makes an object.
    pub create_ns: u64,
    /// How long it takes to make a file durable whose bytes are there.
    pub sync_ns: u64,
    /// Reads of what the machine has in memory, where that is in front of the tier: nanoseconds until
    /// the first byte, bytes per second.
    pub cached: Option<(u64, f64)>,
    /// Which part of its time a large read from memory takes where its bytes were used so many bytes
    /// ago, because caches of the processor have them; the last has all of it.
    pub recently_used: Vec<(u64, f64)>,
    /// The part of the time of reads for which a processor worked.
    pub cpu_share: f64,
    /// What a migration to it takes beside its bytes, where one can be made.
    pub switch: Option<Switched>,
    /// Whether reads came from the device; else from wherever the tier has what was just written.
    pub is_cold: bool,
    /// Whether each write was made durable, as the store's level of persistency asks for.
    pub is_durable: bool,
    /// Latencies that could not be derived from what requests vary by, and are bounds: `latency`,
    /// `write_latency`, `cached_latency`.
    pub unresolved: Vec<&'static str>,
    /// What the provider charges, by the name of the setting, as it is configured: that is not measured.
    pub prices: BTreeMap<&'static str, f64>,
    /// Bytes that were measured on.
    pub bytes: u64,
    /// What reads and writes took, by size.
    pub reads: Vec<Sample>,
    /// See [`Calibrated::reads`].
    pub writes: Vec<Sample>,
    /// What reads took of what the machine has in memory, likewise.
    pub cached_reads: Vec<Sample>,
    /// How much more came of more threads.
    pub threads: Vec<Threads>,
    /// The same with large requests, where there is room for enough of them.
    pub large: Vec<Threads>,
}

/// Requests of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Their size.
    pub bytes: u64,
    /// What they took, in the mean without the fastest and the slowest twentieth.
    pub seconds: f64,
    /// How many there were.
    pub count: u64,
}

/// Requests of several threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threads {
    /// Size of a request.
    pub bytes: u64,
    /// How many asked at once.
    pub threads: u32,
    /// Requests that were answered in a second.
    pub requests_per_s: f64,
}

impl Calibrated {
    /// Keys of the tier's section with their values as they are written; `None` for one that is left
    /// out.
    pub fn settings(&self) -> Vec<(&'static str, Option<String>)> {
        let text = |text: String| format!("\"{}\"", text.replace(' ', ""));
        let duration = |ns: u64| Some(text(show_ns(ns)));
        let rate = |rate: Option<f64>| rate.map(|rate| text(show_rate(rate)));
        let (burst, sustained) = self.burst.unzip();
        let (cached_ns, cached_rate) = self.cached.unzip();
        vec![
            ("latency", duration(self.latency_ns)),
            ("seek", (self.seek_ns > 0).then(|| text(show_ns(self.seek_ns)))),
            ("write_latency", self.write_latency_ns.and_then(duration)),
            ("bandwidth", None),
            ("read_bandwidth", rate(self.read_bytes_per_s)),
            ("write_bandwidth", rate(self.write_bytes_per_s)),
            ("parallelism", Some(self.parallelism.to_string())),
            ("total_bandwidth", rate(self.total_bytes_per_s)),
            ("write_burst", burst.map(|bytes| text(show_bytes(bytes)))),
            ("sustained_write_bandwidth", rate(sustained)),
            ("create_latency", (self.create_ns > 0).then(|| text(show_ns(self.create_ns)))),
            ("sync_latency", (self.sync_ns > 0).then(|| text(show_ns(self.sync_ns)))),
            ("cached_latency", cached_ns.and_then(duration)),
            ("cached_bandwidth", rate(cached_rate)),
            ("recently_used", table(&self.recently_used)),
            ("cpu_share", (self.cpu_share >= SHARE_MIN).then(|| format!("{:.2}", self.cpu_share))),
            ("move_latency", self.switch.and_then(|switch| duration(switch.latency_ns))),
            ("move_cpu", self.switch.and_then(|switch| duration(switch.cpu_ns))),
        ]
    }
}

/// A table of a configuration; `None` for one without anything in it.
fn table(points: &[(u64, f64)]) -> Option<String> {
    let pair = |(bytes, share): &(u64, f64)| {
        // In quotation marks, since `1.5MiB` would be two keys.
        format!("\"{}\" = {share:.2}", show_bytes(*bytes).replace(' ', ""))
    };
    let pairs: Vec<_> = points.iter().map(pair).collect();
    (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
}
