// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a trace says of a stack: everything that happened, once, and enough to decide it again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::common::scripted::{self, Breakage, Shared};
use crate::common::world::{LONG, ROOMY, World, eventually, key, migrate, put};
use terrace_core::{
    Actions, Backend, ErrorKind, EventKind, Interest, Key, Object, ObjectExt, Open, Persistency,
    Policy, PostEvents, Random, TierIndex, TierView, View,
};
use terrace_stack::{MoveKind, Parts, Stack, Tactics};
use terrace_trace::{Cause, Item, MAX_BYTES_DEFAULT, Reader, Record, Scene, Settings, Step};

fn settings(directory: &Path, has_decisions: bool) -> Settings {
    let directory = directory.into();
    Settings { directory, max_bytes: MAX_BYTES_DEFAULT, salt: None, has_decisions }
}

/// What happened to an object's bytes and handles.
type Past = Vec<(EventKind, u64, u64)>;

/// Does things to objects of its own, and notes what a trace should say of them.
struct Worker<'a> {
    stack: &'a Stack,
    random: Random,
    names: Vec<Key>,
    open: BTreeMap<Key, Box<dyn Object>>,
    lengths: BTreeMap<Key, u64>,
    past: BTreeMap<Key, Past>,
    /// Whether it also does what is an event only for a policy that asks.
    asks: bool,
}

impl<'a> Worker<'a> {
    fn new(stack: &'a Stack, number: u64, asks: bool) -> Self {
        let names = (0..4).map(|index| key(&format!("object-{number}-{index}"))).collect();
        let random = Random::new(number);
        let (open, lengths, past) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { stack, random, names, open, lengths, past, asks }
    }

    fn note(&mut self, name: &Key, kind: EventKind, offset_bytes: u64, length_bytes: u64) {
        self.past.entry(name.clone()).or_default().push((kind, offset_bytes, length_bytes));
    }

    fn step(&mut self) {
        let name = self.names[self.random.below(self.names.len() as u64) as usize].clone();
        let length = self.lengths.get(&name).copied();
        match (self.open.contains_key(&name), length) {
            (true, Some(length)) => self.use_handle(&name, length),
            (_, Some(length)) if self.random.chance(0.8) => {
                let object = self.stack.open(&name, &Open::write()).expect("opens");
                self.open.insert(name.clone(), object);
                self.note(&name, EventKind::Open, 0, length);
            }
            (_, Some(_)) => {
                self.stack.delete(&name).expect("deletes");
                self.lengths.remove(&name);
                self.note(&name, EventKind::Delete, 0, 0);
            }
            (_, None) => {
                let object = self.stack.open(&name, &Open::create_new()).expect("creates");
                self.open.insert(name.clone(), object);
                self.lengths.insert(name.clone(), 0);
                self.note(&name, EventKind::Create, 0, 0);
                self.note(&name, EventKind::Open, 0, 0);
            }
        }
    }

    fn use_handle(&mut self, name: &Key, length: u64) {
        let offset = self.random.below(20_000);
        let bytes = 1 + self.random.below(5000);
        let object = &self.open[name];
        match self.random.below(if self.asks { 12 } else { 10 }) {
            0 => {
                self.open.remove(name);
                self.note(name, EventKind::Close, 0, length);
            }
            1 if offset < length => {
                object.set_len(offset).expect("cuts");
                self.lengths.insert(name.clone(), offset);
                self.note(name, EventKind::SetLen, 0, offset);
            }
            2..=5 => {
                object.write(offset, &vec![7; bytes as usize]).expect("writes");
                self.lengths.insert(name.clone(), length.max(offset + bytes));
                self.note(name, EventKind::Write, offset, bytes);
            }
            10 => {
                assert_eq!(object.stat().expect("there").size_bytes, length);
                self.note(name, EventKind::Stat, 0, 0);
            }
            11 => {
                object.sync().expect("syncs");
                self.note(name, EventKind::Sync, 0, 0);
            }
            _ => {
                let mut buffer = vec![0; bytes as usize];
                let count = object.read(offset, &mut buffer).expect("reads") as u64;
                assert_eq!(count, length.saturating_sub(offset).min(bytes));
                self.note(name, EventKind::Read, offset, count);
            }
        }
    }

