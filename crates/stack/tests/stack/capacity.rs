// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tiers that fill up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::directories::Directories;
use crate::common::hooked::{Call, Verdict};
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, cutting, eventually, key, migrate, outcome_of,
    promise_nothing, put,
};
use terrace_core::{
    Backend, BackendExt, End, Error, ErrorKind, Key, Kv, ObjectExt, Open, Persistency, TierIndex,
};
use terrace_stack::report::{HistoryReport, SegmentReport};
use terrace_stack::{MoveKind, Stack};
use terrace_testkit::{KvLayer, Layered};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

fn small(fast: u64, slow: u64) -> World {
    World::with(&[("fast", fast, Persistency::Storage), ("slow", slow, Persistency::Storage)])
}

fn try_put(stack: &Stack, name: &Key, data: &[u8]) -> Result<(), Error> {
    stack.open(name, &Open::create_new())?.write(0, data)
}

#[test]
fn a_full_fast_tier_spills() {
    let world = small(100_000, ROOMY);
    let stack = world.create();
    for index in 0..30 {
        put(&stack, &key(&format!("spilled-{index}")), &[index; 10_000]);
    }
    let [fast, slow] = [0, 1].map(|tier| stack.tiers()[tier].used_bytes);
    assert!(fast >= 60_000, "the fast tier is used: {fast}");
    assert_eq!(fast + slow, 300_000);
    let last = stack.explain(&key("spilled-29")).expect("exists").segments.remove(0);
    assert_eq!(last.tier, "slow");
    let [past] = last.history.as_slice() else { panic!("{last:?}") };
    assert_eq!((past.what.as_str(), past.reason.as_str()), ("spilled", "fast was full"));
    for index in 0..30 {
        let name = key(&format!("spilled-{index}"));
        assert_eq!(stack.read_all(&name).expect("reads"), [index; 10_000]);
    }
    assert_sound(&world, &stack);
}

#[test]
fn no_space_means_that_every_tier_is_full_and_keeps_what_was_there() {
    let world = small(64 << 10, 64 << 10);
    let stack = world.create();
    let mut kept = Vec::new();
    let error = loop {
        let name = key(&format!("filler-{}", kept.len()));
        match try_put(&stack, &name, &[kept.len() as u8; 1000]) {
            Ok(()) => kept.push(name),
            Err(error) => break error,
        }
        assert!(kept.len() < 200, "more was taken than there is");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
    assert!(kept.len() >= 125, "only {} kB of 131 kB were usable", kept.len());
    for (index, name) in kept.iter().enumerate() {
        assert_eq!(stack.read_all(name).expect("reads"), [index as u8; 1000]);
    }
    let _ = stack.delete(&key(&format!("filler-{}", kept.len())));
    assert_sound(&world, &stack);
    stack.delete(&kept[0]).expect("deletes");
    assert_sound(&world, &stack);
    put(&stack, &key("again"), &[9; 500]);
    assert_sound(&world, &stack);
}

/// Although its files go only once nobody can find them after a loss of power.
#[test]
fn what_is_deleted_makes_room_for_what_comes_next() {
    let world = small(50_000, 50_000);
    let stack = world.create();
    for round in 0..20u8 {
        let name = key(&format!("large-{round}"));
        put(&stack, &name, &[round; 90_000]);
        assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "fast");
        assert_eq!(stack.read_all(&name).expect("reads"), [round; 90_000]);
        stack.delete(&name).expect("deletes");
    }
    assert_sound(&world, &stack);
}

#[test]
fn what_is_deleted_makes_room_for_what_moves() {
    let world = small(50_000, ROOMY);
    let stack = world.create();
    for round in 0..20u8 {
        let name = key(&format!("large-{round}"));
        put(&stack, &name, &[round; 40_000]);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        let next = key(&format!("next-{round}"));
        put(&stack, &next, &[round; 40_000]);
        stack.delete(&next).expect("deletes");
        migrate(&stack, &name, FAST, MoveKind::Move);
        stack.delete(&name).expect("deletes");
    }
    assert_sound(&world, &stack);
}

