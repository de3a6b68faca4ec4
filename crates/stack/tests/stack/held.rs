// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that are held in their files, and written past the stack.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::crashing::Crashing;
use crate::common::directories::Directories;
use crate::common::hooked::{Call, Verdict};
use crate::common::pattern::stamped;
use crate::common::scripted::{Shared, Wish};
use crate::common::world::{
    LONG, ROOMY, World, cutting, eventually, key, migrate, outcome_of, promise_nothing, put,
};
use terrace_backends::object::{File as Directory, FileSettings, Rates, Throttle};
use terrace_core::{
    Access, ActionKind, Backend, BackendExt, End, ErrorKind, EventKind, HeldGrowth, Key, Object,
    ObjectExt, Open, Outcome, Persistency, Semantics, SystemClock, TierIndex,
};
use terrace_stack::{MoveKind, ScrubOptions, Stack, Tier};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);
const MIB: u64 = 1 << 20;

#[track_caller]
fn hold(object: &dyn Object, access: Access) -> File {
    let held = object.hold_file(access).unwrap_or_else(|error| panic!("{}", error.chain()));
    held.expect("it can be held")
}

#[track_caller]
fn assert_not_held(object: &dyn Object, access: Access) {
    let held = object.hold_file(access).unwrap_or_else(|error| panic!("{}", error.chain()));
    assert!(held.is_none(), "it was held for {access:?}");
}

/// An object with these bytes, and a handle on it for writing.
fn made(stack: &Stack, name: &Key, data: &[u8]) -> Box<dyn Object> {
    put(stack, name, data);
    opened(stack, name)
}

fn opened(stack: &Stack, name: &Key) -> Box<dyn Object> {
    stack.open(name, &Open::write()).expect("opens")
}

fn how_held(stack: &Stack, name: &Key) -> Option<String> {
    stack.explain(name).expect("exists").segments.remove(0).held
}

/// Waits until an object may move that its handles have let go: a look at its length by the stack
/// itself may come in between.
#[track_caller]
fn await_release(stack: &Stack, name: &Key) {
    eventually("it is let go", || how_held(stack, name).is_none());
}

fn tier_of(stack: &Stack, name: &Key) -> String {
    stack.explain(name).expect("exists").segments.remove(0).tier
}

#[track_caller]
fn assert_stays(stack: &Stack, name: &Key) {
    for kind in [MoveKind::Move, MoveKind::Promote, MoveKind::Copy] {
        let error = stack.migrate(name, SLOW, kind, 0, "test").expect_err("it is held");
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.chain().contains("held"), "{}", error.chain());
    }
}

#[test]
fn growth_past_the_stack_is_limited_by_what_is_said() {
    let elsewhere = tempfile::tempdir_in("/dev/shm").expect("a file system in memory");
    let unlimited = [("fast", u64::MAX), ("slow", u64::MAX)];
    for tiers in [&unlimited[..1], &unlimited] {
        let machine = Directories::with(tiers);
        let stack = machine.create();
        let object = made(&stack, &key("held"), b"bytes");
        let growth = || object.held_growth().expect("the disk can be asked");
        assert_eq!(growth(), HeldGrowth::Full, "{tiers:?}");
        stack.set_quota("test", Some(MIB), None).expect("sets");
        assert_eq!(growth(), HeldGrowth::Unbounded, "{tiers:?}");
        stack.clear_quota("test").expect("it has one");
        assert_eq!(growth(), HeldGrowth::Full, "{tiers:?}");
    }
    // A capacity counts where the file system is larger.
    let size_bytes = Directories::two().space("fast").file_system.expect("it has one").size_bytes;
    for (capacity, expected) in
        [(size_bytes, HeldGrowth::Full), (size_bytes - 1, HeldGrowth::Unbounded)]
    {
        for tiers in [&[("only", capacity)][..], &[("fast", capacity), ("slow", MIB)]] {
            let machine = Directories::with(tiers);
            let stack = machine.create();
            let object = made(&stack, &key("held"), b"bytes");
            let growth = object.held_growth().expect("the disk can be asked");
            assert_eq!(growth, expected, "{tiers:?}");
        }
    }
    // Another file system has room when this one is full; a draining tier takes nothing.
    let two = Directories::with(&unlimited);
    let stack = two.create_with(|parts| {
        let settings = FileSettings { capacity_bytes: u64::MAX, read_only: false };
        let disk = Directory::open(elsewhere.path(), settings).expect("opens");
        parts.tiers[1] = Tier::new("slow", Arc::new(disk));
    });
    let object = made(&stack, &key("held"), b"bytes");
    let growth = || object.held_growth().expect("the disk can be asked");
    assert_eq!(growth(), HeldGrowth::OneFile);
    stack.drain_tier("slow").expect("begins");
    assert_eq!(growth(), HeldGrowth::Full);
}

