// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that a tier keeps after they were deleted, replaced or changed, and how they come back.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::crashing::{Crash, Crashing};
use crate::common::gate::Gate;
use crate::common::hooked::{Call, Verdict};
use crate::common::world::{
    LONG, ROOMY, World, all_keys, assert_sound, cutting, eventually, key, migrate, put,
};
use crate::whole::Bucket;
use terrace_core::{
    Backend, BackendExt, Clock, ErrorKind, Failpoints, Key, KvExt, ObjectExt, Open, Pair,
    Persistency, Semantics, TierIndex, Watcher,
};
use terrace_stack::report::VersionReport;
use terrace_stack::{
    FarLog, MoveKind, Parts, RebuildOptions, Saved, Stack, TakeoverReport, Tier, read_backup,
    take_over,
};
use terrace_testkit::{ManualClock, SimWorld, pattern_bytes};

const FAST: TierIndex = TierIndex(0);
const SLOW: TierIndex = TierIndex(1);
const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

fn world() -> World {
    World::two().whole("slow").keeping("slow", WEEK)
}

pub(crate) fn data(seed: u64) -> Vec<u8> {
    pattern_bytes(seed, 0, 0, 50_000)
}

/// An object on the slow tier.
pub(crate) fn slow(stack: &Stack, name: &Key, data: &[u8]) {
    put(stack, name, data);
    migrate(stack, name, SLOW, MoveKind::Move);
}

fn undelete(
    stack: &Stack,
    from: &Key,
    version: Option<&str>,
    to: &Key,
) -> terrace_core::Result<VersionReport> {
    stack.undelete(from, version, to, false, &mut |_, _| {})
}

/// The only version of an object.
#[track_caller]
fn only(stack: &Stack, name: &Key) -> VersionReport {
    let mut versions = stack.versions(name).expect("listed");
    assert_eq!(versions.len(), 1, "{versions:?}");
    versions.remove(0)
}

/// Waits until the tier has nothing that is to be deleted or kept later.
pub(crate) fn settle(stack: &Stack) {
    assert!(stack.wait_idle(LONG), "migrations end");
    let is_tidy = || stack.tiers().iter().all(|tier| tier.garbage_bytes == 0);
    eventually("garbage is gone", is_tidy);
}

/// Makes an object on the slow tier, and has it deleted, so that it is kept.
fn keep(stack: &Stack, name: &Key) {
    slow(stack, name, &data(1));
    stack.delete(name).expect("deleted");
    settle(stack);
}

/// Files and markers of a tier.
pub(crate) fn on_disk(world: &World, tier: usize) -> (usize, usize) {
    let files = world.disk(tier).files();
    let of = |namespace: &str| files.iter().filter(|one| one.key.namespace() == namespace).count();
    (of("seg"), of("kept"))
}

fn bucket_parts(bucket: &Bucket, clock: &Arc<ManualClock>) -> Parts {
    let mut parts = bucket.parts();
    parts.tiers[1].keep_deleted = Some(WEEK);
    parts.clock = clock.clone();
    parts
}

fn bucket_names(bucket: &Bucket, part: &str) -> usize {
    bucket.server.names().iter().filter(|name| name.contains(part)).count()
}

#[test]
fn a_bucket_keeps_values_for_their_time() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let clock = Arc::new(ManualClock::new());
    let open = || Stack::open(bucket_parts(&bucket, &clock)).expect("opens");
    Stack::create(&bucket_parts(&bucket, &clock)).expect("made");
    let stack = open();
    let (deleted, replaced, changed) = (key("deleted"), key("replaced"), key("changed"));
    for (name, seed) in [(&deleted, 1), (&replaced, 2), (&changed, 3)] {
        slow(&stack, name, &data(seed));
    }
    stack.delete(&deleted).expect("deleted");
    stack.put(&replaced, b"new", &Open::create()).expect("replaced");
    let object = stack.open(&changed, &Open::write()).expect("opens");
    object.write_at(10, &[IoSlice::new(b"new")]).expect("recalled and written");
    drop(object);
    settle(&stack);
    assert_eq!((bucket_names(&bucket, "/o/seg/"), bucket_names(&bucket, "/o/kept/")), (3, 3));
    assert_eq!(stack.tiers()[1].kept_bytes, 150_000);
    bucket.assert_sound(&stack, 3);
    // Also after the store was opened again.
    stack.close().expect("closes");
    let stack = open();
    assert_eq!(stack.tiers()[1].kept_bytes, 150_000);
    for (name, end, seed) in
        [(&deleted, "deleted", 1), (&replaced, "replaced", 2), (&changed, "changed", 3)]
    {
        let version = only(&stack, name);
        assert_eq!(
            (version.end.as_str(), version.size_bytes, version.is_whole),
            (end, 50_000, true)
        );
        assert_eq!(version.tiers, ["slow"]);
        let kept_ns = version.kept_until_ns.expect("known") - version.ended_ns;
        assert_eq!(kept_ns, WEEK.as_nanos() as u64);
        let to = key(&format!("back/{end}"));
        assert_eq!(undelete(&stack, name, None, &to).expect("it is there"), version);
        assert!(stack.read_all(&to).expect("reads") == data(seed), "{end}");
    }
    // Never over an object that exists, unless that is said.
    let error = undelete(&stack, &changed, None, &changed).expect_err("it exists");
    assert_eq!(error.kind(), ErrorKind::Exists);
    stack.undelete(&changed, None, &changed, true, &mut |_, _| {}).expect("replaced");
    assert!(stack.read_all(&changed).expect("reads") == data(3));
    undelete(&stack, &deleted, None, &deleted).expect("its name is free");
    assert!(stack.read_all(&deleted).expect("reads") == data(1));
    clock.advance(WEEK - DAY);
    stack.close().expect("closes");
    let stack = open();
    assert_eq!(only(&stack, &deleted).end, "deleted");
    clock.advance(2 * DAY);
    eventually("the time is over", || bucket_names(&bucket, "/o/") == 0);
    eventually("it is accounted", || stack.tiers()[1].kept_bytes == 0);
    bucket.assert_sound(&stack, 0);
    for name in [&deleted, &replaced, &changed] {
        assert_eq!(stack.versions(name).expect("listed"), []);
    }
    let error = undelete(&stack, &replaced, None, &key("late")).expect_err("its time is over");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(stack.read_all(&changed).expect("reads") == data(3), "what came back stays");
    stack.close().expect("closes");
}

