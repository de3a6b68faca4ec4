// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers that are added, drained and removed while the store is in use.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::common::crashing::{Crash, Crashing, Visits};
use crate::common::hooked::{Call, Verdict};
use crate::common::pattern::stamped;
use crate::common::restless::restless;
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, cutting, eventually, in_parallel, key, migrate, open_durable,
    promise_nothing, put,
};
use terrace_core::{
    Access, Backend, BackendExt, ErrorKind, ObjectExt, Open, Persistency, Result, Semantics,
    TierIndex,
};
use terrace_stack::report::DrainReport;
use terrace_stack::{FAILPOINTS, MoveKind, Parts, RebuildOptions, Saved, Stack};

const OBJECTS: u64 = 12;

/// Three disks, of which a store has the first two.
fn world() -> World {
    let world = World::three();
    world.create_parts(two);
    world
}

fn two(parts: &mut Parts) {
    parts.tiers.truncate(2);
}

fn drain_of(stack: &Stack, name: &str) -> Option<DrainReport> {
    let tier = stack.tiers().into_iter().find(|tier| tier.name == name);
    tier.expect("the store has it").drain
}

#[track_caller]
fn wait_until_drained(stack: &Stack, name: &str) {
    eventually("it is empty", || drain_of(stack, name).is_some_and(|drain| drain.is_done));
}

fn names(stack: &Stack) -> Vec<String> {
    stack.tiers().into_iter().map(|tier| tier.name).collect()
}

fn tier_of(stack: &Stack, name: &str) -> String {
    stack.explain(&key(name)).expect("exists").segments[0].tier.clone()
}

/// The bytes of the object with this number.
fn bytes_of(number: u64) -> Vec<u8> {
    stamped(number, 1, 0, 640 * number as usize)
}

fn put_all(stack: &Stack) -> Result<()> {
    for number in 0..OBJECTS {
        let semantics = Semantics::at_level(Persistency::Storage);
        let how = Open::create_new().with_semantics(semantics);
        stack.open(&key(&format!("n{number}")), &how)?.write(0, &bytes_of(number))?;
    }
    Ok(())
}

#[track_caller]
fn assert_all(stack: &Stack) {
    for number in 0..OBJECTS {
        let name = key(&format!("n{number}"));
        assert_eq!(stack.read_all(&name).expect("was promised"), bytes_of(number), "{name}");
    }
}

#[test]
fn an_added_tier_is_used_at_once_and_after_a_restart() {
    let world = world();
    let stack = world.open_with(two);
    put(&stack, &key("a"), &[1; 3000]);
    stack.add_tier(world.tier_to_add("third"), None).expect("adds");
    assert_eq!(names(&stack), ["fast", "slow", "third"]);
    migrate(&stack, &key("a"), stack.tier("third").expect("is there"), MoveKind::Move);
    assert_eq!(tier_of(&stack, "a"), "third");
    assert_sound(&world, &stack);
    stack.close().expect("closes");
    drop(stack);
    // The configuration decides on the order, the catalog on what each tier holds.
    let stack = world.open_with(|parts| parts.tiers.rotate_right(1));
    assert_eq!(names(&stack), ["third", "fast", "slow"]);
    assert_eq!(tier_of(&stack, "a"), "third");
    assert_eq!(stack.read_all(&key("a")).expect("reads"), [1; 3000]);
    assert_sound(&world, &stack);
}

#[test]
fn a_tier_of_somebody_is_not_added() {
    let world = world();
    let stack = world.open_with(two);
    let error = stack.add_tier(world.tier_to_add("fast"), None).expect_err("has one");
    assert_eq!(error.kind(), ErrorKind::Exists);
    let mut other = world.tier_to_add("slow");
    other.name = "renamed".into();
    let error = stack.add_tier(other, None).expect_err("is in use");
    assert_eq!(error.kind(), ErrorKind::Exists, "{}", error.chain());
    assert_eq!(names(&stack), ["fast", "slow"]);
    assert_sound(&world, &stack);
}

#[test]
fn a_drained_tier_can_be_removed_whatever_it_held() {
    let world = World::three();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(1000)));
    put_all(&stack).expect("puts");
    stack.pin(&key("n3")).expect("pins");
    let third = stack.tier("third").expect("is there");
    // Copies on the tier, copies of what it has, and what is open.
    migrate(&stack, &key("n5"), third, MoveKind::Copy);
    migrate(&stack, &key("n6"), third, MoveKind::Promote);
    let held = stack.open(&key("n7"), &Open::write()).expect("opens");
    stack.drain_tier("fast").expect("begins");
    wait_until_drained(&stack, "fast");
    assert_eq!(held.stat().expect("is open").size_bytes, bytes_of(7).len() as u64);
    drop(held);
    stack.remove_tier("fast").expect("is empty");
    assert_eq!(names(&stack), ["slow", "third"]);
    assert!(world.disk(0).files().is_empty());
    assert_eq!(world.disk(0).open().superblock().expect("reads").expect("says so").store_id, 0);
    assert_all(&stack);
    assert!(stack.explain(&key("n3")).expect("exists").is_pinned, "a pin stays");
    put(&stack, &key("later"), b"spills");
    assert_sound(&world, &stack);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open_with(|parts| drop(parts.tiers.remove(0)));
    assert_all(&stack);
    assert_sound(&world, &stack);
    // It is nobody's: any store may have it.
    stack.unpin(&key("n3")).expect("unpins");
    stack.add_tier(world.tier_to_add("fast"), None).expect("adds");
    migrate(&stack, &key("n3"), stack.tier("fast").expect("is there"), MoveKind::Move);
    assert_all(&stack);
}

