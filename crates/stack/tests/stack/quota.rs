// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a namespace may hold.

use std::error::Error as _;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::crashing::Crash;
use crate::common::hooked::{Call, Verdict};
use crate::common::world::{ROOMY, World, assert_sound, cutting, key, migrate, put};
use terrace_core::{
    Backend, BackendExt, End, Error, ErrorKind, Key, KvExt, ObjectExt, Op, Open, Persistency,
    Request, Semantics, TierIndex,
};
use terrace_stack::report::QuotaReport;
use terrace_stack::{MoveKind, Quota, QuotaExceeded, Stack};

const SLOW: TierIndex = TierIndex(1);

fn test_quota(stack: &Stack) -> QuotaReport {
    let mut quotas = stack.quotas();
    quotas.retain(|quota| quota.namespace == "test");
    quotas.pop().expect("the namespace holds something")
}

fn held(stack: &Stack) -> (u64, u64) {
    let quota = test_quota(stack);
    (quota.objects, quota.bytes)
}

#[track_caller]
fn assert_exceeded(error: &Error, quota: Quota, limit: u64) {
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
    let exceeded = error.source().and_then(|source| source.downcast_ref::<QuotaExceeded>());
    let exceeded = exceeded.unwrap_or_else(|| panic!("{}", error.chain()));
    let QuotaExceeded { namespace, used, need, .. } = exceeded;
    assert_eq!((namespace.as_str(), exceeded.quota, exceeded.limit), ("test", quota, limit));
    assert!(used + need > limit, "{exceeded}");
    let text = error.chain();
    assert!(text.contains(&format!("used={used}")) && text.contains(&format!("limit={limit}")));
}

fn one_tier() -> World {
    World::with(&[("only", ROOMY, Persistency::Storage)])
}

#[test]
fn a_namespace_holds_as_many_objects_as_it_may() {
    for world in [World::two(), one_tier()] {
        let stack = world.create();
        stack.set_quota("test", None, Some(3)).expect("sets");
        for name in ["1", "2", "3"] {
            put(&stack, &key(name), b"data");
        }
        let error = stack.open(&key("4"), &Open::create_new()).map(drop).expect_err("one too many");
        assert_exceeded(&error, Quota::Objects, 3);
        assert!(stack.stat(&key("4")).is_err());
        stack.open(&key("3"), &Open::write()).expect("what exists can be opened");
        put(&stack, &Key::new("other", "4").expect("legal"), b"data");
        stack.delete(&key("2")).expect("deletes");
        put(&stack, &key("4"), b"data");
        assert_eq!(held(&stack), (3, 12));
        assert_sound(&world, &stack);
    }
}

