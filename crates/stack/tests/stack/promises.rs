// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room behind the ends of objects.

use std::sync::{Arc, Mutex};

use crate::common::crashing::Crash;
use crate::common::directories::Directories;
use crate::common::hooked::{Call, Verdict};
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, cutting, key, migrate, outcome_of, promise_nothing, put,
};
use terrace_core::{
    Backend, BackendExt, End, Error, ErrorKind, Key, Kv, KvRange, Object, ObjectExt, Open, Pair,
    Persistency, Result, Ticket, TierIndex, Txn,
};
use terrace_stack::{MoveKind, Stack};
use terrace_testkit::{Body, KvLayer, Layered};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

fn small(fast: u64, slow: u64) -> World {
    World::with(&[("fast", fast, Persistency::Storage), ("slow", slow, Persistency::Storage)])
}

fn taken(stack: &Stack) -> Vec<u64> {
    stack.tiers().iter().map(|tier| tier.used_bytes + tier.reserved_bytes).collect()
}

fn opened(stack: &Stack, name: &Key) -> Box<dyn Object> {
    stack.open(name, &Open::write()).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// An object of `length` bytes with room up to `end`.
fn promised(stack: &Stack, name: &Key, length: usize, end: u64) -> Box<dyn Object> {
    put(stack, name, &vec![1; length]);
    let object = opened(stack, name);
    object.allocate(0..end, End::Stays).unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(object.stat().expect("stat").size_bytes, length as u64);
    object
}

/// What is promised to an object behind its end, by segment.
fn behind(stack: &Stack, name: &Key) -> Vec<u64> {
    let segments = stack.explain(name).expect("exists").segments;
    segments.iter().map(|segment| segment.promised_bytes).collect()
}

/// Puts objects into a store until no more fit.
fn fill(stack: &Stack) {
    for index in 0.. {
        let name = key(&format!("filler-{index}"));
        let put = |bytes| stack.open(&name, &Open::create_new())?.write(0, &vec![7; bytes]);
        match put(1000) {
            Ok(()) => {}
            Err(error) => return assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain()),
        }
        assert!(index < 1000, "more was taken than there is");
    }
}

fn no_space(outcome: Result<()>) {
    let error = outcome.expect_err("there is no room");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
}

#[test]
fn room_behind_the_end_is_not_given_away() {
    for is_closed in [false, true] {
        let world = small(100_000, 50_000);
        let stack = world.create();
        let name = key("promised");
        let mut object = promised(&stack, &name, 1000, 60_000);
        assert_eq!(taken(&stack)[0], 60_000);
        if is_closed {
            drop(object);
            assert_sound(&world, &stack);
            object = opened(&stack, &name);
        }
        fill(&stack);
        no_space(object.write(59_000, &[3; 2000]));
        for at in 0..20u64 {
            object.write(at * 3000, &[2; 3000]).expect("the room was promised");
        }
        assert_eq!(stack.read_all(&name).expect("reads"), [2; 60_000]);
        drop(object);
        assert_eq!(behind(&stack, &name), [0]);
        assert_sound(&world, &stack);
    }
}

#[test]
fn room_that_there_is_not_changes_nothing() {
    let world = small(40_000, 40_000);
    let stack = world.create();
    for length in [0, 5000] {
        let name = key(&format!("object-{length}"));
        let object = promised(&stack, &name, length, 10_000);
        let before = (taken(&stack), stack.explain(&name).expect("exists").segments);
        for range in [0..1 << 40, 9000..90_000, 1 << 40..(1 << 40) + 1] {
            no_space(object.allocate(range, End::Stays));
            assert_eq!(object.stat().expect("stat").size_bytes, length as u64);
            let after = (taken(&stack), stack.explain(&name).expect("exists").segments);
            assert_eq!(after, before);
        }
    }
    assert_sound(&world, &stack);
}

