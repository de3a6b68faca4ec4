// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file of a tier that has lost its tail is damage: nothing makes content of the zeros behind it.

mod common;

use common::hooked::Call;
use common::world::{
    LONG, World, assert_sound, cutting, eventually, key, migrate, outcome_of, put,
};
use terrace_core::{Backend, BackendExt, Key, ObjectExt, Open, TierIndex};
use terrace_stack::report::{MoveReport, ScrubReport};
use terrace_stack::{MoveKind, ScrubOptions, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

const WHOLE: usize = 20_000;
const LEFT: usize = 9_000;

fn scrub(stack: &Stack) -> ScrubReport {
    let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
    stack.scrub(&options, &mut |_, _| true).expect("scrubs")
}

/// Where the last segment of an object is.
fn stored(stack: &Stack, name: &Key) -> Key {
    let segments = stack.explain(name).expect("exists").segments;
    Key::parse(&segments.last().expect("has some").stored_as).expect("legal")
}

/// Takes the tail from a file behind the stack's back.
fn cut(world: &World, tier: usize, file: &Key, bytes: usize) {
    let disk = world.disk(tier).open();
    disk.open(file, &Open::write()).expect("opens").set_len(bytes as u64).expect("cuts");
}

fn try_migrate(stack: &Stack, name: &Key, to: TierIndex, kind: MoveKind) -> MoveReport {
    let tickets = stack.migrate(name, to, kind, 0, "test").expect("queued");
    let ended = tickets.iter().map(|ticket| stack.wait(*ticket, LONG).expect("known"));
    ended.map(|report| report.expect("ends")).last().expect("there is one")
}

fn kinds(stack: &Stack) -> Vec<String> {
    let check = stack.check(false, &mut |_, _| {}).expect("checks");
    check.problems.into_iter().map(|problem| problem.kind).collect()
}

#[track_caller]
fn assert_refused(report: &MoveReport) {
    assert_eq!(outcome_of(report), "io", "{report:?}");
    assert!(report.detail.contains("lost its end"), "{report:?}");
}

#[test]
fn what_lost_its_tail_is_not_migrated() {
    for kind in [MoveKind::Move, MoveKind::Promote, MoveKind::Copy] {
        for has_checksum in [false, true] {
            let world = World::two();
            let stack = world.create();
            let name = key("cut");
            put(&stack, &name, &[7; WHOLE]);
            if has_checksum {
                assert_eq!(scrub(&stack).recorded, 1);
            }
            let file = stored(&stack, &name);
            cut(&world, 0, &file, LEFT);
            let before = stack.tiers();
            for _ in 0..2 {
                assert_refused(&try_migrate(&stack, &name, SLOW, kind));
            }
            let segment = stack.explain(&name).expect("exists").segments.remove(0);
            assert_eq!((segment.tier.as_str(), segment.copies.len()), ("fast", 0));
            assert_eq!(segment.size_bytes, WHOLE as u64);
            assert!(world.stored(0, file.as_str()) == Some(vec![7; LEFT]));
            assert_eq!(world.disk(1).files(), [], "nothing is left of what was tried");
            assert_eq!(kinds(&stack), ["wrong-length"]);
            let used = |tiers: &[terrace_stack::report::TierReport]| -> Vec<_> {
                tiers.iter().map(|tier| (tier.used_bytes, tier.copy_bytes)).collect()
            };
            assert_eq!(used(&stack.tiers()), used(&before));
            assert_eq!(scrub(&stack).problem_count, 1);
            // Who has the tail writes it again, and all is well.
            put_back(&world, 0, &file);
            migrate(&stack, &name, SLOW, kind);
            assert!(stack.read_all(&name).expect("reads") == [7; WHOLE]);
            assert_sound(&world, &stack);
        }
    }
}

fn put_back(world: &World, tier: usize, file: &Key) {
    let disk = world.disk(tier).open();
    disk.open(file, &Open::write()).expect("opens").write(0, &[7; WHOLE]).expect("writes");
}

#[test]
fn a_later_segment_that_lost_its_tail_is_not_migrated() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(8192)));
    let name = key("cut");
    put(&stack, &name, &[7; WHOLE]);
    let file = stored(&stack, &name);
    cut(&world, 0, &file, 1);
    assert_refused(&try_migrate(&stack, &name, SLOW, MoveKind::Move));
    let segments = stack.explain(&name).expect("exists").segments;
    let tiers: Vec<_> = segments.iter().map(|segment| segment.tier.as_str()).collect();
    assert_eq!(tiers, ["slow", "slow", "fast"]);
    assert_eq!(kinds(&stack), ["wrong-length"]);
}