#[test]
fn what_a_pinned_object_grows_by_comes_to_its_tier() {
    for is_pinned in [false, true] {
        let world = small(ROOMY, ROOMY);
        let stack = world.create_with(|parts| parts.tactics = Some(cutting(20_000)));
        let name = key("growing");
        put(&stack, &name, &[1; 10_000]);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        if is_pinned {
            stack.pin(&name).expect("pins");
        }
        let object = stack.open(&name, &Open::write()).expect("opens");
        object.write(10_000, &[2; 90_000]).expect("grows");
        drop(object);
        let segments = stack.explain(&name).expect("exists").segments;
        assert!(segments.len() > 1, "{segments:?}");
        let is_elsewhere = segments.iter().any(|segment| segment.tier != "slow");
        assert_eq!(is_elsewhere, !is_pinned, "{segments:?}");
        assert_sound(&world, &stack);
    }
}

#[test]
fn an_object_that_outgrows_its_tier_goes_on_in_the_next() {
    for is_cut in [false, true] {
        let world = small(50_000, ROOMY);
        let stack = world.create_with(|parts| {
            parts.tactics = is_cut.then(|| cutting(20_000));
        });
        let name = key("growing");
        put(&stack, &name, b"");
        let object = stack.open(&name, &Open::write()).expect("opens");
        let mut model = Vec::new();
        for index in 0..60u8 {
            object.write(model.len() as u64, &[index; 2500]).expect("grows");
            model.extend([index; 2500]);
        }
        drop(object);
        assert_eq!(stack.read_all(&name).expect("reads"), model);
        let explanation = stack.explain(&name).expect("exists");
        assert!(explanation.segments.len() >= 2, "{explanation:?}");
        let tiers: Vec<_> = explanation.segments.iter().map(|s| s.tier.as_str()).collect();
        assert!(tiers.contains(&"fast") && tiers.contains(&"slow"), "{tiers:?}");
        // Cut into parts, the placer meets a full tier as well; and none came anywhere unexplained.
        for segment in &explanation.segments {
            let past = segment.history.last().expect("has a history");
            let is_spilled = past.what == "spilled" && past.reason == "fast was full";
            assert_eq!(is_spilled, segment.tier == "slow", "{segment:?}");
        }
        assert_sound(&world, &stack);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        assert_eq!(stack.read_all(&name).expect("reads"), model);
        stack
            .open(&name, &Open::write())
            .expect("opens")
            .write(49_000, &[99; 3000])
            .expect("writes");
        model[49_000..52_000].fill(99);
        assert_eq!(stack.read_all(&name).expect("reads"), model);
        stack.open(&name, &Open::write()).expect("opens").set_len(100).expect("cuts");
        model.truncate(100);
        if is_cut {
            let object = stack.open(&name, &Open::write()).expect("opens");
            object.write(100, &[7; 29_900]).expect("grows");
            model.extend([7; 29_900]);
            drop(object);
            for segment in stack.explain(&name).expect("exists").segments {
                let past = segment.history.last().expect("has a history");
                assert_eq!((segment.tier.as_str(), past.what.as_str()), ("fast", "placed"));
            }
        }
        assert_eq!(stack.read_all(&name).expect("reads"), model);
        assert_sound(&world, &stack);
    }
}

#[test]
fn one_write_may_be_larger_than_the_fast_tier() {
    let world = small(50_000, ROOMY);
    let stack = world.create();
    let name = key("large");
    put(&stack, &name, &[5; 200_000]);
    assert_eq!(stack.read_all(&name).expect("reads"), [5; 200_000]);
    assert_sound(&world, &stack);
}