#[test]
fn what_is_written_past_the_stack_is_what_everybody_reads() {
    let bare = Directories::with(&[("only", ROOMY)]);
    for machine in [Directories::two(), bare] {
        let stack = machine.create();
        let name = key("held");
        let object = made(&stack, &name, b"first");
        let other = opened(&stack, &name);
        let file = hold(&*object, Access::Write);
        file.write_all_at(b"FIRST and more", 0).expect("writes");
        assert_eq!(stack.read_all(&name).expect("reads"), b"FIRST and more");
        assert_eq!(other.stat().expect("stats").size_bytes, 14);
        assert_eq!(stack.stat(&name).expect("stats").size_bytes, 14);
        assert_eq!(stack.explain(&name).expect("exists").size_bytes, 14);
        // What goes by the stack finds the end that the file has.
        file.write_all_at(b"!", 14).expect("writes");
        assert_eq!(other.append(&[std::io::IoSlice::new(b"?")]).expect("appends"), 15);
        file.write_all_at(b"...", 16).expect("writes");
        assert_eq!(other.next_data(17).expect("looks"), Some(17..19));
        other.punch(0..6).expect("punches");
        file.write_all_at(b"cut off", 19).expect("writes");
        other.set_len(22).expect("cuts");
        let mut found = vec![0; 100];
        let count = file.read_at(&mut found, 0).expect("reads");
        assert_eq!(&found[..count], b"\0\0\0\0\0\0and more!?...cut");
        other.write(0, b"by").expect("writes");
        assert_eq!(stack.read_all(&name).expect("reads"), b"by\0\0\0\0and more!?...cut");
        object.sync().expect("syncs");
        drop((file, object, other));
        assert_eq!(stack.read_all(&name).expect("reads"), b"by\0\0\0\0and more!?...cut");
        machine.assert_sound(&stack);
        stack.close().expect("closes");
    }
}

#[test]
fn what_is_held_stays_where_it_is_until_it_is_let_go() {
    let machine = Directories::two();
    let stack = machine.create();
    for (name, access, word) in
        [("read", Access::Read, "reading"), ("written", Access::Write, "writing")]
    {
        let name = key(name);
        let object = made(&stack, &name, b"data");
        let again = opened(&stack, &name);
        let file = hold(&*object, access);
        assert_eq!(how_held(&stack, &name).as_deref(), Some(word));
        assert_stays(&stack, &name);
        let twice = hold(&*again, access);
        drop((file, object));
        assert_stays(&stack, &name);
        drop((twice, again));
        await_release(&stack, &name);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        assert_eq!(tier_of(&stack, &name), "slow");
        assert_eq!(stack.read_all(&name).expect("reads"), b"data");
    }
    machine.assert_sound(&stack);
}

#[test]
fn who_reads_may_be_joined_by_who_writes() {
    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    put(&stack, &name, b"data");
    let reader = stack.open(&name, &Open::read()).expect("opens");
    let writer = opened(&stack, &name);
    let reading = hold(&*reader, Access::Read);
    let writing = hold(&*writer, Access::Write);
    writing.write_all_at(b"DATA", 0).expect("writes");
    let mut found = [0; 4];
    reading.read_exact_at(&mut found, 0).expect("reads");
    assert_eq!(&found, b"DATA", "it is the same file");
    reading.write_all_at(b"x", 0).expect_err("it is for reading");
    let error = reader.hold_file(Access::Write).expect_err("the handle is for reading");
    assert_eq!(error.kind(), ErrorKind::Denied);
    drop((writing, writer));
    eventually("it is held for reading", || how_held(&stack, &name).as_deref() == Some("reading"));
    assert_stays(&stack, &name);
    drop((reading, reader));
    migrate(&stack, &name, SLOW, MoveKind::Move);
    machine.assert_sound(&stack);
}

