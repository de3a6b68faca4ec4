// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host makes of nonsense, and what a library gets to see.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;

use tempfile::TempDir;
use terrace_core::{
    Action, ActionKind, Actions, ErrorKind, Event, EventKind, Layout, Placed, Policy, Random,
    TierIndex,
};

use crate::build;
use crate::loading::place;
use crate::world::{World, load, segment, two_tiers};

pub(crate) fn scripted() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, std::path::PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("scripted.so");
        build::fixture("scripted.c", "SCRIPTED", &path);
        (dir, path)
    });
    path
}

/// A world with one object of 10 bytes on the slow tier.
fn world(mode: &str) -> World {
    let mut world = World::new(scripted(), &[("mode", mode)]);
    world.create("t/a", 10);
    world
}

/// What `plan` asks for within a budget.
fn plan(world: &mut World, bytes: u64, count: usize) -> Vec<Action> {
    let mut actions = Actions::with_budget(bytes, count);
    world.policy.plan(&world.view, &mut actions);
    actions.into_list()
}

#[test]
fn an_unknown_kind_of_action_is_not_taken() {
    assert_eq!(plan(&mut world("kinds"), 1000, 10), []);
}

#[test]
fn tiers_and_slots_that_do_not_exist_are_left_to_the_stack() {
    let actions = plan(&mut world("tiers and slots"), 1000, 10);
    let kinds: Vec<_> = actions.iter().map(|action| (action.slot, action.kind)).collect();
    let to = |tier| ActionKind::Move { to: TierIndex(tier) };
    assert_eq!(kinds, [(0, to(200)), (0, to(255)), (12345678, to(1)), (u32::MAX, to(1))]);
    assert!(actions.iter().all(|action| action.benefit_s == 0.0), "NaN is no benefit");
}

#[test]
fn reasons_are_cut_and_shown_or_refused() {
    let actions = plan(&mut world("reasons"), 1000, 10);
    let reasons: Vec<_> = actions.into_iter().map(|action| action.reason).collect();
    assert_eq!(reasons, ["caf\u{fffd}".to_owned(), "x".repeat(200)]);
}

#[test]
fn a_million_actions_are_bounded_by_the_budget() {
    assert_eq!(plan(&mut world("a million"), 1 << 40, 100).len(), 100);
}

#[test]
fn actions_cost_the_bytes_that_they_copy() {
    let mut world = world("bytes");
    world.round();
    assert_eq!(plan(&mut world, 10, 10).len(), 1);
    assert_eq!(world.view.segments[0].size_bytes, 10);
}

#[test]
fn a_wild_placement_is_whole_or_left_to_the_stack() {
    let steps = Layout::Steps { starts_bytes: [64, 4096].into() };
    let fixed = Layout::Fixed { segment_bytes: 4096 };
    for (mode, tier, layout) in [
        ("steps", 1, steps),
        ("fixed by namespace", 1, fixed),
        ("place fails", 0, Layout::One),
        ("tier 70000", 255, Layout::One),
        ("too many steps", 1, Layout::One),
        ("an unknown layout", 1, Layout::One),
    ] {
        let policy = load(scripted(), &[("mode", mode)]).expect("loads");
        let tier = TierIndex(tier);
        assert_eq!(place(&*policy.placer()), Placed { tier, layout }, "{mode}");
    }
}

#[test]
fn a_failed_call_is_a_panic_that_names_policy_and_call() {
    let mut observing = world("observe fails");
    let mut planning = world("an unknown status");
    let view = two_tiers();
    let event = [Event::new(EventKind::Timer, terrace_core::SLOT_NONE, 0, 5)];
    let text = panic_text(|| observing.policy.observe(&view, &event));
    assert_eq!(text, "the policy library scripted failed in observe with status 6");
    let text = panic_text(|| drop(plan(&mut planning, 1, 1)));
    assert_eq!(text, "the policy library scripted failed in plan with status 99");
}

pub(crate) fn panic_text(call: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(call)).expect_err("panics");
    *payload.downcast::<String>().expect("a text")
}

#[test]
fn a_destroy_that_hangs_holds_up_nobody() {
    let policy = load(scripted(), &[("mode", "destroy hangs")]).expect("loads");
    let (dropped, is_dropped) = channel();
    std::thread::spawn(move || {
        drop(policy);
        let _ = dropped.send(());
    });
    is_dropped.recv_timeout(Duration::from_secs(30)).expect("the call is left behind");
}

#[test]
fn messages_have_replies_and_bounds() {
    let mut world = world("");
    let mut message = |kind: &str, body: &[u8]| world.policy.message(&world.view, kind, body);
    assert_eq!(message("echo", b"\0\xff").expect("known"), b"\0\xff");
    assert_eq!(message("echo", b"").expect("known"), b"");
    for (kind, expected, reason) in [
        ("endless", ErrorKind::Invalid, "the answer is too long"),
        ("absurd", ErrorKind::Invalid, "the answer is too long"),
        ("not text", ErrorKind::Invalid, "caf\u{fffd} is closed"),
        ("what", ErrorKind::Unsupported, "not supported"),
    ] {
        let error = message(kind, b"").expect_err(kind);
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.to_string().contains("policy=scripted"), "{error}");
    }
}

