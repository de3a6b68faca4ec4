// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `examples/policies/lru-c`, driven through the host.

use terrace_core::{ActionKind, Actions, ErrorKind, EventKind, TierIndex};

use crate::build;
use crate::world::{World, load};

#[test]
fn the_c_lru_demotes_the_least_recently_used_until_low() {
    let mut world = World::new(build::lru(), &[]);
    let slots: Vec<_> = (0..5).map(|i| world.create(&format!("t/{i}"), 19)).collect();
    world.read(slots[0]);
    world.write(slots[2]);
    // 95 of 100 bytes: down to at most 70 takes two.
    assert_eq!(world.round(), ["1 move 1: least recent use", "3 move 1: least recent use"]);
    assert_eq!(world.round(), [""; 0], "the goal is reached");
    assert_eq!(slots.iter().map(|slot| world.tier_of(*slot)).collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
}

#[test]
fn the_c_lru_leaves_open_and_pinned_segments() {
    let mut world = World::new(build::lru(), &[]);
    let slots: Vec<_> = (0..5).map(|i| world.create(&format!("t/{i}"), 19)).collect();
    world.happen(EventKind::Open, slots[0]);
    world.happen(EventKind::Pin, slots[1]);
    assert_eq!(world.round(), ["2 move 1: least recent use", "3 move 1: least recent use"]);
}

#[test]
fn the_c_lru_promotes_on_the_second_use_and_demotes_for_free() {
    let mut world = World::new(build::lru(), &[("place", "1")]);
    let slot = world.create("t/a", 40);
    world.read(slot);
    assert_eq!(world.round(), [""; 0], "once is not enough");
    world.read(slot);
    assert_eq!(world.round(), ["a promote 0: used again"]);
    assert_eq!(world.tier_of(slot), 0);

    world.policy.set_parameter("high", "0.3").expect("legal");
    world.policy.set_parameter("low", "0.2").expect("legal");
    world.observe();
    let mut actions = Actions::with_budget(0, 10);
    world.policy.plan(&world.view, &mut actions);
    let kinds: Vec<_> = actions.into_list().into_iter().map(|action| action.kind).collect();
    assert_eq!(kinds, [ActionKind::Move { to: TierIndex(1) }], "within a budget of no bytes");
}

#[test]
fn the_c_lru_forgets_uses_that_are_long_ago() {
    let mut world = World::new(build::lru(), &[("place", "1")]);
    let slot = world.create("t/a", 40);
    world.read(slot);
    world.round();
    world.wait_s(100);
    world.read(slot);
    assert_eq!(world.round(), [""; 0]);
}

#[test]
fn the_c_lru_makes_room_for_a_promotion() {
    let mut world = World::new(build::lru(), &[]);
    let first = world.create("t/first", 40);
    world.create("t/second", 40);
    world.policy.set_parameter("place", "1").expect("exists");
    let wanted = world.create("t/wanted", 30);
    world.read(wanted);
    world.read(wanted);
    assert_eq!(world.round(), ["first move 1: least recent use"]);
    assert_eq!(world.round(), ["wanted promote 0: used again"]);
    assert_eq!(world.tier_of(first), 1);
}

#[test]
fn the_c_lru_knows_the_next_user_of_a_slot() {
    let mut world = World::new(build::lru(), &[("place", "1")]);
    let slot = world.create("t/old", 10);
    world.read(slot);
    world.happen(EventKind::Delete, slot);
    assert_eq!(world.create("t/new", 10), slot, "used again");
    world.read(slot);
    assert_eq!(world.round(), [""; 0], "the use of the old one does not count");
}

#[test]
fn parameters_of_the_c_lru_change_while_it_runs() {
    let mut world = World::new(build::lru(), &[("high", "0.5"), ("low", "0.3")]);
    let shown: Vec<_> = world
        .policy
        .parameters()
        .into_iter()
        .map(|parameter| format!("{}={}", parameter.name, parameter.value))
        .collect();
    assert_eq!(shown, ["high=0.5", "low=0.3", "place=0"]);
    world.create("t/a", 40);
    assert_eq!(world.round(), [""; 0]);
    world.policy.set_parameter("high", "0.35").expect("legal");
    assert_eq!(world.round(), ["a move 1: least recent use"]);
}

#[test]
fn wrong_parameters_say_what_would_be_right() {
    let error = load(build::lru(), &[("hihg", "1")]).err().expect("no such parameter");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("only high, low, place"), "{error}");
    for (name, value) in [("high", "2"), ("low", ""), ("place", "2"), ("high", "0.5x")] {
        let error = load(build::lru(), &[(name, value)]).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("0"), "{error}");
    }
}
