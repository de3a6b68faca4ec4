// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a policy sees that decides in the shadow of another one, and that nothing comes of it.

use std::sync::Arc;
use std::time::Duration;

use crate::common::scripted::{Breakage, PlaceOn, Shared, Step, Wish};
use crate::common::world::{LONG, World, all_keys, assert_sound, eventually, key, migrate, put};
use terrace_core::{
    ActionKind, Backend, BackendExt, EventKind, ObjectExt, Open, Outcome, Persistency, Placed,
    Placement, Placer, Random, TierIndex, View,
};
use terrace_stack::report::{ShadowReport, ShadowSide};
use terrace_stack::{MoveKind, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

/// A store under a policy that does nothing, with a scripted one in its shadow.
fn shadowed(shadow: &Shared) -> (World, Stack) {
    let world = World::two();
    let decides = Shared::new();
    let stack = world.create_with(|parts| parts.tactics = Some(decides.tactics("decides")));
    begin(&stack, shadow);
    (world, stack)
}

fn begin(stack: &Stack, shadow: &Shared) {
    stack.set_shadow(Some(shadow.tactics("shadow"))).expect("it starts");
}

/// Runs a round, and returns once the shadow had it, too.
fn round(stack: &Stack) -> ShadowReport {
    let before = report(stack).rounds;
    stack.run_policy().expect("the policy runs");
    eventually("the shadow has its round", || {
        let now = report(stack);
        now.rounds > before || now.ended.is_some()
    });
    report(stack)
}

fn report(stack: &Stack) -> ShadowReport {
    stack.shadow().expect("there is one")
}

fn kinds(shadow: &Shared) -> Vec<EventKind> {
    shadow.script().events.iter().map(|event| event.kind).collect()
}

#[test]
fn a_shadow_moves_in_its_own_world_only() {
    let shadow = Shared::new();
    let (world, stack) = shadowed(&shadow);
    let name = key("a");
    put(&stack, &name, &[1; 5000]);
    shadow.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
    round(&stack);
    round(&stack);
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "fast");
    assert_eq!(stack.read_all(&name).expect("reads"), [1; 5000]);
    let told = round(&stack);
    assert_eq!(shadow.course(&name), [EventKind::Queued, EventKind::Moved, EventKind::Receipt]);
    let view = shadow.script().view.clone().expect("it was called");
    assert_eq!(view.segments[0].tier, SLOW);
    assert_eq!((view.tiers[0].used_bytes, view.tiers[1].used_bytes), (0, 5000));
    let read = *shadow.script().events.iter().rfind(|e| e.kind == EventKind::Read).expect("one");
    assert_eq!(read.tier, SLOW, "it is shown where it would have been read");
    assert_eq!((told.shadow.moves, told.shadow.moved_bytes), (1, 5000));
    assert_eq!((told.actual.moves, told.actual.moved_bytes), (0, 0));
    assert_eq!(told.shadow.tiers[1].bytes, 5000, "the read");
    assert_eq!(told.shadow.tiers[0].bytes, 5000, "the write");
    assert_eq!(told.actual.tiers[0].bytes, 10_000);
    assert_eq!((told.actual.tiers[0].used_bytes, told.shadow.tiers[1].used_bytes), (5000, 5000));
    assert_eq!(told.outcomes, [("done".to_string(), 1)]);
    assert_eq!(told.decisions[0].what, "move to slow");
    assert!(stack.policy().expect("there is one").decisions.is_empty());
    assert_sound(&world, &stack);
}

#[test]
fn what_the_real_policy_moves_does_not_move_in_the_shadow() {
    let shadow = Shared::new();
    let (_world, stack) = shadowed(&shadow);
    let name = key("a");
    put(&stack, &name, &[1; 5000]);
    round(&stack);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    let told = round(&stack);
    assert_eq!(shadow.course(&name), []);
    assert_eq!(shadow.script().view.as_ref().expect("called").segments[0].tier, FAST);
    assert_eq!((told.actual.moves, told.actual.moved_bytes), (1, 5000));
    assert_eq!((told.actual.tiers[1].used_bytes, told.shadow.tiers[0].used_bytes), (5000, 5000));
    assert_eq!(stack.read_all(&name).expect("reads"), [1; 5000]);
    let told = round(&stack);
    assert_eq!((told.actual.tiers[1].bytes, told.shadow.tiers[1].bytes), (5000, 0));
}

