// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bugs that other tierers are known for, each as the promise that it broke.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::crashing::Crash;
use crate::common::hooked::{Call, Moment, Verdict};
use crate::common::scripted::{Shared, Wish};
use crate::common::world::{
    LONG, ROOMY, World, all_keys, assert_sound, bounded, cutting, eventually, in_parallel, key,
    migrate, outcome_of, put,
};
use terrace_core::{
    ActionKind, Backend, BackendExt, ErrorKind, Key, KvExt, ObjectExt, Open, Outcome, Persistency,
    Semantics, TierIndex,
};
use terrace_stack::{MoveKind, Stack};
use terrace_testkit::Operation;

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);
const KINDS: [MoveKind; 3] = [MoveKind::Move, MoveKind::Promote, MoveKind::Copy];

fn put_at(stack: &Stack, name: &Key, level: Persistency, data: &[u8]) {
    let how = Open::create_new().with_semantics(Semantics::at_level(level));
    stack.open(name, &how).expect("creates").write(0, data).expect("writes");
}

/// Whether a call takes bytes away.
fn destroys(moment: &Moment) -> bool {
    matches!(moment.call, Call::Delete | Call::SetLen | Call::Punch)
}

#[test]
fn a_source_is_freed_only_when_its_target_survives_a_loss_of_power() {
    let world = World::two();
    let stack = world.create();
    let name = key("precious");
    put_at(&stack, &name, Persistency::Storage, &[7; 50_000]);
    let was_destroyed = Arc::new(AtomicBool::new(false));
    let destroyed = was_destroyed.clone();
    let freezer = world.freezer();
    world.tier(0).on(move |moment| {
        if destroys(moment) && !moment.is_done {
            destroyed.store(true, Ordering::SeqCst);
            freezer.freeze();
        }
        Verdict::Go
    });
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    // The machine may stop before the migration is told to have ended.
    let _ = stack.wait(tickets[0], LONG);
    eventually("the source is freed", || was_destroyed.load(Ordering::SeqCst));
    drop(stack);
    world.tier(0).heal();
    world.lose_all_unsynced();
    let stack = world.open();
    assert_eq!(stack.read_all(&name).expect("reads"), [7; 50_000]);
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "slow");
    assert_sound(&world, &stack);
}

#[test]
fn calls_of_a_migration_come_in_the_safe_order() {
    let world = World::two();
    let stack = world.create();
    let name = key("ordered");
    put(&stack, &name, &[7; 50_000]);
    let log: Arc<Mutex<Vec<(usize, Moment)>>> = Arc::default();
    for tier in [0, 1] {
        let log = log.clone();
        world.tier(tier).on(move |moment| {
            log.lock().expect("never poisoned").push((tier, moment.clone()));
            Verdict::Go
        });
    }
    migrate(&stack, &name, SLOW, MoveKind::Move);
    let position = |tier: usize, which: &dyn Fn(&Moment) -> bool| {
        let log = log.lock().expect("never poisoned");
        log.iter().rposition(|(of, moment)| *of == tier && which(moment))
    };
    eventually("the source is freed", || position(0, &|m| m.call == Call::Delete).is_some());
    let written = position(1, &|m| m.call == Call::Write && m.is_done).expect("was written");
    let synced = position(1, &|m| m.call == Call::Sync && m.is_done).expect("was synced");
    let named = position(1, &|m| m.call == Call::SyncAll && m.is_done).expect("name was synced");
    let freed = position(0, &|m| destroys(m) && !m.is_done).expect("was freed");
    assert!(written < synced, "what was written last is synced");
    assert!(synced < freed && named < freed, "the source goes last");
    assert_sound(&world, &stack);
}

