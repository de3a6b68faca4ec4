// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A crash at every failpoint, at each level, then recovery, then everything that was promised.

mod application;
#[path = "../stack/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use application::Application;
use common::crashing::{Crash, Crashing, Visits};
use common::hooked::{Call, Verdict};
use common::pattern::stamped;
use common::world::{
    LONG, World, all_keys, assert_sound, assert_sound_after, bounded, in_parallel, key, migrate,
    promise_nothing, put,
};
use terrace_core::{
    Backend, BackendExt, Clock, ErrorKind, Key, ObjectExt, Open, Persistency, Result, Semantics,
    SystemClock, TierIndex,
};
use terrace_stack::{FAILPOINTS, MoveKind, Stack};
use terrace_testkit::seeds;

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);
const LEVELS: [Persistency; 3] = [Persistency::None, Persistency::Process, Persistency::Storage];

/// A crash of the process, and losses of power: one, or as many as `TERRACE_SEEDS` says. What
/// survives those is chosen by chance, and differently for every `salt`.
fn crashes(salt: u64) -> Vec<Crash> {
    let powers = seeds(1).map(|seed| Crash::Power { seed: seed * 1000 + salt });
    std::iter::once(Crash::Process).chain(powers).collect()
}

/// The state of a store as applications see it.
fn state(stack: &Stack) -> BTreeMap<Key, Vec<u8>> {
    let names = all_keys(stack);
    names.into_iter().map(|name| (name.clone(), stack.read_all(&name).expect("reads"))).collect()
}

fn world() -> World {
    World::two()
}

/// Opens with the crash tests' settings.
fn open(world: &World, level: Persistency) -> Result<Stack> {
    world.try_open_with(|parts| set_up(parts, level))
}

fn set_up(parts: &mut terrace_stack::Parts, level: Persistency) {
    parts.settings.persistency = level;
    parts.tactics = Some(common::world::cutting_where("cut", 4096));
}

/// Runs the scenario up to a crash at the `visit`th visit of `failpoint`; the application then
/// knows what may be found.
/// when crashes up to the kind `worst` were suffered.
fn crash_in_run<'a>(
    world: &'a World,
    level: Persistency,
    scenario: Scenario,
    crash: Crash,
    worst: Crash,
    at: &Crashing,
) -> Application<'a> {
    let stack = world.create_with(|parts| set_up(parts, level));
    world.failpoints().arm(at);
    let mut application = Application::new(world, stack, level, worst);
    if let Err(error) = scenario(&mut application) {
        let has_crashed = application.heard().is_err();
        assert!(has_crashed, "without a crash nothing fails: {}", error.chain());
    }
    application.die();
    world.crash(crash);
    application
}

/// Recovers and checks everything that was promised, twice.
fn recover_and_check(world: &World, application: &mut Application<'_>, place: &str) {
    let level = application.level;
    let stack = open(world, level).unwrap_or_else(|e| panic!("{place}: {}", e.chain()));
    application.verify(&stack, place);
    assert_sound_after(world, &stack, &[place.into()]);
    let before = state(&stack);
    let locations = locations(&stack);
    // A second crash right after: recovery is idempotent.
    world.failpoints().freeze();
    drop(stack);
    world.crash(Crash::Process);
    let stack = open(world, level).unwrap_or_else(|e| panic!("{place}: again: {}", e.chain()));
    assert_eq!(state(&stack), before, "{place}: opened twice");
    assert_eq!(self::locations(&stack), locations, "{place}: opened twice");
    assert_nothing_is_blocked(&stack, application, place);
    assert_sound_after(world, &stack, &[place.into()]);
    stack.close().unwrap_or_else(|e| panic!("{place}: {}", e.chain()));
}