#[test]
fn a_shadow_places_new_objects_where_it_would() {
    let shadow = Shared::with_placer(Arc::new(PlaceOn(SLOW)));
    let (_world, stack) = shadowed(&shadow);
    put(&stack, &key("a"), &[1; 5000]);
    let told = round(&stack);
    assert_eq!(shadow.script().view.as_ref().expect("called").segments[0].tier, SLOW);
    assert_eq!(told.actual.tiers[0].used_bytes, 5000);
    assert_eq!(told.shadow.tiers[1].used_bytes, 5000);
}

/// Puts what is large on the slow tier.
#[derive(Debug)]
struct BySize;

impl Placer for BySize {
    fn place(&self, new: &Placement<'_>) -> Placed {
        Placed::on(if new.size_hint_bytes.is_some_and(|bytes| bytes > 1000) { SLOW } else { FAST })
    }
}

#[test]
fn a_shadow_of_the_same_policy_comes_to_the_same() {
    let (decides, shadow) =
        (Shared::with_placer(Arc::new(BySize)), Shared::with_placer(Arc::new(BySize)));
    let world = World::with(&[
        ("fast", 40_000, Persistency::Storage),
        ("slow", crate::common::world::ROOMY, Persistency::Storage),
    ]);
    let stack = world.create_with(|parts| parts.tactics = Some(decides.tactics("decides")));
    begin(&stack, &shadow);
    for number in 0..60u64 {
        let bytes = if number % 3 == 0 { 5000 } else { 900 };
        let how = Open { size_hint_bytes: Some(bytes), ..Open::create_new() };
        let object = stack.open(&key(&format!("{number}")), &how).expect("makes");
        object.write(0, &vec![1; bytes as usize]).expect("writes");
        drop(object);
        round(&stack);
    }
    let told = round(&stack);
    let used = |side: &ShadowSide| -> Vec<_> {
        side.tiers.iter().map(|tier| (tier.used_bytes, tier.requests)).collect()
    };
    assert_eq!(used(&told.actual), used(&told.shadow));
    assert!(told.actual.tiers.iter().all(|tier| tier.used_bytes > 20_000), "{told:?}");
}

#[test]
fn a_shadow_is_shown_what_is_there_and_what_ends() {
    let world = World::two();
    let decides = Shared::new();
    let stack = world.create_with(|parts| parts.tactics = Some(decides.tactics("decides")));
    put(&stack, &key("old"), &[1; 3000]);
    stack.run_policy().expect("runs");
    let shadow = Shared::new();
    begin(&stack, &shadow);
    eventually("it is introduced", || !kinds(&shadow).is_empty());
    assert_eq!(kinds(&shadow), [EventKind::Present]);
    stack.delete(&key("old")).expect("deletes");
    let told = round(&stack);
    assert!(kinds(&shadow).contains(&EventKind::Delete));
    assert!(told.shadow.tiers.iter().all(|tier| tier.used_bytes == 0), "{told:?}");
    stack.set_shadow(None).expect("it ends");
    assert_eq!(stack.shadow(), None);
}

#[test]
fn actions_in_the_shadow_have_the_outcomes_of_a_store() {
    let shadow = Shared::new();
    let (world, stack) = shadowed(&shadow);
    let to = |tier| ActionKind::Move { to: TierIndex(tier) };
    let cases = [
        ("there", to(0), Outcome::Already),
        ("pinned", to(1), Outcome::Pinned),
        ("nowhere", to(9), Outcome::Invalid),
        ("no-copy", ActionKind::DropCopy { tier: SLOW }, Outcome::Invalid),
        ("no-move", ActionKind::Cancel, Outcome::Invalid),
        ("promoted", ActionKind::Promote { to: SLOW }, Outcome::Done),
        ("copied", ActionKind::Copy { to: SLOW }, Outcome::Done),
    ];
    for (name, _, _) in &cases {
        put(&stack, &key(name), &[7; 1000]);
    }
    stack.pin(&key("pinned")).expect("pins");
    shadow.wish(cases.iter().map(|(name, kind, _)| Wish::new(&key(name), *kind)).collect());
    for _ in 0..3 {
        round(&stack);
    }
    for (name, kind, outcome) in cases {
        let receipts = shadow.receipts();
        let mine: Vec<_> = receipts.iter().filter(|one| one.0 == key(name)).collect();
        assert_eq!(mine.len(), 1, "{name}: {kind:?}");
        assert_eq!(mine[0].2, outcome, "{name}: {kind:?}");
    }
    let view = shadow.script().view.clone().expect("called");
    let copies = |name: &str| {
        let (_, segment) = view.live().find(|(_, one)| one.key == key(name)).expect("shown");
        (segment.tier, segment.copies.contains(FAST), segment.copies.contains(SLOW))
    };
    assert_eq!(copies("promoted"), (SLOW, true, false));
    assert_eq!(copies("copied"), (FAST, false, true));
    // A write makes the copy worthless.
    let object = stack.open(&key("copied"), &Open::write()).expect("opens");
    object.write(0, b"new").expect("writes");
    drop(object);
    round(&stack);
    let view = shadow.script().view.clone().expect("called");
    let (_, copied) = view.live().find(|(_, one)| one.key == key("copied")).expect("shown");
    assert!(copied.copies.is_empty());
    assert_eq!(shadow.course(&key("copied")).last(), Some(&EventKind::Uncopied));
    assert_sound(&world, &stack);
}

