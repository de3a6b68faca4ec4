// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of the moves of a segment: who made them and why, and what they saved beside what was
//! expected of them.

use crate::common::scripted::{Shared, Wish, settle};
use crate::common::world::{World, assert_sound, key, migrate, put};
use terrace_core::{ActionKind, Backend, Key, ObjectExt, Open, TierIndex};
use terrace_stack::report::HistoryReport;
use terrace_stack::{MoveKind, Parts, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

/// A store of two tiers under a scripted policy; the slow one says that every request takes a second.
fn scripted() -> (World, Stack, Shared) {
    let world = World::two();
    let shared = Shared::new();
    let stack = world.create_with(|parts| slow_figures(parts, &shared));
    (world, stack, shared)
}

fn slow_figures(parts: &mut Parts, shared: &Shared) {
    parts.tiers[SLOW.index()].figures.latency_ns = 1_000_000_000;
    parts.tactics = Some(shared.tactics("scripted"));
}

/// An object that was moved there.
fn on_the_slow_tier(stack: &Stack, shared: &Shared) -> Key {
    let name = key("a");
    put(stack, &name, &[1; 10]);
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
    settle(stack);
    name
}

fn read_times(stack: &Stack, name: &Key, times: usize) {
    let object = stack.open(name, &Open::read()).expect("opens");
    for _ in 0..times {
        object.read(0, &mut [0; 4]).expect("reads");
    }
}

fn history(stack: &Stack, name: &Key) -> Vec<HistoryReport> {
    stack.explain(name).expect("exists").segments.remove(0).history
}

#[test]
fn the_reason_of_a_decision_is_kept() {
    let (_world, stack, shared) = scripted();
    put(&stack, &key("why"), &[1; 10]);
    shared.wish(vec![Wish::new(&key("why"), ActionKind::Move { to: SLOW })]);
    settle(&stack);
    let history = history(&stack, &key("why"));
    let [placed, last] = history.as_slice() else { panic!("{history:?}") };
    let told = (placed.what.as_str(), placed.tier.as_str(), placed.by.as_str());
    assert_eq!(told, ("placed", "fast", "placer"));
    assert_eq!((last.tier.as_str(), last.reason.as_str()), ("slow", "scripted"));
    assert_eq!((last.by.as_str(), last.bytes), ("policy scripted", 10));
}

/// Of many moves the oldest are let go, and what was before them is not known.
#[test]
fn a_placement_is_told_until_moves_are_let_go() {
    const KEPT: usize = 8;
    let world = World::two();
    let stack = world.create();
    let name = key("restless");
    put(&stack, &name, &[1; 10]);
    for moves in 1..=KEPT + 1 {
        let to = if moves % 2 == 1 { SLOW } else { FAST };
        migrate(&stack, &name, to, MoveKind::Move);
        let history = history(&stack, &name);
        assert_eq!(history.len(), (moves + 1).min(KEPT));
        let is_placed = history[0].what == "placed" && history[0].tier == "fast";
        assert_eq!(is_placed, moves < KEPT, "{history:?}");
    }
}

#[test]
fn what_a_move_saved_is_told_beside_what_was_expected() {
    let (world, stack, shared) = scripted();
    let name = on_the_slow_tier(&stack, &shared);
    shared.wish(vec![Wish::new(&name, ActionKind::Promote { to: FAST }).saving(7.5)]);
    settle(&stack);
    read_times(&stack, &name, 5);
    stack.run_policy().expect("runs");

    let check = |past: &[HistoryReport]| {
        let [placed, down, up, ..] = past else { panic!("{past:?}") };
        assert_eq!((placed.what.as_str(), placed.tier.as_str()), ("placed", "fast"));
        assert_eq!((down.from.as_deref(), down.tier.as_str()), (Some("fast"), "slow"));
        assert_eq!((down.expected_benefit_s, down.accesses), (None, 0));
        assert_eq!(down.measured_benefit_s, Some(0.0), "nobody read it there");
        assert_eq!((up.from.as_deref(), up.tier.as_str()), (Some("slow"), "fast"));
        assert_eq!((up.expected_benefit_s, up.accesses), (Some(7.5), 5));
        let saved_s = up.measured_benefit_s.expect("was measured");
        assert!(saved_s > 0.0 && saved_s < 5.0, "five seconds less what it took: {saved_s}");
    };
    check(&history(&stack, &name));
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open_with(|parts| slow_figures(parts, &shared));
    check(&history(&stack, &name));
    stack.run_policy().expect("runs");
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW }).saving(f64::NAN)]);
    settle(&stack);
    read_times(&stack, &name, 3);
    stack.run_policy().expect("runs");
    let past = history(&stack, &name);
    check(&past);
    let last = &past[3];
    assert_eq!((last.expected_benefit_s, last.accesses), (None, 3));
    assert_eq!(last.measured_benefit_s, None, "the fast tier has no figures");
    assert_sound(&world, &stack);
}

#[test]
fn a_tier_that_is_faster_than_its_figures_would_have_been_so() {
    let (_world, stack, shared) = scripted();
    let name = on_the_slow_tier(&stack, &shared);
    read_times(&stack, &name, 200);
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: FAST })]);
    settle(&stack);
    read_times(&stack, &name, 20);
    stack.run_policy().expect("runs");
    let last = history(&stack, &name).pop().expect("has a history");
    assert_eq!(last.accesses, 20);
    let saved_s = last.measured_benefit_s.expect("was measured");
    assert!(saved_s < 10.0, "its 200 reads took no second each: {saved_s}");
}

#[test]
fn a_copy_saves_what_it_serves() {
    let (_world, stack, shared) = scripted();
    let name = on_the_slow_tier(&stack, &shared);
    shared.wish(vec![Wish::new(&name, ActionKind::Copy { to: FAST }).saving(1.0)]);
    settle(&stack);
    read_times(&stack, &name, 4);
    stack.run_policy().expect("runs");
    let last = history(&stack, &name).pop().expect("has a history");
    assert_eq!((last.what.as_str(), last.accesses), ("copied", 4));
    assert_eq!((last.from.as_deref(), last.expected_benefit_s), (Some("slow"), Some(1.0)));
    assert!(last.measured_benefit_s.is_some_and(|saved_s| saved_s > 0.0), "{last:?}");
}
