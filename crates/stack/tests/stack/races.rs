// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications and migrations at the same time, each interleaving forced by a hook.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use crate::common::crashing::Crash;
use crate::common::hooked::{Call, Verdict};
use crate::common::pattern::{STAMP_BYTES, stamped};
use crate::common::world::{
    LONG, ROOMY, World, all_keys, assert_sound, bounded, eventually, key, migrate, open_durable,
    outcome_of, put,
};
use terrace_core::{
    Backend, BackendExt, End, ErrorKind, Key, Object, ObjectExt, Open, Persistency, TierIndex,
};
use terrace_stack::{MoveKind, Stack};

const SLOW: TierIndex = TierIndex(1);
const KINDS: [MoveKind; 3] = [MoveKind::Move, MoveKind::Promote, MoveKind::Copy];

/// Calls on the target of a migration at which it can be held.
const STAGES: [Call; 3] = [Call::Create, Call::Write, Call::Sync];

#[test]
fn a_write_in_flight_when_a_migration_begins_is_not_lost() {
    for kind in KINDS {
        for is_done in [false, true] {
            let world = World::two();
            let stack = world.create();
            let name = key("in-flight");
            put(&stack, &name, &stamped(1, 1, 0, 8192));
            let handle = stack.open(&name, &Open::write()).expect("opens");
            world.tier(0).hold(move |moment| {
                moment.call == Call::Write
                    && moment.offset_bytes == 4096
                    && moment.is_done == is_done
            });
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| handle.write(4096, &stamped(1, 2, 4096, 1024)));
                world.tier(0).wait_until_held();
                let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
                // Long enough for a migration that does not wait for the writer to end.
                let early = stack.wait(tickets[0], Duration::from_millis(100)).expect("known");
                let early = early.and_then(|report| report.outcome);
                assert_ne!(early.as_deref(), Some("done"), "{kind:?} overtook a writer");
                world.tier(0).release();
                writer.join().expect("no panic").expect("writes");
                stack.wait(tickets[0], LONG).expect("known").expect("ends");
            });
            let mut expected = stamped(1, 1, 0, 8192);
            expected[4096..5120].copy_from_slice(&stamped(1, 2, 4096, 1024));
            assert_eq!(stack.read_all(&name).expect("reads"), expected, "{kind:?} {is_done}");
            drop(handle);
            assert_sound(&world, &stack);
            assert_same_after_reopening(&world, stack, &name, &expected);
        }
    }
}

/// What applications do to an object while it is copied.
type Change = fn(&dyn Object, &mut Vec<u8>);

const CHANGES: [(&str, Change); 9] = [
    ("write", |object, model| {
        object.write(100, &[9; 300]).expect("writes");
        model[100..400].fill(9);
    }),
    ("write over the end", |object, model| {
        let at = model.len() - 10;
        object.write(at as u64, &[8; 5000]).expect("writes");
        model.resize(at + 5000, 0);
        model[at..].fill(8);
    }),
    ("write far behind the end", |object, model| {
        object.write(50_000, &[8; 100]).expect("writes");
        model.resize(50_000, 0);
        model.extend([8; 100]);
    }),
    ("append", |object, model| {
        let at = object.append(&[std::io::IoSlice::new(&[7; 4000])]).expect("appends");
        assert_eq!(at, model.len() as u64);
        model.extend([7; 4000]);
    }),
    ("truncate", |object, model| {
        object.set_len(1000).expect("cuts");
        model.truncate(1000);
    }),
    ("truncate and write", |object, model| {
        object.set_len(0).expect("cuts");
        object.write(0, &[6; 777]).expect("writes");
        *model = vec![6; 777];
    }),
    ("truncate and grow", |object, model| {
        object.set_len(10).expect("cuts");
        object.set_len(15_000).expect("grows");
        model.truncate(10);
        model.resize(15_000, 0);
    }),
    ("punch", |object, model| {
        object.punch(0..8192).expect("punches");
        model[..8192].fill(0);
    }),
    ("allocate", |object, model| {
        object.allocate(0..20_000, End::Grows).expect("allocates");
        model.resize(20_000, 0);
    }),
];

