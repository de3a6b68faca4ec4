// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that are replaced as a whole.

use crate::common::crashing::{Crash, Crashing};
use crate::common::world::{
    World, all_keys, assert_sound, cutting_where, key, migrate, promise_nothing, put,
};
use terrace_core::{
    Backend, BackendExt, Create, ErrorKind, ObjectExt, Open, Persistency, Semantics, TierIndex,
};
use terrace_stack::{MoveKind, RebuildOptions, Stack};
use terrace_testkit::versions::{content, overwrite_beside_readers, version_of};

const SLOW: TierIndex = TierIndex(1);

/// Replacements beside readers.
const OVERWRITES: u32 = 10_000;

fn two(segments_of: &'static str) -> (World, Stack) {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting_where(segments_of, 4096)));
    (world, stack)
}

fn overwrite(world: &World, stack: &Stack, versions: u32) {
    let name = key("cut");
    put(stack, &name, &content(0));
    let between = |version: u32| {
        if version.is_multiple_of(100) {
            let _ = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test");
        }
    };
    overwrite_beside_readers(&[stack], &[stack, stack], &name, &Open::create(), versions, &between);
    assert_sound(world, stack);
}

#[test]
fn readers_see_the_old_value_or_the_new() {
    let (world, stack) = two("cut");
    overwrite(&world, &stack, OVERWRITES);
}

#[test]
fn readers_of_a_store_of_one_tier_see_the_old_value_or_the_new() {
    let world = World::with(&[("only", 1 << 30, Persistency::Storage)]);
    let stack = world.create();
    overwrite(&world, &stack, OVERWRITES / 10);
}

#[test]
fn a_draft_is_not_seen_before_it_is_published() {
    let (world, stack) = two("cut");
    for name in ["plain", "cut"].map(key) {
        let draft = stack.draft(&name, &Open::create()).expect("begins");
        draft.object().write(0, &content(1)).expect("writes");
        assert_eq!(all_keys(&stack).iter().filter(|known| **known == name).count(), 0);
        assert_eq!(stack.stat(&name).expect_err("not yet").kind(), ErrorKind::NotFound);
        draft.publish().expect("publishes");
        assert_eq!(stack.read_all(&name).expect("reads"), content(1));
        assert_eq!(draft.publish().expect_err("once").kind(), ErrorKind::Invalid);
        // The handle goes on with the object.
        draft.object().write(0, &[9; 4]).expect("writes");
        drop(draft);
        assert_eq!(stack.read_all(&name).expect("reads")[..4], [9; 4]);
    }
    assert_sound(&world, &stack);
}

#[test]
fn a_dropped_draft_leaves_the_old_value_and_no_garbage() {
    let (world, stack) = two("cut");
    let name = key("cut");
    put(&stack, &name, &content(1));
    let draft = stack.draft(&name, &Open::create()).expect("begins");
    let object = draft.object();
    object.write(0, &content(2)).expect("writes");
    drop(draft);
    assert_eq!(object.write(0, &[1]).expect_err("gone").kind(), ErrorKind::NotFound);
    drop(object);
    assert_eq!(stack.read_all(&name).expect("reads"), content(1));
    assert_sound(&world, &stack);
    // One that is left open until the store is closed is discarded then.
    let draft = stack.draft(&name, &Open::create()).expect("begins");
    draft.object().write(0, &content(3)).expect("writes");
    stack.close().expect("closes");
    drop((draft, stack));
    let stack = world.open();
    assert!(stack.opening_notes().is_empty(), "{:?}", stack.opening_notes());
    assert_eq!(stack.read_all(&name).expect("reads"), content(1));
    assert_sound(&world, &stack);
}

#[test]
fn handles_on_the_old_value_go_on_with_it() {
    let (world, stack) = two("cut");
    let name = key("plain");
    put(&stack, &name, &content(1));
    let old = stack.open(&name, &Open::read()).expect("opens");
    stack.put(&name, &content(2), &Open::create()).expect("replaces");
    assert_eq!(old.read_to_end().expect("reads"), content(1));
    drop(old);
    assert_eq!(stack.read_all(&name).expect("reads"), content(2));
    assert_sound(&world, &stack);
}

