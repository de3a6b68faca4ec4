// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes between a look and the deed.

use crate::common::hooked::Call;
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, cutting, key, migrate, open_durable, outcome_of, put,
};
use terrace_core::{Backend, Key, ObjectExt, Open, Persistency, TierIndex};
use terrace_stack::{MoveKind, Stack};

const SECOND: TierIndex = TierIndex(1);

/// A tier that keeps what is synced over a loss of power, and one that does not.
fn strong_and_weak() -> World {
    World::with(&[("strong", ROOMY, Persistency::Storage), ("weak", ROOMY, Persistency::Process)])
}

/// How a move to the second tier ends when `meanwhile` is done before it: with a copy there, which
/// is to become the primary, or without.
fn outcome_after(
    (world, stack, name): (&World, &Stack, &Key),
    has_copy: bool,
    meanwhile: impl FnOnce(),
) -> String {
    if has_copy {
        migrate(stack, name, SECOND, MoveKind::Copy);
    }
    let held = if has_copy { Call::SyncAll } else { Call::Create };
    world.tier(1).hold(move |moment| moment.call == held && !moment.is_done);
    let tickets = stack.migrate(name, SECOND, MoveKind::Move, 0, "test").expect("queued");
    world.tier(1).wait_until_held();
    meanwhile();
    world.tier(1).release();
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    outcome_of(&ended).to_string()
}

#[test]
fn an_object_stays_where_what_it_was_promised_during_its_migration_is_kept() {
    for has_copy in [false, true] {
        let world = strong_and_weak();
        let stack = world.create();
        let name = key("promised");
        put(&stack, &name, &[1; 5000]);
        let mut object = None;
        let outcome = outcome_after((&world, &stack, &name), has_copy, || {
            object = Some(open_durable(&stack, &name).expect("opens"));
        });
        assert_eq!(outcome, "too-weak", "{has_copy}");
        assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "strong");
        drop(object);
        assert_sound(&world, &stack);
    }
}

#[test]
fn an_object_that_was_pinned_during_its_migration_stays() {
    for has_copy in [false, true] {
        let world = World::two();
        let stack = world.create();
        let name = key("pinned");
        put(&stack, &name, &[1; 5000]);
        let outcome = outcome_after((&world, &stack, &name), has_copy, || {
            stack.pin(&name).expect("pins");
        });
        assert_eq!(outcome, "pinned", "{has_copy}");
        assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "fast");
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_move_that_waited_is_not_done_to_a_segment_that_came_since() {
    let world = World::two();
    let stack = world.create_with(|parts| {
        parts.tactics = Some(cutting(4096));
        parts.settings.move_threads = 1;
    });
    let [first, name] = ["first", "cut-and-grown"].map(key);
    put(&stack, &first, &[1; 100]);
    put(&stack, &name, &[1; 8000]);
    world.tier(1).hold_creates();
    let before = stack.migrate(&first, SECOND, MoveKind::Move, 0, "test").expect("queued");
    world.tier(1).wait_until_held();
    let old = stack.migrate(&name, SECOND, MoveKind::Move, 0, "test").expect("queued");
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.set_len(100).expect("cuts");
    object.write(4096, &[2; 500]).expect("grows again");
    world.tier(1).release();
    let outcomes = [before[0], old[0], old[1]].map(|ticket| {
        let ended = stack.wait(ticket, LONG).expect("known").expect("ends");
        outcome_of(&ended).to_string()
    });
    assert_eq!(outcomes, ["done", "done", "stale"]);
    assert_eq!(stack.explain(&name).expect("exists").segments[1].tier, "fast");
    migrate(&stack, &name, SECOND, MoveKind::Move);
    assert_eq!(stack.explain(&name).expect("exists").segments[1].tier, "slow");
    drop(object);
    assert_sound(&world, &stack);
}