/// The figures of `docs/how-to/s3.md`.
#[test]
fn requests_of_keeping_are_as_documented() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let clock = Arc::new(ManualClock::new());
    Stack::create(&bucket_parts(&bucket, &clock)).expect("made");
    let stack = Stack::open(bucket_parts(&bucket, &clock)).expect("opens");
    let name = key("counted");
    slow(&stack, &name, &data(1));
    settle(&stack);
    bucket.server.counts();
    stack.delete(&name).expect("deleted");
    settle(&stack);
    let counts: Vec<_> = bucket.server.counts().into_iter().collect();
    assert_eq!(counts, [("PUT", 1)], "keeping it");
    clock.advance(2 * WEEK);
    eventually("the time is over", || bucket_names(&bucket, "/o/") == 0);
    eventually("it is accounted", || stack.tiers()[1].kept_bytes == 0);
    settle(&stack);
    let counts: Vec<_> = bucket.server.counts().into_iter().collect();
    assert_eq!(counts, [("DELETE", 4)], "the end of its time");
}

#[test]
fn a_damaged_version_is_not_brought_back() {
    let bucket = Bucket::new(Duration::from_secs(20));
    let clock = Arc::new(ManualClock::new());
    Stack::create(&bucket_parts(&bucket, &clock)).expect("made");
    let stack = Stack::open(bucket_parts(&bucket, &clock)).expect("opens");
    let name = key("damaged");
    keep(&stack, &name);
    let names = bucket.server.names();
    let file = names.iter().find(|name| name.contains("/o/seg/")).expect("it is kept");
    bucket.server.damage(file, 100);
    let error = undelete(&stack, &name, None, &name).expect_err("other bytes");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let error = stack.stat(&name).expect_err("nothing half is left");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_version_of_many_segments_stays_whole_while_they_move() {
    let world = world();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(4096)));
    let name = key("object");
    slow(&stack, &name, &data(1));
    assert!(stack.explain(&name).expect("exists").segments.len() > 5);
    // Each segment that is changed is recalled by itself.
    let object = stack.open(&name, &Open::write()).expect("opens");
    for at in [0, 20_000, 40_000] {
        object.write_at(at, &[IoSlice::new(b"new")]).expect("written");
    }
    drop(object);
    settle(&stack);
    let version = only(&stack, &name);
    assert_eq!((version.end.as_str(), version.is_whole), ("changed", true));
    migrate(&stack, &name, SLOW, MoveKind::Move);
    let changed = stack.read_all(&name).expect("reads");
    stack.delete(&name).expect("deleted");
    settle(&stack);
    assert_sound(&world, &stack);
    let versions = stack.versions(&name).expect("listed");
    assert_eq!(
        versions.iter().map(|one| one.end.as_str()).collect::<Vec<_>>(),
        ["deleted", "changed"]
    );
    assert!(versions.iter().all(|one| one.is_whole), "{versions:?}");
    let (first, second) = (key("first"), key("second"));
    undelete(&stack, &name, Some(&versions[1].version), &first).expect("whole");
    undelete(&stack, &name, None, &second).expect("whole");
    assert!(stack.read_all(&first).expect("reads") == data(1));
    assert!(stack.read_all(&second).expect("reads") == changed);
    assert_sound(&world, &stack);
}

/// A writer fills an object again and again, front to back, while its segments are moved down: what a version has is
/// what the object was at some time, the beginning of one round and the rest of the round before.
#[test]
fn versions_of_a_contested_object_are_states_that_it_had() {
    const ROUNDS: u8 = 40;
    const SEGMENT: usize = 4096;
    let world = world();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(SEGMENT as u64)));
    let name = key("contested");
    slow(&stack, &name, &[0; 3 * SEGMENT]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let queued = stack.migrate(&name, SLOW, MoveKind::Move, 0, "down");
                for ticket in queued.into_iter().flatten() {
                    let _ = stack.wait(ticket, LONG);
                }
            }
        });
        let object = stack.open(&name, &Open::write()).expect("opens");
        for round in 1..=ROUNDS {
            for segment in 0..3 {
                let bytes = [round; SEGMENT];
                object
                    .write_at((segment * SEGMENT) as u64, &[IoSlice::new(&bytes)])
                    .expect("written");
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    settle(&stack);
    assert_sound(&world, &stack);
    let versions = stack.versions(&name).expect("listed");
    assert!(versions.iter().all(|one| one.is_whole), "{versions:?}");
    let mut last = ROUNDS;
    for version in &versions {
        let to = key(&format!("back/{}", version.version));
        undelete(&stack, &name, Some(&version.version), &to).expect("whole");
        let bytes = stack.read_all(&to).expect("reads");
        let rounds: Vec<u8> = bytes.chunks(SEGMENT).map(|chunk| chunk[0]).collect();
        assert!(bytes.chunks(SEGMENT).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])));
        let is_state = rounds[0] - rounds[2] <= 1 && rounds.is_sorted_by(|a, b| a >= b);
        assert!(is_state && rounds[0] <= last, "{rounds:?} after {last}");
        last = rounds[0];
    }
    assert!(!versions.is_empty(), "the first write recalls what is whole");
}

/// More files than are ended together.
#[test]
fn all_files_of_a_version_end() {
    let world = world();
    let clock = Arc::new(ManualClock::new());
    let stack = world.create_with(|parts| {
        parts.clock = clock.clone();
        parts.tactics = Some(cutting(4096));
    });
    let (name, other) = (key("object"), key("other"));
    slow(&stack, &name, &pattern_bytes(1, 0, 0, 320 * 4096));
    slow(&stack, &other, &data(2)[..1000]);
    stack.delete(&name).expect("deleted");
    settle(&stack);
    let (files, markers) = on_disk(&world, 1);
    assert!(markers > 300, "{markers}");
    assert_ends(&world, &stack, &clock, files - markers);
    assert!(stack.read_all(&other).expect("reads") == data(2)[..1000]);
}

#[test]
fn a_version_of_which_a_part_was_elsewhere_is_not_offered() {
    let world = world();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(40_000)));
    let name = key("object");
    slow(&stack, &name, &data(1));
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write_at(45_000, &[IoSlice::new(b"new")]).expect("written");
    drop(object);
    settle(&stack);
    // Two segments, of which the second is on the fast tier now.
    stack.delete(&name).expect("deleted");
    settle(&stack);
    let versions = stack.versions(&name).expect("listed");
    let (last, earlier) = (&versions[0], &versions[1]);
    assert_eq!((last.end.as_str(), last.is_whole), ("deleted", false));
    assert_eq!((last.missing[0].start_bytes, last.missing[0].length_bytes), (40_000, 10_000));
    assert!(last.missing[0].reason.contains("fast"), "{last:?}");
    let error = undelete(&stack, &name, None, &name).expect_err("a part is missing");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("10000 of its 50000 bytes"), "{error}");
    assert!(earlier.is_whole);
    let named = format!("earlier_whole_version={}", earlier.version);
    assert!(error.to_string().contains(&named), "{error}");
    undelete(&stack, &name, Some(&earlier.version), &name).expect("whole");
    assert!(stack.read_all(&name).expect("reads") == data(1));
    // What was on tiers that keep nothing leaves nothing.
    let other = key("other");
    put(&stack, &other, &data(2));
    stack.delete(&other).expect("deleted");
    assert_eq!(stack.versions(&other).expect("listed"), []);
    assert_sound(&world, &stack);
}