/// Reads the object in another thread, as an application would, from inside every call of a
/// migration on either tier.
#[test]
fn an_object_is_there_and_whole_at_every_step_of_a_migration() {
    for kind in KINDS {
        let world = World::two();
        let stack = world.create();
        let name = key("always-there");
        put(&stack, &name, &[7; 20_000]);
        let (problems, looks): (Arc<Mutex<Vec<String>>>, _) = Default::default();
        let looks: Arc<AtomicUsize> = looks;
        let is_looking = Arc::new(AtomicBool::new(false));
        for tier in [0, 1] {
            let (stack, name) = (stack.clone(), name.clone());
            let (problems, looks) = (problems.clone(), looks.clone());
            let is_looking = is_looking.clone();
            world.tier(tier).on(move |moment| {
                // Reading calls the tiers as well.
                if !is_looking.swap(true, Ordering::SeqCst) {
                    let (stack, name) = (stack.clone(), name.clone());
                    let problem =
                        bounded(LONG, "a look during a migration", move || look(&stack, &name));
                    is_looking.store(false, Ordering::SeqCst);
                    looks.fetch_add(1, Ordering::SeqCst);
                    if let Some(problem) = problem {
                        let place = format!("tier {tier}, {moment:?}: {problem}");
                        problems.lock().expect("never poisoned").push(place);
                    }
                }
                Verdict::Go
            });
        }
        let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        assert_eq!(outcome_of(&ended), "done");
        (0..2).for_each(|tier| world.tier(tier).heal());
        let problems = problems.lock().expect("never poisoned");
        assert!(problems.is_empty(), "{kind:?}: {problems:#?}");
        assert!(looks.load(Ordering::SeqCst) > 3, "the steps were seen");
        assert_sound(&world, &stack);
    }
}

fn look(stack: &Stack, name: &Key) -> Option<String> {
    match stack.read_all(name) {
        Ok(data) if data == [7; 20_000] => {}
        Ok(data) => return Some(format!("read {} bytes, some foreign", data.len())),
        Err(error) => return Some(error.chain()),
    }
    match stack.stat(name) {
        Ok(stat) if stat.size_bytes == 20_000 => {}
        other => return Some(format!("{other:?}")),
    }
    (all_keys(stack) != [name.clone()]).then(|| "it is not listed once".into())
}

#[test]
fn bytes_that_did_not_arrive_are_noticed_before_the_source_goes() {
    for kind in KINDS {
        let world = World::two();
        let stack = world.create();
        let name = key("betrayed");
        put(&stack, &name, &[7; 50_000]);
        let has_lied = AtomicBool::new(false);
        world.tier(1).on(move |moment| {
            let is_write = moment.call == Call::Write && !moment.is_done;
            let lies = is_write && !has_lied.swap(true, Ordering::SeqCst);
            if lies { Verdict::Pretend } else { Verdict::Go }
        });
        let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        assert_eq!(stack.read_all(&name).expect("reads"), [7; 50_000], "{kind:?}: {ended:?}");
        if outcome_of(&ended) == "done" {
            // It may have been written again.
            let report = &stack.explain(&name).expect("exists").segments[0];
            let stored = world.stored(1, &report.stored_as);
            assert!(kind == MoveKind::Copy || stored == Some(vec![7; 50_000]));
        }
        world.tier(1).heal();
        assert_sound(&world, &stack);
    }
}

#[test]
fn done_is_not_said_where_the_target_could_not_be_synced() {
    for call in [Call::Sync, Call::SyncAll] {
        let world = World::two();
        let shared = Shared::new();
        let stack = world.create_with(|parts| parts.tactics = Some(shared.tactics("scripted")));
        let name = key("unsynced");
        put(&stack, &name, &[7; 5000]);
        world.tier(1).on(move |moment| {
            if moment.call == call { Verdict::Fail(ErrorKind::Io) } else { Verdict::Go }
        });
        shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
        stack.run_policy().expect("runs");
        assert!(stack.wait_idle(LONG));
        stack.run_policy().expect("runs");
        let receipts: Vec<_> = shared.receipts().iter().map(|receipt| receipt.2).collect();
        assert_eq!(receipts, [Outcome::Io], "{call:?}");
        let report = stack.explain(&name).expect("exists").segments.remove(0);
        assert_eq!(report.tier, "fast");
        assert_eq!(stack.read_all(&name).expect("reads"), [7; 5000]);
        world.tier(1).heal();
        assert_sound(&world, &stack);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        assert_sound(&world, &stack);
    }
}