/// Others would find the tiers full while they are filled.
#[test]
fn room_that_there_is_not_is_not_tried_for() {
    for (slow, cut) in [(60_000, None), (ROOMY, Some(8192))] {
        let world = small(40_000, slow);
        let stack = world.create_with(|parts| parts.tactics = cut.map(cutting));
        world.tier(1).leave_room(60_000);
        let name = key("object");
        let object = promised(&stack, &name, 5000, 10_000);
        object.write(30_000, &[1; 1000]).expect("there is room");
        for tier in [0, 1] {
            world.tier(tier).on(|moment| match moment.call {
                Call::Allocate => Verdict::Fail(ErrorKind::Io),
                _ => Verdict::Go,
            });
        }
        let before = taken(&stack);
        // What is in front of the range is no room for it: of 100,000 bytes 31,000 are taken at most.
        for range in [0..1 << 62, 0..1 << 40, 0..120_000, 31_000..121_000, 50_000..160_000] {
            for end in [End::Grows, End::Stays] {
                no_space(object.allocate(range.clone(), end));
            }
        }
        assert_eq!(taken(&stack), before);
        [0, 1].iter().for_each(|tier| world.tier(*tier).heal());
        object.allocate(0..90_000, End::Grows).expect("there is room");
        object.allocate(0..90_000, End::Grows).expect("it has its room");
        drop(object);
        assert_sound(&world, &stack);
    }
}

/// A hole takes no room on the disk, though it is accounted for.
#[test]
fn holes_that_the_disk_has_no_room_for_are_not_tried_for() {
    let directories = Directories::with(&[("fast", u64::MAX), ("slow", u64::MAX)]);
    let stack = directories.create();
    let available = || {
        let space = directories.space("fast");
        space.file_system.expect("it is on one").available_bytes
    };
    let name = key("object");
    put(&stack, &name, &[1; 5000]);
    let object = opened(&stack, &name);
    let length = available() + (1 << 30);
    object.set_len(length).expect("it is a hole");
    for tier in [0, 1] {
        directories.tier(tier).on(|moment| match moment.call {
            Call::Allocate => Verdict::Fail(ErrorKind::Io),
            _ => Verdict::Go,
        });
    }
    for end in [End::Grows, End::Stays] {
        no_space(object.allocate(0..length, end));
        no_space(object.allocate(length..2 * length, end));
    }
    directories.tier(0).heal();
    object.allocate(0..10_000, End::Grows).expect("there is room");
}

/// What the files of both tiers take.
fn on_media(world: &World) -> Vec<u64> {
    let files = [0, 1].map(|tier| world.disk(tier).files());
    files.iter().flatten().map(|file| file.allocated_bytes).collect()
}

/// Holes inside segments, and at their ends before others.
#[test]
fn a_promise_that_is_refused_in_the_middle_leaves_nothing_in_holes_before() {
    const CUT: u64 = 8192;
    for (quota, already) in [(None, None), (Some(60_000), None), (None, Some(40_000))] {
        let world = small(60_000, 20_000);
        let stack = world.create_with(|parts| parts.tactics = Some(cutting(CUT)));
        if quota.is_some() {
            stack.set_quota("test", quota, None).expect("sets");
        }
        let name = key("object");
        let object = stack.open(&name, &Open::create_new()).expect("creates");
        for at in [0, 5000, CUT, 2 * CUT + 5000, 4 * CUT] {
            object.write(at, &[1; 100]).expect("there is room");
        }
        if let Some(end) = already {
            object.allocate(2 * CUT..end, End::Stays).expect("there is room");
        }
        drop(object);
        let object = opened(&stack, &name);
        // An empty segment in a hole may have been made for it, and takes nothing.
        let some = |all: Vec<u64>| all.into_iter().filter(|bytes| *bytes > 0).collect::<Vec<_>>();
        let state = || {
            let parts = (some(behind(&stack, &name)), some(on_media(&world)));
            (taken(&stack), parts, stack.quotas())
        };
        let before = state();
        no_space(object.allocate(0..90_000, End::Stays));
        assert_eq!(state(), before, "{quota:?} {already:?}");
        // What there is room for is promised all the same, in holes, too.
        object.allocate(0..50_000, End::Stays).expect("there is room");
        assert_eq!(on_media(&world).iter().sum::<u64>(), 50_000);
        drop(object);
        assert_sound(&world, &stack);
    }
}

