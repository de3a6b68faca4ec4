// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{ActionKind, Slot, TierIndex};

use crate::harness::{Harness, tiers};

const MB: u64 = 1_000_000;

/// Two tiers of 100 MB and 1 GB.
fn pair(parameters: &[(&str, &str)]) -> Harness {
    Harness::new("heat", parameters, tiers(&[100 * MB, 1000 * MB]))
}

/// Writes objects of 10 MB, one a second.
fn written(harness: &mut Harness, count: usize) -> Vec<Slot> {
    let mut write = |index| {
        harness.advance(1.0);
        harness.write(&format!("n/{index}"), 10 * MB)
    };
    (0..count).map(&mut write).collect()
}

/// Objects of 10 MB on the lower tier, whose heat is gone.
fn below(harness: &mut Harness, count: usize) -> Vec<Slot> {
    harness.policy.set_parameter("place", "t1").expect("a tier");
    let slots = written(harness, count);
    harness.policy.set_parameter("place", "t0").expect("a tier");
    harness.round();
    harness.advance(1e6);
    slots
}

fn moved(harness: &mut Harness, kind: ActionKind) -> Vec<Slot> {
    let actions = harness.round();
    actions.into_iter().filter(|action| action.kind == kind).map(|action| action.slot).collect()
}

fn demoted(harness: &mut Harness) -> Vec<Slot> {
    moved(harness, ActionKind::Move { to: TierIndex(1) })
}

fn promoted(harness: &mut Harness) -> Vec<Slot> {
    moved(harness, ActionKind::Promote { to: TierIndex(0) })
}

#[test]
fn a_full_tier_demotes_its_coldest_first_until_low() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 9);
    // The two oldest are read often, the newest not at all: use counts, not the last use.
    for _ in 0..5 {
        slots[..2].iter().for_each(|slot| harness.read(*slot, 0, 10 * MB));
    }
    slots[3..9].iter().for_each(|slot| harness.read(*slot, 0, 10 * MB));
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    assert_eq!(demoted(&mut harness)[0], slots[2]);
    assert!(harness.fill(0) <= 0.7);
    assert!(slots[..2].iter().all(|slot| harness.tier(*slot) == 0));
}

#[test]
fn heat_that_has_halved_often_enough_is_less_than_one_fresh_write() {
    let mut harness = pair(&[("half_life", "10s")]);
    let slots = written(&mut harness, 2);
    (0..8).for_each(|_| harness.read(slots[0], 0, 10 * MB));
    harness.advance(60.0);
    let fresh = written(&mut harness, 7);
    harness.write("n/last", 5 * MB);
    harness.advance(2.0);
    let demoted = demoted(&mut harness);
    assert_eq!(demoted, [slots[1], slots[0], fresh[0]], "8 heat is 0.08 after 66 seconds");
}

#[test]
fn what_is_read_once_stays_where_it_is_however_it_is_read() {
    // The tiers are idle, so that a move costs little.
    let mut harness = pair(&[]);
    let slots = below(&mut harness, 4);
    harness.read(slots[0], 0, 10 * MB);
    (0..100).for_each(|index| harness.read(slots[1], index * MB / 10, MB / 10));
    harness.overwrite(slots[2], 10 * MB);
    harness.read(slots[2], 0, 10 * MB);
    assert!(promoted(&mut harness).is_empty());
    harness.read(slots[0], 0, 10 * MB);
    assert_eq!(promoted(&mut harness), [slots[0]]);
}

#[test]
fn a_promotion_needs_heat_times_saving_above_the_cost() {
    // A read takes 101 ms below and 10.1 ms above; on busy tiers a move costs both, 1.5 times. So a
    // heat of 1.83 is what it takes.
    for (reads, moves) in [(1.8, false), (1.9, true)] {
        let mut harness = pair(&[("half_life", "1000000s")]);
        let slot = below(&mut harness, 1)[0];
        harness.advance(1e8);
        harness.view.tiers.iter_mut().for_each(|tier| tier.utilisation = 1.0);
        harness.read(slot, 0, 10 * MB);
        harness.read(slot, 0, ((reads - 1.0) * 10.0 * MB as f64) as u64);
        assert_eq!(!promoted(&mut harness).is_empty(), moves, "{reads} reads");
    }
}