    /// Ends with everything closed; returns what happened.
    fn end(mut self) -> BTreeMap<Key, Past> {
        for (name, object) in std::mem::take(&mut self.open) {
            drop(object);
            let length = self.lengths[&name];
            self.note(&name, EventKind::Close, 0, length);
        }
        self.past
    }
}

/// What a trace says of each object, without what policies and migrations did.
fn pasts(directory: &Path) -> BTreeMap<Key, Past> {
    let mut reader = Reader::open(directory).expect("opens");
    let mut pasts: BTreeMap<Key, Past> = BTreeMap::new();
    while let Some(item) = reader.next_item().expect("reads") {
        match item {
            Item::Record(Record::Access(access)) => {
                let event = access.event;
                let is_ours = matches!(
                    event.kind,
                    EventKind::Create
                        | EventKind::Open
                        | EventKind::Close
                        | EventKind::Read
                        | EventKind::Write
                        | EventKind::SetLen
                        | EventKind::Delete
                        | EventKind::Stat
                        | EventKind::Sync
                );
                assert_eq!(event.count, 1, "nothing is summed up");
                let waited_ns = access.waits.guard_ns + access.waits.stack_ns;
                assert!(waited_ns <= event.latency_ns, "{access:?}");
                if is_ours {
                    let subject = reader.subject(event.slot, event.incarnation);
                    let name = subject.expect("every segment has a name").name.key();
                    let what = (event.kind, event.offset_bytes, event.length_bytes);
                    pasts.entry(name).or_default().push(what);
                }
            }
            Item::Problem(problem) => panic!("{problem}"),
            _ => {}
        }
    }
    pasts
}

/// Random operations of three threads, all of them in the trace.
fn all_is_recorded(world: &World, asks: bool, change: impl FnOnce(&mut Parts)) {
    let directory = tempfile::tempdir().expect("a directory");
    let recording = settings(directory.path(), false);
    let stack = world.create_with(|parts| {
        parts.recording = Some(recording);
        change(parts);
    });
    let work = |number| {
        let mut worker = Worker::new(&stack, number, asks);
        (0..2000).for_each(|_| worker.step());
        worker.end()
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    let report = stack.stop_recording().expect("it ran");
    assert_eq!((report.summed_up_events, report.lost_records, report.failure), (0, 0, None));
    let done: BTreeMap<Key, Past> = done.into_iter().flatten().collect();
    let told = pasts(directory.path());
    assert_eq!(told.keys().collect::<Vec<_>>(), done.keys().collect::<Vec<_>>());
    for (name, past) in &done {
        assert_eq!(&told[name], past, "{name}");
    }
    stack.close().expect("closes");
}

#[test]
fn every_operation_is_in_the_trace_once_and_in_order() {
    all_is_recorded(&World::two(), false, |_| {});
}

#[test]
fn every_operation_is_in_the_trace_while_a_policy_moves_things() {
    let world = World::two();
    all_is_recorded(&world, false, |parts| {
        parts.tactics = Some(Shared::new().tactics("scripted"));
    });
}

#[test]
fn every_operation_is_in_the_trace_of_a_policy_that_asks_for_all() {
    for post_events in PostEvents::ALL {
        let interest = Interest { stat: true, sync: true };
        all_is_recorded(&World::two(), true, |parts| {
            let mut tactics = Shared::new().asking(interest).tactics("scripted");
            tactics.post_events = post_events;
            parts.tactics = Some(tactics);
        });
    }
}

#[test]
fn every_operation_on_one_tier_without_a_policy_is_in_the_trace() {
    let world = World::with(&[("only", ROOMY, Persistency::Storage)]);
    all_is_recorded(&world, false, |_| {});
    let directory = tempfile::tempdir().expect("a directory");
    let stack = world.open();
    let refused = stack.record(settings(directory.path(), false), None).expect_err("bare");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "its I/O passes the stack by");
}

