// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{Action, ActionKind, EventKind, Figures, Outcome, Persistency, Slot, TierIndex};

use crate::harness::{Harness, tiers};
use crate::mechanism::tiering::STEPS_MAX;

const MB: u64 = 1_000_000;

fn demotion(slot: Slot) -> (Slot, ActionKind) {
    (slot, ActionKind::Move { to: TierIndex(1) })
}

fn promotion(slot: Slot) -> (Slot, ActionKind) {
    (slot, ActionKind::Promote { to: TierIndex(0) })
}

fn kinds(actions: &[Action]) -> Vec<(Slot, ActionKind)> {
    actions.iter().map(|action| (action.slot, action.kind)).collect()
}

/// Two tiers of 100 MB and 1 GB.
fn pair(parameters: &[(&str, &str)]) -> Harness {
    Harness::new("lru", parameters, tiers(&[100 * MB, 1000 * MB]))
}

/// Writes objects of 10 MB, one a second, and lets them become idle.
fn written(harness: &mut Harness, count: usize) -> Vec<Slot> {
    let mut write = |index| {
        harness.advance(1.0);
        harness.write(&format!("n/{index}"), 10 * MB)
    };
    let slots = (0..count).map(&mut write).collect();
    harness.advance(60.0);
    slots
}

/// Objects of 10 MB on the lower tier, last used an hour ago.
fn below(harness: &mut Harness, count: usize) -> Vec<Slot> {
    harness.policy.set_parameter("place", "t1").expect("a tier");
    let slots = written(harness, count);
    harness.policy.set_parameter("place", "t0").expect("a tier");
    harness.round();
    harness.advance(3600.0);
    slots
}

#[test]
fn a_full_tier_demotes_its_oldest_first_until_low() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 9);
    assert!(harness.round().is_empty(), "90 % is not above high");
    harness.read(slots[0], 0, 1);
    let last = harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    assert_eq!(kinds(&harness.round()), [slots[1], slots[2], slots[3]].map(demotion));
    assert!(harness.fill(0) <= 0.7);
    assert!(harness.round().is_empty());
    assert_eq!((harness.tier(slots[0]), harness.tier(last)), (0, 0));
}

#[test]
fn what_is_open_or_was_used_just_now_stays() {
    let mut harness = pair(&[("idle", "10s")]);
    let slots = written(&mut harness, 9);
    harness.event(EventKind::Open, slots[0]);
    slots[2..].iter().for_each(|slot| harness.read(*slot, 0, 1));
    harness.write("n/last", 6 * MB);
    assert_eq!(kinds(&harness.round()), [demotion(slots[1])]);
    assert!(harness.round().is_empty());
    harness.event(EventKind::Close, slots[0]);
    harness.advance(11.0);
    assert_eq!(harness.round()[0].slot, slots[2], "a close is a use");
}

#[test]
fn a_demotion_goes_only_where_room_is() {
    let mut harness = Harness::new("lru", &[], tiers(&[100 * MB, 20 * MB, 1000 * MB]));
    written(&mut harness, 9);
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    harness.round();
    let on = |tier| harness.view.segments.iter().filter(|it| it.tier.0 == tier).count();
    assert_eq!((on(1), on(2)), (1, 2), "one filled the middle tier");
    let mut harness = Harness::new("lru", &[], tiers(&[100 * MB, 5 * MB]));
    written(&mut harness, 9);
    harness.write("n/last", 6 * MB);
    harness.advance(60.0);
    assert!(harness.round().is_empty(), "there is nowhere to go");
}

#[test]
fn nothing_goes_to_a_tier_weaker_than_promised() {
    let mut harness = pair(&[]);
    harness.view.tiers[1].persistency = Persistency::None;
    written(&mut harness, 9);
    harness.write("n/last", 6 * MB);
    harness.advance(60.0);
    assert!(harness.round().is_empty());
    assert!(harness.round().is_empty());
}