#[test]
fn a_descriptor_that_outlives_the_handle_keeps_it_there() {
    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, b"data");
    let file = hold(&*object, Access::Write);
    let twin = file.try_clone().expect("duplicates");
    drop((file, object));
    assert_eq!(how_held(&stack, &name).as_deref(), Some("left"));
    assert_stays(&stack, &name);
    twin.write_all_at(&[7; 5000], 2).expect("writes");
    // Others may use it, and hold it, meanwhile.
    let other = opened(&stack, &name);
    assert_eq!(other.stat().expect("stats").size_bytes, 5002);
    drop((hold(&*other, Access::Write), other));
    assert_eq!(how_held(&stack, &name).as_deref(), Some("left"));
    drop(twin);
    await_release(&stack, &name);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    let expected: Vec<u8> = [&b"da"[..], &[7; 5000]].concat();
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    machine.assert_sound(&stack);
}

#[test]
fn clean_copies_and_checksums_are_taken_back_first() {
    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    put(&stack, &name, &[1; 9000]);
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    let segment = stack.explain(&name).expect("exists").segments.remove(0);
    assert_eq!(segment.copies, ["slow"]);
    let object = opened(&stack, &name);
    let file = hold(&*object, Access::Write);
    assert!(stack.explain(&name).expect("exists").segments[0].copies.is_empty());
    file.write_all_at(&[2; 100], 50).expect("writes");
    drop((file, object));
    let mut expected = vec![1; 9000];
    expected[50..150].fill(2);
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    machine.assert_sound(&stack);
    // A copy in a better place is given up by who writes, and read by who reads.
    migrate(&stack, &name, SLOW, MoveKind::Move);
    migrate(&stack, &name, FAST, MoveKind::Copy);
    let object = opened(&stack, &name);
    assert_not_held(&*object, Access::Read);
    let file = hold(&*object, Access::Write);
    file.write_all_at(&[3; 100], 100).expect("writes");
    expected[100..200].fill(3);
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    drop((file, object));
    machine.assert_sound(&stack);
}

/// Who writes past the stack syncs past it, too, and after a loss of power the stack goes back to
/// where an object was before a switch that is not certain.
#[test]
fn nobody_writes_past_the_stack_before_the_last_switch_is_certain() {
    for is_written in [false, true] {
        let machine = Directories::two();
        let stack = machine.create();
        let name = key("moved");
        let object = made(&stack, &name, &[1; 9000]);
        let syncs = AtomicU64::new(0);
        machine.tier(1).on(move |moment| {
            let is_sync = moment.call == Call::Sync && !moment.is_done;
            // The first is before the switch.
            match is_sync && syncs.fetch_add(1, Ordering::SeqCst) > 0 {
                true => Verdict::Fail(ErrorKind::Io),
                false => Verdict::Go,
            }
        });
        for ticket in stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queues") {
            stack.wait(ticket, LONG).expect("known").expect("ends");
        }
        assert_eq!(tier_of(&stack, &name), "slow");
        if is_written {
            object.write(0, &[2; 100]).expect("writes");
        }
        assert_not_held(&*object, Access::Write);
        // What a failed sync left on the medium nobody knows, until it is opened anew.
        machine.tier(1).heal();
        drop(object);
        machine.kill(stack);
        let stack = machine.open();
        drop(hold(&*opened(&stack, &name), Access::Write));
        machine.assert_sound(&stack);
    }
}

#[test]
fn a_scrub_records_nothing_of_what_others_may_write() {
    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, &[1; 9000]);
    let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
    let scrub = || stack.scrub(&options, &mut |_, _| true).expect("scrubs");
    let file = hold(&*object, Access::Write);
    file.write_all_at(&[2; 9000], 100).expect("writes");
    let report = scrub();
    assert_eq!((report.recorded, report.skipped, report.problem_count), (0, 1, 0), "{report:?}");
    drop((file, object));
    await_release(&stack, &name);
    assert_eq!(scrub().recorded, 1);
    let object = opened(&stack, &name);
    let file = hold(&*object, Access::Write);
    file.write_all_at(&[3; 9000], 50).expect("writes");
    drop((file, object));
    await_release(&stack, &name);
    assert_eq!(scrub().problem_count, 0);
    machine.assert_sound(&stack);
}

