// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every order against a slow and plain one, and what holds for all of them.

mod plain;
mod plain_queues;
mod plain_shares;

use std::collections::BTreeMap;

use terrace_core::Random;

use super::{
    Arc, Cache, Clock, Fifo, Gdsf, Lfu, Lru, Replacement, Resident, S3Fifo, Sieve, TwoQ, WTinyLfu,
};
use plain::Plain;

const SEEDS: u64 = 30;
const REQUESTS: usize = 3000;

/// What is asked for: objects and sizes.
type Load = Vec<(u32, u64)>;

/// A random load: some objects popular, some in loops and scans, sizes that now and then change.
fn load(seed: u64) -> (u64, Load) {
    let mut random = Random::new(seed);
    let objects = 20 + random.below(200) as u32;
    let is_sized = seed.is_multiple_of(2);
    let capacity = 5 + random.below(if is_sized { 2000 } else { 100 });
    let mut scan = 0;
    let requests = (0..REQUESTS).map(|_| {
        let object = match random.below(10) {
            0..6 => (f64::from(objects) * random.unit().powi(3)) as u32,
            6 => random.below(u64::from(objects)) as u32,
            _ => {
                scan = (scan + 1) % objects;
                scan
            }
        };
        let usual = 1 + u64::from(object) * 7919 % 97;
        match (is_sized, random.chance(0.02)) {
            (false, _) => (object, 1),
            (true, false) => (object, usual),
            (true, true) => (object, random.below(2 * capacity)),
        }
    });
    let requests = requests.collect();
    (capacity, requests)
}

/// Follows a load; which requests hit.
fn hits<R: Replacement>(order: R, capacity: u64, load: &Load) -> Vec<bool> {
    let mut cache = Cache::new(order, capacity);
    let mut hits = Vec::new();
    let mut sizes = BTreeMap::new();
    for (object, bytes) in load {
        // In steps, as a trace that is being read.
        cache.grow((*object as usize + 1).next_multiple_of(16));
        let is_hit = cache.request(*object, *bytes);
        hits.push(is_hit);
        if !is_hit {
            sizes.insert(*object, *bytes);
        }
        assert!(cache.used_bytes() <= capacity, "more is there than fits");
    }
    let there = sizes.iter().filter(|(object, _)| cache.order().contains(**object));
    assert_eq!(there.map(|(_, bytes)| bytes).sum::<u64>(), cache.used_bytes());
    hits
}

fn check<R: Replacement, P: Plain>(fast: impl Fn(u64) -> R, plain: impl Fn(u64) -> P) {
    for seed in 0..SEEDS {
        let (capacity, load) = load(seed);
        let found = hits(fast(capacity), capacity, &load);
        let mut plain = plain(capacity);
        for (step, (object, bytes)) in load.iter().enumerate() {
            let wanted = plain.request(*object, *bytes);
            assert_eq!(found[step], wanted, "seed {seed} step {step} object {object}");
        }
        assert_eq!(found, hits(fast(capacity), capacity, &load), "not the same twice");
    }
}

#[test]
fn fifo_is_plain_fifo() {
    check(|_| Fifo::default(), plain::Fifo::new);
}

#[test]
fn lru_is_plain_lru() {
    check(|_| Lru::default(), plain::Lru::new);
}

#[test]
fn clock_is_plain_clock() {
    check(|_| Clock::default(), plain::Clock::new);
}

#[test]
fn sieve_is_plain_sieve() {
    check(|_| Sieve::default(), plain::Sieve::new);
}

#[test]
fn lfu_is_plain_lfu() {
    check(|_| Lfu::default(), |capacity| plain::Ranked::new(capacity, plain::by_requests));
}

#[test]
fn gdsf_is_plain_gdsf() {
    check(
        |_| Gdsf::default(),
        |capacity| plain::Ranked::new(capacity, plain::by_requests_for_size),
    );
}

#[test]
fn s3_fifo_is_plain_s3_fifo() {
    check(S3Fifo::new, |capacity| plain_queues::S3Fifo::new(capacity, true));
    check(S3Fifo::version_1, |capacity| plain_queues::S3Fifo::new(capacity, false));
}

/// What an order keeps out needs no room.
#[test]
fn what_s3_fifo_keeps_out_drives_nothing_out() {
    for order in [S3Fifo::new, S3Fifo::version_1] {
        let mut cache = Cache::new(order(100), 100);
        cache.grow(32);
        (0..25).for_each(|object| assert!(!cache.request(object, 4)));
        assert_eq!(cache.used_bytes(), 100, "it is full");
        // The small queue has 10.
        assert!(!cache.request(25, 10));
        assert!(!cache.request(25, 101));
        assert!(!cache.order().contains(25));
        (0..25).for_each(|object| assert!(cache.request(object, 4), "{object} is gone"));
    }
}

/// The object that misses is taken from the list of names, also where it is too large by now.
#[test]
fn a_miss_of_what_is_too_large_takes_its_name() {
    let mut cache = Cache::new(S3Fifo::version_1(100), 100);
    cache.grow(64);
    (0..26).for_each(|object| assert!(!cache.request(object, 4)));
    assert!(cache.order().remembers(0), "it was the first to go");
    assert!(!cache.request(0, 101));
    assert!(!cache.order().remembers(0));
}

#[test]
fn two_q_is_plain_two_q() {
    check(TwoQ::new, plain_queues::TwoQ::new);
}

#[test]
fn arc_is_plain_arc() {
    check(Arc::new, plain_shares::Arc::new);
}

#[test]
fn w_tiny_lfu_is_plain_w_tiny_lfu() {
    check(WTinyLfu::new, plain_shares::WTinyLfu::new);
}