#[test]
fn a_recording_begins_and_ends_while_the_store_runs() {
    let world = World::two();
    let stack = world.create();
    put(&stack, &key("before"), &[1; 100]);
    assert_eq!(stack.recording(), None);
    assert_eq!(stack.stop_recording().expect_err("none").kind(), ErrorKind::NotFound);
    let directory = tempfile::tempdir().expect("a directory");
    stack.record(settings(directory.path(), false), None).expect("begins");
    let again = stack.record(settings(directory.path(), false), None).expect_err("runs");
    assert_eq!(again.kind(), ErrorKind::Busy);
    assert!(stack.recording().expect("runs").is_running);
    let mut buffer = [0; 100];
    let object = stack.open(&key("before"), &Open::read()).expect("opens");
    object.read_exact(0, &mut buffer).expect("reads");
    migrate(&stack, &key("before"), TierIndex(1), MoveKind::Move);
    object.read_exact(0, &mut buffer).expect("reads");
    stack.stop_recording().expect("it ran");
    object.read_exact(0, &mut buffer).expect("reads");
    let report = stack.recording().expect("it ran");
    assert!(!report.is_running && report.records >= 3);
    let told = &pasts(directory.path())[&key("before")];
    let reads = told.iter().filter(|(kind, ..)| *kind == EventKind::Read).count();
    assert_eq!(reads, 2, "{told:?}");
    assert_eq!(reads_by_tier(directory.path()), [1, 1]);
    drop(object);
    stack.close().expect("closes");
}

#[test]
fn a_recording_ends_by_itself_where_nobody_does_so_in_time() {
    let world = World::two();
    let stack = world.create();
    let none = stack.end_recording_after(Duration::ZERO).expect_err("none");
    assert_eq!(none.kind(), ErrorKind::NotFound);
    let directory = tempfile::tempdir().expect("a directory");
    stack.record(settings(directory.path(), false), None).expect("begins");
    put(&stack, &key("a"), &[1; 100]);
    let is_running = || stack.recording().expect("it began").is_running;
    stack.end_recording_after(LONG).expect("it runs");
    stack.run_policy().expect("the policy runs");
    assert!(is_running());
    // The last word counts.
    stack.end_recording_after(Duration::from_millis(1)).expect("it runs");
    eventually("it ends", || {
        stack.run_policy().expect("the policy runs");
        !is_running()
    });
    let report = stack.recording().expect("it ran");
    assert!(!report.is_running && report.failure.is_none() && report.records > 0, "{report:?}");
    assert!(pasts(directory.path()).contains_key(&key("a")));
    // Another one may begin.
    stack.record(settings(directory.path(), false), None).expect("begins");
    stack.close().expect("closes");
}

/// Reads that the trace tells of, by tier.
fn reads_by_tier(directory: &Path) -> [u64; 2] {
    let mut counts = [0; 2];
    for item in Reader::open(directory).expect("opens") {
        if let Item::Record(Record::Access(access)) = item.expect("reads")
            && access.event.kind == EventKind::Read
        {
            counts[access.event.tier.index()] += 1;
        }
    }
    counts
}

#[test]
fn events_that_a_full_ring_sums_up_are_counted() {
    let world = World::two();
    let directory = tempfile::tempdir().expect("a directory");
    let shared = Shared::new();
    let stack = world.create_with(|parts| {
        parts.tactics = Some(shared.tactics("scripted"));
        parts.recording = Some(settings(directory.path(), false));
    });
    put(&stack, &key("a"), &[1; 100]);
    let object = stack.open(&key("a"), &Open::read()).expect("opens");
    stack.run_policy().expect("the policy runs");
    // It stays in its next call until the rings are full.
    shared.break_at(scripted::Step::Observe, Breakage::Loop);
    let reads = 100_000;
    for _ in 0..reads {
        object.read(0, &mut [0; 16]).expect("reads");
    }
    shared.gate().open();
    let report = stack.stop_recording().expect("it ran");
    let (mut told, mut summed_up) = (0, 0);
    for item in Reader::open(directory.path()).expect("opens") {
        if let Item::Record(Record::Access(access)) = item.expect("reads")
            && access.event.kind == EventKind::Read
        {
            let count = u64::from(access.event.count);
            told += count;
            summed_up += if count > 1 { count } else { 0 };
        }
    }
    assert_eq!((told, summed_up), (reads, report.summed_up_events));
    assert!(summed_up > 0 && report.lost_records == 0);
    drop(object);
    stack.close().expect("closes");
}

