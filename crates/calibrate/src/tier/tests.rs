// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices with known figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use terrace_backends::object::{Memory, Rates, Throttle};
use terrace_core::{Cursor, SystemClock};
use terrace_settings::Settings;
use terrace_testkit::ManualClock;

use super::*;
use crate::ground::NAMESPACE;

const NEVER: &(dyn Fn() -> bool + Sync) = &|| false;

fn how(room_bytes: u64) -> How {
    How { time: Duration::from_secs(60), room_bytes, is_durable: false, is_thorough: false }
}

fn device(latency: Duration, parallelism: u32, clock: &Arc<dyn Clock>) -> Throttle {
    let memory = Arc::new(Memory::new(u64::MAX));
    let (read_bytes_per_s, write_bytes_per_s) = (Some(200e6), Some(100e6));
    let rates = Rates { latency, read_bytes_per_s, write_bytes_per_s, parallelism };
    Throttle::new(memory, rates, Arc::clone(clock))
}

fn is_empty(backend: &dyn Backend) -> bool {
    backend.list(NAMESPACE, "", &Cursor::start(), 10).expect("it lists").keys.is_empty()
}

fn within(found: f64, expected: f64, factor: f64) -> bool {
    found > expected / factor && found < expected * factor
}

#[test]
fn a_device_comes_out_as_it_is() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let device = device(Duration::from_millis(8), 1, &clock);
    let found = measure_tier("t", &device, &*clock, &how(1 << 30), NEVER).expect("measured");
    assert!(within(found.latency_ns as f64, 8e6, 1.05), "{found:?}");
    assert!(within(found.read_bytes_per_s.expect("bounded"), 200e6, 1.05), "{found:?}");
    assert!(within(found.write_bytes_per_s.expect("bounded"), 100e6, 1.05), "{found:?}");
    assert_eq!((found.seek_ns, found.write_latency_ns, found.is_cold), (0, None, false));
    assert_eq!((found.bytes, found.unresolved.len()), (BYTES_MAX, 0));
    assert!(is_empty(&device));
}

#[test]
fn however_little_time_there_is_a_latency_is_told_by_enough_requests() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let device = device(Duration::from_millis(8), 1, &clock);
    let how = How { time: Duration::from_millis(1), ..how(1 << 30) };
    let found = measure_tier("t", &device, &*clock, &how, NEVER).expect("measured");
    assert!(found.reads[0].count >= 20 && found.writes[0].count >= 20, "{found:?}");
    assert!(within(found.latency_ns as f64, 8e6, 1.05), "{found:?}");
}

#[test]
fn several_servers_are_found_by_several_threads() {
    // In real time, because a clock that stands still does not wait for all threads.
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let device = device(Duration::from_millis(4), 4, &clock);
    let how = How { time: Duration::from_secs(2), ..how(64 << 20) };
    let found = measure_tier("t", &device, &*clock, &how, NEVER).expect("measured");
    assert!((2..=8).contains(&found.parallelism), "{found:?}");
    assert!(is_empty(&device));
}

#[test]
fn large_requests_that_slow_each_other_share_so_much() {
    // 100 us and 1 GB/s for each of so many.
    let one = fit::Line { latency_s: 1e-4, bytes_per_s: 1e9, is_resolved: true };
    let some = |threads: &[u32], streams: f64| -> Vec<Threads> {
        let took_s = |threads: u32| 1e-4 + (f64::from(threads) / streams).max(1.0) * 1e-3;
        let each = |threads: &u32| Threads {
            bytes: 1_000_000,
            threads: *threads,
            requests_per_s: f64::from(*threads) / took_s(*threads),
        };
        threads.iter().map(each).collect()
    };
    for (threads, share) in [(&[1, 2, 4][..], 1.5), (&[1, 2, 4, 8, 16], 6.0)] {
        let found = streams(&some(threads, share), &one, 16).expect("they slow each other");
        assert!((found - share).abs() < 1e-6, "{found}");
    }
    // Those that do not slow each other have no bound, and of one thread nothing is known.
    assert_eq!(streams(&some(&[1, 2, 4], 6.0), &one, 16), None);
    assert_eq!(streams(&some(&[1], 1.5), &one, 16), None);
    // One that is hardly less than small ones is the same.
    assert_eq!(streams(&some(&[1, 2, 4], 1.8), &one, 2), None);
    let all = some(&[1, 2, 4], 1.5);
    let unbounded = fit::Line { bytes_per_s: f64::INFINITY, ..one };
    assert_eq!(streams(&all, &unbounded, 8), None);
}

