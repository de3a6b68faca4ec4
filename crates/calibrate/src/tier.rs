// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures one tier.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use terrace_core::units::show_bytes;
use terrace_core::{Backend, Clock, Error, ErrorKind, Result};

use crate::figures::{Calibrated, SHARE_MIN, Sample, Threads};
use crate::ground::{BLOCK, Ground};
use crate::measure::{self, LARGE_BYTES, Measure};
use crate::{OPERATION, fit, machine};

/// Most that is written to a tier, of at most this part of the room that it has left.
const BYTES_MAX: u64 = 256 << 20;
const ROOM_PART: u64 = 4;

/// A seek below this is not worth a line in a configuration.
const SEEK_MIN_S: f64 = 1e-6;

/// Latencies of writes and reads that differ by no more are one.
const DIFFERENCE_MIN: f64 = 0.2;

/// What comes back in less than this share of what is durable takes memory.
const RETURNS_MIN: f64 = 1.2;

/// Below this share of what it would be otherwise, a number of requests at once is another one.
const CLEARLY: f64 = 0.8;

/// Where a read takes this share of what it takes at most, it takes all of it.
const NEARLY: f64 = 0.95;

/// How one tier is measured.
pub(crate) struct How {
    pub(crate) time: Duration,
    pub(crate) room_bytes: u64,
    pub(crate) is_durable: bool,
    pub(crate) is_thorough: bool,
}

