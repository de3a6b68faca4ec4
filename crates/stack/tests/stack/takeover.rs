// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a takeover finds of objects whose files a write, a cut or a move took out of the catalog.

use std::sync::Arc;

use crate::common::hooked::{Call, Verdict};
use crate::common::world::{LONG, World, cutting, key, migrate};
use crate::versions::{Far, data, end, settle, slow, taken_over};
use terrace_core::{
    Backend, BackendExt, ErrorKind, Key, Object, ObjectExt, Open, Persistency, Semantics, TierIndex,
};
use terrace_stack::{MoveKind, Stack, Tier};
use terrace_testkit::SimWorld;

const SLOW: TierIndex = TierIndex(1);
const THIRD: TierIndex = TierIndex(2);

/// Segments of [`parted`] objects.
const SEGMENT_BYTES: u64 = 40_000;

fn shared() -> Semantics {
    Semantics::at_level(Persistency::Shared)
}

fn world() -> World {
    World::two().whole("slow")
}

fn create(world: &World) -> Stack {
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(SEGMENT_BYTES)));
    stack.set_far_log(Some(Arc::new(Far)));
    stack
}

/// An object of two segments, synced at level `shared`.
fn parted(stack: &Stack, name: &Key) -> Box<dyn Object> {
    let made = stack.open(name, &Open::create_new().with_semantics(shared())).expect("made");
    made.write(0, &data(1)).expect("written");
    drop(made);
    let object = stack.open(name, &Open::write()).expect("opens");
    object.sync().expect("synced");
    object
}

/// The bucket deletes nothing.
fn refuse_deletes(world: &World) {
    world.tier(1).on(|moment| match moment.call {
        Call::Delete => Verdict::Fail(ErrorKind::Io),
        _ => Verdict::Go,
    });
}

/// What a stack of another machine reads.
fn read_elsewhere(world: &World, name: &Key) -> Vec<u8> {
    const CAPACITY_BYTES: u64 = 1 << 30;
    let fresh = SimWorld::new().tier_with("fresh", CAPACITY_BYTES, Persistency::Storage);
    let stack = world.open_with(|parts| {
        parts.tiers[0] = Tier::new("fresh", fresh.open()).with_capacity(CAPACITY_BYTES);
    });
    let check = stack.check(true, &mut |_, _| {}).expect("checked");
    assert!(check.problems.iter().all(|one| one.kind.starts_with("unknown")), "{check:?}");
    stack.read_all(name).expect("reads")
}

#[test]
fn a_segment_in_another_bucket_is_not_cut_off() {
    let world = World::three().whole("slow").whole("third");
    let stack = create(&world);
    let name = key("object");
    let object = parted(&stack, &name);
    drop(object);
    migrate(&stack, &name, THIRD, MoveKind::Move);
    settle(&stack);
    stack.drop_copy(&name, SLOW).expect("the other bucket has all of it");
    // The first segment is recalled, and its copy is in the bucket with the log.
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, b"new").expect("recalled and written");
    object.sync().expect("synced");
    drop(object);
    settle(&stack);
    end(&world, stack);
    let taken = taken_over(&world);
    assert_eq!((taken.objects, taken.unreachable, taken.left_out), (0, 1, 0), "{taken:?}");
    assert_eq!(taken.unreachable_keys, [name.to_string()]);
    assert_eq!(taken.missing_tiers, ["third"]);
}

#[test]
fn a_retained_file_in_another_bucket_is_not_cut_off() {
    let world = World::three().whole("slow").whole("third");
    let stack = create(&world);
    let name = key("object");
    drop(parted(&stack, &name));
    migrate(&stack, &name, THIRD, MoveKind::Move);
    settle(&stack);
    stack.drop_copy(&name, SLOW).expect("the other bucket has all of it");
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, b"new").expect("recalled and written");
    object.sync().expect("synced");
    // No record names a file of the second segment in a bucket from here on.
    object.write(SEGMENT_BYTES, b"unsynced").expect("recalled and written");
    drop(object);
    assert!(stack.wait_idle(LONG));
    end(&world, stack);
    let taken = taken_over(&world);
    assert_eq!((taken.objects, taken.unreachable, taken.left_out), (0, 1, 0), "{taken:?}");
    assert_eq!(taken.missing_tiers, ["fast", "third"]);
}

