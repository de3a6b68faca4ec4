// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{ActionKind, Random, Slot, TierIndex};

use super::Filtering;
use super::resident::Residents;
use crate::harness::{Harness, tiers};
use crate::replacement::{Arc, Gdsf, S3Fifo, Sieve, TwoQ, WTinyLfu};

const MB: u64 = 1_000_000;
const NAMES: [&str; 6] = ["s3-fifo", "sieve", "arc", "2q", "w-tinylfu", "gdsf"];

/// Two tiers of 100 MB and 10 GB, where every access is a touch, without the gate.
fn open(name: &str) -> Harness {
    let parameters = [("gate", "off"), ("together", "0s"), ("idle", "0s")];
    Harness::new(name, &parameters, tiers(&[100 * MB, 10_000 * MB]))
}

/// Objects of 1 MB on the lower tier, of which the policy knows nothing but that they are there.
fn below(harness: &mut Harness, count: usize) -> Vec<Slot> {
    harness.policy.set_parameter("place", "t1").expect("a tier");
    let slots = (0..count).map(|index| {
        let slot = harness.create(&format!("n/{index}"));
        harness.view.segments[slot as usize].size_bytes = MB;
        harness.view.tiers[1].used_bytes += MB;
        slot
    });
    let slots = slots.collect();
    harness.policy.set_parameter("place", "t0").expect("a tier");
    harness.round();
    slots
}

/// Reads one segment; whether that promotes it.
fn promotes(harness: &mut Harness, slot: Slot) -> bool {
    harness.advance(0.1);
    harness.read(slot, 0, MB);
    let promotion = ActionKind::Promote { to: TierIndex(0) };
    harness.round().iter().any(|action| action.slot == slot && action.kind == promotion)
}

#[test]
fn the_first_touch_is_served_in_place_and_the_second_promotes() {
    for name in NAMES {
        let mut harness = open(name);
        let slots = below(&mut harness, 2);
        assert!(!promotes(&mut harness, slots[0]), "{name}");
        assert!(!promotes(&mut harness, slots[1]), "{name}");
        assert!(promotes(&mut harness, slots[0]), "{name}");
        assert_eq!([0, 1].map(|index| harness.tier(slots[index])), [0, 1], "{name}");
    }
}

#[test]
fn one_that_comes_back_after_it_was_given_up_is_promoted_where_the_order_remembers_it() {
    // How many are touched twice before it, once before it, and once after it, so that it has left.
    for (name, twice, before, after, is_remembered) in [
        ("s3-fifo", 0, 100, 30, true),
        ("arc", 20, 70, 75, true),
        ("2q", 0, 100, 100, true),
        ("sieve", 0, 100, 100, false),
        ("gdsf", 0, 100, 100, false),
        ("w-tinylfu", 0, 100, 100, false),
    ] {
        let mut harness = open(name);
        let slots = below(&mut harness, twice + before + after + 1);
        let (others, it) = (&slots[1..], slots[0]);
        others[..twice].iter().for_each(|slot| {
            promotes(&mut harness, *slot);
        });
        for slot in &others[..twice + before] {
            promotes(&mut harness, *slot);
        }
        assert!(!promotes(&mut harness, it), "{name}");
        for slot in &others[twice + before..] {
            assert!(!promotes(&mut harness, *slot), "{name}");
        }
        assert_eq!(promotes(&mut harness, it), is_remembered, "{name}");
    }
}

#[test]
fn accesses_that_belong_together_are_one_touch() {
    for name in NAMES {
        let mut harness = open(name);
        harness.policy.set_parameter("together", "10s").expect("a duration");
        let slot = below(&mut harness, 1)[0];
        for _ in 0..50 {
            assert!(!promotes(&mut harness, slot), "{name}");
        }
        harness.advance(10.0);
        assert!(promotes(&mut harness, slot), "{name}");
    }
}

#[test]
fn what_was_touched_again_stays_and_the_rest_leaves_first() {
    // 2Q asks for more than touches in its first queue.
    for name in NAMES.into_iter().filter(|name| *name != "2q") {
        let mut harness = open(name);
        let written: Vec<_> =
            (0..85).map(|index| harness.write(&format!("w/{index}"), MB)).collect();
        for _ in 0..3 {
            harness.advance(1.0);
            written[..20].iter().for_each(|slot| harness.read(*slot, 0, MB));
        }
        harness.round();
        // As much again as the tier has.
        for index in 0..100 {
            harness.advance(1.0);
            harness.write(&format!("x/{index}"), MB);
            harness.round();
            assert!(harness.fill(0) <= 0.91, "{name}");
        }
        let stayed = written[..20].iter().filter(|slot| harness.tier(**slot) == 0).count();
        assert!(stayed >= 15, "{name}: {stayed}");
    }
}

#[test]
fn a_full_tier_is_drained_though_nothing_was_given_up() {
    for name in NAMES {
        let mut harness = open(name);
        // What is written with one touch and grows after it has the size that it has then.
        let slots: Vec<_> = (0..9).map(|index| harness.write(&format!("n/{index}"), MB)).collect();
        harness.round();
        slots.iter().for_each(|slot| harness.overwrite(*slot, 10 * MB + MB / 2));
        harness.advance(2.0);
        let actions = harness.round();
        assert!(!actions.is_empty(), "{name}");
        assert!(harness.fill(0) <= 0.7, "{name}");
    }
}

#[test]
fn with_the_gate_a_scan_that_returns_once_moves_nothing() {
    for name in NAMES {
        let mut harness = open(name);
        harness.policy.set_parameter("gate", "on").expect("a switch");
        let slots = below(&mut harness, 50);
        harness.view.tiers.iter_mut().for_each(|tier| tier.utilisation = 1.0);
        for slot in slots.iter().chain(&slots) {
            assert!(!promotes(&mut harness, *slot), "{name}");
        }
    }
}

/// One random thing that happens to a segment.
fn act<R: Filtering>(residents: &mut Residents<R>, random: &mut Random) -> (bool, Vec<Slot>) {
    let slot = (60.0 * random.unit().powi(2)) as Slot;
    let is_return = match random.below(20) {
        0 => {
            residents.forget(slot);
            false
        }
        1..4 => {
            residents.resize(slot, random.below(100));
            false
        }
        4 => residents.give_up(),
        _ => residents.request(slot, 1 + random.below(100)),
    };
    (is_return, residents.take_victims())
}

fn check<R: Filtering>() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let mut residents = Residents::<R>::new(1000);
        for _ in 0..300 {
            act(&mut residents, &mut random);
            assert!(residents.used_bytes() <= 1000, "{} seed {seed}", R::NAME);
            assert_eq!(residents.used_bytes(), residents.sum_bytes(), "{} seed {seed}", R::NAME);
        }
        let mut resumed = Residents::<R>::new(1000);
        resumed.resume(&residents.snapshot(), 60);
        let mut same = random.clone();
        for step in 0..300 {
            let wanted = act(&mut residents, &mut random);
            assert_eq!(act(&mut resumed, &mut same), wanted, "{} seed {seed} {step}", R::NAME);
        }
    }
}

#[test]
fn orders_keep_to_the_room_and_go_on_as_they_were_where_objects_grow_and_go() {
    check::<S3Fifo>();
    check::<Sieve>();
    check::<Arc>();
    check::<TwoQ>();
    check::<WTinyLfu>();
    check::<Gdsf>();
}