#[test]
fn the_second_access_within_the_horizon_promotes() {
    let mut harness = pair(&[("gate", "off"), ("horizon", "10s")]);
    let slots = below(&mut harness, 2);
    slots.iter().for_each(|slot| harness.read(*slot, 0, MB));
    assert!(harness.round().is_empty(), "the first access");
    harness.advance(5.0);
    harness.read(slots[0], MB, MB);
    assert_eq!(kinds(&harness.round()), [promotion(slots[0])]);
    harness.advance(20.0);
    harness.read(slots[1], MB, MB);
    assert!(harness.round().is_empty(), "too late to be the second one");
}

/// As the study's readers do: the headers of ten objects first, then the rest of each.
fn read_back(harness: &mut Harness, slots: &[Slot]) -> Vec<Action> {
    let mut actions = Vec::new();
    for batch in slots.chunks(10) {
        batch.iter().for_each(|slot| harness.read(*slot, 0, 4096));
        for slot in batch {
            harness.advance(0.1);
            harness.read(*slot, 4096, 10 * MB - 4096);
            actions.extend(harness.round());
        }
    }
    actions
}

#[test]
fn without_the_gate_a_burst_read_back_once_moves_everything() {
    let moved_bytes = |gate| {
        let mut harness = pair(&[("gate", gate), ("idle", "0s")]);
        let slots = below(&mut harness, 40);
        harness.view.tiers[1].utilisation = 1.0;
        let actions = read_back(&mut harness, &slots);
        let copies = actions.iter().filter(|it| matches!(it.kind, ActionKind::Promote { .. }));
        copies.count() as u64 * 10 * MB
    };
    assert!(moved_bytes("off") >= 300 * MB, "nearly all of it, each for a read that has ended");
    assert_eq!(moved_bytes("on"), 0);
}

#[test]
fn with_the_gate_a_working_set_that_is_read_again_moves_up() {
    let mut harness = pair(&[]);
    let slots = below(&mut harness, 8);
    harness.view.tiers[1].utilisation = 1.0;
    let mut promoted = Vec::new();
    for _ in 0..6 {
        for slot in &slots {
            harness.advance(0.1);
            harness.read(*slot, 0, 10 * MB);
            promoted.extend(harness.round());
        }
    }
    assert_eq!(promoted.len(), 8);
    assert!(slots.iter().all(|slot| harness.tier(*slot) == 0));
    assert!(promoted.iter().all(|action| action.benefit_s > 0.0));
}

#[test]
fn a_price_of_reads_makes_a_promotion_pay() {
    let promoted = |weight: &str| {
        // The upper tier is no faster.
        let mut view = tiers(&[100 * MB, 1000 * MB]);
        view[0].figures = Figures { capacity_bytes: 100 * MB, ..view[1].figures };
        view[1].figures.prices.per_gb_read = 0.09;
        let mut harness = Harness::new("lru", &[("price_weight", weight)], view);
        let slot = below(&mut harness, 1)[0];
        for _ in 0..5 {
            harness.advance(1.0);
            harness.read(slot, 0, 10 * MB);
        }
        kinds(&harness.round())
    };
    assert_eq!(promoted("0"), []);
    assert_eq!(promoted("10000"), [promotion(0)]);
}

#[test]
fn a_demotion_to_a_clean_copy_needs_no_budget() {
    let mut harness = pair(&[("gate", "off")]);
    let slot = below(&mut harness, 1)[0];
    harness.read(slot, 0, MB);
    harness.read(slot, 0, MB);
    assert_eq!(kinds(&harness.round()), [promotion(slot)]);
    written(&mut harness, 8);
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    harness.budget = (0, 10);
    assert_eq!(kinds(&harness.round()), [demotion(slot)]);
}