#[test]
fn growth_that_does_not_fit_changes_nothing_before_its_range() {
    let world = small(40_000, 40_000);
    let stack = world.create();
    let name = key("tight");
    put(&stack, &name, &[5; 30_000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    let error = object.write(20_000, &[6; 100_000]).expect_err("does not fit");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
    let data = stack.read_all(&name).expect("reads");
    assert_eq!(data[..20_000], [5; 20_000]);
    let is_old_or_new = |(at, byte): (usize, &u8)| *byte == 6 || (at < 30_000 && *byte == 5);
    assert!(data.len() >= 30_000 && data.iter().enumerate().skip(20_000).all(is_old_or_new));
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn a_volatile_tier_does_not_help_what_must_survive() {
    let world = World::with(&[
        ("memory", ROOMY, Persistency::None),
        ("disk", 50_000, Persistency::Storage),
    ]);
    let stack = world.create_with(promise_nothing);
    let error = try_put(&stack, &key("large"), &[1; 80_000]).expect_err("memory is not allowed");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
    let level = terrace_core::Semantics::at_level(Persistency::None);
    let object = stack.open(&key("scratch"), &Open::create_new().with_semantics(level));
    object.expect("creates").write(0, &[1; 80_000]).expect("memory is allowed");
}

#[test]
fn what_no_tier_can_keep_is_refused() {
    let world =
        World::with(&[("memory", ROOMY, Persistency::None), ("page", ROOMY, Persistency::Process)]);
    let stack = world.create();
    let level = terrace_core::Semantics::at_level(Persistency::Storage);
    let error = stack
        .open(&key("impossible"), &Open::create_new().with_semantics(level))
        .map(drop)
        .expect_err("no tier keeps it");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain());
    assert_eq!(stack.capability().persistency, Persistency::Process);
}

#[test]
fn room_that_was_allocated_is_not_given_away() {
    let world = small(100_000, 50_000);
    let stack = world.create();
    let name = key("reserved");
    put(&stack, &name, b"");
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.allocate(0..60_000, End::Grows).expect("there is room");
    let mut others = 0;
    while try_put(&stack, &key(&format!("other-{others}")), &[1; 3000]).is_ok() {
        others += 1;
    }
    for at in 0..20u64 {
        object.write(at * 3000, &[2; 3000]).expect("the room was promised");
    }
    drop(object);
    assert_eq!(stack.read_all(&name).expect("reads"), [2; 60_000]);
    assert_sound(&world, &stack);
}

#[test]
fn room_is_allocated_on_the_next_tier_where_one_is_full() {
    let world = small(50_000, ROOMY);
    let stack = world.create();
    put(&stack, &key("filler"), &[2; 35_000]);
    for (name, length) in [("empty", 0), ("begun", 1000)] {
        let name = key(name);
        let object = stack.open(&name, &Open::create_new()).expect("creates");
        object.write(0, &vec![1; length]).expect("writes");
        object.allocate(length as u64..30_000, End::Grows).expect("goes on elsewhere");
        assert_eq!(object.stat().expect("stat").size_bytes, 30_000);
        let data: Vec<_> = (0..30_000).map(|at| if at < length { 1 } else { 0 }).collect();
        assert_eq!(stack.read_all(&name).expect("reads"), data);
        object.write(0, &[3; 30_000]).expect("has its room");
    }
    drop(stack.open(&key("filler"), &Open::read()).expect("opens"));
    assert_sound(&world, &stack);
}

#[test]
fn a_migration_reserves_before_it_writes() {
    let world = small(ROOMY, 30_000);
    let stack = world.create();
    for index in 0..4 {
        put(&stack, &key(&format!("wants-{index}")), &[1; 12_000]);
    }
    let mut outcomes = Vec::new();
    for index in 0..4 {
        let name = key(&format!("wants-{index}"));
        for ticket in stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued") {
            outcomes.push(ticket);
        }
    }
    let mut outcomes: Vec<_> = outcomes
        .into_iter()
        .map(|ticket| {
            let ended =
                stack.wait(ticket, crate::common::world::LONG).expect("known").expect("ends");
            crate::common::world::outcome_of(&ended).to_string()
        })
        .collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["done", "done", "no-space", "no-space"]);
    assert_sound(&world, &stack);
}