#[test]
fn what_changes_during_a_copy_is_copied_too() {
    for kind in KINDS {
        for stage in STAGES {
            for (what, change) in CHANGES {
                let world = World::two();
                let stack = world.create();
                let name = key("changed");
                let mut model = stamped(1, 1, 0, 12 << 10);
                put(&stack, &name, &model);
                let handle: Arc<dyn Object> =
                    stack.open(&name, &Open::write()).expect("opens").into();
                world.tier(1).hold(move |moment| moment.call == stage && moment.is_done);
                let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
                world.tier(1).wait_until_held();
                let (object, before) = (handle.clone(), model);
                model = bounded(LONG, "a change during a copy", move || {
                    let mut model = before;
                    change(&*object, &mut model);
                    model
                });
                world.tier(1).release();
                let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
                let outcome = outcome_of(&ended);
                let is_copy = kind == MoveKind::Copy;
                // A copy under construction may give up when something was written.
                assert!(outcome == "done" || is_copy, "{what} {kind:?} at {stage:?}: {ended:?}");
                let found = stack.read_all(&name).expect("reads");
                let difference = crate::common::pattern::difference(&found, &model);
                assert!(found == model, "{what} during {kind:?} at {stage:?}: {difference}");
                assert_eq!(stack.stat(&name).expect("is there").size_bytes, model.len() as u64);
                drop(handle);
                assert_sound(&world, &stack);
                assert_same_after_reopening(&world, stack, &name, &model);
            }
        }
    }
}

fn assert_same_after_reopening(world: &World, stack: Stack, name: &Key, model: &[u8]) {
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    let found = stack.read_all(name).expect("reads");
    assert!(
        found == model,
        "after reopening: {}",
        crate::common::pattern::difference(&found, model)
    );
    assert_sound(world, &stack);
}

/// Makes the second `Sync` of the target, that of the switch that is to become certain, or the first
/// of the source, which is to stay as a copy.
fn hold_settling(world: &World, kind: MoveKind) -> usize {
    let (tier, which) = match kind {
        MoveKind::Promote => (0, 1),
        _ => (1, 2),
    };
    let syncs = AtomicU64::new(0);
    world.tier(tier).hold(move |moment| {
        let is_sync = moment.call == Call::Sync && !moment.is_done;
        is_sync && syncs.fetch_add(1, Ordering::SeqCst) + 1 >= which
    });
    tier
}

#[test]
fn whoever_changes_what_has_just_moved_waits_for_no_device() {
    for kind in [MoveKind::Move, MoveKind::Promote] {
        for (what, change) in CHANGES {
            let world = World::two();
            let stack = world.create();
            let name = key("moved");
            let mut model = stamped(1, 1, 0, 8192);
            put(&stack, &name, &model);
            let object = stack.open(&name, &Open::write()).expect("opens");
            let tier = hold_settling(&world, kind);
            let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
            world.tier(tier).wait_until_held();
            let changed = bounded(LONG, what, move || {
                change(&*object, &mut model);
                model
            });
            assert!(world.tier(tier).is_holding(), "{kind:?}: {what}");
            assert_eq!(stack.read_all(&name).expect("reads"), changed, "{kind:?}: {what}");
            let copies = stack.explain(&name).expect("is there").segments[0].copies.clone();
            assert!(copies.is_empty(), "{kind:?}: {what}: {copies:?}");
            world.tier(tier).release();
            stack.wait(tickets[0], LONG).expect("known").expect("ends");
            assert_sound(&world, &stack);
            let tiers = stack.tiers();
            assert_eq!((tiers[0].used_bytes, tiers[0].copy_bytes), (0, 0), "{kind:?}: {what}");
            assert_same_after_reopening(&world, stack, &name, &changed);
        }
    }
}