#[test]
fn a_drained_tier_takes_nothing_new() {
    let world = world();
    let stack = world.open_with(two);
    stack.drain_tier("fast").expect("begins");
    put(&stack, &key("a"), &[1; 100]);
    assert_eq!(tier_of(&stack, "a"), "slow");
    for kind in [MoveKind::Move, MoveKind::Promote, MoveKind::Copy] {
        let error = stack.migrate(&key("a"), TierIndex(0), kind, 0, "test").expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    let error = stack.drain_tier("slow").expect_err("the last one");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    stack.undrain_tier("fast").expect("ends");
    assert_eq!(drain_of(&stack, "fast"), None);
    put(&stack, &key("b"), &[1; 100]);
    assert_eq!(tier_of(&stack, "b"), "fast");
    assert_sound(&world, &stack);
}

/// The new end needs a segment, and no tier takes one.
#[test]
fn a_cut_into_a_hole_that_finds_no_tier_changes_nothing() {
    let world = World::with(&[
        ("memory", ROOMY, Persistency::None),
        ("fast", ROOMY, Persistency::Storage),
        ("slow", ROOMY, Persistency::Storage),
    ]);
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(20_000)));
    let name = key("holed");
    put(&stack, &name, &[1; 1000]);
    let object = open_durable(&stack, &name).expect("opens");
    object.write(45_000, &[2; 5000]).expect("leaves a hole");
    for tier in ["fast", "slow"] {
        stack.drain_tier(tier).expect("the memory is left");
    }
    assert!(stack.wait_idle(LONG), "{:?}", stack.moves());
    let mut model = vec![0; 50_000];
    model[..1000].fill(1);
    model[45_000..].fill(2);
    let error = object.set_len(33_343).expect_err("there is no tier for the end");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(stack.read_all(&name).expect("reads"), model);
    assert_eq!(object.stat().expect("is there").size_bytes, 50_000);
    stack.undrain_tier("slow").expect("ends");
    object.set_len(33_343).expect("cuts");
    drop(object);
    model.truncate(33_343);
    assert_eq!(stack.read_all(&name).expect("reads"), model);
    assert_sound(&world, &stack);
}

#[test]
fn a_drain_names_what_cannot_move() {
    let world = World::with(&[
        ("fast", ROOMY, Persistency::Storage),
        ("memory", ROOMY, Persistency::None),
        ("small", 1000, Persistency::Storage),
    ]);
    let stack = world.create_with(promise_nothing);
    let storage = Open::create_new().with_semantics(Semantics::at_level(Persistency::Storage));
    stack.open(&key("large"), &storage).expect("creates").write(0, &[1; 5000]).expect("writes");
    stack.drain_tier("fast").expect("begins");
    let stuck = || drain_of(&stack, "fast").expect("goes on").stuck;
    eventually("it is named", || !stuck().is_empty());
    assert_eq!((stuck()[0].key.as_str(), stuck()[0].reason.as_str()), ("test/large", "no-space"));
    stack.drain_tier("small").expect("memory takes data");
    eventually("it is named", || stuck().iter().any(|stuck| stuck.reason == "too-weak"));
    let error = stack.remove_tier("fast").expect_err("it holds something");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.chain().contains("used_bytes=5000"), "{}", error.chain());
    assert_sound(&world, &stack);
}

#[test]
fn a_tier_that_is_not_drained_is_removed_only_when_empty() {
    let world = world();
    let stack = world.open_with(two);
    put(&stack, &key("a"), b"");
    let error = stack.remove_tier("fast").expect_err("it holds an empty object");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    put(&stack, &key("b"), b"goes on");
    assert_eq!(tier_of(&stack, "b"), "fast");
    stack.remove_tier("slow").expect("is empty");
    let error = stack.remove_tier("fast").expect_err("the last one");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_sound(&world, &stack);
}

#[test]
fn a_drain_goes_on_after_a_restart() {
    let world = world();
    let stack = world.open_with(two);
    put_all(&stack).expect("puts");
    world.failpoints().arm(&Crashing { failpoint: "drain.header".into(), visit: 1 });
    stack.drain_tier("fast").expect_err("it stops there");
    drop(stack);
    world.crash(Crash::Power { seed: 3 });
    let stack = world.open_with(|parts| {
        two(parts);
        parts.settings.access = Access::Read;
    });
    assert!(drain_of(&stack, "fast").is_some_and(|drain| !drain.is_done));
    drop(stack);
    let stack = world.open_with(two);
    wait_until_drained(&stack, "fast");
    assert_all(&stack);
    assert_sound(&world, &stack);
}