#[test]
fn copies_that_writes_make_old_are_kept() {
    let world = world();
    let stack = world.create();
    let name = key("object");
    put(&stack, &name, &data(1));
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.write_at(0, &[IoSlice::new(b"new")]).expect("written");
    drop(object);
    settle(&stack);
    undelete(&stack, &name, None, &key("old")).expect("whole");
    assert!(stack.read_all(&key("old")).expect("reads") == data(1));
    // A copy of what stays in the same place is no version.
    migrate(&stack, &name, SLOW, MoveKind::Move);
    migrate(&stack, &name, FAST, MoveKind::Copy);
    stack.drop_copy(&name, FAST).expect("dropped");
    assert_eq!(stack.versions(&name).expect("listed").len(), 1);
    assert_sound(&world, &stack);
}

#[test]
fn copies_that_are_dropped_for_room_are_not_kept() {
    let tiers = [("fast", ROOMY, Persistency::Storage), ("slow", 110_000, Persistency::Storage)];
    let world = World::with(&tiers).whole("slow").keeping("slow", WEEK);
    let stack = world.create();
    let names = ["first", "second"].map(key);
    for name in &names {
        put(&stack, name, &data(1));
        migrate(&stack, name, SLOW, MoveKind::Copy);
    }
    let third = key("third");
    slow(&stack, &third, &data(3));
    settle(&stack);
    assert_eq!(stack.tiers()[1].kept_bytes, 0);
    for name in &names {
        assert_eq!(stack.versions(name).expect("listed"), []);
        assert!(stack.read_all(name).expect("reads") == data(1));
    }
    assert_sound(&world, &stack);
    // Nor is one that is dropped by itself.
    let copied = |name: &&Key| !stack.explain(name).expect("exists").segments[0].copies.is_empty();
    let name = names.iter().find(copied).expect("one copy has room");
    stack.drop_copy(name, SLOW).expect("dropped");
    settle(&stack);
    assert_eq!(stack.tiers()[1].kept_bytes, 0);
    assert_sound(&world, &stack);
}

#[test]
fn labels_come_back_but_parts_do_not() {
    let world = world();
    let stack = world.create();
    let labelled = |label: &[u8]| Open { label: Some(label.into()), ..Open::create_new() };
    let name = key("object");
    let object = stack.open(&name, &labelled(b"of a user")).expect("made");
    object.write(0, &data(1)).expect("written");
    drop(object);
    let parts = [&b"L\x01layout"[..], b"P\x01piece", b"P\x02piece"];
    for (index, label) in parts.iter().enumerate() {
        let part = key(&format!("part/{index}"));
        let object = stack.open(&part, &labelled(label)).expect("made");
        object.write(0, &data(2)).expect("written");
    }
    for name in all_keys(&stack) {
        migrate(&stack, &name, SLOW, MoveKind::Move);
        stack.delete(&name).expect("deleted");
    }
    settle(&stack);
    assert!(only(&stack, &name).is_whole);
    undelete(&stack, &name, None, &name).expect("whole");
    assert!(stack.read_all(&name).expect("reads") == data(1));
    let object = stack.open(&name, &Open::read()).expect("opens");
    assert_eq!(object.label().as_deref(), Some(&b"of a user"[..]));
    drop(object);
    for index in 0..parts.len() {
        let part = key(&format!("part/{index}"));
        let version = only(&stack, &part);
        assert!(!version.is_whole && version.missing[0].reason.contains("servers"), "{version:?}");
        let error = undelete(&stack, &part, None, &part).expect_err("a part");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("several servers"), "{error}");
    }
    assert_sound(&world, &stack);
}

#[test]
fn kept_values_go_with_a_tier_that_is_removed() {
    let world = World::three().whole("slow").keeping("slow", WEEK);
    let stack = world.create();
    let (gone, stays) = (key("gone"), key("stays"));
    slow(&stack, &gone, &data(1));
    slow(&stack, &stays, &data(2));
    stack.delete(&gone).expect("deleted");
    settle(&stack);
    stack.drain_tier("slow").expect("drained");
    let drained = || stack.tiers()[1].drain.as_ref().is_some_and(|drain| drain.is_done);
    eventually("it is drained", drained);
    let tier = stack.tiers().remove(1);
    assert_eq!(tier.kept_bytes, 50_000, "what leaves a tier that is drained is not kept: {tier:?}");
    assert!(only(&stack, &gone).is_whole);
    stack.remove_tier("slow").expect("removed");
    assert_eq!(on_disk(&world, 1), (0, 0));
    assert_eq!(stack.versions(&gone).expect("listed"), []);
    assert!(stack.read_all(&stays).expect("reads") == data(2));
    let check = stack.check(true, &mut |_, _| {}).expect("checked");
    assert!(check.problems.is_empty(), "{:?}", check.problems);
}

/// Holds the first thread that passes a failpoint.
struct HeldOnce {
    name: &'static str,
    gate: Gate,
    was_held: AtomicBool,
}