/// Settling the switch before must not mark the new primary as a copy: the marks are what a
/// catalog is rebuilt from.
#[test]
fn a_move_back_after_an_uncertain_switch_is_marked_as_the_primary() {
    for kind in [MoveKind::Move, MoveKind::Promote] {
        let world = World::two();
        let stack = world.create();
        let name = key("there and back");
        put(&stack, &name, &[7; 5000]);
        let syncs = AtomicUsize::new(0);
        world.tier(1).on(move |moment| {
            // The first is before the switch.
            let is_sync = moment.call == Call::SyncAll && !moment.is_done;
            if is_sync && syncs.fetch_add(1, Ordering::SeqCst) > 0 {
                return Verdict::Fail(ErrorKind::Io);
            }
            Verdict::Go
        });
        let tickets = stack.migrate(&name, SLOW, MoveKind::Promote, 0, "test").expect("queued");
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        assert_eq!(outcome_of(&ended), "io", "{ended:?}");
        world.tier(1).heal();
        migrate(&stack, &name, FAST, kind);
        assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "fast");
        assert_sound(&world, &stack);
        assert_eq!(stack.read_all(&name).expect("reads"), [7; 5000]);
    }
}

/// A file whose sync failed stays failed. A switch that waits for it must not keep the files of an
/// object that is gone.
#[test]
fn an_object_that_is_deleted_after_an_uncertain_switch_leaves_no_file() {
    let world = World::two();
    let stack = world.create();
    let name = key("uncertain");
    put(&stack, &name, &[7; 5000]);
    let syncs = AtomicUsize::new(0);
    world.tier(1).on(move |moment| {
        // The first is before the switch.
        let is_sync = moment.call == Call::Sync && !moment.is_done;
        match is_sync && syncs.fetch_add(1, Ordering::SeqCst) > 0 {
            true => Verdict::Fail(ErrorKind::Io),
            false => Verdict::Go,
        }
    });
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&ended), "io", "{ended:?}");
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "slow");
    stack.delete(&name).expect("deletes");
    let is_empty = || stack.tiers().iter().all(|tier| tier.garbage_bytes == 0);
    eventually("its files are deleted", is_empty);
    world.tier(1).heal();
    assert_sound(&world, &stack);
}

/// A copy that becomes the primary is the same file: who reads it since before keeps it.
#[test]
fn a_reader_of_a_copy_keeps_it_when_it_becomes_the_primary_and_moves_away() {
    let world = World::two();
    let stack = world.create();
    let name = key("read");
    put(&stack, &name, &[7; 5000]);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    migrate(&stack, &name, FAST, MoveKind::Copy);
    let reads = AtomicUsize::new(0);
    world.tier(0).hold(move |moment| {
        let is_read = moment.call == Call::Read && !moment.is_done;
        is_read && reads.fetch_add(1, Ordering::SeqCst) == 0
    });
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| stack.read_all(&name));
        world.tier(0).wait_until_held();
        migrate(&stack, &name, FAST, MoveKind::Move);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        // Once another file was deleted, this one was looked at, too.
        put(&stack, &key("other"), &[1; 300]);
        stack.delete(&key("other")).expect("deletes");
        let is_other_gone = || [5000, 0].contains(&stack.tiers()[0].garbage_bytes);
        eventually("the other file is deleted", is_other_gone);
        assert_eq!(stack.tiers()[0].garbage_bytes, 5000, "it is there still");
        world.tier(0).release();
        assert_eq!(reader.join().expect("no panic").expect("reads"), [7; 5000]);
    });
    assert_sound(&world, &stack);
}