#[test]
fn a_policy_hears_that_it_is_busy_and_how_long_it_gets() {
    let machine = Directories::two();
    let shared = Shared::new();
    let stack = {
        let shared = shared.clone();
        machine.create_with(move |parts| parts.tactics = Some(shared.tactics("scripted")))
    };
    let name = key("held");
    let object = made(&stack, &name, b"data");
    let file = hold(&*object, Access::Write);
    file.write_all_at(&[1; 5000], 0).expect("writes");
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
    stack.run_policy().expect("runs");
    stack.run_policy().expect("runs");
    let outcomes: Vec<_> = shared.receipts().iter().map(|receipt| receipt.2).collect();
    assert_eq!(outcomes, [Outcome::Busy]);
    drop((file, object));
    await_release(&stack, &name);
    stack.run_policy().expect("runs");
    let script = shared.script();
    let told = |kind| script.events.iter().filter(move |event| event.kind == kind);
    assert_eq!(told(EventKind::SetLen).next_back().expect("is told").length_bytes, 5000);
    let view = script.view.as_ref().expect("was shown");
    assert!(view.segments.iter().any(|segment| segment.size_bytes == 5000), "{view:?}");
    assert_eq!(told(EventKind::Open).count(), told(EventKind::Close).count());
    drop(script);
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
    stack.run_policy().expect("runs");
    assert!(stack.wait_idle(LONG));
    assert_eq!(tier_of(&stack, &name), "slow");
    machine.assert_sound(&stack);
}

#[test]
fn a_drain_waits_for_what_is_held_and_says_so() {
    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, b"data");
    let file = hold(&*object, Access::Write);
    stack.drain_tier("fast").expect("drains");
    let drain = || stack.tiers().remove(0).drain.expect("it is drained");
    eventually("it is told what is stuck", || {
        drain().stuck.iter().any(|stuck| stuck.reason.contains("held"))
    });
    file.write_all_at(b"DATA and more", 0).expect("writes");
    // Where data is to leave nothing new is held.
    let other = made(&stack, &key("other"), b"other");
    drop(hold(&*other, Access::Write));
    drop((file, object));
    eventually("it is empty", || drain().is_done);
    assert_eq!(stack.read_all(&name).expect("reads"), b"DATA and more");
    drop(other);
    machine.assert_sound(&stack);
}

#[test]
fn nothing_is_held_where_it_cannot_be_kept() {
    let machine = Directories::two();
    let stack = machine.create_with(|parts| parts.tactics = Some(cutting(4096)));
    let cut = made(&stack, &key("cut"), &[1; 100]);
    assert_not_held(&*cut, Access::Read);
    assert_not_held(&*cut, Access::Write);
    cut.write(0, &[1; 9000]).expect("writes");
    assert_not_held(&*cut, Access::Read);

    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, b"data");
    let durable = Open::write().with_semantics(Semantics::at_level(Persistency::Storage));
    let durable = stack.open(&name, &durable).expect("opens");
    assert_not_held(&*durable, Access::Write);
    drop(hold(&*durable, Access::Read));
    drop(durable);
    // What is wanted elsewhere is served.
    machine.tier(1).hold_creates();
    let ticket = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queues").remove(0);
    machine.tier(1).wait_until_held();
    assert_not_held(&*object, Access::Read);
    assert_not_held(&*object, Access::Write);
    machine.tier(1).release();
    let ended = stack.wait(ticket, LONG).expect("known").expect("ends");
    assert_eq!(outcome_of(&ended), "done");
    stack.drain_tier("slow").expect("drains");
    assert_not_held(&*object, Access::Write);
    assert_not_held(&*object, Access::Read);
    stack.undrain_tier("slow").expect("ends");
    assert!(stack.wait_idle(LONG));
    stack.delete(&name).expect("deletes");
    assert_not_held(&*object, Access::Read);
    let error = object.hold_file(Access::Write).expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    drop(object);
    machine.assert_sound(&stack);
    let object = made(&stack, &name, b"data");
    stack.close().expect("closes");
    object.hold_file(Access::Write).expect_err("the store is closed");
}