impl std::fmt::Debug for HeldOnce {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("HeldOnce").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Watcher for HeldOnce {
    fn hit(&self, name: &'static str) -> terrace_core::Result<()> {
        if name == self.name && !self.was_held.swap(true, Ordering::SeqCst) {
            self.gate.pass();
        }
        Ok(())
    }
}

/// The keeper has read which files are over, when the removal of their tier ends the same files.
#[test]
fn a_removed_tier_and_the_keeper_end_each_file_once() {
    let world = World::three().whole("slow").keeping("slow", WEEK);
    let clock = Arc::new(ManualClock::new());
    let (gate, was_held) = (Gate::default(), AtomicBool::new(false));
    let held = Arc::new(HeldOnce { name: "keep.over", gate, was_held });
    held.gate.close();
    let stack = world.create_with(|parts| {
        parts.clock = clock.clone();
        parts.failpoints = Failpoints::watched(held.clone());
    });
    let name = key("object");
    keep(&stack, &name);
    stack.drain_tier("slow").expect("drained");
    eventually("it is drained", || {
        stack.tiers()[1].drain.as_ref().is_some_and(|drain| drain.is_done)
    });
    clock.advance(2 * WEEK);
    held.gate.wait_until_held();
    // The removal ends them, too, and then fails, so that the tier stays.
    let left = Key::new("kept", "0000000000000007.0.9").expect("legal");
    world.disk(1).open().open(&left, &Open::create_new()).expect("made");
    let name = left.name().to_owned();
    world.tier(1).on(move |moment| match moment.call == Call::Delete && moment.name == name {
        true => Verdict::Fail(ErrorKind::Io),
        false => Verdict::Go,
    });
    stack.remove_tier("slow").expect_err("a marker cannot be deleted");
    assert_eq!(on_disk(&world, 1), (0, 1));
    world.tier(1).heal();
    held.gate.open();
    // The threads end with it.
    stack.close().expect("closes");
    let tier = stack.tiers().remove(1);
    assert_eq!((tier.kept_bytes, tier.garbage_bytes), (0, 0));
    let stack = world.open();
    stack.remove_tier("slow").expect("removed");
    assert_eq!(on_disk(&world, 1), (0, 0));
}

#[test]
fn without_the_setting_nothing_is_kept_any_more() {
    let world = world();
    let stack = world.create();
    let name = key("object");
    keep(&stack, &name);
    assert_eq!(on_disk(&world, 1), (1, 1));
    stack.close().expect("closes");
    let stack = world.open_with(|parts| parts.tiers[1].keep_deleted = None);
    eventually("it is deleted", || on_disk(&world, 1) == (0, 0));
    assert_eq!(stack.versions(&name).expect("listed"), []);
    assert_sound(&world, &stack);
}

#[test]
fn tiers_that_are_written_in_place_keep_nothing() {
    let world = World::two().keeping("slow", WEEK);
    let parts = world.parts();
    let error = Stack::create(&parts).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("in place"), "{error}");
    // A framed one takes whole objects.
    let world = World::two().framed("slow").keeping("slow", WEEK);
    let stack = world.create();
    let name = key("object");
    keep(&stack, &name);
    undelete(&stack, &name, None, &name).expect("whole");
    assert!(stack.read_all(&name).expect("reads") == data(1));
}

fn rebuild(world: &World, saved: Option<Saved>) -> terrace_stack::report::RebuildReport {
    let options = RebuildOptions { saved, ..RebuildOptions::default() };
    Stack::rebuild(&world.parts(), &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{e:?}"))
}

/// A store with one deleted and one earlier value, of several segments each.
fn with_versions(world: &World) -> (Key, Key) {
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(20_000)));
    let (deleted, changed) = (key("deleted"), key("changed"));
    slow(&stack, &deleted, &data(1));
    slow(&stack, &changed, &data(2));
    // First from the bucket, then deleted: its record names no file of a version then.
    migrate(&stack, &deleted, FAST, MoveKind::Move);
    stack.delete(&deleted).expect("deleted");
    let object = stack.open(&changed, &Open::write()).expect("opens");
    object.write_at(0, &[IoSlice::new(b"new")]).expect("written");
    drop(object);
    settle(&stack);
    stack.close().expect("closes");
    (deleted, changed)
}

#[track_caller]
fn assert_versions(world: &World, deleted: &Key, changed: &Key) {
    let stack = world.open();
    assert!(stack.stat(deleted).is_err(), "a deleted object stays deleted");
    assert_eq!(&stack.read_all(changed).expect("reads")[..3], b"new");
    assert_sound(world, &stack);
    for (name, seed) in [(deleted, 1), (changed, 2)] {
        let to = key(&format!("{}/back", name.name()));
        undelete(&stack, name, None, &to).unwrap_or_else(|error| panic!("{}", error.chain()));
        assert!(stack.read_all(&to).expect("reads") == data(seed));
    }
    assert_sound(world, &stack);
    stack.close().expect("closes");
}

#[test]
fn a_catalog_rebuilt_from_the_tiers_has_the_versions() {
    let mut world = world();
    let (deleted, changed) = with_versions(&world);
    let before = on_disk(&world, 1);
    world.lose_catalog();
    let report = rebuild(&world, None);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.versions, 2);
    assert_versions(&world, &deleted, &changed);
    assert_eq!(on_disk(&world, 1), before);
}

#[test]
fn a_catalog_rebuilt_beside_another_has_the_versions() {
    for is_present in [true, false] {
        let mut world = world();
        let (deleted, changed) = with_versions(&world);
        let lost = world.lose_catalog();
        let report = rebuild(&world, Some(Saved { catalog: lost.open(), is_present }));
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert_versions(&world, &deleted, &changed);
    }
}

/// A backup from before names the files of what is deleted by now.
#[test]
fn an_old_backup_makes_no_present_values_of_versions() {
    let mut world = world();
    let stack = world.create();
    let (deleted, changed) = (key("deleted"), key("changed"));
    slow(&stack, &deleted, &data(1));
    slow(&stack, &changed, &data(2));
    settle(&stack);
    let mut backup = Vec::new();
    stack.backup(&mut backup, &mut |_| {}).expect("backs up");
    stack.delete(&deleted).expect("deleted");
    let object = stack.open(&changed, &Open::write()).expect("opens");
    object.write_at(0, &[IoSlice::new(b"new")]).expect("written");
    drop(object);
    settle(&stack);
    stack.close().expect("closes");
    world.lose_catalog();
    let catalog = SimWorld::new().kv().open();
    read_backup(&mut &backup[..], &*catalog, &mut |_| {}).expect("is whole");
    let report = rebuild(&world, Some(Saved { catalog, is_present: false }));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_versions(&world, &deleted, &changed);
    let stack = world.open();
    assert_eq!(stack.tiers()[1].kept_bytes, 100_000);
    stack.close().expect("closes");
}

/// Pairs of the catalog of one sort.
pub(crate) fn rows(world: &World, sort: u8) -> Vec<Pair> {
    world.kv().pairs().into_iter().filter(|(row, _)| row[0] == sort).collect()
}

pub(crate) fn put_rows(world: &World, rows: &[Pair]) {
    let kv = world.kv().open();
    for (row, value) in rows {
        kv.put(row, value).expect("put");
    }
}

/// An object of three segments, of which the first was recalled and changed: a version names the files of the others,
/// which are those of the object still. The process has ended.
fn with_named_files(world: &World, name: &Key) -> Vec<u8> {
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(20_000)));
    slow(&stack, name, &data(1));
    let object = stack.open(name, &Open::write()).expect("opens");
    object.write(0, b"new").expect("written");
    drop(object);
    settle(&stack);
    assert_eq!(on_disk(world, 1), (3, 1));
    let bytes = stack.read_all(name).expect("reads");
    stack.sync_all().expect("synced");
    end(world, stack);
    bytes
}