/// The accounts agree, and a hole finds no room on the device.
#[test]
fn a_device_without_room_for_a_hole_gives_back_what_is_behind_the_ends() {
    let world = small(100_000, ROOMY);
    let stack = world.create();
    let name = key("object");
    let object = promised(&stack, &name, 1000, 20_000);
    object.write(9000, &[1; 1000]).expect("there is room");
    drop(object);
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    let object = opened(&stack, &name);
    let before = (taken(&stack), behind(&stack, &name), on_media(&world));
    world.tier(0).on(|moment| match moment.call {
        Call::Allocate if moment.offset_bytes < 9000 => Verdict::Fail(ErrorKind::NoSpace),
        _ => Verdict::Go,
    });
    no_space(object.allocate(0..60_000, End::Stays));
    world.tier(0).heal();
    assert_eq!((taken(&stack), behind(&stack, &name), on_media(&world)), before);
    assert_eq!(stack.explain(&name).expect("exists").segments[0].copies, ["slow"]);
    drop(object);
    assert_sound(&world, &stack);
}

/// While a dense file has room behind its end it is not known which of its blocks are there.
#[test]
fn a_hole_before_promised_room_is_accounted_when_that_is_filled() {
    for is_reopened in [false, true] {
        let world = small(100_000, 100_000);
        let mut stack = world.create();
        let name = key("object");
        let mut object = promised(&stack, &name, 20_000, 40_000);
        object.punch(4096..8192).expect("punched");
        if is_reopened {
            drop(object);
            stack.close().expect("closes");
            drop(stack);
            stack = world.open();
            object = opened(&stack, &name);
        }
        object.write(20_000, &[2; 20_000]).expect("the room was promised");
        drop(object);
        assert_eq!(taken(&stack), [40_000 - 4096, 0], "reopened: {is_reopened}");
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_device_that_has_no_room_changes_nothing() {
    for (is_cut, end) in
        [(false, End::Stays), (true, End::Stays), (false, End::Grows), (true, End::Grows)]
    {
        let world = small(40_000, ROOMY);
        let stack = world.create_with(|parts| {
            parts.tactics = is_cut.then(|| cutting(8192));
        });
        let name = key("object");
        let object = promised(&stack, &name, 5000, 10_000);
        let before = (taken(&stack), behind(&stack, &name));
        // The stack believes in room there; the device has none.
        world.tier(1).on(|moment| match moment.call {
            Call::Allocate if !moment.is_done => Verdict::Fail(ErrorKind::NoSpace),
            _ => Verdict::Go,
        });
        no_space(object.allocate(0..100_000, end));
        world.tier(1).heal();
        assert_eq!(object.stat().expect("stat").size_bytes, 5000);
        assert_eq!((taken(&stack), behind(&stack, &name)), before);
        drop(object);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_cut_gives_back_and_growth_keeps() {
    for is_cut in [false, true] {
        let world = small(100_000, ROOMY);
        let stack = world.create_with(|parts| {
            parts.tactics = is_cut.then(|| cutting(8192));
        });
        let name = key("object");
        let object = promised(&stack, &name, 1000, 50_000);
        assert_eq!(taken(&stack), [50_000, 0]);
        object.set_len(20_000).expect("grows");
        assert_eq!(taken(&stack), [50_000, 0], "what is behind the new end stays");
        let mut data = vec![0; 20_000];
        data[..1000].fill(1);
        assert_eq!(stack.read_all(&name).expect("reads"), data);
        object.set_len(20_000).expect("cuts to the length that it has");
        assert_eq!(taken(&stack), [20_000, 0]);
        object.allocate(30_000..50_000, End::Stays).expect("there is room");
        object.punch(20_000..50_000).expect("nothing is there");
        assert!(taken(&stack)[0] >= 40_000, "punching keeps it");
        object.set_len(500).expect("cuts");
        assert_eq!(taken(&stack), [500, 0]);
        object.allocate(0..40_000, End::Stays).expect("there is room");
        drop(object);
        assert_eq!(stack.stat(&name).expect("stat").size_bytes, 500);
        assert_sound(&world, &stack);
        stack.delete(&name).expect("deletes");
        assert_sound(&world, &stack);
        assert_eq!(taken(&stack), [0, 0]);
    }
}

#[test]
fn a_promise_is_kept_over_a_close_and_over_a_crash() {
    for crash in [None, Some(Crash::Process), Some(Crash::Power { seed: 1 })] {
        for is_cut in [false, true] {
            let world = small(100_000, 50_000);
            let change = |parts: &mut terrace_stack::Parts| {
                parts.tactics = is_cut.then(|| cutting(8192));
            };
            let stack = world.create_with(change);
            let name = key("object");
            let object = promised(&stack, &name, 10_000, 60_000);
            object.sync().expect("syncs");
            let used_up = key("used up");
            let other = promised(&stack, &used_up, 10, 5000);
            other.write(0, &[2; 6000]).expect("there is room");
            other.sync().expect("syncs");
            let deleted = key("deleted");
            promised(&stack, &deleted, 10, 5000).sync().expect("syncs");
            stack.delete(&deleted).expect("deletes");
            Backend::sync(&stack).expect("syncs");
            match crash {
                None => {
                    drop((object, other));
                    stack.close().expect("closes");
                    assert_eq!(taken(&stack)[0], 16_000, "the accounts of a closed store");
                }
                Some(crash) => {
                    world.failpoints().freeze();
                    drop((object, other));
                    world.crash(crash);
                }
            }
            drop(stack);
            let stack = world.open_with(change);
            assert_eq!(taken(&stack), [66_000, 0], "{crash:?} {is_cut}");
            assert_eq!(stack.stat(&name).expect("stat").size_bytes, 10_000);
            assert_sound(&world, &stack);
            fill(&stack);
            opened(&stack, &name).write(10_000, &[3; 50_000]).expect("the room was promised");
            assert_sound(&world, &stack);
        }
    }
}

#[test]
fn a_promise_for_which_a_tier_was_made_too_small_is_lost_and_told_of() {
    let world = small(100_000, ROOMY);
    let stack = world.create();
    let name = key("object");
    drop(promised(&stack, &name, 10_000, 60_000));
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open_with(|parts| {
        let tier = parts.tiers.remove(0);
        parts.tiers.insert(0, tier.with_capacity(50_000));
    });
    assert!(
        stack.opening_notes().iter().any(|note| note.contains("lost room")),
        "{:?}",
        stack.opening_notes()
    );
    assert_eq!(taken(&stack), [10_000, 0]);
    assert_eq!(world.disk(0).files()[0].allocated_bytes, 10_000);
    assert_eq!(stack.read_all(&name).expect("reads"), [1; 10_000]);
}

#[test]
fn a_migration_takes_the_promise_along() {
    for kind in [MoveKind::Move, MoveKind::Promote] {
        let world = small(100_000, 100_000);
        let stack = world.create();
        let name = key("object");
        let object = promised(&stack, &name, 10_000, 60_000);
        let modified_ns = stack.stat(&name).expect("stat").modified_ns;
        migrate(&stack, &name, SLOW, kind);
        assert_eq!(taken(&stack), [0, 60_000]);
        assert_eq!(behind(&stack, &name), [50_000]);
        assert_eq!(stack.stat(&name).expect("stat").modified_ns, modified_ns);
        assert!(stack.explain(&name).expect("exists").segments[0].copies.is_empty());
        fill(&stack);
        object.write(10_000, &[2; 50_000]).expect("the room was promised");
        drop(object);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_clean_copy_gets_the_promise_when_it_becomes_the_primary() {
    let world = small(100_000, 100_000);
    let stack = world.create();
    let name = key("object");
    let object = promised(&stack, &name, 10_000, 60_000);
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    assert_eq!(taken(&stack), [60_000, 0], "a copy is promised nothing");
    // A promise changes no bytes.
    object.allocate(0..70_000, End::Stays).expect("there is room");
    assert_eq!(stack.explain(&name).expect("exists").segments[0].copies, ["slow"]);
    put(&stack, &key("in the way"), &[5; 1]);
    migrate(&stack, &key("in the way"), SLOW, MoveKind::Move);
    opened(&stack, &key("in the way")).write(0, &[5; 35_000]).expect("there is room");
    let ended = |stack: &Stack| {
        let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        outcome_of(&ended).to_owned()
    };
    assert_eq!(ended(&stack), "no-space");
    assert!(taken(&stack)[0] >= 70_000);
    stack.delete(&key("in the way")).expect("deletes");
    assert!(stack.wait_idle(LONG));
    crate::common::world::eventually("its room is free", || ended(&stack) == "done");
    assert_eq!(taken(&stack), [0, 70_000]);
    object.write(10_000, &[2; 60_000]).expect("the room was promised");
    drop(object);
    assert_sound(&world, &stack);
}

/// How the commit of a switch fails, or what comes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Unwritten,
    Written,
    /// The file has got its room all the same.
    Allocating,
}

#[test]
fn a_switch_to_a_copy_that_fails_leaves_accounts_and_files_as_they_were() {
    for failing in [Failing::Unwritten, Failing::Written, Failing::Allocating] {
        let world = small(100_000, 100_000);
        world.create_parts(|_| {});
        let spied = Arc::new(Layered(Spied::new(world.parts().catalog)));
        let stack = world.open_with(|parts| parts.catalog = Arc::clone(&spied) as Arc<dyn Kv>);
        let name = key("object");
        let object = promised(&stack, &name, 10_000, 60_000);
        migrate(&stack, &name, SLOW, MoveKind::Copy);
        let state = || (taken(&stack), behind(&stack, &name), on_media(&world));
        let before = state();
        let copies =
            |stack: &Stack| stack.tiers().iter().map(|tier| tier.copy_bytes).collect::<Vec<_>>();
        assert_eq!((&before.0, copies(&stack)), (&vec![60_000, 0], vec![0, 10_000]));
        match failing {
            Failing::Unwritten => spied.fail_at(b'g', false),
            Failing::Written => spied.fail_at(b'g', true),
            Failing::Allocating => world.tier(1).on(|moment| match moment.call {
                Call::Allocate if moment.is_done => Verdict::Fail(ErrorKind::NoSpace),
                _ => Verdict::Go,
            }),
        }
        let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        assert_ne!(outcome_of(&ended), "done", "{failing:?}");
        world.tier(1).heal();
        assert_eq!(state(), before, "{failing:?}");
        assert_eq!(copies(&stack), [0, 10_000], "{failing:?}");
        // As if nothing had been: it is written, and switched after all.
        migrate(&stack, &name, SLOW, MoveKind::Move);
        assert_eq!(taken(&stack), [0, 60_000], "{failing:?}");
        object.write(10_000, &[2; 50_000]).expect("the room was promised");
        drop(object);
        assert_sound(&world, &stack);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        assert_sound(&world, &stack);
        assert_eq!(taken(&stack), [0, 60_000], "{failing:?}");
    }
}

#[test]
fn an_opening_writes_no_promise_that_is_written_already() {
    for crash in [None, Some(Crash::Process)] {
        let world = small(100_000, 100_000);
        let stack = world.create();
        let names: Vec<_> = (0..5).map(|index| key(&format!("object-{index}"))).collect();
        for name in &names {
            promised(&stack, name, 1000, 10_000).sync().expect("syncs");
        }
        match crash {
            None => stack.close().expect("closes"),
            Some(crash) => {
                world.failpoints().freeze();
                world.crash(crash);
            }
        }
        drop(stack);
        let spied = Arc::new(Layered(Spied::new(world.parts().catalog)));
        let stack = world.open_with(|parts| parts.catalog = Arc::clone(&spied) as Arc<dyn Kv>);
        assert_eq!(spied.written(b'r'), 0, "{crash:?}");
        assert_eq!(taken(&stack), [50_000, 0]);
        // They are known all the same.
        opened(&stack, &names[0]).set_len(1000).expect("gives it back");
        assert_eq!(spied.written(b'r'), 1, "{crash:?}");
        opened(&stack, &names[1]).write(1000, &[2; 9000]).expect("the room was promised");
        assert_eq!(spied.written(b'r'), 2, "{crash:?}");
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_promise_that_cannot_be_noted_gives_its_room_back() {
    for (already, is_written, times) in [None, Some(20_000)]
        .into_iter()
        .flat_map(|already| [(already, false), (already, true)])
        .flat_map(|(already, is_written)| [1, 2].map(|times| (already, is_written, times)))
    {
        let case = format!("{already:?} {is_written} {times}");
        let world = small(100_000, 100_000);
        world.create_parts(|_| {});
        let spied = Arc::new(Layered(Spied::new(world.parts().catalog)));
        let open = || {
            let spied = Arc::clone(&spied);
            world.open_with(move |parts| parts.catalog = spied as Arc<dyn Kv>)
        };
        let stack = open();
        let name = key("object");
        put(&stack, &name, &[1; 10_000]);
        let object = opened(&stack, &name);
        if let Some(end) = already {
            object.allocate(0..end, End::Stays).expect("there is room");
        }
        let state = |stack: &Stack| (taken(stack), behind(stack, &name), on_media(&world));
        let before = state(&stack);
        // Where nothing was promised, the first note says that something is about to be.
        let skipped = usize::from(already.is_none());
        spied.fail(Fails { first: b'r', is_written, skipped, times });
        let refused = object.allocate(0..60_000, End::Stays).expect_err("it cannot be noted");
        assert_eq!(refused.kind(), ErrorKind::Io, "{case}");
        assert_eq!(state(&stack), before, "{case}");
        drop(object);
        assert_eq!(state(&stack), before, "{case}");
        stack.close().expect("closes");
        drop(stack);
        let stack = open();
        assert_eq!(state(&stack), before, "{case}");
        // As if nothing had been.
        let object = opened(&stack, &name);
        object.allocate(0..60_000, End::Stays).expect("there is room");
        assert_eq!(taken(&stack), [60_000, 0], "{case}");
        object.set_len(10_000).expect("gives it back");
        drop(object);
        assert_eq!(taken(&stack), [10_000, 0], "{case}");
        assert_sound(&world, &stack);
    }
}

/// What says that something is about to be promised is there, although nobody heard so.
#[test]
fn a_note_of_a_promise_that_was_refused_goes_with_the_last_close_or_the_object() {
    for is_deleted in [false, true] {
        let world = small(100_000, 100_000);
        world.create_parts(|_| {});
        let spied = Arc::new(Layered(Spied::new(world.parts().catalog)));
        let stack = world.open_with(|parts| parts.catalog = Arc::clone(&spied) as Arc<dyn Kv>);
        let rows = || spied.scan(&KvRange::prefix(b"r"), 10).expect("reads").len();
        let name = key("object");
        put(&stack, &name, &[1; 10_000]);
        let object = opened(&stack, &name);
        spied.fail_at(b'r', true);
        let refused = object.allocate(0..60_000, End::Stays).expect_err("it cannot be noted");
        assert_eq!(refused.kind(), ErrorKind::Io);
        assert_eq!((rows(), taken(&stack)), (1, vec![10_000, 0]));
        if is_deleted {
            stack.delete(&name).expect("deletes");
            assert_eq!(rows(), 0, "it is open still");
        }
        drop(object);
        assert_eq!(rows(), 0);
        assert_sound(&world, &stack);
    }
}

/// An engine that counts the keys that are written, by their first byte, and fails commits.
struct Spied {
    inner: Arc<dyn Kv>,
    written: Mutex<Vec<u8>>,
    /// Commits with such a key fail, although they are written or not.
    fails_at: Mutex<Option<Fails>>,
}

#[derive(Clone, Copy)]
struct Fails {
    first: u8,
    is_written: bool,
    /// So many go well before.
    skipped: usize,
    times: usize,
}

impl Spied {
    fn new(inner: Arc<dyn Kv>) -> Self {
        Self { inner, written: Mutex::default(), fails_at: Mutex::default() }
    }

    fn fail_at(&self, first: u8, is_written: bool) {
        self.fail(Fails { first, is_written, skipped: 0, times: 1 });
    }

    fn fail(&self, fails: Fails) {
        *self.fails_at.lock().expect("never poisoned") = Some(fails);
    }

    fn written(&self, first: u8) -> usize {
        let written = self.written.lock().expect("never poisoned");
        written.iter().filter(|byte| **byte == first).count()
    }
}

impl KvLayer for Spied {
    fn inner(&self) -> &dyn Kv {
        &*self.inner
    }

    fn transact(&self, body: Body<'_>) -> Result<Ticket> {
        let broken = || Error::new(ErrorKind::Io, "commit").because("the disk is broken");
        let mut seen = Vec::new();
        let mut is_failing = false;
        let ticket = self.inner.transact(&mut |txn| {
            seen.clear();
            body(&mut Seeing { txn, seen: &mut seen })?;
            let mut fails_at = self.fails_at.lock().expect("never poisoned");
            match &mut *fails_at {
                Some(fails) if !seen.contains(&fails.first) || fails.times == 0 => {}
                Some(fails) if fails.skipped > 0 => fails.skipped -= 1,
                Some(fails) => {
                    fails.times -= 1;
                    is_failing = fails.is_written;
                    if !is_failing {
                        return Err(broken());
                    }
                }
                None => {}
            }
            Ok(())
        })?;
        self.written.lock().expect("never poisoned").append(&mut seen);
        if is_failing { Err(broken()) } else { Ok(ticket) }
    }
}

struct Seeing<'a> {
    txn: &'a mut dyn Txn,
    seen: &'a mut Vec<u8>,
}

impl Txn for Seeing<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.txn.get(key)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.seen.push(key[0]);
        self.txn.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.seen.push(key[0]);
        self.txn.delete(key)
    }

    fn scan(&mut self, range: &KvRange, max: usize) -> Result<Vec<Pair>> {
        self.txn.scan(range, max)
    }
}

#[test]
fn a_tier_without_room_for_the_promise_does_not_get_the_object() {
    let world = small(100_000, 50_000);
    let stack = world.create();
    let name = key("object");
    let object = promised(&stack, &name, 10_000, 60_000);
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&ended), "no-space");
    assert_eq!(taken(&stack), [60_000, 0]);
    object.set_len(10_000).expect("gives it back");
    migrate(&stack, &name, SLOW, MoveKind::Move);
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn what_is_promised_and_cut_during_a_migration_is_as_it_is_at_its_end() {
    for (first, then, reach) in
        [(0, Some(30_000), 30_000), (30_000, None, 10_000), (20_000, Some(40_000), 40_000)]
    {
        let world = small(100_000, 100_000);
        let stack = world.create();
        let name = key("object");
        let object = promised(&stack, &name, 10_000, first.max(1));
        world.tier(1).hold(|moment| moment.call == Call::Write && moment.is_done);
        let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
        world.tier(1).wait_until_held();
        match then {
            Some(end) => object.allocate(0..end, End::Stays).expect("there is room"),
            None => object.set_len(10_000).expect("gives it back"),
        }
        world.tier(1).release();
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        assert_eq!(outcome_of(&ended), "done");
        assert_eq!(taken(&stack), [0, reach]);
        drop(object);
        assert_sound(&world, &stack);
    }
}

#[test]
fn room_is_promised_on_the_next_tier_where_one_is_full() {
    for length in [0, 1000] {
        let world = small(50_000, 100_000);
        let stack = world.create();
        put(&stack, &key("filler"), &[2; 35_000]);
        let name = key("object");
        let object = promised(&stack, &name, length, 60_000);
        assert_eq!(stack.stat(&name).expect("stat").size_bytes, length as u64);
        fill(&stack);
        // Behind a hole first: the parts keep what is theirs.
        object.write(59_000, &[3; 1000]).expect("the room was promised");
        assert_eq!(object.stat().expect("stat").size_bytes, 60_000);
        object.write(0, &[3; 60_000]).expect("the room was promised");
        assert_eq!(stack.read_all(&name).expect("reads"), [3; 60_000]);
        drop(object);
        assert_sound(&world, &stack);
    }
}

#[test]
fn growth_beyond_a_promise_goes_on_behind_it() {
    let world = small(50_000, ROOMY);
    let stack = world.create();
    let name = key("object");
    let object = promised(&stack, &name, 1000, 40_000);
    put(&stack, &key("filler"), &[2; 10_000]);
    object.write(45_000, &[3; 1000]).expect("it goes on elsewhere");
    let segments = stack.explain(&name).expect("exists").segments;
    assert_eq!((segments[1].start_bytes, segments[1].tier.as_str()), (40_000, "slow"));
    fill_fast(&stack);
    object.write(0, &[4; 40_000]).expect("the room was promised");
    drop(object);
    assert_eq!(stack.read_all(&name).expect("reads")[..40_000], [4; 40_000]);
    assert_sound(&world, &stack);
}

/// Nothing more fits on the first tier.
fn fill_fast(stack: &Stack) {
    for index in 0..1000 {
        let tier = &stack.tiers()[FAST.index()];
        let taken = tier.used_bytes + tier.reserved_bytes + tier.garbage_bytes + tier.copy_bytes;
        if tier.capacity_bytes.is_some_and(|capacity| taken >= capacity) {
            return;
        }
        put(stack, &key(&format!("small-{index}")), &[1; 100]);
    }
    panic!("it does not fill up");
}

#[test]
fn a_promise_counts_in_the_quota() {
    let world = small(ROOMY, ROOMY);
    let stack = world.create();
    stack.set_quota("test", Some(50_000), None).expect("sets");
    let name = key("object");
    let object = promised(&stack, &name, 1000, 40_000);
    assert_eq!(stack.quotas()[0].bytes, 40_000);
    no_space(object.allocate(0..60_000, End::Stays));
    assert_eq!(stack.quotas()[0].bytes, 40_000);
    drop(object);
    assert_sound(&world, &stack);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    assert_eq!(stack.quotas()[0].bytes, 40_000);
    let other = stack.open(&key("other"), &Open::create_new()).expect("creates");
    no_space(other.write(0, &[1; 20_000]));
    drop(other);
    stack.delete(&name).expect("deletes");
    assert_sound(&world, &stack);
    assert_eq!(stack.quotas()[0].bytes, 0);
}

#[test]
fn one_tier_without_a_policy_keeps_promises_too() {
    let world = World::with(&[("only", 100_000, Persistency::Storage)]);
    let stack = world.create_with(promise_nothing);
    let name = key("object");
    let object = promised(&stack, &name, 1000, 60_000);
    fill(&stack);
    object.write(1000, &[1; 59_000]).expect("the room was promised");
    drop(object);
    assert_sound(&world, &stack);
    let object = opened(&stack, &name);
    object.set_len(100).expect("cuts");
    object.allocate(0..50_000, End::Stays).expect("there is room");
    drop(object);
    assert_eq!(behind(&stack, &name), [49_900]);
    assert_sound(&world, &stack);
    opened(&stack, &name).set_len(100).expect("gives it back");
    assert_eq!(behind(&stack, &name), [0]);
    assert_sound(&world, &stack);
}