#[test]
fn many_small_reads_count_with_their_latency() {
    // Two passes in 1000 requests each take 2.2 seconds below and 0.22 above.
    let mut harness = pair(&[]);
    let slot = below(&mut harness, 1)[0];
    harness.view.tiers.iter_mut().for_each(|tier| tier.utilisation = 1.0);
    (0..2000).for_each(|index| harness.read(slot, index % 1000 * MB / 100, MB / 100));
    let action = harness.round().remove(0);
    assert_eq!(action.kind, ActionKind::Promote { to: TierIndex(0) });
    assert!(action.reason.contains("2000.0 more accesses expected save 1.980 s"), "{action:?}");
}

#[test]
fn without_the_gate_whatever_exceeds_min_heat_moves_up() {
    let mut harness = pair(&[("gate", "off"), ("min_heat", "0.9")]);
    let slots = below(&mut harness, 2);
    harness.view.tiers.iter_mut().for_each(|tier| tier.utilisation = 1.0);
    harness.read(slots[0], 0, 10 * MB);
    harness.read(slots[1], 0, 8 * MB);
    assert_eq!(promoted(&mut harness), [slots[0]]);
}

#[test]
fn a_segment_that_grows_is_as_warm_as_one_written_at_once() {
    let mut harness = pair(&[("half_life", "1000000s")]);
    let slot = harness.create("n/grown");
    for index in 1..=100 {
        harness.overwrite(slot, index * MB / 10);
        harness.round();
    }
    // Each write of the harness is from the beginning: 1 + 2 + … + 100 parts of 100.
    let whole = harness.write("n/whole", 10 * MB);
    (0..50).for_each(|_| harness.overwrite(whole, 10 * MB));
    let others: Vec<_> =
        (0..7).map(|index| harness.write(&format!("n/{index}"), 10 * MB)).collect();
    others.iter().for_each(|slot| (0..60).for_each(|_| harness.overwrite(*slot, 10 * MB)));
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    let last_and_two = demoted(&mut harness);
    assert_eq!(last_and_two[1..], [slot, whole], "50.5 writes against 51");
}

#[test]
fn another_half_life_changes_no_heat_at_once() {
    let mut harness = pair(&[("half_life", "10s"), ("idle", "0s")]);
    let slots = written(&mut harness, 9);
    harness.read(slots[0], 0, 10 * MB);
    harness.round();
    harness.policy.set_parameter("half_life", "1h").expect("a duration");
    harness.write("n/last", 5 * MB);
    harness.advance(1.0);
    assert_eq!(demoted(&mut harness)[..2], slots[1..3]);
    assert!(harness.policy.set_parameter("half_life", "0s").is_err());
}

#[test]
fn heat_survives_a_restart_of_the_clock() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 9);
    (0..5).for_each(|_| harness.read(slots[0], 0, 10 * MB));
    harness.advance(1000.0);
    harness.settle();
    let mut state = Vec::new();
    harness.policy.save(&harness.view, &mut state);

    let mut restarted = pair(&[]);
    restarted.view = harness.view.clone();
    restarted.view.now_ns = 1;
    for segment in &mut restarted.view.segments {
        segment.created_ns = 0;
        (segment.last_read_ns, segment.last_write_ns, segment.last_close_ns) = (0, 0, 0);
    }
    restarted.policy.restore(&restarted.view, 1, &state).expect("its own state");
    restarted.advance(10.0);
    restarted.write("n/last", 5 * MB);
    restarted.advance(10.0);
    assert_eq!(demoted(&mut restarted), slots[1..4]);
}
