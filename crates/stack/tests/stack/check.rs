// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `Stack::check` finds what was damaged behind the stack's back, and the tests' own checks find
//! what a lying tier did.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::common::crashing::{Crash, Crashing};
use crate::common::expected::Expected;
use crate::common::hooked::{Call, Verdict};
use crate::common::pattern::{stamped, versions};
use crate::common::world::{World, assert_sound, key, migrate, problems_at_rest, put};
use terrace_core::{
    Access, Backend, BackendExt, ErrorKind, Hint, Identity, Key, ObjectExt, Op, Open, Persistency,
    Request, Role, Semantics, TierIndex,
};
use terrace_stack::report::CheckReport;
use terrace_stack::{MoveKind, Stack};

const SLOW: TierIndex = TierIndex(1);

/// A store with one object that was moved to the second tier, and the key of its file there.
fn moved() -> (World, Stack, Key) {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("moved"), &[7; 9000]);
    migrate(&stack, &key("moved"), SLOW, MoveKind::Move);
    assert_sound(&world, &stack);
    let file = stack.explain(&key("moved")).expect("exists").segments[0].stored_as.clone();
    (world, stack, Key::parse(&file).expect("legal"))
}

#[track_caller]
fn assert_found(world: &World, stack: &Stack, kind: &str) {
    let check = stack.check(true, &mut |_, _| {}).expect("checks");
    assert!(check.problems.iter().any(|problem| problem.kind == kind), "{kind}: {check:?}");
    assert!(problems_at_rest(world, stack).is_err(), "{kind}");
}

#[test]
fn a_check_reads_everything_and_says_how_far_it_is() {
    let (_world, stack, _) = moved();
    let mut last = (0, 0);
    let check = stack.check(true, &mut |done, total| last = (done, total)).expect("checks");
    assert_eq!((check.objects, check.segments, check.problems.len()), (1, 1, 0));
    assert!(check.verified_bytes >= 9000, "{check:?}");
    assert!(last.0 == last.1 && last.1 > 0, "{last:?}");
    let quick = stack.check(false, &mut |_, _| {}).expect("checks");
    assert_eq!(quick.verified_bytes, 0);
}

#[test]
fn what_is_being_made_is_no_problem() {
    let (world, stack, _) = moved();
    let checked = || stack.check(true, &mut |_, _| {}).expect("checks");
    let assert_used = |check: CheckReport, what: &str| {
        assert!(check.problems.is_empty(), "{what}: {check:?}");
        assert!(check.notes.iter().any(|note| note.kind == "in-use"), "{what}: {check:?}");
    };
    let keys = [key("one"), key("two")];
    let creates = AtomicUsize::new(0);
    // The file of the first is there, and no record.
    world.tier(0).hold(move |moment| {
        let is_create = moment.call == Call::Create && !moment.is_done;
        is_create && creates.fetch_add(1, Ordering::AcqRel) > 0
    });
    let beside_a_batch = thread::scope(|scope| {
        let made = scope.spawn(|| {
            let create = |key| Request::Create { key, data: b"data", hint: Hint::default() };
            let mut operations: Vec<_> = keys.iter().map(|key| Op::new(create(key))).collect();
            stack.execute(&mut operations, &Semantics::DEFAULT);
            operations.into_iter().for_each(|one| {
                one.outcome.expect("carried out").expect("made");
            });
        });
        world.tier(0).wait_until_held();
        let check = checked();
        world.tier(0).release();
        made.join().expect("makes them");
        check
    });
    assert_used(beside_a_batch, "a batch");
    let draft = stack.draft(&key("moved"), &Open::create()).expect("begins");
    draft.object().write(0, &[8; 5000]).expect("writes");
    assert_used(checked(), "a draft");
    drop(draft);
    assert_sound(&world, &stack);
}

#[test]
fn a_missing_file_is_found() {
    let (world, stack, file) = moved();
    world.disk(1).open().delete(&file).expect("deletes");
    assert_found(&world, &stack, "missing-file");
}

#[test]
fn a_file_of_a_wrong_length_is_found() {
    let (world, stack, file) = moved();
    let object = world.disk(1).open().open(&file, &Open::write()).expect("opens");
    object.set_len(8000).expect("cuts");
    let check = stack.check(true, &mut |_, _| {}).expect("checks");
    assert!(!check.problems.is_empty());
    assert!(problems_at_rest(&world, &stack).is_err());
}