#[test]
fn nothing_is_held_on_tiers_that_lend_nothing() {
    let world = World::two();
    let stack = world.create();
    let object = made(&stack, &key("held"), b"data");
    assert_not_held(&*object, Access::Read);
    assert_not_held(&*object, Access::Write);

    let machine = Directories::two();
    let stack = machine.create_with(|parts| {
        let rates = Rates {
            latency: Duration::ZERO,
            read_bytes_per_s: None,
            write_bytes_per_s: None,
            parallelism: 1,
        };
        for tier in &mut parts.tiers {
            let clock = Arc::new(SystemClock::default());
            tier.backend = Arc::new(Throttle::new(tier.backend.clone(), rates, clock));
        }
    });
    let object = made(&stack, &key("held"), b"data");
    assert_not_held(&*object, Access::Read);
    assert_not_held(&*object, Access::Write);
}

#[test]
fn a_stack_of_stacks_holds_nothing() {
    let machine = Directories::two();
    let inner = machine.create();
    let outer = Directories::two();
    let stack = outer.create_with(|parts| parts.tiers[0].backend = Arc::new(inner.clone()));
    let object = made(&stack, &key("held"), b"data");
    assert_not_held(&*object, Access::Read);
    assert_not_held(&*object, Access::Write);
}

#[test]
fn who_would_write_past_a_full_tier_is_served() {
    let machine = Directories::with(&[("fast", 20 * MIB), ("slow", ROOMY)]);
    let stack = machine.create();
    let first = made(&stack, &key("first"), &vec![1; 9 * MIB as usize]);
    let second = made(&stack, &key("second"), &vec![2; 9 * MIB as usize]);
    // 18 MiB are its high watermark.
    assert_not_held(&*first, Access::Write);
    drop(hold(&*first, Access::Read));
    // It cannot go elsewhere, whoever asks.
    let writer = opened(&stack, &key("first"));
    drop(hold(&*writer, Access::Write));
    drop((writer, first));
    stack.delete(&key("first")).expect("deletes");
    eventually("its room is free", || stack.tiers()[0].garbage_bytes == 0);
    let file = hold(&*second, Access::Write);
    // Whoever writes already is joined.
    let more = made(&stack, &key("more"), &vec![3; 5 * MIB as usize]);
    let again = opened(&stack, &key("second"));
    drop(hold(&*again, Access::Write));
    assert_not_held(&*more, Access::Write);
    drop((file, second, again, more));
    machine.assert_sound(&stack);
}

/// Goal: what counts is what the tier has room for, not what its settings promise.
#[test]
fn who_would_write_past_a_full_file_system_is_served() {
    for capacity_bytes in [u64::MAX, ROOMY] {
        let machine = Directories::with(&[("fast", capacity_bytes), ("slow", ROOMY)]);
        let stack = machine.create();
        let name = key("object");
        let object = made(&stack, &name, &vec![1; 9 * MIB as usize]);
        machine.tier(0).leave_room(MIB);
        // It has 9 of 10 MiB: the high watermark.
        assert_not_held(&*object, Access::Write);
        drop(hold(&*object, Access::Read));
        machine.tier(0).leave_room(2 * MIB);
        let writer = opened(&stack, &name);
        let file = hold(&*writer, Access::Write);
        machine.tier(0).leave_room(0);
        // Whoever writes already is joined.
        let again = opened(&stack, &name);
        drop(hold(&*again, Access::Write));
        drop((file, writer, again, object));
        machine.assert_sound(&stack);
    }
}

#[test]
fn who_would_write_past_a_quota_is_served() {
    let machine = Directories::two();
    let stack = machine.create();
    stack.set_quota("test", Some(3 * MIB), None).expect("sets");
    let object = made(&stack, &key("held"), &[1; 100]);
    assert_not_held(&*object, Access::Write);
    stack.set_quota("test", Some(5 * MIB), None).expect("sets");
    let file = hold(&*object, Access::Write);
    file.write_all_at(&vec![2; 6 * MIB as usize], 0).expect("the kernel knows no quota");
    let bytes = || stack.quotas()[0].bytes;
    stack.check(false, &mut |_, _| {}).expect("looks");
    assert!(bytes() >= 6 * MIB);
    let error = object.write(6 * MIB, b"more").expect_err("it is used up");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    drop((file, object));
    eventually("what is there is counted", || bytes() == 6 * MIB);
    stack.delete(&key("held")).expect("deletes");
    assert!(stack.quotas().iter().all(|quota| quota.bytes == 0));
    machine.assert_sound(&stack);
}