/// The process ends without a close.
pub(crate) fn end(world: &World, stack: Stack) {
    world.failpoints().freeze();
    drop(stack);
    world.crash(Crash::Process);
}

#[test]
fn a_damaged_record_makes_no_garbage_of_files_that_a_version_names() {
    let world = world();
    let name = key("object");
    let bytes = with_named_files(&world, &name);
    let records = rows(&world, b'o');
    let mut damaged = records.clone();
    for (_, value) in &mut damaged {
        let middle = value.len() / 2;
        value[middle] ^= 0x40;
    }
    put_rows(&world, &damaged);
    let stack = world.open();
    assert_eq!(stack.stat(&name).expect_err("damaged").kind(), ErrorKind::Corrupt);
    settle(&stack);
    assert_eq!(on_disk(&world, 1), (3, 1), "no more is kept than before");
    end(&world, stack);
    put_rows(&world, &records);
    let stack = world.open();
    assert!(stack.read_all(&name).expect("reads") == bytes);
    assert_sound(&world, &stack);
}

#[test]
fn files_that_a_rebuild_leaves_alone_stay_as_they_are() {
    for has_saved in [false, true] {
        let mut world = world();
        let name = key("object");
        with_named_files(&world, &name);
        let lost = world.lose_catalog();
        let files = world.disk(0).files();
        assert_eq!(files.len(), 1, "the first segment");
        world.disk(0).open().delete(&files[0].key).expect("deleted");
        let saved = has_saved.then(|| Saved { catalog: lost.open(), is_present: false });
        let report = rebuild(&world, saved);
        let kinds: Vec<_> = report.problems.iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, ["incomplete-object"], "{:?}", report.problems);
        let stack = world.open();
        settle(&stack);
        assert_eq!(on_disk(&world, 1), (3, 1));
        assert!(only(&stack, &name).is_whole);
    }
}

/// The catalog has the record of an object again whose file is kept by now.
fn with_a_live_kept_file(world: &World, clock: &Arc<ManualClock>, name: &Key) {
    world.create_parts(|_| {});
    let stack = world.open_with(|parts| parts.clock = clock.clone());
    slow(&stack, name, &data(1));
    settle(&stack);
    let records = rows(world, b'o');
    stack.delete(name).expect("deleted");
    settle(&stack);
    stack.sync_all().expect("synced");
    end(world, stack);
    put_rows(world, &records);
    assert_eq!(on_disk(world, 1), (1, 1));
}

#[test]
fn the_marker_of_a_file_that_a_record_names_goes_with_its_row() {
    let world = world();
    let clock = Arc::new(ManualClock::new());
    let name = key("object");
    with_a_live_kept_file(&world, &clock, &name);
    let stack = world.open_with(|parts| parts.clock = clock.clone());
    clock.advance(2 * WEEK);
    eventually("the time is over", || stack.tiers()[1].kept_bytes == 0);
    assert_eq!(on_disk(&world, 1), (1, 0));
    assert!(stack.read_all(&name).expect("reads") == data(1));
    assert_sound(&world, &stack);
}

#[test]
fn a_rebuild_lets_a_file_that_the_present_catalog_names_be_no_kept_one() {
    let mut world = world();
    let clock = Arc::new(ManualClock::new());
    let name = key("object");
    with_a_live_kept_file(&world, &clock, &name);
    let lost = world.lose_catalog();
    let report = rebuild(&world, Some(Saved { catalog: lost.open(), is_present: true }));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(on_disk(&world, 1), (1, 0));
    let stack = world.open_with(|parts| parts.clock = clock.clone());
    assert_eq!(stack.tiers()[1].kept_bytes, 0);
    assert!(stack.read_all(&name).expect("reads") == data(1));
    assert_sound(&world, &stack);
    // It is one of a version still, and is kept when it leaves the tier.
    stack.delete(&name).expect("deleted");
    settle(&stack);
    assert_eq!(on_disk(&world, 1), (1, 1));
    undelete(&stack, &name, None, &name).expect("whole");
    assert!(stack.read_all(&name).expect("reads") == data(1));
}

#[test]
fn a_file_whose_marker_is_damaged_is_no_present_value() {
    let mut world = world();
    let (_, changed) = with_versions(&world);
    let before = on_disk(&world, 1);
    let disk = world.disk(1).open();
    let markers = world.disk(1).files().into_iter().map(|file| file.key);
    let markers: Vec<_> = markers.filter(|key| key.namespace() == "kept").collect();
    for marker in &markers {
        let marker = disk.open(marker, &Open::write()).expect("it is there");
        marker.write(0, b"damaged").expect("written");
    }
    world.lose_catalog();
    let report = rebuild(&world, None);
    let is_named =
        |marker: &Key| report.problems.iter().any(|one| one.detail.contains(marker.as_str()));
    assert!(markers.iter().all(is_named), "{:?}", report.problems);
    assert_eq!(report.problems.len(), markers.len(), "{:?}", report.problems);
    let stack = world.open();
    assert_eq!(all_keys(&stack), std::slice::from_ref(&changed), "it stays deleted");
    assert_eq!(&stack.read_all(&changed).expect("reads")[..3], b"new");
    settle(&stack);
    assert_eq!(on_disk(&world, 1), before, "nothing goes");
}

#[test]
fn a_loss_of_power_makes_no_versions_of_clean_copies() {
    let world = world();
    let stack = world.create();
    let name = key("object");
    put(&stack, &name, &data(1));
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    stack.sync_all().expect("synced");
    world.failpoints().freeze();
    drop(stack);
    world.crash(Crash::Power { seed: 1 });
    let stack = world.open();
    settle(&stack);
    assert_eq!(stack.versions(&name).expect("listed"), []);
    assert_eq!(on_disk(&world, 1), (0, 0));
    assert!(stack.read_all(&name).expect("reads") == data(1));
    assert_sound(&world, &stack);
}

#[test]
fn a_loss_of_power_that_takes_the_end_of_an_object_leaves_a_version() {
    let world = world();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(40_000)));
    let name = key("object");
    put(&stack, &name, &data(1));
    migrate(&stack, &name, SLOW, MoveKind::Copy);
    stack.sync_all().expect("synced");
    world.failpoints().freeze();
    drop(stack);
    world.crash(Crash::Power { seed: 1 });
    let files = world.disk(0).files().into_iter().map(|file| file.key);
    let last: Vec<_> = files.filter(|key| key.name().contains(".1.")).collect();
    world.disk(0).open().delete(&last[0]).expect("deleted");
    let stack = world.open();
    settle(&stack);
    assert_eq!(stack.stat(&name).expect("there").size_bytes, 40_000);
    undelete(&stack, &name, None, &key("back")).expect("whole");
    assert!(stack.read_all(&key("back")).expect("reads") == data(1));
    assert_sound(&world, &stack);
}

