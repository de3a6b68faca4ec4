// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a scene gives back of a recording.

use terrace_core::{Action, ActionKind, Event, EventKind, TierIndex};
use terrace_trace::{
    Access, Cause, PolicyChange, Record, Round, Scene, Snapshot, State, Step, TierState, Waits,
};

use crate::world::{self, origin};

fn tier_states() -> Vec<TierState> {
    let one = TierState {
        used_bytes: 5,
        reserved_bytes: 0,
        copy_bytes: 0,
        garbage_bytes: 0,
        incoming_bytes: 0,
        outgoing_bytes: 0,
        utilisation: 0.25,
        is_writable: true,
    };
    vec![one, one]
}

fn round(events: u64, actions: u64) -> Record {
    Record::Round(Round {
        number: 1,
        now_ns: 90,
        events,
        actions,
        budget_bytes: 10,
        budget_actions: 10,
        tiers: tier_states(),
    })
}

fn scene() -> Scene {
    let mut scene = Scene::default();
    let directory = tempfile::tempdir().expect("a directory");
    terrace_trace::Writer::begin(world::settings(directory.path()), origin())
        .expect("begins")
        .end();
    scene.file(&world::read(directory.path()).heads[0]);
    scene
}

fn segment(slot: u32) -> Record {
    let mut view = None;
    let mut random = terrace_core::Random::new(1);
    // Any live one will do.
    while view.is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let settings = world::settings(directory.path());
        let mut writer = terrace_trace::Writer::begin(settings, origin()).expect("begins");
        let written = world::write(&mut writer, &mut random, 2000);
        view = written.into_iter().find_map(|record| match record {
            Record::State(state) if state.view.is_live => Some(state.view),
            _ => None,
        });
    }
    let view = view.expect("found");
    Record::State(State { slot, view: terrace_core::SegmentView { incarnation: 0, ..view } })
}

#[test]
fn a_start_shows_the_segments_and_a_round_what_happened() {
    let mut scene = scene();
    let snapshot = Snapshot { time_ns: 50, slots: 4 };
    assert_eq!(scene.take(&Record::Snapshot(snapshot)), None);
    assert_eq!(scene.take(&segment(2)), None);
    let change = PolicyChange {
        now_ns: 60,
        cause: Cause::Start(None),
        name: "lru".into(),
        parameters: vec![],
        seed: 7,
        tiers: tier_states(),
    };
    let step = scene.take(&Record::Policy(change.clone()));
    let Some(Step::Policy { change: seen, present }) = step else { panic!("{step:?}") };
    assert_eq!(seen, change);
    assert_eq!(present.len(), 1);
    assert_eq!((present[0].slot, present[0].kind, present[0].time_ns), (2, EventKind::Present, 60));
    assert_eq!(scene.view().segments.len(), 4);
    assert_eq!(scene.view().tiers[1].name, "slow");
    let event = Event { tier: TierIndex(1), ..Event::new(EventKind::Moved, 2, 0, 70) };
    assert_eq!(scene.take(&Record::Access(Access { event, waits: Waits::default() })), None);
    assert_eq!(scene.view().segments[2].tier, TierIndex(1));
    assert_eq!(scene.take(&round(1, 1)), None);
    let action = Action {
        slot: 2,
        incarnation: 0,
        kind: ActionKind::Cancel,
        priority: -3,
        reason: "test".into(),
        benefit_s: 0.5,
    };
    let step = scene.take(&Record::Decision(action.clone()));
    let Some(Step::Round { events, actions, .. }) = step else { panic!("{step:?}") };
    assert_eq!(actions, [action]);
    assert_eq!(events.len(), 2);
    assert_eq!((events[1].kind, events[1].time_ns), (EventKind::Timer, 90));
    assert_eq!(scene.view().now_ns, 90);
}

#[test]
fn a_missing_part_is_a_gap() {
    let mut scene = scene();
    assert_eq!(scene.take(&round(1, 0)), Some(Step::Gap), "an event is missing");
    assert_eq!(scene.take(&segment(1 << 30)), Some(Step::Gap), "a slot from nowhere");
}

#[test]
fn a_few_segments_cannot_make_a_large_view() {
    let mut scene = scene();
    let mut one = segment(0);
    let mut ahead = |further: u32| {
        let Record::State(state) = &mut one else { unreachable!("it is a state") };
        state.slot += further;
        scene.take(&one)
    };
    assert_eq!(ahead(60_000), None, "segments that are created at once come in any order");
    assert_eq!(
        ahead(60_000),
        Some(Step::Gap),
        "so far ahead are only those that a snapshot counts"
    );
}
