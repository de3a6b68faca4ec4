// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An older copy of the catalog is put back: what was written since is not taken for the rest of a
//! crash.

use crate::common::crashing::{Crash, Crashing};
use crate::common::world::{World, assert_sound, key, put};
use terrace_core::{Backend, BackendExt, ErrorKind, Pair};
use terrace_stack::{RebuildOptions, Stack};

/// A closed store with an object.
fn closed() -> World {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("before"), &[1; 5000]);
    end(&world, stack);
    world
}

fn end(world: &World, stack: Stack) {
    stack.close().expect("closes");
    drop(stack);
    world.crash(Crash::Process);
}

/// Puts a copy of the catalog in the place of the one that is there.
fn put_back(world: &mut World, copy: &[Pair]) {
    world.lose_catalog();
    let kv = world.kv().open();
    let ticket = kv.transact(&mut |txn| copy.iter().try_for_each(|pair| txn.put(&pair.0, &pair.1)));
    kv.wait(ticket.expect("writes")).expect("is durable");
}

/// The copy is refused, nothing is changed, and what was written since comes back.
#[track_caller]
fn assert_refused(world: &mut World, copy: &[Pair]) {
    put_back(world, copy);
    let before = world.snapshot();
    let error = world.try_open_with(|_| {}).map(drop).expect_err("an old copy");
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.chain().contains("the catalog is an old copy"), "{}", error.chain());
    assert!(world.snapshot() == before, "something was changed");
    world.lose_catalog();
    let report = Stack::rebuild(&world.parts(), &RebuildOptions::default(), &mut |_, _| {});
    assert_eq!(report.expect("rebuilds").objects, 2);
    // Where it was interrupted before the new one is used, the old one is still there.
    let rebuilt = world.kv().pairs();
    put_back(world, copy);
    let error = world.try_open_with(|_| {}).map(drop).expect_err("an old copy");
    assert_eq!(error.kind(), ErrorKind::Stale);
    put_back(world, &rebuilt);
    for _ in 0..2 {
        let stack = world.open();
        assert_eq!(stack.read_all(&key("before")).expect("reads"), [1; 5000]);
        assert_eq!(stack.read_all(&key("since")).expect("reads"), [2; 5000]);
        assert_sound(world, &stack);
        end(world, stack);
    }
}

#[test]
fn a_copy_from_before_the_last_opening_is_refused() {
    for is_closed in [true, false] {
        let mut world = closed();
        let copy = world.kv().pairs();
        let stack = world.open();
        put(&stack, &key("since"), &[2; 5000]);
        stack.sync().expect("syncs");
        match is_closed {
            true => end(&world, stack),
            false => {
                world.failpoints().freeze();
                drop(stack);
                world.crash(Crash::Process);
            }
        }
        assert_refused(&mut world, &copy);
    }
}

#[test]
fn a_copy_from_the_middle_of_an_opening_that_was_closed_is_refused() {
    let mut world = closed();
    let stack = world.open();
    let copy = world.kv().pairs();
    put(&stack, &key("since"), &[2; 5000]);
    end(&world, stack);
    assert_refused(&mut world, &copy);
}

#[test]
fn no_crash_of_an_opening_or_a_close_is_taken_for_a_copy() {
    let steps = [
        "open.superblock",
        "open.superblocks",
        "open.header",
        "open.confirmed",
        "close.header",
        "close.superblock",
    ];
    let crashes = (0..5).map(|seed| Crash::Power { seed }).chain([Crash::Process]);
    for crash in crashes {
        for failpoint in steps {
            for visit in 1..=2 {
                let world = closed();
                world.failpoints().arm(&Crashing { failpoint: failpoint.into(), visit });
                if let Ok(stack) = world.try_open_with(|_| {}) {
                    let _ = stack.close();
                    drop(stack);
                }
                world.crash(crash);
                let stack = world.open();
                assert_eq!(stack.read_all(&key("before")).expect("reads"), [1; 5000]);
                assert_sound(&world, &stack);
                end(&world, stack);
                assert!(world.open().opening_notes().is_empty());
            }
        }
    }
}