/// A log that has every commit at once.
pub(crate) struct Far;

impl FarLog for Far {
    fn tier(&self) -> &str {
        "slow"
    }

    fn wait(&self, _: u64) -> terrace_core::Result<()> {
        Ok(())
    }
}

/// Another machine has the tier `slow` and the catalog.
pub(crate) fn taken_over(world: &World) -> TakeoverReport {
    world.tier(1).heal();
    let catalog: Arc<dyn terrace_core::Kv> = world.kv().open();
    let tiers = [world.tier_to_add("slow")];
    let boot_id = world.parts().settings.boot_id;
    take_over(&catalog, &tiers, 1 << 40, &boot_id, &mut |_| {}).expect("taken over")
}

/// At the level `shared` as of the log, and not copied yet: the bucket has an earlier value alone.
#[test]
fn a_takeover_while_a_promise_is_made_finds_no_value_in_a_kept_file() {
    for row in ["as it is", "behind", "damaged"] {
        let world = world();
        let stack = world.create();
        stack.set_far_log(Some(Arc::new(Far)));
        let name = key("object");
        slow(&stack, &name, &data(1));
        world.tier(1).hold_creates();
        let object = stack.open(&name, &Open::write()).expect("opens");
        object.write(0, b"new").expect("recalled and written");
        drop(object);
        world.tier(1).wait_until_held();
        let named = rows(&world, b't');
        world.tier(1).release();
        settle(&stack);
        assert_eq!(on_disk(&world, 1), (1, 1));
        let freezer = world.freezer();
        world.tier(1).on(move |moment| {
            if moment.call == Call::Create {
                freezer.freeze();
            }
            Verdict::Go
        });
        let how = Open::write().with_semantics(Semantics::at_level(Persistency::Shared));
        stack.open(&name, &how).map(drop).expect_err("the machine is lost");
        end(&world, stack);
        match row {
            "behind" => put_rows(&world, &named),
            "damaged" => damage(&world, b't', b""),
            _ => {}
        }
        let taken = taken_over(&world);
        assert_eq!((taken.objects, taken.unreachable), (0, 1), "{row}: {taken:?}");
    }
}

/// The last segment is cut off with a sync, and another one follows that was never synced.
#[test]
fn a_takeover_brings_no_segment_back_that_was_cut_off() {
    let world = world();
    let stack = world.create_with(|parts| parts.tactics = Some(cutting(40_000)));
    stack.set_far_log(Some(Arc::new(Far)));
    let name = key("object");
    let how = Open::create_new().with_semantics(Semantics::at_level(Persistency::Shared));
    stack.open(&name, &how).expect("made").write(0, &data(1)).expect("written");
    let object = stack.open(&name, &Open::write()).expect("opens");
    object.sync().expect("synced");
    object.set_len(40_000).expect("cut");
    object.sync().expect("synced");
    settle(&stack);
    assert_eq!(on_disk(&world, 1), (2, 1));
    object.write(40_000, b"unsynced").expect("written");
    assert_eq!(stack.explain(&name).expect("exists").segments.len(), 2);
    drop(object);
    end(&world, stack);
    let taken = taken_over(&world);
    assert_eq!((taken.objects, taken.bytes, taken.unreachable), (1, 40_000, 0), "{taken:?}");
    let fresh = SimWorld::new().tier_with("fresh", ROOMY, Persistency::Storage);
    let stack = world.open_with(|parts| {
        parts.tiers[0] = Tier::new("fresh", fresh.open()).with_capacity(ROOMY);
    });
    assert!(stack.read_all(&name).expect("reads") == data(1)[..40_000]);
    undelete(&stack, &name, None, &key("back")).expect("whole");
    assert!(stack.read_all(&key("back")).expect("reads") == data(1));
    let check = stack.check(true, &mut |_, _| {}).expect("checked");
    assert!(check.problems.is_empty(), "{:?}", check.problems);
}

/// The whole of what is kept ends, and nothing is left of it.
fn assert_ends(world: &World, stack: &Stack, clock: &ManualClock, files: usize) {
    clock.advance(2 * WEEK);
    eventually("the time is over", || on_disk(world, 1) == (files, 0));
    eventually("it is accounted", || stack.tiers()[1].kept_bytes == 0);
    assert_sound(world, stack);
}

#[test]
fn a_crash_while_a_value_is_kept_loses_and_leaves_nothing() {
    let steps = ["delete.catalog", "drop.durable", "keep.marked", "drop.row", "recover.garbage"];
    // Packing makes less of it.
    let bytes = vec![7; 50_000];
    let crashes = [Crash::Process, Crash::Power { seed: 1 }, Crash::Power { seed: 2 }];
    let worlds: [fn() -> World; 2] = [world, || World::two().framed("slow").keeping("slow", WEEK)];
    for (step, make) in steps.into_iter().flat_map(|step| worlds.map(|world| (step, world))) {
        for crash in crashes {
            let place = format!("{crash:?} at {step}");
            let world = make();
            let clock = Arc::new(ManualClock::new());
            let open = || {
                world.try_open_with(|parts| {
                    parts.clock = clock.clone();
                    parts.settings.persistency = Persistency::Storage;
                })
            };
            world.create_parts(|_| {});
            let stack = open().expect("opens");
            let name = key("object");
            slow(&stack, &name, &bytes);
            settle(&stack);
            stack.sync_all().expect("synced");
            world.failpoints().arm(&Crashing { failpoint: step.into(), visit: 1 });
            let is_deleted = stack.delete(&name).is_ok();
            if step == "recover.garbage" {
                world.failpoints().freeze();
                drop(stack);
                world.crash(crash);
                world.failpoints().arm(&Crashing { failpoint: step.into(), visit: 1 });
                drop(open());
            } else {
                eventually(&place, || world.freezer().is_frozen());
                drop(stack);
            }
            world.failpoints().freeze();
            world.crash(crash);
            let stack = open().unwrap_or_else(|error| panic!("{place}: {}", error.chain()));
            settle(&stack);
            let is_there = stack.stat(&name).is_ok();
            assert!(!is_there || !is_deleted || step == "delete.catalog", "{place}");
            if is_there {
                stack.delete(&name).expect("deleted");
                settle(&stack);
            }
            assert_sound(&world, &stack);
            undelete(&stack, &name, None, &name)
                .unwrap_or_else(|error| panic!("{place}: {}", error.chain()));
            assert!(stack.read_all(&name).expect("reads") == bytes, "{place}");
            assert_eq!(on_disk(&world, 1), (1, 1), "{place}");
            assert_ends(&world, &stack, &clock, 0);
        }
    }
}