#[test]
fn a_drain_goes_on_after_a_repair_and_is_forgotten_with_the_catalog() {
    for is_present in [true, false] {
        let mut world = world();
        let stack = world.open_with(two);
        put_all(&stack).expect("puts");
        world.tier(0).on(|moment| match moment.call {
            Call::Read => Verdict::Fail(ErrorKind::Io),
            _ => Verdict::Go,
        });
        stack.drain_tier("fast").expect("begins");
        stack.close().expect("closes");
        drop(stack);
        world.tier(0).heal();
        let old = world.lose_catalog();
        let saved = is_present.then(|| Saved { catalog: old.open(), is_present });
        let options = RebuildOptions { saved, ..RebuildOptions::default() };
        let mut parts = world.parts();
        two(&mut parts);
        let report = Stack::rebuild(&parts, &options, &mut |_, _| {}).expect("rebuilds");
        assert!(report.problems.is_empty(), "{report:?}");
        let stack = world.open_with(two);
        if is_present {
            wait_until_drained(&stack, "fast");
        } else {
            assert_eq!(drain_of(&stack, "fast"), None);
        }
        assert_all(&stack);
        assert_sound(&world, &stack);
        stack.close().expect("closes");
    }
}

#[test]
fn a_store_of_one_tier_without_a_policy_says_what_to_do() {
    let world = World::two();
    let one = |parts: &mut Parts| parts.tiers.truncate(1);
    world.create_parts(one);
    let stack = world.open_with(one);
    let error = stack.add_tier(world.tier_to_add("slow"), None).expect_err("it is bare");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.chain().contains("while it is closed"), "{}", error.chain());
}

/// Replaces `fast` by `third` while a policy moves objects anywhere.
fn replace(world: &World, stack: &Stack) -> Result<()> {
    if !names(stack).contains(&"third".into()) {
        stack.add_tier(world.tier_to_add("third"), Some(restless(5)))?;
    }
    stack.drain_tier("fast")?;
    let end = || world.failpoints().is_alive();
    eventually("it is empty", || {
        end().is_err() || drain_of(stack, "fast").is_some_and(|drain| drain.is_done)
    });
    end()?;
    // What comes back while it is removed is removed the next time.
    let mut removed = Ok(());
    eventually("it is removed", || {
        removed = stack.remove_tier("fast");
        end().is_err() || !matches!(&removed, Err(e) if e.kind() == ErrorKind::Invalid)
    });
    removed
}

/// A store with objects, whose policy moves them anywhere.
fn busy(world: &World) -> Stack {
    let stack = world.open_with(|parts| {
        two(parts);
        parts.tactics = Some(restless(4));
    });
    put_all(&stack).expect("puts");
    stack
}

fn visits_of_replace() -> Visits {
    let world = world();
    let stack = busy(&world);
    world.failpoints().count();
    replace(&world, &stack).and_then(|()| stack.close()).expect("nothing crashes");
    world.failpoints().visits()
}

#[test]
fn a_crash_while_a_tier_is_replaced_loses_nothing() {
    let visits = visits_of_replace();
    let of_tiers = |name: &&str| ["add.", "drain.", "remove."].iter().any(|p| name.starts_with(p));
    let mut missed: BTreeSet<_> = FAILPOINTS.iter().copied().filter(of_tiers).collect();
    missed.retain(|name| !visits.contains_key(*name));
    assert!(missed.is_empty(), "the scenario does not visit {missed:?}");
    let after = ["add.", "drain.", "remove.", "move.", "flip.", "uncopy.", "drop.", "close."];
    let steps = visits.into_iter().filter(|(name, _)| after.iter().any(|p| name.starts_with(p)));
    let crashes = [Crash::Process, Crash::Power { seed: 1 }, Crash::Power { seed: 2 }];
    let cases = steps.flat_map(|(failpoint, count)| {
        let at = Crashing { failpoint, visit: count.div_ceil(2) };
        crashes.map(|crash| (at.clone(), crash))
    });
    let reached = Mutex::new(BTreeSet::new());
    in_parallel(cases.collect(), |(at, crash)| {
        let world = world();
        let stack = busy(&world);
        world.failpoints().arm(&at);
        // Threads reach the steps in another order each time: some runs get through.
        if replace(&world, &stack).and_then(|()| stack.close()).is_err() {
            reached.lock().expect("never poisoned").insert(at.failpoint.clone());
        }
        drop(stack);
        world.failpoints().freeze();
        world.crash(crash);
        let is_removed = world.disk(0).open().superblock().expect("reads").expect("has one");
        let is_removed = is_removed.store_id == 0;
        let stack = world.open_with(|parts| {
            if is_removed {
                parts.tiers.remove(0);
            }
        });
        assert_all(&stack);
        if !is_removed {
            replace(&world, &stack).unwrap_or_else(|error| panic!("{at:?}: {}", error.chain()));
        }
        assert_eq!(names(&stack), ["slow", "third"]);
        assert_sound(&world, &stack);
    });
    let reached = reached.into_inner().expect("never poisoned");
    assert!(reached.iter().any(|name| name.starts_with("remove.")), "{reached:?}");
}