#[test]
fn what_grows_past_the_stack_is_accounted() {
    let machine = Directories::with(&[("fast", 16 * MIB), ("slow", ROOMY)]);
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, b"data");
    let file = hold(&*object, Access::Write);
    let fast = || stack.tiers().remove(0);
    assert!(fast().reserved_bytes >= 3 * MIB, "{:?}", fast());
    file.write_all_at(&vec![1; 6 * MIB as usize], 0).expect("writes");
    // Nobody asks: the stack looks by itself.
    eventually("it is found", || fast().used_bytes == 6 * MIB);
    eventually("there is room ahead of it", || fast().reserved_bytes >= 2 * MIB);
    // More than the tier may hold is there all the same.
    file.write_all_at(&vec![2; 12 * MIB as usize], 6 * MIB).expect("writes");
    eventually("it is found", || fast().used_bytes == 18 * MIB);
    drop((file, object));
    eventually("the reserve is given back", || {
        (fast().used_bytes, fast().reserved_bytes) == (18 * MIB, 0)
    });
    await_release(&stack, &name);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    machine.assert_sound(&stack);
    assert_eq!(stack.stat(&name).expect("stats").size_bytes, 18 * MIB);
}

#[test]
fn a_held_object_stays_in_one_file() {
    let machine = Directories::with(&[("fast", 8 * MIB), ("slow", ROOMY)]);
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, &vec![1; MIB as usize]);
    for access in [Access::Read, Access::Write] {
        let file = hold(&*object, access);
        let error = object.write(MIB, &vec![2; 10 * MIB as usize]).expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.chain().contains("held"), "{}", error.chain());
        object.set_len(MIB).expect("cuts");
        drop(file);
    }
    let empty = stack.open(&key("empty"), &Open::create_new()).expect("creates");
    let file = hold(&*empty, Access::Read);
    empty.write(0, &vec![2; 10 * MIB as usize]).expect_err("it stays where it is");
    drop((file, empty, object));
    await_release(&stack, &name);
    let object = opened(&stack, &name);
    object.write(MIB, &vec![2; 10 * MIB as usize]).expect("it goes on elsewhere");
    assert_eq!(stack.explain(&name).expect("exists").segments.len(), 2);
    drop(object);
    machine.assert_sound(&stack);
}

/// It cannot go on elsewhere, so the others do.
#[test]
fn others_make_room_for_a_held_object() {
    for access in [Access::Read, Access::Write] {
        for grow in ["write", "allocate"] {
            let machine = Directories::with(&[("fast", 16 * MIB), ("slow", ROOMY)]);
            let stack = machine.create();
            let others = ["a", "b", "c", "d"].map(key);
            others.iter().for_each(|name| put(&stack, name, &vec![1; 2 * MIB as usize]));
            stack.pin(&others[0]).expect("pins");
            let name = key("held");
            let object = made(&stack, &name, &vec![7; MIB as usize]);
            let file = hold(&*object, access);
            let grown = |end: u64| match grow {
                "write" => object.write(MIB, &vec![7; (end - MIB) as usize]).map(drop),
                _ => object.allocate(MIB..end, End::Grows),
            };
            grown(13 * MIB).expect("the others go");
            assert_eq!(object.stat().expect("stats").size_bytes, 13 * MIB, "{access:?}, {grow}");
            assert_eq!(tier_of(&stack, &name), "fast");
            assert_eq!(tier_of(&stack, &others[0]), "fast", "it is pinned");
            // More than all of them have.
            let error = grown(20 * MIB).expect_err("it is full");
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{access:?}, {grow}");
            let moved = others.iter().filter(|name| tier_of(&stack, name) == "slow").count();
            assert!((1..=3).contains(&moved), "{access:?}, {grow}: {moved}");
            for name in &others {
                let found = stack.read_all(name).expect("reads");
                assert!(found == vec![1; 2 * MIB as usize], "{name}");
            }
            drop((file, object));
            await_release(&stack, &name);
            machine.assert_sound(&stack);
        }
    }
}

#[test]
fn what_is_deleted_while_it_is_held_is_forgotten() {
    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, b"data");
    let file = hold(&*object, Access::Write);
    file.write_all_at(&[1; 9000], 0).expect("writes");
    stack.delete(&name).expect("deletes");
    file.write_all_at(&[2; 20_000], 0).expect("the file is there for who has it");
    put(&stack, &name, b"another");
    assert_eq!(how_held(&stack, &name), None);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    drop((file, object));
    assert_eq!(stack.read_all(&name).expect("reads"), b"another");
    machine.assert_sound(&stack);
    assert_eq!(machine.stored(0), (0, 0));
}