/// The bytes of a batch are written before its objects are there.
#[test]
fn a_batch_writes_as_many_bytes_as_are_allowed() {
    for persistency in [Persistency::Process, Persistency::Storage] {
        let world = World::two();
        let stack = world.create();
        stack.set_quota("test", Some(2500), None).expect("sets");
        let keys: Vec<_> = (0..4).map(|index| key(&format!("o{index}"))).collect();
        let data = [7; 1000];
        let create = |key| {
            Op::new(Request::Create { key, data: &data, hint: terrace_core::Hint::default() })
        };
        let mut operations: Vec<_> = keys.iter().map(create).collect();
        stack.execute(&mut operations, &Semantics::at_level(persistency));
        let outcomes = operations.into_iter().map(|operation| operation.outcome.expect("is done"));
        let failed: Vec<_> = outcomes.filter_map(Result::err).collect();
        assert_eq!(failed.len(), 2, "{failed:?}");
        failed.iter().for_each(|error| assert_exceeded(error, Quota::Bytes, 2500));
        assert_eq!(held(&stack).1, 2000);
        // A batch that cannot be committed takes up nothing.
        world.kv().fail_next(terrace_testkit::Operation::KvCommit, ErrorKind::Io);
        let more = [key("more")];
        let mut operations = [Op::new(Request::Create {
            key: &more[0],
            data: &data[..400],
            hint: terrace_core::Hint::default(),
        })];
        stack.execute(&mut operations, &Semantics::at_level(persistency));
        let [operation] = operations;
        operation.outcome.expect("is done").map(drop).expect_err("the commit fails");
        assert_eq!(held(&stack).1, 2000);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_batch_creates_as_many_objects_as_are_allowed() {
    let world = World::two();
    let stack = world.create();
    stack.set_quota("test", None, Some(2)).expect("sets");
    let keys = ["a", "b", "c"].map(key);
    let mut operations = keys.each_ref().map(|key| {
        Op::new(Request::Create { key, data: b"data", hint: terrace_core::Hint::default() })
    });
    stack.execute(&mut operations, &Semantics::default());
    let outcomes = operations.map(|operation| operation.outcome.expect("was carried out"));
    let failed: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert_eq!(failed.len(), 1);
    assert_exceeded(&failed[0], Quota::Objects, 2);
    assert_eq!(held(&stack), (2, 8));
    assert_sound(&world, &stack);
}

#[test]
fn a_namespace_grows_to_the_last_byte_that_it_may_hold() {
    for world in [World::two(), one_tier()] {
        let stack = world.create();
        stack.set_quota("test", Some(10_000), None).expect("sets");
        let name = key("grows");
        let object = stack.open(&name, &Open::create_new()).expect("creates");
        object.write(0, &[1; 9_000]).expect("fits");
        assert_exceeded(
            &object.write(9_000, &[2; 1_001]).expect_err("too much"),
            Quota::Bytes,
            10_000,
        );
        assert_exceeded(&object.set_len(10_001).expect_err("too much"), Quota::Bytes, 10_000);
        assert_exceeded(
            &object.append(&[IoSlice::new(&[2; 1_001])]).expect_err("too much"),
            Quota::Bytes,
            10_000,
        );
        object.write(9_000, &[2; 1_000]).expect("fits to the byte");
        object.write(0, &[3; 10_000]).expect("what is there can be written");
        let other = stack.open(&key("other"), &Open::create_new()).expect("objects are free");
        assert_exceeded(&other.write(0, b"x").expect_err("full"), Quota::Bytes, 10_000);
        put(&stack, &Key::new("elsewhere", "x").expect("legal"), &[0; 20_000]);
        drop((object, other));
        assert_eq!(stack.read_all(&name).expect("reads"), [3; 10_000]);
        assert_eq!(held(&stack), (2, 10_000));
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_full_segment_takes_nothing_of_what_the_next_one_may_hold() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    stack.set_quota("test", Some(8192), None).expect("sets");
    let object = stack.open(&key("cut"), &Open::create_new()).expect("creates");
    // Files that grow ask for a quarter more than they need.
    for (start, bytes) in [(0, 3900), (3900, 100), (4000, 4192)] {
        object.write(start, &vec![7; bytes]).expect("there is room for every byte");
    }
    let error = object.write(8192, b"1").expect_err("one too many");
    assert_exceeded(&error, Quota::Bytes, 8192);
    drop(object);
    assert_eq!(held(&stack), (1, 8192));
    assert_sound(&world, &stack);
}

#[test]
fn an_object_does_not_leave_its_tier_because_of_a_quota() {
    let world = World::two();
    let stack = world.create();
    stack.set_quota("test", Some(5_000), None).expect("sets");
    let object = stack.open(&key("stays"), &Open::create_new()).expect("creates");
    object.write(0, b"").expect("writes nothing");
    object.write(0, &[1; 6_000]).expect_err("an empty object is not put elsewhere");
    object.write(0, &[1; 4_000]).expect("fits");
    object.write(4_000, &[1; 4_000]).expect_err("one with bytes does not go on elsewhere");
    object.allocate(0..1 << 20, End::Grows).expect_err("nor with room for its length");
    let segments = stack.explain(&key("stays")).expect("exists").segments;
    assert_eq!(segments.len(), 1, "{segments:?}");
    assert_eq!(segments[0].tier, "fast");
    assert_eq!(stack.tiers()[1].segments, 0);
    assert_eq!(stack.stat(&key("stays")).expect("exists").size_bytes, 4_000);
}

#[test]
fn what_is_cut_off_or_deleted_can_be_used_again() {
    let world = World::two();
    let stack = world.create();
    stack.set_quota("test", Some(10_000), None).expect("sets");
    put(&stack, &key("deleted"), &[1; 4_000]);
    let object = stack.open(&key("cut"), &Open::create_new()).expect("creates");
    object.write(0, &[1; 6_000]).expect("fits");
    object.set_len(1_000).expect("cuts");
    let other = stack.open(&key("other"), &Open::create_new()).expect("creates");
    other.write(0, &[2; 5_000]).expect("at once, also while the other is open");
    stack.delete(&key("deleted")).expect("deletes");
    object.write(1_000, &[3; 4_000]).expect("fits");
    object.write(5_000, &[3]).expect_err("does not");
    drop((object, other));
    assert_eq!(held(&stack), (2, 10_000));
    assert_sound(&world, &stack);
}

#[test]
fn migrations_and_copies_do_not_count() {
    let world = World::two();
    let stack = world.create();
    stack.set_quota("test", Some(10_000), Some(1)).expect("sets");
    put(&stack, &key("moves"), &[1; 10_000]);
    for (to, kind) in [
        (SLOW, MoveKind::Move),
        (TierIndex(0), MoveKind::Promote),
        (SLOW, MoveKind::Move),
        (TierIndex(0), MoveKind::Copy),
    ] {
        migrate(&stack, &key("moves"), to, kind);
        assert_eq!(held(&stack), (1, 10_000));
    }
    assert_sound(&world, &stack);
}

#[test]
fn less_than_is_held_forbids_growth_and_nothing_else() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("large"), &[1; 10_000]);
    stack.set_quota("test", Some(5_000), Some(0)).expect("sets");
    let object = stack.open(&key("large"), &Open::write()).expect("opens");
    object.write(0, &[2; 10_000]).expect("writes what is there");
    assert_exceeded(&object.write(10_000, b"x").expect_err("grows"), Quota::Bytes, 5_000);
    object.set_len(4_000).expect("shrinks");
    object.write(4_000, &[3; 1_000]).expect("grows again");
    object.write(5_000, b"x").expect_err("not beyond");
    drop(object);
    stack.clear_quota("test").expect("clears");
    put(&stack, &key("new"), &[1; 10_000]);
    let error = stack.clear_quota("test").expect_err("there is none any more");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = stack.set_quota("test", None, None).expect_err("limits nothing");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = stack.set_quota("a/b", Some(1), None).expect_err("no such namespace can be");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_sound(&world, &stack);
}

#[test]
fn many_writers_together_never_exceed_it() {
    const LIMIT_BYTES: u64 = 1 << 20;
    const OBJECTS: u64 = 20;
    for world in [World::two(), one_tier()] {
        let stack = world.create();
        stack.set_quota("test", Some(LIMIT_BYTES), Some(OBJECTS)).expect("sets");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let stack = &stack;
                    scope.spawn(move || {
                        let mut refused = 0;
                        for index in 0.. {
                            let name = key(&format!("{writer}-{index}"));
                            let Ok(object) = stack.open(&name, &Open::create_new()) else { break };
                            while object.append(&[IoSlice::new(&[writer; 3_000])]).is_ok() {
                                if object.stat().expect("exists").size_bytes > 90_000 {
                                    break;
                                }
                            }
                            refused += u32::from(
                                object.append(&[IoSlice::new(&[writer; 3_000])]).is_err(),
                            );
                        }
                        refused
                    })
                })
                .collect();
            let watcher = scope.spawn(|| {
                let mut most = (0, 0);
                while !is_over.load(Ordering::Acquire) {
                    for quota in stack.quotas() {
                        most = most.max((quota.bytes, quota.objects));
                    }
                }
                most
            });
            let refused: u32 = writers.into_iter().map(|one| one.join().expect("ends")).sum();
            is_over.store(true, Ordering::Release);
            let most = watcher.join().expect("ends");
            assert!(most.0 <= LIMIT_BYTES && most.1 <= OBJECTS, "{most:?}");
            assert!(refused > 0, "the limit was reached");
        });
        let (objects, bytes) = held(&stack);
        assert_eq!(objects, OBJECTS);
        assert!(bytes <= LIMIT_BYTES, "{bytes}");
        // Room that open objects had taken in advance is there again.
        // Any object: a writer that began late may have made none.
        let there = stack.list_all("test", "").expect("lists");
        let object = stack.open(&there[0], &Open::write()).expect("opens");
        let rest = vec![9; (LIMIT_BYTES - bytes) as usize];
        object.append(&[IoSlice::new(&rest)]).expect("is allowed");
        object.append(&[IoSlice::new(b"x")]).expect_err("is one too many");
        drop(object);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_create_that_fails_does_not_count() {
    let world = World::two();
    let stack = world.create();
    stack.set_quota("test", None, Some(1)).expect("sets");
    for tier in [0, 1] {
        world.tier(tier).on(|moment| match moment.call {
            Call::Create => Verdict::Fail(ErrorKind::Io),
            _ => Verdict::Go,
        });
    }
    for _ in 0..3 {
        let error = stack.open(&key("fails"), &Open::create_new()).map(drop).expect_err("fails");
        assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    }
    [0, 1].iter().for_each(|tier| world.tier(*tier).heal());
    put(&stack, &key("succeeds"), b"data");
    assert_eq!(held(&stack), (1, 4));
    assert_sound(&world, &stack);
}