#[test]
fn a_deleted_object_frees_its_room_on_every_tier() {
    let world = small(50_000, 50_000);
    let stack = world.create();
    for round in 0..30 {
        let name = key(&format!("round-{round}"));
        put(&stack, &name, &[1; 20_000]);
        migrate(&stack, &name, SLOW, MoveKind::Promote);
        stack.delete(&name).expect("deletes");
        assert_sound(&world, &stack);
    }
    assert!(stack.tiers().iter().all(|tier| tier.used_bytes + tier.copy_bytes == 0));
    assert!(world.disk(0).files().is_empty() && world.disk(1).files().is_empty());
}

#[test]
fn what_is_cut_frees_its_room() {
    let world = small(50_000, 1000);
    let stack = world.create();
    let name = key("breathing");
    put(&stack, &name, b"");
    let object = stack.open(&name, &Open::write()).expect("opens");
    for _ in 0..20 {
        object.write(0, &[1; 40_000]).expect("there is room");
        object.set_len(0).expect("cuts");
    }
    drop(object);
    put(&stack, &key("other"), &[2; 40_000]);
    assert_sound(&world, &stack);
}

#[test]
fn a_first_write_that_does_not_fit_goes_on_elsewhere() {
    let world = small(100_000, ROOMY);
    let stack = world.create();
    put(&stack, &key("most"), &[1; 90_000]);
    // Nobody said how large it will be, so that it may begin where little room is left.
    put(&stack, &key("surprise"), &[2; 30_000]);
    assert_eq!(stack.read_all(&key("surprise")).expect("reads"), [2; 30_000]);
    assert_sound(&world, &stack);
}

/// Goal: neither a checksum nor a copy, nor a switch that is not yet certain, keeps an object where
/// there is no room for it.
#[test]
fn an_object_that_moved_while_empty_goes_on_where_there_is_room() {
    for kind in [MoveKind::Move, MoveKind::Promote] {
        let world = small(50_000, ROOMY);
        let stack = world.create();
        let names = [key("written"), key("grown"), key("allocated")];
        for name in &names {
            put(&stack, name, &[1; 5000]);
            migrate(&stack, name, SLOW, MoveKind::Move);
            stack.open(name, &Open::write()).expect("opens").set_len(0).expect("cuts");
            migrate(&stack, name, FAST, kind);
        }
        eventually("nothing is left of what moved", || stack.tiers()[0].garbage_bytes == 0);
        put(&stack, &key("filler"), &[2; 50_000]);
        assert_eq!(stack.tiers()[0].used_bytes, 50_000);
        let open = |name| stack.open(name, &Open::write()).expect("opens");
        open(&names[0]).write(0, &[3; 8000]).expect("goes on elsewhere");
        open(&names[1]).set_len(8000).expect("takes nothing");
        open(&names[1]).write(0, &[0; 8000]).expect("goes on elsewhere");
        open(&names[2]).allocate(0..8000, End::Grows).expect("goes on elsewhere");
        for (name, byte) in names.iter().zip([3, 0, 0]) {
            assert_eq!(stack.read_all(name).expect("reads"), [byte; 8000]);
            let [segment] = &stack.explain(name).expect("exists").segments[..] else {
                panic!("{name} has one segment");
            };
            assert_eq!(segment.tier, "slow", "{kind:?} {name}");
        }
        assert_sound(&world, &stack);
        world.crash(crate::common::crashing::Crash::Process);
        drop(stack);
        let stack = world.open();
        for (name, byte) in names.iter().zip([3, 0, 0]) {
            assert_eq!(stack.read_all(name).expect("reads"), [byte; 8000]);
        }
        assert_sound(&world, &stack);
    }
}

