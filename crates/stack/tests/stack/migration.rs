// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a person who moves objects may rely on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::hooked::{Call, Verdict};
use crate::common::world::{
    LONG, ROOMY, World, assert_sound, eventually, key, migrate, outcome_of, put,
};
use terrace_core::{
    Backend, BackendExt, Clock, End, ErrorKind, Key, Object, ObjectExt, Open, Outcome, Persistency,
    TierIndex,
};
use terrace_stack::report::MoveReport;
use terrace_stack::{MoveKind, MoveTicket, Stack};
use terrace_testkit::ManualClock;

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

/// Where an object's first segment is, and its copies.
fn place(stack: &Stack, name: &Key) -> (String, Vec<String>) {
    let segment = stack.explain(name).expect("exists").segments.remove(0);
    (segment.tier, segment.copies)
}

#[track_caller]
fn ended(stack: &Stack, tickets: &[MoveTicket]) -> MoveReport {
    stack.wait(tickets[0], LONG).expect("known").expect("ends")
}

#[test]
fn a_tier_that_is_too_weak_is_refused_with_both_levels() {
    let (strong, weak) = (Persistency::Storage, Persistency::None);
    let world = World::with(&[("ram", ROOMY, weak), ("disk", ROOMY, strong)]);
    let stack = world.create();
    put(&stack, &key("kept"), b"bytes");
    let error = stack.migrate(&key("kept"), FAST, MoveKind::Move, 0, "test").expect_err("too weak");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("promised=process tier=ram strongest=none"), "{text}");
}

#[test]
fn each_kind_of_migration_leaves_what_it_says() {
    let world = World::two();
    let stack = world.create();
    let cases: [(MoveKind, &str, &[&str]); 3] = [
        (MoveKind::Move, "slow", &[]),
        (MoveKind::Promote, "slow", &["fast"]),
        (MoveKind::Copy, "fast", &["slow"]),
    ];
    for (kind, tier, copies) in cases {
        let name = key(&format!("{kind:?}"));
        put(&stack, &name, &[7; 10_000]);
        let tickets = stack.migrate(&name, SLOW, kind, 0, "because").expect("queued");
        let report = ended(&stack, &tickets);
        assert_eq!(outcome_of(&report), "done");
        assert_eq!((report.from.as_str(), report.to.as_str()), ("fast", "slow"));
        assert_eq!((report.reason.as_str(), report.copied_bytes), ("because", 10_000));
        assert_eq!(
            place(&stack, &name),
            (tier.into(), copies.iter().map(|c| c.to_string()).collect())
        );
        assert_eq!(stack.read_all(&name).expect("reads"), [7; 10_000]);
        let history = stack.explain(&name).expect("exists").segments[0].history.clone();
        let last = history.last().expect("has a history");
        assert_eq!((last.by.as_str(), last.reason.as_str()), ("user", "because"));
    }
    assert_sound(&world, &stack);
}

#[test]
fn times_do_not_change_by_migration() {
    let world = World::two();
    let stack = world.create();
    let name = key("old");
    put(&stack, &name, &[7; 10_000]);
    let before = stack.stat(&name).expect("is there");
    assert!(before.created_ns > 0 && before.modified_ns > 0);
    for (to, kind) in [
        (SLOW, MoveKind::Move),
        (FAST, MoveKind::Promote),
        (SLOW, MoveKind::Move),
        (FAST, MoveKind::Copy),
        (FAST, MoveKind::Move),
    ] {
        migrate(&stack, &name, to, kind);
        let after = stack.stat(&name).expect("is there");
        assert_eq!(
            (after.modified_ns, after.created_ns),
            (before.modified_ns, before.created_ns),
            "{kind:?} to {to}"
        );
    }
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    let after = stack.stat(&name).expect("is there");
    assert_eq!((after.modified_ns, after.created_ns), (before.modified_ns, before.created_ns));
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(0, b"new").expect("writes");
    assert_ne!(stack.stat(&name).expect("is there").modified_ns, before.modified_ns);
}