#[test]
fn a_copy_is_given_up_or_fresh_but_never_old() {
    for stage in STAGES {
        let world = World::two();
        let stack = world.create();
        let name = key("copied");
        put(&stack, &name, &stamped(1, 1, 0, 4096));
        let handle = stack.open(&name, &Open::write()).expect("opens");
        world.tier(1).hold(move |moment| moment.call == stage && moment.is_done);
        let tickets = stack.migrate(&name, SLOW, MoveKind::Copy, 0, "test").expect("queued");
        world.tier(1).wait_until_held();
        handle.write(0, &stamped(1, 2, 0, 4096)).expect("writes");
        world.tier(1).release();
        stack.wait(tickets[0], LONG).expect("known").expect("ends");
        drop(handle);
        // Whatever became of the copy: a later move to its tier must bring the new bytes there.
        migrate(&stack, &name, SLOW, MoveKind::Move);
        assert_eq!(stack.read_all(&name).expect("reads"), stamped(1, 2, 0, 4096), "{stage:?}");
        assert_sound(&world, &stack);
    }
}

#[test]
fn the_first_write_removes_copies_before_it_is_done() {
    let world = World::two();
    let stack = world.create();
    let name = key("has-a-copy");
    put(&stack, &name, &stamped(1, 1, 0, 4096));
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    assert_eq!(stack.explain(&name).expect("exists").segments[0].copies, ["slow"]);
    let handle = stack.open(&name, &Open::write()).expect("opens");
    assert_eq!(
        stack.explain(&name).expect("exists").segments[0].copies,
        ["slow"],
        "opening for writing alone drops no copy"
    );
    let seen = Arc::new(Mutex::new(None));
    let (watcher, watched, watched_name) = (seen.clone(), stack.clone(), name.clone());
    world.tier(0).on(move |moment| {
        if moment.call == Call::Write && !moment.is_done {
            let copies = watched.explain(&watched_name).map(|e| e.segments[0].copies.clone());
            *watcher.lock().expect("never poisoned") = copies.ok();
        }
        Verdict::Go
    });
    handle.write(0, &stamped(1, 2, 0, 1024)).expect("writes");
    world.tier(0).release();
    let seen = seen.lock().expect("never poisoned").take();
    assert_eq!(seen, Some(Vec::new()), "no copy was left when the data write was issued");
    drop(handle);
    assert_sound(&world, &stack);
}

#[test]
fn a_reader_never_waits_for_a_migration() {
    for kind in KINDS {
        for stage in STAGES.into_iter().chain([Call::SetIdentity]) {
            let world = World::two();
            let stack = world.create();
            let name = key("read-meanwhile");
            put(&stack, &name, &[4; 10_000]);
            let handle = stack.open(&name, &Open::read()).expect("opens");
            world.tier(1).hold(move |moment| moment.call == stage && !moment.is_done);
            let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
            // Not every kind of migration passes every stage.
            while stack.wait(tickets[0], Duration::from_millis(10)).expect("known").is_none()
                && !world.tier(1).is_holding()
            {}
            let reader = stack.clone();
            let read = name.clone();
            bounded(LONG, "a read beside a held migration", move || {
                assert_eq!(handle.read_to_end().expect("reads"), [4; 10_000]);
                assert_eq!(reader.read_all(&read).expect("opens and reads"), [4; 10_000]);
                assert_eq!(reader.stat(&read).expect("is there").size_bytes, 10_000);
                assert_eq!(all_keys(&reader), [read]);
            });
            world.tier(1).release();
            stack.wait(tickets[0], LONG).expect("known").expect("ends");
            assert_sound(&world, &stack);
        }
    }
}