/// It is queued when the file is all but held, and has copied everything before that is written.
#[test]
fn a_migration_on_its_way_gives_way_to_who_holds() {
    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, &[1; 9000]);
    machine.tier(0).hold(|moment| moment.call == Call::Lend && moment.is_done);
    machine.tier(1).hold(|moment| moment.call == Call::Sync && !moment.is_done);
    std::thread::scope(|scope| {
        let holder = scope.spawn(move || (hold(&*object, Access::Write), object));
        machine.tier(0).wait_until_held();
        let tickets = stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queues");
        // Everything is copied.
        machine.tier(1).wait_until_held();
        machine.tier(0).release();
        let (file, object) = holder.join().expect("holds");
        file.write_all_at(&[2; 9000], 100).expect("writes");
        machine.tier(1).release();
        let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
        assert_eq!(outcome_of(&ended), "busy", "{ended:?}");
        assert!(ended.detail.contains("held"), "{ended:?}");
        drop((file, object));
    });
    await_release(&stack, &name);
    let expected: Vec<u8> = [&[1; 100][..], &[2; 9000]].concat();
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_eq!(stack.read_all(&name).expect("reads"), expected);
    machine.assert_sound(&stack);
}

#[test]
fn a_sync_of_everything_covers_what_is_held() {
    let machine = Directories::two();
    let stack = machine.create();
    let object = made(&stack, &key("held"), b"data");
    let file = hold(&*object, Access::Write);
    let synced = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&synced);
    machine.tier(0).on(move |moment| {
        if moment.call == Call::Sync && moment.is_done {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Verdict::Go
    });
    let syncs = || {
        Backend::sync(&stack).expect("syncs");
        synced.swap(0, Ordering::SeqCst)
    };
    for _ in 0..2 {
        assert_eq!(syncs(), 1, "nobody tells what was written since the last one");
        file.write_all_at(b"DATA", 0).expect("writes");
    }
    drop((file, object));
    await_release(&stack, &key("held"));
    assert_eq!((syncs(), syncs()), (1, 0));
}

#[test]
fn what_is_held_at_the_close_is_compared_by_the_next_opening() {
    for is_bare in [false, true] {
        let machine = match is_bare {
            true => Directories::with(&[("only", ROOMY)]),
            false => Directories::two(),
        };
        let stack = machine.create();
        let name = key("held");
        let object = made(&stack, &name, b"data");
        let file = hold(&*object, Access::Write);
        file.write_all_at(&[1; 5000], 0).expect("writes");
        stack.close().expect("closes");
        drop(stack);
        file.write_all_at(&[2; 9000], 0).expect("the kernel goes on");
        drop((file, object));
        let stack = machine.open();
        assert_eq!(stack.read_all(&name).expect("reads"), [2; 9000]);
        machine.assert_sound(&stack);
    }
}

#[test]
fn what_a_kernel_closes_in_time_costs_the_next_opening_nothing() {
    let machine = Directories::two();
    let stack = machine.create();
    let object = made(&stack, &key("held"), b"data");
    let file = hold(&*object, Access::Write);
    let twin = file.try_clone().expect("duplicates");
    drop((file, object));
    twin.write_all_at(&[1; 5000], 0).expect("writes");
    drop(twin);
    stack.close().expect("closes");
    drop(stack);
    let stack = machine.open();
    assert!(stack.opening_notes().is_empty(), "{:?}", stack.opening_notes());
    machine.assert_sound(&stack);
}

