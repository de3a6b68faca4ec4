// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the stack promises to policies, and what it does about bad ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::hooked::Call;
use crate::common::scripted::{
    Breakage, Shared, Step, Wish, assert_replaced, assert_store_works, is_replaced, scripted,
    settle,
};
use crate::common::world::{
    LONG, World, assert_sound, bounded, eventually, key, promise_nothing, put,
};
use terrace_core::Backend;
use terrace_core::{
    Action, ActionKind, BackendExt, ErrorKind, EventKind, Key, ObjectExt, Open, Outcome,
    Persistency, Semantics, TierIndex, View,
};
use terrace_stack::{MoveKind, Stack};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);

/// A store under a scripted policy of which a call is given up soon.
fn impatient() -> (World, Stack, Shared) {
    let world = World::two();
    let shared = Shared::new();
    let stack = world.create_with(|parts| {
        let mut tactics = shared.tactics("scripted");
        tactics.call_time_max = Duration::from_millis(50);
        parts.tactics = Some(tactics);
    });
    (world, stack, shared)
}

#[test]
fn every_action_comes_back_as_exactly_one_receipt() {
    let world = World::with(&[
        ("fast", crate::common::world::ROOMY, Persistency::Storage),
        ("slow", crate::common::world::ROOMY, Persistency::Storage),
        ("memory", crate::common::world::ROOMY, Persistency::None),
        ("small", 4096, Persistency::Storage),
    ]);
    let shared = Shared::new();
    let stack = world.create_with(|parts| parts.tactics = Some(shared.tactics("scripted")));
    let (memory, small) = (TierIndex(2), TierIndex(3));
    let cases = [
        ("moved", ActionKind::Move { to: SLOW }, Outcome::Done),
        ("promoted", ActionKind::Promote { to: SLOW }, Outcome::Done),
        ("copied", ActionKind::Copy { to: SLOW }, Outcome::Done),
        ("copied-to-memory", ActionKind::Copy { to: memory }, Outcome::Done),
        ("there", ActionKind::Move { to: FAST }, Outcome::Already),
        ("there-by-promotion", ActionKind::Promote { to: FAST }, Outcome::Already),
        ("pinned", ActionKind::Move { to: SLOW }, Outcome::Pinned),
        ("too-weak", ActionKind::Move { to: memory }, Outcome::TooWeak),
        ("promoted-too-weak", ActionKind::Promote { to: memory }, Outcome::TooWeak),
        ("no-such-tier", ActionKind::Move { to: TierIndex(9) }, Outcome::Invalid),
        ("nothing-to-drop", ActionKind::DropCopy { tier: SLOW }, Outcome::Invalid),
        ("nothing-to-cancel", ActionKind::Cancel, Outcome::Invalid),
        ("too-large", ActionKind::Move { to: small }, Outcome::NoSpace),
    ];
    for (name, _, _) in &cases {
        put(&stack, &key(name), &[7; 10_000]);
    }
    stack.pin(&key("pinned")).expect("pins");
    shared.wish(cases.iter().map(|(name, kind, _)| Wish::new(&key(name), *kind)).collect());
    settle(&stack);

    let mut receipts: BTreeMap<Key, Vec<Outcome>> = BTreeMap::new();
    for (of, _, outcome, _) in shared.receipts() {
        receipts.entry(of).or_default().push(outcome);
    }
    for (name, kind, outcome) in cases {
        assert_eq!(receipts.get(&key(name)), Some(&vec![outcome]), "{name}: {kind:?}");
    }
    assert!(shared.script().faults.is_empty(), "{:?}", shared.script().faults);
    assert_sound(&world, &stack);
}

#[test]
fn a_second_wish_for_a_moving_segment_is_busy() {
    let (world, stack, shared) = scripted();
    let name = key("once");
    put(&stack, &name, &[1; 5000]);
    let wish = Wish::new(&name, ActionKind::Move { to: SLOW });
    world.tier(1).hold_creates();
    shared.wish(vec![wish.clone(), wish]);
    stack.run_policy().expect("runs");
    world.tier(1).release();
    assert!(stack.wait_idle(LONG));
    stack.run_policy().expect("runs");
    let mut outcomes: Vec<_> = shared.receipts().iter().map(|receipt| receipt.2.word()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["busy", "done"]);
    assert_sound(&world, &stack);
}