#[test]
fn closing_a_stack_ends_its_trace() {
    let world = World::two();
    let directory = tempfile::tempdir().expect("a directory");
    let recording = settings(directory.path(), true);
    let stack = world.create_with(|parts| parts.recording = Some(recording));
    put(&stack, &key("a"), &[1; 100]);
    stack.close().expect("closes");
    let told = &pasts(directory.path())[&key("a")];
    assert!(told.contains(&(EventKind::Write, 0, 100)), "{told:?}");
}

#[test]
fn a_trace_that_cannot_be_written_is_no_reason_not_to_open() {
    let world = World::two();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, b"in the way").expect("writes");
    let recording = settings(&file, false);
    let stack = world.create_with(|parts| parts.recording = Some(recording));
    let notes = stack.opening_notes();
    assert!(notes.iter().any(|note| note.starts_with("no trace is recorded: ")), "{notes:?}");
    put(&stack, &key("a"), &[1; 100]);
    stack.close().expect("closes");
}

#[test]
fn a_failing_disk_ends_the_trace_and_nothing_else() {
    let world = World::two();
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("trace");
    let stack = world.create();
    // The smallest bound has small files, and the next of them cannot be made.
    let bound = Settings { max_bytes: terrace_trace::MAX_BYTES_MIN, ..settings(&trace, false) };
    stack.record(bound, None).expect("begins");
    std::fs::remove_dir_all(&trace).expect("removes");
    put(&stack, &key("a"), &[1; 100]);
    let object = stack.open(&key("a"), &Open::write()).expect("opens");
    let mut random = Random::new(1);
    while stack.recording().is_some_and(|report| report.is_running) {
        for _ in 0..10_000 {
            object.write(random.below(1 << 16), &[2; 16]).expect("writes");
        }
        stack.run_policy().expect("the policy runs");
    }
    let report = stack.recording().expect("it failed");
    assert!(report.failure.is_some());
    object.write(0, &[3; 16]).expect("writes");
    drop(object);
    stack.close().expect("closes");
}

/// An instance of a built-in policy for these tiers.
fn tactics(name: &str, tiers: Vec<TierView>, parameters: &[(String, String)]) -> Tactics {
    let view = View::new(tiers, 0);
    let policy = terrace_policies::create(name, &view, parameters).expect("legal parameters");
    Tactics::new(name, policy)
}

/// The tiers of a world as a policy sees them before anything is stored.
fn tier_views(parts: &Parts) -> Vec<TierView> {
    let tiers = parts.tiers.iter().map(|tier| TierView {
        watermarks: tier.watermarks,
        persistency: tier.backend.capability().persistency,
        ..TierView::empty(&tier.name, tier.figures)
    });
    tiers.collect()
}

