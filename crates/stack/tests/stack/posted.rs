// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When accesses become events for a policy, and which of them do.

use terrace_core::{
    Backend, BackendExt, Event, EventKind, Interest, Key, Object, ObjectExt, Open, PostEvents,
    SLOT_NONE, TierIndex,
};
use terrace_stack::{MoveKind, Stack};

use crate::common::hooked::{Call, Verdict};
use crate::common::scripted::{Breakage, Shared, Step, is_replaced};
use crate::common::world::{LONG, World, assert_sound, cutting, eventually, key, migrate, put};

const BOTH: Interest = Interest { stat: true, sync: true };
const SLOW: TierIndex = TierIndex(1);

/// A store of two tiers under a scripted policy that asks for these events.
fn posting(interest: Interest, post_events: PostEvents) -> (World, Stack, Shared) {
    let world = World::two();
    let shared = Shared::new().asking(interest);
    let stack = world.create_with(|parts| {
        let mut tactics = shared.tactics("scripted");
        tactics.post_events = post_events;
        parts.tactics = Some(tactics);
    });
    (world, stack, shared)
}

/// The events that the policy was shown since the last time, without the timer's.
fn news(stack: &Stack, shared: &Shared) -> Vec<Event> {
    stack.run_policy().expect("runs");
    let events = std::mem::take(&mut shared.script().events);
    events.into_iter().filter(|event| event.slot != SLOT_NONE).collect()
}

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

fn open(stack: &Stack, name: &Key) -> Box<dyn Object> {
    stack.open(name, &Open::write()).expect("opens")
}

fn seen_bytes(shared: &Shared, name: &Key) -> u64 {
    let script = shared.script();
    let view = script.view.as_ref().expect("it was called");
    let found = view.live().find(|(_, segment)| segment.key == *name);
    found.expect("the view has it").1.size_bytes
}

#[test]
fn only_a_policy_that_asks_sees_stat_and_sync() {
    use EventKind::{Stat, Sync};
    let cases = [
        (Interest::NONE, vec![]),
        (Interest { stat: true, sync: false }, vec![Stat, Stat]),
        (Interest { stat: false, sync: true }, vec![Sync]),
        (BOTH, vec![Stat, Stat, Sync]),
    ];
    for post_events in PostEvents::ALL {
        for (interest, expected) in &cases {
            let (world, stack, shared) = posting(*interest, post_events);
            let name = key("asked");
            put(&stack, &name, &[1; 100]);
            let object = open(&stack, &name);
            news(&stack, &shared);
            stack.stat(&name).expect("there");
            object.stat().expect("there");
            object.sync().expect("syncs");
            let events = news(&stack, &shared);
            assert_eq!(kinds(&events), *expected, "{interest:?} {post_events:?}");
            let of = |event: &Event| (event.slot, event.incarnation);
            for event in &events {
                let of = shared.script().keys[&of(event)].clone();
                assert_eq!((of, event.tier, event.count), ((name.clone(), 0), TierIndex(0), 1));
            }
            drop(object);
            assert_sound(&world, &stack);
        }
    }
}

#[test]
fn every_segment_of_an_object_is_posted() {
    let world = World::two();
    let shared = Shared::with_placer(cutting(4096).policy.placer()).asking(BOTH);
    let stack = world.create_with(|parts| parts.tactics = Some(shared.tactics("scripted")));
    // From then on it places.
    news(&stack, &shared);
    put(&stack, &key("cut"), &[1; 10_000]);
    let object = open(&stack, &key("cut"));
    news(&stack, &shared);
    object.stat().expect("there");
    object.sync().expect("syncs");
    let events = news(&stack, &shared);
    for kind in [EventKind::Stat, EventKind::Sync] {
        let of_kind = events.iter().filter(|event| event.kind == kind);
        let mut slots: Vec<_> = of_kind.map(|event| event.slot).collect();
        slots.dedup();
        assert_eq!(slots.len(), 3, "{kind:?}: {events:?}");
    }
}

