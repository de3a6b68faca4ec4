// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{Random, Slot};

use crate::harness::{Harness, tiers};

const MB: u64 = 1_000_000;

/// Two tiers of 100 MB and 10 GB, and so many objects of 1 MB below.
fn pair(parameters: &[(&str, &str)], count: usize) -> (Harness, Vec<Slot>) {
    let mut harness = Harness::new("prefetch", parameters, tiers(&[100 * MB, 10_000 * MB]));
    harness.policy.set_parameter("place", "t1").expect("a tier");
    let slots = (0..count).map(|index| harness.write(&format!("n/{index}"), MB)).collect();
    harness.policy.set_parameter("place", "t0").expect("a tier");
    harness.round();
    harness.advance(1e6);
    (harness, slots)
}

/// Reads in this order, two a second, and returns the share that the fast tier served.
fn read(harness: &mut Harness, order: impl IntoIterator<Item = Slot>) -> f64 {
    let (mut fast, mut all) = (0, 0);
    for slot in order {
        fast += u32::from(harness.tier(slot) == 0);
        all += 1;
        harness.read(slot, 0, MB);
        harness.round();
        harness.advance(0.5);
    }
    f64::from(fast) / f64::from(all)
}

fn shuffled(mut slots: Vec<Slot>, random: &mut Random) -> Vec<Slot> {
    for end in (1..slots.len()).rev() {
        slots.swap(end, random.below(end as u64 + 1) as usize);
    }
    slots
}

fn status(harness: &mut Harness) -> serde_json::Value {
    harness.message("status", "")["prefetch"].clone()
}

#[test]
fn a_sequence_is_there_before_it_is_read() {
    let (mut harness, slots) = pair(&[], 300);
    let first = read(&mut harness, slots[..20].iter().copied());
    assert!(first < 0.7, "it has to prove itself: {first}");
    let rest = read(&mut harness, slots[20..].iter().copied());
    assert!(rest > 0.97, "{rest}");
    assert_eq!(status(&mut harness)["is_on"], true);
}

#[test]
fn names_are_an_order_whatever_the_order_of_creation_and_the_other_way_round() {
    let mut random = Random::new(1);
    let places: Vec<Slot> = shuffled((0..200).collect(), &mut random);
    for is_by_name in [true, false] {
        let mut harness = Harness::new("prefetch", &[], tiers(&[100 * MB, 10_000 * MB]));
        harness.policy.set_parameter("place", "t1").expect("a tier");
        let mut slots = vec![0; 200];
        for (index, place) in places.iter().enumerate() {
            harness.advance(0.1);
            let slot = harness.write(&format!("n/step-{place}.h5"), MB);
            slots[if is_by_name { *place as usize } else { index }] = slot;
        }
        harness.advance(1e6);
        read(&mut harness, slots[..20].iter().copied());
        let rest = read(&mut harness, slots[20..].iter().copied());
        assert!(rest > 0.98, "{is_by_name} {rest}");
    }
}

#[test]
fn strides_of_several_readers_at_once_are_followed() {
    let (mut harness, slots) = pair(&[], 1500);
    let forwards = slots[..500].iter().step_by(5);
    let backwards = slots[500..1000].iter().rev().step_by(5);
    let more = slots[1000..].iter().step_by(5);
    let turns = forwards.zip(backwards).zip(more).flat_map(|((a, b), c)| [*a, *b, *c]);
    let turns: Vec<_> = turns.collect();
    read(&mut harness, turns[..30].iter().copied());
    let rest = read(&mut harness, turns[30..].iter().copied());
    assert!(rest > 0.95, "{rest}");
}

#[test]
fn an_order_that_was_read_once_is_known_in_the_next_epoch() {
    let (mut harness, slots) = pair(&[("ahead_count", "16")], 400);
    let order = shuffled(slots, &mut Random::new(5));
    let first = read(&mut harness, order.iter().copied());
    assert!(first < 0.1, "{first}");
    let second = read(&mut harness, order.iter().copied());
    assert!(second > 0.9, "{second}");
}

#[test]
fn random_access_brings_nothing_up() {
    // Nothing moves up for its heat.
    let (mut harness, slots) = pair(&[("min_heat", "1000000")], 2000);
    let mut random = Random::new(4);
    let picks: Vec<_> = (0..3000).map(|_| slots[random.below(2000) as usize]).collect();
    read(&mut harness, picks);
    let status = status(&mut harness);
    assert_eq!(status["is_on"], false);
    assert!(status["misses"].as_u64() > Some(100), "it went on expecting: {status}");
    let moved = harness.message("status", "")["promotions"].as_u64().expect("a number");
    assert!(moved < 50, "{moved}");
}

#[test]
fn it_ends_when_expectations_fail_and_begins_again_when_they_come_true() {
    let (mut harness, slots) = pair(&[], 3000);
    read(&mut harness, slots[..100].iter().copied());
    assert_eq!(status(&mut harness)["is_on"], true);
    let mut random = Random::new(4);
    let picks: Vec<_> = (0..100).map(|_| slots[500 + random.below(1500) as usize]).collect();
    read(&mut harness, picks);
    assert_eq!(status(&mut harness)["is_on"], false);
    read(&mut harness, slots[2500..2600].iter().copied());
    assert_eq!(status(&mut harness)["is_on"], true);
}

#[test]
fn what_is_hotter_is_not_displaced() {
    let (mut harness, slots) = pair(&[], 300);
    let hot: Vec<_> = (0..89).map(|index| harness.write(&format!("hot/{index}"), MB)).collect();
    for slot in &slots {
        for _ in 0..3 {
            hot.iter().for_each(|slot| harness.read(*slot, 0, MB));
        }
        read(&mut harness, [*slot]);
        assert!(hot.iter().all(|slot| harness.tier(*slot) == 0));
    }
}

#[test]
fn no_more_is_brought_up_than_the_window_has_room_for() {
    let parameters = [("ahead_bytes", "5MB"), ("gate", "off"), ("min_hit_rate", "0")];
    let (mut harness, slots) = pair(&parameters, 200);
    for (index, slot) in slots[..100].iter().enumerate() {
        read(&mut harness, [*slot]);
        let unread = &slots[index + 1..];
        let early = unread.iter().filter(|slot| harness.tier(**slot) == 0).count();
        assert!(early <= 5, "{early}");
    }
}

#[test]
fn what_cannot_come_in_time_is_left_where_it_is() {
    let (mut harness, slots) = pair(&[("ahead_count", "4")], 200);
    // A move takes longer than four reads.
    harness.view.tiers[1].figures.latency_ns = 3_000_000_000;
    read(&mut harness, slots[..100].iter().copied());
    let status = status(&mut harness);
    assert_eq!((&status["is_on"], &status["hits_in_time"]), (&true.into(), &0.into()));
    assert_eq!(harness.message("status", "")["promotions"], 0);
}

#[test]
fn what_was_brought_up_and_is_not_read_is_free_to_leave_after_its_deadline() {
    let (mut harness, slots) = pair(&[], 300);
    read(&mut harness, slots[..50].iter().copied());
    let staging = harness.message("status", "")["staging"].clone();
    assert_ne!(staging["leases"], 0);
    harness.advance(31.0);
    harness.round();
    assert_eq!(harness.message("status", "")["staging"]["leases"], 0);
}
