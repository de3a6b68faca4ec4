// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a stack keeps of the semantics, also where a tier fails, a caller dies or objects move.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::bouncer::Bouncer;
use crate::common::crashing::Crash;
use crate::common::hooked::{Call, Moment, Verdict};
use crate::common::world::{ROOMY, World, assert_sound, cutting, key, put};
use terrace_core::{
    Atomicity, Backend, BackendExt, BatchOrdering, ErrorKind, Hint, Key, Object, ObjectExt, Op,
    Open, Persistency, Reply, Request, Result, Semantics,
};
use terrace_stack::Stack;
use terrace_testkit::behaviour;

const SEGMENT_BYTES: usize = 4096;

/// Over three segments.
const LONG_BYTES: usize = 10_000;

const WHOLE: Semantics = Semantics { atomicity: Atomicity::Operation, ..Semantics::DEFAULT };

fn cut_stack(world: &World) -> Stack {
    world.create_with(|parts| parts.tactics = Some(cutting(SEGMENT_BYTES as u64)))
}

fn open_whole(stack: &Stack, name: &Key) -> Box<dyn Object> {
    stack.open(name, &Open::create().with_semantics(WHOLE)).expect("it is given")
}

fn execute(stack: &Stack, requests: Vec<Request<'_>>, asked: &Semantics) -> Vec<Result<Reply>> {
    let mut operations: Vec<_> = requests.into_iter().map(Op::new).collect();
    stack.execute(&mut operations, asked);
    operations.into_iter().map(|operation| operation.outcome.expect("is filled")).collect()
}

fn create<'a>(key: &'a Key, data: &'a [u8]) -> Request<'a> {
    Request::Create { key, data, hint: Hint::default() }
}

/// Fails or panics in the second write to a file from now on, and in no other call.
fn break_second_write(world: &World, in_panic: bool) {
    let writes = AtomicUsize::new(0);
    world.tier(0).on(move |moment| {
        let is_write = moment.call == Call::Write && !moment.is_done;
        if !is_write || writes.fetch_add(1, Ordering::SeqCst) != 1 {
            return Verdict::Go;
        }
        assert!(!in_panic, "the caller dies here, as the test wants it");
        Verdict::Fail(ErrorKind::Io)
    });
}

/// Calls on the tiers from now on.
fn watch(world: &World, tiers: usize) -> Arc<Mutex<Vec<Moment>>> {
    let calls = Arc::new(Mutex::new(Vec::new()));
    for tier in 0..tiers {
        let calls = Arc::clone(&calls);
        world.tier(tier).on(move |moment| {
            if !moment.is_done {
                calls.lock().expect("never poisoned").push(moment.clone());
            }
            Verdict::Go
        });
    }
    calls
}

fn count(calls: &Mutex<Vec<Moment>>, call: Call) -> usize {
    let calls = calls.lock().expect("never poisoned");
    calls.iter().filter(|moment| moment.call == call).count()
}

#[test]
fn nothing_is_torn_while_objects_of_many_segments_move() {
    for segment_bytes in [SEGMENT_BYTES as u64, 64 << 10] {
        for case in [
            behaviour::whole_writes_are_never_torn,
            behaviour::whole_appends_are_never_torn,
            behaviour::whole_creates_are_never_torn,
            behaviour::runs_in_a_batch_are_as_one_by_one,
            behaviour::a_strict_batch_takes_effect_in_order,
        ] {
            let world = World::three();
            let stack = world.create_with(|parts| parts.tactics = Some(cutting(segment_bytes)));
            let bouncer = Bouncer::start(stack.clone());
            case(&stack);
            drop(bouncer);
        }
    }
}