#[test]
fn parameters_are_shown_and_bounded() {
    let policy = load(scripted(), &[("mode", "parameters")]).expect("loads");
    let names: Vec<_> = policy.parameters().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["mode", "caf\u{fffd}"]);
    let policy = load(scripted(), &[("mode", "a thousand parameters")]).expect("loads");
    assert_eq!(policy.parameters().len(), 256);
    let error = load(scripted(), &[("mode", &"x".repeat(64))]).err().expect("too long");
    assert!(error.to_string().contains("the mode is too long"), "{error}");
}

#[test]
fn state_survives_in_another_instance() {
    let mut old = world("");
    old.round();
    let mut state = b"before".to_vec();
    old.policy.save(&old.view, &mut state);
    let state = state.strip_prefix(b"before").expect("save appends");

    let mut new = load(scripted(), &[]).expect("loads");
    assert_eq!(new.state_version(), 3);
    new.restore(&old.view, 3, state).expect("its own state");
    assert_eq!(new.message(&old.view, "count", b"").expect("known"), b"1");

    let error = new.restore(&old.view, 4, state).expect_err("another version");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = new.restore(&old.view, 3, b"short").expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    new.restore(&old.view, 3, b"").expect("nothing to restore");
}

#[test]
fn a_state_that_is_too_large_is_not_saved_by_half() {
    let policy = load(scripted(), &[("mode", "endless state")]).expect("loads");
    let mut state = Vec::new();
    policy.save(&two_tiers(), &mut state);
    assert_eq!(state, b"");
}

#[test]
fn chance_comes_from_the_seed_of_the_view() {
    let draw = |seed: u64| {
        let mut policy = load_seeded(seed);
        let view = two_tiers();
        policy.observe(&view, &[]);
        policy.message(&view, "random", b"").expect("known")
    };
    assert_eq!(draw(1), Random::new(1).next_u64().to_string().into_bytes());
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

fn load_seeded(seed: u64) -> Box<dyn Policy> {
    let mut view = two_tiers();
    view.random = Random::new(seed);
    terrace_policies::host::load(scripted(), &view, &[]).expect("loads")
}

#[test]
fn the_library_sees_the_segments_as_they_are() {
    sees_the_segments_as_they_are(scripted());
}

/// A policy that answers `segments` by what it sees of them sees what is there.
pub(crate) fn sees_the_segments_as_they_are(policy: &Path) {
    let mut world = World::new(policy, &[]);
    let mut random = Random::new(42);
    for step in 0..2000 {
        let slots = world.view.segments.len() as u64;
        let slot = random.below(slots.max(1)) as u32;
        match random.below(12) {
            0 | 1 => drop(world.create(&format!("ns{}/{step}", step % 7), random.below(50))),
            _ if slots == 0 || !world.view.segments[slot as usize].is_live => {}
            kind => {
                let kinds = [
                    EventKind::Open,
                    EventKind::Close,
                    EventKind::Read,
                    EventKind::Write,
                    EventKind::SetLen,
                    EventKind::Delete,
                    EventKind::Queued,
                    EventKind::Copied,
                    EventKind::Pin,
                    EventKind::Moved,
                ];
                world.happen(kinds[kind as usize - 2], slot);
            }
        }
        if step % 50 == 0 {
            world.round();
            assert_eq!(shown(&mut world), expected(&world), "after step {step}");
        }
    }
    assert!(world.view.segments.iter().any(|segment| segment.incarnation > 2), "slots are reused");
}

fn shown(world: &mut World) -> String {
    let reply = world.policy.message(&world.view, "segments", b"").expect("known");
    String::from_utf8(reply).expect("text")
}

fn expected(world: &World) -> String {
    let line = |(slot, s): (usize, &terrace_core::SegmentView)| {
        format!(
            "{slot} {} {} #{}.{} +{} size {} on {} copies {:x} opens {} live {} moving {} \
             pinned {} created {} read {} wrote {} closed {}\n",
            s.key,
            s.key.namespace().len(),
            s.segment,
            s.incarnation,
            s.start_bytes,
            s.size_bytes,
            s.tier,
            s.copies.0,
            s.opens,
            u8::from(s.is_live),
            u8::from(s.is_moving),
            u8::from(s.is_pinned),
            s.created_ns,
            s.last_read_ns,
            s.last_write_ns,
            s.last_close_ns
        )
    };
    world.view.segments.iter().enumerate().map(line).collect()
}

#[test]
fn events_of_unknown_slots_do_not_reach_the_library() {
    let mut policy = load(scripted(), &[]).expect("loads");
    let mut view = two_tiers();
    view.insert(0, segment("t/a", TierIndex(0), 10, 1));
    // The library fails when it sees a slot beyond the view.
    policy
        .observe(&view, &[1, 7, u32::MAX - 1].map(|slot| Event::new(EventKind::Read, slot, 1, 5)));
    policy.observe(&view, &[Event::new(EventKind::Read, 0, 1, 5)]);
    assert_eq!(policy.message(&view, "count", b"").expect("known"), b"1");
}
