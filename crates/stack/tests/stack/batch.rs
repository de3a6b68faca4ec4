// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many objects created with one call.

use crate::common::hooked::{Call, Verdict};
use crate::common::world::{ROOMY, World, assert_sound, cutting, key};
use terrace_core::{
    Backend, BackendExt, ErrorKind, Hint, KV_KEY_BYTES_MAX, Key, Op, Persistency, Reply, Request,
    Result, Semantics,
};
use terrace_stack::Stack;

/// Creates objects that hold as many bytes each as `bytes` says, with one batch.
fn create(stack: &Stack, count: u8, bytes: usize, level: Persistency) -> Vec<Result<Reply>> {
    let names: Vec<_> = (0..count).map(name).collect();
    let contents: Vec<_> = (0..count).map(|number| vec![number; bytes]).collect();
    let request = |(key, data)| Request::Create { key, data, hint: Hint::default() };
    let pairs = names.iter().zip(&contents).map(|(name, data)| (name, data.as_slice()));
    let mut operations: Vec<_> = pairs.map(|pair| Op::new(request(pair))).collect();
    stack.execute(&mut operations, &Semantics::at_level(level));
    operations.into_iter().map(|operation| operation.outcome.expect("is filled")).collect()
}

fn name(number: u8) -> Key {
    key(&format!("together-{number}"))
}

#[test]
fn what_does_not_fit_on_the_fast_tier_goes_to_the_next() {
    for level in [Persistency::Process, Persistency::Storage] {
        let tiers =
            [("fast", 100_000, Persistency::Storage), ("slow", ROOMY, Persistency::Storage)];
        let world = World::with(&tiers);
        let stack = world.create();
        for outcome in create(&stack, 30, 10_000, level) {
            outcome.expect("there is room");
        }
        let [fast, slow] = [0, 1].map(|tier| stack.tiers()[tier].used_bytes);
        assert!(fast >= 60_000, "the fast tier is used: {fast}");
        assert_eq!(fast + slow, 300_000);
        for number in 0..30 {
            assert_eq!(stack.read_all(&name(number)).expect("reads"), [number; 10_000]);
        }
        assert_sound(&world, &stack);
    }
}

#[test]
fn an_object_longer_than_its_first_segment_is_whole() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    for outcome in create(&stack, 5, 10_000, Persistency::Storage) {
        outcome.expect("there is room");
    }
    assert_eq!(stack.explain(&name(3)).expect("exists").segments.len(), 3);
    assert_eq!(stack.read_all(&name(3)).expect("reads"), [3; 10_000]);
    assert_sound(&world, &stack);
}

#[test]
fn one_that_cannot_be_written_is_not_there_and_stops_no_other() {
    let world = World::two();
    let stack = world.create();
    // The files are written in the order of the names.
    let failing = std::sync::atomic::AtomicU32::new(0);
    world.tier(0).on(move |moment| {
        let is_write = moment.call == Call::Write && !moment.is_done;
        let fails = is_write && failing.fetch_add(1, std::sync::atomic::Ordering::AcqRel) == 2;
        if fails { Verdict::Fail(ErrorKind::Io) } else { Verdict::Go }
    });
    let outcomes = create(&stack, 5, 1000, Persistency::Process);
    world.tier(0).heal();
    let is_there: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(is_there, [true, true, false, true, true]);
    assert_eq!(stack.stat(&name(2)).expect_err("was not made").kind(), ErrorKind::NotFound);
    assert_eq!(stack.read_all(&name(3)).expect("reads"), [3; 1000]);
    let error = create(&stack, 3, 7, Persistency::Process).swap_remove(1).expect_err("exists");
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert_eq!(stack.read_all(&name(2)).expect("is made now"), [2; 7]);
    assert_sound(&world, &stack);
}

#[test]
fn a_tier_that_cannot_sync_acknowledges_nothing() {
    let world = World::two();
    let stack = world.create();
    world.tier(0).on(|moment| match moment.call {
        Call::SyncAll if !moment.is_done => Verdict::Fail(ErrorKind::Io),
        _ => Verdict::Go,
    });
    let outcomes = create(&stack, 100, 1000, Persistency::Storage);
    world.tier(0).heal();
    assert!(outcomes.iter().all(Result::is_err));
    assert!(stack.list_all("test", "").expect("lists").is_empty());
    for outcome in create(&stack, 100, 1000, Persistency::Storage) {
        outcome.expect("it is healed");
    }
    assert_sound(&world, &stack);
}

#[test]
fn pairs_change_together_or_not_at_all() {
    let world = World::two();
    let stack = world.create();
    let apply =
        |changes: &[(&[u8], Option<&[u8]>)]| stack.kv_apply("pairs", changes, Persistency::Process);
    assert_eq!(apply(&[]).expect("nothing to do"), 0);
    assert_eq!(apply(&[(b"a", Some(b"1")), (b"b", Some(b"2"))]).expect("applies"), 0);
    let long = [7; KV_KEY_BYTES_MAX + 1];
    for refused in [&long[..], b""] {
        let error = apply(&[(b"a", None), (b"c", Some(b"3")), (refused, Some(b""))]);
        assert_eq!(error.expect_err("is refused").kind(), ErrorKind::Invalid);
    }
    let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let scan = || stack.kv_scan("pairs", b"", None, 10).expect("scans");
    assert_eq!(scan(), [pair(b"a", b"1"), pair(b"b", b"2")], "nothing of a refused batch");
    // Each sees those before it.
    let changes: [(&[u8], Option<&[u8]>); 5] =
        [(b"a", None), (b"none", None), (b"c", Some(b"3")), (b"c", None), (b"b", Some(b"4"))];
    assert_eq!(apply(&changes).expect("applies"), 2);
    assert_eq!(scan(), [pair(b"b", b"4")]);
}
