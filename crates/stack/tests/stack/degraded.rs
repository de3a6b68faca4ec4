// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A store that is used while a tier is missing, and what happens when the tier is back.

use std::sync::Arc;

use crate::common::crashing::{Crash, Crashing};
use crate::common::world::{LONG, World, assert_sound, eventually, key, migrate, put};
use terrace_core::{Backend, BackendExt, ErrorKind, ObjectExt, Open, TierIndex};
use terrace_stack::{MoveKind, Offline, Parts, RebuildOptions, Saved, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

/// Without the tier `slow`.
fn pulled(parts: &mut Parts) {
    let tier = &mut parts.tiers[1];
    tier.offline = Some("it was pulled".into());
    tier.backend = Arc::new(Offline::new("sim:slow".into(), "it was pulled".into()));
    parts.settings.degraded = true;
}

/// A closed store of objects on `fast`, on `slow`, and on `slow` with a copy on `fast`.
fn store() -> World {
    let world = World::two();
    let stack = world.create();
    for name in ["here", "there", "copied", "doomed"] {
        put(&stack, &key(name), name.repeat(1000).as_bytes());
    }
    for name in ["there", "doomed"] {
        migrate(&stack, &key(name), SLOW, MoveKind::Move);
    }
    migrate(&stack, &key("copied"), SLOW, MoveKind::Promote);
    end(&world, stack);
    world
}

fn end(world: &World, stack: Stack) {
    stack.close().expect("closes");
    drop(stack);
    world.crash(Crash::Process);
}

fn kill(world: &World, stack: Stack, crash: Crash) {
    world.failpoints().freeze();
    drop(stack);
    world.crash(crash);
}

#[track_caller]
fn assert_reads(stack: &Stack, names: &[&str]) {
    for name in names {
        assert_eq!(stack.read_all(&key(name)).expect("reads"), name.repeat(1000).into_bytes());
    }
}

#[test]
fn without_the_switch_a_missing_tier_is_refused() {
    let world = store();
    let error = world.try_open_with(|parts| {
        pulled(parts);
        parts.settings.degraded = false;
    });
    assert_eq!(error.map(drop).expect_err("a tier is missing").kind(), ErrorKind::Io);
}

#[test]
fn objects_are_cut_for_a_bounded_tier_that_is_missing() {
    let world = World::two();
    end(&world, world.create());
    let stack = world.open_with(|parts| {
        pulled(parts);
        let offline = Offline::new("sim:slow".into(), "it was pulled".into());
        parts.tiers[1].backend = Arc::new(offline.with_object_bytes_max(10_000));
    });
    put(&stack, &key("long"), &[7; 25_000]);
    assert_eq!(stack.explain(&key("long")).expect("exists").segments.len(), 3);
    end(&world, stack);
    // Each of them moves there once the tier is back.
    world.tier(1).bound_objects(10_000);
    let stack = world.open();
    migrate(&stack, &key("long"), SLOW, MoveKind::Move);
    let segments = stack.explain(&key("long")).expect("exists").segments;
    assert!(segments.iter().all(|segment| segment.tier == "slow"));
    assert!(stack.read_all(&key("long")).expect("reads") == [7; 25_000]);
    assert_sound(&world, &stack);
}

#[test]
fn what_is_elsewhere_works_and_what_is_there_says_why_not() {
    let world = store();
    let stack = world.open_with(pulled);
    assert_reads(&stack, &["here", "copied"]);
    put(&stack, &key("new"), b"data");
    assert_eq!(stack.explain(&key("new")).expect("exists").segments[0].tier, "fast");
    let error = stack.read_all(&key("there")).expect_err("its tier is missing");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.chain().contains("it was pulled"), "{}", error.chain());
    for name in ["there", "copied"] {
        let object = stack.open(&key(name), &Open::write()).expect("opens");
        let error = object.write(0, b"x").expect_err("its tier is missing");
        assert!(error.chain().contains("it was pulled"), "{}", error.chain());
        object.set_len(10).expect_err("its tier is missing");
    }
    // A write that failed took no copy away.
    assert_reads(&stack, &["copied"]);
    let error = stack.migrate(&key("here"), SLOW, MoveKind::Move, 0, "test").expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Io);
    stack.migrate(&key("there"), FAST, MoveKind::Move, 0, "test").expect_err("refused");
    stack.sync().expect("what is there is durable");
    end(&world, stack);
    let stack = world.open();
    assert!(stack.opening_notes()[0].contains("slow was missing"), "{:?}", stack.opening_notes());
    assert_reads(&stack, &["here", "there", "copied", "doomed"]);
    assert_sound(&world, &stack);
}

#[test]
fn a_copy_becomes_the_primary_of_what_is_missing() {
    let world = store();
    let stack = world.open_with(pulled);
    migrate(&stack, &key("copied"), FAST, MoveKind::Move);
    let object = stack.open(&key("copied"), &Open::write()).expect("opens");
    object.write(0, b"C").expect("it is here now");
    drop(object);
    end(&world, stack);
    let stack = world.open();
    assert!(stack.read_all(&key("copied")).expect("reads").starts_with(b"Copied"));
    assert_eq!(stack.explain(&key("copied")).expect("exists").segments[0].copies.len(), 0);
    assert_sound(&world, &stack);
}