/// The catalog loses the last moves, the marks on the files need not.
#[test]
fn marks_follow_the_catalog_after_a_loss_of_power() {
    let seeds: Vec<_> = (0..40).collect();
    in_parallel(seeds, |seed| {
        let world = World::two();
        let stack = world.create();
        let name = key("there and back");
        put(&stack, &name, &[7; 5000]);
        migrate(&stack, &name, SLOW, MoveKind::Promote);
        for back in 0..1 + seed % 3 {
            migrate(&stack, &name, [FAST, SLOW][back as usize % 2], MoveKind::Promote);
        }
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Power { seed });
        let stack = world.open();
        assert_eq!(stack.read_all(&name).expect("reads"), [7; 5000]);
        assert_sound(&world, &stack);
    });
}

#[test]
fn a_file_of_nobody_is_reported_and_neither_deleted_nor_in_the_way() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("own"), &[1; 100]);
    stack.close().expect("closes");
    drop(stack);
    let foreign = [Key::new("seg", "0000000000000099.0.1"), Key::new("holiday", "photo.jpg")];
    let foreign = foreign.map(|name| name.expect("legal"));
    let disk = world.disk(1).open();
    for name in &foreign {
        disk.write_all(name, b"somebody else's").expect("writes");
    }
    let stack = world.open();
    let check = stack.check(true, &mut |_, _| {}).expect("checks");
    let findings: Vec<_> = check.problems.iter().chain(&check.notes).collect();
    assert!(
        findings.iter().any(|finding| finding.kind == "unknown-file"
            && (finding.place.contains("0000000000000099.0.1")
                || finding.detail.contains("0000000000000099.0.1"))),
        "{check:?}"
    );
    migrate(&stack, &key("own"), SLOW, MoveKind::Move);
    for index in 0..20 {
        let name = key(&format!("more-{index}"));
        put(&stack, &name, &[2; 10]);
        migrate(&stack, &name, SLOW, MoveKind::Move);
    }
    stack.close().expect("closes");
    let disk = world.disk(1).open();
    for name in &foreign {
        assert_eq!(disk.read_all(name).expect("is still there"), b"somebody else's");
    }
}

#[test]
fn a_mover_does_not_spin_on_a_full_disk() {
    let world = World::two();
    let stack = world.create();
    let names: Vec<_> = (0..5).map(|index| key(&format!("no-room-{index}"))).collect();
    names.iter().for_each(|name| put(&stack, name, &[7; 20_000]));
    world.disk(1).fill(1000);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    world.tier(1).on(move |moment| {
        if matches!(moment.call, Call::Create | Call::Write | Call::Allocate) && !moment.is_done {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        Verdict::Go
    });
    for name in &names {
        let tickets = stack.migrate(name, SLOW, MoveKind::Move, 0, "test").expect("queued");
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        assert_eq!(outcome_of(&ended), "no-space");
    }
    assert!(stack.wait_idle(LONG));
    let attempts = calls.load(Ordering::SeqCst);
    assert!(attempts <= names.len() * 4, "{attempts} calls for {} migrations", names.len());
    // Nothing goes on by itself: work on the other tier calls this one no more.
    for name in &names {
        assert_eq!(stack.read_all(name).expect("reads"), [7; 20_000]);
    }
    assert_eq!(calls.load(Ordering::SeqCst), attempts);
    world.disk(1).fill(u64::MAX);
    assert_sound(&world, &stack);
    names.iter().for_each(|name| migrate(&stack, name, SLOW, MoveKind::Move));
    assert_sound(&world, &stack);
}

#[test]
fn a_policy_that_wants_what_does_not_fit_costs_the_disk_nothing() {
    let world = World::with(&[
        ("fast", ROOMY, Persistency::Storage),
        ("slow", 10_000, Persistency::Storage),
    ]);
    let shared = Shared::new();
    let stack = world.create_with(|parts| parts.tactics = Some(shared.tactics("scripted")));
    let name = key("too-large");
    put(&stack, &name, &[7; 20_000]);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    world.tier(1).on(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        Verdict::Go
    });
    for _ in 0..50 {
        shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
        stack.run_policy().expect("runs");
        assert!(stack.wait_idle(LONG));
    }
    stack.run_policy().expect("runs");
    assert!(shared.receipts().iter().all(|receipt| receipt.2 == Outcome::NoSpace));
    assert_eq!(shared.receipts().len(), 50);
    assert_eq!(calls.load(Ordering::SeqCst), 0, "the accounting knows without asking the disk");
    assert_sound(&world, &stack);
}