#[test]
fn a_failing_tier_is_an_io_receipt_and_changes_nothing() {
    let (world, stack, shared) = scripted();
    let name = key("unlucky");
    put(&stack, &name, &[1; 5000]);
    world.tier(1).fail_writes();
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
    settle(&stack);
    let outcomes: Vec<_> = shared.receipts().iter().map(|receipt| receipt.2).collect();
    assert_eq!(outcomes, [Outcome::Io]);
    world.tier(1).heal();
    assert_eq!(stack.read_all(&name).expect("reads"), [1; 5000]);
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
    settle(&stack);
    assert_eq!(shared.receipts().last().expect("a receipt").2, Outcome::Done);
    assert_sound(&world, &stack);
}

#[test]
fn a_receipt_done_implies_that_the_segment_is_there() {
    let (world, stack, shared) = scripted();
    let names: Vec<_> = (0..20).map(|index| key(&format!("object-{index}"))).collect();
    for name in &names {
        put(&stack, name, &[3; 3000]);
    }
    shared.wish(names.iter().map(|n| Wish::new(n, ActionKind::Move { to: SLOW })).collect());
    settle(&stack);
    for (name, segment, outcome, event) in shared.receipts() {
        assert_eq!((outcome, segment), (Outcome::Done, 0), "{name}");
        assert_eq!(event.tier, SLOW, "a receipt names the tier where the segment is now");
        assert_eq!(event.length_bytes, 3000, "a receipt counts the bytes copied");
        let report = &stack.explain(&name).expect("exists").segments[0];
        assert_eq!(report.tier, "slow");
        let stored = world.stored(1, &report.stored_as).expect("the file is on the tier");
        assert_eq!(stored, [3; 3000]);
    }
    assert_eq!(shared.receipts().len(), names.len());
    assert_sound(&world, &stack);
}

#[test]
fn events_of_a_migration_come_in_order() {
    use EventKind::{Copied, Moved, Queued, Receipt, Uncopied};
    let (world, stack, shared) = scripted();
    let cases: [(&str, ActionKind, &[EventKind]); 3] = [
        ("move", ActionKind::Move { to: SLOW }, &[Queued, Moved, Receipt]),
        ("promote", ActionKind::Promote { to: SLOW }, &[Queued, Moved, Copied, Receipt]),
        ("copy", ActionKind::Copy { to: SLOW }, &[Queued, Copied, Receipt]),
    ];
    for (name, kind, expected) in cases {
        put(&stack, &key(name), &[1; 100]);
        shared.wish(vec![Wish::new(&key(name), kind)]);
        settle(&stack);
        let mut course = shared.course(&key(name));
        // Moved and Copied of a promotion are one step; either may be told first.
        if name == "promote" && course.get(1) == Some(&Copied) {
            course.swap(1, 2);
        }
        assert_eq!(course, expected, "{name}");
    }
    shared.wish(vec![Wish::new(&key("copy"), ActionKind::DropCopy { tier: SLOW })]);
    settle(&stack);
    let course = shared.course(&key("copy"));
    let dropped: Vec<_> = course[3..].iter().filter(|kind| **kind != Queued).collect();
    assert_eq!(dropped, [&Uncopied, &Receipt]);
    assert_sound(&world, &stack);
}

#[test]
fn a_migration_by_a_person_is_shown_to_the_policy() {
    let (_world, stack, shared) = scripted();
    let name = key("by-hand");
    put(&stack, &name, &[1; 100]);
    stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    settle(&stack);
    let script = shared.script();
    let view = script.view.as_ref().expect("called");
    let (_, segment) = view.live().find(|(_, s)| s.key == name).expect("in the view");
    assert_eq!((segment.tier, segment.is_moving), (SLOW, false));
}

