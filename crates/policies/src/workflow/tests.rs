// SPDX-License-Identifier: Apache-2.0 OR MIT
use terrace_core::{Action, ActionKind, Slot, TierIndex};

use crate::harness::{Harness, tiers};

const MB: u64 = 1_000_000;

/// Two tiers of 100 MB and 1 GB; the lower one takes a second for 100 MB.
fn pair(parameters: &[(&str, &str)]) -> Harness {
    Harness::new("workflow", parameters, tiers(&[100 * MB, 1000 * MB]))
}

/// Writes objects `NAME/0`, `NAME/1`, … of 10 MB to a tier, one a second.
fn written(harness: &mut Harness, tier: &str, name: &str, count: usize) -> Vec<Slot> {
    harness.policy.set_parameter("place", tier).expect("a tier");
    let mut write = |index| {
        harness.advance(1.0);
        harness.write(&format!("{name}/{index}"), 10 * MB)
    };
    let slots = (0..count).map(&mut write).collect();
    harness.round();
    slots
}

fn slots_of(actions: &[Action], kind: ActionKind) -> Vec<Slot> {
    actions.iter().filter(|action| action.kind == kind).map(|action| action.slot).collect()
}

fn promoted(actions: &[Action]) -> Vec<Slot> {
    slots_of(actions, ActionKind::Promote { to: TierIndex(0) })
}

fn demoted(actions: &[Action]) -> Vec<Slot> {
    slots_of(actions, ActionKind::Move { to: TierIndex(1) })
}

/// Rounds, one a second, until something is promoted: how many had nothing, and what it is.
fn wait_for_promotions(harness: &mut Harness) -> (u32, Vec<Slot>) {
    for second in 0..1000 {
        let promoted = promoted(&harness.round());
        if !promoted.is_empty() {
            return (second, promoted);
        }
        harness.advance(1.0);
    }
    (1000, Vec::new())
}

#[test]
fn what_has_a_deadline_comes_in_time_and_not_long_before() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, "t1", "in", 5);
    harness.message("stage", r#"{"glob":"in/*","tier":"t0","deadline":"60s"}"#);
    let (seconds, promoted) = wait_for_promotions(&mut harness);
    // Half a second on its own, so twice that and five seconds for its turn.
    assert!((52..=54).contains(&seconds), "{seconds}");
    assert_eq!(promoted, slots);
}