#[test]
fn a_drain_leaves_what_lost_its_tail() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("cut"), &[7; WHOLE]);
    put(&stack, &key("whole"), &[7; WHOLE]);
    let file = stored(&stack, &key("cut"));
    cut(&world, 0, &file, LEFT);
    stack.drain_tier("fast").expect("drains");
    let stuck = || {
        let tiers = stack.tiers();
        let drain = tiers[0].drain.clone().expect("is drained");
        (drain.segments == 1).then_some(drain.stuck).filter(|stuck| !stuck.is_empty())
    };
    eventually("the other one is gone", || stuck().is_some());
    let stuck = stuck().expect("stays stuck");
    assert_eq!(stuck.len(), 1);
    assert_eq!(stuck[0].key, "test/cut");
    assert!(stuck[0].reason.contains("lost its end"), "{stuck:?}");
    assert!(world.stored(0, file.as_str()) == Some(vec![7; LEFT]));
}

#[test]
fn a_copy_that_lost_its_tail_does_not_become_the_primary() {
    let world = World::two();
    let stack = world.create();
    let name = key("copied");
    put(&stack, &name, &[7; WHOLE]);
    migrate(&stack, &name, SLOW, MoveKind::Promote);
    let copy = world.disk(0).files().remove(0).key;
    cut(&world, 0, &copy, LEFT);
    assert_refused(&try_migrate(&stack, &name, FAST, MoveKind::Move));
    let segment = stack.explain(&name).expect("exists").segments.remove(0);
    assert_eq!((segment.tier.as_str(), segment.copies.as_slice()), ("slow", &["fast".into()][..]));
    // The other one is right, and mends it.
    assert_eq!(scrub(&stack).repairs.len(), 1);
    migrate(&stack, &name, FAST, MoveKind::Move);
    assert!(stack.read_all(&name).expect("reads") == [7; WHOLE]);
    assert_sound(&world, &stack);
}

/// Lengths that change while a migration copies are no damage.
#[test]
fn what_grows_or_is_cut_meanwhile_is_migrated() {
    for is_done in [false, true] {
        for length in [0, 100, LEFT, 3 * WHOLE] {
            let world = World::two();
            let stack = world.create();
            let name = key("changing");
            put(&stack, &name, &[7; WHOLE]);
            let object = stack.open(&name, &Open::write()).expect("opens");
            world
                .tier(0)
                .hold(move |moment| moment.call == Call::Read && moment.is_done == is_done);
            let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
            world.tier(0).wait_until_held();
            object.set_len(length as u64).expect("changes");
            world.tier(0).release();
            let report = stack.wait(tickets[0], LONG).expect("known").expect("ends");
            assert_eq!(outcome_of(&report), "done", "{report:?}");
            drop(object);
            let mut expected = vec![7; WHOLE];
            expected.resize(length, 0);
            assert!(stack.read_all(&name).expect("reads") == expected);
            assert_sound(&world, &stack);
        }
    }
}

/// Holes are bytes that are there, also at the end, and so is what a crash left.
#[test]
fn holes_and_lengths_found_after_a_crash_are_migrated() {
    let world = World::two();
    let stack = world.create();
    let name = key("sparse");
    let object = stack.open(&name, &Open::create_new()).expect("creates");
    object.write(0, &[7; 100]).expect("writes");
    object.set_len(1 << 20).expect("grows");
    object.sync().expect("syncs");
    object.write(1 << 20, &[7; WHOLE]).expect("writes");
    drop(object);
    drop(stack);
    world.lose_all_unsynced();
    let stack = world.open();
    let expected = stack.read_all(&name).expect("reads");
    assert!(expected.len() >= 1 << 20, "what was synced is there");
    migrate(&stack, &name, SLOW, MoveKind::Move);
    migrate(&stack, &name, FAST, MoveKind::Copy);
    assert!(stack.read_all(&name).expect("reads") == expected);
    assert_sound(&world, &stack);
}
