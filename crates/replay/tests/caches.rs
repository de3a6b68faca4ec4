// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cache model as a whole.

use std::fmt::Write as _;
use std::io::Cursor;

use terrace_core::Random;
use terrace_replay::{CacheReplay, Capacity, Options, Order, Outcome, Trace, Wish};

/// A trace in text, and the same as pairs.
fn trace(seed: u64, is_sized: bool) -> (String, Vec<(u64, u64)>) {
    let mut random = Random::new(seed);
    let mut text = String::from("id,size\n");
    let requests = (0..5000).map(|_| {
        let object = (60.0 * random.unit().powi(2)) as u64;
        (object, if is_sized { 1 + object * 31 % 17 } else { 1 })
    });
    let requests: Vec<_> = requests.collect();
    for (object, bytes) in &requests {
        writeln!(text, "{object},{bytes}").unwrap();
    }
    (text, requests)
}

fn replay(text: &str, wishes: &[Wish], threads: usize) -> Outcome {
    let stream = Box::new(Cursor::new(text.to_string().into_bytes()));
    let mut trace = Trace::from_stream(stream, "test", &Options::default()).unwrap();
    let mut told = 0;
    let outcome = CacheReplay::new(wishes.to_vec(), threads).run(&mut trace, &mut |n| told += n);
    let outcome = outcome.unwrap();
    assert_eq!(told, outcome.requests);
    outcome
}

fn every_wish() -> Vec<Wish> {
    let capacities = [Capacity::Objects(1), Capacity::Objects(20), Capacity::Bytes(100)];
    let pair = |order| capacities.map(|capacity| Wish { order, capacity });
    Order::ALL.into_iter().flat_map(pair).collect()
}

#[test]
fn threads_change_nothing() {
    let (text, _) = trace(1, true);
    let wishes = every_wish();
    let one = replay(&text, &wishes, 1);
    for threads in [2, 3, 100] {
        assert_eq!(replay(&text, &wishes, threads), one, "{threads} threads");
    }
    for (wish, counts) in wishes.iter().zip(&one.counts) {
        assert_eq!(replay(&text, &[*wish], 1).counts, [*counts], "{wish:?} alone");
    }
}

/// Of equals the older stays: otherwise nothing would ever be there when it is asked for again.
#[test]
fn w_tinylfu_keeps_most_of_a_loop_that_is_a_little_too_long() {
    let mut text = String::from("id\n");
    (0..1011 * 50).for_each(|request| writeln!(text, "{}", request % 1011).unwrap());
    let capacity = Capacity::Objects(1000);
    let wishes = [Order::Lru, Order::WTinyLfu].map(|order| Wish { order, capacity });
    let outcome = replay(&text, &wishes, 1);
    assert_eq!(outcome.counts[0].misses, outcome.requests);
    assert!(outcome.counts[1].misses < outcome.requests / 5, "{:?}", outcome.counts[1]);
}

#[test]
fn what_never_left_is_missed_once() {
    let (text, requests) = trace(2, true);
    let capacity = Capacity::Bytes(1 << 40);
    let wishes: Vec<_> = Order::ALL.iter().map(|order| Wish { order: *order, capacity }).collect();
    let outcome = replay(&text, &wishes, 2);
    assert_eq!(outcome.requests, requests.len() as u64);
    assert_eq!(outcome.bytes, requests.iter().map(|(_, bytes)| bytes).sum::<u64>());
    for (wish, counts) in wishes.iter().zip(&outcome.counts) {
        assert_eq!(counts.misses, outcome.objects, "{wish:?}");
    }
}

/// Belady's rule, with a look at all that comes for each eviction.
fn plain_belady(requests: &[(u64, u64)], objects: usize) -> u64 {
    let mut cache: Vec<u64> = Vec::new();
    let mut misses = 0;
    for (now, (object, _)) in requests.iter().enumerate() {
        if cache.contains(object) {
            continue;
        }
        misses += 1;
        if cache.len() == objects {
            let next = |other: &u64| {
                requests[now..].iter().position(|(object, _)| object == other).unwrap_or(usize::MAX)
            };
            let last = (0..cache.len()).max_by_key(|index| next(&cache[*index])).unwrap();
            cache.remove(last);
        }
        cache.push(*object);
    }
    misses
}

#[test]
fn belady_is_plain_belady_and_the_best() {
    let (text, requests) = trace(3, false);
    let capacity = Capacity::Objects(12);
    let wishes = Order::ALL.map(|order| Wish { order, capacity });
    let outcome = replay(&text, &wishes, 2);
    let misses: Vec<u64> = outcome.counts.iter().map(|counts| counts.misses).collect();
    assert_eq!(*misses.last().unwrap(), plain_belady(&requests, 12));
    assert_eq!(misses.iter().min(), misses.last());
}

#[test]
fn capacities_are_read_and_shown() {
    assert_eq!(Capacity::parse("1000obj").unwrap(), Capacity::Objects(1000));
    assert_eq!(Capacity::parse(" 7 objects").unwrap(), Capacity::Objects(7));
    assert_eq!(Capacity::parse("128MiB").unwrap(), Capacity::Bytes(128 << 20));
    for text in ["", "1000", "obj", "-1obj", "1.5obj", "9999999999TiB", "1152921504606846976obj"] {
        let error = Capacity::parse(text).unwrap_err().to_string();
        assert!(error.contains("1000obj"), "{text}: {error}");
    }
    for text in ["1000obj", "128MiB", "1GB"] {
        assert_eq!(Capacity::parse(text).unwrap().to_string(), text);
    }
}