#[test]
fn what_was_deleted_meanwhile_goes_when_the_tier_is_back() {
    for crash in [None, Some(Crash::Process), Some(Crash::Power { seed: 3 })] {
        let world = store();
        let stack = world.open_with(pulled);
        stack.delete(&key("doomed")).expect("deletes");
        stack.sync().expect("makes it durable");
        put(&stack, &key("doomed"), b"another");
        match crash {
            None => end(&world, stack),
            Some(crash) => kill(&world, stack, crash),
        }
        // Once more without it, and back.
        end(&world, world.open_with(pulled));
        let stack = world.open();
        assert_reads(&stack, &["here", "there", "copied"]);
        eventually("its file is deleted", || world.disk(1).files().len() == 2);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_crash_without_the_tier_loses_nothing_on_it() {
    for crash in [Crash::Process, Crash::Power { seed: 1 }, Crash::Power { seed: 2 }] {
        let world = store();
        for _ in 0..2 {
            let stack = world.open_with(pulled);
            assert_reads(&stack, &["here", "copied"]);
            put(&stack, &key("new"), b"data");
            stack.delete(&key("new")).expect("deletes");
            kill(&world, stack, crash);
        }
        let stack = world.open();
        assert_reads(&stack, &["here", "there", "copied", "doomed"]);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_tier_that_was_lost_in_a_crash_comes_back_with_what_it_had() {
    for crash in [Crash::Process, Crash::Power { seed: 1 }] {
        let world = store();
        let stack = world.open();
        put(&stack, &key("moving"), &[5; 9000]);
        stack.sync().expect("syncs");
        migrate(&stack, &key("moving"), SLOW, MoveKind::Move);
        kill(&world, stack, crash);
        let stack = world.open_with(pulled);
        assert_reads(&stack, &["here"]);
        end(&world, stack);
        let stack = world.open();
        assert_eq!(stack.read_all(&key("moving")).expect("was synced"), [5; 9000]);
        assert_reads(&stack, &["here", "there", "copied", "doomed"]);
        assert!(stack.wait_idle(LONG));
        assert_sound(&world, &stack);
    }
}

#[test]
fn an_older_copy_of_the_tier_is_not_taken_for_it() {
    let world = store();
    let old = world.disk(1).open().superblock().expect("reads").expect("has one");
    end(&world, world.open());
    end(&world, world.open_with(pulled));
    let right = world.disk(1).open().superblock().expect("reads").expect("has one");
    assert!(right.epoch > old.epoch);
    world.disk(1).open().set_superblock(&old).expect("writes");
    for degraded in [false, true] {
        let opened = world.try_open_with(|parts| parts.settings.degraded = degraded);
        assert_eq!(opened.map(drop).expect_err("an old copy").kind(), ErrorKind::Stale);
    }
    world.disk(1).open().set_superblock(&right).expect("writes");
    let stack = world.open();
    assert_reads(&stack, &["there"]);
    assert_sound(&world, &stack);
}

#[test]
fn a_move_from_it_that_lost_power_waits_for_it() {
    let mut refused = 0;
    for seed in 0..8 {
        let world = store();
        let stack = world.open();
        stack.sync().expect("syncs");
        world.failpoints().arm(&Crashing { failpoint: "move.switched".into(), visit: 1 });
        let tickets = stack.migrate(&key("there"), FAST, MoveKind::Move, 0, "test");
        for ticket in tickets.expect("begins") {
            stack.wait(ticket, LONG).expect("known");
        }
        drop(stack);
        world.crash(Crash::Power { seed });
        match world.try_open_with(pulled) {
            Ok(stack) => kill(&world, stack, Crash::Process),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io);
                assert!(error.chain().contains("power was lost"), "{}", error.chain());
                world.crash(Crash::Process);
                refused += 1;
            }
        }
        let stack = world.open();
        assert_reads(&stack, &["here", "there", "copied", "doomed"]);
        assert_sound(&world, &stack);
    }
    assert!(refused > 0, "no seed keeps the commit of the switch");
}

#[test]
fn a_catalog_is_made_anew_with_all_tiers_only() {
    let mut world = store();
    let stack = world.open_with(pulled);
    stack.delete(&key("doomed")).expect("deletes");
    end(&world, stack);
    end(&world, world.open_with(pulled));
    let present = world.lose_catalog();
    let rebuild = |parts: &Parts, accepts_old_tiers, is_present: bool| {
        let saved = is_present.then(|| Saved { catalog: present.open(), is_present });
        let options = RebuildOptions { accepts_old_tiers, saved };
        Stack::rebuild(parts, &options, &mut |_, _| {})
    };
    for is_present in [false, true] {
        let mut parts = world.parts();
        pulled(&mut parts);
        let error = rebuild(&parts, true, is_present).expect_err("one is missing");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("tier=slow"), "{error}");
    }
    // It is back, and has missed openings; a single one a crash may have begun and not ended.
    let error = rebuild(&world.parts(), false, false).expect_err("it may be an old copy");
    assert_eq!(error.kind(), ErrorKind::Stale);
    let report = rebuild(&world.parts(), true, false).expect("was told to");
    assert!(report.problems.is_empty(), "{report:?}");
    let stack = world.open();
    // Only the lost catalog knew that it was deleted.
    assert_reads(&stack, &["here", "there", "copied", "doomed"]);
    assert_sound(&world, &stack);
    end(&world, stack);
}