/// Neither a time that is set nor room that is promised changes a byte: the copy stays, with a time of before.
#[test]
fn a_copy_that_becomes_the_primary_gets_its_times() {
    type Change = fn(&dyn Object);
    let set_time: Change = |object| object.set_modified(1_234_567_890).expect("set");
    let promise: Change = |object| object.allocate(0..5000, End::Stays).expect("there is room");
    for world in [World::two(), World::two().whole("slow")] {
        let stack = world.create();
        for (change, kind) in [(set_time, MoveKind::Move), (promise, MoveKind::Promote)] {
            let name = key(&format!("{kind:?}"));
            put(&stack, &name, &[7; 10_000]);
            migrate(&stack, &name, SLOW, MoveKind::Copy);
            let copied = stack.stat(&name).expect("is there");
            change(&*stack.open(&name, &Open::write()).expect("opens"));
            let before = stack.stat(&name).expect("is there");
            assert_ne!(before.modified_ns, copied.modified_ns, "{kind:?}");
            assert_eq!(place(&stack, &name), ("fast".into(), vec!["slow".to_string()]), "{kind:?}");
            migrate(&stack, &name, SLOW, kind);
            assert_eq!(place(&stack, &name).0, "slow", "{kind:?}");
            let after = stack.stat(&name).expect("is there");
            assert_eq!(after.modified_ns, before.modified_ns, "{kind:?}");
        }
        let name = key("back");
        put(&stack, &name, &[7; 10_000]);
        migrate(&stack, &name, SLOW, MoveKind::Move);
        migrate(&stack, &name, FAST, MoveKind::Copy);
        set_time(&*stack.open(&name, &Open::write()).expect("opens"));
        migrate(&stack, &name, FAST, MoveKind::Move);
        assert_eq!(stack.stat(&name).expect("is there").modified_ns, 1_234_567_890);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_move_to_a_clean_copy_copies_nothing() {
    let world = World::two();
    let stack = world.create();
    let name = key("undone");
    put(&stack, &name, &[7; 10_000]);
    migrate(&stack, &name, SLOW, MoveKind::Promote);
    let calls = Arc::new(AtomicUsize::new(0));
    for tier in [0, 1] {
        let calls = calls.clone();
        world.tier(tier).on(move |moment| {
            if matches!(moment.call, Call::Write | Call::Read | Call::Create) {
                calls.fetch_add(1, Ordering::SeqCst);
            }
            Verdict::Go
        });
    }
    let tickets = stack.migrate(&name, FAST, MoveKind::Move, 0, "test").expect("queued");
    let report = ended(&stack, &tickets);
    assert_eq!((outcome_of(&report), report.copied_bytes), ("done", 0));
    assert_eq!(calls.load(Ordering::SeqCst), 0, "a catalog update, no I/O");
    (0..2).for_each(|tier| world.tier(tier).heal());
    assert_eq!(place(&stack, &name), ("fast".into(), Vec::new()));
    assert_eq!(stack.read_all(&name).expect("reads"), [7; 10_000]);
    assert_sound(&world, &stack);
}

#[test]
fn a_migration_to_where_it_is_does_nothing() {
    let world = World::two();
    let stack = world.create();
    let name = key("there");
    put(&stack, &name, &[7; 100]);
    for kind in [MoveKind::Move, MoveKind::Promote] {
        let tickets = stack.migrate(&name, FAST, kind, 0, "test").expect("is there");
        assert_eq!(tickets, [], "nothing is to be done");
    }
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    let tickets = stack.migrate(&name, SLOW, MoveKind::Copy, 0, "test").expect("is there");
    assert_eq!(tickets, []);
    assert_sound(&world, &stack);
}

#[test]
fn a_pinned_object_stays_until_it_is_unpinned() {
    let world = World::two();
    let stack = world.create();
    let name = key("pinned");
    put(&stack, &name, &[7; 100]);
    stack.pin(&name).expect("pins");
    stack.pin(&name).expect("pins again");
    let refused = |stack: &Stack| match stack.migrate(&name, SLOW, MoveKind::Move, 0, "test") {
        Err(error) => assert!(error.to_string().contains("pinned"), "{error}"),
        Ok(tickets) => assert_eq!(outcome_of(&ended(stack, &tickets)), "pinned"),
    };
    refused(&stack);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    assert!(stack.explain(&name).expect("exists").is_pinned, "a pin is kept");
    refused(&stack);
    stack.unpin(&name).expect("unpins");
    migrate(&stack, &name, SLOW, MoveKind::Move);
    assert_eq!(place(&stack, &name).0, "slow");
    assert_eq!(stack.pin(&key("nobody")).expect_err("missing").kind(), ErrorKind::NotFound);
    assert_sound(&world, &stack);
}

#[test]
fn a_pin_while_a_migration_waits_wins() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.settings.move_threads = 1);
    put(&stack, &key("first"), &[7; 100]);
    put(&stack, &key("second"), &[7; 100]);
    world.tier(1).hold_creates();
    stack.migrate(&key("first"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    world.tier(1).wait_until_held();
    let tickets = stack.migrate(&key("second"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    stack.pin(&key("second")).expect("pins");
    world.tier(1).release();
    let report = ended(&stack, &tickets);
    assert!(["pinned", "cancelled"].contains(&outcome_of(&report)), "{report:?}");
    assert_eq!(place(&stack, &key("second")).0, "fast");
    assert_sound(&world, &stack);
}

#[test]
fn what_does_not_exist_cannot_be_migrated() {
    let world = World::two();
    let stack = world.create();
    let kind = |result: terrace_core::Result<Vec<MoveTicket>>| result.expect_err("refused").kind();
    assert_eq!(kind(stack.migrate(&key("no"), SLOW, MoveKind::Move, 0, "")), ErrorKind::NotFound);
    put(&stack, &key("yes"), b"x");
    let nowhere = stack.migrate(&key("yes"), TierIndex(9), MoveKind::Move, 0, "");
    assert!([ErrorKind::Invalid, ErrorKind::NotFound].contains(&kind(nowhere)));
    let unknown = MoveTicket(u64::MAX - 1);
    assert_eq!(stack.wait(unknown, LONG).expect_err("unknown").kind(), ErrorKind::NotFound);
    assert_eq!(stack.cancel(unknown).expect_err("unknown").kind(), ErrorKind::NotFound);
    let error = stack.tier("nowhere").expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.contains("fast") && text.contains("slow"), "{text}");
}

#[test]
fn higher_priorities_go_first() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.settings.move_threads = 1);
    let wanted = [("low", -5), ("usual", 0), ("later", 0), ("high", 9)];
    put(&stack, &key("blocker"), &[7; 100]);
    wanted.iter().for_each(|(name, _)| put(&stack, &key(name), &[7; 100]));
    world.tier(1).hold_creates();
    stack.migrate(&key("blocker"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    world.tier(1).wait_until_held();
    for (name, priority) in wanted {
        stack.migrate(&key(name), SLOW, MoveKind::Move, priority, "test").expect("queued");
    }
    let waiting = stack.moves().into_iter().filter(|report| report.state == "queued").count();
    assert_eq!(waiting, 4);
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, watched) = (order.clone(), stack.clone());
    world.tier(1).release();
    assert!(stack.wait_idle(LONG));
    for report in watched.moves() {
        log.lock().expect("never poisoned").push(report.key);
    }
    let order = order.lock().expect("never poisoned");
    let order: Vec<_> = order.iter().map(|name| name.trim_start_matches("test/")).collect();
    assert_eq!(order, ["blocker", "high", "usual", "later", "low"]);
    assert_sound(&world, &stack);
}

#[test]
fn the_queue_is_bounded() {
    let world = World::two();
    let stack = world.create_with(|parts| {
        parts.settings.move_threads = 1;
        parts.settings.queue_max = 10;
    });
    for index in 0..40 {
        put(&stack, &key(&format!("many-{index}")), &[7; 100]);
    }
    world.tier(1).hold_creates();
    let mut refused = 0;
    let mut tickets = Vec::new();
    for index in 0..40 {
        let name = key(&format!("many-{index}"));
        match stack.migrate(&name, SLOW, MoveKind::Move, 0, "test") {
            Ok(more) => tickets.extend(more),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                refused += 1;
            }
        }
    }
    world.tier(1).release();
    let mut done = 0;
    for ticket in tickets {
        match outcome_of(&stack.wait(ticket, LONG).expect("known").expect("ends")) {
            "done" => done += 1,
            "busy" => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(done + refused, 40);
    assert!((10..=12).contains(&done), "{done} were taken");
    assert_sound(&world, &stack);
}

#[test]
fn waiting_ends_at_its_timeout() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("held"), &[7; 100]);
    world.tier(1).hold_creates();
    let tickets = stack.migrate(&key("held"), SLOW, MoveKind::Move, 0, "test").expect("queued");
    world.tier(1).wait_until_held();
    let short = Duration::from_millis(5);
    assert_eq!(stack.wait(tickets[0], short).expect("known"), None);
    assert!(!stack.wait_idle(short));
    let moving = stack.explain(&key("held")).expect("exists").segments.remove(0).moving;
    assert_eq!(moving.expect("is shown").outcome, None);
    assert_eq!(stack.moves().len(), 1);
    world.tier(1).release();
    assert!(stack.wait_idle(LONG));
    assert_eq!(outcome_of(&stack.moves()[0]), Outcome::Done.word());
    assert_eq!(stack.explain(&key("held")).expect("exists").segments[0].moving, None);
}

/// A tier of 50 ms a request took five looks at what two requests had written to it.
#[test]
fn a_slow_tier_is_asked_as_rarely_as_it_is_written_to() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.tiers[1].figures.latency_ns = 50_000_000);
    for (name, bytes, requests) in [("small", 300_000, 2), ("large", 5 << 20, 20)] {
        let (reads, writes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen_reads, seen_writes) = (reads.clone(), writes.clone());
        world.tier(1).on(move |moment| {
            match moment.call {
                Call::Read if moment.is_done => seen_reads.fetch_add(1, Ordering::SeqCst),
                Call::Write if moment.is_done => seen_writes.fetch_add(1, Ordering::SeqCst),
                _ => 0,
            };
            Verdict::Go
        });
        put(&stack, &key(name), &vec![7; bytes]);
        migrate(&stack, &key(name), SLOW, MoveKind::Move);
        let asked = (writes.load(Ordering::SeqCst), reads.load(Ordering::SeqCst));
        assert_eq!(asked, (requests, requests), "{name}: writes, reads");
        world.tier(1).heal();
        assert_eq!(stack.read_all(&key(name)).expect("reads"), vec![7; bytes]);
    }
    assert_sound(&world, &stack);
}