/// Without asking for it, the very same case shows a part: the tests of this file can fail.
#[test]
fn a_write_that_fails_in_the_middle_is_taken_back() {
    for asked in [WHOLE, Semantics::DEFAULT] {
        let world = World::two();
        let stack = cut_stack(&world);
        let name = key("a");
        let object = stack.open(&name, &Open::create().with_semantics(asked)).expect("creates");
        object.write(0, &[1; LONG_BYTES]).expect("writes");
        break_second_write(&world, false);
        let error = object.write(100, &[2; 2 * LONG_BYTES]).expect_err("a tier fails");
        assert_eq!(error.kind(), ErrorKind::Io);
        world.tier(0).heal();
        let is_whole = stack.read_all(&name).expect("reads") == [1; LONG_BYTES];
        assert_eq!(is_whole, asked == WHOLE);
        break_second_write(&world, false);
        object.append(&[std::io::IoSlice::new(&[3; LONG_BYTES])]).expect_err("a tier fails");
        world.tier(0).heal();
        let length = object.stat().expect("is there").size_bytes as usize;
        assert_eq!(length == LONG_BYTES, asked == WHOLE);
        // What comes later is not harmed.
        object.write(5, &[4; LONG_BYTES]).expect("writes");
        let now = stack.read_all(&name).expect("reads");
        assert_eq!((now[4], &now[5..LONG_BYTES + 5]), (1, &[4; LONG_BYTES][..]));
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_write_without_room_for_all_of_it_is_taken_back() {
    let world = World::with(&[("fast", 50_000, Persistency::Storage)]);
    let stack = cut_stack(&world);
    let name = key("a");
    let object = open_whole(&stack, &name);
    object.write(0, &[1; LONG_BYTES]).expect("writes");
    for _ in 0..3 {
        let error = object.write(5000, &[2; 60_000]).expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert_eq!(stack.read_all(&name).expect("reads"), [1; LONG_BYTES]);
    }
    assert_sound(&world, &stack);
}

#[test]
fn a_caller_that_dies_in_the_middle_leaves_nothing_of_its_write() {
    let world = World::two();
    let stack = cut_stack(&world);
    let name = key("a");
    let object = open_whole(&stack, &name);
    object.write(0, &[1; LONG_BYTES]).expect("writes");
    for in_batch in [false, true] {
        break_second_write(&world, true);
        let data = [2; 2 * LONG_BYTES];
        let died = std::thread::scope(|scope| {
            let write = || match in_batch {
                false => drop(open_whole(&stack, &name).write(100, &data)),
                true => {
                    let write = Request::Write { key: &name, offset_bytes: 100, data: &data };
                    execute(&stack, vec![write], &WHOLE);
                }
            };
            scope
                .spawn(move || catch_unwind(AssertUnwindSafe(write)).is_err())
                .join()
                .expect("joins")
        });
        assert!(died, "the write did not come to its second segment");
        world.tier(0).heal();
        // Nobody waits for the dead, and nobody sees what he did.
        let mut found = vec![0; 3 * LONG_BYTES];
        let count = open_whole(&stack, &name).read(0, &mut found).expect("reads");
        assert_eq!(found[..count], [1; LONG_BYTES]);
    }
    object.write(0, &[3; LONG_BYTES]).expect("writes");
    assert_eq!(stack.read_all(&name).expect("reads"), [3; LONG_BYTES]);
    assert_sound(&world, &stack);
}

#[test]
fn a_create_that_ends_in_the_middle_makes_no_object() {
    for in_panic in [false, true] {
        let world = World::two();
        let stack = cut_stack(&world);
        let (name, other) = (key("a"), key("b"));
        let data = [2; LONG_BYTES];
        break_second_write(&world, in_panic);
        let outcomes = catch_unwind(AssertUnwindSafe(|| {
            execute(&stack, vec![create(&name, &data), create(&other, &data)], &WHOLE)
        }));
        world.tier(0).heal();
        assert_eq!(outcomes.is_err(), in_panic);
        assert_eq!(stack.stat(&name).expect_err("is not there").kind(), ErrorKind::NotFound);
        match outcomes {
            Ok(outcomes) => {
                assert!(outcomes[0].is_err() && outcomes[1].is_ok(), "{outcomes:?}");
                assert_eq!(stack.read_all(&other).expect("reads"), data);
            }
            // The other one was not come to; its record was committed together with this one's.
            Err(_) => stack.delete_if_exists(&other).expect("there or not"),
        }
        put(&stack, &name, b"the name is free");
        assert_sound(&world, &stack);
    }
}

/// Whoever does not ask may write beside one that asks, and keeps what was acknowledged.
#[test]
fn taking_back_a_write_cuts_off_nobody_elses_bytes() {
    let world = World::two();
    let stack = cut_stack(&world);
    let name = key("a");
    let object = open_whole(&stack, &name);
    object.write(0, &[1; 100]).expect("writes");
    let plain = stack.open(&name, &Open::write()).expect("opens");
    let writes = AtomicUsize::new(0);
    world.tier(0).on(move |moment| {
        let is_write = moment.call == Call::Write && !moment.is_done;
        if !is_write || writes.fetch_add(1, Ordering::SeqCst) != 1 {
            return Verdict::Go;
        }
        plain.write(50_000, &[9; 100]).expect("writes");
        Verdict::Fail(ErrorKind::Io)
    });
    object.write(50, &[2; LONG_BYTES]).expect_err("a tier fails");
    world.tier(0).heal();
    let mut expected = vec![0; 50_100];
    expected[..100].fill(1);
    expected[50_000..].fill(9);
    assert!(stack.read_all(&name).expect("reads") == expected);
    assert_sound(&world, &stack);
}

/// On tiers that are so slow that a batch has threads of its own elsewhere.
#[test]
fn a_strict_batch_is_in_order_where_others_are_wide() {
    for ordering in [BatchOrdering::Strict, BatchOrdering::Relaxed] {
        let world = World::two();
        let stack = world.create_with(|parts| {
            parts.tiers.iter_mut().for_each(|tier| tier.figures.latency_ns = 1_000_000);
        });
        let asked = Semantics { ordering, ..Semantics::DEFAULT };
        let names: Vec<_> = (0..40).map(|index| key(&format!("{:02}", 39 - index))).collect();
        for outcome in
            execute(&stack, names.iter().map(|name| create(name, b"x")).collect(), &asked)
        {
            outcome.expect("creates");
        }
        let calls = watch(&world, 1);
        let writes = names.iter().map(|key| Request::Write { key, offset_bytes: 0, data: b"y" });
        for outcome in execute(&stack, writes.collect(), &asked) {
            outcome.expect("writes");
        }
        world.tier(0).heal();
        let written: Vec<_> = calls.lock().expect("never poisoned").clone();
        let written: Vec<_> = written.iter().filter(|one| one.call == Call::Write).collect();
        assert_eq!(written.len(), 40);
        let stored =
            |name: &Key| stack.explain(name).expect("exists").segments[0].stored_as.clone();
        let expected: Vec<_> = names.iter().map(stored).collect();
        let is_same =
            written.iter().zip(&expected).all(|(moment, stored)| stored.ends_with(&moment.name));
        // Relaxed, they are begun in the order of the names, which is the reverse.
        assert_eq!(is_same, ordering == BatchOrdering::Strict);
        assert_sound(&world, &stack);
    }
}

/// After a loss of power at any step, what is there of a strict batch is its beginning.
#[test]
fn of_a_strict_batch_a_beginning_survives() {
    let asked = Semantics { persistency: Persistency::Storage, ..Semantics::POSIX };
    for seed in 0..20 {
        let world = World::two();
        let stack = world.create();
        let names: Vec<_> = (0..6).map(|index| key(&format!("{}", 9 - index))).collect();
        let stop_at = seed as usize + 3;
        let freezer = world.freezer();
        let changes = AtomicUsize::new(0);
        world.tier(0).on(move |moment| {
            if !moment.is_done && changes.fetch_add(1, Ordering::SeqCst) == stop_at {
                freezer.freeze();
            }
            Verdict::Go
        });
        let outcomes =
            execute(&stack, names.iter().map(|name| create(name, b"data")).collect(), &asked);
        let acknowledged = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        world.failpoints().freeze();
        drop(stack);
        world.tier(0).heal();
        world.crash(Crash::Power { seed });
        let stack = world.open();
        let is_there: Vec<_> = names.iter().map(|name| stack.stat(name).is_ok()).collect();
        let found = is_there.iter().filter(|is| **is).count();
        assert!(is_there[..found].iter().all(|is| *is), "seed {seed}: {is_there:?}");
        assert!(found >= acknowledged, "seed {seed}: {found} of {acknowledged}");
        assert_sound(&world, &stack);
    }
}

#[test]
fn writes_that_touch_are_one_call_of_the_file() {
    for (asked, writes_expected) in [
        (Semantics::DEFAULT, 2),
        (WHOLE, 2),
        (Semantics { ordering: BatchOrdering::Strict, ..WHOLE }, 100),
    ] {
        let world = World::two();
        let stack = world.create();
        let name = key("a");
        put(&stack, &name, &[0; 1000]);
        let data: Vec<Vec<u8>> = (0..100).map(|index| vec![index; 10]).collect();
        // Behind the first half there is a gap of ten bytes.
        let at = |index: usize| (index * 10 + if index < 50 { 0 } else { 10 }) as u64;
        let calls = watch(&world, 1);
        let writes = data.iter().enumerate().map(|(index, data)| Request::Write {
            key: &name,
            offset_bytes: at(index),
            data,
        });
        for outcome in execute(&stack, writes.collect(), &asked) {
            assert_eq!(outcome.expect("writes"), Reply::Done);
        }
        assert_eq!(count(&calls, Call::Write), writes_expected, "{asked}");
        let mut buffers = vec![[0xee; 10]; 102];
        let reads = buffers.iter_mut().enumerate().map(|(index, buffer)| Request::Read {
            key: &name,
            offset_bytes: index as u64 * 10,
            buffer,
        });
        let counts: Vec<_> = execute(&stack, reads.collect(), &Semantics::DEFAULT)
            .into_iter()
            .map(|outcome| outcome.expect("reads"))
            .collect();
        assert_eq!(counts[..101], [Reply::Count(10); 101]);
        assert_eq!(counts[101], Reply::Count(0), "behind the end");
        // What a write keeps of what was there is read before, by those who ask for it.
        let reads = count(&calls, Call::Read);
        assert!(reads <= 1 + writes_expected, "{asked}: {reads}");
        for (index, data) in data.iter().enumerate() {
            assert_eq!(buffers[at(index) as usize / 10], data[..], "{index}");
        }
        assert_eq!((buffers[50], buffers[101]), ([0; 10], [0xee; 10]));
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_call_that_fails_fails_each_of_its_writes() {
    let world = World::two();
    let stack = world.create();
    let (name, other) = (key("a"), key("b"));
    put(&stack, &name, &[0; 1000]);
    put(&stack, &other, &[0; 1000]);
    let write = |key, offset_bytes| Request::Write { key, offset_bytes, data: &[1; 10] };
    world.tier(0).on(|moment| match moment.call {
        Call::Write if !moment.is_done && moment.length_bytes > 10 => Verdict::Fail(ErrorKind::Io),
        _ => Verdict::Go,
    });
    let requests = vec![write(&name, 0), write(&name, 10), write(&name, 500), write(&other, 0)];
    let outcomes = execute(&stack, requests, &Semantics::DEFAULT);
    world.tier(0).heal();
    let is_done: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(is_done, [false, false, true, true], "{outcomes:?}");
    let error = outcomes[1].as_ref().expect_err("failed");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("the test said so"), "{error}");
    assert_sound(&world, &stack);
}

/// Where only some of them have room, those are written.
#[test]
fn writes_that_touch_fill_a_quota_one_by_one() {
    let world = World::two();
    let stack = world.create();
    let name = key("a");
    put(&stack, &name, b"");
    stack.set_quota("test", Some(10_000), None).expect("sets");
    let data = [7; 4000];
    let writes =
        (0..4).map(|index| Request::Write { key: &name, offset_bytes: index * 4000, data: &data });
    let outcomes = execute(&stack, writes.collect(), &Semantics::DEFAULT);
    let is_done: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(is_done, [true, true, false, false], "{outcomes:?}");
    assert_eq!(stack.read_all(&name).expect("reads"), [7; 8000]);
    assert_sound(&world, &stack);
}

/// The writes of a batch to one object are acknowledged together, so they are synced once.
#[test]
fn a_run_of_durable_writes_is_synced_once() {
    let world = World::with(&[("only", ROOMY, Persistency::Storage)]);
    let stack = world.create();
    let name = key("a");
    let durable = Semantics::at_level(Persistency::Storage);
    drop(stack.open(&name, &Open::create_new().with_semantics(durable)).expect("creates"));
    let write = |offset_bytes| Request::Write { key: &name, offset_bytes, data: &[1; 10] };
    let requests = || (0..20).map(|index| write(index * 100)).collect();
    let calls = watch(&world, 1);
    execute(&stack, requests(), &durable).into_iter().for_each(|one| assert!(one.is_ok()));
    assert_eq!((count(&calls, Call::Write), count(&calls, Call::Sync)), (20, 1));
    let strict = Semantics { ordering: BatchOrdering::Strict, ..durable };
    execute(&stack, requests(), &strict).into_iter().for_each(|one| assert!(one.is_ok()));
    assert_eq!((count(&calls, Call::Write), count(&calls, Call::Sync)), (40, 21));
    world.tier(0).on(|moment| match moment.call {
        Call::Sync if !moment.is_done => Verdict::Fail(ErrorKind::Io),
        _ => Verdict::Go,
    });
    for outcome in execute(&stack, requests(), &durable) {
        assert_eq!(outcome.expect_err("nothing is durable").kind(), ErrorKind::Io);
    }
    world.tier(0).heal();
}

/// Whenever the machine stops, of pairs that were changed together all are there or none.
#[test]
fn pairs_survive_a_crash_together() {
    for seed in 0..20 {
        let world = World::two();
        let stack = world.create();
        let crash = if seed % 2 == 0 { Crash::Process } else { Crash::Power { seed } };
        let pairs: Vec<Vec<u8>> = (0..10).map(|number| vec![b'k', number]).collect();
        let mut acknowledged = 0;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut acknowledged = 0u32;
                loop {
                    let version = (acknowledged + 1).to_le_bytes();
                    let changes: Vec<(&[u8], Option<&[u8]>)> =
                        pairs.iter().map(|key| (&key[..], Some(&version[..]))).collect();
                    if stack.kv_apply("pairs", &changes, Persistency::Process).is_err() {
                        return acknowledged;
                    }
                    acknowledged += 1;
                }
            });
            crate::common::world::eventually("pairs are written", || {
                stack.kv_get("pairs", &pairs[9]).is_ok_and(|value| value.is_some())
            });
            world.failpoints().freeze();
            acknowledged = writer.join().expect("does not panic");
        });
        drop(stack);
        world.crash(crash);
        let stack = world.open();
        let value = |key: &Vec<u8>| stack.kv_get("pairs", key).expect("reads");
        let found: Vec<_> = pairs.iter().map(value).collect();
        assert!(found.windows(2).all(|two| two[0] == two[1]), "seed {seed}: {found:?}");
        if crash == Crash::Process {
            let version = found[0].as_deref().map(|bytes| bytes.try_into().expect("four"));
            let version = version.map_or(0, u32::from_le_bytes);
            assert!(version >= acknowledged, "seed {seed}: {version} of {acknowledged}");
        }
    }
}