#[test]
fn what_was_used_a_moment_ago_takes_a_part_up_to_where_it_takes_all() {
    const MIB: u64 = 1 << 20;
    let sample = |bytes, seconds| Sample { bytes, seconds, count: 9 };
    let all = [sample(4096, 1.0), sample(LARGE_BYTES, 4.0)];
    let found = |recent: &[(u64, f64)]| recently_used(recent, LARGE_BYTES, &all);
    // More of it never takes less.
    let grows = found(&[(MIB, 1.0), (4 * MIB, 0.9), (16 * MIB, 2.0), (64 * MIB, 3.9)]);
    assert_eq!(grows, [(MIB, 0.25), (4 * MIB, 0.25), (16 * MIB, 0.5), (64 * MIB, 1.0)]);
    assert_eq!(found(&[(MIB, 2.0)]), [(MIB, 0.5), (4 * MIB, 1.0)], "there was no room for more");
    assert_eq!(found(&[(MIB, 3.9), (4 * MIB, 5.0)]), []);
    assert_eq!(
        recently_used(&[(MIB, 1.0)], LARGE_BYTES, &all[..1]),
        [],
        "of that nothing is known"
    );
}

#[test]
fn figures_that_were_measured_can_be_read_again() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let device = device(Duration::from_millis(1), 1, &clock);
    let mut found = measure_tier("t", &device, &*clock, &how(1 << 30), NEVER).expect("measured");
    assert_eq!(found.recently_used, [], "no cache is in front of it");
    found.recently_used = vec![(1 << 20, 0.25), (3 << 19, 0.5)];
    let keys = found.settings().into_iter().filter_map(|(key, value)| Some((key, value?)));
    let lines: Vec<_> = keys.map(|(key, value)| format!("{key} = {value}\n")).collect();
    let text = format!("[[tier]]\nname = \"t\"\nbackend = \"memory\"\n{}", lines.concat());
    let text = format!("[store]\npersistency = \"none\"\n{text}");
    let settings = Settings::parse(&text, "measured").expect("legal");
    let [(first, quarter), (second, half)] = settings.tiers[0].recently_used[..] else {
        panic!("two: {text}");
    };
    assert!(within(first as f64, 1e6, 1.1) && within(second as f64, 1.5e6, 1.1), "{text}");
    assert!(within(quarter, 0.25, 1.01) && within(half, 0.5, 1.01), "{text}");
}

#[test]
fn little_room_is_kept_to_and_too_little_is_refused() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let device = device(Duration::from_millis(1), 1, &clock);
    let found = measure_tier("t", &device, &*clock, &how(1 << 20), NEVER).expect("measured");
    assert_eq!(found.bytes, 256 << 10);
    let error = measure_tier("t", &device, &*clock, &how(100_000), NEVER).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(is_empty(&device));
}

#[test]
fn whoever_stops_it_leaves_nothing_behind() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let device = device(Duration::from_millis(1), 1, &clock);
    for after in [0, 1, 100, 300, 1000] {
        let asked = AtomicU32::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) >= after;
        let _ = measure_tier("t", &device, &*clock, &how(1 << 30), &stop);
        assert!(is_empty(&device), "{after}");
    }
}

#[test]
fn what_a_killed_one_left_is_gone_after_the_next() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let device = device(Duration::from_millis(1), 1, &clock);
    let ground = Ground::make(&device, &*clock, 1 << 20, &|| false).expect("made");
    std::mem::forget(ground);
    assert!(!is_empty(&device));
    measure_tier("t", &device, &*clock, &how(1 << 20), NEVER).expect("measured");
    assert!(is_empty(&device));
}
