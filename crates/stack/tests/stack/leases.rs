// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that are lent: what a reader finds in them, and when he is told to throw it away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::hooked::{Call, Verdict};
use crate::common::scripted::Shared;
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, cutting, eventually, key, migrate, outcome_of, put,
};
use terrace_core::{
    Access, Backend, End, ErrorKind, EventKind, FileLease, Key, Object, ObjectExt, Open,
    Persistency, ReadSummary, TierIndex,
};
use terrace_stack::{MoveKind, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

/// A lease of an object that can be lent.
#[track_caller]
fn lend(object: &dyn Object) -> FileLease {
    object.lease_file().expect("no failure").expect("it can be lent")
}

/// Everything that a lease gives; `None` where it is over.
fn whole(lease: &FileLease) -> Option<Vec<u8>> {
    let mut data = vec![0xee; 1 << 20];
    let count = lease.read(0, &mut data).expect("reads")?;
    data.truncate(count);
    Some(data)
}

#[track_caller]
fn assert_over(lease: &FileLease, what: &str) {
    assert!(!lease.is_good().expect("looks"), "{what}: the lease is still good");
}

#[track_caller]
fn assert_lends(object: &dyn Object, expected: &[u8]) {
    assert!(whole(&lend(object)).expect("it is good") == expected);
}

/// An object on a tier, and a handle on it for writing.
fn object_on(stack: &Stack, name: &Key, tier: TierIndex, data: &[u8]) -> Box<dyn Object> {
    put(stack, name, data);
    if tier != FAST {
        migrate(stack, name, tier, MoveKind::Move);
    }
    stack.open(name, &Open::write()).expect("opens")
}

#[test]
fn a_lease_shows_what_is_written_and_where_it_ends() {
    for world in [World::two(), World::with(&[("only", ROOMY, Persistency::Storage)])] {
        let world = world.lending();
        let stack = world.create();
        assert!(stack.capability().leases);
        let name = key("lent");
        let writer = object_on(&stack, &name, FAST, b"first");
        let reader = stack.open(&name, &Open::read()).expect("opens");
        let lease = lend(&*reader);
        assert_eq!(whole(&lease).expect("good"), b"first");
        writer.write(2, b"llows").expect("writes");
        assert_eq!(whole(&lease).expect("good"), b"fillows");
        writer.set_len(3).expect("cuts");
        writer.set_len(6).expect("grows");
        assert_eq!(whole(&lease).expect("good"), b"fil\0\0\0");
        writer.append(&[std::io::IoSlice::new(b"end")]).expect("appends");
        writer.punch(0..1).expect("punches");
        assert_eq!(whole(&lease).expect("good"), b"\0il\0\0\0end");
        writer.allocate(0..12, End::Grows).expect("allocates");
        assert_eq!(whole(&lease).expect("good").len(), 12);
        // The same file once more is the same word.
        let again = lend(&*writer);
        let (word, same) = (lease.word.expect("a stack's"), again.word.expect("a stack's"));
        assert!(Arc::ptr_eq(&word.page, &same.page), "one page for all");
        assert_eq!((word.index, word.value), (same.index, same.value));
    }
}

#[test]
fn nothing_is_lent_for_writing_and_nothing_where_a_tier_lends_nothing() {
    let world = World::two().lending();
    let stack = world.create();
    let writer = object_on(&stack, &key("lent"), FAST, b"abc");
    assert!(writer.hold_file(Access::Write).expect("no failure").is_none());
    let reader = stack.open(&key("lent"), &Open::read()).expect("opens");
    let refused = reader.hold_file(Access::Write).expect_err("it is for reading");
    assert_eq!(refused.kind(), ErrorKind::Denied);

    let world = World::two();
    world.disk(0).lend_files();
    let stack = world.create();
    let object = object_on(&stack, &key("lent"), FAST, b"abc");
    let lease = lend(&*object);
    migrate(&stack, &key("lent"), SLOW, MoveKind::Move);
    assert_over(&lease, "a move");
    assert!(object.lease_file().expect("no failure").is_none());
    migrate(&stack, &key("lent"), FAST, MoveKind::Move);
    assert_lends(&*object, b"abc");
}

#[test]
fn a_lease_ends_when_readers_use_another_file() {
    let cases = [
        (FAST, SLOW, MoveKind::Move, true),
        (SLOW, FAST, MoveKind::Move, true),
        (SLOW, FAST, MoveKind::Promote, true),
        // The new copy is read instead.
        (SLOW, FAST, MoveKind::Copy, true),
        // The old file stays the better one.
        (FAST, SLOW, MoveKind::Copy, false),
    ];
    for (from, to, kind, is_over) in cases {
        let world = World::two().lending();
        let stack = world.create();
        let name = key("lent");
        let object = object_on(&stack, &name, from, b"before");
        let lease = lend(&*object);
        migrate(&stack, &name, to, kind);
        assert_eq!(lease.is_good().expect("looks"), !is_over, "{kind:?} from {from}");
        assert_lends(&*object, b"before");
        let next = lend(&*object);
        object.write(0, b"after!").expect("writes");
        assert_lends(&*object, b"after!");
        for lease in [&lease, &next] {
            assert!(whole(lease).is_none_or(|data| data == b"after!"), "{kind:?}: old bytes");
        }
        drop(object);
        assert_sound(&world, &stack);
    }
}

#[test]
fn the_primary_stays_lent_while_copies_come_and_go() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let object = object_on(&stack, &name, FAST, b"before");
    let lease = lend(&*object);
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    object.write(0, b"after!").expect("writes");
    assert_eq!(whole(&lease).expect("good"), b"after!");
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    stack.drop_copy(&name, SLOW).expect("is there");
    assert_eq!(whole(&lease).expect("good"), b"after!");
}

