// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Superseded files whose deletion fails, or takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::hooked::{Call, Control, Moment, Verdict};
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, bounded, cutting, eventually, key, migrate, outcome_of, put,
};
use terrace_core::{Backend, ErrorKind, Key, Object, ObjectExt, Open, Persistency, TierIndex};
use terrace_stack::{MoveKind, Stack};
use terrace_testkit::ManualClock;

const SLOW: TierIndex = TierIndex(1);

/// Lets calls that are held go on at the end of a test, however that ends.
struct Released<'a>(&'a Control);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.heal();
    }
}

fn is_delete(moment: &Moment) -> bool {
    moment.call == Call::Delete && !moment.is_done
}

/// An object of three files on the slow tier.
fn slow(stack: &Stack, name: &str) -> Key {
    let name = key(name);
    put(stack, &name, &[7; 12_000]);
    migrate(stack, &name, SLOW, MoveKind::Move);
    name
}

fn files(world: &World) -> usize {
    world.disk_of("slow").files().len()
}

#[test]
fn a_file_that_cannot_be_deleted_delays_no_other() {
    for (is_whole, kind) in
        [(true, ErrorKind::Denied), (true, ErrorKind::Io), (false, ErrorKind::Io)]
    {
        let world = World::two();
        let world = if is_whole { world.whole("slow") } else { world };
        let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
        let name = slow(&stack, "refused");
        let stored = stack.explain(&name).expect("exists").segments.remove(0).stored_as;
        world.tier(1).on(move |moment| match is_delete(moment) && stored.ends_with(&moment.name) {
            true => Verdict::Fail(kind),
            false => Verdict::Go,
        });
        stack.delete(&name).expect("deleted");
        eventually("the others are gone", || files(&world) == 1);
        eventually("their rows are gone", || stack.tiers()[1].garbage_bytes == 4096);
        world.tier(1).heal();
        eventually("it is tried again", || files(&world) == 0);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_full_tier_waits_for_no_deletion_elsewhere() {
    let tiers = [("fast", 64 << 10, Persistency::Storage), ("slow", ROOMY, Persistency::Storage)];
    let world = World::with(&tiers).whole("slow");
    let stack = Arc::new(world.create());
    let name = slow(&stack, "slow");
    let control = world.tier(1);
    let _released = Released(control);
    control.hold(is_delete);
    stack.delete(&name).expect("deleted");
    control.wait_until_held();
    // Its file takes the room until it is deleted.
    put(&stack, &key("first"), &[1; 60 << 10]);
    stack.delete(&key("first")).expect("deleted");
    let writing = Arc::clone(&stack);
    bounded(LONG, "a write", move || put(&writing, &key("second"), &[2; 60 << 10]));
    assert!(control.is_holding());
    control.release();
    assert_sound(&world, &stack);
}

#[test]
fn a_close_gives_a_dead_service_up() {
    let world = World::two().whole("slow");
    let clock = Arc::new(ManualClock::new());
    let stack = world.create_with(|parts| {
        parts.clock = clock.clone();
        parts.tactics = Some(cutting(4096));
    });
    let name = slow(&stack, "left");
    let tries = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&tries);
    world.tier(1).on(move |moment| {
        if !is_delete(moment) {
            return Verdict::Go;
        }
        count.fetch_add(1, Ordering::SeqCst);
        Verdict::Fail(ErrorKind::Io)
    });
    stack.delete(&name).expect("deleted");
    stack.close().expect("closes");
    let tries = tries.load(Ordering::SeqCst);
    assert!(tries <= 1, "{tries} requests");
    world.tier(1).heal();
    let stack = world.open();
    eventually("the next opening deletes them", || files(&world) == 0);
    assert_sound(&world, &stack);
}

#[test]
fn an_abandoned_upload_is_deleted_after_a_restart() {
    let world = World::two().whole("slow");
    let stack = world.create();
    let name = key("hot");
    put(&stack, &name, &[1; 50_000]);
    let object: Arc<dyn Object> = stack.open(&name, &Open::write()).expect("opens").into();
    // Between the upload and the switch.
    let (writer, has_written) = (Arc::clone(&object), AtomicBool::new(false));
    world.tier(1).on(move |moment| {
        let is_sync = moment.call == Call::Sync && !moment.is_done;
        if is_sync && !has_written.swap(true, Ordering::SeqCst) {
            writer.write(7, b"while it moves").expect("written");
        }
        if is_delete(moment) { Verdict::Fail(ErrorKind::Io) } else { Verdict::Go }
    });
    let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    let report = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&report), "hot-write", "{report:?}");
    drop(object);
    stack.close().expect("closes");
    world.tier(1).heal();
    assert_eq!(files(&world), 1);
    let stack = world.open();
    eventually("the next opening deletes it", || files(&world) == 0);
    assert_sound(&world, &stack);
}