#[test]
fn a_view_equals_the_truth_at_rest() {
    let (world, stack, shared) = scripted();
    let names: Vec<_> = (0..12).map(|index| key(&format!("v{index}"))).collect();
    for (index, name) in names.iter().enumerate() {
        put(&stack, name, &vec![1; 100 * index]);
    }
    stack.delete(&names[3]).expect("deletes");
    put(&stack, &names[3], &[2; 77]);
    stack.delete(&names[4]).expect("deletes");
    stack.open(&names[5], &Open::write()).expect("opens").set_len(9).expect("cuts");
    stack.open(&names[6], &Open::write()).expect("opens").write(5000, b"tail").expect("writes");
    stack.pin(&names[7]).expect("pins");
    stack.migrate(&names[8], SLOW, MoveKind::Move, 0, "test").expect("queued");
    stack.migrate(&names[9], SLOW, MoveKind::Copy, 0, "test").expect("queued");
    stack.migrate(&names[10], SLOW, MoveKind::Promote, 0, "test").expect("queued");
    let held = stack.open(&names[11], &Open::read()).expect("opens");
    settle(&stack);
    {
        let script = shared.script();
        assert_view_is_true(&stack, script.view.as_ref().expect("called"));
        assert!(script.faults.is_empty(), "{:?}", script.faults);
    }
    drop(held);
    settle(&stack);
    assert_view_is_true(&stack, shared.script().view.as_ref().expect("called"));
    assert_sound(&world, &stack);
}

/// Compares a view with what `explain` and `tiers` say.
fn assert_view_is_true(stack: &Stack, view: &View) {
    let mut expected = BTreeSet::new();
    for name in crate::common::world::all_keys(stack) {
        let truth = stack.explain(&name).expect("exists");
        for report in &truth.segments {
            expected.insert((name.clone(), report.segment));
            let mut shown = view
                .live()
                .filter(|(_, segment)| segment.key == name && segment.segment == report.segment);
            let (slot, segment) = shown.next().unwrap_or_else(|| panic!("{name} is not shown"));
            assert!(shown.next().is_none(), "{name} is shown twice");
            let tier = &view.tiers[segment.tier.index()].name;
            assert_eq!(*tier, report.tier, "tier of {name} in slot {slot}");
            assert_eq!(segment.size_bytes, report.size_bytes, "size of {name}");
            assert_eq!(segment.start_bytes, report.start_bytes, "start of {name}");
            assert_eq!(segment.opens, truth.opens, "handles of {name}");
            assert_eq!(segment.is_pinned, truth.is_pinned, "pin of {name}");
            assert!(!segment.is_moving, "{name} is not moving");
            assert_eq!(segment.persistency.word(), truth.persistency, "level of {name}");
            let copies = view.tiers.iter().enumerate();
            let copies: Vec<_> = copies
                .filter(|(index, _)| segment.copies.contains(TierIndex(*index as u8)))
                .map(|(_, tier)| tier.name.clone())
                .collect();
            assert_eq!(copies, report.copies, "copies of {name}");
        }
    }
    assert_eq!(view.live().count(), expected.len(), "segments that are gone are not shown");
    for (shown, tier) in view.tiers.iter().zip(stack.tiers()) {
        assert_eq!(shown.name, tier.name);
        assert_eq!(shown.used_bytes, tier.used_bytes, "use of {}", tier.name);
        assert_eq!(shown.copy_bytes, tier.copy_bytes, "copies on {}", tier.name);
        assert_eq!(shown.reserved_bytes, tier.reserved_bytes, "reserved on {}", tier.name);
        assert_eq!((shown.incoming_bytes, shown.outgoing_bytes), (0, 0), "nothing moves");
    }
}

#[test]
fn segments_of_a_reopened_store_are_present() {
    let (world, stack, _) = scripted();
    for index in 0..5 {
        put(&stack, &key(&format!("p{index}")), &[1; 64]);
    }
    stack.close().expect("closes");
    drop(stack);
    let shared = Shared::new();
    let stack = world.open_with(|parts| parts.tactics = Some(shared.tactics("scripted")));
    stack.run_policy().expect("runs");
    let script = shared.script();
    let present: Vec<_> =
        script.events.iter().filter(|event| event.kind == EventKind::Present).collect();
    assert_eq!(present.len(), 5);
    assert_view_is_true(&stack, script.view.as_ref().expect("called"));
}

