// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labels outlive everything that objects outlive.

use crate::common::crashing::Crash;
use crate::common::world::{World, assert_sound, cutting, key, migrate, put};
use terrace_core::{Backend, Key, KvExt, ObjectExt, Open, TierIndex};
use terrace_stack::{MoveKind, RebuildOptions, Saved, Stack, read_backup};
use terrace_testkit::SimWorld;

const SLOW: TierIndex = TierIndex(1);

const LABEL: &[u8] = b"a layout";

fn put_labelled(stack: &Stack, name: &Key, data: &[u8]) {
    let object = stack.open(name, &Open::create_new().with_label(LABEL)).expect("creates");
    object.write(0, data).expect("writes");
}

/// What is told of an object, once by name and once by handle.
#[track_caller]
fn label_of(stack: &Stack, name: &Key) -> Option<Vec<u8>> {
    let object = stack.open(name, &Open::read()).expect("opens");
    let label = object.label().map(|label| label.to_vec());
    assert_eq!(stack.stat(name).expect("is there").is_labelled, label.is_some());
    assert_eq!(object.stat().expect("is there").is_labelled, label.is_some());
    label
}

/// A store with a labelled object and a plain one, cut into two segments each.
fn filled(world: &World) -> Stack {
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    put_labelled(&stack, &key("labelled"), &[7; 5000]);
    put(&stack, &key("plain"), &[8; 5000]);
    stack
}

#[track_caller]
fn assert_labels(world: &World, stack: &Stack) {
    assert_eq!(label_of(stack, &key("labelled")).as_deref(), Some(LABEL));
    assert_eq!(label_of(stack, &key("plain")), None);
    assert_sound(world, stack);
    for disk in [world.disk(0), world.disk(1)] {
        for file in disk.files() {
            let identity = file.identity.expect("every file says what it is");
            let wanted = (identity.key == key("labelled")).then_some(LABEL);
            assert_eq!(identity.label.as_deref(), wanted, "{:?}", file.key);
        }
    }
}

#[test]
fn every_file_of_an_object_has_its_label_wherever_it_goes() {
    for kind in [MoveKind::Move, MoveKind::Promote, MoveKind::Copy] {
        let world = World::two();
        let stack = filled(&world);
        assert_labels(&world, &stack);
        for name in ["labelled", "plain"] {
            migrate(&stack, &key(name), SLOW, kind);
        }
        assert!(!world.disk(1).files().is_empty(), "it went there");
        assert_labels(&world, &stack);
    }
}

#[test]
fn labels_survive_closes_and_crashes() {
    let world = World::two();
    let stack = filled(&world);
    migrate(&stack, &key("labelled"), SLOW, MoveKind::Move);
    stack.sync().expect("syncs");
    drop(stack);
    for crash in [Crash::Process, Crash::Power { seed: 1 }, Crash::Power { seed: 2 }] {
        world.crash(crash);
        let stack = world.open();
        assert_labels(&world, &stack);
        stack.sync().expect("syncs");
    }
    world.open().close().expect("closes");
    world.crash(Crash::Process);
    assert_labels(&world, &world.open());
}

#[test]
fn labels_come_back_from_the_tiers_alone() {
    let mut world = World::two();
    let stack = filled(&world);
    migrate(&stack, &key("labelled"), SLOW, MoveKind::Copy);
    stack.close().expect("closes");
    drop(stack);
    let saved = world.lose_catalog();
    // Of the tiers alone, then of what was saved.
    for saved in [None, Some(saved)] {
        world.lose_catalog();
        let saved = saved.map(|saved| Saved { catalog: saved.open(), is_present: true });
        let options = RebuildOptions { saved, ..RebuildOptions::default() };
        let report = Stack::rebuild(&world.parts(), &options, &mut |_, _| {}).expect("rebuilds");
        assert_eq!((report.objects, &report.problems[..]), (2, &[][..]));
        let stack = world.open();
        assert_labels(&world, &stack);
        stack.close().expect("closes");
        drop(stack);
        world.crash(Crash::Process);
    }
}

#[test]
fn a_rebuild_mends_a_file_that_says_another_label() {
    let mut world = World::two();
    let stack = filled(&world);
    stack.close().expect("closes");
    drop(stack);
    let disk = world.disk(0).open();
    let files = world.disk(0).files();
    let file = files.iter().find(|file| {
        file.identity.as_ref().is_some_and(|identity| identity.key == key("labelled"))
    });
    let file = file.expect("it is there");
    let mut wrong = file.identity.clone().expect("it has one");
    wrong.label = None;
    disk.set_identity(&file.key, &wrong).expect("writes");
    let stack = world.open();
    let check = stack.check(false, &mut |_, _| {}).expect("looks");
    assert_eq!(check.problems.len(), 1, "{:?}", check.problems);
    assert_eq!(check.problems[0].kind, "wrong-identity");
    stack.close().expect("closes");
    drop(stack);
    world.crash(Crash::Process);
    let saved = Saved { catalog: world.lose_catalog().open(), is_present: true };
    let options = RebuildOptions { saved: Some(saved), ..RebuildOptions::default() };
    Stack::rebuild(&world.parts(), &options, &mut |_, _| {}).expect("rebuilds");
    assert_labels(&world, &world.open());
}

#[test]
fn a_backup_has_the_labels() {
    let world = World::two();
    let stack = filled(&world);
    let mut bytes = Vec::new();
    stack.backup(&mut bytes, &mut |_| {}).expect("backs up");
    let copy = SimWorld::new().kv().open();
    read_backup(&mut &bytes[..], &*copy, &mut |_| {}).expect("is whole");
    let row = b"otest\0labelled";
    let record = copy.get(row).expect("reads").expect("is there");
    assert!(record.windows(LABEL.len()).any(|window| window == LABEL));
    assert_eq!(Some(record), world.kv().open().get(row).expect("reads"));
}

/// Older programs know no record of this version: they refuse it, and all others are as they were.
#[test]
fn only_records_with_a_label_have_the_new_version() {
    let world = World::two();
    drop(filled(&world));
    let kv = world.kv().open();
    let mut versions = Vec::new();
    kv.for_each(terrace_core::KvRange::prefix(b"o"), &mut |row, record| {
        versions.push((String::from_utf8_lossy(row).into_owned(), record[0]));
        Ok(())
    })
    .expect("reads");
    assert_eq!(versions, [("otest\0labelled".into(), 2), ("otest\0plain".into(), 1)]);
}