#[test]
fn what_a_kernel_has_open_outlives_the_process_that_held_it() {
    for is_killed in [false, true] {
        let machine = Directories::two();
        let stack = machine.create();
        let names = ["held", "released", "deleted"].map(key);
        let objects: Vec<_> = names.iter().map(|name| made(&stack, name, b"data")).collect();
        let mut files: Vec<_> =
            objects.iter().map(|object| hold(&**object, Access::Write)).collect();
        let file = files.remove(0);
        stack.delete(&names[2]).expect("deletes");
        put(&stack, &names[2], b"another");
        let mut objects = objects.into_iter();
        let kept = objects.next();
        drop((files, objects));
        if is_killed {
            drop(kept);
            machine.kill(stack);
        } else {
            stack.close().expect("closes");
            drop((stack, kept));
        }
        let stack = machine.open();
        assert_eq!(how_held(&stack, &names[0]).as_deref(), Some("left"), "{is_killed}");
        assert_stays(&stack, &names[0]);
        for name in &names[1..] {
            eventually("nobody can write to it", || how_held(&stack, name).is_none());
            migrate(&stack, name, SLOW, MoveKind::Move);
        }
        file.write_all_at(&[1; 5000], 0).expect("the kernel goes on");
        drop(file);
        eventually("it is free", || how_held(&stack, &names[0]).is_none());
        migrate(&stack, &names[0], SLOW, MoveKind::Move);
        assert_eq!(stack.read_all(&names[0]).expect("reads"), [1; 5000]);
        machine.assert_sound(&stack);
        stack.close().expect("closes");
        // Nothing is left of it.
        drop(stack);
        assert!(machine.open().opening_notes().is_empty());
    }
}

#[test]
fn nothing_that_a_kernel_has_open_outlives_the_machine() {
    let machine = Directories::two();
    let stack = machine.create();
    let name = key("held");
    let object = made(&stack, &name, b"data");
    let _file = hold(&*object, Access::Write);
    drop(object);
    machine.kill(stack);
    let stack = machine.open_with(|parts| parts.settings.boot_id = "another boot".into());
    assert_eq!(how_held(&stack, &name), None);
}

/// Ends the process at a failpoint on the way through all that is done with a held file; the file
/// is written until then, and afterwards.
fn crash_at(failpoint: &str, visit: u64) {
    let place = format!("visit {visit} of {failpoint}");
    let machine = Directories::two();
    let stack = machine.create_with(promise_nothing);
    let name = key("held");
    put(&stack, &name, &stamped(1, 1, 0, 9600));
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    machine.failpoints().arm(&Crashing { failpoint: failpoint.into(), visit });
    let mut expected = stamped(1, 1, 0, 9600);
    let mut kept = None;
    for round in 0..2 {
        let Ok(object) = stack.open(&name, &Open::write()) else { break };
        let Ok(Some(file)) = object.hold_file(Access::Write) else { break };
        let data = stamped(1, 2 + round, 3200, 6400 + 3200 * round as usize);
        file.write_all_at(&data, 3200).expect("writes");
        expected.truncate(3200);
        expected.extend(data);
        kept = Some(file.try_clone().expect("duplicates"));
        drop(file);
        if round == 1 {
            // Now it can be proved.
            kept = None;
        }
        drop(object);
        if machine.failpoints().is_alive().is_err() {
            break;
        }
    }
    machine.kill(stack);
    if let Some(file) = kept {
        file.write_all_at(b"after the end", expected.len() as u64).expect("writes");
        expected.extend(b"after the end");
    }
    let stack = machine.open();
    let found = stack.read_all(&name).expect("reads");
    assert!(found == expected, "{place}: {} bytes, not {}", found.len(), expected.len());
    let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
    let report = stack.scrub(&options, &mut |_, _| true).expect("scrubs");
    assert_eq!(report.problem_count, 0, "{place}: {report:?}");
    machine.assert_sound(&stack);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    migrate(&stack, &name, FAST, MoveKind::Move);
    assert!(stack.read_all(&name).expect("reads") == expected, "{place}");
    machine.assert_sound(&stack);
}

#[test]
fn a_crash_at_any_step_loses_nothing_that_was_written_past_the_stack() {
    for failpoint in ["write.unclean", "hold.marked", "hold.proved", "flush.catalog", "sync.data"] {
        for visit in 1..3 {
            crash_at(failpoint, visit);
        }
    }
}

#[test]
fn every_step_of_holding_is_visited() {
    let machine = Directories::two();
    let stack = machine.create();
    machine.failpoints().count();
    let object = made(&stack, &key("held"), b"data");
    drop((hold(&*object, Access::Write), object));
    await_release(&stack, &key("held"));
    let visits = machine.failpoints().visits();
    for name in terrace_stack::FAILPOINTS.iter().filter(|name| name.starts_with("hold.")) {
        assert!(visits.contains_key(*name), "{name} is not visited: {visits:?}");
    }
}