#[test]
fn a_crash_at_the_end_of_the_time_leaves_nothing() {
    for step in ["keep.over", "keep.expired", "drop.durable", "drop.file", "drop.row"] {
        for crash in [Crash::Process, Crash::Power { seed: 1 }, Crash::Power { seed: 2 }] {
            let place = format!("{crash:?} at {step}");
            let world = world();
            let clock = Arc::new(ManualClock::new());
            let open = || world.try_open_with(|parts| parts.clock = clock.clone());
            world.create_parts(|_| {});
            let stack = open().expect("opens");
            let (name, other) = (key("object"), key("other"));
            slow(&stack, &name, &data(1));
            slow(&stack, &other, &data(2));
            stack.delete(&name).expect("deleted");
            settle(&stack);
            stack.sync_all().expect("synced");
            assert_eq!(on_disk(&world, 1), (2, 1));
            world.failpoints().arm(&Crashing { failpoint: step.into(), visit: 1 });
            clock.advance(2 * WEEK);
            eventually(&place, || world.freezer().is_frozen());
            drop(stack);
            world.crash(crash);
            let stack = open().unwrap_or_else(|error| panic!("{place}: {}", error.chain()));
            assert_ends(&world, &stack, &clock, 1);
            assert!(stack.read_all(&other).expect("reads") == data(2), "{place}");
        }
    }
}

/// A clock whose time of day an administrator sets back.
#[derive(Debug, Default)]
struct SetBack {
    clock: ManualClock,
    by_ns: AtomicU64,
}