#[test]
fn dirty_data_is_never_evicted() {
    let world = World::with(&[
        ("fast", 100_000, Persistency::Storage),
        ("slow", ROOMY, Persistency::Storage),
    ]);
    let stack = world.create();
    let dirty = key("dirty");
    put(&stack, &dirty, &[1; 30_000]);
    migrate(&stack, &dirty, SLOW, MoveKind::Move);
    migrate(&stack, &dirty, FAST, MoveKind::Promote);
    assert_eq!(stack.explain(&dirty).expect("exists").segments[0].copies, ["slow"]);
    stack.open(&dirty, &Open::write()).expect("opens").write(0, &[2; 30_000]).expect("writes");
    // From here on the only valid bytes are on the fast tier, which fills up.
    for index in 0..10 {
        put(&stack, &key(&format!("pressure-{index}")), &[3; 30_000]);
    }
    let error = stack.drop_copy(&dirty, FAST).expect_err("it is no copy").kind();
    assert!([ErrorKind::Invalid, ErrorKind::NotFound].contains(&error), "{error:?}");
    assert_eq!(stack.read_all(&dirty).expect("reads"), [2; 30_000]);
    assert_sound(&world, &stack);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    assert_eq!(stack.read_all(&dirty).expect("reads"), [2; 30_000]);
    assert_sound(&world, &stack);
}

#[test]
fn clean_copies_make_room_for_new_data() {
    let world = World::with(&[
        ("fast", 100_000, Persistency::Storage),
        ("slow", ROOMY, Persistency::Storage),
    ]);
    let stack = world.create();
    for index in 0..3 {
        let name = key(&format!("copied-{index}"));
        put(&stack, &name, &[1; 25_000]);
        migrate(&stack, &name, SLOW, MoveKind::Promote);
        assert_eq!(stack.explain(&name).expect("exists").segments[0].copies, ["fast"]);
    }
    put(&stack, &key("new"), &[2; 60_000]);
    let new = stack.explain(&key("new")).expect("exists");
    assert!(new.segments.iter().all(|segment| segment.tier == "fast"), "{new:?}");
    for index in 0..3 {
        let data = stack.read_all(&key(&format!("copied-{index}"))).expect("reads");
        assert_eq!(data, [1; 25_000]);
    }
    assert_sound(&world, &stack);
}

#[test]
fn promised_data_never_lives_in_memory_alone() {
    let world =
        World::with(&[("memory", ROOMY, Persistency::None), ("disk", ROOMY, Persistency::Storage)]);
    let stack = world.create();
    let name = key("promised");
    put(&stack, &name, &[1; 5000]);
    let (memory, disk) = (TierIndex(0), TierIndex(1));
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "disk");
    for kind in [MoveKind::Move, MoveKind::Promote] {
        match stack.migrate(&name, memory, kind, 0, "test") {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
            Ok(tickets) => {
                let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
                assert_eq!(outcome_of(&ended), "too-weak");
            }
        }
    }
    migrate(&stack, &name, memory, MoveKind::Copy);
    assert_eq!(stack.explain(&name).expect("exists").segments[0].copies, ["memory"]);
    assert_eq!(stack.tier("disk").expect("known"), disk);
    world.failpoints().freeze();
    drop(stack);
    world.crash(crate::common::crashing::Crash::Process);
    let stack = world.open();
    assert_eq!(stack.read_all(&name).expect("reads"), [1; 5000]);
    assert_eq!(stack.explain(&name).expect("exists").segments[0].copies, [""; 0]);
    assert_sound(&world, &stack);
}