/// Where every segment is.
fn locations(stack: &Stack) -> Vec<(Key, u32, String, Vec<String>, u64)> {
    let explain = |name: Key| {
        let explanation = stack.explain(&name).expect("exists");
        let segments = explanation.segments.into_iter();
        let name = move |s: terrace_stack::report::SegmentReport| {
            (name.clone(), s.segment, s.tier, s.copies, s.size_bytes)
        };
        segments.map(name).collect::<Vec<_>>()
    };
    all_keys(stack).into_iter().flat_map(explain).collect()
}

/// Every object can be deleted, made again and moved.
fn assert_nothing_is_blocked(stack: &Stack, application: &Application<'_>, place: &str) {
    for name in application.objects.keys() {
        let content = stamped(9, 1, 0, 4800);
        stack.delete_if_exists(name).unwrap_or_else(|e| panic!("{place}: {}", e.chain()));
        put(stack, name, &content);
        for to in [SLOW, FAST] {
            migrate(stack, name, to, MoveKind::Move);
            assert_eq!(stack.read_all(name).expect("reads"), content, "{place}: {name}");
        }
    }
}

/// What the application does.
type Scenario = fn(&mut Application<'_>) -> Result<()>;

const USUAL: Scenario = |application| application.run();
const LARGE: Scenario = |application| application.run_large();
const WHOLE: Scenario = |application| application.run_whole();
const PUTS: Scenario = |application| application.run_puts();

/// How often the scenario visits each failpoint.
fn visits_of_run(level: Persistency, scenario: Scenario) -> BTreeMap<String, u64> {
    visits_of_run_in(&world(), level, scenario)
}

fn visits_of_run_in(
    world: &World,
    level: Persistency,
    scenario: Scenario,
) -> BTreeMap<String, u64> {
    let stack = world.create_with(|parts| set_up(parts, level));
    world.failpoints().count();
    let mut application = Application::new(world, stack, level, Crash::Process);
    scenario(&mut application).expect("without a crash nothing fails");
    world.failpoints().visits()
}

/// First, second and last: a step is often right the first time only.
fn chosen(visits: u64) -> BTreeSet<u64> {
    [1, 2, visits.div_ceil(2), visits].into_iter().filter(|v| (1..=visits).contains(v)).collect()
}

fn crash_everywhere(level: Persistency, scenario: Scenario) {
    crash_everywhere_in(world, level, scenario);
}

fn crash_everywhere_in(world: fn() -> World, level: Persistency, scenario: Scenario) {
    let mut cases = Vec::new();
    let run = visits_of_run_in(&world(), level, scenario);
    for (index, (failpoint, visits)) in run.into_iter().enumerate() {
        for visit in chosen(visits) {
            let at = Crashing { failpoint: failpoint.clone(), visit };
            let crashes = crashes(index as u64 * 7 + visit).into_iter();
            cases.extend(crashes.map(|crash| (at.clone(), crash)));
        }
    }
    in_parallel(cases, |(at, crash)| {
        let world = world();
        let place = format!("{level}, {crash:?} at visit {} of {}", at.visit, at.failpoint);
        let mut application = crash_in_run(&world, level, scenario, crash, crash, &at);
        recover_and_check(&world, &mut application, &place);
    });
}

#[test]
fn nothing_promised_is_lost_by_a_crash_at_level_none() {
    crash_everywhere(Persistency::None, USUAL);
}

#[test]
fn nothing_promised_is_lost_by_a_crash_at_level_process() {
    crash_everywhere(Persistency::Process, USUAL);
}

#[test]
fn nothing_promised_is_lost_by_a_crash_at_level_storage() {
    crash_everywhere(Persistency::Storage, USUAL);
}

/// The slow tier takes whole objects only: what is written there is recalled first.
#[test]
fn nothing_promised_is_lost_above_a_tier_of_whole_objects() {
    // At level `none` nothing is promised of what a put replaces.
    for level in [Persistency::Process, Persistency::Storage] {
        crash_everywhere_in(|| World::two().whole("slow"), level, WHOLE);
    }
}

/// It keeps what leaves it, so that every file that is superseded has more steps.
#[test]
fn nothing_promised_is_lost_above_a_tier_that_keeps_versions() {
    const WEEK: Duration = Duration::from_secs(7 * 86_400);
    for level in [Persistency::Process, Persistency::Storage] {
        crash_everywhere_in(|| World::two().whole("slow").keeping("slow", WEEK), level, WHOLE);
        crash_everywhere_in(|| World::two().framed("slow").keeping("slow", WEEK), level, WHOLE);
    }
}

/// Its objects are framed, over a directory and over a service.
#[test]
fn nothing_promised_is_lost_above_a_tier_of_framed_objects() {
    for level in [Persistency::Process, Persistency::Storage] {
        crash_everywhere_in(|| World::two().framed("slow"), level, WHOLE);
        crash_everywhere_in(|| World::two().whole("slow").framed("slow"), level, WHOLE);
    }
}

#[test]
fn nothing_promised_is_lost_where_whole_tiers_are_synced() {
    for level in LEVELS {
        crash_everywhere(level, LARGE);
    }
}

#[test]
fn a_crash_in_a_put_leaves_the_old_value_or_the_new() {
    // At level `none` nothing is promised of either.
    for level in [Persistency::Process, Persistency::Storage] {
        crash_everywhere(level, PUTS);
    }
}

/// Steps of changes of the tiers, which `tests/tiers.rs` tries, of holding files, which `tests/held.rs` does, and
/// of keeping them, which `tests/versions.rs` does.
fn is_tried_elsewhere(name: &str) -> bool {
    ["add.", "drain.", "remove.", "hold.", "keep."].iter().any(|prefix| name.starts_with(prefix))
}

/// Crashes that leave recovery something to do: one at each step that writes in several places.
fn crashes_with_leftovers() -> Vec<&'static str> {
    FAILPOINTS
        .iter()
        .copied()
        .filter(|name| !name.starts_with("open.") && !name.starts_with("recover."))
        .filter(|name| !is_tried_elsewhere(name))
        .collect()
}