#[test]
fn a_superseded_copy_of_a_lower_level_is_no_present_value() {
    let world = world();
    let stack = create(&world);
    let name = key("object");
    slow(&stack, &name, &data(1));
    refuse_deletes(&world);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, b"new").expect("recalled and written");
    object.sync().expect("synced at its level");
    drop(object);
    assert!(stack.wait_idle(LONG));
    end(&world, stack);
    let taken = taken_over(&world);
    assert_eq!((taken.objects, taken.unreachable), (0, 1), "{taken:?}");
}

#[test]
fn a_superseded_copy_is_no_value_while_the_level_is_raised() {
    let world = world();
    let stack = create(&world);
    let name = key("object");
    slow(&stack, &name, &data(1));
    refuse_deletes(&world);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, b"new").expect("recalled and written");
    object.sync().expect("synced at its level");
    drop(object);
    assert!(stack.wait_idle(LONG));
    // The level is in the log, and the machine is lost before there is a copy.
    let freezer = world.freezer();
    world.tier(1).on(move |moment| match moment.call {
        Call::Delete => Verdict::Fail(ErrorKind::Io),
        Call::Create => {
            freezer.freeze();
            Verdict::Go
        }
        _ => Verdict::Go,
    });
    let how = Open::write().with_semantics(shared());
    stack.open(&name, &how).map(drop).expect_err("the machine is lost");
    end(&world, stack);
    let taken = taken_over(&world);
    assert_eq!((taken.objects, taken.unreachable), (0, 1), "{taken:?}");
}

#[test]
fn a_segment_that_was_cut_off_does_not_come_back_as_one_that_was_added() {
    let world = world();
    let stack = create(&world);
    let name = key("object");
    let object = parted(&stack, &name);
    refuse_deletes(&world);
    object.set_len(SEGMENT_BYTES).expect("cut");
    object.sync().expect("synced");
    object.write(SEGMENT_BYTES, b"unsynced").expect("written");
    assert_eq!(stack.explain(&name).expect("exists").segments.len(), 2);
    drop(object);
    end(&world, stack);
    let taken = taken_over(&world);
    let found = (taken.objects, taken.bytes, taken.unreachable, taken.left_out);
    assert_eq!(found, (1, SEGMENT_BYTES, 0, 1), "{taken:?}");
    assert!(read_elsewhere(&world, &name) == data(1)[..SEGMENT_BYTES as usize]);
}

#[test]
fn the_bytes_of_the_last_sync_are_found_after_a_restart() {
    for is_closed in [true, false] {
        let world = world();
        let stack = create(&world);
        let name = key("object");
        let object = parted(&stack, &name);
        object.write(0, b"unsynced").expect("written");
        drop(object);
        // A close syncs nothing to the bucket.
        match is_closed {
            true => {
                stack.close().expect("closes");
                drop(stack);
            }
            false => end(&world, stack),
        }
        let stack = world.open_with(|parts| parts.tactics = Some(cutting(SEGMENT_BYTES)));
        stack.set_far_log(Some(Arc::new(Far)));
        let object = stack.open(&name, &Open::write()).expect("opens");
        object.write(SEGMENT_BYTES, b"unsynced").expect("written");
        object.write(2 * SEGMENT_BYTES, b"unsynced").expect("written");
        drop(object);
        end(&world, stack);
        let taken = taken_over(&world);
        let found = (taken.objects, taken.unreachable, taken.left_out);
        assert_eq!(found, (1, 0, 1), "{taken:?}");
        assert!(read_elsewhere(&world, &name) == data(1), "closed: {is_closed}");
    }
}

/// The level is raised, and only some segments are copied: what is missing was acknowledged at the level before.
#[test]
fn an_object_whose_level_was_half_raised_is_not_cut() {
    let world = world();
    let stack = create(&world);
    let name = key("object");
    let object = stack.open(&name, &Open::create_new()).expect("made");
    object.write(0, &data(1)).expect("written");
    drop(object);
    let freezer = world.freezer();
    world.tier(1).on(move |moment| {
        if moment.call == Call::Create && moment.name.contains(".1.") {
            freezer.freeze();
        }
        Verdict::Go
    });
    let how = Open::write().with_semantics(shared());
    stack.open(&name, &how).map(drop).expect_err("the machine is lost");
    end(&world, stack);
    let taken = taken_over(&world);
    assert_eq!((taken.objects, taken.unreachable, taken.left_out), (0, 1, 0), "{taken:?}");
}