impl Clock for SetBack {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn wall_ns(&self) -> u64 {
        self.clock.wall_ns() - self.by_ns.load(Ordering::SeqCst)
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

#[test]
fn a_clock_that_is_set_back_ends_no_kept_file_early() {
    let world = world();
    let clock = Arc::new(SetBack::default());
    let open = || world.open_with(|parts| parts.clock = clock.clone());
    world.create_parts(|_| {});
    let stack = open();
    let name = key("object");
    slow(&stack, &name, &data(1));
    // A reader has the file until the clock is set.
    let reader = stack.open(&name, &Open::read()).expect("opens");
    reader.read(0, &mut [0]).expect("reads");
    stack.delete(&name).expect("deleted");
    clock.by_ns.store((3 * DAY).as_nanos() as u64, Ordering::SeqCst);
    drop(reader);
    settle(&stack);
    let ended_ns = only(&stack, &name).ended_ns;
    clock.clock.advance(WEEK + 2 * DAY);
    assert!(clock.wall_ns() < ended_ns + WEEK.as_nanos() as u64, "its time is not over");
    stack.close().expect("closes");
    drop(stack);
    // An opening looks for files whose time is over.
    let stack = open();
    settle(&stack);
    assert_eq!(on_disk(&world, 1), (1, 1));
    undelete(&stack, &name, None, &key("back")).expect("it is kept");
    assert!(stack.read_all(&key("back")).expect("reads") == data(1));
    clock.clock.advance(2 * DAY);
    eventually("its time is over", || on_disk(&world, 1) == (0, 0));
}

/// A file has its marker and still a row of garbage, when its version ends at the next opening.
#[test]
fn a_crash_at_a_marker_leaves_none_behind() {
    let crashes = [Crash::Process, Crash::Power { seed: 1 }, Crash::Power { seed: 2 }];
    for (is_late, crash) in [true, false].into_iter().flat_map(|it| crashes.map(|one| (it, one))) {
        let place = format!("{crash:?}, {}", if is_late { "late" } else { "without the setting" });
        let world = world();
        let clock = Arc::new(ManualClock::new());
        let open = |keeps: bool| {
            world.open_with(|parts| {
                parts.clock = clock.clone();
                parts.settings.persistency = Persistency::Storage;
                parts.tiers[1].keep_deleted = keeps.then_some(WEEK);
            })
        };
        world.create_parts(|_| {});
        let stack = open(true);
        let (name, other) = (key("object"), key("other"));
        slow(&stack, &name, &data(1));
        slow(&stack, &other, &data(2));
        settle(&stack);
        stack.sync_all().expect("synced");
        world.failpoints().arm(&Crashing { failpoint: "keep.marked".into(), visit: 1 });
        stack.delete(&name).expect("deleted");
        eventually(&place, || world.freezer().is_frozen());
        drop(stack);
        world.crash(crash);
        assert_eq!(on_disk(&world, 1), (2, 1), "{place}");
        if is_late {
            clock.advance(2 * WEEK);
        }
        let stack = open(is_late);
        assert_ends(&world, &stack, &clock, 1);
        assert_eq!(stack.versions(&name).expect("listed"), [], "{place}");
        assert!(stack.read_all(&other).expect("reads") == data(2), "{place}");
    }
}

#[test]
fn markers_that_are_left_over_go_with_their_tier() {
    let world = World::three().whole("slow").keeping("slow", WEEK);
    let stack = world.create();
    let left = Key::new("kept", "0000000000000007.0.9").expect("legal");
    let how = Open::create_new();
    world.disk(1).open().open(&left, &how).expect("made").write(0, b"left").expect("written");
    stack.drain_tier("slow").expect("drained");
    eventually("it is drained", || {
        stack.tiers()[1].drain.as_ref().is_some_and(|drain| drain.is_done)
    });
    stack.remove_tier("slow").expect("removed");
    assert_eq!(on_disk(&world, 1), (0, 0));
}

#[test]
fn markers_of_another_store_count_for_nothing() {
    let world = World::three().whole("slow").keeping("slow", WEEK);
    let stack = world.create_with(|parts| drop(parts.tiers.remove(1)));
    let left = Key::new("kept", "0000000000000007.0.9").expect("legal");
    let how = Open::create_new();
    world.disk(1).open().open(&left, &how).expect("made").write(0, b"left").expect("written");
    let error = stack.add_tier(world.tier_to_add("slow"), None).expect_err("it is not empty");
    assert_eq!(error.kind(), ErrorKind::Exists);
    drop(stack);
    // A marker of the same file of another store.
    let (mut here, there) = (self::world(), self::world());
    let stores = [&here, &there].map(|world| {
        let stack = world.create();
        slow(&stack, &key("object"), &data(1));
        stack
    });
    stores[1].delete(&key("object")).expect("deleted");
    stores.iter().for_each(settle);
    stores.iter().for_each(|stack| stack.close().expect("closes"));
    drop(stores);
    let files = there.disk(1).files();
    let marker = files.iter().find(|one| one.key.namespace() == "kept").expect("it is kept");
    let bytes = there.disk(1).open().read_all(&marker.key).expect("reads");
    let is_of_it = |file: &terrace_testkit::StoredFile| file.key.name() == marker.key.name();
    assert!(here.disk(1).files().iter().any(is_of_it), "files have the same names");
    here.disk(1).open().open(&marker.key, &how).expect("made").write(0, &bytes).expect("written");
    here.lose_catalog();
    let report = rebuild(&here, None);
    assert!(report.problems[0].detail.contains("another store"), "{:?}", report.problems);
    let stack = here.open();
    assert!(stack.read_all(&key("object")).expect("reads") == data(1));
}

#[test]
fn a_tier_that_keeps_something_is_not_dropped_unnoticed() {
    let world = world();
    let stack = world.create();
    let name = key("object");
    keep(&stack, &name);
    stack.close().expect("closes");
    let opened = world.try_open_with(|parts| drop(parts.tiers.remove(1)));
    let error = opened.err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("tiers remove") && text.contains("deleted_bytes=50000"), "{text}");
    let stack = world.open();
    assert!(only(&stack, &name).is_whole);
    stack.remove_tier("slow").expect("removed");
    assert_eq!(on_disk(&world, 1), (0, 0));
}

/// Damages the first record of the catalog whose key begins with `kind` and ends with `name`.
fn damage(world: &World, kind: u8, name: &[u8]) {
    let is_it = |key: &[u8]| key.first() == Some(&kind) && key.ends_with(name);
    let found = world.kv().pairs().into_iter().find(|(key, _)| is_it(key));
    let (key, mut value) = found.expect("there is one");
    value[1] ^= 0x40;
    world.kv().open().put(&key, &value).expect("puts");
}

fn damaged_records(stack: &Stack) -> usize {
    let check = stack.check(true, &mut |_, _| {}).expect("checked");
    check.problems.iter().filter(|problem| problem.kind == "damaged-record").count()
}

#[test]
fn a_damaged_record_keeps_only_versions_of_its_object() {
    let world = world();
    let clock = Arc::new(ManualClock::new());
    let stack = world.create_with(|parts| parts.clock = clock.clone());
    let (damaged, other) = (key("damaged"), key("other"));
    for name in [&damaged, &other] {
        slow(&stack, name, &data(1));
        stack.delete(name).expect("deleted");
    }
    put(&stack, &damaged, &data(2));
    settle(&stack);
    stack.close().expect("closes");
    damage(&world, b'o', b"damaged");
    clock.advance(2 * WEEK);
    let stack = world.open_with(|parts| parts.clock = clock.clone());
    eventually("the other file is gone", || on_disk(&world, 1) == (1, 1));
    assert_eq!(stack.versions(&other).expect("listed"), []);
    assert_eq!(damaged_records(&stack), 1);
}

#[test]
fn a_damaged_row_of_a_file_leaves_this_one_only() {
    let world = world();
    let stack = world.create();
    let names = [key("first"), key("second")];
    names.iter().for_each(|name| slow(&stack, name, &data(1)));
    settle(&stack);
    // No marker can be written.
    world.tier(1).on(|moment| match moment.call {
        Call::Create => Verdict::Fail(ErrorKind::Io),
        _ => Verdict::Go,
    });
    names.iter().for_each(|name| stack.delete(name).expect("deleted"));
    stack.close().expect("closes");
    assert_eq!(on_disk(&world, 1), (2, 0));
    world.tier(1).heal();
    damage(&world, b't', b"");
    let stack = world.open();
    eventually("the other file is kept", || on_disk(&world, 1) == (2, 1));
    eventually("it is accounted", || stack.tiers()[1].kept_bytes == 50_000);
    assert_eq!(damaged_records(&stack), 1);
    assert!(only(&stack, &names[0]).is_whole && only(&stack, &names[1]).is_whole);
}

#[test]
fn a_crash_leaves_a_kept_file_whose_row_is_damaged() {
    let world = world();
    let stack = world.create();
    keep(&stack, &key("object"));
    stack.sync_all().expect("synced");
    end(&world, stack);
    assert_eq!(on_disk(&world, 1), (1, 1));
    damage(&world, b't', b"");
    let stack = world.open();
    settle(&stack);
    assert_eq!(on_disk(&world, 1), (1, 1), "it may be the value of any version");
    assert_eq!(damaged_records(&stack), 1);
}

#[test]
fn a_damaged_version_is_reported() {
    let world = world();
    let stack = world.create();
    let name = key("object");
    keep(&stack, &name);
    stack.close().expect("closes");
    damage(&world, b'v', b"");
    let stack = world.open();
    assert_eq!(stack.versions(&name).expect("listed"), []);
    assert_eq!(damaged_records(&stack), 1);
}

#[test]
fn a_full_tier_says_how_much_it_keeps() {
    let world = World::with(&[
        ("fast", ROOMY, Persistency::Storage),
        ("slow", 110_000, Persistency::Storage),
    ]);
    let world = world.whole("slow").keeping("slow", WEEK);
    let stack = world.create();
    let (first, second) = (key("first"), key("second"));
    slow(&stack, &first, &data(1));
    stack.delete(&first).expect("deleted");
    settle(&stack);
    slow(&stack, &second, &data(2));
    stack.delete(&second).expect("deleted");
    settle(&stack);
    // Both are kept, so that a third has no room.
    assert_eq!(stack.tiers()[1].kept_bytes, 100_000);
    let third = key("third");
    put(&stack, &third, &data(3));
    let tickets = stack.migrate(&third, SLOW, MoveKind::Move, 0, "test").expect("queued");
    let ended = stack.wait(tickets[0], LONG).expect("known").expect("ends");
    assert_eq!(ended.outcome.as_deref(), Some("no-space"), "{ended:?}");
    assert_sound(&world, &stack);
}

/// Objects that are only read in a store that may not be changed have their versions shown.
#[test]
fn a_store_open_for_reading_lists_versions() {
    let world = world();
    let stack = world.create();
    let name = key("object");
    keep(&stack, &name);
    stack.close().expect("closes");
    let stack = world.open_with(|parts| parts.settings.access = terrace_core::Access::Read);
    assert!(only(&stack, &name).is_whole);
    assert_eq!(stack.tiers()[1].kept_bytes, 50_000);
    let error = undelete(&stack, &name, None, &name).expect_err("only for reading");
    assert_eq!(error.kind(), ErrorKind::Denied);
    let check = stack.check(true, &mut |_, _| {}).expect("checked");
    assert!(check.problems.is_empty(), "{:?}", check.problems);
    assert!(check.notes.iter().any(|note| note.kind == "kept"), "{:?}", check.notes);
}