#[test]
fn a_panicking_policy_is_replaced_and_the_store_goes_on() {
    for step in [Step::Observe, Step::Plan, Step::Placer, Step::Message, Step::SetParameter] {
        let (world, stack, shared) = scripted();
        put(&stack, &key("before"), &[1; 500]);
        shared.break_at(step, Breakage::Panic);
        provoke(&stack, step);
        assert_replaced(&stack, step);
        assert_store_works(&stack);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_policy_that_panics_while_it_saves_does_not_stop_a_swap_or_a_close() {
    let (world, stack, shared) = scripted();
    put(&stack, &key("before"), &[1; 500]);
    shared.break_at(Step::Save, Breakage::Panic);
    let next = Shared::new();
    stack.set_policy(next.tactics("scripted")).expect("swaps");
    stack.run_policy().expect("the new policy runs");
    assert!(next.script().rounds > 0);
    next.break_at(Step::Save, Breakage::Panic);
    stack.close().expect("closes");
    drop(stack);
    let stack = world.open();
    assert_eq!(stack.read_all(&key("before")).expect("reads"), [1; 500]);
}

#[test]
fn a_looping_policy_is_replaced_and_the_store_goes_on() {
    for step in [Step::Observe, Step::Plan, Step::Message] {
        let (world, stack, shared) = impatient();
        put(&stack, &key("before"), &[1; 500]);
        shared.break_at(step, Breakage::Loop);
        let caller = stack.clone();
        bounded(LONG, "a call to a looping policy", move || provoke(&caller, step));
        eventually("the policy is replaced", || is_replaced(&stack));
        assert_replaced(&stack, step);
        assert_store_works(&stack);
        assert_sound(&world, &stack);
        let closing = stack.clone();
        bounded(LONG, "close", move || closing.close()).expect("closes");
        shared.gate().open();
    }
}

/// Its last call comes back once it was given up; the one that was to follow must not seem to decide.
#[test]
fn a_policy_that_hangs_when_it_is_to_go_lets_no_other_in_unnoticed() {
    let (world, stack, shared) = impatient();
    shared.break_at(Step::Save, Breakage::Loop);
    let other = Shared::new();
    let (caller, next) = (stack.clone(), other.tactics("other"));
    let changed = bounded(LONG, "a change of policy", move || caller.set_policy(next));
    assert_eq!(changed.expect_err("it is told").kind(), ErrorKind::Io);
    eventually("the fallback decides", || is_replaced(&stack));
    assert_eq!(stack.policy().expect("one").name, "pinned");
    stack.run_policy().expect("the fallback decides");
    assert_eq!(other.script().rounds, 0);
    stack.set_policy(other.tactics("other")).expect("nothing hangs any more");
    stack.run_policy().expect("runs");
    assert_eq!(stack.policy().expect("one").name, "other");
    assert_store_works(&stack);
    assert_sound(&world, &stack);
}

#[test]
fn a_busy_policy_holds_up_nobody() {
    let (world, stack, shared) = scripted();
    put(&stack, &key("before"), &[1; 500]);
    shared.break_at(Step::Plan, Breakage::Loop);
    let caller = stack.clone();
    let round = std::thread::spawn(move || caller.run_policy());
    shared.gate().wait_until_held();
    let user = stack.clone();
    bounded(LONG, "work beside a policy that thinks", move || assert_store_works(&user));
    assert!(!is_replaced(&stack), "five seconds were allowed");
    shared.gate().open();
    round.join().expect("no panic").expect("the policy ran");
    assert_sound(&world, &stack);
}

fn provoke(stack: &Stack, step: Step) {
    match step {
        Step::Message => drop(stack.message("echo", b"x")),
        Step::SetParameter => drop(stack.set_parameter("knob", "3")),
        _ => drop(stack.run_policy()),
    }
}

fn nonsense(slot: u32, incarnation: u32, kind: ActionKind) -> Action {
    let reason = "nonsense".into();
    Action { slot, incarnation, kind, priority: i32::MIN, reason, benefit_s: f64::NAN }
}

#[test]
fn a_policy_that_insists_on_nonsense_is_replaced() {
    let asked: [(&str, ActionKind); 2] = [
        ("tiers that do not exist", ActionKind::Move { to: TierIndex(200) }),
        ("slots that never were", ActionKind::Move { to: SLOW }),
    ];
    for (what, kind) in asked {
        let (world, stack, shared) = scripted();
        put(&stack, &key("before"), &[1; 500]);
        let slot = if what.starts_with("tiers") { 0 } else { u32::MAX - 7 };
        shared.script().insists_on = vec![nonsense(slot, 1, kind); 1000];
        // How much nonsense is too much is the stack's choice; for ever is.
        let replaced = (0..1000).any(|_| {
            stack.run_policy().expect("runs");
            is_replaced(&stack)
        });
        assert!(replaced, "a policy that asks for {what} is replaced");
        assert_store_works(&stack);
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_policy_that_asks_for_nothing_but_nonsense_is_replaced_soon() {
    let (world, stack, shared) = scripted();
    put(&stack, &key("before"), &[1; 500]);
    let (absurd, idle) = (ActionKind::Move { to: TierIndex(77) }, ActionKind::Cancel);
    let there = Wish::new(&key("before"), ActionKind::Move { to: FAST });
    // A wish among them that makes sense speaks for it, whatever becomes of that.
    for _ in 0..5 {
        for kind in [absurd, idle].repeat(9) {
            shared.script().insists_on = vec![nonsense(0, 1, kind)];
            stack.run_policy().expect("runs");
        }
        shared.wish(vec![there.clone()]);
        stack.run_policy().expect("runs");
    }
    // So does not a round in which it wants nothing.
    let replaced_after = (0..100).find(|round| {
        let wishes = if round % 2 == 0 { vec![nonsense(0, 1, absurd)] } else { Vec::new() };
        shared.script().insists_on = wishes;
        stack.run_policy().expect("runs");
        is_replaced(&stack)
    });
    assert!(replaced_after.is_some_and(|round| round >= 20), "{replaced_after:?}");
    assert_replaced(&stack, Step::Plan);
    assert_store_works(&stack);
    assert_sound(&world, &stack);
}

#[test]
fn a_stale_action_is_no_nonsense() {
    let (world, stack, shared) = scripted();
    let name = key("short-lived");
    put(&stack, &name, &[1; 500]);
    stack.run_policy().expect("runs");
    let (slot, incarnation) = {
        let script = shared.script();
        let view = script.view.as_ref().expect("called");
        let (slot, segment) = view.live().find(|(_, s)| s.key == name).expect("shown");
        (slot, segment.incarnation)
    };
    stack.delete(&name).expect("deletes");
    put(&stack, &name, &[2; 600]);
    shared.script().insists_on = vec![nonsense(slot, incarnation, ActionKind::Move { to: SLOW })];
    stack.run_policy().expect("runs");
    shared.script().insists_on.clear();
    settle(&stack);
    let stale = shared.script().events.iter().any(|event| {
        event.kind == EventKind::Receipt
            && (event.slot, event.incarnation) == (slot, incarnation)
            && event.outcome == Outcome::Stale
    });
    assert!(stale, "the action came back as stale");
    assert!(!is_replaced(&stack), "the object may go between view and action");
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "fast");
    assert_sound(&world, &stack);
}

#[test]
fn millions_of_actions_are_bounded() {
    let (world, stack, shared) = scripted();
    put(&stack, &key("before"), &[1; 500]);
    let action = nonsense(0, u32::MAX, ActionKind::Move { to: SLOW });
    shared.script().insists_on = vec![action; 2_000_000];
    let caller = stack.clone();
    bounded(LONG, "a round of millions", move || drop(caller.run_policy()));
    shared.script().insists_on.clear();
    assert_store_works(&stack);
    assert_sound(&world, &stack);
}

#[test]
fn a_swap_hands_state_over_to_the_same_policy_only() {
    let (world, stack, first) = scripted();
    put(&stack, &key("a"), &[1; 10]);
    stack.set_parameter("knob", "4").expect("sets");
    let second = Shared::new();
    stack.set_policy(second.tactics("scripted")).expect("swaps");
    assert_eq!(second.script().restored.as_deref(), Some(b"4".as_slice()));
    let other = Shared::new();
    stack.set_policy(other.tactics("other")).expect("swaps");
    stack.run_policy().expect("runs");
    assert_eq!(other.script().restored, None);
    assert_eq!(stack.policy().expect("one").name, "other");
    let rounds = first.script().rounds;
    stack.run_policy().expect("runs");
    assert_eq!(first.script().rounds, rounds, "a policy that was swapped out is not called");
    assert_sound(&world, &stack);
}

#[test]
fn nothing_is_lost_or_seen_twice_by_a_swap() {
    let (_world, stack, first) = scripted();
    for index in 0..6 {
        put(&stack, &key(&format!("before-{index}")), &[1; 10]);
    }
    stack.delete(&key("before-5")).expect("deletes");
    let second = Shared::new();
    stack.set_policy(second.tactics("second")).expect("swaps");
    put(&stack, &key("after"), &[1; 20]);
    stack.run_policy().expect("runs");
    let script = second.script();
    let count = |kind| script.events.iter().filter(|event| event.kind == kind).count();
    assert_eq!(count(EventKind::Present) + count(EventKind::Create), 6);
    assert!(count(EventKind::Create) <= 1, "what was there before is present, not created");
    assert_view_is_true(&stack, script.view.as_ref().expect("called"));
    assert!(script.faults.is_empty(), "{:?}", script.faults);
    assert!(first.script().faults.is_empty());
}

#[test]
fn a_receipt_reaches_the_policy_that_took_over() {
    let (world, stack, _first) = scripted();
    let name = key("under-way");
    put(&stack, &name, &[1; 500]);
    world.tier(1).hold_creates();
    stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
    world.tier(1).wait_until_held();
    let second = Shared::new();
    stack.set_policy(second.tactics("second")).expect("swaps");
    stack.run_policy().expect("runs");
    let moving = |shared: &Shared| {
        let script = shared.script();
        let view = script.view.as_ref().expect("called");
        view.live().any(|(_, segment)| segment.is_moving)
    };
    assert!(moving(&second), "the view of a new policy shows what moves");
    world.tier(1).release();
    settle(&stack);
    assert!(!moving(&second), "its receipt reached the new policy");
    assert_view_is_true(&stack, second.script().view.as_ref().expect("called"));
}

#[test]
fn parameters_and_messages_work_while_running() {
    let (_world, stack, shared) = scripted();
    stack.set_parameter("knob", "8").expect("sets");
    assert_eq!(stack.policy().expect("one").parameters[0].value, "8");
    assert_eq!(shared.script().knob, "8");
    let kind = |result: terrace_core::Result<()>| result.expect_err("refused").kind();
    assert_eq!(kind(stack.set_parameter("knob", "ten")), ErrorKind::Invalid);
    assert_eq!(kind(stack.set_parameter("nob", "1")), ErrorKind::NotFound);
    assert_eq!(stack.policy().expect("one").parameters[0].value, "8", "a refusal changes nothing");
    assert_eq!(stack.message("echo", b"hello").expect("answers"), b"hello");
    assert_eq!(stack.message("shout", b"").expect_err("unknown").kind(), ErrorKind::Unsupported);
    assert!(!is_replaced(&stack), "an error is an answer, not a fault");
}

#[test]
fn a_store_without_a_policy_says_so() {
    let world = World::two();
    let stack = world.create();
    assert_eq!(stack.policy(), None);
    for result in [stack.set_parameter("knob", "1"), stack.message("echo", b"").map(drop)] {
        let error = result.expect_err("there is no policy").to_string();
        assert!(error.contains("policy"), "{error}");
    }
    let shared = Shared::new();
    put(&stack, &key("early"), &[1; 10]);
    stack.set_policy(shared.tactics("late")).expect("starts one");
    stack.run_policy().expect("runs");
    assert_view_is_true(&stack, shared.script().view.as_ref().expect("called"));
}

#[test]
fn a_dry_run_decides_and_moves_nothing() {
    let (world, stack, shared) = scripted();
    let name = key("stays");
    put(&stack, &name, &[1; 500]);
    stack.set_dry_run(true).expect("switches");
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
    settle(&stack);
    let outcomes: Vec<_> = shared.receipts().iter().map(|receipt| receipt.2).collect();
    assert_eq!(outcomes, [Outcome::DryRun]);
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "fast");
    let report = stack.policy().expect("one");
    assert!(report.is_dry_run);
    let decision = report.decisions.last().expect("was recorded");
    assert_eq!((decision.key.as_str(), decision.outcome.as_str()), (name.as_str(), "dry-run"));
    assert!(decision.what.contains("slow"), "{decision:?}");
    assert_eq!(decision.reason, "scripted");
    stack.set_dry_run(false).expect("switches");
    shared.wish(vec![Wish::new(&name, ActionKind::Move { to: SLOW })]);
    settle(&stack);
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "slow");
    assert_sound(&world, &stack);
}

#[test]
fn a_report_counts_actions_by_outcome() {
    let (_world, stack, shared) = scripted();
    put(&stack, &key("a"), &[1; 10]);
    put(&stack, &key("b"), &[1; 10]);
    shared.wish(vec![
        Wish::new(&key("a"), ActionKind::Move { to: SLOW }),
        Wish::new(&key("b"), ActionKind::Move { to: FAST }),
    ]);
    settle(&stack);
    let report = stack.policy().expect("one");
    assert_eq!(report.actions, 2);
    let outcomes: BTreeMap<_, _> =
        report.outcomes.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(outcomes, BTreeMap::from([("already".into(), 1), ("done".into(), 1)]));
    assert!(report.rounds >= 2);
}

#[test]
fn a_report_counts_what_the_policy_did_that_decides() {
    let (world, stack, shared) = scripted();
    put(&stack, &key("a"), &[1; 10]);
    put(&stack, &key("b"), &[1; 10]);
    put(&stack, &key("c"), &[1; 10]);
    shared.wish(vec![
        Wish::new(&key("a"), ActionKind::Move { to: FAST }),
        Wish::new(&key("b"), ActionKind::Move { to: SLOW }),
    ]);
    world.tier(1).hold_creates();
    stack.run_policy().expect("runs");
    world.tier(1).wait_until_held();
    let second = Shared::new();
    stack.set_policy(second.tactics("second")).expect("swaps");
    let report = stack.policy().expect("one");
    assert_eq!((report.rounds, report.actions, report.outcomes), (0, 0, Vec::new()));
    world.tier(1).release();
    crate::common::world::migrate(&stack, &key("c"), SLOW, MoveKind::Move);
    second.wish(vec![Wish::new(&key("a"), ActionKind::Move { to: FAST })]);
    settle(&stack);
    let report = stack.policy().expect("one");
    assert_eq!(report.actions, 1);
    // Neither the move that the first began, nor what a person asked for.
    assert_eq!(report.outcomes, [("already".into(), 1)]);
    second.break_at(Step::Plan, Breakage::Panic);
    drop(stack.run_policy());
    eventually("the policy is replaced", || is_replaced(&stack));
    assert_eq!(stack.policy().expect("one").actions, 0, "the fallback asked for nothing");
    assert_sound(&world, &stack);
}

#[test]
fn a_full_ring_sums_up_and_counts() {
    const READS: u64 = 300_000;
    let (_world, stack, shared) = scripted();
    let name = key("read-often");
    put(&stack, &name, &[1; 64]);
    stack.run_policy().expect("runs");
    shared.break_at(Step::Plan, Breakage::Loop);
    let caller = stack.clone();
    let round = std::thread::spawn(move || caller.run_policy());
    shared.gate().wait_until_held();
    let object = stack.open(&name, &Open::read()).expect("opens");
    let mut buffer = [0; 16];
    for _ in 0..READS {
        assert_eq!(object.read(0, &mut buffer).expect("reads"), 16);
    }
    drop(object);
    put(&stack, &key("created-meanwhile"), &[1; 10]);
    stack.delete(&key("created-meanwhile")).expect("deletes");
    put(&stack, &key("stays"), &[1; 10]);
    shared.gate().open();
    round.join().expect("no panic").expect("ran");
    settle(&stack);
    {
        let script = shared.script();
        let reads = script.events.iter().filter(|event| event.kind == EventKind::Read);
        let (count, bytes) = reads.fold((0, 0), |(count, bytes), event| {
            (count + u64::from(event.count), bytes + event.length_bytes)
        });
        assert_eq!((count, bytes), (READS, READS * 16), "no event is lost");
        assert_view_is_true(&stack, script.view.as_ref().expect("called"));
    }
    assert!(stack.policy().expect("one").coalesced_events > 0, "the ring is bounded");
}

#[test]
fn a_full_ring_keeps_sizes_and_handles_right() {
    let (_world, stack, shared) = scripted();
    let name = key("cut-at-last");
    put(&stack, &name, &[1; 64]);
    stack.run_policy().expect("runs");
    shared.break_at(Step::Plan, Breakage::Loop);
    let caller = stack.clone();
    let round = std::thread::spawn(move || caller.run_policy());
    shared.gate().wait_until_held();
    let object = stack.open(&name, &Open::write()).expect("opens");
    for _ in 0..5000 {
        object.write(0, &[1; 1000]).expect("writes");
        object.set_len(10).expect("cuts");
        object.write(0, &[1; 20]).expect("writes");
        drop(stack.open(&name, &Open::read()).expect("opens"));
    }
    shared.gate().open();
    round.join().expect("no panic").expect("ran");
    settle(&stack);
    assert!(stack.policy().expect("one").coalesced_events > 0, "the ring is bounded");
    assert_view_is_true(&stack, shared.script().view.as_ref().expect("called"));
    drop(object);
}

#[test]
fn events_call_the_policy() {
    let (_world, stack, shared) = scripted();
    stack.set_calls(Some(10), None).expect("changes");
    let before = shared.script().rounds;
    for index in 0..20 {
        put(&stack, &key(&format!("e{index}")), &[1; 10]);
    }
    eventually("the policy is called after ten events", || shared.script().rounds > before);
}

#[test]
fn time_calls_the_policy() {
    let (_world, stack, shared) = scripted();
    stack.set_calls(None, Some(Duration::from_millis(5))).expect("changes");
    eventually("the policy is called by time alone", || {
        let script = shared.script();
        script.rounds >= 3 && script.events.iter().any(|event| event.kind == EventKind::Timer)
    });
}

#[test]
fn calls_that_would_never_end_are_refused() {
    let (_world, stack, _) = scripted();
    for (after, every) in [(Some(0), None), (None, Some(Duration::ZERO))] {
        let error = stack.set_calls(after, every).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn promised_storage_never_goes_to_a_weaker_tier() {
    let world = World::with(&[
        ("memory", crate::common::world::ROOMY, Persistency::None),
        ("fast", crate::common::world::ROOMY, Persistency::Process),
        ("disk", crate::common::world::ROOMY, Persistency::Storage),
    ]);
    let shared = Shared::new();
    let stack = world.create_with(|parts| {
        promise_nothing(parts);
        parts.tactics = Some(shared.tactics("scripted"));
    });
    let levels = [
        (Persistency::None, "memory"),
        (Persistency::Process, "fast"),
        (Persistency::Storage, "disk"),
    ];
    for ((persistency, tier), is_put) in levels.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let name = key(&format!("{} {is_put}", persistency.word()));
        let how = Open::create_new().with_semantics(Semantics::at_level(persistency));
        if is_put {
            stack.put(&name, &[1; 100], &how).expect("puts");
        } else {
            stack.open(&name, &how).expect("creates").write(0, &[1; 100]).expect("writes");
        }
        let report = stack.explain(&name).expect("exists");
        assert_eq!(report.segments[0].tier, tier, "the placer asked for memory");
        let [past] = report.segments[0].history.as_slice() else { panic!("{report:?}") };
        let weak = format!("memory does not keep data at {persistency}");
        let expected = match tier {
            "memory" => ("placed", "new object"),
            _ => ("spilled", weak.as_str()),
        };
        assert_eq!((past.what.as_str(), past.reason.as_str()), expected);
        assert_eq!(report.persistency, persistency.word());
    }
    assert_sound(&world, &stack);
}

/// A command that opens the store for a moment leaves no trace of what its policy began.
#[test]
fn a_move_that_a_close_cancels_is_not_in_the_history() {
    let is_cancelled = || {
        let world = World::two();
        let stack = world.create();
        let name = key("begun");
        put(&stack, &name, &[1; 5000]);
        let before = stack.explain(&name).expect("exists").segments.remove(0).history;
        world.tier(1).hold(|moment| moment.call == Call::Write && !moment.is_done);
        stack.migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
        world.tier(1).wait_until_held();
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| stack.close());
            eventually("the store closes", || stack.unpin(&name).is_err());
            world.tier(1).release();
            closing.join().expect("no panic").expect("closes");
        });
        drop(stack);
        let segment = world.open().explain(&name).expect("exists").segments.remove(0);
        let is_cancelled = segment.tier == "fast";
        assert!(!is_cancelled || segment.history == before, "{segment:?}");
        is_cancelled
    };
    // The migration may be faster than the close that has begun.
    assert!((0..10).any(|_| is_cancelled()), "no close cancelled a migration");
}