#[test]
fn a_crash_in_recovery_is_recovered() {
    let missed: BTreeSet<_> = FAILPOINTS.iter().copied().collect();
    let missed = Mutex::new(missed);
    let levels = [Persistency::Process, Persistency::Storage];
    let runs = levels.map(|level| (level, visits_of_run(level, USUAL)));
    let mut cases = Vec::new();
    for (index, left_by) in crashes_with_leftovers().into_iter().enumerate() {
        // Both levels leave the same leftovers; each failpoint is tried at one.
        let (level, run) = &runs[index % 2];
        let Some(visits) = run.get(left_by) else { continue };
        let at = Crashing { failpoint: left_by.into(), visit: visits.div_ceil(2) };
        cases.push((*level, Crash::Process, at.clone()));
        // A switch is undone only where its commit outlives the power, and its source too.
        let seeds = if left_by.starts_with("move.") { 5..10 } else { 5..6 };
        cases.extend(seeds.map(|seed| (*level, Crash::Power { seed }, at.clone())));
    }
    in_parallel(cases, |(level, crash, at)| {
        for (step, failpoint) in visits_of_recovery(level, crash, &at).keys().enumerate() {
            missed.lock().expect("never poisoned").remove(failpoint.as_str());
            let second = [Crash::Process, Crash::Power { seed: 6 }][step % 2];
            let left_by = &at.failpoint;
            let place = format!("{level}, {crash:?} at {left_by}, then {second:?} at {failpoint}");
            crash_twice(level, crash, &at, failpoint, second, &place);
        }
    });
    let mut missed = missed.into_inner().expect("never poisoned");
    missed.retain(|name| name.starts_with("recover.") || name.starts_with("open."));
    assert!(missed.is_empty(), "no recovery visits {missed:?}");
}

fn visits_of_recovery(level: Persistency, crash: Crash, at: &Crashing) -> Visits {
    let world = world();
    crash_in_run(&world, level, USUAL, crash, crash, at);
    world.failpoints().count();
    let stack = open(&world, level).expect("recovers");
    drop(stack);
    world.failpoints().visits()
}

