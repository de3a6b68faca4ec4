// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Catalogs made anew: from the tiers alone, from a saved catalog, from a damaged one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::crashing::{Crash, Crashing};
use crate::common::world::{
    LONG, ROOMY, World, all_keys, assert_sound, cutting, cutting_where, key, migrate, put,
};
use terrace_core::{
    Backend, BackendExt, ErrorKind, Identity, Key, KvExt, KvRange, ObjectExt, Open, Persistency,
    Random, Result, Role, TierIndex,
};
use terrace_stack::report::{Problem, RebuildReport};
use terrace_stack::{MoveKind, RebuildOptions, Saved, Stack};
use terrace_testkit::{Operation, SimKv, seeds};

const SLOW: TierIndex = TierIndex(1);

/// What a store holds.
type Model = BTreeMap<String, Vec<u8>>;

fn try_rebuild(world: &World, options: &RebuildOptions) -> Result<RebuildReport> {
    Stack::rebuild(&world.parts(), options, &mut |_, _| {})
}

fn rebuild(world: &World) -> RebuildReport {
    try_rebuild(world, &RebuildOptions::default()).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Rebuilds beside the catalog that was lost.
fn rebuild_with(world: &World, saved: &SimKv, is_present: bool) -> RebuildReport {
    let saved = Some(Saved { catalog: saved.open(), is_present });
    try_rebuild(world, &RebuildOptions { saved, ..RebuildOptions::default() })
        .unwrap_or_else(|error| panic!("{error:?}"))
}

fn end(stack: Stack) {
    stack.close().expect("closes");
}

#[track_caller]
fn assert_holds(stack: &Stack, model: &Model) {
    for (name, data) in model {
        let found = stack.read_all(&key(name)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert!(found == *data, "{name} has other bytes than it had");
    }
}

/// A store with objects of every shape, and what they hold.
fn shapes(world: &World) -> Model {
    let stack = world.create_with(|parts| parts.tactics = Some(cutting_where("cut", 4096)));
    let mut model = Model::new();
    for (index, name) in ["plain", "moved", "copied", "promoted", "cut", "empty"].iter().enumerate()
    {
        let length = if *name == "empty" { 0 } else { 10_000 + index };
        let data: Vec<u8> = (0..length).map(|at| (at * 7 + index) as u8).collect();
        put(&stack, &key(name), &data);
        model.insert((*name).into(), data);
    }
    migrate(&stack, &key("moved"), SLOW, MoveKind::Move);
    migrate(&stack, &key("copied"), SLOW, MoveKind::Copy);
    migrate(&stack, &key("promoted"), SLOW, MoveKind::Promote);
    stack.pin(&key("moved")).expect("pins");
    stack.kv_put("pairs", b"a", b"1", Persistency::Process).expect("puts");
    end(stack);
    model
}

#[test]
fn every_object_comes_back_from_the_tiers_alone() {
    assert_comes_back(World::two());
}

#[test]
fn every_object_comes_back_from_a_tier_of_whole_objects() {
    assert_comes_back(World::two().whole("slow"));
}

#[test]
fn every_object_comes_back_from_a_tier_of_framed_objects() {
    assert_comes_back(World::two().framed("slow"));
    assert_comes_back(World::two().whole("slow").framed("slow"));
}

#[test]
fn frames_are_not_taken_for_bytes() {
    let mut world = World::two().framed("slow");
    end(world.create());
    world.lose_catalog();
    let mut parts = world.parts();
    parts.tiers[1].backend = world.disk_of("slow").open();
    let error = Stack::rebuild(&parts, &RebuildOptions::default(), &mut |_, _| {});
    let error = error.expect_err("the settings are missing");
    assert!(
        error.kind() == ErrorKind::Denied && error.chain().contains("compress"),
        "{}",
        error.chain()
    );
    rebuild(&world);
}

#[test]
fn an_unfinished_packed_object_is_garbage() {
    let mut world = World::two().framed("slow");
    let stack = world.create();
    put(&stack, &key("moved"), &[3; 300_000]);
    world.failpoints().arm(&Crashing { failpoint: "move.copied".into(), visit: 1 });
    stack.migrate(&key("moved"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    assert!(stack.wait_idle(LONG));
    assert!(world.failpoints().is_alive().is_err(), "it stopped there");
    world.failpoints().freeze();
    drop(stack);
    world.crash(Crash::Process);
    assert_eq!(world.disk_of("slow").files().len(), 1);
    world.lose_catalog();
    let report = rebuild(&world);
    assert!(report.problems.is_empty(), "{report:?}");
    let stack = world.open();
    assert_eq!(stack.read_all(&key("moved")).expect("reads"), [3; 300_000]);
    assert_sound(&world, &stack);
    assert!(world.disk_of("slow").files().is_empty());
}

fn assert_comes_back(mut world: World) {
    let model = shapes(&world);
    world.lose_catalog();
    let report = rebuild(&world);
    assert_eq!((report.objects, report.segments), (6, 8), "{report:?}");
    assert_eq!(report.bytes, model.values().map(|data| data.len() as u64).sum::<u64>());
    assert!(report.problems.is_empty() && report.notes.is_empty(), "{report:?}");
    let stack = world.open();
    assert_eq!(all_keys(&stack).len(), model.len());
    assert_holds(&stack, &model);
    assert_sound(&world, &stack);
    assert_eq!(stack.explain(&key("moved")).expect("exists").segments[0].tier, "slow");
    // A copy may be older than its primary for all that the files tell.
    assert!(stack.explain(&key("copied")).expect("exists").segments[0].copies.is_empty());
    put(&stack, &key("new"), &[1; 100]);
    migrate(&stack, &key("cut"), SLOW, MoveKind::Move);
    assert_holds(&stack, &model);
    assert_sound(&world, &stack);
    end(stack);
}

#[test]
fn a_saved_catalog_brings_back_what_files_do_not_tell() {
    let mut world = World::two();
    let mut model = shapes(&world);
    let saved = world.kv().pairs();
    // The store goes on behind the backup.
    let stack = world.open();
    stack.delete(&key("plain")).expect("deletes");
    model.remove("plain");
    put(&stack, &key("later"), &[3; 500]);
    model.insert("later".into(), vec![3; 500]);
    let copied = stack.open(&key("copied"), &Open::write()).expect("opens");
    copied.write(0, &[9; 10]).expect("writes");
    drop(copied);
    model.get_mut("copied").expect("there")[..10].fill(9);
    end(stack);
    world.lose_catalog();
    let backup = world.lose_catalog();
    for (name, value) in saved {
        backup.open().put(&name, &value).expect("puts");
    }
    let report = rebuild_with(&world, &backup, false);
    assert_eq!(report.pairs, 1);
    assert_eq!(report.objects, 6, "{report:?}");
    let kinds: Vec<_> = report.notes.iter().map(|note| (&*note.kind, &*note.place)).collect();
    assert_eq!(kinds, [("not-there", "test/plain")]);
    let stack = world.open();
    assert_holds(&stack, &model);
    assert_sound(&world, &stack);
    let explanation = stack.explain(&key("moved")).expect("exists");
    assert!(explanation.is_pinned);
    assert_eq!(explanation.persistency, "process");
    assert!(!explanation.segments[0].history.is_empty());
    assert_eq!(stack.kv_get("pairs", b"a").expect("reads").as_deref(), Some(&b"1"[..]));
    end(stack);
}

fn remove_doubtful(world: &World, problem: &Problem) {
    assert_eq!(problem.kind, "doubtful-file", "{problem:?}");
    let (name, rest) = problem.detail.split_once(" on ").expect("it names the older file");
    let (tier, _) = rest.split_once(',').expect("and its tier");
    world.disk_of(tier).open().delete(&Key::parse(name).expect("legal")).expect("deletes");
}

/// Removes what is left of an object that was deleted while it moved: its beginning goes first.
fn remove_deleted(world: &World, problem: &Problem, deleted: &BTreeSet<String>) {
    assert_eq!(problem.kind, "incomplete-object", "{problem:?}");
    let is_of = |key: &Key| key.as_str() == problem.place;
    assert!(deleted.iter().any(|name| is_of(&key(name))), "never deleted: {problem:?}");
    let found = |tier| world.disk(tier).files().into_iter().map(move |file| (tier, file));
    let files: Vec<_> = [0, 1].into_iter().flat_map(found).collect();
    let identities = || files.iter().filter_map(|(_, file)| file.identity.as_ref());
    let begun: BTreeSet<u64> =
        identities().filter(|it| it.start_bytes == 0).map(|it| it.object_id).collect();
    for (tier, file) in &files {
        let Some(identity) = &file.identity else { continue };
        if is_of(&identity.key) && !begun.contains(&identity.object_id) {
            world.disk(*tier).open().delete(&file.key).expect("deletes");
        }
    }
}

/// Writes, moves and deletes at random until the machine stops, with or without power, and the
/// catalog is lost with it.
#[test]
fn acknowledged_bytes_survive_a_crash_and_the_loss_of_the_catalog() {
    for seed in seeds(40) {
        let mut random = Random::new(seed);
        let mut world = World::with(&[
            ("fast", 60_000, Persistency::Storage),
            ("slow", ROOMY, Persistency::Storage),
        ]);
        let stack = world.create_with(|parts| parts.tactics = Some(cutting(16_000)));
        let mut model = Model::new();
        let mut deleted = BTreeSet::new();
        for _ in 0..60 {
            let name = format!("o{}", random.below(8));
            match random.below(6) {
                0 | 1 => {
                    let data = vec![random.below(256) as u8; random.below(40_000) as usize];
                    if stack.delete(&key(&name)).is_ok() {
                        deleted.insert(name.clone());
                    }
                    put(&stack, &key(&name), &data);
                    model.insert(name, data);
                }
                2 => {
                    if let Some(data) = model.get_mut(&name) {
                        let at = random.below(data.len() as u64 + 100) as usize;
                        let bytes = vec![random.below(256) as u8; 1 + random.below(9000) as usize];
                        let object = stack.open(&key(&name), &Open::write()).expect("opens");
                        object.write(at as u64, &bytes).expect("writes");
                        data.resize(data.len().max(at + bytes.len()), 0);
                        data[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
                3 => {
                    let kind = [MoveKind::Move, MoveKind::Promote, MoveKind::Copy]
                        [random.below(3) as usize];
                    let to = TierIndex(random.below(2) as u8);
                    let _ = stack.migrate(&key(&name), to, kind, 0, "test");
                }
                4 => {
                    if random.chance(0.3) && model.remove(&name).is_some() {
                        stack.delete(&key(&name)).expect("deletes");
                        deleted.insert(name);
                    }
                }
                _ => assert!(stack.wait_idle(crate::common::world::LONG), "migrations end"),
            }
        }
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Process);
        world.lose_catalog();
        let report = rebuild(&world);
        // Older files that differ are left for a person, who finds the newer ones right.
        for problem in &report.problems {
            match &*problem.kind {
                "incomplete-object" => remove_deleted(&world, problem, &deleted),
                _ => remove_doubtful(&world, problem),
            }
        }
        let stack = world.open();
        assert_holds(&stack, &model);
        assert_sound(&world, &stack);
    }
}

#[test]
fn what_is_damaged_is_repaired_beside_the_present_catalog() {
    let mut world = World::two();
    let model = shapes(&world);
    let stack = world.open();
    let file =
        |name: &str| stack.explain(&key(name)).expect("exists").segments[0].stored_as.clone();
    let [plain, moved, promoted] = ["plain", "moved", "promoted"].map(file);
    end(stack);
    let delete = |tier: usize, name: &str| {
        world.disk(tier).open().delete(&Key::parse(name).expect("legal")).expect("deletes");
    };
    // A primary that has a copy, a primary that has none, a mark, a record.
    delete(1, &promoted);
    delete(0, &plain);
    let name = Key::parse(&moved).expect("legal");
    let identity = world.disk(1).open().identity(&name).expect("reads").expect("has one");
    let wrong = Identity { role: Role::Copy, generation: 1, ..identity };
    world.disk(1).open().set_identity(&name, &wrong).expect("marks");
    let row = [b"o".as_slice(), b"test\0copied"].concat();
    let mut value = world.kv().open().get(&row).expect("reads").expect("is there");
    value[5] ^= 1;
    world.kv().open().put(&row, &value).expect("puts");
    let old = world.lose_catalog();
    let report = rebuild_with(&world, &old, true);
    let kinds = |found: &[terrace_stack::report::Problem]| -> Vec<_> {
        let mut kinds: Vec<_> =
            found.iter().map(|one| format!("{} {}", one.kind, one.place)).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&report.problems), ["missing-file test/plain"]);
    assert_eq!(
        kinds(&report.notes),
        ["brought-back test/copied", "copy-made-primary test/promoted", "mark-restored test/moved"]
    );
    let stack = world.open();
    let left: Model = model.into_iter().filter(|(name, _)| name != "plain").collect();
    assert_holds(&stack, &left);
    assert!(stack.explain(&key("moved")).expect("exists").is_pinned);
    stack.read_all(&key("plain")).expect_err("its bytes are gone");
    let problems = stack.check(true, &mut |_, _| {}).expect("checks").problems;
    assert_eq!(kinds(&problems), ["missing-file test/plain"]);
    stack.delete(&key("plain")).expect("deletes");
    assert_sound(&world, &stack);
    end(stack);
}

#[test]
fn files_that_were_to_be_deleted_stay_deleted_beside_the_present_catalog() {
    let mut world = World::two();
    let stack = world.create();
    put(&stack, &key("kept"), &[1; 1000]);
    put(&stack, &key("deleted"), &[2; 1000]);
    world.disk(0).fail_always(Operation::Delete, ErrorKind::Io);
    stack.delete(&key("deleted")).expect("deletes");
    stack.close().expect("closes");
    drop(stack);
    world.disk(0).heal();
    let old = world.lose_catalog();
    let report = rebuild_with(&world, &old, true);
    assert_eq!((report.objects, report.superseded), (1, 1), "{report:?}");
    let stack = world.open();
    assert_eq!(all_keys(&stack), [key("kept")]);
    assert_sound(&world, &stack);
    end(stack);
}

#[test]
fn what_is_not_surely_this_stores_is_left_alone() {
    let mut world = World::two();
    let model = shapes(&world);
    world.lose_catalog();
    let disk = world.disk(0).open();
    let nobodys = Key::new("seg", "00000000000000aa.0.aa").expect("legal");
    disk.open(&nobodys, &Open::create_new()).expect("creates").write(0, b"x").expect("writes");
    let foreign = Key::new("seg", "notes.txt").expect("legal");
    disk.open(&foreign, &Open::create_new()).expect("creates").write(0, b"y").expect("writes");
    // The second segment of an object whose first is on no tier.
    let tail = Key::new("seg", "00000000000000bb.1.bb").expect("legal");
    let identity = Identity {
        store_id: world.disk(0).open().superblock().expect("reads").expect("has one").store_id,
        object_id: 0xbb,
        segment: 1,
        start_bytes: 4096,
        generation: 0xbb,
        epoch: 1,
        role: Role::Primary,
        key: key("beheaded"),
        label: None,
    };
    let how = Open { identity: Some(Arc::new(identity)), ..Open::create_new() };
    disk.open(&tail, &how).expect("creates").write(0, b"z").expect("writes");
    let report = rebuild(&world);
    let kinds: Vec<_> = report.problems.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["unknown-file", "unknown-file", "incomplete-object"], "{report:?}");
    let stack = world.open();
    assert_eq!(all_keys(&stack).len(), model.len());
    end(stack);
    for name in [&nobodys, &foreign, &tail] {
        assert_eq!(disk.stat(name).expect("is there").size_bytes, 1, "{name}");
    }
}

#[test]
fn a_rebuild_that_was_interrupted_is_done_again() {
    for failing in 0..3 {
        let mut world = World::two();
        let model = shapes(&world);
        world.lose_catalog();
        match failing {
            0 => world.kv().fail_next(Operation::KvCommit, ErrorKind::NoSpace),
            1 => world.kv().fail_next(Operation::KvWait, ErrorKind::Io),
            _ => world.disk(1).fail_next(Operation::List, ErrorKind::Io),
        }
        try_rebuild(&world, &RebuildOptions::default()).expect_err("it fails");
        let error = world.try_open_with(|_| {}).map(drop).expect_err("there is no header");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        world.lose_catalog();
        rebuild(&world);
        let stack = world.open();
        assert_holds(&stack, &model);
        assert_sound(&world, &stack);
        end(stack);
    }
}

#[test]
fn wrong_tiers_and_catalogs_are_refused() {
    let mut world = World::two();
    shapes(&world);
    let present = try_rebuild(&world, &RebuildOptions::default()).expect_err("a catalog is there");
    assert_eq!(present.kind(), ErrorKind::Exists);
    world.lose_catalog();
    let mut swapped = world.parts();
    let (left, right) = swapped.tiers.split_at_mut(1);
    std::mem::swap(&mut left[0].backend, &mut right[0].backend);
    let error = Stack::rebuild(&swapped, &RebuildOptions::default(), &mut |_, _| {});
    assert_eq!(error.expect_err("swapped").kind(), ErrorKind::Denied);
    let other = World::two();
    shapes(&other);
    let saved = Some(Saved { catalog: other.kv().open(), is_present: false });
    let error = try_rebuild(&world, &RebuildOptions { saved, ..RebuildOptions::default() });
    assert_eq!(error.expect_err("of another store").kind(), ErrorKind::Denied);
    let mut mixed = world.parts();
    mixed.tiers[1].backend = other.disk(1).open();
    let error = Stack::rebuild(&mixed, &RebuildOptions::default(), &mut |_, _| {});
    assert_eq!(error.expect_err("of two stores").kind(), ErrorKind::Denied);
    let superblock = world.disk(1).open().superblock().expect("reads").expect("has one");
    let newer = terrace_core::Superblock { epoch: superblock.epoch + 2, ..superblock };
    world.disk(1).open().set_superblock(&newer).expect("writes");
    let error = try_rebuild(&world, &RebuildOptions::default()).expect_err("an old tier");
    assert_eq!(error.kind(), ErrorKind::Stale);
    let options = RebuildOptions { accepts_old_tiers: true, ..RebuildOptions::default() };
    assert_eq!(try_rebuild(&world, &options).expect("was told to").objects, 6);
    let rows = world.kv().open().scan(&KvRange::prefix(b"o"), 100).expect("scans");
    assert_eq!(rows.len(), 6);
}