#[test]
fn a_copy_is_lent_until_the_first_write_begins() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let object = object_on(&stack, &name, SLOW, b"before");
    migrate(&stack, &name, FAST, MoveKind::Copy);
    let lease = Arc::new(lend(&*object));
    assert_eq!(whole(&lease).expect("good"), b"before");
    let (looked, seen) = (Arc::new(Mutex::new(Vec::new())), lease.clone());
    let looks = looked.clone();
    world.tier(1).on(move |moment| {
        if moment.call == Call::Write && !moment.is_done {
            looks.lock().expect("never poisoned").push(seen.is_good().expect("looks"));
        }
        Verdict::Go
    });
    object.write(0, b"after!").expect("writes");
    assert_eq!(*looked.lock().expect("never poisoned"), [false]);
    assert_lends(&*object, b"after!");
}

#[test]
fn a_dropped_copy_is_no_longer_lent() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let object = object_on(&stack, &name, SLOW, b"abc");
    migrate(&stack, &name, FAST, MoveKind::Copy);
    let lease = lend(&*object);
    stack.drop_copy(&name, FAST).expect("is there");
    assert_over(&lease, "the copy is gone");
    assert_lends(&*object, b"abc");
}

#[test]
fn a_copy_that_becomes_the_primary_stays_lent() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let object = object_on(&stack, &name, SLOW, b"before");
    migrate(&stack, &name, FAST, MoveKind::Copy);
    let lease = lend(&*object);
    migrate(&stack, &name, FAST, MoveKind::Move);
    object.write(0, b"after!").expect("writes");
    assert_eq!(whole(&lease).expect("it is the same file"), b"after!");
}

