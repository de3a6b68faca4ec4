// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placers: where new objects go, and what the stack does about those that are bad at it.

use std::sync::Arc;

use crate::common::scripted::{
    Breakage, PlaceOn, Shared, Step, assert_replaced, assert_store_works, is_replaced, scripted,
};
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, bounded, eventually, key, migrate, put,
};
use terrace_core::{
    Backend, BackendExt, Clock, Layout, ObjectExt, Open, Persistency, Placed, Placement, Placer,
    SystemClock, TierIndex,
};
use terrace_stack::MoveKind;
use terrace_testkit::pattern_bytes;

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

#[test]
fn a_panicking_placer_does_not_reach_the_application() {
    let (world, stack, shared) = scripted();
    shared.break_at(Step::Place, Breakage::Panic);
    put(&stack, &key("placed-by-nobody"), &[1; 500]);
    let _ = stack.run_policy();
    eventually("the policy is replaced", || is_replaced(&stack));
    assert_store_works(&stack);
    assert_sound(&world, &stack);
}

/// The create that meets it waits a moment, the others do not even do that.
#[test]
fn a_placer_that_does_not_come_back_is_done_without() {
    let (world, stack, shared) = scripted();
    put(&stack, &key("before"), &[1; 500]);
    shared.break_at(Step::Place, Breakage::Loop);
    let creator = |number: u32| {
        let stack = stack.clone();
        move || put(&stack, &key(&format!("placed-{number}")), &[1; 500])
    };
    let together: Vec<_> = (0..4).map(|number| std::thread::spawn(creator(number))).collect();
    bounded(LONG, "creates that wait for a placer", move || {
        together.into_iter().for_each(|create| create.join().expect("creates"));
    });
    let clock = SystemClock::default();
    let mut took_ns: Vec<_> = (4..104)
        .map(|number| {
            let start_ns = clock.now_ns();
            creator(number)();
            clock.now_ns() - start_ns
        })
        .collect();
    took_ns.sort_unstable();
    assert!(took_ns[90] < 50_000_000, "nobody waits for it again: {took_ns:?}");
    eventually("the policy is replaced", || is_replaced(&stack));
    assert_replaced(&stack, Step::Place);
    assert_store_works(&stack);
    // The one that hangs is nobody else's, whatever it does.
    let other = Shared::new();
    stack.set_policy(other.tactics("other")).expect("takes over");
    put(&stack, &key("placed-by-another"), &[1; 500]);
    shared.gate().open();
    stack.run_policy().expect("runs");
    assert_eq!(stack.policy().expect("one").name, "other");
    assert!(!is_replaced(&stack));
    assert_sound(&world, &stack);
}

#[test]
fn a_placer_that_takes_its_time_is_replaced() {
    let (world, stack, shared) = scripted();
    shared.break_at(Step::Place, Breakage::Dawdle);
    let is_replaced_after = (0..100).any(|number| {
        put(&stack, &key(&format!("placed-{number}")), &[1; 500]);
        stack.run_policy().expect("runs");
        is_replaced(&stack)
    });
    assert!(is_replaced_after, "ten milliseconds a create are not under a microsecond");
    assert_replaced(&stack, Step::Place);
    assert_store_works(&stack);
    assert_sound(&world, &stack);
}

/// Cuts and places as no policy should.
#[derive(Debug)]
struct Wild(Placed);

impl Placer for Wild {
    fn place(&self, _new: &Placement<'_>) -> Placed {
        self.0.clone()
    }
}

#[test]
fn a_wild_placement_is_put_right() {
    let steps = |starts: &[u64]| Layout::Steps { starts_bytes: starts.into() };
    let wild = [
        Placed::on(TierIndex(200)),
        Placed { tier: FAST, layout: Layout::Fixed { segment_bytes: 0 } },
        Placed { tier: FAST, layout: Layout::Fixed { segment_bytes: u64::MAX } },
        Placed { tier: FAST, layout: steps(&[0]) },
        Placed { tier: FAST, layout: steps(&[9, 9, 5]) },
        Placed { tier: FAST, layout: steps(&[u64::MAX]) },
        Placed { tier: FAST, layout: steps(&[]) },
    ];
    for placed in wild {
        let world = World::two();
        let shared = Shared::with_placer(Arc::new(Wild(placed.clone())));
        let stack = world.create_with(|parts| parts.tactics = Some(shared.tactics("wild")));
        put(&stack, &key("wild"), &[1; 3000]);
        assert_eq!(stack.read_all(&key("wild")).expect("reads"), [1; 3000], "{placed:?}");
        assert_sound(&world, &stack);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        assert_eq!(stack.read_all(&key("wild")).expect("reads"), [1; 3000], "{placed:?}");
    }
}

#[test]
fn a_placer_chooses_the_tier() {
    let world = World::two();
    let shared = Shared::with_placer(Arc::new(PlaceOn(SLOW)));
    let stack = world.create_with(|parts| parts.tactics = Some(shared.tactics("scripted")));
    put(&stack, &key("cold"), &[1; 10]);
    assert_eq!(stack.explain(&key("cold")).expect("exists").segments[0].tier, "slow");
}

/// Such as a pool of Ceph.
#[test]
fn segments_are_as_short_as_every_tier_needs_them() {
    let world = World::two();
    world.tier(1).bound_objects(10_000);
    let stack = world.create();
    let data = pattern_bytes(1, 0, 0, 35_000);
    put(&stack, &key("long"), &data);
    migrate(&stack, &key("long"), SLOW, MoveKind::Move);
    let segments = stack.explain(&key("long")).expect("exists").segments;
    let found: Vec<_> =
        segments.iter().map(|segment| (segment.tier.as_str(), segment.size_bytes)).collect();
    assert_eq!(found, [("slow", 10_000), ("slow", 10_000), ("slow", 10_000), ("slow", 5_000)]);
    assert!(stack.read_all(&key("long")).expect("reads") == data);
    assert_sound(&world, &stack);
}

#[test]
fn a_store_with_one_bounded_tier_holds_longer_objects() {
    let world = World::with(&[("only", ROOMY, Persistency::Storage)]);
    world.tier(0).bound_objects(10_000);
    let stack = world.create();
    let data = pattern_bytes(1, 0, 0, 35_000);
    put(&stack, &key("long"), &data);
    let lengths = || -> Vec<_> {
        let segments = stack.explain(&key("long")).expect("exists").segments;
        segments.iter().map(|segment| segment.size_bytes).collect()
    };
    assert_eq!(lengths(), [10_000, 10_000, 10_000, 5_000]);
    let object = stack.open(&key("long"), &Open::write()).expect("opens");
    object.set_len(12_000).expect("cuts");
    object.write(12_000, &data[12_000..]).expect("writes");
    object.sync().expect("syncs");
    drop(object);
    assert_eq!(lengths(), [10_000, 10_000, 10_000, 5_000]);
    assert!(stack.read_all(&key("long")).expect("reads") == data);
    assert_sound(&world, &stack);
}