fn crash_twice(
    level: Persistency,
    crash: Crash,
    at: &Crashing,
    failpoint: &str,
    second: Crash,
    place: &str,
) {
    let world = world();
    // What survived the first crash only because the power stayed is lost with it.
    let worst = if crash == Crash::Process { second } else { crash };
    let mut application = crash_in_run(&world, level, USUAL, crash, worst, at);
    world.failpoints().arm(&Crashing { failpoint: failpoint.into(), visit: 1 });
    // Some steps of recovery are made in the background, some when it is dropped.
    drop(open(&world, level));
    world.failpoints().freeze();
    world.crash(second);
    recover_and_check(&world, &mut application, place);
}

#[test]
fn every_failpoint_is_visited() {
    let visited: BTreeSet<_> = LEVELS
        .into_iter()
        .flat_map(|level| [USUAL, LARGE, PUTS].map(|scenario| visits_of_run(level, scenario)))
        .flat_map(BTreeMap::into_keys)
        .collect();
    let visited = Mutex::new(visited);
    let run = visits_of_run(Persistency::Process, USUAL);
    let mut cases = Vec::new();
    for left_by in crashes_with_leftovers() {
        let visit = run.get(left_by).copied().unwrap_or(1).div_ceil(2);
        let at = Crashing { failpoint: left_by.into(), visit };
        let crashes = (5..9).map(|seed| Crash::Power { seed }).chain([Crash::Process]);
        cases.extend(crashes.map(|crash| (at.clone(), crash)));
    }
    in_parallel(cases, |(at, crash)| {
        let visits = visits_of_recovery(Persistency::Process, crash, &at);
        visited.lock().expect("never poisoned").extend(visits.into_keys());
    });
    let visited = visited.into_inner().expect("never poisoned");
    let here = FAILPOINTS.iter().filter(|name| !is_tried_elsewhere(name));
    let missed: Vec<_> = here.filter(|name| !visited.contains(**name)).collect();
    assert!(missed.is_empty(), "no scenario visits {missed:?}");
    let unknown: Vec<_> = visited.iter().filter(|n| !FAILPOINTS.contains(&n.as_str())).collect();
    assert!(unknown.is_empty(), "not in the table: {unknown:?}");
}

#[test]
fn a_crash_in_the_first_open_leaves_an_empty_store() {
    for failpoint in FAILPOINTS.iter().filter(|name| name.starts_with("open.")) {
        for crash in crashes(1) {
            let world = world();
            world.create_parts(|parts| set_up(parts, Persistency::Process));
            world.failpoints().arm(&Crashing { failpoint: (*failpoint).into(), visit: 1 });
            assert!(open(&world, Persistency::Process).is_err(), "{failpoint}");
            world.crash(crash);
            let stack = open(&world, Persistency::Process).expect("opens");
            assert_eq!(all_keys(&stack), []);
            put(&stack, &key("first"), b"data");
            assert_sound(&world, &stack);
        }
    }
}

#[test]
fn a_loss_of_power_without_a_failpoint_keeps_what_was_synced() {
    for seed in 0..10 {
        let crash = Crash::Power { seed };
        for level in LEVELS {
            let world = world();
            let stack = world.create_with(|parts| set_up(parts, level));
            let mut application = Application::new(&world, stack, level, crash);
            let name = key("kept");
            let object = application.create(&name).expect("creates");
            application.write(&name, &*object, 0, 6400).expect("writes");
            application.sync(&name, &*object).expect("syncs");
            application.migrate(&name, SLOW, MoveKind::Move).expect("moves");
            application.write(&name, &*object, 3200, 6400).expect("writes");
            drop(object);
            application.die();
            world.crash(crash);
            let place = format!("{level}, {crash:?}");
            recover_and_check(&world, &mut application, &place);
        }
    }
}