#[test]
fn a_stat_of_an_object_that_is_not_in_memory_is_posted() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("resting"), &[1; 100]);
    stack.close().expect("closes");
    for post_events in PostEvents::ALL {
        let shared = Shared::new().asking(BOTH);
        let stack = world.open_with(|parts| {
            let mut tactics = shared.tactics("scripted");
            tactics.post_events = post_events;
            parts.tactics = Some(tactics);
        });
        news(&stack, &shared);
        assert_eq!(stack.stat(&key("resting")).expect("there").size_bytes, 100);
        stack.stat(&key("missing")).expect_err("there is none");
        let events = news(&stack, &shared);
        assert_eq!(kinds(&events), [EventKind::Stat], "{post_events:?}");
        let of = shared.script().keys[&(events[0].slot, events[0].incarnation)].clone();
        assert_eq!(of, (key("resting"), 0));
        stack.close().expect("closes");
    }
}

/// What a caller does to an object of 100 bytes that is open, and the call of the tier that it comes to.
type Access = (EventKind, Call, fn(&dyn Object) -> terrace_core::Result<()>);

const ACCESSES: [Access; 3] = [
    (EventKind::Read, Call::Read, |object| object.read_exact(10, &mut [0; 20])),
    (EventKind::Write, Call::Write, |object| object.write(90, &[2; 50])),
    (EventKind::Sync, Call::Sync, |object| object.sync()),
];

#[test]
fn a_policy_sees_an_access_before_or_after_its_io() {
    for (kind, call, access) in ACCESSES {
        for post_events in PostEvents::ALL {
            let (world, stack, shared) = posting(BOTH, post_events);
            put(&stack, &key("held"), &[1; 100]);
            let object = open(&stack, &key("held"));
            object.write(0, &[1]).expect("writes, so that there is something to sync");
            news(&stack, &shared);
            world.tier(0).hold(move |moment| moment.call == call && !moment.is_done);
            std::thread::scope(|scope| {
                let works = scope.spawn(|| access(&*object));
                world.tier(0).wait_until_held();
                let during = news(&stack, &shared);
                world.tier(0).release();
                works.join().expect("no panic").expect("works");
                let afterwards = news(&stack, &shared);
                let (mine, none) = match post_events {
                    PostEvents::Before => (during, afterwards),
                    PostEvents::After => (afterwards, during),
                };
                assert_eq!(kinds(&mine), [kind], "{kind:?} {post_events:?}");
                assert_eq!(none, [], "{kind:?} {post_events:?}");
                let (offset_bytes, length_bytes) = match kind {
                    EventKind::Read => (10, 20),
                    EventKind::Write => (90, 50),
                    _ => (0, 0),
                };
                let extent = (mine[0].offset_bytes, mine[0].length_bytes);
                assert_eq!(extent, (offset_bytes, length_bytes), "{kind:?} {post_events:?}");
                if post_events == PostEvents::Before {
                    assert_eq!(mine[0].latency_ns, 0, "it is not known yet");
                }
            });
            drop(object);
            assert_sound(&world, &stack);
        }
    }
}

#[test]
fn a_read_beyond_the_end_is_posted_with_what_is_there() {
    for post_events in PostEvents::ALL {
        let (_world, stack, shared) = posting(BOTH, post_events);
        put(&stack, &key("short"), &[1; 100]);
        let object = open(&stack, &key("short"));
        news(&stack, &shared);
        let mut buffer = [0; 80];
        let count = object.read_at(60, &mut [std::io::IoSliceMut::new(&mut buffer)]);
        assert_eq!(count.expect("reads"), 40);
        let events = news(&stack, &shared);
        let extents: Vec<_> =
            events.iter().map(|event| (event.offset_bytes, event.length_bytes)).collect();
        assert_eq!(extents, [(60, 40)], "{post_events:?}");
    }
}

#[test]
fn an_access_that_fails_is_an_event_only_before_its_io() {
    for (kind, call, access) in ACCESSES {
        for post_events in PostEvents::ALL {
            let (world, stack, shared) = posting(BOTH, post_events);
            let name = key("failing");
            put(&stack, &name, &[1; 100]);
            let object = open(&stack, &name);
            object.write(0, &[1]).expect("writes");
            news(&stack, &shared);
            world.tier(0).on(move |moment| match moment.call == call && !moment.is_done {
                true => Verdict::Fail(terrace_core::ErrorKind::Io),
                false => Verdict::Go,
            });
            access(&*object).expect_err("the tier fails");
            let seen = kinds(&news(&stack, &shared));
            let expected = match (post_events, kind) {
                (PostEvents::After, _) => vec![],
                (PostEvents::Before, EventKind::Write) => vec![kind, EventKind::SetLen],
                (PostEvents::Before, _) => vec![kind],
            };
            assert_eq!(seen, expected, "{kind:?} {post_events:?}");
            assert_eq!(seen_bytes(&shared, &name), 100, "{kind:?} {post_events:?}");
            world.tier(0).heal();
        }
    }
}