/// The word changes before a byte is written to the file that the object has become.
#[test]
fn no_write_goes_elsewhere_while_a_lease_is_good() {
    for kind in [MoveKind::Move, MoveKind::Promote] {
        let world = World::two().lending();
        let stack = world.create();
        let name = key("lent");
        let from = if kind == MoveKind::Promote { SLOW } else { FAST };
        let to = if kind == MoveKind::Promote { FAST } else { SLOW };
        let object = object_on(&stack, &name, from, &[1; 8192]);
        let lease = Arc::new(lend(&*object));
        let writer = std::thread::current().id();
        let (good, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (seen, good_then, over_then) = (lease.clone(), good.clone(), over.clone());
        world.tier(to.index()).on(move |moment| {
            // The migration writes there in other threads.
            let is_writer = std::thread::current().id() == writer;
            if is_writer && moment.call == Call::Write && !moment.is_done {
                let is_good = seen.is_good().expect("looks");
                let count = if is_good { &good_then } else { &over_then };
                count.fetch_add(1, Ordering::SeqCst);
            }
            Verdict::Go
        });
        let tickets = stack.migrate(&name, to, kind, 0, "test").expect("queued");
        let ended = std::thread::scope(|scope| {
            let ended = scope.spawn(|| stack.wait(tickets[0], LONG).expect("known"));
            while over.load(Ordering::SeqCst) == 0 && !ended.is_finished() {
                object.write(100, &[2; 77]).expect("writes");
            }
            ended.join().expect("no panic").expect("ends")
        });
        assert_eq!(outcome_of(&ended), "done", "{ended:?}");
        object.write(100, &[3; 77]).expect("writes");
        assert_eq!(good.load(Ordering::SeqCst), 0, "{kind:?}: a reader would have missed it");
        assert!(over.load(Ordering::SeqCst) > 0);
        assert_over(&lease, "a switch");
    }
}

/// Somebody who was stopped after his read learns that it is worth nothing.
#[test]
fn a_reader_that_was_stopped_before_he_looked_is_told() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let object = object_on(&stack, &name, FAST, b"before");
    let lease = lend(&*object);
    let mut data = [0; 6];
    std::os::unix::fs::FileExt::read_exact_at(&lease.file, &mut data, 0).expect("reads");
    migrate(&stack, &name, SLOW, MoveKind::Move);
    object.write(0, b"after!").expect("writes");
    assert_eq!(data, *b"before");
    assert_over(&lease, "a migration between the two looks");
    // Back on the tier it is another file: what was over stays over.
    migrate(&stack, &name, FAST, MoveKind::Move);
    assert_over(&lease, "back again");
    assert_lends(&*object, b"after!");
}

#[test]
fn a_deleted_object_is_no_longer_lent_and_its_name_is_another() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let mut past = Vec::new();
    let mut index = None;
    for life in 0..5u8 {
        let object = object_on(&stack, &name, FAST, &[life; 100]);
        let lease = lend(&*object);
        assert_eq!(whole(&lease).expect("good"), [life; 100]);
        stack.delete(&name).expect("deletes");
        assert_over(&lease, "deleted");
        assert!(object.lease_file().expect("no failure").is_none());
        drop(object);
        // One word does for all, one after the other.
        let word = lease.word.as_ref().expect("a stack's").index;
        assert_eq!(*index.get_or_insert(word), word);
        past.push(lease);
        past.iter().for_each(|lease| assert_over(lease, "long ago"));
    }
    let object = object_on(&stack, &name, FAST, b"new");
    let lease = lend(&*object);
    assert_eq!(whole(&lease).expect("good"), b"new");
    past.iter().for_each(|lease| assert_over(lease, "another object"));
}

