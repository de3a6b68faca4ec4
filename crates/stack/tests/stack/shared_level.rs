// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The level `shared`: what another machine finds on a tier of whole objects after this one is lost.

use std::sync::{Arc, Condvar, Mutex};

use crate::common::crashing::{Crash, Crashing};
use crate::common::hooked::{Call, Verdict};
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, cutting, eventually, key, migrate, put,
};
use crate::versions::{Far, data, end, on_disk, put_rows, rows, taken_over};
use terrace_core::{
    Backend, BackendExt, ErrorKind, Key, Object, ObjectExt, Open, Persistency, Semantics, TierIndex,
};
use terrace_stack::{MoveKind, ScrubOptions, Stack, Tier};
use terrace_testkit::SimWorld;

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

fn world() -> World {
    World::two().whole("slow")
}

/// Opens the store before its log is written.
fn open_without_log(world: &World) -> Stack {
    world.open_with(|parts| parts.settings.has_far_log = true)
}

fn open(world: &World) -> Stack {
    let stack = open_without_log(world);
    stack.set_far_log(Some(Arc::new(Far)));
    stack
}

fn create(world: &World) -> Stack {
    world.create_parts(|_| {});
    open(world)
}

/// Makes an object at the level; what is written to it is acknowledged there.
fn shared(stack: &Stack, name: &Key, bytes: &[u8]) -> Box<dyn Object> {
    let how = Open::create_new().with_semantics(Semantics::at_level(Persistency::Shared));
    let object = stack.open(name, &how).expect("made");
    object.write(0, bytes).expect("acknowledged");
    object
}

/// Another machine takes the store over from the tier, and has the bytes of its only object.
#[track_caller]
fn assert_taken_over(world: &World, name: &Key, bytes: &[u8], case: &str) {
    let taken = taken_over(world);
    assert_eq!((taken.objects, taken.unreachable), (1, 0), "{case}: {taken:?}");
    let fresh = SimWorld::new().tier_with("fresh", ROOMY, Persistency::Storage);
    let stack = world.open_with(|parts| {
        parts.tiers[0] = Tier::new("fresh", fresh.open()).with_capacity(ROOMY);
    });
    let found = stack.read_all(name);
    let found = found.unwrap_or_else(|error| panic!("{case}: {}", error.chain()));
    assert!(found == bytes, "{case}");
}

#[test]
fn an_acknowledged_write_outlives_power_and_then_the_machine() {
    for seed in 0..8 {
        let world = world();
        let stack = create(&world);
        let name = key("object");
        drop(shared(&stack, &name, &data(1)));
        world.failpoints().freeze();
        drop(stack);
        world.crash(Crash::Power { seed });
        // As after an opening without a log: only the records name the files that are needed.
        let stack = world.open();
        assert!(stack.wait_idle(LONG));
        end(&world, stack);
        assert_taken_over(&world, &name, &data(1), &format!("seed {seed}"));
    }
}

/// The commit that names a copy is in the log on the tier, and the catalog has forgotten it.
#[test]
fn a_file_that_only_the_log_names_outlives_a_loss_of_power() {
    let world = world();
    let stack = create(&world);
    let name = key("object");
    let object = shared(&stack, &name, &data(1));
    let mut bytes = data(1);
    bytes[..3].copy_from_slice(b"new");
    world.failpoints().arm(&Crashing { failpoint: "copy.committed".into(), visit: 1 });
    object.write(0, b"new").expect_err("the power is lost");
    let log = rows(&world, b'o');
    drop(object);
    drop(stack);
    world.lose_all_unsynced();
    assert_ne!(rows(&world, b'o'), log, "the catalog has forgotten the commit");
    let stack = open_without_log(&world);
    let notes = stack.opening_notes();
    assert!(stack.wait_idle(LONG));
    end(&world, stack);
    put_rows(&world, &log);
    assert_taken_over(&world, &name, &bytes, "from the log");
    assert!(notes.iter().any(|note| note.contains("next write of the shared log")), "{notes:?}");
}

/// The files of a draft that was not published wait for the log, and for no sync.
#[test]
fn what_a_crash_left_on_a_shared_tier_goes_with_the_log() {
    let world = world();
    let stack = create(&world);
    let name = key("object");
    drop(shared(&stack, &name, &data(1)));
    world.failpoints().arm(&Crashing { failpoint: "move.identity".into(), visit: 1 });
    let how = Open::create().with_semantics(Semantics::at_level(Persistency::Shared));
    stack.put(&key("other"), &data(2), &how).expect_err("the machine stops");
    drop(stack);
    world.crash(Crash::Process);
    assert_eq!(on_disk(&world, 1), (2, 0));
    let stack = open_without_log(&world);
    assert_eq!(on_disk(&world, 1), (2, 0), "nothing goes before the log is there");
    stack.set_far_log(Some(Arc::new(Far)));
    eventually("it is deleted", || on_disk(&world, 1) == (1, 0));
    assert_sound(&world, &stack);
    assert!(stack.read_all(&name).expect("reads") == data(1));
}

/// The segment has its primary in the bucket and a clean copy on the disk, and the bucket is to be emptied.
fn drained(world: &World, name: &Key) -> Stack {
    let stack = create(world);
    drop(shared(&stack, name, &data(1)));
    migrate(&stack, name, SLOW, MoveKind::Move);
    migrate(&stack, name, FAST, MoveKind::Copy);
    stack.drain_tier("slow").expect("begins");
    let stuck = || stack.tiers()[1].drain.as_ref().expect("it goes on").stuck.clone();
    eventually("it stays", || stuck().iter().any(|one| one.reason == "too-weak"));
    assert_eq!(on_disk(world, 1), (1, 0));
    stack
}