#[test]
fn a_stat_that_fails_is_an_event_only_before_its_io() {
    for post_events in PostEvents::ALL {
        let (world, stack, shared) = posting(BOTH, post_events);
        put(&stack, &key("failing"), &[1; 100]);
        let object = open(&stack, &key("failing"));
        news(&stack, &shared);
        world.tier(0).fail_stats(true);
        object.stat().expect_err("the tier fails");
        stack.stat(&key("failing")).expect_err("the tier fails");
        world.tier(0).fail_stats(false);
        let seen = kinds(&news(&stack, &shared));
        match post_events {
            PostEvents::Before => assert_eq!(seen, [EventKind::Stat; 2]),
            PostEvents::After => assert_eq!(seen, []),
        }
    }
}

#[test]
fn many_writes_before_their_io_leave_the_view_right() {
    let world = World::two();
    let shared = Shared::new();
    let stack = world.create_with(|parts| {
        let mut tactics = shared.tactics("scripted");
        (tactics.post_events, tactics.call_time_max) = (PostEvents::Before, LONG);
        parts.tactics = Some(tactics);
    });
    let name = key("growing");
    let object = stack.open(&name, &Open::create()).expect("creates");
    shared.break_at(Step::Plan, Breakage::Loop);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| stack.run_policy());
        shared.gate().wait_until_held();
        // More than a ring holds: the rest is summed up.
        for at in 0..10_000_u64 {
            object.write(at * 10, &[1; 10]).expect("writes");
        }
        shared.gate().open();
        runs.join().expect("no panic").expect("runs");
    });
    news(&stack, &shared);
    assert_eq!(seen_bytes(&shared, &name), 100_000);
    assert!(stack.policy().expect("there is one").coalesced_events > 0);
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn what_was_summed_up_before_its_io_is_not_taken_for_the_length() {
    let world = World::two();
    let shared = Shared::new();
    let stack = world.create_with(|parts| {
        let mut tactics = shared.tactics("scripted");
        (tactics.post_events, tactics.call_time_max) = (PostEvents::Before, LONG);
        parts.tactics = Some(tactics);
    });
    let name = key("cut");
    let object = stack.open(&name, &Open::create()).expect("creates");
    shared.break_at(Step::Plan, Breakage::Loop);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| stack.run_policy());
        shared.gate().wait_until_held();
        for at in 0..10_000_u64 {
            object.write(at * 10, &[1; 10]).expect("writes");
        }
        object.set_len(0).expect("cuts");
        object.write(0, &[1; 10]).expect("writes");
        shared.gate().open();
        runs.join().expect("no panic").expect("runs");
    });
    news(&stack, &shared);
    assert_eq!(seen_bytes(&shared, &name), 10);
    assert!(stack.policy().expect("there is one").coalesced_events > 0);
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn a_policy_that_starts_during_a_write_gets_its_length() {
    let (world, stack, shared) = posting(BOTH, PostEvents::Before);
    let name = key("during");
    put(&stack, &name, &[1; 100]);
    let object = open(&stack, &name);
    news(&stack, &shared);
    let next = Shared::new();
    world.tier(0).hold(move |moment| moment.call == Call::Write && !moment.is_done);
    std::thread::scope(|scope| {
        let works = scope.spawn(|| object.write(90, &[2; 50]));
        world.tier(0).wait_until_held();
        let mut tactics = next.tactics("next");
        tactics.post_events = PostEvents::Before;
        stack.set_policy(tactics).expect("swaps");
        news(&stack, &next);
        world.tier(0).release();
        works.join().expect("no panic").expect("works");
    });
    news(&stack, &next);
    assert_eq!(seen_bytes(&next, &name), 140);
    drop(object);
    assert_sound(&world, &stack);
}