#[test]
fn a_rate_limit_is_kept() {
    let world = World::two();
    let clock = Arc::new(ManualClock::new());
    let stack = world.create_with(|parts| {
        parts.clock = clock.clone();
        parts.settings.move_bytes_per_s = Some(1e6);
        parts.settings.move_threads = 1;
    });
    for index in 0..5 {
        put(&stack, &key(&format!("slowly-{index}")), &vec![7; 1_000_000]);
    }
    let before_ns = clock.now_ns();
    for index in 0..5 {
        migrate(&stack, &key(&format!("slowly-{index}")), SLOW, MoveKind::Move);
    }
    let took_s = (clock.now_ns() - before_ns) as f64 * 1e-9;
    assert!((3.5..20.0).contains(&took_s), "5 MB at 1 MB/s took {took_s} s");
    assert_sound(&world, &stack);
}

#[test]
fn holes_stay_holes() {
    let world = World::two();
    let stack = world.create();
    let name = key("sparse");
    put(&stack, &name, &[7; 4096]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write(4 << 20, &[8; 4096]).expect("writes");
    drop(object);
    let expected = stack.read_all(&name).expect("reads");
    for kind in [MoveKind::Move, MoveKind::Copy] {
        let to = if kind == MoveKind::Move { SLOW } else { FAST };
        migrate(&stack, &name, to, kind);
        let taken: u64 = world.disk(to.index()).files().iter().map(|f| f.allocated_bytes).sum();
        assert!(taken <= 1 << 20, "{taken} bytes are taken after {kind:?}");
        assert_eq!(stack.read_all(&name).expect("reads"), expected);
    }
    assert_sound(&world, &stack);
}

#[test]
fn empty_objects_move_too() {
    let world = World::two();
    let stack = world.create();
    let name = key("empty");
    put(&stack, &name, b"");
    for kind in [MoveKind::Copy, MoveKind::Move, MoveKind::Promote] {
        let to = if place(&stack, &name).0 == "fast" { SLOW } else { FAST };
        migrate(&stack, &name, to, kind);
        assert_eq!(stack.read_all(&name).expect("reads"), b"");
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_dropped_copy_is_gone_and_nothing_else() {
    let world = World::two();
    let stack = world.create();
    let name = key("copied");
    put(&stack, &name, &[7; 5000]);
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    stack.drop_copy(&name, SLOW).expect("drops");
    assert_eq!(place(&stack, &name), ("fast".into(), Vec::new()));
    eventually("its file is deleted", || world.disk(1).files().is_empty());
    let error = stack.drop_copy(&name, SLOW).expect_err("there is none").kind();
    assert!([ErrorKind::NotFound, ErrorKind::Invalid].contains(&error), "{error:?}");
    assert_eq!(stack.read_all(&name).expect("reads"), [7; 5000]);
    assert_sound(&world, &stack);
}

#[test]
fn the_ledger_counts_what_moved() {
    let world = World::two();
    let stack = world.create();
    let name = key("counted");
    put(&stack, &name, &[7; 5000]);
    stack.read_all(&name).expect("reads");
    migrate(&stack, &name, SLOW, MoveKind::Move);
    let tiers = stack.tiers();
    let (fast, slow) = (tiers[0].ledger, tiers[1].ledger);
    assert_eq!((fast.written_bytes, fast.read_bytes), (5000, 5000));
    assert_eq!((slow.written_bytes, slow.read_bytes), (0, 0), "applications did not write there");
    assert_eq!((fast.moves_out, fast.moved_out_bytes, slow.moves_in), (1, 5000, 1));
    assert_eq!(slow.moved_in_bytes, 5000);
    let object = stack.explain(&name).expect("exists").ledger;
    assert_eq!((object.written_bytes, object.read_bytes), (5000, 5000));
    let total = stack.ledger();
    assert_eq!((total.written_bytes, total.moved_in_bytes), (5000, 5000));
}

#[test]
fn the_ledger_counts_no_bytes_that_nobody_wrote() {
    let world = World::two();
    let stack = world.create();
    let name = key("sparse");
    put(&stack, &name, &[7; 5000]);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.set_len(1 << 20).expect("grows");
    object.allocate(1 << 20..2 << 20, End::Grows).expect("grows");
    object.punch(0..4096).expect("punches");
    object.set_len(100).expect("shrinks");
    let ledger = stack.explain(&name).expect("exists").ledger;
    assert_eq!((ledger.writes, ledger.written_bytes), (4, 5000));
    assert_eq!(stack.ledger().written_bytes, 5000);
}

#[test]
fn a_reader_uses_a_better_copy() {
    let world = World::two();
    let stack = world.create();
    let name = key("read-fast");
    put(&stack, &name, &[7; 5000]);
    migrate(&stack, &name, SLOW, MoveKind::Move);
    migrate(&stack, &name, FAST, MoveKind::Copy);
    assert_eq!(place(&stack, &name), ("slow".into(), vec!["fast".into()]));
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = reads.clone();
    world.tier(1).on(move |moment| {
        if moment.call == Call::Read {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        Verdict::Go
    });
    assert_eq!(stack.read_all(&name).expect("reads"), [7; 5000]);
    assert_eq!(reads.load(Ordering::SeqCst), 0, "the copy on the preferred tier is read");
}