/// Measures it; what was written to it is gone afterwards.
pub(crate) fn measure_tier(
    name: &str,
    backend: &dyn Backend,
    clock: &dyn Clock,
    how: &How,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Calibrated> {
    let space = backend.space()?;
    let left_bytes = how.room_bytes.min(space.capacity_bytes.saturating_sub(space.used_bytes));
    let bytes = (left_bytes / ROOM_PART).min(BYTES_MAX) / BLOCK * BLOCK;
    if bytes < 16 * BLOCK {
        let need_bytes = 16 * BLOCK * ROOM_PART;
        let reason =
            format!("it has no {} left, of which a quarter is used", show_bytes(need_bytes));
        return Err(Error::new(ErrorKind::NoSpace, OPERATION)
            .because(reason)
            .with("left_bytes", left_bytes));
    }
    let share = |percent: u32| (how.time * percent / 100).as_nanos() as u64;
    let deadline_ns = clock.now_ns().saturating_add(share(15));
    let is_over = || clock.now_ns() >= deadline_ns || is_stopped();
    let ground = Ground::make(backend, clock, bytes, &is_over)?;
    let measure = Measure { ground: &ground, is_stopped, is_durable: how.is_durable };
    let writes = measure.writes(share(15))?;
    let durable_rate = measure.durable_rate(share(10))?;
    let sync_s = measure.syncs(share(3))?;
    let large_bytes = LARGE_BYTES.min(ground.request_bytes_max());
    let new_s = measure.creates(large_bytes, share(2))?;
    let cached_reads = match ground.is_cold() {
        true => measure.cached_reads(share(5))?,
        false => Vec::new(),
    };
    let (reads, cpu_share) = measure.reads(share(16))?;
    let recent = measure.recent_reads(large_bytes, share(4))?;
    let in_order_s = measure.in_order(share(10))?;
    let threads = measure.together(BLOCK, share(12))?;
    let large = measure.together(large_bytes, share(8))?;
    let cliff = if how.is_thorough { measure.cliff(share(100))? } else { None };
    let line = |samples: &[Sample]| {
        let points: Vec<_> =
            samples.iter().map(|sample| (sample.bytes as f64, sample.seconds)).collect();
        fit::fit(&points)
    };
    let from_memory = if cached_reads.is_empty() { &reads } else { &cached_reads };
    let recently_used = recently_used(&recent, large_bytes, from_memory);
    let (read, write, cached) = (line(&reads), line(&writes), line(&cached_reads));
    // Writes that return before they are durable do so as long as there is memory for them.
    let returns = !how.is_durable && write.bytes_per_s > durable_rate * RETURNS_MIN;
    let memory = machine::unwritten_bytes_max().filter(|_| returns);
    let burst = memory.map(|bytes| (bytes, durable_rate)).or(cliff);
    let anywhere_s = reads.first().map_or(0.0, |sample| sample.seconds);
    let seek_s = (anywhere_s - in_order_s).min(read.latency_s);
    let is_seeking = seek_s > SEEK_MIN_S && seek_s > 0.1 * read.latency_s;
    let create_s = new_s - write.latency_s - large_bytes as f64 / write.bytes_per_s;
    let is_cached = !cached_reads.is_empty() && cached.bytes_per_s.is_finite();
    let is_apart =
        (write.latency_s - read.latency_s).abs() > DIFFERENCE_MIN * read.latency_s.max(1e-9);
    let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
    // What is finer than the clock is not nothing.
    let latency_ns = |line: &fit::Line| nanoseconds(line.latency_s).max(1);
    let lines = [
        ("latency", true, &read),
        ("write_latency", is_apart, &write),
        ("cached_latency", is_cached, &cached),
    ];
    let unresolved = lines.into_iter().filter(|(_, is_told, line)| *is_told && !line.is_resolved);
    let unresolved = unresolved.map(|(key, ..)| key).collect();
    let bounded = |rate: f64| rate.is_finite().then_some(rate);
    Ok(Calibrated {
        tier: name.into(),
        latency_ns: latency_ns(&read),
        seek_ns: if is_seeking { nanoseconds(seek_s) } else { 0 },
        write_latency_ns: is_apart.then(|| latency_ns(&write)),
        read_bytes_per_s: bounded(read.bytes_per_s),
        write_bytes_per_s: bounded(write.bytes_per_s),
        parallelism: parallelism(&threads),
        total_bytes_per_s: streams(&large, &read, parallelism(&threads))
            .map(|streams| streams * read.bytes_per_s),
        burst,
        create_ns: if create_s > SEEK_MIN_S { nanoseconds(create_s) } else { 0 },
        sync_ns: if sync_s > SEEK_MIN_S { nanoseconds(sync_s) } else { 0 },
        cached: is_cached.then(|| (latency_ns(&cached), cached.bytes_per_s)),
        // Else they are not of what is read there.
        recently_used: if is_cached || !ground.is_cold() { recently_used } else { Vec::new() },
        cpu_share,
        switch: None,
        is_cold: ground.is_cold(),
        is_durable: how.is_durable,
        unresolved,
        prices: BTreeMap::new(),
        bytes: ground.bytes(),
        reads,
        writes,
        cached_reads,
        threads,
        large,
    })
}

/// Shares of what a read takes of what was not used for long, as far as they are clearly less; the
/// bytes from which on it is all of it are the last.
fn recently_used(recent: &[(u64, f64)], bytes: u64, all: &[Sample]) -> Vec<(u64, f64)> {
    let Some(long_ago) = all.iter().find(|sample| sample.bytes == bytes) else { return Vec::new() };
    let mut points = Vec::new();
    let mut least = 0.0_f64;
    for (since_bytes, seconds) in recent {
        least = least.max(seconds / long_ago.seconds);
        if least >= NEARLY {
            break;
        }
        points.push((*since_bytes, least.max(SHARE_MIN)));
    }
    let Some((last_bytes, _)) = points.last() else { return points };
    let end_bytes = last_bytes * measure::RECENT_STEP;
    points.push((end_bytes, 1.0));
    points
}

/// As many requests as are served at once: what all threads get of what one gets.
fn parallelism(threads: &[Threads]) -> u32 {
    let rates = || threads.iter().map(|one| one.requests_per_s);
    let most = rates().fold(0.0, f64::max);
    match rates().next() {
        Some(one) if one > 0.0 && most.is_finite() => ((most / one).round() as u32).max(1),
        _ => 1,
    }
}

/// As many large requests as do not slow each other, where those are clearly fewer than small ones:
/// what is left of the time that several take, once each had its latency, is that of their bytes.
fn streams(large: &[Threads], one: &fit::Line, parallelism: u32) -> Option<f64> {
    let parallelism = f64::from(parallelism);
    let several = large.iter().filter(|these| these.threads > 1);
    let found = several.filter_map(|these| {
        let at_once = f64::from(these.threads);
        let took_s = at_once / these.requests_per_s;
        let latency_s = one.latency_s * (at_once / parallelism).max(1.0);
        let bytes_s = (took_s - latency_s).max(1e-9);
        let streams = at_once * these.bytes as f64 / one.bytes_per_s / bytes_s;
        // Of threads that do not slow each other, there may be any number.
        (streams < at_once * CLEARLY).then_some(streams)
    });
    let mut found: Vec<_> = found.collect();
    let is_known = !found.is_empty() && one.bytes_per_s.is_finite();
    let streams = is_known.then(|| fit::median(&mut found).max(1.0));
    streams.filter(|streams| *streams < parallelism * CLEARLY)
}