#[test]
fn a_device_that_never_comes_back_stops_only_what_needs_it() {
    let world = World::three();
    let stack = world.create();
    let names: Vec<_> = (0..8).map(|index| key(&format!("stuck-{index}"))).collect();
    names.iter().for_each(|name| put(&stack, name, &[7; 5000]));
    put(&stack, &key("other"), &[8; 5000]);
    world.disk(1).hang();
    let mut tickets = Vec::new();
    for name in &names {
        tickets.extend(stack.migrate(name, SLOW, MoveKind::Move, 0, "test").expect("queued"));
    }
    world.disk(1).wait_until_hanging(1);
    let user = stack.clone();
    let read = names.clone();
    bounded(LONG, "work beside a device that hangs", move || {
        for name in &read {
            assert_eq!(user.read_all(name).expect("reads"), [7; 5000]);
            let object = user.open(name, &Open::write()).expect("opens");
            object.write(0, &[9; 100]).expect("writes");
        }
        put(&user, &key("new"), &[1; 100]);
        user.delete(&key("new")).expect("deletes");
        assert_eq!(all_keys(&user).len(), 9);
    });
    let mover = stack.clone();
    bounded(LONG, "a migration between the other tiers", move || {
        migrate(&mover, &key("other"), TierIndex(2), MoveKind::Move);
    });
    let canceller = stack.clone();
    let cancelled = bounded(LONG, "cancel", move || canceller.cancel_all());
    assert_eq!(cancelled, names.len());
    let closing = stack.clone();
    // Whether a close beside a dead device is a success is its own decision; that it ends is not.
    bounded(LONG, "close", move || drop(closing.close()));
    bounded(LONG, "drop", move || drop(stack));
    world.failpoints().freeze();
    world.crash(crate::common::crashing::Crash::Process);
    let stack = world.open();
    for name in &names {
        let mut expected = vec![7; 5000];
        expected[..100].fill(9);
        assert_eq!(stack.read_all(name).expect("reads"), expected);
    }
    assert_eq!(stack.read_all(&key("other")).expect("reads"), [8; 5000]);
    assert_sound(&world, &stack);
}

#[test]
fn a_device_that_comes_back_late_is_used_again() {
    let world = World::two();
    let stack = world.create();
    let name = key("patient");
    put(&stack, &name, &[7; 5000]);
    world.disk(1).hang();
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    world.disk(1).wait_until_hanging(1);
    let waiting = stack.wait(tickets[0], std::time::Duration::from_millis(20)).expect("known");
    assert_eq!(waiting, None);
    world.disk(1).release();
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&ended), "done");
    assert_sound(&world, &stack);
}

#[test]
fn a_failed_delete_of_a_source_is_tried_again_and_blocks_nobody() {
    let world = World::two();
    let stack = world.create();
    let name = key("sticky");
    put(&stack, &name, &[7; 5000]);
    world.disk(0).fail_next(Operation::Delete, ErrorKind::Io);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_eq!(stack.read_all(&name).expect("reads"), [7; 5000]);
    stack.delete(&name).expect("deletes");
    put(&stack, &name, &[8; 600]);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    assert_eq!(stack.read_all(&name).expect("reads"), [8; 600]);
    assert_sound(&world, &stack);
}