/// What is written between a switch and the moment from which it is certain.
#[test]
fn what_was_synced_outlives_a_crash_after_a_write_to_what_has_just_moved() {
    for kind in [MoveKind::Move, MoveKind::Promote] {
        for level in LEVELS {
            let powers = (0..5).map(|seed| Crash::Power { seed });
            for crash in std::iter::once(Crash::Process).chain(powers) {
                for failpoint in [None, Some("write.unclean")] {
                    crash_before_settled(kind, level, crash, failpoint);
                }
            }
        }
    }
}

fn crash_before_settled(kind: MoveKind, level: Persistency, crash: Crash, failpoint: Option<&str>) {
    let world = world();
    let stack = world.create_with(|parts| set_up(parts, level));
    let mut application = Application::new(&world, stack, level, crash);
    let name = key("kept");
    let object = application.create(&name).expect("creates");
    application.write(&name, &*object, 0, 6400).expect("writes");
    application.sync(&name, &*object).expect("syncs");
    // The switch of a move is not certain before its target is durable, that of a promotion not before
    // its source is, too.
    let (held, skipped) = if kind == MoveKind::Promote { (0, 0) } else { (1, 1) };
    let syncs = AtomicU64::new(0);
    world.tier(held).on(move |moment| {
        let is_sync = moment.call == Call::Sync && !moment.is_done;
        match is_sync && syncs.fetch_add(1, Ordering::SeqCst) >= skipped {
            true => Verdict::Fail(ErrorKind::Io),
            false => Verdict::Go,
        }
    });
    for ticket in application.stack().migrate(&name, SLOW, kind, 0, "test").expect("queued") {
        application.stack().wait(ticket, LONG).expect("known").expect("ends");
    }
    if let Some(failpoint) = failpoint {
        world.failpoints().arm(&Crashing { failpoint: failpoint.into(), visit: 1 });
    }
    let written = application.write(&name, &*object, 3200, 6400);
    // At this level a write ends with a sync, which fails here.
    assert!(written.is_ok() || failpoint.is_some() || level == Persistency::Storage, "{written:?}");
    drop(object);
    application.die();
    world.tier(held).heal();
    world.crash(crash);
    let place = format!("{kind:?}, {level}, {crash:?}, {failpoint:?}");
    recover_and_check(&world, &mut application, &place);
}

/// The tail's source was never synced, so that the power takes it; its target may survive.
#[test]
fn a_lost_source_in_the_tail_takes_nothing_that_was_synced() {
    let level = Persistency::Process;
    for seed in 0..60 {
        let crash = Crash::Power { seed };
        let world = world();
        let stack = world.create_with(|parts| set_up(parts, level));
        world.failpoints().arm(&Crashing { failpoint: "move.settled".into(), visit: 1 });
        let mut application = Application::new(&world, stack, level, crash);
        let name = key("cut");
        let object = application.create(&name).expect("creates");
        application.write(&name, &*object, 0, 3200).expect("writes");
        application.sync(&name, &*object).expect("syncs");
        application.write(&name, &*object, 4096, 3200).expect("writes");
        application.stack().migrate(&name, SLOW, MoveKind::Move, 0, "test").expect("queued");
        while application.heard().is_ok() {
            SystemClock::default().sleep(Duration::from_millis(1));
        }
        drop(object);
        application.die();
        world.crash(crash);
        recover_and_check(&world, &mut application, &format!("{crash:?}"));
    }
}

#[test]
fn dropping_a_stack_in_a_frozen_world_ends() {
    let world = world();
    let stack = world.create_with(|parts| set_up(parts, Persistency::Process));
    put(&stack, &key("one"), &[1; 1000]);
    let _ = stack.migrate(&key("one"), SLOW, MoveKind::Move, 0, "test");
    world.failpoints().freeze();
    bounded(Duration::from_secs(10), "drop", move || drop(stack));
}

