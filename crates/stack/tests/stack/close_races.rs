// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writers that are inside while the store closes.

use std::sync::Arc;
use std::time::Duration;

use crate::common::hooked::Call;
use crate::common::world::{LONG, ROOMY, World, assert_sound, bounded, cutting, key, migrate, put};
use terrace_core::{
    Backend, BackendExt, Clock, ErrorKind, ObjectExt, Open, Persistency, SystemClock, TierIndex,
};
use terrace_stack::{MoveKind, Parts, Stack};

const SLOW: TierIndex = TierIndex(1);

/// Long enough for another thread to go on until something holds it.
fn pause() {
    SystemClock::default().sleep(Duration::from_millis(200));
}

/// Closes the store while `held` calls of the first tier are held; what came of `deed`, which is
/// held there.
fn close_over<T: Send + 'static>(
    world: &World,
    stack: &Arc<Stack>,
    held: Call,
    deed: impl FnOnce() -> T + Send + 'static,
) -> (T, terrace_core::Result<()>) {
    world.tier(0).hold(move |moment| moment.call == held && !moment.is_done);
    let writer = std::thread::spawn(deed);
    world.tier(0).wait_until_held();
    let closing = stack.clone();
    let closer = std::thread::spawn(move || closing.close());
    pause();
    world.tier(0).release();
    bounded(LONG, "a close with a writer inside", move || {
        (writer.join().expect("ends"), closer.join().expect("ends"))
    })
}

/// Stores of one tier and of two, objects of one file and of several, and what holds a write that
/// makes one longer.
fn worlds() -> [(World, Option<u64>, Call); 4] {
    let one = World::with(&[("only", ROOMY, Persistency::Storage)]);
    [
        (World::two(), None, Call::Write),
        (World::two(), Some(4096), Call::Write),
        (World::two(), Some(4096), Call::Create),
        (one, None, Call::Write),
    ]
}

fn cut_at(cut: Option<u64>) -> impl Fn(&mut Parts) {
    move |parts: &mut Parts| parts.tactics = cut.map(cutting)
}

#[test]
fn a_write_over_a_close_is_refused_or_there_afterwards() {
    for (world, cut, held) in worlds() {
        let stack = Arc::new(world.create_with(cut_at(cut)));
        let name = key("written");
        put(&stack, &name, &[1; 4096]);
        let object = stack.open(&name, &Open::write()).expect("opens");
        let (written, closed) =
            close_over(&world, &stack, held, move || object.write(4096, &[2; 1000]));
        closed.expect("closes");
        drop(stack);
        let stack = world.open_with(cut_at(cut));
        let found = stack.read_all(&name).expect("reads");
        match written {
            Ok(()) => assert_eq!(found, [[1; 4096].as_slice(), &[2; 1000]].concat(), "{held:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Busy, "{}", error.chain());
                assert_eq!(found, [1; 4096], "{held:?}");
            }
        }
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_close_with_a_writer_that_hangs_is_recovered_from() {
    let world = World::two();
    let stack = Arc::new(world.create());
    let name = key("hanging");
    put(&stack, &name, &[1; 1000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    world.tier(0).hold(|moment| moment.call == Call::Write && !moment.is_done);
    let writer = std::thread::spawn(move || object.write(1000, &[2; 1000]));
    world.tier(0).wait_until_held();
    let closing = stack.clone();
    let closed = bounded(LONG, "a close", move || closing.close());
    let error = closed.expect_err("a writer hangs");
    assert_eq!(error.kind(), ErrorKind::Busy, "{}", error.chain());
    world.tier(0).release();
    writer.join().expect("ends").expect("writes");
    drop(stack);
    let stack = world.open();
    let expected = [[1; 1000], [2; 1000]].concat();
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    assert_sound(&world, &stack);
}

/// One waits until the other has cut, and the store closes meanwhile.
#[test]
fn a_writer_that_waits_over_a_close_ends() {
    for length in [3000, 6000] {
        let world = World::two();
        let stack = Arc::new(world.create());
        let name = key("cut");
        put(&stack, &name, &[1; 5000]);
        let [cutting, writing] =
            [(); 2].map(|()| stack.open(&name, &Open::write()).expect("opens"));
        let ((cut, written), closed) = close_over(&world, &stack, Call::SetLen, move || {
            std::thread::scope(|scope| {
                let cutter = scope.spawn(move || cutting.set_len(length));
                let write = move || {
                    // Once the other keeps writers out.
                    pause_a_little();
                    writing.write(0, &[2; 100])
                };
                let writer = scope.spawn(write);
                (cutter.join().expect("ends"), writer.join().expect("ends"))
            })
        });
        closed.expect("closes");
        drop(stack);
        let stack = world.open();
        let found = stack.read_all(&name).expect("reads");
        assert_eq!(found.len() as u64, if cut.is_ok() { length } else { 5000 }, "{cut:?}");
        assert_eq!(found[..100], [if written.is_ok() { 2 } else { 1 }; 100], "{written:?}");
        assert_sound(&world, &stack);
    }
}

fn pause_a_little() {
    SystemClock::default().sleep(Duration::from_millis(50));
}

/// A thread that has just ended the last migration goes to wait for the next one: it must not miss
/// that there will be none. One that did would stay for longer than a close waits for it.
#[test]
fn a_close_right_behind_a_migration_waits_for_no_idle_thread() {
    for _ in 0..100 {
        let world = World::two();
        let stack = world.create();
        let name = key("moved");
        put(&stack, &name, &[1; 1000]);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        stack.close().expect("closes");
    }
}