#[test]
fn many_bytes_begin_earlier_than_few_and_the_nearest_deadline_goes_first() {
    let mut harness = pair(&[("max_bytes", "20MB")]);
    let later = written(&mut harness, "t1", "later", 1);
    let sooner = written(&mut harness, "t1", "sooner", 6);
    harness.message("stage", r#"{"glob":"later/*","tier":"t0","deadline":"61s"}"#);
    harness.message("stage", r#"{"glob":"sooner/*","tier":"t0","deadline":"60s"}"#);
    for tier in &mut harness.view.tiers {
        tier.utilisation = 0.9;
    }
    let (seconds, first) = wait_for_promotions(&mut harness);
    // Applications leave a tenth: 6 s on their own, twice that, and 5 s.
    assert!((41..=43).contains(&seconds), "{seconds}");
    assert_eq!(first, sooner[..2]);
    let mut all = first;
    while all.len() < 7 {
        all.extend(wait_for_promotions(&mut harness).1);
    }
    assert_eq!(all, [sooner, later].concat());
}

#[test]
fn what_is_hot_stays_until_a_deadline_is_near() {
    let mut harness = pair(&[]);
    let hot = written(&mut harness, "t0", "hot", 9);
    written(&mut harness, "t1", "in", 3);
    harness.message("stage", r#"{"glob":"in/*","tier":"t0","deadline":"60s"}"#);
    for _ in 0..50 {
        hot.iter().for_each(|slot| harness.read(*slot, 0, 10 * MB));
        assert_eq!(harness.round(), []);
        harness.advance(1.0);
    }
    for _ in 0..10 {
        harness.advance(1.0);
        harness.round();
    }
    let staged: Vec<_> = harness.view.live().filter(|(_, it)| it.tier.0 == 0).collect();
    let staged = staged.iter().filter(|(_, it)| it.key.as_str().starts_with("in/")).count();
    assert_eq!(staged, 3, "room is made in time");
}

#[test]
fn what_is_done_leaves_first_until_it_is_used_again() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, "t0", "n", 9);
    slots[4..8].iter().for_each(|slot| harness.read(*slot, 0, 10 * MB));
    harness.message("done", r#"{"keys":["n/5","n/6","n/7"]}"#);
    harness.advance(5.0);
    harness.read(slots[6], 0, 10 * MB);
    harness.write("n/last", 5 * MB);
    harness.advance(5.0);
    let actions = harness.round();
    assert_eq!(demoted(&actions)[..2], [slots[5], slots[7]]);
    assert!(!demoted(&actions).contains(&slots[6]));
    assert!(actions[0].reason.contains("no task needs this any more"), "{}", actions[0].reason);
}

#[test]
fn what_is_done_does_not_leave_before_room_is_wanted() {
    let mut harness = pair(&[]);
    written(&mut harness, "t0", "n", 5);
    assert_eq!(harness.message("done", r#"{"glob":"n/*"}"#)["segments"], 5);
    harness.advance(60.0);
    assert_eq!(harness.round(), []);
}

#[test]
fn what_is_kept_stays_although_it_is_coldest_until_its_lease_ends() {
    let mut harness = pair(&[("lease", "100s")]);
    let slots = written(&mut harness, "t0", "n", 9);
    harness.message("keep", r#"{"keys":["n/0"]}"#);
    harness.write("n/last", 5 * MB);
    harness.advance(5.0);
    assert_eq!(demoted(&harness.round())[0], slots[1]);
    assert_eq!(harness.tier(slots[0]), 0);
    // No message ends it, so the parameter does.
    harness.advance(100.0);
    written(&mut harness, "t0", "more", 3);
    harness.advance(5.0);
    harness.round();
    assert_eq!(harness.tier(slots[0]), 1);
}

#[test]
fn a_lease_that_nobody_ends_ends_some_time_after_its_deadline() {
    let mut harness = pair(&[("lease", "100s")]);
    written(&mut harness, "t1", "in", 1);
    let reply = harness.message("stage", r#"{"keys":["in/0"],"tier":"t0","deadline":"60s"}"#);
    assert_eq!(reply["until_ns"], harness.view.now_ns + 160_000_000_000);
    for _ in 0..159 {
        harness.advance(1.0);
        harness.round();
    }
    assert_eq!(harness.message("status", "")["staging"]["leases"], 1);
    harness.advance(2.0);
    harness.round();
    assert_eq!(harness.message("status", "")["staging"]["leases"], 0);
}

#[test]
fn a_plan_is_all_of_its_steps_or_none() {
    let mut harness = pair(&[]);
    written(&mut harness, "t1", "in", 3);
    let slots = written(&mut harness, "t0", "n", 3);
    let refused = r#"{"steps":[{"keep":{"glob":"n/*"}},
        {"stage":{"glob":"in/*","tier":"fast"}}]}"#;
    let error = harness.policy.message(&harness.view, "plan", refused.as_bytes());
    let error = error.expect_err("no such tier").to_string();
    assert!(error.contains("step=2") && error.contains("t0, t1"), "{error}");
    assert_eq!(harness.message("status", "")["staging"]["leases"], 0);

    let plan = r#"{"steps":[{"keep":{"glob":"n/*"}}, {"done":{"keys":["n/1","n/9"]}},
        {"stage":{"glob":"in/*","tier":"t0","deadline":"1h","until":"2h"}}]}"#;
    let reply = harness.message("plan", plan);
    assert_eq!(reply["steps"][0]["segments"], 3);
    assert_eq!(reply["steps"][1]["segments"], 1);
    assert_eq!(reply["steps"][2]["to_move"], 3);
    let staging = harness.message("status", "")["staging"].clone();
    assert_eq!((&staging["leases"], &staging["waiting_for_deadlines"]), (&5.into(), &3.into()));
    harness.policy.set_parameter("high", "0.2").expect("a share");
    harness.policy.set_parameter("low", "0.1").expect("a share");
    harness.advance(10.0);
    assert_eq!(demoted(&harness.round()), [slots[1]], "the others are kept");
}

#[test]
fn what_makes_no_sense_says_so() {
    let mut harness = pair(&[]);
    let many: Vec<_> = (0..33).map(|_| r#"{"done":{"glob":"*"}}"#).collect();
    let many = format!(r#"{{"steps":[{}]}}"#, many.join(","));
    for (kind, body, expected) in [
        ("plan", "", "steps"),
        ("plan", r#"{"steps":[{"stop":{}}]}"#, "steps"),
        ("plan", many.as_str(), "at most 32 patterns"),
        ("keep", r#"{"until":"1h"}"#, "either keys or glob"),
        ("done", "", "expected"),
        ("stage", r#"{"keys":[],"tier":"t0","deadline":"2h","until":"1h"}"#, "not after"),
        ("go", "", "stage, keep, done, release, plan, status"),
    ] {
        let error = harness.policy.message(&harness.view, kind, body.as_bytes());
        let error = error.expect_err(body).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn everything_else_goes_by_heat() {
    let mut harness = pair(&[]);
    let slots = written(&mut harness, "t1", "n", 2);
    harness.advance(20.0);
    (0..8).for_each(|_| harness.read(slots[1], 0, 10 * MB));
    assert_eq!(promoted(&harness.round()), [slots[1]]);
}
