// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures what the tiers of a store can do, for the figures of its configuration.

mod fit;
mod ground;
mod machine;
mod measure;
mod switches;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use terrace_core::units::{show_bytes, show_ns, show_rate};
use terrace_core::{Access, Backend, Clock, Error, ErrorKind, Persistency, Result, SystemClock};
use terrace_settings::amend::{Change, amend_file};
use terrace_settings::{Directory, Lock, Settings, TierSettings, tiers};
use terrace_stack::report::TierReport;
use terrace_store::{OpenOptions, Store};

use self::ground::{BLOCK, Ground};
use self::measure::Measure;
pub use self::switches::Switched;

const OPERATION: &str = "measure a tier";

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

/// A share of processors below this is none.
const SHARE_MIN: f64 = 0.005;

/// Of the time, at most, for what migrations take beside their bytes.
const SWITCHES_PERCENT: u32 = 5;

/// Where a read takes this share of what it takes at most, it takes all of it.
const NEARLY: f64 = 0.95;

/// A large request, and what is written to objects that are made.
const LARGE_BYTES: u64 = 256 << 10;

/// How tiers are measured.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// Their names; all, where none is given.
    pub tiers: Vec<String>,
    /// How long all of them together may take, about.
    pub time: Duration,
    /// Whether it is looked for where writes become slow, for as long again.
    pub is_thorough: bool,
}

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

/// Measures tiers of the store in a directory, of which nothing else may be open meanwhile. Each is
/// passed to `measured` as it is done; `is_stopped` is asked often, and ends it. What it writes on the
/// tiers is gone afterwards.
///
/// # Errors
///
/// `NotFound` for a tier that there is not, `Busy` where the store is open, `NoSpace` where
/// a tier has no room for it, and those of opening a store.
pub fn calibrate(
    address: &str,
    options: &CalibrateOptions,
    is_stopped: &(dyn Fn() -> bool + Sync),
    measured: &mut dyn FnMut(&Calibrated),
) -> Result<Vec<Calibrated>> {
    let directory = Directory::at(address)?;
    let room = room(address)?;
    let settings = Settings::read(&directory.settings())?.resolved(directory.path())?;
    let chosen = choose(&settings, &options.tiers)?;
    let names: Vec<_> = settings.tiers.iter().map(|tier| tier.name.clone()).collect();
    let level = settings.persistency;
    let budget = options.time * SWITCHES_PERCENT / 100;
    let switched = switches::measure(address, (&names, &chosen), level, budget, is_stopped)?;
    let _lock = lock(&directory)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let opened = tiers::open(&settings, Access::Write, false, &clock)?;
    // What one left that was killed, on any tier.
    opened.iter().try_for_each(|tier| ground::clear(&*tier.backend))?;
    let each = options.time / chosen.len().max(1) as u32;
    let mut all = Vec::new();
    for (index, switch) in chosen.into_iter().zip(switched) {
        if is_stopped() {
            break;
        }
        let tier = &settings.tiers[index];
        let how = How {
            time: each,
            room_bytes: room[index],
            is_durable: settings.persistency >= Persistency::Storage,
            is_thorough: options.is_thorough,
        };
        let mut one = measure_tier(&tier.name, &*opened[index].backend, &*clock, &how, is_stopped)
            .map_err(|error| error.with("tier", &tier.name))?;
        if is_stopped() {
            break;
        }
        one.switch = switch;
        let prices = tier.figures.prices.named().into_iter();
        one.prices = prices.filter(|(_, price)| *price > 0.0).collect();
        measured(&one);
        all.push(one);
    }
    Ok(all)
}

/// Writes what was measured into the configuration of the store, and leaves the rest of it.
///
/// # Errors
///
/// `Busy` where the store is open, `Invalid` where the configuration cannot be changed,
/// `Io`.
pub fn write_calibration(address: &str, all: &[Calibrated]) -> Result<()> {
    let directory = Directory::at(address)?;
    let _lock = lock(&directory)?;
    for one in all {
        let figures = one.settings();
        amend_file(&directory.settings(), &Change::Figures(&one.tier, &figures))?;
    }
    Ok(())
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

/// How one tier is measured.
struct How {
    time: Duration,
    room_bytes: u64,
    is_durable: bool,
    is_thorough: bool,
}

fn measure_tier(
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

/// A table of a configuration; `None` for one without anything in it.
fn table(points: &[(u64, f64)]) -> Option<String> {
    let pair = |(bytes, share): &(u64, f64)| {
        // In quotation marks, since `1.5MiB` would be two keys.
        format!("\"{}\" = {share:.2}", show_bytes(*bytes).replace(' ', ""))
    };
    let pairs: Vec<_> = points.iter().map(pair).collect();
    (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
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

/// The bytes that are left on each tier, as the store counts them.
fn room(address: &str) -> Result<Vec<u64>> {
    let options =
        OpenOptions { access: Access::Read, attach: false, serve: false, ..OpenOptions::default() };
    let store = Store::open_with(address, options)?;
    let left = |tier: &TierReport| {
        let taken = tier.used_bytes
            + tier.reserved_bytes
            + tier.copy_bytes
            + tier.garbage_bytes
            + tier.kept_bytes;
        tier.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(taken))
    };
    Ok(store.admin().tiers()?.iter().map(left).collect())
}

/// The tiers of these names, by their place; all, where there is none.
fn choose(settings: &Settings, names: &[String]) -> Result<Vec<usize>> {
    let place = |name: &String| {
        let is_it = |tier: &TierSettings| tier.name == *name;
        settings.tiers.iter().position(is_it).ok_or_else(|| {
            let known: Vec<_> = settings.tiers.iter().map(|tier| tier.name.as_str()).collect();
            Error::new(ErrorKind::NotFound, OPERATION)
                .because(format!("the store has the tiers {}", known.join(", ")))
                .with("tier", name)
        })
    };
    match names {
        [] => Ok((0..settings.tiers.len()).collect()),
        names => names.iter().map(place).collect(),
    }
}

fn lock(directory: &Directory) -> Result<Lock> {
    Lock::try_take(directory, Access::Write, None)?.ok_or_else(|| {
        let reason =
            "another process has the store open, whose work and this would measure each other";
        Lock::busy(directory, OPERATION, reason)
    })
}
