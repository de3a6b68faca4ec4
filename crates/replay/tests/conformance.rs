// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The orders against known results on a real trace, in both of its encodings.
//!
//! `TERRACE_TRACES` names a directory with `cloudPhysicsIO.oracleGeneral.bin` and
//! `cloudPhysicsIO.vscsi`, two hours of a virtual disk (CloudPhysics), as libCacheSim publishes them.

use std::env;
use std::path::{Path, PathBuf};

use terrace_replay::{CacheReplay, Capacity, Format, Options, Order, Outcome, Trace, Wish};

const REQUESTS: u64 = 113_872;
const OBJECTS: u64 = 48_974;

/// Misses with 1000 and with 10000 objects.
const BY_OBJECTS: [(Order, [u64; 2]); 10] = [
    (Order::Fifo, [95520, 79210]),
    (Order::Lru, [94823, 79438]),
    (Order::Clock, [94727, 84750]),
    (Order::Sieve, [93975, 81059]),
    (Order::S3Fifo, [94005, 75564]),
    (Order::S3FifoV1, [94017, 76212]),
    (Order::Arc, [94027, 79413]),
    (Order::TwoQ, [94117, 78831]),
    (Order::Lfu, [95562, 81059]),
    (Order::Belady, [87025, 61843]),
];

/// Misses with 128 MiB and with 512 MiB, and by what part they may differ: where a paper leaves much
/// open.
const BY_BYTES: [(Order, [u64; 2], f64); 7] = [
    (Order::Fifo, [93403, 84025], 0.0),
    (Order::Lru, [93374, 81722], 0.0),
    (Order::Sieve, [91699, 76707], 0.0),
    (Order::S3Fifo, [90117, 72191], 0.0),
    (Order::Arc, [90252, 74297], 0.0),
    (Order::Gdsf, [89068, 70488], 0.005),
    (Order::WTinyLfu, [90517, 75139], 0.005),
];

/// The file, or `None` with a word about it.
fn file(name: &str) -> Option<PathBuf> {
    let Some(directory) = env::var_os("TERRACE_TRACES") else {
        eprintln!("skipped: TERRACE_TRACES names no directory with {name}");
        return None;
    };
    Some(PathBuf::from(directory).join(name))
}

fn replay(path: &Path, wishes: Vec<Wish>) -> Outcome {
    let mut trace = Trace::open(path, &Options::default()).unwrap();
    CacheReplay::new(wishes, 2).run(&mut trace, &mut |_| {}).unwrap()
}

fn wishes(order: Order, capacities: [Capacity; 2]) -> impl Iterator<Item = Wish> {
    capacities.into_iter().map(move |capacity| Wish { order, capacity })
}

#[test]
fn misses_by_objects_are_the_known_ones() {
    let capacities = [Capacity::Objects(1000), Capacity::Objects(10_000)];
    for name in ["cloudPhysicsIO.oracleGeneral.bin", "cloudPhysicsIO.vscsi"] {
        let Some(path) = file(name) else { return };
        let wishes = BY_OBJECTS.iter().flat_map(|(order, _)| wishes(*order, capacities));
        let outcome = replay(&path, wishes.collect());
        assert_eq!((outcome.requests, outcome.objects), (REQUESTS, OBJECTS));
        let found: Vec<u64> = outcome.counts.iter().map(|counts| counts.misses).collect();
        let wanted: Vec<u64> = BY_OBJECTS.iter().flat_map(|(_, misses)| *misses).collect();
        assert_eq!(found, wanted, "{name}: {BY_OBJECTS:?}");
    }
}

#[test]
fn misses_by_bytes_are_the_known_ones() {
    let Some(path) = file("cloudPhysicsIO.oracleGeneral.bin") else { return };
    let capacities = [Capacity::Bytes(128 << 20), Capacity::Bytes(512 << 20)];
    let wishes = BY_BYTES.iter().flat_map(|(order, ..)| wishes(*order, capacities));
    let outcome = replay(&path, wishes.collect());
    for ((order, wanted, part), found) in BY_BYTES.iter().zip(outcome.counts.chunks(2)) {
        for (wanted, found) in wanted.iter().zip(found) {
            let difference = found.misses.abs_diff(*wanted) as f64 / *wanted as f64;
            assert!(difference <= *part, "{order}: {} misses, not {wanted}", found.misses);
        }
    }
}

#[test]
fn formats_are_recognised() {
    for (name, format) in [
        ("cloudPhysicsIO.oracleGeneral.bin", Format::OracleGeneral),
        ("cloudPhysicsIO.vscsi", Format::Vscsi),
        ("cachelib_block_1.csv", Format::Csv),
        ("loop.trace.gz", Format::Ids),
        ("scan.trace.gz", Format::Ids),
        ("zigzag.trace.gz", Format::Ids),
    ] {
        let Some(path) = file(name) else { return };
        assert_eq!(Trace::open(&path, &Options::default()).unwrap().format(), format, "{name}");
    }
}