#[test]
fn limits_and_what_is_held_survive_a_close_and_a_crash() {
    let crashes = [None, Some(Crash::Process), Some(Crash::Power { seed: 7 })];
    for crash in crashes {
        let world = World::two();
        let stack = world.create();
        stack.set_quota("test", Some(20_000), Some(5)).expect("sets");
        stack.set_quota("empty", None, Some(0)).expect("sets");
        stack.set_quota("lifted", None, Some(0)).expect("sets");
        stack.clear_quota("lifted").expect("clears");
        put(&stack, &key("early"), &[1; 3_000]);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        put(&stack, &key("late"), &[1; 4_000]);
        stack.delete(&key("early")).expect("deletes");
        stack.sync().expect("syncs");
        let object = stack.open(&key("late"), &Open::write()).expect("opens");
        match crash {
            None => {
                drop(object);
                stack.close().expect("closes");
            }
            Some(_) => {
                object.write(4_000, &[2; 1_000]).expect("writes");
                object.sync().expect("syncs");
                world.failpoints().freeze();
                drop(object);
            }
        }
        drop(stack);
        world.crash(crash.unwrap_or(Crash::Process));
        let stack = world.open();
        let bytes = if crash.is_some() { 5_000 } else { 4_000 };
        let quota = test_quota(&stack);
        assert_eq!((quota.objects, quota.bytes), (1, bytes), "after {crash:?}");
        assert_eq!((quota.objects_max, quota.bytes_max), (Some(5), Some(20_000)));
        let names: Vec<_> = stack.quotas().into_iter().map(|quota| quota.namespace).collect();
        assert_eq!(names, ["empty", "test"]);
        assert_sound(&world, &stack);
    }
}