#[test]
fn a_failed_sync_is_never_tried_again_as_if_it_had_worked() {
    let world = World::two();
    let stack = world.create();
    let name = key("unsynced");
    put(&stack, &name, &[7; 5000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    world.disk(0).fail_next(Operation::Sync, ErrorKind::Io);
    object.write(0, &[8; 100]).expect("writes");
    assert_eq!(object.sync().expect_err("fails").kind(), ErrorKind::Io);
    assert_eq!(object.sync().expect_err("is sticky").kind(), ErrorKind::Io);
    assert_eq!(object.sync().expect_err("is sticky").kind(), ErrorKind::Io);
}

#[test]
fn a_failed_sync_is_sticky_although_the_object_moves() {
    let world = World::two();
    let stack = world.create();
    let name = key("unsynced");
    put(&stack, &name, &[7; 5000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    world.disk(0).fail_next(Operation::Sync, ErrorKind::Io);
    object.write(0, &[8; 100]).expect("writes");
    assert_eq!(object.sync().expect_err("fails").kind(), ErrorKind::Io);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_eq!(object.sync().expect_err("is sticky").kind(), ErrorKind::Io);
    let other = stack.open(&name, &Open::write()).expect("opens");
    other.sync().expect("another handle begins anew, on a file that was synced");
}

/// A crash between making a file and saying whose it is.
#[test]
fn an_empty_file_without_identity_is_no_leftover_for_ever() {
    for is_empty in [true, false] {
        let world = World::two();
        let stack = world.create();
        put(&stack, &key("kept"), &[1; 1000]);
        let name = Key::new("seg", "00000000000fffff.0.fffff").expect("legal");
        let file = world.disk(1).open().open(&name, &Open::create_new()).expect("creates");
        if !is_empty {
            file.write(0, b"whose?").expect("writes");
        }
        drop(file);
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Process);
        let stack = world.open();
        assert_eq!(world.stored(1, "seg/00000000000fffff.0.fffff").is_none(), is_empty);
        let check = stack.check(true, &mut |_, _| {}).expect("checks");
        // Bytes of somebody else are not deleted, and reported.
        assert_eq!(check.problems.is_empty(), is_empty, "{check:?}");
        assert_eq!(stack.read_all(&key("kept")).expect("reads"), [1; 1000]);
    }
}

/// How a new segment cannot be made certain: its name, its record, the record's sync.
const GROWTH_FAULTS: [Operation; 3] =
    [Operation::SyncNames, Operation::KvCommit, Operation::KvWait];

fn fail_next(world: &World, tier: usize, operation: Operation) {
    match operation {
        Operation::SyncNames => world.disk(tier).fail_next(operation, ErrorKind::Io),
        _ => world.kv().fail_next(operation, ErrorKind::Io),
    }
}

#[test]
fn a_segment_that_could_not_be_added_leaves_no_file() {
    for operation in GROWTH_FAULTS {
        let world = World::two();
        let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
        let name = key("growing");
        put_at(&stack, &name, Persistency::Storage, &[1; 4096]);
        fail_next(&world, 0, operation);
        let object = stack.open(&name, &Open::write()).expect("opens");
        let error = object.write(4096, &[2; 100]).expect_err("the segment cannot be added");
        assert_eq!(error.kind(), ErrorKind::Io, "{operation:?}");
        drop((object, stack));
        // The failed sync of a commit is sticky until the process ends.
        world.crash(Crash::Process);
        let stack = world.open();
        let object = stack.open(&name, &Open::write()).expect("opens");
        object.write(4096, &[2; 100]).expect("writes");
        drop(object);
        let expected = [[1; 4096].as_slice(), &[2; 100]].concat();
        assert_eq!(stack.read_all(&name).expect("reads"), expected, "{operation:?}");
        assert_sound(&world, &stack);
        assert_eq!(world.disk(0).files().len(), 2, "{operation:?}");
    }
}

#[test]
fn an_empty_object_that_could_not_be_put_elsewhere_leaves_no_file_and_stays_usable() {
    for operation in GROWTH_FAULTS {
        let tiers = [("fast", 20_000, Persistency::Storage), ("slow", ROOMY, Persistency::Storage)];
        let world = World::with(&tiers);
        let stack = world.create();
        let name = key("empty");
        put_at(&stack, &name, Persistency::Storage, b"");
        put(&stack, &key("filler"), &[1; 15_000]);
        let object = stack.open(&name, &Open::write()).expect("opens");
        fail_next(&world, 1, operation);
        let error = object.write(0, &[2; 10_000]).expect_err("it cannot be put elsewhere");
        assert_eq!(error.kind(), ErrorKind::Io, "{operation:?}");
        // It is still where it was; what fits there is kept over a crash of the process, whatever
        // became of the commit that failed.
        object.write(0, &[3; 1000]).expect("fits");
        drop(object);
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Process);
        let stack = world.open();
        assert_eq!(stack.read_all(&name).expect("reads"), [3; 1000], "{operation:?}");
        assert_sound(&world, &stack);
        assert_eq!(world.disk(1).files().len(), 0, "{operation:?}");
    }
}

/// A commit that failed may have been written all the same: here the one that supersedes a file
/// which the store then went on to use.
#[test]
fn a_file_in_use_is_no_garbage_whatever_a_failed_commit_says() {
    let world = World::two();
    let stack = world.create();
    let name = key("in-use");
    put_at(&stack, &name, Persistency::Storage, &[7; 5000]);
    world.kv().fail_next(Operation::KvCommit, ErrorKind::Io);
    stack.pin(&name).expect_err("the commit fails");
    let object_id = stack.explain(&name).expect("exists").object_id;
    // Tier, object, segment, file and bytes; an object's first file bears the object's number.
    let mut row = vec![1, 0];
    row.extend(object_id.to_le_bytes());
    row.extend(0_u32.to_le_bytes());
    row.extend(object_id.to_le_bytes());
    row.extend(5000_u64.to_le_bytes());
    row.extend(crc32c::crc32c(&row).to_le_bytes());
    let row_key = [b"g".as_slice(), &object_id.to_be_bytes()].concat();
    let ticket = world.kv().open().put(&row_key, &row).expect("puts");
    world.kv().open().wait(ticket).expect("waits");
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    assert!(!stack.opening_notes().is_empty(), "a failed commit makes the next opening compare");
    stack.close().expect("closes");
    drop(stack);
    assert!(world.kv().pairs().iter().all(|(key, _)| *key != row_key), "the row is gone");
    let stack = world.open();
    assert_eq!(stack.read_all(&name).expect("reads"), [7; 5000]);
    assert_sound(&world, &stack);
}

/// An empty object is put elsewhere when its tier has no room for the first bytes, also while a
/// migration of it waits for its target.
#[test]
fn a_move_accounts_for_the_tier_that_it_really_leaves() {
    let tiers = [
        ("fast", 20_000, Persistency::Storage),
        ("slow", ROOMY, Persistency::Storage),
        ("third", ROOMY, Persistency::Storage),
    ];
    let world = World::with(&tiers);
    let stack = world.create();
    let name = key("put-elsewhere");
    put(&stack, &name, b"");
    put(&stack, &key("filler"), &[1; 15_000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    world.tier(2).hold(|moment| moment.call == Call::Create && !moment.is_done);
    let tickets = stack.migrate(&name, TierIndex(2), MoveKind::Move, 0, "test").expect("queued");
    world.tier(2).wait_until_held();
    object.write(0, &[2; 10_000]).expect("goes to the second tier");
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "slow");
    world.tier(2).release();
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&ended), "stale");
    drop(object);
    assert_eq!(stack.read_all(&name).expect("reads"), [2; 10_000]);
    assert_sound(&world, &stack);
    migrate(&stack, &name, TierIndex(2), MoveKind::Move);
    assert_sound(&world, &stack);
}

/// What moves while the records are read is counted where it was, and accounted for where it is.
#[test]
fn a_migration_while_a_store_is_checked_is_no_damage() {
    let world = World::two();
    let stack = world.create();
    // More than are checked before somebody is told how far it is.
    let names: Vec<_> = (0..300).map(|number| key(&format!("{number:03}"))).collect();
    for name in &names {
        put(&stack, name, &[7; 100]);
    }
    let mut told = 0;
    let mut progress = |_, _| {
        told += 1;
        if told == 1 {
            migrate(&stack, &names[0], SLOW, MoveKind::Move);
        }
    };
    let report = stack.check(true, &mut progress).expect("checks");
    assert!(told > 1, "it was told in between");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(report.notes.iter().any(|note| note.kind == "in-use"), "{:?}", report.notes);
    assert_sound(&world, &stack);
}