#[test]
fn a_shadow_that_breaks_ends_and_nobody_notices() {
    for step in [Step::Placer, Step::Place, Step::Observe, Step::Plan] {
        let shadow = Shared::new();
        let (world, stack) = shadowed(&shadow);
        round(&stack);
        shadow.break_at(step, Breakage::Panic);
        put(&stack, &key("a"), &[1; 3000]);
        // `Placer` fails at the end of a round, `Place` at the create after it.
        let told = round(&stack);
        let why = told.ended.expect("it ended");
        assert_eq!(why, format!("panicked: scripted to panic at {step:?}"));
        let policy = stack.policy().expect("there is one");
        assert_eq!((policy.name.as_str(), policy.replaced), ("decides", None));
        put(&stack, &key("b"), &[1; 3000]);
        stack.run_policy().expect("runs");
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_shadow_that_hangs_holds_up_nobody() {
    let shadow = Shared::new();
    let (world, stack) = shadowed(&shadow);
    shadow.break_at(Step::Plan, Breakage::Loop);
    for number in 0..600 {
        put(&stack, &key(&format!("{number}")), &[1; 10]);
        stack.run_policy().expect("runs");
    }
    assert_eq!(report(&stack).ended.as_deref(), Some("it fell 256 rounds behind"));
    assert_eq!(stack.policy().expect("there is one").replaced, None);
    // Another one begins in its place while it hangs, and the store closes.
    let next = Shared::new();
    begin(&stack, &next);
    round(&stack);
    assert_eq!(kinds(&next).iter().filter(|kind| **kind == EventKind::Present).count(), 600);
    assert_sound(&world, &stack);
    stack.close().expect("closes");
    shadow.gate().open();
}

#[test]
fn a_shadow_outlives_the_policy_that_it_is_beside() {
    let shadow = Shared::new();
    let (_world, stack) = shadowed(&shadow);
    put(&stack, &key("a"), &[1; 10]);
    stack.set_policy(Shared::new().tactics("next")).expect("swaps");
    put(&stack, &key("b"), &[1; 10]);
    stack.run_policy().expect("runs");
    let created = || kinds(&shadow).iter().filter(|kind| **kind == EventKind::Create).count();
    eventually("it saw both", || created() == 2);
    assert_eq!(report(&stack).ended, None);
}

#[test]
fn a_shadow_ends_where_a_tier_is_added() {
    let (shadow, decides) = (Shared::new(), Shared::new());
    let world = World::three();
    let stack = world.create_with(|parts| {
        parts.tiers.truncate(2);
        parts.tactics = Some(decides.tactics("decides"));
    });
    begin(&stack, &shadow);
    let next = Shared::with_placer(Arc::new(PlaceOn(TierIndex(2))));
    let tier = world.tier_to_add("third");
    stack.add_tier(tier, Some(next.tactics("next"))).expect("adds");
    put(&stack, &key("a"), &[1; 10]);
    stack.run_policy().expect("runs");
    let why = "the store has other tiers now; begin it again";
    eventually("it ends", || report(&stack).ended.as_deref() == Some(why));
    begin(&stack, &shadow);
    let told = round(&stack);
    assert_eq!((told.ended, told.shadow.tiers.len()), (None, 3));
}

#[test]
fn a_shadow_ends_where_events_were_lost() {
    let (decides, shadow) = (Shared::new(), Shared::new());
    let world = World::two();
    let stack = world.create_with(|parts| {
        let mut tactics = decides.tactics("decides");
        tactics.call_time_max = Duration::from_millis(50);
        parts.tactics = Some(tactics);
    });
    begin(&stack, &shadow);
    round(&stack);
    // The policy hangs, and what happens meanwhile is shown to nobody.
    decides.break_at(Step::Plan, Breakage::Loop);
    let caller = stack.clone();
    let hangs = std::thread::spawn(move || drop(caller.run_policy()));
    for number in 0.. {
        put(&stack, &key(&format!("{number}")), &[1; 10]);
        if stack.policy().expect("there is one").replaced.is_some() {
            break;
        }
    }
    let told = report(&stack);
    assert!(told.ended.expect("it ended").contains("events were lost"));
    decides.gate().open();
    hangs.join().expect("it returns");
    assert_sound(&world, &stack);
}

/// What segments on a tier do not take of their lengths.
fn holes_on(stack: &Stack, tier: &str) -> u64 {
    let keys = all_keys(stack);
    let segments = keys.iter().flat_map(|key| stack.explain(key).expect("exists").segments);
    let here = segments.filter(|segment| segment.tier == tier);
    here.map(|segment| segment.size_bytes - segment.allocated_bytes).sum()
}

#[test]
fn the_accounts_of_a_shadow_follow_any_load() {
    let (policy, shadow) = (Shared::new(), Shared::new());
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(policy.tactics("decides")));
    begin(&stack, &shadow);
    let mut random = Random::new(11);
    for step in 0..1500 {
        let name = key(&format!("{}", random.below(40)));
        let tier = TierIndex(random.below(2) as u8);
        let kinds = [
            ActionKind::Move { to: tier },
            ActionKind::Promote { to: tier },
            ActionKind::Copy { to: tier },
            ActionKind::DropCopy { tier },
            ActionKind::Cancel,
        ];
        let there = stack.stat(&name).is_ok();
        match random.below(6) {
            0 if there => stack.delete(&name).expect("deletes"),
            1 if there => drop(stack.read_all(&name).expect("reads")),
            2 if there => {
                let object = stack.open(&name, &Open::write()).expect("opens");
                object.set_len(random.below(5000)).expect("cuts");
            }
            3 | 4 if there => {
                let wish = Wish::new(&name, kinds[random.below(5) as usize]);
                let to = if random.chance(0.5) { &policy } else { &shadow };
                to.wish(vec![wish]);
                round(&stack);
            }
            _ if there => {}
            _ => put(&stack, &name, &vec![1; random.below(5000) as usize]),
        }
        if step % 100 == 99 {
            assert!(stack.wait_idle(LONG));
            let told = round(&stack);
            assert_eq!(told.ended, None);
            let view = shadow.script().view.clone().expect("called");
            let sum = |of: &dyn Fn(&View) -> u64| of(&view);
            for (index, tier) in view.tiers.iter().enumerate() {
                let here = TierIndex(index as u8);
                let holes = holes_on(&stack, &tier.name);
                let used = sum(&|view| {
                    view.live().filter(|(_, s)| s.tier == here).map(|(_, s)| s.size_bytes).sum()
                });
                let copies = sum(&|view| {
                    let has_copy = |s: &terrace_core::SegmentView| s.copies.contains(here);
                    view.live().filter(|(_, s)| has_copy(s)).map(|(_, s)| s.size_bytes).sum()
                });
                // A segment that the shadow has moved counts with its length.
                let used = used.saturating_sub(holes);
                assert_eq!((tier.used_bytes, tier.copy_bytes), (used, copies), "step {step}");
                assert_eq!(told.shadow.tiers[index].used_bytes, used, "step {step}");
                let really = stack.tiers()[index].used_bytes;
                assert_eq!(told.actual.tiers[index].used_bytes, really, "step {step}");
            }
        }
    }
    assert!(shadow.script().faults.is_empty(), "{:?}", shadow.script().faults);
    assert!(report(&stack).shadow.moves > 50, "{:?}", report(&stack).outcomes);
    assert_sound(&world, &stack);
}