#[test]
fn a_flipped_byte_is_found() {
    let (_world, stack, file) = {
        let (world, stack, file) = moved();
        let object = world.disk(1).open().open(&file, &Open::write()).expect("opens");
        object.write(4321, &[6]).expect("writes");
        (world, stack, file)
    };
    let check = stack.check(true, &mut |_, _| {}).expect("checks");
    assert!(!check.problems.is_empty(), "{file}");
    let quick = stack.check(false, &mut |_, _| {}).expect("checks");
    assert_eq!(quick.problems, [], "only reading all bytes finds it");
}

#[test]
fn a_wrong_identity_is_found() {
    let (world, stack, file) = moved();
    let disk = world.disk(1).open();
    let right = disk.identity(&file).expect("reads").expect("has one");
    for wrong in [
        Identity { object_id: right.object_id + 1, ..right.clone() },
        Identity { store_id: right.store_id + 1, ..right.clone() },
        Identity { segment: right.segment + 1, ..right.clone() },
        Identity { key: key("somebody"), ..right.clone() },
        Identity { role: Role::Partial, ..right.clone() },
        Identity { generation: right.generation + 1, ..right.clone() },
    ] {
        disk.set_identity(&file, &wrong).expect("sets");
        assert_found(&world, &stack, "wrong-identity");
    }
    disk.set_identity(&file, &right).expect("sets");
    assert_sound(&world, &stack);
}

/// Also for a check that may not recover the store.
#[test]
fn what_a_crash_left_unfinished_is_no_problem() {
    let world = World::two();
    let stack = world.create();
    world.failpoints().arm(&Crashing { failpoint: "create.file".into(), visit: 1 });
    let made = stack.open(&key("made"), &Open::create_new());
    assert!(made.is_err() && world.failpoints().is_alive().is_err(), "it died");
    drop((made, stack));
    world.crash(Crash::Process);
    let reader = world.open_with(|parts| parts.settings.access = Access::Read);
    let check = reader.check(true, &mut |_, _| {}).expect("checks");
    assert!(check.problems.is_empty(), "{check:?}");
    assert!(check.notes.iter().any(|note| note.kind == "unfinished-file"), "{check:?}");
    drop(reader);
    let stack = world.open();
    assert_sound(&world, &stack);
    let check = stack.check(true, &mut |_, _| {}).expect("checks");
    assert!(check.notes.is_empty(), "it is deleted: {check:?}");
}

#[test]
fn an_unknown_file_is_found() {
    let (world, stack, _) = moved();
    let stray = Key::new("seg", "00000000000000ff.0.1").expect("legal");
    world.disk(1).open().write_all(&stray, b"stray").expect("writes");
    let check = stack.check(true, &mut |_, _| {}).expect("checks");
    let mut findings = check.problems.iter().chain(&check.notes);
    assert!(findings.any(|finding| finding.kind == "unknown-file"), "{check:?}");
    assert!(problems_at_rest(&world, &stack).is_err());
}

#[test]
fn a_swapped_file_is_never_read_as_the_object() {
    let world = World::two();
    let stack = world.create();
    for (name, number) in [("one", 1), ("two", 2)] {
        put(&stack, &key(name), &stamped(number, 1, 0, 4096));
    }
    let stored = |name| stack.explain(&key(name)).expect("exists").segments[0].stored_as.clone();
    let files = ["one", "two"].map(|name| Key::parse(&stored(name)).expect("legal"));
    stack.close().expect("closes");
    let disk = world.disk(0).open();
    let kept = files.clone().map(|file| {
        let identity = disk.identity(&file).expect("reads").expect("has one");
        (disk.read_all(&file).expect("reads"), identity)
    });
    // As if somebody had exchanged the two files with everything that belongs to them.
    for (file, (data, identity)) in files.iter().zip(kept.iter().rev()) {
        disk.write_all(file, data).expect("writes");
        disk.set_identity(file, identity).expect("sets");
    }
    drop(stack);
    match world.try_open_with(|_| {}) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.chain()),
        Ok(stack) => {
            for (name, number) in [("one", 1), ("two", 2)] {
                match stack.read_all(&key(name)) {
                    Ok(data) => drop(versions(number, 0, &data).expect("its own bytes")),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.chain());
                    }
                }
            }
        }
    }
}