#[test]
fn a_writer_never_waits_for_the_target_of_a_migration() {
    for kind in KINDS {
        for stage in STAGES {
            let world = World::two();
            let stack = world.create();
            let name = key("written-meanwhile");
            put(&stack, &name, &[4; 10_000]);
            let handle: Arc<dyn Object> = stack.open(&name, &Open::write()).expect("opens").into();
            world.tier(1).hold(move |moment| moment.call == stage && !moment.is_done);
            let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
            world.tier(1).wait_until_held();
            let writer = handle.clone();
            bounded(LONG, "a write beside a held migration", move || {
                writer.write(0, &[5; 10_000]).expect("writes");
            });
            world.tier(1).release();
            stack.wait(tickets[0], LONG).expect("known").expect("ends");
            assert_eq!(handle.read_to_end().expect("reads"), [5; 10_000], "{kind:?} {stage:?}");
            drop(handle);
            assert_sound(&world, &stack);
        }
    }
}

#[test]
fn a_stubborn_writer_ends_a_migration_and_not_the_other_way_round() {
    let world = World::two();
    let stack = world.create();
    let name = key("stubborn");
    put(&stack, &name, &[4; 4096]);
    let handle: Arc<dyn Object> = stack.open(&name, &Open::write()).expect("opens").into();
    // The writer stays inside the tier for as long as the migration tries.
    world.tier(1).hold(|moment| moment.call == Call::Sync && !moment.is_done);
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    world.tier(1).wait_until_held();
    world.tier(0).hold(|moment| moment.call == Call::Write && moment.offset_bytes == 4096);
    let writer = handle.clone();
    let thread = std::thread::spawn(move || writer.write(4096, &[5; 10]));
    world.tier(0).wait_until_held();
    world.tier(1).release();
    let early = stack.wait(tickets[0], Duration::from_millis(300)).expect("known");
    let other = handle.clone();
    bounded(LONG, "another writer of the same object", move || {
        other.write(0, &[6; 10]).expect("writes");
    });
    world.tier(0).release();
    thread.join().expect("no panic").expect("writes");
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    if let Some(early) = early {
        assert_eq!(outcome_of(&early), "hot-write", "{early:?}");
    }
    assert!(["done", "hot-write"].contains(&outcome_of(&ended)), "{ended:?}");
    let data = handle.read_to_end().expect("reads");
    assert_eq!(
        (&data[..10], &data[10..4096], &data[4096..]),
        (&[6; 10][..], &[4; 4086][..], &[5; 10][..])
    );
    drop(handle);
    assert_sound(&world, &stack);
}

#[test]
fn two_migrations_of_one_object_do_not_meet() {
    for stage in STAGES {
        let world = World::three();
        let stack = world.create();
        let name = key("wanted-twice");
        put(&stack, &name, &[4; 5000]);
        world.tier(1).hold(move |moment| moment.call == stage && !moment.is_done);
        let first = stack.migrate(&name, SLOW, MoveKind::Move, 0, "first").expect("queued");
        world.tier(1).wait_until_held();
        match stack.migrate(&name, TierIndex(2), MoveKind::Move, 0, "second") {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            Ok(second) => {
                let ended = stack.wait(second[0], LONG).expect("known").expect("ends");
                assert_eq!(outcome_of(&ended), "busy");
            }
        }
        world.tier(1).release();
        let ended = stack.wait(first[0], LONG).expect("known").expect("ends");
        assert_eq!(outcome_of(&ended), "done");
        assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "slow");
        assert_eq!(stack.read_all(&name).expect("reads"), [4; 5000]);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_delete_during_a_migration_wins() {
    for kind in KINDS {
        for stage in STAGES {
            for is_recreated in [false, true] {
                let world = World::two();
                let stack = world.create();
                let name = key("deleted-meanwhile");
                put(&stack, &name, &stamped(1, 1, 0, 4096));
                world.tier(1).hold(move |moment| moment.call == stage && !moment.is_done);
                let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
                world.tier(1).wait_until_held();
                let (deleter, deleted) = (stack.clone(), name.clone());
                bounded(LONG, "a delete beside a held migration", move || {
                    deleter.delete(&deleted).expect("deletes");
                    assert_eq!(
                        deleter.stat(&deleted).expect_err("gone").kind(),
                        ErrorKind::NotFound
                    );
                    if is_recreated {
                        put(&deleter, &deleted, &stamped(2, 1, 0, 2048));
                    }
                });
                world.tier(1).release();
                let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
                assert!(["cancelled", "stale"].contains(&outcome_of(&ended)), "{ended:?}");
                if is_recreated {
                    assert_eq!(stack.read_all(&name).expect("reads"), stamped(2, 1, 0, 2048));
                    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "fast");
                    migrate(&stack, &name, SLOW, kind);
                    assert_eq!(stack.read_all(&name).expect("reads"), stamped(2, 1, 0, 2048));
                } else {
                    assert_eq!(all_keys(&stack), []);
                }
                assert_sound(&world, &stack);
            }
        }
    }
}