#[test]
fn growth_skips_a_tier_that_is_nearly_full() {
    let world = World::with(&[
        ("fast", 20_000, Persistency::Storage),
        ("middle", 20_000, Persistency::Storage),
        ("roomy", ROOMY, Persistency::Storage),
    ]);
    let stack = world.create();
    put(&stack, &key("filler"), &[1; 19_000]);
    migrate(&stack, &key("filler"), SLOW, MoveKind::Move);
    let name = key("growing");
    put(&stack, &name, &[2; 15_000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(15_000, &[3; 30_000]).expect("there is room on the third tier");
    drop(object);
    let expected = [[2; 15_000].as_slice(), &[3; 30_000]].concat();
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    assert_sound(&world, &stack);
}

#[test]
fn setting_the_length_spills_too() {
    let world = small(20_000, ROOMY);
    let stack = world.create();
    let name = key("stretched");
    put(&stack, &name, &[2; 15_000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.set_len(60_000).expect("there is room on the second tier");
    object.write(59_000, &[3; 1000]).expect("there is room");
    drop(object);
    let mut expected = vec![2; 15_000];
    expected.resize(59_000, 0);
    expected.resize(60_000, 3);
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    assert_sound(&world, &stack);
}

#[test]
fn a_hole_before_a_later_segment_reads_as_zeros() {
    let world = small(ROOMY, ROOMY);
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    let name = key("holey");
    let object = stack.open(&name, &Open::create_new()).expect("creates");
    object.write(10_000, &[7; 100]).expect("writes");
    let mut buffer = [9; 200];
    assert_eq!(object.read(0, &mut buffer).expect("reads"), 200);
    assert_eq!(buffer, [0; 200]);
    assert_eq!(object.read(4000, &mut buffer).expect("reads"), 200);
    assert_eq!(buffer, [0; 200]);
    object.write(10, &[8; 10]).expect("writes");
    let mut expected = vec![0; 10_000];
    expected.extend([7; 100]);
    expected[10..20].fill(8);
    assert_eq!(object.read_to_end().expect("reads"), expected);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_eq!(object.read_to_end().expect("reads"), expected);
    assert_eq!(object.append(&[std::io::IoSlice::new(&[6; 5])]).expect("appends"), 10_100);
    object.set_len(30).expect("cuts");
    assert_eq!(object.read_to_end().expect("reads"), expected[..30]);
    drop(object);
    assert_sound(&world, &stack);
}

/// An object that was just moved to a tier that is full, and cut: it spills all the same.
#[test]
fn an_empty_object_whose_switch_is_not_settled_spills() {
    let world = small(50_000, ROOMY);
    let stack = world.create();
    let name = key("moved");
    put(&stack, &name, &[1; 1000]);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    put(&stack, &key("filler"), &[2; 40_000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    let syncs = AtomicUsize::new(0);
    // The first sync comes before the switch, the second settles it.
    world.tier(0).hold(move |moment| {
        moment.call == Call::Sync && !moment.is_done && syncs.fetch_add(1, Ordering::SeqCst) == 1
    });
    let tickets = stack.migrate(&name, TierIndex(0), MoveKind::Move, 0, "test").expect("queued");
    world.tier(0).wait_until_held();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            object.set_len(0)?;
            object.write(0, &[3; 20_000])
        });
        // The writer is refused, or waits, before the switch is settled.
        let waited = stack.wait(tickets[0], Duration::from_millis(100)).expect("known");
        assert!(waited.is_none(), "{waited:?}");
        world.tier(0).release();
        writer.join().expect("no panic").expect("goes on elsewhere");
    });
    stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(stack.read_all(&name).expect("reads"), [3; 20_000]);
    drop(object);
    assert_sound(&world, &stack);
}

/// An empty object that was moved has a checksum; it spills all the same.
#[test]
fn an_empty_object_that_was_moved_spills() {
    for is_cut in [false, true] {
        let world = small(50_000, ROOMY);
        let stack = world.create();
        let name = key("moved");
        let object = stack.open(&name, &Open::create_new()).expect("creates");
        if is_cut {
            object.write(0, &[1; 1000]).expect("writes");
        }
        migrate(&stack, &name, SLOW, MoveKind::Move);
        migrate(&stack, &name, TierIndex(0), MoveKind::Move);
        if is_cut {
            object.set_len(0).expect("cuts");
            migrate(&stack, &name, SLOW, MoveKind::Copy);
        }
        put(&stack, &key("filler"), &[2; 40_000]);
        object.write(0, &[3; 20_000]).expect("goes on elsewhere");
        assert_eq!(stack.read_all(&name).expect("reads"), [3; 20_000]);
        drop(object);
        let segment = stack.explain(&name).expect("exists").segments.remove(1);
        let [past] = segment.history.as_slice() else { panic!("{segment:?}") };
        assert_eq!((past.what.as_str(), past.tier.as_str()), ("spilled", "slow"));
        assert_sound(&world, &stack);
    }
}

#[test]
fn an_empty_object_whose_tier_fills_up_goes_elsewhere_and_tells_why() {
    let world = small(50_000, ROOMY);
    let stack = world.create();
    let name = key("late");
    let object = stack.open(&name, &Open::create_new()).expect("creates");
    put(&stack, &key("filler"), &[2; 50_000]);
    object.write(0, &[3; 20_000]).expect("goes elsewhere");
    drop(object);
    let mut segments = stack.explain(&name).expect("exists").segments;
    assert_eq!(segments.len(), 1, "{segments:?}");
    let history = segments.remove(0).history;
    let told = |past: &HistoryReport| {
        let from = past.from.clone();
        (past.what.clone(), from, past.tier.clone(), past.reason.clone())
    };
    let [placed, spilled] = history.as_slice() else { panic!("{history:?}") };
    assert_eq!(told(placed), ("placed".into(), None, "fast".into(), "new object".into()));
    let why = "fast was full".into();
    assert_eq!(told(spilled), ("spilled".into(), Some("fast".into()), "slow".into(), why));
    assert_sound(&world, &stack);
}

#[test]
fn a_draft_that_does_not_come_to_its_tier_tells_why() {
    // The tier is full before the draft is made, before its first byte, or before the rest of them.
    for (has_old, is_full_before, first) in [
        (false, true, 0),
        (true, true, 0),
        (false, false, 0),
        (true, false, 0),
        (false, false, 10_000),
        (true, false, 10_000),
    ] {
        let world = small(50_000, ROOMY);
        let stack = world.create();
        let name = key("drafted");
        if has_old {
            put(&stack, &name, &[1; 100]);
        }
        let fill = || put(&stack, &key("filler"), &vec![2; 49_500 - first]);
        if is_full_before {
            fill();
        }
        let draft = stack.draft(&name, &Open::create()).expect("begins");
        draft.object().write(0, &vec![3; first]).expect("writes");
        if !is_full_before {
            fill();
        }
        draft.object().write(first as u64, &vec![3; 20_000 - first]).expect("goes on elsewhere");
        draft.publish().expect("publishes");
        drop(draft);
        let histories = |stack: &Stack| {
            let segments = stack.explain(&name).expect("exists").segments;
            let history = |segment: SegmentReport| {
                let past = segment.history.last().expect("has a history");
                let is_spilled = past.what == "spilled" && past.reason == "fast was full";
                assert_eq!(is_spilled, segment.tier == "slow", "{segment:?}");
                segment.tier
            };
            segments.into_iter().map(history).collect::<Vec<_>>()
        };
        let expected: &[_] = if first > 0 { &["fast", "slow"] } else { &["slow"] };
        assert_eq!(histories(&stack), expected);
        assert_eq!(stack.read_all(&name).expect("reads"), [3; 20_000]);
        assert_sound(&world, &stack);
        stack.close().expect("closes");
        drop(stack);
        let stack = world.open();
        assert_eq!(histories(&stack), expected, "as before the store was closed");
    }
}

#[test]
fn room_without_a_bound_is_that_of_the_file_system_once() {
    const BOUND: u64 = 1 << 20;
    let tiers = [("fast", BOUND), ("slow", u64::MAX), ("last", u64::MAX)];
    let directories = Directories::with(&tiers);
    let stack = directories.create();
    put(&stack, &key("taken"), &[7; 100_000]);
    let space = stack.space().expect("the tiers tell");
    assert!(space.used_bytes >= 100_000, "{space:?}");
    let below = directories.space("slow");
    let available = below.capacity_bytes - below.used_bytes;
    // Others write to it and delete there at the same time.
    let free = space.capacity_bytes - space.used_bytes;
    assert!((available / 2..available / 2 * 3).contains(&free), "{free} of {available}");
}

/// Others write to the file system and delete there at the same time.
fn assert_nearly(free: u64, expected: u64) {
    assert!((expected / 2..expected / 2 * 3).contains(&free), "{free} of {expected}");
}

#[test]
fn capacity_beyond_the_file_system_is_no_room() {
    const HUGE: u64 = 1 << 50;
    let available = |directories: &Directories| {
        let below = directories.space("slow");
        below.capacity_bytes - below.used_bytes
    };
    let all = Directories::with(&[("fast", HUGE), ("slow", HUGE), ("last", u64::MAX)]);
    let bounded = Directories::with(&[("fast", HUGE), ("slow", HUGE)]);
    for directories in [&all, &bounded] {
        let space = directories.create().space().expect("the tiers tell");
        assert_nearly(space.capacity_bytes - space.used_bytes, available(directories));
    }
    // Each has room, and not all of them together.
    let share = available(&all) / 10 * 9;
    let shares = Directories::with(&[("fast", share), ("slow", share)]);
    let space = shares.create().space().expect("the tiers tell");
    assert_nearly(space.capacity_bytes - space.used_bytes, available(&shares));
    // And what is taken of them is no room either.
    let small = 1 << 20;
    let both = Directories::with(&[("fast", small), ("slow", small)]);
    let stack = both.create();
    put(&stack, &key("taken"), &[7; 100_000]);
    let space = stack.space().expect("the tiers tell");
    assert_eq!(space.capacity_bytes, 2 * small, "{space:?}");
    assert!(space.used_bytes >= 100_000, "{space:?}");
}

/// Bytes that each tier has taken, also for what may come.
fn taken(stack: &Stack) -> Vec<u64> {
    stack.tiers().iter().map(|tier| tier.used_bytes + tier.reserved_bytes).collect()
}

#[test]
fn growth_for_which_there_is_no_room_takes_none() {
    const TOO_MUCH: u64 = 1 << 40;
    let world = small(40_000, 40_000);
    let stack = world.create();
    for length in [0, 10_000] {
        let name = key(&format!("object-{length}"));
        put(&stack, &name, &vec![5; length]);
        let object = stack.open(&name, &Open::write()).expect("opens");
        let before = taken(&stack);
        let check = |what: &str, outcome: Result<(), Error>| {
            let error = outcome.expect_err("there is no room");
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {}", error.chain());
            assert_eq!(object.stat().expect("stats").size_bytes, length as u64, "{what}");
            assert_eq!(taken(&stack), before, "{what}");
        };
        check("allocate", object.allocate(0..TOO_MUCH, End::Grows));
        check("write", object.write(length as u64, &[6; 100_000]));
        check("append", object.append(&[std::io::IoSlice::new(&[6; 100_000])]).map(drop));
    }
    assert_sound(&world, &stack);
}

#[test]
fn growth_that_fails_in_the_middle_is_taken_back() {
    let world = small(40_000, ROOMY);
    let stack = world.create();
    let name = key("object");
    put(&stack, &name, &[5; 10_000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    let before = taken(&stack);
    // The stack believes in room there; the device has none.
    world.tier(1).on(|moment| match moment.call {
        Call::Allocate if !moment.is_done => Verdict::Fail(ErrorKind::NoSpace),
        _ => Verdict::Go,
    });
    let error = object.allocate(0..100_000, End::Grows).expect_err("there is no room");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{}", error.chain());
    assert_eq!(object.stat().expect("stats").size_bytes, 10_000);
    assert_eq!(taken(&stack), before);
    world.tier(1).heal();
    object.allocate(0..100_000, End::Grows).expect("there is room");
    drop(object);
    let data = stack.read_all(&name).expect("reads");
    assert!(
        data.len() == 100_000 && data[..10_000] == [5; 10_000] && data[10_000..] == [0; 90_000]
    );
    assert_sound(&world, &stack);
}

#[test]
fn a_device_that_is_full_sooner_than_its_tier_is_left() {
    let world = small(40_000, ROOMY);
    let stack = world.create();
    let name = key("object");
    put(&stack, &name, &[5; 10_000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    world.tier(0).on(|moment| match moment.call {
        Call::Allocate if !moment.is_done => Verdict::Fail(ErrorKind::NoSpace),
        _ => Verdict::Go,
    });
    object.allocate(10_000..100_000, End::Grows).expect("it goes on elsewhere");
    assert_eq!(stack.explain(&name).expect("exists").segments[1].tier, "slow");
    drop(object);
    assert_sound(&world, &stack);
}

/// A catalog whose disk is all but full, or is not.
struct Filling {
    pairs: Arc<dyn Kv>,
    is_full: AtomicBool,
}

impl KvLayer for Filling {
    fn inner(&self) -> &dyn Kv {
        &*self.pairs
    }

    fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::Relaxed)
    }
}

#[test]
fn what_makes_room_goes_on_where_the_disk_of_the_catalog_is_full() {
    let world = small(ROOMY, 1 << 20);
    world.create_parts(|_| {});
    let pairs = world.parts().catalog;
    let catalog = Arc::new(Layered(Filling { pairs, is_full: AtomicBool::new(false) }));
    let stack = world.open_with(|parts| parts.catalog = Arc::clone(&catalog) as Arc<dyn Kv>);
    let [kept, gone] = ["kept", "gone"].map(key);
    put(&stack, &kept, &[1; 10_000]);
    put(&stack, &gone, &[2; 10_000]);
    let pair = |name: &[u8], value: Option<&[u8]>| {
        stack.kv_apply("test", &[(name, value)], Persistency::Process)
    };
    pair(b"old", Some(&[1; 3000])).expect("there is room");
    let refused = |what: &str, done: Result<(), Error>| {
        let error = done.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {}", error.chain());
    };
    catalog.is_full.store(true, Ordering::Relaxed);
    refused("an object", try_put(&stack, &key("new"), &[3; 100]));
    let object = stack.open(&kept, &Open::write()).expect("it is there");
    refused("a longer one", object.write(10_000, &[3; 1 << 20]));
    refused("a longer one", object.set_len(1 << 20));
    refused("a pair", pair(b"new", Some(b"value")).map(drop));
    refused("a longer pair", pair(b"old", Some(&[2; 3600])).map(drop));
    let tickets = stack.migrate(&kept, SLOW, MoveKind::Move, 0, "test").expect("queued");
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&ended), "no-space", "it may be the same disk");
    object.write(0, &[4; 10_000]).expect("that takes no room");
    pair(b"old", Some(&[3; 3100])).expect("that takes hardly any");
    pair(b"old", None).expect("that makes room");
    object.set_len(5000).expect("that makes room");
    stack.delete(&gone).expect("that makes room");
    catalog.is_full.store(false, Ordering::Relaxed);
    put(&stack, &key("new"), &[5; 100]);
    object.write(5000, &[5; 10]).expect("there is room again");
    drop(object);
    assert_eq!(stack.read_all(&kept).expect("reads"), [&[4; 5000][..], &[5; 10]].concat());
    assert_sound(&world, &stack);
}