#[test]
fn a_drain_leaves_the_only_shared_file() {
    let world = world();
    let name = key("object");
    let stack = drained(&world, &name);
    end(&world, stack);
    assert_taken_over(&world, &name, &data(1), "drained");
}

#[test]
fn a_drain_names_shared_copies_that_stay() {
    let world = world();
    let stack = create(&world);
    drop(shared(&stack, &key("object"), &data(1)));
    stack.drain_tier("slow").expect("begins");
    let stuck = || stack.tiers()[1].drain.as_ref().expect("it goes on").stuck.clone();
    eventually("it stays", || stuck().iter().any(|one| one.reason == "too-weak"));
    assert_eq!(on_disk(&world, 1), (1, 0));
}

/// A write makes the clean copy the primary; the file that it leaves is not needed for the tier any more.
#[test]
fn a_recall_to_a_copy_keeps_the_bytes_of_the_last_sync() {
    let world = world();
    let name = key("object");
    let stack = drained(&world, &name);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, b"unsynced").expect("recalled and written");
    assert_eq!(stack.explain(&name).expect("there").segments[0].tier, "fast");
    drop(object);
    // What waits to be deleted on the other tier goes behind what waited before.
    let other = key("other");
    put(&stack, &other, &data(2));
    stack.delete(&other).expect("deleted");
    eventually("garbage is gone", || stack.tiers()[0].garbage_bytes == 0);
    end(&world, stack);
    assert_taken_over(&world, &name, &data(1), "recalled");
}

#[test]
fn a_drain_to_another_shared_tier_leaves_nothing() {
    let world = World::three().whole("slow").whole("third");
    let stack = create(&world);
    let name = key("object");
    drop(shared(&stack, &name, &data(1)));
    migrate(&stack, &name, SLOW, MoveKind::Move);
    stack.drain_tier("slow").expect("begins");
    eventually("it is empty", || {
        stack.tiers()[1].drain.as_ref().is_some_and(|drain| drain.is_done)
    });
    assert_eq!((on_disk(&world, 1), on_disk(&world, 2)), ((0, 0), (1, 0)));
    assert!(stack.read_all(&name).expect("reads") == data(1));
}

/// A tier on which each of them waits for the others.
#[test]
fn segments_are_copied_at_the_same_time() {
    const SEGMENTS: u32 = 5;
    let world = world();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(10_000)));
    stack.set_far_log(Some(Arc::new(Far)));
    let begun = Arc::new((Mutex::new(0), Condvar::new()));
    let meeting = Arc::clone(&begun);
    world.tier(1).on(move |moment| {
        if moment.call != Call::Create || moment.is_done {
            return Verdict::Go;
        }
        let (count, changed) = &*meeting;
        let mut count = count.lock().expect("never poisoned");
        *count += 1;
        changed.notify_all();
        let is_alone = |count: &mut u32| *count < SEGMENTS;
        let waited = changed.wait_timeout_while(count, LONG, is_alone).expect("never poisoned");
        if waited.1.timed_out() { Verdict::Fail(ErrorKind::Io) } else { Verdict::Go }
    });
    let name = key("object");
    drop(shared(&stack, &name, &data(1)));
    assert_eq!(*begun.0.lock().expect("never poisoned"), SEGMENTS);
    world.tier(1).heal();
    assert_eq!(on_disk(&world, 1), (SEGMENTS as usize, 0));
    end(&world, stack);
    assert_taken_over(&world, &name, &data(1), "in parts");
}

#[test]
fn a_segment_that_cannot_be_copied_fails_the_write() {
    let world = world();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(10_000)));
    stack.set_far_log(Some(Arc::new(Far)));
    world.tier(1).on(|moment| match moment.call {
        Call::Create if moment.name.contains(".3.") => Verdict::Fail(ErrorKind::Io),
        _ => Verdict::Go,
    });
    let how = Open::create_new().with_semantics(Semantics::at_level(Persistency::Shared));
    let object = stack.open(&key("object"), &how).expect("made");
    let error = object.write(0, &data(1)).expect_err("a part is on this machine only");
    assert_eq!(error.kind(), ErrorKind::Io, "{}", error.chain());
    world.tier(1).heal();
    object.sync().expect("copied");
    assert_eq!(on_disk(&world, 1), (5, 0));
}

#[test]
fn a_shared_copy_that_rots_is_made_anew() {
    let world = world();
    let stack = create(&world);
    let name = key("object");
    drop(shared(&stack, &name, &data(1)));
    let file = world.disk(1).files().remove(0).key;
    let disk = world.disk(1).open();
    disk.open(&file, &Open::write()).expect("it is there").write(100, b"rot").expect("written");
    let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
    let report = stack.scrub(&options, &mut |_, _| true).expect("scrubs");
    assert_eq!((report.problem_count, report.repairs.len()), (0, 1), "{report:?}");
    eventually("the bad one is gone", || {
        let files = world.disk(1).files();
        files.len() == 1 && files[0].key != file
    });
    assert_sound(&world, &stack);
    end(&world, stack);
    assert_taken_over(&world, &name, &data(1), "scrubbed");
}