#[test]
fn a_handle_of_a_deleted_object_never_reads_another() {
    let world = World::two();
    let stack = world.create();
    let name = key("reborn");
    put(&stack, &name, &stamped(1, 1, 0, 4096));
    let old = stack.open(&name, &Open::write()).expect("opens");
    stack.delete(&name).expect("deletes");
    put(&stack, &name, &stamped(2, 1, 0, 4096));
    migrate(&stack, &name, SLOW, MoveKind::Move);
    let mut buffer = vec![0; 4096];
    match old.read(0, &mut buffer) {
        Ok(count) => assert_eq!(buffer[..count], stamped(1, 1, 0, 4096)[..count]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    // Writing through it may succeed, but reaches nobody.
    let _ = old.write(0, &stamped(1, 2, 0, 1024));
    assert_eq!(stack.read_all(&name).expect("reads"), stamped(2, 1, 0, 4096));
    drop(old);
    assert_sound(&world, &stack);
}

#[test]
fn a_cancelled_migration_leaves_nothing_behind() {
    for kind in KINDS {
        for stage in STAGES {
            let world = World::two();
            let stack = world.create();
            let name = key("cancelled");
            put(&stack, &name, &[4; 10_000]);
            world.tier(1).hold(move |moment| moment.call == stage && !moment.is_done);
            let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
            world.tier(1).wait_until_held();
            let (canceller, ticket) = (stack.clone(), tickets[0]);
            bounded(LONG, "cancel", move || canceller.cancel(ticket)).expect("cancels");
            world.tier(1).release();
            let ended = stack.wait(ticket, LONG).expect("known").expect("ends");
            assert_eq!(outcome_of(&ended), "cancelled", "{kind:?} at {stage:?}");
            let again = stack.cancel(ticket).expect_err("has ended").kind();
            assert_eq!(again, ErrorKind::NotFound);
            let report = &stack.explain(&name).expect("exists").segments[0];
            assert_eq!((report.tier.as_str(), report.copies.len()), ("fast", 0));
            assert_sound(&world, &stack);
            migrate(&stack, &name, SLOW, kind);
            assert_eq!(stack.read_all(&name).expect("reads"), [4; 10_000]);
            assert_sound(&world, &stack);
        }
    }
}

#[test]
fn ten_thousand_queued_migrations_are_cancelled_within_a_second() {
    const OBJECTS: usize = 10_000;
    let world = World::two();
    let stack = world.create();
    for index in 0..OBJECTS {
        put(&stack, &key(&format!("many-{index}")), b"x");
    }
    world.tier(1).hold_creates();
    let mut tickets = Vec::new();
    for index in 0..OBJECTS {
        let name = key(&format!("many-{index}"));
        tickets.extend(stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued"));
    }
    world.tier(1).wait_until_held();
    let canceller = stack.clone();
    let cancelled = bounded(Duration::from_secs(1), "cancel_all", move || canceller.cancel_all());
    assert_eq!(cancelled, OBJECTS);
    world.tier(1).release();
    assert!(stack.wait_idle(Duration::from_secs(1)), "everything has ended");
    let last = stack.wait(*tickets.last().expect("some"), LONG).expect("known").expect("ended");
    assert_eq!(outcome_of(&last), "cancelled");
    assert_eq!(all_keys(&stack).len(), OBJECTS);
    assert_sound(&world, &stack);
}

#[test]
fn a_destination_that_fills_up_changes_nothing() {
    for kind in KINDS {
        let world = World::two();
        let stack = world.create();
        let name = key("too-much");
        put(&stack, &name, &[4; 100_000]);
        let written = AtomicU64::new(0);
        // The stack believes in room; the device has none after 30 kB.
        world.tier(1).on(move |moment| {
            if moment.is_done || !matches!(moment.call, Call::Write | Call::Allocate) {
                return Verdict::Go;
            }
            let before = written.fetch_add(moment.length_bytes, Ordering::SeqCst);
            if before + moment.length_bytes > 30_000 {
                Verdict::Fail(ErrorKind::NoSpace)
            } else {
                Verdict::Go
            }
        });
        let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        assert_eq!(outcome_of(&ended), "no-space", "{ended:?}");
        assert_eq!(stack.read_all(&name).expect("reads"), [4; 100_000]);
        assert!(stack.wait_idle(LONG));
        assert_sound(&world, &stack);
        assert_eq!(stack.tiers()[1].reserved_bytes, 0, "what was reserved is released");
        world.tier(1).heal();
        migrate(&stack, &name, SLOW, kind);
        assert_sound(&world, &stack);
    }
}

#[test]
fn an_object_in_several_segments_moves_as_one() {
    let world = World::with(&[
        ("fast", ROOMY, Persistency::Storage),
        ("slow", ROOMY, Persistency::Storage),
    ]);
    let stack =
        world.create_with(|parts| parts.tactics = Some(crate::common::world::cutting(4096)));
    let name = key("in-parts");
    let data = stamped(1, 1, 0, 20_000 / STAMP_BYTES * STAMP_BYTES);
    put(&stack, &name, &data);
    assert_eq!(stack.explain(&name).expect("exists").segments.len(), 5);
    let handle = stack.open(&name, &Open::write()).expect("opens");
    world.tier(1).hold(|moment| moment.call == Call::Sync);
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    assert_eq!(tickets.len(), 5);
    world.tier(1).wait_until_held();
    handle.write(4000, &[9; 5000]).expect("writes over three segments");
    world.tier(1).release();
    for ticket in tickets {
        let ended = stack.wait(ticket, LONG).expect("known").expect("ends");
        assert_eq!(outcome_of(&ended), "done");
    }
    let mut expected = data;
    expected[4000..9000].fill(9);
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    assert!(stack.explain(&name).expect("exists").segments.iter().all(|s| s.tier == "slow"));
    drop(handle);
    assert_sound(&world, &stack);
}

#[test]
fn a_cut_during_a_migration_of_what_is_cut_off() {
    for kind in KINDS {
        for stage in STAGES {
            let world = World::two();
            let stack = world
                .create_with(|parts| parts.tactics = Some(crate::common::world::cutting(4096)));
            let name = key("shortened");
            let mut data = stamped(1, 1, 0, 12_288);
            put(&stack, &name, &data);
            let handle: Arc<dyn Object> = stack.open(&name, &Open::write()).expect("opens").into();
            world.tier(1).hold(move |moment| moment.call == stage && !moment.is_done);
            let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
            world.tier(1).wait_until_held();
            let object = handle.clone();
            bounded(LONG, "a cut during migrations", move || object.set_len(96).expect("cuts"));
            world.tier(1).release();
            for ticket in tickets {
                stack.wait(ticket, LONG).expect("known").expect("ends");
            }
            data.truncate(96);
            assert_eq!(handle.read_to_end().expect("reads"), data, "{kind:?} {stage:?}");
            handle.write(4096, &stamped(1, 2, 4096, 320)).expect("grows again");
            data.resize(4096, 0);
            data.extend(stamped(1, 2, 4096, 320));
            assert_eq!(handle.read_to_end().expect("reads"), data, "{kind:?} {stage:?}");
            drop(handle);
            assert_sound(&world, &stack);
            assert_same_after_reopening(&world, stack, &name, &data);
        }
    }
}

/// Holds the second `Sync` of each file of segment 1 on a tier: that which makes its switch certain.
fn hold_settling_of_the_second(world: &World) {
    let syncs = AtomicU64::new(0);
    world.tier(1).hold(move |moment| {
        let is_sync = moment.call == Call::Sync && !moment.is_done;
        is_sync && moment.name.contains(".1.") && syncs.fetch_add(1, Ordering::SeqCst) > 0
    });
}

#[test]
fn what_was_cut_off_and_grew_again_is_not_taken_for_what_was_there_before() {
    for kind in [MoveKind::Move, MoveKind::Promote] {
        for grows_first in [true, false] {
            let world = World::two();
            let stack = world
                .create_with(|parts| parts.tactics = Some(crate::common::world::cutting(4096)));
            let name = key("cut-and-grown");
            let mut data = stamped(1, 1, 0, 8192);
            put(&stack, &name, &data);
            let handle: Arc<dyn Object> = open_durable(&stack, &name).expect("opens").into();
            hold_settling_of_the_second(&world);
            let tickets = stack.migrate(&name, SLOW, kind, 0, "test").expect("queued");
            world.tier(1).wait_until_held();
            data.truncate(96);
            data.resize(4096, 0);
            data.extend(stamped(1, 2, 4096, 320));
            let again = data[4096..].to_vec();
            let object = handle.clone();
            bounded(LONG, "a cut while a switch becomes certain", move || {
                object.set_len(96).expect("cuts");
                if grows_first {
                    object.write(4096, &again).expect("grows again");
                }
            });
            // Nothing is to be noted any more once it goes on.
            stack.check(false, &mut |_, _| {}).expect("checks");
            world.tier(1).release();
            for ticket in tickets {
                stack.wait(ticket, LONG).expect("known").expect("ends");
            }
            data.truncate(if grows_first { data.len() } else { 96 });
            handle.sync().expect("syncs");
            assert_eq!(handle.read_to_end().expect("reads"), data, "{kind:?} {grows_first}");
            // Every file that nobody needs goes, once.
            let garbage = || stack.tiers().iter().map(|tier| tier.garbage_bytes).sum::<u64>();
            eventually("no garbage", || garbage() == 0);
            world.crash(Crash::Process);
            drop((handle, stack));
            let stack = world.open();
            let found = stack.read_all(&name).expect("reads");
            assert_eq!(found, data, "{kind:?} {grows_first}");
            assert_sound(&world, &stack);
        }
    }
}

#[test]
fn two_cuts_and_a_delete_at_once_end_and_account_for_what_is_left() {
    let world = World::two();
    let stack = Arc::new(world.create_with(|parts| {
        parts.tactics = Some(crate::common::world::cutting(4096));
    }));
    bounded(LONG, "cuts at once", {
        let stack = Arc::clone(&stack);
        move || {
            for round in 0..400 {
                let name = key("cut-at-once");
                put(&stack, &name, &stamped(1, 1, 0, 12_288));
                if round % 2 == 0 {
                    // With copies, which whoever cuts takes back first.
                    migrate(&stack, &name, SLOW, MoveKind::Copy);
                }
                let start = Barrier::new(3);
                std::thread::scope(|scope| {
                    for bytes in [9000, 5000, 96] {
                        let object = stack.open(&name, &Open::write()).expect("opens");
                        let (start, stack, name) = (&start, &stack, &name);
                        scope.spawn(move || {
                            start.wait();
                            if bytes == 9000 && round % 4 < 2 {
                                stack.delete(name).expect("deletes");
                            } else if let Err(error) = object.set_len(bytes) {
                                assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.chain());
                            }
                        });
                    }
                });
                if round % 4 >= 2 {
                    let bytes = stack.stat(&name).expect("is there").size_bytes;
                    assert!([96, 5000, 9000].contains(&bytes), "{bytes}");
                    stack.delete(&name).expect("deletes");
                }
            }
        }
    });
    let taken = |tier: &terrace_stack::report::TierReport| {
        tier.used_bytes + tier.reserved_bytes + tier.copy_bytes + tier.garbage_bytes
    };
    eventually("nothing is left", || stack.tiers().iter().all(|tier| taken(tier) == 0));
    assert_sound(&world, &stack);
}

#[test]
fn nothing_that_is_done_to_an_object_brings_it_back_once_it_is_deleted() {
    type Deed = fn(&Stack, &Key, &dyn Object) -> terrace_core::Result<()>;
    let deeds: [(&str, Deed); 5] = [
        ("a write behind its segments", |_, _, object| object.write(9000, &[7; 100])),
        ("growing", |_, _, object| object.set_len(9000)),
        ("cutting", |_, _, object| object.set_len(96)),
        ("a promise", |stack, name, _| open_durable(stack, name).map(drop)),
        ("a pin", |stack, name, _| stack.pin(name)),
    ];
    for (what, deed) in deeds {
        let world = World::two();
        let stack =
            world.create_with(|parts| parts.tactics = Some(crate::common::world::cutting(4096)));
        let name = key("deleted");
        for round in 0..150 {
            put(&stack, &name, &stamped(1, 1, 0, 4096));
            let object = stack.open(&name, &Open::write()).expect("opens");
            let start = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    stack.delete(&name).expect("deletes");
                });
                start.wait();
                if let Err(error) = deed(&stack, &name, &*object) {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {}", error.chain());
                }
            });
            drop(object);
            assert!(all_keys(&stack).is_empty(), "{what}, round {round}");
        }
        assert_sound(&world, &stack);
        stack.close().expect("closes");
        drop(stack);
        assert!(all_keys(&world.open()).is_empty(), "{what}");
    }
}