#[test]
fn what_only_the_shadow_asks_for_is_not_shown_to_the_policy() {
    let (_world, stack, shared) = posting(Interest::NONE, PostEvents::After);
    put(&stack, &key("a"), &[1; 100]);
    let beside = Shared::new().asking(BOTH);
    stack.set_shadow(Some(beside.tactics("beside"))).expect("begins");
    news(&stack, &shared);
    stack.stat(&key("a")).expect("there");
    assert_eq!(kinds(&news(&stack, &shared)), [], "the shadow asks alone");
    let stats = || beside.script().events.iter().filter(|one| one.kind == EventKind::Stat).count();
    eventually("the shadow has seen it", || stats() == 1);
    beside.break_at(Step::Plan, Breakage::Panic);
    news(&stack, &shared);
    let has_ended = || stack.shadow().is_some_and(|report| report.ended.is_some());
    eventually("the shadow has ended", has_ended);
    // The next round notes that it asks for nothing.
    news(&stack, &shared);
    let events = stack.policy().expect("there is one").events;
    stack.stat(&key("a")).expect("there");
    news(&stack, &shared);
    assert_eq!(stack.policy().expect("there is one").events, events + 1, "the timer alone");
}

#[test]
fn the_next_policy_gets_what_it_asks_for() {
    let (_world, stack, shared) = posting(BOTH, PostEvents::Before);
    put(&stack, &key("a"), &[1; 100]);
    let other = Shared::new();
    stack.set_policy(other.tactics("other")).expect("swaps");
    news(&stack, &other);
    stack.stat(&key("a")).expect("there");
    assert_eq!(kinds(&news(&stack, &other)), [], "it does not ask");
    assert_eq!(stack.policy().expect("there is one").post_events, "after");
    let again = Shared::new().asking(BOTH);
    stack.set_policy(again.tactics("again")).expect("swaps");
    news(&stack, &again);
    stack.stat(&key("a")).expect("there");
    assert_eq!(kinds(&news(&stack, &again)), [EventKind::Stat]);
    assert!(shared.script().faults.is_empty());
}

#[test]
fn the_fallback_asks_for_nothing() {
    let (_world, stack, shared) = posting(BOTH, PostEvents::After);
    put(&stack, &key("a"), &[1; 100]);
    shared.break_at(Step::Plan, Breakage::Panic);
    let _ = stack.run_policy();
    eventually("the fallback takes over", || is_replaced(&stack));
    stack.run_policy().expect("runs");
    let before = stack.policy().expect("there is one").events;
    stack.stat(&key("a")).expect("there");
    stack.run_policy().expect("runs");
    let events = stack.policy().expect("there is one").events;
    assert_eq!(events, before + 1, "the timer alone");
}

#[test]
fn a_policy_in_the_shadow_gets_what_it_asks_for() {
    let (_world, stack, shared) = posting(Interest::NONE, PostEvents::After);
    put(&stack, &key("a"), &[1; 100]);
    let beside = Shared::new().asking(BOTH);
    stack.set_shadow(Some(beside.tactics("beside"))).expect("begins");
    news(&stack, &shared);
    stack.stat(&key("a")).expect("there");
    news(&stack, &shared);
    let stats = || beside.script().events.iter().filter(|one| one.kind == EventKind::Stat).count();
    eventually("the shadow has seen it", || stats() == 1);
    stack.set_shadow(None).expect("ends");
    news(&stack, &shared);
    stack.stat(&key("a")).expect("there");
    assert_eq!(kinds(&news(&stack, &shared)), [], "nobody asks any more");
}

#[test]
fn what_a_move_saved_is_counted_from_latencies_only() {
    for post_events in PostEvents::ALL {
        let world = World::two();
        let shared = Shared::new();
        let stack = world.create_with(|parts| {
            parts.tiers[SLOW.index()].figures.latency_ns = 1_000_000_000;
            let mut tactics = shared.tactics("scripted");
            tactics.post_events = post_events;
            parts.tactics = Some(tactics);
        });
        let name = key("moved");
        put(&stack, &name, &[1; 100]);
        for to in [SLOW, TierIndex(0)] {
            migrate(&stack, &name, to, MoveKind::Move);
            news(&stack, &shared);
        }
        assert_eq!(stack.read_all(&name).expect("reads"), [1; 100]);
        news(&stack, &shared);
        let history = stack.explain(&name).expect("exists").segments.remove(0).history;
        let saved_s = history.last().expect("it was moved").measured_benefit_s;
        let is_counted = saved_s.expect("the figures say what it would have taken") > 0.5;
        assert_eq!(is_counted, post_events == PostEvents::After, "{history:?}");
    }
}