/// As after a version that knew nothing of quotas: what it left says nothing.
#[test]
fn what_is_held_is_summed_where_nothing_was_written_of_it() {
    for is_stale in [false, true] {
        let world = World::two();
        let stack = world.create();
        put(&stack, &key("one"), &[1; 3_000]);
        stack.close().expect("closes");
        drop(stack);
        let kv = world.kv().open();
        let before = kv.get(b"u").expect("reads").expect("was written");
        let row_before = kv.get(b"utest").expect("reads").expect("was written");
        let stack = world.open();
        put(&stack, &key("two"), &[1; 3_000]);
        stack.close().expect("closes");
        drop(stack);
        if is_stale {
            kv.put(b"u", &before).expect("writes");
            kv.put(b"utest", &row_before).expect("writes");
        } else {
            kv.remove(b"u").expect("deletes");
        }
        let stack = world.open();
        assert_eq!(held(&stack), (2, 6_000));
        assert_sound(&world, &stack);
    }
}

/// The hole in the first segment takes room ahead, which the second one needs.
#[test]
fn a_write_gets_the_room_that_it_took_ahead() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(40_000)));
    let name = key("holed");
    put(&stack, &name, &[1; 1000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(38_000, &[2; 3000]).expect("leaves a hole");
    let used = |stack: &Stack| held(stack).1;
    let bytes_max = used(&stack) + 16_000;
    stack.set_quota("test", Some(bytes_max), None).expect("sets");
    object.write(20_000, &[3; 60_000]).expect("there is room for it");
    drop(object);
    let mut model = vec![0; 80_000];
    model[..1000].fill(1);
    model[20_000..].fill(3);
    assert_eq!(stack.read_all(&name).expect("reads"), model);
    assert!(used(&stack) <= bytes_max);
    assert_sound(&world, &stack);
}