#[test]
fn growing_an_object_cuts_off_nothing_that_is_written_meanwhile() {
    for behind in [96, 96_000] {
        let world = World::two();
        let stack = world.create();
        let name = key("grown");
        put(&stack, &name, &stamped(1, 1, 0, 32));
        let one: Arc<dyn Object> = stack.open(&name, &Open::write()).expect("opens").into();
        let other: Arc<dyn Object> = stack.open(&name, &Open::write()).expect("opens").into();
        // Between the look at how long the file is and the change of that.
        world.tier(0).hold(|moment| moment.call == Call::SetLen && !moment.is_done);
        let grower = std::thread::spawn(move || one.set_len(64));
        world.tier(0).wait_until_held();
        let (done, is_done) = mpsc::channel();
        let writer = std::thread::spawn(move || {
            let written = other.write(behind, &stamped(1, 2, behind, 64));
            // Nobody listens any more where it took longer.
            let _ = done.send(());
            written
        });
        // Long enough for a write that does not wait for the end.
        let _ = is_done.recv_timeout(Duration::from_millis(100));
        world.tier(0).release();
        grower.join().expect("no panic").expect("grows");
        writer.join().expect("no panic").expect("writes");
        let mut data = stamped(1, 1, 0, 32);
        data.resize(behind as usize, 0);
        data.extend(stamped(1, 2, behind, 64));
        assert_eq!(stack.read_all(&name).expect("reads"), data);
        assert_sound(&world, &stack);
        assert_same_after_reopening(&world, stack, &name, &data);
    }
}