/// Lets a fresh policy decide again what a trace tells; returns rounds and actions.
fn replay(directory: &Path) -> (u64, u64) {
    let mut scene = Scene::default();
    let mut policy: Option<Box<dyn Policy>> = None;
    let (mut rounds, mut decided) = (0, 0);
    for item in Reader::open(directory).expect("opens") {
        let record = match item.expect("reads") {
            Item::File(head) => {
                scene.file(&head);
                continue;
            }
            Item::Problem(problem) => panic!("{problem}"),
            Item::Record(record) => record,
        };
        match scene.take(&record) {
            None => {}
            Some(Step::Gap) => panic!("the trace lacks something before {record:?}"),
            Some(Step::Policy { change, present }) => {
                let view = scene.view();
                match change.cause {
                    Cause::Start(state) => {
                        let pairs = change.parameters.into_iter().map(|one| (one.name, one.value));
                        let given: Vec<_> = pairs.collect();
                        let tiers = view.tiers.clone();
                        let mut next = tactics(&change.name, tiers, &given).policy;
                        if let Some(state) = state {
                            next.restore(view, state.version, &state.bytes).expect("its own");
                        }
                        next.observe(view, &present);
                        policy = Some(next);
                    }
                    cause => {
                        let policy = policy.as_mut().expect("it started");
                        match cause {
                            Cause::Parameter(one) => {
                                policy.set_parameter(&one.name, &one.value).expect("was legal");
                            }
                            Cause::Message { kind, body } => {
                                policy.message(view, &kind, &body).expect("was answered");
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                }
            }
            Some(Step::Round { round, events, actions }) => {
                let (policy, view) = (policy.as_mut().expect("it started"), scene.view());
                policy.observe(view, &events);
                let count = usize::try_from(round.budget_actions).expect("fits");
                let mut again = Actions::with_budget(round.budget_bytes, count);
                policy.plan(view, &mut again);
                assert_eq!(again.into_list(), actions, "round {}", round.number);
                rounds += 1;
                decided += actions.len() as u64;
            }
        }
    }
    (rounds, decided)
}

/// Fills the fast tier over its marks, reads and deletes some, and changes the policy's mind.
fn stir(stack: &Stack, random: &mut Random, part: u64) {
    // What is not yet deleted takes up room, and new objects would be placed elsewhere.
    let is_tidy = || stack.tiers().iter().all(|tier| tier.garbage_bytes == 0);
    eventually("files of before are deleted", is_tidy);
    for turn in 0..12 {
        for _ in 0..20 {
            let name = key(&format!("object-{}", 40 * part + random.below(60)));
            let bytes = 1 + random.below(20_000) as usize;
            let Ok(object) = stack.open(&name, &Open::write()) else {
                put(stack, &name, &vec![5; bytes]);
                continue;
            };
            match random.below(12) {
                0 => {
                    drop(object);
                    stack.delete(&name).expect("deletes");
                }
                1..=3 => object.write(random.below(20_000), &vec![6; bytes]).expect("writes"),
                _ => drop(object.read(random.below(20_000), &mut vec![0; bytes]).expect("reads")),
            }
        }
        stack.run_policy().expect("the policy runs");
        if turn % 3 == 0 {
            assert!(stack.wait_idle(LONG), "migrations end");
        }
    }
}

/// A live run under a policy, decided again by a fresh one.
fn is_decided_again(name: &str, given: &[(&str, &str)], is_recorded_from_start: bool) {
    let given: Vec<_> =
        given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let world = World::with(&[
        ("fast", 256 << 10, Persistency::Storage),
        ("slow", ROOMY, Persistency::Storage),
    ]);
    let directory = tempfile::tempdir().expect("a directory");
    let mut views = Vec::new();
    let stack = world.create_with(|parts| {
        views = tier_views(parts);
        parts.settings.seed = 42;
        parts.tactics = Some(tactics(name, views.clone(), &given));
        if is_recorded_from_start {
            parts.recording = Some(settings(directory.path(), true));
        }
    });
    let mut random = Random::new(9);
    stir(&stack, &mut random, 1);
    if !is_recorded_from_start {
        let next = tactics(name, views, &given);
        stack.record(settings(directory.path(), true), Some(next)).expect("begins");
    }
    stir(&stack, &mut random, 2);
    stack.set_parameter("high", "0.6").expect("is legal");
    stack.message("status", b"").expect("is answered");
    stir(&stack, &mut random, 3);
    let report = stack.stop_recording().expect("it ran");
    assert_eq!((report.summed_up_events, report.lost_records), (0, 0));
    let (rounds, actions) = replay(directory.path());
    assert!(rounds > 24 && actions > 0, "{rounds} rounds, {actions} actions");
    stack.close().expect("closes");
}

/// What lets an LRU act within the time of a test.
const LRU_AT_ONCE: [(&str, &str); 3] = [("idle", "1us"), ("gate", "off"), ("low", "0.3")];

#[test]
fn a_recorded_run_under_lru_is_decided_again() {
    is_decided_again("lru", &LRU_AT_ONCE, true);
}

#[test]
fn a_run_under_lru_that_is_recorded_later_is_decided_again() {
    is_decided_again("lru", &LRU_AT_ONCE, false);
}

#[test]
fn a_recorded_run_under_a_write_buffer_is_decided_again() {
    is_decided_again("write-buffer", &[("timeout", "1us")], true);
}

#[test]
fn a_run_under_a_write_buffer_that_is_recorded_later_is_decided_again() {
    is_decided_again("write-buffer", &[("timeout", "1us")], false);
}

#[test]
fn a_recorded_run_under_any_policy_that_moves_is_decided_again() {
    let heat = [("idle", "1us"), ("min_residency", "1us"), ("gate", "off"), ("low", "0.3")];
    let filter = [("idle", "1us"), ("together", "1us"), ("gate", "off"), ("low", "0.3")];
    let elevator = [("idle", "1us"), ("low", "0.3")];
    let rule = "[[rule]]\nname = \"odd\"\nglob = \"*1\"\naction = \"move\"\nto = \"slow\"\n";
    let rules = [("rules", rule), ("idle", "1us"), ("min_residency", "1us"), ("low", "0.3")];
    let cases: [(&str, &[(&str, &str)]); 12] = [
        ("heat", &heat),
        ("elevator", &elevator),
        ("s3-fifo", &filter),
        ("sieve", &filter),
        ("arc", &filter),
        ("2q", &filter),
        ("w-tinylfu", &filter),
        ("gdsf", &filter),
        ("workflow", &heat),
        ("prefetch", &heat),
        ("energy", &elevator),
        ("rules", &rules),
    ];
    for (name, given) in cases {
        is_decided_again(name, given, true);
    }
    let tested = cases.iter().map(|(name, _)| *name).chain(["lru", "write-buffer"]);
    let tested: BTreeSet<_> = tested.collect();
    let moving = terrace_policies::POLICIES.iter().map(|policy| policy.name);
    let moving: BTreeSet<_> = moving.filter(|name| !["pinned", "size"].contains(name)).collect();
    assert_eq!(tested, moving, "every one of them");
}

#[test]
fn a_recorded_run_is_decided_again_over_a_tier_that_was_added() {
    let given: Vec<_> = LRU_AT_ONCE.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    let world = World::with(&[
        ("fast", 256 << 10, Persistency::Storage),
        ("slow", ROOMY, Persistency::Storage),
        ("spare", ROOMY, Persistency::Storage),
    ]);
    let directory = tempfile::tempdir().expect("a directory");
    let mut views = Vec::new();
    let stack = world.create_with(|parts| {
        views = tier_views(parts);
        parts.tiers.pop();
        parts.tactics = Some(tactics("lru", views[..2].to_vec(), &given));
        parts.recording = Some(settings(directory.path(), true));
    });
    let mut random = Random::new(9);
    stir(&stack, &mut random, 1);
    let next = tactics("lru", views, &given);
    stack.add_tier(world.tier_to_add("spare"), Some(next)).expect("is added");
    stir(&stack, &mut random, 2);
    stack.drain_tier("slow").expect("begins");
    stir(&stack, &mut random, 3);
    stack.stop_recording().expect("it ran");
    let heads = Reader::open(directory.path()).expect("opens");
    let tiers = heads.filter_map(|item| match item.expect("reads") {
        Item::File(head) => Some(head.tiers.len()),
        _ => None,
    });
    assert_eq!(tiers.collect::<Vec<_>>(), [2, 3]);
    let (rounds, actions) = replay(directory.path());
    assert!(rounds > 24 && actions > 0, "{rounds} rounds, {actions} actions");
    stack.close().expect("closes");
}

#[test]
fn a_policy_that_fails_is_in_the_trace() {
    let world = World::two();
    let directory = tempfile::tempdir().expect("a directory");
    let shared = Shared::new();
    let stack = world.create_with(|parts| {
        parts.tactics = Some(shared.tactics("scripted"));
        parts.recording = Some(settings(directory.path(), true));
    });
    shared.break_at(scripted::Step::Plan, Breakage::Panic);
    let _ = stack.run_policy();
    stack.stop_recording().expect("it ran");
    let causes: Vec<_> = Reader::open(directory.path())
        .expect("opens")
        .filter_map(|item| match item.expect("reads") {
            Item::Record(Record::Policy(change)) => Some((change.name, change.cause)),
            _ => None,
        })
        .collect();
    assert!(matches!(&causes[0], (name, Cause::Start(None)) if name == "scripted"));
    assert!(
        matches!(&causes[1], (name, Cause::Fallback { why }) if name == "pinned" && why.contains("panicked")),
        "{causes:?}"
    );
}
