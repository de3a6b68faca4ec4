// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy that takes long is not asked all the time, and misses nothing by that.

use std::time::Duration;

use crate::common::scripted::{Breakage, Shared, Step};
use crate::common::world::{World, eventually, key, put};
use terrace_core::{Backend, Clock, EventKind, ObjectExt, Open, SystemClock};

/// What a dawdling policy sleeps, and at least what it then is left alone for.
const ROUND: Duration = Duration::from_millis(10 + 10);

#[test]
fn a_policy_that_takes_long_rests_and_is_shown_everything() {
    let world = World::two();
    let shared = Shared::new();
    let stack = world.create_with(|parts| {
        let mut tactics = shared.tactics("scripted");
        tactics.after_events = 1;
        parts.tactics = Some(tactics);
    });
    put(&stack, &key("object"), &[7; 4096]);
    let object = stack.open(&key("object"), &Open::read()).expect("opens");
    shared.break_at(Step::Plan, Breakage::Dawdle);

    let clock = SystemClock::default();
    let began_ns = clock.now_ns();
    let before = shared.script().rounds;
    let mut reads = 0;
    while clock.now_ns() - began_ns < 10 * ROUND.as_nanos() as u64 {
        object.read_exact(0, &mut [0; 4096]).expect("reads");
        reads += 1;
        // As many as a policy in another process can be told of.
        clock.sleep(Duration::from_micros(10));
    }
    let rounds = shared.script().rounds - before;
    // One may have begun before it dawdled, and one is under way.
    let rounds_max = (clock.now_ns() - began_ns) / ROUND.as_nanos() as u64 + 2;
    assert!((2..=rounds_max).contains(&rounds), "{rounds} rounds, at most {rounds_max}");
    eventually("all reads are shown", || {
        let script = shared.script();
        let shown = script.events.iter().filter(|event| event.kind == EventKind::Read);
        shown.map(|event| u64::from(event.count)).sum::<u64>() == reads
    });
}

#[test]
fn who_asks_for_a_round_does_not_wait_until_the_policy_has_rested() {
    let world = World::two();
    let shared = Shared::new();
    let stack = world.create_with(|parts| parts.tactics = Some(shared.tactics("scripted")));
    shared.break_at(Step::Plan, Breakage::Dawdle);
    for round in 1..=3 {
        stack.run_policy().expect("runs");
        assert!(shared.script().rounds >= round);
    }
}
