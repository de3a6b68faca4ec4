// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watchers of a stack: what its parts tell them.

use std::sync::Arc;
use std::time::Duration;

use crate::common::hooked::Call;
use crate::common::scripted::{Breakage, Shared, Step};
use crate::common::world::{LONG, World, key, migrate, put};
use terrace_core::{BackendExt, Key, ObjectExt, Open, TierIndex};
use terrace_stack::{
    Happening, MigrationNotice, MoveKind, Notice, ScrubOptions, Stack, WatchFilter, Watcher,
};
use terrace_testkit::ManualClock;

const SLOW: TierIndex = TierIndex(1);

fn watch(stack: &Stack) -> Watcher {
    stack.watch(&WatchFilter::default()).expect("room")
}

/// What waits for a watcher.
fn told(watcher: &Watcher) -> Vec<Notice> {
    std::iter::from_fn(|| watcher.next(Duration::ZERO).expect("it is open")).collect()
}

fn migrations(notices: &[Notice]) -> Vec<&MigrationNotice> {
    let migration = |notice: &'_ Notice| matches!(notice.what, Happening::Migration(_));
    assert!(notices.iter().all(migration), "{notices:?}");
    let of = |notice| match notice {
        &Notice { what: Happening::Migration(ref one), .. } => Some(one),
        _ => None,
    };
    notices.iter().filter_map(of).collect()
}

#[test]
fn a_slow_migration_tells_how_far_it_is_twice_a_second() {
    let world = World::two();
    let clock = Arc::new(ManualClock::new());
    let stack = world.create_with(|parts| {
        parts.clock = clock.clone();
        parts.settings.move_bytes_per_s = Some(1e6);
    });
    put(&stack, &key("large"), &vec![7; 4_000_000]);
    let watcher = watch(&stack);
    migrate(&stack, &key("large"), SLOW, MoveKind::Move);
    let notices = told(&watcher);
    let under_way: Vec<_> = notices
        .iter()
        .zip(migrations(&notices))
        .filter(|(_, one)| one.state == "progress")
        .map(|(notice, one)| (notice.wall_ns, one.copied_bytes))
        .collect();
    // Four seconds, told as soon as a piece of a quarter of a megabyte ends behind half of one.
    assert!((4..=8).contains(&under_way.len()), "{under_way:?}");
    for pair in under_way.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= 500_000_000, "{under_way:?}");
        assert!(pair[0].1 < pair[1].1 && pair[1].1 <= 4_000_000, "{under_way:?}");
    }
}

#[test]
fn one_that_is_cancelled_while_it_waits_has_not_started() {
    let world = World::two();
    let stack = world.create_with(|parts| parts.settings.move_threads = 1);
    for name in ["first", "second"] {
        put(&stack, &key(name), &[7; 1000]);
    }
    let watcher = watch(&stack);
    world.tier(1).hold(|moment| moment.call == Call::Write);
    let queue = |name: &str| {
        let queued = stack.migrate(&key(name), SLOW, MoveKind::Move, 0, "a test");
        queued.expect("queued").remove(0)
    };
    let first = queue("first");
    world.tier(1).wait_until_held();
    let second = queue("second");
    stack.cancel(second).expect("it waits");
    world.tier(1).release();
    stack.wait(first, LONG).expect("known").expect("ends");
    let notices = told(&watcher);
    let states = |id: u64| -> Vec<&str> {
        let mine = migrations(&notices).into_iter().filter(|one| one.id == id);
        mine.map(|one| one.outcome.as_deref().unwrap_or(&one.state)).collect()
    };
    assert_eq!(states(second.0), ["queued", "cancelled"]);
    assert_eq!(states(first.0)[..2], ["queued", "started"]);
    assert_eq!(states(first.0).last(), Some(&"done"));
}

#[test]
fn a_policy_that_fails_is_told_of_with_what_it_did() {
    let world = World::two();
    let script = Shared::new();
    let stack = world.create_with(|parts| parts.tactics = Some(script.tactics("scripted")));
    let watcher = watch(&stack);
    script.break_at(Step::Plan, Breakage::Panic);
    // It says so, too.
    let _ = stack.run_policy();
    let notices = told(&watcher);
    let [Notice { what: Happening::Policy(policy), number: 1, .. }] = &notices[..] else {
        panic!("{notices:?}")
    };
    assert_eq!((&*policy.change, &*policy.name), ("replaced", "pinned"));
    assert!(policy.detail.starts_with("scripted: panicked"), "{policy:?}");
}

#[test]
fn what_a_scrub_finds_and_mends_is_told() {
    let world = World::two();
    let stack = world.create();
    for name in ["lost", "mended"] {
        put(&stack, &key(name), &[7; 9000]);
    }
    migrate(&stack, &key("mended"), SLOW, MoveKind::Copy);
    let options = ScrubOptions { bytes_per_s: f64::INFINITY, namespace: None };
    let scrub = || stack.scrub(&options, &mut |_, _| true).expect("reads");
    scrub();
    for name in ["lost", "mended"] {
        let file = stack.explain(&key(name)).expect("exists").segments[0].stored_as.clone();
        let disk = world.disk(0).open();
        let file = disk.open(&Key::parse(&file).expect("legal"), &Open::write());
        file.expect("opens").write(5, b"rot").expect("writes");
    }
    let watcher = watch(&stack);
    let report = scrub();
    assert_eq!((report.problem_count, report.repairs.len()), (1, 1), "{report:?}");
    let mut found: Vec<_> = told(&watcher)
        .into_iter()
        .map(|notice| match notice.what {
            Happening::Scrub(scrub) => {
                (scrub.finding.place.clone(), scrub.is_mended, scrub.finding)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        (key("lost").to_string(), false, report.problems[0].clone()),
        (key("mended").to_string(), true, report.repairs[0].clone()),
    ];
    assert_eq!(found, expected);
    assert_eq!(stack.read_all(&key("mended")).expect("reads"), [7; 9000]);
}