#[test]
fn a_busy_tier_is_drained_to_high_only() {
    let mut harness = pair(&[]);
    written(&mut harness, 9);
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    harness.view.tiers[0].utilisation = 0.9;
    assert_eq!(harness.round().len(), 1);
    harness.view.tiers[0].utilisation = 0.1;
    assert_eq!(harness.round().len(), 2, "the rest follows when it is quiet");
}

#[test]
fn a_round_keeps_to_its_bytes() {
    let mut harness = pair(&[("max_bytes", "15MB")]);
    harness.is_slow = true;
    written(&mut harness, 9);
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    assert_eq!(harness.round().len(), 1);
    assert!(harness.round().is_empty(), "10 MB are under way");
    harness.finish();
    assert_eq!(harness.round().len(), 1);
}

#[test]
fn a_segment_larger_than_a_round_moves_alone() {
    let mut harness = pair(&[("max_bytes", "1MB")]);
    written(&mut harness, 9);
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    assert_eq!(harness.round().len(), 1);
}

#[test]
fn a_demotion_of_what_is_used_again_is_cancelled() {
    for (gate, cancels) in [("on", true), ("off", false)] {
        let mut harness = pair(&[("gate", gate)]);
        harness.is_slow = true;
        let slots = written(&mut harness, 9);
        harness.write("n/last", 5 * MB);
        harness.advance(60.0);
        assert_eq!(harness.round()[0].slot, slots[0]);
        harness.read(slots[0], 0, 1);
        let is_cancelled = harness.round().iter().any(|it| it.kind == ActionKind::Cancel);
        assert_eq!(is_cancelled, cancels);
    }
}

#[test]
fn a_move_that_failed_is_not_asked_for_again_at_once() {
    let mut harness = pair(&[]);
    harness.is_slow = true;
    written(&mut harness, 9);
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    let first = harness.round();
    harness.fail(Outcome::NoSpace);
    let second = harness.round();
    assert!(!second.is_empty());
    assert!(second.iter().all(|action| first.iter().all(|it| it.slot != action.slot)));
}

#[test]
fn a_pinned_segment_stays_until_it_is_unpinned() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 9);
    harness.event(EventKind::Pin, slots[0]);
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    assert!(harness.round().iter().all(|action| action.slot != slots[0]));
    harness.event(EventKind::Unpin, slots[0]);
    for index in 0..20 {
        harness.write(&format!("n/more-{index}"), 8 * MB);
        harness.advance(60.0);
        harness.round();
    }
    assert_eq!(harness.tier(slots[0]), 1);
}