/// The crash tests would notice a stack that did not sync: here a tier does not.
#[test]
fn the_tests_notice_a_sync_that_did_not_happen() {
    for call in [Call::Sync, Call::SyncAll] {
        let world = World::two();
        let stack = world.create();
        for tier in [0, 1] {
            world.tier(tier).on(move |moment| {
                let lies = moment.call == call && !moment.is_done;
                if lies { Verdict::Pretend } else { Verdict::Go }
            });
        }
        let how = Open::create_new().with_semantics(Semantics::at_level(Persistency::Storage));
        stack.open(&key("lost"), &how).expect("creates").write(0, &[7; 9000]).expect("writes");
        migrate(&stack, &key("lost"), SLOW, MoveKind::Move);
        world.failpoints().freeze();
        drop(stack);
        world.lose_all_unsynced();
        let found = world.try_open_with(|_| {}).and_then(|stack| stack.read_all(&key("lost")));
        assert_ne!(found.ok(), Some(vec![7; 9000]), "a lie about {call:?} was not noticed");
    }
}

/// The race tests would notice a stack that lost a write: here a tier does.
#[test]
fn the_tests_notice_bytes_that_were_skipped() {
    let world = World::two();
    let stack = world.create();
    let name = key("skipped");
    put(&stack, &name, &stamped(1, 1, 0, 4096));
    let has_lied = AtomicBool::new(false);
    world.tier(0).on(move |moment| {
        let is_write = moment.call == Call::Write && !moment.is_done;
        let lies = is_write && !has_lied.swap(true, Ordering::SeqCst);
        if lies { Verdict::Pretend } else { Verdict::Go }
    });
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(1024, &stamped(1, 2, 1024, 1024)).expect("pretends");
    object.write(2048, &stamped(1, 2, 2048, 1024)).expect("writes");
    let data = stack.read_all(&name).expect("reads");
    let found = versions(1, 0, &data).expect("own bytes");
    assert_eq!(found[32..64], [1; 32], "the write that was skipped shows as old bytes");
    assert_eq!(found[64..96], [2; 32]);
    let foreign = versions(2, 0, &data).expect_err("foreign bytes are told apart");
    assert!(foreign.contains("object 1"), "{foreign}");
    let mut torn = data.clone();
    torn[40] ^= 1;
    let torn = versions(1, 0, &torn).expect_err("torn bytes are told apart");
    assert!(torn.contains("torn"), "{torn}");
    let moved = versions(1, 32, &data).expect_err("misplaced bytes are told apart");
    assert!(moved.contains("at 0"), "{moved}");
}

/// The crash tests would notice what a crash must not leave.
#[test]
fn the_tests_notice_what_a_crash_cannot_explain() {
    let mut expected = Expected::missing();
    expected.begin(Some(Vec::new()));
    expected.begin(Some(b"first".to_vec()));
    expected.settle();
    expected.begin(Some(b"wider than".to_vec()));
    let allowed: [&[u8]; 4] = [b"first", b"wider than", b"first than", b"first\0\0\0\0\0"];
    for found in allowed {
        assert_eq!(expected.explain(Some(found)), Ok(()), "{}", found.escape_ascii());
    }
    let forbidden: [Option<&[u8]>; 6] =
        [None, Some(b""), Some(b"firs"), Some(b"other"), Some(b"wider than it"), Some(b"\0irst")];
    for found in forbidden {
        assert!(expected.explain(found).is_err(), "{found:?}");
    }
    expected.settle();
    assert!(expected.explain(Some(b"first")).is_err(), "it is certain by now");
    expected.begin(None);
    assert_eq!(expected.explain(None), Ok(()));
    expected.begin(Some(Vec::new()));
    expected.begin(Some(b"second".to_vec()));
    assert_eq!(expected.explain(Some(b"sec\0\0\0")), Ok(()));
    assert!(expected.explain(Some(b"widernd")).is_err(), "two lives do not mix");
    expected.begin(None);
    expected.settle();
    assert!(expected.explain(Some(b"second")).is_err(), "it is gone for certain");
}