/// What becomes of an object between the moment in which its file is opened for somebody and the
/// moment in which he gets it.
#[test]
fn what_is_lent_is_what_the_object_is_when_it_is_lent() {
    type Change = fn(&Stack, &Key, &dyn Object);
    let changes: [(&str, Change, Option<&[u8]>); 4] = [
        (
            "it moves",
            |stack, name, object| {
                migrate(stack, name, SLOW, MoveKind::Move);
                object.write(0, b"after!").expect("writes");
            },
            Some(b"after!"),
        ),
        (
            "it moves away and back",
            |stack, name, object| {
                migrate(stack, name, SLOW, MoveKind::Move);
                object.write(0, b"after!").expect("writes");
                migrate(stack, name, FAST, MoveKind::Move);
            },
            Some(b"after!"),
        ),
        ("it gets a segment", |_, _, object| object.write(5000, b"x").expect("writes"), None),
        ("it is deleted", |stack, name, _| stack.delete(name).expect("deletes"), None),
    ];
    for (what, change, expected) in changes {
        let world = World::two().lending();
        let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
        let name = key("lent");
        let object = object_on(&stack, &name, FAST, b"before");
        world.tier(0).hold(|moment| moment.call == Call::Lend && moment.is_done);
        let lease = std::thread::scope(|scope| {
            let lender = scope.spawn(|| object.lease_file());
            world.tier(0).wait_until_held();
            change(&stack, &name, &*object);
            world.tier(0).release();
            lender.join().expect("no panic").expect("no failure")
        });
        assert_eq!(lease.and_then(|lease| whole(&lease)).as_deref(), expected, "{what}");
    }
}

/// A file goes though somebody reads it by a lease, and he reads on.
#[test]
fn no_file_stays_for_a_lease() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let object = object_on(&stack, &name, FAST, b"abc");
    let lease = lend(&*object);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    eventually("the source is deleted", || world.disk(0).files().is_empty());
    let mut data = [0; 3];
    std::os::unix::fs::FileExt::read_exact_at(&lease.file, &mut data, 0).expect("still reads");
    assert_eq!(data, *b"abc");
}

#[test]
fn an_object_of_several_segments_is_not_lent() {
    let world = World::two().lending();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    let name = key("cut");
    let object = object_on(&stack, &name, FAST, &[1; 4000]);
    let lease = lend(&*object);
    assert_eq!(whole(&lease).expect("good"), [1; 4000]);
    object.write(4000, &[2; 96]).expect("writes");
    assert_eq!(whole(&lease).expect("it has one segment yet").len(), 4096);
    object.write(4096, &[3; 1]).expect("writes");
    assert_over(&lease, "a second segment");
    assert!(object.lease_file().expect("no failure").is_none());
    object.set_len(10).expect("cuts");
    assert_lends(&*object, &[1; 10]);
    let lease = lend(&*object);
    object.set_len(5000).expect("grows");
    assert_over(&lease, "it grew into a second segment");
    object.set_len(4096).expect("cuts");
    assert_eq!(whole(&lend(&*object)).expect("good").len(), 4096);
    assert_over(&lease, "one segment again");
}

#[test]
fn an_object_that_goes_on_on_the_next_tier_is_not_lent() {
    let tiers = [("fast", 10_000, Persistency::Storage), ("slow", ROOMY, Persistency::Storage)];
    let world = World::with(&tiers).lending();
    let stack = world.create();
    let object = object_on(&stack, &key("lent"), FAST, &[1; 5000]);
    let lease = lend(&*object);
    object.write(5000, &[2; 20_000]).expect("there is room");
    assert_over(&lease, "it goes on elsewhere");
    assert!(object.lease_file().expect("no failure").is_none());

    // One without a byte is put elsewhere as a whole.
    let empty = stack.open(&key("empty"), &Open::create_new());
    let empty = empty.expect("creates");
    let lease = empty.lease_file().expect("no failure");
    empty.write(0, &[3; 20_000]).expect("there is room");
    if let Some(lease) = lease {
        assert!(whole(&lease).is_none_or(|data| data == [3; 20_000]));
    }
}

#[test]
fn a_drained_tier_lends_nothing() {
    let world = World::two().lending();
    let stack = world.create();
    let object = object_on(&stack, &key("lent"), FAST, b"abc");
    let lease = lend(&*object);
    stack.drain_tier("fast").expect("drains");
    eventually("the tier is empty", || {
        stack.tiers()[0].drain.as_ref().is_some_and(|drain| drain.is_done)
    });
    assert_over(&lease, "drained");
    stack.remove_tier("fast").expect("it is empty");
    assert_lends(&*object, b"abc");
}

