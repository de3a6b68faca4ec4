// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What built-in policies are given from outside: states, messages, parameters.

use terrace_core::{
    Actions, ErrorKind, Event, EventKind, Figures, Hint, Key, Persistency, Policy, SegmentView,
    Slot, TierIndex, TierSet, TierView, View,
};
use terrace_policies::{POLICIES, PolicyEntry};

use crate::input::Input;

const SECOND_NS: u64 = 1_000_000_000;
const NAMES: [&str; 8] = ["n/a", "n/b", "n/c", "run/1", "run/2", "run/x/1", "é/ü", "n/d"];

/// A state is refused and the policy starts empty, or what is then saved is the same when it is
/// restored and saved again. The first byte chooses the policy.
pub(crate) fn state(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let entry = &POLICIES[input.choice(POLICIES.len())];
    let view = view();
    let mut policy = create(entry, &view);
    let version = policy.state_version();
    let restored = policy.restore(&view, version, input.rest());
    match &restored {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let fresh = create(entry, &view);
            assert_eq!(saved(&*policy, &view), saved(&*fresh, &view), "it does not start empty");
        }
        Ok(()) => check_saved(entry, &*policy, &view),
    }
    work(&mut *policy, view);
    restored.is_ok()
}

/// A message is answered with JSON or refused with a reason. The first byte chooses the policy, the
/// second the kind.
pub(crate) fn message(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let entry = &POLICIES[input.choice(POLICIES.len())];
    let kind = ["stage", "release", "status", "other"][input.choice(4)];
    let view = view();
    let mut policy = create(entry, &view);
    for slot in 0..NAMES.len() {
        let event = Event::new(EventKind::Present, slot as Slot, 1, view.now_ns);
        policy.observe(&view, &[event]);
    }
    let answered = policy.message(&view, kind, input.rest());
    match &answered {
        Ok(reply) => {
            serde_json::from_slice::<serde_json::Value>(reply).expect("a reply is JSON");
        }
        Err(error) => {
            let kinds = [ErrorKind::Invalid, ErrorKind::Unsupported, ErrorKind::NotFound];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
    }
    check_saved(entry, &*policy, &view);
    work(&mut *policy, view);
    answered.is_ok()
}

/// A parameter is refused and nothing changes, or its value reads back as it is shown. The input is
/// a policy's byte and lines `name=value`.
pub(crate) fn parameter(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let entry = &POLICIES[input.choice(POLICIES.len())];
    let Ok(lines) = std::str::from_utf8(input.rest()) else { return false };
    let view = view();
    let mut policy = create(entry, &view);
    let mut is_taken = false;
    for line in lines.lines() {
        let Some((name, value)) = line.split_once('=') else { continue };
        let before = policy.parameters();
        if let Err(error) = policy.set_parameter(name, value) {
            assert!([ErrorKind::Invalid, ErrorKind::NotFound].contains(&error.kind()), "{error}");
            assert_eq!(policy.parameters(), before, "{line:?} was refused");
            continue;
        }
        is_taken = true;
        let after = policy.parameters();
        let shown = after.iter().find(|parameter| parameter.name == name).expect("it has it");
        policy.set_parameter(name, &shown.value).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(policy.parameters(), after, "{line:?} does not read back");
    }
    let given: Vec<_> = policy
        .parameters()
        .into_iter()
        .map(|parameter| (parameter.name, parameter.value))
        .collect();
    let other = (entry.create)(&view, &given).unwrap_or_else(|error| panic!("{error}: {given:?}"));
    assert_eq!(other.parameters(), policy.parameters());
    work(&mut *policy, view);
    is_taken
}

fn create(entry: &PolicyEntry, view: &View) -> Box<dyn Policy> {
    (entry.create)(view, &[]).expect("there are tiers enough")
}

/// What a policy saves is the same when it is restored and saved again.
fn check_saved(entry: &PolicyEntry, policy: &dyn Policy, view: &View) {
    let once = saved(policy, view);
    let mut other = create(entry, view);
    other.restore(view, policy.state_version(), once.as_bytes()).expect("its own state");
    assert_eq!(saved(&*other, view), once, "{}", entry.name);
}

fn saved(policy: &dyn Policy, view: &View) -> String {
    let mut state = Vec::new();
    policy.save(view, &mut state);
    String::from_utf8(state).expect("built-in policies save text")
}

/// Whatever the policy was given: it works on, and asks only for what can be done.
fn work(policy: &mut dyn Policy, mut view: View) {
    for round in 0..3 {
        view.now_ns += 100 * SECOND_NS;
        let event = Event {
            length_bytes: 1000,
            tier: TierIndex(2),
            ..Event::new(EventKind::Read, round, 1, view.now_ns)
        };
        view.apply(&event);
        policy.observe(&view, &[event]);
        let mut actions = Actions::with_budget(1 << 40, 16);
        policy.plan(&view, &mut actions);
        for action in actions.list() {
            assert!(view.segment(action.slot, action.incarnation).is_some(), "{action:?}");
        }
    }
    policy.message(&view, "status", b"").ok();
}

/// Three tiers, the first of them nearly full, with a few segments.
fn view() -> View {
    let tier = |index: u8| {
        let figures = Figures {
            capacity_bytes: 10_000 << (4 * index),
            latency_ns: 1000 << (8 * index),
            read_bytes_per_s: 1e9,
            write_bytes_per_s: 1e9,
            ..Figures::default()
        };
        TierView::empty(&format!("t{index}"), figures)
    };
    let mut view = View::new((0..3).map(tier).collect(), 0);
    view.now_ns = 1000 * SECOND_NS;
    for (slot, name) in NAMES.iter().enumerate() {
        let tier = TierIndex((slot / 3) as u8);
        view.tiers[tier.index()].used_bytes += 3200;
        view.insert(
            slot as Slot,
            SegmentView {
                key: Key::parse(name).expect("legal"),
                segment: 0,
                incarnation: 1,
                is_live: true,
                start_bytes: 0,
                size_bytes: 3200,
                tier,
                copies: TierSet::default(),
                opens: 0,
                is_moving: false,
                is_pinned: slot == 7,
                persistency: Persistency::Process,
                hint: Hint::default(),
                created_ns: SECOND_NS,
                last_read_ns: 0,
                last_write_ns: (slot as u64 + 1) * SECOND_NS,
                last_close_ns: 0,
            },
        );
    }
    view
}