#[test]
fn staged_segments_move_up_and_stay_until_released() {
    let mut harness = pair(&[]);
    let slots = below(&mut harness, 5);
    let body = r#"{"keys":["n/0","n/1","n/none"],"tier":"t0","until":"10min"}"#;
    let reply = harness.message("stage", body);
    assert_eq!((&reply["segments"], &reply["to_move"]), (&2.into(), &2.into()));
    assert_eq!(reply["missing"][0], "n/none");
    let staged = harness.round();
    assert_eq!(kinds(&staged), [promotion(slots[0]), promotion(slots[1])]);
    assert!(staged.iter().all(|action| action.priority > 0));

    // Twenty more objects push all others out.
    let mut pushed = Vec::new();
    for index in 0..20 {
        harness.write(&format!("n/more-{index}"), 8 * MB);
        harness.advance(10.0);
        pushed.extend(harness.round());
    }
    assert!(!pushed.is_empty());
    assert_eq!((harness.tier(slots[0]), harness.tier(slots[1])), (0, 0));

    assert_eq!(harness.message("release", r#"{"keys":["n/0"]}"#)["segments"], 1);
    for index in 20..40 {
        harness.write(&format!("n/more-{index}"), 8 * MB);
        harness.advance(10.0);
        harness.round();
    }
    assert_eq!((harness.tier(slots[0]), harness.tier(slots[1])), (1, 0));
    harness.advance(600.0);
    harness.round();
    assert_eq!(harness.message("status", "")["staging"]["leases"], 0, "its time is over");
}

#[test]
fn a_message_does_not_wait_for_the_least_residency() {
    let mut harness = pair(&[("min_residency", "1h")]);
    let slots = written(&mut harness, 9);
    harness.write("n/last", 5 * MB);
    harness.advance(60.0);
    assert_eq!(harness.round()[0].slot, slots[0]);
    harness.message("stage", r#"{"keys":["n/0"],"tier":"t0"}"#);
    assert_eq!(kinds(&harness.round()), [promotion(slots[0])]);
}

#[test]
fn staging_makes_room_for_what_waits() {
    let mut harness = pair(&[]);
    let slots = below(&mut harness, 2);
    for index in 0..9 {
        harness.write(&format!("n/other-{index}"), 10 * MB);
    }
    harness.advance(60.0);
    assert!(harness.round().is_empty(), "90 % is not above high");
    harness.message("stage", r#"{"glob":"n/?","tier":"t0"}"#);
    assert!(harness.round().iter().all(|it| matches!(it.kind, ActionKind::Move { .. })));
    assert_eq!(kinds(&harness.round()), [promotion(slots[0]), promotion(slots[1])]);
}

#[test]
fn a_wrong_message_says_what_would_be_right() {
    let mut harness = pair(&[]);
    for (kind, body, right) in [
        ("stage", "", "expected"),
        ("stage", r#"{"tier":"t0"}"#, "keys or glob"),
        ("stage", r#"{"keys":[],"glob":"*","tier":"t0"}"#, "keys or glob"),
        ("stage", r#"{"keys":[],"tier":"fast"}"#, "t0, t1"),
        ("stage", r#"{"keys":[],"tier":"t0","until":"5"}"#, "80us"),
        ("stage", r#"{"keys":[],"tier":"t0","unti":"5s"}"#, "unti"),
        ("release", "[1]", "expected"),
        ("dance", "", "stage, release, status"),
    ] {
        let error = harness.policy.message(&harness.view, kind, body.as_bytes());
        let text = error.expect_err(body).to_string();
        assert!(text.contains(right), "{text}");
    }
}

#[test]
fn the_order_and_the_leases_survive_a_restart() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, 9);
    harness.read(slots[0], 0, 1);
    harness.message("stage", r#"{"keys":["n/1"],"tier":"t0","until":"1h"}"#);
    harness.round();
    let mut state = Vec::new();
    harness.policy.save(&harness.view, &mut state);

    let mut restarted = pair(&[]);
    restarted.view = harness.view.clone();
    for segment in &mut restarted.view.segments {
        (segment.last_read_ns, segment.last_write_ns, segment.last_close_ns) = (0, 0, 0);
    }
    restarted.policy.restore(&restarted.view, 1, &state).expect("its own state");
    slots.iter().for_each(|slot| restarted.event(EventKind::Present, *slot));
    restarted.write("n/last", 5 * MB);
    restarted.advance(60.0);
    assert_eq!(kinds(&restarted.round()), [slots[2], slots[3], slots[4]].map(demotion));

    assert!(restarted.policy.restore(&restarted.view, 2, &state).is_err());
    assert!(restarted.policy.restore(&restarted.view, 1, b"{").is_err());
}

#[test]
fn a_round_looks_at_a_bounded_number_of_segments() {
    let mut harness = pair(&[]);
    for index in 0..3 * STEPS_MAX {
        let slot = harness.write(&format!("n/{index}"), 1000);
        harness.event(EventKind::Pin, slot);
    }
    let free = harness.write("n/free", 85 * MB);
    harness.advance(60.0);
    // The first round takes in the events; each one passes so many pinned segments for good.
    for left in [2 * STEPS_MAX + 1, STEPS_MAX + 1, 1] {
        assert!(harness.round().is_empty());
        assert_eq!(harness.message("status", "")["tiers"][0]["demotable"], left);
    }
    assert_eq!(harness.round()[0].slot, free);
}