#[test]
fn a_scrub_that_writes_a_file_anew_ends_its_lease() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let object = object_on(&stack, &name, FAST, &[7; 5000]);
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    let lease = lend(&*object);
    let file = stack.explain(&name).expect("exists").segments[0].stored_as.clone();
    let rotten = world.disk(0).open();
    let rotten = rotten.open(&Key::parse(&file).expect("legal"), &Open::write()).expect("opens");
    rotten.write(100, b"rot").expect("writes");
    assert_eq!(whole(&lease).expect("nobody knows yet")[100..103], *b"rot");
    let options = terrace_stack::ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
    let report = stack.scrub(&options, &mut |_, _| true).expect("scrubs");
    assert_eq!(report.problem_count, 0, "{report:?}");
    assert_over(&lease, "written anew");
    assert_lends(&*object, &[7; 5000]);
}

#[test]
fn a_lease_ends_with_the_last_handle_that_lent_it() {
    let world = World::two().lending();
    let stack = world.create();
    let name = key("lent");
    let first = object_on(&stack, &name, FAST, b"abc");
    let second = stack.open(&name, &Open::read()).expect("opens");
    let never = stack.open(&name, &Open::read()).expect("opens");
    let leases = [lend(&*first), lend(&*second), lend(&*second)];
    drop(first);
    assert!(leases.iter().all(|lease| lease.is_good().expect("looks")));
    drop(second);
    leases.iter().for_each(|lease| assert_over(lease, "closed"));
    assert_lends(&*never, b"abc");
}

#[test]
fn a_closed_stack_lends_nothing() {
    for is_dropped in [false, true] {
        let world = World::two().lending();
        let stack = world.create();
        let object = object_on(&stack, &key("lent"), FAST, b"abc");
        let lease = lend(&*object);
        if is_dropped {
            drop(stack);
        } else {
            stack.close().expect("closes");
        }
        assert_over(&lease, "closed");
        assert!(object.lease_file().expect("no failure").is_none());
        drop(object);
        assert_over(&lease, "closed");
    }
}

#[test]
fn what_readers_did_by_themselves_reaches_policy_and_ledgers() {
    let world = World::two().lending();
    let policy = Shared::new();
    let stack = world.create_with(|parts| parts.tactics = Some(policy.tactics("watching")));
    let name = key("lent");
    let object = object_on(&stack, &name, SLOW, &[1; 5000]);
    stack.run_policy().expect("runs");
    policy.script().events.clear();
    let reads = ReadSummary { count: 40, bytes: 40_000, offset_bytes: 512, latency_ns: 9000 };
    object.note_reads(&reads);
    object.note_reads(&ReadSummary { count: 0, ..reads });
    stack.run_policy().expect("runs");
    let events = policy.script().events.clone();
    let events: Vec<_> = events.iter().filter(|event| event.kind == EventKind::Read).collect();
    let [event] = events[..] else { panic!("one for all of them: {events:?}") };
    assert_eq!((event.count, event.length_bytes), (40, 40_000));
    assert_eq!((event.offset_bytes, event.latency_ns, event.tier), (512, 9000, SLOW));
    let view = policy.script().view.clone().expect("was called");
    assert_eq!(view.segments[event.slot as usize].last_read_ns, event.time_ns);
    let ledger = stack.explain(&name).expect("exists").ledger;
    assert_eq!((ledger.reads, ledger.read_bytes), (40, 40_000));
    assert!(ledger.device_ns >= 9000);
    assert_eq!(stack.tiers()[1].ledger.reads, 40);

    // Nonsense does no harm, and a deleted object takes none.
    let most = ReadSummary {
        count: u32::MAX,
        bytes: u64::MAX,
        offset_bytes: u64::MAX,
        latency_ns: u64::MAX,
    };
    (0..3).for_each(|_| object.note_reads(&most));
    stack.delete(&name).expect("deletes");
    object.note_reads(&reads);
    stack.run_policy().expect("runs");
    assert!(policy.script().faults.is_empty());
}
