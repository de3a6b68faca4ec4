// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Holes take no room: tiers, quotas and migrations account what is allocated, and what was promised
//! or written has its room all the same.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::crashing::Crash;
use crate::common::world::{
    LONG, World, assert_sound, eventually, key, migrate, open_durable, outcome_of, put,
};
use terrace_core::{
    Backend, BackendExt, End, ErrorKind, Key, Object, ObjectExt, Open, Persistency, Random,
    TierIndex,
};
use terrace_stack::{MoveKind, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Tiers of so many MiB.
fn world(fast_mib: u64, slow_mib: u64) -> World {
    World::with(&[
        ("fast", fast_mib * MIB, Persistency::Storage),
        ("slow", slow_mib * MIB, Persistency::Storage),
    ])
}

fn create(stack: &Stack, name: &Key) -> Box<dyn Object> {
    stack.open(name, &Open::create_new()).expect("creates")
}

/// Used and reserved bytes of a tier.
fn taken(stack: &Stack, tier: usize) -> u64 {
    let report = &stack.tiers()[tier];
    report.used_bytes + report.reserved_bytes
}

/// What is allocated of an object by what the stack says.
fn allocated(stack: &Stack, name: &Key) -> u64 {
    let segments = stack.explain(name).expect("exists").segments;
    segments.iter().map(|segment| segment.allocated_bytes).sum()
}

fn reopen(world: &World, stack: Stack, crash: Option<Crash>) -> Stack {
    match crash {
        None => stack.close().expect("closes"),
        Some(_) => world.failpoints().freeze(),
    }
    drop(stack);
    world.crash(crash.unwrap_or(Crash::Process));
    world.open()
}

#[test]
fn a_long_hole_takes_nothing_and_data_in_it_its_blocks() {
    let world = world(20, 20);
    let mut stack = world.create();
    let (image, other) = (key("vm.img"), key("other"));
    let object = create(&stack, &image);
    object.set_len(TIB).expect("a hole takes no room");
    assert!(taken(&stack, 0) <= MIB, "{:?}", stack.tiers());
    let object_2 = create(&stack, &other);
    object_2.write(200 << 30, &vec![7; MIB as usize]).expect("there is room");
    object.write(500 << 30, &[8; 5000]).expect("there is room");
    drop((object, object_2));
    for crash in [None, Some(Crash::Process), Some(Crash::Power { seed: 1 }), None] {
        stack.sync_all().expect("syncs");
        assert_eq!(stack.tiers()[0].used_bytes, MIB + 8192, "{crash:?}");
        assert_eq!([&image, &other].map(|name| allocated(&stack, name)), [8192, MIB]);
        assert_eq!(stack.stat(&image).expect("exists").size_bytes, TIB);
        assert_sound(&world, &stack);
        stack = reopen(&world, stack, crash);
    }
    stack.delete(&image).expect("deletes");
    eventually("it is gone", || taken(&stack, 0) == MIB);
}

#[test]
fn filling_a_hole_takes_its_room_and_never_more_than_there_is() {
    let world = World::with(&[("only", 8 * MIB, Persistency::Storage)]);
    let stack = world.create();
    let name = key("filled");
    let object = create(&stack, &name);
    object.set_len(64 * MIB).expect("grows");
    let mut written = 0;
    let error = loop {
        match object.write(written, &vec![7; 100_000]) {
            Ok(()) => written += 100_000,
            Err(error) => break error,
        }
        assert!(taken(&stack, 0) <= 8 * MIB);
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(written > 7 * MIB, "{written}");
    // What is there can be written over, and cut off.
    object.write(10_000, &vec![8; 1_000_000]).expect("takes no room");
    object.write(50 * MIB, &vec![6; MIB as usize]).expect_err("a hole");
    object.punch(0..4 * MIB).expect("punches");
    object.write(60 * MIB, &vec![9; MIB as usize]).expect("there is room again");
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn what_was_promised_in_a_hole_has_its_room() {
    let world = world(8, 8);
    let stack = world.create();
    let name = key("promised");
    let object = create(&stack, &name);
    object.set_len(TIB).expect("grows");
    object.allocate(1 << 30..(1 << 30) + 2 * MIB, End::Grows).expect("there is room");
    object.allocate(2 << 30..(2 << 30) + MIB, End::Stays).expect("there is room");
    let full = object.allocate(3 << 30..(3 << 30) + 30 * MIB, End::Grows);
    assert_eq!(full.expect_err("there is none").kind(), ErrorKind::NoSpace);
    for tier in [SLOW, FAST] {
        migrate(&stack, &name, tier, MoveKind::Move);
        let other = key(&format!("other-{tier}"));
        let filler = create(&stack, &other);
        while filler.append(&[std::io::IoSlice::new(&[1; 65_536])]).is_ok() {}
        drop(filler);
        let data = vec![tier.0 + 1; 2 * MIB as usize];
        object.write(1 << 30, &data).expect("it was promised");
        object.write(2 << 30, &data[..MIB as usize]).expect("it was promised");
        stack.delete(&other).expect("deletes");
    }
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn a_hole_that_its_tier_has_no_room_for_moves_to_one_that_has() {
    let world = world(8, 64);
    let stack = world.create();
    let name = key("image");
    let object = create(&stack, &name);
    object.set_len(TIB).expect("grows");
    // Last first, so that nothing is appended.
    for index in (0..20).rev() {
        object.write(index << 30, &vec![index as u8; MIB as usize]).expect("a tier has room");
    }
    drop(object);
    let explanation = stack.explain(&name).expect("exists");
    assert_eq!(explanation.segments[0].tier, "slow", "{explanation:?}");
    assert_eq!(explanation.segments[0].allocated_bytes, 20 * MIB);
    assert_sound(&world, &stack);
}

#[test]
fn holes_are_filled_while_their_objects_move_and_moves_are_cancelled() {
    const OBJECTS: u64 = 24;
    const PARTS: u64 = 4;
    const PART_BYTES: u64 = 64 << 10;
    // Room for a quarter of all.
    let world = World::with(&[
        ("fast", OBJECTS * PARTS * PART_BYTES / 4, Persistency::Storage),
        ("slow", 64 * MIB, Persistency::Storage),
    ]);
    let stack = world.create();
    let name = |object: u64| key(&format!("object-{object}"));
    let is_done = AtomicBool::new(false);
    for round in 0..8 {
        is_done.store(false, Ordering::Release);
        thread::scope(|scope| {
            let mover = |seed: u64| {
                let mut random = Random::new(seed);
                while !is_done.load(Ordering::Acquire) {
                    let to = if random.below(3) == 0 { SLOW } else { FAST };
                    let kind = if random.below(4) == 0 { MoveKind::Copy } else { MoveKind::Move };
                    let object = name(random.below(OBJECTS));
                    // It may not be there yet, be there already, or move.
                    let asked = stack.migrate(&object, to, kind, 0, "the test");
                    if let (Ok(tickets), 0) = (asked, random.below(3)) {
                        for ticket in tickets {
                            // It may have ended.
                            let _ = stack.cancel(ticket);
                        }
                    }
                }
            };
            let movers =
                [scope.spawn(move || mover(2 * round)), scope.spawn(move || mover(2 * round + 1))];
            let writer = |seed: u64| {
                let mut random = Random::new(seed);
                for _ in 0..300 {
                    let object = stack.open(&name(random.below(OBJECTS)), &Open::create());
                    let offset = random.below(PARTS) * PART_BYTES;
                    let data = vec![1; PART_BYTES as usize];
                    object.expect("opens").write(offset, &data).expect("the slow tier has room");
                }
            };
            let writers = [1, 2, 3].map(|seed| scope.spawn(move || writer(100 * round + seed)));
            let ended = writers.map(thread::ScopedJoinHandle::join);
            is_done.store(true, Ordering::Release);
            for one in movers {
                one.join().expect("asks");
            }
            for one in ended {
                one.expect("writes");
            }
        });
        assert!(stack.wait_idle(LONG));
        for object in 0..OBJECTS {
            match stack.delete(&name(object)) {
                Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
                _ => {}
            }
        }
    }
    assert_sound(&world, &stack);
}

#[test]
fn a_migration_keeps_holes_and_reserves_what_it_allocates() {
    let world = world(100, 100);
    let stack = world.create();
    let name = key("sparse");
    let object = create(&stack, &name);
    object.set_len(TIB).expect("grows");
    object.write(TIB / 2, &vec![7; MIB as usize]).expect("writes");
    for (kind, to) in [
        (MoveKind::Move, SLOW),
        (MoveKind::Promote, FAST),
        (MoveKind::Move, SLOW),
        (MoveKind::Copy, FAST),
    ] {
        migrate(&stack, &name, to, kind);
        let copied: u64 = stack.moves().iter().map(|one| one.copied_bytes).max().expect("some");
        assert!(copied <= 2 * MIB, "{copied}");
        assert!(taken(&stack, to.index()) <= 2 * MIB, "{:?}", stack.tiers());
        assert!(stack.tiers()[to.index()].copy_bytes <= 2 * MIB, "{:?}", stack.tiers());
    }
    object.write(TIB / 4, &vec![8; MIB as usize]).expect("writes");
    drop(object);
    assert_eq!(allocated(&stack, &name), 2 * MIB);
    assert_sound(&world, &stack);
    // One that does not fit is not begun.
    put(&stack, &key("large"), &vec![1; 30 * MIB as usize]);
    drop(open_durable(&stack, &key("large")).expect("opens"));
    let small = World::with(&[
        ("fast", 64 * MIB, Persistency::Storage),
        ("slow", MIB, Persistency::Storage),
    ]);
    let stack = small.create();
    let object = create(&stack, &name);
    object.write(TIB / 2, &vec![7; 2 * MIB as usize]).expect("writes");
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&ended), "no-space");
    drop(object);
    assert_sound(&small, &stack);
}

#[test]
fn a_quota_counts_what_is_allocated() {
    let world = world(100, 100);
    let stack = world.create();
    stack.set_quota("test", Some(2 * MIB), None).expect("sets");
    let name = key("sparse");
    let object = create(&stack, &name);
    object.set_len(TIB).expect("a hole is no use of it");
    object.write(TIB / 2, &vec![7; MIB as usize]).expect("allowed");
    let refused = object.write(TIB / 4, &vec![7; 2 * MIB as usize]).expect_err("too much");
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert!(refused.chain().contains("quota"), "{}", refused.chain());
    drop(object);
    assert_eq!(stack.quotas()[0].bytes, MIB);
    let space = stack.space_of("test").expect("tells");
    assert_eq!((space.capacity_bytes, space.used_bytes), (2 * MIB, MIB));
    let stack = reopen(&world, stack, None);
    assert_eq!(stack.quotas()[0].bytes, MIB);
    assert_sound(&world, &stack);
}

#[test]
fn a_file_that_is_filled_out_of_order_is_dense_in_the_end() {
    let world = world(8, 8);
    let stack = world.create();
    let name = key("dense");
    let object = create(&stack, &name);
    for at in [3, 1, 0, 2] {
        object.write(at * MIB, &vec![7; MIB as usize]).expect("there is room");
    }
    drop(object);
    assert_eq!(stack.tiers()[0].used_bytes, 4 * MIB);
    assert_eq!(stack.read_all(&name).expect("reads"), vec![7; 4 * MIB as usize]);
    assert_sound(&world, &stack);
}