#[test]
fn a_stronger_promise_holds_from_then_on() {
    let storage = Semantics::at_level(Persistency::Storage);
    for seed in 0..10 {
        let world = world();
        let stack = world.create();
        let name = key("promoted");
        put(&stack, &name, &[1; 8192]);
        let object = stack.open(&name, &Open::write().with_semantics(storage)).expect("opens");
        object.write(4096, &[2; 100]).expect("writes");
        assert_eq!(stack.explain(&name).expect("exists").persistency, "storage");
        world.failpoints().freeze();
        drop((object, stack));
        world.crash(Crash::Power { seed });
        let stack = world.open();
        let data = stack.read_all(&name).expect("was promised");
        assert_eq!(data[4096..4196], [2; 100]);
        assert!(data[..4096].iter().all(|byte| [0, 1].contains(byte)));
        assert_eq!(stack.explain(&name).expect("exists").persistency, "storage");
        assert_sound(&world, &stack);
    }
}

#[test]
fn what_lives_in_memory_is_promised_nothing_or_moved() {
    let storage = Semantics::at_level(Persistency::Storage);
    let world = World::with(&[
        ("memory", common::world::ROOMY, Persistency::None),
        ("disk", common::world::ROOMY, Persistency::Storage),
    ]);
    let stack = world.create_with(promise_nothing);
    let name = key("in-memory");
    let none = Semantics::at_level(Persistency::None);
    let object = stack.open(&name, &Open::create_new().with_semantics(none)).expect("creates");
    object.write(0, &[1; 5000]).expect("writes");
    assert_eq!(stack.explain(&name).expect("exists").segments[0].tier, "memory");
    let written = stack
        .open(&name, &Open::write().with_semantics(storage))
        .and_then(|object| object.write(0, &[2; 100]));
    world.failpoints().freeze();
    drop((object, stack));
    world.crash(Crash::Power { seed: 1 });
    let stack = world.open();
    match written {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", error.chain()),
        Ok(()) => {
            let data = stack.read_all(&name).expect("was promised");
            assert_eq!(data[..100], [2; 100]);
        }
    }
    stack.delete_if_exists(&name).expect("nothing is blocked");
    put(&stack, &name, b"again");
    assert_sound(&world, &stack);
}

#[test]
fn a_source_that_stays_as_a_copy_is_durable_too() {
    for kind in [MoveKind::Promote, MoveKind::Copy] {
        let world = world();
        let stack = world.create();
        let name = key("copied");
        put(&stack, &name, &[1; 9000]);
        let object = stack.open(&name, &Open::write()).expect("opens");
        migrate(&stack, &name, SLOW, kind);
        object.sync().expect("syncs");
        world.failpoints().freeze();
        drop((object, stack));
        world.lose_all_unsynced();
        let stack = world.open();
        assert_eq!(stack.read_all(&name).expect("was synced"), [1; 9000], "{kind:?}");
        migrate(&stack, &name, SLOW, MoveKind::Move);
        assert_eq!(stack.read_all(&name).expect("was synced"), [1; 9000], "{kind:?}");
        migrate(&stack, &name, FAST, MoveKind::Move);
        assert_eq!(stack.read_all(&name).expect("was synced"), [1; 9000], "{kind:?}");
        assert_sound(&world, &stack);
    }
}

#[test]
fn a_loss_of_power_after_a_clean_close_finds_everything() {
    const OBJECTS: usize = 300;
    let world = world();
    let stack = world.create_with(|parts| parts.settings.entries_max = 1);
    for index in 0..OBJECTS {
        put(&stack, &key(&format!("many-{index}")), &[index as u8; 500]);
    }
    stack.close().expect("closes");
    drop(stack);
    world.lose_all_unsynced();
    let stack = world.open();
    for index in 0..OBJECTS {
        let data = stack.read_all(&key(&format!("many-{index}"))).expect("was closed");
        assert_eq!(data, [index as u8; 500]);
    }
    assert_sound(&world, &stack);
}