#[test]
fn what_must_be_there_or_not_is_looked_at_when_it_is_published() {
    let (world, stack) = two("cut");
    let name = key("plain");
    let must = |create| Open { create, ..Open::default() };
    let missing = stack.put(&name, b"x", &must(Create::Never)).expect_err("nothing to replace");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let first = stack.draft(&name, &must(Create::New)).expect("begins");
    let second = stack.draft(&name, &must(Create::New)).expect("begins");
    second.object().write(0, &content(2)).expect("writes");
    second.publish().expect("is the first to be published");
    assert_eq!(first.publish().expect_err("is the second").kind(), ErrorKind::Exists);
    drop((first, second));
    assert_eq!(stack.read_all(&name).expect("reads"), content(2));
    assert_sound(&world, &stack);
}

#[test]
fn a_put_without_room_leaves_the_old_value() {
    let world = World::with(&[("only", 64 << 10, Persistency::Storage)]);
    let stack = world.create();
    let name = key("plain");
    put(&stack, &name, &content(1));
    let draft = stack.draft(&name, &Open::create()).expect("begins");
    let mut written = 0;
    let error = loop {
        match draft.object().write(written, &[5; 4096]) {
            Ok(()) => written += 4096,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
    assert!(written > 0, "it ran out of space in the middle");
    drop(draft);
    assert_eq!(stack.read_all(&name).expect("reads"), content(1));
    assert_sound(&world, &stack);
    stack.put(&name, &content(2), &Open::create()).expect("there is room again");
    assert_sound(&world, &stack);
}

#[test]
fn a_pin_and_a_promise_outlive_a_put() {
    let (world, stack) = two("cut");
    let name = key("plain");
    put(&stack, &name, &content(1));
    migrate(&stack, &name, SLOW, MoveKind::Move);
    stack.pin(&name).expect("pins");
    crate::common::world::open_durable(&stack, &name).expect("promises");
    stack.put(&name, &content(2), &Open::create()).expect("replaces");
    let explanation = stack.explain(&name).expect("exists");
    assert!(explanation.is_pinned, "{explanation:?}");
    assert_eq!(explanation.segments[0].tier, "slow");
    assert_eq!(explanation.persistency, "storage");
    assert_sound(&world, &stack);
}

/// Another object appears under the key of a draft, and is promised more.
#[test]
fn a_draft_keeps_what_the_object_is_promised_that_it_replaces() {
    let world = World::with(&[
        ("memory", 1 << 30, Persistency::None),
        ("disk", 1 << 30, Persistency::Storage),
    ]);
    let stack = world.create_with(promise_nothing);
    let name = key("plain");
    let at = |level| Open::create().with_semantics(Semantics::at_level(level));
    let first = stack.draft(&name, &at(Persistency::None)).expect("begins on the first tier");
    first.object().write(0, &content(1)).expect("writes");
    let second = stack.draft(&name, &at(Persistency::Process)).expect("begins");
    second.object().write(0, &content(2)).expect("writes");
    stack.put(&name, &content(3), &at(Persistency::Storage)).expect("replaces");
    let error = first.publish().expect_err("its tier is too weak");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain());
    assert_eq!(stack.read_all(&name).expect("reads"), content(3));
    drop(first);
    second.publish().expect("replaces");
    drop(second);
    assert_eq!(stack.explain(&name).expect("exists").persistency, "storage");
    world.failpoints().freeze();
    drop(stack);
    world.lose_all_unsynced();
    let stack = world.open_with(promise_nothing);
    assert_eq!(stack.read_all(&name).expect("reads"), content(2));
    assert_sound(&world, &stack);
}

#[test]
fn a_lost_catalog_brings_back_the_old_value_or_the_new() {
    for name in ["plain", "cut"].map(key) {
        for failpoint in ["draft.catalog", "publish.identity", "publish.catalog"] {
            let (mut world, stack) = two("cut");
            put(&stack, &name, &content(1));
            world.failpoints().arm(&Crashing { failpoint: failpoint.into(), visit: 1 });
            stack.put(&name, &content(2), &Open::create()).expect_err("it crashes");
            world.failpoints().freeze();
            drop(stack);
            world.crash(Crash::Process);
            world.lose_catalog();
            let rebuilt =
                Stack::rebuild(&world.parts(), &RebuildOptions::default(), &mut |_, _| {});
            let report = rebuilt.unwrap_or_else(|error| panic!("{}", error.chain()));
            assert!(report.problems.is_empty(), "{failpoint}: {report:?}");
            let stack = world.open();
            let version = version_of(&stack.read_all(&name).expect("it is there"));
            assert!((1..=2).contains(&version), "{failpoint}");
            assert_sound(&world, &stack);
        }
    }
}
